"""A service that is killed amid its jobs of annotation, as a real process.

`python -m tests.annotation.kills` prints what became of it at the sizes that the documentation names: seconds, peak
memory of the service, size of its file. The retrievers are three servers here. Whoever asks nothing twice has lost
nothing, so their requests are counted.
"""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2

from tests.support.http_servers import Peer, Reply, Seen, peer, reply
from tests.support.living import until
from tests.support.processes import Process, free_ports, started
from tests.support.world import RETRIEVER, canary

DISTINCT: Final = 100_000
CANARIES: Final = 1_000
RETRIEVERS: Final = ("first", "second", "third")
ITEMS_OF_A_CANARY: Final = 40
"""20 in the pool, 10 of the 20 down to rank 30 and 10 of the 70 down to rank 100."""
BLOCK: Final = 20
"""Queries of which the answers may be lost with a process, and are asked for again."""
_SHIFT: Final = 5
_SECONDS: Final = 300.0


@dataclass(kw_only=True)
class Trial:
    """A service on a file of its own, its retrievers, and what was measured."""

    folder: Path
    retrievers: list[Peer]
    port: int = field(default_factory=free_ports)
    process: Process | None = None
    stack: ExitStack = field(default_factory=ExitStack)
    peak_mb: float = 0.0
    cpu_seconds: float = 0.0
    began: float = field(default_factory=time.perf_counter)

    @property
    def url(self) -> str:
        """Address of the service."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def file_mb(self) -> float:
        """Size of the database."""
        return sum(file.stat().st_size for file in (self.folder / "data").glob("coalmine.db*")) / 1e6

    @property
    def figures(self) -> str:
        """What it took, in words."""
        taken = time.perf_counter() - self.began
        used = f"{self.cpu_seconds:.0f} s of one core, {self.peak_mb:.0f} MB of memory at most"
        return f"{taken:.0f} s, the service {used}, {self.file_mb:.0f} MB on disk"

    def start(self) -> None:
        """Start the service, again after its end, and wait until it is ready."""
        arguments = ("serve", "--port", self.port, "--data-dir", self.folder / "data")
        self.process = self.stack.enter_context(
            started(self.folder, *arguments, "--canaries", self.folder / "canaries.yaml")
        )
        until(self.is_ready, seconds=_SECONDS)

    def kill(self) -> None:
        """Kill the service as it stands."""
        assert self.process is not None
        self.note_use()
        assert self.process.end(signal.SIGKILL) == -signal.SIGKILL, self.process.said

    def note_use(self) -> None:
        """Read what a service has used that is about to end: time of processors, and the most memory it ever held."""
        assert self.process is not None
        proc = Path(f"/proc/{self.process.popen.pid}")
        peak = next(line for line in (proc / "status").read_text().splitlines() if line.startswith("VmHWM"))
        self.peak_mb = max(self.peak_mb, int(peak.split()[1]) / 1_000)
        ticks = (proc / "stat").read_text().rpartition(")")[2].split()[11:13]
        self.cpu_seconds += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def is_ready(self) -> bool:
        """Whether it answers from its database."""
        assert self.process is not None
        assert self.process.popen.poll() is None, self.process.said
        try:
            return httpx2.get(f"{self.url}/readyz", timeout=10, trust_env=False).is_success
        except httpx2.TransportError:
            return False

    def call(self, method: str, path: str, **body: Any) -> Any:
        """Ask its API. Raises TransportError where it is gone."""
        sent, asked = (body, None) if method in {"PUT", "POST"} else (None, body)
        answer = httpx2.request(method, self.url + path, json=sent, params=asked, timeout=60, trust_env=False)
        assert answer.is_success, answer.text
        return answer.json()

    def asked(self) -> int:
        """Count the requests to all retrievers."""
        return sum(len(one.seen) for one in self.retrievers)

    def wait_asked(self, number: float) -> None:
        """Wait for so many requests, without asking the service, which has enough to do."""
        until(lambda: self.asked() >= number, seconds=_SECONDS)


@contextmanager
def trial(folder: Path, *, canaries: int, requests_per_second: int) -> Iterator[Trial]:
    """Start a service with so many canaries of one suite and three retrievers; afterwards all is gone."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        peers = [stack.enter_context(peer(_answers(place))) for place in range(len(RETRIEVERS))]
        described = {
            "suite": "suite",
            "canaries": [canary(f"q{number:04}", query=f"question {number:04}") for number in range(canaries)],
            "retrievers": [
                {
                    **RETRIEVER,
                    "slug": slug,
                    "url": f"{one.url}/search",
                    "response": {**RETRIEVER["response"], "text": "text", "document": "document"},
                    "concurrency": 8,
                    "requests_per_second": requests_per_second,
                }
                for slug, one in zip(RETRIEVERS, peers, strict=True)
            ],
        }
        (folder / "canaries.yaml").write_text(json.dumps(described), encoding="utf-8")  # JSON is YAML
        made = stack.enter_context(_closing(Trial(folder=folder, retrievers=peers)))
        made.start()
        yield made


