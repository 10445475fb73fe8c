"""What checks have to know of the canaries of a suite: their keys, and the measures that they have floors on."""

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
    """Those that any canary has a floor on: a few, so that most checks need no look at each canary."""

    @classmethod
    def of(cls, keys: Collection[str], floors: Mapping[str, Collection[str]]) -> Self:
        """Gather the measures."""
        return cls(keys=keys, floors=floors, measures=frozenset(chain.from_iterable(floors.values())))
