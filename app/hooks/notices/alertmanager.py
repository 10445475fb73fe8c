"""Alerts as Alertmanager's API v2 takes them, a list of one: https://prometheus.io/docs/alerting/latest/alerts_api.

The labels are an incident's identity there: whatever changes one between trigger and resolve makes a second alert and
leaves the first to time out. So only what never changes while an incident is open is a label, and the severity and the
rules, which change, are annotations; who routes by severity gives the hook constant labels.
"""

import json

from app.alerts.domain.incidents import IncidentClass, dedupe_keys
from app.hooks.domain.hooks import Hook
from app.hooks.domain.notices import Notice, NoticeData
from app.hooks.notices.notice_text import NoticeText, clean, notice_text

_LABEL = 1_024


def alertmanager_body(hook: Hook, notice: Notice, message_id: str) -> bytes:
    """Write a notice for Alertmanager.

    Without `endsAt` an alert ends there `resolve_timeout` after it was sent last, so it is sent again while it fires.
    A test has no end either, and is not sent again.
    """
    texts = notice_text(notice)
    data = notice["data"]
    alert: dict[str, object] = {
        "labels": {**hook.labels, **_labels(texts, data, message_id)},
        "annotations": {name: value for name, value in _annotations(texts).items() if value},
        "startsAt": data.get("opened_at") or notice["timestamp"],
    }
    if texts.resolved:
        alert["endsAt"] = data.get("resolved_at") or notice["timestamp"]
    links = dict(texts.links)
    if "Alert" in links:
        alert["generatorURL"] = links["Alert"]
    return json.dumps([alert], ensure_ascii=True, separators=(",", ":")).encode()


def _labels(texts: NoticeText, data: NoticeData, message_id: str) -> dict[str, str]:
    incident_class = str(data.get("class") or "test")
    key = texts.dedupe_key or message_id
    if not data.get("class") or key in dedupe_keys(texts.check, IncidentClass(incident_class)):
        labels = {"alertname": _alertname(incident_class)}
    else:  # opened before there were incidents: it was sent under the labels of its rule, and has to end under them
        first = data["alerts"][0]
        rule = {"rule": clean(first["rule"], _LABEL), "scope": clean(first["scope"], _LABEL)}
        labels = {"alertname": _alertname(first["kind"]), **rule}
    labels |= {"service": "coalmine", "check": texts.check, "dedupe_key": key}
    return {name: value for name, value in labels.items() if value}


def _alertname(name: str) -> str:
    return "Coalmine" + "".join(word.capitalize() for word in name.split("_"))


def _annotations(texts: NoticeText) -> dict[str, str]:
    links = dict(texts.links)
    return {
        "summary": texts.summary,
        "description": texts.reason,
        "advice": texts.advice,
        "severity": texts.severity,
        "rules": ", ".join(texts.rules),
        "facts": "\n".join(f"{name}: {value}" for name, value in texts.facts),
        "canaries": "\n".join([*texts.canaries, *texts.remarks]),
        "alert_url": links.get("Alert", ""),
        "check_url": links.get("Check", ""),
        "run_url": links.get("Run", ""),
        "dashboard_url": links.get("Dashboard", ""),
        "runbook_url": links.get("Runbook", ""),
    }
