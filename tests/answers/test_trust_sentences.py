"""Sentences about a judge: what people confirm of it, its errors, length, and what to do next."""

from typing import Any, cast

import pytest

from app.annotation.domain.agreement import Coefficient
from app.annotation.views import CoefficientView
from app.answers.domain.labellers import FEWEST_TWICE, LabellersView
from app.answers.domain.sentences import LabelRoom, next_step, trust_sentences
from app.answers.domain.trust import CalibrationBody, LengthBiasView, decide_calibration, measure_judge


def bias(**changes: Any) -> LengthBiasView:
    """Give a length bias that is not shown."""
    found: dict[str, Any] = {"pairs": 100, "padded_only": 5, "plain_only": 3, "difference": 0.02, "low": -0.04}
    found |= {"high": 0.08, "shown": False, "outcomes": {"ok": 100}, **changes}
    return cast("LengthBiasView", found)


def labellers(twice: int = 40, differ: int = 0, kappa: float | None = 1.0) -> LabellersView:
    """Give what answers with two labels say of people; of fewer than ten they say nothing."""
    none: CoefficientView = {"value": None, "low": None, "high": None}
    passing: CoefficientView = {"value": 0.18, "low": 0.052, "high": 0.334}
    wrong: CoefficientView = {"value": 0.06, "low": 0.02, "high": 0.12}
    known = twice >= FEWEST_TWICE
    return {
        "twice": twice,
        "differ": differ,
        "kappa": {"value": kappa, "low": None, "high": None},
        "wrong": wrong if known else none,
        "passing": passing if known else none,
    }


def calibration(**changes: Any) -> CalibrationBody:
    """Give the calibration of a good judge over 200 labels."""
    found: dict[str, Any] = {
        "labels": 200,
        "yes": 160,
        "disputed": 0,
        "unlabelled": 1_800,
        "rate": {
            "value": 0.8,
            "low": 0.75,
            "high": 0.85,
            "basis": "people_and_judge",
            "reason": "200 labels correct the judge's verdicts on 1800 more answers",
            "judge_rate": 0.88,
        },
        "kappa": {"value": 0.7, "low": 0.6, "high": 0.8},
        "sensitivity": {"successes": 155, "count": 160, "value": 0.97, "low": 0.93, "high": 0.99},
        "specificity": {"successes": 28, "count": 40, "value": 0.7, "low": 0.53, "high": 0.83},
        "calibrated": True,
        "reason": "kappa 0.70 over 200 labels, lower bound 0.60; 0.4 is needed",
        "length_bias": bias(),
        "labellers": labellers(),
        "checks": [],
        **changes,
    }
    return cast("CalibrationBody", found)


def uncalibrated(
    kappa: float | None,
    low: float | None,
    high: float | None,
    *,
    labels: int = 200,
    labellers: LabellersView | None = None,
) -> dict[str, Any]:
    """Give what differs of a judge with such a kappa, and the reason that is decided of it."""
    _, reason = decide_calibration(Coefficient(value=kappa, low=low, high=high), labels, labellers=labellers)
    found = {"value": kappa, "low": low, "high": high}
    return {"calibrated": False, "labels": labels, "kappa": found, "reason": reason}


def test_a_judge_without_labels_is_a_hint_only() -> None:
    [sentence] = trust_sentences(None)
    assert sentence.startswith("Uncalibrated: people have labelled no answers")
    assert next_step(None) == "Draw about 200 answers below and let people label them."


