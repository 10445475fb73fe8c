"""Sentences on the difference of a measure between two runs, and its significance.

It reads the plain measures of `services.comparison.run_comparison`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.domain.comparison.significance import FEWEST_PAIRS
from app.domain.comparison.views import MeasureDifference, PairedSides
from app.domain.counts import counted
from app.domain.model import ROUNDING
from app.domain.number_text import percent_text

LOWER_IS_BETTER: Final = frozenset({"degraded_share", "duplicate_ratio", "answered_ratio"})
_SHOWN = 5e-4
"""A difference below half of the last digit shown counts as none."""


class Way(StrEnum):
    """Whether a difference is an improvement."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceSentence:
    """A difference in words, without full stops."""

    way: Way
    moved: str
    """`coverage fell by 0.080, from 0.950 to 0.870`."""
    chance: str
    """`95 % between -0.120 and -0.030: more than chance`; empty where it is unknown."""
    surely: bool
    """It is more than chance."""


def difference_sentence(name: str, measure: MeasureDifference) -> DifferenceSentence:
    """Sentence on a measure, from its means in both runs and over the canaries of both."""
    before, now, difference = measure["before"], measure["now"], measure["difference"]
    spoken = name.replace("_", " ")
    if difference is None:
        lacking = [side for side, value in (("before", before), ("now", now)) if value is None]
        moved = f"{spoken} is not defined {' or '.join(lacking)}"
        return DifferenceSentence(way=Way.UNKNOWN, moved=moved, chance="", surely=False)
    if abs(difference) < _SHOWN:
        return DifferenceSentence(way=Way.SAME, moved=f"{spoken} is unchanged at {now:.3f}", chance="", surely=False)
    verb = "rose" if difference > 0 else "fell"
    way = Way.BETTER if (difference > 0) is (name not in LOWER_IS_BETTER) else Way.WORSE
    chance, surely = _chance(measure["paired"], difference)
    moved = f"{spoken} {verb} by {abs(difference):.3f}, from {before:.3f} to {now:.3f}"
    return DifferenceSentence(way=way, moved=moved, chance=chance, surely=surely)


def _chance(paired: PairedSides | None, difference: float) -> tuple[str, bool]:
    """Significance of the difference over the canaries of both runs, and whether it is significant."""
    if paired is None or paired["difference"] is None:
        return "", False
    over = f"over {counted(paired['canaries'], 'canary')}"
    if abs(paired["difference"] - difference) > ROUNDING + _SHOWN:
        over += f" that both asked, where it differs by {paired['difference']:+.3f}"
    low, high, confidence, p = paired["low"], paired["high"], paired["confidence"], paired["p"]
    if low is None or high is None or confidence is None:
        return f"{over}, fewer than the {FEWEST_PAIRS} that a significance test needs", False
    interval = f"{over}, {percent_text(confidence)} between {low:+.3f} and {high:+.3f}"
    apart = low > 0 or high < 0
    likely = p is not None and p > 1 - confidence
    if apart and not likely:
        return f"{interval}: more than chance", True
    return f"{interval}: {'at the edge of chance' if apart or not likely else 'may be chance'}", False
