"""Suites planned before the transaction that writes them, and planned anew where another change came first.

A hundred thousand canaries take seconds to compare and to write as JSON; the transaction compares a revision instead.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from app.domain.catalog.suite_floors import SuiteFloors
from app.domain.errors import ConflictError
from app.formats.catalog.documents import CanaryDocument
from app.formats.catalog.secret_fields import content_hash
from app.services.catalog.changes import Change, archived_change, fields_changed, refused_change, taken_over
from app.services.catalog.references import API, owned_by_file, refuse_file_managed_canary
from app.services.catalog.suite_snapshots import SuiteOvertakenError
from app.store.catalog import canary_saving, definitions, suites
from app.store.catalog.canary_saving import SavedCanary, StagedCanaries
from app.store.catalog.definitions import Definition
from app.store.catalog.suites import CanaryHead
from app.store.engine import Connection, Store

ATTEMPTS: Final = 5

PlanT = TypeVar("PlanT")
ResultT = TypeVar("ResultT")


def plan_and_write(store: Store, plan: Callable[[Connection], PlanT], write: Callable[[PlanT], ResultT]) -> ResultT:
    """Plan from a snapshot and write the plan; anew where `write` raises SuiteOvertakenError, a few times.

    Raises ConflictError after that.
    """
    for _attempt in range(ATTEMPTS):
        with store.read() as connection:
            planned = plan(connection)
        with suppress(SuiteOvertakenError):
            return write(planned)
    raise ConflictError("the suites were changed by somebody else again and again meanwhile; try again")


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryContent:
    """What a canary says, ready to be stored."""

    hash: str
    text: str
    """Its body as JSON."""


NO_FLOORS: Final = SuiteFloors.of((), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePlan:
    """What happens to the canaries of a suite, and the revision of the suite this was planned for."""

    slug: str
    revision: int
    """0 = there was no such suite."""
    changes: tuple[Change, ...]
    staged: StagedCanaries
    """Those that change, and those that only stand elsewhere now."""
    gone: tuple[CanaryHead, ...]
    floors: SuiteFloors
    """Of the canaries given and, where they replace the owner's others, of all in force afterwards."""
    given_floors: SuiteFloors
    """Of the canaries given alone."""

    @property
    def saved(self) -> int:
        """How many canaries are written."""
        return len(self.staged.created.rows) + len(self.staged.changed.rows)

    @property
    def created(self) -> int:
        """How many canaries are in force that were not."""
        return sum(change.action == "create" for change in self.changes)


def canary_contents(documents: Iterable[CanaryDocument]) -> dict[str, CanaryContent]:
    """Make canaries ready to be stored, by key."""
    return {one.key: CanaryContent(hash=content_hash(one), text=one.json_text()) for one in documents}


def plan_suite(  # noqa: PLR0913 - what is wanted, and how
    connection: Connection,
    slug: str,
    documents: Sequence[CanaryDocument],
    contents: Mapping[str, CanaryContent],
    *,
    managed_by: str,
    refuse: bool = True,
    replace: bool = True,
    repeats: bool = False,
    source: Callable[[str], str | None] = lambda _: None,
    number: int = 0,
) -> SuitePlan:
    """Compare wanted canaries with those of a suite, archived ones included; `replace` archives the owner's others.

    Raises FileManagedError where the API wants to change what a file owns; with `repeats` it may say the same. Where it
    is not to `refuse`, such a change is planned with a note that it would be refused. Suites that are written together
    have different numbers.
    """
    suite = definitions.find_definition(connection, "suite", slug)
    keys = {document.key for document in documents}
    wanted = None if replace else keys
    known = suites.list_canary_heads(connection, suite.id, archived=True, keys=wanted) if suite is not None else []
    rows = {row.key: row for row in known}
    bodies = _bodies_to_compare(connection, rows, contents)
    changes: list[Change] = []
    saved: list[SavedCanary] = []
    for document in documents:
        key, content, before = document.key, contents[document.key], rows.get(document.key)
        name = f"{slug}/{key}"
        fields = _fields(before, content, bodies)
        if before is not None and managed_by == API and owned_by_file(before):
            if repeats and not fields:
                continue
            if refuse:
                refuse_file_managed_canary(before, slug)
            changes.append(refused_change("canary", name, before, fields))
            continue
        change = _canary_change(name, before, fields, managed_by)
        place = source(key)
        if change is not None:
            changes.append(change)
            saved.append(
                SavedCanary(key=key, hash=content.hash, body=content.text, source=place, is_new=before is None)
            )
        elif before is not None and before.source != place:
            # Stands elsewhere now: under the hash it has, or the suite would look like another one to its runs.
            saved.append(SavedCanary(key=key, hash=before.hash, body=None, source=place, is_new=False))
    others = [row for row in known if row.archived_at is None and row.key not in keys]
    gone = tuple(row for row in others if replace and row.managed_by == managed_by)
    stay = [row for row in others if not replace or row.managed_by != managed_by]
    changes += [archived_change("canary", f"{slug}/{row.key}") for row in gone]
    given = {one.key: tuple(one.floors) for one in documents if one.floors}
    return SuitePlan(
        slug=slug,
        revision=suite.revision if suite is not None else 0,
        changes=tuple(changes),
        staged=canary_saving.stage_canaries(saved if refuse else (), number=number),
        gone=gone,
        floors=SuiteFloors.of(keys.union(row.key for row in stay), _floors_of(connection, stay) | given),
        given_floors=SuiteFloors.of(keys, given),
    )


