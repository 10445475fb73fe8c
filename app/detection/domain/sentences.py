"""Sentences of a detector's readings, without keys of canaries."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.base.texts import counted, percent_text
from app.detection.domain import evidence
from app.detection.domain.learning import FULL_RUNS, IDENTICAL_RUNS
from app.detection.domain.values import HabitReading, Reading, Settings, Signal
from app.detection.domain.views import DriftKind, StoredDrift

_MOST_GROUPS = 3
_DOCUMENT = "document:"
"""Groups by expected document are not named: another document may be gone."""


class Why(Enum):
    """Reason of a decision."""

    QUIET = auto()
    EVIDENCE = auto()
    STRIKES = auto()
    TAIL = auto()
    STANDS = auto()
    RECOVERING = auto()
    CLOSED = auto()


def reason_of(reading: Reading, why: Why, *, watched: int, settings: Settings) -> str:
    """Sentence of a reading."""
    failing = _failing(reading, watched)
    good = counted(reading.good, "good run")
    since = f"for {counted(reading.since, 'run')}" if reading.since > 1 else "since this run"
    sentences = {
        Why.QUIET: lambda: _evidence(reading, settings),
        Why.EVIDENCE: lambda: f"{_evidence(reading, settings)}, {since}{_named(reading)}",
        Why.STRIKES: lambda: _struck(reading),
        Why.TAIL: lambda: _newly(reading),
        Why.STANDS: lambda: f"still worse than before the alarm, {since}{_named(reading)}",
        Why.RECOVERING: lambda: f"{good} in a row, {settings.close} close the alarm",
        Why.CLOSED: lambda: f"{good} in a row end the alarm of {counted(reading.since, 'run')}",
    }
    return f"{failing}; {sentences[why]()}."


def habit_reason(reading: Reading, *, watched: int) -> str:
    """Sentence of a reading whose run is an episode of a habit."""
    habit = reading.habit
    if habit is None:
        raise ValueError("There is no habit to speak of.")
    good = f"; {counted(reading.good, 'good run')} in a row" if reading.good else ""
    lasts = f"for {counted(habit.runs, 'run')} now, {habit.bound:,} at most"
    return f"{_failing(reading, watched)}; {habit_sentence(habit)}, {lasts}{good}."


def habit_sentence(habit: HabitReading) -> str:
    """Clause on a habit."""
    count = len(habit.keys)
    these = "this canary switches" if count == 1 else f"these {count:,} canaries switch"
    return f"a habit: {these} between {_word(habit.answers)} answers, seen {habit.times:,} times"


def warming_summary(identical: int, eligible: int) -> str:
    """Progress of the first baseline, by the nearer one of its two conditions.

    `identical`: the newest runs in a row with the same results, `eligible`: runs that may be learned from.
    """
    if FULL_RUNS - eligible < IDENTICAL_RUNS - identical:
        return f"no baseline yet: {min(eligible, FULL_RUNS)} of {FULL_RUNS} runs"
    return f"no baseline yet: {min(identical, IDENTICAL_RUNS)} of {IDENTICAL_RUNS} identical runs"


def warming_note(identical: int, eligible: int) -> str:
    """Return the missing runs, and the rules until then; the counters are those of `warming_summary`."""
    return (
        f"no baseline yet: {min(identical, IDENTICAL_RUNS)} of {IDENTICAL_RUNS} identical runs, "
        f"or {min(eligible, FULL_RUNS)} of {FULL_RUNS} runs of any kind; until then it alarms when a stable canary "
        f"fails {evidence.STRIKES} runs in a row, or when more canaries start to fail than chance explains"
    )


def _word(number: int) -> str:
    return {2: "two", 3: "three", 4: "four", 5: "five"}.get(number, str(number))


def _failing(reading: Reading, watched: int) -> str:
    # Not "lost": most alerts say so of those alone that found their chunk before.
    failing = f"{reading.lost} of {counted(watched, 'canary')} without an expected chunk"
    if reading.usual is None:
        return failing
    # No canary is counted twice here, so the bound of all that are worse is left out: it includes those lost.
    others = {0: "no other", 1: "1 other"}.get(reading.worse_alone, f"{reading.worse_alone:,} others")
    return f"{failing} (usually at most {reading.usual[0]}), {others} worse than usual"


def _struck(reading: Reading) -> str:
    struck = sum(one.evidence is None for one in reading.culprits)
    verbs = "was stable and now fails" if struck == 1 else "were stable and now fail"
    return f"{counted(struck, 'canary')} {verbs} {reading.since} runs in a row"


def _newly(reading: Reading) -> str:
    verb = "newly fails" if len(reading.culprits) == 1 else "newly fail"
    newly = f"{counted(len(reading.culprits), 'canary')} {verb}"
    return f"{newly}, which by chance has a probability below {evidence.TAIL:g}"


def _evidence(reading: Reading, settings: Settings) -> str:
    if reading.evidence is None:
        return "warming up"
    line = 1 / settings.alpha
    if reading.evidence >= line:  # the number beyond it may be astronomical
        return f"evidence beyond the {line:,.0f} that raise an alarm"
    return f"evidence {reading.evidence:,.3g} of the {line:,.0f} that raise an alarm"


def _named(reading: Reading) -> str:
    parts = []
    if reading.culprits:
        lost = [one.signal for one in reading.culprits].count(Signal.LOST)
        worse = len(reading.culprits) - lost
        counts = [f"{count} {name}" for count, name in ((lost, "lost"), (worse, "worse")) if count]
        parts.append(f"certain of {counted(len(reading.culprits), 'canary')} ({', '.join(counts)})")
    groups = [name for name in reading.groups if not name.startswith(_DOCUMENT)]
    if groups:
        more = len(groups) - _MOST_GROUPS
        names = ", ".join(groups[:_MOST_GROUPS]) + (f" and {more} more" if more > 0 else "")
        parts.append(f"most of all in {names}")
    return f"; {', '.join(parts)}" if parts else ""


DRIFT_Z: Final = 3.0
SAME_OVERLAP: Final = 0.95
OVERLAP_DEPTH: Final = 5
SD_FLOOR: Final = 0.005
"""Of the mean: a deterministic retriever has no deviation, and the last digits of scores are noise."""
FEWEST: Final = 3
"""The median of fewer canaries would be that of a single one."""
_LARGEST_Z = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How far the scores of first hits are from their baseline, over the canaries whose scores are known."""

    kind: DriftKind
    reason: str
    """A sentence without its full stop, for people."""
    median_z: float | None
    """The median over canaries of the distance from the mean in standard deviations, at most 1,000."""
    overlap: float | None
    """The mean share of the top 5 in common with the baseline's; None = unknown."""
    canaries: int
    """Number of compared canaries."""

    def body(self) -> StoredDrift:
        """As JSON on the wire."""
        return {
            "kind": self.kind,
            "reason": self.reason,
            "median_z": None if self.median_z is None else round(self.median_z, 2),
            "overlap": None if self.overlap is None else round(self.overlap, 4),
            "canaries": self.canaries,
        }


