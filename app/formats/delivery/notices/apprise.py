"""News for Apprise: a title, a text and a type; what a service makes of them is Apprise's work."""

import json
import re
from collections.abc import Mapping
from typing import Any

from app.formats.delivery.notices.story import Story, story_of

_CALLS = re.compile(r"(?<=[<@#!&])(?=[\w!@#&^/])|(?<=\])(?=[(\[:])")
"""Between the characters that make mentions, links and tags of the services, and what they would call; and between
the words and the address of a link in Markdown."""
_BROKEN = "\u200b"


def apprise_body(notice: Mapping[str, Any]) -> bytes:
    """Write a notice for Apprise. Mentions and links are broken up: its services escape as they see fit, or not."""
    story = story_of(notice)
    message = {"title": defused(story.summary), "body": _text(story), "type": _type(story)}
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode()


def defused(text: str) -> str:
    """Break up what services could take for a mention, a tag or a link, by a space that is not seen."""
    return _CALLS.sub(_BROKEN, text)


def _text(story: Story) -> str:
    lines = [story.reason or story.summary, *story.next_step, *(f"{name}: {value}" for name, value in story.facts)]
    lines += [f"- {line}" for line in story.canaries]
    lines += story.remarks
    return "\n".join([*map(defused, lines), *(f"{name}: {url}" for name, url in story.links)])


def _type(story: Story) -> str:
    if story.test:
        return "info"
    if story.resolved:
        return "success"
    return "failure" if story.severity == "critical" else "warning"
