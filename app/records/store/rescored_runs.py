"""Runs judged anew, in rows: what held at them, and what they amount to by a re-scoring, beside the old numbers.

What is written is the same whoever writes it: two who work at one re-scoring cost time and nothing else.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection

from app.base.db.engine import blocks, hold_content, insert_new
from app.base.db.packed import number_at, vector_columns
from app.records.rescoring_tables import rescored_rollups, rescored_runs, rescorings
from app.records.run_tables import runs
from app.records.store.results import layout_names
from app.records.store.rollups import fold
from app.records.tables import rankings, states
from app.scoring.views import RescoringSide, RescoringTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunState:
    """From which run on a canary had a ranking."""

    id: int
    canary_id: int
    canary_version_id: int
    ranking_id: int
    first_run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoredRun:
    """What a run amounts to by a re-scoring."""

    run_id: int
    verdict: str
    reasons: Sequence[str]
    total: int
    measured: int
    failed: int
    undefined: int
    degraded: int
    degraded_positions: bytes | None
    degraded_reasons: bytes | None
    aggregates: bytes
    layout_id: int
    scores_layout_id: int


def states_in_force(connection: Connection, check_id: int, run_id: int) -> list[BegunState]:
    """Read what held at a run, one state for each canary that had one."""
    held: list[BegunState] = []
    for holding in (states.c.last_run.is_(None), states.c.last_run >= run_id):  # each along an index
        statement = _BEGUN.where(states.c.check_id == check_id, states.c.first_run <= run_id, holding)
        held += [BegunState(**row._mapping) for row in connection.execute(statement)]  # noqa: SLF001 - public despite its name
    return held


def states_begun(connection: Connection, check_id: int, *, after: int, limit: int) -> list[BegunState]:
    """Read the states of a check in the order they were written, which is that of its runs; ids above `after`."""
    # `+ 0` keeps both databases from fetching all states of the check to sort them, page after page.
    mine = states.c.check_id + 0 == check_id
    statement = _BEGUN.where(mine, states.c.id > after).order_by(states.c.id).limit(limit)
    return [BegunState(**row._mapping) for row in connection.execute(statement)]  # noqa: SLF001 - as above


def hold(connection: Connection, rescoring_id: int, run_ids: Sequence[int]) -> set[int]:
    """Give those of these runs that are still there and not re-scored, and keep them so until the transaction ends.

    Rankings are kept from being pruned as well.
    """
    hold_content(connection)
    connection.execute(sa.select(rescorings.c.id).where(rescorings.c.id == rescoring_id).with_for_update())
    left: set[int] = set()
    for block in blocks(run_ids):
        there = sa.select(runs.c.id).where(runs.c.id.in_(block)).with_for_update(read=True, key_share=True)
        done = sa.select(rescored_runs.c.run_id).where(
            rescored_runs.c.rescoring_id == rescoring_id, rescored_runs.c.run_id.in_(block)
        )
        left |= set(connection.execute(there).scalars()) - set(connection.execute(done).scalars())
    return left


def rankings_there(connection: Connection, ranking_ids: Iterable[int]) -> set[int]:
    """Give those of these rankings that have not been pruned."""
    ids: set[int] = set()
    for block in blocks(sorted(set(ranking_ids))):
        ids.update(connection.execute(sa.select(rankings.c.id).where(rankings.c.id.in_(block))).scalars())
    return ids


def save(connection: Connection, rescoring_id: int, rows: Sequence[tuple[RescoredRun, int]]) -> None:
    """Write what runs amount to, each with the time it ended; to be called with runs that are held."""
    names = tuple(RescoredRun.__dataclass_fields__)
    values = [
        (rescoring_id, *[json.dumps(run.reasons) if name == "reasons" else getattr(run, name) for name in names])
        for run, _ in rows
    ]
    insert_new(connection, rescored_runs, ("rescoring_id", *names), values)
    vectors: dict[int, list[tuple[int, NDArray[np.float64]]]] = {}
    for run, ended_at in rows:
        vectors.setdefault(run.layout_id, []).append((ended_at, np.frombuffer(run.aggregates)))
    for layout, members in vectors.items():
        fold(connection, rescored_rollups, {"rescoring_id": rescoring_id, "layout_id": layout}, members)


def find_run(connection: Connection, rescoring_id: int, run_id: int) -> RescoredRun | None:
    """Find what a run amounts to by a re-scoring."""
    return find_runs(connection, rescoring_id, [run_id]).get(run_id)


def find_runs(connection: Connection, rescoring_id: int, run_ids: Sequence[int]) -> dict[int, RescoredRun]:
    """Find what runs amount to by a re-scoring, by their ids; those that are in it."""
    runs_by_id: dict[int, RescoredRun] = {}
    for block in blocks(run_ids):
        place = sa.and_(rescored_runs.c.rescoring_id == rescoring_id, rescored_runs.c.run_id.in_(block))
        for row in connection.execute(sa.select(rescored_runs).where(place)):
            values = {name: getattr(row, name) for name in RescoredRun.__dataclass_fields__}
            runs_by_id[row.run_id] = RescoredRun(**{**values, "reasons": json.loads(row.reasons)})
    return runs_by_id


def rescorings_of(connection: Connection, run_id: int) -> set[int]:
    """Give the re-scorings a run is in."""
    mine = sa.select(rescored_runs.c.rescoring_id).where(rescored_runs.c.run_id == run_id)
    return set(connection.execute(mine).scalars())


def newest_run(connection: Connection, rescoring_id: int) -> int | None:
    """Find the newest run of a re-scoring."""
    newest = sa.select(sa.func.max(rescored_runs.c.run_id)).where(rescored_runs.c.rescoring_id == rescoring_id)
    run_id: int | None = connection.execute(newest).scalar_one()
    return run_id


def suite_versions_of(connection: Connection, rescoring_id: int) -> list[int]:
    """List the suite versions of the runs of a re-scoring."""
    mine = sa.and_(rescored_runs.c.run_id == runs.c.id, rescored_runs.c.rescoring_id == rescoring_id)
    return list(connection.execute(sa.select(runs.c.suite_version_id).join(rescored_runs, mine).distinct()).scalars())


def summary(connection: Connection, rescoring_id: int) -> RescoringTotals:
    """Sum up the runs of a re-scoring as they were and as they are by it."""
    return {"before": _side(connection, rescoring_id, runs), "after": _side(connection, rescoring_id, rescored_runs)}


def _side(connection: Connection, rescoring_id: int, table: sa.Table) -> RescoringSide:
    mine = sa.and_(rescored_runs.c.run_id == runs.c.id, rescored_runs.c.rescoring_id == rescoring_id)

    def select(*columns: sa.ColumnElement[Any]) -> Any:
        return sa.select(*columns).select_from(runs).join(rescored_runs, mine)

    verdicts = connection.execute(select(table.c.verdict, sa.func.count()).group_by(table.c.verdict)).all()
    degraded = connection.execute(select(sa.func.coalesce(sa.func.sum(table.c.degraded), 0))).scalar_one()
    layouts = connection.execute(select(table.c.layout_id).distinct()).scalars().all()

    def mean(name: str) -> float | None:
        values: list[float] = []
        for layout in layouts:
            names = layout_names(connection, layout)
            if name in names:
                place = names.index(name)
                stored = connection.execute(select(*vector_columns(table)).where(table.c.layout_id == layout))
                values += [number for one in stored if (number := number_at(place, *one)) is not None]
        return float(np.mean(values)) if values else None

    return {
        "runs": sum(count for _, count in verdicts),
        "coverage": mean("coverage"),
        "health_score": mean("health_score"),
        "degraded": int(degraded),
        "verdicts": {str(verdict): count for verdict, count in verdicts},
    }


_BEGUN = sa.select(*[states.c[name] for name in BegunState.__dataclass_fields__])
