"""In CI everything a test needs is there, so a skip is a failure; two targets run every test between them."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.processes import ROOT

TESTS = """
import pytest

def test_skips():
    pytest.skip("no such thing here")

@pytest.mark.skip(reason="not today")
def test_is_skipped():
    pass

@pytest.mark.xfail(reason="known", strict=True)
def test_is_known_to_fail():
    assert False
"""

VARIANTS = """
import pytest

@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_one(kind):
    pass

@pytest.mark.both
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_either(kind):
    pass

@pytest.mark.databases
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_both(kind):
    pass
"""


@pytest.mark.parametrize(
    ("ci", "code", "summary"), [("true", 1, "1 failed, 1 xfailed, 2 errors"), ("", 0, "3 skipped, 1 xfailed")]
)
def test_a_skip_fails_in_ci_alone(tmp_path: Path, ci: str, code: int, summary: str) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_others.py").write_text('import pytest\n\npytest.importorskip("a_package_that_is_not_there")\n')
    ended = run_pytest(tmp_path, "--continue-on-collection-errors", ci=ci)
    assert (ended.returncode, summary in ended.stdout) == (code, True), ended.stdout


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        ("not systems", {"one[sqlite]", "either[sqlite]", "both[sqlite]", "both[postgresql]"}),
        ("systems", {"either[postgresql]"}),
    ],
)
def test_postgresql_is_of_make_test_where_a_claim_is_about_databases(
    tmp_path: Path, selected: str, expected: set[str]
) -> None:
    (tmp_path / "test_some.py").write_text(VARIANTS)
    collected = run_pytest(tmp_path, "--collect-only", "-m", selected, ci="true").stdout
    assert set(re.findall(r"::test_(\S+)", collected)) == expected


def run_pytest(folder: Path, *arguments: str, ci: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest over a folder with the hooks of our own tests."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    markers = [f"  {line}" for line in options["markers"]]
    (folder / "pytest.ini").write_text("\n".join(["[pytest]", "markers =", *markers]))
    command = ["-m", "pytest", "-q", "-p", "tests.conftest", "--rootdir", str(folder), *arguments, str(folder)]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, *command],
        cwd=folder,
        env={**alone, "CI": ci, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_test_runs_in_one_of_the_two_targets_and_the_gate_calls_both() -> None:
    """One selects what carries the mark, the other what does not; neither leaves out anything else."""
    assert (selection("test"), selection("test-systems")) == ("not systems", "systems")
    called = [line for line in (ROOT / ".ci/run").read_text("utf-8").splitlines() if line.startswith("guarded ")]
    assert called == ["guarded make test", "guarded make test-systems"]


def selection(target: str) -> str:
    """Give the marks by which a target selects tests, the only thing it selects by."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", target]
    recipe = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own
    (line,) = [line for line in recipe.splitlines() if "/pytest " in line]
    _program, *arguments = shlex.split(line)
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert options.keys() == {"--numprocesses", "--dist", "-m"}
    return options["-m"]
