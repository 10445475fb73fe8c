"""`coalmine plant`: a real process plants by requests and by programs, and leaves nothing behind however it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from typer.testing import CliRunner

from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.catalog.documents.check_documents import CheckDocument
from app.cli import app as cli
from app.plants.client import run_command
from app.plants.domain import SECOND, PlantState, PlantTerms, Written
from app.plants.service.once import PlantingOnce, PlantVerdict
from tests.support.api_service import api
from tests.support.http_servers import Peer
from tests.support.living import until
from tests.support.planted import Source, retriever_of, source
from tests.support.processes import ROOT
from tests.support.world import World, canary, page

INGEST = """
import json, os, subprocess, sys, time, urllib.request

what, key, *rest = sys.argv[1:]
text = sys.stdin.read()
if "noted" in os.environ:
    with open(os.environ["noted"], "a") as notes:
        print(json.dumps([what, key, text, rest, os.getpid()]), file=notes)
if what == "fail":
    print("trying")
    print("no such collection")
    sys.exit(4)
if what == "nothing":
    sys.exit(0)
url, body = os.environ["SOURCE"] + "/documents", None
if what in {"put", "hang"}:
    body = json.dumps({"id": key, "text": text}).encode()
request = urllib.request.Request(
    url if body else f"{url}/{key}", data=body, method="POST" if body else "DELETE",
    headers={"Authorization": "Bearer source-key", "Content-Type": "application/json"},
)
urllib.request.urlopen(request).read()
if what == "hang":
    subprocess.Popen(["sleep", "60"])
    time.sleep(60)
