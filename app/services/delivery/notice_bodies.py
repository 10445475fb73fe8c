"""Content of notifications: one mapping per delivery, read from rows; `formats.delivery.notices` makes bytes of it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from app.domain.alerts.advice import alert_advice
from app.domain.alerts.lost_chunks import all_lost_text
from app.domain.alerts.summary import NOT_ABOUT_CANARIES, AlertFacts, alert_summary
from app.domain.model import RuleKind
from app.domain.number_text import LATENCY_NAMES
from app.formats.history import shapes
from app.services.alerts.alert_evidence import Explanation, explain, since
from app.services.alerts.alert_facts import facts_of, run_ids_of
from app.services.alerts.alert_links import Links, filled_links
from app.store.alerts import alerts, incidents
from app.store.alerts.alerts import AlertRow
from app.store.catalog import definitions
from app.store.delivery.outbox import DeliveryRow
from app.store.engine import Connection, from_us
from app.store.runs import results

_LONGEST_QUERY = 300
_RESOLVED = "alert.resolved"
_GRAVE_AS_ITS_TRANSITION = frozenset({"alert.opened", "alert.escalated"})


def notice(connection: Connection, delivery: DeliveryRow, hook: str, links: Links, now: datetime) -> dict[str, Any]:
    """Return the notice of a delivery: `type`, `version`, `timestamp` and `data`.

    `data` of a test message has only a summary and links. Its bytes are frozen at the first attempt.
    """
    if delivery.incident_id is None or delivery.transition_id is None:
        data: dict[str, Any] = {
            "summary": f"Test message from Coalmine to hook {hook}",
            "links": {"alert": None, "check": None, "run": None, "dashboard": None, "runbook": None},
        }
    else:
        data = _alert_data(connection, delivery.incident_id, delivery.transition_id, delivery.type, links)
    return {"type": delivery.type, "version": 1, "timestamp": shapes.time_text(now), "data": data}


def _alert_data(
    connection: Connection, incident_id: int, transition_id: int, kind: str, links: Links
) -> dict[str, Any]:
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
        **_numbers(RuleKind(alert.kind), transition.evidence, facts),
        "degraded_queries": [canary["query"] for canary in degraded],
        "degraded": degraded,
        "degraded_total": run.degraded if run is not None else None,
        "changed_total": transition.evidence.get("changed") if about_canaries else None,
        "failing_before": transition.evidence.get("failing_before") if about_canaries else None,
        "causes": (facts.changed.cause or None) if facts.changed is not None and bad else None,
        "fleet": explanation.fleet_view if explanation is not None and bad else None,
        "since": fault_start.view if fault_start is not None and bad else None,
        "links": filled_links(links, alert, transition.run_id),
    }


def _numbers(kind: RuleKind, evidence: Mapping[str, Any], facts: AlertFacts) -> dict[str, Any]:
    """Measured value and its bounds; none for a detector, whose evidence is no measure."""
    numbers = {"value": facts.value, "threshold": facts.threshold, "baseline": facts.baseline}
    if kind is RuleKind.REGRESSION:
        numbers = dict.fromkeys(numbers)
    measure = LATENCY_NAMES[facts.percentile] if kind is RuleKind.LATENCY else evidence.get("measure")
    return {"measure": measure, **{name: shapes.number(value) for name, value in numbers.items()}}


def _member(alert: AlertRow) -> dict[str, Any]:
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


def _worst(canary: Mapping[str, Any], explanation: Explanation | None) -> dict[str, Any]:
    """One canary with its cause; its rank may come from the diagnosis, which retrieves more hits than the run."""
    why = (
        {"cause": None, "cause_reason": None, "persistent": None}
        if explanation is None
        else explanation.of(canary["key"])
    )
    diagnosis = None if explanation is None else explanation.diagnoses.get(canary["key"])
    rank = (
        canary["rank_now"]
        if canary["rank_now"] is not None or diagnosis is None
        else diagnosis.evidence.get("rank_now")
    )
    return {"lost": [], "lost_total": 0, **canary, "query": canary["query"][:_LONGEST_QUERY], "rank_now": rank, **why}
