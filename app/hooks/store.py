"""Rows of the outbox: deliveries of notifications to hooks, the attempts made, and counts of both.

Separate from alerts, so that retries and restarts never notify twice. Below: dead deliveries replayed, and
notifications resent to receivers that forget them.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.alerts.tables import incidents
from app.base.db.engine import NOW, Moment, insert_new, insert_one, row_value, sql_literal
from app.base.jobs import at_hand, defer
from app.base.jobs.values import AT_ONCE, JobKind, NewJob
from app.base.values import Value
from app.catalog.tables import definitions
from app.hooks.domain import CANCELLED, Receipt
from app.hooks.tables import attempts, deliveries


class DeliveryRow(Value):
    """One notification for one hook."""

    id: int
    hook_id: int
    hook: str
    alert_id: int | None
    """The first alert of its incident; None: a test send or a report."""
    transition_id: int | None
    """The transition it reports."""
    incident_id: int | None
    report_id: int | None
    """The scheduled report it carries."""
    message_id: str
    type: str
    state: str
    body: bytes | None
    created_at: int
    first_attempt_at: int | None
    next_attempt_at: int
    attempts: int
    reason: str | None
    may_be_taken: bool
    """Whether an attempt may have reached people: the receiver took it, or its answer is not known."""
    taken_by: str | None
    """The recipients of a mail who took it, as JSON."""
    refresh_at: int | None
    """When a delivered notification is sent again, see `begin_resend`."""


class AttemptRow(Value):
    """One attempt to send a delivery."""

    at: int
    http_status: int | None
    error: str | None
    detail: str | None
    latency_seconds: float


MOST_ATTEMPTS: Final = 100
"""Attempts kept of a delivery: the newest ones."""
TEST: Final = "hook.test"
"""The type of a test message: whoever sends one looks at it, so it is no backlog."""
_FEW = ("pending", "dead")
"""The states with a partial index."""
_PENDING: Final = deliveries.c.state == sql_literal("pending")
DELIVERY: Final = sa.select(deliveries, definitions.c.slug.label("hook")).join(
    definitions, definitions.c.id == deliveries.c.hook_id
)


def enqueue_deliveries(
    connection: Connection,
    hook_ids: Sequence[int],
    *,
    message: str,
    at: int,
    next_attempt_at: int | None = None,
    dead_reason: str | None = None,
    **subject: int | str | None,
) -> None:
    """Insert a delivery to each of these hooks, pending unless it is dead for a reason; existing ones are skipped.

    `subject`: its `type`, and the alert, transition and incident, or the report. The id of the message is `message` and
    the hook's.
    """
    due_at = at if next_attempt_at is None else next_attempt_at
    values = {
        **subject,
        "state": "pending" if dead_reason is None else "dead",
        "created_at": at,
        "next_attempt_at": due_at,
        "attempts": 0,
        "reason": dead_reason,
    }
    rows = [(hook_id, f"{message}_{hook_id}", *values.values()) for hook_id in hook_ids]
    insert_new(connection, deliveries, ("hook_id", "message_id", *values), rows)
    for hook_id in hook_ids if dead_reason is None else ():
        defer_delivery(connection, hook_id, due_at)


def defer_delivery(connection: Connection, hook_id: int, at: int = AT_ONCE) -> None:
    """Have what is due sent to a hook, not before `at`."""
    defer(connection, [NewJob(JobKind.DELIVERY, hook_id, run_at=at)])


def deliveries_of_incident(connection: Connection, incident_id: int, *, hold: bool = False) -> list[DeliveryRow]:
    """Read the deliveries of an incident, oldest first; `hold` keeps workers from claiming them meanwhile."""
    statement = DELIVERY.where(deliveries.c.incident_id == incident_id).order_by(deliveries.c.id)
    if hold:
        statement = statement.with_for_update(of=deliveries)
    return [row_value(DeliveryRow, row) for row in connection.execute(statement)]


def find_delivery(connection: Connection, delivery_id: int) -> DeliveryRow | None:
    """Find a delivery by its id."""
    row = connection.execute(DELIVERY.where(deliveries.c.id == delivery_id)).one_or_none()
    return row_value(DeliveryRow, row) if row else None


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
    # The sum keeps SQLite from walking all deliveries by their id, where few match.
    statement = DELIVERY.order_by((deliveries.c.id + 0 if few else deliveries.c.id).desc()).limit(limit)
    if hook_id is not None:
        statement = statement.where(deliveries.c.hook_id == hook_id)
    if state is not None:
        statement = statement.where(deliveries.c.state == (sql_literal(state) if few else state))
    if alert_id is not None:
        statement = statement.where(deliveries.c.alert_id == alert_id)
    if before is not None:
        statement = statement.where(deliveries.c.id < before)
    return [row_value(DeliveryRow, row) for row in connection.execute(statement)]


def list_attempts(connection: Connection, delivery_ids: Sequence[int]) -> dict[int, list[AttemptRow]]:
    """Read the attempts of deliveries, oldest first, by delivery id."""
    statement = sa.select(attempts).where(attempts.c.delivery_id.in_(list(delivery_ids))).order_by(attempts.c.id)
    by_delivery: dict[int, list[AttemptRow]] = {delivery_id: [] for delivery_id in delivery_ids}
    for row in connection.execute(statement):
        by_delivery[row.delivery_id].append(row_value(AttemptRow, row))
    return by_delivery


def record_attempt(connection: Connection, delivery_id: int, receipt: Receipt, at: int) -> None:
    """Append an attempt; only the newest `MOST_ATTEMPTS` failed ones are kept."""
    names = ("http_status", "error", "detail", "latency_seconds")
    told = [getattr(receipt, name) for name in names]
    insert_new(connection, attempts, ("delivery_id", "at", *names), [(delivery_id, at, *told)])
    of_delivery = attempts.c.delivery_id == delivery_id
    newest = sa.select(attempts.c.id).where(of_delivery).order_by(attempts.c.id.desc())
    beyond = newest.offset(MOST_ATTEMPTS).limit(1).scalar_subquery()
    connection.execute(sa.delete(attempts).where(of_delivery, attempts.c.error.is_not(None), attempts.c.id <= beyond))


def cancel_deliveries(connection: Connection, delivery_ids: Sequence[int]) -> None:
    """Cancel deliveries without attempts, as their incident was resolved."""
    mine = deliveries.c.id.in_(list(delivery_ids))
    untouched = sa.and_(mine, _PENDING, deliveries.c.body.is_(None), deliveries.c.attempts == 0)
    connection.execute(sa.update(deliveries).where(untouched).values(state="cancelled", reason=CANCELLED))


def abandon_deliveries(connection: Connection, hook_id: int, reason: str) -> None:
    """Mark the pending deliveries of a gone hook as dead; one in flight is ended by its worker."""
    left = sa.and_(deliveries.c.hook_id == hook_id, _PENDING, deliveries.c.claimed_by.is_(None))
    connection.execute(sa.update(deliveries).where(left).values(state="dead", reason=reason))


def count_pending(connection: Connection) -> tuple[int, int | None]:
    """Return the number of pending deliveries but for test messages, and when the oldest was written."""
    counts = sa.select(sa.func.count(), sa.func.min(deliveries.c.created_at))
    statement = counts.where(_PENDING, deliveries.c.type != TEST)
    pending, oldest = connection.execute(statement).one()
    return pending, oldest


def enqueue_test(connection: Connection, hook_id: int, now: int) -> int:
    """Insert a test delivery for a hook; returns its id."""
    for microsecond in range(now, now + 1000):  # two tests in one microsecond are still two messages
        inserted = insert_one(
            connection,
            deliveries,
            hook_id=hook_id,
            message_id=f"msg_test_{hook_id}_{microsecond}",
            type=TEST,
            state="pending",
            created_at=now,
            next_attempt_at=now,
            attempts=0,
        )
        if inserted is not None:
            defer_delivery(connection, hook_id)
            return inserted
    raise AssertionError("no free instant in a millisecond")


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
    return sa.and_(_PENDING, ~earlier)


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
    return sa.and_(deliveries.c.id == delivery_id, _PENDING, deliveries.c.claimed_by == owner)


def of_hook(one: sa.FromClause) -> sa.ColumnElement[int]:
    """Give the hook of a delivery as a sum, which keeps SQLite from walking all deliveries of the hook."""
    return one.c.hook_id + sa.literal_column("0")


_MAX_CANDIDATES = 100
"""Waiting deliveries considered at most, so that a success costs the same however many wait."""


def bring_forward(connection: Connection, hook_id: int, *, now: int, errors: Collection[str]) -> bool:
    """Make one delivery of a hook due that waits for its retry; False where there is none.

    Of those whose last attempt got no response and failed with one of `errors`, the one with the oldest last attempt:
    one that fails again comes last. Not those with a response, which may have asked for a delay.
    """
    untouched = sa.and_(of_hook(deliveries) == hook_id, _PENDING, deliveries.c.claimed_by.is_(None))
    waits = sa.and_(untouched, deliveries.c.next_attempt_at > now)
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
        .where(_PENDING)
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
    hook = of_hook(deliveries)
    by_hook = sa.select(hook, sa.func.count()).group_by(hook)
    for hook_id, count in connection.execute(by_hook.where(_PENDING)):
        counts[hook_id].pending = count
    for hook_id, count in connection.execute(by_hook.where(deliveries.c.state == sql_literal("dead"))):
        counts[hook_id].dead = count
    failed = sa.and_(attempts.c.error.is_not(None), attempts.c.at >= since)
    lately = by_hook.join(attempts, attempts.c.delivery_id == deliveries.c.id).where(failed)
    for hook_id, count in connection.execute(lately):
        counts[hook_id].failures = count
    last = sa.select(sa.func.max(deliveries.c.id)).where(deliveries.c.hook_id == definitions.c.id).scalar_subquery()
    by_definition = sa.select(definitions.c.id, last).where(definitions.c.kind == "hook")
    for hook_id, delivery_id in connection.execute(by_definition):
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
    return row_value(DeliveryRow, row) if row else None


def unended_incidents(connection: Connection, hook_id: int) -> list[tuple[str, str]]:
    """List the incidents, by check and class, of which a receiver was told and whose end is still to be sent.

    It took a message of them, or may have. They are open, or their resolve waits: it is pending, or dead and may be
    replayed. Of several with one key the newest counts, since its resolve ends them all at the receiver.
    """
    trigger, resolve, later, theirs = deliveries.alias(), deliveries.alias(), deliveries.alias(), incidents.alias()
    taken = sa.or_(trigger.c.state == "delivered", trigger.c.may_be_taken, trigger.c.claimed_by.is_not(None))
    told = sa.exists().where(
        trigger.c.incident_id == incidents.c.id, trigger.c.hook_id == hook_id, trigger.c.type != "alert.resolved", taken
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
    statement = sa.select(deliveries.c.id).where(_is_my_resend(delivery_id, owner)).with_for_update()
    return connection.execute(statement).one_or_none() is not None


def finish_resend(connection: Connection, delivery_id: int, *, owner: str, refresh_at: int | None) -> bool:
    """End the resend of a delivery; False where somebody else is at it."""
    values = {"refresh_at": refresh_at, "claimed_by": None}
    change = sa.update(deliveries).where(_is_my_resend(delivery_id, owner)).values(**values)
    return connection.execute(change).rowcount == 1


def _is_my_resend(delivery_id: int, owner: str) -> sa.ColumnElement[bool]:
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


def dead_letters(connection: Connection, since: int) -> Mapping[str, int]:
    """Return the number of dead letters written since then, by hook."""
    statement = (
        sa.select(definitions.c.slug, sa.func.count())
        .join(deliveries, deliveries.c.hook_id == definitions.c.id)
        .where(deliveries.c.state == sql_literal("dead"), deliveries.c.created_at >= since)
        .group_by(definitions.c.slug)
    )
    return {row.slug: row[1] for row in connection.execute(statement)}


RETRYING_AFTER = 3
"""Number of attempts from which a delivery counts as retrying."""


def retrying_deliveries(connection: Connection) -> dict[int, int]:
    """Return the number of pending deliveries with `RETRYING_AFTER` attempts or more but for test messages, by hook."""
    pending = deliveries.c.state == sql_literal("pending")
    return _count(connection, pending, deliveries.c.attempts >= RETRYING_AFTER, deliveries.c.type != TEST)


def dead_deliveries(connection: Connection) -> dict[int, int]:
    """Return the number of dead letters by hook."""
    return _count(connection, deliveries.c.state == sql_literal("dead"))


def _count(connection: Connection, *conditions: sa.ColumnElement[bool]) -> dict[int, int]:
    statement = sa.select(deliveries.c.hook_id, sa.func.count()).where(*conditions).group_by(deliveries.c.hook_id)
    return dict(connection.execute(statement).all())
