"""Reads canary files: a sequence of YAML texts in, documents out, or every problem with its file and line.

Reads no file itself: the texts, the environment and a reader of secret files are given. `canary_export` writes them.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ValidationError, model_validator

from app.domain.errors import InvalidInputError, Problem
from app.formats.complaints import message_of, path_of, place_of
from app.formats.documents import (
    CanaryDocument,
    CheckDocument,
    HookDocument,
    RetrieverDocument,
    SuiteDocument,
)
from app.formats.fields import Document, Place, Slug, Substituted, complaints, shortened, suggestion
from app.formats.secret_fields import header_places, key_places
from app.formats.yaml_source import Located, read_yaml

NOTHING_KNOWN: Mapping[str, Collection[str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where something is defined."""

    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """What canary files say, each kind in the order of the files."""

    suites: tuple[SuiteDocument, ...] = ()
    retrievers: tuple[RetrieverDocument, ...] = ()
    checks: tuple[CheckDocument, ...] = ()
    hooks: tuple[HookDocument, ...] = ()
    sources: Mapping[tuple[str, ...], Source] = field(default_factory=dict, compare=False)
    """By ("suite", slug), ("canary", suite, key), ("retriever", slug), ("check", slug), ("hook", slug)."""


def read_canary_files(
    files: Sequence[tuple[str, str | bytes]],
    environment: Mapping[str, str],
    read_secret: Callable[[str], str] | None,
    *,
    known: Mapping[str, Collection[str]] = NOTHING_KNOWN,
    retrievers_alone: bool = False,
) -> Documents:
    """Return what (name, text) pairs define together; raise InvalidInputError with all problems, in file order.

    `environment` fills `${NAME}`. `read_secret` returns the text of the file a `*_file` key names (OSError or
    ValueError if it cannot); None refuses such keys, as texts that came over the network must be. Whatever a check
    names must be defined in the files or be in `known`, slugs by kind: "suite", "retriever", "hook". With
    `retrievers_alone` nothing else in the files is looked at, whatever is wrong with it.
    """
    pages: list[_Page] = []
    problems: list[Problem] = []
    unreadable = False
    for name, text in files:
        located, found = read_yaml(name, text, environment)
        if retrievers_alone:
            located, found = _retrievers_alone(located, found)
        problems += found
        unreadable = unreadable or (bool(found) and not located)
        if not found and not retrievers_alone and not any(document.data for document in located):
            # A file cut short while it was written would else archive everything it defined, and say nothing.
            problems.append(Problem(message="is empty; delete it to archive what it defined", file=name, line=1))
        pages += [_Page(file=name, located=document) for document in located if document.data is not None]
    for page in pages:
        problems += _resolve_secret_files(page, read_secret)
        problems += page.validate()
    definitions, repeated = _definitions(pages)
    problems += repeated
    if not unreadable:  # else what seems to be missing may be defined where nobody could read it
        problems += _dangling(pages, definitions, known)
        problems += _uncomputed_floors(pages)
        problems += _unrecognisable_chunks(pages)
        problems += _undatable(pages)
    if problems:
        order = {name: position for position, (name, _) in reversed(list(enumerate(files)))}
        raise InvalidInputError(sorted(problems, key=lambda problem: (order[str(problem.file)], problem.line or 0)))
    return _joined([page.valid for page in pages], definitions)


def _retrievers_alone(located: Sequence[Located], found: Sequence[Problem]) -> tuple[list[Located], list[Problem]]:
    """Leave out what is not about retrievers, and what is wrong with it: a variable that is not set, for example."""
    elsewhere = {
        document.line_of(place) for document in located for place in document.broken if place[:1] != ("retrievers",)
    }
    kept = [
        replace(document, data={name: part for name, part in document.data.items() if name == "retrievers"})
        for document in located
        if isinstance(document.data, dict)
    ]
    return kept, [problem for problem in found if problem.line not in elsewhere]


def _none_is_empty(value: Any) -> Any:
    return () if value is None else value


class CanaryFile(Document):
    """One document of a canary file: a suite with its canaries, retrievers, checks, hooks; all of them optional."""

    suite: Slug | None = None
    canaries: Annotated[tuple[CanaryDocument, ...], BeforeValidator(_none_is_empty)] = ()
    retrievers: Annotated[tuple[RetrieverDocument, ...], BeforeValidator(_none_is_empty)] = ()
    checks: Annotated[tuple[CheckDocument, ...], BeforeValidator(_none_is_empty)] = ()
    hooks: Annotated[tuple[HookDocument, ...], BeforeValidator(_none_is_empty)] = ()

    @model_validator(mode="after")
    def _canaries_have_a_suite(self) -> Self:
        if self.canaries and self.suite is None:
            raise complaints([(("canaries",), "need a suite; add 'suite: NAME'")])
        return self


