"""Routes for handling alerts: silences, acknowledgement, evaluation of rules, replay of dead deliveries."""

from datetime import UTC, datetime

from fastapi import APIRouter, Depends, Request, Response

from app.alerts.service import explanations, notifications
from app.alerts.service import views as alert_views
from app.alerts.service.explanations import CheckAlerting
from app.alerts.silences import service as silencing
from app.alerts.silences.documents import SilenceDocument
from app.base.api.bodies import Content, OptionalContent, answers_with
from app.base.api.deps import StoreDep, VaultDep, refuse_unknown_parameters
from app.base.api.schemas import AcknowledgeRequest, Page
from app.base.db.engine import Store
from app.base.documents.parsing import parse_document
from app.catalog.service import references
from app.definitions.api import (
    After,
    DefinitionJson,
    Limit,
    SilenceView,
    body_schema,
    definition_shape,
    wake,
    with_name,
)
from app.definitions.service import definitions
from app.hooks.domain import AlertDetail, HookReplay
from app.hooks.service import hooks
from app.records import documents as shapes

router = APIRouter(prefix="/v1", tags=["alerts"], dependencies=[Depends(refuse_unknown_parameters)])

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
    _, created = definitions.put(store, vault, silencing.KIND, document, now=datetime.now(UTC))
    response.status_code = 201 if created else 200
    wake(request)
    return _shown(store, slug)


@router.delete("/silences/{slug}", status_code=204)
def delete_silence(store: StoreDep, request: Request, slug: str) -> None:
    """End a silence: alerts that still fire are notified within seconds."""
    definitions.archive(store, silencing.KIND, slug, now=datetime.now(UTC))
    wake(request)


@router.post("/alerts/{alert_id}/acknowledge", openapi_extra=body_schema(AcknowledgeRequest, required=False))
def acknowledge_alert(store: StoreDep, request: Request, alert_id: str, body: OptionalContent) -> AlertDetail:
    """Acknowledge an open alert: no more reminders, unless it escalates or is updated."""
    request_body = parse_document(AcknowledgeRequest, {} if body is None else body)
    number = shapes.id_number(alert_id, "alert")
    notifications.acknowledge(
        store, number, by=request.state.identity.name, note=request_body.note, now=datetime.now(UTC)
    )
    return alert_views.alert(store, number)


@router.get("/checks/{slug}/alerting")
def get_alerting(store: StoreDep, slug: str) -> CheckAlerting:
    """Explain why each rule of a check alerts or not: its last evaluation, next change, and active silences."""
    return explanations.explain_rules(store, slug, now=datetime.now(UTC))


@router.post("/hooks/{slug}/replay", status_code=202)
def replay_hook(store: StoreDep, request: Request, slug: str) -> HookReplay:
    """Put all dead deliveries of a hook back into the outbox, except those overtaken by a later notification."""
    done = hooks.replay_all(store, slug, now=datetime.now(UTC))
    wake(request)
    return done


def _shown(store: Store, slug: str) -> DefinitionJson:
    row = references.load_definition(store, silencing.KIND, slug)
    return {**definition_shape(row), **silencing.states(store, [row], datetime.now(UTC))[row.id]}
