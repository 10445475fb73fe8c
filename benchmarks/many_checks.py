"""Many small checks on one process: runs that end in time, start lag, CPU, and write transactions of an idle worker.

    python -m benchmarks.many_checks [--checks 1000] [--minutes 3] [--canaries 10] [--database URL] [--no-idle]
        [--threads 4]

`coalmine serve` over canary files: so many checks, each with a suite of its own, on ten retrievers that are one stub
answering after 20 ms (a process of its own, whose CPU does not count). At first the checks run once a day: after the
catch-up nothing is due, and the idle figures are taken; without them it takes a minute less. Then they run each
minute, all due at the same instant and spread by Coalmine; what comes before each has ended a run does not count. A
run is in time if it ended before the next instant. Start lag: from the moment a run may begin (its instant and its
check's spread) until it has. Meanwhile the API is asked for one row or one page, five times a second. Linux: CPU is
read from /proc.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import sqlalchemy as sa

from app.records.tables import runs
from benchmarks.processes import cpu_seconds, wait_until_ready

SERVICE_PORT, STUB_PORT = 18_474, 18_475
RETRIEVERS = 10
ANSWER_SECONDS = 0.02
QUIET_AFTER_SECONDS, IDLE_SECONDS = 10, 20
ASK_EVERY = 0.2
LATEST_START, LATEST_ANSWER = 1.0, 50.0
"""Goals: seconds of the 99th percentile of starts, milliseconds of the 95th of answers."""
MINUTE = 60_000_000


def main() -> None:
    """Print the figures of an idle and of a loaded minute."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--checks", type=int, default=1000)
    options.add_argument("--minutes", type=int, default=3)
    options.add_argument("--canaries", type=int, default=10)
    options.add_argument("--database", default="")
    options.add_argument("--no-idle", action="store_true")
    options.add_argument("--threads", type=int, default=0, help="COALMINE_RUN_THREADS; 0 = the default")
    options.add_argument("--part", choices=["stub", "service"], help=argparse.SUPPRESS)
    options.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.part == "stub":
        asyncio.run(answer())
    elif given.part == "service":
        serve(Path(given.rest[0]), given.rest[1:])
    else:
        settings = {"COALMINE_RUN_THREADS": str(given.threads)} if given.threads else {}
        measure(given.checks, given.canaries, given.minutes, given.database, settings, idle=not given.no_idle)