def score_drift(
    top_before_mean: ArrayLike, top_before_sd: ArrayLike, top_now: ArrayLike, overlap: ArrayLike | float
) -> Drift:
    """Compare the scores of first hits with their baseline: parallel arrays, one place per canary, NaN = no score.

    `overlap` is the share of the top 5 in common with the baseline's ranking, by canary or of all together. Scores
    drifted where the median over canaries of |now - mean| / max(sd, 0.5 % of |mean|) is 3 or more; rankings count as
    unchanged at a mean overlap of 0.95 and more. Where fewer than three canaries have scores it is unknown.

    Measured: the median is 0 to 0.1 where nothing moved, 0.2 after rounding to eight bits, 4 and more after scores
    were rescaled by 2 % on a deterministic retriever, and 13 and more after another query encoder.
    """
    mean, sd, now = (
        np.atleast_1d(np.asarray(one, dtype=np.float64)) for one in (top_before_mean, top_before_sd, top_now)
    )
    known = np.isfinite(mean) & np.isfinite(sd) & np.isfinite(now)
    count = int(known.sum())
    if count < FEWEST:
        note = f"scores are known before and now of {count} of {len(now)} canaries, which is too few to compare"
        return Drift(kind=DriftKind.UNKNOWN, reason=note, median_z=None, overlap=None, canaries=count)
    share = np.broadcast_to(np.asarray(overlap, dtype=np.float64), now.shape)[known]
    share = share[np.isfinite(share)]
    agreed = float(share.mean()) if len(share) else None
    z = float(np.median(_distances(mean[known], sd[known], now[known])))
    kind, reason = _kind_and_reason(z, agreed)
    return Drift(kind=kind, reason=reason, median_z=z, overlap=agreed, canaries=count)


def top_overlap(before: Sequence[object], now: Sequence[object], depth: int = OVERLAP_DEPTH) -> float:
    """Share of the longer of two tops that is in both, in [0, 1]; 1 for two empty ones."""
    one, other = set(before[:depth]), set(now[:depth])
    longer = max(len(one), len(other))
    return len(one & other) / longer if longer else 1.0


def _distances(mean: NDArray[np.float64], sd: NDArray[np.float64], now: NDArray[np.float64]) -> NDArray[np.float64]:
    away = np.abs(now - mean)
    scale = np.maximum(sd, SD_FLOOR * np.abs(mean))
    # Without deviation at a mean of 0, any move has the largest distance.
    z = np.divide(away, scale, out=np.where(away > 0, _LARGEST_Z, 0.0), where=scale > 0)
    return np.minimum(z, _LARGEST_Z)


def _kind_and_reason(z: float, overlap: float | None) -> tuple[DriftKind, str]:
    if z < DRIFT_Z:
        return DriftKind.NONE, f"scores are where they were: the median canary is {z:.1f} standard deviations away"
    moved = f"the median canary's top score is {z:.1f} standard deviations from its baseline"
    if overlap is None:
        return DriftKind.SCORES, f"scores moved, rankings are unknown: {moved}"
    sentence = (
        f"{moved}, and {percent_text(overlap)} of the top {OVERLAP_DEPTH} are those of the baseline, in any order"
    )
    if overlap >= SAME_OVERLAP:
        return DriftKind.SCORES, f"scores moved, what is found did not: {sentence}"
    return DriftKind.RANKINGS, f"scores moved, and what is found too: {sentence}"
