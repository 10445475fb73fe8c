"""What a detector learns from healthy runs: how many it needs, each canary's rates of failing, its usual NDCG.

A rate depends on what was measured in the run before: with replicas or caches a failure tends to last, and taking
failures for independent would make every switch of replica an alarm.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.detection.domain import UNMEASURED, Baseline, Fails, Floats, Key

IDENTICAL_RUNS: Final = 20
"""Number of identical runs that suffice for a baseline."""
FULL_RUNS: Final = 300
"""Number of runs of other baselines, and the most that are used."""
MARGIN: Final = 0.1
"""`worse` is further below the floor than this."""
LEAST_RATE: Final = 0.001
"""Lowest rate; the highest is one minus this."""
CALM_RATE: Final = 0.05
"""A canary that fails in more of its runs is not calm."""
_FLOOR_QUANTILE: Final = 0.1
_USUAL_QUANTILE: Final = 0.99
_FLICKER_SHARE: Final = 0.1
"""Share of flickering canaries from which on most pseudo-failures are added: the others will flicker, too."""
_KNOWN_RUNS, _KNOWN_SHARE = 100, 0.9
_FEWEST_PSEUDO_FAILURES, _MOST_PSEUDO_FAILURES = 0.1, 1.0
_OWN_WEIGHT: Final = 20
"""Number of own failures of a canary that weigh as much as those of its kind."""
_EPSILON: Final = 1e-6


def learn(keys: Sequence[Key], lost: Fails, ndcg: Floats) -> Baseline:
    """Learn a baseline from healthy runs, oldest first.

    `lost`, `ndcg`: (runs, n), as in Observation. A canary measured too rarely is left unknown. Raises ValueError
    where there is no run at all.
    """
    runs, count = lost.shape
    if runs == 0 or ndcg.shape != lost.shape or len(keys) != count:
        raise ValueError("A baseline is learned of at least one run, over the canaries named.")
    floors = _floors(ndcg)
    signals = np.stack([lost, worse_than(floors, ndcg)])
    filled, before = _carried(signals)
    deterministic = _is_identical(lost, ndcg)
    measured = (lost != UNMEASURED).sum(axis=0)
    enough = IDENTICAL_RUNS if deterministic else min(_KNOWN_RUNS, math.ceil(_KNOWN_SHARE * runs))
    known = measured >= min(enough, runs)
    failures = filled == 1
    return Baseline(
        keys=tuple(keys),
        runs=runs,
        deterministic=deterministic,
        known=known,
        rates=np.stack([_rates(one, last, known) for one, last in zip(signals, before, strict=True)]),
        floors=floors,
        last=filled[:, -1],
        usual=(usual(failures[0][:, known]), usual(failures[1][:, known])),
        failures=failures,
    )


def worse_than(floors: NDArray[np.float32], ndcg: Floats) -> Fails:
    """Which canaries are worse: (n,) or (runs, n); -1 where it was not measured or has no floor."""
    below = floors.astype(np.float64) - ndcg
    return np.where(np.isnan(below), UNMEASURED, below > MARGIN + _EPSILON).astype(np.int8)


def usual(failures: NDArray[np.bool_]) -> int:
    """Return the 99 % quantile of how many fail in a run: at least so many runs have no more."""
    return usual_count(failures.sum(axis=1))


def usual_count(counts: NDArray[np.integer[Any]]) -> int:
    """Return the 99 % quantile of counts; 0 where there are none."""
    return int(np.quantile(counts, _USUAL_QUANTILE, method="inverted_cdf")) if len(counts) else 0


def _floors(ndcg: Floats) -> NDArray[np.float32]:
    """Return each canary's own quantile over the runs that measured it; NaN where none did."""
    ordered = np.sort(ndcg, axis=0)  # NaN comes last
    measured = np.isfinite(ordered).sum(axis=0)
    place = _FLOOR_QUANTILE * np.maximum(measured - 1, 0)
    low = np.floor(place).astype(np.intp)
    high = np.minimum(low + 1, np.maximum(measured - 1, 0))
    columns = np.arange(ndcg.shape[1])
    below, above = ordered[low, columns], ordered[high, columns]
    return np.asarray(below + (above - below) * (place - low), np.float32)


def _carried(signals: Fails) -> tuple[Fails, Fails]:
    """Measurements with failed probes replaced by the one before: (signal, runs, n), at each run and before it."""
    numbers = np.arange(signals.shape[1])[None, :, None]
    newest = np.maximum.accumulate(np.where(signals == UNMEASURED, 0, numbers), axis=1)
    filled = np.take_along_axis(signals, newest, axis=1)
    before = np.full_like(filled, UNMEASURED)
    before[:, 1:] = filled[:, :-1]
    return filled, before


