"""Whether suites are thick enough to see damage: said where they are put in force, and where they are shown.

How many canaries it takes is said in the domain.
"""

from collections.abc import Mapping
from typing import Any, Final

from app.domain.catalog.suite_power import Reach, coverage_note, reach
from app.domain.catalog.views import CountedReach, SuiteReach
from app.domain.model import MAX_GRADE, Canary, Category, Judgment
from app.formats.catalog.canary_documents import CanaryDocument
from app.formats.catalog.canary_files import Documents
from app.services.catalog.references import require
from app.services.catalog.suite_snapshots import load_suite_in_force
from app.store.catalog import definitions, suites
from app.store.engine import Store

_JUDGMENTS: Final = [Judgment(grade=grade) for grade in range(MAX_GRADE + 1)]
"""By grade: of what is expected, no more is counted."""


def notes_on_plan(store: Store, wanted: Documents, *, managed_by: str) -> list[str]:
    """Say the same of the suites as they will be, or are, once the documents are in force: with canaries of others."""
    notes: list[str | None] = []
    with store.read() as connection:
        for suite in wanted.suites:
            canaries = [_expectation(document) for document in suite.canaries or ()]
            keys = {document.key for document in suite.canaries or ()}
            row = definitions.find_definition(connection, "suite", suite.slug)
            others = suites.list_canaries(connection, row.id, not_of=managed_by) if row is not None else ()
            canaries += [_canary(one.key, one.body) for one in others if one.key not in keys]
            notes.append(coverage_note(suite.slug, reach(canaries)))
    return [note for note in notes if note is not None]


def of_suite(store: Store, slug: str) -> CountedReach:
    """Read what damage a suite in force can see: `reach` and, where thin, `coverage_note`. Raises NotFoundError."""
    with store.read() as connection:
        row = require(definitions.find_definition(connection, "suite", slug), f"suite '{slug}'")
        suite = load_suite_in_force(connection, row)
    return {"canary_count": len(suite.members), **shape(slug, suite.reach)}


def shape(slug: str, found: Reach) -> SuiteReach:
    """Shape what damage a suite can see."""
    return {"coverage_note": coverage_note(slug, found), "reach": found.body()}


def _expectation(document: CanaryDocument) -> Canary:
    """Make what a canary of a document expects, and no more."""
    return Canary(
        key=document.key,
        query=document.query,
        judgments=tuple([_JUDGMENTS[chunk.grade] for chunk in document.expected_chunks]),
        category=document.category,
        tags=document.tags,
    )


def _canary(key: str, body: Mapping[str, Any]) -> Canary:
    """Make what a stored canary expects, and no more: a suite of thousands is read at every look at it."""
    return Canary(
        key=key,
        query=body["query"],
        judgments=tuple([_JUDGMENTS[chunk["grade"]] for chunk in body["expected_chunks"]]),
        category=Category(body["category"]),
        tags=tuple(body["tags"]),
    )
