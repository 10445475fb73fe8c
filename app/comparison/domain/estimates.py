"""Estimates: the difference of a measure between two runs over pairs of canaries, with its interval and p value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.base.values import ROUNDING
from app.comparison.domain.significance import FEWEST_PAIRS, paired_difference, randomisation_test

Floats = NDArray[np.float64]

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Mean of a measure in both runs over the same canaries, and what their difference, B less A, may be."""

    measure: str
    pairs: int
    a: float | None
    """None without a pair, as `b` and `difference`."""
    b: float | None
    difference: float | None
    low: float | None
    """Lower end of the interval; None below `FEWEST_PAIRS` and where all pairs differ by the same, as `high`."""
    high: float | None
    p: float | None
    """Of the paired randomisation test; None below `FEWEST_PAIRS`."""
    confidence: float = CONFIDENCE
    """Of the interval."""
    pattern: bytes = field(default=b"", compare=False, repr=False)
    """Equal for measures whose differences are proportional on every pair, and whose tests are thus one test."""

    @property
    def lower(self) -> float | None:
        """The least that the difference may be: where all pairs differ by the same, that; None = unknown."""
        return self.difference if self.low is None and self.p is not None else self.low

    @property
    def upper(self) -> float | None:
        """The most that the difference may be, likewise."""
        return self.difference if self.high is None and self.p is not None else self.high

    @property
    def excludes_zero(self) -> bool:
        """Whether the difference may not be zero by its interval alone."""
        return (self.lower is not None and self.lower > 0) or (self.upper is not None and self.upper < 0)


def estimate(measure: str, a: ArrayLike, b: ArrayLike, *, confidence: float = CONFIDENCE, seed: int = 0) -> Estimate:
    """Estimate the difference of a measure from its scores in both runs, in pairs; a pair with a NaN is left out.

    Scores that differ by less than `ROUNDING` count as equal: the same ranking summed in another order is no
    difference. Raises ValueError for columns of different lengths.
    """
    old, new = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if old.shape != new.shape or old.ndim != 1:
        raise ValueError(f"there must be two columns of one length, not {old.shape} and {new.shape}")
    there = ~(np.isnan(old) | np.isnan(new))
    old, new = old[there], new[there]
    new = np.where(np.abs(new - old) <= ROUNDING, old, new)
    pairs = len(old)
    enough = pairs >= FEWEST_PAIRS
    differences = new - old
    varied = enough and bool(np.ptp(differences) > ROUNDING)
    interval = paired_difference(old, new, confidence=confidence, seed=seed) if varied else None
    return Estimate(
        measure=measure,
        pairs=pairs,
        a=float(old.mean()) if pairs else None,
        b=float(new.mean()) if pairs else None,
        difference=float(differences.mean()) if pairs else None,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        p=randomisation_test(old, new, seed=seed) if enough else None,
        confidence=confidence,
        pattern=_pattern(differences),
    )


def _pattern(differences: Floats) -> bytes:
    """Return the differences in proportion to the largest one; signs count."""
    largest = float(np.abs(differences).max(initial=0.0))
    scaled = differences / largest if largest else differences
    return np.round(scaled, 9).tobytes()


def estimate_all(measures: Sequence[str], a: Mapping[str, Floats], b: Mapping[str, Floats]) -> dict[str, Estimate]:
    """Estimate the differences of these measures, those that both runs have, from columns of paired scores."""
    cache: dict[tuple[bytes, bytes], Estimate] = {}  # where each canary expects one chunk, many measures are the same
    found: dict[str, Estimate] = {}
    for measure in measures:
        if measure not in a or measure not in b:
            continue
        scores = a[measure].tobytes(), b[measure].tobytes()
        known = cache.get(scores)
        found[measure] = estimate(measure, a[measure], b[measure]) if known is None else replace(known, measure=measure)
        cache.setdefault(scores, found[measure])
    return found
