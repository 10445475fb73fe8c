"""The plugin for pytest and `check` of `coalmine_client`, in a project that has an `app` of its own."""

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.support.client_package import client_environment

CANARIES = """
suite: docs
canaries:
  - {key: retention, query: How long are backups kept?, expected_chunks: [retention]}
  - {key: refunds, query: How do refunds work?, expected_chunks: [{text: Refunds take five days.}]}
  - {key: plan, query: What is the plan?, expected_chunks: [acme-plan], forbidden_chunks: [globex-plan],
     vars: {tenant: acme}}
"""
SEARCH = """
ANSWERS = {
    "How long are backups kept?": [{"id": "retention", "text": "Backups are kept for ten days."}],
    "How do refunds work?": ["Refunds take five days."],
}

def retrieve(query, k, tenant=None):
    return ANSWERS.get(query) or [(f"{tenant}-plan", "The plan."), ("noise", "Noise.")][:k]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give a project of two files and its canaries; its package is called `app`, as Coalmine's is."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app/__init__.py").write_text("", "utf-8")
    (tmp_path / "app/search.py").write_text(SEARCH, "utf-8")
    (tmp_path / "canaries.yaml").write_text(CANARIES, "utf-8")
    (tmp_path / "test_own.py").write_text("def test_own():\n    import app.search\n", "utf-8")
    return tmp_path


@cache
def _environment() -> dict[str, str]:
    return client_environment(Path(tempfile.mkdtemp(prefix="coalmine-client-")))


def run(project: Path, *arguments: str, script: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run pytest, or a script, as somebody with the client installed and Coalmine on the path."""
    program = ["-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider"]
    return subprocess.run(  # noqa: S603 - our own client
        [sys.executable, *(program if script is None else ["-c", script]), *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **_environment(), "PYTHONPATH": f"{_environment()['PYTHONPATH']}{os.pathsep}{project}"},
    )


ASKED = ("--coalmine", "canaries.yaml", "--coalmine-retriever", "app.search:retrieve")


def test_each_canary_is_a_test_beside_those_of_the_project(project: Path) -> None:
    done = run(project, *ASKED, "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("test_own.py::test_own", "docs::retention", "docs::refunds", "docs::plan", "docs::check"):
        assert f"{name} PASSED" in done.stdout
    assert "5 passed" in done.stdout


def test_without_the_option_nothing_is_asked(project: Path) -> None:
    done = run(project)
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("spread", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_failure_says_what_came_instead_and_what_the_baseline_had(project: Path, spread: tuple[str, ...]) -> None:
    assert run(project, *ASKED, "--coalmine-save", "before.json").returncode == 0
    worse = SEARCH.replace('"id": "retention"', '"id": "other"').replace("{tenant}-plan", "globex-plan")
    (project / "app/search.py").write_text(worse, "utf-8")
    done = run(project, *ASKED, "--coalmine-baseline", "before.json", *spread)
    assert done.returncode == 1, done.stdout + done.stderr
    said = done.stdout
    assert "query: How long are backups kept?" in said
    assert "expected, and not found:\n  retention\ncame:\n    1. other  Backups are kept for ten days." in said
    assert "in the baseline it was healthy:\n    1. retention" in said
    assert "1. globex-plan (forbidden)  The plan." in said
    assert "docs is degraded" in said
    assert "3 failed, 2 passed" in said
    assert "Traceback" not in said


def test_settings_stand_in_the_ini_file(project: Path) -> None:
    (project / "pytest.ini").write_text(
        "[pytest]\ncoalmine_canaries = canaries.yaml\ncoalmine_retriever = app.search:retrieve\n", "utf-8"
    )
    assert "5 passed" in run(project).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--coalmine", "canaries.yaml"), "--coalmine needs --coalmine-retriever"),
        (("--coalmine", "canaries.yaml", "--coalmine-retriever", "app.search"), "'app.search' is not MODULE:NAME"),
        (("--coalmine", "canaries.yaml", "--coalmine-retriever", "app.search:nothing"), "app.search has no 'nothing'"),
        (("--coalmine", "canaries.yaml", "--coalmine-retriever", "absent:x"), "absent cannot be imported"),
        (("--coalmine", "absent", "--coalmine-retriever", "app.search:retrieve"), "absent"),
    ],
)
def test_what_is_wrong_with_the_call_is_said(project: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run(project, *arguments)
    assert done.returncode == 4, done.stdout
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_retriever_raises_is_what_was_not_measured(project: Path) -> None:
    (project / "app/search.py").write_text("def retrieve(query):\n    raise KeyError('no index')\n", "utf-8")
    done = run(project, *ASKED)
    assert done.returncode == 1
    assert "KeyError: 'no index'" in done.stdout


def test_a_check_in_a_notebook_gives_rows_and_a_baseline(project: Path) -> None:
    done = run(
        project,
        script="""
import json
from coalmine_client import check
from app.search import retrieve
report = check(retrieve, "canaries.yaml")
report.save("before.json")
async def worse(query, k, **variables):
    return [] if "refunds" in query else retrieve(query, k, **variables)
after = check(worse, ["canaries.yaml"], baseline="before.json")
print(json.dumps([report.healthy, after.healthy, after.reasons, [(row["key"], row["verdict"]) for row in after.rows]]))
print(report, after.measures["docs"]["coverage"])
""",
    )
    assert done.returncode == 0, done.stderr
    healthy, after, reasons, rows = json.loads(done.stdout.splitlines()[0])
    assert (healthy, after) == (True, False)
    assert any("lost since the baseline" in one for one in reasons)
    assert rows == [["retention", "healthy"], ["refunds", "degraded"], ["plan", "healthy"]]
    assert done.stdout.splitlines()[1].startswith("<coalmine: 0 of 3 canaries degraded, healthy> 0.66")


def test_without_coalmine_on_the_path_the_error_says_what_to_do(project: Path) -> None:
    done = run(
        project,
        script="""
import os
os.environ["PATH"] = ""
from coalmine_client import CheckError, check
try:
    check(lambda query: [], "canaries.yaml")
except CheckError as error:
    print(error)
""",
    )
    assert done.stdout.startswith("there is no `coalmine` on the path: install it"), done.stderr
