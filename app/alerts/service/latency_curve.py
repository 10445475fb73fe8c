"""Latency of the runs around an alert about latency, with what it is compared with. It only reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.alerts.domain.alert_state import TransitionType
from app.alerts.domain.views import RuleEvidence
from app.alerts.service.baseline_latency import run_latencies
from app.alerts.store.alerts import AlertRow, TransitionRow
from app.base.db.engine import Connection
from app.base.values import Percentile, RuleKind, Severity, Verdict
from app.base.views import TimeText
from app.records import documents as shapes
from app.records.store import results
from app.records.store.results import RunRow

_BEFORE: Final = 40
"""Runs before the first bad one."""
_MOST: Final = 200
"""Runs of a curve; of a longer alert those around its beginning and the newest are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLatency:
    """Latency of one run."""

    run_id: str
    at: TimeText
    seconds: float | None
    """None = it was not measured, or the verdict of the run is unknown."""
    after_others: bool = False
    """Whether runs before it are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyCurve:
    """Latency of the runs from before an alert to its end, oldest first."""

    percentile: Percentile
    runs: Sequence[RunLatency]
    bounds: Sequence[tuple[Severity, float]]
    """Seconds above which a run is bad, by severity, as evaluated last."""
    baseline: float | None
    """Seconds; None = the rule compares with none."""
    first_run: str | None
    """The first bad run."""


def latency_curve(
    connection: Connection, row: AlertRow, transitions: Sequence[TransitionRow], evaluated: RuleEvidence
) -> LatencyCurve | None:
    """Read the curve of an alert; None where its rule is not about latency. `evaluated`: its last evidence."""
    if row.kind not in {RuleKind.LATENCY, RuleKind.SLOWER}:
        return None
    percentile = Percentile(evaluated.get("percentile") or Percentile.P95)
    window = evaluated.get("window", [])
    judged = [one for one in window if one["threshold"] is not None]
    bounds = [
        (severity, side["above"])
        for severity, side in (
            (Severity.WARNING, evaluated.get("warning")),
            (Severity.CRITICAL, evaluated.get("critical")),
        )
        if side is not None
    ]
    baseline = None
    if row.kind == RuleKind.SLOWER and judged:
        bounds, baseline = [(Severity.WARNING, judged[-1]["threshold"] or 0.0)], judged[-1]["baseline"]
    rows, gap = _runs(connection, row, transitions)
    latencies = run_latencies(connection, [run for run in rows if run.verdict != Verdict.UNKNOWN])
    return LatencyCurve(
        percentile=percentile,
        runs=[
            RunLatency(
                run_id=str(run.id),
                at=shapes.time_text(run.finished_at or run.created_at),
                seconds=latencies[run.id][percentile] if run.id in latencies else None,
                after_others=run.id == gap,
            )
            for run in rows
        ],
        bounds=bounds,
        baseline=baseline,
        first_run=None if row.first_run is None else str(row.first_run),
    )


def _runs(
    connection: Connection, row: AlertRow, transitions: Sequence[TransitionRow]
) -> tuple[list[RunRow], int | None]:
    """Return the runs of the curve, and the one before which others are left out."""
    ends = [one.run_id for one in transitions if one.type == TransitionType.RESOLVED and one.run_id is not None]
    newest = results.ended_runs(connection, row.check_id, before=ends[-1] + 1 if ends else None, limit=_MOST)
    if row.first_run is None or not newest:
        return newest[-_BEFORE:], None
    if newest[0].id <= row.first_run:
        place = next(place for place, run in enumerate(newest) if run.id >= row.first_run)
        return newest[max(place - _BEFORE, 0) :], None
    beginning = results.ended_runs(connection, row.check_id, before=row.first_run + 1, limit=_BEFORE + 1)
    rest = newest[len(beginning) :]
    return [*beginning, *rest], rest[0].id
