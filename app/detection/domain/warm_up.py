"""Before anything is known: three strikes, and the Poisson tail.

Three strikes also watch a canary that is new, or changed, until the next learning.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.detection.domain.learning import CALM_RATE
from app.detection.domain.values import Fails, State

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


def calm(passes: NDArray[np.int32], misses: NDArray[np.int32]) -> NDArray[np.bool_]:
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