def kill_amid_traffic(folder: Path, *, queries: int = DISTINCT) -> Trial:
    """Send queries of users and ask for reach; kill the service amid both."""
    with trial(folder, canaries=60, requests_per_second=150) as made:
        file, total = folder / "traffic.csv", 0
        with file.open("w", encoding="utf-8") as stream:
            stream.write("query,count\n")
            for number in range(queries):
                count = 1 + 200 // (1 + number)
                total += count
                stream.write(f"how does one do number {number:06}?,{count}\n")
        command = ("traffic", file, "--suite", "suite", "--retriever", "first", "--server", made.url)
        with started(folder, *command) as sending:
            until(lambda: 0 < distinct(made) < queries, seconds=_SECONDS)
            made.kill()
            assert sending.end() != 0, "the command says that it broke off"
        made.start()
        assert 0 < distinct(made) < queries, "what was taken in is there"
        with started(folder, *command) as sending:
            assert sending.popen.wait(_SECONDS) == 0, sending.said
        [found] = made.call("GET", "/v1/suites/suite/traffic")["items"]
        assert (found["distinct"], found["traffic"]) == (queries, total), "once each, whatever was sent again"
        reach = made.call("POST", "/v1/suites/suite/reach", retriever="first")
        made.wait_asked(reach["sample"] / 2)
        half = until(lambda: read_reach(made)["asked"], seconds=_SECONDS)
        made.kill()
        made.start()
        assert half <= read_reach(made)["asked"] < reach["sample"], "what was asked stays asked, as the page shows"
        until(lambda: read_reach(made)["state"] == "asked", seconds=_SECONDS)
        ended = read_reach(made)
        assert ended["answered"] == ended["asked"] == ended["sample"], ended
        assert ended["value"] is not None
        assert made.asked() <= ended["sample"] + BLOCK, "nothing is asked twice but the block in work"
        made.note_use()
        return made


def distinct(made: Trial) -> int:
    """Count the queries that were taken in."""
    return sum(one["distinct"] for one in made.call("GET", "/v1/suites/suite/traffic")["items"])


def read_reach(made: Trial) -> Any:
    """Read the reach of the suite."""
    return made.call("GET", "/v1/suites/suite/reach", retriever="first")


def kill_amid_pool(folder: Path, *, canaries: int = CANARIES, requests_per_second: int = 400) -> Trial:
    """Pool canaries over three retrievers while somebody annotates; kill the service, and once more after."""
    with trial(folder, canaries=canaries, requests_per_second=requests_per_second) as made:
        strata = [{"to": 30, "sample": 10}, {"to": 100, "sample": 10}]
        made.call("PUT", "/v1/tasks/truth", suite="suite", retrievers=list(RETRIEVERS), pool=10, strata=strata)
        made.call("POST", "/v1/tasks/truth/pool")
        stored: dict[str, int] = {}
        with _annotating(made, stored):
            made.wait_asked(canaries * len(RETRIEVERS) / 2)
            half = made.call("GET", "/v1/tasks/truth")["pooled"]
            made.kill()
        made.start()
        assert 0 < half <= made.call("GET", "/v1/tasks/truth")["pooled"] < canaries, "what was pooled stays pooled"
        made.wait_asked(canaries * len(RETRIEVERS))
        until(lambda: made.call("GET", "/v1/tasks/truth")["state"] == "pooled", seconds=_SECONDS)
        before = len(stored)
        with _annotating(made, stored):
            until(lambda: len(stored) >= before + 50, seconds=_SECONDS)
            made.kill()
        made.start()
        assert len(stored) > before > 0
        for token, grade in stored.items():
            found = made.call("GET", f"/v1/tasks/truth/items/{token}", annotator="Ann")
            assert found["grade"] == grade, "what was annotated stays so"
        progress = made.call("GET", "/v1/tasks/truth/next", annotator="Ann")["progress"]
        assert len(stored) <= progress["graded"] <= len(stored) + 3, "but for answers that were lost with a process"
        task = made.call("GET", "/v1/tasks/truth")
        assert (task["pooled"], task["failed"]) == (canaries, 0), task
        assert task["items"] == canaries * ITEMS_OF_A_CANARY, "each canary once, whole"
        most = (canaries + BLOCK) * len(RETRIEVERS)
        assert made.asked() <= most, "nothing is asked twice but the block in work"
        made.note_use()
        return made


@contextmanager
def _annotating(made: Trial, stored: dict[str, int]) -> Iterator[None]:
    """Grade one item after the other until the service is gone; `stored` has what it said it stored."""

    def work() -> None:
        try:
            while (item := made.call("GET", "/v1/tasks/truth/next", annotator="Ann")["item"]) is not None:
                grade = len(stored) % 3
                path = f"/v1/tasks/truth/items/{item['id']}/annotation"
                made.call("PUT", path, annotator="Ann", grade=grade, seconds=2)
                stored[item["id"]] = grade
        except httpx2.TransportError:
            return  # it was killed, as it shall be

    thread = threading.Thread(target=work)
    until(lambda: made.call("GET", "/v1/tasks/truth/next", annotator="Ann")["item"] is not None, seconds=_SECONDS)
    thread.start()
    try:
        yield
    finally:
        thread.join(60)
    assert not thread.is_alive()


def _answers(place: int) -> Any:
    """Return how a retriever answers: texts numbered from a number of its own on, the same each time."""

    def answer(seen: Seen) -> Reply:
        asked = json.loads(seen.body)
        query = asked["q"]
        hits = [
            {
                "id": f"{query}-{number}",
                "score": round(1 - number / 1_000, 3),
                "text": f"Passage {number} says something about {query}, in a sentence or two as passages do.",
                "document": f"page {sum(map(ord, query)) % 50}",
            }
            for number in range(place * _SHIFT, place * _SHIFT + int(asked["k"]))
        ]
        return reply(json.dumps({"hits": hits}).encode())

    return answer


@contextmanager
def _closing(made: Trial) -> Iterator[Trial]:
    with made.stack:
        yield made


def main() -> None:
    """Print what both trials took."""
    for name, attempt in (("traffic", kill_amid_traffic), ("pool", kill_amid_pool)):
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(f"{name}: {attempt(Path(folder)).figures}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
