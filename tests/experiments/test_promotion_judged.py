"""A judge on the way of a promotion: its gate passes once people confirmed it, and fails where answers got worse."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from app.annotation.documents import TaskDocument
from app.annotation.service import annotations, tasks
from app.annotation.store import task_rows as rows
from app.answers.service import labels
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, ForbiddenError
from app.base.texts import Source
from app.experiments.documents import ExperimentDocument, Exposure, PromotionDocument, UnitOutcome
from app.experiments.domain.margins import GateResult
from app.experiments.domain.promotions import Gate, GateName, PromotionState
from app.experiments.service import experiments, promotions
from app.experiments.views import PromotionView
from tests.support.answered_world import JUDGE, Answered, answered_world, answers_page

KEYS = [f"q{number:03}" for number in range(110)]
LIES = {key for place, key in enumerate(KEYS) if place % 3 == 0}
"""Queries whose answers are bad from the beginning: a judge is confirmed by both kinds."""
QUESTIONS = ("faithfulness", "answer_relevance")
BOTH = "newest runs of checks 'current' and 'candidate'"


@dataclass(kw_only=True)
class Judged:
    """Two checks over one suite whose answers one judge rates."""

    it: Answered

    @classmethod
    def of(cls, store: Store, *questions: str, judges: Sequence[str | None] = ("reader", "reader")) -> "Judged":
        """Put both checks in force, and run what is current; `judges` are those of the checks."""
        described: dict[str, Any] = answers_page(KEYS, slug="current", sample=1.0, rules=[])
        checks = [
            {**described["checks"][0], "slug": slug, "judge": judge}
            for slug, judge in zip(("current", "candidate"), judges, strict=True)
        ]
        asked = [{**JUDGE, "slug": slug, "questions": [*(questions or QUESTIONS)]} for slug in {*judges} if slug]
        it = answered_world(store, {**described, "checks": checks, "judges": asked})
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

    def expose(self) -> None:
        """Let users be served better by the candidate, with a guard rail for faithfulness."""
        world = self.it.world
        arms = [{"name": "now", "share": 0.5}, {"name": "next", "share": 0.5}]
        described = {"slug": "live", "arms": arms, "window": "1m"}
        experiments.put_experiment(
            world.store, parse_document(ExperimentDocument, described), by="ada", now=world.clock()
        )
        sent = [
            Exposure(unit=f"user-{number}", arm=("now", "next")[number % 2], at=world.clock()) for number in range(800)
        ]
        experiments.receive_exposures(world.store, "live", sent, now=world.clock())
        outcomes = [
            UnitOutcome(event_id=one.unit, unit=one.unit, value=int(number % 10 < 4 + 4 * (number % 2)), at=one.at)
            for number, one in enumerate(sent)
        ]
        experiments.receive_outcomes(world.store, "live", outcomes, now=world.clock())
        world.clock.advance(600)
        wish = {"slug": "candidate", "current": "current", "candidate": "candidate", "experiment": "live"}
        rails = [{"measure": "faithfulness", "allowed_loss": 0.05}]
        promotions.put_promotion(
            world.store, parse_document(PromotionDocument, {**wish, "guards": rails}), by="ada", now=world.clock()
        )

    def load(self) -> PromotionView:
        """Return the promotion."""
        return promotions.load_promotion(self.it.world.store, "candidate", now=self.it.world.clock())

    def gate(self, name: GateName = GateName.JUDGE) -> Gate:
        """Return a gate."""
        return next(gate for gate in self.load()["gates"] if gate.gate is name)


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


def test_a_loss_that_judged_answers_showed_stays_while_newer_ones_are_not_judged(sqlite_store: Store) -> None:
    judged = Judged.of(sqlite_store)
    judged.run("candidate", LIES)
    for question in QUESTIONS:
        judged.confirm(question)
    passed = judged.it.world.run("candidate").id
    waits = "the answers of the newest run of check 'candidate' are not judged yet; until then what was said of run "
    assert judged.gate().result is GateResult.INCONCLUSIVE, "what passed waits for the newer answers"
    assert judged.gate().reason.startswith(waits)
    judged.it.rate(passed)
    judged.run("candidate", {*LIES, *KEYS[:80]})
    judged.expose()
    assert (judged.load()["state"], judged.gate().result) == (PromotionState.NEEDS_DECISION, GateResult.FAIL)
    newest = judged.it.world.run("candidate").id
    assert (judged.load()["state"], judged.gate().result) == (PromotionState.NEEDS_DECISION, GateResult.FAIL)
    assert judged.gate().reason.startswith(waits)
    assert judged.gate(GateName.EXPOSURE).guards[0].result is GateResult.FAIL
    judged.it.ask_answers.texts = {key: f"A lie about {key}." for key in LIES}
    mended = judged.it.world.run("candidate").id
    for one in (newest, mended):
        judged.it.rate(one)
    assert judged.gate().result is GateResult.PASS, judged.gate().reason


def test_what_an_unconfirmed_judge_says_is_told_to_who_waives_it_and_by_the_guard_rail(sqlite_store: Store) -> None:
    judged = Judged.of(sqlite_store)
    judged.run("candidate", {*LIES, *KEYS[:80]})
    judged.expose()
    found = judged.gate()
    assert found.result is GateResult.INCONCLUSIVE
    assert "; known, though it decides nothing: faithfulness (uncalibrated) -0." in found.reason
    assert " (mean share by the judge: a run is corrected where its check had before it 100 labels" in found.reason
    assert found.reason.endswith(" (mean share by the judge)"), "what corrects a run is said once"
    assert found.reason.count("a run is corrected where") == 1
    (rail,) = judged.gate(GateName.EXPOSURE).guards
    assert rail.reason.startswith(
        "not enough is known of faithfulness: the judge is uncalibrated: too few labels of people"
    )
    assert "; known, though it decides nothing: faithfulness (uncalibrated) -0." in rail.reason
    now = judged.it.world.clock()
    reason = "two people have read fifty of the answers"
    promotions.waive_gate(
        sqlite_store, "candidate", GateName.JUDGE, reason=reason, by="ada", may_waive_harm=False, now=now
    )
    waiver = judged.gate().waiver
    assert waiver is not None
    assert waiver.found == found.reason


def test_a_judge_that_is_not_asked_for_relevance_still_breaks_a_guard_rail_for_faithfulness(
    sqlite_store: Store,
) -> None:
    judged = Judged.of(sqlite_store, "faithful", "faithfulness")
    judged.run("candidate", LIES)
    judged.confirm("faithful")
    judged.confirm("faithfulness")
    judged.expose()
    missing = f"answer_relevance is not asked by judge 'reader' ({BOTH}): add it to its `questions`, and run again"
    kept = judged.gate()
    assert (kept.result, missing in kept.reason) == (GateResult.INCONCLUSIVE, True), "relevance may have been lost"
    assert "no loss of more than 0.05 over 110 judged answers: faithfulness 0.000 to 0.000" in kept.reason
    assert judged.gate(GateName.EXPOSURE).guards[0].result is GateResult.PASS
    judged.run("candidate", {*LIES, *KEYS[:80]})
    assert judged.gate().result is GateResult.FAIL
    exposure = judged.gate(GateName.EXPOSURE)
    assert (exposure.evidence, exposure.guards[0].result) == (GateResult.FAIL, GateResult.FAIL)
    assert "a loss of more than 0.05 is shown over 110 judged answers: faithfulness -0." in exposure.guards[0].reason
    assert judged.load()["state"] is PromotionState.NEEDS_DECISION
    with pytest.raises(ForbiddenError, match="only a key of scope admin"):
        promotions.waive_gate(
            sqlite_store,
            "candidate",
            GateName.EXPOSURE,
            reason="a write key tries to waive a broken rail",
            by="bo",
            may_waive_harm=False,
            now=judged.it.world.clock(),
        )


def test_the_question_in_one_word_stands_for_faithfulness(sqlite_store: Store) -> None:
    judged = Judged.of(sqlite_store, "faithful", "answer_relevance")
    judged.run("candidate", LIES)
    judged.confirm("faithful")
    judged.confirm("answer_relevance")
    judged.expose()
    assert judged.gate().result is GateResult.PASS, judged.gate().reason
    assert judged.gate(GateName.EXPOSURE).result is GateResult.PASS
    judged.run("candidate", {*LIES, *KEYS[:80]})
    assert judged.gate().result is GateResult.FAIL
    assert judged.gate(GateName.EXPOSURE).guards[0].result is GateResult.FAIL


def test_what_is_asked_in_no_form_is_said_of_gate_and_guard_rail(sqlite_store: Store) -> None:
    judged = Judged.of(sqlite_store, "answer_relevance")
    judged.run("candidate", LIES)
    judged.confirm("answer_relevance")
    judged.expose()
    why = f"neither faithfulness nor faithful is asked by judge 'reader' ({BOTH})"
    assert judged.gate().result is GateResult.INCONCLUSIVE
    assert judged.gate().reason.startswith("no loss of more than 0.05 over 110 judged answers: answer_relevance")
    assert why in judged.gate().reason
    (rail,) = judged.gate(GateName.EXPOSURE).guards
    assert rail.reason == f"nothing is known of faithfulness: {why}: add one to its `questions`, and run again"
    assert judged.gate(GateName.EXPOSURE).result is GateResult.INCONCLUSIVE


@pytest.mark.parametrize(
    ("judges", "says"),
    [
        ((None, None), "of checks 'current' and 'candidate': name one as `judge` of each check, and run it"),
        (("reader", None), "of check 'candidate': name one as `judge` of the check, and run it"),
    ],
)
def test_a_gate_without_a_judge_says_which_check_has_none_and_what_to_do(
    judges: Sequence[str | None], says: str, sqlite_store: Store
) -> None:
    judged = Judged.of(sqlite_store, judges=judges)
    judged.run("candidate", LIES)
    assert judged.gate().reason == f"no judge rates the answers {says}"


def test_numbers_of_two_judges_are_not_compared(sqlite_store: Store) -> None:
    judged = Judged.of(sqlite_store, judges=("reader", "stranger"))
    judged.run("candidate", LIES)
    assert judged.gate().result is GateResult.INCONCLUSIVE
    assert judged.gate().reason.startswith(
        "faithfulness is rated by judge 'reader' (small) in check 'current' and by judge 'stranger' (small) in the "
    )
