"""Telling once more: what receivers that forget were told, claimed under a lease like what is new, see outbox."""

from functools import cache

import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.delivery.outbox import DeliveryRow, find_delivery, in_flight, is_due, is_unleased, same_fault, take_hook
from app.store.engine import NOW, Moment
from app.store.tables import attempts, deliveries


def claim_refresh(connection: Connection, *, owner: str, now: int, lease_until: int) -> DeliveryRow | None:
    """Take the delivered delivery whose receiver has waited longest to be told once more.

    It counts as in flight like any other of its hook: told again while something later is being told, a receiver
    could hear the two in the wrong order.
    """
    due = _claimable(now)
    statement = (
        sa.select(deliveries.c.id, deliveries.c.hook_id)
        .where(due)
        .order_by(deliveries.c.refresh_at, deliveries.c.id)
        .limit(5)
        .with_for_update(of=deliveries, skip_locked=True)
    )
    for row in connection.execute(statement).all():
        if not take_hook(connection, row.hook_id):
            continue
        claimed = connection.execute(
            sa.update(deliveries)
            .where(deliveries.c.id == row.id, due)
            .values(claimed_by=owner, lease_until=lease_until)
        ).rowcount
        if claimed == 1:
            return find_delivery(connection, row.id)
    return None


def has_claimable_refresh(connection: Connection, now: int) -> bool:
    """Whether `claim_refresh` has something to take; reads alone."""
    return bool(connection.execute(_any_claimable(), {"now": now}).scalar_one())


@cache
def _any_claimable() -> sa.Select[tuple[bool]]:
    return sa.select(sa.select(deliveries.c.id).where(_claimable(NOW)).exists())  # see queue: asked every second


def _claimable(now: Moment) -> sa.ColumnElement[bool]:
    return sa.and_(is_due(deliveries.c.refresh_at, now), is_unleased(now), ~in_flight(now))


def settle_refresh(connection: Connection, delivery_id: int, *, owner: str, refresh_at: int | None) -> bool:
    """End the telling once more of a delivery; False where the lease was lost meanwhile."""
    mine = sa.and_(
        deliveries.c.id == delivery_id, deliveries.c.claimed_by == owner, deliveries.c.refresh_at.is_not(None)
    )
    values = {"refresh_at": refresh_at, "claimed_by": None, "lease_until": None}
    return connection.execute(sa.update(deliveries).where(mine).values(**values)).rowcount == 1


def extend_refresh(connection: Connection, delivery_id: int, *, owner: str, lease_until: int) -> bool:
    """Say how long telling once more may take; False where the lease was lost meanwhile."""
    mine = sa.and_(
        deliveries.c.id == delivery_id, deliveries.c.claimed_by == owner, deliveries.c.refresh_at.is_not(None)
    )
    return connection.execute(sa.update(deliveries).where(mine).values(lease_until=lease_until)).rowcount == 1


def begin_refreshing(connection: Connection, delivery: DeliveryRow, refresh_at: int | None) -> None:
    """Let a delivery that was just taken be told again from then on, if at all.

    It takes the place of all that was told before of the same fault: the end of an earlier incident, told again, would
    end the new one there.
    """
    same = deliveries.c.incident_id.in_(same_fault(delivery.incident_id))
    refreshable = sa.and_(deliveries.c.refresh_at.is_not(None), deliveries.c.hook_id == delivery.hook_id, same)
    connection.execute(sa.update(deliveries).where(refreshable, deliveries.c.id < delivery.id).values(refresh_at=None))
    if refresh_at is not None:
        connection.execute(sa.update(deliveries).where(deliveries.c.id == delivery.id).values(refresh_at=refresh_at))


def delivered_at(connection: Connection, delivery_id: int) -> int | None:
    """Say when a delivery was first taken."""
    accepted = sa.and_(attempts.c.delivery_id == delivery_id, attempts.c.error.is_(None))
    at: int | None = connection.execute(sa.select(sa.func.min(attempts.c.at)).where(accepted)).scalar_one()
    return at
