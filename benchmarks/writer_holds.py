"""How long re-scoring, retention and reports hold the writer, over a suite of 10,000 canaries.

    python -m benchmarks.writer_holds [--canaries 10000] [--runs 6] [--url postgresql://...] [--rankings 0]

Every answer of every run is new, so that each run has as many rankings to judge and to forget as the suite has
canaries. Without `--url` the database is a SQLite file, which has one writer. What is printed is the longest writing
transaction of each service function, by the clock and of the processor, beside the goal. With `--rankings` only
retention is measured, over so many of them in a SQLite file: a fifth of the runs are too old, and every ranking was had
by one state and held five texts of its own.
"""

import argparse
import sqlite3
import sys
import tempfile
import time
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import sqlalchemy as sa

from app.base.db.engine import Store, to_us
from app.base.db.files import migrate
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.values import replace
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service import references
from app.catalog.store import API
from app.config import Settings
from app.definitions.service import applying
from app.hooks.documents import HookDocument
from app.main import open_service
from app.operation.service import retention
from app.records.service.plans import Planner
from app.records.store.ranking_rows import RankingBody
from app.reports.service import reports as run_reports
from app.reports.service.reports import DueReports
from app.reports.store import reports
from app.runs.service import rescoring
from benchmarks.storage import ScriptedProbe, documents, one_run

GOAL = 50.0
"""Milliseconds."""
OWNER = "bench"
HOOK = {
    "slug": "ops",
    "kind": "webhook",
    "url": "http://hook.test/",
    "secret": "whsec_" + b64encode(b"s" * 32).decode(),
}
RULES = [{"kind": "regression"}, {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.3}}]
NOW = datetime(2026, 11, 22, tzinfo=UTC)
DAYS = 80


def main() -> None:
    """Print a line for each step."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--canaries", type=int, default=10_000)
    options.add_argument("--runs", type=int, default=6)
    options.add_argument("--url", default="")
    options.add_argument("--rankings", type=int, default=0)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.rankings:
            forget_many(Path(folder) / "retention.db", given.rankings)
            return
        if given.url:
            migrate(Store(given.url))
        url = given.url or f"sqlite:///{folder}/coalmine.db"
        opened = open_service(Settings(data_dir=Path(folder), database_url=url), environment={}, with_worker=False)
        service = Benched(opened.store, opened.vault, given.canaries)
        print(f"{given.canaries:,} canaries, {given.runs} runs on {service.store.dialect}", flush=True)
        for number in range(given.runs):
            service.run()
            print(f"  run {number + 1} has ended", flush=True)
        correct(service, given.canaries)
        for name, step in (("re-scoring", rescore), ("report", report), ("retention", forget)):
            service.writes.forget()
            step(service)
            print_longest(name, service.writes)


class Benched:
    """A service with one large suite, whose answers are all new in each run."""

    def __init__(self, store: Store, vault: Vault, canaries: int) -> None:
        self.store, self.vault = store, vault
        self.now = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
        self.writes = WriteTimes(store)
        self._probe, self._planner = ScriptedProbe(canaries), Planner(store, vault)
        applying.apply(store, vault, with_hook(documents(canaries)), managed_by=API, now=self.now)
        self._check_id = references.load_definition(store, "check", "bench").id

    def run(self) -> None:
        """Carry out a run, a minute after the last."""
        self._probe.change(1.0)
        self.now += timedelta(minutes=1)
        one_run(self._planner, self._probe, self._check_id, self.now)


def with_hook(plain: Documents, **fields: object) -> Documents:
    """Have the check alert a hook, with other fields of it."""
    check = {**plain.checks[0].model_dump(exclude_unset=True), "rules": RULES, "hooks": ["ops"], **fields}
    return replace(plain, checks=(parse_document(CheckDocument, check),), hooks=(parse_document(HookDocument, HOOK),))


def correct(service: Benched, canaries: int) -> None:
    """Have every canary expect another chunk too, and the check send a report."""
    plain = documents(canaries)
    suite = plain.suites[0].data()
    for number, canary in enumerate(suite["canaries"]):
        canary["expected_chunks"].append({"id": f"c{number}-7"})
    changed = replace(plain, suites=(parse_document(SuiteDocument, suite),))
    changed = with_hook(changed, report={"cron": "0 * * * *", "hooks": ["ops"]})
    applying.apply(service.store, service.vault, changed, managed_by=API, now=service.now)


def rescore(service: Benched) -> None:
    """Score all runs again."""
    rescoring_id = rescoring.ask(service.store, "bench", since=None, now=service.now)
    claimed = rescoring.claim(service.store, owner=OWNER, now=service.now, only=rescoring_id)
    assert claimed == rescoring_id
    assert rescoring.carry_on(service.store, rescoring_id, owner=OWNER, clock=lambda: service.now)


def report(service: Benched) -> None:
    """Write the report that is due, with its delivery."""
    due = service.now + timedelta(hours=2)
    assert DueReports(service.store).queue_due(due) == 1
    with service.store.read() as connection:
        report_id = connection.execute(sa.select(reports.c.id)).scalar_one()
    assert run_reports.write_report(service.store, report_id, now=due)


def forget(service: Benched) -> None:
    """Forget all runs but the newest, and what they alone had."""
    assert retention.prune(service.store, service.now + timedelta(days=100), days=1) > 0


def forget_many(path: Path, count: int) -> None:
    """Fill a database, forget, and print what that took."""
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
    store.close()


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


@dataclass(frozen=True, slots=True, order=True)
class Taken:
    """Milliseconds by the clock and of the processor."""

    elapsed: float
    processor: float


class Watch:
    """A stopwatch."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    @property
    def taken(self) -> Taken:
        """The time since it was made."""
        elapsed, processor = self._began
        return Taken((time.perf_counter() - elapsed) * 1e3, (time.process_time() - processor) * 1e3)


