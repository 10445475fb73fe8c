"""Keep with each baseline how long its runs took, which the rule `slower` compares with."""

import json
from struct import Struct

import sqlalchemy as sa
from alembic import op

revision = "2026_11_27_baseline_latency"
down_revision = "2026_11_27_taken"
branch_labels = None
depends_on = None

_SUMMARISED = 2
_PERCENTILES = Struct("<3I")
"""Median, 95th percentile and maximum in microseconds, after the first byte of the figures of a run."""
_QUANTILE = 99
"""In percent."""

_IN_FORCE = sa.text(
    "select b.id, b.check_id, b.first_run, b.last_run, b.runs from baselines b"
    " where exists (select 1 from detectors d where d.baseline_id = b.id)"
)
_LEARNED = sa.text(
    "select r.probes, r.figures from detections d join runs r on r.id = d.run_id"
    " where d.check_id = :check and d.learns and d.run_id between :first and :last"
    " order by d.run_id desc limit :count"
)


def upgrade() -> None:
    """Add the column, filled for the baselines in force as far as their runs are kept."""
    op.add_column("baselines", sa.Column("median_latency", sa.Float(53), nullable=True))
    connection = op.get_bind()
    for one in connection.execute(_IN_FORCE).all():
        scope = {"check": one.check_id, "first": one.first_run, "last": one.last_run, "count": one.runs}
        medians = sorted(median for row in connection.execute(_LEARNED, scope) if (median := _median(*row)) is not None)
        if 2 * len(medians) >= one.runs > 0:
            place = -(-_QUANTILE * len(medians) // 100) - 1
            values = {"median": medians[place], "id": one.id}
            connection.execute(sa.text("update baselines set median_latency = :median where id = :id"), values)


def _median(probes: str | None, figures: bytes | None) -> float | None:
    if probes:
        median: float | None = json.loads(probes)["latency_seconds"]["p50"]
        return median
    packed = bytes(figures or b"")
    if packed[:1] != bytes([_SUMMARISED]):
        return None
    microseconds: int = _PERCENTILES.unpack_from(packed, 1)[0]
    return microseconds / 1e6
