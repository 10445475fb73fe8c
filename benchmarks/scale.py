"""What a suite of 10,000 canaries costs: pages, API, planning, write locks and the end of a run, beside their goals.

    python -m benchmarks.scale [--canaries 10000] [--url postgresql://...] [--profile NAME] [--all [--quick]]

Without `--url` the database is a SQLite file. Times over HTTP are those of a client on the same machine, the median of
five after one that warms up; the time of the processor, this process's alone, stands beside it, for machines that do
other work. `--profile` prints the profile of the line whose name begins so, called in this process.
`--all` goes on with everything that a large installation is held to, see `large_installations`: hours.
"""

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import sqlalchemy as sa
import uvicorn

from app.alerts.service.views import Links
from app.base.db.engine import Store, to_us
from app.base.db.files import migrate
from app.base.documents.validation_messages import parse_document
from app.base.values import Answer, Ranking
from app.base.vault import Vault
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.documents import CheckDocument
from app.catalog.service import applying, definitions
from app.catalog.service.references import API
from app.config import Settings
from app.hooks.documents import HookDocument
from app.hooks.domain import Hook, Message, Receipt
from app.hooks.service import deliveries
from app.main import Service, create_app, open_service
from app.records.service import results
from app.records.service import runs as run_views
from app.records.store.queue import ClaimedRun, enqueue_scheduled
from app.reports.service import check_details
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery
from app.runs.service import runs
from app.runs.service.finalising import fail
from app.runs.service.plans import Planner
from app.scoring.rankings import decimals_of, round_ranking
from benchmarks.large_installations import measure_all
from benchmarks.storage import ScriptedProbe, documents, serving

ROUNDS = 5
FINALISING = "finalising._end"
MOST_MILLISECONDS = 30_000
HOOK = {
    "slug": "ops",
    "kind": "webhook",
    "url": "http://hook.test/",
    "secret": "whsec_" + b64encode(b"s" * 32).decode(),
}
RULES = [{"kind": "regression"}, {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.3}}]


class FaultyProbe(ScriptedProbe):
    """A scripted retriever that can lose every chunk at once."""

    broken = False

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[list[tuple[int, Answer]]]:
        """Answer everything at once."""
        decimals = decimals_of(context.retriever.score_precision)
        for batch in super().__call__(context, queries):
            yield [(position, self._answered(answer, decimals)) for position, answer in batch]

    def _answered(self, answer: Answer, decimals: int) -> Answer:
        ranking = answer.ranking
        assert isinstance(ranking, Ranking)
        if self.broken:
            ranking = replace(ranking, ids=tuple(f"other-{name}" for name in ranking.ids))
        return replace(answer, ranking=round_ranking(ranking, decimals))  # as what reads answers over the network does


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

    def longest(self, but: str = "") -> Taken:
        """Give the time of the transaction that was held longest since `forget`, but for those of one function."""
        return max((taken for name, times in self.held.items() for taken in times if name != but), default=Taken(0, 0))

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


class Table:
    """Prints what was measured beside its goal."""

    def line(self, name: str, taken: Taken, goal: float | None = None, note: str = "") -> None:
        """Print one time."""
        wanted = "" if goal is None else f"goal {goal:.0f} ms {'met' if taken.elapsed <= goal else 'MISSED'}"
        print(f"{name:<44} {taken.elapsed:>8.1f} ms {taken.processor:>8.1f} cpu  {wanted:<20} {note}", flush=True)

    def size(self, name: str, bytes_: int, goal: float) -> None:
        """Print one size."""
        wanted = f"goal {goal:.0f} kB {'met' if bytes_ <= goal * 1e3 else 'MISSED'}"
        print(f"{name:<44} {bytes_ / 1e3:>8.1f} kB {'':>13} {wanted}", flush=True)


