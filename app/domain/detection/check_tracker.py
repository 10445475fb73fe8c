"""Following a check from run to run: what is kept between two runs, and when to learn. Replay and service share it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from app.domain.detection.decision import begin, step
from app.domain.detection.evidence import gathering
from app.domain.detection.learning import FULL_RUNS, IDENTICAL_RUNS, learn
from app.domain.detection.realignment import realign, realign_baseline
from app.domain.detection.values import (
    UNMEASURED,
    Baseline,
    Fails,
    Floats,
    Members,
    Observation,
    Reading,
    Settings,
    State,
)
from app.domain.detection.warm_up import calm

Past = Callable[[int], tuple[Fails, Floats]]
"""Gives the newest eligible runs, at most so many, oldest first, the newest being the current one: `lost` (runs, n) and
`ndcg` (runs, n) as in Observation, columns as the members. -1 and NaN where a canary was not measured or not yet what
it is now. Eligible is a run that was observed while no alarm was open, is not part of one (its `since`), and during
which no alert of the check fired."""

RELEARN_RUNS: Final = 100
"""So many eligible runs after it was learned, a baseline is learned anew; a young one when it can be twice as old."""

_AT_REST: Final = 0.001
"""No baseline is learned while the evidence is beyond this share of an alarm, or a calm canary fails again and again:
what is on its way is not normal, and two failures in a row would teach that failures last."""
_STREAK: Final = range(2, 20)
"""A longer one that raised no alarm is how things are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """What is kept of a check between two runs."""

    state: State
    baseline: Baseline | None = None
    """None = it is warming up."""


def follow(members: Members) -> Follower:
    """Begin, or begin anew after a new normal was accepted: nothing is known, nothing is open."""
    return Follower(state=begin(members))


def observe(
    follower: Follower, members: Members, observation: Observation, settings: Settings
) -> tuple[Follower, Reading]:
    """Take in one measured run; realigns first where the members are not those of the last run.

    While an alarm is open (`follower.state.open`) the baseline must have its `failures`. Raises ValueError else.
    """
    state, baseline = follower.state, follower.baseline
    if state.keys != members.keys or state.groups != tuple(members.groups):
        state = realign(state, members)
    if baseline is not None and baseline.keys != members.keys:
        baseline = realign_baseline(baseline, members.keys)
    state, reading = step(state, baseline, members, observation, settings)
    return Follower(state=state, baseline=baseline), reading


def learn_when_due(follower: Follower, past: Past, settings: Settings, *, eligible: bool) -> Follower:
    """Learn a baseline if it is time to, after `observe`; then the follower has another `baseline` than before.

    `eligible`: whether baselines may be learned of the run just observed: no alert of the check is firing. A run
    during or at the end of an alarm never is, whatever is said here. `past` is called only if something is to be
    learned. With `settings.relearn` off only the first baseline is learned.
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
    """Go on with a baseline just learned, by whomever: the accounts stay, the warm-up is over.

    Once it is of full length, nobody is taken for restless any more. Raises ValueError where it is about other
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
    )
    return Follower(state=warmed, baseline=baseline)


def _is_brewing(follower: Follower, settings: Settings) -> bool:
    """Say whether an alarm may be on its way."""
    state, baseline, most = follower.state, follower.baseline, _AT_REST / settings.alpha
    failing = (state.streak >= _STREAK.start) & (state.streak < _STREAK.stop)
    if (calm(state.passes, state.misses) & failing).any():
        return True
    return baseline is not None and state.evidence > most and gathering(state, baseline) > most


def _well(state: State, *, warming_up: bool) -> State:
    """Count a run that was well."""
    well = replace(state, eligible=state.eligible + 1, fresh=state.fresh + 1)
    if not warming_up:
        return well
    counts = np.append(state.counts, np.int32(state.failing))[-FULL_RUNS:]
    return replace(well, counts=counts, newly_failed=state.newly_failed + state.newly)


def _first(follower: Follower, past: Past) -> Follower:
    """Learn the first baseline, of 20 identical runs or else of 300."""
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
    """Learn anew after 100 eligible runs, sooner while the baseline is young or canaries are new to it.

    The first 20 runs have to be identical; the 40 or 80 it is learned anew of do not: a retriever that began to flicker
    without an alarm is better known by all of them than by the 20 that did not.
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
