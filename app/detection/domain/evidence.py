"""Evidence of one run: payments into the accounts, the average evidence, and which canaries stand out."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.base.values import DEFAULT_CATEGORY
from app.detection.domain.accounts import FORGETTING, bet, joint_balance, paid, remembered
from app.detection.domain.learning import CALM_RATE, LEAST_RATE, usual, worse_than
from app.detection.domain.values import (
    SIGNALS,
    UNMEASURED,
    Baseline,
    Fails,
    Floats,
    Level,
    Members,
    Observation,
    Signal,
    State,
)

NAMED_FROM: Final = 20
"""Named are the largest k with k * M(k) / N of at least this: an empirical cut in the style of e-BH."""
WORSE, LOST = 1, 2
"""How a canary is named in State.culprits; 0 = it is not."""

_UNSTATED: Final = f"category:{DEFAULT_CATEGORY}"
_SAME: Final = 1e-6
_UNMOVED: Final = np.float32(1 / (1 - FORGETTING))
"""Balance of an account whose bets always pay 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """A processed run, before the decision."""

    state: State
    now: Fails
    """(signal, n): the measurements of this run."""
    evidence: float | None
    """The average of the scopes, 0 where no canary is known; None while warming up."""
    scopes: Mapping[str, float]
    names: NDArray[np.int8]
    """(n,): canaries that the accounts name, as State.culprits."""
    strength: Floats
    """(n,): each canary's own account."""
    strikers: NDArray[np.bool_]
    """(n,): unknown canaries that were calm and failed three times running, or more."""
    newly: NDArray[np.bool_]
    """(n,): unknown canaries that were calm and newly fail."""


def weigh(state: State, baseline: Baseline | None, members: Members, observation: Observation) -> RunEvidence:
    """Update the counters by a run and, where there is a baseline, the accounts."""
    lost, count = observation.lost, len(members.keys)
    known = np.zeros(count, np.bool_) if baseline is None else baseline.known
    worse = np.full(count, UNMEASURED, np.int8) if baseline is None else worse_than(baseline.floors, observation.ndcg)
    now = np.stack([lost, np.where(lost == UNMEASURED, UNMEASURED, worse).astype(np.int8)])
    newly = (lost == 1) & (state.last[0] == 0)
    after = _counted(state, observation, now, newly, warming_up=baseline is None)
    scopes: dict[str, float] = {}
    if baseline is not None:
        bets = bet(baseline.rates, known, state.last, now, members)
        after = replace(
            after,
            canaries=paid(state.canaries, bets.canaries),
            grouped=paid(state.grouped, bets.groups),
            fleet=paid(state.fleet, bets.fleet),
            recent=remembered(state.recent, known, state.last, now),
        )
        scopes = _scopes(after, baseline, members)
        after = replace(after, evidence=sum(scopes.values()) / len(scopes) if scopes else 0.0)
    names, strength = (np.zeros(count, np.int8), np.zeros(count)) if baseline is None else _named(after, known)
    calm = is_calm(after.passes, after.misses) & ~known
    return RunEvidence(
        state=after,
        now=now,
        evidence=None if baseline is None else after.evidence,
        scopes=scopes,
        names=names,
        strength=strength,
        strikers=calm & (after.streak >= STRIKES) & (lost == 1),
        newly=calm & newly,
    )


def gathering(state: State, baseline: Baseline) -> float:
    """Return the average of the accounts beyond their balance without evidence, which is 1 / 0.03.

    Unknown canaries, and those that always fail, keep that balance.
    """
    if not baseline.known.any():
        return 0.0
    scopes = [float(np.maximum(state.canaries.accounts[:, :, baseline.known] - _UNMOVED, 0).mean(dtype=np.float64))]
    levels = (state.grouped, state.fleet) if state.groups else (state.fleet,)
    scopes.append(joint_balance(state.recent, baseline.rates, baseline.known))
    scopes += [float(np.maximum(level.accounts - _UNMOVED, 0).mean(dtype=np.float64)) for level in levels]
    return sum(scopes) / len(scopes)


def age(state: State) -> int:
    """Age of the change: runs since the largest account was last at rest. At least 1."""
    level, highest = _strongest(state)
    return max(int(level.ages.flat[highest]), 1)


def strongest_signal(state: State) -> Signal:
    """Signal of the largest account."""
    level, highest = _strongest(state)
    return SIGNALS[int(np.unravel_index(highest, level.accounts.shape)[0])]


def _strongest(state: State) -> tuple[Level, int]:
    """Level and flat place of the largest account, by its share in the average of its level."""
    levels = [level for level in (state.canaries, state.grouped, state.fleet) if level.accounts.size]
    places = [int(level.accounts.argmax()) for level in levels]
    shares = [float(level.accounts.flat[at]) / level.accounts.size for level, at in zip(levels, places, strict=True)]
    strongest = shares.index(max(shares))
    return levels[strongest], places[strongest]


