"""Writes canaries: new ones, new versions of existing ones, and archived ones.

Rows are staged before the transaction, whose statements are as many for a hundred thousand of them as for one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_selected, new_ids
from app.base.db.row_tables import StagedRows, numbers, staged_table
from app.catalog.tables import canaries, canary_versions


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCanary:
    """A canary to be saved."""

    key: str
    hash: str
    body: str | None
    """Body as JSON; None = the version of this hash exists already."""
    source: str | None
    is_new: bool
    """Whether the suite never had a canary of this key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCanaries:
    """Canaries for `save_canaries`."""

    created: StagedRows
    changed: StagedRows

    @property
    def tables(self) -> list[StagedRows]:
        """What `Store.write` is to have at hand."""
        return [rows for rows in (self.created, self.changed) if rows.rows]


_COLUMNS = {name: sa.Text() for name in ("key", "hash", "body", "source")}


def stage_canaries(saved: Sequence[SavedCanary], *, number: int = 0) -> StagedCanaries:
    """Return canaries of a suite staged for `save_canaries`; suites of one transaction have different numbers."""
    rows: dict[bool, list[tuple[str | None, ...]]] = {True: [], False: []}
    for one in saved:
        rows[one.is_new].append((one.key, one.hash, one.body, one.source))
    return StagedCanaries(
        created=StagedRows(name=f"created_canaries_{number}", columns=_COLUMNS, rows=rows[True]),
        changed=StagedRows(name=f"changed_canaries_{number}", columns=_COLUMNS, rows=rows[False]),
    )


def save_canaries(connection: Connection, suite_id: int, staged: StagedCanaries, *, managed_by: str, now: int) -> None:
    """Create canaries of a suite and new versions of others.

    The caller holds the suite, unchanged since its canaries were divided into new and existing ones.
    """
    if staged.created.rows:
        _create(connection, suite_id, staged.created, managed_by=managed_by, now=now)
    if staged.changed.rows:
        _change(connection, suite_id, staged.changed, managed_by=managed_by, now=now)


def _create(connection: Connection, suite_id: int, rows: StagedRows, *, managed_by: str, now: int) -> None:
    """Insert canaries with the ids of versions that follow them: rows that are updated at once are written twice.

    The outer join finds every row; SQLite would begin an inner one at the suite's canaries, and read all that is
    staged for each of them.
    """
    created = staged_table(connection, rows)
    version_id = new_ids(connection, canary_versions, created.c.place)
    owned = (sa.literal(suite_id), created.c.key, sa.literal(managed_by), created.c.source, version_id)
    columns = ("suite_id", "key", "managed_by", "source", "version_id")
    insert_selected(connection, canaries, columns, sa.select(*owned).order_by(created.c.place))
    mine = sa.and_(canaries.c.suite_id == suite_id, canaries.c.key == created.c.key)
    bodies = (created.c.hash, created.c.body, sa.literal(now, sa.BigInteger))
    versions = sa.select(canaries.c.version_id, canaries.c.id, *bodies).join_from(created, canaries, mine, isouter=True)
    columns = ("id", "canary_id", "hash", "body", "created_at")
    insert_selected(connection, canary_versions, columns, versions.order_by(created.c.place))


def _change(connection: Connection, suite_id: int, rows: StagedRows, *, managed_by: str, now: int) -> None:
    """Insert versions and put them in force; one that came back is there already.

    Joins as in `_create`. LIMIT keeps SQLite from taking them apart.
    """
    changed = staged_table(connection, rows)
    mine = sa.and_(canaries.c.suite_id == suite_id, canaries.c.key == changed.c.key)
    versions = (
        sa.select(canaries.c.id, changed.c.hash, changed.c.body, sa.literal(now, sa.BigInteger))
        .join_from(changed, canaries, mine, isouter=True)
        .where(changed.c.body.is_not(None))
    )
    insert_selected(connection, canary_versions, ("canary_id", "hash", "body", "created_at"), versions)
    version = sa.and_(canary_versions.c.canary_id == canaries.c.id, canary_versions.c.hash == changed.c.hash)
    found = (
        sa.select(canaries.c.id, canary_versions.c.id.label("version_id"), changed.c.source)
        .join_from(changed, canaries, mine, isouter=True)
        .join(canary_versions, version, isouter=True)
        .limit(len(rows.rows))
        .subquery("found")
    )
    connection.execute(
        sa.update(canaries)
        .where(canaries.c.id == found.c.id)
        .values(version_id=found.c.version_id, managed_by=managed_by, source=found.c.source, archived_at=None)
    )


def archive_canaries(connection: Connection, canary_ids: Iterable[int], now: int) -> None:
    """Archive canaries; their history stays."""
    gone = numbers(connection, "gone", ("id",), [(canary_id,) for canary_id in canary_ids])
    connection.execute(sa.update(canaries).where(canaries.c.id.in_(sa.select(gone.c.id))).values(archived_at=now))
