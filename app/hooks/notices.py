"""Notices as each hook kind sends them: from the notice to the bytes of the request; and reports for each kind."""

import hashlib
import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from html import escape
from types import MappingProxyType
from typing import Final

from app.alerts.domain.state import IncidentClass, dedupe_keys
from app.base.errors import ConfigurationError
from app.hooks.domain import TAKES_NO_REPORT, Hook, HookKind, Notice
from app.hooks.notice_texts import OPENED, NoticeText, clean


def body_of(hook: Hook, notice: Notice, message_id: str, picture: str | None = None) -> bytes:
    """Write the body of a notice for a hook, frozen at the first attempt. It never holds a secret.

    `picture`: the heat map of its check as the address a page holds it by, where `shows_pictures`.
    """
    if notice["type"] == READY:
        return report_body(hook, notice, message_id)
    return _alert_body(hook, notice, message_id, picture)


def _alert_body(hook: Hook, notice: Notice, message_id: str, picture: str | None) -> bytes:
    match HookKind(hook.kind):
        case HookKind.WEBHOOK:
            return webhook_body(notice)
        case HookKind.SLACK | HookKind.SLACK_APP:
            return slack_body(hook, notice, picture)
        case HookKind.PAGERDUTY:
            return pagerduty_body(notice, message_id)
        case HookKind.ALERTMANAGER:
            return alertmanager_body(hook, notice, message_id)
        case HookKind.EMAIL:
            return email_body(hook, notice, message_id, picture)
        case HookKind.APPRISE:
            return apprise_body(notice)


def shows_pictures(kind: str) -> bool:
    """Whether messages about alerts to a kind of hook show the heat map."""
    return kind in (HookKind.EMAIL, HookKind.SLACK_APP)


def is_written_for(hook: Hook, body: bytes) -> bool:
    """Whether a frozen body fits the hook's kind; else the hook changed its kind, and the body is written again."""
    return body.startswith(_BEGINNINGS[HookKind(hook.kind)])


_BEGINNINGS: Mapping[HookKind, bytes] = MappingProxyType(
    {
        HookKind.WEBHOOK: b'{"type":',
        HookKind.SLACK: b'{"text":',
        HookKind.SLACK_APP: b'{"message":',
        HookKind.PAGERDUTY: b'{"event_action":',
        HookKind.ALERTMANAGER: b'[{"labels":',
        HookKind.EMAIL: b"From: ",
        HookKind.APPRISE: b'{"title":',
    }
)


ACTIONS: Final[Mapping[str, str]] = {"alert.acknowledged": "acknowledge", "alert.resolved": "resolve"}
"""What is no trigger. A trigger under a known key adds to its alert and may change its severity; it opens no other."""
_SEVERITIES = {"critical": "critical", "warning": "warning"}


def pagerduty_body(notice: Notice, message_id: str) -> bytes:
    """Write a notice for PagerDuty. A test opens an alert of its own, of severity `info`."""
    texts = NoticeText(notice)
    action = ACTIONS.get(texts.type, "trigger")
    event: dict[str, object] = {"event_action": action, "dedup_key": texts.dedupe_key or f"coalmine/{message_id}"[:255]}
    if action == "trigger":
        event |= _trigger(texts)
    return json.dumps(event, ensure_ascii=True, separators=(",", ":")).encode()


def _trigger(texts: NoticeText) -> dict[str, object]:
    page = texts.page
    payload: dict[str, object] = {
        "summary": texts.summary,
        "source": texts.check or "coalmine",
        "severity": _SEVERITIES.get(texts.severity, "info"),
        "timestamp": texts.at,
        "custom_details": _details(texts),
    }
    payload |= {
        name: str(texts.data.get(key))
        for name, key in (("component", "retriever"), ("group", "suite"), ("class", "class"))
        if texts.data.get(key)
    }
    return {
        "payload": payload,
        "client": "Coalmine",
        **({"client_url": page} if page is not None else {}),
        "links": [{"href": url, "text": name} for name, url in texts.links],
    }


