"""Notices for Apprise: a title, a text and a type, which Apprise formats for each service."""

import json
import re

from app.hooks.domain.notices import Notice
from app.hooks.notices.notice_text import NoticeText, notice_text

_CALLS = re.compile(r"(?<=[<@#!&])(?=[\w!@#&^/])|(?<=\])(?=[(\[:])")
"""Between the characters that make mentions, links and tags of the services, and what they would call; and between
the words and the address of a link in Markdown."""
_BROKEN = "\u200b"


def apprise_body(notice: Notice) -> bytes:
    """Write a notice for Apprise. Mentions and links are broken up: its services escape as they see fit, or not."""
    texts = notice_text(notice)
    message = {"title": defused(texts.summary), "body": _text(texts), "type": _type(texts)}
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode()


def defused(text: str) -> str:
    """Break up what services could take for a mention, a tag or a link, by an invisible space."""
    return _CALLS.sub(_BROKEN, text)


def _text(texts: NoticeText) -> str:
    lines = [
        texts.reason or texts.summary,
        *texts.next_step,
        *(f"{name}: {value}" for name, value in texts.facts),
    ]
    lines += [f"- {line}" for line in texts.canaries]
    lines += texts.remarks
    return "\n".join([*map(defused, lines), *(f"{name}: {url}" for name, url in texts.links)])


def _type(texts: NoticeText) -> str:
    if texts.test:
        return "info"
    if texts.resolved:
        return "success"
    return "failure" if texts.severity == "critical" else "warning"
