"""Announcing: which changes of a check's alerts are told to whom, and why the others are not.

What changed was decided in alerting; how one delivery is tried and retried stands in delivering. Everything that
suppresses delivery is decided here and never touches evaluation.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.domain.alerting import OPEN, AlertState, TransitionType
from app.domain.delivering import DeliveryState
from app.domain.model import Severity

TRIGGERS: Final = frozenset({TransitionType.OPENED, TransitionType.ESCALATED, TransitionType.REMINDED})
"""What tells a receiver that something is wrong; the rest means nothing to one that never heard of it."""


class Suppression(StrEnum):
    """Why a change is recorded and shown, but not sent."""

    CRITICAL_FIRING = "critical_firing"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDelivery:
    """A delivery written for an alert before."""

    id: int
    hook: int
    type: TransitionType
    state: DeliveryState
    attempts: int
    """How many were begun: one under way counts, the receiver may have taken it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertView:
    """An alert of the check as it stands after a decision; those just resolved are still among the views."""

    alert_id: int
    severity: Severity
    state: AlertState
    change: TransitionType | None = None
    """What just happened to it, None if it only stands as it did."""
    suppressed: Suppression | None = None
    """Why its last trigger was not sent at the time, as its transition row says."""
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
    cancel: tuple[int, ...] = ()
    """Deliveries never attempted that are no longer to be sent."""
    suppressed: Suppression | None = None
    """To be recorded with the transition."""
    reason: str
    """A sentence for people."""


def announce(
    views: Sequence[AlertView], hooks: Sequence[int], *, unreachable: Collection[int] = ()
) -> tuple[Announcement, ...]:
    """Decide what to tell, for all open and just resolved alerts of one check together.

    `hooks` are those of the check, in order; `unreachable` ones are disabled or gone and get nothing. One fault, one
    page: while a critical alert is open, warnings are held back, and announced once when it has resolved if they
    still fire. A resolve goes to every hook that may have heard of the alert, even one no longer on the check, and to
    no other; deliveries that were never attempted are cancelled instead.
    """
    reachable = [hook for hook in hooks if hook not in unreachable]
    critical = any(one.severity is Severity.CRITICAL and one.state in OPEN for one in views)
    announcements = [_announcement(one, reachable, unreachable, critical=critical) for one in views]
    return tuple(one for one in announcements if one is not None)


def _announcement(
    view: AlertView, hooks: Sequence[int], unreachable: Collection[int], *, critical: bool
) -> Announcement | None:
    """Decide about one alert; None = there is nothing to say."""
    held_back = critical and view.severity is Severity.WARNING
    if view.change is TransitionType.RESOLVED:
        return _resolve(view, unreachable)
    if view.change in TRIGGERS:
        if held_back:
            return Announcement(
                alert_id=view.alert_id,
                type=view.change,
                suppressed=Suppression.CRITICAL_FIRING,
                reason="Held back: a critical alert of this check is open, and one fault makes one page.",
            )
        reason = "Sent to the hooks of the check." if hooks else "Not sent: the check has no hook that is enabled."
        return Announcement(alert_id=view.alert_id, type=view.change, send=tuple(hooks), reason=reason)
    released = view.suppressed is not None and not held_back and not _triggers(view)
    if view.change is None and view.state is AlertState.FIRING and released and hooks:
        return Announcement(
            alert_id=view.alert_id,
            type=TransitionType.OPENED,
            late=True,
            send=tuple(hooks),
            reason="Announced now: it was held back before and still fires.",
        )
    return None


def _resolve(view: AlertView, unreachable: Collection[int]) -> Announcement:
    """Send the resolve where the trigger may have arrived; take back what never left."""
    triggers = _triggers(view)
    heard = {one.hook for one in triggers if one.attempts > 0}
    unsent = tuple(one.id for one in triggers if one.state is DeliveryState.PENDING and one.attempts == 0)
    send = tuple(dict.fromkeys(one.hook for one in triggers if one.hook in heard and one.hook not in unreachable))
    if send:
        reason = "Sent to every hook that may have heard of the alert."
    elif heard:
        reason = "Not sent: the hooks that heard of the alert are disabled or gone."
    elif unsent:
        reason = "Cancelled together with the trigger, which had not been tried yet."
    else:
        reason = "Not sent: the alert was never announced."
    return Announcement(alert_id=view.alert_id, type=TransitionType.RESOLVED, send=send, cancel=unsent, reason=reason)


def _triggers(view: AlertView) -> list[PastDelivery]:
    """List the deliveries that told, or are about to tell, that something is wrong."""
    return [one for one in view.deliveries if one.type in TRIGGERS and one.state is not DeliveryState.CANCELLED]
