"""What is old goes, what is referred to stays, and what stays reads as before."""

import inspect
import re
import tracemalloc
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.msgpack import encode

from app.base.db.engine import Store, drop_rows, to_us
from app.base.db.rows import metadata
from app.base.values import Outcome
from app.hooks.domain import Receipt
from app.hooks.service import deliveries
from app.operation.service import retention
from app.records.service import run_views
from app.records.store import expired
from app.records.store.ranking_rows import RankingBody
from app.records.tables import states
from app.reports.service import charts
from tests.support.fakes import START, answered, failed, hits
from tests.support.world import CHECK, COVERAGE, World, canary, page, statements

pytestmark = pytest.mark.both

AT_ONCE = {**COVERAGE, "open": {"bad": 1, "of": 1}, "close": 1}


@pytest.fixture
def world(store: Store) -> World:
    """Give a world of two canaries in which one bad run opens an alert."""
    world = World(store=store)
    world.apply(page([canary("ant"), canary("bee")], rules=[AT_ONCE]))
    return world


def _prune(world: World, days: int = 30) -> int:
    return retention.prune(world.store, world.clock(), days=days, batch=3)  # so that there are several batches


def _day_by_day(world: World, days: int) -> list[int]:
    """Run once a day; the ant changes every day, the bee never."""
    ids = []
    for day in range(days):
        world.clock.now = START + timedelta(days=day)
        world.probe.answers["ant"] = answered(hits("doc-ant", f"day-{day}"))
        ids.append(world.run(idempotency_key=f"day {day}").id)
    return ids


@pytest.mark.databases
def test_old_runs_go_with_what_only_they_needed_and_the_rest_reads_as_before(world: World) -> None:
    ids = _day_by_day(world, 10)
    world.clock.now = START + timedelta(days=10)
    kept = ids[5:]
    before = [(world.shown(one), world.results(one)) for one in kept]
    world.probe.answers["bee"] = failed(Outcome.TIMEOUT)
    assert _prune(world, days=5) > 0
    assert [run["id"] for run in run_views.list_runs(world.store, CHECK, before=None, limit=50)] == [
        str(one) for one in reversed(kept)
    ]
    assert [(world.shown(one), world.results(one)) for one in kept] == before
    counts = world.count("states", "rankings", "scores", "chunks", "run_probes", "idempotency_keys")
    assert counts == {
        "states": 5 + 1,
        "rankings": 5 + 1,
        "scores": 5 + 1,
        "chunks": 5 + 1 + 2,
        "run_probes": 5,
        "idempotency_keys": 5,
    }
    assert _prune(world, days=5) == 0


def test_the_newest_run_of_a_check_stays_however_old(world: World) -> None:
    ids = _day_by_day(world, 3)
    before = (run_views.health(world.store, CHECK), world.results(ids[-1]))
    world.clock.now = START + timedelta(days=1000)
    _prune(world)
    assert (run_views.health(world.store, CHECK), world.results(ids[-1])) == before
    assert world.count("runs", "states") == {"runs": 1, "states": 2}


def test_a_run_that_waits_or_goes_on_stays(world: World) -> None:
    _day_by_day(world, 2)
    queued = world.wish()
    world.clock.now += timedelta(days=1000)
    _prune(world)
    assert world.shown(queued)["status"] == "queued"
    claimed = world.claim()
    assert claimed is not None
    _prune(world)
    assert world.execute(claimed) is not None


@pytest.mark.databases
def test_a_ranking_that_a_run_under_way_has_staged_stays(world: World) -> None:
    """It was an old one, referred to by nothing else any more, when the run came upon it again."""
    world.probe.answers["ant"] = answered(hits("doc-ant", "again"))
    world.run()
    world.probe.answers["ant"] = answered(hits("doc-ant", "other"))
    world.run()
    world.clock.now += timedelta(days=100)
    world.run()
    world.probe.answers["ant"] = answered(hits("doc-ant", "again"))
    world.probe.answers["bee"] = answered(hits("doc-bee", "new"))
    world.wish()
    claimed = world.claim()
    assert claimed is not None
    clock, pruned = world.clock, list[int]()

    class Striking:
        def __call__(self) -> object:
            if not pruned and world.count("shards")["shards"]:
                pruned.append(retention.prune(world.store, clock(), days=30))
            return clock()

    world.clock = Striking()  # type: ignore[assignment] # when all is staged, the pruner comes by
    ended = world.execute(claimed)
    world.clock = clock
    assert pruned[0] > 0
    assert ended is not None
    assert [hit["id"] for hit in world.results(ended)["ant"]["ranking"]] == ["doc-ant", "again"]


