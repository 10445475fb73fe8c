"""A process that serves: alone on its database, with the key of its secrets, and gone when it is told to go."""

import os
import signal
import socket
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.routing import Mount

from app.base.db.files import lock_for_new_key, lock_for_serving, lock_for_work
from app.base.errors import ConfigurationError
from app.catalog.documents.canary_files import read_canary_files
from app.catalog.service.vault import KEY_FILE, open_vault
from app.catalog.store import FILE
from app.config import Settings
from app.definitions.service import applying
from app.main import create_app, open_service
from app.serving import STOPPING
from app.wiring import open_store
from tests.support.http_servers import HANG, peer
from tests.support.living import until
from tests.support.processes import free_ports, started

pytestmark = pytest.mark.systems(seconds=30)

CANARIES = Path(__file__).parents[2] / "canaries"
HOOK = "hooks: [{slug: ops, kind: webhook, url: 'https://hooks.example/', secret: whsec_%s}]" % ("ZGVtbw" * 8)
WATCH = """
suite: small
canaries: [{key: a, query: alpha, expected_chunks: [doc-alpha]}]
retrievers: [{slug: there, url: "%s", timeout: 60, response: {hits: results, id: id}}]
checks: [{slug: watch, suite: small, retriever: there, schedule: {every: 1d}}]
"""


# --- apps of one process -------------------------------------------------------------------------------------


def test_apps_of_one_process_share_their_routes_and_nothing_else(tmp_path: Path) -> None:
    """FastAPI works out what a route takes at its first request; a second app finds that done."""
    services = [
        open_service(Settings(data_dir=tmp_path / name), environment={}, with_worker=False) for name in ("one", "two")
    ]
    try:
        one, two = (create_app(service) for service in services)
        routes = [{id(route) for route in app.routes if not isinstance(route, Mount)} for app in (one, two)]
        assert len(routes[0]) > 30
        assert routes[0] == routes[1]
        assert one.router is not two.router
        assert one.state.access.store is not two.state.access.store
    finally:
        for service in services:
            service.store.close()


# --- alone on a database -------------------------------------------------------------------------------------


def test_a_second_worker_on_the_same_file_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_ports()
    with started(tmp_path, "serve", "--port", port, "--data-dir", data, "--canaries", CANARIES) as first:
        first.wait_for("is serving")
        other = tmp_path / "other.yaml"
        other.write_text(WATCH % "http://127.0.0.1:1/", encoding="utf-8")
        with started(tmp_path, "serve", "--port", free_ports(), "--data-dir", data, "--canaries", other) as second:
            assert second.end() == 2
        file, pid = data / "coalmine.db", first.popen.pid
        assert second.said == (
            f"coalmine: another Coalmine (pid {pid}) works on {file}, and a SQLite file has one worker; stop it, serve "
            "beside it with --no-worker, or choose another --data-dir; several workers need PostgreSQL "
            "(COALMINE_DATABASE_URL)\n"
        )
        checks = httpx2.get(f"http://127.0.0.1:{port}/v1/checks").json()["items"]
        assert [check["slug"] for check in checks] == ["dataforge-docs"]


