"""Programs of others for tests, real retrievers most of them: from an environment that `make test-systems` installs.

Each gets a free port of 127.0.0.1, a home of its own and an environment that keeps it off the internet.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.living import until
from tests.support.processes import ROOT, free_ports

ENVIRONMENT = ROOT / ".venv-servers"
PROGRAMS = ROOT / "tests" / "server_programs"

_ALONE = {
    "ANONYMIZED_TELEMETRY": "False",  # Chroma
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "HF_HUB_OFFLINE": "1",
    "LANGSMITH_TRACING": "false",
    "DO_NOT_TRACK": "1",
    "NO_COLOR": "1",
}


@contextmanager
def chroma(folder: Path) -> Iterator[str]:
    """Run `chroma run`; gives its address."""
    port = free_ports()
    command = ("chroma", "run", "--path", folder / "data", "--host", "127.0.0.1", "--port", port)
    with _running(folder, *command, ready=f"http://127.0.0.1:{port}/api/v2/heartbeat") as url:
        yield url


@contextmanager
def hayhooks(folder: Path) -> Iterator[str]:
    """Run Hayhooks, with no pipeline yet; gives its address."""
    port = free_ports()
    command = ("hayhooks", "run", "--host", "127.0.0.1", "--port", port)
    with _running(folder, *command, ready=f"http://127.0.0.1:{port}/status") as url:
        yield url


@contextmanager
def langserve(folder: Path, corpus: Path) -> Iterator[str]:
    """Run an app of LangServe with a retriever at `/search` over a corpus file; gives its address."""
    port = free_ports()
    command = ("python", PROGRAMS / "langserve_app.py", port, corpus)
    with _running(folder, *command, ready=f"http://127.0.0.1:{port}/openapi.json") as url:
        yield url


@contextmanager
def mcp(folder: Path, corpus: Path, *, stateless: bool = False) -> Iterator[str]:
    """Run an MCP server with the tool `search` over a corpus file; gives its address."""
    port = free_ports()
    command = (PROGRAMS / "mcp_server.py", port, corpus, *(["stateless"] if stateless else []))
    with _running(folder, "python", *command, ready=f"http://127.0.0.1:{port}/") as url:
        yield url


def installed(program: str) -> Path:
    """Give a program of the environment; skips where it is not there."""
    executable = ENVIRONMENT / "bin" / program
    if not executable.exists():
        pytest.skip(f"needs {executable.relative_to(ROOT)}, which make test-systems installs")
    return executable


@contextmanager
def _running(folder: Path, program: str, *arguments: object, ready: str) -> Iterator[str]:
    executable = installed(program)
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - programs we installed
            [executable, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**_ALONE, "HOME": str(folder), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        )
    try:
        until(lambda: process.poll() is not None or _answers(ready), seconds=60)
        assert process.poll() is None, log.read_text(encoding="utf-8", errors="replace")
        yield ready[: ready.index("/", len("http://"))]
    finally:
        process.kill()  # nothing of theirs outlives the test
        process.wait(60)
        shutil.rmtree(folder)


def _answers(url: str) -> bool:
    """Whether somebody serves HTTP there, whatever the answer."""
    try:
        return httpx2.get(url, timeout=5.0, trust_env=False).status_code < httpx2.codes.INTERNAL_SERVER_ERROR
    except httpx2.TransportError:
        return False
