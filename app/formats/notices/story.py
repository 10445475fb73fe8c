"""A notice told in short, clean lines: what every kind for people is written from.

Retrieved texts, queries and reasons come from strangers. Here they lose what could end a line, turn a text around or
go on for ever; what each kind reads as more than text is for the kind to escape.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

LONGEST_TITLE: Final = 600
LONGEST_REASON: Final = 1_000
_LONGEST_FACT = 200
_LONGEST_CANARY = 400
_MOST_CANARIES = 10

_SILENT = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""What is not seen but changes what is: turns of direction, joins of nothing, tags."""
_BREAKS = re.compile("[\x00-\x20\x7f-\xa0\u2028\u2029]+")
_HALVES = re.compile("[\ud800-\udfff]")
_LINK = re.compile(r"https?://[!-~]{1,1900}")

_HEADLINES: Mapping[str, str] = {
    "alert.opened": "OPENED",
    "alert.escalated": "ESCALATED",
    "alert.reminded": "STILL FIRING",
    "alert.acknowledged": "ACKNOWLEDGED",
    "alert.resolved": "RESOLVED",
    "hook.test": "TEST",
}
_LINKS: Mapping[str, str] = {"check": "Check", "run": "Run", "dashboard": "Dashboard", "runbook": "Runbook"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What a notice tells people. Every text is one line of bounded length without control characters."""

    type: str
    headline: str
    """What happened to the alert, a word or two in capitals."""
    severity: str
    """Empty for a test."""
    summary: str
    reason: str
    check: str
    dedupe_key: str
    at: str
    facts: tuple[tuple[str, str], ...]
    """(name, value), the most telling first."""
    canaries: tuple[str, ...]
    """A line for each of the worst."""
    more: int
    """Degraded canaries beyond those."""
    links: tuple[tuple[str, str], ...]
    """(name, http or https URL)."""

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
    headline = _HEADLINES.get(notice["type"], clean(notice["type"], 40).upper())
    check = clean(data.get("check"), _LONGEST_FACT)
    return Story(
        type=notice["type"],
        headline=headline,
        severity=clean(data.get("severity"), 40),
        summary=clean(data["summary"], LONGEST_TITLE) or f"{headline} {check}".rstrip(),
        reason=clean(data.get("reason"), LONGEST_REASON),
        check=check,
        dedupe_key=clean(data.get("dedupe_key"), 255),
        at=clean(notice["timestamp"], 40),
        facts=tuple(_facts(data)),
        canaries=canaries,
        more=max((data.get("degraded_total") or 0) - len(canaries), 0),
        links=tuple(_links(data.get("links") or {})),
    )


def clean(value: object, limit: int) -> str:
    """Return a text on one line of at most `limit` characters, without what is not seen; nothing for None."""
    if value is None:
        return ""
    text = str(value)[: 4 * limit + 1_000]  # what is cut off anyway need not be looked at
    text = _HALVES.sub("\ufffd", _SILENT.sub("", _BREAKS.sub(" ", text))).strip()
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def _facts(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    measure, value, threshold = data.get("measure"), data.get("value"), data.get("threshold")
    if measure is not None and value is not None:
        bound = f" (bound {_number(threshold)})" if threshold is not None else ""
        yield clean(measure, _LONGEST_FACT).capitalize(), f"{_number(value)}{bound}"
    for name, label in (("health_score", "Health score"), ("coverage", "Coverage"), ("degraded_total", "Degraded")):
        if data.get(name) is not None and name != measure:
            yield label, _number(data[name])
    for name in ("check", "suite", "retriever", "rule", "run_id"):
        if data.get(name) is not None:
            yield name.removesuffix("_id").capitalize(), clean(data[name], _LONGEST_FACT)
    if data.get("opened_at") is not None:
        yield "Since", clean(data["opened_at"], 40)


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else clean(value, 40)


def _canary(canary: Mapping[str, Any]) -> str:
    reasons = ", ".join(map(str, canary.get("reasons") or []))
    ranks = [canary.get("rank_before"), canary.get("rank_now")]
    moved = "" if ranks == [None, None] else f"rank {_rank(ranks[0])} → {_rank(ranks[1])}"
    cause = ": ".join(part for part in (clean(canary.get("cause"), 40), clean(canary.get("cause_reason"), 120)) if part)
    told = "; ".join(part for part in (clean(reasons, 80), moved, cause) if part)
    name = f"{clean(canary.get('key'), 60)} “{clean(canary.get('query'), 80)}”"
    return clean(name + (f": {told}" if told else ""), _LONGEST_CANARY)


def _rank(rank: object) -> str:
    return "none" if rank is None else clean(rank, 10)


def _links(links: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, label in _LINKS.items():
        url = links.get(name)
        if isinstance(url, str) and _LINK.fullmatch(url):
            yield label, url
