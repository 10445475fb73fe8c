"""Events of PagerDuty's Events API v2, without the routing key, which is added when they are sent.

https://developer.pagerduty.com/docs/send-alert-event: `summary` at most 1,024 characters, `dedup_key` at most 255,
`severity` one of critical, error, warning and info; an event at most 512 KB. A resolve needs no more than its key.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from app.formats.delivery.notices.story import Story, story_of

ACTIONS: Final[Mapping[str, str]] = {"alert.acknowledged": "acknowledge", "alert.resolved": "resolve"}
"""What is no trigger. A trigger under a known key adds to its alert and may change its severity; it opens no other."""
_SEVERITIES = {"critical": "critical", "warning": "warning"}


def pagerduty_body(notice: Mapping[str, Any], message_id: str) -> bytes:
    """Write a notice for PagerDuty. A test opens an alert of its own, of severity `info`."""
    story = story_of(notice)
    action = ACTIONS.get(story.type, "trigger")
    event: dict[str, Any] = {"event_action": action, "dedup_key": story.dedupe_key or f"coalmine/{message_id}"[:255]}
    if action == "trigger":
        event |= _trigger(story, notice["data"])
    return json.dumps(event, ensure_ascii=True, separators=(",", ":")).encode()


def _trigger(story: Story, data: Mapping[str, Any]) -> dict[str, Any]:
    links = dict(story.links)
    payload = {
        "summary": story.summary,
        "source": story.check or "coalmine",
        "severity": _SEVERITIES.get(story.severity, "info"),
        "timestamp": story.at,
        "custom_details": _details(story),
    }
    payload |= {
        name: str(data[key])
        for name, key in (("component", "retriever"), ("group", "suite"), ("class", "class"))
        if data.get(key)
    }
    return {
        "payload": payload,
        "client": "Coalmine",
        **({"client_url": links["Alert"]} if "Alert" in links else {}),
        "links": [{"href": url, "text": name} for name, url in story.links],
    }


def _details(story: Story) -> dict[str, Any]:
    details: dict[str, Any] = {"what": story.headline}
    if story.reason:
        details["reason"] = story.reason
    if story.advice:
        details["what to do"] = story.advice
    details |= {name.lower(): value for name, value in story.facts}
    if story.canaries:
        details["canaries"] = list(story.canaries)
    if story.more:
        details["more canaries"] = story.more
    if story.before:
        details["failing before"] = story.before
    return details
