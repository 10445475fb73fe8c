"""REST routes of corpora, from which tasks draw random negatives."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path

from app.api.bodies import Content
from app.api.catalog.definitions import body_schema
from app.api.deps import StoreDep, refuse_unknown_parameters
from app.api.request_limits import expensive
from app.api.schemas import Page, TextFiles
from app.domain.annotation.views import CorpusView
from app.formats.fields import SLUG
from app.formats.validation_messages import parse_document
from app.services.annotation import corpora

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


@router.post("/corpora/{corpus}", openapi_extra=body_schema(TextFiles))
@expensive
def post_texts(store: StoreDep, corpus: Name, body: Content) -> CorpusView:
    """Add the texts of files of JSON lines, `{"_id": ..., "text": ...}`; send a large corpus in parts.

    The same text twice is one, so that a part can be sent again.
    """
    return corpora.add_texts(store, corpus, parse_document(TextFiles, body).sources, now=datetime.now(UTC))


@router.delete("/corpora/{corpus}", status_code=204)
def delete_corpus(store: StoreDep, corpus: Name) -> None:
    """Delete a corpus; items that tasks drew from it stay."""
    corpora.delete_corpus(store, corpus)
