"""A suite is parsed once per version and process; what pages, requests and transactions cost does not grow by it."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from app.base.db.engine import ByteCache
from app.catalog.service import references, suites
from app.records.service import run_views, suite_views
from app.records.service.suite_views import CanaryFilter
from app.reports.service import check_details
from tests.conftest import Databases
from tests.support.counted_reads import Reads, counted_world
from tests.support.pages_service import site
from tests.support.world import CHECK, COVERAGE, World, canary, page, race, statements

SMALL, LARGE = 10, 2_000
OPENS_AT_ONCE = {**COVERAGE, "open": {"bad": 1, "of": 1}}


def suite_of(count: int) -> list[dict[str, Any]]:
    """Describe so many canaries, each in a category and with a tag."""
    return [canary(f"c{number:04}", tags=[f"t{number % 3}"]) for number in range(count)]


def degraded_world(world: World, count: int) -> None:
    """Let every canary of a suite fall, and the alert open."""
    world.apply(page(suite_of(count), rules=[OPENS_AT_ONCE, {"kind": "regression"}]))
    world.run()
    world.probe.all_miss()
    world.run()


def test_canaries_are_parsed_once_for_runs_pages_api_and_notifications(database_url: str) -> None:
    with counted_world(database_url) as (world, reads):
        world.apply(page(suite_of(SMALL), rules=[OPENS_AT_ONCE]))
        reads.parsed = 0
        world.run()
        world.probe.all_miss()
        world.run()
        assert world.deliver_all()
        check_details.load_check(world.store, CHECK, world.clock())
        world.results(2)
        run_views.report(world.store, "2")
        run_views.list_runs(world.store, CHECK, before=None, limit=10)
        suites.load_reach(world.store, "suite")
        assert reads.parsed == SMALL


def test_after_an_edit_only_the_canary_that_changed_is_parsed_anew(sqlite_database: str) -> None:
    with counted_world(sqlite_database) as (world, reads):
        world.apply(page(suite_of(SMALL)))
        world.run()
        world.apply(page([*suite_of(SMALL - 1), canary(f"c{SMALL - 1:04}", query="something else")]))
        reads.parsed = 0
        world.run()
        assert reads.parsed == 1


def test_a_suite_that_no_run_has_frozen_is_parsed_once_too(sqlite_database: str) -> None:
    with counted_world(sqlite_database) as (world, reads):
        world.apply(page(suite_of(SMALL)))
        reads.parsed = 0
        for _ in range(3):
            suites.load_reach(world.store, "suite")
            suite_views.load_suite_view(world.store, "suite", CanaryFilter(text="no such canary"))
        assert reads.parsed == SMALL
        world.run()
        assert reads.parsed == SMALL


def test_no_canary_is_parsed_within_a_write_transaction_of_a_run_or_a_delivery(database_url: str) -> None:
    with counted_world(database_url) as (world, reads):
        degraded_world(world, SMALL)
        reads.parsed_in_write = 0
        world.run()
        world.deliver_all()
        world.tick()
        assert reads.parsed_in_write == 0


def test_a_delivery_in_a_process_that_read_nothing_parses_outside_of_its_write_transactions(
    sqlite_database: str,
) -> None:
    with counted_world(sqlite_database) as (before, _):
        degraded_world(before, SMALL)
        with counted_world(sqlite_database) as (world, reads):
            world.clock = before.clock
            assert world.deliver_all()
            assert (reads.parsed, reads.parsed_in_write) == (SMALL, 0)


def test_a_reminder_in_a_process_that_read_nothing_parses_outside_of_its_write_transaction(
    sqlite_database: str,
) -> None:
    with counted_world(sqlite_database) as (before, _):
        before.apply(page(suite_of(SMALL), rules=[OPENS_AT_ONCE], remind="1h"))
        before.probe.all_miss()
        before.run()
        before.deliver_all()
        with counted_world(sqlite_database) as (world, reads):
            world.clock = before.clock
            world.clock.advance(2 * 3_600)
            assert world.tick() == 1
            assert (reads.parsed, reads.parsed_in_write) == (SMALL, 0)


@pytest.fixture
def sqlite_database(databases: Databases) -> str:
    """Give the URL of a fresh, migrated SQLite file."""
    return databases.sqlite()


# --- what must not grow with the suite -----------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """What something asked of the database."""

    statements: int
    rows: int
    parsed: int


def cost(world: World, reads: Reads, act: Callable[[], object]) -> Cost:
    """Count what a second call costs: the first may fill the cache."""
    act()
    asked: list[str] = []
    reads.rows, reads.parsed = 0, 0
    with statements(world.store, asked.append):
        act()
    return Cost(statements=len(asked), rows=reads.rows, parsed=reads.parsed)


ASKED: dict[str, Callable[[World], object]] = {
    "page of a check": lambda world: site(world.store).page(f"/checks/{CHECK}"),
    "health": lambda world: run_views.health(world.store, CHECK),
    "canary": lambda world: references.load_canary(world.store, "suite", "c0003"),
    "keys of new canaries": lambda world: suites.assign_suite_keys(world.store, "suite", [{"query": "c0003"}]),
    "canaries": lambda world: references.load_canaries(world.store, "suite", after="c0001", limit=5),
    "runs": lambda world: run_views.list_runs(world.store, CHECK, before=None, limit=10),
    "results": lambda world: run_views.results(world.store, "2", limit=5),
    "results of one canary": lambda world: run_views.results(world.store, "2", keys=["c0003"]),
    "reach of a suite": lambda world: suites.load_reach(world.store, "suite"),
}


@pytest.fixture(scope="module")
def worlds(databases: Databases) -> Iterator[list[tuple[World, Reads]]]:
    """Give a small and a large suite in which every canary is degraded."""
    with counted_world(databases.sqlite()) as small, counted_world(databases.sqlite()) as large:
        degraded_world(small[0], SMALL)
        degraded_world(large[0], LARGE)
        yield [small, large]


@pytest.mark.parametrize("name", ASKED)
def test_what_is_looked_at_costs_the_same_for_a_large_suite(name: str, worlds: list[tuple[World, Reads]]) -> None:
    small, large = (cost(world, reads, partial(ASKED[name], world)) for world, reads in worlds)
    assert small.parsed == large.parsed
    assert small.statements == large.statements
    assert small.rows == large.rows


def test_a_report_reads_in_proportion_to_its_suite(worlds: list[tuple[World, Reads]]) -> None:
    small, large = (cost(world, reads, partial(run_views.report, world.store, "2")) for world, reads in worlds)
    assert large.rows / small.rows < 1.1 * LARGE / SMALL
    assert (small.parsed, large.parsed) == (0, 0)
    assert large.statements - small.statements <= 10 * LARGE // 500  # results are read so many at a time


def test_planning_and_finalising_send_as_many_statements_for_a_large_suite(databases: Databases) -> None:
    counts = []
    for count in (SMALL, LARGE):
        with counted_world(databases.sqlite()) as (world, reads):
            world.apply(page(suite_of(count)))
            world.run()
            world.run()
            asked: list[str] = []
            reads.parsed = 0
            with statements(world.store, asked.append):
                world.run()
            shards = sum("INSERT INTO run_shards" in one or "INSERT INTO shards" in one for one in asked)
            counts.append((len(asked) - shards, reads.parsed))
    assert counts[0] == counts[1]


# --- the cache -----------------------------------------------------------------------------------------------


def test_cache_drops_what_was_used_longest_ago_beyond_its_bytes() -> None:
    cache = ByteCache(most_bytes=100)
    for name in ("a", "b"):
        cache.get(name, partial(_sized, name))
    assert cache.peek("a") == "a"
    cache.get("c", lambda: ("c", 40))
    assert (cache.peek("a"), cache.peek("b"), cache.peek("c")) == ("a", None, "c")
    assert cache.size == 80


def _sized(name: str) -> tuple[str, int]:
    return name, 40


def test_cache_keeps_a_value_larger_than_its_bytes_until_another_comes() -> None:
    cache = ByteCache(most_bytes=100)
    assert cache.get("large", lambda: ("large", 1_000)) == "large"
    assert cache.peek("large") == "large"
    cache.get("small", lambda: ("small", 10))
    assert cache.peek("large") is None
    assert cache.size == 10


def test_cache_drops_what_nobody_used_for_long_when_another_value_comes() -> None:
    now = [0.0]
    cache = ByteCache(most_bytes=1_000, idle_seconds=60, clock=lambda: now[0])
    for name in ("unused", "used"):
        cache.get(name, partial(_sized, name))
    now[0] = 50.0
    assert cache.peek("used") == "used"
    now[0] = 100.0
    cache.get("new", partial(_sized, "new"))
    assert (cache.peek("unused"), cache.peek("used"), cache.peek("new")) == (None, "used", "new")
    assert cache.size == 80


def test_explanations_of_alerts_take_no_room_from_suites_and_checks(database_url: str) -> None:
    with counted_world(database_url) as (world, _):
        world.apply(page(suite_of(SMALL), rules=[{**OPENS_AT_ONCE, "close": 1}]))
        sizes = []
        for _ in range(3):
            world.probe.all_answer()
            world.run()
            world.probe.all_miss()
            world.run()
            world.deliver_all()
            sizes.append((world.store.cache.size, world.store.run_cache.size))
    of_definitions, of_runs = zip(*sizes, strict=True)
    assert of_definitions[0] == of_definitions[1] == of_definitions[2] > 0
    assert 0 < of_runs[0] < of_runs[1] < of_runs[2]


def test_threads_that_ask_for_the_same_at_once_have_it_made_once() -> None:
    cache, made = ByteCache(), []

    def make() -> tuple[str, int]:
        made.append(threading.get_ident())
        return "value", 1

    assert race(8, lambda _: cache.get("key", make)) == ["value"] * 8
    assert len(made) == 1


def test_what_could_not_be_made_is_made_when_asked_for_again() -> None:
    cache, outcomes = ByteCache(), iter([ValueError("not now"), None])

    def make() -> tuple[str, int]:
        error = next(outcomes)
        if error is not None:
            raise error
        return "value", 1

    with pytest.raises(ValueError, match="not now"):
        cache.get("key", make)
    assert cache.get("key", make) == "value"
