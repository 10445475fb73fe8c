"""A notice told in short, clean lines: what every kind for people is written from.

Retrieved texts, queries and reasons come from strangers. Here they lose what could end a line, turn a text around or
go on for ever; what each kind reads as more than text is for the kind to escape.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.domain.alerts.lost_chunks import lost_text
from app.domain.model import Reason
from app.domain.number_text import bound_text, ratio_text

LONGEST_TITLE: Final = 600
LONGEST_REASON: Final = 1_000
_LONGEST_FACT = 200
_LONGEST_ADVICE = 400
_LONGEST_CANARY = 400
_MOST_CANARIES = 10
_MOST_RULES = 20

_SILENT = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""What is not seen but changes what is: turns of direction, joins of nothing, tags."""
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
}
_LINKS: Mapping[str, str] = {
    "alert": "Alert",
    "check": "Check",
    "run": "Run",
    "dashboard": "Dashboard",
    "runbook": "Runbook",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What a notice tells people. Every text is one line of bounded length without control characters."""

    type: str
    headline: str
    """What happened to the incident, a word or two: `opened`."""
    severity: str
    """Empty for a test."""
    summary: str
    """The title: check, what happened, how much, since when, and the cause."""
    reason: str
    """What the rule saw, and what that did to the alert."""
    advice: str
    """What to do next; empty of a test and of what is over."""
    check: str
    dedupe_key: str
    at: str
    rules: tuple[str, ...]
    """Those whose alerts are or were part of the incident."""
    facts: tuple[tuple[str, str], ...]
    """(name, value), the most telling first."""
    canaries: tuple[str, ...]
    """A line for each of the worst of those that changed."""
    more: int
    """Changed canaries beyond those."""
    before: int
    """Canaries that are degraded too and were before the alert began."""
    links: tuple[tuple[str, str], ...]
    """(name, http or https URL)."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Lines that follow those of the canaries."""
        return (*self.unlisted(self.more), *self.failing_before)

    def unlisted(self, count: int) -> list[str]:
        """Say how many canaries changed that are not listed, where there are any."""
        return [f"and {count:,} more"] if count else []

    @property
    def failing_before(self) -> list[str]:
        """Say how many others were failing before, where there are any."""
        if not self.before:
            return []
        others = "more " if self.canaries else ""
        return [f"{self.before:,} {others}{'was' if self.before == 1 else 'were'} failing before"]

    @property
    def next_step(self) -> list[str]:
        """The advice as a line with its label, where there is one."""
        return [f"What to do: {self.advice}"] if self.advice else []

    @property
    def resolved(self) -> bool:
        """Whether it is over."""
        return self.type == "alert.resolved"

    @property
    def test(self) -> bool:
        """Whether nothing happened at all."""
        return self.type == "hook.test"


def story_of(notice: Mapping[str, Any]) -> Story:
    """Tell a notice in clean lines."""
    data: Mapping[str, Any] = notice["data"]
    degraded = list(data.get("degraded") or [])
    canaries = tuple(map(_canary, degraded[:_MOST_CANARIES]))
    headline = _HEADLINES.get(notice["type"], clean(notice["type"], 40).removeprefix("alert."))
    check = clean(data.get("check"), _LONGEST_FACT)
    return Story(
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
        links=tuple(_links(data.get("links") or {})),
    )


def clean(value: object, limit: int) -> str:
    """Return a text on one line of at most `limit` characters, without what is not seen; nothing for None."""
    if value is None:
        return ""
    text = str(value)[: 4 * limit + 1_000]  # what is cut off anyway need not be looked at
    text = _HALVES.sub("\ufffd", _SILENT.sub("", _BREAKS.sub(" ", text))).strip()
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def _rules(data: Mapping[str, Any]) -> tuple[str, ...]:
    names = (clean(one.get("rule"), _LONGEST_FACT) for one in list(data.get("alerts") or ())[:_MOST_RULES])
    return tuple(dict.fromkeys(name for name in names if name))


def _subject(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name what the notification is about."""
    for name in ("check", "suite", "retriever"):
        if data.get(name) is not None:
            yield name.capitalize(), clean(data[name], _LONGEST_FACT)
    rules = _rules(data)
    if rules:
        yield "Rule" if len(rules) == 1 else "Rules", clean(", ".join(rules), _LONGEST_FACT)
    if data.get("run_id") is not None:
        yield "Run", clean(data["run_id"], _LONGEST_FACT)


def _facts(data: Mapping[str, Any], headline: str) -> Iterator[tuple[str, str]]:
    if data.get("severity"):
        yield "Severity", clean(data["severity"], 40)
        yield "Event", headline
    if data.get("causes"):
        yield "Cause", clean(data["causes"], _LONGEST_FACT)
    measure, value, threshold = data.get("measure"), data.get("value"), data.get("threshold")
    if measure is not None and value is not None:
        bound = (
            f" (bound {bound_text(threshold) if isinstance(threshold, float) else clean(threshold, 40)})"
            if threshold is not None
            else ""
        )
        yield clean(measure, _LONGEST_FACT).capitalize(), f"{_number(value)}{bound}"
    for name, label in (("health_score", "Health score"), ("coverage", "Coverage"), ("degraded_total", "Degraded")):
        if data.get(name) is not None and name != measure:
            yield label, _number(data[name])
    yield from _subject(data)
    if data.get("opened_at") is not None:
        yield "Since", clean(data["opened_at"], 40)


def _number(value: object) -> str:
    return ratio_text(value) if isinstance(value, float) else clean(value, 40)


def _canary(canary: Mapping[str, Any]) -> str:
    """Write one canary in a line; causes are said once for all of them, and that a chunk is gone by its rank."""
    reasons = ", ".join(str(one).replace("_", " ") for one in canary.get("reasons") or [] if one not in _SEEN_BY_RANK)
    ranks = [canary.get("rank_before"), canary.get("rank_now")]
    moved = "" if ranks == [None, None] else f"rank {_rank(ranks[0])} → {_rank(ranks[1])}"
    lower = "" if ranks[1] is None else _lower(canary, ranks[0])
    lost = lost_text(canary)
    again = "well when asked again" if canary.get("persistent") is False else ""
    told = "; ".join(
        part for part in (clean(reasons, 80), moved, f"lost {clean(lost, 120)}" if lost else "", lower, again) if part
    )
    name = f"{clean(canary.get('key'), 60)} “{clean(canary.get('query'), 80)}”"
    return clean(name + (f": {told}" if told else ""), _LONGEST_CANARY)


def _lower(canary: Mapping[str, Any], best: object) -> str:
    """Say which expected chunk ranks lower, where that is not the best placed one."""
    chunks = [one for one in canary.get("lower") or [] if one.get("rank_now") is not None or not canary.get("lost")]
    one = next((chunk for chunk in chunks if chunk.get("rank_before") != best), None)
    if one is None:
        return ""
    name = clean(one.get("id") or one.get("document") or "another", 60)
    return f"{name} rank {_rank(one.get('rank_before'))} → {_rank(one.get('rank_now'))}"


_SEEN_BY_RANK: Final = frozenset({Reason.MISSING, Reason.REGRESSED})


def _rank(rank: object) -> str:
    return "not found" if rank is None else clean(rank, 10)


def _links(links: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, label in _LINKS.items():
        url = links.get(name)
        if isinstance(url, str) and _LINK.fullmatch(url):
            yield label, url
