"""Routes of the embedder of a retriever: the last finding, and a new reference."""

from fastapi import APIRouter, Depends

from app.base.api.deps import StoreDep, needs, refuse_unknown_parameters
from app.base.api.keys import Scope
from app.retrievers.domain.views import EmbedderView
from app.retrievers.service import embedders

router = APIRouter(prefix="/v1", tags=["history"], dependencies=[Depends(refuse_unknown_parameters)])


@router.get("/retrievers/{slug}/embedding")
def get_embedding(store: StoreDep, slug: str) -> EmbedderView:
    """Show what runs found of a retriever's embedder: its reference, the last finding and since when it holds."""
    return embedders.embedder_view(store, slug)


@router.delete("/retrievers/{slug}/embedding", status_code=204)
@needs(Scope.WRITE)
def delete_embedding(store: StoreDep, slug: str) -> None:
    """Accept the embedder as it is now: the next run learns its reference anew."""
    embedders.reset_reference(store, slug)
