"""Parses canary files: YAML texts to documents, or every problem with its file and line.

The caller reads the files and passes texts, environment and a reader of secret files. `canary_export` writes them.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from app.base.documents.fields import Place, VariableText, one_line
from app.base.documents.yaml_source import VARIABLE_UNSET, Located, NodeBudget, read_yaml
from app.base.errors import InvalidInputError, Problem
from app.catalog.documents.documents import (
    CanaryDocument,
    CheckDocument,
    HookDocument,
    JudgeDocument,
    RetrieverDocument,
    SilenceDocument,
    SuiteDocument,
)
from app.catalog.documents.file_pages import CanaryFile, Page, Source
from app.catalog.documents.file_references import problems_between
from app.catalog.documents.secret_fields import header_places, key_places
from app.hooks.documents import HOOK_TEXTS

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
        problems += page.validate()
    definitions, repeated = _definitions(pages)
    problems += repeated
    if not unreadable:  # otherwise a missing definition may be in the unreadable file
        problems += problems_between(pages, definitions, existing)
    if problems:
        order = {name: position for position, (name, _) in reversed(list(enumerate(files)))}
        raise InvalidInputError(sorted(problems, key=lambda problem: (order[str(problem.file)], problem.line or 0)))
    documents = _join_pages([page.valid for page in pages], definitions)
    hooks = tuple(hook for hook in documents.hooks if hook.slug not in unset_hooks)
    return replace(documents, hooks=hooks, unset=tuple(unset), unset_hooks=frozenset(unset_hooks))


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
    unset: list[Problem] = []
    slugs: set[str] = set()
    remaining = list(found)
    for document in located:
        places = [place for place in document.broken if place[:1] == ("hooks",) and len(place) > 1]
        hooks = document.data.get("hooks") if isinstance(document.data, dict) else None
        if not isinstance(hooks, list):
            continue
        owners = {document.line_of(place): str(hooks[int(place[1])].get("slug", "")) for place in places}
        for problem in list(remaining):
            if problem.line in owners and VARIABLE_UNSET in problem.message:
                message = f"hook '{owners[problem.line]}': {problem.message}; 'serve' and 'apply' refuse it"
                unset.append(replace(problem, message=message))
                remaining.remove(problem)
        for at in {place[1] for place in places}:
            slug = str(hooks[int(at)].get("slug", ""))
            # A placeholder keeps line numbers and references valid.
            hooks[int(at)] = {"slug": slug, "kind": "webhook", "url": "https://unset.invalid/"}
            slugs.add(slug)
    return remaining, unset, slugs


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
        page.located.lines[target] = page.line_of(here)
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


_LISTS = {"retrievers": "retriever", "checks": "check", "hooks": "hook", "silences": "silence", "judges": "judge"}


def _definitions(pages: Sequence[Page]) -> tuple[dict[tuple[str, ...], Source], list[Problem]]:
    """Return the source of each definition by its raw slug or key, and the problems of duplicates."""
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


def _join_pages(files: Sequence[CanaryFile], sources: Mapping[tuple[str, ...], Source]) -> Documents:
    """Return the documents of all pages; canaries of one suite on several pages become one suite."""
    canaries: dict[str, list[CanaryDocument]] = defaultdict(list)
    for file in files:
        if file.suite is not None:
            canaries[file.suite] += file.canaries
    return Documents(
        suites=tuple(
            SuiteDocument(slug=slug, canaries=tuple(canaries_of_suite)) for slug, canaries_of_suite in canaries.items()
        ),
        retrievers=tuple(retriever for file in files for retriever in file.retrievers),
        checks=tuple(check for file in files for check in file.checks),
        hooks=tuple(hook for file in files for hook in file.hooks),
        silences=tuple(silence for file in files for silence in file.silences),
        judges=tuple(judge for file in files for judge in file.judges),
        sources=sources,
    )
