"""Loads suite snapshots (canaries, judgments and their matcher), parsed once per version and process.

Runs, pages, notifications and rules share them. They are loaded before a write transaction, never within one.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from app.base.db.engine import Connection, Store, all_cached, cached, to_us
from app.base.documents.validation_messages import parse_document
from app.base.errors import InvalidInputError
from app.base.values import Canary
from app.catalog.documents.documents import CanaryDocument
from app.catalog.domain.suite_hashes import suite_hash
from app.catalog.domain.suite_snapshot import Member, SuiteSnapshot, UnusableSuiteError
from app.catalog.store import suites
from app.catalog.store.definitions import Definition
from app.catalog.store.suites import CanaryVersion, FrozenVersion

_BYTES_PER_CANARY: Final = 1_200
"""Size of a canary with two judgments by id in memory, and of what is derived of it."""
_BYTES_PER_CHARACTER: Final = 6
"""Size per character of expected texts, which are also held normalised and as word 3-grams."""


class SuiteOvertakenError(Exception):
    """A suite has another revision than the one that was read before the transaction."""


def freeze_suite(store: Store, suite_id: int, now: datetime) -> int:
    """Return the id of a suite's version in force, frozen now if no run has needed it yet.

    The canaries are listed before the transaction, and again where somebody edits the suite in between.
    """
    while True:
        with store.read() as connection:
            members_by_version = suites.find_version_in_force(connection, suite_id)
            if members_by_version is not None:
                return members_by_version
            listed = suites.list_members(connection, suite_id)
        with store.write() as connection:
            frozen = suites.freeze_suite(connection, suite_id, listed, to_us(now))
        if frozen is not None:
            return frozen


def load_suite(connection: Connection, version_id: int) -> SuiteSnapshot:
    """Return a suite version, cached. Raises UnusableSuiteError."""
    return cached(connection, ("suite", version_id), lambda: _read_version(connection, version_id))


def load_suite_in_force(connection: Connection, suite: Definition) -> SuiteSnapshot:
    """Return the current state of a suite, frozen or not. Raises UnusableSuiteError."""
    version_id = suites.find_version_in_force(connection, suite.id)
    if version_id is not None:
        return load_suite(connection, version_id)

    def read() -> tuple[SuiteSnapshot, int]:
        listed = suites.list_members(connection, suite.id)
        frozen = FrozenVersion(suite_id=suite.id, hash=listed.hash, members=listed.members)
        return _read(connection, frozen, version_id=0)

    return cached(connection, ("suite in force", suite.id, suite.revision), read)


def load_suites(connection: Connection, version_ids: Iterable[int]) -> dict[int, SuiteSnapshot]:
    """Return suite versions by id."""
    return {version_id: load_suite(connection, version_id) for version_id in sorted(set(version_ids))}


def load_corrected(connection: Connection, version_id: int, judged_by: int) -> SuiteSnapshot:
    """Return a suite version with the canaries of version `judged_by`, where their queries are the same.

    A canary that is absent there or has another query stays unchanged: its ranking answers the old query.
    """

    def correct() -> tuple[SuiteSnapshot, int]:
        recorded, now = load_suite(connection, version_id), load_suite(connection, judged_by)
        members = tuple([_corrected(member, now) for member in recorded.members])
        digest = suite_hash([(member.key, member.hash) for member in members])
        snapshot = SuiteSnapshot(version_id=version_id, suite_id=recorded.suite_id, hash=digest, members=members)
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
    """Return a suite version and its size; canaries of other cached versions are not parsed again."""
    members_by_version: dict[int, Member] = {}
    for other in all_cached(connection, SuiteSnapshot):
        if other.suite_id == frozen.suite_id:
            members_by_version.update((member.version_id, member) for member in other.members)
    missing = [version for _, version in frozen.members if version not in members_by_version]
    read = suites.canary_versions_of(connection, missing) if missing else ()
    characters = 0
    for one in read:
        canary = _canary(one)
        members_by_version[one.version_id] = Member(
            canary_id=one.canary_id, version_id=one.version_id, key=canary.key, hash=one.hash, canary=canary
        )
        characters += sum(len(judged.text) for judged in (*canary.judgments, *canary.forbidden) if judged.text)
    members = tuple([members_by_version[version] for _, version in frozen.members])
    size = len(members) * _BYTES_PER_CANARY + characters * _BYTES_PER_CHARACTER
    snapshot = SuiteSnapshot(version_id=version_id, suite_id=frozen.suite_id, hash=frozen.hash, members=members)
    return snapshot, size


def _canary(version: CanaryVersion) -> Canary:
    try:
        return parse_document(CanaryDocument, version.body).to_domain()
    except InvalidInputError as error:
        raise UnusableSuiteError(f"canary '{version.key}' cannot be used as it is defined: {error}") from None
