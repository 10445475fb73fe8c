"""Plants as people and programs see them: newest first, with what is wrong and what is usual for their check."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from app.base.db.engine import Connection, Store
from app.base.schedules import next_due
from app.base.values import Value
from app.base.views import rounded, rounded_or_none, time_text, view_of
from app.catalog.service.references import find_check
from app.catalog.store import Definition
from app.plants import store as rows
from app.plants.domain import (
    PAST,
    Finding,
    PlantProblem,
    PlantsView,
    PlantView,
    Usual,
    UsualView,
    is_sure,
    marker_of,
    problem_of,
    problem_sentence,
)
from app.plants.service.judging import usual_before, usual_of_rows
from app.plants.service.planting import due_instant, plant_schedule
from app.plants.store import PlantRow


def load_plants(store: Store, slug: str, *, before: int | None = None, limit: int = 50, now: datetime) -> PlantsView:
    """Return plants of a check, newest first, those with an id below `before`. Raises NotFoundError."""
    with store.read() as connection:
        check = find_check(connection, slug)
        found = rows.list_plants(connection, check.id, before=before, limit=limit + 1)
        shown = found[:limit]
        older = rows.found_before(connection, check.id, shown[-1].id, PAST) if shown else []
        usuals = [usual_of_rows(one, [*shown[place + 1 :], *older]) for place, one in enumerate(shown)]
        items = [_view(one, usual) for one, usual in zip(shown, usuals, strict=True)]
        usual = usuals[0] if usuals else None
        waiting = rows.open_plant(connection, check.id)
        next_at = _next_at(connection, check, now)
    waits_for = None
    is_left_behind = waiting is not None and waiting.plant.is_left_behind
    if waiting is not None and is_left_behind:
        waits_for = f"plant {waiting.id} is left behind, and no other is planted until it is removed"
    elif waiting is not None and next_at is not None and next_at <= now:
        waits_for = f"plant {waiting.id} may be in the source, and the next is planted once it is gone"
    return {
        "items": items,
        "next": str(shown[-1].id) if len(found) > limit else None,
        "usual": None if usual is None else _usual_view(usual),
        "next_at": None if is_left_behind else time_text(next_at),
        "waits_for": waits_for,
    }


class PlantNumbers(Value):
    """What is exported of the newest plants of a check; None = not measured."""

    found_seconds: float | None
    gone_seconds: float | None
    problem: PlantProblem | None


_LOOKED_AT: Final = 5
"""The newest plants of a check among which those that say something are looked for."""


def load_numbers(connection: Connection) -> dict[int, PlantNumbers]:
    """Return the numbers of every check that has planted documents, by its id."""
    found = rows.newest_of_checks(connection, _LOOKED_AT)
    return {check_id: _numbers(connection, newest) for check_id, newest in found.items()}


def _numbers(connection: Connection, newest: Sequence[PlantRow]) -> PlantNumbers:
    """Return the time until found of the newest that was asked for to its end, and what is wrong with it.

    Where nobody asked for a while before it was found, its time is not known.
    """
    known = [one for one in newest if one.plant.finding is not None and one.plant.finding is not Finding.UNMEASURED]
    last = known[0] if known else None
    usual = None if last is None else usual_before(connection, last)
    problems = [problem_of(one.plant, usual) for one in (newest[0], last) if one is not None]
    return PlantNumbers(
        found_seconds=last.plant.found_seconds if last is not None and is_sure(last.plant) else None,
        gone_seconds=next((one.plant.gone_seconds for one in known if one.plant.gone_at is not None), None),
        problem=next((one for one in problems if one is not None), None),
    )


def troubled_plant(connection: Connection, check_id: int) -> PlantRow | None:
    """Return the newest plant of a check with which something is wrong; None = there is none among the newest."""
    newest = rows.list_plants(connection, check_id, limit=_LOOKED_AT)
    return next((row for row in newest if problem_of(row.plant, usual_before(connection, row)) is not None), None)


def load_plant(store: Store, plant_id: int) -> PlantView:
    """Return a plant that is there."""
    with store.read() as connection:
        row = rows.find_plant(connection, plant_id)
        assert row is not None  # noqa: S101 - callers have just stored it
        return _view(row, usual_before(connection, row))


def _view(row: PlantRow, usual: Usual | None) -> PlantView:
    plant = row.plant
    problem = problem_of(plant, usual)
    return view_of(
        PlantView,
        plant,
        id=str(row.id),
        document_id=row.key,
        marker=marker_of(row.key),
        planted_at=time_text(plant.sent_at),
        found_seconds=rounded_or_none(plant.found_seconds),
        is_sure=is_sure(plant),
        gone_seconds=rounded_or_none(plant.gone_seconds),
        problem=problem,
        sentence=None if problem is None else problem_sentence(plant, problem, usual),
    )


def _usual_view(usual: Usual) -> UsualView:
    return {
        "plants": usual.plants,
        "median_seconds": rounded(usual.median),
        "high_seconds": rounded(usual.high),
        "slow_above_seconds": rounded(usual.slow_above),
    }


def _next_at(connection: Connection, check: Definition, now: datetime) -> datetime | None:
    """Return the instant whose document is planted next: one that has passed already, where that has not begun."""
    schedule = plant_schedule(check.body)
    if schedule is None or check.archived_at is not None:
        return None
    return due_instant(connection, check, schedule, now) or next_due(schedule, now)
