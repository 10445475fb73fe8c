"""What is kept for how long, and what deletes the rest.

Runs with what belongs to them are kept as `COALMINE_RETENTION_DAYS` says; alerts, diagnoses and hourly figures for a
year at least. Other periods are fixed, below: queries of users and pairs of shadows, units of epochs, parts of uploads,
questions of shadows, rates.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import numpy as np

from app.alerts.tables import incidents
from app.answers.store import answer_rows as answers
from app.answers.tables import feedback
from app.base.db import engine
from app.base.db.engine import Connection, Store, blocks, to_us
from app.diagnosis import store as diagnoses
from app.experiments import store as experiments
from app.experiments.tables import shadow_pairs, shadow_parts
from app.plants import store as plants
from app.plants.tables import plants as plants_table
from app.records.store import expired
from app.records.tables import states
from app.reports import store as reports
from app.retrievers import store as retriever_rows
from app.traffic.tables import traffic_parts, traffic_queries

BATCH: Final = 50
"""Rows that a writing transaction deletes, with their dependents."""
_FOUND_BATCHES: Final = 40
"""Batches that one reading transaction finds."""
ALERT_DAYS: Final = 366
TRAFFIC_DAYS: Final = 30
"""Days that queries of users and pairs of shadows are kept, however long runs are."""
TRAFFIC_BATCH: Final = 400
PARTS_KEPT: Final = timedelta(days=1)
"""How long a part of a log that is sent again is known."""
QUESTIONS_KEPT: Final = timedelta(days=1)
"""How long a query waits for the candidate of a shadow to be asked."""
SLICE: Final = 50_000
"""Rankings examined in one round, and in one reading transaction."""
CONTENT_PAGE: Final = 2_000
"""Rankings whose texts are read at a time; with those of a slice a pass would hold 30 MB."""
ROUND: Final = timedelta(minutes=10)
UNITS_KEPT: Final = timedelta(days=90)
"""How long units of an epoch that ended are kept: an outcome may come as late as the longest window."""
RATES_KEPT: Final = timedelta(days=1)
"""How long the rate of a retriever that nobody asks any more is kept."""

Find = Callable[[Connection, int], Sequence[Any]]
Drop = Callable[[Connection, Sequence[Any]], int]


def prune(store: Store, now: datetime, *, days: int, batch: int = BATCH, slice_size: int = SLICE) -> int:
    """Delete what its period has passed for, and orphans; give the number of deleted rows.

    Runs, states, answers, feedback and reports go after `days`; alerts, incidents, diagnoses and hourly figures after
    `days` or `ALERT_DAYS`, whichever is longer; the rest after the fixed periods of this module.

    Rankings without a state are searched in slices, one a round; texts without a ranking, which takes a pass over all
    rankings, whenever the slices start over.
    """
    deleted = sum(_drain(store, find, drop, batch) for find, drop in _expired_rows(now, days))
    traffic_horizon = to_us(now - timedelta(days=TRAFFIC_DAYS))
    deleted += _drain(store, *_rows_before(traffic_queries.c.received_at, traffic_horizon), TRAFFIC_BATCH)
    deleted += _drain(store, *_rows_before(shadow_pairs.c.at, traffic_horizon), batch)
    units_horizon = to_us(now - UNITS_KEPT)
    deleted += _drain(
        store, partial(experiments.old_units, horizon=units_horizon), experiments.drop_units, TRAFFIC_BATCH
    )
    place, slices = _slice(store, now, slice_size)
    with store.read() as connection:
        unused = expired.unused_rankings(connection, place * slice_size, (place + 1) * slice_size)
    deleted += _drop(store, unused, expired.drop_rankings, batch)
    deleted += sum(_drop_orphans(store, orphans, batch) for orphans in _ORPHANS)
    if place == 0 and (slices > 1 or deleted):  # slices start over; of one slice, only where something went
        deleted += _prune_content(store, batch)
    return deleted


_ORPHANS = (expired.FINDINGS, expired.BASELINES, expired.ANSWER_TEXTS)


def _expired_rows(now: datetime, days: int) -> Sequence[tuple[Find, Drop]]:
    """Return the (find, delete) functions of rows that expire by age."""
    horizon = to_us(now - timedelta(days=days))
    alerts = to_us(now - timedelta(days=max(days, ALERT_DAYS)))
    return (
        (partial(expired.old_runs, horizon=horizon), expired.drop_runs),
        (expired.old_states, partial(engine.drop_rows, table=states)),
        (answers.old_answers, answers.drop_answers),
        (partial(answers.old_ratings, horizon=horizon), answers.drop_ratings),
        _rows_before(feedback.c.received_at, horizon),
        (partial(engine.old_rows, column=incidents.c.resolved_at, horizon=alerts), expired.drop_incidents),
        (partial(expired.old_alerts, horizon=alerts), expired.drop_alerts),
        (partial(reports.old_reports, horizon=horizon), reports.drop_reports),
        (partial(plants.old_plants, horizon=horizon), partial(engine.drop_rows, table=plants_table)),
        (partial(experiments.old_hours, horizon=alerts), experiments.drop_hours),
        (partial(expired.old_tests, horizon=alerts), expired.drop_tests),
        (partial(diagnoses.old_diagnoses, horizon=alerts), diagnoses.drop_diagnoses),
        *[_rows_before(table.c.received_at, to_us(now - PARTS_KEPT)) for table in (traffic_parts, shadow_parts)],
        (
            partial(experiments.old_questions, horizon=to_us(now - QUESTIONS_KEPT)),
            partial(experiments.drop_questions, hour=to_us(now.replace(minute=0, second=0, microsecond=0))),
        ),
        (partial(retriever_rows.old_rates, horizon=to_us(now - RATES_KEPT)), retriever_rows.drop_rates),
        *[
            (partial(expired.old_hours, table=table, horizon=alerts), partial(expired.drop_hours, table=table))
            for table in expired.HOURLY
        ],
    )


def _rows_before(column: Any, horizon: int) -> tuple[Find, Drop]:
    """Return the functions for rows whose time, this column, lies before the horizon."""
    return partial(engine.old_rows, column=column, horizon=horizon), partial(engine.drop_rows, table=column.table)


def _drain(store: Store, find: Find, drop: Drop, batch: int) -> int:
    """Delete batches until none is found."""
    deleted, limit = 0, _FOUND_BATCHES * batch
    while True:
        with store.read() as connection:
            old = find(connection, limit)
        deleted += _drop(store, old, drop, batch)
        if len(old) < limit:
            return deleted


def _drop(store: Store, found: Sequence[Any], drop: Drop, batch: int) -> int:
    deleted = 0
    for block in blocks(found, batch):
        with store.write() as connection:
            deleted += drop(connection, block)
    return deleted


def _drop_orphans(store: Store, orphans: expired.Orphans, batch: int) -> int:
    with store.read() as connection:
        unused = orphans.find(connection)
    return _drop(store, unused, orphans.drop, batch)


def _slice(store: Store, now: datetime, size: int) -> tuple[int, int]:
    """Return the slice of rankings for this round, and the number of slices."""
    with store.read() as connection:
        slices = max(1, -(-expired.highest_ranking(connection) // size))
    return int(now.timestamp() // ROUND.total_seconds()) % slices, slices


def _prune_content(store: Store, batch: int) -> int:
    """Delete unused texts and vectors: searched by reading, then deleted in batches that check only newer rankings."""
    with store.write() as connection:
        since = expired.newest_ranking(connection)
    with store.read() as connection:
        ids = expired.all_chunks(connection)
    is_used = np.zeros(len(ids), np.bool_)
    after: int | None = 0
    while after is not None:
        with store.read() as connection:
            used, after = expired.chunks_of_rankings(connection, after, CONTENT_PAGE)
        is_used[_places(ids, used)] = True
    unused: list[int] = ids[~is_used].tolist()
    deleted = _drop(store, unused, partial(expired.drop_chunks, since=since), batch)
    return deleted + _drop_orphans(store, expired.VECTORS, batch)


def _places(ids: expired.Ids, wanted: Collection[int]) -> expired.Ids:
    """Return the places of wanted ids in ascending ones; those that are not among them are left out."""
    sought = np.fromiter(wanted, np.int64, len(wanted))
    places = np.searchsorted(ids, sought)
    is_within = places < len(ids)
    places, sought = places[is_within], sought[is_within]
    found: expired.Ids = places[ids[places] == sought]
    return found
