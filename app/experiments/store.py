"""Rows of what is tried on users: experiments by epoch, then interleavings, promotions with waivers, and shadows.

A shadow has its sums by hour, the pairs of answers that were kept, and the queue of questions not asked yet.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import blocks, insert_new, insert_one, row_value, upsert
from app.base.db.rows import STAGED_ROWS, numbers
from app.base.values import Value
from app.base.views import time_text
from app.catalog.tables import definition_versions
from app.experiments.documents import ExperimentDocument, InterleavingDocument, PromotionDocument, ShadowDocument
from app.experiments.domain.experiments import Hits, Preferences, ShadowHit, bucket_of, bucket_us
from app.experiments.domain.margins import GateResult
from app.experiments.domain.promotions import GateName, Waiver
from app.experiments.tables import (
    experiment_counts,
    experiment_epochs,
    experiment_units,
    experiments,
    interleaving_clicks,
    interleavings,
    promotion_waivers,
    promotions,
    shadow_hours,
    shadow_pairs,
    shadow_parts,
    shadow_questions,
    shadows,
)


class ExperimentRow(Value):
    """An experiment."""

    id: int
    slug: str
    salt: bytes
    created_at: int
    created_by: str


class EpochRow(Value):
    """An epoch of an experiment, with the document it began with."""

    id: int
    epoch: int
    document: ExperimentDocument
    began_at: int
    ended_at: int | None
    dealt: int | None
    """Units that came without an arm, so that they are of the one that this experiment deals; None = of an epoch that
    an earlier release began, as the next."""
    late_first: int | None
    late_second: int | None

    @property
    def late(self) -> tuple[int, int]:
        """Successes of each arm that came after the window of their unit, which count as 0."""
        return self.late_first or 0, self.late_second or 0

    def bucket(self, exposed_at: int) -> int:
        """Begin of the span of time that a unit is counted in."""
        return bucket_of(exposed_at, bucket_us(self.document.window_us))


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


def tally_epoch(connection: Connection, epoch_id: int, *, dealt: int = 0, late: tuple[int, int] = (0, 0)) -> None:
    """Add to what is told of an epoch beside its counts."""
    grown = {"dealt": dealt, "late_first": late[0], "late_second": late[1]}
    of = experiment_epochs.c
    more = {name: sa.func.coalesce(of[name], 0) + number for name, number in grown.items() if number}
    if more:
        connection.execute(sa.update(experiment_epochs).where(of.id == epoch_id).values(more))


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
        row_value(EpochRow, row, document=ExperimentDocument.model_validate(json.loads(row.body)))
        for row in connection.execute(statement)
    ]


def _experiment(row: Any) -> ExperimentRow:
    return row_value(ExperimentRow, row, salt=bytes(row.salt))


class UnitRow(NamedTuple):
    """A unit of an epoch."""

    epoch_id: int
    unit: int
    arm: int
    exposed_at: int
    event: int | None
    """None = no outcome came, as `value`."""
    value: int | None


class CountRow(NamedTuple):
    """Units that were exposed to an arm in a span of time, by its begin, and the successes among them."""

    bucket: int
    arm: int
    units: int
    successes: int


def find_units(connection: Connection, epoch_ids: Collection[int], wanted: Sequence[int]) -> list[UnitRow]:
    """Return these units in these epochs."""
    table = experiment_units
    found: list[UnitRow] = []
    for block in blocks(sorted({(unit,) for unit in wanted}), STAGED_ROWS):
        asked = numbers(connection, "asked", ["unit"], block)
        # Not a join: SQLite would go through the units of the epoch, and for each through all that are asked for.
        mine = (table.c.epoch_id.in_(epoch_ids), table.c.unit.in_(sa.select(asked.c.unit)))
        found += [
            UnitRow(row.epoch_id, row.unit, row.arm, row.exposed_at, row.event, row.value)
            for row in connection.execute(sa.select(table).where(*mine))
        ]
    return found


def last_exposure(connection: Connection, epoch_id: int, *, before: int) -> int | None:
    """Return when the last unit of an epoch was exposed before a moment; None = its units are deleted by now."""
    table = experiment_units
    mine = (table.c.epoch_id == epoch_id, table.c.exposed_at < before)
    last: int | None = connection.execute(sa.select(sa.func.max(table.c.exposed_at)).where(*mine)).scalar_one()
    return last


def first_exposure(connection: Connection, epoch_id: int) -> int | None:
    """Return when the first unit of an epoch was exposed; None = none was.

    Where its units are deleted by now, when the span of time began that it is counted in.
    """
    units, counts = experiment_units.c, experiment_counts.c
    for first, epoch in ((units.exposed_at, units.epoch_id), (counts.bucket, counts.epoch_id)):
        at: int | None = connection.execute(sa.select(sa.func.min(first)).where(epoch == epoch_id)).scalar_one()
        if at is not None:
            return at
    return None


def versions_made(connection: Connection, definition_id: int, *, after: int, until: int) -> list[tuple[int, int]]:
    """List (when it was first made, its id) of the versions of a definition that are of a span of time, in order."""
    table = definition_versions.c
    mine = (table.definition_id == definition_id, table.created_at > after, table.created_at <= until)
    found = connection.execute(sa.select(table.created_at, table.id).where(*mine).order_by(table.created_at))
    return [(row.created_at, row.id) for row in found]


def insert_units(connection: Connection, rows: Sequence[tuple[int, int, int, int]]) -> None:
    """Insert (epoch id, unit, arm, exposed at) of units that are not there."""
    for block in blocks(sorted(rows), STAGED_ROWS):
        insert_new(connection, experiment_units, ("epoch_id", "unit", "arm", "exposed_at"), block)


def save_values(connection: Connection, rows: Sequence[tuple[int, int, int, int]]) -> None:
    """Store (epoch id, unit, event, value) of units that have no value."""
    table = experiment_units
    for block in blocks(sorted(rows), STAGED_ROWS):
        came = numbers(connection, "came", ["epoch_id", "unit", "event", "value"], block)
        mine = sa.and_(table.c.epoch_id == came.c.epoch_id, table.c.unit == came.c.unit)
        connection.execute(sa.update(table).where(mine).values(event=came.c.event, value=came.c.value))


def add_counts(connection: Connection, epoch_id: int, rows: Sequence[CountRow]) -> None:
    """Add to the running totals of an epoch."""
    table = experiment_counts
    for block in blocks(sorted(rows), STAGED_ROWS):
        empty = [(epoch_id, row.bucket, row.arm, 0, 0) for row in block]
        insert_new(connection, table, ("epoch_id", "bucket", "arm", "units", "successes"), empty)
        added = numbers(connection, "added", ["bucket", "arm", "units", "successes"], [tuple(row) for row in block])
        mine = (table.c.epoch_id == epoch_id, table.c.bucket == added.c.bucket, table.c.arm == added.c.arm)
        grown = {"units": table.c.units + added.c.units, "successes": table.c.successes + added.c.successes}
        connection.execute(sa.update(table).where(*mine).values(grown))


def read_counts(connection: Connection, epoch_id: int) -> list[CountRow]:
    """Return the running totals of an epoch in the order of time: a row for each arm and span, not for each unit."""
    table = experiment_counts
    statement = (
        sa.select(table.c.bucket, table.c.arm, table.c.units, table.c.successes)
        .where(table.c.epoch_id == epoch_id)
        .order_by(table.c.bucket, table.c.arm)
    )
    return [CountRow(*row) for row in connection.execute(statement)]


def units_of(connection: Connection, epoch_ids: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """Return up to so many (epoch id, unit) of these epochs."""
    return _some_units(connection, experiment_units.c.epoch_id.in_(epoch_ids), limit)


def old_units(connection: Connection, limit: int, *, horizon: int) -> list[tuple[int, int]]:
    """Find (epoch id, unit) of units whose epoch ended before `horizon`."""
    ended = sa.select(experiment_epochs.c.id).where(experiment_epochs.c.ended_at < horizon)
    return _some_units(connection, experiment_units.c.epoch_id.in_(ended), limit)


def drop_units(connection: Connection, old: Sequence[tuple[int, int]]) -> int:
    """Delete these units; the totals stay."""
    table = experiment_units
    gone = numbers(connection, "gone", ["epoch_id", "unit"], old)
    mine = sa.tuple_(table.c.epoch_id, table.c.unit).in_(sa.select(gone.c.epoch_id, gone.c.unit))
    return connection.execute(sa.delete(table).where(mine)).rowcount


def _some_units(connection: Connection, where: sa.ColumnElement[bool], limit: int) -> list[tuple[int, int]]:
    table = experiment_units
    statement = sa.select(table.c.epoch_id, table.c.unit).where(where).limit(limit)
    return [(row.epoch_id, row.unit) for row in connection.execute(statement)]


class InterleavingRow(Value):
    """An interleaving in its current epoch."""

    id: int
    slug: str
    document: InterleavingDocument
    salt: bytes
    epoch: int
    began_at: int
    created_at: int
    created_by: str
    preferences: Preferences
    ties: int
    decided_at: int | None
    decided: Preferences | None
    """What units preferred at the look that decided."""


class ClickRow(NamedTuple):
    """A click of a unit for one of the rankings."""

    unit: int
    event: int
    credit: int
    """-1 for A, 1 for B."""


def insert_interleaving(
    connection: Connection, slug: str, body: Mapping[str, Any], *, salt: bytes, at: int, by: str
) -> bool:
    """Insert an interleaving; False where one has the slug."""
    values = {"slug": slug, "body": json.dumps(body), "salt": salt, "epoch": 1, "began_at": at, "created_at": at}
    return insert_one(connection, interleavings, **values, created_by=by, a=0, b=0, ties=0) is not None


def find_interleaving(connection: Connection, slug: str, *, lock: bool = False) -> InterleavingRow | None:
    """Return an interleaving; with `lock` nobody else writes to it meanwhile."""
    statement = sa.select(interleavings).where(interleavings.c.slug == slug)
    row = connection.execute(statement.with_for_update() if lock else statement).one_or_none()
    return None if row is None else _row(row)


def list_interleavings(connection: Connection, *, after: str = "", limit: int) -> list[InterleavingRow]:
    """List interleavings by slug, those behind `after`."""
    chosen = interleavings.c.slug > after
    statement = sa.select(interleavings).where(chosen).order_by(interleavings.c.slug).limit(limit)
    return [_row(row) for row in connection.execute(statement)]


def begin_interleaving_epoch(connection: Connection, row: InterleavingRow, body: Mapping[str, Any], at: int) -> None:
    """Begin an epoch with what has changed; the clicks of the one before are deleted."""
    delete_clicks(connection, row.id)
    values = {"body": json.dumps(body), "epoch": row.epoch + 1, "began_at": at, "a": 0, "b": 0, "ties": 0}
    undecided = {"decided_at": None, "decided_a": None, "decided_b": None}
    connection.execute(sa.update(interleavings).where(interleavings.c.id == row.id).values({**values, **undecided}))


def save_counts(connection: Connection, interleaving_id: int, found: Preferences, ties: int) -> None:
    """Store how many units prefer which ranking."""
    values = {"a": found.a, "b": found.b, "ties": ties}
    connection.execute(sa.update(interleavings).where(interleavings.c.id == interleaving_id).values(values))


def save_decision(connection: Connection, interleaving_id: int, found: Preferences, at: int) -> None:
    """Store at which look an interleaving ended; the first one stays."""
    undecided = sa.and_(interleavings.c.id == interleaving_id, interleavings.c.decided_at.is_(None))
    values = {"decided_at": at, "decided_a": found.a, "decided_b": found.b}
    connection.execute(sa.update(interleavings).where(undecided).values(values))


def read_credits(connection: Connection, interleaving_id: int, units: Collection[int]) -> dict[int, int]:
    """Return the sum of the credits of these units, of those that clicked."""
    table = interleaving_clicks
    found: dict[int, int] = {}
    for block in blocks(sorted({(unit,) for unit in units}), STAGED_ROWS):
        asked = numbers(connection, "asked", ["unit"], block)
        mine = (table.c.interleaving_id == interleaving_id, table.c.unit.in_(sa.select(asked.c.unit)))
        statement = sa.select(table.c.unit, sa.func.sum(table.c.credit)).where(*mine).group_by(table.c.unit)
        found |= {unit: int(credit) for unit, credit in connection.execute(statement).all()}
    return found


def insert_clicks(connection: Connection, interleaving_id: int, rows: Sequence[ClickRow]) -> None:
    """Insert clicks, passing over those that came before."""
    columns = ("interleaving_id", "unit", "event", "credit")
    for block in blocks(sorted(set(rows)), STAGED_ROWS):
        insert_new(connection, interleaving_clicks, columns, [(interleaving_id, *row) for row in block])


def delete_clicks(connection: Connection, interleaving_id: int) -> None:
    """Delete the clicks of an interleaving."""
    connection.execute(sa.delete(interleaving_clicks).where(interleaving_clicks.c.interleaving_id == interleaving_id))


def delete_interleaving(connection: Connection, interleaving_id: int) -> None:
    """Delete an interleaving without clicks."""
    connection.execute(sa.delete(interleavings).where(interleavings.c.id == interleaving_id))


def _row(row: Any) -> InterleavingRow:
    return row_value(
        InterleavingRow,
        row,
        document=InterleavingDocument.model_validate(json.loads(row.body)),
        salt=bytes(row.salt),
        preferences=Preferences(a=row.a, b=row.b),
        decided=None if row.decided_at is None else Preferences(a=row.decided_a, b=row.decided_b),
    )


class PromotionRow(Value):
    """A promotion."""

    id: int
    slug: str
    document: PromotionDocument
    created_at: int
    created_by: str


def insert_promotion(connection: Connection, *, slug: str, body: Mapping[str, Any], at: int, by: str) -> bool:
    """Insert a promotion; False where one has the slug."""
    return (
        insert_one(connection, promotions, slug=slug, body=json.dumps(body), created_at=at, created_by=by) is not None
    )


def change_promotion(connection: Connection, promotion_id: int, body: Mapping[str, Any]) -> None:
    """Replace the document of a promotion, and forget its waivers: they were of another candidate."""
    connection.execute(sa.update(promotions).where(promotions.c.id == promotion_id).values(body=json.dumps(body)))
    _forget_waivers(connection, promotion_id)


def find_promotion(connection: Connection, slug: str) -> PromotionRow | None:
    """Return the promotion of this slug."""
    row = connection.execute(sa.select(promotions).where(promotions.c.slug == slug)).one_or_none()
    return None if row is None else _promotion(row)


def list_promotions(connection: Connection, *, after: str = "", limit: int) -> list[PromotionRow]:
    """List promotions by slug, those behind `after`."""
    statement = sa.select(promotions).where(promotions.c.slug > after).order_by(promotions.c.slug).limit(limit)
    return [_promotion(row) for row in connection.execute(statement)]


def delete_promotion(connection: Connection, promotion_id: int) -> None:
    """Delete a promotion with its waivers."""
    _forget_waivers(connection, promotion_id)
    connection.execute(sa.delete(promotions).where(promotions.c.id == promotion_id))


def save_waiver(
    connection: Connection,
    promotion_id: int,
    gate: str,
    waiver: Waiver,
    *,
    at: int,
) -> None:
    """Store that a gate is waived, with what it found by then; an earlier waiver of it is replaced."""
    upsert(
        connection,
        promotion_waivers,
        ["promotion_id", "gate"],
        promotion_id=promotion_id,
        gate=gate,
        reason=waiver.reason,
        waived_by=waiver.by,
        waived_at=at,
        finding=waiver.finding,
        found=waiver.found,
        losses=json.dumps(dict(waiver.losses or {})),
    )


def delete_waiver(connection: Connection, promotion_id: int, gate: str) -> bool:
    """Delete the waiver of a gate; False where there was none."""
    mine = sa.and_(promotion_waivers.c.promotion_id == promotion_id, promotion_waivers.c.gate == gate)
    return connection.execute(sa.delete(promotion_waivers).where(mine)).rowcount == 1


def list_waivers(connection: Connection, promotion_id: int) -> dict[GateName, Waiver]:
    """Return the waivers of a promotion by gate."""
    statement = sa.select(promotion_waivers).where(promotion_waivers.c.promotion_id == promotion_id)
    return {
        GateName(row.gate): Waiver(
            by=row.waived_by,
            reason=row.reason,
            at=time_text(row.waived_at),
            # An older release kept nothing of it: its waivers cover what is inconclusive.
            finding=GateResult(row.finding or GateResult.INCONCLUSIVE),
            found=row.found or "",
            losses=None
            if row.losses is None
            else {name: (low, high) for name, (low, high) in json.loads(row.losses).items()},
        )
        for row in connection.execute(statement)
    }


def _forget_waivers(connection: Connection, promotion_id: int) -> None:
    connection.execute(sa.delete(promotion_waivers).where(promotion_waivers.c.promotion_id == promotion_id))


def _promotion(row: Any) -> PromotionRow:
    return row_value(PromotionRow, row, document=PromotionDocument.model_validate(json.loads(row.body)))


class ShadowSums(Value):
    """Sums over some pairs of a shadow."""

    pairs: int = 0
    failed: int = 0
    rbo: float = 0.0
    jaccard: float = 0.0
    a_empty: int = 0
    b_empty: int = 0
    timed: int = 0
    a_seconds: float = 0.0
    b_seconds: float = 0.0
    dropped: int = 0
    """Queries that were to be asked, and were not in time: no pairs."""


class DefinedShadow(Value):
    """A shadow that somebody defined."""

    id: int
    slug: str
    document: ShadowDocument
    created_at: int
    created_by: str
    ask_after: int | None
    """Its candidate is left alone until then."""


class ShadowRow(Value):
    """The sums of an hour, or of all hours from the first to the last."""

    slug: str
    first: int
    last: int
    sums: ShadowSums


_SUMS = tuple(ShadowSums.__struct_fields__)


def add_sums(connection: Connection, slug: str, hour: int, sums: ShadowSums) -> None:
    """Add to the sums of an hour."""
    insert_new(connection, shadow_hours, ("slug", "hour", *_SUMS), [(slug, hour, *([0] * len(_SUMS)))])
    mine = sa.and_(shadow_hours.c.slug == slug, shadow_hours.c.hour == hour)
    grown = {name: shadow_hours.c[name] + getattr(sums, name) for name in _SUMS}
    connection.execute(sa.update(shadow_hours).where(mine).values(grown))


def find_shadow(connection: Connection, slug: str, *, lock: bool = False) -> DefinedShadow | None:
    """Return a shadow that somebody defined; with `lock` nobody else changes it meanwhile."""
    return _find(connection, shadows.c.slug == slug, lock=lock)


def read_shadow(connection: Connection, shadow_id: int, *, lock: bool = False) -> DefinedShadow | None:
    """Return a shadow by its id; with `lock` nobody else changes it meanwhile."""
    return _find(connection, shadows.c.id == shadow_id, lock=lock)


def insert_shadow(connection: Connection, slug: str, body: Mapping[str, Any], *, at: int, by: str) -> int | None:
    """Insert a shadow and return its id; None where one has the slug."""
    return insert_one(connection, shadows, slug=slug, body=json.dumps(body), created_at=at, created_by=by)


def change_shadow(connection: Connection, shadow_id: int, body: Mapping[str, Any]) -> None:
    """Replace the document of a shadow."""
    connection.execute(sa.update(shadows).where(shadows.c.id == shadow_id).values(body=json.dumps(body)))


def leave_alone(connection: Connection, shadow_id: int, until: int) -> None:
    """Have the candidate of a shadow not asked until then."""
    connection.execute(sa.update(shadows).where(shadows.c.id == shadow_id).values(ask_after=until))


def list_slugs(connection: Connection, *, after: str = "", limit: int) -> list[str]:
    """List shadows by slug, those that somebody defined and those that only have pairs, behind `after`."""
    defined = sa.select(shadows.c.slug).where(shadows.c.slug > after)
    heard_of = sa.select(shadow_hours.c.slug).where(shadow_hours.c.slug > after)
    both = sa.union(defined, heard_of).subquery()
    return list(connection.execute(sa.select(both.c.slug).order_by(both.c.slug).limit(limit)).scalars())


def sum_hours(connection: Connection, slugs: Sequence[str]) -> dict[str, ShadowRow]:
    """Return the sums over all hours of shadows that have any."""
    hour = shadow_hours.c.hour
    totals = [sa.func.sum(shadow_hours.c[name]).label(name) for name in _SUMS]
    statement = (
        sa.select(shadow_hours.c.slug, sa.func.min(hour).label("first"), sa.func.max(hour).label("last"), *totals)
        .where(shadow_hours.c.slug.in_(slugs))
        .group_by(shadow_hours.c.slug)
    )
    return {row.slug: _sums_row(row) for row in connection.execute(statement)}


def newest_hours(connection: Connection, slug: str, limit: int) -> list[ShadowRow]:
    """Return the newest hours of a shadow in the order of time."""
    hour = shadow_hours.c.hour
    statement = (
        sa.select(shadow_hours, hour.label("first"), hour.label("last"))
        .where(shadow_hours.c.slug == slug)
        .order_by(hour.desc())
        .limit(limit)
    )
    return [_sums_row(row) for row in connection.execute(statement)][::-1]


def delete_shadow(connection: Connection, slug: str) -> bool:
    """Delete a shadow that nothing refers to any more, with its hours; False where there was none."""
    deleted = [
        connection.execute(sa.delete(table).where(table.c.slug == slug)).rowcount for table in (shadow_hours, shadows)
    ]
    return any(deleted)


def old_hours(connection: Connection, limit: int, *, horizon: int) -> list[tuple[str, int]]:
    """Find (slug, hour) of hours before `horizon`."""
    statement = sa.select(shadow_hours.c.slug, shadow_hours.c.hour).where(shadow_hours.c.hour < horizon).limit(limit)
    return [(row.slug, row.hour) for row in connection.execute(statement)]


def drop_hours(connection: Connection, old: Sequence[tuple[str, int]]) -> int:
    """Delete these hours."""
    mine = sa.tuple_(shadow_hours.c.slug, shadow_hours.c.hour).in_(old)
    return connection.execute(sa.delete(shadow_hours).where(mine)).rowcount


def _find(connection: Connection, where: sa.ColumnElement[bool], *, lock: bool) -> DefinedShadow | None:
    statement = sa.select(shadows).where(where)
    row = connection.execute(statement.with_for_update() if lock else statement).one_or_none()
    return (
        None
        if row is None
        else row_value(DefinedShadow, row, document=ShadowDocument.model_validate(json.loads(row.body)))
    )


def _sums_row(row: Any) -> ShadowRow:
    kinds = {
        name: shadow_hours.c[name].type.python_type for name in _SUMS
    }  # PostgreSQL adds whole numbers up as decimals
    sums = ShadowSums(**{name: kind(getattr(row, name)) for name, kind in kinds.items()})
    return ShadowRow(slug=row.slug, first=row.first, last=row.last, sums=sums)


class NewPair(Value):
    """A query with the texts that users got and those of the candidate, and how alike the rankings are."""

    query: str
    a: Sequence[str]
    b: Sequence[str]
    rbo: float


class PairRow(NewPair):
    """A pair that is kept."""

    id: int
    at: int


def keep_pairs(connection: Connection, shadow_id: int, pairs: Sequence[NewPair], *, most: int, at: int) -> None:
    """Add pairs, the first one of each query, and delete all but the `most` different ones that can be compared."""
    rows = [
        (
            shadow_id,
            sha256(one.query.encode()).hexdigest(),
            one.query,
            json.dumps(list(one.a)),
            json.dumps(list(one.b)),
            one.rbo,
            at,
        )
        for one in sorted(pairs, key=lambda one: one.rbo)[:most]
    ]
    insert_new(connection, shadow_pairs, ("shadow_id", "digest", "query", "a", "b", "rbo", "at"), rows)
    mine = shadow_pairs.c.shadow_id == shadow_id
    kept = (
        sa.select(shadow_pairs.c.id).where(mine, _TWO_SIDED).order_by(shadow_pairs.c.rbo, shadow_pairs.c.id).limit(most)
    )
    connection.execute(sa.delete(shadow_pairs).where(mine, shadow_pairs.c.id.not_in(kept)))


_TWO_SIDED: Final = sa.and_(shadow_pairs.c.a != "[]", shadow_pairs.c.b != "[]")
"""Earlier releases kept pairs with a side of no hits too, which nobody can compare blindly."""


def list_pairs(connection: Connection, shadow_id: int, limit: int | None = None) -> list[PairRow]:
    """Return the pairs of a shadow, the most different first."""
    mine = shadow_pairs.c.shadow_id == shadow_id
    order = (shadow_pairs.c.rbo, shadow_pairs.c.id)
    statement = sa.select(shadow_pairs).where(mine, _TWO_SIDED).order_by(*order).limit(limit)
    return [row_value(PairRow, row, a=json.loads(row.a), b=json.loads(row.b)) for row in connection.execute(statement)]


def count_pairs(connection: Connection, shadow_id: int) -> int:
    """Count the pairs of a shadow."""
    mine = shadow_pairs.c.shadow_id == shadow_id
    return connection.execute(sa.select(sa.func.count()).select_from(shadow_pairs).where(mine, _TWO_SIDED)).scalar_one()


def forget_pairs(connection: Connection, shadow_id: int) -> None:
    """Delete the pairs of a shadow."""
    connection.execute(sa.delete(shadow_pairs).where(shadow_pairs.c.shadow_id == shadow_id))


class NewQuestion(Value):
    """A query with what users got for it, and how long that took."""

    query: str
    hits: Hits
    seconds: float | None


class Question(NewQuestion):
    """A query that waits."""

    id: int


def add_questions(connection: Connection, shadow_id: int, questions: Sequence[NewQuestion], at: int) -> None:
    """Add queries to those that wait."""
    rows = [
        (shadow_id, one.query, json.dumps([[hit.id, hit.text] for hit in one.hits]), one.seconds, at)
        for one in questions
    ]
    insert_new(connection, shadow_questions, ("shadow_id", "query", "hits", "seconds", "received_at"), rows)


def count_questions(connection: Connection, shadow_id: int) -> int:
    """Count the queries of a shadow that wait."""
    mine = shadow_questions.c.shadow_id == shadow_id
    return connection.execute(sa.select(sa.func.count()).select_from(shadow_questions).where(mine)).scalar_one()


def next_questions(connection: Connection, shadow_id: int, limit: int) -> list[Question]:
    """Return the queries of a shadow that have waited longest."""
    table = shadow_questions
    statement = sa.select(table).where(table.c.shadow_id == shadow_id).order_by(table.c.id).limit(limit)
    return [
        row_value(Question, row, hits=[ShadowHit(id=one[0], text=one[1]) for one in json.loads(row.hits)])
        for row in connection.execute(statement)
    ]


def take_questions(connection: Connection, ids: Sequence[int]) -> set[int]:
    """Delete queries and return those that were there: an answer counts only where its query still waited."""
    taken = sa.delete(shadow_questions).where(shadow_questions.c.id.in_(ids)).returning(shadow_questions.c.id)
    return set(connection.execute(taken).scalars())


def forget_questions(connection: Connection, shadow_id: int) -> None:
    """Delete the queries of a shadow."""
    connection.execute(sa.delete(shadow_questions).where(shadow_questions.c.shadow_id == shadow_id))


def old_questions(connection: Connection, limit: int, *, horizon: int) -> list[tuple[int, str]]:
    """Find queries that came before `horizon`, with the slugs of their shadows."""
    statement = (
        sa.select(shadow_questions.c.id, shadows.c.slug)
        .join(shadows, shadows.c.id == shadow_questions.c.shadow_id)
        .where(shadow_questions.c.received_at < horizon)
        .limit(limit)
    )
    return [(row.id, row.slug) for row in connection.execute(statement)]


def drop_questions(connection: Connection, old: Sequence[tuple[int, str]], *, hour: int) -> int:
    """Delete queries that were not asked in time, and count them as dropped in an hour of their shadows."""
    taken = take_questions(connection, [one for one, _ in old])
    for slug, dropped in Counter(slug for one, slug in old if one in taken).items():
        add_sums(connection, slug, hour, ShadowSums(dropped=dropped))
    return len(taken)


def forget_parts(connection: Connection, slug: str) -> None:
    """Delete the requests of a shadow: what was deleted may be sent again."""
    connection.execute(sa.delete(shadow_parts).where(shadow_parts.c.slug == slug))
