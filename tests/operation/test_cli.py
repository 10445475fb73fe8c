"""The command line: what it prints where, its exit codes, and processes that start, refuse and stop plainly."""

import json
import logging
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner, Result

from app import __version__
from app.base.db import keys
from app.cli import app
from app.logs import JsonFormatter, TextFormatter
from app.operation import health
from tests.conftest import Databases
from tests.support.http_servers import Reply, peer, reply
from tests.support.living import coalmine, until
from tests.support.processes import free_ports, listens, started, taken_port

ROOT = Path(__file__).parents[2]
CANARIES = ROOT / "canaries"

DEFINITIONS = """
suite: small
canaries:
  - {key: a, query: alpha, expected_chunks: [doc-alpha]}
  - {key: b, query: beta, expected_chunks: [doc-beta]}
retrievers:
  - {slug: there, url: "http://127.0.0.1:1/search", request: {headers: {authorization: "${TOKEN}"}},
     response: {hits: results, id: id}}
checks:
  - {slug: watch, suite: small, retriever: there, schedule: {every: 1d}, hooks: [ops]}
hooks:
  - {slug: ops, kind: webhook, url: "https://hooks.example/", secret: whsec_ZGVtby1zZWNyZXQtZGVtby1zZWNyZXQtZGVtbw==}
"""
TOKEN = "Bearer cli-test-token"


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"TOKEN": TOKEN, **environment})


@pytest.fixture
def canaries(tmp_path: Path) -> Path:
    file = tmp_path / "canaries.yaml"
    file.write_text(DEFINITIONS, encoding="utf-8")
    return file


# --- processes -----------------------------------------------------------------------------------------------


@pytest.mark.systems(seconds=40)
def test_serve_with_the_demo_soon_has_a_healthy_run_and_stops_cleanly_on_sigterm(tmp_path: Path) -> None:
    port = free_ports()
    arguments = ("--port", port, "--with-demo", "--data-dir", tmp_path / "data", "--canaries", CANARIES)
    with started(tmp_path, "serve", *arguments) as process:
        process.wait_for("is serving")
        health = f"http://127.0.0.1:{port}/v1/checks/dataforge-docs/health"
        run_of_demo = until(
            lambda: answer.json() if (answer := httpx2.get(health)).is_success else None, seconds=10
        )  # the promise
        assert (run_of_demo["status"], run_of_demo["verdict"]) == ("finished", "healthy")
        assert listens(port + 1)
        api = f"http://127.0.0.1:{port}/v1"
        until(lambda: httpx2.get(f"{api}/tasks/demo/agreement").json().get("annotators") == ["Ann", "Bob"], seconds=20)
        reach = f"{api}/suites/dataforge/reach?retriever=docs-search"
        assert until(lambda: answer if (answer := httpx2.get(reach).json())["state"] == "asked" else None, seconds=20)
        assert process.end(signal.SIGTERM) == 0
        assert process.said.endswith("Stopped.\n")
        assert "Traceback" not in process.said
        assert not listens(port + 1)
    assert f"http://127.0.0.1:{port}/\n" in process.said
    assert f"SQLite, {tmp_path / 'data' / 'coalmine.db'}" in process.said
    assert f"keys create --scope admin --name me --data-dir {tmp_path / 'data'}" in process.said
    broken = next(line for line in process.said.splitlines() if "break it" in line)
    assert broken.endswith(f"http://127.0.0.1:{port + 1}/fault")


@pytest.mark.systems
def test_logs_as_json_are_one_event_a_line_and_ctrl_c_is_a_clean_end(tmp_path: Path) -> None:
    port = free_ports()
    arguments = ("--port", port, "--data-dir", tmp_path / "data", "--log-requests")
    with started(tmp_path, "serve", *arguments, COALMINE_LOG_FORMAT="json") as process:
        process.wait_for('"serving"')
        answer = httpx2.get(f"http://127.0.0.1:{port}/livez?csrf=token")
        assert "server" not in answer.headers
        assert process.end(signal.SIGINT) == 0
    events = [json.loads(line) for line in process.said.splitlines()]
    assert [next(iter(event)) for event in events] == ["event"] * len(events)
    words = [event["event"] for event in events]
    assert words[0] == "serving"
    assert words[-1] == "stopped"
    assert events[0]["open"] is True
    (request,) = [event for event in events if event["event"] == "request"]
    assert (request["method"], request["path"], request["status"]) == ("GET", "/livez", 200)


