"""Programs that put a planted document into its source and remove it: run on this machine, for `coalmine plant` alone.

The service never comes here. No shell reads the arguments, and whatever a program started ends with it.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from tempfile import TemporaryFile

from app.base.texts import plain, shorten
from app.base.values import Outcome
from app.plants.domain import Written

_NOTHING: AbstractContextManager[None] = nullcontext()
_ENDING_SECONDS = 5.0
"""How long a program that is ended may take to clean up."""
_QUOTED = 300
_READ_BYTES = 20_000


def run_command(
    arguments: Sequence[str],
    text: str,
    timeout_seconds: float,
    *,
    starting: AbstractContextManager[None] = _NOTHING,
    started: Callable[[], None] = lambda: None,
) -> Written:
    """Run a program with `text` as its standard input and return how it ended; a failure quotes its last line.

    It has a process group of its own. Unless it succeeds, all of that is ended: what comes late could put in what was
    removed meanwhile. So it is after `timeout_seconds`, and where this is interrupted: not while it is `starting`, when
    nobody would know of it, but in `started`, which is called next and may raise.
    """
    name = plain(arguments[0])
    # Files and no pipes: what it leaves in the background may hold them as long as it likes.
    with TemporaryFile() as given, TemporaryFile() as written:
        given.write(text.encode())
        given.seek(0)
        try:
            with starting:
                process = subprocess.Popen(  # noqa: S603 - arguments of the user's own file, without a shell
                    list(arguments), stdin=given, stdout=written, stderr=subprocess.STDOUT, start_new_session=True
                )
        except OSError as error:
            return Written(failure=f"`{name}` cannot be started: {error.strerror}", outcome=Outcome.BLOCKED)
        code = None
        try:
            started()
            code = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return Written(failure=f"`{name}` did not end within {timeout_seconds:g} s", outcome=Outcome.TIMEOUT)
        finally:
            if code != 0:
                _end_group(process)
        if code == 0:
            return Written()
        written.seek(max(0, os.fstat(written.fileno()).st_size - _READ_BYTES))
        last = written.read().decode(errors="replace").strip().rpartition("\n")[2]
    ended = f"exit code {code}" if code > 0 else f"signal {-code}"
    quote = f": {shorten(last, _QUOTED)}" if last else ""
    return Written(failure=f"`{name}` ended with {ended}{quote}", outcome=Outcome.REFUSED)


def is_program(name: str) -> bool:
    """Whether there is such a program, by its path or on PATH."""
    return shutil.which(name) is not None


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a program and what it started: in good order first, whatever is left of it then."""
    try:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING_SECONDS)
    finally:
        with suppress(ProcessLookupError, PermissionError):  # nothing of it is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