"""
SOON: Mapping[str, Any] = {"every": "15m", "found_within": "20s", "gone_within": "20s", "poll": "1s"}
OVER_HTTP: Mapping[str, Any] = {
    "put": {"url": "/documents", "json": {"id": "{{ id }}", "text": "{{ text }}"}},
    "remove": {"url": "/documents/{{ id }}"},
}


@pytest.fixture
def served() -> Iterator[tuple[Source, Peer]]:
    with source() as both:
        yield both


class Ground:
    """A folder with canary files and an ingest program, beside a source."""

    def __init__(self, folder: Path, served: tuple[Source, Peer]) -> None:
        self.folder = folder
        self.source, self.peer = served
        (folder / "ingest.py").write_text(INGEST, "utf-8")
        self.notes = folder / "notes"
        self.environment = {**os.environ, "SOURCE": self.peer.url, "noted": str(self.notes)}

    def command(self, what: str, *more: str) -> dict[str, Any]:
        """Describe a request by the program."""
        return {"command": [sys.executable, str(self.folder / "ingest.py"), what, "{{ id }}", *more]}

    def plan(self, plant: Mapping[str, Any], check: Mapping[str, Any] = MappingProxyType({}), **changes: Any) -> None:
        """Write the canary files."""
        content = page([canary("a")], plant={**SOON, **plant}, hooks=[], **check) | {"hooks": []}
        content["retrievers"] = [{**retriever_of(self.peer), **changes}]
        (self.folder / "canaries.yaml").write_text(json.dumps(content), "utf-8")

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Plant, and wait for the end."""
        with self.running(*options) as process:
            written, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, written, errors)

    @contextmanager
    def running(self, *options: str) -> Iterator["subprocess.Popen[str]"]:
        """Plant in a process."""
        arguments = [sys.executable, "-m", "app.cli", "plant", str(self.folder / "canaries.yaml"), *options]
        process = subprocess.Popen(  # noqa: S603 - our own interpreter
            arguments,
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_heed_signals,  # noqa: PLW1509 - it sets signals alone
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def noted(self) -> list[list[Any]]:
        """Give what the program was started with."""
        return [json.loads(line) for line in self.notes.read_text("utf-8").splitlines()] if self.notes.exists() else []


@pytest.fixture
def ground(tmp_path: Path, served: tuple[Source, Peer]) -> Ground:
    return Ground(tmp_path, served)


def is_running(number: int) -> bool:
    """Whether a process is there and no corpse."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{number}/status").read_text("utf-8")
    except FileNotFoundError:
        return False


# --- to its end ----------------------------------------------------------------------------------------------


def test_a_document_is_put_found_removed_and_gone(ground: Ground) -> None:
    ground.plan(OVER_HTTP)
    done = ground.run()
    assert done.returncode == 0, done.stderr
    head, question, *steps, verdict = done.stdout.splitlines()
    (key,) = ground.source.puts
    assert head == f"Document {key}, asked for by check watch:"
    assert question.startswith("  Coalmine test document coalmine")
    assert [step.partition(" s  ")[2] for step in steps] == [
        "put: sent",
        "put: taken by the source",
        "found",
        "removal: taken by the source",
        "gone",
    ]
    assert verdict.startswith("In time (within 20 s and 20 s): found after ")
    assert ground.source.indexed == {}


def test_programs_put_it_and_remove_it_by_their_arguments_and_no_shell(ground: Ground) -> None:
    hostile = "{{ marker }}; touch $HOME `id` \"'"
    ground.plan(
        {
            "put": ground.command("put", hostile, "{{ text }}", "{{ tenant }}"),
            "remove": ground.command("remove"),
            "text": "About {{ marker }}.",
        },
        options={"tenant": "acme"},
        request={"json": {"q": "{{ query }}", "tenant": "{{ tenant }}"}},
    )
    done = ground.run("--check", "watch", "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    key, marker = report["document_id"], report["marker"]
    (put, removal) = ground.noted()
    assert put[:4] == ["put", key, f"About {marker}.", [hostile.replace("{{ marker }}", marker), put[2], "acme"]]
    assert removal[:4] == ["remove", key, f"About {marker}.", []]
    assert (report["verdict"], report["finding"], report["problem"]) == ("in_time", "found", None)
    assert report["found_seconds"] > 0
    assert report["gone_seconds"] > 0
    assert report["removal"].endswith(f"ingest.py remove {key}")
    assert [step["text"] for step in report["steps"]][-1] == "gone"
    assert "source-key" not in done.stdout + done.stderr
    assert ground.source.indexed == {}


def test_a_stopped_queue_is_said_and_the_document_removed(ground: Ground) -> None:
    ground.source.stopped = True
    ground.plan({"put": ground.command("put"), "remove": ground.command("remove"), "found_within": "2s"})
    done = ground.run()
    assert done.returncode == 1, done.stderr
    assert "not found within 2 s" in done.stdout
    assert (
        "Not in time: a planted document was not found after 2 s: new documents do not reach the index" in done.stdout
    )
    (key,) = ground.source.puts
    assert [name for name, _ in ground.source.queued] == [key, key]
    assert ground.source.queued[1][1] is None
    assert f"A queue may bring it yet: then remove it with {sys.executable}" in done.stderr
    assert done.stderr.strip().endswith(f"remove {key}")


def test_a_removal_that_removes_nothing_is_said_loudly(ground: Ground) -> None:
    ground.plan({"put": ground.command("put"), "remove": ground.command("nothing"), "gone_within": "1s"})
    done = ground.run()
    assert done.returncode == 1, done.stderr
    (key,) = ground.source.puts
    assert "still found: the removal is sent again" in done.stdout
    assert "Not in time: a planted document was still found" in done.stdout
    assert f"LEFT BEHIND: document {key}" in done.stderr
    assert f"nothing {key}" in done.stderr
    assert list(ground.source.indexed) == [key]


def test_a_retriever_that_does_not_answer_measures_nothing(ground: Ground) -> None:
    ground.source.refusing = {"search"}
    ground.plan({**OVER_HTTP, "found_within": "1s", "gone_within": "1s"})
    done = ground.run("--format", "json")
    assert done.returncode == 3, done.stderr
    report = json.loads(done.stdout)
    assert (report["verdict"], report["finding"], report["may_be_left"]) == ("not_measured", "unmeasured", False)
    assert "the retriever did not answer" in report["failure"]
    assert ground.source.indexed == {}


@pytest.mark.parametrize("what", ["fail", "hang"])
def test_a_program_that_fails_or_hangs_measures_nothing_and_its_document_is_removed(ground: Ground, what: str) -> None:
    ground.plan({"put": {**ground.command(what), "timeout": "2s"}, "remove": ground.command("remove")})
    done = ground.run()
    assert done.returncode == 3, done.stderr
    said = "ended with exit code 4: no such collection" if what == "fail" else "did not end within 2 s"
    assert f"it could not be put: `{sys.executable}` {said}" in done.stdout
    assert ground.source.indexed == {}
    assert not is_running(ground.noted()[0][4])


def test_it_is_put_asked_for_and_removed_as_the_check_says(ground: Ground) -> None:
    bearers = {user: {"kind": "bearer", "token": key} for user, key in (("ann", "other-key"), ("ben", "source-key"))}
    auth = {"by": "user", "of": bearers}
    ground.plan(OVER_HTTP, check={"vars": {"user": "ben"}}, options={"user": "ann"}, auth=auth)
    done = ground.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert {seen.headers["authorization"] for seen in ground.peer.seen} == {"Bearer source-key"}
    assert {seen.method for seen in ground.peer.seen} == {"POST", "DELETE"}


# --- ended early ---------------------------------------------------------------------------------------------


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _heed_signals() -> None:
    """Let a process be ended by signals, though these tests may run in the background, where some are ignored."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", _ENDING)
