"""Who was degraded at each of several runs, a few hundred at most, and what is known of why: of all in one look.

What began last of a canary up to a run is found in one step along an index, and the rows are read by their ids then:
that costs what is asked for, however long the history. Joined by ranges of runs, a third of all states could match as
far as PostgreSQL can tell, and it reads them all.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.diagnosis import DiagnosisRow, read_diagnosis
from app.store.engine import numbers, said
from app.store.tables import diagnoses, runs, states

_BLOCK = 400
_PAIRS = 10_000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FallenRow:
    """A canary that was degraded at a run."""

    canary_id: int
    canary_version_id: int
    ranking_id: int
    reasons: int


def degraded_at(connection: Connection, asked: Mapping[int, Collection[int]]) -> dict[int, dict[int, FallenRow]]:
    """Read which of the canaries asked about, by run id, were degraded at that run; found by run id and canary id.

    Nobody was at a run that could not ask.
    """
    begun = [*_newest(connection, asked, _last_begun, runs.c.suite_version_id.is_not(None))]
    columns = [states.c[name] for name in FallenRow.__dataclass_fields__]
    degraded: dict[int, tuple[int | None, FallenRow]] = {}
    for ids in _blocks(sorted({state_id for *_, state_id in begun}), _BLOCK):
        statement = sa.select(states.c.id, states.c.last_run, *columns)
        for state_id, last_run, *values in connection.execute(
            statement.where(states.c.id.in_(ids), states.c.reasons != 0)
        ):
            row = FallenRow(**dict(zip(FallenRow.__dataclass_fields__, values, strict=True)))
            degraded[state_id] = last_run, row
    found: dict[int, dict[int, FallenRow]] = {run_id: {} for run_id in asked}
    for run_id, canary_id, state_id in begun:
        last_run, fell = degraded.get(state_id, (0, None))
        if fell is not None and (last_run is None or last_run >= run_id):
            found[run_id][canary_id] = fell
    return found


def ended_before(connection: Connection, run_ids: Collection[int]) -> dict[int, int]:
    """Give the newest run of its check before each of these whose verdict is known, by run id; the first ones lack."""
    earlier = runs.alias("earlier")
    known = earlier.c.verdict.in_([said("healthy"), said("degraded")])  # ix_runs_known says it in this order
    mine = sa.and_(earlier.c.check_id == runs.c.check_id, known, earlier.c.id < runs.c.id)
    newest = sa.select(sa.func.max(earlier.c.id)).where(mine).scalar_subquery()
    rows = connection.execute(sa.select(runs.c.id, newest.label("before")).where(runs.c.id.in_(sorted(run_ids))))
    return {row.id: row.before for row in rows if row.before is not None}


def diagnoses_at(connection: Connection, fallen: Mapping[int, Collection[int]]) -> dict[int, dict[int, DiagnosisRow]]:
    """Read the newest diagnosis up to each run of these canaries, given and found by run id and canary id."""
    found: dict[int, dict[int, DiagnosisRow]] = {run_id: {} for run_id in fallen}
    for block in _blocks(sorted({canary_id for canaries in fallen.values() for canary_id in canaries}), _BLOCK):
        mine = sa.and_(diagnoses.c.check_id == runs.c.check_id, diagnoses.c.run_id <= runs.c.id)
        newest = (
            sa.select(runs.c.id.label("at_run"), sa.func.max(diagnoses.c.id).label("id"))
            .select_from(runs)
            .join(diagnoses, mine)
            .where(runs.c.id.in_(sorted(fallen)), diagnoses.c.canary_id.in_(block))
            .group_by(runs.c.id, diagnoses.c.canary_id)
            .subquery()
        )
        statement = sa.select(newest.c.at_run, diagnoses).join(newest, newest.c.id == diagnoses.c.id)
        for row in connection.execute(statement):
            if row.canary_id in fallen[row.at_run]:
                found[row.at_run][row.canary_id] = read_diagnosis(row)
    return found


def healthy_until(connection: Connection, fallen: Mapping[int, Collection[int]]) -> dict[int, dict[int, int]]:
    """Give the last run before each run in which these canaries, degraded at it, were healthy; keyed as `diagnoses_at`.

    Those that never were are left out. They are degraded at that run, so the states they were healthy in have ended.
    """
    found: dict[int, dict[int, int]] = {run_id: {} for run_id in fallen}
    for run_id, canary_id, last_run in _newest(connection, fallen, _last_healthy):
        found[run_id][canary_id] = last_run
    return found


# --- steps along an index, each for one canary at one run ----------------------------------------------------


def _last_begun(each: sa.Subquery) -> sa.Select[Any]:
    mine = sa.and_(states.c.check_id == each.c.check_id, states.c.canary_id == each.c.canary_id)
    return sa.select(states.c.id).where(mine, states.c.first_run <= each.c.run_id).order_by(states.c.first_run.desc())


def _last_healthy(each: sa.Subquery) -> sa.Select[Any]:
    mine = sa.and_(states.c.check_id == each.c.check_id, states.c.canary_id == each.c.canary_id)
    ended = sa.and_(states.c.first_run <= each.c.run_id, states.c.reasons == 0, states.c.last_run.is_not(None))
    # States of a canary follow each other: the last to begin is the last to end.
    return sa.select(states.c.last_run).where(mine, ended).order_by(states.c.first_run.desc())


def _newest(
    connection: Connection,
    asked: Mapping[int, Collection[int]],
    step: Callable[[sa.Subquery], sa.Select[Any]],
    *conditions: sa.ColumnElement[bool],
) -> Iterator[tuple[int, int, int]]:
    """Yield what a step finds as (run id, canary id, it), of the runs asked about that are there."""
    there = sa.select(runs.c.id, runs.c.check_id).where(runs.c.id.in_(sorted(asked)), *conditions)
    pairs = [(run.id, run.check_id, canary_id) for run in connection.execute(there) for canary_id in asked[run.id]]
    for block in _blocks(pairs, _PAIRS):
        each = numbers(connection, "each", ("run_id", "check_id", "canary_id"), block)
        found = step(each).limit(1).scalar_subquery()
        for run_id, canary_id, value in connection.execute(sa.select(each.c.run_id, each.c.canary_id, found)):
            if value is not None:
                yield run_id, canary_id, value


def _blocks(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
