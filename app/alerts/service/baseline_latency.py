"""How long the runs of a check took, and what a baseline says of that: the rule `slower` compares with it."""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from app.alerts.domain.slower import SLOWER_QUANTILE
from app.base.db.engine import Connection
from app.base.values import Percentile
from app.detection.service.detectors import EndingRun
from app.records.store import results
from app.records.store.results import RunRow
from app.retrievers.domain.latency_summary import latency_summary
from app.scoring.run_responses import measured_latencies


def run_latencies(connection: Connection, rows: Sequence[RunRow]) -> dict[int, Mapping[str, float | None]]:
    """Percentiles of latency by run id, as the runs had them: single latencies are stored less exactly."""
    kept = {row.id: cast("Mapping[str, float | None]", row.probes["latency_seconds"]) for row in rows if row.probes}
    older = results.probes_of_runs(connection, [row.id for row in rows if row.id not in kept])
    return kept | {run_id: latency_summary(measured_latencies(*one)) for run_id, one in older.items()}


def latency_of_baseline(connection: Connection, run: EndingRun, run_ids: Sequence[int]) -> float | None:
    """99 % quantile of the median latencies of these runs, in seconds; the one that is about to end maybe among them.

    At least so many runs were no slower: of fewer than a hundred, the slowest. None = none of them measured any.
    """
    stored = results.find_runs(connection, [run_id for run_id in run_ids if run_id != run.id])
    medians = [one[Percentile.P50] for one in run_latencies(connection, [*stored.values()]).values()]
    if len(stored) < len(run_ids):
        medians.append(run.median_latency)
    known = [median for median in medians if median is not None]
    return float(np.quantile(known, SLOWER_QUANTILE, method="inverted_cdf")) if known else None
