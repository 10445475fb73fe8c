"""Real processes to try faults on: started, killed, frozen, thawed, and waited for up to a deadline.

Each is the leader of a session of its own and is killed with its whole group at the end, whatever happened. It writes
to a file: a process left behind cannot hold a pipe of the test run open.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.support.processes import ROOT

ValueT = TypeVar("ValueT")
_POLL_SECONDS = 0.02
_SHOWN_CHARACTERS = 3_000


class FaultError(AssertionError):
    """What was expected did not come in time; says what came instead."""


@dataclass(kw_only=True)
class Child:
    """A process of ours, and whatever it starts."""

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    user: str | None = None
    code: Path = ROOT
    """The folder it is started in."""
    _popen: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start it, again after its end."""
        assert not self.is_alive, f"{self.name} is running"
        with self.log.open("ab") as output:
            self._popen = subprocess.Popen(  # noqa: S603 - our own programs
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.code,
                env={**os.environ, **self.environment},
                start_new_session=True,
                user=self.user,
            )

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        assert self._popen is not None, f"{self.name} was never started"
        return self._popen.pid

    @property
    def is_alive(self) -> bool:
        """Whether it is running, or frozen."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def is_gone(self) -> bool:
        """Whether neither it nor anything of its group is left."""
        if self._popen is None:
            return True
        if self._popen.poll() is None:
            return False
        try:
            os.killpg(self._popen.pid, 0)
        except ProcessLookupError:
            return True
        return False

    @property
    def output(self) -> str:
        """What it wrote, over all its lives."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def send(self, number: signal.Signals) -> None:
        """Send a signal to its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill it at once, frozen or not, with its group; returns when it is gone."""
        if self._popen is None:
            return
        self.send(signal.SIGKILL)
        self._popen.wait(30)

    def freeze(self) -> None:
        """Stop it in its tracks."""
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.send(signal.SIGCONT)

    def end(self, deadline: "Deadline") -> int:
        """Ask it to end, wait, and give its exit code."""
        self.send(signal.SIGTERM)
        deadline.until(f"{self.name} ends after SIGTERM", lambda: not self.is_alive, at_most=60)
        assert self._popen is not None
        return int(self._popen.wait(1))


@dataclass(kw_only=True)
class Deadline:
    """The moment at which a trial has failed, and the processes that must live until then."""

    seconds: float
    children: list[Child] = field(default_factory=list)
    _ends_at: float = 0.0

    def __post_init__(self) -> None:
        """Begin to count."""
        self._ends_at = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        """Seconds until then."""
        return self._ends_at - time.monotonic()

    def until(self, expected: str, condition: Callable[[], ValueT], *, at_most: float = 1e9) -> ValueT:
        """Wait for a condition and give its first true value.

        Raises FaultError saying what was expected, what came, and the last lines of all processes.
        """
        began = time.monotonic()
        while True:
            came = condition()
            if came:
                return came
            waited = time.monotonic() - began
            if waited > at_most or self.left < 0:
                raise FaultError(f"expected within {waited:.0f} s: {expected}; came: {came!r}\n{self._tails()}")
            time.sleep(_POLL_SECONDS)

    def hold(self, seconds: float, *living: Child) -> None:
        """Let a fault last so long; fails as soon as one of these processes has ended."""
        ends_at = time.monotonic() + seconds

        def is_over() -> bool:
            for child in living:
                if not child.is_alive:
                    raise FaultError(f"expected {child.name} to live through it; it ended\n{self._tails()}")
            return time.monotonic() >= ends_at

        self.until(f"{seconds} s are over", is_over)

    def _tails(self) -> str:
        return "\n".join(f"--- {child.name}\n{child.output[-_SHOWN_CHARACTERS:]}" for child in self.children)


@dataclass(kw_only=True)
class Processes:
    """Starts processes with logs in a folder; all are gone when it is closed."""

    folder: Path
    deadline: Deadline
    children: list[Child] = field(default_factory=list)

    def start(
        self, name: str, command: Sequence[object], user: str | None = None, code: Path = ROOT, **environment: str
    ) -> Child:
        """Start one."""
        child = Child(
            name=name,
            command=[str(word) for word in command],
            log=self.folder / f"{name}-{len(self.children)}.log",
            environment=environment,
            user=user,
            code=code,
        )
        self.children.append(child)
        self.deadline.children.append(child)
        child.start()
        return child

    def python(self, name: str, *arguments: object, code: Path = ROOT, **environment: str) -> Child:
        """Start one in our Python."""
        return self.start(name, [sys.executable, *arguments], code=code, **environment)

    def close(self) -> None:
        """Kill all that is left, the newest first."""
        for child in reversed(self.children):
            child.kill()


@contextmanager
def processes(folder: Path, deadline: Deadline) -> Iterator[Processes]:
    """Give a way to start processes; afterwards none is left, nor anything of its group."""
    started = Processes(folder=folder, deadline=deadline)
    try:
        yield started
    finally:
        started.close()
        grace = Deadline(seconds=30)
        grace.until("no process is left", lambda: all(child.is_gone for child in started.children))
