"""Suites and their canaries: what saving would change, and saving it.

A plan of a suite is made before the transaction that writes it, and again if another change came first: a hundred
thousand canaries take seconds to compare and to serialise, and the transaction compares only a revision.
`definitions.service` saves all other kinds, `versions` loads what runs work with. Below: what a suite is worth, which
is the damage it can detect, its composition and whose hits judged it; and keys for canaries that state none.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError
from app.base.values import Canary, Category, Judgment, Segment, Value, replace
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import (
    CanaryDocument,
    SuiteDocument,
    assign_keys,
    is_key,
    lacks_key,
    possible_keys,
)
from app.catalog.documents.canary_files import Documents
from app.catalog.service.references import refuse_named, require_canary, require_floors, require_suite
from app.catalog.service.versions import load_suite_in_force
from app.catalog.store import (
    API,
    CanaryHead,
    CanaryToSave,
    Content,
    Definition,
    StagedCanaries,
    fields_changed,
    refuse_file_managed,
    require,
)
from app.catalog.views import CompositionView, CountedReach, SuiteReach
from app.scoring.run_inputs import SuiteSnapshot
from app.scoring.suites import SEGMENT_TARGETS, SuiteFloors, SuitePower, compose, coverage_note, power_of

ATTEMPTS: Final = 5
NO_FLOORS: Final = SuiteFloors.of((), {})
PlanT = TypeVar("PlanT")
ResultT = TypeVar("ResultT")


class SuiteOvertakenError(Exception):
    """A suite has another revision than the one that was read before the transaction."""


class Change(Value):
    """One difference between a document and the stored definition."""

    kind: str
    name: str
    """The slug, for a canary `suite/key`."""
    action: str
    """create, update or archive."""
    fields: tuple[str, ...] = ()
    """Names of the fields that an update changes; values may be secret."""
    note: str | None = None


class SuitePlan(Value):
    """Planned changes of a suite's canaries, valid for one revision of the suite."""

    slug: str
    revision: int
    """0 = there is no such suite."""
    changes: tuple[Change, ...]
    staged: StagedCanaries
    """Canaries that change, or only their source."""
    archived: tuple[CanaryHead, ...]
    floors: SuiteFloors
    """Floors of the saved canaries and of the suite's remaining ones that were read."""
    saved_floors: SuiteFloors
    """Floors of the saved canaries."""

    @property
    def saved(self) -> int:
        """Number of canaries that are written."""
        return len(self.staged.created.rows) + len(self.staged.changed.rows)

    @property
    def created(self) -> int:
        """Number of canaries that are new or no longer archived."""
        return sum(change.action == "create" for change in self.changes)


def put_suite(
    store: Store, document: SuiteDocument, *, now: datetime, only_new: bool = False
) -> tuple[Definition, bool]:
    """Create or replace an API-managed suite; canaries in the document replace its API-managed ones.

    A file-managed suite accepts only canaries. With `only_new` an existing suite raises ConflictError.
    """
    slug = document.slug
    content = suite_content(slug, document.canaries or ())

    def plan(connection: Connection) -> SuitePlan:
        refuse(connection, catalog.find_definition(connection, "suite", slug))
        return plan_suite(connection, content, replace=document.canaries is not None)

    def refuse(connection: Connection, before: Definition | None) -> None:
        if only_new and before is not None and before.archived_at is None:
            raise slug_taken_error(connection, "suite", slug)
        if document.canaries is None:
            refuse_file_managed(before, f"suite '{slug}'")

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
) -> SuitePlan:
    """Create or replace API-managed canaries of a suite, and return what was written.

    `with_suite` creates a missing suite, else NotFoundError.
    """
    content = suite_content(suite, documents)

    def plan(connection: Connection) -> SuitePlan:
        if not with_suite:
            require_suite(connection, suite)
        return plan_suite(connection, content, replace=False)

    def write(planned: SuitePlan) -> SuitePlan:
        with store.write(planned.staged.tables) as connection:
            before = hold_suite(connection, suite, planned.revision)
            if with_suite:
                _put_suite(connection, suite, before, now=now)
            _put_canaries(connection, planned, now=now)
        return planned

    return plan_and_write(store, plan, write)