@pytest.mark.databases
def test_texts_that_come_back_while_they_are_being_forgotten_stay(store: Store) -> None:
    world = World(store=store)
    world.apply(page([canary("ant")]))
    world.probe.answers["ant"] = answered(hits("doc-ant", "gone"))
    world.run()
    world.clock.now += timedelta(days=100)
    world.probe.answers["ant"] = answered(hits("doc-ant"))
    world.run()
    horizon = to_us(world.clock() - timedelta(days=1))
    with store.write() as connection:
        expired.drop_runs(connection, expired.old_runs(connection, 10, horizon=horizon))
        drop_rows(connection, expired.old_states(connection, 10), table=states)
        expired.drop_rankings(connection, expired.unused_rankings(connection, 0, 10))
        since = expired.newest_ranking(connection)
    unused = _unused_chunks(store)
    assert len(unused) == 1
    world.probe.answers["ant"] = answered(hits("gone", "doc-ant"))
    run = world.run()
    with store.write() as connection:
        assert expired.drop_chunks(connection, unused, since=since) == 0
    assert [hit["id"] for hit in world.results(run)["ant"]["ranking"]] == ["gone", "doc-ant"]


def test_no_text_is_left_that_no_ranking_holds(world: World) -> None:
    _day_by_day(world, 6)
    _prune(world, days=3)
    assert _unused_chunks(world.store) == []
    assert world.count("chunks")["chunks"] > 0


def test_the_search_for_unused_texts_holds_few_bytes_of_each(world: World) -> None:
    _day_by_day(world, 7)
    _prune(world, days=5)
    _insert_rankings(world.store, 30_000)
    before = world.count("chunks")["chunks"]
    tracemalloc.start()
    deleted = _prune(world, days=3)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert deleted > before - world.count("chunks")["chunks"] > 0
    assert most < 4_000_000


def _insert_rankings(store: Store, count: int) -> None:
    """Insert rankings that states of a run hold, each with a text of its own."""
    first = 1_000
    ids = range(first, first + count)
    with store.write() as connection:
        states = metadata.tables["states"]
        state = connection.execute(sa.select(states).order_by(states.c.id.desc()).limit(1)).mappings().one()
        bodies = [encode(RankingBody(returned=1, decimals=1, chunks=[one], scores=[5])) for one in ids]
        hashes = [one.to_bytes(16) for one in ids]
        columns = {
            "chunks": [{"id": one, "hash": key, "chunk": "chunk"} for one, key in zip(ids, hashes, strict=True)],
            "rankings": [
                {"id": one, "hash": key, "body": body} for one, key, body in zip(ids, hashes, bodies, strict=True)
            ],
            "states": [{**state, "id": one, "ranking_id": one, "last_run": state["first_run"]} for one in ids],
        }
        for name, rows in columns.items():
            connection.execute(metadata.tables[name].insert(), rows)


def _unused_chunks(store: Store) -> list[int]:
    with store.read() as connection:
        used, _ = expired.chunks_of_rankings(connection, 0, 1_000)
        return sorted(set(expired.all_chunks(connection).tolist()) - used)


def test_where_nothing_is_old_nothing_is_written(world: World) -> None:
    _day_by_day(world, 3)
    sent: list[str] = []
    with statements(world.store, sent.append):
        assert _prune(world) == 0
    assert [one for one in sent if not one.lstrip().startswith(("SELECT", "BEGIN", "COMMIT"))] == []
    assert "BEGIN IMMEDIATE" not in sent


def test_what_is_old_is_found_for_many_small_transactions_at_once(world: World) -> None:
    _day_by_day(world, 7)
    world.clock.now = START + timedelta(days=6, hours=12)
    sent: list[str] = []
    with statements(world.store, sent.append):
        retention.prune(world.store, world.clock(), days=3, batch=1)
    assert sum(one.startswith("DELETE FROM runs ") for one in sent) == 4
    assert sum(one.startswith("SELECT runs.id") and "finished_at <" in one for one in sent) == 1


