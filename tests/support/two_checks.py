"""Two checks whose answers one judge rates, and of which it sees fewer lies in one; people label them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from app.annotation.documents import TaskDocument
from app.annotation.service import annotations, tasks
from app.annotation.store import task_rows
from app.answers.service import labels
from app.answers.views import CheckTrust
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.texts import Source
from tests.support.answered_world import JUDGE, Answered, answered_world, answers_page

RULE = {"kind": "threshold", "measure": "faithful", "critical": {"below": 0.6}, "open": {"bad": 1, "of": 1}, "close": 1}
KEYS = [f"q{number:03}" for number in range(110)]
LIES = {key for place, key in enumerate(KEYS) if place % 4 == 0}
"""28 queries whose answers are bad; the judge sees all of them in one check, and half of them in the other."""
UNSEEN = {key for place, key in enumerate(KEYS) if place % 8 == 0}


@dataclass(kw_only=True)
class TwoChecks:
    """Two checks over one suite with as many bad answers, of which the judge sees fewer in `blind`."""

    it: Answered

    @classmethod
    def of(cls, store: Store, *questions: str, measure: str = "faithful", half: str = "") -> "TwoChecks":
        """Put both in force, with a rule on a measure, and run each; `half`: see FakeJudge."""
        described: dict[str, Any] = answers_page(KEYS, slug="seen", sample=1.0, rules=[{**RULE, "measure": measure}])
        checks = [{**described["checks"][0], "slug": slug} for slug in ("seen", "blind")]
        judge: Mapping[str, Any] = {**JUDGE, "questions": [*(questions or ("faithful",))]}
        it = answered_world(store, {**described, "checks": checks, "judges": [judge]})
        it.judge.no.add("A lie about")
        it.judge.half.update({half} - {""})
        two = cls(it=it)
        two.run("seen")
        two.run("blind")
        return two

    def run(self, check: str) -> int:
        """Run a check and have its answers judged."""
        unseen = UNSEEN if check == "blind" else set()
        told = {key: f"A {'smooth tale' if key in unseen else 'lie'} about {key}." for key in LIES}
        self.it.ask_answers.texts = told
        run_id = self.it.world.run(check).id
        self.it.rate(run_id)
        return run_id

    def label(
        self,
        question: str = "faithful",
        *,
        count: int = 220,
        refused: Collection[str] = (),
        slug: str | None = None,
        calibrate: bool = True,
    ) -> None:
        """Let people say what is true of the answers that are drawn, and no of those to `refused` queries too."""
        store, world, slug = self.it.world.store, self.it.world, slug or question.replace("_", "-")
        described = {"slug": slug, "suite": "suite", "overlap": 0}
        described["answers"] = {"judge": "reader", "question": question, "count": count}
        tasks.put_task(store, parse_document(TaskDocument, described), by="ada", now=world.clock())
        tasks.request_pool(store, slug, now=world.clock())
        with store.read() as connection:
            task = tasks.find_task(connection, slug)
        labels.draw_labels(store, world.vault, self.it.judge, task.id, clock=world.clock)
        table = annotations.export_annotations(store, slug)
        with store.read() as connection:
            keys = {one.canary_id: one.key for one in task_rows.list_task_canaries(connection, task.id)}
            items = [(keys[one.canary_id or 0], one.chunk_ids[0]) for one in task_rows.list_items(connection, task.id)]
        no = LIES | {*refused}
        said = [f"{key},{chunk},,,Ann,{int(key not in no)}" for key, chunk in items]
        annotations.import_annotations(
            store, slug, [Source(name="said.csv", lines=lambda: [table, *(f"{line}\n" for line in said)])],
            now=world.clock(),
        )  # fmt: skip
        if calibrate:
            labels.calibrate(store, task.id, now=world.clock())

    def trust(self) -> dict[str, CheckTrust]:
        """Return what the report of the judge says of each check."""
        [measure] = labels.load_report(self.it.world.store, "reader", now=self.it.world.clock())["measures"]
        return {one["check"]: one for one in measure["checks"]}
