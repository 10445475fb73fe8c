"""Sentences about a judge: what people confirm of it, its errors, length, and what to do next."""

from typing import Any, cast

import pytest

from app.annotation.domain.agreement import Coefficient
from app.answers.domain.trust import CalibrationBody, LengthBiasView, decide_calibration, next_step, trust_sentences


def bias(**changes: Any) -> LengthBiasView:
    """Give a length bias that is not shown."""
    found: dict[str, Any] = {"pairs": 100, "padded_only": 5, "plain_only": 3, "difference": 0.02, "low": -0.04}
    found |= {"high": 0.08, "shown": False, "outcomes": {"ok": 100}, **changes}
    return cast("LengthBiasView", found)


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
        **changes,
    }
    return cast("CalibrationBody", found)


def uncalibrated(kappa: float | None, low: float | None, high: float | None, *, labels: int = 200) -> dict[str, Any]:
    """Give what differs of a judge with such a kappa, and the reason that is decided of it."""
    _, reason = decide_calibration(Coefficient(value=kappa, low=low, high=high), labels)
    found = {"value": kappa, "low": low, "high": high}
    return {"calibrated": False, "labels": labels, "kappa": found, "reason": reason}


def test_a_judge_without_labels_is_a_hint_only() -> None:
    [sentence] = trust_sentences(None)
    assert sentence.startswith("Uncalibrated: people have labelled no answers")
    assert next_step(None) == "Draw about 200 answers below and let people label them."


def test_rate_errors_and_length_are_said_in_order() -> None:
    state, rate, accepts, refuses, length = trust_sentences(calibration())
    assert state.startswith("Calibrated: people and judge agree well beyond chance (kappa 0.70 over 200 labels")
    assert "People would say yes of 80 % of the answers, between 75 % and 85 %" in rate
    dated = trust_sentences(calibration(), drawn="2026-11-30")[1]
    says = "80 % of the answers that the judge rated, drawn on 2026-11-30, between 75 % and 85 %"
    assert says in dated, "not of those that came since, nor of those that it refused"
    assert "the judge alone says 88 %, outside of that, so use the first number and not the judge's own." in rate
    assert accepts == "It accepts 155 of 160 answers that people accept (93 % to 99 %)."
    assert (
        refuses
        == "It refuses 28 of 40 answers that people refuse (53 % to 83 %), so about 30 of 100 bad answers pass it."
    )
    assert length.startswith("No effect of length is shown")
    assert "+2 points (95 % interval \N{MINUS SIGN}4 to +8, 100 pairs" in length


def test_a_measure_that_length_cannot_bias_says_nothing_of_it() -> None:
    assert len(trust_sentences(calibration(length_bias=None))) == 4


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({}, "Nothing for now."),
        ({"length_bias": bias(shown=True, low=0.01)}, "Compare only answers of similar length"),
        ({"labels": 60}, "Label 40 more answers"),
        (uncalibrated(0.35, 0.25, 0.45), "Try another model"),
        (uncalibrated(0.35, 0.15, 0.55, labels=60), "Label about 140 more answers."),
        (uncalibrated(0.45, 0.31, 0.58), "Label more answers, or try another model."),
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
