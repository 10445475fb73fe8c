"""Documents of annotation tasks and of what annotators send; annotations as CSV, corpus files."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from app.annotation.domain.pools import DEFAULT_POOL, MOST_ANSWERS, PoolPlan, Stratum, grade_limit
from app.answers.domain.judges import Question
from app.base.documents.fields import (
    MOST_PROBLEMS,
    CanaryKey,
    Document,
    Flag,
    Number,
    Place,
    Share,
    Slug,
    Text,
    Whole,
    field_error,
    field_errors,
    one_line,
)
from app.base.errors import InvalidInputError, Problem
from app.base.texts import Source
from app.base.values import MAX_GRADE, Value, asdict
from app.catalog.exchange.csv import escape_formula, rows
from app.catalog.exchange.datasets import records, text_of
from app.catalog.exchange.suite_builder import SuiteBuilder

Annotator = Annotated[Text, StringConstraints(max_length=64)]
_DEEPEST = 1_000
_SAMPLE = Annotated[Whole, Field(ge=1, le=1_000)]


class StratumDocument(Document):
    """A stratum below the pool, `{to: 30, sample: 10}`, or the rest of the corpus, `{rest: 10}`."""

    to: Annotated[Whole, Field(ge=2, le=_DEEPEST)] | None = None
    sample: _SAMPLE | None = None
    rest: _SAMPLE | None = None

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if self.rest is None and (self.to is None or self.sample is None):
            raise field_error("must be {to, sample} or {rest}")
        if self.rest is not None and (self.to is not None or self.sample is not None):
            raise field_error("must be {to, sample} or {rest}, not both")
        return self


class DrawnAnswersDocument(Document):
    """Answers that a judge has rated, of which people label a random sample: yes or no to one of its questions.

    Of each canary one answer in each window enters: repeats are not independent.
    """

    judge: Slug
    question: Question
    count: Annotated[Whole, Field(ge=1, le=MOST_ANSWERS)] = 200
    window_hours: Annotated[Whole, Field(ge=1, le=8_760)] = 24


class PairsDocument(Document):
    """The most different pairs of a shadow, of which people say which side is better."""

    shadow: Slug
    count: Annotated[Whole, Field(ge=1, le=200)] = 50


class TaskDocument(Document):
    """A task: the canaries of a suite, and which of what retrievers return to them people grade.

    Everything that ranks up to `pool` with any retriever is graded, of what ranks deeper a sample of each stratum, and
    `rest` random texts of the corpus. A share of `overlap` of the items is for every annotator. `checks` texts with a
    known grade are planted among them: about half of them their canary expects, the others another one does. With
    `answers` in place of `retrievers` people label generated answers, on the scale 0-1: no or yes. With `pairs` they
    compare what users got with what the candidate of a shadow gives, side by side: 0 = left is better, 1 = no
    difference, 2 = right.
    """

    slug: Slug
    suite: Slug
    retrievers: Annotated[tuple[Slug, ...], Field(max_length=10)] = ()
    answers: DrawnAnswersDocument | None = None
    pairs: PairsDocument | None = None
    keys: Annotated[tuple[CanaryKey, ...], Field(max_length=10_000)] = ()
    """Of the canaries; none = all of the suite."""
    pool: Annotated[Whole, Field(ge=1, le=100)] = DEFAULT_POOL
    strata: Annotated[tuple[StratumDocument, ...], Field(max_length=6)] = (
        StratumDocument(to=30, sample=10),
        StratumDocument(to=100, sample=10),
    )
    corpus: Slug | None = None
    scale: Literal["0-1", "0-2", "0-3"] = "0-2"
    overlap: Share = 0.2
    checks: Annotated[Whole, Field(ge=0, le=200)] = 0
    """Texts with a known grade that are mixed in, by which is known how often annotators err; 20 are advised."""
    seed: Annotated[Whole, Field(ge=0, le=2**31 - 1)] = 0

    @model_validator(mode="before")
    @classmethod
    def _without_strata(cls, given: Any) -> Any:
        """Leave out what answers and pairs do not have."""
        if isinstance(given, Mapping):
            if given.get("answers") is not None:
                return {"strata": [], "scale": "0-1", **given}
            if given.get("pairs") is not None:
                return {"strata": [], **given}
        return given

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        kind = "answers" if self.answers is not None else "pairs" if self.pairs is not None else None
        if kind is None:
            if not self.retrievers:
                reason = "must name a retriever, or `answers` a judge, or `pairs` a shadow"
                raise field_errors([(("retrievers",), reason)])
            return self
        has = {"retrievers": self.retrievers, "strata": self.strata, "corpus": self.corpus, "checks": self.checks}
        problems: list[tuple[Place, str]] = [
            ((name,), f"is of chunks, and this task is of `{kind}`") for name, value in has.items() if value
        ]
        if self.answers is not None and self.pairs is not None:
            problems.append((("pairs",), "a task is of `answers` or of `pairs`"))
        scale, meaning = ("0-1", "no or yes") if kind == "answers" else ("0-2", "left, neither or right")
        if self.scale != scale:
            problems.append((("scale",), f"must be {scale} for {kind}: {meaning}"))
        if kind == "pairs" and self.keys:
            problems.append((("keys",), "are of canaries, and pairs are of what users asked"))
        if problems:
            raise field_errors(problems)
        return self

    @model_validator(mode="after")
    def _plannable(self) -> Self:
        problems: list[tuple[Place, str]] = []
        if len(set(self.retrievers)) < len(self.retrievers):
            problems.append((("retrievers",), "names a retriever twice"))
        depth = self.pool
        for place, stratum in enumerate(self.strata):
            if stratum.rest is not None and place < len(self.strata) - 1:
                problems.append((("strata", place), "the rest comes last"))
            if stratum.to is not None and stratum.to <= depth:
                problems.append((("strata", place, "to"), f"must be above {depth}, where the one before it ends"))
            depth = stratum.to or depth
        if any(stratum.rest for stratum in self.strata) and self.corpus is None:
            problems.append((("corpus",), "is needed for random negatives: import one, or leave `rest` out"))
        if problems:
            raise field_errors(problems)
        return self

    @property
    def plan(self) -> PoolPlan:
        """What is drawn for each canary."""
        strata = [
            Stratum(to=one.to, sample=one.sample)
            for one in self.strata
            if one.to is not None and one.sample is not None
        ]
        rest = next((one.rest for one in self.strata if one.rest), 0)
        return PoolPlan(pool=self.pool, strata=tuple(strata), rest=rest)

    @property
    def highest_grade(self) -> int:
        """Highest grade of the scale."""
        return grade_limit(self.scale)


class AnnotationRequest(Document):
    """What an annotator says of an item: a grade, or that it skips it. `annotator` only where there are no keys."""

    grade: Annotated[Whole, Field(ge=0, le=MAX_GRADE)] | None = None
    skip: Flag = False
    seconds: Annotated[Number, Field(ge=0, le=86_400)] | None = None
    annotator: Annotator | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.grade is None) != self.skip:
            raise field_error("must have either a grade or `skip: true`")
        return self


class UndoRequest(Document):
    """A request to withdraw one's last annotation."""

    annotator: Annotator | None = None


