"""The page of a check's index: its facts in the newest run, and each over the runs that read it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from app.base.api.requests import StoreDep, page_router
from app.base.values import Value
from app.base.web.pages import render
from app.index_facts import service
from app.index_facts.domain import EXACT_RECALL, IndexFactView, IndexRunView, number_text

router = page_router()

WIDTH, HEIGHT = 900, 140
_DRAWN = 500
_FEWEST = 2
_LEVEL = 0.0005
_DASH = "\u2013"


@router.get("/checks/{slug}/facts")
def show_facts(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show the facts of the index of a check."""
    series = service.load_series(store, slug, limit=_DRAWN)["items"]
    newest = service.load_run_facts(store, series[0]["run"])["items"] if series else []
    charts = [chart for one in newest if (chart := draw_fact(one["fact"], series)) is not None]
    return render(
        request,
        "index_facts/facts.html",
        slug=slug,
        facts=newest,
        run=series[0]["run"] if series else None,
        at=series[0]["at"] if series else None,
        charts=charts,
        size=(WIDTH, HEIGHT),
    )


class FactChart(Value):
    """A fact over runs in the drawing's own units, with the same in words for those who do not see it."""

    fact: str
    points: str
    band: str
    """The outline of its intervals; empty where it has none."""
    top: str
    bottom: str
    first: str
    last: str
    label: str


def draw_fact(fact: str, series: Sequence[IndexRunView]) -> FactChart | None:
    """Draw a fact over runs, newest first; None where fewer than two know it."""
    known = [
        (datetime.fromisoformat(one["at"]).timestamp(), one["at"], found)
        for one in reversed(series)
        if one["at"] is not None and (found := one["facts"].get(fact)) is not None and found["value"] is not None
    ]
    if len(known) < _FEWEST or known[0][0] == known[-1][0]:
        return None
    begin, end = known[0][0], known[-1][0]
    values = [found["value"] or 0.0 for _, _, found in known]
    ends = [one for _, _, found in known for one in (found["low"], found["high"]) if one is not None]
    bottom, top = min([*values, *ends]), max([*values, *ends])
    if top == bottom:
        bottom, top = bottom - 1, top + 1

    def point(at: float, value: float) -> str:
        across, up = WIDTH * (at - begin) / (end - begin), HEIGHT * (top - value) / (top - bottom)
        return f"{round(across, 1)},{round(up, 1)}"

    lows = [point(at, found["low"]) for at, _, found in known if found["low"] is not None]
    highs = [point(at, found["high"]) for at, _, found in known if found["high"] is not None]
    return FactChart(
        fact=fact,
        points=" ".join(point(at, value) for (at, _, _), value in zip(known, values, strict=True)),
        band=" ".join([*highs, *reversed(lows)]),
        top=fact_text(top, fact),
        bottom=fact_text(bottom, fact),
        first=known[0][1],
        last=known[-1][1],
        label=f"{fact_name(fact)} in {len(known)} runs: {fact_text(values[0], fact)} at first,"
        f" {fact_text(values[-1], fact)} in the newest",
    )


def fact_text(value: float | None, fact: str) -> str:
    """Write the value of a fact: a share as a share, whatever else as a number."""
    if value is None:
        return _DASH
    return f"{100 * value:.1f} %" if fact == EXACT_RECALL else number_text(value)


def change_in(one: IndexFactView) -> str:
    """Write how a fact changed against the run before: `-12 %`, `none`; a dash where it is not known."""
    change = one["change"]
    if change is None:
        return _DASH
    return "none" if abs(change) < _LEVEL else f"{100 * change:+,.1f} %".replace("-", "\u2212")


def fact_name(fact: str) -> str:
    """Return what a fact is called on pages."""
    return "recall against exact search" if fact == EXACT_RECALL else fact.replace("_", " ").replace("-", " ")


FILTERS: Mapping[str, Callable[..., Any]] = {"fact_text": fact_text, "fact_name": fact_name, "change_in": change_in}
