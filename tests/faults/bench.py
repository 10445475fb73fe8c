"""What faults are tried on: services on one database, a retriever and a receiver that log, and busy checks."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import sqlalchemy as sa

from app.alerts.tables import transitions
from app.hooks.tables import deliveries
from app.records.tables import runs
from tests.faults.harness import Child, Deadline, Processes, processes
from tests.support.processes import ROOT, free_ports
from tests.support.world import HOOK, RETRIEVER, SECRET, canary

_PROGRAM = Path(__file__).with_name("peer_program.py")
ENDED = ("finished", "partial", "failed")
RULE = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.5}, "open": {"bad": 1, "of": 1}, "close": 1}
"""Opens and resolves at once, so that the coverage of the runs says what alerts there have to be."""
RULE_KEY = "threshold-coverage"
METRICS_TOKEN = "a-scraper-of-the-faults"


@dataclass(kw_only=True)
class Peer:
    """The retriever or the receiver."""

    child: Child
    port: int
    log: Path

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def set_mode(self, **mode: Any) -> None:
        """Change how it answers from now on; see `peer_program`."""
        httpx2.post(f"{self.url}/mode", json=mode, timeout=30, trust_env=False).raise_for_status()

    def is_ready(self) -> bool:
        """Whether it listens."""
        try:
            self.set_mode()
        except httpx2.TransportError:
            return False
        return True

    def lines(self) -> list[dict[str, Any]]:
        """Give the requests it got, in their order."""
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]


@dataclass(kw_only=True)
class Service:
    """A process of Coalmine that listens."""

    child: Child
    port: int

    def answers(self, path: str) -> bool:
        """Whether it answers a request with success."""
        try:
            return httpx2.get(self.url + path, timeout=10, trust_env=False).is_success
        except httpx2.TransportError:
            return False

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def metrics(self) -> str:
        """Scrape it, by its token, which needs no database; "" where it does not answer."""
        headers = {"authorization": f"Bearer {METRICS_TOKEN}"}
        try:
            return httpx2.get(f"{self.url}/metrics", headers=headers, timeout=10, trust_env=False).text
        except httpx2.TransportError:
            return ""

    def get(self, path: str, **parameters: Any) -> Any:
        """Ask its API."""
        return httpx2.get(self.url + path, params=parameters, timeout=60, trust_env=False).raise_for_status().json()

    def post(self, path: str, **body: Any) -> httpx2.Response:
        """Ask it to do something; the answer may be a refusal. Raises TransportError where there is no answer."""
        return httpx2.post(self.url + path, json=body, timeout=60, trust_env=False)


@dataclass(kw_only=True)
class Load:
    """How busy the checks keep the services."""

    checks: int = 3
    canaries: int = 40
    concurrency: int = 8
    requests_per_second: float | None = 150
    every: str = "10s"
    schedules: Sequence[Mapping[str, str]] = ()
    """Of each check, where they differ; else all run `every` so often."""
    retriever: dict[str, Any] = field(default_factory=dict)
    """What else the retriever's document says."""

    @property
    def slugs(self) -> list[str]:
        """The names of the checks."""
        return [f"check-{number}" for number in range(self.checks)]


