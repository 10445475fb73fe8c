"""Promotions: which checks and which experiment a candidate is held to, its gates as they stand, and waivers."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from app.alerts import store as alerts
from app.alerts.domain.state import OPEN, AlertState
from app.annotation.domain.agreement import hash_share
from app.annotation.domain.pooling import PoolItem
from app.annotation.service.results import read_grades
from app.annotation.service.tasks import new_item
from app.annotation.store import annotations, tasks
from app.annotation.store.annotations import PairItem
from app.annotation.store.tasks import NewItem, TaskRow
from app.answers.domain.judges import Question
from app.answers.domain.views import AnswerView
from app.answers.service.answering import answers_of_run
from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem, require_found
from app.base.texts import percent_text, ratio_text
from app.base.values import Severity
from app.catalog.service.references import find_check
from app.comparison.domain.significance import Estimate, estimate
from app.comparison.service import comparisons
from app.experiments.documents import ExperimentDocument, PromotionDocument
from app.experiments.domain.experiments import USUAL_POWER, ExperimentDecision, ExperimentState, detectable_difference
from app.experiments.domain.interleaving import ComparedPair, count_preferences
from app.experiments.domain.promotion import (
    ExposureEvidence,
    GateName,
    JudgeEvidence,
    Margin,
    OfflineEvidence,
    Waiver,
    decide_promotion,
)
from app.experiments.domain.views import ComparisonView, CriticalAlert, PromotionView
from app.experiments.service.experiments import decide_current
from app.experiments.store import experiments, shadows
from app.experiments.store.experiments import PromotionRow
from app.experiments.store.shadows import DefinedShadow, PairRow
from app.records.documents import time_text, view_of


def put_promotion(store: Store, document: PromotionDocument, *, by: str, now: datetime, only_new: bool = False) -> bool:
    """Create a promotion or change it, which forgets its waivers; whether it is new.

    Raises InvalidInputError where it names what does not exist; with `only_new` ConflictError wherever there is one.
    """
    with store.write() as connection:
        _require_references(connection, document)
        body = document.data()
        if experiments.insert_promotion(connection, slug=document.slug, body=body, at=to_us(now), by=by):
            return True
        if only_new:
            raise ConflictError(f"there is a promotion '{document.slug}' already")
        promotion = _find(connection, document.slug)
        if promotion.document != document:
            experiments.change_promotion(connection, promotion.id, body)
        return False


def load_promotion(store: Store, slug: str, *, now: datetime) -> PromotionView:
    """Return a promotion with its gates. Raises NotFoundError."""
    with store.read() as connection:
        promotion = _find(connection, slug)
        waivers = experiments.list_waivers(connection, promotion.id)
    return _view(store, promotion, waivers, now=now)


def list_promotions(store: Store, *, after: str = "", limit: int, now: datetime) -> list[PromotionView]:
    """List promotions by slug, those behind `after`, each with its gates."""
    with store.read() as connection:
        found = [
            (one, experiments.list_waivers(connection, one.id))
            for one in experiments.list_promotions(connection, after=after, limit=limit)
        ]
    return [_view(store, promotion, waivers, now=now) for promotion, waivers in found]


def delete_promotion(store: Store, slug: str) -> None:
    """Delete a promotion. Raises NotFoundError."""
    with store.write() as connection:
        experiments.delete_promotion(connection, _find(connection, slug).id)


def waive_gate(store: Store, slug: str, gate: GateName, *, reason: str, by: str, now: datetime) -> None:
    """Waive a gate, whatever it says. Raises NotFoundError."""
    with store.write() as connection:
        experiments.save_waiver(connection, _find(connection, slug).id, gate, reason=reason, by=by, at=to_us(now))


def withdraw_waiver(store: Store, slug: str, gate: GateName) -> None:
    """Withdraw the waiver of a gate. Raises NotFoundError where there is none."""
    with store.write() as connection:
        if not experiments.delete_waiver(connection, _find(connection, slug).id, gate):
            raise NotFoundError(f"gate '{gate}' of promotion '{slug}' is not waived")


def _find(connection: Connection, slug: str) -> PromotionRow:
    return require_found(experiments.find_promotion(connection, slug), f"promotion '{slug}'")


def _view(store: Store, promotion: PromotionRow, waivers: Mapping[GateName, Waiver], *, now: datetime) -> PromotionView:
    document = promotion.document
    decision = decide_promotion(
        compare_offline(store, document.current, document.candidate),
        compare_judged(store, document.current, document.candidate),
        read_exposure(store, document.experiment, now=now),
        waivers,
    )
    alerts_open = _critical_alerts(store, (document.candidate, document.current))
    return view_of(PromotionView, promotion, document, decision, critical_alerts=alerts_open)


def _critical_alerts(store: Store, checks: Sequence[str]) -> list[CriticalAlert]:
    """List the open critical alerts of these checks, in their order, oldest first."""
    with store.read() as connection:
        return [
            {
                "check": check,
                "alert_id": str(row.id),
                "rule": row.rule_key,
                "opened_at": time_text(row.opened_at),
            }
            for check in dict.fromkeys(checks)
            for row in alerts.open_alerts(connection, find_check(connection, check).id, hold=False)
            if AlertState(row.state) in OPEN and row.severity == Severity.CRITICAL
        ]


def _require_references(connection: Connection, document: PromotionDocument) -> None:
    problems = []
    for field, slug in (("current", document.current), ("candidate", document.candidate)):
        try:
            find_check(connection, slug)
        except NotFoundError as error:
            problems.append(Problem(path=field, message=str(error)))
    if document.experiment is not None and experiments.find_experiment(connection, document.experiment) is None:
        problems.append(Problem(path="experiment", message=f"there is no experiment '{document.experiment}'"))
    if problems:
        raise InvalidInputError(problems)


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
        measures={
            name: Margin(low=one.lower, high=one.upper) for name in names if (one := estimates.get(name)) is not None
        },
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
        measures={name: Margin(low=one.lower, high=one.upper) for name, one in estimates.items()},
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
    share = document.arms[1].share
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


_HALF: Final = 0.5


def draw_pairs(store: Store, task_id: int, *, now: datetime) -> None:
    """Make the most different pairs of a shadow the items of a task, once; without pairs it can be asked for again.

    Which side is the candidate's is decided by a hash, and stands neither on the page nor in a token.
    """
    with store.write() as connection:
        task = tasks.read_task(connection, task_id, lock=True)  # archiving waits, and forgets what is drawn
        if task is None or task.archived_at is not None:
            return
        wanted = task.document.pairs
        if wanted is None:
            return
        shadow = shadows.find_shadow(connection, wanted.shadow)
        if shadow is not None and not tasks.count_pool(connection, task_id).items:
            found = shadows.list_pairs(connection, shadow.id, wanted.count)
            made = [_item(task, pair) for pair in found]
            pairs = {item.token: pair for item, pair in made}
            annotations.save_pair_items(connection, task_id, pairs, [item for item, _ in made])
        tasks.finish_pool(connection, task_id, to_us(now))


def load_comparisons(connection: Connection, shadow: DefinedShadow) -> list[ComparisonView]:
    """Return the tasks of a shadow with what people preferred, the newest first; not those of one that it replaced."""
    found = []
    for task in annotations.list_pair_tasks(connection, shadow.slug, since=shadow.created_at):
        grades = read_grades(connection, task)
        pairs = annotations.read_pair_items(connection, task.id)
        counts = count_preferences(
            ComparedPair(grade=grades.consensus(item_id).grade, candidate_right=pair.candidate_right)
            for item_id, pair in pairs.items()
        )
        found.append(view_of(ComparisonView, counts, rounding=True, task=task.slug, state=task.state, pairs=len(pairs)))
    return found


def _item(task: TaskRow, pair: PairRow) -> tuple[NewItem, PairItem]:
    shown = PoolItem(key=str(pair.id), text="", chunks=(("", f"pair-{pair.id}"),))
    document = task.document
    item = new_item(task.id, document, shown, canary_id=None, name=f"pair:{pair.id}")
    right = hash_share(f"side:{document.seed}:{task.id}:pair:{pair.id}") < _HALF
    left, other = (pair.a, pair.b) if right else (pair.b, pair.a)
    return item, PairItem(query=pair.query, left=left, right=other, candidate_right=right)