@dataclass(slots=True, kw_only=True)
class _Page:
    """One YAML document of one file."""

    file: str
    located: Located
    valid: CanaryFile = field(default_factory=CanaryFile)

    def validate(self) -> list[Problem]:
        try:
            self.valid = CanaryFile.model_validate(self.located.data)
        except ValidationError as error:
            return [
                replace(self.problem(one["loc"], message_of(CanaryFile, one)), path=path_of(place_of(one)) or None)
                for one in error.errors(include_url=False)
                if not self.located.touches_broken(one["loc"])
            ]
        return []

    def problem(self, place: Place, message: str) -> Problem:
        return Problem(message=message, path=path_of(place) or None, file=self.file, line=self.line_of(place))

    def line_of(self, place: Place) -> int:
        return self.located.line_of(place)

    def items(self, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (position, raw mapping) of a list of the page, whether or not it is valid."""
        listed = self.located.data.get(kind) if isinstance(self.located.data, dict) else None
        for position, item in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(item, dict):
                yield position, item


def _resolve_secret_files(page: _Page, read_secret: Callable[[str], str] | None) -> Iterator[Problem]:
    """Put what files hold, less the line break at their end, in place of `secret_file`, `headers_file` and the like."""
    for position, retriever in page.items("retrievers"):
        for holder, place in header_places(retriever):
            if not isinstance(holder.get("headers_file", {}), dict):
                del holder["headers_file"]
                here = ("retrievers", position, *place, "headers_file")
                yield page.problem(here, "must be a mapping of header names to files")
    for files, here, values, target in list(_secret_files(page)):
        name, key = files.pop(here[-1]), str(target[-1])
        if key in values:
            yield page.problem(here, f"'{shortened(key)}' is given already; write one of the two")
            continue
        page.located.lines[target] = page.line_of(here)
        if not isinstance(name, str) or not name:
            yield page.problem(here, "must be the path of a file")
        elif read_secret is None:
            yield page.problem(here, "names a file of this server; only canary files on its own disk may")
        else:
            try:
                values[key] = Substituted(read_secret(name).rstrip("\r\n"))
            except (OSError, ValueError) as error:
                page.located.broken.add(target)  # that it is missing follows, and is not told
                yield page.problem(here, _why_unreadable(name, error))


def _why_unreadable(name: str, error: OSError | ValueError) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    if not _looks_like_path(name):  # then it may be the secret itself, written where its file belongs
        return f"the file it names cannot be read: {reason}"
    tried = error.filename if isinstance(error, OSError) and error.filename else name
    where = "" if str(tried) == name else f" (a path is relative to the working directory, so this is {tried})"
    return f"the file '{shortened(name)}' cannot be read: {reason}{where}"


def _looks_like_path(name: str) -> bool:
    if len(name) > _LONGEST_NAME or _RANDOM.search(name):
        return False
    return name.startswith(("/", "./", "../", "~/")) or _FILE_NAME.fullmatch(name) is not None


_LONGEST_NAME = 500
_FILE_NAME = re.compile(r"[\w ./\\:-]*\.[a-zA-Z]{2,8}|[a-z0-9_. -]+(/[a-z0-9_. -]+)+")
_RANDOM = re.compile(r"(?=[a-z]*[A-Z0-9])[A-Za-z0-9+]{20,}|[A-Za-z0-9+]{32,}")
"""A long run of letters in which there is more than small ones, or that is no word any more."""


def _secret_files(page: _Page) -> Iterator[tuple[dict[Any, Any], Place, dict[Any, Any], Place]]:
    """Yield (mapping with the path of a file, its place, mapping the content belongs into, its place)."""
    for kind in ("hooks", "retrievers"):
        for position, item in page.items(kind):
            for mapping, inner, keys in [(item, (), ("secret",))] if kind == "hooks" else key_places(item):
                for key in keys:
                    place: Place = (kind, position, *inner)
                    if f"{key}_file" in mapping:
                        yield mapping, (*place, f"{key}_file"), mapping, (*place, key)
    for position, retriever in page.items("retrievers"):
        for holder, inner in header_places(retriever):
            files, headers = holder.pop("headers_file", {}), holder.get("headers", {})
            if not files or not isinstance(headers, dict):
                continue
            holder["headers"] = headers
            for name in files:
                place = ("retrievers", position, *inner)
                yield files, (*place, "headers_file", name), headers, (*place, "headers", name)


_LISTS = {"retrievers": "retriever", "checks": "check", "hooks": "hook"}


def _definitions(pages: Sequence[_Page]) -> tuple[dict[tuple[str, ...], Source], list[Problem]]:
    """Return what is defined where, by its raw slug or key, and the problems of what is defined twice."""
    defined: dict[tuple[str, ...], Source] = {}
    problems = []
    for page in pages:
        suite = page.located.data.get("suite") if isinstance(page.located.data, dict) else None
        if isinstance(suite, str):
            defined.setdefault(("suite", str(suite)), Source(file=page.file, line=page.line_of(("suite",))))
        for kind, place, identity in _identities(page, str(suite)):
            line = page.line_of(place)
            if identity in defined:
                first = defined[identity]
                message = f"the {kind} '{shortened(identity[-1])}' is defined twice, first at {first.file}:{first.line}"
                problems.append(page.problem(place, message))
            else:
                defined[identity] = Source(file=page.file, line=line)
    return defined, problems


def _identities(page: _Page, suite: str) -> Iterator[tuple[str, Place, tuple[str, ...]]]:
    """Yield (kind, place of the name, identity) of everything a page defines but its suite."""
    for position, canary in page.items("canaries"):
        if isinstance(canary.get("key"), str):
            yield "canary", ("canaries", position, "key"), ("canary", suite, str(canary["key"]))
    for listed, kind in _LISTS.items():
        for position, item in page.items(listed):
            if isinstance(item.get("slug"), str):
                yield kind, (listed, position, "slug"), (kind, str(item["slug"]))


def _dangling(
    pages: Sequence[_Page], defined: Mapping[tuple[str, ...], Source], known: Mapping[str, Collection[str]]
) -> Iterator[Problem]:
    """Yield a problem for everything a check names that nobody defines."""
    slugs: dict[str, set[str]] = defaultdict(set)
    for kind, *names in defined:
        slugs[kind].add(names[-1])
    for page in pages:
        for position, check in page.items("checks"):
            named: list[tuple[str, Place, Any]] = [
                ("suite", ("suite",), check.get("suite")),
                ("retriever", ("retriever",), check.get("retriever")),
            ]
            hooks = check.get("hooks")
            if isinstance(hooks, list):
                named += [("hook", ("hooks", number), hook) for number, hook in enumerate(hooks)]
            for kind, inner, name in named:
                place = ("checks", position, *inner)
                there = slugs[kind] | set(known.get(kind, ()))
                if isinstance(name, str) and name not in there and not page.located.touches_broken(place):
                    yield page.problem(place, f"there is no {kind} '{shortened(name)}'{suggestion(name, there)}")


def _uncomputed_floors(pages: Sequence[_Page]) -> Iterator[Problem]:
    """Yield a problem for every floor on a measure that a check of the files does not compute."""
    checks: dict[str, list[CheckDocument]] = defaultdict(list)
    for page in pages:
        for check in page.valid.checks:
            checks[check.suite].append(check)
    for page in pages:
        for position, canary in enumerate(page.valid.canaries):
            for measure in canary.floors:
                told = (check.why_uncomputed(measure) for check in checks[str(page.valid.suite)])
                place: Place = ("canaries", position, "floors", measure)
                yield from (page.problem(place, why) for why in told if why is not None)


def _unrecognisable_chunks(pages: Sequence[_Page]) -> Iterator[Problem]:
    """Yield a problem for every chunk by which no hit of a check's retriever could ever be recognised."""
    mapped = {
        retriever.slug: {name for name in ("id", "document", "text") if getattr(retriever.response, name) is not None}
        for page in pages
        for retriever in page.valid.retrievers
    }
    asked: dict[str, list[str]] = defaultdict(list)
    for page in pages:
        for check in page.valid.checks:
            if check.retriever in mapped:
                asked[check.suite].append(check.retriever)
    for page in pages:
        for position, canary in enumerate(page.valid.canaries):
            for listed in ("expected_chunks", "forbidden_chunks"):
                for number, chunk in enumerate(getattr(canary, listed)):
                    said = [name for name in ("id", "document", "text") if getattr(chunk, name) is not None]
                    for slug in asked[str(page.valid.suite)]:
                        if not mapped[slug].intersection(said):
                            ways = " or ".join(f"'{name}'" for name in said)
                            yield page.problem(
                                ("canaries", position, listed, number),
                                f"can never be recognised: retriever '{slug}' maps no {ways} under 'response'",
                            )


def _undatable(pages: Sequence[_Page]) -> Iterator[Problem]:
    """Yield a problem for every maximum age of hits whose age a check's retriever does not tell."""
    retrievers = {retriever.slug: retriever for page in pages for retriever in page.valid.retrievers}
    asked: dict[str, list[RetrieverDocument]] = defaultdict(list)
    for page in pages:
        for check in page.valid.checks:
            if check.retriever in retrievers:
                asked[check.suite].append(retrievers[check.retriever])
    for page in pages:
        for position, canary in enumerate(page.valid.canaries):
            told = (canary.why_undatable(retriever) for retriever in asked[str(page.valid.suite)])
            yield from (page.problem(("canaries", position, "max_age"), why) for why in told if why is not None)


def _joined(files: Sequence[CanaryFile], sources: Mapping[tuple[str, ...], Source]) -> Documents:
    """Put the pages together; what several say about one suite becomes one suite."""
    canaries: dict[str, list[CanaryDocument]] = defaultdict(list)
    for file in files:
        if file.suite is not None:
            canaries[file.suite] += file.canaries
    return Documents(
        suites=tuple(SuiteDocument(slug=slug, canaries=tuple(listed)) for slug, listed in canaries.items()),
        retrievers=tuple(retriever for file in files for retriever in file.retrievers),
        checks=tuple(check for file in files for check in file.checks),
        hooks=tuple(hook for file in files for hook in file.hooks),
        sources=sources,
    )
