"""Habits of a check: shown, and called not normal by people.

Such a refusal is a row that stays. A detector heeds it with the next run, see detector_step.
"""

from datetime import datetime

from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, NotFoundError
from app.catalog.service.lookup import find_check
from app.catalog.store import definitions, suites
from app.detection.domain.habits import bound_of, is_learned
from app.detection.domain.values import Habit
from app.detection.domain.views import HabitRefusal, HabitView
from app.detection.service.detectors import Detector
from app.detection.store import detectors, habit_refusals
from app.detection.store.detectors import DetectorRow
from app.detection.store.habit_refusals import RefusalRow
from app.records import documents as shapes
from app.records.store import results


def habit_views(connection: Connection, check_id: int, row: DetectorRow) -> list[HabitView]:
    """Return the habits that a detector remembers, the one seen last first."""
    known = Detector.habits_of(row.body).known
    if not known:
        return []
    versions = {int(key) for habit in known for key in habit.answers}
    names = suites.keys_of(connection, versions)
    refusals = {one.habit: one for one in habit_refusals.list_refusals(connection, check_id)}
    return [_view(habit, names, refusals.get(habit.id)) for habit in reversed(known)]


def refuse(store: Store, slug: str, habit_id: str, *, by: str, note: str | None, now: datetime) -> None:
    """Call a habit not normal: its episodes are alarms from the next run on. No change where it was refused before.

    Raises NotFoundError, and ConflictError for a check that is archived.
    """
    with store.write() as connection:
        check = find_check(connection, slug)
        if check.archived_at is not None:
            raise ConflictError(f"check '{slug}' is archived, so nothing of it is a habit any more")
        definitions.lock_definition(connection, check.id)
        row = detectors.find_detector(connection, check.id)
        known = () if row is None else Detector.habits_of(row.body).known
        if row is None or habit_id not in {habit.id for habit in known}:
            raise NotFoundError(f"check '{slug}' has no habit '{habit_id[:40]}'")
        newest = results.newest_ended(connection, check.id)
        after_run = newest.id if newest is not None else row.run_id
        refusal = RefusalRow(habit=habit_id, after_run=after_run, at=to_us(now), by=by, note=note)
        habit_refusals.refuse(connection, check.id, refusal)


def _view(habit: Habit, names: dict[int, str], refusal: RefusalRow | None) -> HabitView:
    return HabitView(
        id=habit.id,
        canaries=[names[int(key)] for key in habit.answers if int(key) in names],
        answers=1 + max(map(len, habit.answers.values())),
        times=habit.times,
        longest=habit.longest,
        bound=bound_of(habit),
        learned=is_learned(habit),
        refused=None
        if refusal is None
        else HabitRefusal(at=shapes.time_text(refusal.at), by=refusal.by, note=refusal.note),
    )