def measure(checks: int, canaries: int, minutes: int, database: str, settings: dict[str, str], *, idle: bool) -> None:
    """Start the service and print what it did."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = database or f"sqlite:///{folder}/coalmine.db"
        write_files(folder, checks, canaries, "1d" if idle else "1m")
        with part("stub"), service(folder, database, settings) as running:
            engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
            print(f"pid {running.pid}", flush=True)
            while count_ended(engine) < checks:
                time.sleep(1)
            if idle:
                measure_idle(folder, engine, running, checks, canaries)
            begin = (int(time.time()) // 60 + 1) * 60
            time.sleep(begin - time.time())
            cpu, before = cpu_seconds(running.pid), transactions(folder)
            answered = ask_meanwhile(60 * minutes)
            busy = (cpu_seconds(running.pid) - cpu) / (60 * minutes)
            read, written = (now - then for now, then in zip(transactions(folder), before, strict=True))
            time.sleep(5)  # the runs of the last instant begin within half a minute of it, and end soon
            rows = runs_between(engine, begin * 1_000_000, minutes)
            report(rows, checks * minutes)
            late = sorted(answered)[int(len(answered) * 0.95)] * 1000
            print(f"API meanwhile: p95 {late:.1f} ms of {len(answered)} answers  {met(late, LATEST_ANSWER, 'ms')}")
            print(f"CPU {busy:.2f} of a core; {written / len(rows):.1f} write, {read / len(rows):.1f} read a run")


def measure_idle(
    folder: Path, engine: sa.Engine, running: "subprocess.Popen[bytes]", checks: int, canaries: int
) -> None:
    """Print what the service does where nothing is due; then have every check run each minute."""
    time.sleep(QUIET_AFTER_SECONDS)
    before, cpu = transactions(folder), cpu_seconds(running.pid)
    time.sleep(IDLE_SECONDS)
    read, written = (now - then for now, then in zip(transactions(folder), before, strict=True))
    share = (cpu_seconds(running.pid) - cpu) / IDLE_SECONDS
    print(
        f"idle, {checks} checks: {share:.2%} of a core, {written / IDLE_SECONDS:.1f} write and "
        f"{read / IDLE_SECONDS:.1f} read transactions/s",
        flush=True,
    )
    write_files(folder, checks, canaries, "1m")
    running.send_signal(signal.SIGHUP)
    changed_at = time.time()  # applying so many files takes a while
    while count_ended(engine, since=int(changed_at * 1e6)) < checks and time.time() < changed_at + 600:
        time.sleep(1)


def report(rows: Sequence[Any], due: int) -> None:
    """Print how many runs were in time, and how late they began."""
    in_time = sum(row.finished_at is not None and row.finished_at <= row.scheduled_for + MINUTE for row in rows)
    queued = sorted((row.created_at - row.scheduled_for) / 1e6 for row in rows)
    started = sorted((row.started_at - row.not_before) / 1e6 for row in rows if row.started_at is not None)
    took = sorted((row.finished_at - row.started_at) / 1e6 for row in rows if row.finished_at is not None)
    print(f"{due} runs due, {len(rows)} queued, {in_time} ended in time", flush=True)
    for name, seconds in (("queued after", queued), ("start lag", started), ("took", took)):
        if not seconds:
            continue
        middle, late = seconds[len(seconds) // 2], seconds[int(len(seconds) * 0.99)]
        beside = met(late, LATEST_START, "s") if name == "start lag" else ""
        print(f"{name}: p50 {middle:.3f} s, p99 {late:.3f} s, at most {seconds[-1]:.3f} s  {beside}")


def ask_meanwhile(seconds: float) -> list[float]:
    """Ask the API for that long and give the seconds that each answer took."""
    paths = itertools.cycle(
        ["/v1/checks/many-0/health", "/v1/checks/many-1", "/v1/checks/many-2/runs?limit=20", "/v1/alerts?limit=50"]
    )
    end, took = time.monotonic() + seconds, list[float]()
    while (began := time.monotonic()) < end:
        with urlopen(f"http://127.0.0.1:{SERVICE_PORT}{next(paths)}", timeout=60) as answer:
            answer.read()
        took.append(time.monotonic() - began)
        time.sleep(max(0.0, min(ASK_EVERY - took[-1], end - time.monotonic())))
    return took


def met(value: float, goal: float, unit: str) -> str:
    """Say whether a value is within its goal."""
    return f"goal {goal:g} {unit} {'met' if value <= goal else 'MISSED'}"


def runs_between(engine: sa.Engine, begin: int, minutes: int) -> Sequence[Any]:
    """Read the runs that were due within so many minutes from `begin` on."""
    columns = runs.c.scheduled_for, runs.c.not_before, runs.c.created_at, runs.c.started_at, runs.c.finished_at
    within = runs.c.scheduled_for.between(begin, begin + minutes * MINUTE - 1)
    with engine.connect() as connection:
        return connection.execute(sa.select(*columns).where(within)).all()


def count_ended(engine: sa.Engine, since: int = 0) -> int:
    """Count the checks of which a run ended from a moment on."""
    with engine.connect() as connection:
        ended = sa.select(sa.func.count(runs.c.check_id.distinct())).where(runs.c.finished_at >= since)
        return int(connection.execute(ended).scalar_one())


def write_files(folder: Path, checks: int, canaries: int, every: str) -> None:
    """Write the canary files: JSON, which is YAML and read quickly."""
    (folder / "canaries").mkdir(exist_ok=True)
    retrievers = [
        {
            "slug": f"stub-{number}",
            "url": f"http://127.0.0.1:{STUB_PORT}/search",
            "request": {"method": "POST", "json": {"query": "{{ query }}", "k": "{{ k }}"}},
            "response": {"hits": "hits", "id": "id", "score": "score", "text": "text"},
            "scorer": {"kind": "score", "scale": "similarity"},
        }
        for number in range(RETRIEVERS)
    ]
    for number in range(checks):
        slug = f"many-{number}"
        page = {
            "suite": slug,
            "canaries": [
                {"key": f"q{at}", "query": f"{slug}-{at}", "expected_chunks": [f"{slug}-{at}"]}
                for at in range(canaries)
            ],
            "retrievers": retrievers if number == 0 else [],
            "checks": [
                {
                    "slug": slug,
                    "suite": slug,
                    "retriever": f"stub-{number % RETRIEVERS}",
                    "schedule": {"every": every},
                    "k": 5,
                }
            ],
        }
        (folder / "canaries" / f"{slug}.yaml").write_text(json.dumps(page), "utf-8")


def serve(counts: Path, arguments: Sequence[str]) -> None:
    """Be the service, and keep the numbers of its reading and writing transactions in a file."""
    from app.cli import main as coalmine  # noqa: PLC0415 - of the service's process alone

    begun = [0, 0]

    def count(connection: sa.Connection) -> None:
        begun[bool(connection.get_execution_options().get("coalmine_writes"))] += 1

    def keep() -> None:
        while True:
            counts.with_suffix(".new").write_text(json.dumps(begun), "utf-8")
            counts.with_suffix(".new").replace(counts)
            time.sleep(0.5)

    sa.event.listen(sa.Engine, "begin", count)
    threading.Thread(target=keep, daemon=True).start()
    sys.argv = ["coalmine", *arguments]
    coalmine()


def transactions(folder: Path) -> tuple[int, int]:
    """Give the numbers of reading and writing transactions of the service so far."""
    read, written = json.loads((folder / "counts").read_text("utf-8"))
    return read, written


@contextmanager
def service(folder: Path, database: str, settings: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the service until the end of the block."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COALMINE_")}
    environment |= {"COALMINE_DATABASE_URL": database, "COALMINE_AUTO_MIGRATE": "true"}
    environment |= {"COALMINE_CANARIES": str(folder / "canaries"), **settings}
    words = ["--", str(folder / "counts"), "serve", "--port", str(SERVICE_PORT), "--data-dir", str(folder)]
    with part("service", *words, environment=environment) as running:
        wait_until_ready(SERVICE_PORT, running)
        yield running


@contextmanager
def part(name: str, *words: str, environment: dict[str, str] | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a part of this benchmark as a process of its own."""
    command = [sys.executable, "-m", "benchmarks.many_checks", "--part", name, *words]
    with (Path(tempfile.gettempdir()) / f"many_checks_{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stderr=log, stdout=log)  # noqa: S603 - our own
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


class Stub(asyncio.Protocol):
    """Answers each request of a connection after 20 ms: the chunk of the query first, four others behind it.

    For pages it also answers questions and judges answers, and after `/lose/5` it loses the chunk of every fifth query.
    """

    loses = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection."""
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        """Answer what has come in whole."""
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        length = next(
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        )
        if len(rest) >= length:
            self._received = rest[length:]
            path, asked = head.split(b" ")[1].decode(), json.loads(rest[:length])
            asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._answer, path, asked)

    def _answer(self, path: str, asked: dict[str, Any]) -> None:
        if path.endswith("/chat/completions"):
            answer: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": "YES"}}]}
        elif path.startswith("/lose/"):
            type(self).loses = int(path.rpartition("/")[2])
            answer = {}
        else:
            answer = self._hits(asked["query"]) | {"answer": f"The chunk that answers {asked['query']}."}
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        assert isinstance(self._transport, asyncio.WriteTransport)
        self._transport.write(head.encode() + body)

    def _hits(self, query: str) -> dict[str, Any]:
        number = query.rpartition("-")[2]
        is_lost = self.loses and number.isdecimal() and int(number) % self.loses == 0
        hits = [] if is_lost else [{"id": query, "score": 0.9, "text": f"The chunk that answers {query}."}]
        hits += [{"id": f"other-{at}", "score": 0.8 - at / 10, "text": f"Another chunk, {at}."} for at in range(4)]
        return {"hits": hits}


async def answer() -> None:
    """Be the stub."""
    server = await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", STUB_PORT, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    main()
