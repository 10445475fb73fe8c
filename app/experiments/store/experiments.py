"""Rows of experiments and their epochs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_one
from app.experiments.tables import experiment_epochs, experiments


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRow:
    """An experiment."""

    id: int
    slug: str
    salt: bytes
    created_at: int
    created_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRow:
    """An epoch of an experiment, with the document it began with."""

    id: int
    epoch: int
    body: Mapping[str, Any]
    began_at: int
    ended_at: int | None


def insert_experiment(connection: Connection, *, slug: str, salt: bytes, at: int, by: str) -> int | None:
    """Insert an experiment and return its id; None where one has the slug."""
    return insert_one(connection, experiments, slug=slug, salt=salt, created_at=at, created_by=by)


def find_experiment(connection: Connection, slug: str, *, lock: bool = False) -> ExperimentRow | None:
    """Return the experiment of this slug that is not archived; with `lock` nobody else writes to it meanwhile."""
    statement = sa.select(experiments).where(experiments.c.slug == slug, experiments.c.archived_at.is_(None))
    row = connection.execute(statement.with_for_update() if lock else statement).one_or_none()
    return None if row is None else _experiment(row)


def list_experiments(connection: Connection, *, after: str = "", limit: int) -> list[ExperimentRow]:
    """List the experiments that are not archived by slug, those behind `after`."""
    live = sa.and_(experiments.c.archived_at.is_(None), experiments.c.slug > after)
    statement = sa.select(experiments).where(live).order_by(experiments.c.slug).limit(limit)
    return [_experiment(row) for row in connection.execute(statement)]


def archive_experiment(connection: Connection, experiment_id: int, at: int) -> None:
    """Archive an experiment, end its epoch and forget the key of its units."""
    gone = {"archived_at": at, "salt": b""}
    connection.execute(sa.update(experiments).where(experiments.c.id == experiment_id).values(gone))
    end_epochs(connection, experiment_id, at)


def begin_epoch(connection: Connection, experiment_id: int, epoch: int, body: Mapping[str, Any], at: int) -> None:
    """Begin an epoch; the one before ends."""
    end_epochs(connection, experiment_id, at)
    connection.execute(
        sa.insert(experiment_epochs).values(
            experiment_id=experiment_id, epoch=epoch, body=json.dumps(body), began_at=at
        )
    )


def end_epochs(connection: Connection, experiment_id: int, at: int) -> None:
    """End the epoch of an experiment."""
    current = sa.and_(experiment_epochs.c.experiment_id == experiment_id, experiment_epochs.c.ended_at.is_(None))
    connection.execute(sa.update(experiment_epochs).where(current).values(ended_at=at))


def list_epochs(connection: Connection, experiment_id: int) -> list[EpochRow]:
    """List the epochs of an experiment, the current one first."""
    statement = (
        sa.select(experiment_epochs)
        .where(experiment_epochs.c.experiment_id == experiment_id)
        .order_by(experiment_epochs.c.epoch.desc())
    )
    return [
        EpochRow(id=row.id, epoch=row.epoch, body=json.loads(row.body), began_at=row.began_at, ended_at=row.ended_at)
        for row in connection.execute(statement)
    ]


def _experiment(row: Any) -> ExperimentRow:
    return ExperimentRow(
        id=row.id, slug=row.slug, salt=bytes(row.salt), created_at=row.created_at, created_by=row.created_by
    )
