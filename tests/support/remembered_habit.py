"""A habit that the detector of a check remembers, without the runs that taught it."""

from typing import Final

from app.base.db.engine import Store
from app.base.values import replace
from app.catalog import store as catalog
from app.detection import store as detector_rows
from app.detection.domain import Habit, Habits, Members
from app.detection.domain.tracker import follow
from app.detection.service.detectors import Detector, DetectorMeasures
from app.records.store import run_rows
from app.scoring.measures import MEASURES_VERSION
from tests.support.present import present

HABIT: Final = "0123456789abcdef"


def remember_habit(store: Store, slug: str) -> None:
    """Let the detector of a check, begun anew where it was reset, remember a learned habit of one canary."""
    habit = Habit(id=HABIT, answers={1: (17,)}, times=3, longest=5, total=15, beside=(0, 0))
    with store.write() as connection:
        check = present(catalog.find_definition(connection, "check", slug))
        row = detector_rows.find_detector(connection, check.id)
        if row is None:
            begun = Detector(
                follower=follow(Members(keys=())),
                measures=DetectorMeasures(k=5, quality="NDCG@10", measures_version=MEASURES_VERSION),
                first_run=0,
                choice_id=None,
            )
            run_id, baseline_id = present(run_rows.newest_ended(connection, check.id)).id, None
        else:
            begun, run_id, baseline_id = Detector.unpacked(row.body, lambda _: None), row.run_id, row.baseline_id
        remembers = replace(begun, follower=replace(begun.follower, habits=Habits(known=(habit,))))
        detector_rows.save_detector(
            connection, check.id, run_id=run_id, baseline_id=baseline_id, body=remembers.packed()
        )
