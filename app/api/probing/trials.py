"""Trying a retriever: one query, and everything between the request and the hits. Nothing is stored."""

from uuid import uuid4

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Depends, Request

from app.api.bodies import Content
from app.api.catalog.definitions import body_schema
from app.api.deps import StoreDep, VaultDep, refuse_unknown_parameters
from app.api.schemas import TryRequest
from app.domain.errors import ForbiddenError
from app.domain.probing.views import TrialView
from app.formats.catalog.documents import RetrieverDocument
from app.formats.validation_messages import parse_document
from app.services.catalog.api_keys import Scope
from app.services.probing import trials

router = APIRouter(prefix="/v1", tags=["catalog"], dependencies=[Depends(refuse_unknown_parameters)])

# Not the routes' threads: retrievers that hang must not keep others from their pages.
PROBE_LIMITER = CapacityLimiter(4)
# What asks nobody, and may still be much to read, waits for no retriever either.
PARSE_LIMITER = CapacityLimiter(4)


@router.post("/retrievers/{slug}/try", openapi_extra=body_schema(TryRequest))
async def try_retriever(store: StoreDep, vault: VaultDep, request: Request, slug: str, body: Content) -> TrialView:
    """Ask a retriever one query: request, raw answer, mapped hits and, where there are none, mappings that find some.

    Changing more than how the answer is read takes scope admin, as defining retrievers does.
    """
    wish = parse_document(TryRequest, body)
    if trials.changes_request(wish.retriever) and not request.state.identity.scope.includes(Scope.ADMIN):
        raise ForbiddenError("changing whom a retriever asks, or what, needs a key with scope admin")

    def attempt() -> TrialView:
        document = trials.stored_retriever(store, vault, slug, wish.retriever)
        return run_trial(request, document, wish)

    return await anyio.to_thread.run_sync(attempt, limiter=PROBE_LIMITER if wish.answer is None else PARSE_LIMITER)


def run_trial(request: Request, document: RetrieverDocument, wish: TryRequest) -> TrialView:
    """Do what was wished: ask, or read the pasted answer. Takes as long as the retriever's time-outs allow."""
    if wish.answer is not None:
        read: trials.ReadAnswer = request.app.state.read
        return trials.try_answer(read, document, wish.answer, wish.query, k=wish.k, suggests=wish.suggest)
    return trials.try_retriever(
        request.app.state.probe, document, wish.query, k=wish.k, run_id=f"try-{uuid4().hex}", suggests=wish.suggest
    )
