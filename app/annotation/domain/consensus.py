"""Consensus: the grade that stands for an item, and which items several annotators grade or a person decides."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_APART: Final = 2
"""Grades this far apart are a disagreement, whatever the median says."""
LEFT: Final = 0
"""Grades of two answers side by side: which of them is better, or neither."""
ALIKE: Final = 1
RIGHT: Final = 2
_HEX_DIGITS: Final = 13
"""52 bits: as many as a float holds exactly."""
_RANGE: Final = float(16**_HEX_DIGITS)


class ConsensusState(StrEnum):
    """State of an item: `open` has no grade, `disputed` waits for a decision, `adjudicated` has one.

    `agreed` has two grades or more: one person alone agrees with nobody.
    """

    OPEN = "open"
    GRADED_ONCE = "graded_once"
    AGREED = "agreed"
    DISPUTED = "disputed"
    ADJUDICATED = "adjudicated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consensus:
    """Grade of an item; None while it is open or disputed."""

    state: ConsensusState
    grade: int | None = None


def reach_consensus(grades: Sequence[int], *, adjudicated: int | None = None) -> Consensus:
    """Consensus of the grades of an item, one per annotator, skips left out.

    It is their median, halves rounded down: two annotators who say 1 and 2 agree on at least 1. Grades on both sides of
    0/1, or two or more apart, are disputed. An adjudication decides in any case.
    """
    if adjudicated is not None:
        return Consensus(state=ConsensusState.ADJUDICATED, grade=adjudicated)
    if not grades:
        return Consensus(state=ConsensusState.OPEN)
    if is_disputed(grades):
        return Consensus(state=ConsensusState.DISPUTED)
    ordered, middle = sorted(grades), len(grades) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2
    return Consensus(state=_state_of(grades), grade=median)


def is_disputed(grades: Sequence[int]) -> bool:
    """Whether grades of an item disagree on relevance, or by two grades or more."""
    if not grades:
        return False
    lowest, highest = min(grades), max(grades)
    return lowest == 0 < highest or highest - lowest >= _APART


def reach_preference(grades: Sequence[int], *, adjudicated: int | None = None) -> Consensus:
    """Consensus on two answers side by side: the side that somebody prefers where nobody prefers the other.

    Who sees no difference does not overrule who sees one. An adjudication decides in any case.
    """
    if adjudicated is not None:
        return Consensus(state=ConsensusState.ADJUDICATED, grade=adjudicated)
    if not grades:
        return Consensus(state=ConsensusState.OPEN)
    if are_sides_disputed(grades):
        return Consensus(state=ConsensusState.DISPUTED)
    preferred = [grade for grade in grades if grade != ALIKE]
    return Consensus(state=_state_of(grades), grade=preferred[0] if preferred else ALIKE)


def _state_of(grades: Sequence[int]) -> ConsensusState:
    """Return the state of an item whose grades are not disputed."""
    return ConsensusState.AGREED if len(grades) > 1 else ConsensusState.GRADED_ONCE


def are_sides_disputed(grades: Sequence[int]) -> bool:
    """Whether both sides are preferred by somebody."""
    return LEFT in grades and RIGHT in grades


def is_overlap(item: str, *, share: float, seed: int) -> bool:
    """Whether an item is for every annotator; the others are done once one annotator has graded them.

    Decided by a hash of its identity, so that the choice depends on neither rank nor time nor the other items.
    """
    return hash_share(f"overlap:{seed}:{item}") < share


def hash_share(text: str) -> float:
    """Return a number in [0, 1), always the same for one text and spread evenly over texts."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:_HEX_DIGITS], 16) / _RANGE
