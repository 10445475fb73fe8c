"""Rows of run causes, at most one per run."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_new
from app.diagnosis.tables import run_causes


def save_run_cause(connection: Connection, run_id: int, body: Mapping[str, Any]) -> None:
    """Store the cause of a run that is being ended."""
    insert_new(connection, run_causes, ("run_id", "body"), [(run_id, json.dumps(body))])


def run_causes_of(connection: Connection, run_ids: Iterable[int]) -> dict[int, Mapping[str, Any]]:
    """Read the causes of a few hundred runs at most, by run id; runs without one are left out."""
    rows = connection.execute(_RUN_CAUSES, {"runs": sorted(set(run_ids))})
    return {row.run_id: json.loads(row.body) for row in rows}


_RUN_CAUSES = sa.select(run_causes).where(run_causes.c.run_id.in_(sa.bindparam("runs", expanding=True)))
