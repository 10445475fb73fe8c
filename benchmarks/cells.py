"""The arithmetic of docs/scale.md, held against a simulation: a million canaries on 10,000 retrievers every minute.

    python -m benchmarks.cells [--cells 10] [--workers 12] [--threads 16] [--minutes 15]
                               [--run-cpu 0.12] [--database-cpu 0.05]

A cell is a PostgreSQL with its workers and shares nothing with the others. Every retriever belongs to one by a hash of
its slug, and is asked 100 canaries a minute, which is one shard. The simulation is of shards, not of rows: each waits
for its spread, for its lane and for a thread, asks, then needs the interpreter of its process and the database, both
of which serve one after the other. `--run-cpu` and `--database-cpu` are seconds of CPU a run takes there, measured by
`python -m benchmarks.replicas cost`. All checks are due at the same instant, and Coalmine spreads them over half a
minute. At a third of the time a worker is killed amid that, and comes back two minutes later: its shards are taken up
by others after 30 s. One retriever in a hundred is slow. Nothing here is a measurement of Coalmine.
"""

import argparse
import hashlib
import heapq
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

CANARIES, RETRIEVERS, PERIOD_SECONDS = 100, 10_000, 60.0
FAN_OUT = 4
"""Of a shard: a retriever that takes 16 requests at a time has four lanes of four."""
ANSWER_SECONDS, SLOW_SECONDS, SLOW_SHARE = 0.2, 2.0, 0.01
SPREAD_SECONDS = 30.0
TAKE_OVER_SECONDS, RESTART_SECONDS = 30.0, 120.0
DATABASE_CORES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one cell is made of."""

    retrievers: int
    workers: int
    threads: int
    run_cpu: float
    """Seconds of CPU of its process that a run takes."""
    database_cpu: float
    minutes: int

    @property
    def runs_per_second(self) -> float:
        """How many runs are due in a second."""
        return self.retrievers / PERIOD_SECONDS

    @property
    def asking_seconds(self) -> float:
        """How long a shard asks, in the mean over quick and slow retrievers."""
        mean = ANSWER_SECONDS * (1 - SLOW_SHARE) + SLOW_SECONDS * SLOW_SHARE
        return CANARIES * mean / FAN_OUT

    @property
    def expected_threads_busy(self) -> float:
        """The share of the threads that are busy, by Little's law."""
        return self.runs_per_second * (self.asking_seconds + self.run_cpu) / (self.workers * self.threads)

    @property
    def expected_processor(self) -> float:
        """The share of a core that a worker uses."""
        return self.runs_per_second * self.run_cpu / self.workers

    @property
    def expected_database(self) -> float:
        """The share of the database's cores in use."""
        return self.runs_per_second * self.database_cpu / DATABASE_CORES


@dataclass(slots=True, kw_only=True)
class Worker:
    """A process with its threads."""

    free: int
    processor_free_at: float = 0.0
    is_alive: bool = True
    shards: set[int] = field(default_factory=set)
    """Those under way."""


