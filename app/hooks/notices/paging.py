"""Events of PagerDuty's Events API v2, without the routing key, which is added when they are sent.

https://developer.pagerduty.com/docs/send-alert-event: `summary` at most 1,024 characters, `dedup_key` at most 255,
`severity` one of critical, error, warning and info; an event at most 512 KB. A resolve needs no more than its key.
"""

import json
from collections.abc import Mapping
from typing import Final

from app.alerts.domain.state import IncidentClass, dedupe_keys
from app.hooks.domain import Hook, Notice, NoticeData
from app.hooks.notices.notice_text import NoticeText, clean, notice_text

ACTIONS: Final[Mapping[str, str]] = {"alert.acknowledged": "acknowledge", "alert.resolved": "resolve"}
"""What is no trigger. A trigger under a known key adds to its alert and may change its severity; it opens no other."""
_SEVERITIES = {"critical": "critical", "warning": "warning"}


def pagerduty_body(notice: Notice, message_id: str) -> bytes:
    """Write a notice for PagerDuty. A test opens an alert of its own, of severity `info`."""
    texts = notice_text(notice)
    action = ACTIONS.get(texts.type, "trigger")
    event: dict[str, object] = {
        "event_action": action,
        "dedup_key": texts.dedupe_key or f"coalmine/{message_id}"[:255],
    }
    if action == "trigger":
        event |= _trigger(texts, notice["data"])
    return json.dumps(event, ensure_ascii=True, separators=(",", ":")).encode()


def _trigger(texts: NoticeText, data: NoticeData) -> dict[str, object]:
    links = dict(texts.links)
    payload: dict[str, object] = {
        "summary": texts.summary,
        "source": texts.check or "coalmine",
        "severity": _SEVERITIES.get(texts.severity, "info"),
        "timestamp": texts.at,
        "custom_details": _details(texts),
    }
    payload |= {
        name: str(data.get(key))
        for name, key in (("component", "retriever"), ("group", "suite"), ("class", "class"))
        if data.get(key)
    }
    return {
        "payload": payload,
        "client": "Coalmine",
        **({"client_url": links["Alert"]} if "Alert" in links else {}),
        "links": [{"href": url, "text": name} for name, url in texts.links],
    }


def _details(texts: NoticeText) -> dict[str, object]:
    details: dict[str, object] = {"what": texts.headline}
    if texts.reason:
        details["reason"] = texts.reason
    if texts.advice:
        details["what to do"] = texts.advice
    details |= {name.lower(): value for name, value in texts.facts}
    if texts.canaries:
        details["canaries"] = list(texts.canaries)
    if texts.more:
        details["more canaries"] = texts.more
    if texts.before:
        details["failing before"] = texts.before
    return details


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
        "facts": "\n".join(texts.fact_lines),
        "canaries": "\n".join([*texts.canaries, *texts.remarks]),
        "alert_url": links.get("Alert", ""),
        "check_url": links.get("Check", ""),
        "run_url": links.get("Run", ""),
        "dashboard_url": links.get("Dashboard", ""),
        "runbook_url": links.get("Runbook", ""),
    }


def webhook_body(notice: Notice) -> bytes:
    """Write the notice as JSON in ASCII, which no proxy re-encodes."""
    return json.dumps(notice, ensure_ascii=True, separators=(",", ":")).encode()
