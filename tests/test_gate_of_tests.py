"""In CI everything a test needs is there, so a skip is a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("ci", "code", "summary"), [("true", 1, "1 failed, 1 xfailed, 2 errors"), ("", 0, "3 skipped, 1 xfailed")]
)
def test_a_skip_fails_in_ci_alone(tmp_path: Path, ci: str, code: int, summary: str) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_others.py").write_text('import pytest\n\npytest.importorskip("a_package_that_is_not_there")\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    ended = subprocess.run(  # noqa: S603 - our own program
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tests.conftest",
            "--rootdir",
            tmp_path,
            "--continue-on-collection-errors",
            tmp_path,
        ],
        cwd=tmp_path,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, summary in ended.stdout) == (code, True), ended.stdout