def hold_suite(connection: Connection, slug: str, revision: int) -> Definition | None:
    """Return a suite, which stays as it is until the transaction ends. Raises SuiteOvertakenError for another revision.

    The suite's row comes first, here and everywhere: on PostgreSQL whoever holds it keeps others from its canaries.
    """
    definitions.hold_definition(connection, "suite", slug)
    suite = definitions.find_definition(connection, "suite", slug)
    if (suite.revision if suite is not None else 0) != revision:
        raise SuiteOvertakenError
    return suite


def write_suite_plan(connection: Connection, plan: SuitePlan, *, managed_by: str, now: int) -> None:
    """Write what was planned for a suite that is held and in force; one that changes is a new revision.

    Raises SuiteOvertakenError where another made the suite: on PostgreSQL there is no row to hold before there is one.
    """
    suite = definitions.find_definition(connection, "suite", plan.slug)
    if suite is None or (not plan.revision and suite.revision != 1):
        raise SuiteOvertakenError
    if not plan.saved and not plan.gone:
        return
    definitions.touch_definition(connection, suite.id, now)
    canary_saving.save_canaries(connection, suite.id, plan.staged, managed_by=managed_by, now=now)
    canary_saving.archive_canaries(connection, [row.id for row in plan.gone], now)


def plan_archive(connection: Connection, suite: Definition) -> list[Change]:
    """Plan to take a suite out of force, with its canaries."""
    heads = suites.list_canary_heads(connection, suite.id)
    return [
        archived_change("suite", suite.slug),
        *(archived_change("canary", f"{suite.slug}/{one.key}") for one in heads),
    ]


def floors_in_force(connection: Connection, slug: str) -> SuiteFloors:
    """Read what checks have to know of a suite as it is, which need not be usable."""
    suite = definitions.find_definition(connection, "suite", slug)
    heads = suites.list_canary_heads(connection, suite.id) if suite is not None else []
    return SuiteFloors.of(frozenset([row.key for row in heads]), _floors_of(connection, heads))


def _bodies_to_compare(
    connection: Connection, rows: Mapping[str, CanaryHead], contents: Mapping[str, CanaryContent]
) -> Mapping[int, Mapping[str, Any]]:
    """Read the versions in force that are of another hash than what is wanted, by their ids."""
    others = [
        row.version_id
        for key, content in contents.items()
        if (row := rows.get(key)) is not None and row.archived_at is None and row.hash != content.hash
    ]
    return suites.bodies_of(connection, others)


def _fields(
    before: CanaryHead | None, content: CanaryContent, bodies: Mapping[int, Mapping[str, Any]]
) -> tuple[str, ...]:
    """Name the fields of a canary in force that would change."""
    body = None if before is None or before.hash == content.hash else bodies.get(before.version_id)
    return () if body is None else fields_changed(body, json.loads(content.text))


def _canary_change(name: str, before: CanaryHead | None, fields: tuple[str, ...], managed_by: str) -> Change | None:
    if before is None or before.archived_at is not None:
        return Change(kind="canary", name=name, action="create", note=None if before is None else "was archived")
    note = taken_over(before, managed_by)
    return Change(kind="canary", name=name, action="update", fields=fields, note=note) if fields or note else None


def _floors_of(connection: Connection, canaries: Iterable[CanaryHead]) -> dict[str, tuple[str, ...]]:
    """List the measures that canaries have floors on, by key of those that have any."""
    keys = {row.version_id: row.key for row in canaries}
    bodies = suites.bodies_of(connection, keys)
    return {keys[version]: tuple(floors) for version, body in bodies.items() if (floors := body.get("floors"))}
