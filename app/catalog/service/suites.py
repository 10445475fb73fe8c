"""What a suite is worth: the damage it can detect and its composition; and keys for canaries that state none."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from app.base.db.engine import Store
from app.base.values import MAX_GRADE, Canary, Category, Judgment, Segment
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument, assign_keys, is_key, lacks_key, possible_keys
from app.catalog.documents.canary_files import Documents
from app.catalog.domain import CompositionView, CountedReach, SuiteReach
from app.catalog.service.references import require
from app.catalog.service.snapshots import load_suite_in_force
from app.scoring.suites import (
    SEGMENT_TARGETS,
    SuitePower,
    SuiteSnapshot,
    compose,
    coverage_note,
    power_of,
)

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
