"""Routes of alerts: what is open and was, acknowledgement, and why a rule alerts or not."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import Query, Request

from app.alerts.domain.views import AlertView
from app.alerts.service import explanations, notifications, shown_alerts
from app.alerts.service.explanations import CheckAlerting
from app.alerts.service.shown_alerts import AlertDetail
from app.base.api.bodies import LARGEST_ID, AcknowledgeRequest, Before, Limit, OptionalContent, Page, Slug, body_schema
from app.base.api.requests import StoreDep, api_router
from app.base.documents.fields import parse_document
from app.base.views import id_number

router = api_router()


@router.get("/alerts", tags=["history"])
def list_alerts(
    store: StoreDep,
    check: Slug = None,
    state: Literal["pending", "firing", "recovering", "resolved"] | None = None,
    incident_id: Annotated[int | None, Query(ge=1, le=LARGEST_ID)] = None,
    before: Before = None,
    limit: Limit = 50,
) -> Page[AlertView]:
    """List alerts with their transitions, newest first."""
    found = shown_alerts.list_alerts(
        store, check=check, state=state, incident_id=incident_id, before=before, limit=limit + 1
    )
    return Page(items=found[:limit], next=found[limit - 1]["id"] if len(found) > limit else None)


@router.get("/alerts/{alert_id}", tags=["history"])
def get_alert(store: StoreDep, alert_id: str) -> AlertDetail:
    """Show an alert with its transitions and deliveries."""
    return shown_alerts.alert(store, id_number(alert_id, "alert"))


@router.post(
    "/alerts/{alert_id}/acknowledge", tags=["alerts"], openapi_extra=body_schema(AcknowledgeRequest, required=False)
)
def acknowledge_alert(store: StoreDep, request: Request, alert_id: str, body: OptionalContent) -> AlertDetail:
    """Acknowledge an open alert: no more reminders, unless it escalates or is updated."""
    request_body = parse_document(AcknowledgeRequest, {} if body is None else body)
    number = id_number(alert_id, "alert")
    notifications.acknowledge(
        store, number, by=request.state.identity.name, note=request_body.note, now=datetime.now(UTC)
    )
    return shown_alerts.alert(store, number)


@router.get("/checks/{slug}/alerting", tags=["alerts"])
def get_alerting(store: StoreDep, slug: str) -> CheckAlerting:
    """Explain why each rule of a check alerts or not: its last evaluation, next change, and active silences."""
    return explanations.explain_rules(store, slug, now=datetime.now(UTC))
