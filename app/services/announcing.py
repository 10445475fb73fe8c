"""Who is told of what changed: the deliveries of a check's alerts, or the note why there are none.

Called inside the transaction that changed the alerts. The deciding is done in the domain, from rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from app.domain.alerting import OPEN, AlertState, TransitionType
from app.domain.announcing import (
    TOLD_ONCE,
    AlertView,
    Announcement,
    PastDelivery,
    Suppression,
    announce,
    kept_back,
    reminder_due,
    reminders,
)
from app.domain.delivering import DeliveryState
from app.domain.model import Severity
from app.formats.documents import CheckDocument
from app.services import silencing
from app.store import alerts, catalog, outbox
from app.store.alerts import AlertRow, TransitionRow
from app.store.catalog import Definition
from app.store.engine import Connection, from_us, to_us

_TYPE = "alert."
_OWED = "The hook is disabled; this is sent once it is saved again."


@dataclass(slots=True, kw_only=True)
class Known:
    """An unresolved alert of a check, or one just resolved, with what has just happened to it."""

    id: int
    rule: str
    severity: Severity
    state: AlertState
    acknowledged: bool = False
    change: TransitionType | None = None
    transition_id: int | None = None

    @classmethod
    def of(cls, row: AlertRow) -> "Known":
        """Read it off its row."""
        return cls(
            id=row.id,
            rule=row.rule_key,
            severity=Severity(row.severity),
            state=AlertState(row.state),
            acknowledged=row.acknowledged_at is not None,
        )


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
    situation = look(connection, check, known, now=now, hold=True)
    for announcement in situation.announcements():
        one = known[announcement.alert_id]
        _write(connection, announcement, one, situation.changes[one.id], now=now, hold_until=hold_until)
    over = [one.id for one in known.values() if one.change is TransitionType.RESOLVED]
    if over:  # one before it of the same fault may have ended while its hook was disabled
        outbox.send_owed(connection, to_us(now), alert_ids=over)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What announcing looks at, for all open and just resolved alerts of one check together."""

    check: Definition
    views: Sequence[AlertView] = ()
    changes: Mapping[int, Sequence[TransitionRow]] = field(default_factory=dict)
    """The transitions of each alert, oldest first."""
    hooks: Sequence[Definition] = ()
    """Those of the check."""
    unreachable: frozenset[int] = frozenset()
    disabled: frozenset[int] = frozenset()
    """Those of the unreachable that are not gone for good."""
    silenced: Mapping[int, str] = field(default_factory=dict)
    """The slug of the silence that keeps news of an alert back, by the alert's id."""

    def announcements(self) -> tuple[Announcement, ...]:
        """Decide what to tell."""
        hooks = [hook.id for hook in self.hooks]
        return announce(self.views, hooks, unreachable=self.unreachable, disabled=self.disabled, silenced=self.silenced)

    def reminders(self, now: datetime) -> tuple[int, ...]:
        """List the alerts people are to be reminded of now."""
        hooks, every = [hook.id for hook in self.hooks], CheckDocument.model_validate(self.check.body).remind_after
        return reminders(self.views, hooks, every, now, unreachable=self.unreachable, silenced=self.silenced)

    def kept_back(self, alert_id: int) -> Suppression | None:
        """Say what keeps news of an alert back now."""
        return kept_back(self._view(alert_id), self.views, self.silenced)

    def reminder_due(self, alert_id: int) -> datetime | None:
        """Say when people are to be reminded of an alert, if nothing changes."""
        return reminder_due(self._view(alert_id), CheckDocument.model_validate(self.check.body).remind_after)

    def _view(self, alert_id: int) -> AlertView:
        return next(one for one in self.views if one.alert_id == alert_id)


def look(
    connection: Connection, check: Definition, known: Mapping[int, Known], *, now: datetime, hold: bool
) -> Situation:
    """Read what there is to decide about; `hold` keeps workers from claiming deliveries meanwhile."""
    if not any(one.change or one.state in OPEN for one in known.values()):
        return Situation(check=check)
    changes = alerts.list_transitions(connection, list(known))
    views = [_view(connection, one, changes[one.id], hold=hold) for one in known.values()]
    hooks = [_found_hook(connection, slug) for slug in check.body["hooks"]]
    heard = {one.hook for view in views for one in view.deliveries} - {hook.id for hook in hooks}
    all_hooks = [*hooks, *(catalog.definition_by_id(connection, hook) for hook in heard)]
    subjects = [(one.id, one.rule, one.severity) for one in known.values()]
    silenced = silencing.silenced(connection, check, subjects, now)
    return Situation(
        check=check,
        views=views,
        changes=changes,
        hooks=hooks,
        unreachable=frozenset(hook.id for hook in all_hooks if _is_unreachable(hook, now)),
        disabled=frozenset(hook.id for hook in all_hooks if hook.disabled_reason and hook.archived_at is None),
        silenced={alert_id: silence.slug for alert_id, silence in silenced.items()},
    )


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
        transition_id = next(row.id for row in reversed(before) if row.type in TOLD_ONCE)
        alerts.release(connection, transition_id)
    if transition_id is None:
        return
    if announcement.suppressed is not None:
        alerts.suppress(connection, transition_id, announcement.suppressed, silence=announcement.silence)
    at = to_us(now)
    held = hold_until is not None and not announcement.late and announcement.type in TOLD_ONCE
    rows = [
        {
            "hook_id": hook,
            "alert_id": announcement.alert_id,
            "transition_id": transition_id,
            # With the time in it, for receivers that hear of several installations or of one begun anew.
            "message_id": f"msg_{at}_{transition_id}_{hook}",
            "type": _TYPE + announcement.type,
            "state": DeliveryState.DEAD if hook in announcement.owe else DeliveryState.PENDING,
            "reason": _OWED if hook in announcement.owe else None,
            "created_at": at,
            "next_attempt_at": max(at, to_us(hold_until)) if held and hold_until is not None else at,
            "attempts": 0,
        }
        for hook in (*announcement.send, *announcement.owe)
    ]
    outbox.enqueue_deliveries(connection, rows)


def _view(connection: Connection, known: Known, before: Sequence[TransitionRow], *, hold: bool) -> AlertView:
    past = [
        PastDelivery(
            id=row.id,
            hook=row.hook_id,
            type=TransitionType(row.type.removeprefix(_TYPE)),
            state=DeliveryState(row.state),
            attempts=max(row.attempts, row.body is not None),  # replayed: counted anew, but it was begun once
            written_at=from_us(row.created_at),
        )
        for row in outbox.deliveries_of_alert(connection, known.id, hold=hold)
    ]
    newest = next((row for row in reversed(before) if row.type in TOLD_ONCE), None)
    suppressed = newest.suppressed if newest is not None else None
    return AlertView(
        alert_id=known.id,
        severity=known.severity,
        state=known.state,
        change=known.change,
        suppressed=Suppression(suppressed) if suppressed is not None else None,
        held=TransitionType(newest.type) if newest is not None else TransitionType.OPENED,
        acknowledged=known.acknowledged,
        deliveries=past,
    )


def _found_hook(connection: Connection, slug: str) -> Definition:
    hook = catalog.find_definition(connection, "hook", slug)
    assert hook is not None  # noqa: S101 - a check is only saved with hooks that exist, and nothing is deleted
    return hook
