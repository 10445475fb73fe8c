"""What is asked every second, or by a page, finds its rows along an index, however long the history."""

import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from app.alerts import store as alerts
from app.base.db.engine import Store
from app.detection.store import evidence_rows
from app.diagnosis.store import diagnoses_at
from app.hooks import store as outbox
from app.hooks.domain import OUT_OF_REACH
from app.records.store import expired, open_runs, run_rows, series, state_rows
from app.reports.store import alerts_in_period
from app.runs import store as runs_store
from tests.support.world import COVERAGE, World, canary, page

pytestmark = pytest.mark.databases

_DEGRADED = state_rows.DegradedRow(canary_id=1, canary_version_id=1, ranking_id=1, reasons=1, top_score=None)

ASKED_OFTEN: dict[str, Callable[[Connection], Any]] = {
    "forgotten_runs": lambda connection: open_runs.forgotten_runs(connection, 1),
    "find_active": lambda connection: open_runs.find_active(connection, 1),
    "newest_instant": lambda connection: open_runs.newest_instant(connection, 1, before=2),
    "list_runs": lambda connection: run_rows.list_runs(connection, 1, limit=2),
    "ended_runs": lambda connection: run_rows.ended_runs(connection, 1, limit=3),
    "last_completed": lambda connection: run_rows.last_completed(connection, 1, before=2),
    "newest_known": lambda connection: run_rows.newest_known(connection, 1),
    "states_at": lambda connection: state_rows.states_at(connection, 1, 1),
    "begin_attempt": lambda connection: outbox.begin_attempt(connection, 1, owner="o", now=1),
    "next_attempt": lambda connection: outbox.next_attempt(connection, 1, now=1),
    "forgotten_hooks": lambda connection: outbox.forgotten_hooks(connection, 1),
    "begin_resend": lambda connection: outbox.begin_resend(connection, 1, owner="o", now=1),
    "bring_forward": lambda connection: outbox.bring_forward(connection, 1, now=1, errors=OUT_OF_REACH),
    "outbox": outbox.count_pending,
    "count_alerts": alerts.count_alerts,
    "open_alerts": lambda connection: alerts.open_alerts(connection, 1),
    "count_unresolved": alerts.count_unresolved,
    "unacknowledged_alerts": lambda connection: alerts.list_alerts(
        connection, alerts.AlertFilter(unacknowledged=True), limit=2
    ),
    "dead_deliveries": lambda connection: outbox.list_deliveries(connection, state="dead", limit=2),
    "deliveries_of_hook": lambda connection: outbox.list_deliveries(connection, hook_id=1, limit=2),
    "waiting_runs": lambda connection: open_runs.waiting_runs(connection, 1),
    "retrying_deliveries": outbox.retrying_deliveries,
    "dead_letters": outbox.dead_deliveries,
    "newest_of_all": run_rows.newest_runs,
    "degraded_at": lambda connection: state_rows.degraded_at(connection, {1: [1, 2], 2: [3]}),
    "previous_known_runs": lambda connection: run_rows.previous_known_runs(connection, [1, 2]),
    "diagnoses_at": lambda connection: diagnoses_at(connection, {1: {1: _DEGRADED, 2: _DEGRADED}, 2: {3: _DEGRADED}}),
    "healthy_until": lambda connection: state_rows.healthy_until(connection, {1: [1, 2], 2: [3]}),
    "under_way": lambda connection: open_runs.under_way(connection, 1),
    "recent_runs": lambda connection: run_rows.recent_runs(connection, [1, 2], limit=3),
    "dead_lately": lambda connection: outbox.dead_letters(connection, 1),
    "news_of_runs": runs_store.newest_runs,
    "news_of_alerts": runs_store.open_alerts,
    "followed_run": lambda connection: runs_store.followed_run(connection, 1),
    "new_shards": lambda connection: runs_store.new_shards(connection, 1, {2}),
    "alerts_of_check": lambda connection: alerts_in_period(connection, 1, 1, 2, limit=2),
    "evidence": lambda connection: evidence_rows(connection, 1, 1, 2, limit=2),
    "spans_with_runs": lambda connection: series.spans_with_runs(connection, 1, [(1, 2), (3, 4)]),
    "kept_since": lambda connection: series.kept_since(connection, series.Source(check_id=1)),
    "newest_probes": lambda connection: run_rows.newest_probes(connection, 1, limit=60),
    "series_of_runs": lambda connection: series.series_of_runs(connection, series.Source(check_id=1), "coverage", 1, 2),
    "values_learned": lambda connection: series.values_learned(
        connection, series.Source(check_id=1), "coverage", since=1, until=2, limit=3
    ),
    "tallies": lambda connection: outbox.count_by_hook(connection, since=1),
}
ORDERED = {"list_runs", "ended_runs", "newest_known"}
"""Those that come in order as they are found."""


