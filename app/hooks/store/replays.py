"""What a receiver is still to hear of an incident: replays of dead deliveries, and ends that were not delivered.

Replays keep an order that receivers understand: no trigger after its resolve.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from app.catalog.tables import definitions
from app.hooks.store.outbox import (
    DELIVERY,
    DeliveryRow,
    defer_delivery,
    delivery_from_row,
    find_delivery,
    is_due,
    of_hook,
)
from app.hooks.tables import attempts, deliveries, incidents


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


def unended_incidents(connection: Connection, hook_id: int) -> list[tuple[str, str]]:
    """List the incidents, by check and class, of which a receiver was told and whose end is still to be sent.

    It took a message of them, or may have. They are open, or their resolve waits: it is pending, or dead and may be
    replayed. Of several with one key the newest counts, since its resolve ends them all at the receiver.
    """
    trigger, resolve, later, theirs = deliveries.alias(), deliveries.alias(), deliveries.alias(), incidents.alias()
    taken = sa.or_(trigger.c.state == "delivered", trigger.c.may_be_taken, trigger.c.claimed_by.is_not(None))
    told = sa.exists().where(
        trigger.c.incident_id == incidents.c.id,
        trigger.c.hook_id == hook_id,
        trigger.c.type != "alert.resolved",
        taken,
    )
    waiting = sa.exists().where(
        resolve.c.incident_id == incidents.c.id,
        resolve.c.hook_id == hook_id,
        resolve.c.type == "alert.resolved",
        resolve.c.state.in_(("pending", "dead")),
    )
    ended = sa.exists().where(
        theirs.c.dedupe_key == incidents.c.dedupe_key,
        theirs.c.id >= incidents.c.id,
        later.c.incident_id == theirs.c.id,
        later.c.hook_id == hook_id,
        later.c.type == "alert.resolved",
        later.c.state == "delivered",
    )
    statement = (
        sa.select(definitions.c.slug, incidents.c.incident_class)
        .join(incidents, incidents.c.check_id == definitions.c.id)
        .where(told, sa.or_(incidents.c.resolved_at.is_(None), waiting), ~ended)
        .distinct()
        .order_by(definitions.c.slug, incidents.c.incident_class)
    )
    return [(row.slug, row.incident_class) for row in connection.execute(statement)]


def incidents_with_key_of(incident_id: int | None) -> sa.Select[tuple[int]]:
    """Select the incidents with the same dedupe key as this one, itself among them."""
    fault = sa.select(incidents.c.dedupe_key).where(incidents.c.id == incident_id).scalar_subquery()
    return sa.select(incidents.c.id).where(incidents.c.dedupe_key == fault)


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
