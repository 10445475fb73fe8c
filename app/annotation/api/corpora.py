"""REST routes of corpora, from which tasks draw random negatives."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path

from app.annotation.api.streamed_texts import Lines, texts_schema
from app.annotation.domain.views import CorpusView
from app.annotation.service import corpora
from app.base.api.deps import StoreDep, refuse_unknown_parameters
from app.base.api.request_limits import expensive
from app.base.api.schemas import Page
from app.base.documents.fields import SLUG

router = APIRouter(prefix="/v1", tags=["annotation"], dependencies=[Depends(refuse_unknown_parameters)])

Name = Annotated[str, Path(pattern=SLUG)]


@router.get("/corpora")
def list_corpora(store: StoreDep) -> Page[CorpusView]:
    """List the corpora."""
    return Page(items=corpora.list_corpora(store), next=None)


@router.get("/corpora/{corpus}")
def get_corpus(store: StoreDep, corpus: Name) -> CorpusView:
    """Show a corpus."""
    return corpora.load_corpus(store, corpus)


@router.post("/corpora/{corpus}", openapi_extra=texts_schema(jsonl='{"_id": "d1", "text": "Fees are due monthly."}\n'))
@expensive
def post_texts(store: StoreDep, corpus: Name, sources: Lines) -> CorpusView:
    """Add the texts of JSON lines, `{"_id": ..., "text": ...}`, to a corpus.

    Send a file as it is, up to 100 MB, as `application/x-ndjson`, or texts within JSON, up to 10 MB; a larger corpus in
    parts. The same text twice is one, so that a part can be sent again.
    """
    return corpora.add_texts(store, corpus, sources, now=datetime.now(UTC))


@router.delete("/corpora/{corpus}", status_code=204)
def delete_corpus(store: StoreDep, corpus: Name) -> None:
    """Delete a corpus; items that tasks drew from it stay."""
    corpora.delete_corpus(store, corpus)
