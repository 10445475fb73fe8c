"""Differences of paired canaries: mean, interval and p value of a measure in two runs.

Canaries are paired with themselves: hard ones stay hard, so differences have far less variance than two means. That a
bootstrap of pairs and a randomisation test are what retrieval measures need is shown by Sakai, "Evaluating evaluation
metrics based on the bootstrap" (SIGIR 2006), and Smucker, Allan and Carterette, "A comparison of statistical
significance tests for information retrieval evaluation" (CIKM 2007).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import TypedDict

from app.base.statistics import CONFIDENCE, student_quantile
from app.base.values import ROUNDING, Value, replace

Floats = NDArray[np.float64]

FEWEST_PAIRS: Final = 10
"""With fewer pairs an interval is wide and its coverage too low to alert on it."""
FEW_PAIRS: Final = 50
"""With fewer pairs an interval reaches as far as that of Student's t where this is the wider one."""
_STUDENT_CONFIDENCE: Final = 0.999
"""Beyond it the tails of Student's t say nothing of so few pairs."""
RESAMPLES: Final = 2_000
RESAMPLED_PAIRS: Final = 200
"""Largest number of pairs that are resampled, in 4 ms; for more the interval is computed."""
EXACT_PAIRS: Final = 12
"""Largest number of differing pairs for which all swaps are enumerated."""
SWAPS: Final = 9_999
SWAPPED_PAIRS: Final = 200
"""Largest number of differing pairs that are swapped at random; for more the normal distribution is used."""
_NORMAL = NormalDist()
_SLACK: Final = 1e-12
"""1 - 0.95 is not 0.05 in floats."""
_OUTERMOST: Final = 40.0
"""A quantile of the normal distribution that nothing is beyond, in floats."""


class Difference(Value):
    """Mean difference of the same canaries between two times, `now` less `before`, with its interval."""

    pairs: int
    before: float
    now: float
    difference: float
    low: float
    high: float
    confidence: float
    p: float | None = None
    """Of the randomisation test, corrected for those it is decided with; None where none was made."""

    @property
    def leaves_out_zero(self) -> bool:
        """Whether its interval does."""
        return self.low > 0 or self.high < 0

    @property
    def claimed(self) -> bool:
        """Whether it is more than chance: its interval does not include zero, and its p value agrees.

        One without a p value is of an earlier release, which asked its interval alone.
        """
        return self.leaves_out_zero and (self.p is None or is_significant(self.p, self.confidence))


class StoredDrop(TypedDict, total=False):
    """A `Difference` to the baseline, or only `unknown`: why there is none."""

    unknown: str
    pairs: int
    before: float
    now: float
    difference: float
    low: float
    high: float
    confidence: float


def is_significant(p: float, confidence: float) -> bool:
    """Whether a p value, corrected for the tests it is decided with, is small enough at a confidence."""
    return p <= 1 - confidence + _SLACK


def mean_interval(scores: ArrayLike) -> tuple[float, float] | None:
    """Return the interval of the mean of scores over canaries, NaN left out: the same bootstrap.

    None with fewer than `FEWEST_PAIRS` of them, and where all are equal: resamples of equal scores say nothing of what
    other canaries would score.
    """
    values = np.asarray(scores, dtype=np.float64)
    values = values[~np.isnan(values)]
    if len(values) < FEWEST_PAIRS or np.ptp(values) <= ROUNDING:
        return None
    low, high = _interval(values, CONFIDENCE, 0)
    return max(low, float(values.min())), min(high, float(values.max()))


