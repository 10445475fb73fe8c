"""Median, 95th percentile and maximum of the latencies of probes."""

from collections.abc import Sequence

import numpy as np


def latency_summary(latencies: Sequence[float]) -> dict[str, float | None]:
    """Return median, 95th percentile and maximum of measured latencies, None where nothing was measured."""
    if not latencies:
        return {"p50": None, "p95": None, "max": None}
    p50, p95, most = np.percentile(np.asarray(latencies), [50, 95, 100]).tolist()
    return {"p50": round(p50, 6), "p95": round(p95, 6), "max": round(most, 6)}
