"""How much thirty days of runs weigh in SQLite, and how fast they are read back.

    python -m benchmarks.storage [days] [canaries] [DATABASE_FILE] [--healthy]

Runs every five minutes in simulated time, through the service's own functions (queue, claim, execute): only the
probe and the clock are replaced. In each run 0.5 % of the canaries get another ranking of their ten chunks; the rest
answer as before. Six categories, all cut-offs. Bytes per result leave out the first run and the chunk texts.
All ten hits are shuffled, so that an alarm stays open and stores evidence; with `--healthy` two neighbours are swapped.
`make bench` takes `SwappingProbe` too, and `JitteryProbe`, which change as healthy retrievers do; besides it times the
step of the detector within such runs.
"""

import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import uvicorn

from app.base.db.engine import Store, to_us
from app.base.db.files import migrate
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.values import Answer, Outcome, Ranking, replace
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service import references
from app.catalog.store import API
from app.config import Settings
from app.definitions.service import applying
from app.detection.service import detector_step
from app.main import create_app, open_service
from app.records.service.plans import Planner
from app.records.store.open_runs import enqueue_scheduled
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery
from app.runs.service import execution

STEP = timedelta(minutes=5)
DAY = 288
"""Runs."""
CHANGE = 0.005
CHUNKS = 10
CATEGORIES = ("simple_factual", "complex_factual", "procedural", "entity_centric", "comparative", "negative")
WARM_UP = 40


def main() -> None:
    """Write the runs, then print bytes per result and the times of the three reads."""
    given = [argument for argument in sys.argv[1:] if argument != "--healthy"]
    days, canaries = (int(argument) for argument in (given[:2] + ["30", "500"][len(given) :]))
    probe = (SwappingProbe if "--healthy" in sys.argv else ScriptedProbe)(canaries)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(given[2] if len(given) > 2 else f"{folder}/coalmine.db")
        end = datetime.now(UTC).replace(microsecond=0)
        write(file, days, probe, end)
        read(file, days)


def write(file: Path, days: int, probe: "ScriptedProbe", end: datetime) -> None:
    """Carry out every run of the period and say what the file grew by."""
    canaries = probe.canaries
    found = weigh(file, days * DAY, probe, end)
    print(f"{days * DAY} runs of {canaries} canaries: {median(found.seconds) * 1e3:.1f} ms per run (median)")
    print(
        f"first run {found.first / 1e6:.2f} MB; {found.grown / 1e6:.1f} MB beyond it = "
        f"{found.per_result:.2f} bytes per result"
    )


@dataclass(frozen=True, slots=True)
class Weight:
    """What runs added to a database."""

    seconds: list[float]
    """Of each run."""
    first: int
    """Bytes after the first run."""
    grown: int
    """Bytes that the others added."""
    per_result: float
    """Bytes of a result of those."""


def weigh(file: Path, runs_: int, probe: "ScriptedProbe", end: datetime) -> Weight:
    """Carry out so many runs into a new SQLite file."""
    store = Store(f"sqlite:///{file}")
    seconds: list[float] = []
    first_bytes = 0
    for took in play(store, runs_, probe, end):
        seconds.append(took)
        first_bytes = first_bytes or size_of(store, file)
    grown = size_of(store, file) - first_bytes
    store.close()
    return Weight(seconds, first_bytes, grown, grown / ((runs_ - 1) * probe.canaries))


def play(store: Store, runs_: int, probe: "ScriptedProbe", end: datetime, step: timedelta = STEP) -> Iterator[float]:
    """Carry out so many runs of a probe, one every five minutes up to `end` unless said; yield the seconds of each."""
    vault = Vault("a key for the benchmark only")
    migrate(store)
    moment = end - runs_ * step
    applying.apply(store, vault, documents(probe.canaries), managed_by=API, now=moment)
    planner = Planner(store, vault)
    check_id = references.load_definition(store, "check", "bench").id
    seconds: list[float] = []
    for _ in range(runs_):
        moment += step
        seconds.append(one_run(planner, probe, check_id, moment))
        yield seconds[-1]
        probe.change()
        if len(seconds) % 1000 == 0:
            print(f"  {len(seconds)} runs, {median(seconds[-1000:]) * 1e3:.1f} ms each", flush=True)


