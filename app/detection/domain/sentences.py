"""Sentences of a detector's readings, without keys of canaries."""

from enum import Enum, auto

from app.base.counts import counted
from app.detection.domain import warm_up
from app.detection.domain.learning import FULL_RUNS, IDENTICAL_RUNS
from app.detection.domain.values import HabitReading, Reading, Settings, Signal

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
        f"fails {warm_up.STRIKES} runs in a row, or when more canaries start to fail than chance explains"
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
    return f"{newly}, which by chance has a probability below {warm_up.TAIL:g}"


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
