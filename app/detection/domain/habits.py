"""Habits: alarms that closed by themselves and came back alike. They are shown, and nobody is paged for them.

An alarm is *quiet* while it is one more episode of a learned habit: the same canaries fail, each with an answer seen in
earlier episodes, with the same index version, and for no longer than chance explains (`bound_of`). Once one of these
does not hold, the alarm is raised with the reason, and stays raised until it closes. No baseline is learned from runs
of a quiet or a raised alarm.
"""

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.base.texts import counted
from app.base.values import replace
from app.detection.domain import (
    NO_HITS,
    UNMEASURED,
    Baseline,
    Change,
    Episode,
    Habit,
    HabitReading,
    Habits,
    Key,
    Observation,
    Reading,
    Settings,
    State,
)
from app.detection.domain.decision import habit_reason, habit_sentence
from app.detection.domain.learning import CALM_RATE, usual_count

LEARNED: Final = 2
"""Episodes after which a habit is learned: the next one is quiet."""
CHANCE: Final = 1e-4
"""Of an episode to last longer than its bound, if it is like those before."""
LONGER: Final = 20
"""An episode may last this many times the longest one before: of the lengths of two or three little is known."""
LONGEST_QUIET: Final = 500
"""No episode may last longer, whatever was learned: a state that stays for good is never silent."""
LONGEST: Final = 200
"""An alarm of more runs did not close by itself: somebody repaired what was broken. It is no episode, nor is a quiet
one, for then nobody knows. Of a replica whose stays are of 20 runs in the mean, one of 150 lasts longer than 100 runs,
and where it is among the first two, a third one alarms (benchmarks/detection_habits.py)."""
_LITTLE_LONGER: Final = 2
"""An episode that alarmed for its length alone is remembered up to so many times its bound."""
MOST_HABITS: Final = 8
MOST_CANARIES: Final = 64
"""An alarm about more canaries is no episode."""
MOST_ANSWERS: Final = 4
"""Of one canary; further ones are not remembered, so they never count as seen."""

_ALIKE: Final = 0.5
"""Least share of common canaries, among those of both, in two episodes of one habit."""
_MOST_FAILING: Final = 0.5
"""Share of the watched canaries; where more fail nobody wants to hear of a habit."""


def raise_or_quiet_alarm(
    habits: Habits,
    state: State,
    baseline: Baseline | None,
    observation: Observation,
    reading: Reading,
    settings: Settings,
) -> tuple[Habits, Reading]:
    """Return what is known of habits after a run, and the reading as people get it.

    While an alarm is one more episode of a learned habit, the reading is quiet; once it no longer is one, its change is
    `OPENED` with the reason. `state` and `reading` are those after the run, the reading as the accounts say it;
    `baseline` is that the run was compared with. A new index version makes all habits forgotten.
    """
    before = habits.episode
    if reading.good and before is not None and not before.raised:  # its end is no news, whatever came with it
        if reading.change is Change.CLOSED:
            return _closed(habits, before, state.keys), _quiet(habits, before, reading, watched=len(state.keys))
        return habits, _quiet(habits, before, reading, watched=len(state.keys))
    version = observation.index_version
    moved = version is not None and habits.version not in {None, version}
    if version is not None and version != habits.version:
        habits = replace(habits, known=() if moved else habits.known, version=version)
    if reading.change is Change.CLOSED:
        return habits if before is None else _closed(habits, before, state.keys), reading
    if not state.open:
        return habits, reading
    run = _Run(state, baseline, observation, reading)
    # Where another release followed the alarm so far, people have heard of it.
    episode = before or Episode(raised=reading.change is not Change.OPENED)
    if not reading.good:
        episode = _gone_on(episode, run)
    if not episode.raised:
        why = _NEW_INDEX if moved and before is not None else _why_raised(episode, habits.known, run, settings)
        habit = _match(episode, habits.known, run) if why is None else None
        episode = replace(episode, raised=habit is None, why=why or "", habit=habit.id if habit else None)
    habits = replace(habits, episode=episode)
    if not episode.raised:
        return habits, _quiet(habits, episode, reading, watched=len(state.keys))
    opened = before is not None and not before.raised
    reason = f"{reading.reason.removesuffix('.')}; {episode.why}." if episode.why else reading.reason
    return habits, replace(reading, change=Change.OPENED if opened else reading.change, reason=reason)


def habit_id(answers: Mapping[Key, Sequence[int]]) -> str:
    """Return the identity of a habit by its first episode: 16 hexadecimal digits."""
    text = repr(sorted((str(key), sorted(some)) for key, some in answers.items()))
    return blake2b(text.encode(), digest_size=8).hexdigest()


