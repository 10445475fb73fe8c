"""Pairs of canaries of two runs: which are compared, and why the others are not."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.base.values import Canary


class Exclusion(StrEnum):
    """Why a canary is not compared, in the order of asking."""

    ONLY_IN_A = "only_in_a"
    ONLY_IN_B = "only_in_b"
    OTHER_QUERY = "other_query"
    OTHER_JUDGMENTS = "other_judgments"
    """It expects something else: its scores would differ though nothing was retrieved differently."""
    NOTHING_EXPECTED = "nothing_expected"
    """Its measures are undefined, as those of a negative canary."""
    NOT_MEASURED_IN_A = "not_measured_in_a"
    NOT_MEASURED_IN_B = "not_measured_in_b"
    NOT_MEASURED = "not_measured"
    """Neither run measured it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The canaries of one run, and by the same positions whether their probes measured."""

    canaries: Sequence[Canary]
    measured: Sequence[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """The canaries that are compared, by position in both runs, and the keys of the others by reason."""

    places: tuple[tuple[int, int], ...]
    """(position in A, position in B), in the order of A."""
    excluded: Mapping[Exclusion, tuple[str, ...]]
    """Only reasons that some canary has."""

    @property
    def total(self) -> int:
        """Number of different keys in the two runs."""
        return len(self.places) + sum(map(len, self.excluded.values()))


def pair_canaries(a: Members, b: Members) -> Pairing:
    """Pair the canaries that both runs measured: equal key, equal query, equal judgments, and something expected."""
    places: list[tuple[int, int]] = []
    excluded: dict[Exclusion, list[str]] = {}
    others = {canary.key: place for place, canary in enumerate(b.canaries)}
    for place, canary in enumerate(a.canaries):
        other = others.pop(canary.key, None)
        why = Exclusion.ONLY_IN_A if other is None else _exclusion(a, place, b, other)
        if other is not None and why is None:
            places.append((place, other))
        elif why is not None:
            excluded.setdefault(why, []).append(canary.key)
    if others:
        excluded[Exclusion.ONLY_IN_B] = list(others)
    ordered = {why: tuple(excluded[why]) for why in Exclusion if why in excluded}
    return Pairing(places=tuple(places), excluded=ordered)


def expects_the_same(one: Canary, other: Canary) -> bool:
    """Whether two canaries have the same judgments, in whatever order, and are both negative or both not."""
    if one.negative != other.negative:
        return False
    return one.judgments == other.judgments or Counter(one.judgments) == Counter(other.judgments)


def _exclusion(a: Members, place: int, b: Members, other: int) -> Exclusion | None:
    """Return why a canary that both runs have is not compared; None = it is."""
    one, two = a.canaries[place], b.canaries[other]
    if one.query != two.query:
        return Exclusion.OTHER_QUERY
    if not expects_the_same(one, two):
        return Exclusion.OTHER_JUDGMENTS
    if not one.expects:
        return Exclusion.NOTHING_EXPECTED
    return _UNMEASURED.get((a.measured[place], b.measured[other]))


_UNMEASURED: Final[Mapping[tuple[bool, bool], Exclusion]] = {
    (False, True): Exclusion.NOT_MEASURED_IN_A,
    (True, False): Exclusion.NOT_MEASURED_IN_B,
    (False, False): Exclusion.NOT_MEASURED,
}
