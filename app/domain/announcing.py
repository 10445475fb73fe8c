"""Announcing: which changes of a check's alerts are told to whom, and why the others are not.

What changed was decided in alerting; how one delivery is tried and retried stands in delivering. Everything that
suppresses delivery is decided here and never touches evaluation.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from app.domain.alerting import OPEN, AlertState, TransitionType
from app.domain.counting import counted
from app.domain.delivering import DeliveryState
from app.domain.model import Severity

TOLD_ONCE: Final = frozenset({TransitionType.OPENED, TransitionType.ESCALATED})
"""What is told once: where it was held back, later."""
TRIGGERS: Final = TOLD_ONCE | {TransitionType.REMINDED}
"""What tells a receiver that something is wrong; the rest means nothing to one that never heard of it."""
NO_SILENCES: Final[Mapping[int, str]] = MappingProxyType({})


class Suppression(StrEnum):
    """Why a change is recorded and shown, but not sent."""

    CRITICAL_FIRING = "critical_firing"
    SILENCED = "silenced"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDelivery:
    """A delivery written for an alert before."""

    id: int
    hook: int
    type: TransitionType
    state: DeliveryState
    attempts: int
    """How many were begun: one under way counts, the receiver may have taken it."""
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertView:
    """An alert of the check as it stands after a decision; those just resolved are still among the views."""

    alert_id: int
    severity: Severity
    state: AlertState
    change: TransitionType | None = None
    """What just happened to it, None if it only stands as it did."""
    suppressed: Suppression | None = None
    """Why its opening or its last escalation is not sent yet, as the transition's row says."""
    held: TransitionType = TransitionType.OPENED
    """Which of the two that is."""
    acknowledged: bool = False
    deliveries: Sequence[PastDelivery] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What is to be written for one alert: new deliveries, cancelled ones, or why there are none."""

    alert_id: int
    type: TransitionType
    """The transition the deliveries carry: the change, or the alert's opening when it is announced late."""
    late: bool = False
    """The transition is an older one, held back until now."""
    send: tuple[int, ...] = ()
    """Hooks that get a delivery."""
    owe: tuple[int, ...] = ()
    """Disabled hooks that may have heard of what is over: they get a delivery that waits until they are enabled."""
    cancel: tuple[int, ...] = ()
    """Deliveries never attempted that are no longer to be sent."""
    suppressed: Suppression | None = None
    """To be recorded with the transition."""
    silence: str | None = None
    """The slug of the silence that suppresses it."""
    reason: str
    """A sentence for people."""


def announce(
    views: Sequence[AlertView],
    hooks: Sequence[int],
    *,
    unreachable: Collection[int] = (),
    disabled: Collection[int] = (),
    silenced: Mapping[int, str] = NO_SILENCES,
) -> tuple[Announcement, ...]:
    """Decide what to tell, for all open and just resolved alerts of one check together.

    `hooks` are those of the check, in order; `unreachable` ones are disabled or gone and get nothing; `disabled` are
    those of them that may be back. `silenced` names the silence by the id of the alert of which it keeps news back now.
    One fault, one page: while a critical alert is open, warnings are held back. What was held back or silenced is
    announced once when nothing keeps it back any more, if it still fires. A resolve goes to every hook that may have
    heard of the alert, even one no longer on the check, silence or not, and to no other (disabled ones are owed it);
    deliveries that were never attempted are cancelled instead.
    """
    reachable = [hook for hook in hooks if hook not in unreachable]
    kept = {one.alert_id: why for one in views if (why := kept_back(one, views, silenced)) is not None}
    announcements = [
        _resolve(one, unreachable, disabled)
        if one.change is TransitionType.RESOLVED
        else _announcement(one, reachable, kept.get(one.alert_id), silenced)
        for one in views
    ]
    return tuple(one for one in announcements if one is not None)


def kept_back(
    view: AlertView, views: Sequence[AlertView], silenced: Mapping[int, str] = NO_SILENCES
) -> Suppression | None:
    """Say what keeps news of an alert back now, for all alerts of its check together; None = nothing does."""
    if view.alert_id in silenced:
        return Suppression.SILENCED
    critical = any(one.severity is Severity.CRITICAL and one.state in OPEN for one in views)
    return Suppression.CRITICAL_FIRING if critical and view.severity is Severity.WARNING else None


