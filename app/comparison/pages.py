"""The pages of a comparison: two runs or checks side by side, and one canary in both. They only read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from app.answers.domain.trust import CORRECTING_LABELS
from app.base.api.requests import StoreDep, expensive
from app.base.errors import NotFoundError
from app.base.values import ROUNDING
from app.base.web.forms import refuse_other
from app.base.web.pages import render
from app.comparison.domain.outcomes import Side
from app.comparison.domain.sentences import A_AND_B, claim_text
from app.comparison.rendering import hint_mark
from app.comparison.service import comparisons
from app.comparison.service.comparisons import list_choices
from app.records.service import run_views
from app.reports.service import check_details

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

SHOWN: Final = {"": "all", "a": "higher in A", "b": "higher in B"}
"""Filters of canaries: parameter -> label."""
_CANARIES: Final = 25
Reference = Annotated[str, Query(max_length=80)]


@router.get("/compare")
@expensive
def show_comparison(
    *,
    request: Request,
    store: StoreDep,
    a: Reference = "",
    b: Reference = "",
    show: str = "",
    after: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> HTMLResponse:
    """Show two runs or checks side by side; before both are chosen, only what to choose from."""
    refuse_other(show, SHOWN, "show")
    choices = list_choices(store, [one for one in (a, b) if one])
    template = partial(render, request, "comparison/compare.html", a=a, b=b, choices=choices)
    if not (a and b):
        return template(found=None)
    winner = Side(show) if show else None
    found, comparison = comparisons.compare_references(store, a, b, winner=winner, after=after, limit=_CANARIES)
    first, second = (side[comparison.ordering].tolist() for side in comparison.scores)
    return template(
        found=found,
        following=None if found["next"] is None else int(found["next"]),
        after=after,
        page_size=_CANARIES,
        show=show,
        shown=SHOWN,
        counts={"": found["canaries"], "a": found["wins"]["a"], "b": found["wins"]["b"]},
        here=f"/compare?{urlencode({'a': a, 'b': b})}",
        swapped=f"/compare?{urlencode({'a': b, 'b': a})}",
        runs=urlencode(
            {"a": comparisons.run_reference(found["a"]["id"]), "b": comparisons.run_reference(found["b"]["id"])}
        ),
        claim=partial(claim_text, names=A_AND_B),
        hint_mark=hint_mark,
        scatter=draw_scatter(comparison.ordering, first, second) if found["canaries"] else None,
        size=SIZE,
        correcting_labels=CORRECTING_LABELS,
    )


@router.get("/compare/canary")
@expensive
def show_canary(
    request: Request, store: StoreDep, a: Reference, b: Reference, key: Annotated[str, Query(max_length=200)]
) -> HTMLResponse:
    """Show what two runs or checks retrieved for one canary, side by side."""
    runs = [comparisons.resolve(store, text, name) for text, name in ((a, "a"), (b, "b"))]
    results = [next(iter(run_views.results(store, run, keys={key}, limit=1)[0]), None) for run in runs]
    if results == [None, None]:
        raise NotFoundError(f"neither run has a canary '{key[:40]}'")
    return render(
        request,
        "comparison/canary.html",
        key=key,
        query=next(one["query"] for one in results if one is not None),
        runs=[run_views.run(store, run) for run in runs],
        results=results,
        judged_by_relevance=[
            check_details.keys_judged_by_relevance(store, run, [key] if result is not None else [])
            for run, result in zip(runs, results, strict=True)
        ],
        back=f"/compare?{urlencode({'a': a, 'b': b})}",
    )


SIZE: Final = 320
_EDGE: Final = 12
"""Between the ends of an axis and the edge, so that no point is cut off."""
_SMALLEST: Final = 3.5
_LARGEST: Final = 13.0
_PLACES: Final = 2
"""Decimals by which canaries share a point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Canaries of about the same two scores, in the units of the drawing."""

    kind: str
    """Who is higher: `a`, `b` or `tie`."""
    x: float
    y: float
    radius: float
    """By area, the number of canaries."""
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """The chart, with the same in words for those who do not see it."""

    points: Sequence[Point]
    label: str
    low: float
    """Where axes begin, in the units of the drawing."""
    high: float


def draw_scatter(measure: str, a: Sequence[float], b: Sequence[float]) -> Scatter:
    """Draw canaries by their two scores of a measure, each in [0, 1]; a canary without either is left out."""
    pairs = [(old, new) for old, new in zip(a, b, strict=True) if old == old and new == new]  # noqa: PLR0124 - NaN
    groups: dict[tuple[str, float, float], int] = {}
    for old, new in pairs:
        place = (_kind(old, new), round(old, _PLACES), round(new, _PLACES))
        groups[place] = groups.get(place, 0) + 1
    most = max(groups.values(), default=1)
    points = [
        Point(
            kind=kind,
            x=_across(old),
            y=SIZE - _across(new),
            radius=round(_SMALLEST + (_LARGEST - _SMALLEST) * sqrt((count - 1) / max(most - 1, 1)), 1),
            title=f"{count:,} {'canary' if count == 1 else 'canaries'}: A {old:.2f}, B {new:.2f}",
        )
        for (kind, old, new), count in sorted(groups.items(), key=lambda one: -one[1])  # small ones above large ones
    ]
    counts = {kind: sum(_kind(*pair) == kind for pair in pairs) for kind in ("a", "b", "tie")}
    label = (
        f"{measure} of each canary in A and in B: {counts['a']} higher in A, {counts['b']} higher in B, "
        f"{counts['tie']} the same"
    )
    return Scatter(points=points, label=label, low=_across(0.0), high=_across(1.0))


def _kind(old: float, new: float) -> str:
    return "tie" if abs(new - old) <= ROUNDING else "b" if new > old else "a"


def _across(score: float) -> float:
    return round(_EDGE + (SIZE - 2 * _EDGE) * score, 1)