@pytest.mark.systems
def test_a_worker_works_on_postgresql_without_serving(databases: Databases, canaries: Path, tmp_path: Path) -> None:
    settings = {
        "COALMINE_DATABASE_URL": databases.postgresql(),
        "COALMINE_SECRET_KEY": "0123456789abcdef0123456789abcdef",
        "COALMINE_DATA_DIR": str(tmp_path / "work"),
    }
    assert run("apply", canaries, **settings).exit_code == 0
    with started(tmp_path, "work", COALMINE_HOST="0.0.0.0", **settings) as process:  # noqa: S104 - it does not listen
        process.wait_for("run_ended")
        assert health.check(tmp_path / "work", str(free_ports()))
        assert process.end(signal.SIGTERM) == 0
    assert "check=watch status=finished verdict=unknown" in process.said
    assert process.said.endswith("Stopped.\n")


@pytest.mark.systems
def test_a_worker_answers_its_probes_until_it_has_stopped(databases: Databases, tmp_path: Path) -> None:
    port = free_ports()
    settings = {
        "COALMINE_DATABASE_URL": databases.postgresql(),
        "COALMINE_SECRET_KEY": "0123456789abcdef0123456789abcdef",
        "COALMINE_DATA_DIR": str(tmp_path / "work"),
    }
    with started(tmp_path, "work", "--port", port, **settings) as process:
        process.wait_for("working")
        base = f"http://127.0.0.1:{port}"
        assert httpx2.get(f"{base}/livez").text == "ok\n"
        assert until(lambda: httpx2.get(f"{base}/readyz").status_code == 200)
        assert until(lambda: "\ncoalmine_jobs_waiting 0.0" in httpx2.get(f"{base}/metrics").text)
        assert httpx2.get(f"{base}/v1/checks").status_code == 404
        with started(tmp_path, "work", "--port", port, **settings) as second:
            assert second.end() == 2
        assert f"port {port}" in second.said
        assert process.end(signal.SIGTERM) == 0
    assert process.said.endswith("Stopped.\n")
    assert "say on which port with --port" in refused("work", "--host", "127.0.0.1", **settings)


@pytest.mark.systems
def test_the_demo_ends_with_whoever_started_it(tmp_path: Path) -> None:
    port = free_ports()
    with started(tmp_path, "demo", "--port", port, "--until-stdin-ends") as process:
        until(lambda: listens(port) or process.popen.poll() is not None, seconds=60)
        assert process.popen.stdin is not None
        process.popen.stdin.close()
        assert process.end() == 0
    assert process.said == ""


def test_the_demo_says_where_it_is_and_what_is_wrong_with_a_corpus(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "a"}\n', encoding="utf-8")
    result = run("demo", "--port", free_ports(), "--corpus", corpus)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"{corpus}:1: needs a text"


# --- refusals ------------------------------------------------------------------------------------------------


def refused(*arguments: object, **environment: str) -> str:
    """Give the one line with which a command is refused."""
    result = run(*arguments, **environment)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.stderr.rstrip("\n")


def test_a_taken_port_is_said_in_a_line(tmp_path: Path) -> None:
    with taken_port() as port:
        said = f"coalmine: port {port} of 127.0.0.1 is taken; choose another with --port"
        assert refused("serve", "--port", port, "--data-dir", tmp_path) == said
        assert refused("demo", "--port", port) == said
    assert not list(tmp_path.iterdir())


def test_a_taken_port_of_the_demo_is_said_in_a_line(tmp_path: Path) -> None:
    port = free_ports()
    with socket.create_server(("127.0.0.1", port + 1)):
        said = refused("serve", "--port", port, "--with-demo", "--data-dir", tmp_path)
    assert said.startswith(f"coalmine: the demo retriever takes the port after --port, but port {port + 1} of")


def test_serving_beyond_loopback_takes_a_secret_and_a_key(tmp_path: Path) -> None:
    arguments = ("serve", "--host", "0.0.0.0", "--port", free_ports(), "--data-dir", tmp_path)  # noqa: S104 - the point
    assert "COALMINE_SECRET_KEY" in refused(*arguments)
    assert not list(tmp_path.iterdir())
    said = refused(*arguments, COALMINE_SECRET_KEY="0123456789abcdef")
    assert said.startswith("coalmine: refusing to listen on 0.0.0.0 without an API key: create one with")


