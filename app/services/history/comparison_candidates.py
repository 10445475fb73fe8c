"""Which runs another is worth holding against: the one before it, its baseline, the last that was healthy."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.domain.model import Verdict
from app.services.detection import baselines
from app.services.lookup import find_run
from app.store.engine import Connection, Store, from_us
from app.store.runs import results
from app.store.runs.results import RunRow

_RECENT = 30
_LOOK_BACK = 100
"""Runs, for one that was healthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A run in one line."""

    id: str
    check: str
    verdict: str | None
    finished_at: datetime
    index_version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterparts:
    """The runs of a check one of its runs can be compared with; None = there is none."""

    previous: str | None
    """The one carried out right before it."""
    baseline: str | None
    """The run that is pinned, else the last one that was learned of; None where that is the run itself."""
    healthy: str | None
    """The newest healthy one before it."""
    recent: Sequence[Candidate]
    """The newest runs that were carried out, newest first."""


def counterparts(store: Store, run_id: str) -> Counterparts:
    """Find what a run can be held against. Raises NotFoundError where it is not there."""
    with store.read() as connection:
        run = find_run(connection, run_id)
        recent = [row for row in results.ended_runs(connection, run.check_id, limit=_RECENT) if row.aggregates]
        before = _before(connection, run)
    baseline = _baseline(store, run)
    return Counterparts(
        previous=next((str(row.id) for row in before), None),
        baseline=baseline,
        healthy=next((str(row.id) for row in before if row.verdict == Verdict.HEALTHY), None),
        recent=[_candidate(row) for row in reversed(recent)],
    )


def _before(connection: Connection, run: RunRow) -> list[RunRow]:
    """Read the runs carried out before one, newest first."""
    rows = results.ended_runs(connection, run.check_id, before=run.id, limit=_LOOK_BACK)
    return [row for row in reversed(rows) if row.aggregates]


def _baseline(store: Store, run: RunRow) -> str | None:
    """Give the run of the baseline that is left of it: raw history is forgotten before what was learned of it."""
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