class AdjudicationRequest(Document):
    """A decision on a disputed item."""

    grade: Annotated[Whole, Field(ge=0, le=MAX_GRADE)]


COLUMNS: Final = ("canary", "chunk_id", "document", "text", "annotator", "grade", "query", "vars", "history")
"""The last three are for people who read a file: by what the query of a canary is to be read. None are taken in."""
SKIPPED: Final = "skip"
"""Grade of an item that an annotator skipped."""
_LONGEST_NAME: Final = 64


class AnnotationLine(Value):
    """A grade of an annotator; `grade` None = skipped. `place` is its file and line.

    Query, variables and conversation of the canary are written as text and not read.
    """

    canary: str
    chunk_id: str
    document: str
    text: str
    annotator: str
    grade: int | None
    query: str = ""
    vars: str = ""
    history: str = ""
    place: tuple[str, int] = ("", 0)


def write_annotations(lines: Iterable[AnnotationLine]) -> str:
    """Write annotations as CSV; no cell is evaluated by a spreadsheet."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for line in lines:
        values = asdict(line) | {"grade": SKIPPED if line.grade is None else line.grade}
        writer.writerow([escape_formula(values[name]) for name in COLUMNS])
    return text.getvalue()


def read_annotations(sources: Sequence[Source], *, highest: int) -> list[AnnotationLine]:
    """Read annotations; a chunk is named by its id or its text. Raises InvalidInputError with every problem."""
    builder = SuiteBuilder()
    problems: list[Problem] = []
    found: list[AnnotationLine] = []
    for source in sources:
        for number, row in rows(source, builder, required=("canary", "annotator", "grade"), known=COLUMNS, aliases={}):
            line = _line(row, highest, (source.name, number))
            if isinstance(line, str):
                problems.append(Problem(message=line, file=source.name, line=number))
            else:
                found.append(line)
    problems += builder.problems
    if problems:
        raise InvalidInputError(problems[:MOST_PROBLEMS])
    return found


def _line(row: dict[str, str], highest: int, place: tuple[str, int]) -> AnnotationLine | str:
    """Return the annotation of a line, or what is wrong with it."""
    missing = next((name for name in ("canary", "annotator", "grade") if name not in row), None)
    if missing is not None:
        return f"has no {missing}"
    if "chunk_id" not in row and "text" not in row:
        return "has neither a chunk_id nor a text"
    if len(row["annotator"]) > _LONGEST_NAME:
        return f"names an annotator of more than {_LONGEST_NAME} characters"
    grade = row["grade"].strip().lower()
    if grade != SKIPPED and not (grade.isascii() and grade.isdecimal() and int(grade[:3]) <= highest):
        return f"has the grade '{one_line(grade)}'; grades are 0 to {highest}, or {SKIPPED}"
    return AnnotationLine(
        canary=row["canary"],
        chunk_id=row.get("chunk_id", ""),
        document=row.get("document", ""),
        text=row.get("text", ""),
        annotator=row["annotator"].strip(),
        grade=None if grade == SKIPPED else int(grade),
        place=place,
    )


_LONGEST_TEXT: Final = 20_000
"""Most characters of a text of a corpus; longer ones are cut."""


_LEAST_PASSAGE, _MOST_PASSAGE = 60, 300
"""Characters of a passage: enough to answer something, and few enough to lie within one chunk of an index."""
_NO_PROSE = re.compile(r"\s*(?:#|\||```|~~~|---|===|\.\. )")
"""Beginning of a line that is a heading, a table, a fence or a directive."""
_SENTENCE_ENDS = re.compile(r"(?<=[.!?\u3002])\s+")


def read_passages(source: Source) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of the passages of a document: sentences of one paragraph, without headings, tables and code."""
    number, lines, is_code = 0, list[str](), False
    for line in (*source.lines(), ""):
        fence = line.lstrip().startswith(("```", "~~~"))
        is_code ^= fence
        if line.strip() and not fence and not is_code and not _NO_PROSE.match(line):
            lines.append(line.strip())
            continue
        for text in _passages(" ".join(" ".join(lines).split())):
            number += 1
            yield f"{source.name}#{number}", text
        lines = []


def _passages(paragraph: str) -> Iterator[str]:
    """Yield whole sentences that follow each other, as many as a passage may have."""
    passage = ""
    for sentence in (*_SENTENCE_ENDS.split(paragraph), ""):
        joined = f"{passage} {sentence}".strip()
        if sentence and len(joined) <= _MOST_PASSAGE:
            passage = joined
            continue
        if _LEAST_PASSAGE <= len(passage) <= _MOST_PASSAGE:
            yield passage
        passage = sentence


def read_corpus(sources: Sequence[Source]) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of every line with a text, else with a title.

    Raises InvalidInputError, at its end or after 100 problems, with file, line and reason of every wrong line.
    """
    builder = SuiteBuilder()
    for source in sources:
        for number, record in records(source, builder):
            name = text_of(record, "_id", "id", "doc_id")
            if name is None:
                builder.add_problem(source.name, number, "has no _id")
            elif not builder.problems:
                body = text_of(record, "text", "title")  # retrievers seldom put the title into the text of a chunk
                if body is not None:
                    yield name, body[:_LONGEST_TEXT]
    if builder.problems:
        raise InvalidInputError(builder.problems)