def test_every_bad_setting_is_said_on_a_line_of_its_own() -> None:
    result = run("serve", COALMINE_PORT="many", COALMINE_PROT="1", COALMINE_LOG_FORMAT="xml")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "coalmine: COALMINE_PORT: must be a port number from 1 to 65535",
        "coalmine: COALMINE_LOG_FORMAT: must be json or text",
        "coalmine: COALMINE_PROT: no such setting",
    ]


def test_an_address_of_nobody_here_is_said_in_a_line(tmp_path: Path) -> None:
    said = refused("serve", "--host", "203.0.113.7", "--port", free_ports(), "--data-dir", tmp_path)
    assert said.startswith("coalmine: cannot listen on")


def test_bad_canaries_stop_the_start_and_say_where(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("suite: s\nsuites: []\n", encoding="utf-8")
    arguments = ("--port", free_ports(), "--data-dir", tmp_path / "data", "--canaries", tmp_path / "bad.yaml")
    said = refused("serve", *arguments)
    assert said == f"{tmp_path / 'bad.yaml'}:2: suites: unknown key 'suites'; did you mean 'suite'?"


def test_a_worker_refuses_sqlite_with_the_reason() -> None:
    assert "`coalmine work` needs PostgreSQL" in refused("work")


def test_a_worker_makes_up_no_key_that_nobody_else_has(tmp_path: Path) -> None:
    said = refused("work", COALMINE_DATABASE_URL="postgresql://127.0.0.1:1/x", COALMINE_DATA_DIR=str(tmp_path))
    assert said.startswith("coalmine: COALMINE_SECRET_KEY must be set")


def test_a_database_that_is_not_there_is_said_in_a_line_without_its_password() -> None:
    said = refused("keys", "list", COALMINE_DATABASE_URL="postgresql://me:hush@127.0.0.1:1/x")
    assert said.startswith("coalmine: the database cannot be used now")
    assert "hush" not in said


# --- canaries as code ----------------------------------------------------------------------------------------


def test_validate_counts_what_is_defined() -> None:
    result = run("validate", CANARIES, CANARIES / "dataforge.yaml")
    assert result.exit_code == 0
    assert result.stdout == "All good: 1 suite, 97 canaries, 1 retriever, 1 check, 1 hook.\n"


def test_validate_counts_a_hook_whose_variable_is_not_set_and_says_what_will_refuse_it(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("hooks:\n  - {slug: alarm, kind: webhook, url: '${NOT_SET_ANYWHERE}'}\n", encoding="utf-8")
    result = run("validate", path)
    assert result.exit_code == 0
    assert result.stdout.startswith("Valid but for variables that are not set: ")
    assert result.stdout.endswith("1 hook.\n")
    assert "a.yaml:2: hook 'alarm': the variable NOT_SET_ANYWHERE is not set; " in result.stderr
    assert "'serve' and 'apply' refuse it." in result.stderr


def test_validate_says_every_problem_with_file_and_line(tmp_path: Path) -> None:
    first, second = tmp_path / "1.yaml", tmp_path / "2.yml"
    first.write_text("suite: s\ncanaries:\n  - {key: a, query: ${UNSET_HERE}}\n", encoding="utf-8")
    second.write_text("hooks:\n  - {slug: BIG, kind: webhook, url: 'http://x/'}\n", encoding="utf-8")
    result = run("validate", tmp_path)
    assert result.exit_code == 2
    assert [line.split(": ")[0] for line in result.stderr.splitlines()] == [f"{first}:3", f"{second}:2"]


def test_apply_shows_its_plan_and_does_nothing_twice(canaries: Path, tmp_path: Path) -> None:
    store = ("--data-dir", tmp_path / "data")
    assert run("migrate", *store).exit_code == 0
    planned = run("diff", canaries, *store).stdout.splitlines()
    applied = run("apply", canaries, *store).stdout.splitlines()
    plan = ["+ suite small", "+ canary small/a", "+ canary small/b", "+ retriever there", "+ hook ops", "+ check watch"]
    assert planned == [*plan, "6 to be created."]
    assert applied == [*plan, "6 created."]
    assert run("apply", canaries, *store).stdout == "Nothing to do: what is in force is what the files say.\n"

    changed = DEFINITIONS.replace("query: beta", "query: other").replace("[ops]", "[]").split("hooks:\n")[0]
    canaries.write_text(changed, encoding="utf-8")
    result = run("diff", canaries, *store, TOKEN="Bearer another")
    assert result.stdout.splitlines() == [
        "~ canary small/b (query)",
        "~ retriever there (secrets)",
        "~ check watch (hooks)",
        "- hook ops",
        "3 to be updated, 1 to be archived.",
    ]
    assert "another" not in result.output


def test_an_export_reads_back_as_what_is_in_force(canaries: Path, tmp_path: Path) -> None:
    store, file = ("--data-dir", tmp_path / "data"), tmp_path / "exported.yaml"
    run("apply", canaries, *store)
    written = run("export", file, *store)
    assert written.stdout == ""
    assert written.stderr.splitlines()[-1] == "To read it back, set: RETRIEVER_THERE_AUTHORIZATION, HOOK_OPS_SECRET"
    assert run("export", *store).stdout == file.read_text(encoding="utf-8")
    secret = "whsec_ZGVtby1zZWNyZXQtZGVtby1zZWNyZXQtZGVtbw=="
    again = run("diff", file, *store, RETRIEVER_THERE_AUTHORIZATION=TOKEN, HOOK_OPS_SECRET=secret)
    assert again.stdout == "Nothing to do: what is in force is what the files say.\n"
    assert TOKEN not in file.read_text(encoding="utf-8")


def test_a_running_service_takes_files_over_its_api(canaries: Path, tmp_path: Path) -> None:
    with coalmine(tmp_path / "data") as (url, service):
        assert run("diff", canaries, "--server", url).stdout.endswith("6 to be created.\n")
        assert httpx2.get(f"{url}/v1/checks").json()["items"] == []
        assert run("apply", canaries, "--server", url).stdout.endswith("6 created.\n")
        (check,) = httpx2.get(f"{url}/v1/checks").json()["items"]
        assert (check["slug"], check["managed_by"]) == ("watch", "api")
        assert run("apply", canaries, "--server", f"{url}/").stdout.startswith("Nothing to do")
        exported = run("export", "--server", url).stdout
        assert exported == run("export", "--data-dir", tmp_path / "data").stdout

        key = keys.create_key(service.store, name="t", scope=keys.Scope.READ, now=datetime.now(UTC))
        assert "answered 401" in refused("export", "--server", url)
        assert "answered 403" in refused("apply", canaries, "--server", url, COALMINE_API_KEY=key)
        assert run("export", "--server", url, COALMINE_API_KEY=key).stdout == exported


def test_a_service_refuses_what_a_file_owns(canaries: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.yaml"
    changed.write_text(canaries.read_text(encoding="utf-8").replace("query: ", "query: now ", 1), encoding="utf-8")
    with coalmine(tmp_path / "data", canaries=canaries, environment={"TOKEN": TOKEN}) as (url, _):
        said = refused("apply", changed, "--server", url)
        same = run("diff", canaries, "--server", url)
        plan = run("diff", changed, "--server", url)
        differs = run("diff", changed, "--server", url, "--exit-code")
    assert (plan.exit_code, differs.exit_code) == (0, 1)
    assert "~ canary small/" in plan.stdout
    assert f"(query; managed by {canaries}:" in plan.stdout
    assert "refused here, change it there)" in plan.stdout
    assert plan.stdout.endswith("1 to be updated.\n")
    assert f"is managed by {canaries}:" in said
    assert "answered 409: canary 'small/" in said
    assert "Nothing to do" in same.stdout


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply(b"<html>"), "did not answer as Coalmine does"),
        (reply(b"<html>", 502), "answered 502; is Coalmine there?"),
        (reply(b"", 301, {"location": "https://elsewhere.example/"}), "answered 301; is Coalmine there?"),
        (reply(b'{"detail": "no", "errors": [{"path": "a", "message": "bad\\u001b[2J"}]}', 422), "a: bad[2J"),
        (Reply(close=True), "cannot be asked"),
    ],
)
def test_what_is_no_service_is_said_in_a_line(canaries: Path, answer: Reply, said: str) -> None:
    with peer(answer) as server:
        assert said in refused("apply", canaries, "--server", server.url, COALMINE_API_KEY="hush-hush-hush")


