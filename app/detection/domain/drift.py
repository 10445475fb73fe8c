"""Score drift: whether the scores of first hits moved since the baseline, and whether the rankings did too.

Information for people, never an alarm: scores may be rescaled, or an index may grow, without any loss. Losses are
found by the detector.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.base.number_text import percent_text
from app.detection.domain.views import DriftKind, StoredDrift

DRIFT_Z: Final = 3.0
SAME_OVERLAP: Final = 0.95
OVERLAP_DEPTH: Final = 5
SD_FLOOR: Final = 0.005
"""Of the mean: a deterministic retriever has no deviation, and the last digits of scores are noise."""
FEWEST: Final = 3
"""The median of fewer canaries would be that of a single one."""
_LARGEST_Z = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How far the scores of first hits are from their baseline, over the canaries whose scores are known."""

    kind: DriftKind
    reason: str
    """A sentence without its full stop, for people."""
    median_z: float | None
    """The median over canaries of the distance from the mean in standard deviations, at most 1,000."""
    overlap: float | None
    """The mean share of the top 5 in common with the baseline's; None = unknown."""
    canaries: int
    """Number of compared canaries."""

    def body(self) -> StoredDrift:
        """As JSON on the wire."""
        return {
            "kind": self.kind,
            "reason": self.reason,
            "median_z": None if self.median_z is None else round(self.median_z, 2),
            "overlap": None if self.overlap is None else round(self.overlap, 4),
            "canaries": self.canaries,
        }


def score_drift(
    top_before_mean: ArrayLike, top_before_sd: ArrayLike, top_now: ArrayLike, overlap: ArrayLike | float
) -> Drift:
    """Compare the scores of first hits with their baseline: parallel arrays, one place per canary, NaN = no score.

    `overlap` is the share of the top 5 in common with the baseline's ranking, by canary or of all together. Scores
    drifted where the median over canaries of |now - mean| / max(sd, 0.5 % of |mean|) is 3 or more; rankings count as
    unchanged at a mean overlap of 0.95 and more. Where fewer than three canaries have scores it is unknown.

    Measured: the median is 0 to 0.1 where nothing moved, 0.2 after rounding to eight bits, 4 and more after scores
    were rescaled by 2 % on a deterministic retriever, and 13 and more after another query encoder.
    """
    mean, sd, now = (
        np.atleast_1d(np.asarray(one, dtype=np.float64)) for one in (top_before_mean, top_before_sd, top_now)
    )
    known = np.isfinite(mean) & np.isfinite(sd) & np.isfinite(now)
    count = int(known.sum())
    if count < FEWEST:
        note = f"scores are known before and now of {count} of {len(now)} canaries, which is too few to compare"
        return Drift(kind=DriftKind.UNKNOWN, reason=note, median_z=None, overlap=None, canaries=count)
    share = np.broadcast_to(np.asarray(overlap, dtype=np.float64), now.shape)[known]
    share = share[np.isfinite(share)]
    agreed = float(share.mean()) if len(share) else None
    z = float(np.median(_distances(mean[known], sd[known], now[known])))
    kind, reason = _kind_and_reason(z, agreed)
    return Drift(kind=kind, reason=reason, median_z=z, overlap=agreed, canaries=count)


def top_overlap(before: Sequence[object], now: Sequence[object], depth: int = OVERLAP_DEPTH) -> float:
    """Share of the longer of two tops that is in both, in [0, 1]; 1 for two empty ones."""
    one, other = set(before[:depth]), set(now[:depth])
    longer = max(len(one), len(other))
    return len(one & other) / longer if longer else 1.0


def _distances(mean: NDArray[np.float64], sd: NDArray[np.float64], now: NDArray[np.float64]) -> NDArray[np.float64]:
    away = np.abs(now - mean)
    scale = np.maximum(sd, SD_FLOOR * np.abs(mean))
    # Without deviation at a mean of 0, any move has the largest distance.
    z = np.divide(away, scale, out=np.where(away > 0, _LARGEST_Z, 0.0), where=scale > 0)
    return np.minimum(z, _LARGEST_Z)


def _kind_and_reason(z: float, overlap: float | None) -> tuple[DriftKind, str]:
    if z < DRIFT_Z:
        return DriftKind.NONE, f"scores are where they were: the median canary is {z:.1f} standard deviations away"
    moved = f"the median canary's top score is {z:.1f} standard deviations from its baseline"
    if overlap is None:
        return DriftKind.SCORES, f"scores moved, rankings are unknown: {moved}"
    sentence = (
        f"{moved}, and {percent_text(overlap)} of the top {OVERLAP_DEPTH} are those of the baseline, in any order"
    )
    if overlap >= SAME_OVERLAP:
        return DriftKind.SCORES, f"scores moved, what is found did not: {sentence}"
    return DriftKind.RANKINGS, f"scores moved, and what is found too: {sentence}"
