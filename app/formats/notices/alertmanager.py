"""Alerts as Alertmanager's API v2 takes them, a list of one: https://prometheus.io/docs/alerting/latest/alerts_api.

The labels are the alert's identity there: whatever changes one between trigger and resolve makes a second alert and
leaves the first to time out. So only what never changes while an alert is open is a label, and the severity, which an
escalation changes, is an annotation; who routes by severity gives the hook constant labels.
"""

import json
from collections.abc import Mapping
from typing import Any

from app.domain.hooks import Hook
from app.formats.notices.story import Story, clean, story_of

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
    if "Check" in links:
        alert["generatorURL"] = links["Check"]
    return json.dumps([alert], ensure_ascii=True, separators=(",", ":")).encode()


def _labels(story: Story, data: Mapping[str, Any], message_id: str) -> dict[str, str]:
    kind = str(data.get("kind") or "test")
    labels = {
        "alertname": "Coalmine" + "".join(word.capitalize() for word in kind.split("_")),
        "service": "coalmine",
        "check": story.check,
        "rule": clean(data.get("rule"), _LABEL),
        "scope": clean(data.get("scope"), _LABEL),
        "dedupe_key": story.dedupe_key or message_id,
    }
    return {name: value for name, value in labels.items() if value}


def _annotations(story: Story) -> dict[str, str]:
    links = dict(story.links)
    return {
        "summary": story.summary,
        "description": story.reason,
        "severity": story.severity,
        "facts": "\n".join(f"{name}: {value}" for name, value in story.facts),
        "canaries": "\n".join([*story.canaries, *story.remarks]),
        "run_url": links.get("Run", ""),
        "dashboard_url": links.get("Dashboard", ""),
        "runbook_url": links.get("Runbook", ""),
    }
