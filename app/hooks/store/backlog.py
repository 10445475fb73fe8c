"""Waiting deliveries: which one each waits for, and earlier retries once a receiver is back."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import sql_literal
from app.hooks.tables import attempts, deliveries, incidents

_MAX_CANDIDATES = 100
"""Waiting deliveries considered at most, so that a success costs the same however many wait."""


def bring_forward(connection: Connection, hook_id: int, *, now: int, errors: Collection[str]) -> bool:
    """Make one delivery of a hook due that waits for its retry; False where there is none.

    Of those whose last attempt got no response and failed with one of `errors`, the one with the oldest last attempt:
    one that fails again comes last. Not those with a response, which may have asked for a delay.
    """
    # The sum keeps SQLite from walking all deliveries of the hook.
    of_hook = sa.and_(
        deliveries.c.hook_id + sa.literal_column("0") == hook_id, deliveries.c.state == sql_literal("pending")
    )
    waits = sa.and_(of_hook, deliveries.c.claimed_by.is_(None), deliveries.c.next_attempt_at > now)
    soonest = (deliveries.c.next_attempt_at, deliveries.c.id)
    few = sa.select(deliveries.c.id).where(waits, deliveries.c.attempts > 0).order_by(*soonest).limit(_MAX_CANDIDATES)
    tried = attempts.alias()
    # The sum keeps PostgreSQL from walking all attempts from the newest back to one of the delivery.
    newest = sa.select(sa.func.max(tried.c.id + sa.literal_column("0"))).where(tried.c.delivery_id == deliveries.c.id)
    unanswered = sa.exists().where(
        attempts.c.id == newest.correlate(deliveries).scalar_subquery(),
        attempts.c.http_status.is_(None),
        attempts.c.error.in_(sorted(errors)),
    )
    # Transactions that end incidents lock deliveries one after another: waiting here could deadlock with them.
    statement = (
        sa.select(deliveries.c.id)
        .where(deliveries.c.id.in_(few), waits, unanswered)
        .order_by(newest.correlate(deliveries).scalar_subquery(), deliveries.c.id)
        .limit(1)
        .with_for_update(of=deliveries, skip_locked=True)
    )
    delivery_id = connection.execute(statement).scalar_one_or_none()
    if delivery_id is None:
        return False
    change = sa.update(deliveries).where(deliveries.c.id == delivery_id, waits).values(next_attempt_at=now)
    return connection.execute(change).rowcount == 1


def waiting_behind(connection: Connection, delivery_ids: Sequence[int]) -> Mapping[int, int]:
    """Return, by delivery, the one just before it with the same hook and key, which has to be sent first."""
    # The sum keeps SQLite from walking all deliveries of a key, where few wait.
    incident = deliveries.c.incident_id + sa.literal_column("0")
    waiting = (
        sa.select(deliveries.c.id, deliveries.c.hook_id, incidents.c.dedupe_key)
        .select_from(deliveries)
        .join(incidents, incidents.c.id == incident)
        .where(deliveries.c.state == sql_literal("pending"))
    )
    rows = connection.execute(waiting.where(deliveries.c.id.in_(list(delivery_ids)))).all()
    if not rows:
        return {}
    queues: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    faults = {row.dedupe_key for row in rows}
    for row in connection.execute(waiting.where(incidents.c.dedupe_key.in_(sorted(faults)))):
        queues[row.hook_id, row.dedupe_key].append(row.id)
    before = ((row.id, [one for one in queues[row.hook_id, row.dedupe_key] if one < row.id]) for row in rows)
    return {delivery_id: max(earlier) for delivery_id, earlier in before if earlier}
