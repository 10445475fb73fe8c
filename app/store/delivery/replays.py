"""Replays of dead deliveries, in an order their receivers understand: no trigger after its resolve."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.delivery.outbox import DELIVERY, DeliveryRow, defer_delivery, delivery_from_row
from app.store.tables import definitions, deliveries, incidents


def is_overtaken(connection: Connection, delivery: DeliveryRow) -> bool:
    """Whether a later delivery with the same key was delivered to the same hook, or is pending for it."""
    if delivery.incident_id is None:
        return False
    # A transaction that holds the incident may be writing such a delivery just now.
    connection.execute(sa.select(incidents.c.id).where(incidents.c.id == delivery.incident_id).with_for_update())
    later = sa.select(deliveries.c.id).where(
        deliveries.c.incident_id.in_(incidents_with_key_of(delivery.incident_id)),
        deliveries.c.hook_id == delivery.hook_id,
        deliveries.c.id > delivery.id,
        deliveries.c.state.in_(("delivered", "pending")),
    )
    return connection.execute(later.limit(1)).one_or_none() is not None


def replay_delivery(connection: Connection, delivery_id: int, now: int) -> bool:
    """Put a dead delivery back into the outbox, with a new 24 h of retries."""
    dead = sa.and_(deliveries.c.id == delivery_id, deliveries.c.state == "dead")
    values = {"state": "pending", "attempts": 0, "first_attempt_at": None, "next_attempt_at": now, "reason": None}
    change = sa.update(deliveries).where(dead).values(**values).returning(deliveries.c.hook_id)
    hook_id = connection.execute(change).scalar_one_or_none()
    if hook_id is not None:
        defer_delivery(connection, hook_id)
    return hook_id is not None


def replay_unsent_resolves(
    connection: Connection, now: int, *, hook_id: int | None = None, incident_ids: Sequence[int] = ()
) -> int:
    """Put dead resolves of hooks in force back into the outbox; returns how many.

    Of one hook, or with the keys of these incidents. Not those overtaken by a later delivery with the same key, nor
    those whose key has an open incident again: its own resolve will end it at the receiver.
    """
    one, later, newer, theirs = incidents.alias(), deliveries.alias(), incidents.alias(), incidents.alias()
    in_force = sa.select(definitions.c.id).where(
        definitions.c.archived_at.is_(None), definitions.c.disabled_reason.is_(None)
    )
    sent_later = sa.exists().where(
        later.c.hook_id == deliveries.c.hook_id,
        later.c.id > deliveries.c.id,
        later.c.state.in_(("delivered", "pending")),
        theirs.c.id == later.c.incident_id,
        theirs.c.dedupe_key == one.c.dedupe_key,
    )
    again = sa.exists().where(newer.c.dedupe_key == one.c.dedupe_key, newer.c.resolved_at.is_(None))
    unsent = sa.select(deliveries.c.id).where(
        deliveries.c.state == "dead",
        deliveries.c.type == "alert.resolved",
        deliveries.c.hook_id.in_(in_force),
        one.c.id == deliveries.c.incident_id,
        ~sent_later,
        ~again,
    )
    if hook_id is not None:
        unsent = unsent.where(deliveries.c.hook_id == hook_id)
    else:
        faults = sa.select(incidents.c.dedupe_key).where(incidents.c.id.in_(list(incident_ids)))
        unsent = unsent.where(one.c.dedupe_key.in_(faults))
    ids = connection.execute(unsent.order_by(deliveries.c.id)).scalars().all()
    return sum(replay_delivery(connection, delivery_id, now) for delivery_id in ids)


def resolve_of(connection: Connection, delivery: DeliveryRow) -> DeliveryRow | None:
    """Find the resolve of the same incident to the same hook."""
    same = sa.and_(deliveries.c.incident_id == delivery.incident_id, deliveries.c.hook_id == delivery.hook_id)
    row = connection.execute(DELIVERY.where(same, deliveries.c.type == "alert.resolved")).one_or_none()
    return delivery_from_row(row) if row else None


def incidents_with_key_of(incident_id: int | None) -> sa.Select[tuple[int]]:
    """Select the incidents with the same dedupe key as this one, itself among them."""
    fault = sa.select(incidents.c.dedupe_key).where(incidents.c.id == incident_id).scalar_subquery()
    return sa.select(incidents.c.id).where(incidents.c.dedupe_key == fault)
