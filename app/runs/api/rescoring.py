"""REST routes of re-scorings: start one, and show its progress and result."""

from datetime import UTC, datetime

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from app.base.api.answers import answers_with
from app.base.api.bodies import OptionalContent
from app.base.api.deps import StoreDep, refuse_unknown_parameters
from app.base.api.schemas import Before, Page, RescoringRequest
from app.base.documents.validation_messages import parse_document
from app.catalog.api.definitions import Limit, body_schema, wake
from app.records.documents import id_number
from app.reports.service.change_feed import Kind, Topic
from app.runs.api.endings import endings_of
from app.runs.service import rescoring
from app.scoring.views import RescoringView

router = APIRouter(prefix="/v1", tags=["history"], dependencies=[Depends(refuse_unknown_parameters)])


@router.post(
    "/checks/{slug}/rescorings",
    responses=answers_with(RescoringView, 200, 202),
    openapi_extra=body_schema(RescoringRequest, required=False),
)
async def post_rescoring(request: Request, store: StoreDep, slug: str, body: OptionalContent) -> JSONResponse:
    """Re-score a check's recorded runs with its present judgments: 202, or 200 when done within `wait_seconds`.

    The recorded numbers stay; the new ones are a measures version of their own. With an unchanged suite the same
    re-scoring continues with the runs since.
    """
    body_request = parse_document(RescoringRequest, {} if body is None else body)
    limiter: CapacityLimiter = request.app.state.access.waiting

    def ask() -> int:
        return rescoring.ask(store, slug, since=body_request.since, now=datetime.now(UTC))

    rescoring_id = await anyio.to_thread.run_sync(ask, limiter=limiter)
    wake(request)
    if body_request.wait_seconds:
        await endings_of(request).wait(Topic(Kind.RESCORING, rescoring_id), body_request.wait_seconds)
    found = await anyio.to_thread.run_sync(rescoring.show, store, rescoring_id, limiter=limiter)
    headers = {"location": f"/v1/rescorings/{rescoring_id}"}
    return JSONResponse(found, status_code=202 if found["finished_at"] is None else 200, headers=headers)


@router.get("/checks/{slug}/rescorings")
def list_rescorings(store: StoreDep, slug: str, before: Before = None, limit: Limit = 50) -> Page[RescoringView]:
    """List the re-scorings of a check, newest first."""
    found = rescoring.list_all(store, slug, before=before, limit=limit + 1)
    return Page(items=found[:limit], next=found[limit - 1]["id"] if len(found) > limit else None)


@router.get("/rescorings/{rescoring_id}")
def get_rescoring(store: StoreDep, rescoring_id: str) -> RescoringView:
    """Show a re-scoring: its progress and, once it has finished, its totals before and after."""
    return rescoring.show(store, id_number(rescoring_id, "re-scoring"))
