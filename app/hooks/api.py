"""Routes of deliveries: what was sent and became of it, test messages, and replay of what is dead."""

from datetime import UTC, datetime
from typing import Literal

from fastapi import Request

from app.alerts.service import shown_alerts
from app.base.api.bodies import Before, Limit, Page, Slug
from app.base.api.requests import StoreDep, api_router, needs, wake
from app.base.db.keys import Scope
from app.base.views import id_number
from app.hooks.domain import DeliveryView, HookReplay
from app.hooks.service import deliveries, hooks

router = api_router()


@router.post("/hooks/{slug}/test", tags=["history"], status_code=202)
@needs(Scope.ADMIN)
def test_hook(store: StoreDep, request: Request, slug: str) -> DeliveryView:
    """Send a test message the way alerts are sent; the delivery shows the result."""
    delivery_id = deliveries.send_test(store, slug, now=datetime.now(UTC))
    wake(request)
    return shown_alerts.delivery(store, delivery_id)


@router.get("/deliveries", tags=["history"])
def list_deliveries(
    store: StoreDep,
    hook: Slug = None,
    state: Literal["pending", "delivered", "dead", "cancelled"] | None = None,
    before: Before = None,
    limit: Limit = 50,
) -> Page[DeliveryView]:
    """List deliveries with their attempts, newest first."""
    found = shown_alerts.list_deliveries(store, hook=hook, state=state, before=before, limit=limit + 1)
    return Page(items=found[:limit], next=found[limit - 1]["id"] if len(found) > limit else None)


@router.get("/deliveries/{delivery_id}", tags=["history"])
def get_delivery(store: StoreDep, delivery_id: str) -> DeliveryView:
    """Show a delivery with its attempts."""
    return shown_alerts.delivery(store, id_number(delivery_id, "delivery"))


@router.post("/deliveries/{delivery_id}/replay", tags=["history"], status_code=202)
def replay_delivery(store: StoreDep, request: Request, delivery_id: str) -> DeliveryView:
    """Put a dead delivery back into the outbox."""
    number = id_number(delivery_id, "delivery")
    hooks.replay(store, number, now=datetime.now(UTC))
    wake(request)
    return shown_alerts.delivery(store, number)


@router.post("/hooks/{slug}/replay", tags=["alerts"], status_code=202)
def replay_hook(store: StoreDep, request: Request, slug: str) -> HookReplay:
    """Put all dead deliveries of a hook back into the outbox, except those overtaken by a later notification."""
    done = hooks.replay_all(store, slug, now=datetime.now(UTC))
    wake(request)
    return done