def _details(texts: NoticeText) -> dict[str, object]:
    details: dict[str, object] = {"what": texts.headline}
    if texts.reason:
        details["reason"] = texts.reason
    if texts.advice:
        details["what to do"] = texts.advice
    details |= {name.lower(): value for name, value in texts.facts}
    listed = "canaries" if texts.data.get("answers") is None else "answers"
    if texts.canaries:
        details[listed] = list(texts.canaries)
    if texts.more:
        details[f"more {listed}"] = texts.more
    if texts.before:
        details["failing before"] = texts.before
    return details


_LABEL = 1_024


def alertmanager_body(hook: Hook, notice: Notice, message_id: str) -> bytes:
    """Write a notice for Alertmanager.

    Without `endsAt` an alert ends there `resolve_timeout` after it was sent last, so it is sent again while it fires.
    A test has no end either, and is not sent again.
    """
    texts = NoticeText(notice)
    data = notice["data"]
    alert: dict[str, object] = {
        "labels": {**hook.labels, **_labels(texts, message_id)},
        "annotations": {name: value for name, value in _annotations(texts).items() if value},
        "startsAt": data.get("opened_at") or notice["timestamp"],
    }
    if texts.resolved:
        alert["endsAt"] = data.get("resolved_at") or notice["timestamp"]
    if texts.page is not None:
        alert["generatorURL"] = texts.page
    return json.dumps([alert], ensure_ascii=True, separators=(",", ":")).encode()


def _labels(texts: NoticeText, message_id: str) -> dict[str, str]:
    data = texts.data
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
        "incident_url": links.get("Incident", ""),
        "alert_url": links.get("Alert", ""),
        "check_url": links.get("Check", ""),
        "run_url": links.get("Run", ""),
        "dashboard_url": links.get("Dashboard", ""),
        "runbook_url": links.get("Runbook", ""),
    }


def webhook_body(notice: Notice) -> bytes:
    """Write the notice as JSON in ASCII, which no proxy re-encodes."""
    return json.dumps(notice, ensure_ascii=True, separators=(",", ":")).encode()


_HEADER, _TEXT, _ADVICE, _FIELD, _FIELDS = 150, 2_900, 600, 400, 6
_QUESTIONS, _QUERY = 3, 400
_MARKS = {"critical": "🔴", "warning": "🟠"}
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_URL_ESCAPES = str.maketrans({"&": "&amp;", "<": "%3C", ">": "%3E", "|": "%7C"})


def slack_body(hook: Hook, notice: Notice, picture: str | None = None) -> bytes:
    """Write a notice for Slack; for an app with the picture that follows it in its thread, as base64.

    All that strangers wrote stands in plain text, where nothing is marked up, or as the text of a link of ours.
    """
    texts = NoticeText(notice)
    message: dict[str, object] = {
        "text": escaped(f"{_mark(texts)} {texts.title}", _TEXT),
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": list(_blocks(texts)),
    }
    if hook.kind == HookKind.SLACK_APP:
        message = {"message": message, "picture": None if picture is None else picture.rpartition(",")[2]}
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode()


def escaped(text: str, limit: int) -> str:
    """Escape a text so that it is at most `limit` characters long then, and ends with no half of an escape."""
    whole = text.translate(_ESCAPES)
    if len(whole) <= limit:
        return whole
    length, parts = 1, []
    for character in text:
        one = character.translate(_ESCAPES)
        length += len(one)
        if length > limit:
            break
        parts.append(one)
    return "".join(parts) + "…"


