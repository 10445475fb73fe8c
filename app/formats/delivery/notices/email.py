"""News as an email (RFC 5322): plain text, and HTML that says the same, in which everything is escaped.

The bytes follow from the notice alone: date, message id and boundary too. Messages about one fault are a thread.
"""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from html import escape
from typing import Any

from app.domain.delivery.hooks import Hook
from app.formats.delivery.notices.story import Story, clean, story_of

_LONGEST_SUBJECT = 200
_COLOURS = {"critical": "#b91c1c", "warning": "#b45309"}
_STYLE = "font-family:sans-serif;font-size:14px;color:#111827"


def email_body(hook: Hook, notice: Mapping[str, Any], message_id: str) -> bytes:
    """Write a notice as the message this hook sends."""
    story, mail = story_of(notice), hook.mail
    assert mail is not None  # noqa: S101 - of a hook of this kind
    domain = mail.sender.rpartition("@")[2]
    message = EmailMessage(policy=SMTP)
    message["From"] = mail.sender
    message["To"] = ", ".join(mail.recipients)
    message["Subject"] = _literal(story.summary, _LONGEST_SUBJECT)
    message["Date"] = format_datetime(datetime.fromisoformat(notice["timestamp"]))
    message["Message-ID"] = f"<{_digest(message_id)}@{domain}>"
    if story.dedupe_key:
        # No message has this id: threads are told by what messages refer to, and a resent opening is no other thread.
        message["In-Reply-To"] = message["References"] = f"<{_digest(story.dedupe_key)}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message["X-Auto-Response-Suppress"] = "All"
    message.set_content(_text(story), cte="quoted-printable")
    message.add_alternative(_html(story), subtype="html", cte="quoted-printable")
    message.set_boundary(f"=_{_digest(message_id + story.summary)}")
    return message.as_bytes()


def _literal(text: str, limit: int) -> str:
    """Make a header of a text of strangers that says what the text says and nothing else.

    EmailMessage decodes the encoded words of RFC 2047 in what it is given, and writes what they hold, ends of lines
    included. So the sign that begins one is broken up, by a space that is seen: one that is not is taken out again.
    """
    return clean(clean(text, limit).replace("=?", "= ?"), limit)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _text(story: Story) -> str:
    parts = ["\n".join(part) for part in (_head(story), _facts(story), _canaries(story), _links(story)) if part]
    return "\n\n".join(parts) + "\n"


def _head(story: Story) -> list[str]:
    reason = [story.reason] if story.reason and story.reason not in story.summary else []
    return [story.summary, *reason, *story.next_step]


def _facts(story: Story) -> list[str]:
    return [f"{name}: {value}" for name, value in story.facts]


def _canaries(story: Story) -> list[str]:
    return [*(f"- {line}" for line in story.canaries), *story.remarks]


def _links(story: Story) -> list[str]:
    return [f"{name}: {url}" for name, url in story.links]


def _html(story: Story) -> str:
    return "\n".join(_elements(story)) + "\n"


def _elements(story: Story) -> Iterator[str]:
    colour = "#15803d" if story.resolved else _COLOURS.get(story.severity, "#374151")
    yield f'<!DOCTYPE html>\n<html lang="en"><body style="{_STYLE}">'
    yield f'<h1 style="font-size:18px;color:{colour}">{escape(story.summary)}</h1>'
    yield from (f"<p>{escape(line)}</p>" for line in _head(story)[1:])
    if story.facts:
        rows = (f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in story.facts)
        yield f'<table cellpadding="4">{"".join(rows)}</table>'
    if story.canaries:
        yield f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in story.canaries)}</ul>"
    yield from (f"<p>{escape(line)}</p>" for line in story.remarks)
    if story.links:
        links = (f'<a href="{escape(url)}">{escape(name)}</a>' for name, url in story.links)
        yield f"<p>{' · '.join(links)}</p>"
    yield "</body></html>"
