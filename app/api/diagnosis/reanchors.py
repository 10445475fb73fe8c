"""Judgments whose chunks were renamed, over REST: what is proposed in their place, and saying yes or no to it."""

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Depends, Request

from app.api.bodies import Content
from app.api.catalog.definitions import Limit, describes
from app.api.deps import StoreDep, known_parameters
from app.api.schemas import Before, Proposals, ReanchorRequest, page
from app.domain.errors import InvalidInputError, Problem
from app.formats.validation_messages import parse_document
from app.services.diagnosis import reanchoring
from app.services.diagnosis.reanchoring import State, Wanted

router = APIRouter(prefix="/v1", tags=["diagnosis"], dependencies=[Depends(known_parameters)])


@router.get("/checks/{slug}/reanchors")
def list_reanchors(
    store: StoreDep, slug: str, state: State | None = None, before: Before = None, limit: Limit = 50
) -> dict[str, Any]:
    """List what is proposed in the place of judgments whose chunks were renamed, newest first."""
    found = reanchoring.list_all(store, slug, state=state, before=before, limit=limit + 1)
    return page(found[:limit], found[limit - 1]["id"] if len(found) > limit else None)


@router.post("/checks/{slug}/reanchors", openapi_extra=describes(ReanchorRequest))
def post_reanchors(store: StoreDep, request: Request, slug: str, body: Content) -> dict[str, Any]:
    """Accept or reject proposals, `{"accept": ["1", "2"]}` or `{"accept": "all"}`, all of them at once or none.

    Accepting changes the canary. One that a canary file owns stays as it is and waits: `patches` are to be committed,
    a diff where the service can read the file, and its canaries as they would be.
    """
    wanted = parse_document(ReanchorRequest, body)
    return reanchoring.decide(
        store,
        slug,
        accept=_ids("accept", wanted.accept),
        reject=_ids("reject", wanted.reject),
        by=request.state.identity.name,
        now=datetime.now(UTC),
    )


def _ids(name: str, given: Proposals) -> Wanted:
    if given == "all":
        return None
    strange = [one for one in given if not (one.isascii() and one.isdecimal())]
    if strange:
        raise InvalidInputError([Problem(path=name, message=f"there is no proposal '{one}'") for one in strange])
    return [int(one) for one in given]
