"""The plugin for pytest and `check` of `coalmine_client`, in a project that has an `app` of its own."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from app.base.values import EMPTY
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


COMMAND_VARIABLE = "PYTEST_COALMINE_COMMAND"


def run(
    project: Path, *arguments: str, script: str | None = None, environment: Mapping[str, str] = EMPTY
) -> subprocess.CompletedProcess[str]:
    """Run pytest, or a script, as somebody with the client installed and Coalmine on the path."""
    program = ["-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider"]
    return subprocess.run(  # noqa: S603 - our own client
        [sys.executable, *(program if script is None else ["-c", script]), *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            **_environment(),
            "PYTHONPATH": f"{_environment()['PYTHONPATH']}{os.pathsep}{project}",
            **environment,
        },
    )


ASKED = ("--coalmine", "canaries.yaml", "--coalmine-retriever", "app.search:retrieve")


def test_each_canary_is_a_test_beside_those_of_the_project(project: Path) -> None:
    done = run(project, *ASKED, "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("test_own.py::test_own", "docs::retention", "docs::refunds", "docs::plan", "docs::check"):
        assert f"{name} PASSED" in done.stdout
    assert "5 passed" in done.stdout


@pytest.mark.parametrize("spread", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_what_retrieves_is_found_where_one_stands_also_by_the_script_of_pytest(
    project: Path, spread: tuple[str, ...]
) -> None:
    (project / "test_own.py").unlink()  # whose folder pytest would put on the path
    path = {**_environment(), "PYTHONSAFEPATH": "1"}  # as the script `pytest` has it: without the folder one stands in
    done = run(project, *ASKED, *spread, environment=path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


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
    assert "query: What is the plan?\nasked as: tenant acme\n" in said
    assert "\n  forbidden: a chunk that must not come, at rank 1\n" in said
    assert "query: How long are backups kept?\n  missing\n" in said
    assert "docs is degraded" in said
    assert "3 failed, 2 passed" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("spread", [(), ("-n", "2")], ids=["alone", "xdist"])
@pytest.mark.parametrize("command", ["absent-coalmine --quiet", ""])
def test_without_coalmine_the_canaries_fail_and_the_tests_of_the_project_run(
    project: Path, spread: tuple[str, ...], command: str
) -> None:
    path = {"PATH": str(project), COMMAND_VARIABLE: command}
    done = run(project, *ASKED, *spread, environment=path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "coalmine::not asked" in done.stdout
    what = f"{command.split(maxsplit=1)[0]} is not found" if command else "there is no `coalmine` on the path"
    assert f"{what}: install it in an environment of its own, or set {COMMAND_VARIABLE}" in done.stdout
    assert "Traceback" not in done.stdout


def test_canaries_are_chosen_by_name_and_left_out_by_an_empty_setting(project: Path) -> None:
    (project / "pytest.ini").write_text(
        "[pytest]\ncoalmine_canaries = canaries.yaml\ncoalmine_retriever = app.search:retrieve\n", "utf-8"
    )
    assert "1 passed, 4 deselected" in run(project, "-k", "retention").stdout
    assert "1 passed in" in run(project, "-o", "coalmine_canaries=", "test_own.py").stdout


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


WRONG_VARIABLE = "canaries.yaml:6: vars.tenant: of canary 'docs/plan' is no parameter of the function that retrieves"


@pytest.mark.parametrize(
    ("takes", "more"),
    [
        ("query, k, tenat='acme'", "; did you mean 'tenat'?"),
        ("query", "; it takes the query alone"),
        ("query, top_k, language='en'", "; it takes language, top_k"),
    ],
)
def test_a_variable_that_the_function_does_not_take_is_refused_with_its_name(
    project: Path, takes: str, more: str
) -> None:
    (project / "app/search.py").write_text(f"def retrieve({takes}):\n    return []\n", "utf-8")
    done = run(project, *ASKED)
    assert done.returncode == 4, done.stdout
    assert WRONG_VARIABLE + more in done.stderr


def test_what_is_wrong_is_said_under_xdist_too_and_nobody_waits(project: Path) -> None:
    (project / "app/search.py").write_text("def retrieve(query):\n    return []\n", "utf-8")
    done = run(project, *ASKED, "-n", "2")
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert f"no canary was asked: coalmine check: {WRONG_VARIABLE}; it takes the query alone" in done.stdout


LIVE = """
retrievers:
  - {slug: live, url: "http://127.0.0.1:9/{{ version }}", options: {version: v1, lang: en, tenant: nobody},
     request: {json: {q: "{{ query }}", lang: "{{ lang }}", tenant: "{{ tenant }}", said: "{{ history }}"}}}
checks: [{slug: docs, suite: docs, retriever: live, schedule: {every: 1d}, vars: {}}]
"""


def test_so_are_a_variable_of_the_check_and_a_conversation(project: Path) -> None:
    said = CANARIES.replace("expected_chunks: [retention]", "history: [{role: user, content: Hello}]")
    (project / "canaries.yaml").write_text(said + LIVE.replace("vars: {}", "vars: {lang: de}"), "utf-8")
    done = run(project, *ASKED)
    assert done.returncode == 4, done.stdout
    assert "canaries.yaml:12: vars.lang: of check 'docs' is no parameter of the function that retrieves" in done.stderr
    assert "canaries.yaml:4: history: of canary 'docs/retention' is no parameter of the function" in done.stderr
    assert "vars.tenant" not in done.stderr


def test_an_option_that_no_canary_sets_may_be_one_of_the_live_retriever_alone(project: Path) -> None:
    (project / "canaries.yaml").write_text(CANARIES + LIVE, "utf-8")
    done = run(project, *ASKED)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_retriever_raises_is_what_was_not_measured(project: Path) -> None:
    (project / "app/search.py").write_text("def retrieve(query, **_):\n    raise KeyError('no index')\n", "utf-8")
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
