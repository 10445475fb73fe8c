"""Backup, restore and upgrade as docs/operations.md tells them, on SQLite and PostgreSQL, with real programs."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory
from typer.testing import CliRunner

from app.base.db import keys
from app.base.db.engine import Store, to_us
from app.base.db.files import _config, is_migrated, migrate
from app.base.db.keys import Scope
from app.base.errors import ConfigurationError
from app.base.jobs import at_hand
from app.base.jobs.values import JobKind
from app.catalog.service.vault import KEY_FILE
from app.cli import app
from app.config import Settings
from app.main import create_app, open_service
from tests.conftest import DIALECTS, Databases
from tests.support.doc_pages import blocks
from tests.support.fakes import FakeProbe
from tests.support.first_release_databases import FIRST_KEY, first_release, postgresql_programs
from tests.support.http_servers import Peer, peer, reply
from tests.support.living import serving, until

pytestmark = pytest.mark.databases

SECRET_KEY = "a-key-that-is-kept-elsewhere"
WATCH = """
suite: handbook
canaries:
  - {key: first, query: what is asked first, expected_chunks: [doc-alpha]}
  - {key: second, query: what is asked second, expected_chunks: [doc-beta]}
retrievers:
  - slug: docs
    url: "%s/search"
    auth: {kind: bearer, token: "${DOCS_TOKEN}"}
    response: {hits: results, id: id, text: text}
checks:
  - slug: watch
    suite: handbook
    retriever: docs
    schedule: {every: 1d}
    rules: [{kind: threshold, measure: coverage, critical: {below: 0.9}, open: {bad: 1, of: 1}}]
