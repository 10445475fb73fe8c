"""Errors of people who label answers: told by answers that two of them labelled, and not laid to the judge."""

import json

import pytest
import sqlalchemy as sa

from app.annotation.service import annotations
from app.answers.domain.labellers import (
    FEWEST_TWICE,
    SaidOfAnswer,
    agree_no_better,
    measure_labellers,
)
from app.answers.service import labels
from app.answers.tables import calibrations
from app.answers.views import MeasureTrust
from app.base.db.engine import Store
from benchmarks.judge import Judge, People, measure_people
from tests.support.labelled_answers import TASK, Labelled
from tests.support.pages_service import Site
from tests.support.present import present

FAIR = Judge(sensitivity=0.92, specificity=0.85)


def said(judge: int, *people: int, times: int = 1, decision: int | None = None) -> list[SaidOfAnswer]:
    one = SaidOfAnswer(
        judge=bool(judge), people=[*map(bool, people)], decision=None if decision is None else bool(decision)
    )
    return [one] * times


def test_answers_with_two_labels_are_counted_whatever_was_decided() -> None:
    found = measure_labellers([
        *said(1, 1, times=50), *said(0, 0, times=20), *said(1, 1, 1, times=20), *said(0, 0, 0, times=6),
        *said(1, 1, 0, times=3, decision=1), *said(1, 0, 1, 1),
    ])  # fmt: skip
    assert (found.twice, found.differ) == (30, 4)
    assert 0 < present(found.kappa.value) < 0.8
    low, value, high = present(found.wrong.low), present(found.wrong.value), present(found.wrong.high)
    assert low < 2 / 30 < high
    assert value == pytest.approx(2 / 30, abs=0.04), "of two labels that differ one is wrong"


def test_of_few_answers_with_two_labels_nothing_is_concluded() -> None:
    found = measure_labellers([*said(1, 1, times=90), *said(0, 1, 0, times=FEWEST_TWICE - 1)])
    assert (found.twice, found.differ) == (9, 9)
    assert found.wrong.value is found.passing.value is None
    nothing = measure_labellers([])
    assert (nothing.twice, nothing.kappa.value, nothing.passing.value) == (0, None, None)


def test_the_same_labels_give_the_same_interval() -> None:
    answers = [*said(1, 1, times=80), *said(0, 0, 0, times=20), *said(1, 0, 1, times=3)]
    assert measure_labellers(answers) == measure_labellers(answers)


def test_what_people_get_wrong_is_not_told_as_bad_answers_that_pass() -> None:
    """With 6 and 9 % of wrong labels: by the labels .29 pass, while the judge lets .15 pass."""
    found = measure_people(FAIR, People(), repetitions=60)
    assert found.by_labels > found.truth + 0.1
    assert found.plain_covers < 0.5, "the exact interval of what people refuse"
    assert found.covers >= 0.9
    assert found.value == pytest.approx(found.truth, abs=0.05)


def test_a_judge_that_lets_bad_answers_pass_is_found_where_people_do_not_err() -> None:
    found = measure_people(Judge(sensitivity=0.92, specificity=0.6), People(wrong=(0.0, 0.0)), repetitions=40)
    assert found.covers >= 0.85
    assert found.value == pytest.approx(0.4, abs=0.06)


@pytest.mark.parametrize(
    ("differ", "own", "kappa", "no_better"),
    [
        (5, 0.146, 0.46, True),
        (5, 0.46, 0.46, True),
        (5, 0.7, 0.46, False),
        (0, None, 0.46, False),
        (5, 0.1, None, False),
    ],
)
def test_people_agree_no_better_with_each_other_where_their_kappa_is_no_higher(
    differ: int, own: float | None, kappa: float | None, no_better: object
) -> None:
    shown = {"value": own, "low": None, "high": None}
    none = {"value": None, "low": None, "high": None}
    found = {"twice": 21, "differ": differ, "kappa": shown, "wrong": none, "passing": none}
    assert agree_no_better(found, kappa) is no_better  # type: ignore[arg-type] # a view by its fields
    assert not agree_no_better(found | {"twice": 9}, kappa)  # type: ignore[arg-type]
    assert not agree_no_better(None, kappa)


