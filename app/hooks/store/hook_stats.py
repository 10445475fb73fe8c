"""Delivery counts by hook and by incident. Single deliveries are in `outbox`."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import sql_literal
from app.catalog.tables import definitions
from app.hooks.tables import attempts, deliveries


@dataclass(slots=True, kw_only=True)
class DeliveryCounts:
    """Counts of the deliveries of a hook."""

    pending: int = 0
    dead: int = 0
    failures: int = 0
    """Failed attempts since the given time."""
    newest: int | None = None
    """The id of its newest delivery."""


def count_by_hook(connection: Connection, *, since: int) -> Mapping[int, DeliveryCounts]:
    """Return counts of every hook by its id; hooks without deliveries are left out."""
    counts: defaultdict[int, DeliveryCounts] = defaultdict(DeliveryCounts)
    # The sum keeps SQLite from walking all deliveries by hook, where few wait and few are dead.
    hook = deliveries.c.hook_id + sa.literal_column("0")
    by_hook = sa.select(hook, sa.func.count()).group_by(hook)
    for hook_id, count in connection.execute(by_hook.where(deliveries.c.state == sql_literal("pending"))):
        counts[hook_id].pending = count
    for hook_id, count in connection.execute(by_hook.where(deliveries.c.state == sql_literal("dead"))):
        counts[hook_id].dead = count
    failed = sa.and_(attempts.c.error.is_not(None), attempts.c.at >= since)
    lately = by_hook.join(attempts, attempts.c.delivery_id == deliveries.c.id).where(failed)
    for hook_id, count in connection.execute(lately):
        counts[hook_id].failures = count
    last = sa.select(sa.func.max(deliveries.c.id)).where(deliveries.c.hook_id == definitions.c.id).scalar_subquery()
    for hook_id, delivery_id in connection.execute(
        sa.select(definitions.c.id, last).where(definitions.c.kind == "hook")
    ):
        if delivery_id is not None:
            counts[hook_id].newest = delivery_id
    return counts


def count_by_incident(connection: Connection, incident_ids: Sequence[int]) -> Mapping[int, Mapping[str, int]]:
    """Count the deliveries of incidents by their state: {incident id: {state: count}}."""
    counts: dict[int, dict[str, int]] = {incident_id: {} for incident_id in incident_ids}
    statement = (
        sa.select(deliveries.c.incident_id, deliveries.c.state, sa.func.count())
        .where(deliveries.c.incident_id.in_(list(counts)))
        .group_by(deliveries.c.incident_id, deliveries.c.state)
    )
    for incident_id, state, count in connection.execute(statement):
        counts[incident_id][state] = count
    return counts
