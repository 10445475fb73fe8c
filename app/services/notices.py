"""What a notice says: one mapping a delivery, read from rows. How a hook kind writes it stands in formats.notices."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.formats import shapes
from app.store import alerts, catalog, history
from app.store.engine import Connection, from_us
from app.store.outbox import DeliveryRow

_LONGEST_QUERY = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Where the links of a notification lead; `{check}` and `{rule}` are replaced."""

    public_url: str
    dashboard_url: str | None = None
    runbook_url: str | None = None


def notice(connection: Connection, delivery: DeliveryRow, hook: str, links: Links, now: datetime) -> dict[str, Any]:
    """Say what a delivery tells, in the words of the contract: `type`, `version`, `timestamp` and `data`.

    Of a test message `data` has no more than a summary and links. Each hook kind makes bytes of it, see
    formats.notices; those are frozen at the first attempt.
    """
    if delivery.alert_id is None or delivery.transition_id is None:
        data: dict[str, Any] = {
            "summary": f"Test message from Coalmine to hook {hook}",
            "links": {"check": None, "run": None, "dashboard": None, "runbook": None},
        }
    else:
        data = _alert_data(connection, delivery.alert_id, delivery.transition_id, delivery.type, links)
    return {"type": delivery.type, "version": 1, "timestamp": shapes.time_text(now), "data": data}


def _alert_data(connection: Connection, alert_id: int, transition_id: int, kind: str, links: Links) -> dict[str, Any]:
    alert = alerts.find_alert(connection, alert_id)
    assert alert is not None  # noqa: S101 - the delivery's foreign key
    transition = alerts.find_transition(connection, transition_id)
    check = catalog.definition_by_id(connection, alert.check_id)
    run = history.find_run(connection, transition.run_id) if transition.run_id is not None else None
    seen = transition.evidence.get("window") or [{}]
    degraded = [_worst(canary) for canary in transition.evidence.get("canaries", [])]
    total = run.degraded if run is not None else None
    return {
        "alert_id": str(alert.id),
        "dedupe_key": alert.dedupe_key,
        "severity": transition.severity,
        "summary": _summary(kind, alert.check, transition.severity, transition.reason, total),
        "reason": transition.reason,
        "check": alert.check,
        "suite": check.body["suite"],
        "retriever": check.body["retriever"],
        "rule": alert.rule_key,
        "kind": alert.kind,
        "scope": alert.scope,
        "opened_at": shapes.time_text(from_us(alert.opened_at)) if alert.opened_at is not None else None,
        "resolved_at": shapes.time_text(from_us(alert.resolved_at)) if alert.resolved_at is not None else None,
        "run_id": str(run.id) if run is not None else None,
        "health_score": shapes.number(run.aggregates.get("health_score")) if run is not None else None,
        "coverage": shapes.number(run.aggregates.get("coverage")) if run is not None else None,
        "measure": transition.evidence.get("measure"),
        "value": shapes.number(seen[-1].get("value")),
        "threshold": shapes.number(seen[-1].get("threshold")),
        "baseline": None,
        "degraded_queries": [canary["query"] for canary in degraded],
        "degraded": degraded,
        "degraded_total": total,
        "links": _links(links, alert.check, alert.rule_key, transition.run_id),
    }


def _worst(canary: Mapping[str, Any]) -> dict[str, Any]:
    return {**canary, "query": canary["query"][:_LONGEST_QUERY], "cause": canary.get("cause")}


def _summary(kind: str, check: str, severity: str, reason: str, degraded: int | None) -> str:
    what = kind.removeprefix("alert.")
    count = f" ({degraded} degraded canaries)" if degraded else ""
    return f"[{what.upper()}] {severity} on {check}: {reason.rstrip('.')}{count}"


def _links(links: Links, check: str, rule: str, run_id: int | None) -> dict[str, str | None]:
    def filled(template: str | None) -> str | None:
        return template.replace("{check}", check).replace("{rule}", rule) if template else None

    return {
        "check": f"{links.public_url}/checks/{check}",
        "run": f"{links.public_url}/runs/{run_id}" if run_id is not None else None,
        "dashboard": filled(links.dashboard_url),
        "runbook": filled(links.runbook_url),
    }
