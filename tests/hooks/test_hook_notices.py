"""What every hook kind makes of a notice: within the vendor's limits, and whatever strangers wrote is only text."""

import json
import re
from collections.abc import Callable, Mapping
from email import message_from_bytes
from email.policy import default
from html import escape
from html.parser import HTMLParser
from typing import Any, cast

import pytest

from app.alerts.domain.advice import CAUSE_ADVICE, alert_advice
from app.alerts.domain.summaries import AlertFacts, ChangedCanaries
from app.base.values import Cause, Reason, RuleKind
from app.hooks.domain import Hook, HookKind, Mail, MailTls, Notice, NoticeData, NoticeLinks
from app.hooks.notice_texts import NoticeText, clean
from app.hooks.notices import body_of, defused, escaped, is_written_for
from tests.support.receivers import ROUTING_KEY, pagerduty_problem, slack_problem

MAIL = Mail(
    host="mail.test",
    port=25,
    tls=MailTls.NONE,
    sender="coalmine@example.org",
    recipients=("ops@example.org", "dev@example.org"),
)
HOOKS = {
    kind: Hook(slug="ops", kind=kind, url="https://hook.test/", mail=MAIL if kind is HookKind.EMAIL else None)
    for kind in HookKind
}
TYPES = ("alert.opened", "alert.escalated", "alert.updated", "alert.reminded", "alert.resolved")

HOSTILE = {
    "script": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "mention": "<!channel> <!here> <@U123> <#C1> @everyone @here <@&role> <!subteam^S1>",
    "link": "<https://evil.test|Runbook> [click](https://evil.test) <a href='https://evil.test'>x</a>",
    "headers": "x\r\nBcc: victim@example.org\r\n\r\ninjected\n.\n",
    "separators": "one\u2028two\u2029three\x85four\x0bfive",
    "controls": "\x00\x07\x1b[31mred\x7f\x9b",
    "turned": "safe \u202egnp.exe\u202c \u2066x\u2069 \u200f\u061c \U000e0041",
    "half": "\ud83d broken \udc00",
    "huge": "A" * 20_000,
    "ampersands": "&" * 4_000,
    "angles": "<>&" * 3_000,
    "breaks": "\n" * 20_000,
    "templates": "{{ 7 * 7 }} {0} %s ${HOME} {__class__}",
    "wide": "\U0001f600\U0001f44d " * 5_000,
    "encoded words": "=?utf-8?q?v2=0d=0aReply-To:_evil@e.com=0d=0a=0d=0aPay_here_http://evil?=",
    "broken encoded words": "=?utf-8?q?=ff?= é",
    "encoded words in hiding": "=\u200b?utf-8?b?eA0KQmNjOiBldmlsQGUuY29tDQoNCmJvZHk=?\u200b= ==?utf-8?q?=0d=0aBcc:_x?=",
}


def notice(kind: str = "alert.opened", **changes: Any) -> Notice:
    """Make a notice."""
    canary = {
        "key": "retention",
        "query": "How long do we keep data?",
        "reasons": ["missing"],
        "rank_before": 1,
        "rank_now": None,
        "lost": ["retention_policy_doc", "gdpr_doc"],
        "lost_total": 6,
        "cause": "rechunked",
        "cause_reason": "the text is found under another id",
    }
    data = {
        "incident_id": "3",
        "class": "quality",
        "alerts": [
            {
                "alert_id": "7",
                "rule": "threshold-coverage",
                "kind": "threshold",
                "scope": "",
                "severity": "critical",
                "state": "firing",
                "reason": "coverage 0.500 is below 0.9 in 2 of 3 runs.",
            }
        ],
        "alert_id": "7",
        "dedupe_key": "coalmine/docs/quality",
        "severity": "critical",
        "summary": "docs: coverage 0.500, below 0.9 since run 810, 11 of 40 canaries lost their expected chunk",
        "reason": "coverage 0.500 is below 0.9 in 2 of 3 runs.",
        "advice": "Re-index the documents of the lost chunks.",
        "lost": "retention_policy_doc, gdpr_doc and 4 more",
        "check": "docs",
        "suite": "suite",
        "retriever": "search",
        "rule": "threshold-coverage",
        "kind": "threshold",
        "scope": "",
        "opened_at": "2026-03-02T12:00:00Z",
        "resolved_at": "2026-03-02T12:30:00Z" if kind == "alert.resolved" else None,
        "run_id": "812",
        "health_score": 0.71,
        "coverage": 0.5,
        "measure": "coverage",
        "value": 0.5,
        "threshold": 0.9,
        "baseline": None,
        "degraded_queries": [canary["query"]],
        "degraded": [canary],
        "degraded_total": 12,
        "changed_total": 11,
        "failing_before": 1,
        "causes": "8 missing from the index, 3 outranked",
        "links": {
            "alert": "https://coalmine.test/alerts/7",
            "check": "https://coalmine.test/checks/docs",
            "run": "https://coalmine.test/runs/812",
            "dashboard": None,
            "runbook": "https://wiki.test/?a=1&b=<2>",
        },
    }
    told = cast("NoticeData", {**data, **changes})
    return {"type": kind, "version": 1, "timestamp": "2026-03-02T12:00:05Z", "data": told}