def _is_identical(lost: Fails, ndcg: Floats) -> bool:
    """Whether every canary had the same result in all runs that measured it."""
    highest = np.where(lost == UNMEASURED, 0, lost).max(axis=0)
    lowest = np.where(lost == UNMEASURED, 1, lost).min(axis=0)
    flips = (highest > lowest).any()
    spread = np.where(np.isnan(ndcg), -np.inf, ndcg).max(axis=0) - np.where(np.isnan(ndcg), np.inf, ndcg).min(axis=0)
    return not flips and not bool((spread > _EPSILON).any())


def _rates(signal: Fails, before: Fails, known: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return P(fail) right after passing and right after failing, of each canary: (last, n).

    Both are rounded up by one standard error. Lasting failures of one canary are rare, so the second is drawn to that
    of all canaries that are as calm, or as flickering; of a calm one it is no lower than the first.
    """
    passed, failed = (before == 0) & (signal != UNMEASURED), (before == 1) & (signal != UNMEASURED)
    after_pass, after_fail = passed.sum(axis=0), failed.sum(axis=0)
    newly, again = ((signal == 1) & passed).sum(axis=0), ((signal == 1) & failed).sum(axis=0)
    flickered = known & ((newly > 0) | (again < after_fail))
    share = flickered.sum() / max(int(known.sum()), 1)
    span = _MOST_PSEUDO_FAILURES - _FEWEST_PSEUDO_FAILURES
    pseudo = min(_FEWEST_PSEUDO_FAILURES + span * share / _FLICKER_SHARE, _MOST_PSEUDO_FAILURES)
    failing = (signal == 1).sum(axis=0) / np.maximum((signal != UNMEASURED).sum(axis=0), 1)
    calm = failing < CALM_RATE
    fresh = _fresh(newly, after_pass, pseudo + failing, calm & known)
    lasting = np.empty_like(fresh)
    for kind in (calm, ~calm):
        least = newly[kind].sum() / max(int(after_pass[kind].sum()), 1)
        lasting[kind] = _lasting(fresh[kind], again[kind], after_fail[kind], least=float(least))
    lasting = np.where(calm, np.maximum(lasting, fresh), lasting)
    return np.clip(np.stack([fresh, lasting]), LEAST_RATE, 1 - LEAST_RATE).astype(np.float32)


def _fresh(newly: NDArray[np.int64], after_pass: NDArray[np.int64], pseudo: Floats, calm: NDArray[np.bool_]) -> Floats:
    """Return P(fail) right after passing.

    That of a calm canary is drawn half way to the mean of all calm ones, since a few failures in 300 runs say little,
    and what they tell together much; but never below its own share.
    """
    # One that never passed is expected to fail on, should it ever pass.
    failures, runs = newly + pseudo, (after_pass + 1).astype(np.float64)
    if newly[calm].any():
        total = max(int(after_pass[calm].sum()), 1)
        mean = newly[calm].sum() / total
        failures = np.where(calm, failures + after_pass * (mean + math.sqrt(mean / total)), failures)
        runs = np.where(calm, runs + after_pass, runs)
    return np.asarray(np.maximum(_rounded_up(failures / runs, runs), newly / np.maximum(after_pass, 1)), np.float64)


def _lasting(fresh: Floats, again: NDArray[np.int64], after_fail: NDArray[np.int64], *, least: float) -> Floats:
    """Return P(fail) right after failing for canaries of one kind; as after passing where none of them ever failed.

    On the whole, who has just failed is no safer than who has passed: `least` is how often those fail.
    """
    if fresh.size == 0:
        return fresh
    failures = int(after_fail.sum())
    mean = (float(again.sum()) + float(fresh.mean())) / (failures + 1)
    kind = mean + math.sqrt(mean * max(1 - mean, 0.0) / (failures + 1)) * failures / (failures + 1)
    kind = min(max(kind, least), 1.0)
    own = (again + _OWN_WEIGHT * kind) / (after_fail + _OWN_WEIGHT)
    error = np.sqrt(own * (1 - own) / (after_fail + _OWN_WEIGHT)) * after_fail / (after_fail + _OWN_WEIGHT)
    return np.asarray(own + error, np.float64)


def _rounded_up(rate: Floats, of: Floats) -> Floats:
    rate = np.minimum(rate, 1.0)
    return np.asarray(rate + np.sqrt(rate * (1 - rate) / of), np.float64)
