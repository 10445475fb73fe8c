"""A suite version as an immutable value: its canaries, their judgments and their matcher."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from app.base.errors import ConflictError
from app.base.values import Canary
from app.catalog.domain.canary_groups import Group, groups_of
from app.catalog.domain.judgment_sources import collect_sources
from app.catalog.domain.suite_floors import SuiteFloors
from app.catalog.domain.suite_power import Reach, reach
from app.detection.domain import Members
from app.scoring.evaluation import Panel


class UnusableSuiteError(ConflictError):
    """A stored suite is invalid in this release."""


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
    def from_canaries(cls, canaries: Iterable[Canary], hash_: str = "") -> "SuiteSnapshot":
        """Return a snapshot of canaries that are not stored; their positions are their ids."""
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
        """The canaries a detector watches."""
        return watched_members(self.panel, self.version_ids)

    def prepare(self) -> None:
        """Compute what a run needs, so that it is not computed within a transaction. Raises UnusableSuiteError."""
        assert self.watched is not None  # noqa: S101 - read for its effect: cached from now on

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
        """The damage that the canaries can detect."""
        return reach(self.canaries)

    @cached_property
    def groups(self) -> tuple[tuple[Group, ...], ...]:
        """The groups of each canary, by position."""
        shared: dict[Group, Group] = {}
        return tuple([tuple([shared.setdefault(one, one) for one in groups_of(canary)]) for canary in self.canaries])

    @cached_property
    def floors(self) -> SuiteFloors:
        """Keys and floors of the canaries, for validating checks."""
        floors = {member.key: tuple(member.canary.floors) for member in self.members if member.canary.floors}
        return SuiteFloors.of(self.by_key.keys(), floors)

    @cached_property
    def judgment_sources(self) -> list[str] | None:
        """The sources of its judgments; None = not all have one."""
        return collect_sources(self.canaries)

    @cached_property
    def by_key(self) -> Mapping[str, Canary]:
        """The canaries by key."""
        return {member.key: member.canary for member in self.members}


def watched_members(panel: Panel, version_ids: Sequence[int]) -> Members:
    """Return the canaries of a suite that a detector watches, by version id, and their groups."""
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
