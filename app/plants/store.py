"""Rows of plants: written before a document is sent, changed by one worker at a time, found again by what is due."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import insert_one, row_value
from app.base.jobs import at_hand, defer
from app.base.jobs.values import JobKind, NewJob
from app.base.values import Value
from app.catalog.tables import definitions
from app.plants.domain import Finding, Plant, PlantState, stored_terms
from app.plants.tables import plants


class PlantRow(Value):
    """A stored plant: what is needed to ask for it and to remove it, and how far it has come."""

    id: int
    check_id: int
    scheduled_for: int
    key: str
    body: Mapping[str, Any]
    """Requests and bounds, and the retrievers by id and version; no secrets."""
    step: int
    created_at: int
    plant: Plant


class PlantedCheck(NamedTuple):
    """A check in force."""

    id: int
    slug: str
    version_id: int
    updated_at: int


def list_checks(connection: Connection) -> list[PlantedCheck]:
    """List the checks in force, a short row each."""
    columns = definitions.c.id, definitions.c.slug, definitions.c.version_id, definitions.c.updated_at
    in_force = sa.and_(definitions.c.kind == "check", definitions.c.archived_at.is_(None))
    return [PlantedCheck(*row) for row in connection.execute(sa.select(*columns).where(in_force))]


def newest_instant(connection: Connection, check_id: int, *, before: int) -> int | None:
    """Return the newest instant up to `before` of which a check has a plant; None = it has none."""
    mine = sa.and_(plants.c.check_id == check_id, plants.c.scheduled_for <= before)
    instant: int | None = connection.execute(sa.select(sa.func.max(plants.c.scheduled_for)).where(mine)).scalar_one()
    return instant


def open_plant(connection: Connection, check_id: int) -> PlantRow | None:
    """Return the plant of a check that the next one waits for; None = there is none."""
    waits = plants.c.state.not_in([PlantState.WATCHED.value, PlantState.ENDED.value])
    statement = sa.select(plants).where(plants.c.check_id == check_id, plants.c.ended_at.is_(None), waits)
    row = connection.execute(statement.order_by(plants.c.id.desc()).limit(1)).one_or_none()
    return None if row is None else _row(row)


def queue_plant(
    connection: Connection, check_id: int, *, scheduled_for: int, key: str, body: Mapping[str, Any], now: int
) -> int | None:
    """Store a plant that is due and have it carried on; None where this instant has one already."""
    plant_id = insert_one(
        connection,
        plants,
        check_id=check_id,
        scheduled_for=scheduled_for,
        key=key,
        body=json.dumps(body),
        state=PlantState.DUE.value,
        step=0,
        next_at=now,
        created_at=now,
        removals_failed=0,
        absent=0,
        watches=0,
    )
    if plant_id is not None:
        defer(connection, [NewJob(JobKind.PLANT, plant_id)])
    return plant_id


def find_plant(connection: Connection, plant_id: int) -> PlantRow | None:
    """Return a plant by its id."""
    row = connection.execute(sa.select(plants).where(plants.c.id == plant_id)).one_or_none()
    return None if row is None else _row(row)


_STORED = tuple(name for name in Plant.__struct_fields__ if name != "terms")


def save_step(connection: Connection, row: PlantRow, after: Plant) -> bool:
    """Store how far a plant has come; False where another worker has carried it on since it was read."""
    mine = sa.and_(plants.c.id == row.id, plants.c.step == row.step)
    values = {name: getattr(after, name) for name in _STORED}
    return connection.execute(sa.update(plants).where(mine).values(step=row.step + 1, **values)).rowcount == 1


def forgotten(connection: Connection, now: int) -> set[int]:
    """Return the plants with a step that is due and about which no job is."""
    due = sa.select(plants.c.id).where(plants.c.ended_at.is_(None), plants.c.next_at <= now)
    found = set(connection.execute(due).scalars())
    return found - at_hand(connection, (JobKind.PLANT,), now) if found else found


def defer_forgotten(connection: Connection, plant_ids: set[int]) -> None:
    """Have these plants carried on."""
    defer(connection, [NewJob(JobKind.PLANT, plant_id) for plant_id in sorted(plant_ids)])


def list_plants(
    connection: Connection, check_id: int, *, before: int | None = None, limit: int | None = None
) -> list[PlantRow]:
    """List the plants of a check, newest first, those with an id below `before`."""
    statement = sa.select(plants).where(plants.c.check_id == check_id).order_by(plants.c.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(plants.c.id < before)
    return [_row(row) for row in connection.execute(statement)]


def found_before(connection: Connection, check_id: int, before: int, limit: int) -> list[PlantRow]:
    """List the plants of a check that were found, with an id below `before`, newest first."""
    statement = sa.select(plants).where(
        plants.c.check_id == check_id, plants.c.id < before, plants.c.finding == Finding.FOUND.value
    )
    return [_row(row) for row in connection.execute(statement.order_by(plants.c.id.desc()).limit(limit))]


def any_found(connection: Connection, check_id: int) -> bool:
    """Whether a plant of a check was found."""
    mine = sa.and_(plants.c.check_id == check_id, plants.c.finding == Finding.FOUND.value)
    return connection.execute(sa.select(plants.c.id).where(mine).limit(1)).first() is not None


def old_plants(connection: Connection, limit: int, *, horizon: int) -> list[int]:
    """Find plants that ended before `horizon`; what may still be in a source is kept, however old."""
    return list(connection.execute(sa.select(plants.c.id).where(plants.c.ended_at < horizon).limit(limit)).scalars())


def newest_of_checks(connection: Connection, limit: int) -> dict[int, list[PlantRow]]:
    """Return the newest plants of every check in force that has any, newest first, so many of each."""
    has_any = sa.exists().where(plants.c.check_id == definitions.c.id)
    of_kind = sa.and_(definitions.c.kind == "check", definitions.c.archived_at.is_(None))
    ids = connection.execute(sa.select(definitions.c.id).where(of_kind, has_any)).scalars().all()
    return {check_id: list_plants(connection, check_id, limit=limit) for check_id in ids}


def _row(row: Any) -> PlantRow:
    body = json.loads(row.body)
    finding = None if row.finding is None else Finding(row.finding)
    plant = row_value(Plant, row, terms=stored_terms(body), state=PlantState(row.state), finding=finding)
    return row_value(PlantRow, row, body=body, plant=plant)
