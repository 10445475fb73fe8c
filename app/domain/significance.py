"""Significance: whether the same canaries really did better or worse, or only happened to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What changed for the same canaries between two times, `now` less `before`, with the interval it lies in."""

    pairs: int
    before: float
    now: float
    difference: float
    low: float
    high: float
    confidence: float

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0
