"""Beside its points a series says what charts draw around them: gaps, what is usual, bounds, alerts; and evidence."""

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from app.alerts.domain.views import NormalRange
from app.alerts.service import transitions
from app.base.db.engine import Store, to_us
from app.base.values import Outcome, Severity
from app.detection.domain.views import EvidenceSeries
from app.detection.service import baselines
from app.diagnosis import pages as diagnosis_pages
from app.diagnosis.service.quality import report
from app.records.domain import Gap, GapReason
from app.records.store.series import Point
from app.reports.service import charts
from app.reports.views import MeasureSeries
from tests.conftest import Databases
from tests.support.fakes import FakeClock, answered, failed, hits
from tests.support.present import present
from tests.support.world import CHECK, World, canary, page, statements

pytestmark = pytest.mark.both

RULES = [
    {"kind": "threshold", "measure": "coverage", "warning": {"below": 0.9}, "critical": {"below": 0.5}},
    {"kind": "threshold", "measure": "degraded_share", "critical": {"above": 0.5}},
    {"kind": "drop", "measure": "NDCG@10", "critical": {"by": 0.1}},
    {"kind": "threshold", "measure": "coverage", "category": "procedural", "critical": {"below": 0.7}},
]


@pytest.fixture
def world(store: Store) -> World:
    """Give a world with three canaries that are all found."""
    return _world(store)


@pytest.fixture
def alone(sqlite_store: Store) -> World:
    """Give the same on SQLite alone, for what does not depend on the database."""
    return _world(sqlite_store)


@pytest.fixture(scope="module")
def learning(databases: Databases) -> tuple[str, FakeClock]:
    """Make a database in which that world has run one and twenty times; gives its URL and when that is."""
    url = databases.sqlite()
    with closing(Store(url)) as store:
        made = _world(store)
        for _ in range(21):
            made.run()
    return url, made.clock


@pytest.fixture
def learned(learning: tuple[str, FakeClock], databases: Databases, stores: Callable[[str], Store]) -> World:
    """Give a copy of it."""
    url, clock = learning
    return World(store=stores(databases.copy(url)), clock=FakeClock(now=clock.now))


def _world(store: Store) -> World:
    made = World(store=store)
    made.apply(page([canary("a", category="procedural"), canary("b"), canary("c")], rules=RULES))
    return made


def _series(world: World, measure: str = "coverage", category: str | None = None, **more: Any) -> MeasureSeries:
    now = world.clock()
    wanted = {"start": to_us(now - timedelta(days=1)), "end": to_us(now), "points": 300, **more}
    return charts.series(world.store, CHECK, measure=measure, category=category, **wanted)


def _evidence(world: World, **more: Any) -> EvidenceSeries:
    now = world.clock()
    wanted = {"start": to_us(now - timedelta(days=1)), "end": to_us(now), "points": 300, **more}
    return baselines.evidence(world.store, CHECK, **wanted)


def test_a_point_of_one_run_names_it_and_one_of_several_the_first_and_the_last(world: World) -> None:
    for _ in range(6):
        world.run()
    assert [(point.first_run, point.last_run) for point in _series(world)["points"]] == [
        (str(run), str(run)) for run in range(1, 7)
    ]
    joined = _series(world, points=2, start=to_us(world.clock() - timedelta(hours=1)))["points"]
    assert [(one.first_run, one.last_run, one.runs) for one in joined] == [("1", "3", 3), ("4", "6", 3)]


def test_a_run_that_failed_and_one_that_is_unknown_lie_in_gaps(world: World) -> None:
    world.run()
    world.probe.otherwise = lambda ask: (
        answered(hits(f"doc-{ask.query}")) if ask.query == "a" else failed(Outcome.TIMEOUT)
    )
    unknown = world.run()
    assert world.shown(unknown)["verdict"] == "unknown"
    world.probe.all_fail()
    world.run()
    world.probe.all_answer()
    world.run()
    found = _series(world)
    assert [(point.first_run, point.unknown) for point in found["points"]] == [("1", False), ("2", True), ("4", False)]
    (gap,) = found["gaps"]
    assert (gap["why"], gap["runs"], gap["first_run"], gap["last_run"]) == ("not_measured", 2, "2", "3")
    assert (gap["from"], gap["to"]) == (found["points"][0].at, found["points"][2].at)


