"""Promotions: defined, read with what each gate found, waived by people.

A promotion holds a candidate to gates of which an experiment is the last; nothing of what they find is stored but by a
waiver.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from app.alerts import store as alerts
from app.alerts.domain.state import OPEN
from app.alerts.domain.views import AlertState
from app.answers.domain.generated import RunAnswers
from app.answers.domain.judges import Question
from app.answers.domain.trust import CORRECTING_LABELS
from app.answers.service.answering import answers_of_run
from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, ForbiddenError, InvalidInputError, NotFoundError, Problem, require_found
from app.base.statistics import interval_of_difference
from app.base.texts import change_text, counted, judge_alone
from app.base.values import Severity, Value, replace
from app.base.views import time_text, view_of
from app.catalog.service.references import find_check
from app.comparison.domain.estimates import estimate
from app.comparison.domain.outcomes import ComparisonOutcome, Exclusion, Side
from app.comparison.service import compared_runs, comparisons
from app.comparison.service.answers import AnswersOfRun, RatedSide, pair_answers, read_answers
from app.comparison.service.outdated import describe_edits, describe_outdated
from app.experiments import store as rows
from app.experiments.documents import PromotionDocument
from app.experiments.domain.margins import GateResult
from app.experiments.domain.promotion_evidence import (
    CategoryLosses,
    ExperimentArms,
    Judged,
    JudgedQuestion,
    JudgeEvidence,
    Margin,
    OfflineEvidence,
    PromotionRun,
)
from app.experiments.domain.promotions import (
    Gate,
    GateName,
    PromotionDecision,
    Waiver,
    decide_promotion,
)
from app.experiments.service.promotion_evidence import (
    describe_alerts,
    describe_changes,
    describe_edits_since,
    find_judged_pair,
    name_shared_retriever,
    read_guard,
    read_users,
    say_cautions,
)
from app.experiments.store import PromotionRow
from app.experiments.views import CriticalAlert, GuardView, PromotionView


def put_promotion(
    store: Store,
    document: PromotionDocument,
    *,
    by: str,
    now: datetime,
    only_new: bool = False,
    may_waive_harm: bool = False,
) -> bool:
    """Create a promotion or change it, which forgets its waivers; whether it is new.

    Raises InvalidInputError where it names what does not exist, or one check as both; with `only_new` ConflictError
    wherever there is one; ForbiddenError where the same candidate is to be held to other users or rails although
    exposure has shown a loss, or the promotion becomes one of other checks, and the caller may not waive that.
    """
    if not (only_new or may_waive_harm):
        _refuse_hiding_harm(store, document, now=now)
    with store.write() as connection:
        _require_references(connection, document)
        body = document.data()
        if rows.insert_promotion(connection, slug=document.slug, body=body, at=to_us(now), by=by):
            return True
        if only_new:
            raise ConflictError(f"there is a promotion '{document.slug}' already")
        promotion = _find_promotion(connection, document.slug)
        if promotion.document != document:
            rows.change_promotion(connection, promotion.id, body)
        return False


def _refuse_hiding_harm(store: Store, document: PromotionDocument, *, now: datetime) -> None:
    """Raise ForbiddenError where a change would leave out a loss that exposure has shown, without a waiver."""
    with store.read() as connection:
        before = rows.find_promotion(connection, document.slug)
    if before is None:
        return
    old = before.document
    what = ("current", "candidate", "experiment", "guards")
    if all(getattr(old, name) == getattr(document, name) for name in what):
        return
    if shown := _harm_shown(store, before, now=now):
        only = "only a key of scope admin may set another experiment, other guard rails or other checks"
        raise ForbiddenError(f"{shown}: {only}; another candidate needs a promotion of its own")


def _harm_shown(store: Store, promotion: PromotionRow, *, now: datetime) -> str:
    """Say that exposure has shown a loss, now or in an earlier epoch; empty where it has not."""
    decision = _decide(store, promotion, now=now).decision
    exposure = next(gate for gate in decision.gates if gate.gate is GateName.EXPOSURE)
    is_shown = exposure.evidence is GateResult.FAIL or decision.harm_before
    return f"exposure has shown a loss ({exposure.reason})" if is_shown else ""


def load_promotion(store: Store, slug: str, *, now: datetime) -> PromotionView:
    """Return a promotion with its gates. Raises NotFoundError."""
    with store.read() as connection:
        promotion = _find_promotion(connection, slug)
    return _view_promotion(store, promotion, now=now)


def list_promotions(store: Store, *, after: str = "", limit: int, now: datetime) -> list[PromotionView]:
    """List promotions by slug, those behind `after`, each with its gates."""
    with store.read() as connection:
        found = rows.list_promotions(connection, after=after, limit=limit)
    return [_view_promotion(store, promotion, now=now) for promotion in found]


def delete_promotion(store: Store, slug: str, *, may_waive_harm: bool, now: datetime) -> None:
    """Delete a promotion.

    Raises NotFoundError, and ForbiddenError where exposure has shown a loss and the caller may not waive that.
    """
    with store.read() as connection:
        promotion = _find_promotion(connection, slug)
    if not may_waive_harm and (shown := _harm_shown(store, promotion, now=now)):
        raise ForbiddenError(f"{shown}: only a key of scope admin may delete the promotion")
    with store.write() as connection:
        rows.delete_promotion(connection, _find_promotion(connection, slug).id)


def waive_gate(
    store: Store, slug: str, name: GateName, *, reason: str, by: str, may_waive_harm: bool, now: datetime
) -> None:
    """Waive a gate, keeping what it has found by now: the waiver covers nothing worse that it finds later.

    Raises NotFoundError, ConflictError where the gate passes, and ForbiddenError where users are shown to be harmed and
    the caller may not waive that.
    """
    with store.read() as connection:
        promotion = _find_promotion(connection, slug)
    now_found = _decide(store, promotion, now=now)
    decision = now_found.decision
    gate = next(one for one in decision.gates if one.gate is name)
    if gate.evidence is GateResult.PASS:
        raise ConflictError(f"gate '{name}' passes, so there is nothing to waive: {gate.reason}")
    is_harm = name is GateName.EXPOSURE and (gate.evidence is GateResult.FAIL or decision.harm_before)
    if is_harm and not may_waive_harm:
        raise ForbiddenError(f"only a key of scope admin may waive what exposure has shown: {gate.reason}")
    with store.write() as connection:
        mine = _find_promotion(connection, slug)
        if mine.document != promotion.document:
            raise ConflictError(f"promotion '{slug}' has just been changed; look at its gates again")
        rows.save_waiver(
            connection,
            mine.id,
            name,
            Waiver(
                by=by,
                reason=reason,
                at=time_text(now),
                finding=gate.evidence,
                found="; ".join([gate.reason, *_rails_beside(gate), *_alerts_open(now_found.critical)]),
                losses=gate.losses,
            ),
            at=to_us(now),
        )


def _rails_beside(gate: Gate) -> list[str]:
    """Return what guard rails had found that the gate does not tell, as users decide nothing yet."""
    of_rails = [one.reason for one in gate.guards if one.result is not GateResult.PASS]
    return [said for said in of_rails if said not in gate.reason]


def _alerts_open(critical: Sequence[CriticalAlert]) -> list[str]:
    """Say which checks had open critical alerts: what was measured then may be of their fault."""
    numbers = Counter(one["check"] for one in critical)
    return [f"check {check} had {counted(number, 'open critical alert')} then" for check, number in numbers.items()]


def withdraw_waiver(store: Store, slug: str, gate: GateName) -> None:
    """Withdraw the waiver of a gate. Raises NotFoundError where there is none."""
    with store.write() as connection:
        if not rows.delete_waiver(connection, _find_promotion(connection, slug).id, gate):
            raise NotFoundError(f"gate '{gate}' of promotion '{slug}' is not waived")


def _find_promotion(connection: Connection, slug: str) -> PromotionRow:
    return require_found(rows.find_promotion(connection, slug), f"promotion '{slug}'")


def _view_promotion(store: Store, promotion: PromotionRow, *, now: datetime) -> PromotionView:
    found = _decide(store, promotion, now=now)
    document = promotion.document
    guards = [view_of(GuardView, one) for one in document.guards]
    return view_of(
        PromotionView,
        promotion,
        document,
        found.decision,
        critical_alerts=found.critical,
        guards=guards,
        runs=list(found.runs),
        candidate_arm=None if found.arms is None else found.arms.candidate,
    )


class _FoundGates(Value):
    """What the gates of a promotion find now, and what stands beside it."""

    decision: PromotionDecision
    critical: list[CriticalAlert]
    """Open alerts of both checks."""
    arms: ExperimentArms | None
    """By which the experiment is read; None = there is none."""
    runs: tuple[PromotionRun, ...]
    """Which the offline gate compares."""


def _decide(store: Store, promotion: PromotionRow, *, now: datetime) -> _FoundGates:
    """Return what the gates find now."""
    document = promotion.document
    with store.read() as connection:
        waivers = rows.list_waivers(connection, promotion.id)
        critical: list[CriticalAlert] = [
            {"check": check, "alert_id": str(row.id), "rule": row.rule_key, "opened_at": time_text(row.opened_at)}
            for check in dict.fromkeys((document.candidate, document.current))
            for row in alerts.open_alerts(connection, find_check(connection, check).id, hold=False)
            if AlertState(row.state) in OPEN and row.severity == Severity.CRITICAL
        ]
    numbers = Counter(one["check"] for one in critical) if document.stop_on_critical else Counter()
    judged = compare_judged(store, document.current, document.candidate)
    exposure = read_users(store, document, now=now)
    arms = None if isinstance(exposure, str) else exposure.arms
    if not isinstance(exposure, str):
        is_asked = exposure.arms is not None  # else only users of other experiments tell something
        changed, meanwhile = ("", "")
        if is_asked:
            changed, meanwhile = describe_changes(store, document, str(document.experiment), exposure.exposed_until)
        cautions = () if changed else say_cautions(store, promotion, exposure)
        if is_asked:
            alerted = describe_alerts(store, document, str(document.experiment), exposure.exposed_until)
            cautions = (*cautions, *alerted)
        exposure = replace(exposure, changed=changed, meanwhile=meanwhile, cautions=cautions)
    offline = compare_offline(store, document.current, document.candidate)
    waived = waivers.get(GateName.EXPOSURE)
    decision = decide_promotion(
        offline,
        judged,
        exposure,
        waivers,
        guards=[read_guard(store, document, one, judged, arms, now=now) for one in document.guards],
        stopping=[f"check {check} has {counted(number, 'open critical alert')}" for check, number in numbers.items()],
        unwatched=_unwatched(store, document),
        edits=[] if waived is None else describe_edits_since(store, document, to_us(datetime.fromisoformat(waived.at))),
    )
    runs = () if isinstance(offline, str) else offline.runs
    return _FoundGates(decision=decision, critical=critical, arms=arms, runs=runs)


def _unwatched(store: Store, document: PromotionDocument) -> list[str]:
    """Say which checks are archived or disabled."""
    with store.read() as connection:
        checks = [find_check(connection, slug) for slug in (document.candidate, document.current)]
    return [
        f"check {one.slug} is {'archived' if one.archived_at is not None else 'disabled'}"
        for one in checks
        if one.archived_at is not None or not one.body["enabled"]
    ]


def _require_references(connection: Connection, document: PromotionDocument) -> None:
    problems = []
    suites: dict[str, str] = {}
    for field, slug in (("current", document.current), ("candidate", document.candidate)):
        try:
            suites[field] = find_check(connection, slug).body["suite"]
        except NotFoundError as error:
            problems.append(Problem(path=field, message=str(error)))
    if document.candidate == document.current:
        same = f"must be another check than the current one, '{document.current}'"
        problems.append(Problem(path="candidate", message=same))
    if len(set(suites.values())) > 1:
        problems.append(Problem(path="candidate", message=_other_suite(**suites)))
    if document.experiment is not None and rows.find_experiment(connection, document.experiment) is None:
        problems.append(Problem(path="experiment", message=f"there is no experiment '{document.experiment}'"))
    for place, guard in enumerate(document.guards):
        if guard.experiment is not None and rows.find_experiment(connection, guard.experiment) is None:
            absent = f"there is no experiment '{guard.experiment}'"
            problems.append(Problem(path=f"guards[{place}].experiment", message=absent))
    if problems:
        raise InvalidInputError(problems)


_JUDGED: Final = {
    "faithfulness": (Question.FAITHFULNESS, Question.FAITHFUL),
    "answer_relevance": (Question.ANSWER_RELEVANCE,),
}
"""What the gate of the judge is about, by the questions that ask for it: claim by claim, or in one word."""


def compare_offline(store: Store, current: str, candidate: str) -> OfflineEvidence | str:
    """Compare the newest runs of both checks; a text says why there is no comparison."""
    try:
        _, found = comparisons.compare_references(store, f"check:{current}", f"check:{candidate}", limit=0)
    except (ConflictError, NotFoundError) as error:
        return str(error)
    compared = [str(one.row.id) for one in (found.a, found.b)]
    outdated, (edits, archived) = describe_outdated(store, compared), describe_edits(store, compared)
    suites = [one.outline["suite"] for one in (found.a, found.b)]
    if suites[0] != suites[1]:
        return f"{'; '.join(outdated)}: run it again" if outdated else _other_suite(*suites)
    names = (f"MRR@{found.depth.m}", f"NDCG@{found.depth.ndcg}")
    excluded = {why: len(keys) for why, keys in found.pairing.excluded.items()}
    neither = excluded.get(Exclusion.NOT_MEASURED, 0)
    # Those that the older run has alone are archived by now: running it again does not bring them.
    added = Exclusion.ONLY_IN_A if found.a.row.id > found.b.row.id else Exclusion.ONLY_IN_B
    decisions = found.outcome.decisions
    margins = {one.estimate.measure: Margin(low=one.estimate.lower, high=one.estimate.upper) for one in decisions}
    own = {name for one in found.outcome.judgments if one.favours is Side.B for name in one.not_claimed}
    gained = {one.estimate.measure for one in decisions if one.winner is Side.B} | own
    paid = {one.estimate.measure for one in decisions if one.winner is Side.A}
    return OfflineEvidence(
        canaries=found.outcome.pairs,
        verdict=found.outcome.verdict,
        measures={name: margins[name] for name in names if name in margins},
        judgments=found.outcome.judgments,
        gained={name: one for name, one in margins.items() if name in gained},
        paid={name: one for name, one in margins.items() if name in paid},
        categories=tuple(_category_losses(found.outcome)),
        unanswered=excluded.get(Exclusion.NOT_MEASURED_IN_B, 0) + neither,
        unanswered_now=excluded.get(Exclusion.NOT_MEASURED_IN_A, 0) + neither,
        unanswered_by_both=neither,
        without_judgments=excluded.get(Exclusion.NOTHING_EXPECTED, 0),
        unlike=sum(excluded.get(why, 0) for why in (*_UNLIKE, added)),
        outdated=outdated,
        edits=() if outdated else edits,
        archived=archived,
        shared=name_shared_retriever(store, [one.row for one in (found.a, found.b)]),
        runs=tuple(
            PromotionRun(check=one.row.check, run_id=one.outline["id"], finished_at=one.outline["finished_at"])
            for one in (found.a, found.b)
        ),
        violations=found.outcome.violations,
    )


def _category_losses(outcome: ComparisonOutcome) -> Iterator[CategoryLosses]:
    """Yield the categories that are claimed to lose by a measure; none where one category is all there is."""
    for part in outcome.categories if len(outcome.categories) > 1 else ():
        lost = [one.estimate for one in part.decisions if one.winner is Side.A]
        if lost:
            paid = {one.measure: Margin(low=one.lower, high=one.upper) for one in lost}
            yield CategoryLosses(category=part.category.replace("_", " "), canaries=part.pairs, paid=paid)


_UNLIKE: Final = (Exclusion.OTHER_QUERY, Exclusion.OTHER_JUDGMENTS)


def _other_suite(current: str, candidate: str) -> str:
    return f"the checks are over different suites, '{current}' and '{candidate}': choose two checks over one suite"


def compare_judged(store: Store, current: str, candidate: str) -> JudgeEvidence | str:
    """Compare the judged answers of the newest runs of both checks, canary by canary; a text says why not."""
    slugs = (current, candidate)
    try:
        runs = [compared_runs.resolve(store, f"check:{slug}", "check") for slug in slugs]
    except (ConflictError, NotFoundError) as error:
        return str(error)
    found = _compare_ratings(store, slugs, runs)
    if not _says_nothing(found):
        return found
    # A loss that was shown stays until judged answers show otherwise, whatever a newer run lacks.
    older = find_judged_pair(store, slugs)
    if older is None or isinstance(told := _compare_ratings(store, slugs, older), str) or _says_nothing(told):
        return found
    said = [] if isinstance(found, str) else [one for of in found.measures.values() for one in of.values()]
    why = found if isinstance(found, str) else next((one for one in said if isinstance(one, str)), _UNRATED)
    read = " and ".join(f"run {run} of check '{slug}'" for slug, run in zip(slugs, older, strict=True))
    return replace(told, behind=(f"{why}; until then what was said of {read} counts",))


_UNRATED: Final = "the judge has rated none of the answers of the newest runs"


def _says_nothing(found: JudgeEvidence | str) -> bool:
    """Whether no answer of both runs is compared in anything."""
    if isinstance(found, str):
        return True
    said = [one for of in found.measures.values() for one in of.values()]
    return all(isinstance(one, str) or not one.answers for one in said)


def _compare_ratings(store: Store, slugs: Sequence[str], runs: Sequence[str]) -> JudgeEvidence | str:
    """Compare the judged answers of two runs of these checks."""
    pages = {slug: answers_of_run(store, run, limit=0) for slug, run in zip(slugs, runs, strict=True)}
    with store.read() as connection:
        without = [slug for slug in slugs if find_check(connection, slug).body.get("judge") is None]
    if waiting := [slug for slug, page in pages.items() if page["status"] == "pending" and slug not in without]:
        return f"the answers of the {_runs(waiting)} are not judged yet"
    summaries = {slug: page["summary"] for slug, page in pages.items() if page["summary"] is not None}
    if unjudged := [slug for slug in slugs if slug not in summaries or summaries[slug]["judge"] is None]:
        why = _why_unjudged(unjudged, [slug for slug in unjudged if slug in without], summaries)
        return JudgeEvidence(measures={name: {name: why} for name in _JUDGED})
    with store.read() as connection:
        read = [read_answers(connection, run) for run in runs]
        sides = {slug: one for slug, one in zip(slugs, read, strict=True) if one is not None}
        measures = {name: _compare_asked(connection, sides, name) for name in _JUDGED}
    return JudgeEvidence(measures=measures, outdated=describe_outdated(store, runs))


def _why_unjudged(slugs: Sequence[str], without: Sequence[str], sides: Mapping[str, RunAnswers]) -> str:
    """Say why no judge rated the answers of the newest runs of some checks, and what to do; `without` name no judge."""
    if without:
        which = "the check" if len(without) == 1 else "each check"
        return f"no judge rates the answers of {_checks(without)}: name one as `judge` of {which}, and run it"
    problem = next((f" ({sides[slug]['problem']})" for slug in slugs if "problem" in sides.get(slug, {})), "")
    what = "see that its judge is in force and its retriever gives answers, and run it again"
    return f"no judge has rated the answers of the {_runs(slugs)}{problem}: {what}"


def _checks(slugs: Sequence[str]) -> str:
    names = " and ".join(f"'{slug}'" for slug in slugs)
    return f"check {names}" if len(slugs) == 1 else f"checks {names}"


def _runs(slugs: Sequence[str]) -> str:
    return f"newest {'run' if len(slugs) == 1 else 'runs'} of {_checks(slugs)}"


def _compare_asked(connection: Connection, sides: Mapping[str, AnswersOfRun], name: str) -> Judged:
    """Compare what judges say to the questions that ask for one thing, each by itself, canary by canary."""
    asking = [str(question) for question in _JUDGED[name]]
    asked = [question for question in asking if all(question in one.found["ratings"] for one in sides.values())]
    if asked:
        return {question: _compare_question(connection, sides, question) for question in asked}
    either = f"neither {' nor '.join(asking)}" if len(asking) > 1 else name
    add = "add one" if len(asking) > 1 else "add it"
    lacking = [slug for slug, one in sides.items() if not set(asking) & set(one.found["ratings"])]
    if not lacking:
        return {name: f"{either} is asked in the newest runs of both checks: {add} to the `questions` of both judges"}
    judges = list(dict.fromkeys(f"judge '{sides[slug].found['judge']}'" for slug in lacking))
    to = f"to {'its' if len(judges) == 1 else 'their'} `questions`, and run again"
    verb = "is asked by" if len(asking) > 1 else "is not asked by"
    return {name: f"{either} {verb} {' and '.join(judges)} ({_runs(lacking)}): {add} {to}"}


def _compare_question(connection: Connection, sides: Mapping[str, AnswersOfRun], question: str) -> JudgedQuestion | str:
    """Compare what judges say to a question, canary by canary; numbers of two judges only once people correct both."""
    current, candidate = rated = pair_answers(connection, question, *sides.values())
    found = estimate(question, *(one.scores for one in rated))
    judges = [
        f"judge '{side.found['judge']}' ({', '.join(sorted(one.models))})"
        for side, one in zip(sides.values(), rated, strict=True)
    ]
    same_model = current.models == candidate.models or not (current.models and candidate.models)
    alike = same_model and len({side.found["judge"] for side in sides.values()}) == 1
    margin = _corrected_margin(question, rated, alike=alike)
    corrected = margin is not None
    if margin is None and alike:
        own = judge_alone(question)
        margin = Margin(low=found.lower, high=found.upper, basis=own, lacks=_UNCORRECTED)
    if margin is None:
        return (
            f"{question} is rated by {judges[0]} in check '{next(iter(sides))}' and by {judges[1]} in the other one, "
            "whose own numbers cannot be compared: let one judge rate both"
        )
    return JudgedQuestion(
        answers=found.pairs,
        calibrated=all(question in one.confirmed for one in sides.values()),
        margin=margin,
        corrected=corrected,
        labelled=_say_labelled(rated) if corrected else (),
        current=current.counts,
        candidate=candidate.counts,
    )


def _say_labelled(rated: Sequence[RatedSide]) -> tuple[str, ...]:
    """Say of what else the labels of each check are than of the judge and its answers; once what is so of both."""
    current, candidate = (one.labelled for one in rated)
    if current == candidate:
        return (f"{current} (both checks)",) if current else ()
    sides = ((current, "the current check"), (candidate, "the candidate"))
    return tuple(f"{labelled} ({whom})" for labelled, whom in sides if labelled)


_UNCORRECTED: Final = f"a run is corrected where its check had before it {CORRECTING_LABELS}"


def _corrected_margin(question: str, rated: Sequence[RatedSide], *, alike: bool) -> Margin | None:
    """Return the difference of what people would say of the answers of both runs; None where labels do not tell.

    Beside it stands what the judge alone says of the same: its rates of full shares, not the means of its scores;
    not where they are of two judges, which are not `alike`.
    """
    first, second = (one.corrected for one in rated)
    if first is None or second is None:
        return None
    _, low, high = interval_of_difference(first, second)
    own: Margin | None = None
    judge = ""
    if alike:
        alone = estimate(question, *(one.scores >= 1 for one in rated))
        own = Margin(low=alone.lower, high=alone.upper)
    labels = " and ".join(str(one.labels) for one in rated)
    if own is not None and own.low is not None and own.high is not None:
        judge = f"; the judge alone {change_text(own.low)} to {change_text(own.high)}"
    return Margin(low=low, high=high, basis=f"corrected by {labels} labels of people{judge}", uncorrected=own)
