"""Accounts: bets that canaries fail more than they used to, paid by what one run shows.

A bet on a canary with failure rate p that it is really q pays q/p where it fails and (1-q)/(1-p) where it passes: 1 on
average while p is right, so what piles up is evidence. M <- (1 + 0.97 M) * factor is the Shiryaev-Roberts recursion
(Shin, Ramdas and Rinaldo, "E-detectors", 2022) with forgetting.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.domain.detection.values import SIGNALS, UNMEASURED, Fails, Level, Members

CANARY_BETS: Final = (0.9, 0.4)
"""The rate a broken canary is taken to fail at."""
GROUP_SHIFTS: Final = (0.5, 0.2)
"""The share of its passes a group is taken to lose: q = p + d (1 - p)."""
FLEET_SHIFTS: Final = (0.01, 0.03, 0.1, 0.3)
FORGETTING: Final = 0.97
HIGHEST: Final = 1e15
"""No account holds more."""

_HIGHEST_LOG: Final = 40.0
"""Enough to reach it from any account at rest, and far from what overflows."""

Logs = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bets:
    """What the bets on one run pay, as logarithms: (signal, bet, account) of each level."""

    canaries: Logs
    groups: Logs
    fleet: Logs


def bet(rates: NDArray[np.float32], known: NDArray[np.bool_], last: Fails, now: Fails, members: Members) -> Bets:
    """Say what the bets on one run pay; `rates` and `known` as in Baseline; `last`, `now`: (signal, n).

    A canary that is unknown, was not measured now or never before pays 1, which is no evidence either way.
    """
    active = known & (last != UNMEASURED) & (now != UNMEASURED)
    failed, passed = active & (now == 1), active & (now == 0)
    rate = np.where(last == 1, rates[:, 1], rates[:, 0])
    return Bets(
        canaries=np.stack([_canaries(rate, q, failed, passed) for q in CANARY_BETS], axis=1),
        groups=np.stack([_groups(rate, d, failed, passed, members) for d in GROUP_SHIFTS], axis=1),
        fleet=np.stack([_fleet(rate, d, failed, passed) for d in FLEET_SHIFTS], axis=1),
    )


def paid(level: Level, logs: Logs) -> Level:
    """Pay what the bets pay into the accounts, and go on with the CUSUM of the same bets (Page, 1954)."""
    factors = np.exp(np.minimum(logs, _HIGHEST_LOG), dtype=np.float64)
    accounts = np.minimum((1 + FORGETTING * level.accounts.astype(np.float64)) * factors, HIGHEST)
    rises = np.maximum(level.rises + logs, np.float32(0))
    ages = np.where(rises > 0, level.ages + 1, 0)
    return Level(accounts=accounts.astype(np.float32), rises=rises, ages=ages.astype(np.int32))


def at_rest(bets: int, count: int) -> Level:
    """Open accounts."""
    shape = (len(SIGNALS), bets, count)
    nothing = np.zeros(shape, np.float32)
    return Level(accounts=nothing, rises=nothing, ages=np.zeros(shape, np.int32))


def _canaries(rate: NDArray[np.float32], q: float, failed: NDArray[np.bool_], passed: NDArray[np.bool_]) -> Logs:
    """Bet on each canary by itself; q is never below p, so one that always fails pays nothing for a pass."""
    higher = np.maximum(rate, np.float32(q))
    logs = np.zeros_like(rate)
    logs[failed] = np.log(higher[failed] / rate[failed])
    logs[passed] = np.log((1 - higher[passed]) / (1 - rate[passed]))
    return logs


def _gains(rate: NDArray[np.float32], shift: float, failed: NDArray[np.bool_], passed: NDArray[np.bool_]) -> Logs:
    """Bet that each canary lost this share of its passes: a pass pays 1 - d, whatever its rate."""
    logs = np.where(passed, np.float32(np.log1p(-shift)), np.float32(0))
    logs[failed] = np.log1p(shift * (1 - rate[failed]) / rate[failed])
    return logs


def _groups(
    rate: NDArray[np.float32], shift: float, failed: NDArray[np.bool_], passed: NDArray[np.bool_], members: Members
) -> Logs:
    gains = _gains(rate, shift, failed, passed)
    count = len(members.groups)
    sums = [np.bincount(members.owners, one[members.positions], count) for one in gains]
    return np.stack(sums).astype(np.float32)


def _fleet(rate: NDArray[np.float32], shift: float, failed: NDArray[np.bool_], passed: NDArray[np.bool_]) -> Logs:
    return np.asarray(_gains(rate, shift, failed, passed).sum(axis=1, dtype=np.float64, keepdims=True), np.float32)