def test_a_server_is_an_address_and_a_key_is_a_line(canaries: Path) -> None:
    assert "--server must be the address" in refused("diff", canaries, "--server", "coalmine.example")
    assert "--server must be the address" in refused("diff", canaries, "--server", "https://me:pw@coalmine.example")
    said = refused("export", "--server", "https://coalmine.example", COALMINE_API_KEY="two\nlines")
    assert said == "coalmine: COALMINE_API_KEY cannot be a key: it is not one line of text"


# --- keys and schema -----------------------------------------------------------------------------------------


def test_a_key_is_shown_once_on_stdout_alone_and_revoked_by_its_id(tmp_path: Path) -> None:
    store = ("--data-dir", tmp_path)
    created = run("keys", "create", "--scope", "write", "--name", "ci", *store)
    assert re.fullmatch(r"cmk_write_\S+\n", created.stdout)
    assert "shown once" in created.stderr
    listed = run("keys", "list", *store).stdout
    assert created.stdout.strip() not in listed
    row = next(line.split() for line in listed.splitlines() if " ci " in line)
    assert row[2] == "write"
    assert run("keys", "revoke", row[0], *store).exit_code == 0
    again = run("keys", "revoke", row[0], *store)
    said = f"coalmine: there is no key {row[0]} in force; `coalmine keys list` shows them"
    assert (again.exit_code, again.stderr.splitlines()[-1]) == (2, said)