def one_run(planner: Planner, probe: "ScriptedProbe", check_id: int, moment: datetime) -> float:
    """Queue, claim and execute one run as of `moment`."""
    started = time.perf_counter()
    with planner.store.write() as connection:
        at = to_us(moment)
        run_id = enqueue_scheduled(connection, check_id, scheduled_for=at, not_before=at, now=at)
    assert run_id is not None
    claimed = execution.begin(planner.store, run_id, owner="bench", now=moment)
    assert claimed is not None
    ended = execution.execute(planner, probe, claimed, owner="bench", clock=lambda: moment, stopping=lambda: False)
    assert ended is not None
    assert ended.status == "finished"
    return time.perf_counter() - started


class ScriptedProbe:
    """A retriever that answers the same, but for the canaries that `change` picks."""

    def __init__(self, canaries: int) -> None:
        self.canaries = canaries
        self._random = random.Random(7)  # noqa: S311 - a simulation that must repeat
        self._rankings = [self._ranking(number) for number in range(canaries)]

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[list[tuple[int, Answer]]]:
        """Answer everything at once."""
        del context
        yield [(item.position, self._answer(self._rankings[item.position])) for item in queries]

    def change(self, share: float = CHANGE) -> None:
        """Give a share of the canaries another ranking of the chunks they have, with other scores."""
        for number in range(len(self._rankings)):
            if self._random.random() < share:
                self._rankings[number] = self._ranking(number)

    def _ranking(self, number: int) -> Ranking:
        order = self._random.sample(range(CHUNKS), CHUNKS)
        scores = sorted((round(self._random.random(), 6) for _ in order), reverse=True)
        return Ranking(
            ids=tuple(f"c{number}-{chunk}" for chunk in order),
            documents=(None,) * CHUNKS,
            texts=tuple(f"The text of chunk {chunk} of canary {number}. " * 8 for chunk in order),
            scores=tuple(scores),
            returned=CHUNKS,
        )

    def _answer(self, ranking: Ranking) -> Answer:
        seconds = self._random.lognormvariate(-3.5, 0.4)
        return Answer(outcome=Outcome.OK, latency_seconds=seconds, ranking=ranking, http_status=200)


class SwappingProbe(ScriptedProbe):
    """A healthy retriever: a change swaps two neighbours and moves the scores; what is expected stays among the hits.

    The one above shuffles all hits of a canary, so that the detector alarms and each run has evidence to store.
    """

    def _ranking(self, number: int) -> Ranking:
        order = list(range(CHUNKS))
        place = self._random.randrange(1, CHUNKS)
        order[place - 1 : place + 1] = order[place], order[place - 1]
        scores = [0.95 - 0.05 * rank + self._random.randint(-9, 9) * 1e-4 for rank in range(CHUNKS)]
        ranking = super()._ranking(number)
        return replace(
            ranking,
            ids=tuple(f"c{number}-{chunk}" for chunk in order),
            texts=tuple(f"The text of chunk {chunk} of canary {number}. " * 8 for chunk in order),
            scores=tuple(scores),
        )


class JitteryProbe(SwappingProbe):
    """One that besides moves the fourth digit of every score in every run."""

    def _answer(self, ranking: Ranking) -> Answer:
        scores = [score + self._random.randint(-9, 9) * 1e-4 for score in ranking.scores if score is not None]
        return super()._answer(replace(ranking, scores=tuple(scores)))


def documents(canaries: int) -> Documents:
    """Describe a suite of six categories with two to three judgments each, and a daily check."""
    suite = {
        "slug": "bench",
        "canaries": [
            {
                "key": f"c{number}",
                "query": f"q{number} what is the refund policy",
                "expected_chunks": [f"c{number}-{chunk}" for chunk in range(2 + number % 2)],
                "min_relevance_score": 0.2,
                "category": CATEGORIES[number % len(CATEGORIES)],
            }
            for number in range(canaries)
        ],
    }
    retriever = {
        "slug": "scripted",
        "url": "http://127.0.0.1:9/search",
        "request": {"json": {"query": "{{ query }}"}},
        "response": {"hits": "@", "id": "id", "score": "score", "text": "text"},
        "scorer": {"kind": "score", "scale": "similarity"},
    }
    check = {
        "slug": "bench",
        "suite": "bench",
        "retriever": "scripted",
        "schedule": {"every": "1d"},
        "fetch_k": 20,
        "rules": [{"kind": "threshold", "measure": "coverage", "critical": {"below": 0.3}}],
    }
    return Documents(
        suites=(parse_document(SuiteDocument, suite),),
        retrievers=(parse_document(RetrieverDocument, retriever),),
        checks=(parse_document(CheckDocument, check),),
    )


