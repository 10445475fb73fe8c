"""Incidents: the alerts of one check and class that are open together, with their keys and deliveries as values.

Which notifications follow for an incident is decided in `notification_plan`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from app.alerts.domain.alert_state import AlertState, TransitionType
from app.base.counts import counted
from app.base.values import DeliveryState, RuleKind, Severity

NON_REPEATING: Final = frozenset({TransitionType.OPENED, TransitionType.ESCALATED, TransitionType.UPDATED})
"""Changes of an alert that are worth one notification; where it is withheld, it is sent later or by another."""
TRIGGERS: Final = NON_REPEATING | {TransitionType.REMINDED}
"""Notifications of a fault; the others mean nothing to a receiver that got none of these."""


class IncidentClass(StrEnum):
    """Kind of fault: alerts of one check and class that are open together are one incident."""

    OUTAGE = "outage"
    LATENCY = "latency"
    QUALITY = "quality"


_CLASSES: Final[Mapping[RuleKind, IncidentClass]] = MappingProxyType(
    {
        RuleKind.PROBE_ERRORS: IncidentClass.OUTAGE,
        RuleKind.NO_DATA: IncidentClass.OUTAGE,
        RuleKind.LATENCY: IncidentClass.LATENCY,
        RuleKind.SLOWER: IncidentClass.LATENCY,
    }
)


def class_of(kind: RuleKind) -> IncidentClass:
    """Class of the incidents that alerts of a rule of this kind belong to."""
    return _CLASSES.get(kind, IncidentClass.QUALITY)


def dedupe_key(check: str, incident_class: IncidentClass) -> str:
    """Key under which receivers deduplicate: the same for each incident of the check and class.

    A slug has at most 64 plain characters, so the key is far below PagerDuty's limit of 255.
    """
    return f"coalmine/{check}/{incident_class}"


def dedupe_keys(check: str, incident_class: IncidentClass) -> tuple[str, str]:
    """Keys of incidents of the class: the usual one, and the one used while another fault is open under it.

    A rule of a release without incidents may have the name of a class: its alert was announced under that class's key.
    No rule's own key has a slash in it.
    """
    key = dedupe_key(check, incident_class)
    return key, f"{key}/2"


class Suppression(StrEnum):
    """Why a change of an alert has no notification of its own."""

    SILENCED = "silenced"
    INCIDENT_OPEN = "incident_open"
    """Its incident was open already, and the change does not justify another message."""
    RECENT_UPDATE = "recent_update"
    """The incident was updated within the hour; the next notification carries it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDelivery:
    """A delivery written for an incident before."""

    id: int
    hook: int
    type: TransitionType
    state: DeliveryState
    attempts: int
    """Attempts begun: one under way counts, the receiver may have taken it."""
    written_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An unresolved alert of the check after a decision, or one just resolved."""

    alert_id: int
    kind: RuleKind
    severity: Severity
    state: AlertState
    change: TransitionType | None = None
    """What just happened to it, None = no change."""
    suppression: Suppression | None = None
    """Why its newest notification was not sent, by the transition's row."""
    acknowledged: bool = False
    silence: str | None = None
    """The slug of the silence that matches it now."""
    incident_id: int | None = None
    """The incident it entered."""

    @property
    def is_notifiable(self) -> bool:
        """Whether it fires and is not silenced."""
        return self.state is AlertState.FIRING and self.silence is None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIncident:
    """An unresolved incident, by its row."""

    id: int
    incident_class: IncidentClass
    alert_id: int
    """Its first alert."""
    severity: Severity
    updated_at: datetime | None = None
    """When its last `alert.updated` was written."""
    deliveries: Sequence[PastDelivery] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipients:
    """The hooks of the check, in order, and which hooks get nothing."""

    hooks: Sequence[int]
    unreachable: Collection[int] = ()
    """Disabled or gone."""
    disabled: Collection[int] = ()
    """Those of the unreachable that may be back."""

    @property
    def reachable(self) -> tuple[int, ...]:
        """The hooks of the check that are in force."""
        return tuple(hook for hook in self.hooks if hook not in self.unreachable)


def still_firing(reason: str, since: datetime, now: datetime) -> str:
    """Text of a reminder: for how long an incident has been open, and why."""
    minutes = max(int((now - since).total_seconds() // 60), 0)
    days, hours = divmod(minutes // 60, 24)
    spans = ((days, "day"), (hours, "hour"), (minutes % 60, "minute"))
    length = " and ".join([counted(count, unit) for count, unit in spans if count][:2])
    return f"Still firing{f' after {length}' if length else ''}: {reason}"
