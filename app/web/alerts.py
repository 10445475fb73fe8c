"""The pages of alerts: all of them, and one with what was seen, what changed, who was told, and what is next."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.api.deps import StoreDep
from app.domain.errors import ConflictError, InvalidInputError, Problem
from app.formats import shapes
from app.services import acknowledging, alert_reading, why
from app.store.engine import Store
from app.web.rendering import render

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

ALERT_STATES = ("firing", "recovering", "pending", "resolved")
_ALERTS = 20


@router.get("/alerts")
def show_alerts(
    request: Request,
    store: StoreDep,
    state: str = "",
    check: Annotated[str, Query(max_length=64)] = "",
    after: Annotated[int | None, Query(ge=1)] = None,
) -> HTMLResponse:
    """Show alerts, newest first: what was seen, what changed, who was told."""
    if state and state not in ALERT_STATES:
        raise InvalidInputError([Problem(path="state", message=f"is one of {', '.join(ALERT_STATES)}")])
    listed = alert_reading.list_alerts(store, check=check or None, state=state or None, before=after, limit=_ALERTS + 1)
    return render(
        request,
        "alerts.html",
        alerts=[alert_reading.alert(store, int(alert["id"])) for alert in listed[:_ALERTS]],
        following=listed[_ALERTS - 1]["id"] if len(listed) > _ALERTS else None,
        state=state,
        states=ALERT_STATES,
        check=check,
    )


@router.get("/alerts/{alert_id}")
def show_alert(request: Request, store: StoreDep, alert_id: str) -> HTMLResponse:
    """Show an alert: what was seen, what changed, who was told, and what is next."""
    return _alert(request, store, alert_id)


@router.post("/alerts/{alert_id}/acknowledge")
def acknowledge(request: Request, store: StoreDep, alert_id: str) -> Response:
    """Note that somebody has seen it."""
    number = shapes.id_number(alert_id, "alert")
    try:
        acknowledging.acknowledge(store, number, by=request.state.identity.name, note=None, now=_now())
    except ConflictError as error:
        return _alert(request, store, alert_id, refused=str(error), status=409)
    return RedirectResponse(f"/alerts/{number}", status_code=303)


def _alert(request: Request, store: Store, alert_id: str, *, refused: str = "", status: int = 200) -> HTMLResponse:
    alert = alert_reading.alert(store, shapes.id_number(alert_id, "alert"))
    rules = []
    if alert["state"] != "resolved":
        rules = why.explain(store, alert["check"], now=_now())["rules"]
    rule = next((one for one in rules if one["alert_id"] == alert["id"]), None)
    return render(request, "alert.html", status=status, alert=alert, rule=rule, refused=refused)


def _now() -> datetime:
    return datetime.now(UTC)
