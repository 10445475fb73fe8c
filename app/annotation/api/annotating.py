"""REST routes of annotators: the next item, a grade, taking it back. A key of scope `annotate` may do nothing else."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import StringConstraints

from app.annotation.documents.task_documents import AnnotationRequest, UndoRequest
from app.annotation.domain.views import ItemView, NextItem
from app.annotation.service import annotating
from app.base.api.bodies import Content, OptionalContent
from app.base.api.deps import StoreDep, needs, refuse_unknown_parameters
from app.base.api.keys import Identity, Scope
from app.base.documents.validation_messages import parse_document
from app.base.errors import InvalidInputError, Problem
from app.catalog.api.definitions import body_schema

router = APIRouter(prefix="/v1", tags=["annotation"], dependencies=[Depends(refuse_unknown_parameters)])

Annotator = Annotated[
    str | None,
    StringConstraints(min_length=1, max_length=64),
    Query(description="your name, where the service has no keys; else it is the name of the key"),
]


@router.get("/tasks/{slug}/next")
@needs(Scope.ANNOTATE)
def get_next_item(store: StoreDep, request: Request, slug: str, annotator: Annotator = None) -> NextItem:
    """Show the next item to grade and the one after it, without rank, score, retriever or stratum."""
    return annotating.next_item(store, slug, annotator=annotator_of(request.state.identity, annotator))


@router.get("/tasks/{slug}/items/{item}")
@needs(Scope.ANNOTATE)
def get_item(store: StoreDep, request: Request, slug: str, item: str, annotator: Annotator = None) -> ItemView:
    """Show an item, and the grade one has given it."""
    return annotating.load_item(store, slug, item, annotator=annotator_of(request.state.identity, annotator))


@router.put("/tasks/{slug}/items/{item}/annotation", openapi_extra=body_schema(AnnotationRequest))
@needs(Scope.ANNOTATE)
def put_annotation(store: StoreDep, request: Request, slug: str, item: str, body: Content) -> NextItem:
    """Grade an item, or skip it; answers with the next one once this is stored.

    What was said before stays as history.
    """
    said = parse_document(AnnotationRequest, body)
    return annotating.annotate(
        store,
        slug,
        item,
        annotator=annotator_of(request.state.identity, said.annotator),
        grade=said.grade,
        seconds=said.seconds,
        now=datetime.now(UTC),
    )


@router.post("/tasks/{slug}/undo", openapi_extra=body_schema(UndoRequest, required=False))
@needs(Scope.ANNOTATE)
def undo_annotation(store: StoreDep, request: Request, slug: str, body: OptionalContent) -> NextItem:
    """Take one's last annotation back; answers with its item."""
    wish = parse_document(UndoRequest, body or {})
    annotator = annotator_of(request.state.identity, wish.annotator)
    return annotating.undo(store, slug, annotator=annotator, now=datetime.now(UTC))


def annotator_of(identity: Identity, given: str | None) -> str:
    """Return the name an annotator goes by: that of its key, or the given one where there are no keys.

    Raises InvalidInputError where there is none, or another than the key's.
    """
    if identity.key_prefix is None:
        if given is None or not given.strip():
            raise InvalidInputError([Problem(path="annotator", message="say who annotates: there are no keys here")])
        return given.strip()
    if given not in {None, identity.name}:
        raise InvalidInputError([Problem(path="annotator", message=f"is the name of the key, '{identity.name}'")])
    return identity.name
