"""Page of deliveries: every message to a hook with its attempts, and the replay of dead ones."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated
from urllib.parse import urlencode

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.alerts.service import alert_views
from app.base.api.csrf import takes_form
from app.base.api.deps import StoreDep
from app.base.db.engine import Store
from app.base.errors import ConflictError
from app.base.values import DeliveryState
from app.base.web import alert_words
from app.base.web.forms import read_form
from app.base.web.parameters import refuse_other
from app.base.web.rendering import render
from app.base.web.signing_in import safe_path
from app.catalog.api.definitions import wake
from app.catalog.service import definitions
from app.hooks.service import dead_letters, hook_views
from app.records import documents as shapes

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_DELIVERIES = 25


@router.get("/deliveries")
def show_deliveries(
    request: Request,
    store: StoreDep,
    state: str = "",
    hook: Annotated[str, Query(max_length=64)] = "",
    alert: Annotated[str, Query(max_length=18)] = "",
    after: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> HTMLResponse:
    """Show deliveries, newest first."""
    refuse_other(state, ("", *DeliveryState), "state")
    return _deliveries(request, store, state=state, hook=hook, alert=alert, after=after)


@router.post("/deliveries/{delivery_id}/replay")
@takes_form(fields=4)
async def replay_delivery(request: Request, store: StoreDep, delivery_id: str) -> Response:
    """Put a dead delivery back into the outbox, and redirect to the page of the request."""
    back = safe_path((await read_form(request)).get("next"))
    return await anyio.to_thread.run_sync(partial(_replayed, request, store, delivery_id, back))


def _replayed(request: Request, store: Store, delivery_id: str, back: str) -> Response:
    number = shapes.id_number(delivery_id, "delivery")
    try:
        dead_letters.replay(store, number, now=datetime.now(UTC))
    except ConflictError as error:
        view = alert_views.delivery(store, number)
        alert = view["alert_id"] or ""
        return _deliveries(request, store, hook=view["hook"], alert=alert, refused=str(error), status=409)
    wake(request)
    return RedirectResponse(f"{back if back != '/' else '/deliveries'}#delivery-{number}", status_code=303)


def _deliveries(
    request: Request,
    store: Store,
    *,
    state: str = "",
    hook: str = "",
    alert: str = "",
    after: int | None = None,
    refused: str = "",
    status: int = 200,
) -> HTMLResponse:
    views = alert_views.list_deliveries(
        store,
        hook=hook or None,
        state=state or None,
        alert_id=shapes.id_number(alert, "alert") if alert else None,
        before=after,
        limit=_DELIVERIES + 1,
    )
    filters = {name: value for name, value in {"hook": hook, "alert": alert}.items() if value}
    return render(
        request,
        "hooks/deliveries.html",
        status=status,
        deliveries=views[:_DELIVERIES],
        following=views[_DELIVERIES - 1]["id"] if len(views) > _DELIVERIES else None,
        state=state,
        hook=hook,
        alert=alert,
        filters=urlencode(filters),
        here="/deliveries?" + urlencode({**filters, **({"state": state} if state else {})}),
        states=list(DeliveryState),
        hooks=[one.slug for one in definitions.list_all(store, hook_views.KIND)],
        meanings=alert_words.DELIVERY_STATES,
        first=after is None,
        refused=refused,
    )
