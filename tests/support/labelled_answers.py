"""A check whose answers are judged, with a task in which people label them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.annotation.documents import TaskDocument
from app.annotation.service import tasks
from app.annotation.store import task_rows
from app.annotation.store.task_rows import TaskRow
from app.answers.domain.trust import CalibrationBody
from app.answers.service import labels
from app.answers.store import answer_rows as rows
from app.base.db.engine import Store, to_us
from app.base.documents.fields import parse_document
from app.base.statistics import hash_share
from app.catalog import store as catalog
from tests.support.answered_world import Answered, answered_world, answers_page
from tests.support.present import present

TASK: Mapping[str, Any] = {
    "slug": "labels",
    "suite": "suite",
    "answers": {"judge": "reader", "question": "faithful", "count": 20},
    "overlap": 0.0,
}
KEYS = [f"q{number:02}" for number in range(30)]


@dataclass(kw_only=True)
class Labelled:
    """A check whose answers are judged, and a task of them."""

    it: Answered
    lies: set[str] = field(default_factory=set)
    """Queries whose answers are not supported."""

    @classmethod
    def of(cls, store: Store, **check: Any) -> "Labelled":
        """Put all in force and run once; every third answer is a lie, which the judge says NO of."""
        it = answered_world(store, answers_page(KEYS, **check))
        labelled = cls(it=it, lies={key for place, key in enumerate(KEYS) if place % 3 == 0})
        it.ask_answers.texts |= {key: f"A lie about {key}." for key in labelled.lies}
        it.judge.no.add("A lie about")
        it.run()
        return labelled

    @property
    def store(self) -> Store:
        """The store."""
        return self.it.world.store

    def put(self, **changes: Any) -> None:
        """Create the task."""
        document = parse_document(TaskDocument, {**TASK, **changes})
        tasks.put_task(self.store, document, by="Ada", now=self.it.world.clock())

    def draw(self, slug: str = "labels") -> None:
        """Ask for the answers of the task and have them drawn, as a worker does."""
        tasks.request_pool(self.store, slug, now=self.it.world.clock())
        world = self.it.world
        labels.draw_labels(self.store, world.vault, self.it.judge, self.task(slug).id, clock=world.clock)

    def task(self, slug: str = "labels") -> TaskRow:
        """Return the task."""
        with self.store.read() as connection:
            return present(task_rows.find_task(connection, slug))

    def label(self, annotator: str = "Ann", *, wrong: int = 0, most: int = 1_000) -> int:
        """Label what is left by the truth, the first `wrong` against it; returns how many there were."""
        task = self.task()
        with self.store.write() as connection:
            keys = {one.canary_id: one.key for one in task_rows.list_task_canaries(connection, task.id)}
            now = to_us(self.it.world.clock())
            open_ = task_rows.open_canaries(connection, task.id, annotator, now=now)
            left = [
                (item_id, keys[one or 0] not in self.lies)
                for one in sorted(open_, key=lambda one: hash_share(f"order:{task.document.seed}:{annotator}:{one}"))
                for item_id in task_rows.open_items(connection, task.id, annotator, one, now).values()
            ][:most]
            for place, (item_id, yes) in enumerate(left):
                task_rows.save_annotation(
                    connection,
                    task_id=task.id,
                    item_id=item_id,
                    annotator=annotator,
                    grade=int(yes if place >= wrong else not yes),
                    seconds=None,
                    at=to_us(self.it.world.clock.advance(1)),
                )
            task_rows.defer_results(connection, task, to_us(self.it.world.clock()))
        labels.calibrate(self.store, task.id, now=self.it.world.clock())
        return len(left)

    def calibration(self) -> CalibrationBody:
        """Return what counts of the judge."""
        with self.store.read() as connection:
            judge = present(catalog.find_definition(connection, "judge", "reader"))
            return rows.calibrations_in_force(connection, judge)["faithful"].body