def put_canary(store: Store, suite: str, document: CanaryDocument, *, now: datetime, over: int | None) -> None:
    """Create an API-managed canary, or replace the version `over` (the id of its row).

    Raises ConflictError where it has another version by now, or exists although `over` is None.
    """
    content = suite_content(suite, [document])

    def plan(connection: Connection) -> SuitePlan:
        owner = require_suite(connection, suite)
        before = next(iter(catalog.list_canary_heads(connection, owner.id, keys=[document.key])), None)
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
        owner = require_suite(connection, suite)
        found = require_canary(catalog.list_canary_heads(connection, owner.id, keys=[key]), suite, key)
        refuse_file_managed(found, f"canary '{suite}/{key}'")
        refuse_named(connection, suite, {key})
        catalog.touch_definition(connection, owner.id, to_us(now))
        catalog.archive_canaries(connection, [found.id], to_us(now))


def _put_suite(connection: Connection, slug: str, before: Definition | None, *, now: datetime) -> None:
    """Create a suite of the API if there is none. Raises SuiteOvertakenError if another process has just created it."""
    if before is None or before.archived_at is not None:
        content = suite_definition(slug)
        catalog.save_definition(connection, "suite", slug, content, managed_by=API, source=None, now=to_us(now))
        if before is None and require_suite(connection, slug).revision != 1:
            raise SuiteOvertakenError  # as in `put`


def _put_canaries(connection: Connection, plan: SuitePlan, *, now: datetime) -> None:
    write_suite_plan(connection, plan, managed_by=API, now=to_us(now))
    refuse_named(connection, plan.slug, {row.key for row in plan.archived})
    require_floors(connection, plan.slug, plan.saved_floors)


def list_suites(store: Store, *, after: str = "", limit: int | None = None) -> list[Definition]:
    """Return the suites by slug; the hash of each is that of its canaries, as in runs."""
    with store.read() as connection:
        return _hashed(connection, catalog.list_definitions(connection, "suite", after=after, limit=limit))


def find_suite(store: Store, slug: str) -> Definition:
    """Return a suite with the hash of its canaries. Raises NotFoundError."""
    with store.read() as connection:
        return _hashed(connection, [require_suite(connection, slug)])[0]


def _hashed(connection: Connection, found: Sequence[Definition]) -> list[Definition]:
    hashes = catalog.current_hashes(connection, {suite.id: suite.revision for suite in found})
    return [replace(suite, hash=hashes[suite.id]) for suite in found]


def plan_and_write(store: Store, plan: Callable[[Connection], PlanT], write: Callable[[PlanT], ResultT]) -> ResultT:
    """Plan from a snapshot and write the plan; retry a few times where `write` raises SuiteOvertakenError.

    Raises ConflictError after that.
    """
    for _attempt in range(ATTEMPTS):
        with store.read() as connection:
            planned = plan(connection)
        with suppress(SuiteOvertakenError):
            return write(planned)
    raise ConflictError("the suites were changed by somebody else repeatedly; try again")


class SuiteContent(Value):
    """Canaries that are to be saved in a suite. Made by `suite_content`."""

    slug: str
    canaries: Sequence[CanaryDocument]
    contents: Mapping[str, CanaryToSave]
    """By key; those of files have a source."""
    managed_by: str
    number: int
    """Differs between suites that are written together."""


def suite_content(
    slug: str,
    canaries: Sequence[CanaryDocument],
    *,
    managed_by: str = API,
    source_of: Callable[[str], str | None] = lambda _: None,
    number: int = 0,
) -> SuiteContent:
    """Return canaries ready to be stored; done before any transaction, since a hundred thousand take seconds.

    `source_of` gives the file and line of a key.
    """
    contents = {
        one.key: CanaryToSave(one.key, one.content_hash(), one.json_text(), source_of(one.key)) for one in canaries
    }
    return SuiteContent(slug=slug, canaries=canaries, contents=contents, managed_by=managed_by, number=number)


