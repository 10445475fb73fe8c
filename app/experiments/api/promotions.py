"""REST routes of promotions: the gates of a candidate as they stand, and waivers."""

from datetime import UTC, datetime
from typing import Final

from fastapi import APIRouter, Depends, Request, Response

from app.base.api.answers import answers_with
from app.base.api.bodies import Content
from app.base.api.deps import StoreDep, refuse_unknown_parameters
from app.base.api.schemas import Page
from app.base.documents.validation_messages import parse_document
from app.catalog.api.definitions import After, Limit, body_schema, with_name
from app.experiments.documents.promotion_documents import PromotionDocument, WaiverRequest
from app.experiments.domain.promotion import GateName
from app.experiments.domain.views import PromotionView
from app.experiments.service import promotions

router = APIRouter(prefix="/v1", tags=["experiments"], dependencies=[Depends(refuse_unknown_parameters)])

_READ_ONLY: Final = PromotionView.__annotations__.keys() - PromotionDocument.model_fields.keys()


@router.get("/promotions")
def list_promotions(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[PromotionView]:
    """List the promotions, each with its gates."""
    found = promotions.list_promotions(store, after=after, limit=limit + 1, now=datetime.now(UTC))
    return Page(items=found[:limit], next=found[limit - 1]["slug"] if len(found) > limit else None)


@router.get("/promotions/{slug}")
def get_promotion(store: StoreDep, slug: str) -> PromotionView:
    """Show where a candidate stands: the offline comparison, the judge, users. The last gate overrules the first."""
    return promotions.load_promotion(store, slug, now=datetime.now(UTC))


@router.put(
    "/promotions/{slug}", responses=answers_with(PromotionView, 201), openapi_extra=body_schema(PromotionDocument)
)
def put_promotion(store: StoreDep, request: Request, response: Response, slug: str, body: Content) -> PromotionView:
    """Hold a candidate to three gates: `{current, candidate, experiment}`, two checks and an experiment.

    A change forgets the waivers.
    """
    given = {name: value for name, value in with_name(body, "slug", slug).items() if name not in _READ_ONLY}
    document, now = parse_document(PromotionDocument, given), datetime.now(UTC)
    created = promotions.put_promotion(store, document, by=request.state.identity.name, now=now)
    response.status_code = 201 if created else 200
    return promotions.load_promotion(store, slug, now=now)


@router.delete("/promotions/{slug}", status_code=204)
def delete_promotion(store: StoreDep, slug: str) -> None:
    """Delete a promotion with its waivers."""
    promotions.delete_promotion(store, slug)


@router.put("/promotions/{slug}/waivers/{gate}", openapi_extra=body_schema(WaiverRequest))
def put_waiver(store: StoreDep, request: Request, slug: str, gate: GateName, body: Content) -> PromotionView:
    """Waive a gate; who does it and why stand beside it from then on."""
    wish, now = parse_document(WaiverRequest, body), datetime.now(UTC)
    promotions.waive_gate(store, slug, gate, reason=wish.reason, by=request.state.identity.name, now=now)
    return promotions.load_promotion(store, slug, now=now)


@router.delete("/promotions/{slug}/waivers/{gate}", status_code=204)
def delete_waiver(store: StoreDep, slug: str, gate: GateName) -> None:
    """Withdraw the waiver of a gate."""
    promotions.withdraw_waiver(store, slug, gate)
