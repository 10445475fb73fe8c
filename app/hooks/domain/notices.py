"""Notices: what a delivery says of an incident or by a scheduled report, as webhooks send it."""

from typing import NotRequired

from typing_extensions import TypedDict

from app.alerts.domain.evidence import ChangedCanary
from app.alerts.domain.views import FleetView, SinceView
from app.base.views import TimeText


class NoticeLinks(TypedDict):
    """Addresses of pages; None = not configured, or there is none."""

    alert: str | None
    check: str | None
    run: str | None
    dashboard: str | None
    runbook: str | None
    report: NotRequired[str]
    """Of a scheduled report alone."""


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
    self_judged: bool
    """Whether the measure is recall over judgments of the retriever's own first hits alone."""
    threshold: float | None
    baseline: float | None
    degraded_queries: list[str]
    degraded: list[ChangedCanary]
    degraded_total: int | None
    changed_total: int | None
    failing_before: int | None
    recovered_on_retry: int | None
    """Of the changed: those that were healthy on every retry, which the summary leaves out."""
    causes: str | None
    fleet: FleetView | None
    since: SinceView | None
    verdict: str | None
    """This and what follows are of a scheduled report alone."""
    since_run_id: str | None
    lines: list[str]
    markdown: str
    html: str


class ReportContent(TypedDict):
    """What a scheduled report says, rendered when it was due."""

    summary: str
    lines: list[str]
    """What comes first, in sentences without full stops."""
    markdown: str
    html: str
    check: str
    suite: str
    retriever: str
    run_id: str
    since_run_id: str | None
    """The run of the report before, of which it says what changed."""
    verdict: str | None
    health_score: float | None
    coverage: float | None
    measure: str | None
    """The one to read first, see `measure_guide`."""
    value: float | None
    self_judged: NotRequired[bool]
    """Absent from what earlier releases rendered."""
    degraded_total: int | None


class Notice(TypedDict):
    """The notice of a delivery."""

    type: str
    version: int
    timestamp: TimeText
    data: NoticeData
