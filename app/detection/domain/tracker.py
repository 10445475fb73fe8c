"""Tracking of a check from run to run: detector state, baseline, and when to learn. Shared by replay and service."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from app.detection.domain.decision import begin, step
from app.detection.domain.evidence import gathering, is_calm, realign, realign_baseline
from app.detection.domain.habits import heed_habits
from app.detection.domain.learning import FULL_RUNS, IDENTICAL_RUNS, learn
from app.detection.domain.values import (
    NO_HABITS,
    UNMEASURED,
    Baseline,
    Fails,
    Floats,
    Habits,
    Members,
    Observation,
    Reading,
    Settings,
    State,
)

Past = Callable[[int], tuple[Fails, Floats]]
"""Returns the newest eligible runs, at most the given number, oldest first, with the current one last: `lost` and
`ndcg` as in Observation, (runs, n), columns as the members. -1 and NaN where a canary was not measured, or had another
version. A run is eligible if no alarm was open, it is not part of one (its `since`), and no alert of the check
fired."""

RELEARN_RUNS: Final = 100
"""Eligible runs after which a baseline is learned again; a young one as soon as it can have twice as many runs."""

_AT_REST: Final = 0.001
"""No baseline is learned while the evidence exceeds this share of an alarm, or a calm canary fails repeatedly: a
beginning fault is not normal, and two failures in a row would teach that failures last."""
_STREAK: Final = range(2, 20)
"""A longer streak that raised no alarm counts as normal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """State and baseline of a check between two runs."""

    state: State
    baseline: Baseline | None = None
    """None = it is warming up."""
    habits: Habits = NO_HABITS


def follow(members: Members) -> Follower:
    """Return a follower without baseline and alarm, for a new check or after an accepted baseline."""
    return Follower(state=begin(members))


def observe(
    follower: Follower, members: Members, observation: Observation, settings: Settings
) -> tuple[Follower, Reading]:
    """Process one measured run; realigns first where the members are not those of the last run.

    An alarm that is one more episode of a habit is none to people: its reading has the habit, and is not `open`.

    While an alarm is open (`follower.state.open`) the baseline must have its `failures`. Raises ValueError else.
    """
    state, baseline = follower.state, follower.baseline
    if state.keys != members.keys or state.groups != tuple(members.groups):
        state = realign(state, members)
    if baseline is not None and baseline.keys != members.keys:
        baseline = realign_baseline(baseline, members.keys)
    state, reading = step(state, baseline, members, observation, settings)
    habits, reading = heed_habits(follower.habits, state, baseline, observation, reading, settings)
    return Follower(state=state, baseline=baseline, habits=habits), reading


def learn_when_due(follower: Follower, past: Past, settings: Settings, *, eligible: bool) -> Follower:
    """Learn a baseline if one is due, after `observe`; then the follower has another `baseline` than before.

    `eligible`: whether no alert of the check is firing; a run during or at the end of an alarm is never eligible.
    `past` is called only if a baseline is learned. With `settings.relearn` off only the first one is.
    """
    state = follower.state
    if not eligible or state.open or state.good:
        return replace(follower, state=replace(state, identical=0))
    follower = replace(follower, state=_well(state, warming_up=follower.baseline is None))
    if _is_brewing(follower, settings):
        return follower
    if follower.baseline is None:
        return _first(follower, past)
    if not settings.relearn:
        return follower
    return _again(follower, follower.baseline, past)


def learned(follower: Follower, baseline: Baseline) -> Follower:
    """Return the follower with a newly learned baseline: the accounts stay, the warm-up ends.

    Only that of several canaries begins anew: its bets are paid by the rates of one baseline.
    With a baseline of full length, no canary counts as restless any more. Raises ValueError where it has other
    canaries.
    """
    state = follower.state
    if baseline.keys != state.keys:
        raise ValueError("The baseline is about other canaries than the state.")
    full = baseline.runs >= FULL_RUNS
    warmed = replace(
        state,
        last=np.where(state.last == UNMEASURED, baseline.last, state.last),
        lately=np.full(len(state.keys), np.nan, np.float32),
        counts=np.empty(0, np.int32),
        newly_failed=0,
        identical=0,
        eligible=0,
        closings=0 if full else state.closings,
        named=np.zeros(len(state.keys), np.int8) if full else state.named,
        longest=0 if full else state.longest,
        recent=np.zeros_like(state.recent),
    )
    return replace(follower, state=warmed, baseline=baseline)


def _is_brewing(follower: Follower, settings: Settings) -> bool:
    """Whether an alarm may be about to open."""
    state, baseline, most = follower.state, follower.baseline, _AT_REST / settings.alpha
    failing = (state.streak >= _STREAK.start) & (state.streak < _STREAK.stop)
    if (is_calm(state.passes, state.misses) & failing).any():
        return True
    return baseline is not None and state.evidence > most and gathering(state, baseline) > most


