"""REST routes of diagnoses, shown and requested; of judgments to re-anchor; and of the retrieval quality report."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Literal

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from app.base.api.bodies import Before, Content, Limit, Page, ReanchorRequest, body_schema, text_answers
from app.base.api.requests import StoreDep, api_router, expensive
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.values import ReportProgress
from app.diagnosis.rendering import quality_markdown
from app.diagnosis.service import diagnoses, reanchoring
from app.diagnosis.service import quality as quality_report
from app.diagnosis.service.diagnoses import OnDemand
from app.diagnosis.service.reanchoring import proposal_ids
from app.diagnosis.views import DiagnosisView, QualityReport, ReanchorDecision, ReanchorState, ReanchorView
from app.records.service.plans import Planner

router = api_router("diagnosis")

# Not the routes' threads, as with tries: retrievers that hang must not keep others from their pages.
DIAGNOSES = CapacityLimiter(2)


@router.get("/checks/{slug}/canaries/{key}/diagnosis")
def get_diagnosis(store: StoreDep, slug: str, key: str) -> DiagnosisView:
    """Show the last diagnosis of a canary: its cause, evidence and proposals."""
    return diagnoses.show(store, slug, key)


@router.post("/checks/{slug}/canaries/{key}/diagnosis")
@expensive
async def post_diagnosis(request: Request, slug: str, key: str) -> DiagnosisView:
    """Diagnose a canary as of the newest run, by about seven requests to the retriever; takes a minute at most."""
    return await anyio.to_thread.run_sync(run_diagnosis(request, slug, key), limiter=DIAGNOSES)


def run_diagnosis(
    request: Request, slug: str, key: str, *, progress: ReportProgress = lambda _answered, _of: None
) -> Callable[[], DiagnosisView]:
    """Return a function that diagnoses a canary as the sender of the request, to be called in a thread."""
    state = request.app.state
    on_demand: OnDemand = state.diagnoses
    planner = Planner(state.access.store, state.access.vault)
    by = request.state.identity.name
    return lambda: on_demand.ask(
        planner, state.probe, slug, key, by=by, clock=lambda: datetime.now(UTC), progress=progress
    )


@router.get("/checks/{slug}/reanchors")
def list_reanchors(
    store: StoreDep, slug: str, state: ReanchorState | None = None, before: Before = None, limit: Limit = 50
) -> Page[ReanchorView]:
    """List the proposals for judgments whose chunks were renamed, newest first."""
    found = reanchoring.list_all(store, slug, state=state, before=before, limit=limit + 1)
    return Page(items=found[:limit], next=found[limit - 1]["id"] if len(found) > limit else None)


@router.post("/checks/{slug}/reanchors", openapi_extra=body_schema(ReanchorRequest))
def post_reanchors(store: StoreDep, request: Request, slug: str, body: Content) -> ReanchorDecision:
    """Accept or reject proposals, `{"accept": ["1", "2"]}` or `{"accept": "all"}`, all of them at once or none.

    Accepting changes the canary. One that a canary file owns stays as it is and waits: `patches` are to be committed,
    a diff where the service can read the file, and its canaries as they would be.
    """
    decision = parse_document(ReanchorRequest, body)
    return reanchoring.decide(
        store,
        slug,
        accept=None if decision.accept == "all" else proposal_ids("accept", decision.accept),
        reject=None if decision.reject == "all" else proposal_ids("reject", decision.reject),
        by=request.state.identity.name,
        now=datetime.now(UTC),
    )


quality_router = api_router("history")

# Outside of the routes' threads, one at a time: reports must not block other pages.
REPORTS = CapacityLimiter(1)


@quality_router.get(
    "/checks/{slug}/quality", responses=text_answers(200, types=("text/markdown",)), response_model=QualityReport
)
@expensive
async def get_quality(
    store: StoreDep, slug: str, form: Annotated[Literal["json", "markdown"], Query(alias="format")] = "json"
) -> Response:
    """Evaluate the checklist of retrieval quality by the last answer of each canary.

    Sections: suite, chunk quality, embedding quality, recall, precision, vocabulary, chunk boundaries, slow drift; each
    with a verdict (`good`, `look_at_this`, `unknown`) and why, numbers, the worst examples and advice. Of large suites
    a sample is evaluated, as where texts are very long; `notes` say so. Reports are made one at a time.
    """
    return await anyio.to_thread.run_sync(_written, store, slug, form, limiter=REPORTS)


def _written(store: Store, slug: str, form: str) -> Response:
    report = quality_report.report(store, slug, now=datetime.now(UTC))
    if form == "markdown":
        return PlainTextResponse(quality_markdown(report), media_type="text/markdown; charset=utf-8")
    return JSONResponse(report)
