"""What the gates of a promotion read: a comparison, judged answers and an experiment, as they stand now."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from app.answers.domain.prompts import Question
from app.answers.domain.views import AnswerView
from app.answers.service.answer_views import answers_of_run
from app.base.db.engine import Store
from app.base.errors import ConflictError, NotFoundError
from app.base.number_text import percent_text, ratio_text
from app.comparison.domain.estimates import Estimate, estimate
from app.comparison.service import comparisons
from app.experiments.documents.experiment_documents import ExperimentDocument
from app.experiments.domain.decision import ExperimentDecision, ExperimentState
from app.experiments.domain.power import USUAL_POWER, detectable_difference
from app.experiments.domain.promotion import ExposureEvidence, JudgeEvidence, Margin, OfflineEvidence
from app.experiments.service.results import decide_current

_JUDGED: Final = (Question.FAITHFULNESS, Question.ANSWER_RELEVANCE)
_MOST_ANSWERS: Final = 100_000
_USUAL_RATE: Final = 0.5


def compare_offline(store: Store, current: str, candidate: str) -> OfflineEvidence | str:
    """Compare the newest runs of both checks; a text says why there is no comparison."""
    try:
        found = comparisons.compare_references(store, f"check:{current}", f"check:{candidate}", limit=0).comparison
    except (ConflictError, NotFoundError) as error:
        return str(error)
    names = (f"MRR@{found.depth.m}", f"NDCG@{found.depth.ndcg}")
    estimates = {one.estimate.measure: one.estimate for one in found.outcome.decisions}
    return OfflineEvidence(
        canaries=found.outcome.pairs,
        verdict=found.outcome.verdict,
        measures={name: _margin(estimates[name]) for name in names if name in estimates},
    )


def compare_judged(store: Store, current: str, candidate: str) -> JudgeEvidence | str:
    """Compare the judged answers of the newest runs of both checks, canary by canary; a text says why not."""
    try:
        runs = [comparisons.resolve(store, f"check:{slug}", "check") for slug in (current, candidate)]
    except (ConflictError, NotFoundError) as error:
        return str(error)
    pages = [answers_of_run(store, run, limit=_MOST_ANSWERS) for run in runs]
    for slug, page in zip((current, candidate), pages, strict=True):
        if page["status"] != "rated":
            return f"no answers of check '{slug}' are judged"
    a, b = ({one["key"]: one for one in page["items"]} for page in pages)
    estimates = {str(question): _estimate_judged(str(question), a, b) for question in _JUDGED}
    return JudgeEvidence(
        answers=min(one.pairs for one in estimates.values()),
        calibrated=all(set(map(str, _JUDGED)) <= set(page["confirmed"]) for page in pages),
        measures={name: _margin(one) for name, one in estimates.items()},
    )


def read_exposure(store: Store, slug: str | None, *, now: datetime) -> ExposureEvidence | str:
    """Return what an experiment decides in its current epoch; a text says why it decides nothing."""
    if slug is None:
        return "no experiment is set"
    try:
        with store.read() as connection:
            document, decision = decide_current(connection, slug, now=now)
    except NotFoundError as error:
        return str(error)
    return ExposureEvidence(
        difference=decision.difference,
        mismatch=decision.state is ExperimentState.MISMATCH,
        reason=decision.reason,
        power=_power_text(document, decision),
    )


def _power_text(document: ExperimentDocument, decision: ExperimentDecision) -> str:
    """Say which difference an experiment can show, about the rate of its first arm as far as that is known."""
    counts = decision.look.counts[0] if decision.look is not None else None
    rate = counts.rate if counts is not None and counts.enough else _USUAL_RATE
    share = document.domain_arms[1].share
    least = detectable_difference(rate=rate, share=share, units=document.max_units)
    return (
        f"with {document.max_units:,} units, {percent_text(share)} of them in the second arm, it shows a difference of "
        f"{ratio_text(least)} with probability {USUAL_POWER}"
    )


def _estimate_judged(question: str, a: Mapping[str, AnswerView], b: Mapping[str, AnswerView]) -> Estimate:
    keys = [key for key in a if key in b]
    return estimate(question, [_value(a[key], question) for key in keys], [_value(b[key], question) for key in keys])


def _value(answer: AnswerView, question: str) -> float:
    rating = answer["ratings"].get(question)
    value = None if rating is None else rating["value"]
    return float("nan") if value is None else value


def _margin(one: Estimate) -> Margin:
    return Margin(low=one.lower, high=one.upper)