def hostile(text: str, kind: str = "alert.opened") -> Notice:
    """Make a notice in which all that strangers write is this."""
    canary = {"key": "k", "query": text, "reasons": [text], "rank_before": 1, "rank_now": 3, "cause": text}
    canary |= {"lost": [text] * 3, "lost_total": 9}
    told = {
        "summary": text,
        "reason": text,
        "advice": text,
        "lost": text,
        "degraded": [canary] * 10,
        "cause_reason": text,
        "measure": text,
    }
    return notice(kind, **told, degraded_queries=[text] * 10)


def test_message() -> Notice:
    """Make the notice of a test."""
    links: NoticeLinks = {
        "incident": None,
        "alert": None,
        "check": None,
        "run": None,
        "dashboard": None,
        "runbook": None,
    }
    data: NoticeData = {"summary": "Test message from Coalmine to hook ops", "links": links}
    return {"type": "hook.test", "version": 1, "timestamp": "2026-03-02T12:00:05Z", "data": data}


test_message.__test__ = False  # type: ignore[attr-defined] # a maker, which pytest would take for a test


def written(kind: HookKind, what: Notice, **changes: Any) -> Any:
    """Write a notice and read it as JSON."""
    hook = HOOKS[kind]
    if changes:
        hook = Hook(slug="ops", kind=kind, url="https://hook.test/", **changes)
    return json.loads(body_of(hook, what, "msg_1"))


def mailed(what: Notice, message_id: str = "msg_1") -> Any:
    """Write a notice and read it as a mail program does."""
    return message_from_bytes(body_of(HOOKS[HookKind.EMAIL], what, message_id), policy=default)


# --- every kind ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HookKind)
def test_equal_notices_are_equal_bytes_that_tell_their_kind(kind: HookKind) -> None:
    for what in (*map(notice, TYPES), test_message()):
        body = body_of(HOOKS[kind], what, "msg_1")
        assert body == body_of(HOOKS[kind], what, "msg_1")
        assert [other for other in HookKind if is_written_for(HOOKS[other], body)] == [kind], what["type"]
        assert body.isascii()


@pytest.mark.parametrize("kind", HookKind)
def test_no_text_of_strangers_makes_a_message_large_or_unreadable(kind: HookKind) -> None:
    for name, text in HOSTILE.items():
        body = body_of(HOOKS[kind], hostile(text), "msg_1")
        if kind is not HookKind.WEBHOOK:  # whose texts are those of the contract; queries are cut before
            assert len(body) < 100_000, name
        assert body.isascii(), name
        assert b"\x00" not in body, name
        if kind is HookKind.EMAIL:
            assert max(map(len, body.split(b"\r\n"))) <= 998, name  # RFC 5322, 2.1.1
        else:
            json.loads(body)


def test_a_story_has_short_single_lines_without_what_is_not_seen() -> None:
    for name, text in HOSTILE.items():
        story = NoticeText(hostile(text))
        lines = [story.summary, story.reason, *story.canaries, *(value for _, value in story.facts)]
        assert all(len(line) <= 1_000 and line.isprintable() for line in lines), name
        assert all(line == line.strip() for line in lines), name


def test_texts_are_cut_where_they_end() -> None:
    assert clean("a  b\r\n\tc", 10) == "a b c"
    assert clean("abcdef", 6) == "abcdef"
    assert clean("abcdefg", 6) == "abcde…"
    assert clean("👩‍🚒", 10) == "👩‍🚒"
    assert clean(None, 6) == ""


