"""The account of several canaries: bets that some few of them broke in the same run, nobody knows which.

An average of accounts pays for not knowing which canary it is, again for each of two that break together. This one
multiplies instead: for each of the last runs t, over all canaries, 1 - e + e S, where S is what the bet on a canary at
0.9 has paid since t and e is the share of canaries thought to be broken. That is the average over all sets of canaries
(Xie and Siegmund, "Sequential multi-sensor change-point detection", 2013), 1 on average while canaries fail apart from
each other; the sum over t is the Shiryaev-Roberts recursion of runs that are remembered.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.detection.domain.betting_accounts import CANARY_BETS, HIGHEST
from app.detection.domain.values import UNMEASURED, Fails

BROKEN: Final = (1, 3, 10, 30)
"""How many canaries are thought to be broken, averaged; of fewer than twice as many, half."""
REMEMBERED: Final = 8
"""Runs. With four to twelve the delays of benchmarks/detection_habits.py are the same."""

_BITS: Final = 3
"""Of each run: whether there was a bet, whether the canary failed before, whether it fails."""
_BET, _BEFORE, _FAILED = 4, 2, 1
_ALL_FAILED: Final = sum(_FAILED << _BITS * run for run in range(REMEMBERED))
_ALL: Final = (1 << _BITS * REMEMBERED) - 1
_HIGHEST_LOG: Final = float(np.log(HIGHEST))

Recent = NDArray[np.int32]
"""(signal, n): the bets of the last runs on each canary, the newest in the lowest bits; none from before its baseline
was learned, since another one has other rates, and calls other answers worse."""


def nothing_recent(signals: int, count: int) -> Recent:
    """Bets of a detector that made none."""
    return np.zeros((signals, count), np.int32)


def remembered(recent: Recent, known: NDArray[np.bool_], last: Fails, now: Fails) -> Recent:
    """Bets with those of one more run; there is none on a canary that is unknown or was not measured."""
    active = known & (last != UNMEASURED) & (now != UNMEASURED)
    code = np.where(active, _BET + _BEFORE * (last == 1) + _FAILED * (now == 1), 0)
    return ((recent << _BITS | code) & _ALL).astype(np.int32)


def joint_balance(recent: Recent, rates: NDArray[np.float32], known: NDArray[np.bool_]) -> float:
    """Return the account after the remembered runs, averaged over signals; `rates` and `known` as in Baseline.

    One that has not failed since t counts as if its bet had lost all: that is no more than it has.
    """
    count = int(known.sum())
    if count == 0:
        return 0.0
    return sum(_of_signal(*one, known, count) for one in zip(recent, rates, strict=True)) / len(recent)


def _of_signal(recent: NDArray[np.int32], rates: NDArray[np.float32], known: NDArray[np.bool_], count: int) -> float:
    failing = np.flatnonzero(known & (recent & _ALL_FAILED != 0))
    codes = recent[failing, None] >> _BITS * np.arange(REMEMBERED) & 2**_BITS - 1  # (canary, run), the newest first
    paid = np.cumsum(np.take_along_axis(_pays(rates[:, failing]), codes, axis=1), axis=1)
    since = np.exp(np.minimum(paid, _HIGHEST_LOG))
    failed = np.logical_or.accumulate(codes & _FAILED == 1, axis=1)
    shares = np.minimum(np.array(BROKEN) / count, 0.5)[:, None]
    gains = np.log1p(shares[:, :, None] * (np.where(failed, since, 0.0) - 1)).sum(axis=1)  # (broken, run)
    logs = gains + (count - len(failing)) * np.log1p(-shares)
    balance = float(np.exp(np.minimum(logs, _HIGHEST_LOG)).sum())
    return min(balance / len(BROKEN), HIGHEST)


def _pays(rates: NDArray[np.float32]) -> NDArray[np.float64]:
    """Logarithms of what a bet pays, by canary and by what is remembered of a run; `rates`: (last, n)."""
    pays = np.zeros((rates.shape[1], 2**_BITS))
    for before, rate in zip((0, _BEFORE), rates.astype(np.float64), strict=True):
        higher = np.maximum(rate, CANARY_BETS[0])
        pays[:, _BET + before] = np.log((1 - higher) / (1 - rate))
        pays[:, _BET + before + _FAILED] = np.log(higher / rate)
    return pays
