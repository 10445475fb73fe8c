"""Suites as runs froze them: canaries, judgments and their matcher, parsed once per version and process.

Runs, pages, notifications and rules share them. They are loaded before a write transaction, never within one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Final

import numpy as np

from app.domain.catalog.suite_power import Reach, reach
from app.domain.detection import Members
from app.domain.diagnosis.common_causes import Group, GroupKind
from app.domain.errors import ConflictError, InvalidInputError
from app.domain.model import DEFAULT_CATEGORY, Canary
from app.domain.runs.evaluation import Panel
from app.formats.catalog.documents import CanaryDocument
from app.formats.validation_messages import parse_document
from app.store.catalog import suites
from app.store.catalog.definitions import Definition
from app.store.catalog.suites import CanaryVersion, FrozenVersion
from app.store.engine import Connection, Store, all_cached, cached, to_us

_BYTES_PER_CANARY: Final = 2_000
"""Of the objects of a canary with two judgments, beside its texts."""
_BYTES_PER_CHARACTER: Final = 6
"""Of a query, id or text as it was stored: normalised, and as word 3-grams, it is there again."""


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
        return tuple([tuple([shared.setdefault(one, one) for one in _groups(canary)]) for canary in self.canaries])

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


def _groups(canary: Canary) -> list[Group]:
    documents = dict.fromkeys(one.document for one in canary.judgments if one.document is not None)
    return [
        *(Group(kind=GroupKind.CATEGORY, name=str(one)) for one in (canary.category,) if one is not DEFAULT_CATEGORY),
        *(Group(kind=GroupKind.TAG, name=tag) for tag in canary.tags),
        *(Group(kind=GroupKind.DOCUMENT, name=name) for name in documents),
    ]


def freeze_suite(store: Store, suite_id: int, now: datetime) -> int:
    """Return the id of a suite's version in force, frozen now if no run has needed it yet."""
    with store.read() as connection:
        known = suites.find_version_in_force(connection, suite_id)
        if known is not None:
            return known
        listed = suites.list_members(connection, suite_id)
    with store.write() as connection:
        return suites.freeze_suite(connection, suite_id, to_us(now), listed)


def load_suite(connection: Connection, version_id: int) -> SuiteSnapshot:
    """Return a suite version, from memory where this process has read it before. Raises UnusableSuiteError."""
    return cached(connection, ("suite", version_id), lambda: _read_version(connection, version_id))


def load_suite_in_force(connection: Connection, suite: Definition) -> SuiteSnapshot:
    """Return a suite as it is now, whether or not a run has frozen it. Raises UnusableSuiteError."""
    version_id = suites.find_version_in_force(connection, suite.id)
    if version_id is not None:
        return load_suite(connection, version_id)

    def read() -> tuple[SuiteSnapshot, int]:
        listed = suites.list_members(connection, suite.id)
        frozen = FrozenVersion(suite_id=suite.id, hash=listed.hash, members=listed.members)
        return _read(connection, frozen, version_id=0)

    return cached(connection, ("suite in force", suite.id, suite.revision), read)


def load_suites(connection: Connection, version_ids: Iterable[int]) -> dict[int, SuiteSnapshot]:
    """Return a few suite versions by id."""
    return {version_id: load_suite(connection, version_id) for version_id in sorted(set(version_ids))}


def load_corrected(connection: Connection, version_id: int, judged_by: int) -> SuiteSnapshot:
    """Return a suite version with the canaries of another in the place of its own, wherever they ask the same.

    Whoever asks something else by now, or is no longer there, stays as it was: its ranking answers the old query.
    """

    def correct() -> tuple[SuiteSnapshot, int]:
        asked, now = load_suite(connection, version_id), load_suite(connection, judged_by)
        members = tuple([_corrected(member, now) for member in asked.members])
        digest = suites.suite_hash([(member.key, member.hash) for member in members])
        snapshot = SuiteSnapshot(version_id=version_id, suite_id=asked.suite_id, hash=digest, members=members)
        return snapshot, len(members) * _BYTES_PER_CANARY

    return cached(connection, ("corrected", version_id, judged_by), correct)


def _corrected(member: Member, now: SuiteSnapshot) -> Member:
    position = now.positions.get(member.canary_id)
    if position is None or now.members[position].canary.query != member.canary.query:
        return member
    return now.members[position]


def _read_version(connection: Connection, version_id: int) -> tuple[SuiteSnapshot, int]:
    return _read(connection, suites.frozen_version(connection, version_id), version_id)


def _read(connection: Connection, frozen: FrozenVersion, version_id: int) -> tuple[SuiteSnapshot, int]:
    """Return a suite version and its size; canaries that another version in memory holds are not parsed again."""
    known: dict[int, Member] = {}
    for other in all_cached(connection, SuiteSnapshot):
        if other.suite_id == frozen.suite_id:
            known.update((member.version_id, member) for member in other.members)
    unknown = [version for _, version in frozen.members if version not in known]
    read = suites.canary_versions_of(connection, unknown) if unknown else ()
    characters = 0
    for one in read:
        known[one.version_id] = Member(
            canary_id=one.canary_id, version_id=one.version_id, key=one.key, hash=one.hash, canary=_canary(one)
        )
        characters += one.characters
    members = tuple([known[version] for _, version in frozen.members])
    size = len(members) * _BYTES_PER_CANARY + characters * _BYTES_PER_CHARACTER
    snapshot = SuiteSnapshot(version_id=version_id, suite_id=frozen.suite_id, hash=frozen.hash, members=members)
    return snapshot, size


def _canary(version: CanaryVersion) -> Canary:
    try:
        return parse_document(CanaryDocument, version.body).to_domain()
    except InvalidInputError as error:
        raise UnusableSuiteError(f"canary '{version.key}' cannot be used as it is defined: {error}") from None
