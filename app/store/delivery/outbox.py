"""Whom we told: deliveries waiting to be sent, claimed under a lease, and every attempt made.

Apart from "is it broken?" (alerts), so that retries and restarts cannot speak twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.engine import NOW, Moment, insert_new, insert_one, sql_literal
from app.store.tables import attempts, definitions, deliveries, incidents


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRow:
    """One news item for one hook."""

    id: int
    hook_id: int
    hook: str
    alert_id: int | None
    """The first alert of its incident; None: a test send."""
    transition_id: int | None
    """What it is about."""
    incident_id: int | None
    message_id: str
    type: str
    state: str
    body: bytes | None
    created_at: int
    first_attempt_at: int | None
    next_attempt_at: int
    attempts: int
    reason: str | None
    refresh_at: int | None
    """When the receiver is to be told once more, of something that was delivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """One try to send a delivery."""

    at: int
    http_status: int | None
    error: str | None
    detail: str | None
    latency_seconds: float


CLOCK_TOLERANCE: Final = 600 * 1_000_000
"""Microseconds: more than any attempt is put off or any lease lasts."""
MOST_ATTEMPTS: Final = 100
"""Attempts kept of a delivery: the newest ones."""
_FEW = ("pending", "dead")
"""The states that have an index of their own."""
_DELIVERY = sa.select(deliveries, definitions.c.slug.label("hook")).join(
    definitions, definitions.c.id == deliveries.c.hook_id
)