def test_a_link_that_is_none_is_left_out() -> None:
    bad = {"check": "javascript:alert(1)", "run": "https://a b/", "dashboard": "data:text/html,x", "runbook": None}
    assert NoticeText(notice(links=bad)).links == ()


def test_advice_on_renamed_chunks_leads_to_their_page() -> None:
    assert "Renamed chunks" not in dict(NoticeText(notice()).links)
    told = dict(NoticeText(notice(advice=CAUSE_ADVICE[Cause.RECHUNKED])).links)
    assert told["Renamed chunks"] == f"{told['Check']}/reanchors"


def test_advice_on_scores_leads_to_the_retriever() -> None:
    low = ChangedCanaries(count=2, of=9, reasons=[[Reason.LOW_RELEVANCE]] * 2)
    advice = alert_advice(AlertFacts(check="watch", kind=RuleKind.REGRESSION, changed=low))
    links = {**notice()["data"]["links"], "incident": "https://coalmine.test/incidents/3"}
    story = NoticeText(notice(advice=advice, retriever="docs search", links=links))
    assert dict(story.links)["Retriever"].endswith("/retrievers/docs%20search")
    assert "Retriever" in dict(story.actions)
    assert "Retriever" not in dict(NoticeText(notice()).links)
    failing = notice(advice="Check the log of it.", retriever="docs search")
    failing["data"]["kind"] = RuleKind.PROBE_ERRORS
    assert "Retriever" in dict(NoticeText(failing).links)


@pytest.mark.parametrize(("cause", "what"), [(Cause.MISSING, "Lost chunks"), (Cause.RECHUNKED, "Ids that are gone")])
def test_what_is_lost_is_named_before_what_to_do(cause: Cause, what: str) -> None:
    html = mailed(notice(advice=CAUSE_ADVICE[cause], lost="a, b")).get_body(("html",)).get_content()
    assert re.search(rf"<p>{what}: a, b</p>\s*<p><strong>What to do:", html)


def test_what_there_is_to_know_is_told() -> None:
    story = NoticeText(notice())
    assert story.facts[:7] == (
        ("Opened", "2026-03-02 12:00 UTC"),
        ("Cause", "8 missing from the index, 3 outranked"),
        ("Severity", "critical"),
        ("Event", "opened"),
        ("Coverage", "0.500 (bound 0.9)"),
        ("First-hit relevance", "0.710"),
        ("Degraded", "12 in run 812: 11 since the alert began, 1 failing before"),
    )
    assert story.canaries == (
        "retention “How long do we keep data?”: rank 1 → not found; lost retention_policy_doc, gdpr_doc and 4 more",
    )
    assert story.remarks == ("and 10 more", "1 more was failing before")


def test_a_canary_that_lost_one_of_its_chunks_keeps_its_rank_and_no_retry_tells_the_rank_of_a_run() -> None:
    told = notice()
    told["data"]["degraded"][0] |= {"rank_now": 1, "lost": ["gdpr_doc"], "lost_total": 1, "persistent": False}
    (line,) = NoticeText(told).canaries
    assert line.endswith(": rank 1 as before; lost gdpr_doc; healthy on retry")


@pytest.mark.parametrize(
    "about",
    [
        {"kind": "latency", "measure": "p95", "value": 1.3},
        {"kind": "no_data", "measure": None, "value": None},
        {"kind": "threshold", "measure": "faithful", "answers": None},
        {"kind": "threshold", "measure": "faithful", "answers": {"changes": {"answer": 3}, "worse": 3, "listed": []}},
    ],
)
def test_what_was_retrieved_is_told_only_where_the_alert_is_about_it(about: dict[str, Any]) -> None:
    told = notice()
    told["data"].update(cast("Any", about))
    names = [name for name, _ in NoticeText(told).facts]
    assert not {"Coverage", "First-hit relevance", "Degraded"} & set(names)
    assert "Severity" in names


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"recovered_on_retry": 2}, "12 in run 812: 9 since the alert began, 2 healthy on retry, 1 failing before"),
        ({"changed_total": 12, "failing_before": 0}, "12 in run 812: 12 since the alert began"),
        ({"changed_total": 0, "failing_before": 12}, "12 in run 812: 12 failing before"),
        ({"changed_total": 3}, "12 in run 812"),  # those of one category
        ({"changed_total": None, "failing_before": None}, "12 in run 812"),
        ({"run_id": None}, "12: 11 since the alert began, 1 failing before"),
    ],
)
def test_the_counts_of_a_notice_add_up(changes: dict[str, Any], text: str) -> None:
    assert dict(NoticeText(notice(**changes)).facts)["Degraded"] == text


