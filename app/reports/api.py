"""REST routes of a run's report, of series over runs, and of the history of a canary."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from app.base.api.bodies import Limit, Version, refusals, text_answers
from app.base.api.requests import StoreDep, expensive, refuse_unknown_parameters
from app.base.db.engine import to_us
from app.base.errors import InvalidInputError, Problem
from app.base.values import FIRST_YEAR, LAST_YEAR, Category
from app.detection.domain.views import EvidenceSeries
from app.detection.service import baselines
from app.reports.rendering import reports
from app.reports.rendering.reports import page_policy, report_html
from app.reports.service import charts
from app.reports.service import reports as run_reports
from app.reports.views import CanaryHistory, MeasureSeries, ReportView

router = APIRouter(prefix="/v1", tags=["history"], dependencies=[Depends(refuse_unknown_parameters)])

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
        return HTMLResponse(report_html(report), headers={"content-security-policy": page_policy()})
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