@dataclass(slots=True, kw_only=True)
class Shard:
    """One run's hundred canaries."""

    due: float
    lane: int
    seconds: float
    worker: int = -1
    started_at: float = 0.0
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the simulation of a cell came to."""

    lags: np.ndarray
    """Seconds from the moment a run may begin until it does, of runs of quick retrievers."""
    in_time: float
    """The share of runs over before the next of their check is due."""
    threads_busy: float
    processor: float
    database: float
    asked_again: int


class Simulation:
    """Events in the order of their time: shards that are due, shards that have asked, ends and starts of a worker."""

    def __init__(self, cell: Cell, seed: int) -> None:
        self._cell = cell
        self._workers = [Worker(free=cell.threads) for _ in range(cell.workers)]
        self._database = [0.0] * DATABASE_CORES
        self._events: list[tuple[float, int, str, int, int]] = []
        self._waiting: list[tuple[float, int]] = []
        """Shards that are due and whose lane is free, the oldest first."""
        self._behind: dict[int, list[int]] = {}
        """Shards whose lane is taken, by lane."""
        self._taken: set[int] = set()
        self._order = 0
        self._busy_seconds = self._processor_seconds = self._database_seconds = 0.0
        self._asked_again = 0
        random = np.random.default_rng(seed)
        offsets = random.uniform(0, SPREAD_SECONDS, cell.retrievers)
        slow = random.random(cell.retrievers) < SLOW_SHARE
        self._slow = slow
        self._shards: list[Shard] = []
        self._ends: dict[int, float] = {}
        for lane in range(cell.retrievers):
            for minute in range(cell.minutes):
                answer = SLOW_SECONDS if slow[lane] else ANSWER_SECONDS
                seconds = answer * random.gamma(CANARIES, 1 / CANARIES) * CANARIES / FAN_OUT
                due = float(offsets[lane]) + minute * PERIOD_SECONDS
                self._shards.append(Shard(due=due, lane=lane, seconds=seconds))
                self._push(due, "due", len(self._shards) - 1)

    def run(self) -> Outcome:
        """Play all events."""
        end = self._cell.minutes * PERIOD_SECONDS
        kill_at = end / 3 // PERIOD_SECONDS * PERIOD_SECONDS + SPREAD_SECONDS / 2
        self._push(kill_at, "killed", 0)
        self._push(kill_at + RESTART_SECONDS, "back", 0)
        while self._events:
            now, _, event, number, attempt = heapq.heappop(self._events)
            if event == "due":
                self._queue(number)
            elif event == "asked":
                self._end(now, number, attempt)
            elif event == "killed":
                self._kill(now, number)
            elif event == "back":
                self._workers[number] = Worker(free=self._cell.threads)
            elif event == "again":
                self._asked_again += 1
                heapq.heappush(self._waiting, (self._shards[number].due, number))
            self._begin(now)
        return self._outcome(end)

    def _outcome(self, end: float) -> Outcome:
        quick = [number for number, shard in enumerate(self._shards) if not self._slow[shard.lane]]
        cores = end * self._cell.workers
        return Outcome(
            lags=np.array([self._shards[number].started_at - self._shards[number].due for number in quick]),
            in_time=float(
                np.mean([self._ends[number] <= self._shards[number].due + PERIOD_SECONDS for number in quick])
            ),
            threads_busy=self._busy_seconds / (cores * self._cell.threads),
            processor=self._processor_seconds / cores,
            database=self._database_seconds / (end * DATABASE_CORES),
            asked_again=self._asked_again,
        )

    def _push(self, at: float, event: str, number: int, attempt: int = 0) -> None:
        self._order += 1
        heapq.heappush(self._events, (at, self._order, event, number, attempt))

    def _queue(self, number: int) -> None:
        lane = self._shards[number].lane
        if lane in self._taken:
            self._behind.setdefault(lane, []).append(number)
            return
        self._taken.add(lane)
        heapq.heappush(self._waiting, (self._shards[number].due, number))

    def _begin(self, now: float) -> None:
        while self._waiting:
            at, worker = max(enumerate(self._workers), key=lambda one: one[1].free if one[1].is_alive else 0)
            if not worker.is_alive or not worker.free:
                return
            _, number = heapq.heappop(self._waiting)
            shard = self._shards[number]
            shard.worker, shard.started_at = at, now
            shard.attempt += 1
            worker.free -= 1
            worker.shards.add(number)
            self._push(now + shard.seconds, "asked", number, shard.attempt)

    def _end(self, now: float, number: int, attempt: int) -> None:
        """Take the process's interpreter, then a core of the database, each once those before have had it."""
        shard = self._shards[number]
        if attempt != shard.attempt or shard.worker < 0:
            return  # its worker was killed meanwhile
        worker = self._workers[shard.worker]
        evaluated = worker.processor_free_at = max(now, worker.processor_free_at) + self._cell.run_cpu
        core = int(np.argmin(self._database))
        stored = self._database[core] = max(evaluated, self._database[core]) + self._cell.database_cpu
        self._processor_seconds += self._cell.run_cpu
        self._database_seconds += self._cell.database_cpu
        self._busy_seconds += stored - shard.started_at
        self._ends[number] = stored
        worker.shards.discard(number)
        worker.free += 1
        self._taken.discard(shard.lane)
        if behind := self._behind.get(shard.lane):
            self._queue(behind.pop(0))

    def _kill(self, now: float, at: int) -> None:
        worker = self._workers[at]
        worker.is_alive = False
        for number in worker.shards:
            self._shards[number].worker = -1
            self._push(now + TAKE_OVER_SECONDS, "again", number)


def main() -> None:
    """Print what paper and simulation say of each cell."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cells", type=int, default=10)
    options.add_argument("--workers", type=int, default=12)
    options.add_argument("--threads", type=int, default=16)
    options.add_argument("--minutes", type=int, default=15)
    options.add_argument("--run-cpu", type=float, default=0.12)
    options.add_argument("--database-cpu", type=float, default=0.05)
    given = options.parse_args()
    shares = Counter(cell_of(f"retriever-{number}", given.cells) for number in range(RETRIEVERS))
    print(
        f"{RETRIEVERS:,} retrievers over {given.cells} cells: {min(shares.values()):,} to {max(shares.values()):,} each"
    )
    print(
        "| cell | retrievers | threads busy, paper / simulated | a worker's core | the database's cores "
        "| start lag p50 / p99 / most | in time | shards asked again |"
    )
    print("| --: | --: | --: | --: | --: | --: | --: | --: |")
    for number, retrievers in sorted(shares.items()):
        cell = Cell(
            retrievers=retrievers,
            workers=given.workers,
            threads=given.threads,
            run_cpu=given.run_cpu,
            database_cpu=given.database_cpu,
            minutes=given.minutes,
        )
        came = Simulation(cell, seed=number).run()
        middle, late = np.percentile(came.lags, [50, 99])
        print(
            f"| {number} | {retrievers:,} | {cell.expected_threads_busy:.0%} / {came.threads_busy:.0%} "
            f"| {cell.expected_processor:.0%} / {came.processor:.0%} "
            f"| {cell.expected_database:.0%} / {came.database:.0%} "
            f"| {middle:.2f} / {late:.2f} / {came.lags.max():.1f} s | {came.in_time:.2%} | {came.asked_again} |",
            flush=True,
        )


def cell_of(slug: str, cells: int) -> int:
    """Give the cell of a retriever."""
    return int.from_bytes(hashlib.sha256(slug.encode()).digest()[:8], "big") % cells


if __name__ == "__main__":
    main()