def _blocks(texts: NoticeText) -> Iterator[dict[str, object]]:
    """Yield what happened, since when and why, what to do, the worst questions, and where to act."""
    title = f"{_mark(texts)} {texts.title}"
    header = _cut_at_word(title, _HEADER)
    yield {"type": "header", "text": _plain(header, _HEADER)}
    yield from (_section(line) for line in _statements(texts) if header != title or line != texts.title)
    yield from (_section(line, _ADVICE) for line in texts.next_step)
    fields = [_field(texts, name, value) for name, value in texts.facts[:_FIELDS]]
    if fields:
        yield {"type": "section", "fields": fields}
    if texts.canaries or texts.remarks:
        yield {"type": "section", "text": _marked("\n".join(_questions(texts)))}
    if texts.actions:
        yield {"type": "actions", "elements": [_button(name, url) for name, url in texts.actions]}
    if texts.links:
        yield {"type": "context", "elements": [_links(texts.links)]}


def _cut_at_word(text: str, limit: int) -> str:
    """Return a text that is at most `limit` characters long once it is escaped, cut between words where there are."""
    if len(text.translate(_ESCAPES)) <= limit:
        return text
    words = text.split(" ")
    while words and len(" ".join(words).translate(_ESCAPES)) >= limit:
        words.pop()
    return f"{' '.join(words)}…" if len(words) > 1 else text


def _field(texts: NoticeText, name: str, value: str) -> dict[str, object]:
    """Return a fact; the opening in the time zone of who reads it, which Slack knows."""
    if name != OPENED:
        return _plain(f"{name}: {value}", _FIELD)
    second = int(datetime.fromisoformat(str(texts.data["opened_at"])).timestamp())
    return _marked(f"{name}: <!date^{second}^{{date_short_pretty}} {{time}}|{value}>")


def _questions(texts: NoticeText) -> Iterator[str]:
    """Yield a line for each of the worst questions, which leads to its page, and the number of the others."""
    shown = texts.questions[:_QUESTIONS]
    for key, query, moved in shown:
        name = escaped((query or key).replace("|", "¦"), _QUERY)
        page = texts.page_of(key)
        name = name if page is None else f"<{page.translate(_URL_ESCAPES)}|{name}>"
        yield f"• {name}{': ' if moved else ''}{escaped(moved, _QUERY)}"
    yield from texts.unlisted(len(texts.canaries) - len(shown) + texts.more)
    yield from texts.failing_before


def _button(name: str, url: str) -> dict[str, object]:
    return {"type": "button", "text": {"type": "plain_text", "text": name}, "url": url}


def _section(text: str, limit: int = _TEXT) -> dict[str, object]:
    return {"type": "section", "text": _plain(text, limit)}


def _plain(text: str, limit: int) -> dict[str, object]:
    return {"type": "plain_text", "text": escaped(text, limit), "emoji": False}


def _links(links: Iterable[tuple[str, str]]) -> dict[str, object]:
    text = ""
    for name, url in links:
        link = f"<{url.translate(_URL_ESCAPES)}|{name}>"
        if len(text) + len(link) + 3 <= _TEXT:
            text += f" · {link}" if text else link
    return _marked(text)


def _marked(text: str) -> dict[str, object]:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _mark(texts: NoticeText) -> str:
    if texts.resolved:
        return "🟢"
    return _MARKS.get(texts.severity, "⚪")


_LONGEST_SUBJECT = 200
_PICTURED = "Every canary, a row, in the newest runs, a column: green is healthy, red degraded, grey not measured"
_COLOURS = {"critical": "#b91c1c", "warning": "#b45309"}
_SCHEME = '<meta name="color-scheme" content="light"><meta name="viewport" content="width=device-width">'
_STYLE = "font-family:sans-serif;font-size:14px;line-height:1.45;color:#111827;background-color:#ffffff"
"""Both colours: mail programs put a text that has one of them on a ground of theirs."""
_BUTTON = (
    "display:inline-block;margin:0 4px 6px 0;padding:0 14px;border:1px solid #9ca3af;border-radius:6px;color:#111827;"
    "background-color:#f3f4f6;text-decoration:none;font-weight:bold;white-space:nowrap"
)
_IN_HEADING = frozenset({OPENED, "Severity", "Event"})


