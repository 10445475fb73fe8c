"""A suite version as a value: its canaries, their judgments, and the matcher made of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from app.domain.catalog.canary_groups import Group, groups_of
from app.domain.catalog.suite_floors import SuiteFloors
from app.domain.catalog.suite_power import Reach, reach
from app.domain.detection import Members
from app.domain.errors import ConflictError
from app.domain.model import Canary
from app.domain.runs.evaluation import Panel


class UnusableSuiteError(ConflictError):
    """A stored suite holds what this release refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A canary as a frozen suite version lists it."""

    canary_id: int
    version_id: int
    key: str
    hash: str
    canary: Canary


@dataclass(frozen=True, kw_only=True)
class SuiteSnapshot:
    """A suite version; positions count along `members`."""

    version_id: int
    """0 = no run has frozen it."""
    suite_id: int
    hash: str
    members: tuple[Member, ...]

    @classmethod
    def unstored(cls, canaries: Iterable[Canary], hash_: str = "") -> "SuiteSnapshot":
        """Return a suite of canaries that no store knows; their positions stand for ids."""
        members = [
            Member(canary_id=position, version_id=position, key=canary.key, hash="", canary=canary)
            for position, canary in enumerate(canaries)
        ]
        return cls(version_id=0, suite_id=0, hash=hash_, members=tuple(members))

    @cached_property
    def canaries(self) -> tuple[Canary, ...]:
        """The canaries by position."""
        return tuple([member.canary for member in self.members])

    @cached_property
    def panel(self) -> Panel:
        """The matcher of the canaries. Raises UnusableSuiteError."""
        try:
            return Panel(self.canaries)
        except ValueError as error:
            raise UnusableSuiteError(f"the suite cannot be judged: {error}") from error

    @cached_property
    def watched(self) -> Members:
        """Those a detector watches."""
        return members_of(self.panel, self.version_ids)

    def prepare(self) -> None:
        """Make what a run needs, so that nobody makes it within a transaction. Raises UnusableSuiteError."""
        assert self.watched is not None  # noqa: S101 - read for its effect: kept from now on

    @cached_property
    def canary_ids(self) -> tuple[int, ...]:
        """The ids of the canaries by position."""
        return tuple([member.canary_id for member in self.members])

    @cached_property
    def version_ids(self) -> tuple[int, ...]:
        """The ids of their versions by position."""
        return tuple([member.version_id for member in self.members])

    @cached_property
    def positions(self) -> Mapping[int, int]:
        """Positions by canary id."""
        return {canary_id: position for position, canary_id in enumerate(self.canary_ids)}

    @cached_property
    def reach(self) -> Reach:
        """What damage the canaries can see."""
        return reach(self.canaries)

    @cached_property
    def groups(self) -> tuple[tuple[Group, ...], ...]:
        """What each canary may have in common with others, by position."""
        shared: dict[Group, Group] = {}
        return tuple([tuple([shared.setdefault(one, one) for one in groups_of(canary)]) for canary in self.canaries])

    @cached_property
    def floors(self) -> SuiteFloors:
        """What a check has to know of the canaries."""
        floors = {member.key: tuple(member.canary.floors) for member in self.members if member.canary.floors}
        return SuiteFloors.of(self.by_key.keys(), floors)

    @cached_property
    def by_key(self) -> Mapping[str, Canary]:
        """The canaries by key."""
        return {member.key: member.canary for member in self.members}


def members_of(panel: Panel, version_ids: Sequence[int]) -> Members:
    """Return which canaries of a suite a detector watches, known by their versions, and the groups they are in."""
    place_of = np.full(len(panel), -1, dtype=np.intp)
    place_of[panel.watched] = np.arange(len(panel.watched))
    named = {"category": panel.categories, "tag": panel.tags, "document": panel.documents}
    groups = {
        f"{kind}:{name}": places
        for kind, members in named.items()
        for name, positions in members.items()
        if len(places := place_of[positions][place_of[positions] >= 0]) > 1
    }
    return Members(keys=tuple([version_ids[position] for position in panel.watched.tolist()]), groups=groups)
