"""How long retention holds the writer of SQLite, and how long it reads, where there are many rankings.

    python -m benchmarks.retention [--rankings 1000000]

A fifth of the runs are too old; every ranking was had by one state and held five texts of its own.
"""

import argparse
import sqlite3
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from app.base.db.engine import Store, to_us
from app.base.db.files import migrate
from app.operation.service import retention
from app.records.store.results import RankingBody
from benchmarks.scale import WriteTimes
from benchmarks.writer_holds import print_longest

NOW = datetime(2026, 11, 22, tzinfo=UTC)
DAYS = 80


def main() -> None:
    """Fill a database, forget, and print what that took."""
    options = argparse.ArgumentParser()
    options.add_argument("--rankings", type=int, default=1_000_000)
    count = options.parse_args().rankings
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "retention.db"
        store = Store(f"sqlite:///{path}")
        migrate(store)
        fill(path, count)
        writes = WriteTimes(store)
        for name in ("first round", "round with nothing to forget"):
            writes.forget()
            began = time.perf_counter()
            gone = retention.prune(store, NOW, days=DAYS)
            print(f"{name}: {gone:,} rows in {time.perf_counter() - began:.1f} s", flush=True)
            print_longest(name, writes)


def fill(path: Path, count: int) -> None:
    """Write a check with `count` rankings over 100 days, a fifth of them too old."""
    runs = 20_000
    plain = sqlite3.connect(path)  # minds no references
    day = to_us(NOW) - to_us(NOW - timedelta(days=1))
    began = to_us(NOW - timedelta(days=100))
    plain.executemany(
        "INSERT INTO runs (id, check_id, scheduled_for, not_before, trigger, status, created_at, finished_at)"
        " VALUES (?, 1, ?, 0, 'schedule', 'finished', ?, ?)",
        ((one, at, at, at) for one in range(1, runs + 1) for at in [began + one * 100 * day // runs]),
    )
    plain.executemany(
        "INSERT INTO run_probes (run_id, latencies) VALUES (?, zeroblob(20000))", ((one,) for one in range(1, runs + 1))
    )
    plain.execute("INSERT INTO latest (check_id, run_id, body) VALUES (1, ?, '{}')", (runs,))
    encode = msgspec.msgpack.Encoder().encode
    plain.executemany(
        "INSERT INTO rankings (id, hash, body) VALUES (?, ?, ?)",
        (
            (
                one,
                one.to_bytes(16),
                encode(RankingBody(returned=5, decimals=1, chunks=[5 * one + n for n in range(5)], scores=[5] * 5)),
            )
            for one in range(1, count + 1)
        ),
    )
    plain.executemany(
        "INSERT INTO chunks (id, hash, chunk, text) VALUES (?, ?, 'chunk', ?)",
        ((one, one.to_bytes(16), "text " * 20) for one in range(5, 5 * count + 5)),
    )
    plain.execute("INSERT INTO vectors (id, hash, body) VALUES (1, x'00', x'00')")
    plain.executemany(
        "INSERT INTO scores (ranking_id, canary_version_id, layout_id, matched, vector_id) VALUES (?, 1, 1, x'00', 1)",
        ((one,) for one in range(1, count + 1)),
    )
    plain.executemany(
        "INSERT INTO states (id, check_id, canary_id, canary_version_id, ranking_id, layout_id, reasons, first_run,"
        " last_run) VALUES (?, 1, ?, 1, ?, 1, 0, ?, ?)",
        ((one, one % 1000, one, run, run) for one in range(1, count + 1) for run in [1 + one * (runs - 1) // count]),
    )
    plain.commit()
    plain.execute("ANALYZE")
    plain.close()


if __name__ == "__main__":
    main()
