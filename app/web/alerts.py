"""The page of alerts, newest first. It only reads."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from app.api.deps import StoreDep
from app.domain.errors import InvalidInputError, Problem
from app.services import alert_reading
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