@pytest.mark.parametrize("kind", HookKind)
def test_a_cause_is_said_once_however_many_canaries_share_it(kind: HookKind) -> None:
    if kind is HookKind.WEBHOOK:  # whose canaries carry each its own, for programs
        return
    canary = {**notice()["data"]["degraded"][0], "cause": "missing", "cause_reason": "it is in no deep result"}
    cause = "chunks missing from the index"
    what = notice(degraded=[canary] * 10, causes=cause)
    bodies = [body_of(HOOKS[kind], what, "msg_1").decode()]
    if kind is HookKind.EMAIL:
        bodies = [mailed(what).get_body((part,)).get_content() for part in ("plain", "html")]
    for body in bodies:
        assert body.count("it is in no deep result") == 0
        assert body.count(cause) == 1


@pytest.mark.parametrize("kind", HookKind)
def test_every_kind_leads_to_the_alert_and_says_what_to_do_and_what_was_lost(kind: HookKind) -> None:
    if kind is HookKind.EMAIL:
        bodies = [mailed(notice()).get_body((part,)).get_content() for part in ("plain", "html")]
    else:
        bodies = [body_of(HOOKS[kind], notice(), "msg_1").decode()]
    for told in (
        "https://coalmine.test/alerts/7",
        "Re-index the documents of the lost chunks.",
        "retention_policy_doc, gdpr_doc and 4 more",
    ):
        assert all(told in body for body in bodies), told


@pytest.mark.parametrize("kind", HookKind)
def test_every_kind_says_the_check_and_what_happened_in_its_title_and_how_grave_it_is_in_a_field(
    kind: HookKind,
) -> None:
    summary = notice()["data"]["summary"]
    if kind is HookKind.EMAIL:
        message = mailed(notice())
        assert message["Subject"] == summary
        assert "Severity: critical" in message.get_body(("plain",)).get_content()
        return
    found: dict[HookKind, Callable[[Any], tuple[str, str]]] = {
        HookKind.WEBHOOK: lambda body: (body["data"]["summary"], body["data"]["severity"]),
        HookKind.SLACK: lambda body: (body["blocks"][0]["text"]["text"].removeprefix("🔴 "), _severity_field(body)),
        HookKind.SLACK_APP: lambda body: found[HookKind.SLACK](body["message"]),
        HookKind.PAGERDUTY: lambda body: (body["payload"]["summary"], body["payload"]["severity"]),
        HookKind.ALERTMANAGER: lambda body: (body[0]["annotations"]["summary"], body[0]["annotations"]["severity"]),
        HookKind.APPRISE: lambda body: (body["title"], "critical" if "Severity: critical" in body["body"] else ""),
    }
    assert found[kind](written(kind, notice())) == (summary, "critical")


def _severity_field(message: Mapping[str, Any]) -> str:
    fields = [str(field["text"]) for block in message["blocks"] for field in block.get("fields", ())]
    return next(text.removeprefix("Severity: ") for text in fields if text.startswith("Severity: "))


# --- webhook -------------------------------------------------------------------------------------------------


def test_a_webhook_hands_texts_on_as_they_are() -> None:
    for text in HOSTILE.values():
        assert written(HookKind.WEBHOOK, hostile(text)) == hostile(text)


# --- slack ---------------------------------------------------------------------------------------------------


def test_slack_takes_every_message_and_finds_nothing_but_text_in_it() -> None:
    for what in (test_message(), *(hostile(text, kind) for text in HOSTILE.values() for kind in TYPES)):
        for kind in (HookKind.SLACK, HookKind.SLACK_APP):
            assert slack_problem(body_of(HOOKS[kind], what, "msg_1")) is None, what


