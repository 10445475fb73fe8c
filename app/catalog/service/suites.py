"""Plans the changes of a suite before the transaction that writes them, and again if another change came first.

A hundred thousand canaries take seconds to compare and to serialise; the transaction compares only a revision. Below:
what damage a suite can detect, keys of canaries without one, and the composition of a suite.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

from app.base.db.engine import Connection, Store
from app.base.errors import ConflictError
from app.base.values import MAX_GRADE, Canary, Category, Judgment, Segment
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument, assign_keys, is_key, lacks_key, possible_keys
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.documents import content_hash
from app.catalog.domain import CompositionView, CountedReach, SuiteReach
from app.catalog.service.references import (
    API,
    Change,
    archived_change,
    fields_changed,
    is_file_managed,
    ownership_note,
    refuse_file_managed_canary,
    refused_change,
    require,
)
from app.catalog.service.snapshots import SuiteOvertakenError, load_suite_in_force
from app.catalog.store import CanaryHead, Definition, SavedCanary, StagedCanaries
from app.scoring.suites import (
    SEGMENT_TARGETS,
    SuiteFloors,
    SuitePower,
    SuiteSnapshot,
    compose,
    coverage_note,
    power_of,
)

ATTEMPTS: Final = 5

PlanT = TypeVar("PlanT")
ResultT = TypeVar("ResultT")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryContent:
    """A canary ready to be stored."""

    hash: str
    text: str
    """Its body as JSON."""


NO_FLOORS: Final = SuiteFloors.of((), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePlan:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteContent:
    """Canaries that are to be saved in a suite; those of files have a source. Made by `suite_content`."""

    slug: str
    canaries: Sequence[CanaryDocument]
    contents: Mapping[str, CanaryContent]
    """By key."""
    managed_by: str
    sources: Mapping[str, str]
    """File and line by key."""
    number: int
    """Differs between suites that are written together."""


def suite_content(
    slug: str,
    canaries: Sequence[CanaryDocument],
    *,
    managed_by: str = API,
    sources: Mapping[str, str] = MappingProxyType({}),
    number: int = 0,
) -> SuiteContent:
    """Return canaries ready to be stored; done before any transaction, since a hundred thousand take seconds."""
    contents = {one.key: CanaryContent(hash=content_hash(one), text=one.json_text()) for one in canaries}
    return SuiteContent(
        slug=slug, canaries=canaries, contents=contents, managed_by=managed_by, sources=sources, number=number
    )


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
    saved: list[SavedCanary] = []
    for key, canary in content.contents.items():
        before, name = rows.get(key), f"{slug}/{key}"
        fields = _changed_fields(before, canary, bodies)
        if before is not None and managed_by == API and is_file_managed(before):
            if repeats and not fields:
                continue
            if refuse:
                refuse_file_managed_canary(before, slug)
            changes.append(refused_change("canary", name, before, fields))
            continue
        change, source = _canary_change(name, before, fields, managed_by), content.sources.get(key)
        if change is not None:
            changes.append(change)
            saved.append(SavedCanary(key=key, hash=canary.hash, body=canary.text, source=source, is_new=before is None))
        elif before is not None and before.source != source:
            # Only the place changed: the stored hash stays, or the suite would be another one to its runs.
            saved.append(SavedCanary(key=key, hash=before.hash, body=None, source=source, is_new=False))
    others = [row for row in heads if row.archived_at is None and row.key not in keys]
    archived = tuple(row for row in others if replace and row.managed_by == managed_by)
    remaining = [row for row in others if not replace or row.managed_by != managed_by]
    changes += [archived_change("canary", f"{slug}/{row.key}") for row in archived]
    floors = {one.key: tuple(one.floors) for one in content.canaries if one.floors}
    return SuitePlan(
        slug=slug,
        revision=suite.revision if suite is not None else 0,
        changes=tuple(changes),
        staged=catalog.stage_canaries(saved if refuse else (), number=content.number),
        archived=archived,
        floors=SuiteFloors.of({*keys, *(row.key for row in remaining)}, _floors_of(connection, remaining) | floors),
        saved_floors=SuiteFloors.of(keys, floors),
    )


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


def _bodies_to_compare(
    connection: Connection, rows: Mapping[str, CanaryHead], contents: Mapping[str, CanaryContent]
) -> Mapping[int, Mapping[str, Any]]:
    """Return the bodies of the current versions whose hash differs from the new content, by version id."""
    others = [
        row.version_id
        for key, content in contents.items()
        if (row := rows.get(key)) is not None and row.archived_at is None and row.hash != content.hash
    ]
    return catalog.bodies_of(connection, others)


def _changed_fields(
    before: CanaryHead | None, content: CanaryContent, bodies: Mapping[int, Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return the names of the fields that would change."""
    body = None if before is None or before.hash == content.hash else bodies.get(before.version_id)
    return () if body is None else fields_changed(body, json.loads(content.text))


def _canary_change(name: str, before: CanaryHead | None, fields: tuple[str, ...], managed_by: str) -> Change | None:
    if before is None or before.archived_at is not None:
        return Change(kind="canary", name=name, action="create", note=None if before is None else "was archived")
    note = ownership_note(before, managed_by)
    return Change(kind="canary", name=name, action="update", fields=fields, note=note) if fields or note else None


def _floors_of(connection: Connection, canaries: Iterable[CanaryHead]) -> dict[str, tuple[str, ...]]:
    """Return the measures with floors by key, for canaries that have any."""
    keys = {row.version_id: row.key for row in canaries}
    bodies = catalog.bodies_of(connection, keys)
    return {keys[version]: tuple(floors) for version, body in bodies.items() if (floors := body.get("floors"))}


_JUDGMENTS: Final = [Judgment(grade=grade) for grade in range(MAX_GRADE + 1)]
"""By grade; power depends on nothing else of a judgment."""


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
        judgments=tuple([_JUDGMENTS[chunk.grade] for chunk in document.expected_chunks]),
        category=document.category,
        tags=document.tags,
    )


def _stored_expectation(key: str, body: Mapping[str, Any]) -> Canary:
    """Return the same of a stored canary, not validated again: there may be thousands."""
    return Canary(
        key=key,
        query=body["query"],
        judgments=tuple([_JUDGMENTS[chunk["grade"]] for chunk in body["expected_chunks"]]),
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
