"""Validates references between the pages of canary files: undefined names, and canaries a check cannot evaluate."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from app.base.counts import counted
from app.base.documents.fields import Place, did_you_mean, one_line
from app.base.errors import Problem
from app.catalog.documents.documents import CheckDocument, RetrieverDocument
from app.catalog.documents.file_pages import Page, Source


def problems_between(
    pages: Sequence[Page],
    defined: Mapping[tuple[str, ...], Source],
    existing: Mapping[str, Collection[str]],
) -> Iterator[Problem]:
    """Yield the problems between pages. `defined`: their definitions; `existing`: slugs defined elsewhere, by kind."""
    yield from _unknown_references(pages, defined, existing)
    yield from _unfit_hooks(pages)
    yield from _uncomputed_floors(pages)
    yield from _unrecognisable_chunks(pages)
    yield from _undatable(pages)
    yield from _unanswered(pages)


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
                if isinstance(name, str) and name not in defined_slugs and not page.located.touches_broken(place):
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
    """Yield the place of every chunk of a page, and the fields it can match by."""
    for position, canary in enumerate(page.valid.canaries):
        for name in ("expected_chunks", "forbidden_chunks"):
            for number, chunk in enumerate(getattr(canary, name)):
                identity = tuple(name for name in ("id", "document", "text") if getattr(chunk, name) is not None)
                yield ("canaries", position, name, number), identity


def _undatable(pages: Sequence[Page]) -> Iterator[Problem]:
    """Yield a problem for every maximum age where a check's retriever maps no date of hits."""
    retrievers = {retriever.slug: retriever for page in pages for retriever in page.valid.retrievers}
    retrievers_by_suite: dict[str, list[RetrieverDocument]] = defaultdict(list)
    for page in pages:
        for check in page.valid.checks:
            if check.retriever in retrievers:
                retrievers_by_suite[check.suite].append(retrievers[check.retriever])
    for page in pages:
        for position, canary in enumerate(page.valid.canaries):
            messages = (canary.why_undatable(retriever) for retriever in retrievers_by_suite[str(page.valid.suite)])
            yield from (page.problem(("canaries", position, "max_age"), why) for why in messages if why is not None)


def _unanswered(pages: Sequence[Page]) -> Iterator[Problem]:
    """Yield a problem for everything of a check that is about answers, where its retriever gives none."""
    retrievers = {retriever.slug: retriever for page in pages for retriever in page.valid.retrievers}
    for page in pages:
        for position, check in enumerate(page.valid.checks):
            retriever = retrievers.get(check.retriever)
            for field, why in check.without_answers(gives_answers=retriever is None or retriever.gives_answers):
                place: Place = ("checks", position, field.partition("[")[0])
                yield page.problem(place, why)
