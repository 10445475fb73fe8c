"""Statistical power of stored and planned suites, for responses and pages; the domain computes it."""

from collections.abc import Mapping
from typing import Any, Final

from app.base.db.engine import Store
from app.base.values import MAX_GRADE, Canary, Category, Judgment
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.documents.canary_files import Documents
from app.catalog.domain.suite_power import Reach, coverage_note, reach
from app.catalog.domain.views import CountedReach, SuiteReach
from app.catalog.service.references import require
from app.catalog.service.suite_snapshots import load_suite_in_force
from app.catalog.store import definitions, suites

_JUDGMENTS: Final = [Judgment(grade=grade) for grade in range(MAX_GRADE + 1)]
"""By grade; power depends on nothing else of a judgment."""


def notes_on_plan(store: Store, documents: Documents, *, managed_by: str) -> list[str]:
    """Return a note for each suite that is thin once the documents are applied, with canaries of other owners."""
    notes: list[str | None] = []
    with store.read() as connection:
        for suite in documents.suites:
            canaries = [_expectation(document) for document in suite.canaries or ()]
            keys = {document.key for document in suite.canaries or ()}
            row = definitions.find_definition(connection, "suite", suite.slug)
            others = suites.list_canaries(connection, row.id, not_of=managed_by) if row is not None else ()
            canaries += [_canary(one.key, one.body) for one in others if one.key not in keys]
            notes.append(coverage_note(suite.slug, reach(canaries)))
    return [note for note in notes if note is not None]


def load_reach(store: Store, slug: str) -> CountedReach:
    """Return the damage a suite can detect: `reach` and, where thin, `coverage_note`. Raises NotFoundError."""
    with store.read() as connection:
        row = require(definitions.find_definition(connection, "suite", slug), f"suite '{slug}'")
        suite = load_suite_in_force(connection, row)
    return {"canary_count": len(suite.members), **reach_view(slug, suite.reach)}


def reach_view(slug: str, reach_found: Reach) -> SuiteReach:
    """Return the view of the damage a suite can detect."""
    return {"coverage_note": coverage_note(slug, reach_found), "reach": reach_found.body()}


def _expectation(document: CanaryDocument) -> Canary:
    """Return a canary with what power depends on."""
    return Canary(
        key=document.key,
        query=document.query,
        judgments=tuple([_JUDGMENTS[chunk.grade] for chunk in document.expected_chunks]),
        category=document.category,
        tags=document.tags,
    )


def _canary(key: str, body: Mapping[str, Any]) -> Canary:
    """Return a stored canary with what power depends on, which is fast for suites of thousands."""
    return Canary(
        key=key,
        query=body["query"],
        judgments=tuple([_JUDGMENTS[chunk["grade"]] for chunk in body["expected_chunks"]]),
        category=Category(body["category"]),
        tags=tuple(body["tags"]),
    )
