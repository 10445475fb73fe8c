"""Reads canary files: YAML texts to documents, or every problem with its file and line.

It finds problems within a document and those between documents: unknown references, measures that a check does not
compute. Texts from the network come without files of secrets. `canary_export` writes canary files, `warnings` says
what of valid ones has no effect. The hash of a configuration stands at the end.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ValidationError, model_validator

from app.alerts.silences.documents import SilenceDocument
from app.answers.documents import JudgeDocument
from app.base.documents.fields import (
    MOST_PROBLEMS,
    Document,
    Place,
    Slug,
    VariableText,
    did_you_mean,
    field_errors,
    message_of,
    one_line,
    parse_document,
    path_of,
    place_of,
)
from app.base.documents.parsing import Located, NodeBudget, read_yaml
from app.base.errors import InvalidInputError, Problem
from app.base.texts import counted
from app.base.values import Value, replace
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument, in_blocks
from app.catalog.documents.check_documents import (
    CheckDocument,
    expand_matrix,
)
from app.catalog.documents.secrets import content_hash, header_places, key_places
from app.hooks.documents import HOOK_TEXTS, HookDocument
from app.retrievers.documents.retrievers import RetrieverDocument


class Source(Value):
    """Where something is defined."""

    file: str
    line: int


def _none_is_empty(value: Any) -> Any:
    return () if value is None else value


class CanaryFile(Document):
    """One document of a canary file: a suite with its canaries, and lists of all other kinds; all optional."""

    suite: Slug | None = None
    canaries: Annotated[tuple[CanaryDocument, ...], in_blocks(CanaryDocument), BeforeValidator(_none_is_empty)] = ()
    retrievers: Annotated[tuple[RetrieverDocument, ...], BeforeValidator(_none_is_empty)] = ()
    checks: Annotated[tuple[CheckDocument, ...], BeforeValidator(_none_is_empty)] = ()
    hooks: Annotated[tuple[HookDocument, ...], BeforeValidator(_none_is_empty)] = ()
    silences: Annotated[tuple[SilenceDocument, ...], BeforeValidator(_none_is_empty)] = ()
    judges: Annotated[tuple[JudgeDocument, ...], BeforeValidator(_none_is_empty)] = ()

    @model_validator(mode="after")
    def _canaries_have_a_suite(self) -> Self:
        if self.canaries and self.suite is None:
            raise field_errors([(("canaries",), "need a suite; add 'suite: NAME'")])
        return self


@dataclass(slots=True, kw_only=True)
class Page:
    """One YAML document of one file."""

    file: str
    located: Located
    valid: CanaryFile = field(default_factory=CanaryFile)
    origins: Sequence[int] = ()
    """Of each check its position in the file, where a matrix made several of one."""

    def validate(self) -> list[Problem]:
        """Parse the page into `valid`; return its problems."""
        try:
            self.valid = CanaryFile.model_validate(self.located.data)
        except ValidationError as error:
            wrong = (one for one in error.errors(include_url=False) if not self.touches_broken(one["loc"]))
            return [
                replace(
                    self.problem(one["loc"], message_of(CanaryFile, one)),
                    path=path_of(self.written(place_of(one))) or None,
                )
                for one in islice(wrong, MOST_PROBLEMS)
            ]
        return []

    def problem(self, place: Place, message: str) -> Problem:
        """Return a problem at a place, with its path and line."""
        path = path_of(self.written(place)) or None
        return Problem(message=message, path=path, file=self.file, line=self.line_of(place))

    def written(self, place: Place) -> Place:
        """Return where something stands in the file."""
        if place[:1] != ("checks",) or len(place) == 1 or not self.origins:
            return place
        return ("checks", self.origins[int(place[1])], *place[2:])

    def line_of(self, place: Place) -> int:
        """Return the line of a place of the page."""
        return self.located.line_of(self.written(place))

    def touches_broken(self, place: Place) -> bool:
        """Whether what is wrong at a place may only follow from a problem already told."""
        return self.located.touches_broken(self.written(place))

    def items(self, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (position, raw mapping) of a list of the page, whether or not it is valid."""
        documents = self.located.data.get(kind) if isinstance(self.located.data, dict) else None
        for position, item in enumerate(documents if isinstance(documents, list) else ()):
            if isinstance(item, dict):
                yield position, item