def test_a_signal_while_it_is_awaited_removes_the_document(ground: Ground, number: signal.Signals) -> None:
    ground.source.stopped = True
    ground.plan(OVER_HTTP)
    with ground.running() as process:
        until(lambda: len(ground.source.queued) == 1)
        time.sleep(0.5)
        process.send_signal(number)
        written, errors = process.communicate(timeout=60)
    (key,) = ground.source.puts
    assert process.returncode == 130, errors
    assert [text for _, text in ground.source.queued][1:] == [None]
    assert f"Interrupted: removing document {key}." in errors
    assert f"Removed document {key}; nobody asked until it was gone." in errors
    assert "In time" not in written


def test_a_signal_while_a_program_puts_it_ends_the_program_and_removes_the_document(ground: Ground) -> None:
    ground.plan({"put": ground.command("hang"), "remove": ground.command("remove")})
    with ground.running() as process:
        until(lambda: len(ground.source.indexed) == 1)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert ground.source.indexed == {}
    (put, _) = ground.noted()
    assert not is_running(put[4])
    assert "Removed document" in errors


def test_a_removal_that_fails_then_says_which_is_left_and_how_to_remove_it(ground: Ground) -> None:
    ground.source.refusing = {"DELETE"}
    ground.source.stopped = True
    ground.plan(OVER_HTTP)
    with ground.running() as process:
        until(lambda: len(ground.source.queued) == 1)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    (key,) = ground.source.puts
    assert process.returncode == 130, errors
    assert ground.source.refused == 3
    assert f"LEFT BEHIND: document {key}" in errors
    assert f"Remove it with: DELETE {ground.peer.url}/documents/{key}, with the credentials of" in errors
    assert "source-key" not in errors


def test_nobody_who_reads_is_no_reason_to_leave_it(ground: Ground) -> None:
    ground.source.stopped = True
    ground.plan({**OVER_HTTP, "found_within": "3s"})
    with ground.running() as process:
        until(lambda: len(ground.source.queued) == 1)
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        with process.stderr as errors:
            assert "Removed document" in errors.read()
    assert [text for _, text in ground.source.queued][1:] == [None]


