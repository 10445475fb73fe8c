"""REST routes of shadows: pairs of rankings in, how far they differ over time out."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path

from app.api.bodies import Content
from app.api.catalog.definitions import After, Limit, reference
from app.api.deps import StoreDep, refuse_unknown_parameters
from app.api.schemas import Page
from app.domain.experiments.views import ReceivedPairs, ShadowDetail, ShadowView
from app.formats.experiments.shadow_documents import MOST_PAIRS, ShadowBatch
from app.formats.fields import SLUG
from app.formats.validation_messages import parse_document
from app.services.experiments import shadows

router = APIRouter(prefix="/v1", tags=["experiments"], dependencies=[Depends(refuse_unknown_parameters)])

_PAIRS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "array", "items": reference("ShadowPair"), "maxItems": MOST_PAIRS}}
        },
    }
}


@router.get("/shadows")
def list_shadows(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[ShadowView]:
    """List the shadows, each over all its hours."""
    found = shadows.list_shadows(store, after=after, limit=limit + 1)
    return Page(items=found[:limit], next=found[limit - 1]["slug"] if len(found) > limit else None)


@router.get("/shadows/{slug}")
def get_shadow(store: StoreDep, slug: str) -> ShadowDetail:
    """Show how far a candidate's answers differ from those that users get, by the hour; no satisfaction."""
    return shadows.load_shadow(store, slug)


@router.post("/shadows/{slug}/pairs", openapi_extra=_PAIRS)
def post_pairs(store: StoreDep, slug: Annotated[str, Path(pattern=SLUG)], body: Content) -> ReceivedPairs:
    """Take in what users got for a query and what the candidate gave, at most 1,000 a request.

    `[{query, a: [ids], b: [ids], a_seconds?, b_seconds?}]`, with `b_failed: true` in the place of `b` where the
    candidate did not answer. Sums are kept, neither queries nor rankings.
    """
    batch = parse_document(ShadowBatch, {"pairs": body})
    return shadows.receive_pairs(store, slug, batch.pairs, now=datetime.now(UTC))


@router.delete("/shadows/{slug}", status_code=204)
def delete_shadow(store: StoreDep, slug: str) -> None:
    """Delete a shadow."""
    shadows.delete_shadow(store, slug)