def _well(state: State, *, warming_up: bool) -> State:
    """State after a healthy run, with its counters."""
    well = replace(state, eligible=state.eligible + 1, fresh=state.fresh + 1)
    if not warming_up:
        return well
    counts = np.append(state.counts, np.int32(state.failing))[-FULL_RUNS:]
    return replace(well, counts=counts, newly_failed=state.newly_failed + state.newly)


def _first(follower: Follower, past: Past) -> Follower:
    """Learn the first baseline, from 20 identical runs or else from 300."""
    state = follower.state
    if state.identical >= IDENTICAL_RUNS:
        lost, ndcg = past(min(state.identical, FULL_RUNS))
        if len(lost) >= IDENTICAL_RUNS and (baseline := learn(state.keys, lost, ndcg)).deterministic:
            return learned(follower, baseline)
        follower = replace(follower, state=replace(state, identical=len(lost)))
    if state.eligible >= FULL_RUNS:
        lost, ndcg = past(FULL_RUNS)
        if len(lost) >= FULL_RUNS:
            return learned(follower, learn(state.keys, lost, ndcg))
        follower = replace(follower, state=replace(follower.state, eligible=len(lost)))
    return follower


def _again(follower: Follower, baseline: Baseline, past: Past) -> Follower:
    """Learn again after 100 eligible runs, sooner while the baseline is young or canaries are new to it.

    The first 20 runs have to be identical; the 40 or 80 of the next baseline do not: a retriever that began to flicker
    without an alarm is described better by all of them than by the 20 that did not.
    """
    state = follower.state
    settled = IDENTICAL_RUNS if baseline.deterministic else RELEARN_RUNS
    newcomers = settled <= state.fresh <= state.eligible and not baseline.known.all()
    if state.eligible < min(RELEARN_RUNS, baseline.runs) and not newcomers:
        return follower
    lost, ndcg = past(min(baseline.runs + state.eligible, FULL_RUNS))
    if len(lost) < min(baseline.runs, FULL_RUNS):
        return replace(follower, state=replace(state, eligible=0))
    return learned(follower, learn(state.keys, lost, ndcg))


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Runs, oldest first, as in Observation: (runs, n)."""

    lost: Fails
    ndcg: Floats

    def __len__(self) -> int:
        return len(self.lost)


def replay(
    members: Members, healthy: Runs, after: Runs, settings: Settings | None = None
) -> Iterator[tuple[Follower, Reading]]:
    """Yield the follower and reading after each run of `after`.

    A baseline is learned from the newest 300 `healthy` runs, or 20 or more identical ones, without alarms; fewer runs
    are the warm-up. From then on all is as in a live check without other firing alerts.
    """
    settings = settings or Settings()
    past = _Past(members=members, settings=settings)
    follower = past.begun(healthy)
    for lost, ndcg in zip(after.lost, after.ndcg, strict=True):
        follower, reading = past.go_on(follower, Observation(lost=lost, ndcg=ndcg))
        yield follower, reading


class _Past:
    """The runs that baselines may be learned from."""

    def __init__(self, *, members: Members, settings: Settings) -> None:
        self.members, self.settings = members, settings
        self.eligible: list[Observation] = []
        self.in_alarm = False

    def begun(self, healthy: Runs) -> Follower:
        follower = follow(self.members)
        newest = Runs(lost=healthy.lost[-FULL_RUNS:], ndcg=healthy.ndcg[-FULL_RUNS:])
        baseline = learn(self.members.keys, newest.lost, newest.ndcg) if len(newest) else None
        enough = baseline is not None and len(newest) >= (IDENTICAL_RUNS if baseline.deterministic else FULL_RUNS)
        if baseline is not None and enough:
            self.eligible = [Observation(lost=a, ndcg=b) for a, b in zip(newest.lost, newest.ndcg, strict=True)]
            return learned(follower, baseline)
        for lost, ndcg in zip(healthy.lost, healthy.ndcg, strict=True):
            follower, _ = self.go_on(follower, Observation(lost=lost, ndcg=ndcg))
        return follower

    def go_on(self, follower: Follower, observation: Observation) -> tuple[Follower, Reading]:
        follower, reading = observe(follower, self.members, observation, self.settings)
        if reading.is_of_alarm and not self.in_alarm:
            del self.eligible[len(self.eligible) - min(reading.since - 1, len(self.eligible)) :]
        if not reading.is_of_alarm:
            self.eligible = [*self.eligible[-FULL_RUNS + 1 :], observation]
        self.in_alarm = follower.state.open
        return learn_when_due(follower, self.newest, self.settings, eligible=True), reading

    def newest(self, limit: int) -> tuple[Fails, Floats]:
        runs = self.eligible[-limit:]
        return np.stack([one.lost for one in runs]), np.stack([one.ndcg for one in runs])
