"""A million exposures and outcomes by REST, with the service killed on the way: rate, exactness, and time of a read.

    python -m benchmarks.experiment_intake [UNITS]

On SQLite, and on a PostgreSQL of its own that does not wait for its disk, so that its rate is an upper bound, a served
Coalmine is sent UNITS (default 1,000,000) exposures and as many outcomes, 10,000 a request, by one client. Midway
through each it is killed with SIGKILL while a request is on its way; the client starts it again and sends that request
again. It fails unless every unit counts exactly once. With it stands the time to read the experiment.
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import psutil

from app.experiments.domain.experiments import assign_arm
from tests.conftest import running_postgresql
from tests.support.processes import Process, free_ports

BATCH: Final = 10_000
SLUG: Final = "intake"
KILL_AFTER_SECONDS: Final = 0.05


Rate = tuple[float, float]
"""Items a second, and CPU seconds of the service for each."""


@dataclass(slots=True, kw_only=True)
class Server:
    """A served Coalmine that is started again after a kill."""

    folder: Path
    environment: dict[str, str]
    port: int = field(default_factory=free_ports)
    process: Process | None = None
    with_worker: bool = False

    def start(self) -> None:
        """Start it and wait until it serves."""
        apart = () if self.with_worker else ("--no-worker",)
        arguments = ("serve", *apart, "--port", self.port, "--data-dir", self.folder / "data")
        self.process = Process(self.folder, *arguments, **self.environment)
        self.process.wait_for("is serving")

    def kill(self) -> None:
        """Kill it at once."""
        assert self.process is not None
        self.process.end(SIGKILL)

    def cpu_seconds(self) -> float:
        """CPU that the process has used, without that of the database's server."""
        assert self.process is not None
        times = psutil.Process(self.process.popen.pid).cpu_times()
        return float(times.user + times.system)

    def send(self, method: str, path: str, body: str | None = None) -> Any:
        """Send a request and return the answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        assert answer.status < 300, (answer.status, content[:500])
        return json.loads(content)


def main(units: int = 1_000_000) -> None:
    """Print the rates on both databases."""
    print("| database | exposures/s | CPU us each | outcomes/s | CPU us each | kills | read, with 200 looks |")
    print("|---|---|---|---|---|---|---|")
    for name in ("SQLite", "PostgreSQL"):
        with served(name) as server:
            exposures, outcomes, read = measure(server, units)
        rates = " | ".join(f"{rate:,.0f} | {cpu * 1e6:.0f}" for rate, cpu in (exposures, outcomes))
        print(f"| {name} | {rates} | 2 | {read * 1_000:.0f} ms |", flush=True)


@contextmanager
def served(name: str) -> Iterator[Server]:
    """Serve Coalmine over an empty database."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(running_postgresql()).url if name == "PostgreSQL" else None
        server = Server(
            folder=folder,
            environment={} if url is None else {"COALMINE_DATABASE_URL": url, "COALMINE_AUTO_MIGRATE": "true"},
        )
        server.start()
        stack.callback(server.kill)
        yield server


def measure(server: Server, units: int) -> tuple[Rate, Rate, float]:
    """Return the rates of exposures and outcomes, and the seconds of a read; asserts that every unit counted once."""
    arms = [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5}]
    server.send("PUT", f"/v1/experiments/{SLUG}", json.dumps({"arms": arms, "window": "1h", "max_units": units}))
    names = [f"user-{number}" for number in range(units)]
    exposures = [{"unit": name, "at": at_hour(place)} for place, name in enumerate(names)]
    outcomes = [
        {"event_id": f"event-{name}", "unit": name, "value": int(place % 3 == 0), "at": at_hour(place)}
        for place, name in enumerate(names)
    ]
    rates = [send_all(server, kind, items) for kind, items in (("exposures", exposures), ("outcomes", outcomes))]
    server.send("GET", f"/v1/experiments/{SLUG}")
    started = time.perf_counter()
    found = server.send("GET", f"/v1/experiments/{SLUG}")
    read = time.perf_counter() - started
    second = sum(assign_arm(SLUG, 1, name, (0.5, 0.5)) for name in names)
    assert [arm["exposed"] for arm in found["arms"]] == [units - second, second], found["arms"]
    assert sum(arm["successes"] for arm in found["arms"]) == len(range(0, units, 3)), found["arms"]
    return rates[0], rates[1], read


def send_all(server: Server, kind: str, items: Sequence[dict[str, Any]]) -> Rate:
    """Send items in batches, one of them twice because of a kill; the rate leaves that batch out."""
    path, seconds, cpu, sent = f"/v1/experiments/{SLUG}/{kind}", 0.0, 0.0, 0
    batches = [items[begin : begin + BATCH] for begin in range(0, len(items), BATCH)]
    for place, batch in enumerate(batches):
        body = json.dumps(batch)
        if place == len(batches) // 2:
            killer = threading.Timer(KILL_AFTER_SECONDS, server.kill)
            killer.start()
            with suppress(OSError, HTTPException):
                server.send("POST", path, body)
            killer.join()
            server.start()
            server.send("POST", path, body)
            continue
        started, used = time.perf_counter(), server.cpu_seconds()
        server.send("POST", path, body)
        seconds += time.perf_counter() - started
        cpu += server.cpu_seconds() - used
        sent += len(batch)
    return sent / seconds, cpu / sent


def at_hour(place: int) -> str:
    """Return a time: units come over 200 hours."""
    day, hour = divmod(place % 200, 24)
    return f"2026-11-{day + 1:02}T{hour:02}:30:00Z"


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
