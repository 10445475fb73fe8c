"""Claims of deliveries: which one a worker may send next, under a lease, and the end of its attempt."""

from functools import cache
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.delivery.outbox import DELIVERY, DeliveryRow, find_delivery
from app.store.engine import NOW, Moment, sql_literal
from app.store.tables import definitions, deliveries, incidents

CLOCK_TOLERANCE: Final = 600 * 1_000_000
"""Microseconds: more than any attempt is put off or any lease lasts."""


def claim_delivery(connection: Connection, *, owner: str, now: int, lease_until: int) -> DeliveryRow | None:
    """Claim the oldest delivery that is due; None = there is none.

    Only one delivery per hook is in flight (a hanging receiver delays no other), and a delivery waits for earlier ones
    of the same hook and key: a resolve never overtakes its trigger, nor the next opening the resolve before it.
    """
    statement = (
        DELIVERY.where(_claimable(now))
        .order_by(deliveries.c.next_attempt_at, deliveries.c.id)
        .limit(5)
        .with_for_update(of=deliveries, skip_locked=True)
    )
    for row in connection.execute(statement).all():
        if not lock_hook(connection, row.hook_id):
            continue
        free = is_unleased(now)
        claimed = connection.execute(
            sa.update(deliveries)
            .where(deliveries.c.id == row.id, deliveries.c.state == sql_literal("pending"), free, ~is_hook_busy(now))
            .values(
                claimed_by=owner,
                lease_until=lease_until,
                first_attempt_at=sa.func.coalesce(deliveries.c.first_attempt_at, now),
                attempts=deliveries.c.attempts + 1,
            )
        ).rowcount
        if claimed == 1:
            return find_delivery(connection, row.id)
    return None


def has_claimable_delivery(connection: Connection, now: int) -> bool:
    """Whether `claim_delivery` would find a delivery; only reads."""
    return bool(connection.execute(_any_claimable(), {"now": now}).scalar_one())


@cache
def _any_claimable() -> sa.Select[tuple[bool]]:
    return sa.select(
        sa.select(deliveries.c.id).where(_claimable(NOW)).exists()
    )  # run every second: compiled once, as in runs.queue


def _claimable(now: Moment) -> sa.ColumnElement[bool]:
    other, theirs, ours = deliveries.alias(), incidents.alias(), incidents.alias()
    # The sums keep SQLite from walking all deliveries, by hook or id.
    waiting = sa.and_(_of_hook(other) == deliveries.c.hook_id, other.c.state == sql_literal("pending"))
    before = other.c.id + 0 < deliveries.c.id
    bound = sa.and_(theirs.c.id == other.c.incident_id, ours.c.id == deliveries.c.incident_id)
    earlier = sa.exists().where(waiting, before, bound, theirs.c.dedupe_key == ours.c.dedupe_key)
    return sa.and_(
        deliveries.c.state == sql_literal("pending"),
        is_due(deliveries.c.next_attempt_at, now),
        is_unleased(now),
        ~is_hook_busy(now),
        ~earlier,
    )


def prepare_delivery(connection: Connection, delivery_id: int, *, owner: str, body: bytes, lease_until: int) -> bool:
    """Store the body, the same bytes on every attempt, and the lease of this one; False where the claim was lost."""
    mine = sa.and_(
        deliveries.c.id == delivery_id, deliveries.c.state == sql_literal("pending"), deliveries.c.claimed_by == owner
    )
    change = sa.update(deliveries).where(mine).values(body=body, lease_until=lease_until)
    return connection.execute(change).rowcount == 1


def finish_attempt(
    connection: Connection, delivery_id: int, *, owner: str, state: str, next_attempt_at: int, reason: str
) -> bool:
    """End an attempt: delivered, dead, or pending until the next; False where the lease was lost meanwhile."""
    mine = sa.and_(
        deliveries.c.id == delivery_id, deliveries.c.state == sql_literal("pending"), deliveries.c.claimed_by == owner
    )
    values = {
        "state": state,
        "next_attempt_at": next_attempt_at,
        "reason": reason,
        "claimed_by": None,
        "lease_until": None,
    }
    return connection.execute(sa.update(deliveries).where(mine).values(**values)).rowcount == 1


def is_due(at: sa.ColumnElement[int], now: Moment) -> sa.ColumnElement[bool]:
    """Whether a moment has come, or is so far ahead that only a wrong clock can have written it."""
    return sa.or_(at <= now, at > now + CLOCK_TOLERANCE)


def is_unleased(now: Moment) -> sa.ColumnElement[bool]:
    """Whether a delivery has no valid lease; see `is_due` for leases far ahead."""
    return sa.or_(deliveries.c.lease_until.is_(None), ~deliveries.c.lease_until.between(now, now + CLOCK_TOLERANCE))


def is_hook_busy(now: Moment) -> sa.ColumnElement[bool]:
    """Whether a delivery to the same hook, new or sent again, is in flight."""
    other = deliveries.alias()
    leased = other.c.lease_until.between(now, now + CLOCK_TOLERANCE)
    busy = sa.and_(_of_hook(other) == deliveries.c.hook_id, leased)
    # Two queries, each with its own partial index: finished deliveries are never read.
    new = sa.exists().where(busy, other.c.state == sql_literal("pending"))
    again = sa.exists().where(busy, other.c.refresh_at.is_not(None))
    return sa.or_(new, again)


def lock_hook(connection: Connection, hook_id: int) -> bool:
    """Lock the row of a hook; False while another worker holds it.

    Two workers that claim at once see no lease of each other: the lock decides, and leases are read again after it.
    """
    hook = sa.select(definitions.c.id).where(definitions.c.id == hook_id)
    return connection.execute(hook.with_for_update(skip_locked=True, key_share=True)).one_or_none() is not None


def _of_hook(one: sa.FromClause) -> sa.ColumnElement[int]:
    return one.c.hook_id + sa.literal_column("0")
