"""What many checks cost: counted in statements and rows, so that no clock is needed to see that it grows."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store, to_us
from app.base.values import replace
from app.catalog import store as catalog
from app.catalog.service import references
from app.records.service.plans import Planner
from app.records.store import open_runs
from app.reports.metrics import Snapshot
from app.reports.service import metrics_snapshot
from app.runs.service import execution
from app.runs.service.due_checks import DueChecks
from tests.conftest import Databases
from tests.support.world import COVERAGE, World, canary, page, statements

FEW, MANY = 10, 100
FIRST = "check-000"


def _world(store: Store, checks: int, **check: Any) -> World:
    """Give a world with so many checks of one suite."""
    world = World(store=store)
    one = page([canary("ant")], **check)
    wanted = [{**one["checks"][0], "slug": f"check-{number:03}"} for number in range(checks)]
    world.apply({**one, "checks": wanted})
    return world


@contextmanager
def _counted(store: Store) -> Iterator[dict[str, int]]:
    """Count what SQLite is asked and what it answers: statements, transactions that write, rows."""
    count = {"statements": 0, "writes": 0, "rows": 0}

    def row(_cursor: object, values: tuple[Any, ...]) -> tuple[Any, ...]:
        count["rows"] += 1
        return values

    def checkout(connection: Any, *_: object) -> None:
        connection.row_factory = row

    def checkin(connection: Any, _record: object) -> None:
        connection.row_factory = None

    def begun(connection: sa.Connection) -> None:
        count["writes"] += bool(connection.get_execution_options().get("coalmine_writes"))

    def sent(statement: str) -> None:
        count["statements"] += not statement.startswith(("BEGIN", "COMMIT"))

    listeners: list[tuple[str, Callable[..., None]]] = [("checkout", checkout), ("checkin", checkin), ("begin", begun)]
    for name, listener in listeners:
        sa.event.listen(store.engine, name, listener)
    try:
        with statements(store, sent):
            yield count
    finally:
        for name, listener in listeners:
            sa.event.remove(store.engine, name, listener)


def _look_costs(store: Store, checks: int) -> tuple[list[int], dict[str, int]]:
    world = _world(store, checks)
    due = DueChecks(store)
    now = world.clock()
    queued, _ = due.follow(now)
    assert len(queued) == checks
    costs: list[int] = []
    for seconds in (1, 300):  # nothing is due; all are
        with store.write() as connection:
            connection.exec_driver_sql("UPDATE runs SET status = 'finished', finished_at = started_at")
        now = world.clock.advance(seconds)
        with _counted(store) as count:
            assert len(due.queue_due(now)) == (0 if seconds == 1 else checks)
        costs += [count["statements"], count["writes"]]
    with _counted(store) as count:
        due.follow(now)
    return costs, count


def test_a_look_at_due_checks_costs_as_many_statements_for_few_as_for_many(sqlite_stores: Callable[[], Store]) -> None:
    (few, _), (many, follow) = _look_costs(sqlite_stores(), FEW), _look_costs(sqlite_stores(), MANY)
    assert few == many
    nothing, nothing_written, _, all_written = many
    assert (nothing, nothing_written, all_written) == (1, 0, 1)
    assert (follow["statements"], follow["writes"], follow["rows"]) == (2, 0, MANY)


def _run_costs(store: Store, runs: int) -> dict[str, int]:
    """Count what claiming and carrying out a run that changes nothing costs after so many like it."""
    world = _world(store, 1)
    planner = Planner(store, world.vault)
    for left in range(runs, -1, -1):
        world.clock.advance(60)
        world.wish(FIRST)
        with _counted(store) as count:
            claimed = world.claim()
            assert claimed is not None
            ended = execution.execute(
                planner, world.probe, claimed, owner="worker", clock=world.clock, stopping=lambda: False
            )
        assert ended is not None
        assert ended.verdict == "healthy"
        if left == 0:
            return count
    raise AssertionError


@pytest.mark.parametrize(("runs", "statements"), [(2, 33), (25, 32)], ids=["warming up", "with a baseline"])
def test_a_run_that_changes_nothing_takes_few_statements(
    sqlite_stores: Callable[[], Store], runs: int, statements: int
) -> None:
    count = _run_costs(sqlite_stores(), runs)
    assert count["statements"] == statements
    assert count["writes"] == 4  # claimed, begun, answered, ended


def test_scores_are_written_before_the_transaction_that_ends_their_run(store: Store) -> None:
    world = _world(store, 1)
    sent: list[str] = []
    with statements(store, sent.append):
        world.run(FIRST)
    scores = next(place for place, one in enumerate(sent) if one.startswith("INSERT INTO scores"))
    ends = next(place for place, one in enumerate(sent) if one.startswith("UPDATE runs SET status=") and place > scores)
    assert "finished_at" in sent[ends]
    assert "COMMIT" in sent[scores:ends]


@pytest.mark.both
def test_runs_of_one_instant_are_claimed_in_the_order_in_which_they_could_begin(store: Store) -> None:
    world = _world(store, 8)
    now = to_us(world.clock())
    with store.write() as connection:
        for number in range(8):
            check = catalog.find_definition(connection, "check", f"check-{number:03}")
            assert check is not None
            begins = now + (number * 5) % 8
            open_runs.enqueue_scheduled(connection, check.id, scheduled_for=now, not_before=begins, now=now)
    world.clock.advance(1)
    order = [claimed.check for claimed in iter(world.claim, None)]
    assert order == [f"check-{number:03}" for number in (0, 5, 2, 7, 4, 1, 6, 3)]


def _ended(world: World, checks: int) -> None:
    """Carry out a run of each check."""
    for number in range(checks):
        world.run(f"check-{number:03}")


def _refresh_costs(store: Store, checks: int) -> tuple[dict[str, int], dict[str, int]]:
    world = _world(store, checks, rules=[{**COVERAGE, "open": {"bad": 1, "of": 1}}])
    _ended(world, min(checks, FEW))
    snapshot = Snapshot()
    snapshot.refresh(store)
    with _counted(store) as nothing_new:
        snapshot.refresh(store)
    world.probe.all_miss()
    world.run(FIRST)
    check_id = references.load_definition(store, "check", FIRST).id
    with _counted(store) as one_run:
        snapshot.refresh_checks(store, {check_id}, deliveries=False)
    now, whole = snapshot.state, metrics_snapshot.read_state(store)
    assert now is not None
    assert (now.checks, now.alerts, now.outbox_pending) == (whole.checks, whole.alerts, 1)
    assert now.alerts == {(FIRST, "firing", "critical"): 1}
    return nothing_new, one_run


def test_metrics_of_a_finished_run_read_as_many_rows_among_few_checks_as_among_many(
    sqlite_stores: Callable[[], Store],
) -> None:
    (quiet_few, few), (quiet_many, many) = (_refresh_costs(sqlite_stores(), checks) for checks in (FEW, 25))
    assert few == many
    assert many["rows"] == 7  # its version, definition, run, body, detection, alert; what is left to send
    assert quiet_few["statements"] == quiet_many["statements"]
    assert quiet_many["rows"] - quiet_few["rows"] == 25 - FEW  # a short row of each check


def _apart_from_age(state: metrics_snapshot.State) -> metrics_snapshot.State:
    """Return the state without for how long jobs wait, which the time between two reads changes."""
    waiting = state.jobs_waiting
    return state if waiting is None else replace(state, jobs_waiting=waiting._replace(oldest_seconds=0.0))


def test_metrics_follow_what_changed_of_a_check_and_what_did_not_stays(store: Store) -> None:
    world = _world(store, 3)
    world.clock.now = datetime.now(UTC)
    reader = metrics_snapshot.StateReader()
    _ended(world, 2)
    assert _apart_from_age(reader.read(store)) == _apart_from_age(metrics_snapshot.read_state(store))
    world.probe.all_miss()
    world.run("check-001")
    world.run("check-002")
    assert [check.coverage for check in reader.read(store).checks] == [1.0, 0.0, 0.0]
    one = page([canary("ant")])
    kept = [{**one["checks"][0], "slug": f"check-{number:03}", "enabled": number == 0} for number in range(2)]
    world.apply({**one, "checks": kept})
    assert [check.labels[0] for check in reader.read(store).checks] == [FIRST]
    assert _apart_from_age(reader.read(store)) == _apart_from_age(metrics_snapshot.read_state(store))


def test_a_worker_that_looks_for_work_and_finds_none_writes_nothing(store: Store) -> None:
    world = _world(store, 3, schedule={"every": "31d"})
    world.queue_due()
    while (claimed := world.claim()) is not None:
        world.execute(claimed)
    writes: list[bool] = []

    def begun(connection: sa.Connection) -> None:
        writes.append(bool(connection.get_execution_options().get("coalmine_writes")))

    sa.event.listen(store.engine, "begin", begun)
    try:
        assert world.claim() is None
        assert world.deliver() is None
        assert world.queue_due() == 0
    finally:
        sa.event.remove(store.engine, "begin", begun)
    assert writes
    assert not any(writes)


@pytest.fixture
def sqlite_stores(stores: Callable[..., Store], databases: Databases) -> Callable[[], Store]:
    """Give new databases of SQLite."""
    return lambda: stores(databases.sqlite())


def test_a_writer_of_sqlite_waits_for_the_other_of_its_process_and_not_for_sqlite(sqlite_store: Store) -> None:
    tried = threading.Event()

    def note(statement: str) -> None:
        if threading.current_thread() is other and statement == "BEGIN IMMEDIATE":
            tried.set()

    def write() -> None:
        with sqlite_store.write():
            pass

    other = threading.Thread(target=write)
    with statements(sqlite_store, note):
        with sqlite_store.write():
            other.start()
            assert not tried.wait(0.3), "SQLite would let it sleep up to a tenth of a second at a time"
        assert tried.wait(20)
        other.join(20)


def test_a_run_that_changes_nothing_wakes_nobody_who_delivers(store: Store) -> None:
    world = _world(store, 1, rules=[{**COVERAGE, "open": {"bad": 1, "of": 1}}])
    assert not world.run(FIRST).notifies
    world.probe.all_miss()
    assert world.run(FIRST).notifies
    assert not world.run(FIRST).notifies
