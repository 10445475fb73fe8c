"""Preferences: of the most different pairs of a shadow, how many people would rather have from the candidate."""

from collections.abc import Iterable
from dataclasses import dataclass

from app.annotation.domain.consensus import LEFT, RIGHT
from app.answers.domain.quantiles import Proportion, clopper_pearson


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPair:
    """A pair that people compared: their consensus, a side or neither, None = open or disputed."""

    grade: int | None
    candidate_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """Pairs by what is preferred."""

    candidate: int
    current: int
    alike: int
    undecided: int
    share: Proportion
    """Of the candidate among the pairs in which one side is preferred, with its exact 95 % interval."""


def count_preferences(pairs: Iterable[ComparedPair]) -> Preferences:
    """Count the preferences of some pairs."""
    candidate = current = alike = undecided = 0
    for pair in pairs:
        if pair.grade is None:
            undecided += 1
        elif pair.grade not in {LEFT, RIGHT}:
            alike += 1
        elif (pair.grade == RIGHT) is pair.candidate_right:
            candidate += 1
        else:
            current += 1
    share = clopper_pearson(candidate, candidate + current)
    return Preferences(candidate=candidate, current=current, alike=alike, undecided=undecided, share=share)