@pytest.mark.databases
def test_hours_that_only_had_runs_without_a_measurement_are_told_from_hours_without_runs(world: World) -> None:
    def hour(*, fail: bool = False, none: bool = False) -> None:
        world.probe.otherwise = (
            (lambda _: failed(Outcome.TIMEOUT)) if fail else lambda ask: answered(hits(f"doc-{ask.query}"))
        )
        world.clock.advance(3_600 - (0 if none else 60))
        if not none:
            world.run()

    for fail, none in (
        [(False, False)] * 3 + [(True, False)] + [(False, False)] * 2 + [(False, True)] + [(False, False)]
    ):
        hour(fail=fail, none=none)
    start = to_us(world.clock() - timedelta(days=20))
    found = _series(world, start=start, points=5)
    assert found["seconds"] == 3_600
    assert [gap["why"] for gap in found["gaps"]] == ["not_measured", "no_runs"]


def test_more_gaps_and_more_learned_runs_ask_no_more_of_the_database(learned: World) -> None:
    start, seen = to_us(learned.clock()), []
    for _ in range(2):
        for _ in range(3):
            learned.probe.all_fail()
            learned.clock.advance(4 * 3_600)
            learned.run()
            learned.probe.all_answer()
            for _ in range(4):
                learned.clock.advance(3_540)
                learned.run()
        asked: list[str] = []
        with statements(learned.store, asked.append):
            found = _series(learned, start=start, points=5)
        assert {gap["why"] for gap in found["gaps"]} == {"not_measured"}
        assert found["usual"] is not None
        seen.append((len(found["gaps"]), len(asked)))
    (few, asked_for_few), (many, asked_for_many) = seen
    assert few < many
    assert asked_for_few == asked_for_many


def test_what_is_usual_is_asked_for_with_all_its_runs_at_once(learned: World) -> None:
    asked: list[str] = []
    with statements(learned.store, asked.append):
        assert present(_series(learned)["usual"]).runs == 20
    assert max(statement.count("?") for statement in asked) < 20


def test_points_are_never_joined_over_a_gap() -> None:
    found = [Point(at=at, mean=at, min=at, max=at, runs=1, first_run=at, last_run=at) for at in (1, 2, 3, 7, 8, 9)]
    gap = Gap(start=3, end=7, why=GapReason.NO_RUNS)
    joined = charts.thin_points(found, 4, [gap])
    assert [(one.first_run, one.last_run, one.mean) for one in joined] == [
        (1, 2, 1.5),
        (3, 3, 3),
        (7, 8, 7.5),
        (9, 9, 9),
    ]
    assert [one.runs for one in charts.thin_points(found, 1, [gap])] == [6], "where there are more parts than points"


def test_before_a_baseline_nothing_is_said_to_be_usual(alone: World) -> None:
    alone.run()
    assert _series(alone)["usual"] is None


def test_usual_is_what_98_of_100_runs_of_the_baseline_had(learned: World) -> None:
    usual = _series(learned)["usual"]
    assert usual == NormalRange(low=1.0, mean=1.0, high=1.0, runs=20, first_run="1", last_run="20")
    assert present(_series(learned, "health_score", "procedural")["usual"]).mean == pytest.approx(0.9)
    learned.probe.all_miss()
    learned.run()
    assert _series(learned)["usual"] == usual, "a fault is learned by nobody"
    transitions.accept_baseline(learned.store, CHECK, by="Ada", note=None, now=learned.clock())
    assert _series(learned)["usual"] is None


def test_lines_are_the_bounds_of_the_rules_on_that_measure(learned: World) -> None:
    assert _series(learned)["lines"] == [
        {"rule": "threshold-coverage", "severity": "warning", "bad": "below", "value": 0.9},
        {"rule": "threshold-coverage", "severity": "critical", "bad": "below", "value": 0.5},
    ]
    (above,) = _series(learned, "degraded_share")["lines"]
    assert (above["bad"], above["value"]) == ("above", 0.5)
    (drop,) = _series(learned, "NDCG@10")["lines"]
    assert (drop["bad"], drop["by"], drop["value"]) == ("below", 0.1, 0.9)
    (only,) = _series(learned, category="procedural")["lines"]
    assert only["rule"] == "threshold-coverage-procedural"
    assert _series(learned, "MRR")["lines"] == []


