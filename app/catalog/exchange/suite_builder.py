"""Builds a suite from the lines of other tools' files, or reports every problem with file and line.

The formats' modules parse the lines, and write files of a suite; what both share, such as grades and notes on what a
format cannot hold, is here.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from json import JSONDecodeError
from typing import Any, NoReturn

from pydantic import ValidationError

from app.base.documents.fields import MOST_PROBLEMS, did_you_mean, message_of, one_line, parse_document, path_of
from app.base.errors import InvalidInputError, Problem
from app.base.texts import REQUEST_LIMITS, Source, parse_json_text
from app.base.values import MAX_GRADE, Category, Value
from app.catalog.documents.canary_documents import CanaryDocument, JudgmentDocument, SuiteDocument, derive_key, is_key

_PAIR = re.compile(r"(-?[0-9]{1,9}(?:\.[0-9]{1,9})?)\s*=\s*([0-9])")
_SCALE = re.compile(r"0-([0-9]{1,9})")
_FORMS = "write pairs such as 1=0,2=1,3=2,4=3, or the scale they are on, such as 0-4"


class GradeMap(Value):
    """Mapping of grades: by `grades`, else scaled down from `highest`, else unchanged."""

    grades: Mapping[float, int]
    highest: int | None = None

    def of(self, value: float) -> float:
        """Return the mapped grade, which may still be outside 0 to 3."""
        if value in self.grades:
            return self.grades[value]
        return value if self.highest is None else value * MAX_GRADE / self.highest


UNCHANGED = GradeMap(grades={})


def parse_grades(text: str | None) -> GradeMap:
    """Return the map of `1=0,4=3` or `0-4`; None changes nothing. Raises InvalidInputError."""
    if text is None:
        return UNCHANGED
    scale = _SCALE.fullmatch(text.strip())
    if scale is not None and int(scale[1]) > 0:
        return GradeMap(grades={}, highest=int(scale[1]))
    grades: dict[float, int] = {}
    for part in text.split(","):
        pair = _PAIR.fullmatch(part.strip())
        if pair is None:
            raise _unusable(f"'{one_line(part)}' is no pair of grades; {_FORMS}")
        if int(pair[2]) > MAX_GRADE:
            raise _unusable(f"{pair[2]} is above {MAX_GRADE}, the highest grade")
        if float(pair[1]) in grades:
            raise _unusable(f"the grade {pair[1]} is given twice")
        grades[float(pair[1])] = int(pair[2])
    return GradeMap(grades=grades)


def _unusable(message: str) -> InvalidInputError:
    return InvalidInputError([Problem(path="grades", message=message)])


_COMMA = re.compile(r"-?[0-9]+,[0-9]+")
_IN_SUITES = "import the rest as another suite: an import replaces all canaries of its suite"
_Identity = tuple[str | None, str | None, str | None]


class ImportedSuite(Value):
    """A suite from another tool's files, with notes on what could not be imported."""

    suite: SuiteDocument
    judgments: int
    notes: tuple[str, ...]


class SuiteFiles(Value):
    """A suite as another tool's files (name -> text), with notes on what they cannot hold."""

    files: Mapping[str, str]
    notes: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _CanaryDraft:
    """A canary under construction, with the place of its first mention."""

    file: str
    line: int
    query: str | None = None
    named: bool = True
    """Whether the files name it; else its key is derived from its query."""
    fields: dict[str, Any] = field(default_factory=dict)
    judged: dict[_Identity, dict[str, Any]] = field(default_factory=dict)
    forbidden: dict[_Identity, dict[str, Any]] = field(default_factory=dict)


class Limits(Value):
    """Limits for texts from the network."""

    canaries: int = 100_000
    judgments: int = 500_000


