"""Facts of an index: what was usual before a run, what fell against that, and recall against exact search.

A fact is a number that the store of a retriever tells once a run, or the reason why it is unknown. `exact_recall` is
measured: the share of what an exact search finds that the index returned, over a sample of the run's canaries.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from typing_extensions import TypedDict

from app.base.statistics import CONFIDENCE, hash_share, student_quantile
from app.base.texts import percent_text
from app.base.values import ROUNDING, Ranking, TimeText, Value, replace

EXACT_RECALL: Final = "exact_recall"
COUNTS: Final = frozenset({"documents", "vectors"})
"""Facts that count what the index holds: they are watched without being asked for."""
WATCHED: Final = COUNTS | {EXACT_RECALL}
FALL: Final = 0.1
"""Share by which a fact falls against what is usual, where a rule names none."""
USUAL_OF: Final = 10
"""The newest known values of which the usual one is the median."""
SETTLED: Final = 20
"""Known values in a row that fell, after which they are how things are."""
PAST: Final = 3 * SETTLED
"""Known values that are read: what came before them no longer matters to what is usual."""
_LEAST_OF_RECALL: Final = 3
"""Known values of `exact_recall` until one is usual: each is of another sample."""
_SURER: Final = 1.4
"""Width of an interval of 99 % in that of one of 95 %, by Student's t of 20 canaries."""
_LEAST_ANSWERED: Final = 0.5
"""Share of the exact searches that must be answered, or nothing is said."""


class Fact(Value):
    """A fact of one run: its value, or the reason why it is unknown, without a full stop."""

    name: str
    value: float | None = None
    reason: str | None = None
    low: float | None = None
    high: float | None = None
    """Of `exact_recall`: its interval."""
    canaries: int | None = None
    """Of `exact_recall`: how many were compared."""
    source: str = ""
    """What it was read of: of another index, or by another request, it is not comparable."""
    sentence: str | None = None
    """What is wrong with it by the bounds that a check has by default, a clause; None = nothing is."""

    @property
    def is_count(self) -> bool:
        """Whether it counts what the index holds."""
        return self.name in COUNTS


class PastValue(Value):
    """What a fact was in an earlier run that knew it."""

    run_id: int
    value: float
    high: float | None = None
    source: str = ""


class Usual(Value):
    """What is usual for a fact before a run."""

    value: float
    """The median of the newest known values that had not fallen."""
    run_id: int
    """The newest run that had as much."""
    value_of_run: float


class KnownFact(Value):
    """A fact of a run, and what it was in the runs before, oldest first; unknown ones are left out."""

    fact: Fact
    past: Sequence[PastValue] = ()

    @property
    def was_ever_known(self) -> bool:
        """Whether it is known, or was before."""
        return self.fact.value is not None or bool(self.past)


def usual_of(name: str, past: Sequence[PastValue], fall: float = FALL) -> Usual | None:
    """Return what is usual after these values, oldest first; None = there are too few.

    Values that fell are not learned, until they have stood for `SETTLED` in a row. A median, so that a value or two of
    an index under construction changes nothing.
    """
    learned: list[PastValue] = []
    fallen: list[PastValue] = []
    for one in past:
        usual = _median(name, learned)
        if usual is None or not has_fallen(one.value, usual, fall, high=one.high):
            learned, fallen = [*learned[1 - USUAL_OF :], one], []
            continue
        fallen.append(one)
        if len(fallen) >= SETTLED:
            learned, fallen = fallen[-USUAL_OF:], []
    usual = _median(name, learned)
    if usual is None:
        return None
    run = next(one for one in reversed(learned) if one.value >= usual - ROUNDING)
    return Usual(value=usual, run_id=run.run_id, value_of_run=run.value)


def _median(name: str, learned: Sequence[PastValue]) -> float | None:
    least = _LEAST_OF_RECALL if name == EXACT_RECALL else 1
    return statistics.median_low([one.value for one in learned]) if len(learned) >= least else None


def has_fallen(value: float, usual: float, fall: float = FALL, *, high: float | None = None) -> bool:
    """Whether a value is lower than usual by a share; of one with an interval, only where that leaves no doubt.

    `high`: the upper end of its 95 % interval. One of 99 % must be below what is usual, which is an estimate itself.
    """
    is_sure = high is None or value + _SURER * (high - value) < usual
    return value <= usual * (1 - fall) + ROUNDING < usual and is_sure


def fall_text(fact: Fact, usual: Usual) -> str:
    """Say how far a fact fell, as a clause: `the index has 12 % fewer vectors than in run 61 (88,000 of 100,000)`."""
    value, before = fact.value or 0.0, usual.value_of_run
    if fact.name == EXACT_RECALL:
        return f"{recall_text(fact)}; in run {usual.run_id} it was {percent_text(before)}"
    share = percent_text((before - value) / before)
    figures = f"in run {usual.run_id} ({number_text(value)} of {number_text(before)})"
    if fact.is_count:
        return f"the index has {share} fewer {fact.name} than {figures}"
    return f"{fact.name} of the index is {share} lower than {figures}"


def same_text(fact: Fact, usual: Usual) -> str | None:
    """Say that an index holds as much as it did, as a clause; None where it holds less, or more."""
    if fact.value is None or not fact.is_count or fact.value != usual.value_of_run:
        return None
    return f"the index has as many {fact.name} as in run {usual.run_id} ({number_text(fact.value)})"


def recall_text(fact: Fact) -> str:
    """Say how much of what exact search finds the index returned, as a clause."""
    text = f"the index returned {percent_text(fact.value or 0.0)} of what exact search finds"
    if fact.low is None or fact.high is None:
        return text
    between = f"{100 * CONFIDENCE:g} % between {percent_text(fact.low)} and {percent_text(fact.high)}"
    return f"{text} ({between}, {fact.canaries} canaries)"