def test_without_a_baseline_a_drop_has_no_line(alone: World) -> None:
    alone.run()
    assert _series(alone, "NDCG@10")["lines"] == []


@pytest.mark.databases
def test_alerts_that_were_open_in_the_period_are_among_it(world: World) -> None:
    world.run()
    before = to_us(world.clock())
    world.probe.all_miss()
    for _ in range(3):
        world.run()
    (alert, *_) = _series(world)["alerts"]
    assert (alert.rule, alert.severity, alert.resolved_at) == ("threshold-coverage", "critical", None)
    world.probe.all_answer()
    for _ in range(3):
        world.run()
    closed = {one.rule: one.resolved_at for one in _series(world)["alerts"]}
    assert closed["threshold-coverage"] is not None
    assert _series(world, end=before)["alerts"] == []
    later = to_us(world.clock() + timedelta(hours=1))
    assert _series(world, start=later, end=later + 1)["alerts"] == []


def test_measures_are_listed_by_the_category_they_are_kept_for(alone: World) -> None:
    assert charts.stored_measures(alone.store, CHECK) == {}
    alone.run()
    kept = charts.stored_measures(alone.store, CHECK)
    assert list(kept) == ["", "procedural", "simple_factual"]
    assert {"coverage", "NDCG@10", "MRR"} <= set(kept[""])
    assert kept["procedural"] == ["health_score", "coverage"]


# --- evidence ---


def test_while_it_learns_a_detector_has_no_evidence_and_afterwards_one_number_a_run(learned: World) -> None:
    learned.run()
    found = _evidence(learned)
    assert found["threshold"] == 10_000
    assert [point.run for point in found["points"]] == [str(run) for run in range(1, 23)]
    assert [point.evidence is None for point in found["points"]] == [True] * 20 + [False] * 2
    assert not any(point.open for point in found["points"])


def test_a_point_of_several_runs_is_the_worst_of_them(learned: World) -> None:
    learned.probe.all_miss()
    bad = [learned.run() for _ in range(2)]
    learned.probe.all_answer()
    learned.run()
    (point,) = _evidence(learned, points=1)["points"]
    assert point.runs == 24
    assert point.run in {str(run.id) for run in bad}
    assert present(point.evidence) >= 10_000
    assert point.open
    assert point.lost == 3


def test_evidence_is_cut_to_its_period_and_says_from_when_on_it_was_read(learned: World) -> None:
    start = to_us(learned.clock() - timedelta(minutes=5))
    found = _evidence(learned, start=start)
    assert [point.run for point in found["points"]] == ["16", "17", "18", "19", "20", "21"]
    assert found["since"] == found["from"]
    found = _evidence(learned, most_runs=4)
    assert [point.run for point in found["points"]] == ["18", "19", "20", "21"]
    assert found["since"] == found["points"][0].at > found["from"]


# --- pictures of quality ---


def test_scores_of_relevant_and_other_hits_are_counted_in_bins_that_hold_all_of_them(alone: World) -> None:
    alone.apply(page([canary(f"k{number}") for number in range(8)]))
    alone.run()
    (section,) = [
        one for one in report(alone.store, CHECK, now=alone.clock())["sections"] if one["name"] == "precision"
    ]
    found = present(section["histogram"])
    assert {kind: sum(counts) for kind, counts in found["counts"].items()} == {"relevant": 8, "other": 8}
    assert (len(found["edges"]), found["edges"][0], found["edges"][-1]) == (21, 0.89, 0.9)
    drawn = diagnosis_pages.histogram(section)
    assert drawn is not None
    assert {bar["kind"] for bar in drawn["bars"]} == {"relevant", "other"}
    assert all(0 <= bar["x"] <= bar["x"] + bar["width"] <= diagnosis_pages.WIDTH for bar in drawn["bars"])
    assert max(bar["height"] for bar in drawn["bars"]) == diagnosis_pages.HEIGHT


