"""The trial on a retriever that somebody else wrote: what is noticed, who is named, what is said, how often it pages.

    python -m benchmarks.real_retriever [FOLDER]

FOLDER (default ../shared/data/cranfield) holds docs.jsonl.gz {doc_id, title, text} and queries.jsonl.gz {qid, text,
qrels: {doc_id: grade}}. A real Chroma (`.venv-servers`) holds the documents as chunks, see `chroma_collection`; the
real service watches it by two checks: `imported`, the collection's own questions as `coalmine import` makes them, and
`passages`, known items by id and text. Both have the rules `regression` and `latency`, and one webhook. After 25
healthy runs each fault is made, watched until three runs after it was noticed, and healed. About 15 minutes.
"""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx2

from benchmarks.chroma_collection import MODEL, NAME, Chunk, Collection, Embedder, cut
from benchmarks.text_indexes import read_lines

HEALTHY_RUNS: Final = 25
MOST_RUNS: Final = 8
RUNS_AFTER: Final = 3
CHECKS: Final = ("imported", "passages")
_CHARACTERS = 450
_RECUT_CHARACTERS = 300
_PASSAGES = 143
_COPIES = 4
"""Of each duplicated document, beside itself. One copy harms hardly a canary: what it expects is still found."""
_WORSE_BY = 0.1
_LISTED = 10
_HELD_SECONDS = 45.0
"""News waits up to 30 s for the causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong, how it is mended, and what the first line of its page has to say."""

    name: str
    make: Callable[[Collection], None]
    heal: Callable[[Collection], None]
    cause: str
    """A regular expression, `{port}` and `{embedder}` standing for where the two are."""
    names_canaries: bool = True


@dataclass(kw_only=True)
class Row:
    """What came of a fault at one check."""

    fault: str
    check: str
    noticed: int | None = None
    fell: int = 0
    right: int = 0
    wrong: int = 0
    missing: int = 0
    cause_right: bool = False
    pages: int = 0
    later: int = 0
    """Escalations and updates."""
    incidents: int = 0
    resolves: int = 0
    healed: int | None = None
    """Runs after the heal until no alert was open."""
    still_regressed: int = 0
    """Canaries the first good run after the heal calls regressed."""
    summary: str = ""
    resolve: str = ""


@dataclass(kw_only=True)
class Receiver:
    """A webhook receiver that keeps what it is sent."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def of(self, check: str, since: int) -> list[dict[str, Any]]:
        """List the messages about a check after the first `since`."""
        return [one for one in self.messages[since:] if one["data"].get("check") == check]


def main() -> None:
    """Print a line a fault and check, and what each page and each resolve said."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data/cranfield")
    documents = {one["doc_id"]: one for one in read_lines(folder / "docs.jsonl.gz") if one["text"]}
    texts = {name: one["text"] for name, one in documents.items()}
    chunks = cut(texts, _CHARACTERS)
    embedders = [Embedder([chunk.text for chunk in chunks], by_words=by_words) for by_words in (True, False)]
    with (
        tempfile.TemporaryDirectory() as home,
        receiving() as receiver,
        Collection(folder=Path(home), embedders=embedders, chunks=chunks).running() as collection,
    ):
        suites = Path(home) / "canaries"
        write_files(suites, folder, documents, chunks, collection, receiver)
        with service(Path(home), suites) as client:
            trial = Trial(client=client, collection=collection, receiver=receiver)
            print(f"{len(documents)} documents, {len(chunks)} chunks", flush=True)
            trial.watch_healthy()
            for fault in faults(chunks, texts):
                for row in trial.run(fault):
                    show(row)
            print(f"messages in all: {len(receiver.messages)}")


