"""Experiments: created, changed by beginning an epoch, listed, archived with their units deleted."""

import secrets
from datetime import datetime
from typing import Final

from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, NotFoundError
from app.experiments.documents.experiment_documents import ExperimentDocument
from app.experiments.store import experiments as rows
from app.experiments.store import units
from app.experiments.store.experiments import EpochRow, ExperimentRow

_SALT_BYTES: Final = 16
_BLOCK: Final = 2_000


def put_experiment(
    store: Store, document: ExperimentDocument, *, by: str, now: datetime, only_new: bool = False
) -> bool:
    """Create an experiment, or begin an epoch with what has changed; whether it is new.

    The same document again changes nothing. With `only_new` raises ConflictError wherever there is one.
    """
    with store.write() as connection:
        body, at = document.data(), to_us(now)
        salt = secrets.token_bytes(_SALT_BYTES)
        made = rows.insert_experiment(connection, slug=document.slug, salt=salt, at=at, by=by)
        if made is not None:
            rows.begin_epoch(connection, made, 1, body, at)
            return True
        if only_new:
            raise ConflictError(f"there is an experiment '{document.slug}' already")
        experiment = find_experiment(connection, document.slug, lock=True)
        current = rows.list_epochs(connection, experiment.id)[0]
        if current.body != body:
            rows.begin_epoch(connection, experiment.id, current.epoch + 1, body, at)
        return False


def archive_experiment(store: Store, slug: str, *, now: datetime) -> None:
    """Archive an experiment and delete its units at once; its totals stay. Raises NotFoundError."""
    with store.write() as connection:
        experiment = find_experiment(connection, slug, lock=True)
        rows.archive_experiment(connection, experiment.id, to_us(now))
        epoch_ids = [epoch.id for epoch in rows.list_epochs(connection, experiment.id)]
    while True:
        with store.write() as connection:
            gone = units.units_of(connection, epoch_ids, _BLOCK)
            units.drop_units(connection, gone)
        if len(gone) < _BLOCK:
            return


def find_experiment(connection: Connection, slug: str, *, lock: bool = False) -> ExperimentRow:
    """Return an experiment in force. Raises NotFoundError, also for an archived one."""
    experiment = rows.find_experiment(connection, slug, lock=lock)
    if experiment is None:
        raise NotFoundError(f"there is no experiment '{slug}'")
    return experiment


def document_of(epoch: EpochRow) -> ExperimentDocument:
    """Return the document that an epoch began with."""
    return ExperimentDocument.model_validate(epoch.body)
