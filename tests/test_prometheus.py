"""A real Prometheus over two real replicas: what it stores, and that replicas never double."""

import time
from pathlib import Path

from tests.conftest import Databases
from tests.monitoring import monitored


def test_a_real_prometheus_sees_both_replicas_in_every_state(databases: Databases, tmp_path: Path) -> None:
    began = time.time()
    with monitored(tmp_path, databases) as (site, prometheus):
        by = "max by (check, suite, retriever)"
        assert prometheus.instant(f"{by} (coalmine_coverage_ratio)") == [
            ({"check": "watch", "suite": "suite", "retriever": "search"}, 1.0)
        ]
        run = site.run()
        prometheus.until("sum(coalmine_runs_total) == 2")
        found = prometheus.exemplars("coalmine_run_duration_seconds_bucket", start=began, end=time.time() + 1)
        assert run["id"] in {one["labels"]["run_id"] for series in found for one in series["exemplars"]}
        with site.degraded():
            prometheus.until(f"{by} (coalmine_coverage_ratio) == 0.5")
            prometheus.until("max by (check, verdict) (coalmine_verdict{verdict='degraded'}) == 1")
        with site.retriever_down():
            prometheus.until("max by (check, verdict) (coalmine_verdict{verdict='unknown'}) == 1")
            prometheus.until("absent(coalmine_coverage_ratio)")
        with site.store_down():
            prometheus.until("count(coalmine_store_up == 0) == 2")
            prometheus.until("absent(coalmine_verdict)")
        prometheus.until("count(coalmine_store_up == 1) == 2")
