"""What a suite can notice: its power, which is how small a loss so many canaries see, and its composition; with advice.

The suite version itself, as runs work with it, is `run_inputs.SuiteSnapshot`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from math import ceil, comb
from types import MappingProxyType
from typing import Final, Self

from app.base.texts import counted
from app.base.values import DEFAULT_CATEGORY, ROUNDING, Canary, Category, Segment, Value
from app.catalog.views import ReachView

SURE: Final = 3.0
"""Canaries that are hit on average, where at least one is in 95 of 100 cases: e^-3 is .05."""
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
    failing: Mapping[tuple[int, int], int]
    """How many expect so many chunks and fail by losing so many of these; those that expect the same count as one."""

    @property
    def different(self) -> int:
        """How many of them expect something else than the others: what is expected alike is lost together."""
        return sum(self.failing.values())

    @property
    def smallest_fraction(self) -> float | None:
        """The smallest fraction lost of which some canary loses an expected chunk in 95 of 100 cases, at most 1.

        None = not even where all of it is lost. Chunks are lost at random, and canaries find what they expect.
        """
        return smallest_fraction(self.different)

    @property
    def failing_fraction(self) -> float | None:
        """The same of a canary that fails: it loses all that it expects, or so much that it falls below its floor."""
        if self.different < SURE:
            return None
        low, high = 0.0, 1.0
        while high - low > _CLOSE:
            middle = (low + high) / 2
            low, high = (middle, high) if self._failing_at(middle) < SURE else (low, middle)
        return high

    def _failing_at(self, fraction: float) -> float:
        return sum(count * _chance(*losses, fraction) for losses, count in self.failing.items())

    @property
    def sentence(self) -> str:
        """What a loss does to canaries, without its full stop; empty where not even a loss of all does it."""
        first, fails = self.smallest_fraction, self.failing_fraction
        if first is None or fails is None:
            return ""
        lost = f"if {100 * first:.2g} % of the index were lost, a canary would"
        if f"{fails:.2g}" == f"{first:.2g}":
            return f"{lost} fail in 95 of 100 cases"
        return f"{lost} lose a chunk it expects in 95 of 100 cases, and one would fail from {100 * fails:.2g} % on"

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
            "failing_fraction": None if (fails := self.failing_fraction) is None else round(fails, 4),
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
    losses: dict[frozenset[tuple[str | None, ...]], int] = {}
    for canary in watching:
        expected = frozenset((one.id, one.document, one.text) for one in canary.judgments if one.grade >= 1)
        losses[expected] = min(_losses_to_fail(canary, len(expected)), losses.get(expected, len(expected)))
    failing = Counter((len(expected), needed) for expected, needed in losses.items())
    return SuitePower(canaries=len(watching), topics=tuple(ordered), failing=failing)


def _losses_to_fail(canary: Canary, expected: int) -> int:
    """Return how many of its expected chunks a canary has to lose to fail: all, or as many as its floor of recall."""
    floors = [value for name, value in canary.floors.items() if name.startswith("R@")]
    return min([expected, *(expected - ceil(floor * expected - ROUNDING) + 1 for floor in floors if floor > 0)])


def _chance(expected: int, needed: int, fraction: float) -> float:
    """Return the chance to lose `needed` or more of so many chunks, where each is lost by the chance `fraction`."""
    return sum(
        comb(expected, lost) * fraction**lost * (1 - fraction) ** (expected - lost)
        for lost in range(needed, expected + 1)
    )


_CLOSE: Final = 1e-6


def smallest_fraction(canaries: int) -> float | None:
    """Return the fraction lost of which one of so many loses a chunk in 95 of 100 cases; None = not even of all."""
    return min(1.0, SURE / canaries) if canaries >= SURE else None


def canaries_for(fraction: float) -> int:
    """Return how many canaries it takes so that one loses a chunk in 95 of 100 cases, where this fraction is lost."""
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
        note = _total_note(power)
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


def _total_note(power: SuitePower) -> str:
    if power.canaries == 0:
        return "no canary expects anything, so no loss is noticed"
    advice = f"{canaries_for(TARGET_FRACTION)} would notice it"
    alike = f" that expect {power.different:,} different things" if power.different < power.canaries else ""
    note = f"{counted(power.canaries, 'canary')}{alike} can miss a loss of {100 * TARGET_FRACTION:g} % of the index"
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
