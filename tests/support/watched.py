"""A check a detector watches: twenty canaries, some of which may find nothing; its baseline made beforehand."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from app.base.db.engine import Store
from app.catalog import store as catalog
from app.detection import store as detector_rows
from app.detection.service import detectors as detector_service
from app.detection.store import DetectionRow
from app.runs.service.finalising import EndedRun
from tests.conftest import Databases
from tests.support.fakes import FakeClock, answered, hits
from tests.support.world import CHECK, World, canary, page

KEYS = tuple(f"q{number:02}" for number in range(20))
REGRESSION = {"kind": "regression"}
LEARNED = 20
"""So many identical runs are a baseline."""


def define(world: World, **check: Any) -> None:
    """Put twenty canaries of two topics in force, watched for regressions."""
    canaries = [canary(key, tags=["billing" if place < 10 else "legal"]) for place, key in enumerate(KEYS)]
    world.apply(page(canaries, **{"rules": [REGRESSION], **check}))


def carry_out(world: World, count: int, missing: Iterable[str] = ()) -> list[EndedRun]:
    """Carry out runs in which these canaries find nothing."""
    world.probe.answers = {key: answered(hits("noise", "more-noise")) for key in missing}
    return [world.run() for _ in range(count)]


def until_open(world: World, missing: Iterable[str], at_most: int = 6) -> list[EndedRun]:
    """Carry out such runs until an alarm stands."""
    runs: list[EndedRun] = []
    while not runs or not seen(world)[runs[-1].id].open:
        assert len(runs) < at_most
        runs += carry_out(world, 1, missing)
    return runs


def seen(world: World) -> dict[int, DetectionRow]:
    """Read what the detector made of every run, by run id."""
    with world.store.read() as connection:
        check = catalog.find_definition(connection, "check", CHECK)
        assert check is not None
        return {row.run_id: row for row in detector_rows.all_detections(connection, check.id)}


def regressed(world: World, run: EndedRun) -> set[str]:
    """Name the canaries a run calls regressed."""
    return {key for key, result in world.results(run).items() if "regressed" in result["reasons"]}


def expect_retraced(world: World) -> None:
    """Expect the detector, led over the stored runs, to come to what was stored when they ended."""
    stored = seen(world)
    again = detector_service.replay_check(world.store, CHECK)
    assert [one.run_id for one in again] == list(stored)
    for one in again:
        row, reading = stored[one.run_id], one.reading
        told = (reading.evidence, reading.open, reading.lost, reading.worse, reading.warming)
        assert told == (row.evidence, row.open, row.lost, row.worse, row.body.get("warming"))
        assert list(one.culprits) == [named["key"] for named in row.body.get("culprits", {"named": []})["named"]]


@dataclass(kw_only=True)
class Interrupted(FakeClock):
    """A clock somebody acts at when it is looked at for the time a run ended."""

    looks: int = 0
    act: Callable[[int], None]

    def __call__(self) -> datetime:
        """Count, act, and tell the time."""
        self.looks += 1
        self.act(self.looks)
        return self.now


_MADE: dict[tuple[Path, str, Callable[[World], object]], tuple[str, FakeClock]] = {}


def made_once(databases: Databases, make: Callable[[World], object], dialect: str = "sqlite") -> tuple[str, FakeClock]:
    """Copy a database that is made once of a new world; gives the URL of the copy and when that is."""
    key = databases.folder, dialect, make
    if key not in _MADE:
        url: str = getattr(databases, dialect)()
        store = Store(url)
        world = World(store=store)
        make(world)
        store.close()
        _MADE[key] = url, world.clock
    url, clock = _MADE[key]
    return databases.copy(url), FakeClock(now=clock.now)


def _learn(world: World) -> None:
    define(world)
    carry_out(world, LEARNED)


def learned_world(databases: Databases, dialect: str) -> tuple[str, FakeClock]:
    """Make a database in which a baseline has just been learned; gives its URL and when that is."""
    return made_once(databases, _learn, dialect)
