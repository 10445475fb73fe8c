"""Tasks of answers: drawn from what a judge rated, labelled blind, and what the labels say of the judge."""

import io
from collections.abc import Mapping
from typing import Any

import pytest

from app.annotation.service import annotations, results, tasks
from app.answers.domain.judges import JudgeOutcome
from app.answers.service import answering, labels
from app.answers.store import answer_rows as rows
from app.base.db.engine import Store
from app.base.errors import ConflictError, InvalidInputError
from app.base.jobs import at_hand
from app.base.jobs.values import JobKind
from app.base.texts import Source
from app.reports.metrics import state_families
from app.reports.service.metrics_snapshot import read_state
from tests.support.answered_world import JUDGE, answered_world, answers_page
from tests.support.labelled_answers import KEYS, TASK, Labelled
from tests.support.pages_service import Site
from tests.support.present import present

RULE = {"kind": "threshold", "measure": "faithful", "critical": {"below": 0.9}, "open": {"bad": 1, "of": 1}, "close": 1}


@pytest.mark.both
def test_people_label_answers_with_their_contexts_and_without_the_verdict(store: Store) -> None:
    it = Labelled.of(store)
    it.put()
    it.draw()
    view = tasks.load_task(store, "labels")
    assert (view["state"], view["items"], view["scale"]) == ("pooled", 20, "0-1")
    item = present(annotations.next_item(store, "labels", annotator="Ann", now=it.it.world.clock())["item"])
    context = present(item["answer"])
    assert context["question"] == "Are all claims of the answer supported by the chunks?"
    assert context["contexts"] == [
        f"The notice period is 30 days for all employees. This is about {item['query']}.",
        "Nothing else here.",
    ]
    assert item["text"] in (context["contexts"][0], f"A lie about {item['query']}.")
    assert context["expected_answer"] is None
    assert "1.0" not in str(item)
    with pytest.raises(InvalidInputError, match="at most 1"):
        annotations.annotate(store, "labels", item["id"], annotator="Ann", grade=2, now=it.it.world.clock())


@pytest.mark.both
def test_labels_say_how_far_the_judge_agrees_with_people(store: Store) -> None:
    it = Labelled.of(store)
    it.put(answers={**TASK["answers"], "count": 30})
    it.draw()
    assert it.label(wrong=3) == 30
    found = it.calibration()
    assert (found["labels"], found["unlabelled"]) == (30, 0)
    assert found["rate"]["basis"] == "people"
    assert found["rate"]["judge_rate"] == pytest.approx(2 / 3, abs=1e-4)
    assert found["sensitivity"]["count"] + found["specificity"]["count"] == 30
    assert present(found["kappa"]["value"]) == pytest.approx(0.79, abs=0.05)
    assert found["calibrated"]


def test_answers_that_are_not_labelled_yet_count_as_unlabelled(sqlite_store: Store) -> None:
    it = Labelled.of(sqlite_store)
    it.put()
    it.draw()
    it.label(most=12)
    found = it.calibration()
    assert (found["labels"], found["unlabelled"]) == (12, 8 + 10)


@pytest.mark.parametrize("people", [("Ann",), ("Ann", "Bob")])
def test_labels_of_one_person_cannot_tell_whose_error_it_is(sqlite_store: Store, people: tuple[str, ...]) -> None:
    it = Labelled.of(sqlite_store)
    it.put(overlap=1.0)
    it.draw()
    for name in people:
        it.label(name, wrong=20)
    labels.calibrate(sqlite_store, it.task().id, now=it.it.world.clock())
    [measure] = labels.load_report(sqlite_store, "reader", now=it.it.world.clock())["measures"]
    told = "All labels are of Ann, and nobody checked them: whether the judge errs or Ann is not known."
    assert "people and judge agree too little" in measure["sentences"][0]
    if len(people) == 1:
        assert told in measure["sentences"]
        assert measure["next"].startswith("Let a second person label a part, as by a task with overlap")
    else:
        assert told not in measure["sentences"]
        assert measure["next"].startswith("Try another model")