def test_rate_errors_and_length_are_said_in_order() -> None:
    state, rate, accepts, refuses, passing, length = trust_sentences(calibration())
    assert state.startswith("Calibrated: people and judge agree well beyond chance (kappa 0.70 over 200 labels")
    assert "People would say yes of 80 % of the answers, between 75 % and 85 %" in rate
    dated = trust_sentences(calibration(), drawn="2026-11-30")[1]
    says = "80 % of the answers that the judge rated, drawn on 2026-11-30, between 75 % and 85 %"
    assert says in dated, "not of those that came since, nor of those that it refused"
    assert "the judge alone says 88 %, outside of that, so use the first number and not the judge's own." in rate
    assert accepts == "It accepts 155 of 160 answers that people accept (93 % to 99 %)."
    assert refuses == "It refuses 28 of 40 answers that people refuse (53 % to 83 %)."
    assert passing == (
        "Of 40 answers labelled by two people, none got two labels, which shows no errors of people: "
        "5 to 33 of 100 bad answers pass it."
    )
    assert length.startswith("No effect of length is shown")
    assert "+2 points (95 % interval \N{MINUS SIGN}4 to +8, 100 pairs" in length


def test_a_measure_that_length_cannot_bias_says_nothing_of_it() -> None:
    assert len(trust_sentences(calibration(length_bias=None))) == 5


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            labellers(36, 4, 0.705),
            "Of 36 answers labelled by two people, 4 got two labels: where people err, this",
        ),
        (
            labellers(0),
            "How often people err is not known, since no answer was labelled by two of them: where",
        ),
        (labellers(1), "How often people err is not known, since only 1 answer was labelled by two of them"),
        (labellers(9, 3, 0.1), "How often people err is not known, since only 9 answers were labelled by two of them"),
        (None, "How often people err is not known, since no answer was labelled by two of them"),
    ],
)
def test_errors_of_people_are_not_told_as_bad_answers_that_pass_the_judge(
    found: LabellersView | None, said: str
) -> None:
    sentences = trust_sentences(calibration(labellers=found))
    [people] = [one for one in sentences if "where people err" in one or "where they err" in one]
    assert people.startswith(said)
    assert "about 30 of 100 bad answers" not in " ".join(sentences)
    plain = "It refuses 28 of 40 answers that people refuse (53 % to 83 %), so 17 to 47 of 100 of these pass it."
    assert (plain in sentences) == (found is None or found["twice"] < FEWEST_TWICE)


def test_who_labelled_alone_is_told_once() -> None:
    sentences = trust_sentences(calibration(labellers=labellers(0), **uncalibrated(0.1, -0.1, 0.3)), lone="Ann")
    assert sum("not known" in one for one in sentences) == 1


@pytest.mark.parametrize(("differ", "corrects", "told"), [(4, 1, 1), (4, 0, 0), (0, 1, 0)])
def test_that_corrected_rates_lean_on_labels_with_errors_is_said_once(differ: int, corrects: int, told: int) -> None:
    checks = [{"check": name, "corrects": bool(corrects)} for name in ("a", "b")]
    sentences = trust_sentences(calibration(labellers=labellers(36, differ, 0.7), checks=checks))
    assert sum("Corrected rates of runs lean on these labels: where people err" in one for one in sentences) == told


@pytest.mark.parametrize(
    ("own", "than", "disputed"),
    [(0.146, "less than with the judge: kappa 0.15", 0), (0.46, "as little as with the judge: kappa 0.46", 5)],
)
def test_a_judge_is_not_blamed_where_people_agree_with_each_other_no_better(
    own: float, than: str, disputed: int
) -> None:
    people = labellers(21, 5, own)
    found = calibration(
        labellers=people, disputed=disputed, **uncalibrated(0.46, 0.30, 0.6, labels=173, labellers=people)
    )
    sentences = trust_sentences(found)
    assert sentences[0] == (
        "Uncalibrated: kappa 0.46 over 173 labels, lower bound 0.30, below 0.4: people agree with each other no better."
    )
    assert sentences[1].startswith(f"People agree with each other {than} over 21 answers that two labelled.")
    nobody = "Nobody can tell which of them errs before a third person decides where two differ."
    assert (nobody in sentences[1]) == bool(disputed)
    assert "Try another model" not in next_step(found)
    third = "so that two people label each, and let a third person decide where they differ."
    assert next_step(found).endswith("each becomes a label." if disputed else third)
    better = labellers(21, 2, 0.7)
    poor = calibration(labellers=better, **uncalibrated(0.2, 0.1, 0.3, labels=173, labellers=better))
    assert next_step(poor).startswith("Try another model"), "people agree with each other better than with this judge"


