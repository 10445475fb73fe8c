"""Differences of paired canaries as small suites have them, of populations whose mean is known to be 0."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]

_GAINS: Final = 1 / np.log2(np.arange(2, 12))
"""Of the one expected chunk at ranks 1 to 10."""


def _ranks(first: float, missed: float) -> Floats:
    """Return the probabilities of ranks 1 to 10 and of none."""
    return np.array([first, *[(1 - first - missed) / 9] * 9, missed])


def _scores(random: np.random.Generator, count: int, ranks: Floats) -> Floats:
    picked: Floats = random.choice(np.append(_GAINS, 0.0), count, p=ranks)
    return picked


def _moved(share: float, before: Floats, now: Floats) -> Draw:
    """Return what draws NDCG@10 of two retrievers that differ for a share of the canaries, less its mean."""
    mean = share * float(np.append(_GAINS, 0.0) @ (now - before))

    def draw(random: np.random.Generator, count: int) -> Floats:
        differences = _scores(random, count, now) - _scores(random, count, before)
        drawn: Floats = np.where(random.random(count) < share, differences, 0.0) - mean
        return drawn

    return draw


def _lost(share: float, by: float) -> Draw:
    def draw(random: np.random.Generator, count: int) -> Floats:
        drawn: Floats = np.where(random.random(count) < share, -by, 0.0) + share * by
        return drawn

    return draw


_WORSE: Final = _ranks(0.55, 0.15)
_BETTER: Final = _ranks(0.72, 0.08)
SMALL_SAMPLES: Final[Mapping[str, Draw]] = {
    "two retrievers, every canary moves": _moved(1.0, _WORSE, _BETTER),
    "half of the canaries move": _moved(0.5, _WORSE, _BETTER),
    "a quarter moves, nearly all up": _moved(0.25, _ranks(0.2, 0.4), _ranks(0.9, 0.02)),
    "three in ten are lost": _lost(0.3, 1.0),
    "one in eight is lost": _lost(0.12, 1.0),
    "normal": lambda random, count: random.normal(0.0, 0.3, count),
}