def size_of(store: Store, file: Path) -> int:
    """Weigh the database with its write-ahead log folded in, chunk texts left out."""
    with store.engine.connect() as connection:
        connection.exec_driver_sql("COMMIT")  # a checkpoint cannot run inside a transaction
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.exec_driver_sql("BEGIN")
        texts = connection.exec_driver_sql("SELECT coalesce(sum(length(text)), 0) FROM chunks").scalar_one()
    return int(file.stat().st_size) - int(texts)


def read(file: Path, days: int) -> None:
    """Ask the API over HTTP and print median and 95th percentile of each read."""
    settings = Settings(data_dir=file.parent, database_url=f"sqlite:///{file}")
    service = open_service(settings, environment={}, with_worker=False)
    with serving(lambda: uvicorn.Config(create_app(service), port=0, log_level="warning")) as url:
        for name, path in (
            ("health", "health"),
            (f"series, 300 points, {days} days", f"series?measure=NDCG@10&points=300&{period(days)}"),
            ("series, 300 points, 1 day", "series?measure=coverage&points=300"),
            ("canary history", "canaries/c17/history"),
        ):
            times, size = timed(f"{url}/v1/checks/bench/{path}")
            print(f"{name}: median {median(times):.1f} ms, p95 {times[189]:.1f} ms, {size} bytes")


def period(days: int) -> str:
    """Return the last days as parameters of a series."""
    end = datetime.now(UTC)
    return f"from={(end - timedelta(days=days)).isoformat()}&to={end.isoformat()}".replace("+00:00", "Z")


def timed(address: str, times: int = 200) -> tuple[list[float], int]:
    """Return the milliseconds of so many requests, ascending, and the bytes of an answer."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        with urlopen(address) as answer:  # noqa: S310 - our own server
            size = len(answer.read())
        taken.append((time.perf_counter() - started) * 1e3)
    return sorted(taken), size


@contextmanager
def serving(configure: Callable[[], uvicorn.Config]) -> Iterator[str]:
    """Serve an app in a thread."""
    server = uvicorn.Server(configure())
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


class SettledProbe(SwappingProbe):
    """One that begins to change once a baseline of it has been learned."""

    def __init__(self, canaries: int) -> None:
        super().__init__(canaries)
        self._left = WARM_UP

    def change(self, share: float = CHANGE) -> None:
        """Change so many answers, but for the first runs."""
        self._left -= 1
        if self._left < 0:
            super().change(share)


def detector_step_ms(canaries: int, runs: int) -> tuple[list[float], list[float]]:
    """Milliseconds of the detector's step in each of so many runs, by the clock and of the processor.

    The first 40 are alike, so that a baseline is learned, and do not count; then 0.5 % of the answers change.
    """
    elapsed, processor = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder, _timed_step() as spent:
        store = Store(f"sqlite:///{folder}/bench.db")
        for number, _ in enumerate(play(store, WARM_UP + runs, SettledProbe(canaries), datetime.now(UTC))):
            if number >= WARM_UP:
                elapsed.append(sum(one for one, _ in spent) * 1e3)
                processor.append(sum(one for _, one in spent) * 1e3)
            spent.clear()
        store.close()
    return elapsed, processor


@contextmanager
def _timed_step() -> Iterator[list[tuple[float, float]]]:
    """Give the seconds within the functions of the step, by the clock and of the processor, as they are called."""
    spent: list[tuple[float, float]] = []

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object, **named: object) -> Any:
            began = time.perf_counter(), time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                spent.append((time.perf_counter() - began[0], time.thread_time() - began[1]))

        return call

    names = ("run_detector", "save_detection", "save_detector")
    before = {name: getattr(detector_step, name) for name in names}
    for name, function in before.items():
        setattr(detector_step, name, timed(function))
    try:
        yield spent
    finally:
        for name, function in before.items():
            setattr(detector_step, name, function)


if __name__ == "__main__":
    main()
