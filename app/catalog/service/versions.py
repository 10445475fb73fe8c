"""Frozen versions of suites, checks and retrievers, as runs work with them: inputs, yardstick and guide of a check.

Each version is read and parsed once per process, shared by runs, pages, notifications and rules, and loaded before a
write transaction, never within one. What the inputs are is in `scoring.run_inputs`; definitions are saved by `suites`
and `definitions.service`.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Any, Final, TypeVar

from app.base.db.engine import Connection, Store, all_cached, cached, to_us
from app.base.db.keys import Vault
from app.base.documents.fields import Document, parse_document
from app.base.errors import ConflictError, InvalidInputError
from app.catalog import store as catalog
from app.catalog.documents.check_documents import CheckDocument, build_inputs, config_hash
from app.catalog.documents.secrets import join_secrets, with_placeholders
from app.catalog.domain import fields_of_answers
from app.catalog.store import CanaryList, Definition
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import Retriever
from app.scoring.run_inputs import (
    RunInputs,
    RunVersions,
    SuiteMember,
    SuiteSnapshot,
    UnusableSuiteError,
    Yardstick,
    suite_hash,
)

_BYTES_PER_CANARY: Final = 1_200
"""Size of a canary with two judgments by id in memory, and of what is derived of it."""
_BYTES_PER_CHARACTER: Final = 6
"""Size per character of expected texts, which are also held normalised and as word 3-grams."""
_DOCUMENT_BYTES: Final = 10_000
"""Approximate size of a check or a retriever in the cache."""

DocumentT = TypeVar("DocumentT", bound=Document)


class UnusableDefinitionError(ConflictError):
    """A stored check or retriever is invalid in this release."""


def load_inputs(
    connection: Connection, versions: RunVersions, *, vault: Vault | None = None, judged_by: int | None = None
) -> RunInputs:
    """Return the inputs of a run of these versions; with the judgments of the suite version `judged_by`, if given.

    Without a `vault` the retriever has placeholders for its secrets. Raises UnusableDefinitionError and
    UnusableSuiteError.
    """
    check, check_hash = load_check(connection, versions.check)
    retriever, retriever_hash = _load_retriever(connection, versions.retriever, vault)
    if judged_by is None:
        suite = load_suite(connection, versions.suite)
    else:
        suite = load_corrected(connection, versions.suite, judged_by)
    return build_inputs(suite, check, retriever, config_hash=config_hash(check_hash, retriever_hash))


def load_yardstick(connection: Connection, check_version: int, retriever_version: int) -> Yardstick:
    """Return the yardstick of versions of a check and a retriever. Raises UnusableDefinitionError."""
    retriever, _ = _load_retriever(connection, retriever_version, None)
    check, _ = load_check(connection, check_version)
    return check.yardstick(retriever.scorer)


def load_check(connection: Connection, version_id: int) -> tuple[CheckDocument, str]:
    """Return a version of a check and its hash. Raises UnusableDefinitionError."""

    def read() -> tuple[tuple[CheckDocument, str], int]:
        content = catalog.version_body(connection, version_id)
        if isinstance(content.document, CheckDocument):
            return (content.document, content.hash), _DOCUMENT_BYTES
        return (_parse_stored("the check", CheckDocument, content.body), content.hash), _DOCUMENT_BYTES

    return cached(connection, ("check", version_id), read)


def load_retriever(connection: Connection, version_id: int, vault: Vault) -> Retriever:
    """Return a version of a retriever with its secrets. Raises UnusableDefinitionError."""
    return _load_retriever(connection, version_id, vault)[0]


def _load_retriever(connection: Connection, version_id: int, vault: Vault | None) -> tuple[Retriever, str]:
    """Return a retriever and its hash; without a vault, with placeholders for its secrets."""
    content = catalog.version_body(connection, version_id)

    def read() -> tuple[Retriever, int]:
        if vault is None:
            whole = with_placeholders(content.body, secrets_set=True)
        else:
            whole = join_secrets(content.body, vault.decrypt(content.secrets))
        return _parse_stored("the retriever", RetrieverDocument, whole).to_domain(), _DOCUMENT_BYTES

    # Secrets may change without a new version, so their ciphertext is part of the cache key.
    return cached(connection, ("retriever", version_id, vault is not None and content.secrets), read), content.hash


def _parse_stored(name: str, model: type[DocumentT], body: Mapping[str, Any]) -> DocumentT:
    """Return a stored document, which may be invalid if an older release stored it."""
    try:
        return parse_document(model, body)
    except InvalidInputError as error:
        raise UnusableDefinitionError(f"{name} cannot be used as it is defined: {error}") from None


def freeze_suite(store: Store, suite_id: int, now: datetime) -> int:
    """Return the id of a suite's version in force, frozen now if no run has needed it yet.

    The canaries are listed before the transaction, and again where somebody edits the suite in between.
    """
    while True:
        with store.read() as connection:
            members_by_version = catalog.find_version_in_force(connection, suite_id)
            if members_by_version is not None:
                return members_by_version
            listed = catalog.list_members(connection, suite_id)
        with store.write() as connection:
            frozen = catalog.freeze_suite(connection, listed, to_us(now))
        if frozen is not None:
            return frozen


def load_suite(connection: Connection, version_id: int) -> SuiteSnapshot:
    """Return a suite version, cached. Raises UnusableSuiteError."""
    return cached(
        connection,
        ("suite", version_id),
        lambda: _read(connection, catalog.frozen_version(connection, version_id), version_id),
    )


def load_suite_in_force(connection: Connection, suite: Definition) -> SuiteSnapshot:
    """Return the current state of a suite, frozen or not. Raises UnusableSuiteError."""
    version_id = catalog.find_version_in_force(connection, suite.id)
    if version_id is not None:
        return load_suite(connection, version_id)

    def read() -> tuple[SuiteSnapshot, int]:
        return _read(connection, catalog.list_members(connection, suite.id), version_id=0)

    return cached(connection, ("suite in force", suite.id, suite.revision), read)


def load_suites(connection: Connection, version_ids: Iterable[int]) -> dict[int, SuiteSnapshot]:
    """Return suite versions by id."""
    return {version_id: load_suite(connection, version_id) for version_id in sorted(set(version_ids))}


def former_versions(connection: Connection, suite: SuiteSnapshot, version_ids: Iterable[int]) -> Mapping[int, int]:
    """Return those of these versions that ask and expect what the suite's canary does, each with its version there.

    Tags, limits and the like may differ. Without those of the suite itself. Where one that has to be read is invalid in
    this release, those after it are left out too: to a detector they are new, and it says so.
    """
    older = tuple(sorted(set(version_ids) - suite.known_versions))
    if not older:
        return {}

    def compare() -> tuple[Mapping[int, int], int]:
        found: dict[int, int] = {}
        known = _cached_members(connection, suite.suite_id)
        with suppress(UnusableSuiteError):
            missing = [version for version in older if version not in known]
            read = catalog.read_members(connection, missing) if missing else ()
            for one in chain((known[version] for version in older if version in known), read):
                place = suite.positions.get(one.canary_id)
                if place is not None and suite.members[place].canary.finds_as(one.canary):
                    found[one.version_id] = suite.members[place].version_id
        return found, len(older) * _BYTES_PER_VERSION

    return cached(connection, ("former versions", suite.version_id, older), compare)


_BYTES_PER_VERSION: Final = 150


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


def _corrected(member: SuiteMember, now: SuiteSnapshot) -> SuiteMember:
    position = now.positions.get(member.canary_id)
    if position is None or now.members[position].canary.asked != member.canary.asked:
        return member
    return now.members[position]


def _cached_members(connection: Connection, suite_id: int) -> dict[int, SuiteMember]:
    """Return the canaries of cached versions of a suite, which need not be parsed again, by version."""
    alike = (one for one in all_cached(connection, SuiteSnapshot) if one.suite_id == suite_id)
    return {member.version_id: member for one in alike for member in one.members}


def _read(connection: Connection, listed: CanaryList, version_id: int) -> tuple[SuiteSnapshot, int]:
    """Return a suite version and its size; canaries of other cached versions are not parsed again."""
    listed_ids = [version for _, version in listed.members]
    members_by_version = _cached_members(connection, listed.suite_id)
    missing = [version for version in listed_ids if version not in members_by_version]
    characters = 0
    for member in catalog.read_members(connection, missing) if missing else ():
        members_by_version[member.version_id] = member
        chunks = (*member.canary.judgments, *member.canary.forbidden)
        characters += sum(len(judged.text) for judged in chunks if judged.text)
    members = tuple([members_by_version[version] for version in listed_ids])
    size = len(members) * _BYTES_PER_CANARY + characters * _BYTES_PER_CHARACTER
    snapshot = SuiteSnapshot(version_id=version_id, suite_id=listed.suite_id, hash=listed.hash, members=members)
    return snapshot, size


def answers_changed(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields by which two bodies of retrievers differ in what they answer."""
    return fields_of_answers(catalog.fields_changed(then, now))


def answers_otherwise(connection: Connection, before: int | None, now: int | None) -> bool:
    """Whether two versions of a retriever differ in what they answer, by hits or by the generator; None = unknown."""
    if before is None or now is None or before == now:
        return False
    bodies = catalog.version_bodies(connection, [before, now])
    return bool(answers_changed(bodies[before], bodies[now]))
