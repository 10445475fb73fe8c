"""Content of notifications: one notice per delivery, read from rows; `formats.delivery.notices` makes bytes of it."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from app.alerts.domain.advice import alert_advice
from app.alerts.domain.evidence import ChangedCanary, Degradation
from app.alerts.domain.lost_chunks import all_lost_text
from app.alerts.domain.summary import NOT_ABOUT_CANARIES, alert_summary
from app.alerts.service.alert_evidence import Explanation, explain, since
from app.alerts.service.alert_facts import facts_of, run_ids_of
from app.alerts.service.alert_links import Links, filled_links
from app.alerts.store import alerts, incidents
from app.alerts.store.alerts import AlertRow
from app.base.db.engine import Connection, from_us
from app.base.number_text import LATENCY_NAMES
from app.base.values import RuleKind
from app.catalog.store import definitions
from app.hooks.domain.notices import Notice, NoticeAlert, NoticeData
from app.hooks.store.outbox import DeliveryRow
from app.records import documents as shapes
from app.records.store import results
from app.reports.store import report_rows

_LONGEST_QUERY = 300
_NOT_DIAGNOSED: Final[Degradation] = {"cause": None, "cause_reason": None, "persistent": None}
_RESOLVED = "alert.resolved"
_GRAVE_AS_ITS_TRANSITION = frozenset({"alert.opened", "alert.escalated"})


def notice(connection: Connection, delivery: DeliveryRow, hook: str, links: Links, now: datetime) -> Notice:
    """Return the notice of a delivery; its bytes are frozen at the first attempt."""
    data: NoticeData
    if delivery.report_id is not None:
        data = _report_data(connection, delivery.report_id, links)
    elif delivery.incident_id is None or delivery.transition_id is None:
        data = {
            "summary": f"Test message from Coalmine to hook {hook}",
            "links": {"alert": None, "check": None, "run": None, "dashboard": None, "runbook": None},
        }
    else:
        data = _alert_data(connection, delivery.incident_id, delivery.transition_id, delivery.type, links)
    return {"type": delivery.type, "version": 1, "timestamp": shapes.time_text(now), "data": data}


def _report_data(connection: Connection, report_id: int, links: Links) -> NoticeData:
    """Return the data of a scheduled report, rendered when it was due."""
    content = report_rows.read_content(connection, report_id)
    run = f"{links.public_url}/runs/{content['run_id']}"
    since = f"&since={content['since_run_id']}" if content["since_run_id"] else ""
    return {
        "summary": content["summary"],
        "check": content["check"],
        "suite": content["suite"],
        "retriever": content["retriever"],
        "run_id": content["run_id"],
        "since_run_id": content["since_run_id"],
        "verdict": content["verdict"],
        "health_score": content["health_score"],
        "coverage": content["coverage"],
        "measure": content["measure"],
        "value": content["value"],
        "self_judged": content.get("self_judged", False),
        "degraded_total": content["degraded_total"],
        "lines": content["lines"],
        "markdown": content["markdown"],
        "html": content["html"],
        "links": {
            "alert": None,
            "check": f"{links.public_url}/checks/{content['check']}",
            "run": run,
            "report": f"{links.public_url}/v1/runs/{content['run_id']}/report?format=html{since}",
            "dashboard": None,
            "runbook": None,
        },
    }


def _alert_data(connection: Connection, incident_id: int, transition_id: int, kind: str, links: Links) -> NoticeData:
    """Return the data of an incident; `rule`, measure, value and canaries are of the alert of the transition."""
    incident = incidents.find_incident(connection, incident_id)
    assert incident is not None  # noqa: S101 - it goes with its deliveries
    transition = alerts.find_transition(connection, transition_id)
    alert = alerts.find_alert(connection, transition.alert_id)
    assert alert is not None  # noqa: S101 - the transition's foreign key
    members = alerts.alerts_of_incident(connection, incident_id)
    # An opening or escalation has its severity of then, however late it is sent; it never falls within an incident.
    severity = transition.severity if kind in _GRAVE_AS_ITS_TRANSITION else incident.severity
    check = definitions.definition_by_id(connection, alert.check_id)
    runs = results.find_runs(connection, run_ids_of(alert, transition))
    run = None if transition.run_id is None else runs.get(transition.run_id)
    about_canaries = alert.kind not in NOT_ABOUT_CANARIES
    explanation = explain(connection, transition.run_id, first_run=alert.first_run) if about_canaries else None
    fault_start = since(connection, alert.first_run)
    listed = transition.evidence.get("canaries", []) if about_canaries else []
    degraded = [_worst(canary, explanation) for canary in listed]
    degraded.sort(key=lambda canary: canary["persistent"] is False)  # canaries that were healthy on retry come last
    bad = kind != _RESOLVED
    is_measured = alert.kind != RuleKind.REGRESSION  # the evidence of a detector is no measure
    # The notice is about the incident, which may be older than the alert of the transition.
    facts = replace(facts_of(alert, runs, explanation, fault_start, transition), opened_at=from_us(incident.opened_at))
    return {
        "incident_id": str(incident.id),
        "class": incident.incident_class,
        "alerts": [_member(one) for one in members],
        "alert_id": str(incident.alert_id),
        "dedupe_key": incident.dedupe_key,
        "severity": severity,
        "summary": alert_summary(facts),
        "advice": alert_advice(facts) or None,
        "lost": (all_lost_text(degraded, transition.evidence.get("changed")) or None) if bad else None,
        "reason": transition.reason,
        "check": alert.check,
        "suite": check.body["suite"],
        "retriever": check.body["retriever"],
        "rule": alert.rule_key,
        "kind": alert.kind,
        "scope": alert.scope,
        "opened_at": shapes.time_text(incident.opened_at),
        "resolved_at": shapes.time_text(incident.resolved_at),
        "run_id": str(run.id) if run is not None else None,
        "health_score": shapes.number(run.aggregates.get("health_score")) if run is not None else None,
        "coverage": shapes.number(run.aggregates.get("coverage")) if run is not None else None,
        "measure": LATENCY_NAMES[facts.percentile]
        if alert.kind in {RuleKind.LATENCY, RuleKind.SLOWER}
        else transition.evidence.get("measure"),
        "value": shapes.number(facts.value) if is_measured else None,
        "self_judged": facts.self_judged,
        "threshold": shapes.number(facts.threshold) if is_measured else None,
        "baseline": shapes.number(facts.baseline) if is_measured else None,
        "degraded_queries": [canary["query"] for canary in degraded],
        "degraded": degraded,
        "degraded_total": run.degraded if run is not None else None,
        "changed_total": transition.evidence.get("changed") if about_canaries else None,
        "failing_before": transition.evidence.get("failing_before") if about_canaries else None,
        "recovered_on_retry": facts.changed.recovered_on_retry if facts.changed is not None and bad else None,
        "causes": (facts.changed.cause or None) if facts.changed is not None and bad else None,
        "fleet": explanation.fleet_view if explanation is not None and bad else None,
        "since": fault_start.view if fault_start is not None and bad else None,
        "links": filled_links(links, alert, transition.run_id),
    }


def _member(alert: AlertRow) -> NoticeAlert:
    """One alert that is or was part of an incident, in its current state."""
    return {
        "alert_id": str(alert.id),
        "rule": alert.rule_key,
        "kind": alert.kind,
        "scope": alert.scope,
        "severity": alert.severity,
        "state": alert.state,
        "reason": alert.reason,
    }


def _worst(canary: ChangedCanary, explanation: Explanation | None) -> ChangedCanary:
    """One canary with its cause; its rank may come from the diagnosis, which retrieves more hits than the run."""
    why = _NOT_DIAGNOSED if explanation is None else explanation.of(canary["key"])
    shown: ChangedCanary = {"lost": [], "lost_total": 0, **canary, "query": canary["query"][:_LONGEST_QUERY], **why}
    diagnosis = None if explanation is None else explanation.diagnoses.get(canary["key"])
    if canary["rank_now"] is None and diagnosis is not None:
        shown["rank_now"] = diagnosis.evidence.get("rank_now")
    return shown
