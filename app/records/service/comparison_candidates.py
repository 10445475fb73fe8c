"""Runs to compare a run with: the previous one, its baseline, the last healthy one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.base.db.engine import Connection, Store, from_us
from app.base.values import Verdict
from app.catalog.service.lookup import find_run
from app.detection.service import baselines
from app.records.store import results
from app.records.store.results import RunRow

_RECENT = 30
_LOOK_BACK = 100
"""Number of runs that are searched for a healthy one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A run in one line."""

    id: str
    check: str
    verdict: str | None
    finished_at: datetime
    index_version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonCandidates:
    """Runs to compare a run with; None = there is none."""

    previous: str | None
    """The run before it."""
    baseline: str | None
    """The pinned run, else the last run of the learned baseline; None where that is the run itself."""
    healthy: str | None
    """The newest healthy run before it."""
    recent: Sequence[Candidate]
    """The newest executed runs, newest first."""


def find_candidates(store: Store, run_id: str) -> ComparisonCandidates:
    """Return the runs to compare a run with. Raises NotFoundError."""
    with store.read() as connection:
        run = find_run(connection, run_id)
        recent = [row for row in results.ended_runs(connection, run.check_id, limit=_RECENT) if row.aggregates]
        before = _earlier_runs(connection, run)
    baseline = _baseline(store, run)
    return ComparisonCandidates(
        previous=next((str(row.id) for row in before), None),
        baseline=baseline,
        healthy=next((str(row.id) for row in before if row.verdict == Verdict.HEALTHY), None),
        recent=[_candidate(row) for row in reversed(recent)],
    )


def _earlier_runs(connection: Connection, run: RunRow) -> list[RunRow]:
    """Return the runs executed before one, newest first."""
    rows = results.ended_runs(connection, run.check_id, before=run.id, limit=_LOOK_BACK)
    return [row for row in reversed(rows) if row.aggregates]


def _baseline(store: Store, run: RunRow) -> str | None:
    """Return the run of the baseline if it is still stored: runs are deleted before the baselines learned from them."""
    shown = baselines.show(store, run.check)
    learned = shown.learned
    found = shown.run or (learned.last_run if learned else None)
    if found is None or found == str(run.id):
        return None
    with store.read() as connection:
        row = results.find_run(connection, int(found))
    return found if row is not None and row.aggregates else None


def _candidate(row: RunRow) -> Candidate:
    assert row.finished_at is not None  # noqa: S101 - it ended
    return Candidate(
        id=str(row.id),
        check=row.check,
        verdict=row.verdict,
        finished_at=from_us(row.finished_at),
        index_version=row.index_version,
    )