def is_learned(habit: Habit) -> bool:
    """Whether a further episode would be quiet."""
    return habit.times >= LEARNED


def bound_of(habit: Habit) -> int:
    """Return how many runs an episode of a habit may last.

    A state that ends by chance, with the same probability in each run, lasts for a geometric number of runs. Where n
    such episodes lasted T runs together and nothing else is known of that probability, the next one lasts longer than
    T (CHANCE^(-1/n) - 1) with about `CHANCE`: after 5, 10, 20 and 40 episodes that is 27, 15, 12 and 10 times their
    mean.
    """
    by_chance = habit.total * (CHANCE ** (-1 / habit.times) - 1)
    return int(min(by_chance, LONGER * habit.longest, LONGEST_QUIET))


_NEW_INDEX: Final = "a habit until now, but the index version changed"


class _Run:
    """What habits compare of a run; answers are read only where they are asked for."""

    def __init__(self, state: State, baseline: Baseline | None, observation: Observation, reading: Reading) -> None:
        self.length = state.since
        self.watched = len(state.keys)
        self._observation = observation
        self._failing: NDArray[np.bool_] = (state.last == 1) & (observation.lost != UNMEASURED)
        self._usual = baseline.usual if baseline is not None else (usual_count(state.counts), len(state.keys))
        self._places: dict[Key, int] = {key: place for place, key in enumerate(state.keys)}
        suspects = [one.position for one in reading.culprits if one.fails]
        if not suspects and baseline is not None:  # an account of a group or of the whole check raised it
            calm = baseline.known & (baseline.rates[:, 0] < CALM_RATE)
            suspects = np.flatnonzero((self._failing & calm).any(axis=0)).tolist()
        self.suspects: list[Key] = [state.keys[place] for place in suspects]
        """Failing canaries that the alarm is about."""

    def failing(self, keys: Collection[Key]) -> list[Key]:
        """Those of these canaries that were measured and are lost or worse."""
        known = [key for key in keys if key in self._places]
        return [key for key in known if self._failing[:, self._places[key]].any()]

    def answers(self, keys: Sequence[Key]) -> dict[Key, int | None]:
        """Fingerprints of what these canaries answered; None = not known."""
        return dict(zip(keys, self._observation.fingerprints([self._places[key] for key in keys]), strict=True))

    def beside(self, keys: Collection[Key]) -> tuple[int, int]:
        """Return how many other canaries than these are lost, and worse."""
        others = np.ones(self._failing.shape[1], np.bool_)
        others[[self._places[key] for key in keys if key in self._places]] = False
        lost, worse = (self._failing & others).sum(axis=1).tolist()
        return lost, worse

    def is_usual_without(self, habit: Habit) -> bool:
        """Whether no more canaries fail beside those of a habit than usually do, or did in its earlier episodes."""
        return all(np.array(self.beside(habit.answers)) <= np.maximum(self._usual, habit.beside))


def _gone_on(episode: Episode, run: _Run) -> Episode:
    """Return the episode with the canaries and answers of one more bad run."""
    if len({*episode.answers, *run.suspects}) > MOST_CANARIES:
        return replace(episode, runs=run.length, answers={}, wide=True)
    if episode.wide:
        return replace(episode, runs=run.length)
    failing = run.failing({**episode.answers, **dict.fromkeys(run.suspects)})
    merged = dict(episode.answers)
    for key, answer in run.answers(failing).items():
        merged[key] = _with(merged.get(key, ()), () if answer is None else (answer,))
    others = run.beside(merged)
    beside = _most(episode.beside, others) if merged.keys() == episode.answers.keys() else others
    return replace(episode, runs=run.length, answers=merged, beside=beside)


def _most(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), max(one[1], other[1])


def _with(seen: tuple[int, ...], more: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((*seen, *more)))[:MOST_ANSWERS]


def _match(episode: Episode, known: Sequence[Habit], run: _Run) -> Habit | None:
    """Return the learned habit that a run is one more episode of; the newest first."""
    mine = [habit for habit in reversed(known) if is_learned(habit)]
    if episode.habit is not None:
        mine = [habit for habit in mine if habit.id == episode.habit]
    return next((habit for habit in mine if _resembles(habit, run, going_on=episode.habit is not None)), None)


def _resembles(habit: Habit, run: _Run, *, going_on: bool) -> bool:
    """Whether a run concerns the canaries of a habit, at its beginning at least half of them."""
    failing = run.failing(habit.answers)
    return going_on or 2 * len(failing) >= len(habit.answers)