@pytest.mark.systems
def test_many_rankings_are_looked_through_slice_by_slice_and_all_that_is_unused_goes(world: World) -> None:
    _day_by_day(world, 20)
    world.clock.now = START + timedelta(days=19, hours=12)
    first = retention.prune(world.store, world.clock(), days=10, slice_size=4)
    assert first > 0
    rounds = 0
    while world.count("rankings", "chunks") != {"rankings": 11, "chunks": 13}:
        rounds += 1
        assert rounds <= 12, "two walks through all slices"
        world.clock.now += retention.ROUND
        retention.prune(world.store, world.clock(), days=10, slice_size=4)
    assert rounds > 1


REFERRED_BY_FEW = {("detectors", "baseline_id"), ("embedders", "finding_id")}
"""Tables of a row a check or a retriever."""


def test_whatever_refers_to_rows_that_are_deleted_is_found_by_an_index() -> None:
    """A foreign key looks for what refers to each row that goes, without an index through the whole table."""
    pruned = set(re.findall(r"sa\.delete\((\w+)\)", inspect.getsource(expired))) - {"table"}
    pruned |= {one.table.name for one in vars(expired).values() if isinstance(one, expired.Orphans)}
    pruned |= {"states", "diagnoses", "reanchors"}
    assert {"runs", "states", "rankings", "chunks", "vectors", "alerts", "deliveries"} <= pruned
    missing = {
        (table.name, column.name)
        for table in metadata.tables.values()
        for column in table.columns
        for key in column.foreign_keys
        if key.column.table.name in pruned and not _is_indexed(table, column)
    }
    assert missing == REFERRED_BY_FEW


def _is_indexed(table: sa.Table, column: sa.Column[Any]) -> bool:
    whole = [index.columns for index in table.indexes if index.dialect_options["sqlite"]["where"] is None]
    unique = [one.columns for one in table.constraints if isinstance(one, sa.UniqueConstraint)]
    first = [next(iter(columns)).name for columns in (*whole, *unique, table.primary_key.columns)]
    return column.name in first


def test_a_state_that_began_before_the_oldest_run_still_holds(world: World) -> None:
    ids = _day_by_day(world, 5)
    world.clock.now = START + timedelta(days=5)
    _prune(world, days=2)
    timeline = charts.canary_history(world.store, CHECK, "bee").items
    assert [(item["first_run"], item["last_run"]) for item in timeline] == [(str(ids[0]), None)]
    assert world.results(ids[-1])["bee"]["verdict"] == "healthy"


@pytest.mark.databases
def test_alerts_stay_for_a_year_after_they_resolved(world: World) -> None:
    world.run()
    world.probe.answers = {key: answered(hits("noise")) for key in ("ant", "bee")}
    world.run()
    world.deliver_all()
    world.probe.all_answer()
    world.run()
    world.deliver_all()
    world.probe.answers = {key: answered(hits("noise")) for key in ("ant", "bee")}
    world.run()
    world.clock.now += timedelta(days=360)
    _prune(world)
    assert [alert["state"] for alert in world.alerts()] == ["resolved", "firing"]
    world.clock.now += timedelta(days=10)
    _prune(world)
    assert [alert["state"] for alert in world.alerts()] == ["firing"]
    assert world.count("transitions", "deliveries", "attempts") == {"transitions": 1, "deliveries": 1, "attempts": 0}


def test_test_deliveries_go_after_a_year_unless_they_still_wait(world: World) -> None:
    deliveries.send_test(world.store, "ops", now=world.clock())
    world.deliver_all()
    world.clock.now += timedelta(days=400)
    deliveries.send_test(world.store, "ops", now=world.clock() - timedelta(days=399))
    world.send.receipts = [Receipt(ok=False, error="timeout")]
    world.deliver_all()
    _prune(world)
    assert [(item["state"], len(item["attempts"])) for item in world.deliveries()] == [("pending", 1)]


def test_charts_reach_back_beyond_the_runs_that_are_left(world: World) -> None:
    world.probe.otherwise = lambda _: answered(hits("noise"))
    _day_by_day(world, 6)  # the ant is found, the bee is not
    world.clock.now = START + timedelta(days=6)
    _prune(world, days=3)
    assert world.count("runs")["runs"] == 3
    start, end = to_us(START - timedelta(days=1)), to_us(START + timedelta(days=6))
    chart = charts.series(world.store, CHECK, measure="coverage", category=None, start=start, end=end, points=300)
    assert [(point.mean, point.runs) for point in chart["points"]] == [(0.5, 1)] * 6
    newest = to_us(START + timedelta(days=3))
    chart = charts.series(world.store, CHECK, measure="coverage", category=None, start=newest, end=end, points=300)
    assert chart["points"][0].at == "2026-03-05T12:01:00Z"  # single runs, to the second
