"""The real service as a process of a benchmark, asked over HTTP."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx2

from benchmarks.idle import environment, wait_until_ready


class Service:
    """The real service, which can be killed and started again over its data."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._port = 18_700 + os.getpid() % 1_000
        self._client = httpx2.Client(base_url=f"http://127.0.0.1:{self._port}", timeout=120, trust_env=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "app.cli", "serve", "--port", str(self._port), "--data-dir", str(self._data)]
        self._process = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)  # noqa: S603 - our own
        wait_until_ready(self._port, self._process)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(60)

    def get(self, path: str, **parameters: str) -> Any:
        """Ask for JSON."""
        return self._client.get(path, params=parameters).raise_for_status().json()

    def put(self, path: str, body: Any) -> Any:
        """Put JSON."""
        return self._client.put(path, json=body).raise_for_status().json()

    def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """Post JSON."""
        return self._client.post(path, json=body, headers=headers).raise_for_status().json()