def test_no_table_of_history_is_scanned(sqlite_store: Store) -> None:
    big = ("runs", "states", "deliveries", "alerts", "transitions", "rankings", "scores", "attempts", "diagnoses")
    wrong = {}
    for name, ask in ASKED_OFTEN.items():
        plans = _plans(sqlite_store, ask)
        assert plans, name
        scans = [plan for plan in plans if plan.startswith("SCAN") and plan.split()[1] in big and "USING" not in plan]
        sorts = [plan for plan in plans if "TEMP B-TREE FOR ORDER BY" in plan and name in ORDERED]
        if scans or sorts:
            wrong[name] = scans + sorts
    assert wrong == {}


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("newest_known", "SEARCH runs USING INDEX ix_runs_known (check_id=?)"),
        ("last_completed", "SEARCH runs USING INDEX ix_runs_completed (check_id=? AND finished_at<?)"),
    ],
)
def test_runs_that_tell_nothing_are_passed_over_on_the_way_to_one_that_does(
    name: str, plan: str, sqlite_store: Store
) -> None:
    plans = _plans(sqlite_store, ASKED_OFTEN[name])
    assert [one for one in plans if one.split()[1] == "runs"] == [plan]


def test_what_was_ever_sent_to_a_hook_is_not_walked_for_what_waits(sqlite_store: Store) -> None:
    for name in ("begin_attempt", "next_attempt", "begin_resend", "bring_forward"):
        plans = _plans(sqlite_store, ASKED_OFTEN[name])
        assert [plan for plan in plans if "ix_deliveries_pending" in plan or "ix_deliveries_refresh" in plan], name
        assert [plan for plan in plans if "ix_deliveries_hook" in plan] == [], name


def test_what_a_delivery_waits_for_is_found_among_what_is_left_to_send(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary("ant")], rules=[{**COVERAGE, "open": {"bad": 1, "of": 1}}]))
    world.probe.all_miss()
    world.run()
    plans = _plans(sqlite_store, lambda connection: outbox.waiting_behind(connection, [1]))
    assert [plan for plan in plans if plan.split()[1] == "deliveries"] == [
        "SEARCH deliveries USING INTEGER PRIMARY KEY (rowid=?)",
        "SCAN deliveries USING INDEX ix_deliveries_pending",
    ]


LONG_HISTORY = (
    """
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 39999)
    INSERT INTO states (check_id, canary_id, canary_version_id, ranking_id, layout_id, reasons, first_run, last_run)
    SELECT 1 + i % 4, i % 400, 1, i % 100, 1, i / 400 % 2, i / 400 * 20 + 1,
           CASE WHEN i / 400 < 99 THEN i / 400 * 20 + 15 END
    FROM n
    """,
    """
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
    INSERT INTO runs (id, check_id, suite_version_id, scheduled_for, not_before, trigger, status, created_at)
    SELECT i, 1 + i % 4, 1, i, i, 'schedule', 'finished', i FROM n
    """,
)
"""100 states of each of 400 canaries: healthy and degraded in turn for 15 runs, and nothing known for the next 5."""