def standing_out(state: State, baseline: Baseline, members: Members) -> tuple[str, ...]:
    """Return the groups whose accounts stand out, by the same cut as canaries; the strongest first.

    Not a group of all canaries, nor the default category, whose canaries may have nothing in common.
    """
    accounts = np.where(_alive(baseline, members), state.grouped.accounts.mean(axis=(0, 1), dtype=np.float64), 0.0)
    least = _cut(accounts, int((accounts > 0).sum()))
    if least is None:
        return ()
    ordered = np.argsort(-accounts, kind="stable")
    names = [state.groups[number] for number in ordered[: np.count_nonzero(accounts >= least)].tolist()]
    return tuple(name for name in names if name != _UNSTATED and len(members.groups[name]) < len(members.keys))


def _counted(
    state: State, observation: Observation, now: Fails, newly: NDArray[np.bool_], *, warming_up: bool
) -> State:
    """Return the state with updated counters; `identical` and `lately` only serve the warm-up."""
    last = np.where(now == UNMEASURED, state.last, now)
    passes, misses, streak = counted_on(state, observation.lost)
    counted = replace(
        state,
        observed=state.observed + 1,
        last=last,
        passes=passes,
        misses=misses,
        streak=streak,
        longest=max(state.longest, int(state.streak[observation.lost == 0].max(initial=0))),
        failing=int(np.count_nonzero(last[0] == 1)),
        newly=int(np.count_nonzero(newly)),
        identical=0,
        since=state.since + 1 if state.open else 0,
        good=state.good if state.open else 0,
        evidence=0.0,
    )
    if not warming_up:
        return counted
    both = (observation.lost != UNMEASURED) & (state.last[0] != UNMEASURED)
    flipped = (observation.lost != state.last[0]) & both
    moved = np.abs(observation.ndcg - state.lately) > _SAME  # False where one of them is NaN
    same = not flipped.any() and not moved.any()
    lately = np.where(np.isnan(observation.ndcg), state.lately, observation.ndcg)
    return replace(counted, identical=state.identical + 1 if same else 1, lately=lately.astype(np.float32))


def _scopes(state: State, baseline: Baseline, members: Members) -> dict[str, float]:
    """Average of the accounts of each level over signals and bets, without groups that have no known canary."""
    if not baseline.known.any():
        return {}
    scopes = {
        "canaries": _mean(state.canaries, baseline.known),
        "several": joint_balance(state.recent, baseline.rates, baseline.known),
    }
    if len(members.groups) and (alive := _alive(baseline, members)).any():
        scopes["groups"] = _mean(state.grouped, alive)
    fleet = state.fleet.accounts
    return {**scopes, "check": float(fleet.sum(dtype=np.float64)) / fleet.size}


def _mean(level: Level, of: NDArray[np.bool_]) -> float:
    accounts = level.accounts if of.all() else level.accounts[:, :, of]
    return float(accounts.sum(dtype=np.float64)) / accounts.size


def _alive(baseline: Baseline, members: Members) -> NDArray[np.bool_]:
    """Which groups have a known canary."""
    if baseline.known.all():
        return np.ones(len(members.groups), np.bool_)
    known = np.bincount(members.owners, baseline.known[members.positions], len(members.groups))
    return np.asarray(known > 0)


def _named(state: State, known: NDArray[np.bool_]) -> tuple[NDArray[np.int8], Floats]:
    """Canaries whose accounts stand out, and those accounts."""
    accounts = state.canaries.accounts.mean(axis=1, dtype=np.float64)  # (signal, n)
    strength = np.where(known, accounts.mean(axis=0), 0.0)
    least = _cut(strength, int(known.sum()))
    if least is None:
        return np.zeros(len(strength), np.int8), strength
    lost = accounts[0] >= np.minimum(accounts[1], least)
    return np.where(strength >= least, np.where(lost, LOST, WORSE), 0).astype(np.int8), strength


def _cut(accounts: Floats, count: int) -> float | None:
    """Return M(k) for the largest k with k * M(k) / N >= 20; None where there is no such k."""
    ordered = np.sort(accounts[accounts >= NAMED_FROM])[::-1]  # no k is beyond N
    standing = np.flatnonzero(np.arange(1, len(ordered) + 1) * ordered >= NAMED_FROM * count)
    return float(ordered[standing[-1]]) if len(standing) else None