def randomisation_test(before: ArrayLike, now: ArrayLike, *, seed: int = 0) -> float | None:
    """P value of the mean difference by exchanging the scores of pairs (two-sided).

    Fisher's paired randomisation test: each pair is swapped or not. All ways are enumerated for up to `EXACT_PAIRS`
    pairs that differ, else `SWAPS` random ones, and beyond `SWAPPED_PAIRS` the normal distribution they approach. None
    without a pair, or where no pair differs there is nothing to test: 1. Raises ValueError for different lengths.
    """
    old, new = _paired(before, now)
    if not len(old):
        return None
    differences = new - old
    differences = differences[differences != 0]
    if not len(differences):
        return 1.0
    observed = abs(float(differences.sum()))
    if len(differences) > SWAPPED_PAIRS:
        return math.erfc(observed / math.sqrt(2 * float(differences @ differences)))
    slack = 1e-9 * float(np.abs(differences).sum())  # sums of the same numbers in another order
    if len(differences) <= EXACT_PAIRS:
        ways = np.arange(2 ** len(differences))[:, None] >> np.arange(len(differences)) & 1
        return float(np.mean(np.abs((2.0 * ways - 1.0) @ differences) >= observed - slack))
    extreme = 0
    random = np.random.default_rng(seed)
    for start in range(0, SWAPS, 1_111):  # in pieces, which stay in the cache
        rows = min(1_111, SWAPS - start)
        bits = np.unpackbits(
            np.frombuffer(random.bytes(rows * ((len(differences) + 7) // 8)), dtype=np.uint8).reshape(rows, -1), axis=1
        )
        # Not by BLAS, whose threads would spin on a busy machine.
        sums = 2.0 * np.einsum("ij,j->i", bits[:, : len(differences)], differences) - differences.sum()
        extreme += int(np.count_nonzero(np.abs(sums) >= observed - slack))
    return (extreme + 1) / (SWAPS + 1)


def _paired(before: ArrayLike, now: ArrayLike) -> tuple[Floats, Floats]:
    old, new = np.asarray(before, dtype=np.float64), np.asarray(now, dtype=np.float64)
    if old.shape != new.shape or old.ndim != 1:
        raise ValueError(f"there must be two columns of one length, not {old.shape} and {new.shape}")
    there = ~(np.isnan(old) | np.isnan(new))
    return old[there], new[there]


def _interval(differences: Floats, confidence: float, seed: int) -> tuple[float, float]:
    mean = float(differences.mean())
    deviations = differences - mean
    spread = float(np.abs(deviations).max())
    if spread <= 1e-12:  # noqa: PLR2004 - all the same, up to rounding: there is nothing to resample
        return mean, mean
    squares = float(deviations @ deviations)
    acceleration = float((deviations**3).sum()) / (6 * squares**1.5)
    resampled = len(differences) <= RESAMPLED_PAIRS
    ends = _resampled if resampled else _computed
    low, high = ends(differences, acceleration, confidence, seed)
    if len(differences) >= FEW_PAIRS or confidence > _STUDENT_CONFIDENCE:
        return low, high
    side = _student_side(differences, confidence)
    return min(low, max(mean - side, _least(differences))), max(high, min(mean + side, -_least(-differences)))


def _student_side(differences: Floats, confidence: float) -> float:
    """Return half the width of the interval of Student's t.

    With few pairs, of which few differ, neither interval is enough alone. The skewness that corrects the bootstrap is
    guessed from the two or three pairs that differ most, so that it covers in .86 of samples of 11; where all that
    differ fell, Student's covers as rarely. They fail on different samples: the wider of both covers in .93 or more
    (`benchmarks.small_samples`).
    """
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return student_quantile((1 + confidence) / 2, len(differences) - 1) * error


def _least(differences: Floats) -> float:
    """Return what no mean of differences is below: scores are from 0 to 1, unless some differ by more."""
    return min(-1.0, float(differences.min()))


def _resampled(differences: Floats, acceleration: float, confidence: float, seed: int) -> tuple[float, float]:
    """Return ends of the interval from the sorted means of resamples, corrected for bias and skewness."""
    count = len(differences)
    picked = np.random.default_rng(seed).integers(0, count, size=(RESAMPLES, count), dtype=np.uint16)
    means = np.sort(differences[picked].mean(axis=1))
    mean = float(differences.mean())
    slack = 1e-12 * max(1.0, abs(mean))
    below = np.searchsorted(means, mean - slack) + np.searchsorted(means, mean + slack)  # ties count half
    share = min(max(below / (2 * RESAMPLES), 1 / RESAMPLES), 1 - 1 / RESAMPLES)
    bias = _NORMAL.inv_cdf(float(share))
    levels = [_NORMAL.cdf(_corrected(side, bias, acceleration)) for side in _sides(confidence, len(differences))]
    low, high = np.quantile(means, levels).tolist()
    return low, high


def _computed(differences: Floats, acceleration: float, confidence: float, _seed: int) -> tuple[float, float]:
    """Return ends of the interval in the limit of many resamples.

    By the expansion of Cornish and Fisher its quantile is z + a (z^2 - 1), in standard errors, and its bias is the
    acceleration a, a sixth of the skewness of the mean (DiCiccio and Efron, "More accurate confidence intervals in
    exponential families", Biometrika 1992).
    """
    error = float(differences.std()) / math.sqrt(len(differences))
    mean = float(differences.mean())
    corrected = [_corrected(side, acceleration, acceleration) for side in _sides(confidence, len(differences))]
    low, high = (mean + error * (z + acceleration * (z * z - 1)) for z in corrected)
    return max(low, float(differences.min())), min(high, float(differences.max()))  # no mean lies outside


def _sides(confidence: float, count: int) -> tuple[float, float]:
    """Return normal quantiles of both sides, widened for few pairs.

    Resamples vary less than samples do, and more so the fewer there are: Hesterberg, "What teachers should know about
    the bootstrap" (The American Statistician 2015), section 4.2. The quantile of Student's distribution is expanded to
    its first terms; with 10 pairs it is 0.2 % too small.
    """
    z, free = _NORMAL.inv_cdf((1 + confidence) / 2), count - 1
    student = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    side = student * math.sqrt(count / free)
    return -side, side


def _corrected(side: float, bias: float, acceleration: float) -> float:
    """Shift a quantile of the normal distribution by Efron's equation 4.3; beyond its pole, to the limit."""
    shifted = bias + side
    room = 1 - acceleration * shifted
    return bias + shifted / room if room > 0 else math.copysign(_OUTERMOST, shifted)


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

    The interval is the bias-corrected and accelerated bootstrap of Efron, "Better bootstrap confidence intervals"
    (JASA 1987), widened for few pairs, and with fewer than `FEW_PAIRS` no narrower than that of Student's t: the same
    for the same scores and seed. Scores that differ by less than `ROUNDING` count as equal: the same ranking summed in
    another order is no difference. Raises ValueError for columns of different lengths.
    """
    old, new = _paired(a, b)
    new = np.where(np.abs(new - old) <= ROUNDING, old, new)
    pairs = len(old)
    enough = pairs >= FEWEST_PAIRS
    differences = new - old
    varied = enough and bool(np.ptp(differences) > ROUNDING)
    low, high = _interval(differences, confidence, seed) if varied else (None, None)
    largest = float(np.abs(differences).max(initial=0.0))
    return Estimate(
        measure=measure,
        pairs=pairs,
        a=float(old.mean()) if pairs else None,
        b=float(new.mean()) if pairs else None,
        difference=float(differences.mean()) if pairs else None,
        low=low,
        high=high,
        p=randomisation_test(old, new, seed=seed) if enough else None,
        confidence=confidence,
        pattern=np.round(differences / largest if largest else differences, 9).tobytes(),
    )


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
