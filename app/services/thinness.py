"""Whether suites are thick enough to see damage: said where they are put in force, and where they are shown.

How many canaries it takes is said in the domain.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from app.domain.model import Canary, Category, Judgment
from app.domain.thinness import coverage_note, reach
from app.formats.canary_files import Documents
from app.services.references import require
from app.store import catalog, suites
from app.store.engine import Store
from app.store.suites import CanaryRow


def notes_on_plan(store: Store, wanted: Documents, *, managed_by: str) -> list[str]:
    """Say the same of the suites as they will be, or are, once the documents are in force: with canaries of others."""
    notes: list[str | None] = []
    with store.read() as connection:
        for suite in wanted.suites:
            canaries = {document.key: document.to_domain() for document in suite.canaries or ()}
            row = catalog.find_definition(connection, "suite", suite.slug)
            for one in suites.list_canaries(connection, row.id, without=canaries) if row is not None else ():
                if one.managed_by != managed_by:
                    canaries[one.key] = _canary(one.key, one.body)
            notes.append(coverage_note(suite.slug, reach(canaries.values())))
    return [note for note in notes if note is not None]


def of_suite(store: Store, slug: str) -> dict[str, Any]:
    """Read what damage a suite in force can see: `reach` and, where thin, `coverage_note`. Raises NotFoundError."""
    with store.read() as connection:
        row = require(catalog.find_definition(connection, "suite", slug), f"suite '{slug}'")
        rows = suites.list_canaries(connection, row.id)
    return {"canary_count": len(rows), **shape_rows(slug, rows)}


def shape_rows(slug: str, rows: Iterable[CanaryRow]) -> dict[str, Any]:
    """Shape what damage the canaries of these rows can see."""
    return shape(slug, [_canary(one.key, one.body) for one in rows])


def shape(slug: str, canaries: Iterable[Canary]) -> dict[str, Any]:
    """Shape what damage these canaries of a suite can see."""
    found = reach(canaries)
    return {"coverage_note": coverage_note(slug, found), "reach": found.body()}


def _canary(key: str, body: Mapping[str, Any]) -> Canary:
    """Make what a stored canary expects, and no more: a suite of thousands is read at every look at it."""
    return Canary(
        key=key,
        query=body["query"],
        judgments=tuple([Judgment(grade=chunk["grade"]) for chunk in body["expected_chunks"]]),
        category=Category(body["category"]),
        tags=tuple(body["tags"]),
    )
