"""Alerts as Alertmanager's API v2 takes them, a list of one: https://prometheus.io/docs/alerting/latest/alerts_api.

The labels are an incident's identity there: whatever changes one between trigger and resolve makes a second alert and
leaves the first to time out. So only what never changes while an incident is open is a label, and the severity and the
rules, which change, are annotations; who routes by severity gives the hook constant labels.
"""

import json
from collections.abc import Mapping
from typing import Any

from app.domain.alerts.incidents import IncidentClass, dedupe_keys
from app.domain.delivery.hooks import Hook
from app.formats.delivery.notices.story import Story, clean, story_of

_LABEL = 1_024


def alertmanager_body(hook: Hook, notice: Mapping[str, Any], message_id: str) -> bytes:
    """Write a notice for Alertmanager.

    Without `endsAt` an alert ends there `resolve_timeout` after it was sent last, so it is sent again while it fires.
    A test says nothing of its end either, and is not sent again.
    """
    story = story_of(notice)
    data = notice["data"]
    alert: dict[str, Any] = {
        "labels": {**hook.labels, **_labels(story, data, message_id)},
        "annotations": {name: value for name, value in _annotations(story).items() if value},
        "startsAt": data.get("opened_at") or notice["timestamp"],
    }
    if story.resolved:
        alert["endsAt"] = data.get("resolved_at") or notice["timestamp"]
    links = dict(story.links)
    if "Alert" in links:
        alert["generatorURL"] = links["Alert"]
    return json.dumps([alert], ensure_ascii=True, separators=(",", ":")).encode()


def _labels(story: Story, data: Mapping[str, Any], message_id: str) -> dict[str, str]:
    incident_class = str(data.get("class") or "test")
    first: Mapping[str, Any] = next(iter(data.get("alerts") or ()), {})
    key = story.dedupe_key or message_id
    if not data.get("class") or key in dedupe_keys(story.check, IncidentClass(incident_class)):
        labels = {"alertname": _alertname(incident_class)}
    else:  # opened before there were incidents: it was sent under the labels of its rule, and has to end under them
        rule = {name: clean(first.get(name), _LABEL) for name in ("rule", "scope")}
        labels = {"alertname": _alertname(str(first.get("kind") or incident_class)), **rule}
    labels |= {"service": "coalmine", "check": story.check, "dedupe_key": key}
    return {name: value for name, value in labels.items() if value}


def _alertname(name: str) -> str:
    return "Coalmine" + "".join(word.capitalize() for word in name.split("_"))


def _annotations(story: Story) -> dict[str, str]:
    links = dict(story.links)
    return {
        "summary": story.summary,
        "description": story.reason,
        "advice": story.advice,
        "severity": story.severity,
        "rules": ", ".join(story.rules),
        "facts": "\n".join(f"{name}: {value}" for name, value in story.facts),
        "canaries": "\n".join([*story.canaries, *story.remarks]),
        "alert_url": links.get("Alert", ""),
        "check_url": links.get("Check", ""),
        "run_url": links.get("Run", ""),
        "dashboard_url": links.get("Dashboard", ""),
        "runbook_url": links.get("Runbook", ""),
    }
