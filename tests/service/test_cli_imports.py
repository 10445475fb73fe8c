"""What the command line loads: the whole service takes a second and more, so each command loads what it needs."""

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


@pytest.mark.parametrize("group", ["keys", "secrets"])
def test_a_group_of_commands_lists_its_own(group: str) -> None:
    shown, _ = _loaded(group, "--help")
    assert f"{group} [OPTIONS] COMMAND" in shown
    assert "--install-completion" not in shown
