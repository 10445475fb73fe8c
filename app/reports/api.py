"""REST routes of runs, results, reports and series, with the request that starts a run, and the history of a canary."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from app.base.api.bodies import OptionalContent, answers_with, refusals, text_answers
from app.base.api.deps import StoreDep, refuse_unknown_parameters, wake
from app.base.api.requests import expensive
from app.base.api.schemas import (
    LARGEST_ID,
    Before,
    Limit,
    Page,
    RunRequest,
    Version,
    body_schema,
)
from app.base.db.engine import to_us
from app.base.documents.parsing import parse_document
from app.base.errors import InvalidInputError, Problem
from app.base.values import Category, Outcome, Reason, RunStatus, Trigger, Verdict
from app.detection.domain.views import EvidenceSeries
from app.detection.service import baselines
from app.records.domain import CanaryHistory, MeasureSeries, ReportView, ResultView, RunView
from app.records.service import runs
from app.reports.rendering import reports
from app.reports.rendering.reports import page_policy, report_html
from app.reports.service import charts
from app.reports.service import reports as run_reports
from app.reports.service.overview import Kind, Topic
from app.runs.api import endings_of
from app.runs.service import due_checks

router = APIRouter(prefix="/v1", tags=["history"], dependencies=[Depends(refuse_unknown_parameters)])


_FIRST_YEAR, _LAST_YEAR = 1970, 9999
REPORT_TYPES = ("text/markdown", "application/xml", "text/html")


@router.post(
    "/checks/{slug}/runs",
    responses=answers_with(RunView, 200, 202),
    openapi_extra=body_schema(RunRequest, required=False),
)
async def post_run(
    request: Request,
    store: StoreDep,
    slug: str,
    body: OptionalContent,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> JSONResponse:
    """Run a check now: 202, or 200 with the run when it ended within `wait_seconds`.

    While a run of the check is active exactly one follow-up is queued and returned.
    """
    body_request = parse_document(RunRequest, {} if body is None else body)
    limiter: CapacityLimiter = request.app.state.access.waiting

    def queue() -> int:
        return due_checks.run_now(
            store,
            slug,
            trigger=Trigger(body_request.trigger),
            index_version=body_request.index_version,
            idempotency_key=idempotency_key,
            now=datetime.now(UTC),
        )[0]

    run_id = await anyio.to_thread.run_sync(queue, limiter=limiter)
    wake(request)
    if body_request.wait_seconds:
        await endings_of(request).wait(Topic(Kind.RUN, run_id), body_request.wait_seconds)
    run = await anyio.to_thread.run_sync(runs.run, store, str(run_id), limiter=limiter)
    ended = run["status"] not in {RunStatus.QUEUED, RunStatus.RUNNING}
    headers = {"location": f"/v1/runs/{run_id}"}
    return JSONResponse(run, status_code=200 if ended and body_request.wait_seconds else 202, headers=headers)


@router.get("/checks/{slug}/health")
def get_health(store: StoreDep, slug: str, version: Version = None) -> RunView:
    """Show the newest ended run of a check; of a re-scoring, the newest re-scored run."""
    return runs.health(store, slug, version=version)


@router.get("/checks/{slug}/runs")
def list_runs(
    store: StoreDep, slug: str, before: Before = None, limit: Limit = 50, version: Version = None
) -> Page[RunView]:
    """List the runs of a check, newest first; of a re-scoring, the re-scored ones."""
    found = runs.list_runs(store, slug, before=before, limit=limit + 1, version=version)
    return Page(items=found[:limit], next=found[limit - 1]["id"] if len(found) > limit else None)


@router.get("/runs/{run_id}")
def get_run(store: StoreDep, run_id: str, version: Version = None) -> RunView:
    """Show a run; while it is active, with its progress."""
    return runs.run(store, run_id, version=version)


@router.get("/runs/{run_id}/results", responses=refusals(409))
def list_results(  # noqa: PLR0913 - a parameter for each
    *,
    store: StoreDep,
    run_id: str,
    verdict: Verdict | None = None,
    category: Category | None = None,
    tag: Annotated[str | None, Query(max_length=64)] = None,
    reason: Reason | None = None,
    outcome: Outcome | None = None,
    after: Annotated[int, Query(ge=-1, le=LARGEST_ID)] = -1,
    limit: Limit = 100,
    version: Version = None,
) -> Page[ResultView]:
    """List the results of an ended run with their evidence."""
    found, following = runs.results(
        store,
        run_id,
        verdict=verdict,
        category=category,
        tag=tag,
        reason=reason,
        outcome=outcome,
        after=after,
        limit=limit,
        version=version,
    )
    return Page(items=found, next=None if following is None else str(following))


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
    if time is not None and not _FIRST_YEAR < time.year < _LAST_YEAR:
        raise InvalidInputError([Problem(path=name, message="must be between 1971 and 9998")])
    return time
