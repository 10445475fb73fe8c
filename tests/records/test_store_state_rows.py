"""Charts equal a plain reckoning at every resolution, and timelines say how long each state held."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from statistics import mean
from typing import Any

import pytest

from app.base.db.engine import Store, to_us
from app.base.errors import InvalidInputError, NotFoundError
from app.base.values import Outcome
from app.reports.service import charts
from app.reports.views import IndexMark, SeriesPoint
from tests.conftest import DIALECTS, Databases
from tests.support.fakes import START, answered, failed, hits
from tests.support.present import present
from tests.support.world import CHECK, World, canary, page

pytestmark = pytest.mark.databases

HOURS = 30
CATEGORIES = {"ant": "procedural", "bee": "procedural", "cat": "comparative", "dog": "comparative"}
Life = tuple[World, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def lives(databases: Databases) -> Iterator[Callable[[str], Life]]:
    """Give worlds that have run for days; too long to live through anew for every test."""
    known: dict[str, Life] = {}

    def life(dialect: str) -> Life:
        if dialect not in known:
            known[dialect] = _live(World(store=Store(getattr(databases, dialect)())))
        return known[dialect]

    yield life
    for world, _ in known.values():
        world.store.close()


@pytest.fixture(params=DIALECTS)
def lived(request: pytest.FixtureRequest, lives: Callable[[str], Life]) -> Life:
    """Give a world that has run every half hour for thirty hours, with what each run showed."""
    return lives(request.param)


def _live(world: World) -> Life:
    world.apply(page([canary(key, category=category) for key, category in CATEGORIES.items()]))
    shown = []
    for number in range(2 * HOURS):
        world.clock.now = START + timedelta(minutes=30 * number)
        found = [key for place, key in enumerate(CATEGORIES) if (number * 7 + place * 3) % 5]
        world.probe.answers = {key: answered(hits("noise")) for key in CATEGORIES if key not in found}
        if number % 10 == 3:
            world.probe.answers["ant"] = failed(Outcome.TIMEOUT)
        if number % 17 == 5:
            world.probe.all_fail()
            world.probe.answers = {}
        else:
            world.probe.otherwise = lambda ask: answered(hits(f"doc-{ask.query}"))
        if number == 25:
            world.apply(page([canary(key, category=one) for key, one in CATEGORIES.items()], k=3))  # another layout
        shown.append(world.shown(world.run(index_version=f"v{number // 20}")))
    return world, shown


def _series(world: World, *, points: int, days: float = 4, **more: Any) -> Sequence[SeriesPoint]:
    wanted: dict[str, Any] = {"measure": "coverage", "category": None, **more}
    start, end = to_us(START - timedelta(days=1)), to_us(START + timedelta(days=days))
    return charts.series(world.store, CHECK, start=start, end=end, points=points, **wanted)["points"]


def _value(run: dict[str, Any], measure: str, category: str | None) -> float | None:
    part = run["categories"][category] if category else run
    value: float | None = part[measure] if measure in part else part["measures"][measure]
    return value


MEASURES = [
    ("coverage", None),
    ("health_score", None),
    ("R@5", None),
    ("MRR", None),
    ("degraded_share", None),
    ("coverage", "procedural"),
    ("health_score", "comparative"),
]


def test_single_runs_show_as_they_were(lived: Life) -> None:
    world, shown = lived
    wrong = {}
    for measure, category in MEASURES:
        points = _series(world, points=500, measure=measure, category=category)
        expected = [
            {"at": run["finished_at"], "mean": value, "min": value, "max": value, "runs": 1}
            | {"first_run": run["id"], "last_run": run["id"], "unknown": run["verdict"] == "unknown"}
            | {"corrected": None}  # by labels of people, of which there are none
            for run in shown
            if (value := _value(run, measure, category)) is not None
        ]
        assert 0 < len(expected) < len(shown)
        if [asdict(point) for point in points] != expected:
            wrong[measure, category] = points, expected
    assert wrong == {}


@pytest.mark.parametrize(("days", "seconds"), [(4.0, 3_600), (100.0, 86_400)])
def test_hours_and_days_show_mean_minimum_and_maximum(lived: Life, days: float, seconds: int) -> None:
    world, shown = lived
    for measure, category in MEASURES:
        buckets: dict[datetime, list[float]] = defaultdict(list)
        for run in shown:
            value = _value(run, measure, category)
            if value is not None:
                at = int(datetime.fromisoformat(run["finished_at"]).timestamp())
                buckets[datetime.fromtimestamp(at - at % seconds, UTC)].append(value)
        points = _series(world, points=50, days=days, measure=measure, category=category)
        assert [datetime.fromisoformat(point.at) for point in points] == sorted(buckets), (measure, category)
        for point, (_, values) in zip(points, sorted(buckets.items()), strict=True):
            seen = point.min, point.max, point.runs
            assert seen == (min(values), max(values), len(values)), (measure, category)
            assert point.mean == pytest.approx(mean(values), abs=2e-6), (measure, category)


def test_fewer_points_join_neighbours_and_lose_nothing(lived: Life) -> None:
    world, shown = lived
    values = [run["coverage"] for run in shown if run["coverage"] is not None]
    points = _series(world, points=7)
    assert len(points) <= 7
    assert sum(point.runs for point in points) == len(values)
    assert min(present(point.min) for point in points) == min(values)
    assert max(present(point.max) for point in points) == max(values)
    total = sum(present(point.mean) * point.runs for point in points)
    assert total / len(values) == pytest.approx(mean(values), abs=1e-5)


def test_marks_stand_where_the_index_version_changed(lived: Life) -> None:
    world, shown = lived
    start, end = to_us(START), to_us(START + timedelta(days=4))
    chart = charts.series(world.store, CHECK, measure="coverage", category=None, start=start, end=end, points=10)
    assert chart["marks"] == [
        IndexMark(at=shown[number]["finished_at"], index_version=f"v{number // 20}") for number in (0, 20, 40)
    ]


def test_a_measure_that_is_not_kept_is_refused(lived: Life) -> None:
    with pytest.raises(InvalidInputError):
        _series(lived[0], points=10, measure="R@4")


def test_a_period_without_runs_is_empty(lived: Life) -> None:
    world, _ = lived
    start, end = to_us(START - timedelta(days=9)), to_us(START - timedelta(days=8))
    chart = charts.series(world.store, CHECK, measure="coverage", category=None, start=start, end=end, points=10)
    assert chart["points"] == []


def test_a_timeline_tells_how_long_each_state_held(lived: Life) -> None:
    """Told by the states, and by looking at every run one after another."""
    world, shown = lived
    by_run: list[tuple[str, list[str]]] = []
    for run in shown:
        result = world.results(int(run["id"]))["dog"]
        if result["verdict"] != "unknown":
            by_run.append((run["id"], [hit["id"] for hit in result["ranking"]]))
    items = charts.canary_history(world.store, CHECK, "dog", limit=500).items[::-1]
    last = len(shown)
    told = [
        (run_id, item["ranking"])
        for item in items
        for run_id in map(str, range(int(item["first_run"]), int(item["last_run"] or last) + 1))
        if run_id in dict(by_run)
    ]
    assert told == by_run
    assert [item["last_run"] is None for item in items] == [False] * (len(items) - 1) + [True]
    times = {run["id"]: run["finished_at"] for run in shown}
    assert all(item["from"] == times[item["first_run"]] for item in items)
    assert all(item["until"] == times[item["last_run"]] for item in items[:-1])


def test_a_canary_that_never_was_has_no_timeline(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary("ant")]))
    with pytest.raises(NotFoundError):
        charts.canary_history(sqlite_store, CHECK, "nobody")
    assert charts.canary_history(sqlite_store, CHECK, "ant").items == []
