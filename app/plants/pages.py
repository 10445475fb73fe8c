"""The page of a check's planted documents: what is usual, a chart of both times, and the newest ones."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from app.base.api.requests import StoreDep, page_router, wake
from app.base.db.engine import Store
from app.base.errors import Problem
from app.base.values import Value
from app.base.web.forms import Form, FormInput, follow_form
from app.base.web.pages import render
from app.plants.domain import PROBLEM_WORDS, PlantView
from app.plants.service import planting, shown

router = page_router()

WIDTH, HEIGHT = 900, 220
_SHOWN = 100
_DRAWN = 500
_FEWEST = 2


@router.get("/checks/{slug}/plants")
def show_plants(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show the planted documents of a check."""
    return _page(request, store, slug)


@router.post("/checks/{slug}/plants")
def plant_now(request: Request, store: StoreDep, slug: str, form: FormInput) -> Response:
    """Plant a document now."""
    del form

    def plant() -> str:
        planting.plant_of(store, slug, now=store.now())
        wake(request)
        return f"/checks/{quote(slug)}/plants"

    return follow_form(plant, partial(_page, request, store, slug))


def _page(
    request: Request,
    store: Store,
    slug: str,
    form: Form | None = None,
    *,
    problems: Sequence[Problem] = (),
    status: int = 200,
) -> HTMLResponse:
    del form
    found = shown.load_plants(store, slug, limit=_DRAWN, now=datetime.now(UTC))
    return render(
        request,
        "plants/plants.html",
        status=status,
        slug=slug,
        page=found,
        plants=found["items"][:_SHOWN],
        chart=draw_times(found["items"]),
        size=(WIDTH, HEIGHT),
        words=PROBLEM_WORDS,
        problems=problems,
    )


class TimesChart(Value):
    """The times of plants in the drawing's own units, with the same in words for those who do not see it."""

    found: str
    """Points of the line of times until found."""
    gone: str
    missed: Sequence[float]
    """Where a document was not found."""
    top: str
    """The time at the top, in seconds."""
    first: str
    last: str
    label: str


def draw_times(plants: Sequence[PlantView]) -> TimesChart | None:
    """Draw the times of plants, newest first; None where fewer than two were sent."""
    sent = [
        (datetime.fromisoformat(one["planted_at"]).timestamp(), one) for one in reversed(plants) if one["planted_at"]
    ]
    if len(sent) < _FEWEST or sent[0][0] == sent[-1][0]:
        return None
    begin, end = sent[0][0], sent[-1][0]
    seconds = [time for _, one in sent for time in (_known_time(one), one["gone_seconds"]) if time is not None]
    top = max(max(seconds, default=1.0) * 1.1, 0.1)

    def across(moment: float) -> float:
        return round(WIDTH * (moment - begin) / (end - begin), 1)

    def line(time_of: Callable[[PlantView], float | None]) -> str:
        known = [(at, time) for at, one in sent if (time := time_of(one)) is not None]
        return " ".join(f"{across(at)},{round(HEIGHT * (1 - time / top), 1)}" for at, time in known)

    found = [time for _, one in sent if (time := _known_time(one)) is not None]
    missed = [across(at) for at, one in sent if one["finding"] == "not_found"]
    newest = f", the newest after {found[-1]:.3g} s" if found else ""
    return TimesChart(
        found=line(_known_time),
        gone=line(lambda one: one["gone_seconds"]),
        missed=missed,
        top=f"{top:.3g} s",
        first=sent[0][1]["planted_at"] or "",
        last=sent[-1][1]["planted_at"] or "",
        label=f"Time until {len(found)} planted documents were found{newest}; {len(missed)} were not found",
    )


def _known_time(one: PlantView) -> float | None:
    """Return after how long a plant was found; None = it was not, or nobody asked for a while before."""
    return one["found_seconds"] if one["is_sure"] else None
