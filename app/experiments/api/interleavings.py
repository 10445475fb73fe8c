"""REST routes of interleavings: defined, lists merged for units, clicks taken in, read with their decision."""

from datetime import UTC, datetime
from typing import Final

from fastapi import APIRouter, Depends, Request, Response

from app.base.api.answers import answers_with
from app.base.api.bodies import Content
from app.base.api.deps import StoreDep, refuse_unknown_parameters
from app.base.api.schemas import Page
from app.base.documents.validation_messages import parse_document
from app.catalog.api.definitions import After, Limit, body_schema, list_schema, with_name
from app.experiments.documents.experiment_documents import MOST_ITEMS
from app.experiments.documents.interleaving_documents import ClickBatch, InterleavingDocument, ListsRequest
from app.experiments.domain.views import InterleavingView, MergedList, ReceivedClicks
from app.experiments.service import interleavings

router = APIRouter(prefix="/v1", tags=["experiments"], dependencies=[Depends(refuse_unknown_parameters)])

_READ_ONLY: Final = InterleavingView.__annotations__.keys() - InterleavingDocument.model_fields.keys()
"""Fields that answers add to a document, so that an answer can be sent back."""


@router.get("/interleavings")
def list_interleavings(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[InterleavingView]:
    """List the interleavings, each in its current epoch."""
    found = interleavings.list_interleavings(store, after=after, limit=limit + 1)
    return Page(items=found[:limit], next=found[limit - 1]["slug"] if len(found) > limit else None)


@router.get("/interleavings/{slug}")
def get_interleaving(store: StoreDep, slug: str) -> InterleavingView:
    """Show which ranking units prefer, the decision and why. The interval holds at every look."""
    return interleavings.load_interleaving(store, slug)


@router.put(
    "/interleavings/{slug}",
    responses=answers_with(InterleavingView, 201),
    openapi_extra=body_schema(InterleavingDocument),
)
def put_interleaving(
    store: StoreDep, request: Request, response: Response, slug: str, body: Content
) -> InterleavingView:
    """Create an interleaving, or begin an epoch of it with what has changed: all counts and clicks are deleted."""
    given = {name: value for name, value in with_name(body, "slug", slug).items() if name not in _READ_ONLY}
    document = parse_document(InterleavingDocument, given)
    created = interleavings.put_interleaving(store, document, by=request.state.identity.name, now=datetime.now(UTC))
    response.status_code = 201 if created else 200
    return interleavings.load_interleaving(store, slug)


@router.delete("/interleavings/{slug}", status_code=204)
def delete_interleaving(store: StoreDep, slug: str) -> None:
    """Delete an interleaving and its clicks."""
    interleavings.delete_interleaving(store, slug)


@router.post("/interleavings/{slug}/lists", openapi_extra=body_schema(ListsRequest))
def post_lists(store: StoreDep, slug: str, body: Content) -> MergedList:
    """Merge two rankings for a unit by team draft; nothing is stored.

    The function is published in docs/assignment.md, so that clients need no call.
    """
    return interleavings.merge_lists(store, slug, parse_document(ListsRequest, body))


@router.post("/interleavings/{slug}/clicks", openapi_extra=list_schema("Click", most=MOST_ITEMS))
def post_clicks(store: StoreDep, slug: str, body: Content) -> ReceivedClicks:
    """Take in clicks, at most 10,000 a request: `[{event_id, unit, team}]`, `team` as the merged list has it.

    Ids are stored hashed. Sent again, nothing counts twice.
    """
    batch = parse_document(ClickBatch, {"clicks": body})
    return interleavings.receive_clicks(store, slug, batch.clicks, now=datetime.now(UTC))