def plan_suite(
    connection: Connection, content: SuiteContent, *, replace: bool = True, repeats: bool = False, refuse: bool = True
) -> SuitePlan:
    """Return the changes that saving canaries makes in a suite; `replace` archives the owner's other canaries.

    Raises FileManagedError where the API changes a canary of a file; with `repeats` an equal one is accepted. Without
    `refuse` such a change is planned with a note that it would be refused.
    """
    slug, managed_by = content.slug, content.managed_by
    suite = catalog.find_definition(connection, "suite", slug)
    keys = content.contents.keys()
    heads = (
        catalog.list_canary_heads(connection, suite.id, archived=True, keys=None if replace else keys)
        if suite is not None
        else []
    )
    rows = {row.key: row for row in heads}
    bodies = _bodies_to_compare(connection, rows, content.contents)
    changes: list[Change] = []
    created: list[CanaryToSave] = []
    changed: list[CanaryToSave] = []
    for key, canary in content.contents.items():
        before, name = rows.get(key), f"{slug}/{key}"
        body = None if before is None or before.hash == canary.hash else bodies.get(before.version_id)
        fields = () if body is None else fields_changed(body, json.loads(canary.text or ""))
        if before is not None and managed_by == API and before.is_file_managed:
            if repeats and not fields:
                continue
            if refuse:
                refuse_file_managed(before, f"canary '{name}'")
            changes.append(refused_change("canary", name, before, fields))
            continue
        change = _canary_change(name, before, fields, managed_by)
        if change is not None:
            changes.append(change)
            (created if before is None else changed).append(canary)
        elif before is not None and before.source != canary.source:
            # Only the place changed: the stored hash stays, or the suite would be another one to its runs.
            changed.append(canary._replace(hash=before.hash, text=None))
    others = [row for row in heads if row.archived_at is None and row.key not in keys]
    archived = tuple(row for row in others if replace and row.managed_by == managed_by)
    remaining = [row for row in others if not replace or row.managed_by != managed_by]
    changes += [archived_change("canary", f"{slug}/{row.key}") for row in archived]
    floors = {one.key: tuple(one.floors) for one in content.canaries if one.floors}
    return SuitePlan(
        slug=slug,
        revision=suite.revision if suite is not None else 0,
        changes=tuple(changes),
        staged=catalog.stage_canaries(created if refuse else (), changed if refuse else (), number=content.number),
        archived=archived,
        floors=SuiteFloors.of({*keys, *(row.key for row in remaining)}, _floors_of(connection, remaining) | floors),
        saved_floors=SuiteFloors.of(keys, floors),
    )


def _bodies_to_compare(
    connection: Connection, rows: Mapping[str, CanaryHead], contents: Mapping[str, CanaryToSave]
) -> Mapping[int, Mapping[str, Any]]:
    """Return the bodies of the current versions whose hash differs from the new content, by version id."""
    others = [
        row.version_id
        for key, content in contents.items()
        if (row := rows.get(key)) is not None and row.archived_at is None and row.hash != content.hash
    ]
    return catalog.bodies_of(connection, others)


def _canary_change(name: str, before: CanaryHead | None, fields: tuple[str, ...], managed_by: str) -> Change | None:
    if before is None or before.archived_at is not None:
        return Change(kind="canary", name=name, action="create", note=None if before is None else "was archived")
    note = before.ownership_note(managed_by)
    return Change(kind="canary", name=name, action="update", fields=fields, note=note) if fields or note else None


def _floors_of(connection: Connection, canaries: Iterable[CanaryHead]) -> dict[str, tuple[str, ...]]:
    """Return the measures with floors by key, for canaries that have any."""
    keys = {row.version_id: row.key for row in canaries}
    bodies = catalog.bodies_of(connection, keys)
    return {keys[version]: tuple(floors) for version, body in bodies.items() if (floors := body.get("floors"))}


