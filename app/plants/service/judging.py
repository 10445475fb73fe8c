"""What is wrong with a plant by its bounds and by the past of its check, and the alert that says it."""

from collections.abc import Sequence
from datetime import datetime

from app.alerts.domain.between_runs import PlantTrouble
from app.alerts.service import transitions
from app.base.db.engine import Connection
from app.catalog import store as catalog
from app.plants import store as rows
from app.plants.domain import (
    PAST,
    Finding,
    Plant,
    PlantProblem,
    PlantState,
    Usual,
    is_sure,
    problem_of,
    problem_sentence,
    usual_of,
)
from app.plants.store import PlantRow


def judge(connection: Connection, before: Plant, row: PlantRow, *, now: datetime) -> bool:
    """Open, escalate or resolve the alert of a check by a step of its plant, from `before` to that of the row.

    Whether it was found in time is said once, when that is known: a later plant may have resolved the alert since.
    True where there may be deliveries.
    """
    after = row.plant
    if after.finding is None:
        return False
    usual = usual_before(connection, row)
    problem = problem_of(after, usual)
    if problem is None:
        is_well = after.state is PlantState.ENDED and after.finding is Finding.FOUND
        if not is_well:
            return False
        trouble = None
    elif problem in _SAID_ONCE and before.finding is not None:
        return False
    else:
        trouble = PlantTrouble(problem=problem, sentence=problem_sentence(after, problem, usual))
    catalog.lock_definition(connection, row.check_id)  # a run may be ending now
    return transitions.judge_plant(connection, row.check_id, trouble, now=now)


_SAID_ONCE = frozenset({PlantProblem.NOT_FOUND, PlantProblem.SLOW})


def usual_before(connection: Connection, row: PlantRow) -> Usual | None:
    """Return what was usual for the check before a plant; None = too few were found."""
    return usual_of_rows(row, rows.found_before(connection, row.check_id, row.id, PAST))


def usual_of_rows(row: PlantRow, before: Sequence[PlantRow]) -> Usual | None:
    """Return what was usual before a plant: of those that were found in time, exact to a few polls; newest first."""
    in_time: list[float] = []
    for one in before:
        seconds = one.plant.found_seconds
        if seconds is not None and is_sure(one.plant) and seconds <= one.plant.terms.found_within:
            in_time.append(seconds)
        if len(in_time) == PAST:
            break
    return usual_of(in_time[::-1], row.plant.terms.poll)