class WriteTimes:
    """How long write transactions of a store were held, by the service function that opened them."""

    def __init__(self, store: Store) -> None:
        self.held: dict[str, list[Taken]] = {}
        self._open: dict[int, tuple[str, Watch]] = {}
        sa.event.listen(store.engine, "begin", self._began)
        sa.event.listen(store.engine, "commit", self._ended)
        sa.event.listen(store.engine, "rollback", self._ended)

    def _began(self, connection: sa.Connection) -> None:
        if connection.get_execution_options().get("coalmine_writes"):
            self._open[id(connection)] = _opened_by(), Watch()

    def _ended(self, connection: sa.Connection) -> None:
        opened = self._open.pop(id(connection), None)
        if opened is not None:
            self.held.setdefault(opened[0], []).append(opened[1].taken)

    def forget(self) -> None:
        """Begin anew."""
        self.held.clear()


def _opened_by() -> str:
    frame = sys._getframe(1)  # noqa: SLF001 - the stack is what is asked for
    while frame.f_back is not None:
        if "/service" in frame.f_code.co_filename.rpartition("/app/")[2]:
            return f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "?"


def print_longest(name: str, writes: WriteTimes) -> None:
    """Print the longest writing transaction of each function that opened one, the longest of all first."""
    ordered = sorted(writes.held.items(), key=lambda one: max(one[1]), reverse=True)
    for function, times in ordered:
        longest = max(times)
        verdict = f"goal {GOAL:.0f} ms {'met' if longest.elapsed <= GOAL else 'MISSED'}"
        note = f"{len(times):,} transactions, none above {max(one.processor for one in times):.1f} cpu"
        figures = f"{longest.elapsed:>8.1f} ms {longest.processor:>8.1f} cpu"
        print(f"{f'{name}, {function}':<44} {figures}  {verdict:<20} {note}", flush=True)
    if not ordered:
        print(f"{name}: no writing transaction")


if __name__ == "__main__":
    main()
