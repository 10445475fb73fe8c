"""The harness leaves nothing behind, and says what did not come."""

import os
from pathlib import Path

import pytest

from tests.faults.harness import Child, Deadline, FaultError, processes

pytestmark = pytest.mark.systems

_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
child.wait()
"""


def test_nothing_is_left_of_a_trial_that_fails_whatever_its_processes_started(tmp_path: Path) -> None:
    deadline = Deadline(seconds=60)
    parents: list[Child] = []

    def fail() -> None:
        with processes(tmp_path, deadline) as started:
            parents.extend(started.python(name, "-c", _PARENT) for name in ("one", "frozen"))
            deadline.until("both have started a process", lambda: all(parent.output.strip() for parent in parents))
            parents[1].freeze()
            raise ValueError("the trial fails")

    with pytest.raises(ValueError, match="the trial fails"):
        fail()
    for parent in parents:
        assert parent.is_gone
        assert not _is_running(parent.pid)
    started = [int(parent.output) for parent in parents]
    deadline.until("what they started is gone too", lambda: not any(_is_running(pid) for pid in started))


def _is_running(pid: int) -> bool:
    """Whether there is such a process, other than one that has ended and that nobody asks for its exit code."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"


def test_a_process_of_a_trial_holds_no_file_of_the_test_run_open(tmp_path: Path) -> None:
    deadline = Deadline(seconds=60)
    code = "import os; print(*sorted((os.fstat(n).st_dev, os.fstat(n).st_ino) for n in (0, 1, 2)), sep='\\n')"
    with processes(tmp_path, deadline) as started:
        child = started.python("child", "-c", code)
        deadline.until("it has ended", lambda: not child.is_alive)
        inodes = [Path(os.devnull).stat(), child.log.stat(), child.log.stat()]
    assert child.output.splitlines() == [str(one) for one in sorted((one.st_dev, one.st_ino) for one in inodes)]


def test_what_does_not_come_is_told_with_what_came_and_the_ends_of_the_logs(tmp_path: Path) -> None:
    deadline = Deadline(seconds=60)
    with processes(tmp_path, deadline) as started:
        child = started.python("talker", "-c", "print('hello from it')")
        deadline.until("it has ended", lambda: not child.is_alive)
        with pytest.raises(FaultError, match=r"(?s)expected within .* s: three; came: 0.*hello from it"):
            deadline.until("three", lambda: 0, at_most=0.1)
        with pytest.raises(FaultError, match="expected talker to live through it"):
            deadline.hold(1, child)


def test_a_trial_that_takes_too_long_fails(tmp_path: Path) -> None:
    deadline = Deadline(seconds=0.1)
    with processes(tmp_path, deadline), pytest.raises(FaultError, match="never"):
        deadline.until("never", lambda: False)
