"""Statistical power of a suite: the smallest damage that its canaries detect, and topics with too few canaries.

Damage to a fraction f of an index touches at least one of N canaries with probability 1 - (1 - f)^N, which is 95 % at
N = 3/f (the rule of three); damage to one topic is detected by the canaries of that topic alone.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from app.base.counts import counted
from app.base.values import DEFAULT_CATEGORY, Canary
from app.catalog.domain.views import ReachView

SURE: Final = 3.0
"""Canaries times the fraction damaged at which some canary is hit in 95 of 100 cases."""
TARGET_FRACTION: Final = 0.05
"""A suite that does not detect a loss of one chunk in twenty is called thin."""
FEWEST_PER_TOPIC: Final = 3
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A category or tag with how many of its canaries expect something."""

    kind: str
    """`category` or `tag`."""
    name: str
    canaries: int

    @property
    def thin(self) -> bool:
        """Whether damage to this topic may go undetected: a single canary may be unlucky, or wrong."""
        return self.canaries < FEWEST_PER_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """The damage that a suite can detect."""

    canaries: int
    """Number of canaries that expect something; negative ones detect no damage."""
    topics: tuple[Topic, ...]
    """Every category and tag they have, those with the fewest canaries first."""

    @property
    def smallest_fraction(self) -> float | None:
        """The smallest damaged fraction of an index that is detected in 95 of 100 cases, at most 1; None = none is."""
        return smallest_fraction(self.canaries)

    @property
    def thin_topics(self) -> tuple[Topic, ...]:
        """The topics with fewer than three canaries."""
        return tuple(topic for topic in self.topics if topic.thin)

    def body(self) -> ReachView:
        """Return the view of it."""
        fraction = self.smallest_fraction
        return {
            "canaries": self.canaries,
            "smallest_fraction": None if fraction is None else round(fraction, 6),
            "thin_topics": [
                {"kind": topic.kind, "name": topic.name, "canaries": topic.canaries} for topic in self.thin_topics
            ],
        }


def reach(canaries: Iterable[Canary]) -> Reach:
    """Return the damage that the canaries can detect; those that expect nothing are left out.

    A category that all canaries have is no topic, it is the suite; nor is the default category.
    """
    watching = [canary for canary in canaries if canary.expects]
    counts = Counter(
        topic
        for canary in watching
        for topic in (("category", str(canary.category)), *[("tag", tag) for tag in dict.fromkeys(canary.tags)])
    )
    topics = [
        Topic(kind=kind, name=name, canaries=count)
        for (kind, name), count in counts.items()
        if kind != "category" or (count < len(watching) and name != DEFAULT_CATEGORY)
    ]
    ordered = sorted(topics, key=lambda topic: (topic.canaries, topic.kind, topic.name))
    return Reach(canaries=len(watching), topics=tuple(ordered))


def smallest_fraction(canaries: int) -> float | None:
    """Return the smallest damaged fraction this many canaries detect in 95 of 100 cases; None = not even all of it."""
    return min(1.0, SURE / canaries) if canaries >= SURE else None


def canaries_for(fraction: float) -> int:
    """Return how many canaries detect damage to this fraction in 95 of 100 cases."""
    return round(SURE / fraction)


def coverage_note(suite: str, coverage: Reach) -> str | None:
    """Return one line, without its full stop, on the damage a thin suite cannot detect; None where it is not thin.

    A suite is thin if it does not detect damage to 5 % of an index, or has a topic with fewer than three canaries.
    """
    sentences: list[str] = []
    fraction = coverage.smallest_fraction
    thin = coverage.thin_topics if fraction is not None else ()  # else every one is
    if fraction is None or fraction > TARGET_FRACTION:
        sentences.append(_total_note(coverage.canaries))
    if thin:
        named = ", ".join(f"{topic.kind} {topic.name} ({topic.canaries})" for topic in thin[:_NAMED])
        more = f" and {len(thin) - _NAMED:,} more" if len(thin) > _NAMED else ""
        sentences.append(f"fewer than {FEWEST_PER_TOPIC} canaries in {named}{more}")
    return f"suite '{suite}' is thin: {'; '.join(sentences)}" if sentences else None


def size_advice() -> str:
    """Return one line on the number of canaries a suite needs."""
    return f"{canaries_for(TARGET_FRACTION)} canaries notice a loss of {100 * TARGET_FRACTION:g} % of the index"


def _total_note(canaries: int) -> str:
    if canaries == 0:
        return "no canary expects anything, so no loss is noticed"
    advice = f"{canaries_for(TARGET_FRACTION)} would notice it"
    note = f"{counted(canaries, 'canary')} can miss a loss of {100 * TARGET_FRACTION:g} % of the index"
    return f"{note}, {advice}"