class Scale:
    """A service with one large suite, taken through its life step by step."""

    def __init__(self, store: Store, vault: Vault, canaries: int) -> None:
        self.store, self.vault, self.table = store, vault, Table()
        self.now = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
        self.probe = FaultyProbe(canaries)
        self.planner = Planner(store, vault)
        self.writes = WriteTimes(store)
        applying.apply(store, vault, _documents(canaries), managed_by=API, now=self.now)
        self.check_id = definitions.find(store, "check", "bench").id

    def claim(self) -> ClaimedRun:
        """Queue and claim a run, a minute after the last."""
        self.now += timedelta(minutes=1)
        at = to_us(self.now)
        with self.store.write() as connection:
            run_id = enqueue_scheduled(connection, self.check_id, scheduled_for=at, not_before=at, now=at)
        assert run_id is not None
        claimed = runs.begin(self.store, run_id, owner="bench", now=self.now)
        assert claimed is not None
        return claimed

    def execute(self) -> int:
        """Carry out one run, remembering the writes of this run alone."""
        claimed = self.claim()
        self.writes.forget()
        ended = runs.execute(
            self.planner, self.probe, claimed, owner="bench", clock=lambda: self.now, stopping=lambda: False
        )
        assert ended is not None
        assert ended.status == "finished"
        return ended.id

    def plan(self) -> tuple[Taken, Taken]:
        """Plan one run and let go of it; gives the time, and that of its longest write transaction."""
        claimed = self.claim()
        self.writes.forget()
        watch = Watch()
        self.planner.plan(claimed, self.now)
        taken, held = watch.taken, self.writes.longest()
        fail(self.store, claimed, "bench", "only planned", lambda: self.now)
        return taken, held

    def runs(self) -> int:
        """Measure planning and the end of runs: the first, unchanged ones, and those that degrade everything."""
        table = self.table
        first = self.plan()
        table.line("planning, the first in this process", first[0])
        table.line("  write lock held", first[1], 20)
        self.execute()  # from here on every canary has a state, which a plan reads
        later = sorted(self.plan() for _ in range(ROUNDS))
        table.line("planning", later[ROUNDS // 2][0], 100)
        table.line("  write lock held", later[ROUNDS // 2][1], 20)
        ends = []
        for _ in range(ROUNDS):
            self.execute()
            ends += self.writes.held[FINALISING]
        table.line("unchanged run, finalising transaction", sorted(ends)[ROUNDS // 2], 80)
        table.line("  longest other write transaction", self.writes.longest(FINALISING))
        self.probe.broken = True
        for name in ("run that degrades all", "run that opens the alert"):
            degraded = self.execute()
            table.line(f"{name}, finalising transaction", self.writes.longest(but="runs._ask"), 500)
        return degraded

    def deliver(self) -> None:
        """Measure the write lock held by the deliveries of what the last run opened."""
        self.writes.forget()
        count = 0
        hook = definitions.find(self.store, "hook", "ops")
        while deliveries.deliver_next(
            self.store,
            self.vault,
            _take,
            hook.id,
            owner="bench",
            links=Links(public_url="http://coalmine.test"),
            clock=lambda: self.now,
        ):
            count += 1
        self.table.line("delivery, write lock held", self.writes.longest(), 20, note=f"{count} sent")

    def profiled(self, name: str, run_id: int) -> None:
        """Print the profile of one line, called in this process."""
        calls: dict[str, Callable[[], Any]] = {
            "page": lambda: check_details.load_check(self.store, "bench", self.now),
            "results": lambda: results.results(self.store, str(run_id), limit=50),
            "report": lambda: results.report(self.store, str(run_id)),
            "health": lambda: run_views.health(self.store, "bench"),
            "run": self.execute,
            "plan": self.plan,
        }
        calls[name]()
        with cProfile.Profile() as profile:
            calls[name]()
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)


def _take(hook: Hook, message: Message, now: datetime) -> Receipt:
    del hook, message, now
    return Receipt(ok=True, http_status=200, latency_seconds=0.0)


def _documents(canaries: int) -> Documents:
    check = parse_document(CheckDocument, check_of(canaries))
    return replace(documents(canaries), checks=(check,), hooks=(parse_document(HookDocument, HOOK),))


def check_of(canaries: int) -> dict[str, Any]:
    """Return the check, with its rules and hook."""
    return {**documents(canaries).checks[0].model_dump(exclude_unset=True), "rules": RULES, "hooks": ["ops"]}


def over_http(table: Table, service: Service, run_id: int) -> None:
    """Ask the pages and the API as people do."""
    run = f"/v1/runs/{run_id}"
    with serving(lambda: uvicorn.Config(create_app(service), port=0, log_level="warning")) as url:
        for name, path, goal in (
            ("page of the check", "/checks/bench", 150),
            ("page of the run", f"/runs/{run_id}", None),
            ("page of the suite", "/suites/bench", None),
            ("page of the canary", "/checks/bench/canaries/c17", None),
            ("overview", "/", None),
            ("API of one canary", "/v1/suites/bench/canaries/c17", 20),
            ("API of one canary's history", "/v1/checks/bench/canaries/c17/history", 20),
            ("health", "/v1/checks/bench/health", 20),
            ("results?limit=50", f"{run}/results?limit=50", None),
            ("results?verdict=degraded&limit=50", f"{run}/results?verdict=degraded&limit=50", None),
            ("runs?limit=20", "/v1/checks/bench/runs?limit=20", None),
            ("report", f"{run}/report?format=json", None),
        ):
            times: list[Taken] = []
            while len(times) <= ROUNDS and sum(one.elapsed for one in times) < MOST_MILLISECONDS:
                watch = Watch()
                with urlopen(url + path) as answer:  # noqa: S310 - our own server
                    size = len(answer.read())
                times.append(watch.taken)
            middle = sorted(times[1:] or times)[len(times[1:]) // 2]
            table.line(name, middle, goal, note=f"{size / 1e3:.0f} kB, the first took {times[0].elapsed:.0f} ms")
            if name == "page of the check":
                table.size("  size", size, 300)


def main() -> None:
    """Print every line beside its goal."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--canaries", type=int, default=10_000)
    options.add_argument("--url", default="")
    options.add_argument("--profile", default="")
    options.add_argument("--all", action="store_true")
    options.add_argument("--quick", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"sqlite:///{folder}/coalmine.db"
        settings = Settings(data_dir=Path(folder), database_url=url)
        if given.url:
            migrate(Store(given.url))
        service = open_service(settings, environment={}, with_worker=False)
        scale = Scale(service.store, service.vault, given.canaries)
        print(f"{given.canaries:,} canaries on {service.store.dialect}")
        run_id = scale.runs()
        if given.profile:
            for name in given.profile.split(","):
                scale.profiled(name, run_id)
        else:
            scale.deliver()
            over_http(scale.table, service, run_id)
    if given.all:
        measure_all(quick=given.quick)


if __name__ == "__main__":
    main()