class SuiteBuilder:
    """Collects canaries and judgments. `as_document`: ids in the files are documents, not chunks."""

    def __init__(
        self,
        *,
        as_document: bool = False,
        limits: Limits | None = None,
        grades: GradeMap = UNCHANGED,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        """Start empty; without `limits` for local files. `columns`: what columns of a CSV are, see `parse_columns`."""
        self.columns = columns or {}
        self._grades = grades
        self._limits = limits
        self._judgments = 0
        self._by_identity: dict[str, _CanaryDraft] = {}
        self._problems: list[Problem] = []
        self._notes: Counter[str] = Counter()
        self._first: dict[str, str] = {}
        self._as_document = as_document

    @property
    def maps_grades(self) -> bool:
        """Whether somebody said what grades mean."""
        return self._grades is not UNCHANGED

    def add_canary(
        self, identity: str, query: str | None, file: str, line: int, *, named: bool = True, **fields: Any
    ) -> None:
        """Add a canary, or fields to the one of this identity.

        `named`: the identity is a name, and its key if valid; else it is the query.
        """
        draft = self._draft(identity, file, line)
        draft.named = named
        if query is not None and draft.query not in {None, query}:
            self.add_problem(file, line, f"query '{one_line(identity)}' has another text than before")
        draft.query = query if draft.query is None else draft.query
        draft.fields |= self._with_free_category(fields, file, line)

    def _with_free_category(self, fields: Mapping[str, Any], file: str, line: int) -> Mapping[str, Any]:
        """Return the fields with a foreign category turned into a tag; a misspelled one stays, and is refused."""
        category = fields.get("category")
        if not isinstance(category, str) or not _is_free(category):
            return fields
        self.add_note("a category of the files became a tag", f"{file}:{line}")
        tags = fields.get("tags", ())
        rest = {name: value for name, value in fields.items() if name != "category"}
        return {**rest, "tags": [*(tags if isinstance(tags, list) else ()), category]}

    def add_judgment(
        self, identity: str, file: str, line: int, grade: int | None, source: str | None = None, **chunk: str | None
    ) -> None:
        """Add a judgment of a canary; `chunk` has an id, document or text. A grade of None forbids the chunk."""
        if self._as_document and chunk.get("document") is None:
            chunk["document"] = chunk.pop("id", None)
        named = {name: value for name, value in chunk.items() if value is not None}
        if not named:
            self.add_problem(file, line, "the judged chunk has neither an id nor a document nor a text")
            return
        self._judgments += 1
        if self._limits is not None and self._judgments > self._limits.judgments:
            self._refuse(f"there are more than {self._limits.judgments:,} judgments; {_IN_SUITES}", file, line)
        draft = self._draft(identity, file, line)
        place: _Identity = (named.get("id"), named.get("document"), named.get("text"))
        into = draft.forbidden if grade is None else draft.judged
        given = named if grade is None else {**named, "grade": grade}
        if source is not None:
            given = {**given, "source": source}
        before = into.setdefault(place, given)
        if before is not given:
            if before != given:
                judged = f"{one_line(next(iter(named.values())))}' of query '{one_line(identity)}"
                grades = f"first {before['grade']}, now {grade}"
                self.add_problem(file, line, f"'{judged}' is judged twice and differently: {grades}")
            else:
                self.add_note("a judgment that is given twice was taken once", f"{file}:{line}")

    def add_texts(self, texts: Mapping[str, str]) -> None:
        """Add texts to judged chunks, by their ids."""
        for draft in self._by_identity.values():
            for chunk in draft.judged.values():
                text = texts.get(chunk.get("id", chunk.get("document", "")))
                if text is not None:
                    chunk.setdefault("text", text)

    @property
    def problems(self) -> Sequence[Problem]:
        """The problems so far."""
        return tuple(self._problems)

    def judged_ids(self) -> set[str]:
        """Return the ids (or documents) of all judged chunks."""
        chunks = (chunk for one in self._by_identity.values() for chunk in one.judged.values())
        return {str(chunk.get("id", chunk.get("document"))) for chunk in chunks}

    def read_grade(self, text: str, file: str, line: int) -> int | None:
        """Return a grade from 0 to 3; others are rounded or clipped with a note. None = a problem was added."""
        try:
            value = self._grades.of(parse_number(text))
            whole = round(value)  # raises for infinity and NaN
        except (ValueError, OverflowError):
            comma = "; write a point for the comma" if _COMMA.fullmatch(text.strip()) else ""
            self.add_problem(file, line, f"the grade '{one_line(text)}' is not a number{comma}")
            return None
        if whole != value:
            self.add_note("a grade between two whole numbers was rounded", f"{file}:{line}")
        if whole < 0:
            self.add_note("a negative grade became 0", f"{file}:{line}")
        if whole > MAX_GRADE:
            message = (
                f"a grade above {MAX_GRADE} became {MAX_GRADE}; say what grades mean with grades, such as 0-4 or 4=3"
            )
            self.add_note(message, f"{file}:{line}")
        return min(max(whole, 0), MAX_GRADE)

    def parse_each(self, sources: Iterable[Source]) -> Iterator[tuple[Source, Any]]:
        """Yield each file with its JSON; one that cannot be read becomes a problem."""
        for source in sources:
            try:
                whole = self.parse_json(source)
            except ValueError as error:
                self.add_problem(source.name, 1, str(error))
                continue
            yield source, whole

    def parse_json(self, source: Source) -> Any:
        """Return the JSON of a whole file. Raises ValueError for none or, of one from the network, for too much."""
        try:
            return parse_json_text("".join(source.lines()), None if self._limits is None else REQUEST_LIMITS)
        except JSONDecodeError:
            raise ValueError("is not JSON") from None

    def add_problem(self, file: str, line: int | None, message: str) -> None:
        """Add a problem, which prevents the import. Raises InvalidInputError once there are too many."""
        self._problems.append(Problem(message=message, file=file, line=line))
        if len(self._problems) >= MOST_PROBLEMS:
            raise InvalidInputError(self._problems)

    def add_note(self, message: str, place: str = "") -> None:
        """Add a note on a loss; repeated ones are counted, and the first place is kept."""
        self._notes[message] += 1
        self._first.setdefault(message, place)

    def build(self, slug: str) -> ImportedSuite:
        """Return the suite. Raises InvalidInputError with every problem."""
        documents: list[CanaryDocument] = []
        keys = {one: one for one, draft in self._by_identity.items() if draft.named and is_key(one)}
        for identity in list(self._by_identity):
            draft = self._by_identity.pop(identity)  # frees it: there may be a hundred thousand
            if draft.query is None:
                self.add_note("a query with judgments but without a text was left out", f"{draft.file}:{draft.line}")
            elif not draft.judged and not draft.forbidden and not draft.fields:
                self.add_note("a query without judgments was left out", f"{draft.file}:{draft.line}")
            else:
                key = derive_key(identity, keys) if identity not in keys else identity
                document = self._document(key, draft)
                if document is not None:
                    keys.setdefault(document.key, identity.strip())
                    documents.append(document)
        if not documents and not self._problems:
            self._problems.append(
                Problem(
                    message="the files hold no query with judgments; docs/canary-files.md names each format's fields"
                )
            )
        if self._problems:
            raise InvalidInputError(self._problems)
        suite = parse_document(SuiteDocument, {"slug": slug})
        suite = suite.model_copy(update={"canaries": tuple(documents)})  # each is valid, and their keys differ
        judgments = sum(len(one.expected_chunks) + len(one.forbidden_chunks) for one in documents)
        return ImportedSuite(suite=suite, judgments=judgments, notes=self.notes())

    def notes(self) -> tuple[str, ...]:
        """Return the notes, each with its count and first place."""
        lines = []
        for note, count in self._notes.items():
            times, first = f"{count:,}x" if count > 1 else "", self._first[note]
            where = f"{'first ' if count > 1 else ''}at {first}" if first else ""
            details = ", ".join(part for part in (times, where) if part)
            lines.append(f"{note} ({details})" if details else note)
        return tuple(lines)

    def _draft(self, identity: str, file: str, line: int) -> _CanaryDraft:
        draft = self._by_identity.get(identity)
        if draft is None:
            if self._limits is not None and len(self._by_identity) >= self._limits.canaries:
                self._refuse(f"there are more than {self._limits.canaries:,} queries; {_IN_SUITES}", file, line)
            draft = self._by_identity[identity] = _CanaryDraft(file=file, line=line)
        return draft

    def _refuse(self, message: str, file: str, line: int) -> NoReturn:
        """Raise InvalidInputError at once: a limit is exceeded."""
        raise InvalidInputError([*self._problems, Problem(message=message, file=file, line=line)])

    def _document(self, key: str, draft: _CanaryDraft) -> CanaryDocument | None:
        raw = {
            "forbidden_chunks": list(draft.forbidden.values()),
            **draft.fields,
            "key": key,
            "query": draft.query,
            "expected_chunks": list(draft.judged.values()),
        }
        try:
            return CanaryDocument.model_validate(raw)
        except ValidationError as error:
            for one in error.errors(include_url=False):
                place = path_of(one["loc"])
                message = message_of(CanaryDocument, one)
                self.add_problem(draft.file, draft.line, f"{place}: {message}" if place else message)
            return None


@lru_cache(maxsize=1000)
def _is_free(category: str) -> bool:
    """Whether a category is neither one of ours nor similar; cached, as files repeat the same few."""
    ours = [str(one) for one in Category]
    return category not in ours and not did_you_mean(category, ours)


def parse_number(text: str) -> float:
    """Return the number of a text. Raises ValueError, also for `1_0`, which only Python takes for a number."""
    if "_" in text:
        raise ValueError
    return float(text)


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects of what should be a list of them."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def is_left_out(canary: CanaryDocument, fields: Collection[str]) -> bool:
    """Whether an import leaves the canary out: no chunk is judged and nothing else of it is kept by these fields."""
    blank = CanaryDocument(key="x", query="x")
    kept = {*fields, "expected_chunks"} - {"key", "query"}
    return all(getattr(canary, name) == getattr(blank, name) for name in kept)


def graded_names(canary: CanaryDocument, notes: list[str]) -> dict[str, int]:
    """Return the grades of a canary's chunks by id or document; what has neither is noted."""
    grades: dict[str, int] = {}
    for name, chunk in named_chunks(canary, notes):
        if grades.setdefault(name, chunk.grade) != chunk.grade:
            notes.append("a second grade for the same id")
    return grades


def named_chunks(canary: CanaryDocument, notes: list[str]) -> Iterator[tuple[str, JudgmentDocument]]:
    """Yield the expected chunks of a canary with their id or document; what has neither is noted."""
    for chunk in canary.expected_chunks:
        name = chunk.id or chunk.document
        if name is None:
            notes.append("judgments by text alone")
        else:
            yield name, chunk


def losses(
    suite: SuiteDocument,
    *,
    fields: Collection[str],
    extra: Iterable[str] = (),
    texts: bool = True,
    one_identity: bool = False,
    grades: bool = True,
) -> tuple[str, ...]:
    """Return a note for each kind of loss, with the number of canaries affected.

    `fields`: fields of a canary that the format holds besides key and expected chunks; `texts`, `grades`: it holds
    those of chunks; `one_identity`: a chunk is an id or a document, not both; `extra`: losses found by the writer.
    """
    lost: Counter[str] = Counter(extra)
    blank = CanaryDocument(key="x", query="x")
    for canary in suite.canaries or ():
        if is_left_out(canary, fields):
            lost["canaries without judgments"] += 1
        for name in type(canary).model_fields:
            is_kept = name in fields or name in {"key", "query", "expected_chunks"}
            if not is_kept and getattr(canary, name) != getattr(blank, name):
                lost[name] += 1
        chunks = canary.expected_chunks
        if not texts and any(chunk.text is not None and (chunk.id or chunk.document) for chunk in chunks):
            lost["texts of judgments"] += 1
        if one_identity and any(chunk.id is not None and chunk.document is not None for chunk in chunks):
            lost["documents of judgments that have an id"] += 1
        if one_identity and any(chunk.id is None and chunk.document is not None for chunk in chunks):
            lost["documents as such (they come back as ids of chunks, unless read with --as-documents)"] += 1
        if any(chunk.source is not None for chunk in chunks):
            lost["sources of judgments"] += 1
        if not grades and any(chunk.grade != 1 for chunk in chunks):
            lost["grades"] += 1
    return tuple(f"the format cannot hold {name} (lost {count:,}x)" for name, count in lost.items())