# --- unusable ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plant", "options", "said"),
    [
        ({**OVER_HTTP, "remove": {"command": ["./no-such", "{{ id }}"]}}, [], "there is no program './no-such'"),
        ({**OVER_HTTP, "remove": {"sql": "DELETE FROM a WHERE id = :id"}}, [], "is no database"),
        ({**OVER_HTTP, "remove": {"url": "/{{ id }}/{{ tenant }}"}}, [], "unknown placeholder '{{ tenant }}'"),
        ({**OVER_HTTP, "credentials": "writer"}, [], "there is no retriever 'writer'"),
        (OVER_HTTP, ["--check", "watches"], "the files define no check 'watches'; did you mean 'watch'?"),
    ],
)
def test_what_cannot_be_planted_or_not_be_removed_is_not_planted(
    ground: Ground, plant: Mapping[str, Any], options: Sequence[str], said: str
) -> None:
    ground.plan(plant)
    done = CliRunner().invoke(cli, ["plant", str(ground.folder / "canaries.yaml"), *options])
    assert done.exit_code == 2, done.output
    assert said in done.output
    assert ground.source.puts == []


def test_a_file_without_a_plant_says_so(ground: Ground) -> None:
    content = page([canary("a")]) | {"hooks": [], "checks": [{**page()["checks"][0], "hooks": []}]}
    (ground.folder / "canaries.yaml").write_text(json.dumps(content), "utf-8")
    done = CliRunner().invoke(cli, ["plant", str(ground.folder / "canaries.yaml")])
    assert (done.exit_code, "0 checks of the files plant documents" in done.output) == (2, True)
    named = CliRunner().invoke(cli, ["plant", str(ground.folder / "canaries.yaml"), "--check", "watch"])
    assert "check 'watch' has no plant" in named.output


# --- by the service ------------------------------------------------------------------------------------------

COMMAND: Mapping[str, Any] = {
    "every": "15m",
    "put": {"command": ["./ingest", "{{ id }}"]},
    "remove": {"command": ["./remove", "{{ id }}"], "timeout": "30s"},
}
REFUSED = "the service runs no commands"


def test_the_service_refuses_commands_however_they_come(tmp_path: Path, sqlite_store: Store) -> None:
    (file := tmp_path / "canaries.yaml").write_text(
        json.dumps({**page([canary("a")], plant=COMMAND, hooks=[]), "hooks": []}), "utf-8"
    )
    with api(tmp_path) as service:
        service.docs()
        check = service.get("/v1/checks/docs")
        answer = service.client.put("/v1/checks/docs", json={**check, "plant": COMMAND})
        assert answer.status_code == 422
        errors = {error["path"]: error["message"] for error in answer.json()["errors"]}
        assert set(errors) == {"plant.put.command", "plant.remove.command"}
        assert all(REFUSED in message for message in errors.values())
        imported = service.client.post("/v1/import", json=json.loads(file.read_text("utf-8")))
        assert (imported.status_code, REFUSED in imported.text) == (422, True)
    applied = CliRunner().invoke(cli, ["apply", str(file), "--data-dir", str(tmp_path / "data")])
    assert (applied.exit_code, REFUSED in applied.output) == (2, True)
    assert str(file) in applied.output
    with pytest.raises(InvalidInputError, match=REFUSED):
        World(store=sqlite_store).apply(page([canary("a")], plant=COMMAND))
    valid = CliRunner().invoke(cli, ["validate", str(file)])
    assert valid.exit_code == 0, valid.output
    assert (
        "check 'watch' plants by a command, which 'coalmine plant' runs; 'serve' and 'apply' refuse it" in valid.output
    )


def test_a_service_does_not_load_what_runs_programs() -> None:
    program = "import sys, app.main, app.commands; print('app.plants.client' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - our own interpreter
    assert ran.stdout == "False\n"


