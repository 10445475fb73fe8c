"""Rows for metrics: the versions of checks, to detect changes, and the rows of changed checks.

A check is compared by three ids, which costs one short row each; its numbers are read only where one of them is new.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import blocks
from app.catalog.store import definitions as catalog
from app.catalog.store.definitions import Definition
from app.catalog.tables import definitions
from app.detection.store import detectors as detection
from app.detection.store.detectors import DetectionRow
from app.detection.tables import detectors
from app.records.domain.run_views import RunDetails
from app.records.store import results
from app.records.store.results import RunRow
from app.records.tables import latest

BLOCK = 200
"""Number of checks read by one statement."""


class CheckVersion(NamedTuple):
    """Version of a check's numbers: they change only if it does."""

    version_id: int
    run_id: int | None
    """The newest ended run."""
    detected_run_id: int | None
    """The last run of the detector."""


class CheckRows(NamedTuple):
    """The rows of a check."""

    check: Definition
    run: RunRow | None
    """The newest ended run."""
    body: RunDetails
    """Its stored details."""
    detection: DetectionRow | None
    """The detector's result for its last run."""


def check_versions(connection: Connection, check_ids: Sequence[int] | None = None) -> dict[int, CheckVersion]:
    """Return the versions of all checks in force by slug, or of those among these few hundred, by check id."""
    statement = (
        sa.select(definitions.c.id, definitions.c.version_id, latest.c.run_id, detectors.c.run_id)
        .outerjoin(latest, latest.c.check_id == definitions.c.id)
        .outerjoin(detectors, detectors.c.check_id == definitions.c.id)
        .where(definitions.c.kind == "check", definitions.c.archived_at.is_(None))
        .order_by(definitions.c.slug)
    )
    if check_ids is not None:
        statement = statement.where(definitions.c.id.in_(list(check_ids)))
    return {check_id: CheckVersion(*version) for check_id, *version in connection.execute(statement).all()}


def read_checks(connection: Connection, versions: Mapping[int, CheckVersion]) -> Iterator[CheckRows]:
    """Yield the rows of checks; a few statements for every `BLOCK` of them."""
    for block in blocks(list(versions), BLOCK):
        runs = results.find_runs(connection, [run for one in block if (run := versions[one].run_id) is not None])
        bodies = results.latest_bodies(connection, block)
        detections = detection.newest_detections(connection, block)
        for check in catalog.definitions_by_id(connection, block):
            run_id, body = bodies.get(check.id, (0, {}))
            yield CheckRows(check, runs.get(run_id), body, detections.get(check.id))
