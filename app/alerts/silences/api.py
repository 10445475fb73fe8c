"""Routes of silences and maintenance windows."""

from datetime import UTC, datetime

from fastapi import Request, Response

from app.alerts.silences import service as silencing
from app.alerts.silences.documents import SilenceDocument
from app.base.api.bodies import After, Content, Limit, Page, answers_with, body_schema
from app.base.api.requests import StoreDep, VaultDep, api_router, wake
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.catalog.service import references
from app.definitions.api import DefinitionJson, SilenceView, definition_shape, with_name
from app.definitions.service import definitions

router = api_router("alerts")

_STATE = frozenset({"active", "until", "next_change", "holds_back"})
"""What answers add to a silence, and requests may therefore hold."""


@router.get("/silences")
def list_silences(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[SilenceView]:
    """List the silences, each with its state and the open alerts it silences."""
    rows = references.load_definitions(store, silencing.KIND, after=after, limit=limit + 1)
    states = silencing.states(store, rows[:limit], datetime.now(UTC))
    items = [{**definition_shape(row), **states[row.id]} for row in rows[:limit]]
    return Page(items=items, next=rows[limit - 1].slug if len(rows) > limit else None)


@router.get("/silences/{slug}")
def get_silence(store: StoreDep, slug: str) -> SilenceView:
    """Show a silence: whether it is on and until when, its next change, and the open alerts it silences."""
    return _shown(store, slug)


@router.put("/silences/{slug}", responses=answers_with(SilenceView, 201), openapi_extra=body_schema(SilenceDocument))
def put_silence(
    store: StoreDep, vault: VaultDep, request: Request, response: Response, slug: str, body: Content
) -> SilenceView:
    """Create or change a silence or maintenance window. It suppresses delivery, never evaluation."""
    given = {name: value for name, value in with_name(body, "slug", slug).items() if name not in _STATE}
    document = parse_document(SilenceDocument, given)
    silencing.refuse_unknown_references(store, document)
    _, created = definitions.put(store, vault, document, now=datetime.now(UTC))
    response.status_code = 201 if created else 200
    wake(request)
    return _shown(store, slug)


@router.delete("/silences/{slug}", status_code=204)
def delete_silence(store: StoreDep, request: Request, slug: str) -> None:
    """End a silence: alerts that still fire are notified within seconds."""
    definitions.archive(store, silencing.KIND, slug, now=datetime.now(UTC))
    wake(request)


def _shown(store: Store, slug: str) -> DefinitionJson:
    row = references.load_definition(store, silencing.KIND, slug)
    return {**definition_shape(row), **silencing.states(store, [row], datetime.now(UTC))[row.id]}
