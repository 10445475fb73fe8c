"""Changed canaries of an alert in words: how many degraded since it began, in which way, and by which causes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from app.alerts.domain.cause_words import CAUSE_WORDS
from app.base.counts import counted
from app.base.number_text import short_name
from app.base.values import Cause, Reason


def _no_causes() -> Mapping[Cause, int]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCanaries:
    """The canaries that are degraded now and were not before the first bad run of an alert."""

    count: int
    of: int
    """Canaries that were measured."""
    failing_before: int = 0
    """Canaries that are degraded now and were before as well."""
    reasons: Sequence[Sequence[Reason]] = ()
    """Why each of the changed is degraded."""
    name: str = ""
    """The key of the only one, or the group that most of them have in common."""
    causes: Mapping[Cause, int] = field(default_factory=_no_causes)
    """Of the diagnosed ones."""
    shared_cause: str = ""
    """The one cause that explains the whole run, where there is one: a noun phrase."""
    shared_advice: str = ""
    """What to do about that."""
    compared: bool = True
    """Whether there is a run before the first bad one; else all degraded canaries count as changed."""
    recovered_on_retry: int = 0
    """Canaries that changed but were healthy on every retry; not part of the count."""

    @property
    def cause(self) -> str:
        """Why they changed, in one phrase; empty where unknown, or none did."""
        return (self.shared_cause or causes_text(self.causes, self.count)) if self.count else ""

    @property
    def ordered_causes(self) -> list[tuple[Cause, int]]:
        """The causes of the diagnosed ones, the commonest first."""
        return _commonest_first(self.causes)


def _commonest_first(causes: Mapping[Cause, int]) -> list[tuple[Cause, int]]:
    order = list(Cause)
    return sorted(causes.items(), key=lambda one: (-one[1], order.index(one[0])))


def causes_text(causes: Mapping[Cause, int], count: int) -> str:
    """Causes of `count` canaries: `5 missing from the index, 2 outranked`; empty where none is known.

    A cause that all of them share has no number.
    """
    ordered = _commonest_first(causes)
    if len(ordered) == 1 and ordered[0][1] >= count:
        return CAUSE_WORDS[ordered[0][0]].shared
    parts = [f"{number:,} {CAUSE_WORDS[cause].counted}" for cause, number in ordered]
    left = count - sum(causes.values())
    if parts and left > 0:
        parts.append(f"{left:,} not diagnosed")
    return ", ".join(parts)


def changed_text(changed: ChangedCanaries) -> str:
    """How many changed and how: `7 of 113 canaries lost their expected chunk`."""
    named = f" ({short_name(changed.name)})" if changed.name and changed.count == 1 else ""
    inside = f" (mostly in {short_name(changed.name)})" if changed.name and changed.count > 1 else ""
    return f"{changed.count:,} of {counted(changed.of, 'canary')}{named}{inside} {predicate_text(changed)}"


def predicate_text(changed: ChangedCanaries) -> str:
    """Return the gravest reason that all changed canaries share, as a verb phrase; else that they degraded."""
    common = set(Reason).intersection(*map(set, changed.reasons)) if changed.reasons else set()
    word = next((reason for reason in _PREDICATES if reason in common), None)
    one, many, newly_one, newly_many = _PREDICATES[word] if word is not None else _DEGRADED
    if word in {None, Reason.REGRESSED} and (split := _lost_and_lower(changed)):
        return split
    if changed.compared:
        return newly_one if changed.count == 1 else newly_many
    return one if changed.count == 1 else many


def _lost_and_lower(changed: ChangedCanaries) -> str:
    """How many lost their chunk and how many rank it lower; empty where some do neither, or all the same."""
    lost = sum(Reason.MISSING in reasons for reasons in changed.reasons)
    lower = sum(Reason.MISSING not in reasons and Reason.REGRESSED in reasons for reasons in changed.reasons)
    if not lost or not lower or lost + lower < len(changed.reasons):
        return ""
    if len(changed.reasons) < changed.count:  # only the worst of them are known
        return "lost their expected chunk or rank one lower"
    return f"lost their expected chunk ({lost:,}) or rank one lower ({lower:,})"


def cause_suffix(changed: ChangedCanaries) -> str:
    """Why they changed as the end of a sentence, where known: `: chunks missing from the index`."""
    return f": {changed.cause}" if changed.cause else ""


_DEGRADED = ("is degraded", "are degraded", "degraded", "degraded")
_PREDICATES: Final[Mapping[Reason, tuple[str, str, str, str]]] = {
    Reason.FORBIDDEN: (
        "returns a forbidden chunk",
        "return a forbidden chunk",
        "began to return a forbidden chunk",
        "began to return a forbidden chunk",
    ),
    Reason.ANSWERED: (
        "is answered though no good answer exists",
        "are answered though no good answer exists",
        "began to be answered though no good answer exists",
        "began to be answered though no good answer exists",
    ),
    Reason.MISSING: (
        "does not find its expected chunk",
        "do not find their expected chunk",
        "lost its expected chunk",
        "lost their expected chunk",
    ),
    Reason.LOW_RELEVANCE: (
        "scores below its minimum relevance",
        "score below their minimum relevance",
        "fell below its minimum relevance",
        "fell below their minimum relevance",
    ),
    Reason.BELOW_FLOOR: (
        "is below its floor",
        "are below their floor",
        "fell below its floor",
        "fell below their floor",
    ),
    Reason.STALE: (
        "returns outdated chunks",
        "return outdated chunks",
        "began to return outdated chunks",
        "began to return outdated chunks",
    ),
    Reason.SLOW: (
        "is answered too slowly",
        "are answered too slowly",
        "began to be answered too slowly",
        "began to be answered too slowly",
    ),
    Reason.REGRESSED: (
        "ranks an expected chunk lower",
        "rank an expected chunk lower",
        "ranks an expected chunk lower",
        "rank an expected chunk lower",
    ),
}
"""What canaries degraded by a reason do, the gravest first: (one, many, one newly, many newly)."""
