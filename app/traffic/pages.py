"""The pages of traffic: of all suites; and of one, with groups covered and not, suggestions that open a task."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from app.base.api.requests import StoreDep, expensive, page_router, takes_form, wake
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError, Problem
from app.base.values import Value
from app.base.web.forms import Form, FormInput, follow_form, parse_number
from app.base.web.pages import render
from app.catalog.service import references
from app.traffic.documents.queries import ForgetRequest, ReachRequest, SuggestionsRequest
from app.traffic.domain import TrafficReachView
from app.traffic.service import intake, reach

router = page_router()

_SUGGESTIONS = 50


@router.get("/traffic")
@expensive
def show_all(request: Request, store: StoreDep) -> HTMLResponse:
    """Show the traffic of every suite, of the only one with its groups and questions."""
    slugs = [one.slug for one in references.load_definitions(store, "suite")]
    if len(slugs) == 1:
        return _page(request, store, slugs[0])
    found = {slug: reach.load_reaches(store, slug) for slug in slugs}
    lines = sorted(found.items(), key=lambda one: -sum(of.traffic["traffic"] for of in one[1]))
    return render(request, "traffic/suites.html", lines=lines)


@router.get("/suites/{suite}/traffic")
def show_traffic(request: Request, store: StoreDep, suite: str) -> HTMLResponse:
    """Show the traffic of a suite by retriever; its queries only to those who may write."""
    return _page(request, store, suite)


@router.post("/suites/{suite}/reach")
@takes_form(fields=3)
def measure_reach(request: Request, store: StoreDep, suite: str, form: FormInput) -> Response:
    """Ask a sample of the traffic."""
    parts = form.stripped("parts")
    group = {"separator": form.stripped("separator"), "parts": parse_number(parts)} if parts else None

    def measure() -> str:
        wish = parse_document(ReachRequest, {"retriever": form.get("retriever"), "group": group})
        reach.request_reach(store, suite, wish.retriever, grouping=wish.group, now=datetime.now(UTC))
        wake(request)
        return f"/suites/{quote(suite)}/traffic"

    return follow_form(measure, partial(_page, request, store, suite))


@router.post("/suites/{suite}/suggestions")
@takes_form(fields=_SUGGESTIONS + 2)
def take_up_suggestions(request: Request, store: StoreDep, suite: str, form: FormInput) -> Response:
    """Make canaries of the chosen suggestions, and a task of them."""
    fields = {"retriever": form.get("retriever"), "task": form.stripped("task"), "queries": list(form.all("queries"))}

    def open_task() -> str:
        wish, by, now = parse_document(SuggestionsRequest, fields), request.state.identity.name, datetime.now(UTC)
        reach.open_task(store, suite, wish.retriever, task=wish.task, queries=wish.queries, by=by, now=now)
        wake(request)
        return f"/tasks/{quote(wish.task)}"

    return follow_form(open_task, partial(_page, request, store, suite, form=form))


@router.post("/suites/{suite}/traffic/delete")
@takes_form(fields=2)
def delete_traffic(request: Request, store: StoreDep, suite: str, form: FormInput) -> Response:
    """Delete one query, or the traffic of a retriever."""
    try:
        wish = parse_document(ForgetRequest, {name: form.get(name) or None for name in ("retriever", "query")})
    except InvalidInputError as error:
        return _page(request, store, suite, problems=error.problems, status=422)
    if wish.retriever is None and wish.query is None:
        return _page(request, store, suite, problems=(Problem(path="query", message="is missing"),), status=422)
    count = intake.forget_traffic(store, suite, retriever=wish.retriever, query=wish.query)
    return _page(request, store, suite, deleted=count)


def _page(
    request: Request,
    store: Store,
    suite: str,
    *,
    form: Form | None = None,
    problems: Sequence[Problem] = (),
    deleted: int | None = None,
    status: int = 200,
) -> HTMLResponse:
    may_write = request.state.identity.scope.includes(Scope.WRITE)
    reaches = reach.load_reaches(store, suite, suggestions=_SUGGESTIONS if may_write else 0)
    return render(
        request,
        "traffic/traffic.html",
        status=status,
        slug=suite,
        traffic=reaches,
        maps=[() if one.reach is None else draw_map(one.reach) for one in reaches],
        map_height=_MAP_HEIGHT,
        typed=form or Form(),
        problems=problems,
        deleted=deleted,
    )


_MAP_WIDTH, _MAP_HEIGHT = 900.0, 280.0
"""Of the map of groups, in pixels; its width is that of the page."""
_LINE = 17
"""Pixels of a line of its labels."""


class Tile(Value):
    """A group on the map, its area by its traffic; widths are percents."""

    group: str
    share: float
    covered: bool | None
    """None = it stands for several."""
    place: int
    """Of the group in the list of groups, from 1 on; 0 = it stands for all that are not listed."""
    x: str
    y: float
    width: str
    height: float
    lines: int


def draw_map(reach: TrafficReachView) -> list[Tile]:
    """Lay out the groups of documents as a treemap: those with most traffic top left."""
    whole = reach["traffic"]
    groups: list[tuple[str, float, bool | None, int]] = [
        (one["group"], one["traffic"], one["covered"], place) for place, one in enumerate(reach["groups"], 1)
    ]
    rest = whole * (1 - reach["unanswered"]) * (1 - reach["empty"]) - sum(traffic for _, traffic, _, _ in groups)
    if reach["all_groups"] > len(groups) and rest > 0:
        groups.append((f"{reach['all_groups'] - len(groups)} more groups", rest, None, 0))
    shown = [one for one in groups if one[1] > 0]
    boxes = divide_box([traffic for _, traffic, _, _ in shown], (0.0, 0.0, _MAP_WIDTH, _MAP_HEIGHT))
    return [
        Tile(
            group=group,
            share=amount / whole,
            covered=covered,
            place=place,
            x=f"{100 * x / _MAP_WIDTH:.2f}%",
            y=round(y, 1),
            width=f"{100 * width / _MAP_WIDTH:.2f}%",
            height=round(height, 1),
            lines=min(int(height - 4) // _LINE, 4),
        )
        for (group, amount, covered, place), (x, y, width, height) in zip(shown, boxes, strict=True)
    ]


Box = tuple[float, float, float, float]
"""x, y, width, height."""


def divide_box(values: Sequence[float], box: Box) -> list[Box]:
    """Divide a box by values, the largest first: in halves of nearly equal sums, across its longer side."""
    if len(values) <= 1:
        return [box][: len(values)]
    x, y, width, height = box
    whole, first, cut = sum(values), values[0], 1
    while cut < len(values) - 1 and first + values[cut] <= whole / 2:
        first += values[cut]
        cut += 1
    part = first / whole
    if width >= height:
        halves = (x, y, width * part, height), (x + width * part, y, width * (1 - part), height)
    else:
        halves = (x, y, width, height * part), (x, y + height * part, width, height * (1 - part))
    return [*divide_box(values[:cut], halves[0]), *divide_box(values[cut:], halves[1])]
