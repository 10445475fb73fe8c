"""Probe outcomes of the newest runs of a check, many runs in one query."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import row_value
from app.base.db.packed import unpacked_positions
from app.records.store.queue import Failure
from app.records.store.results import ENDED
from app.records.tables import run_probes, runs


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedRun:
    """An ended run with its failed probes."""

    id: int
    finished_at: int
    suite_version_id: int | None
    failures: Mapping[int, Failure] | None
    """By position; None = it ended without sending probes."""


def newest_probes(connection: Connection, check_id: int, *, limit: int) -> list[ProbedRun]:
    """Return the newest ended runs of a check with their failed probes, oldest first."""
    statement = (
        sa.select(runs.c.id, runs.c.finished_at, runs.c.suite_version_id, run_probes.c.run_id, run_probes.c.failures)
        .outerjoin(run_probes, run_probes.c.run_id == runs.c.id)
        .where(runs.c.check_id == check_id, runs.c.status.in_(ENDED))
        .order_by(runs.c.id.desc())
        .limit(limit)
    )
    return [
        row_value(ProbedRun, row, failures=None if row.run_id is None else _failures(row.failures))
        for row in reversed(connection.execute(statement).all())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """Missing measurements of a run, by position of the canary."""

    failures: Mapping[int, Failure]
    unscored: frozenset[int]
    """Positions without a measured relevance; their states have that of an earlier run."""


def unmeasured(connection: Connection, run_ids: Collection[int]) -> dict[int, Unmeasured]:
    """Return the missing measurements of a few hundred runs at most."""
    statement = sa.select(run_probes.c.run_id, run_probes.c.failures, run_probes.c.unscored)
    rows = {row.run_id: row for row in connection.execute(statement.where(run_probes.c.run_id.in_(sorted(run_ids))))}
    nothing = Unmeasured(failures={}, unscored=frozenset())
    return {run_id: _unmeasured(rows[run_id]) if run_id in rows else nothing for run_id in run_ids}


def _unmeasured(row: Any) -> Unmeasured:
    return Unmeasured(failures=_failures(row.failures), unscored=frozenset(unpacked_positions(row.unscored)))


def _failures(packed: bytes | None) -> dict[int, Failure]:
    return msgspec.msgpack.decode(packed, type=dict[int, Failure]) if packed else {}
