"""Real replicas of Coalmine, a real Prometheus that scrapes them, and a real Alertmanager: as in operation.

Every port is the kernel's to choose and every database a copy, so that two sessions of tests never meet.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa
import yaml

from tests.conftest import Databases
from tests.support.http_servers import Reply, Seen, peer, reply
from tests.support.living import until
from tests.support.processes import Process, free_ports, started
from tests.support.world import CHECK, COVERAGE, RETRIEVER, canary, page

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-that-only-prometheus-knows"
CATEGORIES = {"fact": "simple_factual", "steps": "procedural"}
KEYS = tuple(f"{kind}-{number}" for kind in CATEGORIES for number in range(5))
"""Queries of the standard suite, each of which expects the chunk `doc-<key>`."""
BOTH: tuple[tuple[str, ...], ...] = ((), ())
"""The flags of two replicas that serve and work."""
RULED = {"rules": [{**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}], "hooks": []}

Sample = tuple[dict[str, str], float]


@contextmanager
def monitored(
    folder: Path, databases: Databases, *, configure: Mapping[str, Any] | None = None, **more: Any
) -> Iterator[tuple["Site", "Prometheus"]]:
    """Run two replicas of Coalmine on one PostgreSQL and a Prometheus that scrapes both every second.

    `configure` goes to `scraping`, `more` to `replicas`. Both targets are up and the first run is seen when this hands
    over. Prometheus begins first: it takes five seconds until it scrapes anything.
    """
    ports = [free_ports() for _ in more.get("flags", BOTH)]
    with (
        prometheus(folder / "prometheus", scraping(ports, **(configure or {}))) as watching,
        replicas(folder / "coalmine", databases, ports=ports, **more) as site,
    ):
        watching.until(f"count(up == 1) == {len(site.ports)}")
        watching.until(f"count(coalmine_last_run_timestamp_seconds) == {len(site.ports)}")
        yield site, watching


# --- a retriever that obeys --------------------------------------------------------------------------------------


@dataclass
class Commanded:
    """A retriever over HTTP whose answers the test commands."""

    lost: set[str] = field(default_factory=set)
    """Queries it no longer finds the expected chunk of."""
    status: int = 200
    """What it answers everything with; 503 = it is down."""
    index_version: str = "v1"
    planted: dict[str, str] = field(default_factory=dict)
    """Texts by id that were put to `/documents` and not removed."""

    def __call__(self, seen: Seen) -> Reply:
        """Answer a search, or take or remove a document."""
        if self.status != 200:
            return reply(b"{}", status=self.status)
        if seen.target.startswith("/documents"):
            if seen.method == "DELETE":
                self.planted.pop(seen.target.rpartition("/")[2], None)
            else:
                document = json.loads(seen.body)
                self.planted[document["id"]] = document["text"]
            return reply(b"{}")
        query = json.loads(seen.body)["q"]
        found = [{"id": "noise", "score": 0.4}]
        if query not in self.lost and not query.startswith("coalmine"):  # a marker is in what was planted alone
            found.insert(0, {"id": f"doc-{query}", "score": 0.9, "text": f"Text of {query}."})
        found += [{"id": name, "score": 0.5, "text": text} for name, text in self.planted.items() if query in text]
        return reply(json.dumps({"hits": found, "index": self.index_version}).encode())


# --- replicas of Coalmine ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Replicas on one database, and the retriever they watch."""

    processes: Sequence[Process]
    ports: Sequence[int]
    retriever: Commanded
    database: str
    databases: Databases
    canaries: Path
    client: httpx2.Client

    @property
    def urls(self) -> list[str]:
        """Where the replicas are."""
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    def run(self, check: str = CHECK, **wish: Any) -> dict[str, Any]:
        """Run a check now and give the ended run."""
        wish = {"wait_seconds": 60, **wish}
        answer = self.client.post(f"{self.urls[0]}/v1/checks/{check}/runs", json=wish)
        assert answer.status_code == 200, answer.text
        ended: dict[str, Any] = answer.json()
        return ended

    def get(self, path: str) -> dict[str, Any]:
        """Get of the API."""
        answer = self.client.get(f"{self.urls[0]}{path}")
        assert answer.status_code == 200, answer.text
        shape: dict[str, Any] = answer.json()
        return shape

    def metrics(self, replica: int = 0) -> str:
        """Scrape a replica."""
        answer = self.client.get(f"{self.urls[replica]}/metrics", headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200, answer.text
        return answer.text

    @contextmanager
    def degraded(self, *lost: str) -> Iterator[None]:
        """Let these queries find nothing expected any more (default: half of all), and have that measured."""
        self.retriever.lost |= set(lost or KEYS[: len(KEYS) // 2])
        self.retriever.index_version = "v2"
        self.run()
        try:
            yield
        finally:
            self.retriever.lost.clear()

    @contextmanager
    def retriever_down(self) -> Iterator[None]:
        """Let the retriever answer 503, and have that measured."""
        self.retriever.status = 503
        self.run()
        try:
            yield
        finally:
            self.retriever.status = 200

    @contextmanager
    def store_down(self) -> Iterator[None]:
        """Take the database away; it is back afterwards. Replicas notice within five seconds."""
        name = sa.make_url(self.database).database
        with self.databases.admin.connect() as connection:
            connection.exec_driver_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %(name)s", {"name": name}
            )
        try:
            yield
        finally:
            with self.databases.admin.connect() as connection:
                connection.exec_driver_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


def definitions(retriever: str, **check: Any) -> dict[str, Any]:
    """Describe the standard suite, two categories of five, and a check that only runs when told to."""
    canaries = [canary(key, category=CATEGORIES[key.partition("-")[0]], min_relevance_score=0.5) for key in KEYS]
    described = page(canaries, **{"schedule": {"every": "31d"}, **RULED, **check})
    response = {"hits": "hits", "id": "id", "score": "score", "index_version": "index"}
    return {**described, "retrievers": [{**RETRIEVER, "url": retriever, "response": response}], "hooks": []}


@contextmanager
def replicas(
    folder: Path,
    databases: Databases,
    *,
    flags: Sequence[Sequence[str]] = BOTH,
    ports: Sequence[int] = (),
    change: Callable[[dict[str, Any]], Mapping[str, Any]] = dict,
    environment: Mapping[str, str] | None = None,
    **check: Any,
) -> Iterator[Site]:
    """Serve a replica for each of `flags` (such as `["--no-worker"]`), all on one PostgreSQL, over one canary file.

    `check` changes fields of the check, `change` the whole file. The first run has ended when this hands over.
    """
    folder.mkdir(parents=True)
    retriever, url = Commanded(), databases.postgresql()
    canaries = folder / "canaries.yaml"
    given = {
        "COALMINE_DATABASE_URL": url,
        "COALMINE_SECRET_KEY": "one key for all replicas 0123456789",
        "COALMINE_METRICS_TOKEN": TOKEN,
        "COALMINE_CANARIES": str(canaries),
        "COALMINE_HOOK_ALLOW": "127.0.0.0/8",
        **(environment or {}),
    }
    with ExitStack() as stack:
        asked = stack.enter_context(peer(retriever))
        canaries.write_text(json.dumps(change(definitions(f"{asked.url}/", **check))), encoding="utf-8")  # JSON is YAML
        processes = []
        ports = ports or [free_ports() for _ in flags]
        for port, more in zip(ports, flags, strict=True):
            home = folder / f"replica-{port}"
            home.mkdir()
            arguments = ("serve", "--port", port, "--data-dir", home, *more)
            processes.append(stack.enter_context(started(home, *arguments, **given)))
        for process in processes:
            process.wait_for("is serving")
        site = Site(
            processes=processes,
            ports=ports,
            retriever=retriever,
            database=url,
            databases=databases,
            canaries=canaries,
            # A connection that is kept may be closed by the server in the moment in which it is used again.
            client=stack.enter_context(httpx2.Client(timeout=90, limits=httpx2.Limits(max_keepalive_connections=0))),
        )
        until(lambda: _ran(site), seconds=60)
        yield site


def _ran(site: Site) -> bool:
    return site.client.get(f"{site.urls[0]}/v1/checks/{CHECK}/health").status_code == 200


# --- Prometheus --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A running Prometheus."""

    url: str
    process: subprocess.Popen[bytes]
    client: httpx2.Client

    def ask(self, path: str, **parameters: Any) -> Any:
        """Get of the API v1; gives `data`."""
        answer = self.client.get(f"{self.url}/api/v1/{path}", params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def instant(self, query: str, **parameters: Any) -> list[Sample]:
        """Ask now: (labels, value) of every series, none where there is nothing. Asserts that the query is sound."""
        data = self.ask("query", query=query, **parameters)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]

    def range(self, query: str, *, start: float, end: float, step: float = 1) -> list[dict[str, Any]]:
        """Ask over time: `metric` and `values` of every series."""
        found: list[dict[str, Any]] = self.ask("query_range", query=query, start=start, end=end, step=step)["result"]
        return found

    def exemplars(self, query: str, *, start: float, end: float) -> list[dict[str, Any]]:
        """Give the exemplars of series: `seriesLabels` and `exemplars`."""
        found: list[dict[str, Any]] = self.ask("query_exemplars", query=query, start=start, end=end)
        return found

    def until(self, query: str, *, seconds: float = 30) -> list[Sample]:
        """Wait until a query gives something, and give that. `count(...) == 2` gives nothing until it holds."""
        found: list[Sample] = until(lambda: self.instant(query), seconds=seconds)
        return found

    def value(self, query: str) -> float:
        """Give the value of the only series."""
        ((_, value),) = self.instant(query)
        return value


def scraping(ports: Sequence[int], **more: Any) -> dict[str, Any]:
    """Configure a scrape of these ports each second under the job of the shipped configuration."""
    job = {
        "job_name": "coalmine",
        "authorization": {"type": "Bearer", "credentials": TOKEN},
        "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
    }
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [job],
        **more,
    }


@contextmanager
def prometheus(
    folder: Path, config: Mapping[str, Any], options: Mapping[str, str] | None = None
) -> Iterator[Prometheus]:
    """Run Prometheus with this configuration and the storage of exemplars; paths in it are relative to `folder`."""
    program = needed("prometheus")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
    port = free_ports()
    arguments = {
        "config.file": folder / "prometheus.yml",
        "storage.tsdb.path": folder / "data",
        "web.listen-address": f"127.0.0.1:{port}",
        "enable-feature": "exemplar-storage",
        "log.level": "warn",
        **(options or {}),
    }
    url = f"http://127.0.0.1:{port}"
    with running(program, arguments, folder, f"{url}/-/ready") as process, httpx2.Client(timeout=30) as client:
        yield Prometheus(url=url, process=process, client=client)


@contextmanager
def alertmanager(folder: Path, config: Mapping[str, Any]) -> Iterator[str]:
    """Run Alertmanager, alone, with this configuration; gives its address."""
    program = needed("prometheus-alertmanager")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
    port = free_ports()
    arguments = {
        "config.file": folder / "alertmanager.yml",
        "storage.path": folder / "data",
        "cluster.listen-address": "",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    url = f"http://127.0.0.1:{port}"
    with running(program, arguments, folder, f"{url}/-/ready"):
        yield url


def needed(program: str) -> str:
    """Find a program, or skip and say what to install."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"needs {program}, which make test-systems installs where it may (root and apt-get)")
    return found


@contextmanager
def running(
    program: str, arguments: Mapping[str, object], folder: Path, ready: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends, once it has said at `ready` that it is."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - a program we installed
            [program, *(f"--{name}={value}" for name, value in arguments.items())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        with httpx2.Client(timeout=5) as client:
            until(lambda: process.poll() is not None or _answers(client, ready), seconds=60)
        assert process.poll() is None, (folder / "log").read_text()
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _answers(client: httpx2.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == 200
    except httpx2.HTTPError:
        return False