@pytest.mark.both
def test_migrate_says_from_where_to_where(empty_database_url: str) -> None:
    first = run("migrate", COALMINE_DATABASE_URL=empty_database_url)
    second = run("migrate", COALMINE_DATABASE_URL=empty_database_url)
    assert re.search(r": migrated from nothing, now at \w+\n$", first.stdout), first.output
    assert re.search(r": has the schema already, now at \w+\n$", second.stdout), second.output


def test_migrate_says_loudly_that_it_made_a_new_database(tmp_path: Path) -> None:
    first, second = (run("migrate", "--data-dir", str(tmp_path / "typo")) for _ in range(2))
    told = f"NEW: there was no database at {tmp_path / 'typo' / 'coalmine.db'}, so an empty one was made."
    assert told in " ".join(first.stderr.split())
    assert "NEW" not in second.stderr


# --- help and logs -------------------------------------------------------------------------------------------


def test_the_version_is_told() -> None:
    assert run("--version").stdout == f"coalmine {__version__}\n"


def test_a_bug_is_not_taken_for_a_verdict() -> None:
    broken = "import app.cli as cli; cli.app.command('broken')(lambda: 1 / 0); cli.main()"
    process = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", broken, "broken"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 70
    assert process.stderr.endswith("ZeroDivisionError: division by zero\n")


def record(name: str, message: str, *arguments: object, **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.INFO, __file__, 1, message, arguments, None)
    made.created = 1_772_452_800.25
    vars(made).update(fields)
    return made


@pytest.mark.parametrize(
    ("given", "text", "fields"),
    [
        (
            record("coalmine.worker", "run_ended", run=5, detail='a "b"', index_version=None),
            '2026-03-02T12:00:00.250Z info run_ended run=5 detail="a \\"b\\""',
            {"event": "run_ended", "run": 5, "detail": 'a "b"', "index_version": None},
        ),
        (
            record("apscheduler.executors", "late\nby %s", 3),
            '2026-03-02T12:00:00.250Z info apscheduler logger=apscheduler.executors detail="late\\nby 3"',
            {"event": "apscheduler", "logger": "apscheduler.executors", "detail": "late\nby 3"},
        ),
        (
            record("uvicorn.access", '%s - "%s %s HTTP/%s" %d', "127.0.0.1:5", "GET", "/a?csrf=secret", "1.1", 200),
            "2026-03-02T12:00:00.250Z info request client=127.0.0.1:5 method=GET path=/a status=200",
            {"event": "request", "client": "127.0.0.1:5", "method": "GET", "path": "/a", "status": 200},
        ),
    ],
)
def test_an_event_is_one_line_its_word_first(given: logging.LogRecord, text: str, fields: Mapping[str, Any]) -> None:
    assert TextFormatter().format(given) == text
    line = JsonFormatter().format(given)
    assert "\n" not in line
    assert json.loads(line) == {**fields, "time": "2026-03-02T12:00:00.250Z", "level": "info"}
    assert line.startswith('{"event": ')


def test_the_trace_of_a_bug_follows_its_event() -> None:
    bug = record("coalmine", "bug")
    try:
        int("broken")
    except ValueError:
        bug.exc_info = sys.exc_info()
    event, *trace = TextFormatter().format(bug).splitlines()
    assert event.endswith("info bug")
    assert trace[-1].startswith("    ValueError: ")
    assert json.loads(JsonFormatter().format(bug))["trace"].startswith("Traceback")