@dataclass(kw_only=True)
class Bench:
    """One trial: everything of it is gone afterwards."""

    folder: Path
    database_url: str
    load: Load
    deadline: Deadline
    processes: Processes
    retriever: Peer
    receiver: Peer
    engine: sa.Engine
    environment: dict[str, str] = field(default_factory=dict)
    """Of every process of Coalmine."""
    code: Path = ROOT
    """Of the release whose processes are started from now on."""
    is_missing: bool = False
    """Whether the retriever finds nothing now."""

    def coalmine(self, name: str, *arguments: object, **environment: str) -> Child:
        """Start a command."""
        settings = {
            "COALMINE_DATABASE_URL": self.database_url,
            "COALMINE_DATA_DIR": str(self.folder / "data"),
            "COALMINE_HOOK_ALLOW": "127.0.0.0/8",
            "COALMINE_METRICS_TOKEN": METRICS_TOKEN,
            "COALMINE_SECRET_KEY": "a key that all replicas have",
        }
        variables = {**settings, **self.environment, **environment}
        return self.processes.python(name, "-m", "app.cli", *arguments, code=self.code, **variables)

    def serve(self, name: str = "serve", *arguments: object, ready: bool = True, **environment: str) -> Service:
        """Start a service."""
        port = free_ports()
        child = self.coalmine(name, "serve", "--port", port, *arguments, **environment)
        service = Service(child=child, port=port)
        if ready:
            self.wait_ready(service)
        return service

    def wait_ready(self, service: Service) -> None:
        """Wait until it answers from the database."""
        expected = f"{service.child.name} is ready"

        def is_ready() -> bool:
            assert service.child.is_alive, f"{service.child.name} ended:\n{service.child.output[-3000:]}"
            return service.answers("/readyz")

        self.deadline.until(expected, is_ready)

    def work(self, name: str, **environment: str) -> Child:
        """Start a worker."""
        return self.coalmine(name, "work", COALMINE_LOG_FORMAT="json", **environment)

    def migrate(self) -> None:
        """Make the tables."""
        child = self.coalmine("migrate", "migrate")
        self.deadline.until("the database is migrated", lambda: not child.is_alive)
        assert "Traceback" not in child.output, child.output
        self.count_endings()

    def count_endings(self) -> None:
        """Have the database itself count how often each run is finalised."""
        count_endings(self.engine)

    def apply(self) -> None:
        """Define the checks."""
        file = self.folder / "canaries.yaml"
        file.write_text(json.dumps(definitions(self.load, self.retriever, self.receiver)), encoding="utf-8")
        child = self.coalmine("apply", "apply", file)
        self.deadline.until("the checks are defined", lambda: not child.is_alive)
        assert "Traceback" not in child.output, child.output
        with self.engine.connect() as connection:
            found = connection.exec_driver_sql("SELECT count(*) FROM definitions WHERE kind = 'check'").scalar_one()
        assert found == self.load.checks, child.output

    def set_missing(self, *, is_missing: bool) -> None:
        """Let the retriever find what is expected, or nothing of it: the next runs open or resolve alerts."""
        self.is_missing = is_missing
        self.retriever.set_mode(miss=is_missing)

    def ask_for_runs(self, service: Service, slugs: Sequence[str] | None = None) -> None:
        """Queue a run of each check; a service that cannot just now does not."""
        for slug in slugs or self.load.slugs:
            with suppress(httpx2.TransportError):
                service.post(f"/v1/checks/{slug}/runs")

    # --- rows ------------------------------------------------------------------------------------------------

    def newest_run(self) -> int:
        """Give the id of the newest run; 0 = there is none."""
        return int(self._scalar(sa.select(sa.func.coalesce(sa.func.max(runs.c.id), 0))))

    def open_runs(self, until: int) -> list[int]:
        """Give the runs up to this one that have not ended."""
        wanted = sa.select(runs.c.id).where(runs.c.id <= until, runs.c.status.not_in(ENDED))
        with self.engine.connect() as connection:
            return list(connection.execute(wanted).scalars())

    def started_runs(self) -> list[int]:
        """Give the runs under way."""
        with self.engine.connect() as connection:
            return list(connection.execute(sa.select(runs.c.id).where(runs.c.status == "running")).scalars())

    def ended_runs(self) -> int:
        """Count the runs that have ended."""
        return int(self._scalar(sa.select(sa.func.count()).where(runs.c.status.in_(ENDED))))

    def pending_deliveries(self, until: int) -> int:
        """Count what is still to be sent of runs up to this one."""
        joined = deliveries.join(transitions, transitions.c.id == deliveries.c.transition_id)
        wanted = sa.select(sa.func.count()).select_from(joined).where(deliveries.c.state == "pending")
        return int(self._scalar(wanted.where(sa.or_(transitions.c.run_id.is_(None), transitions.c.run_id <= until))))

    def wait_ended(self, until: int) -> None:
        """Wait until all runs up to this one have ended."""
        self.deadline.until(f"runs up to {until} have ended", lambda: not self.open_runs(until))

    def settle(self) -> int:
        """Wait until all runs there are now have ended and their news is sent; gives the newest of them."""
        until = self.newest_run()
        self.wait_ended(until)
        self.deadline.until("news of these runs is sent", lambda: not self.pending_deliveries(until))
        return until

    def keep_rows(self) -> None:
        """Write runs and jobs to a file of the folder, for whoever wants to know why a trial failed."""
        tables = ["runs", "jobs"]
        if self.engine.dialect.name == "postgresql":
            tables = ["runs", "procrastinate.procrastinate_jobs", "procrastinate.procrastinate_workers"]
        lines = []
        with suppress(sa.exc.DBAPIError), self.engine.connect() as connection:
            for table in tables:
                rows = connection.exec_driver_sql(f"SELECT * FROM {table}").mappings()  # noqa: S608 - our own words
                lines += [f"{table} {dict(row)}" for row in rows]
        (self.folder / "rows.txt").write_text("\n".join(lines), encoding="utf-8")

    def _scalar(self, statement: Any) -> Any:
        with self.engine.connect() as connection:
            return connection.execute(statement).scalar_one()