def test_slack_links_are_ours() -> None:
    body = json.dumps(written(HookKind.SLACK, hostile(HOSTILE["link"])), ensure_ascii=False)
    links = [found for found in re.findall(r"<([^|>]+)\|([^>]+)>", body) if not found[0].startswith("!date^")]
    assert [name for _, name in links[-4:]] == ["Alert", "Check", "Run", "Runbook"]
    assert {url for url, _ in links[:-4]} == {"https://coalmine.test/checks/docs/canaries/k"}
    assert not any("evil" in url for url, _ in links)
    assert "https://wiki.test/?a=1&amp;b=%3C2%3E" in body


def test_a_title_stands_where_there_is_little_room_and_the_summary_below_it() -> None:
    told = notice(title="docs: 11 of 97 questions got worse", reason="coverage 0.500 is below 0.9 (critical)")
    summary = told["data"]["summary"]
    mail = mailed(told)
    assert mail["Subject"] == "docs: 11 of 97 questions got worse"
    text, html = (mail.get_body((kind,)).get_content() for kind in ("plain", "html"))
    assert text.startswith(summary)
    assert re.search(r"<h1[^>]*>docs: 11 of 97 questions got worse</h1>", html)
    assert f"<p>{escape(summary)}</p>" in html
    slack = written(HookKind.SLACK, told)
    assert slack["text"] == "🔴 docs: 11 of 97 questions got worse"
    blocks = slack["attachments"][0]["blocks"] if "attachments" in slack else slack["blocks"]
    assert blocks[0]["text"]["text"] == "🔴 docs: 11 of 97 questions got worse"
    assert blocks[1]["text"]["text"] == escaped(summary, 2_900)
    apprise = written(HookKind.APPRISE, told)
    assert apprise["title"] == "docs: 11 of 97 questions got worse"
    assert apprise["body"].startswith(defused(summary))


def test_messages_lead_to_the_page_of_the_incident_where_there_is_one() -> None:
    links = {**notice()["data"]["links"], "incident": "https://coalmine.test/incidents/3"}
    told = notice(links=links)
    assert written(HookKind.PAGERDUTY, told)["payload"].get("client_url") is None
    assert written(HookKind.PAGERDUTY, told)["client_url"] == "https://coalmine.test/incidents/3"
    assert written(HookKind.PAGERDUTY, notice())["client_url"] == "https://coalmine.test/alerts/7"
    (alert,) = written(HookKind.ALERTMANAGER, told)
    assert alert["generatorURL"] == alert["annotations"]["incident_url"] == "https://coalmine.test/incidents/3"
    assert "Incident: https://coalmine.test/incidents/3" in mailed(told).get_body(("plain",)).get_content()


def test_slack_shows_what_happened_in_the_header() -> None:
    titles = [written(HookKind.SLACK, notice(kind))["blocks"][0]["text"]["text"] for kind in TYPES]
    summary = notice()["data"]["summary"]
    assert titles == [*[f"🔴 {summary}"] * 4, f"🟢 {summary}"]


def test_slack_says_what_since_when_why_the_three_worst_questions_and_where_to_act() -> None:
    canary = notice()["data"]["degraded"][0]
    links = {**notice()["data"]["links"], "incident": "https://coalmine.test/incidents/3"}
    told = notice(
        degraded=[{**canary, "key": f"q{number}", "query": "a | b & <c>"} for number in range(5)], links=links
    )
    header, reason, advice, facts, questions, actions, _ = written(HookKind.SLACK, told)["blocks"]
    assert header["text"]["text"] == f"🔴 {told['data']['summary']}"
    assert reason["text"]["text"] == told["data"]["reason"]
    assert advice["text"]["text"] == "What to do: Re-index the documents of the lost chunks."
    since, cause = (field["text"] for field in facts["fields"][:2])
    assert since == "Opened: <!date^1772452800^{date_short_pretty} {time}|2026-03-02 12:00 UTC>"
    assert cause == "Cause: 8 missing from the index, 3 outranked"
    lines = questions["text"]["text"].splitlines()
    assert lines[0].startswith("• <https://coalmine.test/checks/docs/canaries/q0|a ¦ b &amp; &lt;c&gt;>: rank 1 → not")
    assert [line[:11] for line in lines[3:]] == ["and 8 more", "1 more was f"[:11]]
    assert [(one["text"]["text"], one["url"]) for one in actions["elements"]] == [
        ("See", "https://coalmine.test/incidents/3"),
        ("Acknowledge", "https://coalmine.test/incidents/3#acknowledge"),
        ("Silence 2 h", "https://coalmine.test/incidents/3#silence"),
    ]
    names = [
        [one["text"]["text"] for one in block["elements"]]
        for kind in ("alert.acknowledged", "alert.resolved")
        for block in written(HookKind.SLACK, notice(kind, links=links))["blocks"]
        if block["type"] == "actions"
    ]
    assert names == [["See", "Silence 2 h"], ["See"]]