def trust(it: Labelled) -> MeasureTrust:
    """Return what the report of the judge says of its measure."""
    [measure] = labels.load_report(it.store, "reader", now=it.it.world.clock())["measures"]
    return measure


@pytest.mark.both
def test_the_report_of_a_judge_says_how_often_two_labels_differ(store: Store) -> None:
    it = Labelled.of(store)
    it.put(overlap=1.0)
    it.draw()
    it.label("Ann")
    it.label("Bob", wrong=2)
    found = present(trust(it)["calibration"])
    people = present(found["labellers"])
    assert (people["twice"], people["differ"]) == (20, 2)
    told = "Of 20 answers labelled by two people, 2 got two labels: where people err, this counts against the judge."
    assert any(one.startswith(told) for one in trust(it)["sentences"])
    low, high = present(people["passing"]["low"]), present(people["passing"]["high"])
    interval = f"{100 * low:.0f} to {100 * high:.0f} of 100 bad answers pass it."
    assert interval in Site(world=it.it.world).page("/judges/reader").text
    for one in annotations.list_disagreements(store, "labels"):
        annotations.adjudicate(store, "labels", one["id"], grade=1, by="Ada", now=it.it.world.clock())
    labels.calibrate(store, it.task().id, now=it.it.world.clock())
    assert present(present(trust(it)["calibration"])["labellers"])["differ"] == 2, "a decision is no agreement"


def test_labels_that_an_earlier_release_counted_say_it_too(sqlite_store: Store) -> None:
    it = Labelled.of(sqlite_store)
    it.put(overlap=1.0)
    it.draw()
    it.label("Ann")
    it.label("Bob", wrong=2)
    before = trust(it)
    body = {name: value for name, value in it.calibration().items() if name != "labellers"}
    with sqlite_store.write() as connection:
        connection.execute(sa.update(calibrations).values(body=json.dumps(body)))
    assert trust(it) == before


def test_where_people_agree_no_better_the_judge_is_not_to_be_replaced(sqlite_store: Store) -> None:
    it = Labelled.of(sqlite_store)
    it.put(overlap=1.0, answers={**TASK["answers"], "count": 30})
    it.draw()
    for name in ("Ann", "Bob", "Cal"):
        it.label(name, wrong=9)
    for place, one in enumerate(annotations.list_disagreements(sqlite_store, "labels")):
        grade = int((one["query"] not in it.lies) == bool(place % 4))
        annotations.adjudicate(sqlite_store, "labels", one["id"], grade=grade, by="Ada", now=it.it.world.clock())
    labels.calibrate(sqlite_store, it.task().id, now=it.it.world.clock())
    measure = trust(it)
    found = present(measure["calibration"])
    people = present(found["labellers"])
    assert people["differ"] > 0
    assert present(people["kappa"]["value"]) <= present(found["kappa"]["value"])
    assert not measure["calibrated"]
    assert found["reason"].endswith("people agree with each other no better")
    assert measure["sentences"][1].startswith("People agree with each other less than with the judge: kappa ")
    assert measure["next"].startswith("Draw answers in a new task with an overlap of 1")
    assert "Try another model" not in Site(world=it.it.world).page("/judges/reader").text


def test_it_is_said_when_no_rated_answer_is_left_to_label(sqlite_store: Store) -> None:
    it = Labelled.of(sqlite_store)
    it.put(answers={**TASK["answers"], "count": 30})
    it.draw()
    it.label(most=12)
    assert "18 answers that task labels has left" in trust(it)["next"]
    it.label()
    assert trust(it)["next"].startswith("Wait until new runs bring answers, and draw anew: about 100 labels are needed")
    assert "the judge has rated 30 answers so far." in trust(it)["next"]
    it.it.ask_answers.texts = {key: f"Another word about {key}." for key in it.it.ask_answers.texts}
    it.it.world.clock.advance(86_400)
    it.it.run()
    assert "the judge has rated 40 answers so far." in trust(it)["next"]