def hold_suite(connection: Connection, slug: str, revision: int) -> Definition | None:
    """Lock and return a suite until the transaction ends. Raises SuiteOvertakenError for another revision.

    Every writer locks the suite's row first: on PostgreSQL that also protects its canaries.
    """
    catalog.hold_definition(connection, "suite", slug)
    suite = catalog.find_definition(connection, "suite", slug)
    if (suite.revision if suite is not None else 0) != revision:
        raise SuiteOvertakenError
    return suite


def write_suite_plan(connection: Connection, plan: SuitePlan, *, managed_by: str, now: int) -> None:
    """Write a plan for a locked suite; a change makes a new revision.

    Raises SuiteOvertakenError where another process created the suite: on PostgreSQL a missing row cannot be locked.
    """
    suite = catalog.find_definition(connection, "suite", plan.slug)
    if suite is None or (not plan.revision and suite.revision != 1):
        raise SuiteOvertakenError
    if not plan.saved and not plan.archived:
        return
    catalog.touch_definition(connection, suite.id, now)
    catalog.save_canaries(connection, suite.id, plan.staged, managed_by=managed_by, now=now)
    catalog.archive_canaries(connection, [row.id for row in plan.archived], now)


def plan_archive(connection: Connection, suite: Definition) -> list[Change]:
    """Return the changes of archiving a suite with its canaries."""
    heads = catalog.list_canary_heads(connection, suite.id)
    return [
        archived_change("suite", suite.slug),
        *(archived_change("canary", f"{suite.slug}/{one.key}") for one in heads),
    ]


def floors_in_force(connection: Connection, slug: str) -> SuiteFloors:
    """Return keys and floors of a stored suite, which may be invalid in this release."""
    suite = catalog.find_definition(connection, "suite", slug)
    heads = catalog.list_canary_heads(connection, suite.id) if suite is not None else []
    return SuiteFloors.of(frozenset([row.key for row in heads]), _floors_of(connection, heads))


def refused_change(kind: str, name: str, before: Definition | CanaryHead, fields: tuple[str, ...]) -> Change:
    """Return a change that the API may not make; the note names the file that owns the object."""
    note = f"managed by {before.source}: refused here, change it there"
    return Change(kind=kind, name=name, action="update", fields=fields, note=note)


def archived_change(kind: str, name: str) -> Change:
    """Return the change of archiving a definition or a canary."""
    return Change(kind=kind, name=name, action="archive")


def suite_definition(slug: str) -> Content:
    """Return a suite ready to be stored; its canaries are stored separately."""
    return Content(hash=slug, public={"slug": slug})


def overtaken(name: str) -> ConflictError:
    """Return the error of a definition that was changed since it was read."""
    return ConflictError(f"{name} was changed by somebody else meanwhile; reload it and try again")


def slug_taken_error(connection: Connection, kind: str, slug: str) -> ConflictError:
    """Return the error of a slug in use, with a similar one that was never used."""
    return _taken_error(
        kind, slug, 64, lambda names: [one for one in names if catalog.find_definition(connection, kind, one)]
    )


def key_taken_error(connection: Connection, suite_id: int, key: str) -> ConflictError:
    """Return the error of a key in use, with a similar free one."""
    listed = partial(catalog.list_canaries, connection, suite_id, archived=True)
    return _taken_error("canary", key, 128, lambda names: [row.key for row in listed(keys=names)])


def _taken_error(kind: str, name: str, longest: int, taken: Callable[[list[str]], list[str]]) -> ConflictError:
    """Return the error; the similar name has a number appended (`docs-2`), and at most `longest` characters."""
    names = [f"{name[: longest - 2].rstrip('-')}-{number}" for number in range(2, 10)]
    used = taken(names)
    free = next((one for one in names if one not in used), "")
    other = f"another name, such as '{free}'," if free else "another name,"
    return ConflictError(f"there is a {kind} '{name}' already; choose {other} or change that one")


