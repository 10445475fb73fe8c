"""Keys and floors of a suite's canaries, for validating the checks that use it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFloors:
    """The keys and floors of a suite's canaries."""

    keys: Collection[str]
    floors: Mapping[str, Collection[str]]
    """The measures with floors by key, of the canaries that have any."""
    measures: frozenset[str]
    """All measures with floors: few, so that most checks are validated without a pass over the canaries."""

    @classmethod
    def of(cls, keys: Collection[str], floors: Mapping[str, Collection[str]]) -> Self:
        """Return the floors with `measures` filled in."""
        return cls(keys=keys, floors=floors, measures=frozenset(chain.from_iterable(floors.values())))