def realign(state: State, members: Members) -> State:
    """Return the state for other members: known keys and groups keep theirs, new ones begin at rest.

    A removed canary is no culprit any more; while an alarm is open a new one may be another version of it, and becomes
    a culprit instead, so that an edit does not end the alarm. The count of runs since the last change of members is
    reset.
    """
    moved = _moved(state.keys, members.keys)
    culprits = _taken(state.culprits, moved, 0)
    if state.open and np.count_nonzero(culprits) < np.count_nonzero(state.culprits):
        culprits[moved < 0] = LOST
    between = _moved(state.groups, tuple(members.groups))
    last = _taken(state.last, moved, UNMEASURED)
    return replace(
        state,
        keys=members.keys,
        groups=tuple(members.groups),
        canaries=_level(state.canaries, moved),
        grouped=_level(state.grouped, between),
        last=last,
        passes=_taken(state.passes, moved, 0),
        misses=_taken(state.misses, moved, 0),
        streak=_taken(state.streak, moved, 0),
        lately=_taken(state.lately, moved, np.nan),
        failing=int((last[0] == 1).sum()),
        fresh=state.fresh if state.keys == members.keys else 0,
        culprits=culprits,
        struck=_taken(state.struck, moved, False),
        named=_taken(state.named, moved, 0),
        recent=_taken(state.recent, moved, 0),
    )


def realign_baseline(baseline: Baseline, keys: Sequence[int | str]) -> Baseline:
    """Return the baseline for other canaries, the new ones unknown.

    `usual` is computed again where the failures are loaded, else it stays.
    """
    moved = _moved(baseline.keys, keys)
    known = _taken(baseline.known, moved, False)
    failures = None if baseline.failures is None else _taken(baseline.failures, moved, False)
    counts = baseline.usual if failures is None else (usual(failures[0][:, known]), usual(failures[1][:, known]))
    return replace(
        baseline,
        keys=tuple(keys),
        known=known,
        rates=_taken(baseline.rates, moved, 1 - LEAST_RATE),
        floors=_taken(baseline.floors, moved, np.nan),
        last=_taken(baseline.last, moved, UNMEASURED),
        usual=counts,
        failures=failures,
        usual_lost=max(baseline.usual_lost, baseline.usual[0]),
    )


def _moved(old: Sequence[Hashable], new: Sequence[Hashable]) -> NDArray[np.intp]:
    """Old position of each new member; -1 = none."""
    places = {key: place for place, key in enumerate(old)}
    return np.array([places.get(key, -1) for key in new], np.intp)


def _taken(values: NDArray[Any], moved: NDArray[np.intp], new: float) -> NDArray[Any]:
    """Values with a realigned last axis; `new` for new members."""
    realigned = np.full((*values.shape[:-1], len(moved)), new, values.dtype)
    realigned[..., moved >= 0] = values[..., moved[moved >= 0]]
    return realigned


def _level(level: Level, moved: NDArray[np.intp]) -> Level:
    return Level(
        accounts=_taken(level.accounts, moved, 0),
        rises=_taken(level.rises, moved, 0),
        ages=_taken(level.ages, moved, 0),
    )


STRIKES: Final = 3
TAIL: Final = 1e-4
"""More canaries newly failing than this probability explains are an alarm."""

_LEAST_PASSES: Final = 10
"""A canary that passed less often has not shown that it is calm."""
_LEAST_RUNS: Final = 10

Counters = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]


def counted_on(state: State, lost: Fails) -> Counters:
    """Return the updated counts of passes, misses and streaks; a failed probe changes none."""
    failed, passed = lost == 1, lost == 0
    passes = (state.passes + passed).astype(np.int32)
    misses = (state.misses + np.where(passed, state.streak, 0)).astype(np.int32)
    streak = np.where(passed, 0, state.streak + failed).astype(np.int32)
    return passes, misses, streak


def is_calm(passes: NDArray[np.int32], misses: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which canaries passed often and hardly ever failed, without the current streak.

    One that failed for a while and recovered by itself is not calm: replicas may differ.
    """
    return (passes >= _LEAST_PASSES) & (misses + 0.5 < CALM_RATE * (passes + misses + 1))


def surprising(newly: int, newly_failed: int, runs: int) -> bool:
    """Whether this many newly failing canaries are more than chance, after runs that had `newly_failed` in all.

    The rate is rounded up by one standard error, with half a failure added.
    """
    if runs < _LEAST_RUNS or newly == 0:
        return False
    observed = newly_failed + 0.5
    return poisson_tail(newly, (observed + math.sqrt(observed)) / runs) < TAIL


def poisson_tail(count: int, mean: float) -> float:
    """Return P(X >= count) of a Poisson variable."""
    term = below = math.exp(-mean)
    for number in range(1, count):
        term *= mean / number
        below += term
    return max(1 - below, 0.0) if count > 0 else 1.0