def test_archiving_a_task_of_answers_says_that_its_labels_count_no_more(sqlite_store: Store) -> None:
    it = Labelled.of(sqlite_store)
    it.put()
    it.draw()
    page = Site(world=it.it.world).page("/tasks/labels").text
    assert "Labelling ends, and its labels count no more for judge reader" in page
    assert "estimates of recall" not in page


def test_two_people_who_disagree_wait_for_a_decision(sqlite_store: Store) -> None:
    it = Labelled.of(sqlite_store)
    it.put(overlap=1.0)
    it.draw()
    it.label("Ann")
    it.label("Bob", wrong=4)
    assert (it.calibration()["labels"], it.calibration()["disputed"]) == (16, 4)
    disputed = annotations.list_disagreements(sqlite_store, "labels")
    assert len(disputed) == 4
    now = it.it.world.clock()
    annotations.adjudicate(sqlite_store, "labels", disputed[0]["id"], grade=1, by="Ada", now=now)
    labels.calibrate(sqlite_store, it.task().id, now=now)
    assert (it.calibration()["labels"], it.calibration()["disputed"]) == (17, 3)
    agreement = results.load_agreement(sqlite_store, "labels")
    assert (agreement["items"], agreement["raw"]["value"]) == (20, 0.8)


def test_a_rule_is_critical_once_people_confirm_the_judge(sqlite_store: Store) -> None:
    it = Labelled.of(sqlite_store, rules=[RULE])
    [alert] = it.it.world.alerts()
    assert (alert["severity"], "(uncalibrated)" in alert["reason"]) == ("warning", True)
    assert answering.answers_of_run(sqlite_store, str(it.it.run()))["confirmed"] == []
    it.put()
    it.draw()
    it.label()
    run_id = it.it.run()
    [alert] = it.it.world.alerts()
    assert (alert["severity"], "(uncalibrated)" in alert["reason"]) == ("critical", False)
    assert answering.answers_of_run(sqlite_store, str(run_id))["confirmed"] == ["faithful"]


def test_metrics_say_whether_people_confirmed_a_judge(store: Store) -> None:
    def exposed() -> dict[tuple[str, str], float]:
        families = {one.name: one for one in state_families(read_state(store))}
        return {
            (one.labels["judge"], one.labels["measure"]): one.value
            for one in families["coalmine_judge_calibrated"].samples
        }

    it = Labelled.of(store)
    assert exposed() == {("reader", "faithful"): 0}
    it.put()
    it.draw()
    it.label()
    assert exposed() == {("reader", "faithful"): 1}


def test_the_report_of_a_judge_says_how_far_to_trust_it(sqlite_store: Store) -> None:
    it = Labelled.of(sqlite_store)
    [trust] = labels.load_report(sqlite_store, "reader", now=it.it.world.clock())["measures"]
    assert (trust["calibrated"], trust["calibration"]) == (False, None)
    assert trust["next"] == "Draw about 200 answers below and let people label them."
    it.put()
    it.draw()
    it.label()
    report = labels.load_report(sqlite_store, "reader", now=it.it.world.clock())
    [trust] = report["measures"]
    assert (report["calibrated"], trust["calibrated"]) == (True, True)
    assert trust["sentences"][0].startswith(
        "Calibrated: people and judge agree well beyond chance (kappa 1.00 over 20 labels"
    )
    assert present(trust["calibration"])["task"] == "labels"
    assert report["today"]["calls"] == 30 + 20, "each answer, and the drawn ones padded"
    assert report["checks"] == ["watch"]
    it.draw()
    assert labels.load_report(sqlite_store, "reader", now=it.it.world.clock())["today"]["calls"] == 50


