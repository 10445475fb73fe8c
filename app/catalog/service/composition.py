"""Composition of a stored suite: canaries by category and segment, with notes."""

from app.base.db.engine import Store
from app.base.values import Category, Segment
from app.catalog.domain.composition import SEGMENT_TARGETS, CanaryKind, Composition, compose
from app.catalog.domain.suite_snapshot import SuiteSnapshot
from app.catalog.domain.views import CompositionView
from app.catalog.service.references import require
from app.catalog.service.suite_snapshots import load_suite_in_force
from app.catalog.store import definitions


def load_composition(store: Store, slug: str) -> CompositionView:
    """Return how many canaries of which category and segment a suite has, against targets. Raises NotFoundError."""
    with store.read() as connection:
        row = require(definitions.find_definition(connection, "suite", slug), f"suite '{slug}'")
        suite = load_suite_in_force(connection, row)
    return compose_suite(suite)


def compose_suite(suite: SuiteSnapshot) -> CompositionView:
    """Return the composition of a version of a suite."""
    found = compose(
        CanaryKind(
            category=member.canary.category,
            segment=member.canary.segment,
            chunks=sum(judgment.grade >= 1 for judgment in member.canary.judgments),
        )
        for member in suite.members
    )
    return _view(found)


def _view(found: Composition) -> CompositionView:
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