def test_slack_shows_a_summary_that_is_longer_than_a_header_in_full_below_it() -> None:
    long = f"docs: {'word ' * 60}".strip()
    blocks = written(HookKind.SLACK, notice(summary=long))["blocks"]
    assert len(blocks[0]["text"]["text"]) <= 150
    assert re.search(r"word word…$", blocks[0]["text"]["text"])
    assert blocks[1]["text"]["text"] == long


def test_an_escaped_text_keeps_to_its_limit_and_ends_with_no_half_of_an_escape() -> None:
    for limit in range(1, 30):
        text = escaped("a&b<c>d&e<f>", limit)
        assert len(text) <= limit
        assert "&" not in re.sub("&(amp|lt|gt);", "", text), limit


# --- pagerduty -----------------------------------------------------------------------------------------------


def test_pagerduty_takes_every_event() -> None:
    kinds = (*TYPES, "alert.acknowledged")
    for what in (test_message(), *(hostile(text, kind) for text in HOSTILE.values() for kind in kinds)):
        event = {"routing_key": ROUTING_KEY, **written(HookKind.PAGERDUTY, what)}
        assert pagerduty_problem(json.dumps(event).encode()) is None, what


def test_pagerduty_hears_of_one_alert_under_one_key() -> None:
    events = [written(HookKind.PAGERDUTY, notice(kind)) for kind in (*TYPES, "alert.acknowledged")]
    assert [event["event_action"] for event in events] == [*["trigger"] * 4, "resolve", "acknowledge"]
    assert {event["dedup_key"] for event in events} == {"coalmine/docs/quality"}
    assert events[4].keys() == {"event_action", "dedup_key"}


def test_pagerduty_severities_are_those_it_has() -> None:
    told = [written(HookKind.PAGERDUTY, notice(severity=severity)) for severity in ("critical", "warning")]
    told.append(written(HookKind.PAGERDUTY, test_message()))
    assert [event["payload"]["severity"] for event in told] == ["critical", "warning", "info"]
    assert told[0]["client_url"] == "https://coalmine.test/alerts/7"
    assert [link["text"] for link in told[0]["links"]] == ["Alert", "Check", "Run", "Runbook"]


# --- alertmanager --------------------------------------------------------------------------------------------


def test_alertmanager_labels_never_change_while_an_alert_is_open() -> None:
    told = [written(HookKind.ALERTMANAGER, notice(kind, reason=kind, coverage=0.1)) for kind in TYPES]
    told.append(written(HookKind.ALERTMANAGER, notice(rule="regression", kind="regression", alerts=[])))
    told.append(written(HookKind.ALERTMANAGER, notice(severity="warning", suite="other", retriever="other")))
    labels = {json.dumps(alerts[0]["labels"]) for alerts in told}
    assert [json.loads(one) for one in labels] == [
        {"alertname": "CoalmineQuality", "service": "coalmine", "check": "docs", "dedupe_key": "coalmine/docs/quality"}
    ]
    assert told[-1][0]["annotations"]["severity"] == "warning"


def test_alertmanager_is_told_of_an_end_only_when_there_is_one() -> None:
    ends = [written(HookKind.ALERTMANAGER, notice(kind))[0].get("endsAt") for kind in TYPES]
    assert ends == [None, None, None, None, "2026-03-02T12:30:00Z"]
    (alert,) = written(HookKind.ALERTMANAGER, notice("alert.resolved"))
    assert alert["startsAt"] == "2026-03-02T12:00:00Z"
    assert alert["generatorURL"] == "https://coalmine.test/alerts/7"


