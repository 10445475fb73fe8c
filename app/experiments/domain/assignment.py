"""Assignment of units to arms: a published pure function, so that clients need no call to Coalmine.

The vectors in `docs/assignment-vectors.json` hold this function, its twin in JavaScript and everybody else's together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.annotation.domain.consensus import hash_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One of the two variants of an experiment, and the share of the units that it gets, in (0, 1)."""

    name: str
    share: float


def assign_arm(slug: str, epoch: int, unit: str, shares: Sequence[float]) -> int:
    """Position of the arm of a unit: the first whose cumulative share is above the hash of the unit.

    The hash is u = int(first 13 hex digits of sha256("slug:epoch:unit"), 16) / 2^52, in [0, 1); the shares are added in
    their order, and the last arm gets whatever they leave. Another epoch gives every unit another u.
    """
    position = hash_share(f"{slug}:{epoch}:{unit}")
    upper = 0.0
    for place, share in enumerate(shares[:-1]):
        upper += share
        if position < upper:
            return place
    return len(shares) - 1
