"""Resending of delivered notifications to receivers that expire alerts, claimed under a lease as in `claims`."""

from functools import cache

import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.delivery.claims import is_due, is_hook_busy, is_unleased, lock_hook
from app.store.delivery.outbox import DeliveryRow, find_delivery
from app.store.delivery.replays import incidents_with_key_of
from app.store.engine import NOW, Moment
from app.store.tables import attempts, deliveries


def claim_resend(connection: Connection, *, owner: str, now: int, lease_until: int) -> DeliveryRow | None:
    """Claim the delivered delivery whose resend is due longest; None = there is none.

    It counts as in flight for its hook: sent along with a later one, a receiver could get the two in the wrong order.
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
        if not lock_hook(connection, row.hook_id):
            continue
        claimed = connection.execute(
            sa.update(deliveries)
            .where(deliveries.c.id == row.id, due)
            .values(claimed_by=owner, lease_until=lease_until)
        ).rowcount
        if claimed == 1:
            return find_delivery(connection, row.id)
    return None


def has_claimable_resend(connection: Connection, now: int) -> bool:
    """Whether `claim_resend` would find a delivery; only reads."""
    return bool(connection.execute(_any_claimable(), {"now": now}).scalar_one())


@cache
def _any_claimable() -> sa.Select[tuple[bool]]:
    return sa.select(
        sa.select(deliveries.c.id).where(_claimable(NOW)).exists()
    )  # run every second: compiled once, as in runs.queue


def _claimable(now: Moment) -> sa.ColumnElement[bool]:
    return sa.and_(is_due(deliveries.c.refresh_at, now), is_unleased(now), ~is_hook_busy(now))


def finish_resend(connection: Connection, delivery_id: int, *, owner: str, refresh_at: int | None) -> bool:
    """End the resend of a delivery; False where the lease was lost meanwhile."""
    mine = sa.and_(
        deliveries.c.id == delivery_id, deliveries.c.claimed_by == owner, deliveries.c.refresh_at.is_not(None)
    )
    values = {"refresh_at": refresh_at, "claimed_by": None, "lease_until": None}
    return connection.execute(sa.update(deliveries).where(mine).values(**values)).rowcount == 1


def extend_resend(connection: Connection, delivery_id: int, *, owner: str, lease_until: int) -> bool:
    """Extend the lease of a resend; False where it was lost meanwhile."""
    mine = sa.and_(
        deliveries.c.id == delivery_id, deliveries.c.claimed_by == owner, deliveries.c.refresh_at.is_not(None)
    )
    return connection.execute(sa.update(deliveries).where(mine).values(lease_until=lease_until)).rowcount == 1


def schedule_resends(connection: Connection, delivery: DeliveryRow, refresh_at: int | None) -> None:
    """Schedule the first resend of a delivery that was just delivered; None = no resends.

    Earlier deliveries with the same key are not resent any more: the resolve of an earlier incident would end the new
    one at the receiver.
    """
    same = deliveries.c.incident_id.in_(incidents_with_key_of(delivery.incident_id))
    refreshable = sa.and_(deliveries.c.refresh_at.is_not(None), deliveries.c.hook_id == delivery.hook_id, same)
    connection.execute(sa.update(deliveries).where(refreshable, deliveries.c.id < delivery.id).values(refresh_at=None))
    if refresh_at is not None:
        connection.execute(sa.update(deliveries).where(deliveries.c.id == delivery.id).values(refresh_at=refresh_at))


def delivered_at(connection: Connection, delivery_id: int) -> int | None:
    """Return when a delivery was first delivered."""
    accepted = sa.and_(attempts.c.delivery_id == delivery_id, attempts.c.error.is_(None))
    at: int | None = connection.execute(sa.select(sa.func.min(attempts.c.at)).where(accepted)).scalar_one()
    return at