def test_what_alertmanager_knew_before_there_were_incidents_ends_under_the_labels_it_has_there() -> None:
    first = {**notice()["data"]["alerts"][0], "scope": "billing"}
    later = {"alert_id": "8", "rule": "regression", "kind": "regression", "scope": "", "severity": "critical"}
    told = notice("alert.resolved", alerts=[first, later], dedupe_key="coalmine/docs/threshold-coverage/billing")
    (alert,) = written(HookKind.ALERTMANAGER, told)
    assert alert["labels"] == {
        "alertname": "CoalmineThreshold",
        "service": "coalmine",
        "check": "docs",
        "rule": "threshold-coverage",
        "scope": "billing",
        "dedupe_key": "coalmine/docs/threshold-coverage/billing",
    }


def test_alertmanager_gets_the_labels_of_its_hook_too() -> None:
    (alert,) = written(HookKind.ALERTMANAGER, notice(), labels={"team": "search", "check": "mine"})
    assert alert["labels"]["team"] == "search"
    assert alert["labels"]["check"] == "docs"
    (test,) = written(HookKind.ALERTMANAGER, test_message())
    assert test["labels"] == {"alertname": "CoalmineTest", "service": "coalmine", "dedupe_key": "msg_1"}


def test_alertmanager_annotations_are_texts_of_their_lines() -> None:
    for name, text in HOSTILE.items():
        (alert,) = written(HookKind.ALERTMANAGER, hostile(text))
        values = [*alert["labels"].values(), *alert["annotations"].values()]
        assert all(value and "\r" not in value and len(value) <= 6_000 for value in values), name
        assert all(line.isprintable() for value in values for line in value.split("\n")), name


# --- email ---------------------------------------------------------------------------------------------------


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.links += [str(value) for name, value in attrs if name == "href"]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_an_email_has_our_headers_and_tags_and_no_others(text: str) -> None:
    plain, attacked = mailed(notice()), mailed(hostile(text))
    assert attacked.keys() == plain.keys()
    assert (attacked["To"], attacked["From"]) == (plain["To"], plain["From"])
    assert len(attacked["Subject"]) <= 200
    assert [part.get_content_type() for part in attacked.walk()] == ["multipart/alternative", "text/plain", "text/html"]
    page = _Page()
    page.feed(attacked.get_body(("html",)).get_content())
    ours = {"html", "head", "meta", "body", "div", "h1", "p", "strong", "table", "tr", "td", "ul", "li", "a"}
    assert {tag for tag, _ in page.tags} <= ours
    attributes = {"lang", "name", "content", "style", "cellpadding", "href"}
    assert {name for _, names in page.tags for name in names} <= attributes
    assert page.links == [
        "https://coalmine.test/alerts/7",
        *["https://coalmine.test/checks/docs/canaries/k"] * 10,
        "https://coalmine.test/alerts/7",
        "https://coalmine.test/checks/docs",
        "https://coalmine.test/runs/812",
        "https://wiki.test/?a=1&b=<2>",
    ]


def test_an_email_says_what_since_when_and_what_to_do_before_its_picture_on_a_ground_of_its_own() -> None:
    links = {**notice()["data"]["links"], "incident": "https://coalmine.test/incidents/3"}
    mail = message_from_bytes(
        body_of(HOOKS[HookKind.EMAIL], notice(links=links), "msg_1", "data:image/png;base64,iVBORw=="), policy=default
    )
    html = mail.get_body(("html",)).get_content()  # type: ignore[union-attr] # it has one
    order = [
        "<h1",
        "Opened 2026-03-02 12:00 UTC · critical",
        "<strong>What to do:</strong> Re-index",
        ">See</a>",
    ]
    order += [">Acknowledge</a>", ">Silence 2 h</a>", "<img ", "coverage 0.500 is below 0.9 in 2 of 3 runs.", "<table"]
    order += ['<a href="https://coalmine.test/checks/docs/canaries/retention"', ">Runbook</a>"]
    places = [html.find(one) for one in order]
    assert places == sorted(places)
    assert places[0] > 0
    assert re.search(r"<div style=\"[^\"]*color:#111827;background-color:#ffffff", html)
    assert '<meta name="color-scheme" content="light">' in html
    assert html.count("2026-03-02 12:00 UTC") == 1


_HEAD = [
    "From",
    "To",
    "Subject",
    "Date",
    "Message-ID",
    "In-Reply-To",
    "References",
    "Auto-Submitted",
    "X-Auto-Response-Suppress",
    "MIME-Version",
    "Content-Type",
]


