"""History of canaries: since when one is degraded, until when it was healthy, what was diagnosed then."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import blocks
from app.base.db.rows import numbers
from app.diagnosis.store import DiagnosisRow, read_diagnosis
from app.diagnosis.tables import diagnoses
from app.records.store.run_rows import held_at, is_known
from app.records.tables import runs, states

_PAIRS = 10_000
_WIDE = 400


class Answered(Protocol):
    """A canary at a run, with what it answered."""

    @property
    def ranking_id(self) -> int | None: ...  # noqa: D102 - said above


class DegradedRow(NamedTuple):
    """A canary that was degraded at a run."""

    canary_id: int
    canary_version_id: int
    ranking_id: int
    reasons: int
    top_score: float | None


def reasons_at(connection: Connection, canaries_by_run: Mapping[int, Collection[int]]) -> dict[int, dict[int, int]]:
    """Return the reasons of canaries, given by run id, at that run: bits by run id and canary id.

    0 = healthy; those without a state at the run are left out.
    """
    begun = [*_newest(connection, canaries_by_run, _last_begun)]
    held: dict[int, tuple[int | None, int]] = {}
    for ids in blocks(sorted({state_id for *_, state_id in begun})):
        statement = sa.select(states.c.id, states.c.last_run, states.c.reasons).where(states.c.id.in_(ids))
        held.update((state_id, (last_run, bits)) for state_id, last_run, bits in connection.execute(statement))
    by_run: dict[int, dict[int, int]] = {run_id: {} for run_id in canaries_by_run}
    for run_id, canary_id, state_id in begun:
        last_run, bits = held[state_id]
        if last_run is None or last_run >= run_id:
            by_run[run_id][canary_id] = bits
    return by_run


def degraded_at(
    connection: Connection, canaries_by_run: Mapping[int, Collection[int]]
) -> dict[int, dict[int, DegradedRow]]:
    """Return the degraded ones of these canaries, given by run id, at that run; by run id and canary id.

    A run that was never carried out has none. For more than 400 canaries of a run all its degraded states are read by
    two index scans instead.
    """
    wide = {run_id for run_id, canaries in canaries_by_run.items() if len(canaries) > _WIDE}
    narrow = {run_id: canaries for run_id, canaries in canaries_by_run.items() if run_id not in wide}
    by_run = _degraded_step_by_step(connection, narrow) if narrow else {}
    by_run |= {run_id: _degraded_at_once(connection, run_id, canaries_by_run[run_id]) for run_id in wide}
    return {run_id: by_run[run_id] for run_id in canaries_by_run}


def _degraded_at_once(connection: Connection, run_id: int, canaries: Collection[int]) -> dict[int, DegradedRow]:
    check_id = sa.select(runs.c.check_id).where(runs.c.id == run_id, runs.c.suite_version_id.is_not(None))
    columns = [states.c[name] for name in DegradedRow._fields]
    canary_ids = frozenset(canaries)
    rows = held_at(connection, sa.select(*columns).where(states.c.reasons != 0), check_id.scalar_subquery(), run_id)
    return {row[0]: DegradedRow._make(row) for row in rows if row[0] in canary_ids}


def _degraded_step_by_step(
    connection: Connection, canaries_by_run: Mapping[int, Collection[int]]
) -> dict[int, dict[int, DegradedRow]]:
    begun = [*_newest(connection, canaries_by_run, _last_begun, runs.c.suite_version_id.is_not(None))]
    columns = [states.c[name] for name in DegradedRow._fields]
    degraded: dict[int, tuple[int | None, DegradedRow]] = {}
    for ids in blocks(sorted({state_id for *_, state_id in begun})):
        statement = sa.select(states.c.id, states.c.last_run, *columns)
        for state_id, last_run, *values in connection.execute(
            statement.where(states.c.id.in_(ids), states.c.reasons != 0)
        ):
            degraded[state_id] = last_run, DegradedRow._make(values)
    by_run: dict[int, dict[int, DegradedRow]] = {run_id: {} for run_id in canaries_by_run}
    for run_id, canary_id, state_id in begun:
        last_run, fell = degraded.get(state_id, (0, None))
        if fell is not None and (last_run is None or last_run >= run_id):
            by_run[run_id][canary_id] = fell
    return by_run


def previous_known_runs(connection: Connection, run_ids: Collection[int]) -> dict[int, int]:
    """Return the newest run with a known verdict before each run, by run id; the first of a check has none."""
    earlier = runs.alias("earlier")
    mine = sa.and_(earlier.c.check_id == runs.c.check_id, is_known(earlier), earlier.c.id < runs.c.id)
    newest = sa.select(sa.func.max(earlier.c.id)).where(mine).scalar_subquery()
    rows = connection.execute(sa.select(runs.c.id, newest.label("before")).where(runs.c.id.in_(sorted(run_ids))))
    return {row.id: row.before for row in rows if row.before is not None}


def diagnoses_at(
    connection: Connection, fallen: Mapping[int, Mapping[int, Answered]]
) -> dict[int, dict[int, DiagnosisRow]]:
    """Return the newest diagnosis of these canaries up to each run, by run id and canary id.

    A later one counts too where it is of the answer that the canary had at the run.
    """
    by_run: dict[int, dict[int, DiagnosisRow]] = {run_id: {} for run_id in fallen}
    canary_ids = sorted({canary_id for canaries in fallen.values() for canary_id in canaries})
    up_to = sa.case((diagnoses.c.run_id <= runs.c.id, diagnoses.c.id))
    # Few canaries are ever diagnosed: of many that are asked about, all that the checks have are read.
    for block in blocks(canary_ids) if len(canary_ids) <= _WIDE else (None,):
        newest = (
            sa.select(
                runs.c.id.label("at_run"), sa.func.max(diagnoses.c.id).label("id"), sa.func.max(up_to).label("up_to")
            )
            .select_from(runs)
            .join(diagnoses, diagnoses.c.check_id == runs.c.check_id)
            .where(runs.c.id.in_(sorted(fallen)), sa.true() if block is None else diagnoses.c.canary_id.in_(block))
            .group_by(runs.c.id, diagnoses.c.canary_id)
            .subquery()
        )
        either = sa.or_(diagnoses.c.id == newest.c.id, diagnoses.c.id == newest.c.up_to)
        statement = sa.select(newest.c.at_run, diagnoses).join(newest, either).order_by(diagnoses.c.id)
        for row in connection.execute(statement):
            mine = fallen[row.at_run].get(row.canary_id)
            is_later = row.run_id > row.at_run
            if mine is not None and (not is_later or row.ranking_id == mine.ranking_id):
                by_run[row.at_run][row.canary_id] = read_diagnosis(row)
    return by_run


def newest_diagnosis(connection: Connection) -> int:
    """Return the id of the newest diagnosis of all checks; 0 = there is none."""
    return connection.execute(sa.select(sa.func.max(diagnoses.c.id))).scalar_one() or 0


def healthy_until(connection: Connection, fallen: Mapping[int, Collection[int]]) -> dict[int, dict[int, int]]:
    """Return the last healthy run of these canaries, degraded at each run, before it; by run id and canary id.

    Those that never were are left out. They are degraded at that run, so the states they were healthy in have ended.
    """
    by_run: dict[int, dict[int, int]] = {run_id: {} for run_id in fallen}
    for run_id, canary_id, last_run in _newest(connection, fallen, _last_healthy):
        by_run[run_id][canary_id] = last_run
    return by_run


def degraded_since(connection: Connection, degraded: Mapping[int, Collection[int]]) -> dict[int, dict[int, int]]:
    """Return the first run of the degraded period of these canaries, by run id and canary id.

    A change of the answer or of the reasons does not end the period, a healthy state does.
    """
    by_run: dict[int, dict[int, int]] = {run_id: {} for run_id in degraded}
    for run_id, canary_id, first_run in _newest(connection, degraded, _first_degraded):
        by_run[run_id][canary_id] = first_run
    return by_run


def _last_begun(each: sa.Subquery) -> sa.Select[Any]:
    mine = sa.and_(states.c.check_id == each.c.check_id, states.c.canary_id == each.c.canary_id)
    return sa.select(states.c.id).where(mine, states.c.first_run <= each.c.run_id).order_by(states.c.first_run.desc())


def _last_healthy(each: sa.Subquery) -> sa.Select[Any]:
    mine = sa.and_(states.c.check_id == each.c.check_id, states.c.canary_id == each.c.canary_id)
    ended = sa.and_(states.c.first_run <= each.c.run_id, states.c.reasons == 0, states.c.last_run.is_not(None))
    # States of a canary follow each other: the last to begin is the last to end.
    return sa.select(states.c.last_run).where(mine, ended).order_by(states.c.first_run.desc())


def _first_degraded(each: sa.Subquery) -> sa.Select[Any]:
    earlier = states.alias("earlier")
    healthy = sa.and_(
        earlier.c.check_id == each.c.check_id,
        earlier.c.canary_id == each.c.canary_id,
        earlier.c.first_run <= each.c.run_id,
        earlier.c.reasons == 0,
    )
    last_healthy = sa.select(sa.func.max(earlier.c.first_run)).where(healthy).correlate(each).scalar_subquery()
    mine = sa.and_(states.c.check_id == each.c.check_id, states.c.canary_id == each.c.canary_id)
    period = sa.and_(states.c.first_run <= each.c.run_id, states.c.first_run > sa.func.coalesce(last_healthy, 0))
    return sa.select(states.c.first_run).where(mine, period).order_by(states.c.first_run)


def _newest(
    connection: Connection,
    canaries_by_run: Mapping[int, Collection[int]],
    step: Callable[[sa.Subquery], sa.Select[Any]],
    *conditions: sa.ColumnElement[bool],
) -> Iterator[tuple[int, int, int]]:
    """Yield (run id, canary id, result of the step) for the runs that exist."""
    there = sa.select(runs.c.id, runs.c.check_id).where(runs.c.id.in_(sorted(canaries_by_run)), *conditions)
    pairs = [
        (run.id, run.check_id, canary_id) for run in connection.execute(there) for canary_id in canaries_by_run[run.id]
    ]
    for block in blocks(pairs, _PAIRS):
        each = numbers(connection, "each", ("run_id", "check_id", "canary_id"), block)
        newest = step(each).limit(1).scalar_subquery()
        for run_id, canary_id, value in connection.execute(sa.select(each.c.run_id, each.c.canary_id, newest)):
            if value is not None:
                yield run_id, canary_id, value