def number_text(value: float) -> str:
    """Write a number of an index: `88,000`, `0.874`."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.3f}"


def sampled(keys: Mapping[int, str], count: int, seed: str) -> list[int]:
    """Draw so many positions; others for another seed, and the same ones for the same."""
    drawn = sorted(keys, key=lambda position: hash_share(f"{seed} {keys[position]}"))
    return sorted(drawn[:count])


def recall_against(returned: Ranking, exact: Ranking, k: int) -> float | None:
    """Share of the first k of an exact search that an answer has among its own first k; None = it finds nothing.

    A hit of the exact search that scores as the last of these counts too, and where it may have had more such ones than
    it was asked for, any that scores so: which of equals come first is chance.
    """
    wanted = exact.ids[:k]
    if not wanted:
        return None
    last = exact.scores[len(wanted) - 1]
    known = {*wanted, *(one for one, score in zip(exact.ids, exact.scores, strict=True) if _is_same(score, last))}
    goes_on = _is_same(exact.scores[-1], last)
    hits = zip(returned.ids[:k], returned.scores[:k], strict=False)
    found = sum(one in known or (goes_on and _is_same(score, last)) for one, score in hits)
    return min(1.0, found / len(wanted))


def _is_same(score: float | None, other: float | None) -> bool:
    return score is not None and other is not None and math.isclose(score, other, rel_tol=1e-6, abs_tol=1e-9)


def exact_recall(recalls: Sequence[float], asked: int, k: int, why: str | None = None) -> Fact:
    """Return recall against exact search, with its interval, from that of each compared canary.

    The interval is Student's over canaries, with no smaller variance than k hits drawn by chance have: canaries that
    all have the same share do not make it certain. `asked`: how many were to be compared; `why`: why some were not.
    """
    count = len(recalls)
    if not count or count < _LEAST_ANSWERED * asked:
        because = f": {why}" if why else ""
        return Fact(name=EXACT_RECALL, reason=f"{count} of {asked} exact searches were answered{because}")
    mean = statistics.fmean(recalls)
    likely = (mean * count * k + 1) / (count * k + 2)
    least = likely * (1 - likely) / k
    variance = max(statistics.variance(recalls), least) if count > 1 else max(0.25, least)
    side = student_quantile((1 + CONFIDENCE) / 2, max(1, count - 1)) * math.sqrt(variance / count)
    low, high = max(0.0, mean - side), min(1.0, mean + side)
    return Fact(name=EXACT_RECALL, value=mean, low=low, high=high, canaries=count)


def fallen_facts(facts: Iterable[KnownFact], fall: float = FALL) -> list[tuple[Fact, Usual]]:
    """Return the watched facts that fell against what was usual, counts first, each with what was usual."""
    found = []
    for known in facts:
        usual = usual_of(known.fact.name, known.past, fall)
        value = known.fact.value
        if known.fact.name not in WATCHED or usual is None or value is None:
            continue
        if has_fallen(value, usual.value, fall, high=known.fact.high):
            found.append((known.fact, usual))
    return sorted(found, key=lambda one: (not one[0].is_count, one[0].name))


def with_sentences(facts: Sequence[KnownFact]) -> list[Fact]:
    """Return the facts of a run, those that fell with the clause that says so."""
    fallen = {one.name: fall_text(one, usual) for one, usual in fallen_facts(facts)}
    return [replace(known.fact, sentence=fallen.get(known.fact.name)) for known in facts]


def size_clauses(facts: Sequence[KnownFact]) -> tuple[list[str], list[str]]:
    """Return what is said of how much an index holds: clauses that it is less, and that it is as much as it was."""
    counts = [one for one in facts if one.fact.is_count]
    less = [fall_text(one, usual) for one, usual in fallen_facts(counts)]
    usual = [(one.fact, usual_of(one.fact.name, one.past)) for one in counts]
    same = [text for fact, was in usual if was is not None and (text := same_text(fact, was)) is not None]
    return less, same


def recall_clauses(facts: Sequence[KnownFact]) -> tuple[list[str], list[str]]:
    """Return what is said of recall against exact search: that it fell, and that it is as usual."""
    known = [one for one in facts if one.fact.name == EXACT_RECALL and one.fact.value is not None]
    less = [fall_text(one, usual) for one, usual in fallen_facts(known)]
    is_usual = not less and any(usual_of(EXACT_RECALL, one.past) is not None for one in known)
    return less, [f"{recall_text(one.fact)}, as usual" for one in known] if is_usual else []


class IndexFactView(TypedDict):
    """A fact of the index in one run."""

    fact: str
    value: float | None
    """Null = unknown, and `reason` says why."""
    reason: str | None
    low: float | None
    high: float | None
    """Of `exact_recall`, a share: its 95 % interval."""
    canaries: int | None
    """Of `exact_recall`: how many were compared."""
    before: float | None
    """In the newest run before that knew it; null = none did."""
    before_run: str | None
    change: float | None
    """The difference from `before` as a share of it."""
    usual: float | None
    """The median of the newest 10 known values that had not fallen."""
    sentence: str | None
    """What is wrong with it, by the bounds that a check has by default; null = nothing is."""


class RunFactsView(TypedDict):
    """The facts of the index in one run."""

    items: list[IndexFactView]


class FactValueView(TypedDict):
    """A fact in one run of a series."""

    value: float | None
    reason: str | None
    low: float | None
    high: float | None


class IndexRunView(TypedDict):
    """What a run read of the index."""

    run: str
    at: TimeText | None
    """When the run ended."""
    facts: dict[str, FactValueView]


class IndexSeriesView(TypedDict):
    """What runs of a check read of the index, newest first."""

    items: list[IndexRunView]
    next: str | None