@pytest.mark.parametrize("before", ["", "critical on docs since v1 -> ", "é " * 30, "word " * 30], ids=len)
def test_the_head_of_an_email_is_ours_to_the_byte(before: str) -> None:
    for name, text in HOSTILE.items():
        told = before + text  # of index versions, tags and documents, which stand in what is said of an alert
        what = notice(summary=told, reason=told, check=told, rule=told, scope=told, dedupe_key=f"k{told}")
        head = body_of(HOOKS[HookKind.EMAIL], what, "msg_1").partition(b"\r\n\r\n")[0]
        lines = head.decode("ascii").split("\r\n")
        assert not any({"\r", "\n"} & {*line} for line in lines), name
        assert [line.partition(":")[0] for line in lines if not line.startswith((" ", "\t"))] == _HEAD, name
        assert mailed(what).get_body(("plain",)).get_content().startswith(NoticeText(what).summary), name


def test_a_subject_of_encoded_words_is_shown_as_it_was_written() -> None:
    assert mailed(notice(summary="v1 -> =?utf-8?q?v2=0d=0aBcc:_x@e.com?="))["Subject"] == (
        "v1 -> = ?utf-8?q?v2=0d=0aBcc:_x@e.com?="
    )


def test_an_email_says_the_same_twice() -> None:
    message = mailed(notice())
    texts = [message.get_body((kind,)).get_content() for kind in ("plain", "html")]
    for said in ("coverage 0.500 is below 0.9", "How long do we keep data?", "rank 1 → not found", "and 10 more"):
        assert all(said in text for text in texts)
    assert message["Subject"] == notice()["data"]["summary"]
    assert message["Date"].datetime.isoformat() == "2026-03-02T12:00:05+00:00"
    assert message["Auto-Submitted"] == "auto-generated"


def test_emails_about_one_fault_are_one_thread_of_messages_of_their_own() -> None:
    told = [mailed(notice(kind), f"msg_{number}") for number, kind in enumerate(TYPES)]
    other = mailed(notice(dedupe_key="coalmine/docs/other"), "msg_9")
    assert len({message["Message-ID"] for message in told}) == len(TYPES)
    assert len({message["References"] for message in told}) == 1
    assert all(message["References"] == message["In-Reply-To"] for message in told)
    assert other["References"] != told[0]["References"]
    assert mailed(test_message())["References"] is None


# --- apprise -------------------------------------------------------------------------------------------------


def test_apprise_types_say_how_bad_it_is() -> None:
    told = [notice(), notice(severity="warning"), notice("alert.resolved"), test_message()]
    assert [written(HookKind.APPRISE, one)["type"] for one in told] == ["failure", "warning", "success", "info"]


@pytest.mark.parametrize(
    "call", ["@everyone", "@here", "<!channel>", "<@U1>", "<#C1>", "<@&1>", "<!subteam^S>", "<b>", "&lt;", "<script>"]
)
def test_apprise_messages_call_nobody(call: str) -> None:
    assert call not in defused(f"x {call} y")
    assert defused(call).replace("\u200b", "") == call
    for part in written(HookKind.APPRISE, hostile(call)).values():
        assert call not in part


@pytest.mark.parametrize(
    "link", ["[x](https://evil.test)", "![x](https://evil.test)", "[x][y]", "[x]: https://evil.test"]
)
def test_apprise_messages_hide_no_address_behind_words(link: str) -> None:
    message = written(HookKind.APPRISE, hostile(link))
    for part in (message["title"], message["body"]):
        assert not re.search(r"\][(\[:]", part)
        assert link in part.replace("\u200b", "")


CHECKED: dict[HookKind, Callable[..., Any]] = {HookKind.SLACK: slack_problem, HookKind.PAGERDUTY: pagerduty_problem}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (HookKind.SLACK, b'{"text":"<!channel>","mrkdwn":false,"blocks":[]}'),
        (HookKind.SLACK, b'{"text":"a & b","mrkdwn":false,"blocks":[{"type":"divider"}]}'),
        (HookKind.PAGERDUTY, b'{"event_action":"trigger","dedup_key":"a"}'),
        (HookKind.PAGERDUTY, b"[]"),
    ],
)
def test_the_strict_receivers_are_strict(kind: HookKind, body: bytes) -> None:
    assert CHECKED[kind](body) is not None
