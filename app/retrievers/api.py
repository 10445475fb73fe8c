"""REST routes of trials of a retriever, of which nothing is stored, and of the finding about its embedder.

A trial is one query, and everything between the request and the hits.
"""

from uuid import uuid4

import anyio.to_thread
from fastapi import Request

from app.base.api.bodies import Content, body_schema
from app.base.api.requests import (
    PARSE_LIMITER,
    PROBE_LIMITER,
    StoreDep,
    VaultDep,
    api_router,
    expensive,
    needs,
)
from app.base.db.keys import Scope
from app.base.documents.fields import parse_document
from app.base.errors import ForbiddenError
from app.retrievers.documents.requests import TryRequest
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.probes import EmbedderView, TrialView
from app.retrievers.service import embedders, trials

router = api_router("catalog")


@router.post("/retrievers/{slug}/try", openapi_extra=body_schema(TryRequest))
@expensive
async def try_retriever(store: StoreDep, vault: VaultDep, request: Request, slug: str, body: Content) -> TrialView:
    """Ask a retriever one query: request, raw answer, mapped hits and, where there are none, mappings that find some.

    Changing more than how the answer is read takes scope admin, as defining retrievers does.
    """
    trial = parse_document(TryRequest, body)
    if trials.changes_request(trial.retriever) and not request.state.identity.scope.includes(Scope.ADMIN):
        raise ForbiddenError("changing whom a retriever asks, or what, needs a key with scope admin")

    def attempt() -> TrialView:
        document = trials.stored_retriever(store, vault, slug, trial.retriever)
        return run_trial(request, document, trial)

    return await anyio.to_thread.run_sync(attempt, limiter=PROBE_LIMITER if trial.answer is None else PARSE_LIMITER)


def run_trial(request: Request, document: RetrieverDocument, trial: TryRequest) -> TrialView:
    """Send the query, or read the pasted response. Takes as long as the retriever's time-outs allow."""
    if trial.answer is not None:
        read: trials.ReadAnswer = request.app.state.read
        return trials.try_answer(read, document, trial.answer, trial.query, k=trial.k, suggests=trial.suggest)
    return trials.try_retriever(
        request.app.state.probe,
        document,
        trial.question,
        k=trial.k,
        run_id=f"try-{uuid4().hex}",
        suggests=trial.suggest,
    )


findings_router = api_router("history")


@findings_router.get("/retrievers/{slug}/embedding")
def get_embedding(store: StoreDep, slug: str) -> EmbedderView:
    """Show what runs found of a retriever's embedder: its reference, the last finding and since when it holds."""
    return embedders.embedder_view(store, slug)


@findings_router.delete("/retrievers/{slug}/embedding", status_code=204)
@needs(Scope.WRITE)
def delete_embedding(store: StoreDep, slug: str) -> None:
    """Accept the embedder as it is now: the next run learns its reference anew."""
    embedders.reset_reference(store, slug)
