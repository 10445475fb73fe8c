"""Suites and canaries of the API: put, archive, find, list; each function is one transaction.

`definitions` does the same for the other kinds, `applying` for whole sets of documents.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from app.base.db.engine import Connection, Store, to_us
from app.base.errors import NotFoundError
from app.catalog.documents.documents import CanaryDocument, SuiteDocument
from app.catalog.service.changes import suite_definition
from app.catalog.service.definitions import overtaken
from app.catalog.service.references import (
    API,
    refuse_file_managed,
    refuse_file_managed_canary,
    refuse_named,
    require,
    require_floors,
)
from app.catalog.service.suite_plans import (
    SuitePlan,
    hold_suite,
    plan_and_write,
    plan_suite,
    suite_content,
    write_suite_plan,
)
from app.catalog.service.suite_snapshots import SuiteOvertakenError
from app.catalog.service.taken_names import key_taken_error, slug_taken_error
from app.catalog.store import canary_saving, definitions, suites
from app.catalog.store.definitions import Definition
from app.catalog.store.suites import CanaryHead, CanaryRow

CanaryT = TypeVar("CanaryT", bound=CanaryHead)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCanaries:
    """Number of canaries a request created, and changed including new ones."""

    created: int
    changed: int


def put_suite(
    store: Store, document: SuiteDocument, *, now: datetime, only_new: bool = False
) -> tuple[Definition, bool]:
    """Create or replace an API-managed suite; canaries in the document replace its API-managed ones.

    A file-managed suite accepts only canaries. With `only_new` an existing suite raises ConflictError.
    """
    slug = document.slug
    content = suite_content(slug, document.canaries or ())

    def plan(connection: Connection) -> SuitePlan:
        refuse(connection, definitions.find_definition(connection, "suite", slug))
        return plan_suite(connection, content, replace=document.canaries is not None)

    def refuse(connection: Connection, before: Definition | None) -> None:
        if only_new and before is not None and before.archived_at is None:
            raise slug_taken_error(connection, "suite", slug)
        if document.canaries is None:
            refuse_file_managed(before)

    def write(planned: SuitePlan) -> bool:
        with store.write(planned.staged.tables) as connection:
            before = hold_suite(connection, slug, planned.revision)
            refuse(connection, before)
            _put_suite(connection, slug, before, now=now)
            if document.canaries is not None:
                _put_canaries(connection, planned, now=now)
        return before is None or before.archived_at is not None

    is_new = plan_and_write(store, plan, write)
    return find_suite(store, slug), is_new


def put_canaries(
    store: Store, suite: str, documents: Sequence[CanaryDocument], *, now: datetime, with_suite: bool = False
) -> SavedCanaries:
    """Create or replace API-managed canaries of a suite; `with_suite` creates a missing suite, else NotFoundError."""
    content = suite_content(suite, documents)

    def plan(connection: Connection) -> SuitePlan:
        if not with_suite:
            _suite(connection, suite)
        return plan_suite(connection, content, replace=False)

    def write(planned: SuitePlan) -> SavedCanaries:
        with store.write(planned.staged.tables) as connection:
            before = hold_suite(connection, suite, planned.revision)
            if with_suite:
                _put_suite(connection, suite, before, now=now)
            _put_canaries(connection, planned, now=now)
        return SavedCanaries(created=planned.created, changed=planned.saved)

    return plan_and_write(store, plan, write)


def put_canary(store: Store, suite: str, document: CanaryDocument, *, now: datetime, over: int | None) -> None:
    """Create an API-managed canary, or replace the version `over` (the id of its row).

    Raises ConflictError where it has another version by now, or exists although `over` is None.
    """
    content = suite_content(suite, [document])

    def plan(connection: Connection) -> SuitePlan:
        owner = _suite(connection, suite)
        before = next(iter(suites.list_canary_heads(connection, owner.id, keys=[document.key])), None)
        if over is None and before is not None:
            raise key_taken_error(connection, owner.id, document.key)
        if over is not None and (before is None or before.version_id != over):
            raise overtaken(f"canary '{suite}/{document.key}'")
        return plan_suite(connection, content, replace=False)

    def write(planned: SuitePlan) -> None:
        with store.write(planned.staged.tables) as connection:
            hold_suite(connection, suite, planned.revision)
            _put_canaries(connection, planned, now=now)

    plan_and_write(store, plan, write)


def archive_canary(store: Store, suite: str, key: str, *, now: datetime) -> None:
    """Archive an API-managed canary; its history stays. Raises ConflictError while a rule is about it."""
    with store.write() as connection:
        owner = _suite(connection, suite)
        found = _canary(suites.list_canary_heads(connection, owner.id, keys=[key]), suite, key)
        refuse_file_managed_canary(found, suite)
        refuse_named(connection, suite, {key})
        definitions.touch_definition(connection, owner.id, to_us(now))
        canary_saving.archive_canaries(connection, [found.id], to_us(now))


def find_canary(store: Store, suite: str, key: str) -> CanaryRow:
    """Return a canary. Raises NotFoundError, also for an archived one."""
    with store.read() as connection:
        return _canary(suites.list_canaries(connection, _suite(connection, suite).id, keys=[key]), suite, key)


def list_suites(store: Store, *, after: str = "", limit: int | None = None) -> list[Definition]:
    """Return the suites by slug; the hash of each is that of its canaries, as in runs."""
    with store.read() as connection:
        return _hashed(connection, definitions.list_definitions(connection, "suite", after=after, limit=limit))


def find_suite(store: Store, slug: str) -> Definition:
    """Return a suite with the hash of its canaries. Raises NotFoundError."""
    with store.read() as connection:
        return _hashed(connection, [_suite(connection, slug)])[0]


def list_canaries(store: Store, suite: str, *, after: str = "", limit: int | None = None) -> list[CanaryRow]:
    """Return the canaries of a suite in order, those after the key `after`."""
    with store.read() as connection:
        return suites.list_canaries(connection, _suite(connection, suite).id, after=after, limit=limit)


def _hashed(connection: Connection, found: Sequence[Definition]) -> list[Definition]:
    hashes = suites.current_hashes(connection, {suite.id: suite.revision for suite in found})
    return [dataclasses.replace(suite, hash=hashes[suite.id]) for suite in found]


def _put_suite(connection: Connection, slug: str, before: Definition | None, *, now: datetime) -> None:
    """Create a suite of the API if there is none. Raises SuiteOvertakenError if another process has just created it."""
    if before is None or before.archived_at is not None:
        content = suite_definition(slug)
        definitions.save_definition(connection, "suite", slug, content, managed_by=API, source=None, now=to_us(now))
        if before is None and _suite(connection, slug).revision != 1:
            raise SuiteOvertakenError  # as in `put`


def _put_canaries(connection: Connection, plan: SuitePlan, *, now: datetime) -> None:
    write_suite_plan(connection, plan, managed_by=API, now=to_us(now))
    refuse_named(connection, plan.slug, {row.key for row in plan.archived})
    require_floors(connection, plan.slug, plan.saved_floors)


def _suite(connection: Connection, slug: str) -> Definition:
    return require(definitions.find_definition(connection, "suite", slug), f"suite '{slug}'")


def _canary(found: Iterable[CanaryT], suite: str, key: str) -> CanaryT:
    for canary in found:
        if canary.key == key:
            return canary
    raise NotFoundError(f"suite '{suite}' has no canary '{key}'")