def test_a_calibrated_judge_that_agrees_better_than_people_stays_calibrated_and_says_so() -> None:
    found = calibration(labellers=labellers(30, 5, 0.6))
    state, people, *_ = trust_sentences(found)
    assert state.startswith("Calibrated: ")
    assert people.startswith("People agree with each other less than with the judge: kappa 0.60 over 30 answers")
    assert next_step(found).startswith("Nothing for now.")


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({}, "Nothing for now."),
        ({"length_bias": bias(shown=True, low=0.01)}, "Compare only answers of similar length"),
        ({"labels": 60}, "Label 40 more answers"),
        (uncalibrated(0.35, 0.25, 0.45), "Try another model"),
        (uncalibrated(0.35, 0.15, 0.55, labels=60), "Label about 140 more answers."),
        (uncalibrated(0.45, 0.31, 0.58), "Try another model: about 1,600 labels are needed at a kappa of 0.45, and a"),
        (uncalibrated(0.5, 0.38, 0.6), "Label about 90 more answers: about 290 labels are needed at a kappa of 0.50."),
        (
            uncalibrated(0.6, 0.2, 0.8, labels=60),
            "Label about 180 more answers: about 240 labels are needed at a kappa",
        ),
        (uncalibrated(0.41, 0.3, 0.5), "Try another model: about 25,000 labels are needed at a kappa of 0.41, and a"),
        (uncalibrated(None, None, None), "Label more answers, or try another model."),
        (uncalibrated(0.1, -0.1, 0.3, labels=60), "Try another model"),
    ],
)
def test_what_to_do_next_follows_from_what_is_known(changes: dict[str, Any], step: str) -> None:
    found = calibration(**changes)
    assert next_step(found).startswith(step)
    given_up = "people and judge agree too little"
    assert (given_up in next_step(found)) == (given_up in found["reason"]), "one decision for both sentences"


@pytest.mark.parametrize(
    ("accepted", "kappa", "step"),
    [
        (
            181,
            "0.38",
            "Label about 170 more answers: about 370 labels are needed. Only 11 of 200 labels are no, too few",
        ),
        (
            185,
            "0.47",
            "Label about 170 more answers: about 370 labels are needed. Only 11 of 200 labels are no, too few",
        ),
    ],
)
def test_few_bad_answers_do_not_show_that_another_model_is_needed(accepted: int, kappa: str, step: str) -> None:
    judged = [*([1.0] * accepted), *([0.0] * (189 - accepted)), *([0.0] * 5), *([1.0] * 6)]
    measured = measure_judge([True] * 189 + [False] * 11, judged)
    assert measured.reason.startswith(f"kappa {kappa} over 200 labels, lower bound 0.")
    assert measured.reason.endswith("below 0.4: more labels may show more")
    of_kappa = {name: getattr(measured.kappa, name) for name in ("value", "low", "high")}
    found = calibration(calibrated=False, labels=200, yes=189, kappa=of_kappa, reason=measured.reason)
    assert next_step(found).startswith(step)


def test_wrong_labels_are_mended_before_a_model_is_given_up() -> None:
    found = calibration(yes=130, **uncalibrated(0.46, 0.30, 0.6, labels=173))
    assert next_step(found).startswith("Try another model: about 1,300 labels are needed")
    assert next_step({**found, "labellers": labellers(36, 4, 0.7)}) == (
        "Let two people label each answer, as by a new task with an overlap of 1, before you try another model: wrong "
        "labels lower kappa. Now about 1,300 labels are needed at a kappa of 0.46, and a task has 1,000 at most."
    )