def _why_raised(episode: Episode, known: Sequence[Habit], run: _Run, settings: Settings) -> str | None:
    """Clause on why an alarm that resembles a habit is raised; "" = it resembles none, None = it stays quiet."""
    refused = [one for one in known if one.id in settings.refused_habits and _resembles(one, run, going_on=False)]
    habit = refused[-1] if refused else _match(episode, known, run)  # refused whatever it answers by now
    if habit is None:
        return ""
    but = "somebody called that not normal" if refused else _difference(habit, run)
    return None if but is None else f"{habit_sentence(_reading_of(habit, runs=run.length))}, but {but}"


def _difference(habit: Habit, run: _Run) -> str | None:
    """Return what sets an alarm apart from a habit; None = nothing does."""
    failing = run.failing(habit.answers)
    if len(failing) > _MOST_FAILING * run.watched:
        return f"more than half of the {run.watched} canaries fail"
    if run.length > bound_of(habit):
        return (
            f"this lasts longer: {counted(run.length, 'run')}, where {bound_of(habit)} are the most after "
            f"{habit.times:,} episodes of {habit.total / habit.times:.0f} on average"
        )
    if not habit.answers.keys() >= {*run.suspects}:
        return "other canaries fail, too"
    if not run.is_usual_without(habit):
        return "more canaries than usual fail beside these"
    answers = run.answers(failing)
    if NO_HITS in answers.values():
        return "an answer is empty"
    new = [key for key, answer in answers.items() if answer not in habit.answers[key]]
    return f"{counted(len(new), 'answer')} of this run {'is' if len(new) == 1 else 'are'} new" if new else None


def _closed(habits: Habits, episode: Episode, watched: Collection[Key]) -> Habits:
    """Habits after the run that ends an episode; it teaches nothing where canaries of it were taken out meanwhile."""
    is_whole = episode.answers.keys() <= {*watched}
    known = _remembered(habits.known, episode) if is_whole and _teaches(habits.known, episode) else habits.known
    return replace(habits, known=known, episode=None)


def _teaches(known: Sequence[Habit], episode: Episode) -> bool:
    """Whether an episode is remembered. One that was set apart is only where it differed by a little more time.

    What lasted much longer was repaired by somebody, and what was called not normal, or failed otherwise, is no habit.
    """
    if not episode.answers or episode.wide or episode.runs > LONGEST:
        return False
    if not episode.why:
        return True
    habit = next((one for one in reversed(known) if is_learned(one) and _is_alike(one, episode)), None)
    return habit is not None and episode.runs <= _LITTLE_LONGER * bound_of(habit)


def _remembered(known: Sequence[Habit], episode: Episode) -> tuple[Habit, ...]:
    """Habits with one more episode, the one it belongs to last."""
    habit = next((one for one in reversed(known) if _is_alike(one, episode)), None)
    if habit is None:
        new = Habit(
            id=habit_id(episode.answers),
            answers=episode.answers,
            times=1,
            longest=episode.runs,
            total=episode.runs,
            beside=episode.beside,
        )
        return (*known, new)[-MOST_HABITS:]
    answers = {**habit.answers}
    for key, seen in episode.answers.items():
        if key in answers or len(answers) < MOST_CANARIES:
            answers[key] = _with(answers.get(key, ()), seen)
    again = replace(
        habit,
        answers=answers,
        times=habit.times + 1,
        longest=max(habit.longest, episode.runs),
        total=habit.total + episode.runs,
        beside=_most(habit.beside, episode.beside),
    )
    return (*(one for one in known if one is not habit), again)


def _is_alike(habit: Habit, episode: Episode) -> bool:
    """Whether an episode is one of a habit: half of the canaries in common, and they answer as they did."""
    if episode.habit == habit.id:
        return True
    common = habit.answers.keys() & episode.answers.keys()
    if not common or len(common) < _ALIKE * len(habit.answers.keys() | episode.answers.keys()):
        return False
    return all({*episode.answers[key]} <= {*habit.answers[key]} for key in common)


def _quiet(habits: Habits, episode: Episode, reading: Reading, *, watched: int) -> Reading:
    """Return the reading of a run of a quiet episode: no alarm, and the habit."""
    habit = next(one for one in habits.known if one.id == episode.habit)
    quiet = replace(
        reading,
        open=False,
        change=None,
        severity=None,
        culprits=(),
        groups=(),
        habit=_reading_of(habit, runs=episode.runs),
    )
    return replace(quiet, reason=habit_reason(quiet, watched=watched))


def _reading_of(habit: Habit, *, runs: int) -> HabitReading:
    """Return a habit as a run shows it, its own episode counted."""
    return HabitReading(
        id=habit.id,
        keys=tuple(habit.answers),
        answers=1 + max(map(len, habit.answers.values())),
        times=habit.times + 1,
        runs=runs,
        bound=bound_of(habit),
    )