@pytest.mark.parametrize(
    ("changes", "path", "said"),
    [
        ({"put": {"command": []}}, "plant.put.command", "at least 1"),
        ({"put": {"command": "./ingest {{ id }}"}}, "plant.put.command", "list"),
        ({"put": {"command": ["./{{ id }}"]}}, "plant.put.command[0]", "is the program, which no variable may name"),
        ({"put": {"command": ["./ingest"]}}, "plant.put", "must hold {{ id }} or {{ marker }}"),
        ({"put": {"command": ["./a", "{{ id }}"], "url": "/a"}}, "plant.put", "must have one of 'url', 'sql' and"),
        (
            {"remove": {"url": "/{{ id }}", "timeout": "3s"}},
            "plant.remove.timeout",
            "belongs to a request with a command",
        ),
    ],
)
def test_a_command_is_a_list_that_names_the_document(changes: Mapping[str, Any], path: str, said: str) -> None:
    check = {"slug": "c", "suite": "s", "retriever": "r", "schedule": {"every": "1h"}, "plant": {**COMMAND, **changes}}
    with pytest.raises(InvalidInputError) as raised:
        parse_document(CheckDocument, check)
    found = {str(one.path): one.message for one in raised.value.problems}
    assert said in found[path], found


# --- step by step --------------------------------------------------------------------------------------------


class Puppet:
    """Hands that answer as told, on a clock of their own."""

    def __init__(self, **told: Any) -> None:
        self.now = 0.0
        self.told = {"put": Written(), "remove": [Written()], "seen": lambda _now: (True, None), **told}
        self.done: list[str] = []

    def clock(self) -> int:
        """Give the time."""
        return round(self.now * SECOND)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def put(self) -> Written:
        """Put it in."""
        self.done.append("put")
        written: Written = self.told["put"]
        return written

    def ask(self) -> tuple[bool | None, str | None]:
        """Ask for it."""
        answer: tuple[bool | None, str | None] = self.told["seen"](self.now)
        return answer

    def remove(self) -> Written:
        """Remove it."""
        self.done.append("remove")
        removals: list[Written] = self.told["remove"]
        return removals.pop(0) if len(removals) > 1 else removals[0]

    def planting(self) -> PlantingOnce:
        """Plant a document."""
        terms = PlantTerms(found_within=10, gone_within=10, poll=1)
        return PlantingOnce.of(terms, self, clock=self.clock, wait=self.wait, stepped=lambda _before, _after: None)


FAILED = Written(failure="down")


def test_a_removal_that_fails_three_times_is_left_behind() -> None:
    puppet = Puppet(remove=[FAILED])
    planting = puppet.planting()
    planting.run()
    assert puppet.done == ["put", "remove", "remove", "remove"]
    assert (planting.verdict, planting.may_be_left) == (PlantVerdict.LATE, True)
    mended = Puppet(remove=[FAILED, Written()], seen=lambda now: (now < 5, None))
    planting = mended.planting()
    planting.run()
    assert (planting.verdict, planting.may_be_left) == (PlantVerdict.IN_TIME, False)


def test_whether_it_is_gone_is_not_known_where_nobody_answers_any_more() -> None:
    answers: list[tuple[bool | None, str | None]] = [(True, None)]
    puppet = Puppet(seen=lambda _now: answers.pop() if answers else (None, "down"))
    planting = puppet.planting()
    planting.run()
    assert (planting.plant.state, planting.verdict) == (PlantState.LEAVING, PlantVerdict.NOT_MEASURED)
    assert not planting.may_be_left
    assert puppet.now < 60


def test_what_was_never_sent_is_not_removed() -> None:
    puppet = Puppet()
    planting = puppet.planting()
    planting.withdraw("nobody wants it")
    assert (puppet.done, planting.plant.state) == ([], PlantState.ENDED)


def test_a_program_may_leave_something_in_the_background_that_holds_its_output() -> None:
    started = time.monotonic()
    assert run_command(["sh", "-c", "sleep 3 & cat >/dev/null"], "text", 30).failure is None
    assert time.monotonic() - started < 2.5


def test_a_program_that_was_started_as_a_signal_came_is_ended(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    late = tmp_path / "late"
    with pytest.raises(KeyboardInterrupt):
        run_command(["sh", "-c", f"sleep 1; echo put >{late}"], "text", 30, started=interrupt)
    time.sleep(1.5)
    assert not late.exists()