def test_kappa_below_what_is_needed_is_not_mended_by_labels() -> None:
    found = calibration(**uncalibrated(0.35, 0.15, 0.55, labels=60))
    assert next_step(found).endswith(" At a kappa of 0.35 no number of labels is enough, but it may be higher.")


@pytest.mark.parametrize(
    ("of", "left", "rated", "step"),
    [
        (
            {"yes": 130, **uncalibrated(0.46, 0.30, 0.6, labels=173)},
            0,
            173,
            (
                "Try another model: about 1,300 labels are needed at a kappa of 0.46, and a task has 1,000 at most. "
                "All 173 answers that the judge has rated are labelled, so new runs have to bring others."
            ),
        ),
        (
            uncalibrated(0.5, 0.38, 0.6),
            0,
            220,
            (
                "Wait until new runs bring answers, and draw anew: about 290 labels are needed at a kappa of 0.50, and "
                "the judge has rated 220 answers so far."
            ),
        ),
        (
            uncalibrated(0.5, 0.38, 0.6),
            20,
            220,
            (
                "Label the 20 answers that task labels has left: about 290 labels are needed at a kappa of 0.50, and "
                "the judge has rated 220 answers so far."
            ),
        ),
        (
            uncalibrated(0.5, 0.38, 0.6),
            0,
            900,
            (
                "Draw about 290 answers in a new task below: so many labels are needed at a kappa of 0.50, "
                "task labels has none left, and labels of two tasks are not added up."
            ),
        ),
        (
            uncalibrated(None, None, None),
            0,
            200,
            (
                "Label more answers, or try another model. All 200 answers that the judge has rated are labelled, "
                "so new runs have to bring others."
            ),
        ),
        ({"labels": 60}, 40, 100, "Label 40 more answers for a narrower interval of the rate."),
    ],
)
def test_where_the_answers_to_label_come_from(of: dict[str, Any], left: int, rated: int, step: str) -> None:
    assert next_step(calibration(**of), room=LabelRoom(task="labels", open=left, rated=rated)) == step


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.1, 0.35, "long answers: padded with true sentences, the same answers get YES more often"),
        (-0.35, -0.1, "short answers: padded with true sentences, the same answers get YES less often"),
    ],
)
def test_a_judge_that_prefers_some_length_is_called_so(low: float, high: float, said: str) -> None:
    found = bias(shown=True, difference=0.2 if low > 0 else -0.2, low=low, high=high)
    sentence = trust_sentences(calibration(length_bias=found))[-1]
    assert sentence == f"It prefers {said} by 20 points (95 % interval 10 to 35, 100 pairs)."


@pytest.mark.parametrize("labels", [150, 0])
def test_disputed_answers_are_told_and_to_be_decided_first(labels: int) -> None:
    found = calibration(labels=labels, disputed=46)
    told = "46 answers are disputed and left out until somebody decides, since people disagree on them"
    ending = "; what is told here is of easier ones." if labels else "."
    assert f"{told}{ending}" in trust_sentences(found)
    assert next_step(found) == "Decide on the 46 disputed answers of the task: each becomes a label."
    assert not any("disputed" in one for one in trust_sentences(calibration(labels=labels)))
    (alone, *_) = [one for one in trust_sentences(calibration(disputed=1)) if "disputed" in one]
    assert alone.startswith("1 answer is disputed and left out until somebody decides, since people disagree on it;")


def test_labels_of_an_archived_task_are_not_told_as_never_given() -> None:
    [said] = trust_sentences(None, archived={"lab1": 240})
    assert said == "Uncalibrated, a hint only: 240 labels of archived task lab1 no longer count."


def test_a_lower_bound_just_below_what_is_needed_is_not_rounded_up_to_it() -> None:
    told = decide_calibration(Coefficient(value=0.57, low=0.397, high=0.7), 200)
    assert told == (False, "kappa 0.57 over 200 labels, lower bound 0.39, below 0.4: more labels may show more")