def test_what_has_no_distribution_has_no_picture(alone: World) -> None:
    alone.run()
    sections = {one["name"]: one for one in report(alone.store, CHECK, now=alone.clock())["sections"]}
    assert sections["precision"]["histogram"] is None, "three hits of a kind are too few"
    assert diagnosis_pages.histogram(sections["precision"]) is None
    depths = diagnosis_pages.depths(sections["recall"])
    assert depths is not None
    assert depths["depths"] == ["1", "3", "5", "10"]
    assert [(name, count) for name, count, _ in depths["rows"]] == [
        ("all canaries", 3),
        ("procedural", 1),
        ("simple_factual", 2),
    ]


def test_percentiles_of_latency_stand_beside_the_bounds_of_their_rules(world: World) -> None:
    rules = [*RULES, {"kind": "latency", "warning": {"above": 1.5}, "critical": {"above": 3}}]
    world.apply(page([canary("a", category="procedural"), canary("b"), canary("c")], rules=rules))
    for slowest in (0.5, 1.0, 2.0):
        world.probe.answers["a"] = answered(hits("a"), seconds=slowest)
        world.run()
    world.probe.otherwise = lambda _: failed(Outcome.TIMEOUT)
    world.probe.answers.clear()
    world.run()
    now = world.clock()
    wanted = {"start": to_us(now - timedelta(days=1)), "end": to_us(now)}
    single = charts.latency_series(world.store, CHECK, points=300, **wanted)
    assert [one["max"] for one in single["points"][:3]] == [0.5, 1.0, 2.0]
    assert [(one["first_run"], one["last_run"]) for one in single["points"]] == [(str(run),) * 2 for run in range(1, 5)]
    assert single["since"] == single["from"]
    assert [(one["percentile"], one["severity"], one["value"]) for one in single["lines"]] == [
        ("p95", "warning", 1.5),
        ("p95", "critical", 3),
    ]
    joined = charts.latency_series(world.store, CHECK, points=2, **wanted)
    assert [(one["runs"], one["max"]) for one in joined["points"]] == [(2, 1.0), (2, 2.0)]
    assert not charts.latency_series(world.store, CHECK, points=2, start=1, end=2)["points"]


def test_a_calendar_tells_the_days_of_a_year_with_the_worst_alert_of_each(world: World) -> None:
    world.run()
    first = world.clock().date()
    world.clock.advance(2 * 86_400)
    world.probe.otherwise = lambda _: answered(hits("noise"))
    for _ in range(3):
        world.run()
    broken = world.clock().date()
    found = present(charts.calendar(world.store, CHECK, now=world.clock()))
    told = {one.day: (one.runs, one.low, one.severity) for one in found.days}
    assert told[first] == (1, 1.0, None)
    assert told[broken][1:] == (0.0, Severity.CRITICAL)
    assert found.measure == "coverage"
    for one in found.days:
        assert one.weekday == one.day.weekday()
        assert 0 <= one.week <= 53
    weeks = {one.day: one.week for one in found.days}
    assert weeks[broken] - weeks[first] == int(broken.weekday() < first.weekday())
    assert charts.calendar(world.store, CHECK, now=world.clock() + timedelta(days=400)) is None


def test_a_check_without_runs_has_no_calendar(world: World) -> None:
    assert charts.calendar(world.store, CHECK, now=world.clock()) is None


def test_a_series_says_from_when_the_suite_asks_something_else(world: World) -> None:
    world.run()
    world.run()
    assert _series(world)["edits"] == [], "the suite is as it was first asked"
    canaries = [canary("a", category="procedural"), canary("b", expected_chunks=[{"id": "other"}]), canary("c")]
    world.apply(page(canaries, rules=RULES))
    world.run()
    world.run()
    found = _series(world)
    assert found["edits"] == [found["points"][2].at]
    later = to_us(world.clock() - timedelta(seconds=30))
    assert _series(world, start=later)["edits"] == []
