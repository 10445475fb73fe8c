"""What a suite can notice: its power, which is how small a loss so many canaries see, and its composition; with advice.

The suite version itself, as runs work with it, is `run_inputs.SuiteSnapshot`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final, Self

from app.base.texts import counted
from app.base.values import DEFAULT_CATEGORY, Canary, Category, Segment, Value
from app.catalog.views import ReachView

SURE: Final = 3.0
"""Canaries times the fraction damaged at which some canary is hit in 95 of 100 cases."""
TARGET_FRACTION: Final = 0.05
"""A suite that does not detect a loss of one chunk in twenty is called thin."""
FEWEST_PER_TOPIC: Final = 3
_NAMED = 3


class Topic(Value):
    """A category or tag with how many of its canaries expect something."""

    kind: str
    """`category` or `tag`."""
    name: str
    canaries: int

    @property
    def thin(self) -> bool:
        """Whether damage to this topic may go undetected: a single canary may be unlucky, or wrong."""
        return self.canaries < FEWEST_PER_TOPIC


class SuitePower(Value):
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


def power_of(canaries: Iterable[Canary]) -> SuitePower:
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
    return SuitePower(canaries=len(watching), topics=tuple(ordered))


def smallest_fraction(canaries: int) -> float | None:
    """Return the smallest damaged fraction this many canaries detect in 95 of 100 cases; None = not even all of it."""
    return min(1.0, SURE / canaries) if canaries >= SURE else None


def canaries_for(fraction: float) -> int:
    """Return how many canaries detect damage to this fraction in 95 of 100 cases."""
    return round(SURE / fraction)


def coverage_note(suite: str, power: SuitePower) -> str | None:
    """Return one line, without its full stop, on the damage a thin suite cannot detect; None where it is not thin.

    A suite is thin if it does not detect damage to 5 % of an index, or has a topic with fewer than three canaries.
    """
    limits = [f"{limit[0].lower()}{limit[1:-1]}" for limit in detection_limits(power)]
    return f"suite '{suite}' is thin: {'; '.join(limits)}" if limits else None


def detection_limits(power: SuitePower) -> tuple[str, ...]:
    """Return what a thin suite cannot detect, as sentences; empty where it is not thin."""
    sentences: list[str] = []
    fraction = power.smallest_fraction
    thin = power.thin_topics if fraction is not None else ()  # else every one is
    if fraction is None or fraction > TARGET_FRACTION:
        note = _total_note(power.canaries)
        sentences.append(f"{note[0].upper()}{note[1:]}.")
    if thin:
        first, *others = thin
        counts = [f"{_named(topic)} {topic.canaries}" for topic in others[: _NAMED - 1]]
        named = ", ".join([f"{_named(first)} has {counted(first.canaries, 'canary')}", *counts])
        more = f" and {len(thin) - _NAMED:,} more too few" if len(thin) > _NAMED else ""
        each = "each" if others else "it"
        sentences.append(f"{named[0].upper()}{named[1:]}{more}; {FEWEST_PER_TOPIC} are needed to judge {each}.")
    return tuple(sentences)


def _named(topic: Topic) -> str:
    return f"{topic.kind} {topic.name.replace('_', ' ') if topic.kind == 'category' else topic.name}"


def size_advice() -> str:
    """Return one line on the number of canaries a suite needs."""
    return f"{canaries_for(TARGET_FRACTION)} canaries notice a loss of {100 * TARGET_FRACTION:g} % of the index"


def _total_note(canaries: int) -> str:
    if canaries == 0:
        return "no canary expects anything, so no loss is noticed"
    advice = f"{canaries_for(TARGET_FRACTION)} would notice it"
    note = f"{counted(canaries, 'canary')} can miss a loss of {100 * TARGET_FRACTION:g} % of the index"
    return f"{note}, {advice}"


class SuiteFloors(Value):
    """The keys and floors of a suite's canaries."""

    keys: Collection[str]
    floors: Mapping[str, Collection[str]]
    """The measures with floors by key, of the canaries that have any."""
    measures: frozenset[str]
    """All measures with floors: few, so that most checks are validated without a pass over the canaries."""

    @classmethod
    def of(cls, keys: Collection[str], floors: Mapping[str, Collection[str]]) -> Self:
        """Return the floors with `measures` filled in."""
        return cls(keys=keys, floors=floors, measures=frozenset(chain.from_iterable(floors.values())))


SEGMENT_TARGETS: Final[Mapping[Segment, int]] = MappingProxyType(dict.fromkeys(Segment, FEWEST_PER_TOPIC))
"""Fewest canaries of each segment, over all categories: a single one may be unlucky, or wrong."""
USUAL_CHUNKS: Final[Mapping[Category, tuple[int, int]]] = MappingProxyType(
    {
        Category.SIMPLE_FACTUAL: (1, 2),
        Category.COMPLEX_FACTUAL: (3, 5),
        Category.PROCEDURAL: (5, 10),
        Category.ENTITY_CENTRIC: (3, 5),
        Category.COMPARATIVE: (2, 4),
        Category.NEGATIVE: (0, 0),
    }
)
"""Fewest and most expected chunks that questions of a category usually have."""


class Composition(Value):
    """Number of canaries by category and segment (None = not stated), and notes without their full stops."""

    counts: Mapping[tuple[Category, Segment | None], int]
    notes: tuple[str, ...]

    def total(self, segment: Segment | None) -> int:
        """Return the number of canaries of a segment over all categories."""
        return sum(count for (_, one), count in self.counts.items() if one is segment)


def compose(canaries: Iterable[Canary]) -> Composition:
    """Count canaries, and note segments below their targets and categories with unusual numbers of chunks.

    Segments are noted only where one is stated at all.
    """
    found = list(canaries)
    counts = Counter((one.category, one.segment) for one in found)
    segments = Counter(one.segment for one in found if one.segment is not None)
    notes = [
        f"{counted(segments[segment], 'canary')} of segment {segment}, {target} or more notice damage to it"
        for segment, target in SEGMENT_TARGETS.items()
        if segments and segments[segment] < target
    ]
    return Composition(counts=counts, notes=(*notes, *_chunk_notes(found)))


def _chunk_notes(canaries: Iterable[Canary]) -> Iterable[str]:
    every: Counter[Category] = Counter()
    fewer: Counter[Category] = Counter()
    more: Counter[Category] = Counter()
    for one in canaries:
        least, most = USUAL_CHUNKS[one.category]
        chunks = sum(judgment.grade >= 1 for judgment in one.judgments)
        every[one.category] += 1
        fewer[one.category] += chunks < least
        more[one.category] += chunks > most
    for category, (least, most) in USUAL_CHUNKS.items():
        usual = f"{least} to {most}" if most else "none"
        for unusual, word in ((fewer, "fewer"), (more, "more")):
            if unusual[category]:
                name, share = str(category).replace("_", " "), f"{unusual[category]} of {every[category]}"
                yield f"{name}: {share} with {word} expected chunks than usual ({usual})"
