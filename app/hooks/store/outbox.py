"""Rows of the outbox: deliveries of notifications to hooks, and the attempts made.

Separate from alerts, so that retries and restarts never notify twice. Claiming is in `claims`, replaying in `replays`.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_new, insert_one, sql_literal
from app.base.jobs.jobs import defer
from app.base.jobs.values import AT_ONCE, JobKind, NewJob
from app.catalog.tables import definitions
from app.hooks.tables import attempts, deliveries


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRow:
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
    """When a delivered notification is sent again, see `resend`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
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
DELIVERY: Final = sa.select(deliveries, definitions.c.slug.label("hook")).join(
    definitions, definitions.c.id == deliveries.c.hook_id
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelivery:
    """A delivery of a transition or a report to a hook, pending unless it says otherwise."""

    hook_id: int
    alert_id: int | None
    transition_id: int | None
    incident_id: int | None
    report_id: int | None = None
    message_id: str
    type: str
    state: str = "pending"
    created_at: int
    next_attempt_at: int
    attempts: int = 0
    reason: str | None = None


def enqueue_deliveries(connection: Connection, rows: Sequence[NewDelivery]) -> None:
    """Insert the deliveries of a transition or a report, one per hook; existing ones are skipped."""
    insert_new(connection, deliveries, tuple(NewDelivery.__dataclass_fields__), [astuple(row) for row in rows])
    for row in rows:
        if row.state == "pending":
            defer_delivery(connection, row.hook_id, row.next_attempt_at)


def defer_delivery(connection: Connection, hook_id: int, at: int = AT_ONCE) -> None:
    """Have what is due sent to a hook, not before `at`."""
    defer(connection, [NewJob(JobKind.DELIVERY, hook_id, run_at=at)])


def deliveries_of_incident(connection: Connection, incident_id: int, *, hold: bool = False) -> list[DeliveryRow]:
    """Read the deliveries of an incident, oldest first; `hold` keeps workers from claiming them meanwhile."""
    statement = DELIVERY.where(deliveries.c.incident_id == incident_id).order_by(deliveries.c.id)
    if hold:
        statement = statement.with_for_update(of=deliveries)
    return [delivery_from_row(row) for row in connection.execute(statement)]


def find_delivery(connection: Connection, delivery_id: int) -> DeliveryRow | None:
    """Find a delivery by its id."""
    row = connection.execute(DELIVERY.where(deliveries.c.id == delivery_id)).one_or_none()
    return delivery_from_row(row) if row else None


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
    return [delivery_from_row(row) for row in connection.execute(statement)]


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


def record_attempt(connection: Connection, delivery_id: int, attempt: AttemptRow) -> None:
    """Append an attempt; only the newest `MOST_ATTEMPTS` failed ones are kept."""
    columns = ("delivery_id", "at", "http_status", "error", "detail", "latency_seconds")
    row = (delivery_id, attempt.at, attempt.http_status, attempt.error, attempt.detail, attempt.latency_seconds)
    insert_new(connection, attempts, columns, [row])
    of_delivery = attempts.c.delivery_id == delivery_id
    newest = sa.select(attempts.c.id).where(of_delivery).order_by(attempts.c.id.desc())
    beyond = newest.offset(MOST_ATTEMPTS).limit(1).scalar_subquery()
    connection.execute(sa.delete(attempts).where(of_delivery, attempts.c.error.is_not(None), attempts.c.id <= beyond))


def cancel_deliveries(connection: Connection, delivery_ids: Sequence[int], reason: str) -> None:
    """Cancel deliveries without attempts."""
    untouched = sa.and_(
        deliveries.c.id.in_(list(delivery_ids)),
        deliveries.c.state == sql_literal("pending"),
        deliveries.c.body.is_(None),
        deliveries.c.attempts == 0,
    )
    connection.execute(sa.update(deliveries).where(untouched).values(state="cancelled", reason=reason))


def abandon_deliveries(connection: Connection, hook_id: int, reason: str) -> None:
    """Mark the pending deliveries of a gone hook as dead; one in flight is ended by its worker."""
    left = sa.and_(
        deliveries.c.hook_id == hook_id, deliveries.c.state == sql_literal("pending"), deliveries.c.claimed_by.is_(None)
    )
    connection.execute(sa.update(deliveries).where(left).values(state="dead", reason=reason))


def count_pending(connection: Connection) -> tuple[int, int | None]:
    """Return the number of pending deliveries but for test messages, and when the oldest was written."""
    statement = sa.select(sa.func.count(), sa.func.min(deliveries.c.created_at)).where(
        deliveries.c.state == sql_literal("pending"), deliveries.c.type != TEST
    )
    pending, oldest = connection.execute(statement).one()
    return pending, oldest


def enqueue_test(connection: Connection, hook_id: int, kind: str, now: int) -> int:
    """Insert a test delivery for a hook; returns its id."""
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
            defer_delivery(connection, hook_id)
            return inserted
    raise AssertionError("no free instant in a millisecond")


def delivery_from_row(row: Any) -> DeliveryRow:
    """Read a row of `DELIVERY`."""
    return DeliveryRow(**{name: getattr(row, name) for name in DeliveryRow.__dataclass_fields__})
