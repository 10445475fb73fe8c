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
class Told:
    """A delivery written for an alert before."""

    id: int
    hook: int
    type: TransitionType
    state: DeliveryState
    attempts: int
    """How many were begun: one under way counts, the receiver may have taken it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """An alert of the check as it stands after a decision; those just resolved are still among the concerns."""

    alert_id: int
    severity: Severity
    state: AlertState
    change: TransitionType | None = None
    """What just happened to it, None if it only stands as it did."""
    suppressed: Suppression | None = None
    """Why its last trigger was not sent at the time, as its transition row says."""
    told: Sequence[Told] = ()


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
    concerns: Sequence[Concern], hooks: Sequence[int], *, unreachable: Collection[int] = ()
) -> tuple[Announcement, ...]:
    """Decide what to tell, for all open and just resolved alerts of one check together.

    `hooks` are those of the check, in order; `unreachable` ones are disabled or gone and get nothing. One fault, one
    page: while a critical alert is open, warnings are held back, and announced once when it has resolved if they
    still fire. A resolve goes to every hook that may have heard of the alert, even one no longer on the check, and to
    no other; deliveries that were never attempted are cancelled instead.
    """
    reachable = [hook for hook in hooks if hook not in unreachable]
    critical = any(one.severity is Severity.CRITICAL and one.state in OPEN for one in concerns)
    said = [_say(one, reachable, unreachable, critical=critical) for one in concerns]
    return tuple(one for one in said if one is not None)


def _say(
    concern: Concern, hooks: Sequence[int], unreachable: Collection[int], *, critical: bool
) -> Announcement | None:
    """Decide about one alert; None = there is nothing to say."""
    held_back = critical and concern.severity is Severity.WARNING
    if concern.change is TransitionType.RESOLVED:
        return _resolve(concern, unreachable)
    if concern.change in TRIGGERS:
        if held_back:
            return Announcement(
                alert_id=concern.alert_id,
                type=concern.change,
                suppressed=Suppression.CRITICAL_FIRING,
                reason="Held back: a critical alert of this check is open, and one fault makes one page.",
            )
        reason = "Sent to the hooks of the check." if hooks else "Not sent: the check has no hook that is enabled."
        return Announcement(alert_id=concern.alert_id, type=concern.change, send=tuple(hooks), reason=reason)
    released = concern.suppressed is not None and not held_back and not _triggers(concern)
    if concern.change is None and concern.state is AlertState.FIRING and released and hooks:
        return Announcement(
            alert_id=concern.alert_id,
            type=TransitionType.OPENED,
            late=True,
            send=tuple(hooks),
            reason="Announced now: it was held back before and still fires.",
        )
    return None


def _resolve(concern: Concern, unreachable: Collection[int]) -> Announcement:
    """Send the resolve where the trigger may have arrived; take back what never left."""
    triggers = _triggers(concern)
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
    return Announcement(
        alert_id=concern.alert_id, type=TransitionType.RESOLVED, send=send, cancel=unsent, reason=reason
    )


def _triggers(concern: Concern) -> list[Told]:
    """List the deliveries that told, or are about to tell, that something is wrong."""
    return [one for one in concern.told if one.type in TRIGGERS and one.state is not DeliveryState.CANCELLED]
