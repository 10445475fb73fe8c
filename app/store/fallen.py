"""Who was degraded at each of several runs, a few hundred at most, and what is known of why: of all in one look."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.diagnosis import DiagnosisRow, read_diagnosis
from app.store.history import ENDED
from app.store.tables import diagnoses, runs, states

_BLOCK = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class FallenRow:
    """A canary that was degraded at a run."""

    canary_id: int
    canary_version_id: int
    ranking_id: int
    reasons: int


def degraded_at(connection: Connection, run_ids: Collection[int]) -> dict[int, dict[int, FallenRow]]:
    """Read who was degraded at each of these runs, by run id and canary id; nobody at one that could not ask."""
    found: dict[int, dict[int, FallenRow]] = {run_id: {} for run_id in run_ids}
    columns = [states.c[name] for name in FallenRow.__dataclass_fields__]
    # Two looks, each along an index, as of one run.
    for holding in (states.c.last_run.is_(None), states.c.last_run >= runs.c.id):
        mine = sa.and_(states.c.check_id == runs.c.check_id, states.c.first_run <= runs.c.id, holding)
        statement = (
            sa.select(runs.c.id.label("at_run"), *columns)
            .select_from(runs)
            .join(states, mine)
            .where(runs.c.id.in_(sorted(run_ids)), runs.c.suite_version_id.is_not(None), states.c.reasons != 0)
        )
        for at_run, *values in connection.execute(statement):
            row = FallenRow(**dict(zip(FallenRow.__dataclass_fields__, values, strict=True)))
            found[at_run][row.canary_id] = row
    return found


def ended_before(connection: Connection, run_ids: Collection[int]) -> dict[int, int]:
    """Give the newest run of its check that ended before each of these, by run id; those that were the first lack."""
    earlier = runs.alias("earlier")
    mine = sa.and_(earlier.c.check_id == runs.c.check_id, earlier.c.status.in_(ENDED), earlier.c.id < runs.c.id)
    newest = sa.select(sa.func.max(earlier.c.id)).where(mine).scalar_subquery()
    rows = connection.execute(sa.select(runs.c.id, newest.label("before")).where(runs.c.id.in_(sorted(run_ids))))
    return {row.id: row.before for row in rows if row.before is not None}


def diagnoses_at(connection: Connection, fallen: Mapping[int, Collection[int]]) -> dict[int, dict[int, DiagnosisRow]]:
    """Read the newest diagnosis up to each run of these canaries, given and found by run id and canary id."""
    found: dict[int, dict[int, DiagnosisRow]] = {run_id: {} for run_id in fallen}
    for block in _blocks(fallen):
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
    for block in _blocks(fallen):
        mine = sa.and_(states.c.check_id == runs.c.check_id, states.c.first_run <= runs.c.id)
        ended = sa.and_(mine, states.c.reasons == 0, states.c.last_run.is_not(None))
        statement = (
            sa.select(runs.c.id, states.c.canary_id, sa.func.max(states.c.last_run))
            .select_from(runs)
            .join(states, ended)
            .where(runs.c.id.in_(sorted(fallen)), states.c.canary_id.in_(block))
            .group_by(runs.c.id, states.c.canary_id)
        )
        for at_run, canary_id, last in connection.execute(statement):
            found[at_run][canary_id] = last
    return found


def _blocks(fallen: Mapping[int, Collection[int]]) -> list[list[Any]]:
    everybody = sorted({canary_id for canaries in fallen.values() for canary_id in canaries})
    return [everybody[start : start + _BLOCK] for start in range(0, len(everybody), _BLOCK)]
