"""Puts together what other tools' files say, line by line, into one suite; or refuses all of it with file and line.

How a format writes its lines is said in the format's own module.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

from pydantic import ValidationError

from app.domain.errors import InvalidInputError, Problem
from app.domain.model import MAX_GRADE, Category
from app.formats.catalog.canary_documents import derived_key, is_key
from app.formats.catalog.documents import CanaryDocument, SuiteDocument
from app.formats.catalog.exchange.grades import UNCHANGED, GradeMap
from app.formats.fields import MOST_PROBLEMS, did_you_mean, one_line
from app.formats.validation_messages import message_of, parse_document, path_of

_Identity = tuple[str | None, str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A named text that can be read line by line, as often as wanted."""

    name: str
    lines: Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A suite from another tool's files, and what of them it could not take."""

    suite: SuiteDocument
    judgments: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A suite as another tool's files (name -> text), and what of it they cannot hold."""

    files: Mapping[str, str]
    notes: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Gathered:
    """What is known of one canary so far, and where it was first spoken of."""

    file: str
    line: int
    query: str | None = None
    named: bool = True
    """Whether the files name it; else its key is made of its query."""
    fields: dict[str, Any] = field(default_factory=dict)
    judged: dict[_Identity, dict[str, Any]] = field(default_factory=dict)
    forbidden: dict[_Identity, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is read of texts that came over the network."""

    canaries: int = 100_000
    judgments: int = 500_000


class Gathering:
    """What has been read so far. `as_document`: what the files call a document is a document, not a chunk."""

    def __init__(
        self, *, as_document: bool = False, limits: Limits | None = None, grades: GradeMap = UNCHANGED
    ) -> None:
        """Begin with nothing. Limits of None are for files of one's own: without any."""
        self._grades = grades
        self._limits = limits
        self._judgments = 0
        self._by_identity: dict[str, _Gathered] = {}
        self._problems: list[Problem] = []
        self._notes: Counter[str] = Counter()
        self._first: dict[str, str] = {}
        self._as_document = as_document

    def canary(
        self, identity: str, query: str | None, file: str, line: int, *, named: bool = True, **fields: Any
    ) -> None:
        """Take up a canary, by whatever names it in the files; what is said again adds to it.

        `named`: the identity is a name, which is its key where it may be one; else it is the query.
        """
        gathered = self._known(identity, file, line)
        gathered.named = named
        if query is not None and gathered.query not in {None, query}:
            self.problem(file, line, f"query '{one_line(identity)}' has another text than before")
        gathered.query = query if gathered.query is None else gathered.query
        gathered.fields |= self._with_free_category(fields, file, line)

    def _with_free_category(self, fields: Mapping[str, Any], file: str, line: int) -> Mapping[str, Any]:
        """Make a category that is none of ours a tag; one that is nearly ours is left to be refused as misspelled."""
        category = fields.get("category")
        if not isinstance(category, str) or not _is_free(category):
            return fields
        self.note("a category of the files became a tag", f"{file}:{line}")
        tags = fields.get("tags", ())
        rest = {name: value for name, value in fields.items() if name != "category"}
        return {**rest, "tags": [*(tags if isinstance(tags, list) else ()), category]}

    def judgment(self, identity: str, file: str, line: int, grade: int | None, **chunk: str | None) -> None:
        """Take up a judgment of a canary; `chunk` has an id, document or text. A grade of None forbids the chunk."""
        if self._as_document and chunk.get("document") is None:
            chunk["document"] = chunk.pop("id", None)
        named = {name: value for name, value in chunk.items() if value is not None}
        if not named:
            self.problem(file, line, "the judged chunk has neither an id nor a document nor a text")
            return
        self._judgments += 1
        if self._limits is not None and self._judgments > self._limits.judgments:
            self._stop(f"there are more than {self._limits.judgments:,} judgments; import them in parts", file, line)
        gathered = self._known(identity, file, line)
        place: _Identity = (named.get("id"), named.get("document"), named.get("text"))
        into = gathered.forbidden if grade is None else gathered.judged
        given: dict[str, Any] = named if grade is None else {**named, "grade": grade}
        before = into.setdefault(place, given)
        if before is not given:
            if before != given:
                judged = f"{one_line(next(iter(named.values())))}' of query '{one_line(identity)}"
                grades = f"first {before['grade']}, now {grade}"
                self.problem(file, line, f"'{judged}' is judged twice and differently: {grades}")
            else:
                self.note("a judgment that is given twice was taken once", f"{file}:{line}")

    def texts(self, wanted: Mapping[str, str]) -> None:
        """Give judged chunks the texts that belong to their ids."""
        for gathered in self._by_identity.values():
            for chunk in gathered.judged.values():
                text = wanted.get(chunk.get("id", chunk.get("document", "")))
                if text is not None:
                    chunk.setdefault("text", text)

    def judged_ids(self) -> set[str]:
        """List the ids (or documents) of everything judged."""
        chunks = (chunk for one in self._by_identity.values() for chunk in one.judged.values())
        return {str(chunk.get("id", chunk.get("document"))) for chunk in chunks}

    def grade(self, text: str, file: str, line: int) -> int | None:
        """Read a grade: whole numbers from 0 to 3; others are brought there, and that is noted. None = a problem."""
        try:
            value = self._grades.of(float(text))
            whole = round(value)  # neither infinity nor NaN can be
        except (ValueError, OverflowError):
            self.problem(file, line, f"the grade '{one_line(text)}' is not a number")
            return None
        if whole != value:
            self.note("a grade between two whole numbers was rounded", f"{file}:{line}")
        if whole < 0:
            self.note("a negative grade became 0", f"{file}:{line}")
        if whole > MAX_GRADE:
            told = f"a grade above {MAX_GRADE} became {MAX_GRADE}; say what grades mean with grades, such as 0-4 or 4=3"
            self.note(told, f"{file}:{line}")
        return min(max(whole, 0), MAX_GRADE)

    def problem(self, file: str, line: int | None, message: str) -> None:
        """Note what is broken; nothing is imported then. Raises InvalidInputError once there is too much of it."""
        self._problems.append(Problem(message=message, file=file, line=line))
        if len(self._problems) >= MOST_PROBLEMS:
            raise InvalidInputError(self._problems)

    def note(self, message: str, place: str = "") -> None:
        """Note what of the files a suite cannot hold; the first place of each kind is told."""
        self._notes[message] += 1
        self._first.setdefault(message, place)

    def finish(self, slug: str) -> Imported:
        """Make the suite. Raises InvalidInputError with everything that is broken."""
        documents: list[CanaryDocument] = []
        keys = {one: one for one, gathered in self._by_identity.items() if gathered.named and is_key(one)}
        for identity in list(self._by_identity):
            gathered = self._by_identity.pop(identity)  # else a hundred thousand of them would be held twice
            if gathered.query is None:
                self.note("a query that is judged but nowhere asked was left out", f"{gathered.file}:{gathered.line}")
            elif not gathered.judged and not gathered.forbidden and not gathered.fields:
                self.note("a query without judgments was left out", f"{gathered.file}:{gathered.line}")
            else:
                key = derived_key(identity, keys) if identity not in keys else identity
                document = self._document(key, gathered)
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
        return Imported(suite=suite, judgments=judgments, notes=self.notes())

    def notes(self) -> tuple[str, ...]:
        """Say what was noted, each with how often."""
        told = []
        for message, count in self._notes.items():
            times, first = f"{count:,}x" if count > 1 else "", self._first[message]
            where = f"{'first ' if count > 1 else ''}at {first}" if first else ""
            details = ", ".join(part for part in (times, where) if part)
            told.append(f"{message} ({details})" if details else message)
        return tuple(told)

    def _known(self, identity: str, file: str, line: int) -> _Gathered:
        known = self._by_identity.get(identity)
        if known is None:
            if self._limits is not None and len(self._by_identity) >= self._limits.canaries:
                self._stop(f"there are more than {self._limits.canaries:,} queries; import them in parts", file, line)
            known = self._by_identity[identity] = _Gathered(file=file, line=line)
        return known

    def _stop(self, message: str, file: str, line: int) -> NoReturn:
        """Refuse the files at once: reading on would take what nobody has."""
        raise InvalidInputError([*self._problems, Problem(message=message, file=file, line=line)])

    def _document(self, key: str, gathered: _Gathered) -> CanaryDocument | None:
        raw = {
            "forbidden_chunks": list(gathered.forbidden.values()),
            **gathered.fields,
            "key": key,
            "query": gathered.query,
            "expected_chunks": list(gathered.judged.values()),
        }
        try:
            return CanaryDocument.model_validate(raw)
        except ValidationError as error:
            for one in error.errors(include_url=False):
                place = path_of(one["loc"])
                told = message_of(CanaryDocument, one)
                self.problem(gathered.file, gathered.line, f"{place}: {told}" if place else told)
            return None


@lru_cache(maxsize=1000)
def _is_free(category: str) -> bool:
    """Whether a category is neither one of ours nor nearly so; a file says the same few a hundred thousand times."""
    ours = [str(one) for one in Category]
    return category not in ours and not did_you_mean(category, ours)


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects of what should be a list of them."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
