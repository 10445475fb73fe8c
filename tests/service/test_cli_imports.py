"""What the command line loads: the whole service takes a second and more, so each command loads what it needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert loaded & {"alembic", "fastapi", "starlette", "uvicorn"} == set()


@pytest.mark.parametrize("group", ["keys", "secrets"])
def test_a_group_of_commands_lists_its_own(group: str) -> None:
    shown, _ = _loaded(group, "--help")
    assert f"{group} [OPTIONS] COMMAND" in shown
    assert "--install-completion" not in shown
