"""A judge on the way of a promotion: its gate passes once people confirmed it, and fails where answers got worse."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from app.annotation import store as rows
from app.annotation.documents import TaskDocument
from app.annotation.service import annotations, tasks
from app.answers.service import labels
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError
from app.base.texts import Source
from app.experiments.documents import PromotionDocument
from app.experiments.domain.promotions import Gate, GateName, GateResult
from app.experiments.service import promotions
from tests.support.answered_world import JUDGE, Answered, answered_world, answers_page

KEYS = [f"q{number:03}" for number in range(110)]
LIES = {key for place, key in enumerate(KEYS) if place % 3 == 0}
"""Queries whose answers are bad from the beginning: a judge is confirmed by both kinds."""
QUESTIONS = ("faithfulness", "answer_relevance")


@dataclass(kw_only=True)
class Judged:
    """Two checks over one suite whose answers one judge rates."""

    it: Answered

    @classmethod
    def of(cls, store: Store) -> "Judged":
        """Put both checks in force, and run what is current."""
        described: dict[str, Any] = answers_page(KEYS, slug="current", sample=1.0, rules=[])
        checks = [{**described["checks"][0], "slug": slug} for slug in ("current", "candidate")]
        judge: Mapping[str, Any] = {**JUDGE, "questions": [*QUESTIONS]}
        it = answered_world(store, {**described, "checks": checks, "judges": [judge]})
        it.judge.no.add("A lie about")
        judged = cls(it=it)
        judged.run("current", LIES)
        wish = {"slug": "candidate", "current": "current", "candidate": "candidate"}
        promotions.put_promotion(store, parse_document(PromotionDocument, wish), by="ada", now=it.world.clock())
        return judged

    def run(self, check: str, lies: set[str]) -> None:
        """Run a check whose answers to these queries are lies, and have them judged."""
        self.it.ask_answers.texts = {key: f"A lie about {key}." for key in lies}
        self.it.rate(self.it.world.run(check).id)

    def confirm(self, question: str) -> None:
        """Let people say the same as the judge of every answer that is drawn for a question."""
        store, world = self.it.world.store, self.it.world
        described = {"slug": question.replace("_", "-"), "suite": "suite", "overlap": 0}
        described["answers"] = {"judge": "reader", "question": question, "count": 100}
        document = parse_document(TaskDocument, described)
        tasks.put_task(store, document, by="ada", now=world.clock())
        tasks.request_pool(store, document.slug, now=world.clock())
        with store.read() as connection:
            task = tasks.find_task(connection, document.slug)
        labels.draw_labels(store, world.vault, self.it.judge, task.id, clock=world.clock)
        table = annotations.export_annotations(store, document.slug)
        with store.read() as connection:
            keys = {one.canary_id: one.key for one in rows.list_task_canaries(connection, task.id)}
            items = [(keys[one.canary_id or 0], one.text) for one in rows.list_items(connection, task.id)]
        said = [f"{key},,,{text},Ann,{int(key not in LIES)}" for key, text in items]
        source = Source(name="said.csv", lines=lambda: [table, *(f"{line}\n" for line in said)])
        annotations.import_annotations(store, document.slug, [source], now=world.clock())
        labels.calibrate(store, task.id, now=world.clock())

    def gate(self) -> Gate:
        """Return the gate of the judge."""
        found = promotions.load_promotion(self.it.world.store, "candidate", now=self.it.world.clock())
        return next(gate for gate in found["gates"] if gate.gate is GateName.JUDGE)


def test_the_gate_of_the_judge_waits_for_people_passes_and_fails_where_answers_got_worse(sqlite_store: Store) -> None:
    judged = Judged.of(sqlite_store)
    assert judged.gate().result is GateResult.INCONCLUSIVE, "the candidate has no run yet"
    judged.run("candidate", LIES)
    assert judged.gate().result is GateResult.INCONCLUSIVE
    assert "calibrated" in judged.gate().reason
    judged.confirm(QUESTIONS[0])
    assert judged.gate().result is GateResult.INCONCLUSIVE, "one of two measures is confirmed"
    judged.confirm(QUESTIONS[1])
    assert judged.gate().result is GateResult.PASS
    takes = "100 labels, at least 5 of them yes and 5 no, that show the judge to be better than chance"
    own = f"(mean share by the judge: a run is corrected where its check had before it {takes})"
    assert own in judged.gate().reason
    with pytest.raises(ConflictError, match="there is nothing to waive"):
        promotions.waive_gate(
            sqlite_store,
            "candidate",
            GateName.JUDGE,
            reason="nobody has time for it",
            by="ada",
            may_waive_harm=True,
            now=judged.it.world.clock(),
        )
    judged.run("candidate", {*LIES, *KEYS[:80]})
    assert judged.gate().result is GateResult.FAIL, judged.gate().reason
    found = promotions.load_promotion(sqlite_store, "candidate", now=judged.it.world.clock())
    assert found["state"] == "stopped"
