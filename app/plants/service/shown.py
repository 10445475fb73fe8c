"""Plants as people and programs see them: newest first, with what is wrong and what is usual for their check."""

from collections.abc import Sequence
from datetime import datetime

from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.schedules import EPOCH, next_due
from app.base.views import rounded, rounded_or_none, time_text, view_of
from app.catalog.service.references import find_check
from app.catalog.store import Definition
from app.plants import store as rows
from app.plants.domain import (
    PAST,
    PlantProblem,
    PlantsView,
    PlantView,
    Usual,
    UsualView,
    is_sure,
    marker_of,
    problem_of,
    problem_sentence,
    usual_of,
)
from app.plants.service.planting import plant_schedule
from app.plants.store import PlantRow


def load_plants(store: Store, slug: str, *, before: int | None = None, limit: int = 50, now: datetime) -> PlantsView:
    """Return plants of a check, newest first, those with an id below `before`. Raises NotFoundError."""
    with store.read() as connection:
        check = find_check(connection, slug)
        found = rows.list_plants(connection, check.id, before=before, limit=limit + 1)
        shown = found[:limit]
        older = rows.found_before(connection, check.id, shown[-1].id, PAST) if shown else []
        usuals = [_usual(one, [*shown[place + 1 :], *older]) for place, one in enumerate(shown)]
        items = [_view(one, usual, now) for one, usual in zip(shown, usuals, strict=True)]
        usual = usuals[0] if usuals else None
        waiting = rows.open_plant(connection, check.id)
        next_at = _next_at(connection, check, now)
    waits_for = None
    if waiting is not None and waiting.plant.is_left_behind:
        waits_for = f"plant {waiting.id} is left behind, and no other is planted until it is removed"
    return {
        "items": items,
        "next": str(shown[-1].id) if len(found) > limit else None,
        "usual": None if usual is None else _usual_view(usual),
        "next_at": None if waits_for else next_at,
        "waits_for": waits_for,
    }


def load_plant(store: Store, plant_id: int, *, now: datetime) -> PlantView:
    """Return a plant that is there."""
    with store.read() as connection:
        row = rows.find_plant(connection, plant_id)
        assert row is not None  # noqa: S101 - callers have just stored it
        return _view(row, _usual_before(connection, row), now)


def problem_now(connection: Connection, row: PlantRow, now: datetime) -> tuple[PlantProblem, str] | None:
    """Return what is wrong with a plant, and the sentence that says it; None = nothing."""
    usual = _usual_before(connection, row)
    problem = problem_of(row.plant, to_us(now), usual)
    return None if problem is None else (problem, problem_sentence(row.plant, problem, to_us(now), usual))


def _usual_before(connection: Connection, row: PlantRow) -> Usual | None:
    return _usual(row, rows.found_before(connection, row.check_id, row.id, PAST))


def _usual(row: PlantRow, before: Sequence[PlantRow]) -> Usual | None:
    """Return what was usual before a plant: of those that were found in time, exact to a few polls; newest first."""
    in_time: list[float] = []
    for one in before:
        seconds = one.plant.found_seconds
        if seconds is not None and is_sure(one.plant) and seconds <= one.plant.terms.found_within:
            in_time.append(seconds)
        if len(in_time) == PAST:
            break
    return usual_of(in_time[::-1], row.plant.terms.poll)


def _view(row: PlantRow, usual: Usual | None, now: datetime) -> PlantView:
    plant, at = row.plant, to_us(now)
    problem = problem_of(plant, at, usual)
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
        sentence=None if problem is None else problem_sentence(plant, problem, at, usual),
    )


def _usual_view(usual: Usual) -> UsualView:
    return {
        "plants": usual.plants,
        "median_seconds": rounded(usual.median),
        "high_seconds": rounded(usual.high),
        "slow_above_seconds": rounded(usual.slow_above),
    }


def _next_at(connection: Connection, check: Definition, now: datetime) -> str | None:
    schedule = plant_schedule(check.body)
    if schedule is None or check.archived_at is not None:
        return None
    newest = rows.newest_instant(connection, check.id, before=to_us(now))
    return time_text(next_due(schedule, max(now, EPOCH if newest is None else from_us(newest))))
