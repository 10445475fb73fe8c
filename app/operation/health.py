"""The health check of the image, `python -m app.operation.health`: a worker's heartbeat file, else `/livez`.

A worker alone listens nowhere, so it touches a file of its own in the data folder; the name has the host's, since
containers may share the folder. Standard library alone: an engine starts this every few seconds.
"""

import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.request import urlopen

SILENT_SECONDS = 30.0


def sign_of_life(data_dir: Path) -> Path:
    """Path of the file that the worker of this host touches while its threads are alive."""
    return data_dir / f"worker-{socket.gethostname()}.alive"


def is_alive(file: Path, now: float) -> bool:
    """Whether the file is young enough; `now` in seconds since 1970. Raises FileNotFoundError."""
    return now - file.stat().st_mtime <= SILENT_SECONDS


def check(data_dir: Path, port: str) -> bool:
    """Whether this container is healthy: its worker where it is one alone, else its service."""
    try:
        return is_alive(sign_of_life(data_dir), time.time())
    except FileNotFoundError:
        try:
            with urlopen(f"http://127.0.0.1:{port}/livez", timeout=4):
                return True
        except OSError:
            return False


def port_of(environment: Mapping[str, str]) -> str:
    """Return the port of the service; Kubernetes makes COALMINE_PORT tcp://... for a Service called `coalmine`."""
    port = environment.get("COALMINE_PORT", "")
    return port if port.isdecimal() else "8000"


if __name__ == "__main__":
    healthy = check(Path(os.environ.get("COALMINE_DATA_DIR", "data")), port_of(os.environ))
    sys.exit(0 if healthy else 1)
