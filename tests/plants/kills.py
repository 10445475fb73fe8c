"""A service that is killed while it plants documents, as a real process: none may be left in the source.

`python -m tests.plants.kills 50` kills it so often, at moments drawn over the whole way of a document, and prints in
which state each kill found it.
"""

import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from tests.support.http_servers import Reply, Seen, peer
from tests.support.living import until
from tests.support.planted import PLANT, Source, retriever_of
from tests.support.processes import Process, free_ports, started
from tests.support.world import CHECK, canary, page

_WAY_SECONDS: Final = 2.2
"""From planting a document until it is gone: a slow put, a slow removal, and two polls."""
_SLOW_SECONDS: Final = 0.3
_SECONDS: Final = 180.0
"""How long is waited for a service on a busy machine."""


@dataclass(kw_only=True)
class SlowSource(Source):
    """A source that takes its time to take documents, so that kills come in between."""

    def __call__(self, seen: Seen) -> Reply:
        """Answer a request, a write after a while."""
        if seen.target != "/search":
            time.sleep(_SLOW_SECONDS)
        return super().__call__(seen)


def kill_amid_plants(folder: Path, *, kills: int, seed: int = 0) -> Counter[str]:
    """Kill a service so often while it plants; returns how often a kill found a plant in which state.

    Raises AssertionError where a document is left in the source, or was put twice.
    """
    moments = random.Random(seed)  # noqa: S311 - moments, no secrets
    found: Counter[str] = Counter()
    held = SlowSource()
    with peer(held) as served:
        plant = {**PLANT, "every": "31d", "poll": "1s"}
        described = page([canary("one")], schedule={"every": "31d"}, plant=plant, rules=[], hooks=[])
        described |= {"retrievers": [retriever_of(served)], "hooks": []}
        (folder / "canaries.yaml").write_text(json.dumps(described), encoding="utf-8")  # JSON is YAML
        for _ in range(kills):
            with _service(folder) as (process, url):
                until(lambda url=url: _plant(url), seconds=_SECONDS)
                time.sleep(moments.uniform(0, _WAY_SECONDS))
                assert process.end(signal.SIGKILL) == -signal.SIGKILL, process.said
            found[_last_word(held)] += 1
        with _service(folder) as (_, url):
            until(lambda: all(one["state"] in {"ended", "watched"} for one in _plants(url)), seconds=_SECONDS)
            planted = [one["document_id"] for one in _plants(url)]
    assert held.indexed == {}, held.indexed
    assert len(planted) == kills
    assert Counter(held.puts) <= Counter(planted), "none is put twice"
    return found


def _last_word(held: Source) -> str:
    return f"{len(held.indexed)} in the source"


@contextmanager
def _service(folder: Path) -> Iterator[tuple[Process, str]]:
    port = free_ports()
    arguments = ("serve", "--port", port, "--data-dir", folder / "data", "--canaries", folder / "canaries.yaml")
    with started(folder, *arguments) as process:
        url = f"http://127.0.0.1:{port}"
        until(lambda: _is_ready(process, url), seconds=_SECONDS)
        yield process, url


def _is_ready(process: Process, url: str) -> bool:
    assert process.popen.poll() is None, process.said
    try:
        return httpx2.get(f"{url}/readyz", timeout=10, trust_env=False).is_success
    except httpx2.TransportError:
        return False


def _plant(url: str) -> bool:
    """Plant a document, once the one before is gone."""
    answer = httpx2.post(f"{url}/v1/checks/{CHECK}/plants", timeout=30, trust_env=False)
    assert answer.status_code in {202, 409}, answer.text
    return answer.status_code == httpx2.codes.ACCEPTED


def _plants(url: str) -> list[dict[str, Any]]:
    answer = httpx2.get(f"{url}/v1/checks/{CHECK}/plants", params={"limit": 500}, timeout=30, trust_env=False)
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def main() -> None:
    """Kill it as often as the first argument says, and print what was found."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = kill_amid_plants(Path(folder), kills=kills)
    told = ", ".join(f"{count} with {state}" for state, count in sorted(found.items()))
    sys.stdout.write(f"{kills} kills ({told}): none is left after {time.perf_counter() - began:.0f} s\n")


if __name__ == "__main__":
    main()
