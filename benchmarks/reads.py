"""How quickly every JSON read of one row or one page answers over HTTP where 43 million results are kept.

    python -m benchmarks.reads [--days 30] [--canaries 5000] [--url postgresql://...]

Fills the database as `benchmarks.storage` does, a run every five minutes in simulated time (8,640 runs of 5,000
canaries: 43.2 million results), then asks each address 200 times, one request at a time, and prints median and 95th
percentile beside the goal; what reads a whole suite has none. With `--url` the database must be empty, or filled by
this command before; else a SQLite file is made and thrown away.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import sqlalchemy as sa
import uvicorn

from app.base.db.engine import Store
from app.config import Settings
from app.main import create_app, open_service
from benchmarks.storage import fill, period, serving, timed

GOAL = 20.0
"""Milliseconds, 95th percentile, of what is one row or one page."""
WHOLE = "whole suite"


def main() -> None:
    """Fill, then print a line for each address."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--days", type=int, default=30)
    options.add_argument("--canaries", type=int, default=5000)
    options.add_argument("--url")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = chosen.url or f"sqlite:///{folder}/coalmine.db"
        store = Store(url)
        if not _is_filled(store):
            runs = sum(1 for _ in fill(store, chosen.days, chosen.canaries, datetime.now(UTC).replace(microsecond=0)))
            print(f"{runs * chosen.canaries:,} results on {store.dialect}", flush=True)
        store.close()
        settings = Settings(data_dir=Path(folder), database_url=url)
        service = open_service(settings, environment={}, with_worker=False)
        with serving(lambda: uvicorn.Config(create_app(service), port=0, log_level="warning")) as address:
            for name, path in _reads(address, chosen.days):
                times, size = timed(f"{address}{path}")
                p95 = times[int(len(times) * 0.95) - 1]
                said = "" if name.startswith(WHOLE) else "met" if p95 <= GOAL else "MISSED"
                print(
                    f"{name:<44}{median(times):>8.1f} ms{p95:>8.1f} ms p95  {said:<8}{size / 1e3:>8.1f} kB", flush=True
                )


def _is_filled(store: Store) -> bool:
    with store.engine.connect() as connection:
        return sa.inspect(connection).has_table("runs")


def _reads(address: str, days: int) -> Iterator[tuple[str, str]]:
    """Yield name and path of each read; ids are those of the newest runs."""

    def asked(path: str) -> Any:
        with urlopen(f"{address}{path}") as answer:  # noqa: S310 - our own server
            return json.load(answer)

    newest, before = (one["id"] for one in asked("/v1/checks/bench/runs?limit=2")["items"])
    check, suite, run = "/v1/checks/bench", "/v1/suites/bench", f"/v1/runs/{newest}"
    yield from (
        ("suites", "/v1/suites"),
        ("canaries of a suite, 50", f"{suite}/canaries?limit=50"),
        ("a canary", f"{suite}/canaries/c17"),
        ("a retriever", "/v1/retrievers/scripted"),
        ("checks", "/v1/checks"),
        ("a check", check),
        ("health", f"{check}/health"),
        ("runs, 20", f"{check}/runs?limit=20"),
        ("a run", run),
        ("results, 50", f"{run}/results?limit=50"),
        ("results, 50 degraded", f"{run}/results?verdict=degraded&limit=50"),
        ("results of a category, 50", f"{run}/results?category=procedural&limit=50"),
        ("series, 300 points, 1 day", f"{check}/series?measure=coverage&points=300"),
        (f"series, 300 points, {days} days", f"{check}/series?measure=NDCG@10&points=300&{period(days)}"),
        ("a canary's history", f"{check}/canaries/c17/history"),
        ("baseline", f"{check}/baseline"),
        ("alerts", "/v1/alerts"),
        ("deliveries", "/v1/deliveries"),
        ("silences", "/v1/silences"),
        (f"{WHOLE}: a run's report", f"{run}/report?format=json"),
        (f"{WHOLE}: difference of two runs", f"/v1/runs/{newest}/diff/{before}"),
    )


if __name__ == "__main__":
    main()