def email_body(hook: Hook, notice: Notice, message_id: str, picture: str | None = None) -> bytes:
    """Write a notice as the message this hook sends; `picture`: of the newest runs, see `body_of`."""
    texts = NoticeText(notice)
    parts = (_head(texts), texts.fact_lines, texts.canary_lines, texts.link_lines)
    text = "\n\n".join("\n".join(part) for part in parts if part) + "\n"
    html = "\n".join(_elements(texts, picture)) + "\n"
    return mail_body(hook, notice, message_id, text=text, html=html, thread=texts.dedupe_key)


def mail_body(hook: Hook, notice: Notice, message_id: str, *, text: str, html: str, thread: str) -> bytes:
    """Write a message of a plain text and the same as HTML; those with the same `thread`, if any, belong together."""
    title, mail = NoticeText(notice).title, hook.mail
    assert mail is not None  # noqa: S101 - of a hook of this kind
    domain = mail.sender.rpartition("@")[2]
    message = EmailMessage(policy=SMTP)
    message["From"] = mail.sender
    message["To"] = ", ".join(mail.recipients)
    message["Subject"] = _literal(title)
    message["Date"] = format_datetime(datetime.fromisoformat(notice["timestamp"]))
    message["Message-ID"] = f"<{_digest(message_id)}@{domain}>"
    if thread:
        # No message has this id: mail clients thread by references, and a resent opening joins the same thread.
        message["In-Reply-To"] = message["References"] = f"<{_digest(thread)}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message["X-Auto-Response-Suppress"] = "All"
    message.set_content(text, cte="quoted-printable")
    pictures: list[bytes] = []

    def name(found: re.Match[str]) -> str:
        pictures.append(b64decode(found[1]))
        return f'src="cid:{_picture_id(len(pictures), message_id, domain)}"'

    message.add_alternative(_HELD_PICTURE.sub(name, html), subtype="html", cte="quoted-printable")
    for number, picture in enumerate(pictures, 1):
        part = message.get_body(("html",))
        assert isinstance(part, EmailMessage)  # noqa: S101 - added above
        part.add_related(
            picture, "image", "png", cid=f"<{_picture_id(number, message_id, domain)}>", disposition="inline"
        )
        part.set_boundary(f"=_{_digest(message_id + title + 'pictures')}")
    message.set_boundary(f"=_{_digest(message_id + title)}")
    return message.as_bytes()


_HELD_PICTURE = re.compile(r'src="data:image/png;base64,([0-9A-Za-z+/=]+)"')
"""A picture that a page holds itself; mail programs show only those that are parts of the message."""


def _picture_id(number: int, message_id: str, domain: str) -> str:
    return f"{_digest(f'{message_id} picture {number}')}@{domain}"


def _literal(text: str) -> str:
    """Subject of an untrusted text, without encoded words.

    EmailMessage decodes the encoded words of RFC 2047 in what it is given, and writes what they hold, ends of lines
    included. So the sign that begins one is broken up, by a visible space: an invisible one is removed again.
    """
    return clean(clean(text, _LONGEST_SUBJECT).replace("=?", "= ?"), _LONGEST_SUBJECT)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _head(texts: NoticeText) -> list[str]:
    return [*_statements(texts), *texts.lost, *texts.next_step]


def _statements(texts: NoticeText) -> list[str]:
    """Return the summary, and the reason where that says more."""
    return [texts.summary, *([texts.reason] if texts.reason and texts.reason not in texts.summary else [])]


