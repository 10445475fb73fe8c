"""Events of PagerDuty's Events API v2, without the routing key, which is added when they are sent.

https://developer.pagerduty.com/docs/send-alert-event: `summary` at most 1,024 characters, `dedup_key` at most 255,
`severity` one of critical, error, warning and info; an event at most 512 KB. A resolve needs no more than its key.
"""

import json
from collections.abc import Mapping
from typing import Final

from app.hooks.domain.notices import Notice, NoticeData
from app.hooks.notices.notice_text import NoticeText, notice_text

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
