"""The evidence of harm over time: what the detector of a check made of each run, one number each."""

from collections.abc import Sequence
from typing import Final

from app.base.db.engine import Store
from app.catalog.service.lookup import find_check
from app.detection.domain import Settings
from app.detection.domain.views import EvidencePoint, EvidenceSeries
from app.records import documents as shapes
from app.records.store import series
from app.records.store.series import EvidenceRow

MOST_RUNS: Final = 10_000
"""So many are read at most, the newest ones of a period."""


def evidence(
    store: Store, slug: str, *, start: int, end: int, points: int, most_runs: int = MOST_RUNS
) -> EvidenceSeries:
    """Read the evidence of a period in at most `points` points, each the run of its stretch with most of it."""
    with store.read() as connection:
        check = find_check(connection, slug)
        rows = series.evidence_rows(connection, check.id, start, end, limit=most_runs)
    cut = len(rows) == most_runs
    return {
        "check": slug,
        "from": shapes.time_text(start),
        "to": shapes.time_text(end),
        "since": shapes.time_text(rows[0].at if cut else start),
        "threshold": 1 / Settings().alpha,
        "points": [_point(block) for block in _blocks(rows, points)],
    }


def _blocks(rows: Sequence[EvidenceRow], points: int) -> list[Sequence[EvidenceRow]]:
    size = max(1, -(-len(rows) // points))
    return [rows[place : place + size] for place in range(0, len(rows), size)]


def _point(block: Sequence[EvidenceRow]) -> EvidencePoint:
    """Shape the worst of some runs in a row: an alarm is not to be averaged away."""
    worst = max(block, key=lambda one: -1.0 if one.evidence is None else one.evidence)
    return EvidencePoint(
        at=shapes.time_text(worst.at),
        run=str(worst.run_id),
        runs=len(block),
        evidence=shapes.number(worst.evidence),
        lost=worst.lost,
        worse=worst.worse,
        open=any(one.open for one in block),
    )