def faults(chunks: Sequence[Chunk], texts: Mapping[str, str]) -> tuple[Fault, ...]:
    """List the faults of the trial in their order."""
    draw = random.Random(5)  # noqa: S311 - a repeatable choice
    names = sorted(texts)
    deleted = set(draw.sample(names, len(names) // 20))
    gone = [chunk for chunk in chunks if chunk.document in deleted]
    doubled = set(draw.sample(names, len(names) // 5))
    copies = [
        Chunk(id=f"copy-{number}-{chunk.id}", document=chunk.document, text=chunk.text)
        for number in range(_COPIES)
        for chunk in chunks
        if chunk.document in doubled
    ]
    recut = cut(texts, _RECUT_CHARACTERS, prefix="v2-")

    def set_fault(name: str, value: object) -> Callable[[Collection], None]:
        return lambda collection: setattr(collection.faults, name, value)

    return (
        Fault(
            name="5 % of the documents deleted",
            make=lambda one: one.delete(gone),
            heal=Collection.restore,
            cause=r"missing from the index",
        ),
        Fault(
            name="all re-cut",
            make=lambda one: one.index(recut),
            heal=Collection.restore,
            cause=r"re-?chunked|re-?cut|other ids|new ids",
        ),
        Fault(
            name="embedder swapped",
            make=set_fault("embedder", 1),
            heal=set_fault("embedder", 0),
            cause=r"embedder",
        ),
        Fault(
            name="20 % duplicated four times",
            make=lambda one: one.add(copies),
            heal=Collection.restore,
            cause=r"duplicate|cop(y|ies)",
        ),
        Fault(
            name="server stopped",
            make=Collection.stop,
            heal=Collection.start,
            cause=r"not measurable.*127\.0\.0\.1:{port}\b",
            names_canaries=False,
        ),
        Fault(
            name="embedder down",
            make=set_fault("embedder_status", 500),
            heal=set_fault("embedder_status", 200),
            cause=r"not measurable.*embedder of \S+ at 127\.0\.0\.1:{embedder} answers HTTP 500",
            names_canaries=False,
        ),
        Fault(
            name="1.2 s slower",
            make=set_fault("delay_seconds", 1.2),
            heal=set_fault("delay_seconds", 0.0),
            cause=r"latency",
            names_canaries=False,
        ),
    )


@dataclass(kw_only=True)
class Trial:
    """The faults, one after the other, at one service."""

    client: httpx2.Client
    collection: Collection
    receiver: Receiver
    _healthy: dict[str, str] = field(default_factory=dict)
    """The newest run of each check before the fault."""

    def watch_healthy(self) -> None:
        """Run both checks until they have a baseline."""
        for _ in range(HEALTHY_RUNS):
            for check in CHECKS:
                self._healthy[check] = self._run(check)["id"]
        for check in CHECKS:
            run = self.client.get(f"/v1/checks/{check}/health").json()
            print(f"{check}: {run['canaries']}, {run['verdict']}, coverage {run['coverage']:.3f}")
        print(f"messages while healthy: {len(self.receiver.messages)}", flush=True)

    def run(self, fault: Fault) -> list[Row]:
        """Make a fault, watch, heal it, watch; a row for each check."""
        before = len(self.receiver.messages)
        rows = {check: Row(fault=fault.name, check=check) for check in CHECKS}
        fault.make(self.collection)
        after = dict.fromkeys(CHECKS, 0)
        for number in range(1, MOST_RUNS + RUNS_AFTER + 1):
            for check, row in rows.items():
                if after[check] >= RUNS_AFTER or (row.noticed is None and number > MOST_RUNS):
                    continue
                run = self._run(check)
                if row.noticed is not None:
                    after[check] += 1
                elif self._open(check):
                    row.noticed = number
                    self._judge(row, run, fault, before)
        fault.heal(self.collection)
        for check, row in rows.items():
            self._recover(row, check)
            heard = self.receiver.of(check, before)
            row.pages = sum(one["type"] == "alert.opened" for one in heard)
            row.later = sum(one["type"] in {"alert.escalated", "alert.updated"} for one in heard)
            row.incidents = len({one["data"].get("incident_id") for one in heard})
            resolves = [one["data"]["summary"] for one in heard if one["type"] == "alert.resolved"]
            row.resolves, row.resolve = len(resolves), "; ".join(resolves)
        return list(rows.values())

    def _recover(self, row: Row, check: str) -> None:
        """Run a check until all is well, and once more."""
        for number in range(MOST_RUNS):
            run = self._run(check)
            if number == 0:
                results = self._results(run["id"])
                row.still_regressed = sum(
                    "regressed" in one["reasons"] and bool(one["any_match"]) for one in results.values()
                )
            if not self._open(check):
                row.healed = number + 1
                break
        self._healthy[check] = self._run(check)["id"]
        time.sleep(1)
        self._wait_for_deliveries()

    def _judge(self, row: Row, run: Mapping[str, Any], fault: Fault, before: int) -> None:
        self._wait_for_deliveries()
        opened = next((one for one in self.receiver.of(row.check, before) if one["type"] == "alert.opened"), None)
        if opened is None:
            return
        data = opened["data"]
        row.summary = data["summary"]
        places = {"{port}": str(self.collection.port), "{embedder}": self.collection.embedder_url.split(":")[2][:5]}
        pattern = re.sub(r"\{(port|embedder)\}", lambda found: re.escape(places[found[0]].strip("/")), fault.cause)
        row.cause_right = re.search(pattern, row.summary, re.IGNORECASE) is not None
        listed = {canary["key"] for canary in data["degraded"]}
        lost, fell = self._changed(row.check, run["id"]) if fault.names_canaries else (set(), set())
        row.fell, row.right, row.wrong = len(fell), len(listed & fell), len(listed - fell)
        row.missing = max(min(_LISTED, len(lost)) - len(listed & fell), 0)

    def _changed(self, check: str, run_id: str) -> tuple[set[str], set[str]]:
        """Compare a run with the one before the fault: who lost what it expects, and who is worse, those included."""
        past, now = self._results(self._healthy[check]), self._results(run_id)
        lost = {key for key in past if past[key]["any_match"] and not now[key]["any_match"]}
        name = "NDCG@10"
        worse = {key for key in past if (past[key]["measures"][name] - now[key]["measures"][name]) > _WORSE_BY}
        return lost, lost | worse

    def _run(self, check: str) -> dict[str, Any]:
        answer = self.client.post(f"/v1/checks/{check}/runs", json={"wait_seconds": 60, "trigger": "api"})
        run: dict[str, Any] = answer.raise_for_status().json()
        while run["status"] in {"queued", "running"}:
            time.sleep(0.5)
            run = self.client.get(f"/v1/runs/{run['id']}").raise_for_status().json()
        return run

    def _open(self, check: str) -> list[dict[str, Any]]:
        alerts = self.client.get("/v1/alerts", params={"check": check, "limit": 50}).raise_for_status().json()["items"]
        return [one for one in alerts if one["state"] in {"firing", "recovering"}]

    def _results(self, run_id: str) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        following: dict[str, str] = {}
        while True:
            page = self.client.get(f"/v1/runs/{run_id}/results", params={"limit": 200, **following}).raise_for_status()
            found |= {one["key"]: one for one in page.json()["items"]}
            if not page.json()["next"]:
                return found
            following = {"after": page.json()["next"]}

    def _wait_for_deliveries(self) -> None:
        until = time.monotonic() + _HELD_SECONDS
        while time.monotonic() < until:
            waiting = self.client.get("/v1/deliveries", params={"state": "pending"}).raise_for_status().json()["items"]
            if not waiting:
                return
            time.sleep(0.5)


def show(row: Row) -> None:
    """Print what came of a fault at a check."""
    print(
        f"{row.fault:30} {row.check:9} noticed {row.noticed}  fell {row.fell:3}  listed right {row.right:2}"
        f" wrong {row.wrong} missing {row.missing}  cause {'right' if row.cause_right else 'WRONG'}"
        f"  pages {row.pages} (+{row.later})  incidents {row.incidents}  resolves {row.resolves}"
        f" after {row.healed} runs  regressed after heal {row.still_regressed}"
    )
    print(f"    page:    {row.summary}\n    resolve: {row.resolve}", flush=True)


# --- setting up ----------------------------------------------------------------------------------------------


def write_files(
    suites: Path,
    folder: Path,
    documents: Mapping[str, Mapping[str, str]],
    chunks: Sequence[Chunk],
    collection: Collection,
    receiver: Receiver,
) -> None:
    """Write the canary files of the trial: one imported by the command, one with the known items and the checks."""
    beir = suites.parent / "beir"
    (beir / "qrels").mkdir(parents=True)
    suites.mkdir()
    queries = read_lines(folder / "queries.jsonl.gz")
    (beir / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": one["qid"], "text": one["text"]}) + "\n" for one in queries)
    )
    judged = [f"{one['qid']}\t{name}\t{grade}\n" for one in queries for name, grade in one["qrels"].items()]
    (beir / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))
    into = suites / "imported.yaml"
    command("import", "--from", "beir", beir, "--suite", "imported", "--as-documents", "--to", into)
    common = {
        "retriever": "chroma",
        "schedule": {"every": "1d"},
        "rules": [{"kind": "regression"}, {"kind": "latency", "critical": {"above": "800ms"}}],
        "hooks": ["receiver"],
    }
    content = {
        "suite": "passages",
        "canaries": known_items(documents, chunks),
        "retrievers": [
            {
                "slug": "chroma",
                "preset": "chroma",
                "url": f"http://127.0.0.1:{collection.port}",
                "options": {"collection": NAME},
                "embedding": {"url": collection.embedder_url, "model": MODEL},
            }
        ],
        "checks": [{"slug": name, "suite": name, **common} for name in CHECKS],
        "hooks": [{"slug": "receiver", "kind": "webhook", "url": receiver.url, "secret": "whsec_" + "dHJpYWwt" * 4}],
    }
    (suites / "trial.yaml").write_text(json.dumps(content, indent=1))  # JSON is YAML
    command("validate", suites)


def known_items(documents: Mapping[str, Mapping[str, str]], chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    """Make canaries of documents: a title and some words of a chunk ask for it, expected by its id and a passage."""
    draw = random.Random(11)  # noqa: S311 - a repeatable choice
    long = [chunk for chunk in chunks if len(chunk.text.split()) >= 60]
    canaries = []
    for chunk in draw.sample(long, _PASSAGES):
        words = chunk.text.split()
        start = draw.randrange(len(words) - 30)
        asked = draw.sample([word for word in words if len(word) > 4], 8)
        canaries.append(
            {
                "key": f"known-{chunk.id}",
                "query": f"{documents[chunk.document]['title']} {' '.join(asked)}",
                "expected_chunks": [{"id": chunk.id, "text": " ".join(words[start : start + 30])}],
            }
        )
    return canaries


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Receive webhooks on a free port of 127.0.0.1."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.messages.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield receiver
    server.shutdown()


@contextmanager
def service(home: Path, suites: Path) -> Iterator[httpx2.Client]:
    """Run the real service over the files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as free:
        port = free.server_port
    options = ["serve", "--port", str(port), "--data-dir", str(home / "data"), "--canaries", str(suites)]
    environment = {**os.environ, "COALMINE_HOOK_ALLOW": "127.0.0.0/8"}
    with (home / "service.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "app.cli", *options], stdout=log, stderr=log, env=environment)  # noqa: S603 - our own
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False) as client:
            for _ in range(600):
                with suppress(httpx2.TransportError):
                    if client.get("/readyz").is_success:
                        break
                time.sleep(0.1)
            yield client
    finally:
        process.terminate()
        process.wait(60)


def command(*arguments: object) -> None:
    """Run a command of Coalmine, and show what it says."""
    subprocess.run([sys.executable, "-m", "app.cli", *map(str, arguments)], check=True)  # noqa: S603 - our own command


if __name__ == "__main__":
    main()