def enqueue_deliveries(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the deliveries of a transition, one a hook; those that exist already are passed over."""
    columns = (
        "hook_id",
        "alert_id",
        "transition_id",
        "incident_id",
        "message_id",
        "type",
        "state",
        "created_at",
        "next_attempt_at",
        "attempts",
        "reason",
    )
    insert_new(connection, deliveries, columns, [tuple([row.get(name) for name in columns]) for row in rows])


def deliveries_of_incident(connection: Connection, incident_id: int, *, hold: bool = False) -> list[DeliveryRow]:
    """Read the deliveries of an incident, oldest first; `hold` keeps workers from claiming them meanwhile."""
    statement = _DELIVERY.where(deliveries.c.incident_id == incident_id).order_by(deliveries.c.id)
    if hold:
        statement = statement.with_for_update(of=deliveries)
    return [_delivery(row) for row in connection.execute(statement)]


def find_delivery(connection: Connection, delivery_id: int) -> DeliveryRow | None:
    """Find a delivery by its id."""
    row = connection.execute(_DELIVERY.where(deliveries.c.id == delivery_id)).one_or_none()
    return _delivery(row) if row else None


def list_deliveries(
    connection: Connection,
    *,
    hook_id: int | None = None,
    state: str | None = None,
    alert_id: int | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[DeliveryRow]:
    """List deliveries, newest first, those with an id below `before`."""
    few = state in _FEW
    # The sum keeps SQLite from walking all that was ever sent by its id, where few are wanted.
    statement = _DELIVERY.order_by((deliveries.c.id + 0 if few else deliveries.c.id).desc()).limit(limit)
    if hook_id is not None:
        statement = statement.where(deliveries.c.hook_id == hook_id)
    if state is not None:
        statement = statement.where(deliveries.c.state == (sql_literal(state) if few else state))
    if alert_id is not None:
        statement = statement.where(deliveries.c.alert_id == alert_id)
    if before is not None:
        statement = statement.where(deliveries.c.id < before)
    return [_delivery(row) for row in connection.execute(statement)]


def list_attempts(connection: Connection, delivery_ids: Sequence[int]) -> dict[int, list[AttemptRow]]:
    """Read the attempts of deliveries, oldest first, by delivery id."""
    statement = sa.select(attempts).where(attempts.c.delivery_id.in_(list(delivery_ids))).order_by(attempts.c.id)
    by_delivery: dict[int, list[AttemptRow]] = {delivery_id: [] for delivery_id in delivery_ids}
    for row in connection.execute(statement):
        by_delivery[row.delivery_id].append(
            AttemptRow(
                at=row.at,
                http_status=row.http_status,
                error=row.error,
                detail=row.detail,
                latency_seconds=row.latency_seconds,
            )
        )
    return by_delivery


def claim_delivery(connection: Connection, *, owner: str, now: int, lease_until: int) -> DeliveryRow | None:
    """Take the oldest delivery that is due.

    Only one delivery a hook is in flight (one hung receiver holds up no other), and a delivery waits for earlier
    ones of the same hook and fault: a resolve never overtakes its trigger, nor the next opening the resolve before it,
    which receivers know by the same key.
    """
    statement = (
        _DELIVERY.where(_claimable(now))
        .order_by(deliveries.c.next_attempt_at, deliveries.c.id)
        .limit(5)
        .with_for_update(of=deliveries, skip_locked=True)
    )
    for row in connection.execute(statement).all():
        if not take_hook(connection, row.hook_id):
            continue
        free = is_unleased(now)
        claimed = connection.execute(
            sa.update(deliveries)
            .where(deliveries.c.id == row.id, deliveries.c.state == sql_literal("pending"), free, ~in_flight(now))
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
    """Whether `claim_delivery` has something to take; reads alone."""
    return bool(connection.execute(_any_claimable(), {"now": now}).scalar_one())


@cache
def _any_claimable() -> sa.Select[tuple[bool]]:
    return sa.select(sa.select(deliveries.c.id).where(_claimable(NOW)).exists())  # see queue: asked every second


def _claimable(now: Moment) -> sa.ColumnElement[bool]:
    other, theirs, ours = deliveries.alias(), incidents.alias(), incidents.alias()
    # The sums keep SQLite from walking all that was ever sent, by its hook or its id.
    waiting = sa.and_(_of_hook(other) == deliveries.c.hook_id, other.c.state == sql_literal("pending"))
    before = other.c.id + 0 < deliveries.c.id
    bound = sa.and_(theirs.c.id == other.c.incident_id, ours.c.id == deliveries.c.incident_id)
    earlier = sa.exists().where(waiting, before, bound, theirs.c.dedupe_key == ours.c.dedupe_key)
    return sa.and_(
        deliveries.c.state == sql_literal("pending"),
        is_due(deliveries.c.next_attempt_at, now),
        is_unleased(now),
        ~in_flight(now),
        ~earlier,
    )


def prepare_delivery(connection: Connection, delivery_id: int, *, owner: str, body: bytes, lease_until: int) -> bool:
    """Fix what is sent, to be the same bytes on every attempt, and how long this one may take; False if it was lost."""
    mine = sa.and_(
        deliveries.c.id == delivery_id, deliveries.c.state == sql_literal("pending"), deliveries.c.claimed_by == owner
    )
    change = sa.update(deliveries).where(mine).values(body=body, lease_until=lease_until)
    return connection.execute(change).rowcount == 1


def record_attempt(connection: Connection, delivery_id: int, attempt: AttemptRow) -> None:
    """Append what came of an attempt; of very many only the newest are kept."""
    columns = ("delivery_id", "at", "http_status", "error", "detail", "latency_seconds")
    row = (delivery_id, attempt.at, attempt.http_status, attempt.error, attempt.detail, attempt.latency_seconds)
    insert_new(connection, attempts, columns, [row])
    of_delivery = attempts.c.delivery_id == delivery_id
    newest = sa.select(attempts.c.id).where(of_delivery).order_by(attempts.c.id.desc())
    beyond = newest.offset(MOST_ATTEMPTS).limit(1).scalar_subquery()
    connection.execute(sa.delete(attempts).where(of_delivery, attempts.c.error.is_not(None), attempts.c.id <= beyond))


def settle_delivery(
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


def cancel_deliveries(connection: Connection, delivery_ids: Sequence[int], reason: str) -> None:
    """Cancel deliveries nobody has attempted."""
    untouched = sa.and_(
        deliveries.c.id.in_(list(delivery_ids)),
        deliveries.c.state == sql_literal("pending"),
        deliveries.c.body.is_(None),
        deliveries.c.attempts == 0,
    )
    connection.execute(sa.update(deliveries).where(untouched).values(state="cancelled", reason=reason))


def abandon_deliveries(connection: Connection, hook_id: int, reason: str) -> None:
    """End what is left to send to a hook that is gone; whoever has one under way ends that himself."""
    left = sa.and_(
        deliveries.c.hook_id == hook_id, deliveries.c.state == sql_literal("pending"), deliveries.c.claimed_by.is_(None)
    )
    connection.execute(sa.update(deliveries).where(left).values(state="dead", reason=reason))


def overtaken(connection: Connection, delivery: DeliveryRow) -> bool:
    """Whether a later delivery about the same fault was taken by the same hook, or waits to be sent to it."""
    if delivery.incident_id is None:
        return False
    # Whoever decides about the incident holds its row, and may be writing such a delivery just now.
    connection.execute(sa.select(incidents.c.id).where(incidents.c.id == delivery.incident_id).with_for_update())
    later = sa.select(deliveries.c.id).where(
        deliveries.c.incident_id.in_(same_fault(delivery.incident_id)),
        deliveries.c.hook_id == delivery.hook_id,
        deliveries.c.id > delivery.id,
        deliveries.c.state.in_(("delivered", "pending")),
    )
    return connection.execute(later.limit(1)).one_or_none() is not None


def replay_delivery(connection: Connection, delivery_id: int, now: int) -> bool:
    """Put a dead delivery back into the outbox with a fresh day to live."""
    dead = sa.and_(deliveries.c.id == delivery_id, deliveries.c.state == "dead")
    values = {"state": "pending", "attempts": 0, "first_attempt_at": None, "next_attempt_at": now, "reason": None}
    return connection.execute(sa.update(deliveries).where(dead).values(**values)).rowcount == 1


def send_owed(connection: Connection, now: int, *, hook_id: int | None = None, incident_ids: Sequence[int] = ()) -> int:
    """Put ends that hooks in force have not taken back into the outbox, unless something later told of their fault.

    Of a hook, or of the faults of these incidents; of faults that are over alone: while a later incident of one is
    open, its own end ends it there. Gives how many.
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
    owed = sa.select(deliveries.c.id).where(
        deliveries.c.state == "dead",
        deliveries.c.type == "alert.resolved",
        deliveries.c.hook_id.in_(in_force),
        one.c.id == deliveries.c.incident_id,
        ~sent_later,
        ~again,
    )
    if hook_id is not None:
        owed = owed.where(deliveries.c.hook_id == hook_id)
    else:
        faults = sa.select(incidents.c.dedupe_key).where(incidents.c.id.in_(list(incident_ids)))
        owed = owed.where(one.c.dedupe_key.in_(faults))
    ids = connection.execute(owed.order_by(deliveries.c.id)).scalars().all()
    return sum(replay_delivery(connection, delivery_id, now) for delivery_id in ids)


def end_of(connection: Connection, delivery: DeliveryRow) -> DeliveryRow | None:
    """Find the delivery that tells the same hook of the end of the same incident."""
    same = sa.and_(deliveries.c.incident_id == delivery.incident_id, deliveries.c.hook_id == delivery.hook_id)
    row = connection.execute(_DELIVERY.where(same, deliveries.c.type == "alert.resolved")).one_or_none()
    return _delivery(row) if row else None


def outbox(connection: Connection) -> tuple[int, int | None]:
    """Count what is left to send, and give when the oldest of it was written."""
    statement = sa.select(sa.func.count(), sa.func.min(deliveries.c.created_at)).where(
        deliveries.c.state == sql_literal("pending")
    )
    pending, oldest = connection.execute(statement).one()
    return pending, oldest


def enqueue_test(connection: Connection, hook_id: int, kind: str, now: int) -> int:
    """Write a test delivery for a hook; gives its id."""
    for microsecond in range(now, now + 1000):  # two tests in one microsecond are still two messages
        inserted = insert_one(
            connection,
            deliveries,
            hook_id=hook_id,
            message_id=f"msg_test_{hook_id}_{microsecond}",
            type=kind,
            state="pending",
            created_at=now,
            next_attempt_at=now,
            attempts=0,
        )
        if inserted is not None:
            return inserted
    raise AssertionError("no free instant in a millisecond")


def is_due(at: sa.ColumnElement[int], now: Moment) -> sa.ColumnElement[bool]:
    """Whether a moment has come, or is so far ahead that only a wrong clock can have written it."""
    return sa.or_(at <= now, at > now + CLOCK_TOLERANCE)


def is_unleased(now: Moment) -> sa.ColumnElement[bool]:
    """Whether nobody holds a delivery; see `is_due` for leases far ahead."""
    return sa.or_(deliveries.c.lease_until.is_(None), ~deliveries.c.lease_until.between(now, now + CLOCK_TOLERANCE))


def in_flight(now: Moment) -> sa.ColumnElement[bool]:
    """Whether somebody is sending to the hook of a delivery just now, something new or something once more."""
    other = deliveries.alias()
    leased = other.c.lease_until.between(now, now + CLOCK_TOLERANCE)
    held = sa.and_(_of_hook(other) == deliveries.c.hook_id, leased)
    # Two, so that each finds its own partial index: what was delivered and is over is never looked at.
    new = sa.exists().where(held, other.c.state == sql_literal("pending"))
    again = sa.exists().where(held, other.c.refresh_at.is_not(None))
    return sa.or_(new, again)


def take_hook(connection: Connection, hook_id: int) -> bool:
    """Be the one who looks for deliveries of a hook; False while somebody else is.

    Two who look at once see no lease of each other: the hook's own row decides, and is looked at anew after it.
    """
    hook = sa.select(definitions.c.id).where(definitions.c.id == hook_id)
    return connection.execute(hook.with_for_update(skip_locked=True, key_share=True)).one_or_none() is not None


def same_fault(incident_id: int | None) -> sa.Select[tuple[int]]:
    """Select the incidents receivers know by the same key as this one, itself among them."""
    fault = sa.select(incidents.c.dedupe_key).where(incidents.c.id == incident_id).scalar_subquery()
    return sa.select(incidents.c.id).where(incidents.c.dedupe_key == fault)


def _of_hook(one: sa.FromClause) -> sa.ColumnElement[int]:
    return one.c.hook_id + sa.literal_column("0")


def _delivery(row: Any) -> DeliveryRow:
    return DeliveryRow(**{name: getattr(row, name) for name in DeliveryRow.__dataclass_fields__})
