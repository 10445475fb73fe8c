"""Notices: what a delivery says of an incident, as webhooks send it."""

from typing_extensions import TypedDict

from app.domain.alerts.evidence import ChangedCanary
from app.domain.alerts.views import FleetView, SinceView
from app.domain.views import TimeText


class NoticeLinks(TypedDict):
    """Addresses of pages; None = not configured, or there is none."""

    alert: str | None
    check: str | None
    run: str | None
    dashboard: str | None
    runbook: str | None


class NoticeAlert(TypedDict):
    """One alert that is or was part of an incident, in its current state."""

    alert_id: str
    rule: str
    kind: str
    scope: str
    severity: str
    state: str
    reason: str


class NoticeText(TypedDict):
    """What every notice has, that of a test too."""

    summary: str
    links: NoticeLinks


NoticeClass = TypedDict("NoticeClass", {"class": str}, total=False)


class NoticeData(NoticeText, NoticeClass, total=False):
    """An incident; `rule`, measure, value and canaries are of the alert of the transition."""

    incident_id: str
    alerts: list[NoticeAlert]
    alert_id: str
    dedupe_key: str
    severity: str
    advice: str | None
    lost: str | None
    reason: str
    check: str
    suite: str
    retriever: str
    rule: str
    kind: str
    scope: str
    opened_at: TimeText
    resolved_at: TimeText | None
    run_id: str | None
    health_score: float | None
    coverage: float | None
    measure: str | None
    value: float | None
    threshold: float | None
    baseline: float | None
    degraded_queries: list[str]
    degraded: list[ChangedCanary]
    degraded_total: int | None
    changed_total: int | None
    failing_before: int | None
    causes: str | None
    fleet: FleetView | None
    since: SinceView | None


class Notice(TypedDict):
    """The notice of a delivery."""

    type: str
    version: int
    timestamp: TimeText
    data: NoticeData
