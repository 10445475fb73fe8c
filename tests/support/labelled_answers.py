"""A check whose answers are judged, with a task in which people label them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.annotation import store as task_rows
from app.annotation.documents import TaskDocument
from app.annotation.service import tasks
from app.annotation.store import TaskRow
from app.answers import store as calibrations
from app.answers.domain.trust import CalibrationBody
from app.answers.service import labels
from app.base.db.engine import Store
from app.base.documents.parsing import parse_document
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
        count = 0
        found = tasks.next_item(self.store, "labels", annotator=annotator)
        while (item := found["item"]) is not None and count < most:
            yes = item["query"] not in self.lies
            grade = int(yes if count >= wrong else not yes)
            now = self.it.world.clock.advance(1)
            found = tasks.annotate(self.store, "labels", item["id"], annotator=annotator, grade=grade, now=now)
            count += 1
        labels.calibrate(self.store, self.task().id, now=self.it.world.clock())
        return count

    def calibration(self) -> CalibrationBody:
        """Return what counts of the judge."""
        with self.store.read() as connection:
            judge = present(catalog.find_definition(connection, "judge", "reader"))
            return calibrations.calibrations_in_force(connection, judge)["faithful"].body