def _elements(texts: NoticeText, picture: str | None) -> Iterator[str]:
    """Yield what happened, since when, what to do and where to act, then the picture, then all the rest."""
    colour = "#15803d" if texts.resolved else _COLOURS.get(texts.severity, "#374151")
    yield f'<!DOCTYPE html>\n<html lang="en"><head>{_SCHEME}</head><body style="margin:0;{_STYLE}">'
    yield f'<div style="max-width:720px;padding:12px;{_STYLE}">'
    yield f'<h1 style="font-size:18px;line-height:1.3;margin:0 0 8px;color:{colour}">{escape(texts.title)}</h1>'
    facts = dict(texts.facts)
    heading = [
        *(f"{name} {facts[name]}" for name in (OPENED,) if name in facts),
        *map(facts.get, ("Severity", "Event")),
    ]
    heading = [one for one in heading if one != OPENED.lower()]
    if shown := " · ".join(escape(part) for part in heading if part):
        yield f'<p style="margin:0 0 8px;color:#4b5563">{shown}</p>'
    said = [*_statements(texts)[:1], *texts.lost]
    yield from (f"<p>{escape(line)}</p>" for line in said if line != texts.title)
    yield from (f"<p><strong>What to do:</strong> {escape(line)}</p>" for line in (texts.advice,) if line)
    if texts.actions:
        buttons = (f'<a href="{escape(url)}" style="{_BUTTON}">{escape(name)}</a>' for name, url in texts.actions)
        yield f'<p style="line-height:2.6">{" ".join(buttons)}</p>'
    if picture is not None:
        yield f'<p><img src="{picture}" width="640" style="max-width:100%;height:auto" alt="{_PICTURED}"></p>'
    yield from (f"<p>{escape(line)}</p>" for line in _statements(texts)[1:])
    rows = [(name, value) for name, value in texts.facts if name not in _IN_HEADING]
    if rows:
        cells = (
            f'<tr><td style="color:#4b5563">{escape(name)}</td><td>{escape(value)}</td></tr>' for name, value in rows
        )
        yield f'<table cellpadding="4" style="{_STYLE}">{"".join(cells)}</table>'
    if texts.canaries:
        yield f'<ul style="padding-left:20px">{"".join(f"<li>{line}</li>" for line in _linked(texts))}</ul>'
    yield from (f"<p>{escape(line)}</p>" for line in texts.remarks)
    if texts.links:
        links = (f'<a href="{escape(url)}" style="color:#1d4ed8">{escape(name)}</a>' for name, url in texts.links)
        yield f"<p>{' · '.join(links)}</p>"
    yield "</div></body></html>"


def _linked(texts: NoticeText) -> Iterator[str]:
    """Yield the questions, each a link to its page where there is one, and what happened to them."""
    for (key, query, _), line in zip(texts.questions, texts.canaries, strict=True):
        page = texts.page_of(key)
        name = f"{key} “{query}”"
        if page is None or not line.startswith(name):
            yield escape(line)
            continue
        yield f'<a href="{escape(page)}" style="color:#1d4ed8">{escape(name)}</a>{escape(line.removeprefix(name))}'


_CALLS = re.compile(r"(?<=[<@#!&])(?=[\w!@#&^/])|(?<=\])(?=[(\[:])")
"""Between the characters that make mentions, links and tags of the services, and what they would call; and between
the words and the address of a link in Markdown."""
_BROKEN = "\u200b"
_CALM = {"hook.test": "info", "alert.resolved": "success"}
"""Apprise's types of notices that are no fault."""


def apprise_body(notice: Notice) -> bytes:
    """Write a notice for Apprise. Mentions and links are broken up: its services escape as they see fit, or not."""
    texts = NoticeText(notice)
    head = [line for line in _head(texts) if line != texts.title]
    lines = [*(head or [texts.summary]), *texts.fact_lines, *texts.canary_lines]
    kind = "failure" if texts.severity == "critical" else "warning"
    if texts.type in _CALM:
        kind = _CALM[texts.type]
    body = "\n".join([*map(defused, lines), *texts.link_lines])
    message = {"title": defused(texts.title), "body": body, "type": kind}
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
    shown: Notice = {**notice, "data": data}
    return apprise_body(shown) if kind is HookKind.APPRISE else slack_body(hook, shown)
