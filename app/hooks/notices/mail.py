"""Notices as an email (RFC 5322): plain text, and the same as escaped HTML.

The bytes follow from the notice alone: date, message id and boundary too. Messages about one fault are a thread.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from html import escape
from typing import Final

from app.base.errors import ConfigurationError
from app.hooks.domain import TAKES_NO_REPORT, Hook, HookKind, Notice
from app.hooks.notices.notice_text import NoticeText, clean, notice_text
from app.hooks.notices.paging import webhook_body
from app.hooks.notices.slack import slack_body

_LONGEST_SUBJECT = 200
_COLOURS = {"critical": "#b91c1c", "warning": "#b45309"}
_STYLE = "font-family:sans-serif;font-size:14px;color:#111827"


def email_body(hook: Hook, notice: Notice, message_id: str) -> bytes:
    """Write a notice as the message this hook sends."""
    texts = notice_text(notice)
    parts = (_head(texts), texts.fact_lines, texts.canary_lines, texts.link_lines)
    text = "\n\n".join("\n".join(part) for part in parts if part) + "\n"
    html = "\n".join(_elements(texts)) + "\n"
    return mail_body(hook, notice, message_id, text=text, html=html, thread=texts.dedupe_key)


def mail_body(hook: Hook, notice: Notice, message_id: str, *, text: str, html: str, thread: str) -> bytes:
    """Write a message of a plain text and the same as HTML; those with the same `thread`, if any, belong together."""
    summary, mail = notice_text(notice).summary, hook.mail
    assert mail is not None  # noqa: S101 - of a hook of this kind
    domain = mail.sender.rpartition("@")[2]
    message = EmailMessage(policy=SMTP)
    message["From"] = mail.sender
    message["To"] = ", ".join(mail.recipients)
    message["Subject"] = _literal(summary, _LONGEST_SUBJECT)
    message["Date"] = format_datetime(datetime.fromisoformat(notice["timestamp"]))
    message["Message-ID"] = f"<{_digest(message_id)}@{domain}>"
    if thread:
        # No message has this id: mail clients thread by references, and a resent opening joins the same thread.
        message["In-Reply-To"] = message["References"] = f"<{_digest(thread)}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message["X-Auto-Response-Suppress"] = "All"
    message.set_content(text, cte="quoted-printable")
    message.add_alternative(html, subtype="html", cte="quoted-printable")
    message.set_boundary(f"=_{_digest(message_id + summary)}")
    return message.as_bytes()


def _literal(text: str, limit: int) -> str:
    """Header value of an untrusted text, without encoded words.

    EmailMessage decodes the encoded words of RFC 2047 in what it is given, and writes what they hold, ends of lines
    included. So the sign that begins one is broken up, by a visible space: an invisible one is removed again.
    """
    return clean(clean(text, limit).replace("=?", "= ?"), limit)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _head(texts: NoticeText) -> list[str]:
    reason = [texts.reason] if texts.reason and texts.reason not in texts.summary else []
    return [texts.summary, *reason, *texts.next_step]


def _elements(texts: NoticeText) -> Iterator[str]:
    colour = "#15803d" if texts.resolved else _COLOURS.get(texts.severity, "#374151")
    yield f'<!DOCTYPE html>\n<html lang="en"><body style="{_STYLE}">'
    yield f'<h1 style="font-size:18px;color:{colour}">{escape(texts.summary)}</h1>'
    yield from (f"<p>{escape(line)}</p>" for line in _head(texts)[1:])
    if texts.facts:
        rows = (f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in texts.facts)
        yield f'<table cellpadding="4">{"".join(rows)}</table>'
    if texts.canaries:
        yield f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in texts.canaries)}</ul>"
    yield from (f"<p>{escape(line)}</p>" for line in texts.remarks)
    if texts.links:
        links = (f'<a href="{escape(url)}">{escape(name)}</a>' for name, url in texts.links)
        yield f"<p>{' · '.join(links)}</p>"
    yield "</body></html>"


_CALLS = re.compile(r"(?<=[<@#!&])(?=[\w!@#&^/])|(?<=\])(?=[(\[:])")
"""Between the characters that make mentions, links and tags of the services, and what they would call; and between
the words and the address of a link in Markdown."""
_BROKEN = "\u200b"
_CALM = {"hook.test": "info", "alert.resolved": "success"}
"""Apprise's types of notices that are no fault."""


def apprise_body(notice: Notice) -> bytes:
    """Write a notice for Apprise. Mentions and links are broken up: its services escape as they see fit, or not."""
    texts = notice_text(notice)
    lines = [texts.reason or texts.summary, *texts.next_step, *texts.fact_lines, *texts.canary_lines]
    kind = "failure" if texts.severity == "critical" else "warning"
    if texts.type in _CALM:
        kind = _CALM[texts.type]
    body = "\n".join([*map(defused, lines), *texts.link_lines])
    message = {"title": defused(texts.summary), "body": body, "type": kind}
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode()


def defused(text: str) -> str:
    """Break up what services could take for a mention, a tag or a link, by an invisible space."""
    return _CALLS.sub(_BROKEN, text)


READY: Final = "report.ready"


def report_body(hook: Hook, notice: Notice, message_id: str) -> bytes:
    """Write the body of a report. Raises ConfigurationError for a kind of hook that is for alerts alone."""
    data, kind = notice["data"].copy(), HookKind(hook.kind)
    if kind in TAKES_NO_REPORT:
        raise ConfigurationError(f"a hook of kind {kind} takes no reports")
    if kind is HookKind.EMAIL:
        thread = f"coalmine/{data['check']}/report"
        return mail_body(hook, notice, message_id, text=data["markdown"], html=data["html"], thread=thread)
    del data["html"]
    lines = data.pop("lines")
    if kind is HookKind.WEBHOOK:
        return webhook_body({**notice, "data": data})
    data["reason"] = "; ".join(lines)
    return (slack_body if kind is HookKind.SLACK else apprise_body)({**notice, "data": data})
