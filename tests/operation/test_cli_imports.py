"""What the command line loads: the whole service takes a second and more, so each command loads what it needs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from app import cli

ROOT = Path(__file__).parents[2]
HEAVY = {
    "alembic", "apscheduler", "cryptography", "fastapi", "jinja2", "msgspec", "numpy", "psycopg", "pycurl", "pydantic",
    "rich", "sqlalchemy", "starlette", "uvicorn", "yaml",
}  # fmt: skip
SERVICE = {"alembic", "cryptography", "fastapi", "psycopg", "pycurl", "sqlalchemy", "starlette", "uvicorn"}


def _loaded(*arguments: str) -> tuple[str, set[str]]:
    """Run a command; give its output and the packages that were imported at its end."""
    program = (
        "import sys, app.cli\n"
        "try:\n    app.cli.main()\n"
        "finally:\n    print('LOADED', *{name.partition('.')[0] for name in sys.modules})\n"
    )
    ran = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    shown, _, modules = ran.stdout.rpartition("LOADED ")
    return shown, set(modules.split())


def _modules(*arguments: str) -> set[str]:
    """Run a command; give the modules that were imported at its end."""
    program = "import sys, app.cli\ntry:\n    app.cli.main()\nfinally:\n    print('LOADED', *sys.modules)\n"
    ran = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(ran.stdout.rpartition("LOADED ")[2].split())


def test_the_version_is_shown_without_loading_anything_heavy() -> None:
    shown, loaded = _loaded("--version")
    assert shown.startswith("coalmine ")
    assert "typer" in loaded
    assert loaded & HEAVY == set()


def test_files_are_validated_without_loading_the_service() -> None:
    shown, loaded = _loaded("validate", "canaries")
    assert "All good" in shown
    assert "pydantic" in loaded
    assert loaded & SERVICE == set()


def test_a_check_measures_without_loading_the_service(tmp_path: Path) -> None:
    """Against a run file, for which nobody is asked."""
    file, run = tmp_path / "suite.yaml", tmp_path / "run.trec"
    retriever = {
        "slug": "r",
        "url": "http://127.0.0.1:9/",
        "request": {"json": {"query": "{{ query }}"}},
        "response": {"hits": "@", "id": "id"},
    }
    page = {
        "suite": "s",
        "canaries": [{"key": "a", "query": "What?", "expected_chunks": ["c1"]}],
        "retrievers": [retriever],
        "checks": [{"slug": "c", "suite": "s", "retriever": "r", "schedule": {"every": "1d"}}],
    }
    file.write_text(json.dumps(page))
    run.write_text("a Q0 c1 1 0.9 run\n")
    shown, loaded = _loaded("check", str(file), "--rankings", str(run))
    assert shown.startswith("Healthy: c")
    assert "pycurl" in loaded  # it could have asked
    assert loaded & (SERVICE - {"pycurl"}) == set()
    # What only pages, pictures, crons, tools of MCP and a terminal need: a hundred modules, a seventh of its time.
    assert loaded & {"PIL", "apscheduler", "asyncio", "jinja2"} == set()
    assert "rich.progress" not in _modules("check", str(file), "--rankings", str(run))


def test_a_document_is_planted_without_loading_the_service() -> None:
    """As far as its help, for which all its modules are loaded."""
    shown, loaded = _loaded("plant", "--help")
    assert "Plant one document" in shown
    assert loaded & (SERVICE - {"pycurl"}) == set()


def test_the_migrations_are_loaded_only_where_there_are_some_to_run(tmp_path: Path) -> None:
    first, loaded = _loaded("migrate", "--data-dir", str(tmp_path))
    assert "migrated from nothing" in first
    assert "alembic" in loaded
    again, loaded = _loaded("migrate", "--data-dir", str(tmp_path))
    assert "has the schema already" in again
    assert "alembic" not in loaded


def test_what_the_modules_are_made_of_is_not_looked_through_for_garbage() -> None:
    program = (
        "import gc, sys, app.cli\n"
        "try:\n    app.cli.main()\n"
        "finally:\n    print(gc.isenabled(), gc.get_freeze_count(), len(gc.get_objects()))\n"
    )
    command = [sys.executable, "-c", program, "validate", "canaries"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - our own
    enabled, frozen, others = ran.stdout.splitlines()[-1].split()
    assert enabled == "True"
    assert int(frozen) > 50_000 > int(others)


def test_the_help_lists_every_command_without_importing_it() -> None:
    shown, loaded = _loaded("--help")
    assert "typer" in loaded
    assert loaded & HEAVY == set()
    for name, help_text in _help_of_commands().items():
        assert f"\n  {name.ljust(8)}  {help_text[:40]}" in shown
        assert help_text in " ".join(shown.split()), "none is cut"
    sections = re.findall(r"(?m)^([A-Z]\w+):$", shown)
    assert sections == ["Options", *cli.SECTIONS]


def test_a_command_that_is_mistyped_is_answered_with_the_one_that_was_meant() -> None:
    told = CliRunner().invoke(cli.app, ["chekc"])
    assert told.exit_code == 2
    assert "No such command 'chekc'. Did you mean 'check'?" in told.output
    assert "Did you mean" not in CliRunner().invoke(cli.app, ["zzz"]).output


def test_shells_complete_commands_without_importing_them() -> None:
    asked = {"_COALMINE_COMPLETE": "complete_bash", "COMP_WORDS": "coalmine ch", "COMP_CWORD": "1"}
    ran = subprocess.run(  # noqa: S603 - our own
        [Path(sys.executable).with_name("coalmine")],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["check"]


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    assert {name: text for name, (_, text) in cli._COMMANDS.items()} == _help_of_commands()


def _help_of_commands() -> dict[str, str]:
    """Return the first sentence of the help of each command, in a line."""
    group = get_command(cli.app)
    assert isinstance(group, TyperGroup)
    context = group.make_context("coalmine", ["serve"], resilient_parsing=True)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    helps = {name: (command and command.help) or "" for name, command in found.items()}
    lines = {name: " ".join(text.partition("\n\n")[0].split()) for name, text in helps.items()}
    return {name: re.split(r"(?<=[.]) ", line)[0] for name, line in lines.items()}


@pytest.mark.parametrize("group", ["keys", "secrets"])
def test_a_group_of_commands_lists_its_own(group: str) -> None:
    shown, _ = _loaded(group, "--help")
    assert f"{group} [OPTIONS] COMMAND" in shown
    assert "--install-completion" not in shown


@pytest.mark.parametrize("given", [None, "2"])
def test_loading_a_command_starts_no_threads_of_algebra_and_leaves_the_environment_as_it_was(given: str | None) -> None:
    program = (
        "import os, sys, app.cli\n"
        "try:\n    app.cli.main()\n"
        "finally:\n    print('LEFT', 'numpy' in sys.modules, len(os.listdir('/proc/self/task')),"
        " os.environ.get('OPENBLAS_NUM_THREADS'))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    ran = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", program, "check", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env=environment if given is None else environment | {"OPENBLAS_NUM_THREADS": given},
    )
    loaded, threads, left = ran.stdout.rpartition("LEFT ")[2].split()
    assert loaded == "True"
    assert left == str(given)
    assert given is not None or threads == "1"
