"""What a hook is to get next, and the attempts at it, one at a time.

Whoever attempts is the one who does the job of the hook. Should it come back from the dead while another does, its
marks on the delivery are not the newest any more, and nothing it writes counts.
"""

from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import NOW, Moment, sql_literal
from app.base.jobs.jobs import at_hand
from app.base.jobs.values import JobKind
from app.hooks.store.outbox import DELIVERY, DeliveryRow, find_delivery
from app.hooks.tables import deliveries, incidents

UNHEARD: Final = (
    "Not sent: the receiver took no message that the alert is open, so there is nothing to resolve there. "
    "Replaying that message sends this one after it."
)
CLOCK_TOLERANCE: Final = 600 * 1_000_000
"""Microseconds: more than any attempt is put off. What is further ahead, a wrong clock has written."""


def begin_attempt(connection: Connection, hook_id: int, *, owner: str, now: int) -> DeliveryRow | None:
    """Begin an attempt at the oldest delivery to a hook that is due; None = there is none.

    A delivery waits for earlier ones with the same key: a resolve never overtakes its trigger, nor the next opening the
    resolve before it. A resolve whose trigger was never taken is not sent: see `_end_unheard`.
    """
    oldest = (
        DELIVERY.where(of_hook(deliveries) == hook_id, _is_next(), is_due(deliveries.c.next_attempt_at, now))
        .order_by(deliveries.c.next_attempt_at, deliveries.c.id)
        .limit(1)
        .with_for_update(of=deliveries)
    )
    row = connection.execute(oldest).one_or_none()
    if row is None:
        return None
    if _end_unheard(connection, row):
        return begin_attempt(connection, hook_id, owner=owner, now=now)
    begun = {
        # Whoever began before and did not end may have been heard.
        "may_be_taken": sa.or_(deliveries.c.may_be_taken, deliveries.c.claimed_by.is_not(None)),
        "claimed_by": owner,
        "first_attempt_at": sa.func.coalesce(deliveries.c.first_attempt_at, now),
        "attempts": deliveries.c.attempts + 1,
    }
    connection.execute(sa.update(deliveries).where(deliveries.c.id == row.id).values(**begun))
    return find_delivery(connection, row.id)


def _end_unheard(connection: Connection, resolve: sa.Row[Any]) -> bool:
    """End a resolve of an incident that the receiver never heard of; False where it is to be sent.

    It is dead, not cancelled: a replay of the trigger brings it with it.
    """
    if resolve.type != "alert.resolved" or resolve.incident_id is None or resolve.may_be_taken:
        return False
    heard = sa.select(deliveries.c.id).where(
        deliveries.c.incident_id == resolve.incident_id,
        deliveries.c.hook_id == resolve.hook_id,
        deliveries.c.id != resolve.id,
        sa.or_(deliveries.c.may_be_taken, deliveries.c.state == "delivered", deliveries.c.claimed_by.is_not(None)),
    )
    if connection.execute(heard.limit(1)).one_or_none() is not None:
        return False
    values = {"state": "dead", "reason": UNHEARD}
    connection.execute(sa.update(deliveries).where(deliveries.c.id == resolve.id).values(**values))
    return True


def next_attempt(connection: Connection, hook_id: int, *, now: int) -> int | None:
    """Say when something is to be sent to a hook next, for the first time or again; None = nothing is to be."""
    waiting = sa.select(deliveries.c.next_attempt_at).where(of_hook(deliveries) == hook_id, _is_next())
    again = sa.select(deliveries.c.refresh_at).where(
        of_hook(deliveries) == hook_id, deliveries.c.refresh_at.is_not(None)
    )
    moments = [*connection.execute(waiting).scalars(), *connection.execute(again).scalars()]
    return min((now if at > now + CLOCK_TOLERANCE else at for at in moments), default=None)


def forgotten_hooks(connection: Connection, now: int) -> set[int]:
    """Give the hooks to which something is due and about which no job is.

    It is of a release without jobs, or of a clock that was ahead.
    """
    new = sa.select(deliveries.c.hook_id).where(_is_next(), is_due(deliveries.c.next_attempt_at, NOW))
    again = sa.select(deliveries.c.hook_id).where(is_due(deliveries.c.refresh_at, NOW))
    found = set(connection.execute(sa.union(new, again), {"now": now}).scalars())
    return found - at_hand(connection, (JobKind.DELIVERY,), now) if found else found


def _is_next() -> sa.ColumnElement[bool]:
    """Whether a delivery is pending and waits for no other one."""
    other, theirs, ours = deliveries.alias(), incidents.alias(), incidents.alias()
    # The sums keep SQLite from walking all deliveries, by hook or id.
    waiting = sa.and_(of_hook(other) == deliveries.c.hook_id, other.c.state == sql_literal("pending"))
    before = other.c.id + 0 < deliveries.c.id
    bound = sa.and_(theirs.c.id == other.c.incident_id, ours.c.id == deliveries.c.incident_id)
    earlier = sa.exists().where(waiting, before, bound, theirs.c.dedupe_key == ours.c.dedupe_key)
    return sa.and_(deliveries.c.state == sql_literal("pending"), ~earlier)


def prepare_delivery(connection: Connection, delivery_id: int, *, owner: str, body: bytes) -> bool:
    """Store the body, the same bytes on every attempt; False where somebody else is at the delivery."""
    change = sa.update(deliveries).where(_is_mine(delivery_id, owner)).values(body=body)
    return connection.execute(change).rowcount == 1


def finish_attempt(
    connection: Connection,
    delivery_id: int,
    *,
    owner: str,
    state: str,
    next_attempt_at: int,
    reason: str,
    untaken: bool,
    taken_by: str | None,
) -> bool:
    """End an attempt: delivered, dead, or pending until the next; False where somebody else is at the delivery."""
    values: dict[str, object] = {"state": state, "next_attempt_at": next_attempt_at, "reason": reason}
    values |= {"claimed_by": None, "taken_by": taken_by}
    if not untaken:
        values["may_be_taken"] = True
    return connection.execute(sa.update(deliveries).where(_is_mine(delivery_id, owner)).values(**values)).rowcount == 1


def is_due(at: sa.ColumnElement[int], now: Moment) -> sa.ColumnElement[bool]:
    """Whether a moment has come, or is so far ahead that only a wrong clock can have written it."""
    return sa.or_(at <= now, at > now + CLOCK_TOLERANCE)


def _is_mine(delivery_id: int, owner: str) -> sa.ColumnElement[bool]:
    pending = deliveries.c.state == sql_literal("pending")
    return sa.and_(deliveries.c.id == delivery_id, pending, deliveries.c.claimed_by == owner)


def of_hook(one: sa.FromClause) -> sa.ColumnElement[int]:
    """Give the hook of a delivery as a sum, which keeps SQLite from walking all deliveries of the hook."""
    return one.c.hook_id + sa.literal_column("0")