def definitions(load: Load, retriever: Peer, receiver: Peer) -> dict[str, Any]:
    """Describe the checks of a trial; JSON is YAML."""
    described = {
        **RETRIEVER,
        "url": f"{retriever.url}/search",
        "response": {**RETRIEVER["response"], "text": "text"},
        "concurrency": load.concurrency,
        "timeout": 5,
        **({"requests_per_second": load.requests_per_second} if load.requests_per_second else {}),
        **load.retriever,
    }
    check = {"suite": "suite", "retriever": "search", "rules": [RULE], "hooks": ["ops"], "remind": None}
    schedules = load.schedules or [{"every": load.every}] * load.checks
    return {
        "suite": "suite",
        "canaries": [canary(f"q{number:04}") for number in range(load.canaries)],
        "retrievers": [described],
        "hooks": [{**HOOK, "url": f"{receiver.url}/hook", "secret": SECRET}],
        "checks": [
            {**check, "slug": slug, "schedule": schedule} for slug, schedule in zip(load.slugs, schedules, strict=True)
        ],
    }


def count_endings(engine: sa.Engine) -> None:
    """Have the database note every time a run becomes one that has ended, in a table without a key."""
    ended = ", ".join(f"'{status}'" for status in ENDED)
    condition = f"NEW.status IN ({ended}) AND OLD.status IS NOT NULL"
    insert = "INSERT INTO fault_endings VALUES (NEW.id)"
    function = f"RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {insert}; RETURN NULL; END$$"
    each = f"FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION fault_ending()"
    statements = [
        "CREATE TABLE fault_endings (run_id BIGINT NOT NULL)",
        f"CREATE TRIGGER fault_endings AFTER UPDATE OF status ON runs WHEN {condition} BEGIN {insert}; END",
    ]
    if engine.dialect.name == "postgresql":
        statements[1:] = [
            f"CREATE FUNCTION fault_ending() {function}",
            f"CREATE TRIGGER fault_endings AFTER UPDATE OF status ON runs {each}",
        ]
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


@contextmanager
def bench(
    folder: Path,
    seconds: float,
    load: Load | None = None,
    *,
    database_url: str | None = None,
    migrated: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Bench]:
    """Set a trial up, which must be over within so many seconds; by default on a new SQLite file.

    Where it is not `migrated`, there are neither tables nor checks yet. `environment` is that of all its processes of
    Coalmine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    deadline = Deadline(seconds=seconds)
    url = database_url or f"sqlite:///{folder / 'coalmine.db'}"
    engine = sa.create_engine(sa.make_url(url), poolclass=sa.NullPool)
    if engine.dialect.name == "postgresql":
        engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool)
    with processes(folder, deadline) as started:
        peers = [start_peer(started, folder, name) for name in ("retriever", "receiver")]
        for peer in peers:
            deadline.until(f"{peer.child.name} listens", peer.is_ready)
        trial = Bench(
            folder=folder,
            database_url=url,
            load=load or Load(),
            deadline=deadline,
            processes=started,
            retriever=peers[0],
            receiver=peers[1],
            engine=engine,
            environment=dict(environment or {}),
        )
        try:
            if migrated:
                trial.migrate()
                trial.apply()
            yield trial
        except Exception:
            trial.keep_rows()
            raise


def start_peer(started: Processes, folder: Path, name: str) -> Peer:
    """Start a retriever or receiver."""
    port, log = free_ports(), folder / f"{name}.jsonl"
    return Peer(child=started.python(name, _PROGRAM, port, log), port=port, log=log)
