"""Routes of proposals for judgments whose chunks were renamed: list, accept, reject."""

from datetime import UTC, datetime

from fastapi import APIRouter, Depends, Request

from app.base.api.bodies import Content
from app.base.api.deps import StoreDep, refuse_unknown_parameters
from app.base.api.schemas import Before, Page, Proposals, ReanchorRequest
from app.base.documents.validation_messages import parse_document
from app.base.errors import InvalidInputError, Problem
from app.catalog.api.definitions import Limit, body_schema
from app.diagnosis.domain.views import ReanchorDecision, ReanchorState, ReanchorView
from app.diagnosis.service import reanchoring
from app.diagnosis.service.reanchoring import ProposalIds

router = APIRouter(prefix="/v1", tags=["diagnosis"], dependencies=[Depends(refuse_unknown_parameters)])


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
        accept=_ids("accept", decision.accept),
        reject=_ids("reject", decision.reject),
        by=request.state.identity.name,
        now=datetime.now(UTC),
    )


def _ids(name: str, given: Proposals) -> ProposalIds:
    if given == "all":
        return None
    strange = [one for one in given if not (one.isascii() and one.isdecimal())]
    if strange:
        raise InvalidInputError([Problem(path=name, message=f"there is no proposal '{one}'") for one in strange])
    return [int(one) for one in given]
