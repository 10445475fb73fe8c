"""Resending of delivered notifications to receivers that expire alerts, one at a time as in `claims`."""

import sqlalchemy as sa
from sqlalchemy import Connection

from app.hooks.store.claims import is_due, of_hook
from app.hooks.store.outbox import DeliveryRow, find_delivery
from app.hooks.store.replays import incidents_with_key_of
from app.hooks.tables import attempts, deliveries


def begin_resend(connection: Connection, hook_id: int, *, owner: str, now: int) -> DeliveryRow | None:
    """Begin to send the delivered delivery of a hook again that is due longest; None = there is none."""
    statement = (
        sa.select(deliveries.c.id)
        .where(of_hook(deliveries) == hook_id, is_due(deliveries.c.refresh_at, now))
        .order_by(deliveries.c.refresh_at, deliveries.c.id)
        .limit(1)
        .with_for_update()
    )
    delivery_id = connection.execute(statement).scalar_one_or_none()
    if delivery_id is None:
        return None
    connection.execute(sa.update(deliveries).where(deliveries.c.id == delivery_id).values(claimed_by=owner))
    return find_delivery(connection, delivery_id)


def is_resending(connection: Connection, delivery_id: int, *, owner: str) -> bool:
    """Whether nobody else is at the resend; nobody will be before the transaction is over."""
    statement = sa.select(deliveries.c.id).where(_is_mine(delivery_id, owner)).with_for_update()
    return connection.execute(statement).one_or_none() is not None


def finish_resend(connection: Connection, delivery_id: int, *, owner: str, refresh_at: int | None) -> bool:
    """End the resend of a delivery; False where somebody else is at it."""
    values = {"refresh_at": refresh_at, "claimed_by": None}
    return connection.execute(sa.update(deliveries).where(_is_mine(delivery_id, owner)).values(**values)).rowcount == 1


def _is_mine(delivery_id: int, owner: str) -> sa.ColumnElement[bool]:
    again = deliveries.c.refresh_at.is_not(None)
    return sa.and_(deliveries.c.id == delivery_id, again, deliveries.c.claimed_by == owner)


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
