"""Who is told of what changed: the deliveries of a check's alerts, or the note why there are none.

Called inside the transaction that changed the alerts. The deciding is done in the domain, from rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.domain.alerting import OPEN, AlertState, TransitionType
from app.domain.announcing import AlertView, Announcement, PastDelivery, Suppression, announce
from app.domain.delivering import DeliveryState
from app.domain.model import Severity
from app.store import alerts, catalog, outbox
from app.store.alerts import TransitionRow
from app.store.catalog import Definition
from app.store.engine import Connection, to_us

_TYPE = "alert."
_NEWS = frozenset({TransitionType.OPENED, TransitionType.ESCALATED})


@dataclass(slots=True, kw_only=True)
class Known:
    """An unresolved alert of a check, or one just resolved, with what has just happened to it."""

    id: int
    severity: Severity
    state: AlertState
    change: TransitionType | None = None
    transition_id: int | None = None


def tell(
    connection: Connection,
    check: Definition,
    known: Mapping[int, Known],
    *,
    now: datetime,
    hold_until: datetime | None = None,
) -> None:
    """Write the deliveries of all that changed, or why there are none.

    `known`: every unresolved alert of the check by its id, and those just resolved. News of something wrong is not
    sent before `hold_until`, where given: more is being found out about it.
    """
    if not any(one.change or one.state in OPEN for one in known.values()):
        return
    history = alerts.list_transitions(connection, list(known))
    views = [_view(connection, one, history[one.id]) for one in known.values()]
    hooks = [_found_hook(connection, slug) for slug in check.body["hooks"]]
    heard = {one.hook for view in views for one in view.deliveries} - {hook.id for hook in hooks}
    all_hooks = [*hooks, *(catalog.definition_by_id(connection, hook) for hook in heard)]
    unreachable = {hook.id for hook in all_hooks if _is_unreachable(hook, now)}
    for announcement in announce(views, [hook.id for hook in hooks], unreachable=unreachable):
        one = known[announcement.alert_id]
        _write(connection, announcement, one, history[one.id], now=now, hold_until=hold_until)


def _is_unreachable(hook: Definition, now: datetime) -> bool:
    # One archived in this very change still hears the end of what ends with it.
    archived = hook.archived_at is not None and hook.archived_at < to_us(now)
    return archived or hook.disabled_reason is not None


def _write(
    connection: Connection,
    announcement: Announcement,
    known: Known,
    before: Sequence[TransitionRow],
    *,
    now: datetime,
    hold_until: datetime | None,
) -> None:
    if announcement.cancel:
        outbox.cancel_deliveries(connection, announcement.cancel, announcement.reason)
    transition_id = known.transition_id
    if announcement.late:
        transition_id = next(row.id for row in reversed(before) if row.suppressed is not None)
        alerts.suppress(connection, transition_id, None)
    if transition_id is None:
        return
    if announcement.suppressed is not None:
        alerts.suppress(connection, transition_id, announcement.suppressed)
    at = to_us(now)
    held = hold_until is not None and not announcement.late and announcement.type in _NEWS
    rows = [
        {
            "hook_id": hook,
            "alert_id": announcement.alert_id,
            "transition_id": transition_id,
            # With the time in it, for receivers that hear of several installations or of one begun anew.
            "message_id": f"msg_{at}_{transition_id}_{hook}",
            "type": _TYPE + announcement.type,
            "state": DeliveryState.PENDING,
            "created_at": at,
            "next_attempt_at": max(at, to_us(hold_until)) if held and hold_until is not None else at,
            "attempts": 0,
        }
        for hook in announcement.send
    ]
    outbox.enqueue_deliveries(connection, rows)


def _view(connection: Connection, known: Known, before: Sequence[TransitionRow]) -> AlertView:
    past = [
        PastDelivery(
            id=row.id,
            hook=row.hook_id,
            type=TransitionType(row.type.removeprefix(_TYPE)),
            state=DeliveryState(row.state),
            attempts=max(row.attempts, row.body is not None),  # replayed: counted anew, but it was begun once
        )
        for row in outbox.deliveries_of_alert(connection, known.id, hold=True)
    ]
    suppressed = [row.suppressed for row in before if row.suppressed is not None]
    return AlertView(
        alert_id=known.id,
        severity=known.severity,
        state=known.state,
        change=known.change,
        suppressed=Suppression(suppressed[-1]) if suppressed else None,
        deliveries=past,
    )


def _found_hook(connection: Connection, slug: str) -> Definition:
    hook = catalog.find_definition(connection, "hook", slug)
    assert hook is not None  # noqa: S101 - a check is only saved with hooks that exist, and nothing is deleted
    return hook