"""
GOOD = reply(b'{"results": [{"id": "doc-alpha", "text": "a text that was retrieved"}]}')


@dataclass(frozen=True, kw_only=True)
class Client:
    """Speaks to a service with a key, or without."""

    http: httpx2.Client

    def get(self, path: str) -> Any:
        """Read."""
        return self.http.get(path).raise_for_status().json()

    def run(self) -> dict[str, Any]:
        """Let the check run, and wait."""
        wished: dict[str, Any] = (
            self.http.post("/v1/checks/watch/runs", json={"wait_seconds": 60}).raise_for_status().json()
        )
        return wished

    def history(self) -> dict[str, Any]:
        """Read everything people look at, of the runs there are."""
        runs = self.get("/v1/checks/watch/runs?limit=100")["items"]
        told = {run["id"]: self.get(f"/v1/runs/{run['id']}/results")["items"] for run in runs}
        alerts = [self.get(f"/v1/alerts/{alert['id']}")["transitions"] for alert in self.get("/v1/alerts")["items"]]
        return {"runs": {run["id"]: run for run in runs}, "results": told, "alerts": alerts}


@contextmanager
def service(settings: Settings, *, key: str | None = None, **environment: str) -> Iterator[Client]:
    """Serve with a worker; history of long ago is kept, whenever this is run."""
    opened = open_service(settings, environment=environment)
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    with (
        serving(create_app(opened)) as url,
        httpx2.Client(base_url=url, headers=headers, trust_env=False, timeout=90) as http,
    ):
        yield Client(http=http)


@pytest.fixture
def retriever() -> Iterator[Peer]:
    with peer(GOOD) as server:
        yield server


def documented(first: str) -> str:
    """Give the commands of the block of the docs that begins so."""
    (found,) = [block.text for block in blocks("docs/operations.md") if block.first.startswith(first)]
    return found


def shell(commands: str, folder: Path, **environment: str) -> None:
    """Run what the docs say."""
    subprocess.run(["/bin/bash", "-e", "-c", commands], cwd=folder, env=environment, check=True)  # noqa: S603 - ours


# --- backup and restore --------------------------------------------------------------------------------------


@pytest.mark.systems
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_backup_of_a_service_at_work_restores_history_alerts_keys_and_secrets(
    dialect: str, databases: Databases, retriever: Peer, tmp_path: Path
) -> None:
    watch = tmp_path / "watch.yaml"
    watch.write_text(WATCH % retriever.url, encoding="utf-8")
    lasting: dict[str, Any] = {"retention_days": 36_500}
    if dialect == "sqlite":
        lived: dict[str, Any] = {"data_dir": tmp_path / "data"}
        anew: dict[str, Any] = {"data_dir": tmp_path / "restored"}
        back_up: Callable[[], None] = lambda: _back_up_sqlite(tmp_path)  # noqa: E731 - one of two, chosen here
    else:
        url, copy = databases.postgresql(), databases.postgresql(migrated=False)
        lived = {"data_dir": tmp_path / "data", "database_url": url, "secret_key": SECRET_KEY}
        anew = {"data_dir": tmp_path / "restored", "database_url": copy, "secret_key": SECRET_KEY}
        back_up = lambda: _back_up_postgresql(tmp_path, url, copy)  # noqa: E731 - as above

    with service(Settings(**lived, **lasting, canaries=watch), DOCS_TOKEN="hunter2") as client:
        client.run()
        until(lambda: not _diagnosing(Settings(**lived)))  # which tells the alert its cause
        before = client.history()
        stop = threading.Event()

        def work_on() -> None:
            while not stop.is_set():
                client.run()

        worker = threading.Thread(target=work_on)
        worker.start()
        try:
            back_up()
        finally:
            stop.set()
            worker.join(60)
        after = client.history()
    store = Store(Settings(**anew).database)
    key = keys.create_key(store, name="restored", scope=Scope.WRITE, now=datetime.now(UTC))
    store.close()
    retriever.seen.clear()
    with service(Settings(**anew, **lasting), key=key) as client:
        restored = client.history()
        # What was there when the backup began is there, and nothing that was not there when it ended.
        assert before["runs"].items() <= restored["runs"].items()
        assert before["results"].items() <= restored["results"].items()
        assert set(restored["runs"]) - _newest(restored["runs"]) <= set(after["runs"])
        assert restored["alerts"] == before["alerts"] != []
        run = client.run()
        assert run["canaries"]["measured"] == 2
        assert {seen.headers["authorization"] for seen in retriever.seen} == {"Bearer hunter2"}


def _diagnosing(settings: Settings) -> set[int]:
    store = Store(settings.database)
    try:
        with store.read() as connection:
            return at_hand(connection, [JobKind.DIAGNOSIS], to_us(datetime.now(UTC)))
    finally:
        store.close()


def _newest(runs: dict[str, Any]) -> set[str]:
    """Give the runs that the restored service may have begun by itself."""
    return {id_ for id_, run in runs.items() if run["trigger"] == "schedule"}


def _back_up_sqlite(folder: Path) -> None:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    shell(documented("mkdir -p backup"), folder, PATH=path)
    restore = documented("mkdir -p restored").splitlines()[0]
    shell(restore, folder, PATH=path)


def _back_up_postgresql(folder: Path, url: str, copy: str) -> None:
    dump, create, restore = documented("pg_dump ").splitlines()
    assert create.startswith("createdb")  # the fixture has made it
    environment = {"PATH": f"{postgresql_programs()}:/usr/bin:/bin", "COALMINE_DATABASE_URL": url}
    shell(f"{dump}\n{restore}", folder, **environment, RESTORED_DATABASE_URL=copy)


def test_a_database_without_its_key_is_refused(retriever: Peer, tmp_path: Path) -> None:
    watch = tmp_path / "watch.yaml"
    watch.write_text(WATCH % retriever.url, encoding="utf-8")
    with service(Settings(data_dir=tmp_path / "data", canaries=watch), DOCS_TOKEN="hunter2"):
        _back_up_sqlite(tmp_path)
    (tmp_path / "restored" / KEY_FILE).unlink()
    with pytest.raises(ConfigurationError, match=r"secret"):
        open_service(Settings(data_dir=tmp_path / "restored"), environment={})


# --- upgrade -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_database_of_the_first_release_is_brought_to_this_one_and_served(
    dialect: str, databases: Databases, tmp_path: Path
) -> None:
    url = first_release(dialect, databases)
    settings = Settings(
        data_dir=tmp_path, database_url=url, secret_key=FIRST_KEY, auto_migrate=False, retention_days=36_500
    )
    if dialect == "postgresql":
        with pytest.raises(
            ConfigurationError, match="does not have the schema of this release: run `coalmine migrate`"
        ):
            open_service(settings, environment={})
    ran = CliRunner().invoke(app, ["migrate"], env={"COALMINE_DATABASE_URL": url, "COALMINE_DATA_DIR": str(tmp_path)})
    assert ran.exit_code == 0, ran.stderr
    probe = FakeProbe()
    opened = open_service(settings, environment={}, probe=probe)
    with serving(create_app(opened)) as address, httpx2.Client(base_url=address, trust_env=False, timeout=90) as http:
        client = Client(http=http)
        old = {run["id"]: run for run in client.get("/v1/checks/handbook/runs")["items"] if int(run["id"]) <= 4}
        assert [old[id_]["verdict"] for id_ in "1234"] == ["healthy", "healthy", "degraded", "degraded"]
        assert [old[id_]["coverage"] for id_ in "1234"] == [1.0, 1.0, 0.25, 0.25]
        results = {one["key"]: one for one in client.get("/v1/runs/4/results")["items"]}
        assert results["trial-length"]["reasons"] == ["low_relevance", "missing"]
        assert results["trial-length"]["ranking"] != []
        diff = client.get("/v1/runs/2/diff/4")
        assert (diff["comparable"], diff["changes"]["degraded"]) == (True, 3)
        (alert,) = client.get("/v1/alerts")["items"]
        assert (alert["rule"], alert["opened_at"]) == ("threshold-coverage", old["4"]["finished_at"])
        series = client.get("/v1/checks/handbook/series?measure=coverage&from=2026-11-22T00:00:00Z")
        assert [point["mean"] for point in series["points"]][:4] == [1.0, 1.0, 0.25, 0.25]
        run = http.post("/v1/checks/handbook/runs", json={"wait_seconds": 60}).raise_for_status().json()
        assert run["status"] == "finished"
    assert probe.askings[-1].retriever.headers == {"authorization": "Bearer token-of-long-ago"}


def test_a_database_at_any_earlier_migration_is_brought_to_the_present_one(
    databases: Databases, stores: Callable[..., Store]
) -> None:
    """Each migration on its own from the first release on, and at times the rest at once."""
    revisions = [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()][::-1]
    url = first_release("sqlite", databases)
    for number, revision in enumerate(revisions):
        store = Store(url)
        with store.write() as connection:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
        store.close()
        if number % 15 == 5:
            _expect_present(stores(databases.copy(url)))
    _expect_present(stores(url))


def _expect_present(store: Store) -> None:
    migrate(store)
    assert is_migrated(store)
    with store.read() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM runs")).scalar_one() == 4
