"""Views of deliveries, and of an alert with its deliveries, as JSON on the wire."""

from dataclasses import dataclass

from typing_extensions import TypedDict

from app.alerts.domain.views import AlertFields, ExplainedTransition, SinceView
from app.base.values import DeliveryState
from app.base.views import TimeText


class AttemptView(TypedDict):
    """An attempt to deliver."""

    at: TimeText
    http_status: int | None
    error: str | None
    detail: str | None
    latency_seconds: float | None


class DeliveryView(TypedDict):
    """One message to one hook, with its attempts."""

    id: str
    hook: str
    alert_id: str | None
    incident_id: str | None
    type: str
    state: DeliveryState
    reason: str | None
    created_at: TimeText
    next_attempt_at: TimeText | None
    waits_for: str | None
    """The delivery that has to be made first."""
    attempts: list[AttemptView]


class AlertDetail(AlertFields):
    """An alert with its transitions explained, and the deliveries of its incident."""

    transitions: list[ExplainedTransition]
    since: SinceView | None
    deliveries: list[DeliveryView]


@dataclass(frozen=True, slots=True, kw_only=True)
class HookReplay:
    """Counts of a replay of a hook's dead deliveries."""

    hook: str
    replayed: int
    overtaken: int
    """Left dead: overtaken by a later notification."""
