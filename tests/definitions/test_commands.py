"""Commands on a database: which one they use, what they make, and what their exit codes say to scripts."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.catalog.service.vault import KEY_FILE
from app.cli import app
from tests.support.http_servers import peer, reply
from tests.support.processes import ROOT

CANARIES = """
suite: small
canaries: [{key: a, query: alpha, expected_chunks: [doc-alpha]}]
retrievers: [{slug: there, url: "http://127.0.0.1:1/", response: {hits: results, id: id}}]
checks: [{slug: watch, suite: small, retriever: there, schedule: {every: 1d}}]
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def canaries(tmp_path: Path) -> Path:
    file = tmp_path / "canaries.yaml"
    file.write_text(CANARIES, encoding="utf-8")
    return file


@pytest.mark.parametrize("command", ["diff", "export", "keys list", "keys revoke"])
def test_what_only_reads_or_revokes_makes_no_database(command: str, canaries: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    wanted = {"diff": (str(canaries),), "keys revoke": ("1f0a3b5c7d",)}.get(command, ())
    result = run(*command.split(), *wanted, "--data-dir", data)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"coalmine: there is no database at {data / 'coalmine.db'}; --data-dir or")
    assert not data.exists()


@pytest.mark.parametrize("command", ["apply", "keys create"])
def test_what_makes_a_database_says_where(command: str, canaries: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    wanted = {"apply": (str(canaries),), "keys create": ("--scope", "read")}[command]
    arguments = (*command.split(), *wanted)
    place = f"Database: SQLite, {data / 'coalmine.db'}"
    assert f"{place} (new)\n" in run(*arguments, "--data-dir", data).stderr
    assert f"{place}\n" in run(*arguments, "--data-dir", data).stderr
    for reading in (("diff", str(canaries)), ("export",), ("keys", "list")):
        told = run(*reading, "--data-dir", data).stderr.splitlines()
        assert [line for line in told if not line.startswith("Note: suite 'small' is thin")] == [place]


def test_a_diff_makes_no_key(canaries: Path, tmp_path: Path) -> None:
    assert run("migrate", "--data-dir", tmp_path).exit_code == 0
    assert run("diff", canaries, "--data-dir", tmp_path).exit_code == 0
    assert not (tmp_path / KEY_FILE).exists()


def test_a_diff_fails_for_a_difference_only_when_asked_to(canaries: Path, tmp_path: Path) -> None:
    arguments = ("diff", canaries, "--data-dir", tmp_path / "data")
    run("migrate", "--data-dir", tmp_path / "data")
    assert [run(*arguments).exit_code, run(*arguments, "--exit-code").exit_code] == [0, 1]
    run("apply", canaries, "--data-dir", tmp_path / "data")
    assert [run(*arguments).exit_code, run(*arguments, "--exit-code").exit_code] == [0, 0]
    canaries.write_text("nonsense: 1", encoding="utf-8")
    assert run(*arguments, "--exit-code").exit_code == 2


def test_a_bad_option_is_said_in_our_words(canaries: Path) -> None:
    result = run("check", canaries, "--format", "xml")
    assert result.exit_code == 2
    formats = "'table', 'json', 'junit', 'markdown', 'html', 'trec', 'comment'"
    said = f"Invalid value for '--format': 'xml' is not one of {formats}."
    assert said in " ".join(result.stderr.split())
    wrong = run("check", canaries, "--output", "table=report.txt", "--output", "json=")
    assert wrong.exit_code == 2
    assert "--output: 'table=report.txt' is not FORMAT=FILE, with a format of json, junit, " in wrong.stderr
    assert "--output: 'json=' is not FORMAT=FILE" in wrong.stderr


def test_help_says_what_exit_codes_follow() -> None:
    told = {command: " ".join(run(command, "--help").stdout.split()) for command in ("check", "diff")}
    assert "follows the rules of the check" in told["check"]
    assert "JUnit has failures only where the exit code is 1" in told["check"]
    assert "Exit code 0 whether or not something would change, but for --exit-code" in told["diff"]


def test_a_reader_who_goes_away_is_neither_a_verdict_nor_a_bug(canaries: Path) -> None:
    with peer(reply(b'{"results": [{"id": "doc-alpha"}]}')) as retriever:
        for arguments in (("check", canaries, "--url", retriever.url), ("--help",)):
            process = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-m", "app.cli", *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=ROOT,
                text=True,
            )
            assert process.stdout is not None
            process.stdout.close()
            process.stdout = None
            _, errors = process.communicate(timeout=60)
            assert (process.returncode, errors) == (141, ""), arguments
