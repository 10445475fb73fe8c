"""REST routes of experiments: defined, told of exposures and outcomes, read with their decision."""

from datetime import UTC, datetime
from typing import Any, Final

from fastapi import APIRouter, Depends, Request, Response

from app.base.api.answers import answers_with
from app.base.api.bodies import Content
from app.base.api.deps import StoreDep, refuse_unknown_parameters
from app.base.api.schemas import Page
from app.base.documents.validation_messages import parse_document
from app.catalog.api.definitions import After, Limit, body_schema, list_schema, with_name
from app.experiments.documents.experiment_documents import (
    MOST_ITEMS,
    ArmDocument,
    ExperimentDocument,
    ExposureBatch,
    OutcomeBatch,
)
from app.experiments.domain.views import ArmView, ExperimentDetail, ExperimentView, ReceivedExposures, ReceivedOutcomes
from app.experiments.service import experiments, intake, results

router = APIRouter(prefix="/v1", tags=["experiments"], dependencies=[Depends(refuse_unknown_parameters)])

_READ_ONLY: Final = ExperimentDetail.__annotations__.keys() - ExperimentDocument.model_fields.keys()
"""Fields that answers add to a document, so that an answer can be sent back; and those of arms."""
_READ_ONLY_OF_ARMS: Final = ArmView.__annotations__.keys() - ArmDocument.model_fields.keys()


@router.get("/experiments")
def list_experiments(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[ExperimentView]:
    """List the experiments, each in its current epoch."""
    found = results.list_experiments(store, after=after, limit=limit + 1, now=datetime.now(UTC))
    return Page(items=found[:limit], next=found[limit - 1]["slug"] if len(found) > limit else None)


@router.get("/experiments/{slug}")
def get_experiment(store: StoreDep, slug: str) -> ExperimentDetail:
    """Show an experiment: its arms, the interval of their difference over time, the decision and why.

    The interval holds at every look, however often this is read.
    """
    return results.load_experiment(store, slug, now=datetime.now(UTC))


@router.put(
    "/experiments/{slug}",
    responses=answers_with(ExperimentDetail, 201),
    openapi_extra=body_schema(ExperimentDocument),
)
def put_experiment(store: StoreDep, request: Request, response: Response, slug: str, body: Content) -> ExperimentDetail:
    """Create an experiment, or begin an epoch of it with what has changed.

    Clients assign units by the published function of docs/assignment.md. A new epoch deals them anew, and is tested
    alone.
    """
    document, now = parse_document(ExperimentDocument, _given(with_name(body, "slug", slug))), datetime.now(UTC)
    created = experiments.put_experiment(store, document, by=request.state.identity.name, now=now)
    response.status_code = 201 if created else 200
    return results.load_experiment(store, slug, now=now)


@router.delete("/experiments/{slug}", status_code=204)
def delete_experiment(store: StoreDep, slug: str) -> None:
    """Archive an experiment and delete its units at once."""
    experiments.archive_experiment(store, slug, now=datetime.now(UTC))


@router.post("/experiments/{slug}/exposures", openapi_extra=list_schema("Exposure", most=MOST_ITEMS))
def post_exposures(store: StoreDep, slug: str, body: Content) -> ReceivedExposures:
    """Take in which units were exposed, at most 10,000 a request: `[{unit, arm?, at?}]`; a unit counts once.

    Unit ids are stored hashed. Send a request again where its answer was lost: nothing counts twice.
    """
    batch = parse_document(ExposureBatch, {"exposures": body})
    return intake.receive_exposures(store, slug, batch.exposures, now=datetime.now(UTC))


@router.post("/experiments/{slug}/outcomes", openapi_extra=list_schema("UnitOutcome", most=MOST_ITEMS))
def post_outcomes(store: StoreDep, slug: str, body: Content) -> ReceivedOutcomes:
    """Take in outcomes of exposed units, at most 10,000 a request: `[{event_id, unit, value, at?}]`.

    The first value of a unit stays; none within the window is a 0. Sent again, nothing counts twice.
    """
    batch = parse_document(OutcomeBatch, {"outcomes": body})
    return intake.receive_outcomes(store, slug, batch.outcomes, now=datetime.now(UTC))


def _given(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body without what answers add."""
    given = {name: value for name, value in body.items() if name not in _READ_ONLY}
    arms = given.get("arms")
    if isinstance(arms, list):
        given["arms"] = [
            {name: one[name] for name in one if name not in _READ_ONLY_OF_ARMS} if isinstance(one, dict) else one
            for one in arms
        ]
    return given