def test_beside_the_worker_of_a_file_others_serve_it_and_commands_and_backups_work(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_ports()
    with started(tmp_path, "serve", "--port", free_ports(), "--data-dir", data) as worker:
        worker.wait_for("is serving")
        with started(tmp_path, "serve", "--no-worker", "--port", port, "--data-dir", data) as beside:
            beside.wait_for("is serving")
            for words in (("apply", CANARIES), ("keys", "list")):
                with started(tmp_path, *words, "--data-dir", data) as command:
                    assert command.end() == 0, command.said
            checks = httpx2.get(f"http://127.0.0.1:{port}/v1/checks").json()["items"]
            assert [check["slug"] for check in checks] == ["dataforge-docs"]
            with closing(sqlite3.connect(data / "coalmine.db")) as file, closing(sqlite3.connect(":memory:")) as copy:
                file.backup(copy)
                assert copy.execute("SELECT count(*) FROM definitions WHERE kind = 'check'").fetchone() == (1,)
            with started(tmp_path, "secrets", "rotate", "--new-key", "--data-dir", data) as command:
                assert command.end() == 2
            assert worker.end(signal.SIGTERM) == 0
            with started(tmp_path, "secrets", "rotate", "--new-key", "--data-dir", data) as command:
                assert command.end() == 2
            assert f"another Coalmine serves {data / 'coalmine.db'}; stop it" in command.said


def test_an_empty_canary_folder_is_served_at_first_and_refused_once_files_manage_checks(tmp_path: Path) -> None:
    folder, port = tmp_path / "canaries", free_ports()
    folder.mkdir()
    arguments = ("serve", "--port", port, "--data-dir", tmp_path / "data", "--canaries", folder)
    with started(tmp_path, *arguments) as process:
        process.wait_for("is serving")
        assert "canary_folder_empty" in process.said
    (folder / "watch.yaml").write_text(WATCH % "http://127.0.0.1:1/", encoding="utf-8")
    with started(tmp_path, *arguments) as process:
        process.wait_for("is serving")
        (folder / "watch.yaml").unlink()
        process.popen.send_signal(signal.SIGHUP)
        process.wait_for("canaries_not_applied")
        checks = httpx2.get(f"http://127.0.0.1:{port}/v1/checks").json()["items"]
        assert [check["slug"] for check in checks] == ["watch"]
    with started(tmp_path, *arguments) as process:
        assert process.end() == 2
        assert "holds no canary file" in process.said


def test_databases_beside_each_other_have_a_worker_each(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    taken = rf"\(pid {os.getpid()}\) works on {tmp_path}/link.db"
    with (
        lock_for_work(tmp_path / "a.db"),
        lock_for_work(tmp_path / "b.db"),
        lock_for_work(None),
        pytest.raises(ConfigurationError, match=taken),
        lock_for_work(tmp_path / "link.db"),
    ):
        pytest.fail("both hold it")
    with lock_for_work(tmp_path / "a.db"):
        assert (tmp_path / "a.db.lock").read_text() == f"{os.getpid()} {socket.gethostname()}\n"


def test_the_worker_of_another_machine_is_named_with_it(tmp_path: Path) -> None:
    with lock_for_work(tmp_path / "a.db"):
        (tmp_path / "a.db.lock").write_text("7 elsewhere\n")
        with pytest.raises(ConfigurationError, match=r"\(pid 7 on elsewhere\)"), lock_for_work(tmp_path / "a.db"):
            pytest.fail("both hold it")


def test_a_key_is_changed_while_nobody_serves_and_nobody_serves_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    for lock in (lock_for_serving, lock_for_work):
        with lock(file), pytest.raises(ConfigurationError, match="stop it"), lock_for_new_key(file):
            pytest.fail("both hold it")
    with lock_for_serving(file), lock_for_serving(file), lock_for_work(file):
        pass
    with lock_for_new_key(file), lock_for_new_key(None):
        for lock in (lock_for_serving, lock_for_work):
            with pytest.raises(ConfigurationError), lock(file):
                pytest.fail("both hold it")


def test_a_place_that_takes_no_lock_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.db.lock").mkdir()
    with pytest.raises(ConfigurationError, match=r"a\.db\.lock cannot be written: Is a directory"):
        lock_for_work(tmp_path / "a.db").__enter__()


def test_a_new_database_is_its_owners_alone(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    store = open_store(settings)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in settings.data_dir.iterdir()}
    store.close()
    assert modes["coalmine.db"] == 0o600
    assert set(modes.values()) == {0o600}, modes


# --- the key of its secrets ----------------------------------------------------------------------------------


def with_a_secret(data_dir: Path, **settings: Any) -> Settings:
    """Put a hook in force whose secret is stored."""
    given = Settings(data_dir=data_dir, **settings)
    store = open_store(given)
    try:
        vault = open_vault(given.secret_key, data_dir, store, loopback=True, readable=False)
        wanted = read_canary_files([("hooks.yaml", HOOK)], {}, None)
        applying.apply(store, vault, wanted, managed_by=FILE, now=datetime.now(UTC))
    finally:
        store.close()
    return given


def opened(settings: Settings) -> None:
    service = open_service(settings, environment={}, with_worker=False)
    service.store.close()


def test_a_lost_key_is_never_replaced_by_a_fresh_one(tmp_path: Path) -> None:
    settings = with_a_secret(tmp_path)
    kept = (tmp_path / KEY_FILE).read_text()
    (tmp_path / KEY_FILE).unlink()
    with pytest.raises(ConfigurationError, match=f"is gone: put back {tmp_path / KEY_FILE}; if"):
        opened(settings)
    with pytest.raises(ConfigurationError, match="is gone"):
        with_a_secret(tmp_path)
    assert not (tmp_path / KEY_FILE).exists()
    (tmp_path / KEY_FILE).write_text(kept)
    opened(settings)


def test_another_key_is_refused_at_start_and_a_rotated_one_is_not(tmp_path: Path) -> None:
    first, second = "the first key 0123456789", "another key 0123456789"
    with_a_secret(tmp_path, secret_key=first)
    with pytest.raises(ConfigurationError, match=r"cannot be decrypted.*set COALMINE_SECRET_KEY to that one"):
        opened(Settings(data_dir=tmp_path, secret_key=second))
    opened(Settings(data_dir=tmp_path, secret_key=f"{second},{first}"))
    opened(with_a_secret(tmp_path, secret_key=second))  # stored anew


def test_without_secrets_any_key_will_do(tmp_path: Path) -> None:
    for key in ("the first key 0123456789", "another key 0123456789"):
        opened(Settings(data_dir=tmp_path, secret_key=key))
    assert not (tmp_path / KEY_FILE).exists()


@pytest.mark.parametrize(
    ("url", "file"),
    [
        (None, "/somewhere/coalmine.db"),
        ("sqlite:////var/lib/c.db?mode=rw", "/var/lib/c.db"),
        ("sqlite:///c.db", "c.db"),
        ("sqlite:///:memory:", None),
        ("postgresql://db/coalmine", None),
    ],
)
def test_the_file_of_a_database_is_known(url: str | None, file: str | None) -> None:
    settings = Settings(data_dir=Path("/somewhere"), database_url=url)
    assert settings.database_file == (Path(file) if file else None)


# --- told to go ----------------------------------------------------------------------------------------------


def test_ctrl_c_ends_a_run_against_a_hanging_retriever_and_says_what_it_does(tmp_path: Path) -> None:
    file = tmp_path / "canaries.yaml"
    with peer(HANG) as hanging:
        file.write_text(WATCH % hanging.url, encoding="utf-8")
        arguments = ("--port", free_ports(), "--data-dir", tmp_path / "data", "--canaries", file)
        with started(tmp_path, "serve", *arguments) as process:
            until(lambda: hanging.seen or process.popen.poll() is not None)
            assert process.end(signal.SIGINT) == 0, process.said
    assert f"{STOPPING}\n" in process.said
    assert "run_let_go" in process.said
    assert process.said.endswith("Stopped.\n")


def test_a_second_signal_leaves_at_once(tmp_path: Path) -> None:
    with started(tmp_path, "serve", "--port", free_ports(), "--data-dir", tmp_path / "data") as process:
        process.wait_for("is serving")
        process.popen.send_signal(signal.SIGSTOP)  # so that both arrive before it can have ended
        process.popen.send_signal(signal.SIGINT)
        process.popen.send_signal(signal.SIGTERM)
        process.popen.send_signal(signal.SIGCONT)
        assert process.end() == 130
    assert "Stopped." not in process.said
    assert "Traceback" not in process.said


def test_a_slow_demo_says_nothing_of_clients_that_went_away(tmp_path: Path) -> None:
    port = free_ports()
    demo = f"http://127.0.0.1:{port}"
    with started(tmp_path, "demo", "--port", port) as process:
        until(lambda: answers(f"{demo}/healthz") or process.popen.poll() is not None, seconds=60)
        assert httpx2.post(f"{demo}/fault", json={"kind": "latency", "size": 20}).is_success
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{demo}/search", json={"query": "slow"}, timeout=0.3)
        assert process.end(signal.SIGINT) == 0
    assert process.said == f"The demo retriever is at {demo}/; Ctrl-C stops it.\n"


def answers(url: str) -> bool:
    try:
        return httpx2.get(url).is_success
    except httpx2.TransportError:
        return False