def test_who_was_degraded_at_many_runs_is_found_step_by_step_in_a_long_history(store: Store) -> None:
    """An alert is explained by a few canaries at a few runs, of all there are."""
    _fill(store, LONG_HISTORY)
    asked = {run_id: [canary for canary in range(400) if canary % 4 == run_id % 4] for run_id in range(1, 2001, 49)}
    turns = {run_id: divmod(run_id - 1, 20) for run_id in asked}
    told: dict[str, Any] = {}

    def ask(connection: Connection) -> None:
        told["fallen"] = state_rows.degraded_at(connection, asked)
        told["well"] = state_rows.healthy_until(
            connection, {run_id: list(found) for run_id, found in told["fallen"].items()}
        )

    plans = _plans(store, ask)
    assert [plan for plan in plans if re.search(r"Seq Scan on (states|runs)|SCAN (states|runs)$", plan)] == []
    assert len([plan for plan in plans if "ix_states_timeline" in plan]) == 2
    bad = {
        run_id: asked[run_id] if turn % 2 and (at < 15 or turn == 99) else [] for run_id, (turn, at) in turns.items()
    }
    assert {run_id: list(found) for run_id, found in told["fallen"].items()} == bad
    assert sum(map(len, bad.values())) == 1500
    assert told["well"] == {
        run_id: dict.fromkeys(canaries, (turns[run_id][0] - 1) * 20 + 15) for run_id, canaries in bad.items()
    }


def test_retention_looks_and_deletes_along_indexes(sqlite_store: Store) -> None:
    _fill(sqlite_store, LONG_HISTORY)

    def forget(connection: Connection) -> None:
        expired.old_runs(connection, 10, horizon=1)
        expired.old_states(connection, 10)
        expired.unused_rankings(connection, 0, 10)
        expired.VECTORS.find(connection)
        for table in expired.HOURLY:
            expired.old_hours(connection, 10, table=table, horizon=1)
        for drop in (
            expired.drop_runs,
            expired.drop_rankings,
            expired.VECTORS.drop,
            expired.drop_incidents,
            expired.drop_alerts,
            expired.drop_tests,
        ):
            drop(connection, [0])
        expired.drop_chunks(connection, [0], since=100)

    plans = _plans(sqlite_store, forget, "SELECT", "DELETE")
    assert any("ix_scores_vector_id" in plan for plan in plans)
    scanned = {name for plan in plans for name in re.findall(r"SCAN (\w+)", plan)}
    assert scanned == {"CONSTANT", "latest", "shards", "vectors"}


def _fill(store: Store, statements: Sequence[str]) -> None:
    """Fill tables with rows that refer to nothing, and let the database count them."""
    if store.dialect == "sqlite":
        with closing(sqlite3.connect(store.engine.url.database or "")) as plain:  # minds no references
            for statement in statements:
                plain.execute(statement)
            plain.commit()
        return
    with store.write() as connection:
        for table in ("states", "runs"):
            for key in sa.inspect(connection).get_foreign_keys(table):
                connection.exec_driver_sql(f"ALTER TABLE {table} DROP CONSTRAINT {key['name']}")
        for statement in statements:
            connection.execute(sa.text(statement))
        connection.exec_driver_sql("ANALYZE")


def _plans(store: Store, ask: Callable[[Connection], Any], *verbs: str) -> list[str]:
    """Give the plans the database has for what is asked, line by line."""
    asked: list[tuple[str, Any]] = []
    explain = "EXPLAIN QUERY PLAN" if store.dialect == "sqlite" else "EXPLAIN"
    with store.write() as connection:

        def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
            asked.append((statement, parameters))

        sa.event.listen(connection, "before_cursor_execute", note)
        ask(connection)
        sa.event.remove(connection, "before_cursor_execute", note)
        selects = [(text, values) for text, values in asked if text.startswith(verbs or "SELECT")]
        return [row[-1] for text, values in selects for row in connection.exec_driver_sql(f"{explain} {text}", values)]
