"""Texts of a notice as short, clean lines, from which every hook kind for people is written.

Retrieved texts, queries and reasons are untrusted. Line breaks, invisible characters and excess length are removed
here; each hook kind escapes its own markup.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from app.alerts.domain.evidence import ChangedCanary, lost_text
from app.base.texts import bound_text, ratio_text
from app.base.values import Reason
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
    "alert": "Alert",
    "check": "Check",
    "run": "Run",
    "report": "Report",
    "dashboard": "Dashboard",
    "runbook": "Runbook",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeText:
    """Texts of a notice. Every one is one line of bounded length without control characters."""

    type: str
    headline: str
    """What happened to the incident, a word or two: `opened`."""
    severity: str
    """Empty for a test."""
    summary: str
    """The title: check, what happened, how much, since when, and the cause."""
    reason: str
    """Reason of the rule, and its effect on the alert."""
    advice: str
    """What to do next; empty for a test and a resolve."""
    check: str
    dedupe_key: str
    at: str
    rules: tuple[str, ...]
    """Rules of the alerts of the incident."""
    facts: tuple[tuple[str, str], ...]
    """(name, value), the most important first."""
    canaries: tuple[str, ...]
    """A line for each of the worst changed canaries."""
    more: int
    """Number of changed canaries beyond those."""
    before: int
    """Number of other degraded canaries, which were failing before the alert."""
    links: tuple[tuple[str, str], ...]
    """(name, http or https URL)."""

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
    def next_step(self) -> list[str]:
        """The advice as a line with its label, where there is one."""
        return [f"What to do: {self.advice}"] if self.advice else []

    @property
    def fact_lines(self) -> list[str]:
        """A line for each fact."""
        return [f"{name}: {value}" for name, value in self.facts]

    @property
    def canary_lines(self) -> list[str]:
        """A line with a dash for each canary, and the remarks."""
        return [*(f"- {line}" for line in self.canaries), *self.remarks]

    @property
    def link_lines(self) -> list[str]:
        """A line for each link."""
        return [f"{name}: {url}" for name, url in self.links]

    @property
    def resolved(self) -> bool:
        """Whether the incident is resolved."""
        return self.type == "alert.resolved"


def notice_text(notice: Notice) -> NoticeText:
    """Read the texts of a notice."""
    data = notice["data"]
    degraded = list(data.get("degraded") or [])
    canaries = tuple(map(_canary, degraded[:_MOST_CANARIES]))
    headline = _HEADLINES.get(notice["type"], clean(notice["type"], 40).removeprefix("alert."))
    check = clean(data.get("check"), _LONGEST_FACT)
    links: Mapping[str, object] = data.get("links") or {}
    return NoticeText(
        type=notice["type"],
        headline=headline,
        severity=clean(data.get("severity"), 40),
        summary=clean(data["summary"], LONGEST_TITLE) or f"{headline} {check}".rstrip(),
        reason=clean(data.get("reason"), LONGEST_REASON),
        advice=clean(data.get("advice"), _LONGEST_ADVICE),
        check=check,
        dedupe_key=clean(data.get("dedupe_key"), 255),
        at=clean(notice["timestamp"], 40),
        rules=_rules(data),
        facts=tuple(_facts(data, headline)),
        canaries=canaries,
        more=max((data.get("changed_total") or 0) - len(canaries), 0),
        before=data.get("failing_before") or 0,
        links=tuple(
            (label, url)
            for name, label in _LINKS.items()
            if isinstance(url := links.get(name), str) and _LINK.fullmatch(url)
        ),
    )


def clean(value: object, limit: int) -> str:
    """Return a text on one line of at most `limit` characters, without invisible ones; empty for None."""
    if value is None:
        return ""
    text = str(value)[: 4 * limit + 1_000]  # the rest is cut off anyway
    text = _HALVES.sub("\ufffd", _INVISIBLE.sub("", _BREAKS.sub(" ", text))).strip()
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def _rules(data: NoticeData) -> tuple[str, ...]:
    names = (clean(one.get("rule"), _LONGEST_FACT) for one in list(data.get("alerts") or ())[:_MOST_RULES])
    return tuple(dict.fromkeys(name for name in names if name))


def _subject(data: NoticeData) -> Iterator[tuple[str, str]]:
    for name in ("check", "suite", "retriever"):
        if data.get(name) is not None:
            yield name.capitalize(), clean(data.get(name), _LONGEST_FACT)
    rules = _rules(data)
    if rules:
        yield "Rule" if len(rules) == 1 else "Rules", clean(", ".join(rules), _LONGEST_FACT)
    if data.get("run_id") is not None:
        yield "Run", clean(data["run_id"], _LONGEST_FACT)


def _facts(data: NoticeData, headline: str) -> Iterator[tuple[str, str]]:
    if data.get("severity"):
        yield "Severity", clean(data["severity"], 40)
        yield "Event", headline
    if data.get("causes"):
        yield "Cause", clean(data["causes"], _LONGEST_FACT)
    measure, value = data.get("measure"), data.get("value")
    threshold: object = data.get("threshold")
    if measure is not None and value is not None:
        bound_shown = bound_text(threshold) if isinstance(threshold, float) else clean(threshold, 40)
        bound = "" if threshold is None else f" (bound {bound_shown})"
        label = labelled(clean(measure, _LONGEST_FACT), self_judged=data.get("self_judged"))
        yield label[:1].upper() + label[1:], f"{_number(value)}{bound}"
    for name, label in (("health_score", "Health score"), ("coverage", "Coverage")):
        if data.get(name) is not None and name != measure:
            yield label, _number(data.get(name))
    if data.get("degraded_total") is not None:
        yield "Degraded", _degraded(data)
    yield from _subject(data)
    if data.get("opened_at") is not None:
        yield "Since", clean(data["opened_at"], 40)


def _degraded(data: NoticeData) -> str:
    """Degraded canaries of the run, and how the counts of the summary and of the list add up to them."""
    total, changed = data.get("degraded_total") or 0, data.get("changed_total") or 0
    before, retried = data.get("failing_before") or 0, data.get("recovered_on_retry") or 0
    inside = f"{total:,} in run {clean(data['run_id'], 40)}" if data.get("run_id") is not None else f"{total:,}"
    if changed + before != total:  # those of a category or canary alone
        return inside
    parts = (
        (changed - retried, "since the alert began"),
        (retried, "healthy on retry"),
        (before, "failing before"),
    )
    named = [f"{count:,} {what}" for count, what in parts if count > 0]
    return f"{inside}: {', '.join(named)}" if named else inside


def _number(value: object) -> str:
    return ratio_text(value) if isinstance(value, float) else clean(value, 40)


def _canary(canary: ChangedCanary) -> str:
    """One canary as a line; without causes, which are a fact of the notice, and reasons that its rank shows."""
    reasons = ", ".join(str(one).replace("_", " ") for one in canary.get("reasons") or [] if one not in _SHOWN_BY_RANK)
    ranks = [canary.get("rank_before"), canary.get("rank_now")]
    moved = "" if ranks == [None, None] else f"rank {_rank(ranks[0])} → {_rank(ranks[1])}"
    lower = "" if ranks[1] is None else _lower(canary, ranks[0])
    lost = lost_text(canary)
    retried = "healthy on retry" if canary.get("persistent") is False else ""
    details = "; ".join(
        part for part in (clean(reasons, 80), moved, f"lost {clean(lost, 120)}" if lost else "", lower, retried) if part
    )
    name = f"{clean(canary.get('key'), 60)} “{clean(canary.get('query'), 80)}”"
    return clean(name + (f": {details}" if details else ""), _LONGEST_CANARY)


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
