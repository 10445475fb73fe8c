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

from app.alerts.domain.state import IncidentClass, dedupe_keys, is_about_canaries
from app.alerts.domain.summaries import answer_change_text, lost_text
from app.alerts.domain.views import ChangedCanary, WorseAnswer
from app.base.errors import ConfigurationError
from app.base.texts import MEASURE_LABELS, bound_text, corrected_label, corrected_text, own_text, ratio_text
from app.base.values import Reason
from app.catalog.domain import labelled
from app.hooks.domain import TAKES_NO_REPORT, Hook, HookKind, Notice, NoticeData


def body_of(hook: Hook, notice: Notice, message_id: str, picture: str | None = None) -> bytes:
    """Write the body of a notice for a hook, frozen at the first attempt. It never holds a secret.

    `picture`: the heat map of its check as the address a page holds it by, for mails about alerts.
    """
    if notice["type"] == READY:
        return report_body(hook, notice, message_id)
    return _alert_body(hook, notice, message_id, picture)


def _alert_body(hook: Hook, notice: Notice, message_id: str, picture: str | None) -> bytes:
    match HookKind(hook.kind):
        case HookKind.WEBHOOK:
            return webhook_body(notice)
        case HookKind.SLACK:
            return slack_body(notice)
        case HookKind.PAGERDUTY:
            return pagerduty_body(notice, message_id)
        case HookKind.ALERTMANAGER:
            return alertmanager_body(hook, notice, message_id)
        case HookKind.EMAIL:
            return email_body(hook, notice, message_id, picture)
        case HookKind.APPRISE:
            return apprise_body(notice)


def is_written_for(hook: Hook, body: bytes) -> bool:
    """Whether a frozen body fits the hook's kind; else the hook changed its kind, and the body is written again."""
    return body.startswith(_BEGINNINGS[HookKind(hook.kind)])


_BEGINNINGS: Mapping[HookKind, bytes] = MappingProxyType(
    {
        HookKind.WEBHOOK: b'{"type":',
        HookKind.SLACK: b'{"text":',
        HookKind.PAGERDUTY: b'{"event_action":',
        HookKind.ALERTMANAGER: b'[{"labels":',
        HookKind.EMAIL: b"From: ",
        HookKind.APPRISE: b'{"title":',
    }
)


LONGEST_TITLE: Final = 600
LONGEST_REASON: Final = 1_000
_LONGEST_FACT = 200
_LONGEST_ADVICE = 400
_LONGEST_CANARY = 400
_MOST_CANARIES = 10
_MOST_RULES = 20

