"""REST routes of a run's report, of series over runs, and of the history of a canary."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import Depends, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from app.base.api.bodies import Limit, Version, refusals, text_answers
from app.base.api.requests import StoreDep, api_router, expensive, needs, plain_router, refuse_unknown_parameters
from app.base.db.engine import Store, to_us
from app.base.db.keys import Scope
from app.base.errors import InvalidInputError, Problem
from app.base.values import FIRST_YEAR, LAST_YEAR, Category, Value
from app.detection.domain.views import EvidenceSeries
from app.detection.service import baselines
from app.reports.rendering import reports
from app.reports.rendering.pictures import heat_map_png, layout_of
from app.reports.rendering.reports import page_policy, report_html
from app.reports.service import charts, public_links
from app.reports.service import reports as run_reports
from app.reports.views import (
    CanaryHistory,
    HeatMap,
    LatencySeries,
    MeasureSeries,
    NewPublicLink,
    PublicLinkView,
    ReportView,
)

router = api_router("history")
pictures = plain_router(include_in_schema=False, dependencies=[Depends(refuse_unknown_parameters)])
"""Beside the API, as badges are."""

_MOST_COLUMNS = 400
_WIDEST = 1600
REPORT_TYPES = ("text/markdown", "application/xml", "text/html")


@router.get(
    "/runs/{run_id}/report", response_model=ReportView, responses=text_answers(200, types=REPORT_TYPES) | refusals(409)
)
@expensive
def get_report(
    store: StoreDep,
    run_id: str,
    report_format: Annotated[Literal["json", "markdown", "junit", "html"], Query(alias="format")] = "json",
    since: Annotated[str | None, Query(max_length=64, description="an earlier run of the check")] = None,
    version: Version = None,
) -> Response:
    """Return the report of an ended run: every measure at every cut-off with intervals, categories, worst canaries.

    `guide` says which measure to read first for the check's `use`. `since` names another run of the check: the report
    then says what changed, as `/v1/runs/{before}/diff/{now}` does.
    """
    if report_format == "junit":
        results = run_reports.load_results(store, run_id, version=version, since=since)
        return Response(reports.report_junit(results), media_type="application/xml")
    report = run_reports.load_report(store, run_id, version=version, since=since)
    if report_format == "markdown":
        return PlainTextResponse(reports.report_markdown(report), media_type="text/markdown; charset=utf-8")
    if report_format == "html":
        heat_map = run_reports.heat_map_of(store, report, version=version)
        page = report_html(report, heat_map=heat_map)
        return HTMLResponse(page, headers={"content-security-policy": page_policy(heat_map)})
    return JSONResponse({name: part for name, part in report.items() if name != "results"})


@router.get("/checks/{slug}/series")
def get_series(
    store: StoreDep,
    slug: str,
    measure: Annotated[str, Query(max_length=64)] = "coverage",
    category: Category | None = None,
    start: Annotated[datetime | None, Query(alias="from")] = None,
    end: Annotated[datetime | None, Query(alias="to")] = None,
    points: Annotated[int, Query(ge=1, le=charts.MAX_POINTS)] = 300,
    version: Version = None,
) -> MeasureSeries:
    """Show a measure over time, by default the last day.

    A point is a single run, or the mean of several with the least and greatest value. `gaps` are periods without a
    measurement, `usual` encloses 98 % of the baseline's runs, `lines` are the bounds of the rules on this measure,
    `alerts` those that were open in the period; `self_judged` says of recall that only the retriever's own first hits
    were judged, by the newest run.
    """
    since, until = _period(start, end)
    return charts.series(
        store,
        slug,
        measure=measure,
        category=category,
        start=to_us(since),
        end=to_us(until),
        points=points,
        version=version,
    )


@router.get("/checks/{slug}/public-link")
def get_public_link(store: StoreDep, slug: str) -> PublicLinkView:
    """Show who made the public link of a check, and when; not its address, which is stored as a hash."""
    return public_links.show(store, slug)


@router.post("/checks/{slug}/public-link", responses=refusals(409))
@needs(Scope.ADMIN)
def post_public_link(store: StoreDep, request: Request, slug: str) -> NewPublicLink:
    """Make a public link of a check, in the place of the one it has.

    `page` and `badge` show the name, the state and the last 90 runs of the check to whoever has them, without a key.
    They are in this answer alone. An archived check answers 409.
    """
    token = public_links.make(store, slug, by=request.state.identity.name, now=datetime.now(UTC))
    page = public_links.address(request.app.state.links.public_url, token)
    return {**public_links.show(store, slug), "page": page, "badge": f"{page}.svg"}


@router.delete("/checks/{slug}/public-link", status_code=204)
@needs(Scope.ADMIN)
def delete_public_link(store: StoreDep, request: Request, slug: str) -> None:
    """Revoke the public link of a check at once; 404 where it has none."""
    public_links.revoke(store, slug, by=request.state.identity.name)


class _Asked(Value):
    """What a heat map is to show."""

    start: datetime | None
    end: datetime | None
    columns: int
    by: Literal["category", "tag"]
    version: str | None

    def read(self, store: Store, slug: str) -> HeatMap:
        """Read it of a check."""
        since, until = _period(self.start, self.end)
        start = None if self.start is None else to_us(since)
        return charts.heat_map(
            store, slug, start=start, end=to_us(until), columns=self.columns, by=self.by, version=self.version
        )


def _asked(
    start: Annotated[datetime | None, Query(alias="from")] = None,
    end: Annotated[datetime | None, Query(alias="to")] = None,
    columns: Annotated[int, Query(ge=1, le=_MOST_COLUMNS)] = 60,
    by: Annotated[Literal["category", "tag"], Query(description="what canaries are grouped by")] = "category",
    version: Version = None,
) -> _Asked:
    return _Asked(start=start, end=end, columns=columns, by=by, version=version)


AskedDep = Annotated[_Asked, Depends(_asked)]


@router.get("/checks/{slug}/heatmap")
def get_heat_map(
    store: StoreDep,
    slug: str,
    asked: AskedDep,
    width: Annotated[
        int | None, Query(ge=240, le=_WIDEST, description="adds the `layout` of a picture so wide")
    ] = None,
) -> HeatMap:
    """Show every canary of a check in every run, by default the newest 60 runs.

    A column is one run, or several that follow each other where a period has more runs than columns. Canaries are those
    of the newest run. A year of runs every hour is drawn whole; of more runs the newest 10,000 (`is_cut`).
    """
    heat_map = asked.read(store, slug)
    if width is not None:
        groups = [len(group["canaries"]) for group in heat_map["groups"]]
        heat_map["layout"] = layout_of(groups, columns=len(heat_map["columns"]), width=width)
    return heat_map


@pictures.get("/heatmap/{slug}.png")
def get_heat_map_picture(
    store: StoreDep,
    slug: str,
    asked: AskedDep,
    width: Annotated[int, Query(ge=240, le=_WIDEST, description="pixels of a page")] = 1000,
    scale: Annotated[int, Query(ge=1, le=2, description="pixels of the screen for one of a page")] = 2,
    *,
    dark: bool = False,
) -> Response:
    """Show the same as a picture."""
    picture = heat_map_png(asked.read(store, slug), width=width, scale=scale, is_dark=dark)
    return Response(picture, media_type="image/png", headers={"cache-control": "private, no-cache"})


@router.get("/checks/{slug}/evidence-series")
def get_evidence_series(
    store: StoreDep,
    slug: str,
    start: Annotated[datetime | None, Query(alias="from")] = None,
    end: Annotated[datetime | None, Query(alias="to")] = None,
    points: Annotated[int, Query(ge=1, le=charts.MAX_POINTS)] = 300,
) -> EvidenceSeries:
    """Show the detector's evidence after each run of a check, and the threshold of its alarm.

    A point that covers several runs has their greatest evidence; None = the detector was warming up. Of very many runs
    only the newest are read, from `since` on.
    """
    since, until = _period(start, end)
    return baselines.evidence(store, slug, start=to_us(since), end=to_us(until), points=points)


@router.get("/checks/{slug}/latency-series")
def get_latency_series(
    store: StoreDep,
    slug: str,
    start: Annotated[datetime | None, Query(alias="from")] = None,
    end: Annotated[datetime | None, Query(alias="to")] = None,
    points: Annotated[int, Query(ge=1, le=charts.MAX_POINTS)] = 300,
) -> LatencySeries:
    """Show the median, 95th percentile and maximum of the latency of a check's probes over time, in seconds.

    A point that covers several runs has the means of their percentiles and their greatest maximum. Of very many runs
    only the newest are read, from `since` on. `lines` are the bounds of the rules in force on latency.
    """
    since, until = _period(start, end)
    return charts.latency_series(store, slug, start=to_us(since), end=to_us(until), points=points)


@router.get("/checks/{slug}/canaries/{key}/history")
def get_canary_history(store: StoreDep, slug: str, key: str, limit: Limit = 200) -> CanaryHistory:
    """Show the states of a canary, newest first."""
    return charts.canary_history(store, slug, key, limit=limit)


def _period(start: datetime | None, end: datetime | None) -> tuple[datetime, datetime]:
    """Return a period, by default the last day; it ends now at the latest."""
    now = datetime.now(UTC)
    until = _check_time(end, "to") or now
    since = _check_time(start, "from") or until - timedelta(days=1)
    if since >= until:
        raise InvalidInputError([Problem(path="from", message="must be before 'to'")])
    return since, until if since >= now else min(until, now)


def _check_time(time: datetime | None, name: str) -> datetime | None:
    if time is not None and time.tzinfo is None:
        raise InvalidInputError([Problem(path=name, message="needs a time zone, for example 2026-01-31T12:00:00Z")])
    if time is not None and not FIRST_YEAR <= time.year <= LAST_YEAR:
        raise InvalidInputError([Problem(path=name, message=f"must be between {FIRST_YEAR} and {LAST_YEAR}")])
    return time