def notes_on_plan(store: Store, documents: Documents, *, managed_by: str) -> list[str]:
    """Return a note for each suite that is thin once the documents are applied, with canaries of other owners."""
    notes: list[str | None] = []
    with store.read() as connection:
        for suite in documents.suites:
            canaries = [_expectation(document) for document in suite.canaries or ()]
            keys = {document.key for document in suite.canaries or ()}
            row = catalog.find_definition(connection, "suite", suite.slug)
            others = catalog.list_canaries(connection, row.id, not_of=managed_by) if row is not None else ()
            canaries += [_stored_expectation(one.key, one.body) for one in others if one.key not in keys]
            notes.append(coverage_note(suite.slug, power_of(canaries)))
    return [note for note in notes if note is not None]


def load_reach(store: Store, slug: str) -> CountedReach:
    """Return the damage a suite can detect: `reach` and, where thin, `coverage_note`. Raises NotFoundError."""
    with store.read() as connection:
        row = require(catalog.find_definition(connection, "suite", slug), f"suite '{slug}'")
        suite = load_suite_in_force(connection, row)
    return {"canary_count": len(suite.members), **reach_view(slug, suite.power)}


def reach_view(slug: str, power: SuitePower) -> SuiteReach:
    """Return the view of the damage a suite can detect."""
    return {"coverage_note": coverage_note(slug, power), "reach": power.body()}


def _expectation(document: CanaryDocument) -> Canary:
    """Return a canary with what power depends on."""
    return Canary(
        key=document.key,
        query=document.query,
        judgments=tuple([chunk.to_domain() for chunk in document.expected_chunks]),
        floors=document.floors or {},
        category=document.category,
        tags=document.tags,
    )


def _stored_expectation(key: str, body: Mapping[str, Any]) -> Canary:
    """Return the same of a stored canary, not validated again: there may be thousands."""
    return Canary(
        key=key,
        query=body["query"],
        judgments=tuple(
            [
                Judgment(id=one.get("id"), document=one.get("document"), text=one.get("text"), grade=one["grade"])
                for one in body["expected_chunks"]
            ]
        ),
        floors=body.get("floors") or {},
        category=Category(body["category"]),
        tags=tuple(body["tags"]),
    )


def assign_suite_keys(store: Store, suite: str, canaries: Sequence[Any]) -> list[Any]:
    """Return canaries of a suite with derived keys where they have none; the same query keeps its key."""
    candidates = {key for one in canaries if lacks_key(one) for key in possible_keys(one["query"])}
    valid_keys = [key for key in candidates if is_key(key)]  # an invalid query is refused later
    return assign_keys(canaries, _queries_by_key(store, suite, valid_keys) if valid_keys else {})


def _queries_by_key(store: Store, suite: str, keys: Collection[str]) -> dict[str, str]:
    """Return the queries of these keys in a suite, also of archived canaries, whose history stays."""
    with store.read() as connection:
        owner = catalog.find_definition(connection, "suite", suite)
        rows = [] if owner is None else catalog.list_canaries(connection, owner.id, archived=True, keys=keys)
    return {row.key: str(row.body["query"]) for row in rows}


def load_composition(store: Store, slug: str) -> CompositionView:
    """Return how many canaries of which category and segment a suite has, against targets. Raises NotFoundError."""
    with store.read() as connection:
        row = require(catalog.find_definition(connection, "suite", slug), f"suite '{slug}'")
        suite = load_suite_in_force(connection, row)
    return compose_suite(suite)


def compose_suite(suite: SuiteSnapshot) -> CompositionView:
    """Return the composition of a version of a suite."""
    found = compose(suite.canaries)
    categories = [category for category in Category if any(one is category for one, _ in found.counts)]
    return {
        "categories": [
            {
                "category": str(category),
                "segments": {str(segment): found.counts.get((category, segment), 0) for segment in Segment},
                "not_stated": found.counts.get((category, None), 0),
            }
            for category in categories
        ],
        "segments": [
            {"segment": str(segment), "canaries": found.total(segment), "target": target}
            for segment, target in SEGMENT_TARGETS.items()
        ],
        "not_stated": found.total(None),
        "notes": list(found.notes),
    }