__all__ = ["CanaryFile", "Documents", "Source", "read_canary_files"]

NO_SLUGS: Mapping[str, Collection[str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """The documents of canary files, each kind in the order of the files."""

    suites: tuple[SuiteDocument, ...] = ()
    retrievers: tuple[RetrieverDocument, ...] = ()
    checks: tuple[CheckDocument, ...] = ()
    hooks: tuple[HookDocument, ...] = ()
    silences: tuple[SilenceDocument, ...] = ()
    judges: tuple[JudgeDocument, ...] = ()
    sources: Mapping[tuple[str, ...], Source] = field(default_factory=dict, compare=False)
    """By ("suite", slug), ("canary", suite, key), ("retriever", slug), ("check", slug) and so on."""
    unset: tuple[Problem, ...] = field(default=(), compare=False)
    """Problems of unset variables in hooks, which are left out where nothing is to be sent."""
    unset_hooks: frozenset[str] = field(default=frozenset(), compare=False)
    """The slugs of the hooks left out."""


def read_canary_files(
    files: Sequence[tuple[str, str | bytes]],
    environment: Mapping[str, str],
    read_secret: Callable[[str], str] | None,
    *,
    existing: Mapping[str, Collection[str]] = NO_SLUGS,
    retrievers_alone: bool = False,
    sends: bool = True,
) -> Documents:
    """Return the documents of (name, text) pairs; raise InvalidInputError with all problems, in file order.

    `environment` fills `${NAME}`. `read_secret` returns the text of the file a `*_file` key names (OSError or
    ValueError if it cannot); None refuses such keys, for texts from the network. What a check refers to must be defined
    in the files or be in `existing`, slugs by kind: "suite", "retriever", "hook", "judge". With `retrievers_alone`
    everything else in the files is ignored, its problems too. Without `sends` a hook with unset variables is left out
    and listed in `unset`.
    """
    pages: list[Page] = []
    problems: list[Problem] = []
    unreadable = False
    unset: list[Problem] = []
    unset_hooks: set[str] = set()
    budget = NodeBudget() if read_secret is None else None  # texts that came over the network
    for name, text in files:
        located, found = read_yaml(name, text, environment, budget)
        if retrievers_alone:
            located, found = _keep_retrievers(located, found)
        if not sends:
            found, missing, slugs = _without_unset_hooks(located, found)
            unset += missing
            unset_hooks |= slugs
        problems += found
        unreadable = unreadable or (bool(found) and not located)
        if not found and not retrievers_alone and not any(document.data for document in located):
            # Otherwise a file truncated while being written would silently archive everything it defined.
            problems.append(Problem(message="is empty; delete it to archive what it defined", file=name, line=1))
        pages += [Page(file=name, located=document) for document in located if document.data is not None]
    for page in pages:
        problems += _resolve_secret_files(page, read_secret)
        problems += _expand_matrices(page)
        problems += page.validate()
    definitions, repeated = _definitions(pages)
    problems += repeated
    if not unreadable:  # otherwise a missing definition may be in the unreadable file
        problems += problems_between(pages, definitions, existing)
    if problems:  # what is wrong with a check is wrong with each that its matrix makes, and told once
        order = {name: position for position, (name, _) in reversed(list(enumerate(files)))}
        raise InvalidInputError(
            sorted(dict.fromkeys(problems), key=lambda problem: (order[str(problem.file)], problem.line or 0))
        )
    documents = join_pages([page.valid for page in pages], definitions)
    hooks = tuple(hook for hook in documents.hooks if hook.slug not in unset_hooks)
    return replace(documents, hooks=hooks, unset=tuple(unset), unset_hooks=frozenset(unset_hooks))


def read_files(
    paths: Sequence[Path], environment: Mapping[str, str], *, retrievers_alone: bool = False, sends: bool = True
) -> Documents:
    """Return the documents of canary files and folders of them, see `read_canary_files`."""
    texts = {name: text for path in paths for name, text in canary_texts(path)}  # a file once, however often named
    files = list(texts.items())
    return read_canary_files(files, environment, read_secret, retrievers_alone=retrievers_alone, sends=sends)


def canary_paths(path: Path) -> list[Path]:
    """Canary files of a path, by name: the file itself, or every `*.yaml` and `*.yml` of a folder (maybe none).

    Raises InvalidInputError for a folder that may not be read, which must not pass for an empty one.
    """
    try:
        if not path.is_dir():
            return [path]
        return sorted(file for file in path.iterdir() if file.name.endswith((".yaml", ".yml")))
    except OSError as error:
        raise _unreadable(path, error) from error


def canary_texts(path: Path) -> list[tuple[str, bytes]]:
    """Names and texts of the canary files of a path, as `canary_paths` lists them.

    Raises InvalidInputError where there is none.
    """
    files = canary_paths(path)
    if not files:
        raise InvalidInputError([Problem(file=str(path), message="holds no canary file (*.yaml)")])
    try:
        return [(str(file), file.read_bytes()) for file in files]
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> InvalidInputError:
    file = path if error.filename is None else error.filename
    return InvalidInputError([Problem(file=str(file), message=f"cannot be read: {error.strerror}")])


def read_secret(path: str) -> str:
    """Read a file that holds a secret, relative to the working directory; an OSError names its whole path."""
    return Path(path).absolute().read_text(encoding="utf-8")


def _keep_retrievers(located: Sequence[Located], found: Sequence[Problem]) -> tuple[list[Located], list[Problem]]:
    """Return the documents with their retrievers only, and the problems without those of other parts."""
    elsewhere = {
        document.line_of(place) for document in located for place in document.broken if place[:1] != ("retrievers",)
    }
    retrievers = [
        replace(document, data={name: part for name, part in document.data.items() if name == "retrievers"})
        for document in located
        if isinstance(document.data, dict)
    ]
    return retrievers, [problem for problem in found if problem.line not in elsewhere]


def _without_unset_hooks(
    located: Sequence[Located], found: Sequence[Problem]
) -> tuple[list[Problem], list[Problem], set[str]]:
    """Replace hooks with unset variables by placeholders; return the other problems, theirs, and the slugs."""
    said: dict[Problem, Problem] = {}
    slugs: set[str] = set()
    for document in located:
        hooks = document.data.get("hooks") if isinstance(document.data, dict) else None
        if not isinstance(hooks, list):
            continue
        for position, hook in enumerate(hooks):
            here: Place = ("hooks", position)
            if not isinstance(hook, dict) or not any(place[:2] == here for place in document.broken):
                continue
            slug = str(hook.get("slug", ""))
            slugs.add(slug)
            for place, problem in document.unset:
                if place[:2] == here:
                    message = f"hook '{slug}': {problem.message}; 'serve' and 'apply' refuse it"
                    said.setdefault(problem, replace(problem, message=message))
            # A placeholder keeps line numbers and references valid.
            hooks[position] = {"slug": slug, "kind": "webhook", "url": "https://unset.invalid/"}
    return [problem for problem in found if problem not in said], list(said.values()), slugs


def _resolve_secret_files(page: Page, read_secret: Callable[[str], str] | None) -> Iterator[Problem]:
    """Replace `secret_file`, `headers_file` and the like by the files' contents, without the final line break."""
    for position, retriever in page.items("retrievers"):
        for holder, place in header_places(retriever):
            if not isinstance(holder.get("headers_file", {}), dict):
                del holder["headers_file"]
                here = ("retrievers", position, *place, "headers_file")
                yield page.problem(here, "must be a mapping of header names to files")
    for files, here, values, target in list(_secret_files(page)):
        name, key = files.pop(here[-1]), str(target[-1])
        if key in values:
            yield page.problem(here, f"'{one_line(key)}' is given already; write one of the two")
            continue
        page.located.lines[target] = page.located.line_of(here)
        if not isinstance(name, str) or not name:
            yield page.problem(here, "must be the path of a file")
        elif read_secret is None:
            yield page.problem(here, "names a file of this server; only canary files on its own disk may")
        else:
            try:
                values[key] = VariableText(read_secret(name).rstrip("\r\n"))
            except (OSError, ValueError) as error:
                page.located.broken.add(target)  # so that it is not reported as missing too
                yield page.problem(here, _why_unreadable(name, error))


def _why_unreadable(name: str, error: OSError | ValueError) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    if not _looks_like_path(name):  # it may be the secret itself, in the place of its file
        return f"the file it names cannot be read: {reason}"
    tried = error.filename if isinstance(error, OSError) and error.filename else name
    where = "" if str(tried) == name else f" (a path is relative to the working directory, so this is {tried})"
    return f"the file '{one_line(name)}' cannot be read: {reason}{where}"


def _looks_like_path(name: str) -> bool:
    if len(name) > _LONGEST_NAME or _RANDOM.search(name):
        return False
    return name.startswith(("/", "./", "../", "~/")) or _FILE_NAME.fullmatch(name) is not None


_LONGEST_NAME = 500
_FILE_NAME = re.compile(r"[\w ./\\:-]*\.[a-zA-Z]{2,8}|[a-z0-9_. -]+(/[a-z0-9_. -]+)+")
_RANDOM = re.compile(r"(?=[a-z]*[A-Z0-9])[A-Za-z0-9+]{20,}|[A-Za-z0-9+]{32,}")
"""A long run of mixed characters, or one too long for a word: it may be a secret."""


def _secret_files(page: Page) -> Iterator[tuple[dict[Any, Any], Place, dict[Any, Any], Place]]:
    """Yield (mapping with the path of a file, its place, mapping the content belongs into, its place)."""
    for kind in ("hooks", "retrievers", "judges"):
        for position, item in page.items(kind):
            for mapping, inner, keys in [(item, (), HOOK_TEXTS)] if kind == "hooks" else key_places(item):
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


def _expand_matrices(page: Page) -> list[Problem]:
    """Put a check for each combination of values in the place of every check with a `matrix`; return what is wrong."""
    checks = page.located.data.get("checks") if isinstance(page.located.data, dict) else None
    if not isinstance(checks, list) or not any(isinstance(one, dict) and "matrix" in one for one in checks):
        return []
    problems: list[Problem] = []
    made: list[Any] = []
    origins: list[int] = []
    for position, check in enumerate(checks):
        of_one, wrong = expand_matrix(check) if isinstance(check, dict) and "matrix" in check else ([check], None)
        problems += [] if wrong is None else [page.problem(("checks", position, "matrix"), wrong)]
        made += of_one
        origins += [position] * len(of_one)
    page.located.data["checks"], page.origins = made, origins
    return problems


_LISTS = {"retrievers": "retriever", "checks": "check", "hooks": "hook", "silences": "silence", "judges": "judge"}


def _definitions(pages: Sequence[Page]) -> tuple[dict[tuple[str, ...], Source], list[Problem]]:
    """Return the source of each definition by its raw slug or key, and the problems of duplicates."""
    defined: dict[tuple[str, ...], Source] = {}
    problems = []
    for page in pages:
        suite = page.located.data.get("suite") if isinstance(page.located.data, dict) else None
        if isinstance(suite, str):
            defined.setdefault(("suite", str(suite)), Source(file=page.file, line=page.located.line_of(("suite",))))
        for kind, place, identity in _identities(page, str(suite)):
            line = page.line_of(place)
            if identity in defined:
                first = defined[identity]
                message = f"the {kind} '{one_line(identity[-1])}' is defined twice, first at {first.file}:{first.line}"
                problems.append(page.problem(place, message))
            else:
                defined[identity] = Source(file=page.file, line=line)
    return defined, problems


def _identities(page: Page, suite: str) -> Iterator[tuple[str, Place, tuple[str, ...]]]:
    """Yield (kind, place of the name, identity) of everything a page defines but its suite."""
    for position, canary in page.items("canaries"):
        if isinstance(canary.get("key"), str):
            yield "canary", ("canaries", position, "key"), ("canary", suite, str(canary["key"]))
    for name, kind in _LISTS.items():
        for position, item in page.items(name):
            if isinstance(item.get("slug"), str):
                yield kind, (name, position, "slug"), (kind, str(item["slug"]))


def join_pages(
    files: Sequence[CanaryFile], sources: Mapping[tuple[str, ...], Source] = MappingProxyType({})
) -> Documents:
    """Return the documents of all pages; canaries of one suite on several pages become one suite."""
    canaries: dict[str, list[CanaryDocument]] = defaultdict(list)
    for file in files:
        if file.suite is not None:
            canaries[file.suite] += file.canaries
    return Documents(
        suites=tuple(
            parse_document(SuiteDocument, {"slug": slug, "canaries": tuple(of_suite)})
            for slug, of_suite in canaries.items()
        ),
        retrievers=tuple(retriever for file in files for retriever in file.retrievers),
        checks=tuple(check for file in files for check in file.checks),
        hooks=tuple(hook for file in files for hook in file.hooks),
        silences=tuple(silence for file in files for silence in file.silences),
        judges=tuple(judge for file in files for judge in file.judges),
        sources=sources,
    )


def problems_between(
    pages: Sequence[Page], defined: Mapping[tuple[str, ...], Source], existing: Mapping[str, Collection[str]]
) -> Iterator[Problem]:
    """Yield the problems between pages. `defined`: their definitions; `existing`: slugs defined elsewhere, by kind."""
    yield from _unknown_references(pages, defined, existing)
    yield from _unfit_hooks(pages)
    yield from _uncomputed_floors(pages)
    yield from _unrecognisable_chunks(pages)
    yield from _unfit_canaries(pages)
    yield from _unfit_checks(pages)


def _unknown_references(
    pages: Sequence[Page], defined: Mapping[tuple[str, ...], Source], existing: Mapping[str, Collection[str]]
) -> Iterator[Problem]:
    """Yield a problem for every undefined suite, retriever, judge or hook of a check."""
    slugs: dict[str, set[str]] = defaultdict(set)
    for kind, *names in defined:
        slugs[kind].add(names[-1])
    for page in pages:
        for position, check in page.items("checks"):
            named: list[tuple[str, Place, Any]] = [
                ("suite", ("suite",), check.get("suite")),
                ("retriever", ("retriever",), check.get("retriever")),
            ]
            if check.get("judge") is not None:
                named.append(("judge", ("judge",), check["judge"]))
            hooks = check.get("hooks")
            if isinstance(hooks, list):
                named += [("hook", ("hooks", number), hook) for number, hook in enumerate(hooks)]
            report = check.get("report")
            if isinstance(report, dict) and isinstance(report.get("hooks"), list):
                named += [("hook", ("report", "hooks", number), hook) for number, hook in enumerate(report["hooks"])]
            for kind, inner, name in named:
                place = ("checks", position, *inner)
                defined_slugs = slugs[kind] | set(existing.get(kind, ()))
                if isinstance(name, str) and name not in defined_slugs and not page.touches_broken(place):
                    yield page.problem(
                        place, f"there is no {kind} '{one_line(name)}'{did_you_mean(name, defined_slugs)}"
                    )


def _unfit_hooks(pages: Sequence[Page]) -> Iterator[Problem]:
    """Yield a problem for every hook of the files that a report is sent to and that takes none."""
    kinds = {hook.slug: str(hook.kind) for page in pages for hook in page.valid.hooks}
    for page in pages:
        for position, check in enumerate(page.valid.checks):
            for message in check.unfit_report_hooks(kinds):
                yield page.problem(("checks", position, "report", "hooks"), message)


def _uncomputed_floors(pages: Sequence[Page]) -> Iterator[Problem]:
    """Yield a problem for every floor on a measure that a check of the files does not compute."""
    checks: dict[str, list[CheckDocument]] = defaultdict(list)
    for page in pages:
        for check in page.valid.checks:
            checks[check.suite].append(check)
    for page in pages:
        for position, canary in enumerate(page.valid.canaries):
            for measure in canary.floors:
                messages = (check.why_uncomputed(measure) for check in checks[str(page.valid.suite)])
                place: Place = ("canaries", position, "floors", measure)
                yield from (page.problem(place, why) for why in messages if why is not None)


def _unrecognisable_chunks(pages: Sequence[Page]) -> Iterator[Problem]:
    """Yield a problem, at the first chunk, for every retriever that maps no field its expected chunks can match by."""
    mapped = {
        retriever.slug: {name for name in ("id", "document", "text") if getattr(retriever.response, name) is not None}
        for page in pages
        for retriever in page.valid.retrievers
    }
    retrievers: dict[str, list[str]] = defaultdict(list)
    for page in pages:
        for check in page.valid.checks:
            if check.retriever in mapped:
                retrievers[check.suite].append(check.retriever)
    places: dict[tuple[str, tuple[str, ...]], list[tuple[Page, Place]]] = defaultdict(list)
    for page in pages:
        for place, identity in _chunk_identities(page):
            for slug in retrievers[str(page.valid.suite)]:
                if not mapped[slug].intersection(identity):
                    places[slug, identity].append((page, place))
    for (slug, identity), [(page, place), *more] in places.items():
        ways = " or ".join(f"'{name}'" for name in identity)
        others = f" (nor {counted(len(more), 'more chunk')})" if more else ""
        yield page.problem(
            place,
            f"can never be recognised{others}: retriever '{slug}' maps no {ways} under 'response'; "
            f"write response: {{{identity[0]}: <path of the {identity[0]} in a hit>}}",
        )


def _chunk_identities(page: Page) -> Iterator[tuple[Place, tuple[str, ...]]]:
    """Yield the place of every chunk of a page, and the fields it can match by."""
    for position, canary in enumerate(page.valid.canaries):
        for name in ("expected_chunks", "forbidden_chunks"):
            for number, chunk in enumerate(getattr(canary, name)):
                identity = tuple(name for name in ("id", "document", "text") if getattr(chunk, name) is not None)
                yield ("canaries", position, name, number), identity


def _unfit_canaries(pages: Sequence[Page]) -> Iterator[Problem]:
    """Yield a problem for every maximum age where a check's retriever maps no date, and variable that it lacks."""
    asked_by = _askers(pages)
    for page in pages:
        for position, canary in enumerate(page.valid.canaries):
            for check, retriever in asked_by[str(page.valid.suite)]:
                why = canary.why_not_asked(check.vars, retriever)
                if why is not None:
                    yield page.problem(("canaries", position, "vars"), why)
                why = canary.why_undatable(retriever)
                if why is not None:
                    yield page.problem(("canaries", position, "max_age"), why)
                why = canary.why_unsent(retriever)
                if why is not None:
                    yield page.problem(("canaries", position, "history"), why)
                for name, unknown in canary.unknown_vars(retriever):
                    yield page.problem(("canaries", position, "vars", name), unknown)


def _askers(pages: Sequence[Page]) -> Mapping[str, Sequence[tuple[CheckDocument, RetrieverDocument]]]:
    """Return the checks of each suite with their retrievers, as far as the pages define them."""
    retrievers = {retriever.slug: retriever for page in pages for retriever in page.valid.retrievers}
    asked_by: dict[str, list[tuple[CheckDocument, RetrieverDocument]]] = defaultdict(list)
    for page in pages:
        for check in page.valid.checks:
            if check.retriever in retrievers:
                asked_by[check.suite].append((check, retrievers[check.retriever]))
    return asked_by


def _unfit_checks(pages: Sequence[Page]) -> Iterator[Problem]:
    """Yield a problem for all of a check about answers, where its retriever gives none, and variable that it lacks."""
    retrievers = {retriever.slug: retriever for page in pages for retriever in page.valid.retrievers}
    for page in pages:
        for position, check in enumerate(page.valid.checks):
            retriever = retrievers.get(check.retriever)
            for name, why in () if retriever is None else check.unknown_vars(retriever):
                yield page.problem(("checks", position, "vars", name), why)
            for inner, why in () if retriever is None else check.why_not_planted(retriever, retrievers):
                yield page.problem(("checks", position, *inner), why)
            for name, why in check.without_answers(gives_answers=retriever is None or retriever.gives_answers):
                place: Place = ("checks", position, name.partition("[")[0])
                yield page.problem(place, why)


_DIGITS = 12
_Named = SuiteDocument | RetrieverDocument | HookDocument | CheckDocument | SilenceDocument | JudgeDocument


def config_hash(documents: Documents | None, settings: Mapping[str, object]) -> str:
    """Name a configuration by 12 hex digits: the same where the same applies, whatever the order of the files.

    Secrets enter by name alone, as in the hashes of documents: a name that is shown must be no help in guessing them.
    None = no canary files are applied.
    """
    named = None
    if documents is not None:
        by_kind: dict[str, tuple[_Named, ...]] = {
            "suite": documents.suites,
            "retriever": documents.retrievers,
            "check": documents.checks,
            "hook": documents.hooks,
            "silence": documents.silences,
        }
        if documents.judges:  # without any it stays what it was
            by_kind["judge"] = documents.judges
        named = {kind: {one.slug: content_hash(one) for one in documents} for kind, documents in by_kind.items()}
    text = json.dumps([named, dict(settings)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
