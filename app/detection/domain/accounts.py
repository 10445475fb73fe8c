"""Accounts: bets that canaries fail more than in the baseline, paid by the results of one run.

A bet on a canary with failure rate p that it is really q pays q/p where it fails and (1-q)/(1-p) where it passes: 1 on
average while p is right, so the balance is evidence. M <- (1 + 0.97 M) * factor is the Shiryaev-Roberts recursion
(Shin, Ramdas and Rinaldo, "E-detectors", 2022) with forgetting.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.detection.domain.values import SIGNALS, UNMEASURED, Fails, Level, Members

CANARY_BETS: Final = (0.9, 0.4)
"""Assumed failure rates of a broken canary."""
GROUP_SHIFTS: Final = (0.5, 0.2)
"""Assumed shares of its passes that a group loses: q = p + d (1 - p)."""
FLEET_SHIFTS: Final = (0.01, 0.03, 0.1, 0.3)
FORGETTING: Final = 0.97
HIGHEST: Final = 1e15
"""Largest balance of an account."""

_HIGHEST_LOG: Final = np.float32(40)
"""Enough to reach it from any account at rest, and far from what overflows."""

Logs = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bets:
    """Payments of the bets on one run, as logarithms: (signal, bet, account) of each level."""

    canaries: Logs
    groups: Logs
    fleet: Logs


def bet(rates: NDArray[np.float32], known: NDArray[np.bool_], last: Fails, now: Fails, members: Members) -> Bets:
    """Payments of the bets on one run; `rates` and `known` as in Baseline; `last`, `now`: (signal, n).

    A canary that is unknown, was not measured now or never before pays 1, which is no evidence.
    """
    active = known & (last != UNMEASURED) & (now != UNMEASURED)
    failed, passed = active & (now == 1), active & (now == 0)
    rate = np.where(last == 1, rates[:, 1], rates[:, 0])
    return Bets(
        canaries=np.stack([_canaries(rate, q, failed, passed) for q in CANARY_BETS], axis=1),
        groups=_groups((1 - rate) / rate, failed, passed, members),
        fleet=_fleet((1 - rate) / rate, failed, passed),
    )


def paid(level: Level, logs: Logs) -> Level:
    """Accounts after the payments, with the CUSUM of the same bets (Page, 1954)."""
    factors = np.exp(np.minimum(logs, _HIGHEST_LOG))
    accounts = np.minimum((1 + np.float32(FORGETTING) * level.accounts) * factors, np.float32(HIGHEST))
    rises = np.maximum(level.rises + logs, np.float32(0))
    ages = np.where(rises > 0, level.ages + 1, 0)
    return Level(accounts=accounts, rises=rises, ages=ages.astype(np.int32))


def at_rest(bets: int, count: int) -> Level:
    """Accounts without payments."""
    shape = (len(SIGNALS), bets, count)
    nothing = np.zeros(shape, np.float32)
    return Level(accounts=nothing, rises=nothing, ages=np.zeros(shape, np.int32))


def _canaries(rate: NDArray[np.float32], q: float, failed: NDArray[np.bool_], passed: NDArray[np.bool_]) -> Logs:
    """Bet on each canary by itself; q is never below p, so one that always fails pays nothing for a pass."""
    higher = np.maximum(rate, np.float32(q))
    pays = np.where(failed, higher / rate, np.where(passed, (1 - higher) / (1 - rate), np.float32(1)))
    return np.log(pays)


def _groups(odds: NDArray[np.floating], failed: NDArray[np.bool_], passed: NDArray[np.bool_], members: Members) -> Logs:
    """Bet that each canary of a group lost the same share d of its passes: (signal, shift, group).

    A pass pays 1 - d, whatever its rate p; a failure (p + d (1 - p)) / p; `odds` are (1 - p) / p.
    """
    bets = np.empty((len(SIGNALS), len(GROUP_SHIFTS), len(members.groups)), np.float32)
    for signal, (its_odds, failures, passes) in enumerate(zip(odds, failed, passed, strict=True)):
        places = np.flatnonzero(failures[members.positions])
        owners, against = members.owners[places], its_odds[members.positions[places]]
        calm = np.bincount(members.owners, passes[members.positions], bets.shape[2])
        for number, shift in enumerate(GROUP_SHIFTS):
            gains = np.bincount(owners, np.log1p(shift * against), bets.shape[2])
            bets[signal, number] = gains + calm * np.log1p(-shift)
    return bets


def _fleet(odds: NDArray[np.floating], failed: NDArray[np.bool_], passed: NDArray[np.bool_]) -> Logs:
    """Bet the same of all canaries together: (signal, shift, 1)."""
    bets = np.empty((len(SIGNALS), len(FLEET_SHIFTS), 1), np.float32)
    shifts = np.array(FLEET_SHIFTS)
    for signal, (its_odds, failures, passes) in enumerate(zip(odds, failed, passed, strict=True)):
        gains = np.log1p(np.outer(shifts, its_odds[failures])).sum(axis=1)
        bets[signal, :, 0] = gains + np.count_nonzero(passes) * np.log1p(-shifts)
    return bets


BROKEN: Final = (1, 3, 10, 30)
"""How many canaries are thought to be broken, averaged; of fewer than twice as many, half."""
REMEMBERED: Final = 8
"""Runs. With four to twelve the delays of benchmarks/detection_habits.py are the same."""

_BITS: Final = 3
"""Of each run: whether there was a bet, whether the canary failed before, whether it fails."""
_BET, _BEFORE, _FAILED = 4, 2, 1
_ALL_FAILED: Final = sum(_FAILED << _BITS * run for run in range(REMEMBERED))
_ALL: Final = (1 << _BITS * REMEMBERED) - 1
_HIGHEST_JOINT_LOG: Final = float(np.log(HIGHEST))

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
    since = np.exp(np.minimum(paid, _HIGHEST_JOINT_LOG))
    failed = np.logical_or.accumulate(codes & _FAILED == 1, axis=1)
    shares = np.minimum(np.array(BROKEN) / count, 0.5)[:, None]
    gains = np.log1p(shares[:, :, None] * (np.where(failed, since, 0.0) - 1)).sum(axis=1)  # (broken, run)
    logs = gains + (count - len(failing)) * np.log1p(-shares)
    balance = float(np.exp(np.minimum(logs, _HIGHEST_JOINT_LOG)).sum())
    return min(balance / len(BROKEN), HIGHEST)


def _pays(rates: NDArray[np.float32]) -> NDArray[np.float64]:
    """Logarithms of what a bet pays, by canary and by what is remembered of a run; `rates`: (last, n)."""
    pays = np.zeros((rates.shape[1], 2**_BITS))
    for before, rate in zip((0, _BEFORE), rates.astype(np.float64), strict=True):
        higher = np.maximum(rate, CANARY_BETS[0])
        pays[:, _BET + before] = np.log((1 - higher) / (1 - rate))
        pays[:, _BET + before + _FAILED] = np.log(higher / rate)
    return pays