def test_another_model_has_to_be_confirmed_anew(sqlite_store: Store) -> None:
    it = Labelled.of(sqlite_store)
    it.put()
    it.draw()
    it.label()
    with sqlite_store.read() as connection:
        assert rows.calibrated_judges(connection) == {("reader", "faithful"): (True, False)}
    changed = answers_page(KEYS)
    it.it.world.apply({**changed, "judges": [{**JUDGE, "model": "large"}]})
    with sqlite_store.read() as connection:
        assert rows.calibrated_judges(connection) == {("reader", "faithful"): (False, False)}
    it.put(slug="again")
    it.draw("again")
    assert tasks.load_task(sqlite_store, "again")["items"] == 0, "the new model has rated nothing yet"
    it.it.run()
    it.draw("again")
    assert tasks.load_task(sqlite_store, "again")["items"] == 20


def test_a_judge_that_likes_long_answers_is_found_out(sqlite_store: Store) -> None:
    it = Labelled.of(sqlite_store)
    it.it.judge.no.clear()
    it.it.judge.no_below = 60
    it.put()
    it.draw()
    labels.calibrate(sqlite_store, it.task().id, now=it.it.world.clock())
    with sqlite_store.read() as connection:
        verdicts = rows.list_verdicts(connection, it.task().id)
    assert {one.padded_outcome for one in verdicts} == {"ok"}
    bias = present(it.calibration()["length_bias"])
    assert bias["shown"]
    assert (bias["pairs"], bias["padded_only"] > 0, bias["plain_only"]) == (20, True, 0)


@pytest.mark.both
def test_padded_answers_over_budget_are_asked_about_when_drawn_again(store: Store) -> None:
    it = Labelled.of(store)
    it.it.judge.outcome = JudgeOutcome.OVER_BUDGET
    it.put()
    it.draw()
    labels.calibrate(store, it.task().id, now=it.it.world.clock())
    assert present(it.calibration()["length_bias"])["outcomes"] == {"over_budget": 20}
    it.it.judge.outcome = None
    it.draw()
    labels.calibrate(store, it.task().id, now=it.it.world.clock())
    assert present(it.calibration()["length_bias"])["pairs"] == 20


@pytest.mark.databases
def test_labels_are_counted_soon_after_the_last(sqlite_store: Store) -> None:
    it = Labelled.of(sqlite_store)
    it.put()
    it.draw()
    it.label(most=1)
    with sqlite_store.read() as connection:
        now = it.it.world.clock.advance(60)
        assert at_hand(connection, [JobKind.CALIBRATION], int(now.timestamp() * 1e6)) == {it.task().id}
        assert at_hand(connection, [JobKind.RECALL], int(now.timestamp() * 1e6)) == set()


def test_labels_travel_as_csv(sqlite_store: Store) -> None:
    it = Labelled.of(sqlite_store)
    it.put()
    it.draw()
    it.label()
    text = annotations.export_annotations(sqlite_store, "labels")
    it.put(slug="copy")
    it.draw("copy")
    source = Source(name="labels.csv", lines=lambda: io.StringIO(text))
    count = annotations.import_annotations(sqlite_store, "copy", [source], now=it.it.world.clock())
    assert count == 20


def test_labels_of_answers_are_neither_judgments_nor_recall(sqlite_store: Store) -> None:
    it = Labelled.of(sqlite_store)
    it.put()
    it.draw()
    with pytest.raises(ConflictError, match="judgments are of chunks"):
        annotations.adopt(sqlite_store, "labels", now=it.it.world.clock())
    with pytest.raises(ConflictError, match="no recall"):
        results.load_recall(sqlite_store, "labels")


def test_a_task_that_cannot_be_is_refused(sqlite_store: Store) -> None:
    it = Labelled(it=answered_world(sqlite_store, answers_page(["ant"])))
    cases: list[tuple[Mapping[str, Any], str]] = [
        ({"answers": None}, "retrievers"),
        ({"retrievers": ["search"]}, "retrievers"),
        ({"scale": "0-2"}, "scale"),
        ({"corpus": "all"}, "corpus"),
        ({"answers": {"judge": "nobody", "question": "faithful"}}, "answers.judge"),
        ({"answers": {"judge": "reader", "question": "beauty"}}, "answers.question"),
    ]
    for change, path in cases:
        with pytest.raises(InvalidInputError) as refused:
            it.put(**change)
        assert [problem.path for problem in refused.value.problems] == [path]
