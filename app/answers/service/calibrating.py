"""How far the labels of a task confirm its judge: computed when they change, and kept for rules, pages and reports."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from app.annotation.service.results import TaskGrades, coefficient_view, read_grades
from app.annotation.store import tasks as rows
from app.answers.domain.calibration import RateEstimate, estimate_rate, measure_judge
from app.answers.domain.judge_report import CalibrationBody, LengthBiasView, ProportionView, RateView
from app.answers.domain.length_bias import measure_length_bias
from app.answers.domain.prompts import Question
from app.answers.domain.quantiles import Proportion
from app.answers.service.drawing import PADDED_QUESTIONS
from app.answers.store import calibrations, draws
from app.answers.store.draws import DrawnVerdict, DrawRow
from app.base.db.engine import Store, to_us
from app.records.documents import number, rounded


def calibrate(store: Store, task_id: int, *, now: datetime) -> None:
    """Compute what the labels of a task say of its judge, and store it; nothing happens where nothing is drawn."""
    with store.read() as connection:
        task = rows.read_task(connection, task_id)
        draw = draws.find_draw(connection, task_id)
        if task is None or draw is None:
            return
        grades = read_grades(connection, task)
        verdicts = draws.list_verdicts(connection, task_id)
    body = _calibration(draw, grades, verdicts)
    with store.write() as connection:
        calibrations.save_calibration(
            connection,
            task_id,
            judge_id=draw.judge_id,
            measure=draw.question,
            model=draw.model,
            wording=draw.wording,
            body=body,
            at=to_us(now),
        )


def _calibration(draw: DrawRow, grades: TaskGrades, verdicts: Sequence[DrawnVerdict]) -> CalibrationBody:
    """Return what the labels say; drawn answers without a consensus are among the unlabelled ones."""
    labels = {one.item_id: grades.consensus(one.item_id).grade for one in verdicts}
    people = [bool(labels[one.item_id]) for one in verdicts if labels[one.item_id] is not None]
    judged = [one.value for one in verdicts if labels[one.item_id] is not None]
    others = [one.value for one in verdicts if labels[one.item_id] is None]
    unlabelled = [*others, *draw.rest]
    agreement = measure_judge(people, judged)
    bias = _length_bias(verdicts) if Question(draw.question) in PADDED_QUESTIONS else None
    return {
        "labels": len(people),
        "yes": sum(people),
        "unlabelled": len(unlabelled),
        "rate": _rate(estimate_rate(people, judged, unlabelled)),
        "kappa": coefficient_view(agreement.kappa),
        "sensitivity": proportion_view(agreement.sensitivity),
        "specificity": proportion_view(agreement.specificity),
        "calibrated": agreement.calibrated,
        "reason": agreement.reason,
        "length_bias": bias,
    }


def _length_bias(verdicts: Sequence[DrawnVerdict]) -> LengthBiasView:
    pairs = [(one.value >= 1, one.padded >= 1) for one in verdicts if one.padded is not None]
    bias = measure_length_bias([plain for plain, _ in pairs], [padded for _, padded in pairs])
    outcomes = Counter(one.padded_outcome for one in verdicts if one.padded_outcome is not None)
    return {
        "pairs": bias.pairs,
        "padded_only": bias.padded_only,
        "plain_only": bias.plain_only,
        "difference": number(bias.difference),
        "low": number(bias.low),
        "high": number(bias.high),
        "shown": bias.shown,
        "outcomes": dict(sorted(outcomes.items())),
    }


def _rate(one: RateEstimate) -> RateView:
    return {
        "value": number(one.value),
        "low": rounded(one.low),
        "high": rounded(one.high),
        "basis": str(one.basis),
        "reason": one.reason,
        "judge_rate": number(one.judge_rate),
    }


def proportion_view(one: Proportion) -> ProportionView:
    """Return a proportion as JSON on the wire."""
    return {
        "successes": one.successes,
        "count": one.count,
        "value": number(one.value),
        "low": rounded(one.low),
        "high": rounded(one.high),
    }
