"""REST routes of experiments, shadows, interleavings and promotions: defined, sent events, read with their decision."""

from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import Header, Path, Query, Request, Response

from app.base.api.bodies import After, Content, Limit, Page, answers_with, body_schema, list_schema, refusals
from app.base.api.requests import StoreDep, VaultDep, api_router, expensive, needs, wake
from app.base.db.keys import Scope
from app.base.documents.fields import SLUG, parse_document
from app.definitions.api import sent_document
from app.experiments.documents import (
    MOST_ITEMS,
    MOST_KEPT,
    MOST_PAIRS,
    ArmDocument,
    Click,
    ClickBatch,
    ExperimentDocument,
    Exposure,
    ExposureBatch,
    InterleavingDocument,
    ListsRequest,
    OutcomeBatch,
    PromotionDocument,
    ShadowBatch,
    ShadowDocument,
    ShadowPair,
    UnitOutcome,
    WaiverRequest,
)
from app.experiments.domain.promotions import GateName
from app.experiments.service import experiments, promotions, shadows
from app.experiments.views import (
    ArmView,
    DifferentPair,
    ExperimentDetail,
    ExperimentView,
    InterleavingView,
    MergedList,
    PromotionView,
    ReceivedClicks,
    ReceivedExposures,
    ReceivedOutcomes,
    ReceivedPairs,
    ShadowDetail,
    ShadowView,
)

router = api_router("experiments")

_READ_ONLY_OF_ARMS: Final = ArmView.__annotations__.keys() - ArmDocument.model_fields.keys()
"""Fields that answers add to arms, so that an answer can be sent back."""


