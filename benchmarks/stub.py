"""The stub retriever of the benchmarks as a process: stub.c, built with gcc."""

import http.client
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PORT: Final = 18_473


class NotInstalledError(Exception):
    """A program that a figure needs is not installed; the message is its name."""


@contextmanager
def stub(answers: int, port: int = PORT, *, delay_us: int = 0) -> Iterator[None]:
    """Build and run the stub with so many answers, each sent after a delay. Raises NotInstalledError without gcc."""
    compiler = program("gcc")
    with tempfile.TemporaryDirectory() as folder:
        binary = f"{folder}/stub"
        source = str(Path(__file__).with_name("stub.c"))
        subprocess.run([compiler, "-O2", "-o", binary, source], check=True)  # noqa: S603 - our own words
        process = subprocess.Popen([binary, str(port), str(answers), str(delay_us)])  # noqa: S603 - just built
        try:
            _wait_until_listening(process, port)
            yield
        finally:
            process.kill()
            process.wait()


def change_answers(percent: int, port: int = PORT) -> None:
    """Change so many of every hundred answers for good: two hits swapped, every score moved in its fourth digit."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("PUT", f"/q{percent}")
    assert connection.getresponse().status == 204
    connection.close()


def program(name: str) -> str:
    """Path of a program. Raises NotInstalledError."""
    found = shutil.which(name)
    if found is None:
        raise NotInstalledError(name)
    return found


def _wait_until_listening(process: "subprocess.Popen[bytes]", port: int) -> None:
    for _attempt in range(200):
        if process.poll() is not None:
            raise RuntimeError("the stub ended at its start: is its port in use?")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.connect()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()
    raise RuntimeError("the stub did not listen within ten seconds")
