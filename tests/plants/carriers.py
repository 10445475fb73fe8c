"""Processes that carry planted documents on and are killed by `kill -9`, many times: none may be left in the source.

`python -m tests.plants.carriers 50` kills so many and prints what was found. Each is a fork of a process that has
loaded everything, so that a kill takes a second and not the start of a service: it does what a worker does of plants,
with the real client and the real clock.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from app import USER_AGENT
from app.base.addresses import AddressPolicy, parse_allow
from app.base.db.engine import Store
from app.base.db.files import migrate
from app.base.errors import ConflictError
from app.plants import store as rows
from app.plants.domain import PlantState
from app.plants.service import planting, shown
from app.retrievers.client.probe import RetrieverProbe
from tests.plants.kills import SlowSource
from tests.support.http_servers import peer
from tests.support.planted import PLANT, retriever_of
from tests.support.processes import ROOT
from tests.support.world import CHECK, World, canary, page

_WAY_SECONDS: Final = 2.2
"""From planting a document until it is gone: a slow put, a slow removal, and two polls."""
_MOST: Final = 60.0


def kill_carriers(folder: Path, *, kills: int, seed: int = 0) -> Counter[str]:
    """Kill processes that plant and carry on; returns how often a plant was in which state when its carrier died.

    Raises AssertionError where a document is left in the source, or was put twice.
    """
    moments = random.Random(seed)  # noqa: S311 - moments, no secrets
    held, found = SlowSource(), Counter[str]()
    url = f"sqlite:///{folder / 'plants.db'}"
    with peer(held) as served:
        world = World(store=Store(url))
        migrate(world.store)
        described = page([canary("one")], rules=[], hooks=[], plant={**PLANT, "poll": "1s"})
        world.apply(described | {"retrievers": [retriever_of(served)]})
        command = [sys.executable, "-m", "tests.plants.carriers", "--carry", url]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as carrying:  # noqa: S603 - ours
            for _ in range(kills):
                child = _ask(carrying)
                time.sleep(moments.uniform(0.05, _WAY_SECONDS))
                os.kill(child, signal.SIGKILL)
                newest = shown.load_plants(world.store, CHECK, now=datetime.now(UTC))["items"]
                found[str(newest[0]["state"]) if newest else "nothing"] += 1
            child = _ask(carrying)  # the last one is left alone
            end = time.monotonic() + _MOST
            while _open(world.store):
                assert time.monotonic() < end, shown.load_plants(world.store, CHECK, now=datetime.now(UTC))
                time.sleep(0.1)
            os.kill(child, signal.SIGKILL)
            carrying.kill()
        planted = [
            one["document_id"]
            for one in shown.load_plants(world.store, CHECK, limit=500, now=datetime.now(UTC))["items"]
        ]
        world.store.close()
    assert held.indexed == {}, held.indexed
    assert Counter(held.puts) <= Counter(planted), "none is put twice"
    return found


def _ask(carrying: "subprocess.Popen[bytes]") -> int:
    """Have a process forked that plants and carries on; its number."""
    assert carrying.stdin is not None
    assert carrying.stdout is not None
    carrying.stdin.write(b"go\n")
    carrying.stdin.flush()
    return int(carrying.stdout.readline())


def _open(store: Store) -> bool:
    """Whether a document may be in the source."""
    with store.read() as connection:
        found = rows.newest_of_checks(connection, 500)
    return any(
        one.plant.state not in {PlantState.WATCHED, PlantState.ENDED} for newest in found.values() for one in newest
    )


def _carry(url: str) -> None:
    """Fork a process for each line, and wait for the end of the one before."""
    last = 0
    for _ in sys.stdin:
        if last:
            os.waitpid(last, 0)
        last = os.fork()
        if last == 0:
            _carry_on(url, plants=True)
        sys.stdout.write(f"{last}\n")
        sys.stdout.flush()


def _carry_on(url: str, *, plants: bool) -> None:
    """Do what a worker does of plants: what is there is carried on first, then one is planted."""
    world = World(store=Store(url))
    probe = RetrieverProbe(AddressPolicy(name="retriever", allow=parse_allow("127.0.0.0/8")), USER_AGENT)
    while True:
        with world.store.read() as connection:
            newest = [one for found in rows.newest_of_checks(connection, 500).values() for one in found]
        for one in newest:
            if one.plant.ended_at is None:
                planting.carry_on(world.store, world.vault, probe, one.id, clock=lambda: datetime.now(UTC))
        if plants and not _open(world.store):
            try:
                planting.plant_of(world.store, CHECK, now=datetime.now(UTC))
            except ConflictError:
                continue
            plants = False
        time.sleep(0.02)


def main() -> None:
    """Kill as many as the first argument says, and print what was found; or carry on, as a process of its own."""
    if sys.argv[1:2] == ["--carry"]:
        _carry(sys.argv[2])
        return
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = kill_carriers(Path(folder), kills=kills)
    told = ", ".join(f"{count} {state}" for state, count in sorted(found.items()))
    sys.stdout.write(f"{kills} kills (newest plant: {told}): none is left after {time.perf_counter() - began:.0f} s\n")


if __name__ == "__main__":
    main()