@router.get("/experiments")
def list_experiments(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[ExperimentView]:
    """List the experiments, each in its current epoch."""
    found = experiments.list_experiments(store, after=after, limit=limit + 1, now=datetime.now(UTC))
    return Page(items=found[:limit], next=found[limit - 1]["slug"] if len(found) > limit else None)


@router.get("/experiments/{slug}")
def get_experiment(store: StoreDep, slug: str) -> ExperimentDetail:
    """Show an experiment: its arms, the interval of their difference over time, the decision and why.

    The interval holds at every look, however often this is read.
    """
    return experiments.load_experiment(store, slug, now=datetime.now(UTC))


@router.put(
    "/experiments/{slug}", responses=answers_with(ExperimentDetail, 201), openapi_extra=body_schema(ExperimentDocument)
)
def put_experiment(store: StoreDep, request: Request, response: Response, slug: str, body: Content) -> ExperimentDetail:
    """Create an experiment, or begin an epoch of it with what has changed.

    Clients assign units by the published function of docs/assignment.md. A new epoch deals them anew, and is tested
    alone.
    """
    document, now = sent_document(ExperimentDocument, ExperimentDetail, slug, _plain_arms(body)), datetime.now(UTC)
    created = experiments.put_experiment(store, document, by=request.state.identity.name, now=now)
    response.status_code = 201 if created else 200
    return experiments.load_experiment(store, slug, now=now)


@router.post("/experiments/{slug}/stop")
def stop_experiment(store: StoreDep, slug: str) -> ExperimentDetail:
    """Stop an experiment: no more units are exposed, what was counted stays, and outcomes on their way still count.

    `ended_at` says since when. Put again, the same document begins a new epoch. Stopped again, nothing changes.
    """
    now = datetime.now(UTC)
    experiments.stop_experiment(store, slug, now=now)
    return experiments.load_experiment(store, slug, now=now)


@router.delete("/experiments/{slug}", status_code=204)
def delete_experiment(store: StoreDep, slug: str) -> None:
    """Archive an experiment and delete its units at once."""
    experiments.archive_experiment(store, slug, now=datetime.now(UTC))


@router.post(
    "/experiments/{slug}/exposures", openapi_extra=list_schema(Exposure, most=MOST_ITEMS), responses=refusals(409)
)
def post_exposures(store: StoreDep, slug: str, body: Content) -> ReceivedExposures:
    """Take in which units were exposed, at most 10,000 a request: `[{unit, arm?, at?}]`; a unit counts once.

    Unit ids are stored hashed. Send a request again where its answer was lost: nothing counts twice.
    """
    batch = parse_document(ExposureBatch, {"exposures": body})
    return experiments.receive_exposures(store, slug, batch.exposures, now=datetime.now(UTC))


@router.post("/experiments/{slug}/outcomes", openapi_extra=list_schema(UnitOutcome, most=MOST_ITEMS))
def post_outcomes(store: StoreDep, slug: str, body: Content) -> ReceivedOutcomes:
    """Take in outcomes of exposed units, at most 10,000 a request: `[{event_id, unit, value, at?}]`.

    The first value of a unit stays; none within the window is a 0. Sent again, nothing counts twice but what came
    after the window, which is only told.
    """
    batch = parse_document(OutcomeBatch, {"outcomes": body})
    return experiments.receive_outcomes(store, slug, batch.outcomes, now=datetime.now(UTC))


def _plain_arms(body: Any) -> Any:
    """Return a body without what answers add to arms."""
    if not isinstance(body, dict) or not isinstance(body.get("arms"), list):
        return body
    arms = [
        {name: one[name] for name in one if name not in _READ_ONLY_OF_ARMS} if isinstance(one, dict) else one
        for one in body["arms"]
    ]
    return {**body, "arms": arms}


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
    document, now = sent_document(ShadowDocument, ShadowDetail, slug, body), datetime.now(UTC)
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


@router.post("/shadows/{slug}/pairs", openapi_extra=list_schema(ShadowPair, most=MOST_PAIRS), responses=refusals(409))
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
    received = shadows.receive_pairs(store, vault, slug, batch.pairs, now=datetime.now(UTC), key=idempotency_key)
    if received["to_ask"]:
        wake(request)
    return received


@router.delete("/shadows/{slug}", status_code=204)
def delete_shadow(store: StoreDep, slug: str) -> None:
    """Delete a shadow: its figures, and at once what is kept of queries. Its tasks stay until they are archived."""
    shadows.delete_shadow(store, slug)


@router.get("/interleavings")
def list_interleavings(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[InterleavingView]:
    """List the interleavings, each in its current epoch."""
    found = experiments.list_interleavings(store, after=after, limit=limit + 1)
    return Page(items=found[:limit], next=found[limit - 1]["slug"] if len(found) > limit else None)


@router.get("/interleavings/{slug}")
def get_interleaving(store: StoreDep, slug: str) -> InterleavingView:
    """Show which ranking units prefer, the decision and why. The interval holds at every look."""
    return experiments.load_interleaving(store, slug)


@router.put(
    "/interleavings/{slug}",
    responses=answers_with(InterleavingView, 201),
    openapi_extra=body_schema(InterleavingDocument),
)
def put_interleaving(
    store: StoreDep, request: Request, response: Response, slug: str, body: Content
) -> InterleavingView:
    """Create an interleaving, or begin an epoch of it with what has changed: all counts and clicks are deleted."""
    document = sent_document(InterleavingDocument, InterleavingView, slug, body)
    created = experiments.put_interleaving(store, document, by=request.state.identity.name, now=datetime.now(UTC))
    response.status_code = 201 if created else 200
    return experiments.load_interleaving(store, slug)


@router.delete("/interleavings/{slug}", status_code=204)
def delete_interleaving(store: StoreDep, slug: str) -> None:
    """Delete an interleaving and its clicks."""
    experiments.delete_interleaving(store, slug)


@router.post("/interleavings/{slug}/lists", openapi_extra=body_schema(ListsRequest))
def post_lists(store: StoreDep, slug: str, body: Content) -> MergedList:
    """Merge two rankings for a unit by team draft; nothing is stored.

    The function is published in docs/assignment.md, so that clients need no call.
    """
    return experiments.merge_lists(store, slug, parse_document(ListsRequest, body))


@router.post("/interleavings/{slug}/clicks", openapi_extra=list_schema(Click, most=MOST_ITEMS))
def post_clicks(store: StoreDep, slug: str, body: Content) -> ReceivedClicks:
    """Take in clicks, at most 10,000 a request: `[{event_id, unit, team}]`, `team` as the merged list has it.

    A click without a `team`, or with null, says nothing. Ids are stored hashed. Sent again, nothing counts twice.
    """
    batch = parse_document(ClickBatch, {"clicks": body})
    return experiments.receive_clicks(store, slug, batch.clicks, now=datetime.now(UTC))


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
    """Hold a candidate to three gates: `{current, candidate, experiment, guards?}`, two checks and an experiment.

    `guards` are what must not get worse for exposure to pass: `[{measure: faithfulness, allowed_loss: 0.05}]`, or
    `{experiment, allowed_loss}`. A change forgets the waivers; where exposure has shown a loss, only a key of scope
    admin may set other checks, another experiment or other guard rails.
    """
    document, now = sent_document(PromotionDocument, PromotionView, slug, body), datetime.now(UTC)
    caller = request.state.identity
    harm = caller.scope.includes(Scope.ADMIN)
    created = promotions.put_promotion(store, document, by=caller.name, may_waive_harm=harm, now=now)
    response.status_code = 201 if created else 200
    return promotions.load_promotion(store, slug, now=now)


@router.delete("/promotions/{slug}", status_code=204)
def delete_promotion(store: StoreDep, request: Request, slug: str) -> None:
    """Delete a promotion with its waivers; where exposure has shown a loss, with a key of scope admin alone."""
    harm = request.state.identity.scope.includes(Scope.ADMIN)
    promotions.delete_promotion(store, slug, may_waive_harm=harm, now=datetime.now(UTC))


@router.put("/promotions/{slug}/waivers/{gate}", openapi_extra=body_schema(WaiverRequest), responses=refusals(409))
def put_waiver(store: StoreDep, request: Request, slug: str, gate: GateName, body: Content) -> PromotionView:
    """Waive a gate; what it had found, who waives it and why stand beside it from then on.

    A waiver covers nothing worse that the gate finds later. Harm that exposure has shown is waived by a key of scope
    admin alone.
    """
    wish, now, caller = parse_document(WaiverRequest, body), datetime.now(UTC), request.state.identity
    harm = caller.scope.includes(Scope.ADMIN)
    promotions.waive_gate(store, slug, gate, reason=wish.reason, by=caller.name, may_waive_harm=harm, now=now)
    return promotions.load_promotion(store, slug, now=now)


@router.delete("/promotions/{slug}/waivers/{gate}", status_code=204)
def delete_waiver(store: StoreDep, slug: str, gate: GateName) -> None:
    """Withdraw the waiver of a gate."""
    promotions.withdraw_waiver(store, slug, gate)