def reminders(
    views: Sequence[AlertView],
    hooks: Sequence[int],
    every: timedelta | None,
    now: datetime,
    *,
    unreachable: Collection[int] = (),
    silenced: Mapping[int, str] = NO_SILENCES,
) -> tuple[int, ...]:
    """List the alerts of a check that people are to be reminded of now.

    That is what fires, was announced, is not acknowledged, and of which nobody was told for as long as `every`; never
    what is kept back, and never to a hook that has not taken what it was told before.
    """
    reachable = [hook for hook in hooks if hook not in unreachable]
    return tuple(
        one.alert_id
        for one in views
        if (due := reminder_due(one, every)) is not None
        and due <= now
        and kept_back(one, views, silenced) is None
        and _caught_up(one, reachable)
    )


def reminder_due(view: AlertView, every: timedelta | None) -> datetime | None:
    """Say when people are to be reminded of an alert if nothing changes; None = they are not."""
    if every is None or view.acknowledged or view.state is not AlertState.FIRING or view.change is not None:
        return None
    told = [one.written_at for one in _triggers(view) if one.written_at is not None]
    return max(told) + every if told else None


def still_firing(reason: str, since: datetime, now: datetime) -> str:
    """Say in a reminder for how long an alert has been open, and why."""
    minutes = max(int((now - since).total_seconds() // 60), 0)
    days, hours = divmod(minutes // 60, 24)
    spans = ((days, "day"), (hours, "hour"), (minutes % 60, "minute"))
    told = " and ".join([counted(count, unit) for count, unit in spans if count][:2])
    return f"Still firing{f' after {told}' if told else ''}: {reason}"


def _announcement(
    view: AlertView,
    hooks: Sequence[int],
    kept: Suppression | None,
    silenced: Mapping[int, str],
) -> Announcement | None:
    """Decide about one alert that is not over; None = there is nothing to say."""
    if view.change in TRIGGERS:
        if kept is not None:
            silence = silenced.get(view.alert_id)
            return Announcement(
                alert_id=view.alert_id,
                type=view.change,
                suppressed=kept,
                silence=silence,
                reason=_why_kept(silence),
            )
        told = _caught_up(view, hooks) if view.change is TransitionType.REMINDED else tuple(hooks)
        reason = "Sent to the hooks of the check." if hooks else "Not sent: the check has no hook that is enabled."
        return Announcement(alert_id=view.alert_id, type=view.change, send=told, reason=reason)
    heard = bool(_triggers(view))
    released = view.suppressed is not None and kept is None and (not heard or view.held is TransitionType.ESCALATED)
    if view.change is None and view.state is AlertState.FIRING and released and hooks:
        return Announcement(
            alert_id=view.alert_id,
            type=view.held if heard else TransitionType.OPENED,
            late=True,
            send=tuple(hooks),
            reason="Announced now: it was held back before and still fires.",
        )
    return None


def _why_kept(silence: str | None) -> str:
    if silence is not None:
        return f"Held back by the silence '{silence}'; what still fires when it is over is told then."
    return "Held back: a critical alert of this check is open, and one fault makes one page."


def _caught_up(view: AlertView, hooks: Sequence[int]) -> tuple[int, ...]:
    """Give the hooks to which nothing about the alert is still on its way."""
    waiting = {one.hook for one in view.deliveries if one.state is DeliveryState.PENDING}
    return tuple(hook for hook in hooks if hook not in waiting)


def _resolve(view: AlertView, unreachable: Collection[int], disabled: Collection[int]) -> Announcement:
    """Send the resolve where the trigger may have arrived; take back what never left."""
    triggers = _triggers(view)
    heard = {one.hook for one in triggers if one.attempts > 0}
    unsent = tuple(one.id for one in triggers if one.state is DeliveryState.PENDING and one.attempts == 0)
    hooks = tuple(dict.fromkeys(one.hook for one in triggers if one.hook in heard))
    send = tuple(hook for hook in hooks if hook not in unreachable)
    owe = tuple(hook for hook in hooks if hook in disabled)
    if send:
        reason = "Sent to every hook that may have heard of the alert."
    elif owe:
        reason = "Not sent yet: the hooks that heard of the alert are disabled, and hear of its end once saved again."
    elif heard:
        reason = "Not sent: the hooks that heard of the alert are disabled or gone."
    elif unsent:
        reason = "Cancelled together with the trigger, which had not been tried yet."
    else:
        reason = "Not sent: the alert was never announced."
    return Announcement(
        alert_id=view.alert_id, type=TransitionType.RESOLVED, send=send, owe=owe, cancel=unsent, reason=reason
    )


def _triggers(view: AlertView) -> list[PastDelivery]:
    """List the deliveries that told, or are about to tell, that something is wrong."""
    return [one for one in view.deliveries if one.type in TRIGGERS and one.state is not DeliveryState.CANCELLED]
