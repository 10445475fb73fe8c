"""REST routes of shadows: pairs of rankings in, how far they differ over time out."""

from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response

from app.base.api.answers import answers_with, refusals
from app.base.api.bodies import Content
from app.base.api.deps import StoreDep, VaultDep, needs, refuse_unknown_parameters
from app.base.api.keys import Scope
from app.base.api.request_limits import expensive
from app.base.api.schemas import Page
from app.base.documents.fields import SLUG
from app.base.documents.validation_messages import parse_document
from app.catalog.api.definitions import After, Limit, body_schema, list_schema, wake, with_name
from app.experiments.documents.shadow_documents import MOST_KEPT, MOST_PAIRS, ShadowBatch, ShadowDocument
from app.experiments.domain.views import DifferentPair, ReceivedPairs, ShadowDetail, ShadowView
from app.experiments.service import shadow_intake, shadows

router = APIRouter(prefix="/v1", tags=["experiments"], dependencies=[Depends(refuse_unknown_parameters)])

_READ_ONLY: Final = ShadowDetail.__annotations__.keys() - ShadowDocument.model_fields.keys()
"""Fields that answers add to a document, so that an answer can be sent back."""


@router.get("/shadows")
def list_shadows(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[ShadowView]:
    """List the shadows, each over all its hours."""
    found = shadows.list_shadows(store, after=after, limit=limit + 1)
    return Page(items=found[:limit], next=found[limit - 1]["slug"] if len(found) > limit else None)


@router.get("/shadows/{slug}")
def get_shadow(store: StoreDep, slug: str) -> ShadowDetail:
    """Show how far a candidate's answers differ from those that users get, by the hour, and what people preferred.

    Nobody sees a shadow's answers: it measures no satisfaction. People prefer among the most different pairs, which are
    no random sample.
    """
    return shadows.load_shadow(store, slug)


@router.put(
    "/shadows/{slug}",
    responses=answers_with(ShadowDetail, 201) | refusals(409),
    openapi_extra=body_schema(ShadowDocument),
)
def put_shadow(store: StoreDep, request: Request, response: Response, slug: str, body: Content) -> ShadowDetail:
    """Define a shadow: the retriever that may follow, which is asked a share of what users ask.

    The candidate stays; share, `k` and the number of kept pairs can be changed. Kept pairs hold queries of users, for
    30 days; `keep: 0` keeps none.
    """
    given = {name: value for name, value in with_name(body, "slug", slug).items() if name not in _READ_ONLY}
    document, now = parse_document(ShadowDocument, given), datetime.now(UTC)
    created = shadows.put_shadow(store, document, by=request.state.identity.name, now=now)
    response.status_code = 201 if created else 200
    return shadows.load_shadow(store, slug)


@router.get("/shadows/{slug}/pairs")
@needs(Scope.WRITE)
def list_pairs(
    store: StoreDep, slug: str, limit: Annotated[int, Query(ge=1, le=MOST_KEPT)] = 50
) -> Page[DifferentPair]:
    """List the queries of users whose answers differ most, for keys that may write; never the answers."""
    return Page(items=shadows.list_pairs(store, slug, limit=limit), next=None)


@router.post("/shadows/{slug}/pairs", openapi_extra=list_schema("ShadowPair", most=MOST_PAIRS), responses=refusals(409))
@expensive
def post_pairs(
    *,
    store: StoreDep,
    vault: VaultDep,
    request: Request,
    slug: Annotated[str, Path(pattern=SLUG)],
    body: Content,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> ReceivedPairs:
    """Take in what users got for a query and what the candidate gave, at most 1,000 a request.

    `[{query, a: [hits], b?: [hits], a_seconds?, b_seconds?}]`, where a hit is an id or `{id, text}`; `b_failed: true`
    in the place of `b` where the candidate did not answer. Without both Coalmine asks the candidate of the shadow a
    share of the queries, in the background and within its limits. Sums are kept; queries only until they are asked, and
    with the most different pairs. For a day a request that is sent again with the same `Idempotency-Key` counts once.
    """
    batch = parse_document(ShadowBatch, {"pairs": body})
    received = shadow_intake.receive_pairs(store, vault, slug, batch.pairs, now=datetime.now(UTC), key=idempotency_key)
    if received["to_ask"]:
        wake(request)
    return received


@router.delete("/shadows/{slug}", status_code=204)
def delete_shadow(store: StoreDep, slug: str) -> None:
    """Delete a shadow: its figures, and at once what is kept of queries. Its tasks stay until they are archived."""
    shadows.delete_shadow(store, slug)
