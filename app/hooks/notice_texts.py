"""Texts of a notice for people, whatever sends them: lines of bounded length in which nothing is marked up."""

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote

from app.alerts.domain.advice import leads_to_retriever
from app.alerts.domain.state import is_about_canaries
from app.alerts.domain.summaries import answer_change_text
from app.alerts.domain.views import ChangedCanary, WorseAnswer, lost_text
from app.base.texts import (
    bound_text,
    corrected_label,
    corrected_text,
    measure_words,
    own_text,
    ratio_text,
    seconds_text,
)
from app.base.values import Reason, RuleKind
from app.catalog.domain import labelled
from app.hooks.domain import Notice, NoticeData

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
LINK: Final = re.compile(r"https?://[!-~]{1,1900}")

OPENED: Final = "Opened"

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
    "plants": "Planted documents",
    "run": "Run",
    "report": "Report",
    "dashboard": "Dashboard",
    "runbook": "Runbook",
}
_RENAMED = "the page of renamed chunks"
"""As advice names it."""
_RENAMED_CHUNKS: Final = "Renamed chunks"
"""As a link names it."""
_RETRIEVER: Final = "Retriever"
"""Likewise."""


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
    def lost(self) -> list[str]:
        """The chunks that the changed canaries lost, as a line; empty where they are not known."""
        lost = clean(self.data.get("lost"), _LONGEST_FACT)
        what = "Ids that are gone" if _RENAMED in self.advice else "Lost chunks"
        return [f"{what}: {lost}"] if lost and not self.resolved else []

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
        lines = ((f"{key} “{query}”", what) for key, query, what in self.questions)
        return tuple(clean(f"{name}: {what}" if what else name, _LONGEST_CANARY) for name, what in lines)

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
        known = {
            label: url
            for name, label in _LINKS.items()
            if isinstance(url := links.get(name), str) and LINK.fullmatch(url)
        }
        if "Check" in known and _RENAMED in (self.data.get("advice") or ""):
            known[_RENAMED_CHUNKS] = f"{known['Check']}/reanchors"
        retriever = self.data.get("retriever")
        if "Check" in known and retriever and leads_to_retriever(self.advice, self.data.get("kind") or ""):
            known[_RETRIEVER] = f"{known['Check'].rpartition('/checks/')[0]}/retrievers/{quote(retriever, safe='')}"
        return tuple(known.items())

    @property
    def page(self) -> str | None:
        """Address of the page that tells all of it: that of the incident, else of the alert."""
        links = dict(self.links)
        return links.get("Incident", links.get("Alert"))

    @property
    def link_lines(self) -> list[str]:
        """A line for each link."""
        return [f"{name}: {url}" for name, url in self.links]

    @property
    def questions(self) -> tuple[tuple[str, str, str], ...]:
        """(key, query, what happened to it) of each of `canaries`."""
        if answers := self.data.get("answers"):
            return tuple(map(_answer, answers["listed"][:_MOST_CANARIES]))
        return tuple(map(_canary, list(self.data.get("degraded") or [])[:_MOST_CANARIES]))

    def page_of(self, key: str) -> str | None:
        """Address of the page of a canary of the check; None where there is none."""
        page = f"{dict(self.links).get('Check', '')}/canaries/{quote(key, safe='')}"
        return page if LINK.fullmatch(page) else None

    @property
    def actions(self) -> tuple[tuple[str, str], ...]:
        """(name, URL) of what can be done about an incident that goes on; the first shows it."""
        page = dict(self.links).get("Incident")
        if page is None or self.resolved:
            return () if self.page is None else (("See", self.page),)
        acknowledge = () if self.type == "alert.acknowledged" else (("Acknowledge", f"{page}#acknowledge"),)
        where = [(name, url) for name, url in self.links if name in {_RENAMED_CHUNKS, _RETRIEVER}]
        return (("See", page), *where, *acknowledge, ("Silence 2 h", f"{page}#silence"))

    def _facts(self) -> Iterator[tuple[str, str]]:
        data = self.data
        if data.get("opened_at") is not None:
            yield OPENED, f"{clean(str(data['opened_at'])[:16].replace('T', ' '), 16)} UTC"
        if data.get("causes"):
            yield "Cause", clean(data["causes"], _LONGEST_FACT)
        if data.get("severity"):
            yield "Severity", self.severity
            yield "Event", self.headline
        measure, value = data.get("measure"), data.get("value")
        threshold: object = data.get("threshold")
        if measure is not None and value is not None:
            is_time = data.get("kind") in {RuleKind.LATENCY, RuleKind.SLOWER}
            write = seconds_text if is_time else bound_text
            bound_shown = write(threshold) if isinstance(threshold, float) else clean(threshold, 40)
            bound = "" if threshold is None else f" (bound {bound_shown})"
            own, pooled = data.get("self_judged"), data.get("pooled_recall", [])
            rate = data.get("corrected")
            label = clean(measure_words(measure) if rate is None else measure, _LONGEST_FACT)
            hint = data.get("uncalibrated", False)
            if rate is None:
                label = labelled(f"{label} (uncalibrated)" if hint else label, self_judged=own, pooled=pooled)
            else:
                label = corrected_label(label, uncalibrated=hint)
            shown = _number(value) if rate is None else corrected_text(value, rate)
            shown = seconds_text(value) if is_time and isinstance(value, float) else shown
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


def _canary(canary: ChangedCanary) -> tuple[str, str, str]:
    """Return key and query of a canary, and what happened to it, without its cause and reasons that its rank shows."""
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
    return clean(canary.get("key"), 60), clean(canary.get("query"), 80), details


def _answer(answer: WorseAnswer) -> tuple[str, str, str]:
    """Return key, query and what happened of one answer that got worse."""
    moved = f"{ratio_text(answer['value_before'])} → {ratio_text(answer['value'])}"
    what = f"{moved}, {answer_change_text(answer['change'])}"
    return clean(answer["key"], 60), clean(answer["query"], 80), what


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
