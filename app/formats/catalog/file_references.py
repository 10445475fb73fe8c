"""What canary files say of one another: names nobody defines, and checks that could never see what a canary asks."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from app.domain.counts import counted
from app.domain.errors import Problem
from app.formats.catalog.documents import CheckDocument, RetrieverDocument
from app.formats.catalog.file_pages import Page, Source
from app.formats.fields import Place, did_you_mean, one_line


def problems_between(
    pages: Sequence[Page],
    defined: Mapping[tuple[str, ...], Source],
    known: Mapping[str, Collection[str]],
) -> Iterator[Problem]:
    """Yield what is wrong between pages. `defined`: what they define; `known`: slugs of what is defined elsewhere."""
    yield from _dangling(pages, defined, known)
    yield from _uncomputed_floors(pages)
    yield from _unrecognisable_chunks(pages)
    yield from _undatable(pages)


def _dangling(
    pages: Sequence[Page], defined: Mapping[tuple[str, ...], Source], known: Mapping[str, Collection[str]]
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
                    yield page.problem(place, f"there is no {kind} '{one_line(name)}'{did_you_mean(name, there)}")


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
    """Yield a problem, at the first chunk, for every retriever that maps nothing chunks could be recognised by."""
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
        for place, identity in _identities(page):
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


def _identities(page: Page) -> Iterator[tuple[Place, tuple[str, ...]]]:
    """Yield the place of every chunk of a page, and what it can be recognised by."""
    for position, canary in enumerate(page.valid.canaries):
        for name in ("expected_chunks", "forbidden_chunks"):
            for number, chunk in enumerate(getattr(canary, name)):
                identity = tuple(name for name in ("id", "document", "text") if getattr(chunk, name) is not None)
                yield ("canaries", position, name, number), identity


def _undatable(pages: Sequence[Page]) -> Iterator[Problem]:
    """Yield a problem for every maximum age of hits whose age a check's retriever does not tell."""
    retrievers = {retriever.slug: retriever for page in pages for retriever in page.valid.retrievers}
    asked: dict[str, list[RetrieverDocument]] = defaultdict(list)
    for page in pages:
        for check in page.valid.checks:
            if check.retriever in retrievers:
                asked[check.suite].append(retrievers[check.retriever])
    for page in pages:
        for position, canary in enumerate(page.valid.canaries):
            messages = (canary.why_undatable(retriever) for retriever in asked[str(page.valid.suite)])
            yield from (page.problem(("canaries", position, "max_age"), why) for why in messages if why is not None)