_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Invisible characters that change the text: direction marks, zero-width joins, tags."""
_BREAKS = re.compile("[\x00-\x20\x7f-\xa0\u2028\u2029]+")
_HALVES = re.compile("[\ud800-\udfff]")
_LINK = re.compile(r"https?://[!-~]{1,1900}")

_HEADLINES: Mapping[str, str] = {
    "alert.opened": "opened",
    "alert.escalated": "escalated",
    "alert.updated": "updated",
    "alert.reminded": "still firing",
    "alert.acknowledged": "acknowledged",
    "alert.resolved": "resolved",
    "hook.test": "test",
    "report.ready": "report",
}
_LINKS: Mapping[str, str] = {
    "incident": "Incident",
    "alert": "Alert",
    "check": "Check",
    "run": "Run",
    "report": "Report",
    "dashboard": "Dashboard",
    "runbook": "Runbook",
}


class NoticeText:
    """Texts of a notice, each one line of bounded length without control characters."""

    def __init__(self, notice: Notice) -> None:
        self.data = notice["data"]
        self.type = notice["type"]
        self.at = clean(notice["timestamp"], 40)

    @property
    def headline(self) -> str:
        """What happened to the incident, a word or two: `opened`."""
        return _HEADLINES.get(self.type, clean(self.type, 40).removeprefix("alert."))

    @property
    def severity(self) -> str:
        """Empty for a test."""
        return clean(self.data.get("severity"), 40)

    @property
    def title(self) -> str:
        """Check and what happened in few words; the summary where there is no title, as of a report or a test."""
        return clean(self.data.get("title"), LONGEST_TITLE) or self.summary

    @property
    def summary(self) -> str:
        """Check, what happened, how much, since when, and the cause."""
        return clean(self.data["summary"], LONGEST_TITLE) or f"{self.headline} {self.check}".rstrip()

    @property
    def reason(self) -> str:
        """Reason of the rule, and its effect on the alert."""
        return clean(self.data.get("reason"), LONGEST_REASON)

    @property
    def advice(self) -> str:
        """What to do next; empty for a test and a resolve."""
        return clean(self.data.get("advice"), _LONGEST_ADVICE)

    @property
    def next_step(self) -> list[str]:
        """The advice as a line with its label, where there is one."""
        return [f"What to do: {self.advice}"] if self.advice else []

    @property
    def check(self) -> str:
        """Slug of the check."""
        return clean(self.data.get("check"), _LONGEST_FACT)

    @property
    def dedupe_key(self) -> str:
        """What receivers know the incident by; empty for a test."""
        return clean(self.data.get("dedupe_key"), 255)

    @property
    def resolved(self) -> bool:
        """Whether the incident is resolved."""
        return self.type == "alert.resolved"

    @property
    def rules(self) -> tuple[str, ...]:
        """Rules of the alerts of the incident."""
        names = (clean(one.get("rule"), _LONGEST_FACT) for one in list(self.data.get("alerts") or ())[:_MOST_RULES])
        return tuple(dict.fromkeys(name for name in names if name))

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """(name, value), the most important first."""
        return tuple(self._facts())

    @property
    def fact_lines(self) -> list[str]:
        """A line for each fact."""
        return [f"{name}: {value}" for name, value in self.facts]

    @property
    def canaries(self) -> tuple[str, ...]:
        """A line for each of the worst changed canaries, or of the answers that got worse most."""
        if answers := self.data.get("answers"):
            return tuple(map(_answer, answers["listed"][:_MOST_CANARIES]))
        return tuple(map(_canary, list(self.data.get("degraded") or [])[:_MOST_CANARIES]))

    @property
    def more(self) -> int:
        """Number of changed canaries, or of answers that got worse, beyond those."""
        answers = self.data.get("answers")
        total = self.data.get("changed_total") if answers is None else answers["worse"]
        return max((total or 0) - len(self.canaries), 0)

    @property
    def before(self) -> int:
        """Number of other degraded canaries, which were failing before the alert."""
        return self.data.get("failing_before") or 0

    @property
    def remarks(self) -> tuple[str, ...]:
        """Lines that follow those of the canaries."""
        return (*self.unlisted(self.more), *self.failing_before)

    def unlisted(self, count: int) -> list[str]:
        """Return number of changed canaries that are not listed, as a line; empty for none."""
        return [f"and {count:,} more"] if count else []

    @property
    def failing_before(self) -> list[str]:
        """Number of canaries that were failing before, as a line; empty for none."""
        if not self.before:
            return []
        others = "more " if self.canaries else ""
        return [f"{self.before:,} {others}{'was' if self.before == 1 else 'were'} failing before"]

    @property
    def canary_lines(self) -> list[str]:
        """A line with a dash for each canary, and the remarks."""
        return [*(f"- {line}" for line in self.canaries), *self.remarks]

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """(name, http or https URL)."""
        links: Mapping[str, object] = self.data.get("links") or {}
        return tuple(
            (label, url)
            for name, label in _LINKS.items()
            if isinstance(url := links.get(name), str) and _LINK.fullmatch(url)
        )

    @property
    def page(self) -> str | None:
        """Address of the page that tells all of it: that of the incident, else of the alert."""
        links = dict(self.links)
        return links.get("Incident", links.get("Alert"))

    @property
    def link_lines(self) -> list[str]:
        """A line for each link."""
        return [f"{name}: {url}" for name, url in self.links]

    def _facts(self) -> Iterator[tuple[str, str]]:
        data = self.data
        if data.get("severity"):
            yield "Severity", self.severity
            yield "Event", self.headline
        if data.get("causes"):
            yield "Cause", clean(data["causes"], _LONGEST_FACT)
        measure, value = data.get("measure"), data.get("value")
        threshold: object = data.get("threshold")
        if measure is not None and value is not None:
            bound_shown = bound_text(threshold) if isinstance(threshold, float) else clean(threshold, 40)
            bound = "" if threshold is None else f" (bound {bound_shown})"
            own, pooled = data.get("self_judged"), data.get("pooled_recall", [])
            label, rate = clean(MEASURE_LABELS.get(measure, measure), _LONGEST_FACT), data.get("corrected")
            hint = data.get("uncalibrated", False)
            if rate is None:
                label = labelled(f"{label} (uncalibrated)" if hint else label, self_judged=own, pooled=pooled)
            else:
                label = corrected_label(label, uncalibrated=hint)
            shown = _number(value) if rate is None else corrected_text(value, rate)
            if (people := data.get("beside")) is not None:
                shown = own_text(value, people)
            yield label[:1].upper() + label[1:], f"{self._counted(measure, value, shown)}{bound}"
        if is_about_canaries(data.get("kind", ""), measure, data.get("answers")):
            yield from self._retrieved()
        yield from self._subject()

    def _counted(self, measure: str, value: object, shown: str) -> str:
        """Return the coverage of a run behind the count of questions, and any other value as it is shown."""
        found = self.data.get("found") if measure == "coverage" and value == self.data.get("coverage") else None
        return f"{clean(found, 40)} questions find their document, {shown}" if found else shown

    def _retrieved(self) -> Iterator[tuple[str, str]]:
        data = self.data
        for name, label in (("coverage", "Coverage"), ("health_score", "First-hit relevance")):
            if data.get(name) is not None and name != data.get("measure"):
                yield label, self._counted(name, data.get(name), _number(data.get(name)))
        if data.get("degraded_total") is not None:
            yield "Degraded", _degraded(data)

    def _subject(self) -> Iterator[tuple[str, str]]:
        data = self.data
        for name in ("check", "suite", "retriever"):
            if data.get(name) is not None:
                yield name.capitalize(), clean(data.get(name), _LONGEST_FACT)
        if rules := self.rules:
            yield "Rule" if len(rules) == 1 else "Rules", clean(", ".join(rules), _LONGEST_FACT)
        if data.get("run_id") is not None:
            yield "Run", clean(data["run_id"], _LONGEST_FACT)
        if data.get("opened_at") is not None:
            yield "Since", f"{clean(str(data['opened_at'])[:16].replace('T', ' '), 16)} UTC"


def clean(value: object, limit: int) -> str:
    """Return a text on one line of at most `limit` characters, without invisible ones; empty for None."""
    if value is None:
        return ""
    text = str(value)[: 4 * limit + 1_000]  # the rest is cut off anyway
    text = _HALVES.sub("\ufffd", _INVISIBLE.sub("", _BREAKS.sub(" ", text))).strip()
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def _degraded(data: NoticeData) -> str:
    """Degraded canaries of the run, and how the counts of the summary and of the list add up to them."""
    total, changed = data.get("degraded_total") or 0, data.get("changed_total") or 0
    before, retried = data.get("failing_before") or 0, data.get("recovered_on_retry") or 0
    inside = f"{total:,} in run {clean(data['run_id'], 40)}" if data.get("run_id") is not None else f"{total:,}"
    if changed + before != total:  # those of a category or canary alone
        return inside
    parts = ((changed - retried, "since the alert began"), (retried, "healthy on retry"), (before, "failing before"))
    named = [f"{count:,} {what}" for count, what in parts if count > 0]
    return f"{inside}: {', '.join(named)}" if named else inside


def _number(value: object) -> str:
    return ratio_text(value) if isinstance(value, float) else clean(value, 40)


def _canary(canary: ChangedCanary) -> str:
    """One canary as a line; without causes, which are a fact of the notice, and reasons that its rank shows."""
    reasons = ", ".join(str(one).replace("_", " ") for one in canary.get("reasons") or [] if one not in _SHOWN_BY_RANK)
    ranks = [canary.get("rank_before"), canary.get("rank_now")]
    moved = f"rank {_rank(ranks[0])} → {_rank(ranks[1])}"
    if ranks[0] == ranks[1] is not None:
        moved = f"rank {_rank(ranks[0])} as before"
    if ranks[0] is None:  # never found, or unknown: it did not move
        moved = "" if ranks[1] is None else f"rank {_rank(ranks[1])}"
    lower = "" if ranks[1] is None else _lower(canary, ranks[0])
    lost = lost_text(canary)
    retried = "healthy on retry" if canary.get("persistent") is False else ""
    details = "; ".join(
        part for part in (clean(reasons, 80), moved, f"lost {clean(lost, 120)}" if lost else "", lower, retried) if part
    )
    name = f"{clean(canary.get('key'), 60)} “{clean(canary.get('query'), 80)}”"
    return clean(name + (f": {details}" if details else ""), _LONGEST_CANARY)


def _answer(answer: WorseAnswer) -> str:
    """One answer that got worse as a line."""
    name = f"{clean(answer['key'], 60)} “{clean(answer['query'], 80)}”"
    moved = f"{ratio_text(answer['value_before'])} → {ratio_text(answer['value'])}"
    return clean(f"{name}: {moved}, {answer_change_text(answer['change'])}", _LONGEST_CANARY)


def _lower(canary: ChangedCanary, best: object) -> str:
    """Return the expected chunk that ranks lower, where that is not the best placed one."""
    chunks = [one for one in canary.get("lower") or [] if one.get("rank_now") is not None or not canary.get("lost")]
    one = next((chunk for chunk in chunks if chunk.get("rank_before") != best), None)
    if one is None:
        return ""
    name = clean(one.get("id") or one.get("document") or "another", 60)
    return f"{name} rank {_rank(one.get('rank_before'))} → {_rank(one.get('rank_now'))}"


_SHOWN_BY_RANK: Final = frozenset({Reason.MISSING, Reason.REGRESSED})


def _rank(rank: object) -> str:
    return "not found" if rank is None else clean(rank, 10)


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


_HEADER, _TEXT, _ADVICE, _FIELD, _FIELDS = 150, 2_900, 600, 400, 10
_MARKS = {"critical": "🔴", "warning": "🟠"}
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_URL_ESCAPES = str.maketrans({"&": "&amp;", "<": "%3C", ">": "%3E", "|": "%7C"})


def slack_body(notice: Notice) -> bytes:
    """Write a notice for Slack.

    All that strangers wrote stands in plain text, where nothing is marked up; the one marked-up text holds our links.
    """
    texts = NoticeText(notice)
    message = {
        "text": escaped(f"{_mark(texts)} {texts.title}", _TEXT),
        "mrkdwn": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": list(_blocks(texts)),
    }
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
    title = f"{_mark(texts)} {texts.title}"
    yield {"type": "header", "text": _plain(title, _HEADER)}
    is_cut = len(title.translate(_ESCAPES)) > _HEADER
    yield from (_section(line) for line in _statements(texts) if is_cut or line != texts.title)
    yield from (_section(line, _ADVICE) for line in texts.next_step)
    fields = [_plain(f"{name}: {value}", _FIELD) for name, value in texts.facts[:_FIELDS]]
    if fields:
        yield {"type": "section", "fields": fields}
    if texts.canaries or texts.remarks:
        yield _section("\n".join(_listed(texts)))
    if texts.links:
        yield {"type": "context", "elements": [_links(texts.links)]}


def _listed(texts: NoticeText) -> Iterator[str]:
    """Yield a line for each canary, as many as there is room for, and the number of the others."""
    room = _TEXT - len("and 1,000,000 more\n1,000,000 more were failing before")
    for number, line in enumerate(texts.canaries):
        room -= len(f"• {line}\n".translate(_ESCAPES))
        if room < 0:
            yield from [*texts.unlisted(len(texts.canaries) - number + texts.more), *texts.failing_before]
            return
        yield f"• {line}"
    yield from texts.remarks


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
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _mark(texts: NoticeText) -> str:
    if texts.resolved:
        return "🟢"
    return _MARKS.get(texts.severity, "⚪")


_LONGEST_SUBJECT = 200
_PICTURED = "Every canary, a row, in the newest runs, a column: green is healthy, red degraded, grey not measured"
_COLOURS = {"critical": "#b91c1c", "warning": "#b45309"}
_STYLE = "font-family:sans-serif;font-size:14px;color:#111827"


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
    return [*_statements(texts), *texts.next_step]


def _statements(texts: NoticeText) -> list[str]:
    """Return the summary, and the reason where that says more."""
    return [texts.summary, *([texts.reason] if texts.reason and texts.reason not in texts.summary else [])]


def _elements(texts: NoticeText, picture: str | None) -> Iterator[str]:
    colour = "#15803d" if texts.resolved else _COLOURS.get(texts.severity, "#374151")
    yield f'<!DOCTYPE html>\n<html lang="en"><body style="{_STYLE}">'
    yield f'<h1 style="font-size:18px;color:{colour}">{escape(texts.title)}</h1>'
    yield from (f"<p>{escape(line)}</p>" for line in _head(texts) if line != texts.title)
    if picture is not None:
        yield f'<p><img src="{picture}" width="640" style="max-width:100%;height:auto" alt="{_PICTURED}"></p>'
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
    return (slack_body if kind is HookKind.SLACK else apprise_body)({**notice, "data": data})
