"""Where a suite is too thin to see damage: damage is only seen where canaries sit.

Damage to a fraction f of an index touches at least one of N canaries with probability 1 - (1 - f)^N, which is 95 % at
N = 3/f (the rule of three); and what befalls one topic is seen by the canaries of that topic alone.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from app.domain.catalog.views import ReachView
from app.domain.counts import counted
from app.domain.model import DEFAULT_CATEGORY, Canary

SURE: Final = 3.0
"""Canaries times the fraction damaged at which some canary is hit in 95 of 100 cases."""
WANTED_FRACTION: Final = 0.05
"""A suite that does not see a loss of one chunk in twenty is called thin."""
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
        """Whether damage to this topic may go unseen: one canary may be unlucky, or wrong."""
        return self.canaries < FEWEST_PER_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What damage a suite can see."""

    canaries: int
    """Those that expect something; negative ones see no damage."""
    topics: tuple[Topic, ...]
    """Every category and tag they have, those with the fewest canaries first."""

    @property
    def smallest_fraction(self) -> float | None:
        """The smallest damaged fraction of an index that is seen in 95 of 100 cases, at most 1; None = none is."""
        return smallest_fraction(self.canaries)

    @property
    def thin_topics(self) -> tuple[Topic, ...]:
        """The topics with fewer than three canaries."""
        return tuple(topic for topic in self.topics if topic.thin)

    def body(self) -> ReachView:
        """Give it as JSON."""
        fraction = self.smallest_fraction
        return {
            "canaries": self.canaries,
            "smallest_fraction": None if fraction is None else round(fraction, 6),
            "thin_topics": [
                {"kind": topic.kind, "name": topic.name, "canaries": topic.canaries} for topic in self.thin_topics
            ],
        }


def reach(canaries: Iterable[Canary]) -> Reach:
    """Count what the canaries of a suite can see; those that expect nothing are left out.

    A category that all of them have is no topic, it is the suite; nor is the default one, which nobody stated.
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
    """Give the smallest damaged fraction this many canaries see in 95 of 100 cases; None = not even all of it."""
    return min(1.0, SURE / canaries) if canaries >= SURE else None


def canaries_for(fraction: float) -> int:
    """Give how many canaries see damage to this fraction in 95 of 100 cases."""
    return round(SURE / fraction)


def coverage_note(suite: str, coverage: Reach) -> str | None:
    """Say in one line what a suite is too thin to see, without its full stop; None where it is not.

    Thin is a suite that does not see damage to 5 % of an index, or has a topic with fewer than three canaries.
    """
    sentences: list[str] = []
    fraction = coverage.smallest_fraction
    thin = coverage.thin_topics if fraction is not None else ()  # else every one is
    if fraction is None or fraction > WANTED_FRACTION:
        sentences.append(_whole(coverage.canaries))
    if thin:
        named = ", ".join(f"{topic.kind} {topic.name} ({topic.canaries})" for topic in thin[:_NAMED])
        more = f" and {len(thin) - _NAMED:,} more" if len(thin) > _NAMED else ""
        sentences.append(f"fewer than {FEWEST_PER_TOPIC} canaries in {named}{more}")
    return f"suite '{suite}' is thin: {'; '.join(sentences)}" if sentences else None


def size_advice() -> str:
    """How many canaries a suite takes, in one line for whoever is about to choose or write one."""
    return f"{canaries_for(WANTED_FRACTION)} canaries notice a loss of {100 * WANTED_FRACTION:g} % of the index"


def _whole(canaries: int) -> str:
    if canaries == 0:
        return "no canary expects anything, so no loss is noticed"
    advice = f"{canaries_for(WANTED_FRACTION)} would notice it"
    note = f"{counted(canaries, 'canary')} can miss a loss of {100 * WANTED_FRACTION:g} % of the index"
    return f"{note}, {advice}"
