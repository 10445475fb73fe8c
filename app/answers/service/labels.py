"""Labels for a judge: answers drawn for people, its calibration by them, its report; and queries drafted by it.

Answers are drawn at random from those the judge has rated. The draw is frozen in one transaction with its items; the
judge's verdicts stay apart from what annotators see. The judge is asked about padded copies afterwards, within its
budget.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

import numpy as np

from app.annotation.documents import DrawnAnswersDocument
from app.annotation.domain.agreement import Coefficient, ConsensusState
from app.annotation.domain.pools import PoolItem, text_key
from app.annotation.service.annotations import TaskGrades, read_grades
from app.annotation.service.tasks import new_item
from app.annotation.store import task_rows
from app.annotation.store.task_rows import AnswerItem, DrawnAnswer, TaskRow, defer_results
from app.answers.domain.generated import UNJUDGED_SHARE, count_failed, failures_text, rater_of
from app.answers.domain.judges import (
    VERSIONS,
    AnswerToJudge,
    AskJudge,
    Draft,
    Judge,
    JudgeOutcome,
    Question,
    build_draft_prompt,
    endpoint_hash,
    read_draft,
)
from app.answers.domain.labellers import LabellersView, SaidOfAnswer, measure_labellers
from app.answers.domain.sentences import (
    LabelRoom,
    LabelsOfNow,
    agree_too_little,
    check_sentence,
    label_anew,
    next_step,
    trust_sentences,
    wanted_labels,
)
from app.answers.domain.trust import (
    CalibrationBody,
    CheckRateView,
    JudgedAnswer,
    LabelledAnswers,
    LengthBiasView,
    RateView,
    decide_calibration,
    decide_correction,
    draw_answers,
    estimate_rate,
    estimate_together,
    is_yes,
    measure_judge,
    measure_length_bias,
    pad_answer,
    pool_answers,
    rate_of_yes,
)
from app.answers.service.answering import QUESTIONS_BLOCK, JudgeInUse, contexts_of, day_of, load_judge
from app.answers.store import answer_rows as rows
from app.answers.store.answer_rows import CalibrationRow, DrawnRow, DrawnVerdict, DrawRow, RatedRow
from app.answers.views import CalibrationView, CheckTrust, JudgeDayView, JudgeReport, MeasureTrust
from app.base.db.engine import Connection, Store, to_us
from app.base.db.keys import Vault
from app.base.errors import ConfigurationError, ConflictError, InvalidInputError, NotFoundError
from app.base.texts import counted
from app.base.values import Turn, Value, replace
from app.base.views import rounded_or_none, time_text, view_of
from app.catalog import store as catalog
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service.references import checks_in_force
from app.catalog.service.versions import answers_otherwise
from app.catalog.store import Definition, require
from app.records.store import ranking_rows

CONTROLS: Final = 100
"""Drawn answers, at most, that the judge is asked about once more, padded."""
PADDED_QUESTIONS: Final = frozenset({Question.FAITHFUL, Question.FAITHFULNESS, Question.CORRECTNESS})
"""Whose answer true sentences of the chunks do not change; they may change how relevant an answer is."""
_HOUR: Final = 3_600_000_000


def draw_labels(
    store: Store,
    vault: Vault,
    ask: AskJudge,
    task_id: int,
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
) -> bool:
    """Draw the answers of a task and ask about padded copies; False where it was let go of, stopping.

    A task whose answers are drawn keeps them; padded copies without a verdict are asked about again.
    """
    with store.read() as connection:
        task = task_rows.read_task(connection, task_id)
        if task is None or task.archived_at is not None:
            return True
        wanted = task.document.answers
        if wanted is None:
            return True
        try:
            judge_id, judge = load_judge(connection, vault, wanted.judge)
        except (ConfigurationError, ConflictError, InvalidInputError):
            return True  # a judge that cannot be used has rated nothing
        if judge is None or judge_id is None:
            return True
        is_drawn = rows.find_draw(connection, task_id) is not None
        drawn = None if is_drawn else _draw(connection, task, wanted, judge, judge_id)
    if drawn is not None:
        with store.write() as connection:
            draw, answers = drawn
            if answers:
                ids = task_rows.save_answers(connection, task_id, [one for one, _ in answers])
                verdicts = {ids[one.item.token]: verdict for one, verdict in answers}
                rows.save_draw(connection, replace(draw, at=to_us(clock())), verdicts)
            task_rows.finish_pool(connection, task_id, to_us(clock()))
    judge = replace(judge, questions=(wanted.question,))
    in_use = JudgeInUse(store=store, judge=judge, judge_id=judge_id, ask=ask, clock=clock, stopping=stopping)
    _ask_padded(in_use, task_id)
    with store.write() as connection:
        defer_results(connection, task, to_us(clock()))
    return not stopping()


def _draw(
    connection: Connection, task: TaskRow, wanted: DrawnAnswersDocument, judge: Judge, judge_id: int
) -> tuple[DrawRow, list[tuple[DrawnAnswer, tuple[int, float]]]]:
    """Draw answers from all that the judge has rated as it is now; each comes with its check and verdict.

    What another endpoint said before the judge was edited is not what it would say.
    """
    question = str(wanted.question)
    wording = VERSIONS[wanted.question]
    defined = catalog.definition_by_id(connection, judge_id)
    rated = {str(one.id): one for one in _rated_now(connection, task, question, defined)}
    chosen, rest = draw_answers(
        [_as_judged(one) for one in rated.values()],
        wanted.count,
        window=wanted.window_hours * _HOUR,
        seed=task.document.seed,
    )
    found = rows.read_drawn(connection, [int(one.id) for one in chosen])
    made = _make_items(connection, task, found.values())
    others: dict[int | None, list[float]] = {}
    for one in rest:
        others.setdefault(rated[one.id].check_id, []).append(rated[one.id].value)
    draw = DrawRow(
        task_id=task.id,
        judge_id=judge_id,
        question=question,
        model=judge.model,
        wording=wording,
        endpoint=judge.endpoint_hash,
        rest=others,
        at=0,
    )
    return draw, [(made[int(one.id)], (rated[one.id].check_id, rated[one.id].value)) for one in chosen]


def _rated_now(
    connection: Connection, task: TaskRow, question: str, judge: Definition, *, since: int = 0
) -> list[RatedRow]:
    """Return the answers to canaries of a task that a judge has rated as it is now, from a time on."""
    return rows.rated_answers(
        connection,
        judge.id,
        task.suite_id,
        question=question,
        model=judge.body["model"],
        wording=VERSIONS[Question(question)],
        endpoint=endpoint_hash(judge.body),
        since=since,
    )


def _as_judged(one: RatedRow) -> JudgedAnswer:
    return JudgedAnswer(id=str(one.id), canary=str(one.canary_id), at=one.at, check=str(one.check_id))


def _make_items(connection: Connection, task: TaskRow, found: Collection[DrawnRow]) -> dict[int, DrawnAnswer]:
    """Return answers as items, by their ids: beside canaries as they were asked, and the chunks of rankings down to k.

    Neither a token nor anything beside it tells what the judge said.
    """
    canaries = catalog.bodies_of(connection, {one.canary_version_id for one in found})
    depths = {
        check_id: catalog.definition_by_id(connection, check_id).read(CheckDocument).k
        for check_id in {one.check_id for one in found}
    }
    rankings = ranking_rows.load_rankings(connection, sorted({one.ranking_id for one in found}))
    items: dict[int, DrawnAnswer] = {}
    for row in found:
        canary = canaries[row.canary_version_id]
        shown = PoolItem(key=text_key(row.text, chunk=""), text=row.text, chunks=(("", f"answer-{row.id}"),))
        contexts = contexts_of(rankings[row.ranking_id], depths[row.check_id])
        items[row.id] = DrawnAnswer(
            item=new_item(task, shown, canary_id=row.canary_id, name=f"answer:{row.id}"),
            canary_version_id=row.canary_version_id,
            beside=AnswerItem(query=canary["query"], expected=canary["expected_answer"], contexts=contexts),
        )
    return items


def _ask_padded(judge: JudgeInUse, task_id: int) -> None:
    """Ask the judge about padded copies of the first drawn answers that have no verdict on one yet."""
    [question] = judge.judge.questions
    if question not in PADDED_QUESTIONS:
        return
    with judge.store.read() as connection:
        draw = rows.find_draw(connection, task_id)
        if draw is None or (draw.model, draw.wording) != (judge.judge.model, VERSIONS[question]):
            return  # the plain verdicts are of another model or wording
        if draw.endpoint not in {None, judge.judge.endpoint_hash}:
            return  # they are of another endpoint
        controls = [one for one in rows.list_verdicts(connection, task_id)[:CONTROLS] if one.padded is None]
        texts = {one.id: one.text for one in task_rows.list_items(connection, task_id)}
        beside = task_rows.read_answer_items(connection, task_id)
    padded = {
        one.item_id: _as_asked(beside[one.item_id], answer)
        for one in controls
        if (answer := pad_answer(texts[one.item_id], beside[one.item_id].contexts)) is not None
    }
    said = judge.ask_questions(padded)
    outcomes = {item_id: ratings[question] for item_id, ratings in said.items() if question in ratings}
    with judge.store.write() as connection:
        rows.save_padded(
            connection,
            {
                item_id: (str(rating.outcome), rating.value if rating.outcome is JudgeOutcome.OK else None)
                for item_id, rating in outcomes.items()
            },
        )


def _as_asked(item: AnswerItem, answer: str) -> AnswerToJudge:
    asked = item.asked or {"vars": {}, "history": []}
    return AnswerToJudge(
        query=item.query,
        contexts=tuple(item.contexts),
        answer=answer,
        expected=item.expected,
        vars=asked["vars"],
        history=tuple(Turn(role=one["role"], content=one["content"]) for one in asked["history"]),
    )


def calibrate(store: Store, task_id: int, *, now: datetime) -> None:
    """Compute what the labels of a task say of its judge, and store it; nothing happens where nothing is drawn."""
    with store.read() as connection:
        task = task_rows.read_task(connection, task_id)
        draw = rows.find_draw(connection, task_id)
        if task is None or draw is None:
            return
        grades = read_grades(connection, task)
        verdicts = rows.list_verdicts(connection, task_id)
        checks = {one.check_id for one in verdicts if one.check_id is not None}
        slugs = {one: catalog.definition_by_id(connection, one).slug for one in checks}
    body = _calibration(draw, grades, verdicts, slugs)
    with store.write() as connection:
        rows.save_calibration(connection, draw, body, at=to_us(now))


def _calibration(
    draw: DrawRow, grades: TaskGrades, verdicts: Sequence[DrawnVerdict], slugs: Mapping[int, str]
) -> CalibrationBody:
    """Return what the labels say, together and by check."""
    labels = {one.item_id: grades.consensus(one.item_id).grade for one in verdicts}
    of_checks = {
        check: _labelled(draw.rest.get(check, ()), [one for one in verdicts if one.check_id == check], labels)
        for check in {one.check_id: None for one in verdicts} | dict.fromkeys(draw.rest)
    }
    people = [label for one in of_checks.values() for label in one.labels]
    judged = [value for one in of_checks.values() for value in one.judged]
    bias: LengthBiasView | None = None
    if Question(draw.question) in PADDED_QUESTIONS:
        pairs = [(one.value >= 1, one.padded >= 1) for one in verdicts if one.padded is not None]
        found = measure_length_bias([plain for plain, _ in pairs], [padded for _, padded in pairs])
        outcomes = Counter(one.padded_outcome for one in verdicts if one.padded_outcome is not None)
        bias = view_of(LengthBiasView, found, rounding=True, outcomes=dict(sorted(outcomes.items())))
    labellers = _labellers(grades, verdicts)
    return view_of(
        CalibrationBody,
        measure_judge(people, judged, labellers=labellers),
        rounding=True,
        labellers=labellers,
        labels=len(people),
        disputed=sum(grades.consensus(one.item_id).state is ConsensusState.DISPUTED for one in verdicts),
        yes=sum(people),
        unlabelled=sum(len(one.unlabelled) for one in of_checks.values()),
        rate=view_of(RateView, estimate_together(list(of_checks.values())), rounding=True),
        length_bias=bias,
        checks=sorted(
            (_check_rate(slugs[check], found) for check, found in of_checks.items() if check in slugs),
            key=lambda one: one["check"],
        ),
    )


def _labellers(grades: TaskGrades, verdicts: Sequence[DrawnVerdict]) -> LabellersView:
    """Return how far those who labelled agree with each other, and what that leaves of the judge's errors."""
    found: list[SaidOfAnswer] = []
    for one in verdicts:
        said = sorted(grades.graded.get(one.item_id, ()), key=lambda row: row.annotator)
        decision = grades.adjudicated.get(one.item_id)
        labels = [bool(row.grade) for row in said]
        found.append(
            SaidOfAnswer(judge=is_yes(one.value), people=labels, decision=None if decision is None else bool(decision))
        )
    return view_of(LabellersView, measure_labellers(found), rounding=True)


def _labelled(
    rest: Sequence[float], drawn: Sequence[DrawnVerdict], labels: Mapping[int, float | None]
) -> LabelledAnswers:
    """Return the answers of a check with their labels; drawn ones without a consensus are among the unlabelled ones."""
    known = [(bool(label), one.value) for one in drawn if (label := labels[one.item_id]) is not None]
    return LabelledAnswers(
        labels=[label for label, _ in known],
        judged=[value for _, value in known],
        unlabelled=[*(one.value for one in drawn if labels[one.item_id] is None), *rest],
    )


def _check_rate(check: str, found: LabelledAnswers) -> CheckRateView:
    agreement, yes = measure_judge(found.labels, found.judged), sum(found.labels)
    corrects, reason = decide_correction(agreement, min(yes, len(found.labels) - yes))
    return view_of(
        CheckRateView,
        agreement,
        rounding=True,
        check=check,
        yes=yes,
        unlabelled=len(found.unlabelled),
        rate=view_of(RateView, estimate_rate(found.labels, found.judged, found.unlabelled), rounding=True),
        corrects=corrects,
        reason=reason,
    )


def load_report(store: Store, slug: str, *, now: datetime) -> JudgeReport:
    """Return how far the numbers of a judge can be trusted. Raises NotFoundError."""
    with store.read() as connection:
        judge = require(catalog.find_definition(connection, "judge", slug), f"judge '{slug}'")
        return _report(connection, judge, now)


def list_reports(store: Store, *, now: datetime) -> list[JudgeReport]:
    """Return the reports of all judges in force, by name."""
    with store.read() as connection:
        judges = catalog.list_definitions(connection, "judge")
        return [_report(connection, judge, now) for judge in judges]


def suites_of(store: Store, checks: Sequence[str]) -> list[str]:
    """Return the suites of these checks, by name."""
    with store.read() as connection:
        return sorted({check.suite for check in checks_in_force(connection) if check.slug in checks})


def _report(connection: Connection, judge: Definition, now: datetime) -> JudgeReport:
    known = [
        _with_labellers(connection, _with_rates_of_yes(connection, row))
        for row in rows.list_calibrations(connection, judge)
    ]
    of_checks, drawn = rows.labels_of_checks(known), {row.task: row for row in known}
    anew = rows.labels_of_checks(one for one in known if not one.edited_since)
    using = [check for check in checks_in_force(connection) if check.judge == judge.slug]
    rater = rater_of(judge.body["model"], judge.body["questions"], endpoint_hash(judge.body))
    measures: list[MeasureTrust] = []
    for question in map(str, judge.body["questions"]):
        row = next((one for one in known if one.measure == question), None)
        is_edited = row is not None and row.edited_since
        body = None if row is None else row.body
        counts = rows.count_labels(connection, judge.id, question, rater)
        of_now = _labels_of_now(connection, known, question) if is_edited else None
        lone = "" if row is None or not agree_too_little(body) else _lone_labeller(connection, row.task_id)
        measures.append(
            {
                "measure": question,
                "calibrated": row is not None and row.calibrated,
                "sentences": trust_sentences(
                    body,
                    waiting=counts.waiting,
                    of_others=counts.of_others,
                    drawn="" if row is None else _day(row.drawn_at),
                    edited=is_edited,
                    of_now=of_now,
                    lone=lone,
                    archived=rows.archived_labels(connection, judge.id, question, rater),
                ),
                "next": label_anew(of_now)
                if is_edited
                else next_step(body, lone=lone, room=_label_room(connection, judge, row)),
                "edited_since": is_edited,
                "checks": [
                    _check_trust(
                        connection,
                        check,
                        of_checks.get((question, check.slug)),
                        drawn,
                        anew.get((question, check.slug)),
                    )
                    for check in using
                ],
                "calibration": None
                if row is None
                else view_of(CalibrationView, row.body, row, updated_at=time_text(row.at)),
            }
        )
    day, budget = rows.read_day(connection, judge.id, day_of(now)), judge.body["budget_per_day"]
    outcomes = dict(sorted(day.outcomes.items()))
    failed, asked = count_failed(day.outcomes)
    silent = f"it said nothing to {failed:,} of {counted(asked, 'question')} today ({failures_text(day.outcomes)})"
    return {
        "judge": judge.slug,
        "failing": silent if failed > UNJUDGED_SHARE * asked else None,
        "model": judge.body["model"],
        "calibrated": all(one["calibrated"] for one in measures),
        "measures": measures,
        "today": view_of(JudgeDayView, day, rounding=True, budget=budget, outcomes=outcomes),
        "checks": [check.slug for check in using],
    }


def _labels_of_now(connection: Connection, known: Sequence[CalibrationRow], question: str) -> LabelsOfNow | None:
    """Return the labels of a measure that are of the edited judge as it is now, of the task that has the most."""
    row = next((one for one in known if one.measure == question and not one.edited_since), None)
    if row is None:
        return None
    return LabelsOfNow(
        task=row.task,
        labels=row.labels,
        yes=row.body["yes"],
        disputed=row.body["disputed"],
        drawn=len(rows.list_verdicts(connection, row.task_id)),
    )


def _label_room(connection: Connection, judge: Definition, row: CalibrationRow | None) -> LabelRoom | None:
    """Return the answers that are left to label where labels are too few, and those that could be drawn now."""
    if row is None or (wanted_labels(row.body) is None and (row.calibrated or agree_too_little(row.body))):
        return None
    task = task_rows.read_task(connection, row.task_id)
    wanted = None if task is None else task.document.answers
    if task is None or wanted is None:
        return None
    body, drawn = row.body, len(rows.list_verdicts(connection, row.task_id))
    later = _rated_now(connection, task, row.measure, judge, since=row.drawn_at + 1)
    window = wanted.window_hours * _HOUR
    return LabelRoom(
        task=row.task,
        open=drawn - body["labels"] - body["disputed"],
        rated=body["labels"]
        + body["unlabelled"]
        + len(pool_answers(map(_as_judged, later), window=window, seed=task.document.seed)),
    )


def _lone_labeller(connection: Connection, task_id: int) -> str:
    """Return the person who alone gave the labels of a task that nobody checked; empty where somebody else said any."""
    task = task_rows.read_task(connection, task_id)
    grades = None if task is None else read_grades(connection, task)
    if grades is None or grades.adjudicated:
        return ""
    names = {one.annotator for of_item in grades.graded.values() for one in of_item}
    return names.pop() if len(names) == 1 else ""


def _with_rates_of_yes(connection: Connection, row: CalibrationRow) -> CalibrationRow:
    """Return a calibration with the judge's own rates of yes: earlier releases stored the means of its shares."""
    draw = rows.find_draw(connection, row.task_id)
    if draw is None or row.measure == Question.FAITHFUL:
        return row
    values = {check: [*rest] for check, rest in draw.rest.items()}
    for one in rows.list_verdicts(connection, row.task_id):
        values.setdefault(one.check_id, []).append(one.value)
    of_checks = {
        catalog.definition_by_id(connection, check).slug: found for check, found in values.items() if check is not None
    }
    labelled = [of_checks.get(one["check"], []) for one in row.body["checks"] if one["labels"]]
    rate = rate_of_yes([value for found in labelled or values.values() for value in found])
    checks: list[CheckRateView] = [
        {**one, "rate": {**one["rate"], "judge_rate": rounded_or_none(rate_of_yes(of_checks.get(one["check"], [])))}}
        for one in row.body["checks"]
    ]
    whole: RateView = {**row.body["rate"], "judge_rate": rounded_or_none(rate)}
    return replace(row, body={**row.body, "rate": whole, "checks": checks})


def _with_labellers(connection: Connection, row: CalibrationRow) -> CalibrationRow:
    """Return a calibration with how far people agree with each other, which earlier releases did not store."""
    if row.body["labellers"] is not None:
        return row
    task = task_rows.read_task(connection, row.task_id)
    if task is None:
        return row
    labellers = _labellers(read_grades(connection, task), rows.list_verdicts(connection, row.task_id))
    body: CalibrationBody = {**row.body, "labellers": labellers}
    if not row.calibrated:
        body["reason"] = decide_calibration(
            Coefficient(**body["kappa"]),
            row.labels,
            rarer=min(body["yes"], row.labels - body["yes"]),
            labellers=labellers,
        )[1]
    return replace(row, body=body)


def _check_trust(
    connection: Connection,
    check: CheckDocument,
    found: tuple[str, CheckRateView] | None,
    drawn: Mapping[str, CalibrationRow],
    anew: tuple[str, CheckRateView] | None,
) -> CheckTrust:
    task, rate = (None, _check_rate(check.slug, _NONE_LABELLED)) if found is None else found
    row = drawn.get(task or "")
    if row is None:
        return view_of(CheckTrust, rate, task=task, sentence=check_sentence(rate))
    asked, version = rows.retriever_asked(connection, check.slug, row.drawn_at) or (check.retriever, None)
    retriever = catalog.find_definition(connection, "retriever", check.retriever)
    sentence = check_sentence(
        rate,
        drawn=_day(row.drawn_at),
        edited=row.edited_since,
        anew=None if anew is None else anew[1],
        of=asked,
        now=check.retriever,
        is_other=retriever is not None and answers_otherwise(connection, version, retriever.version_id),
    )
    return view_of(CheckTrust, rate, task=task, sentence=sentence)


def _day(moment: int) -> str:
    return time_text(moment)[: len("2026-11-30")]


_NONE_LABELLED: Final = LabelledAnswers(labels=(), judged=(), unlabelled=())


class DraftedQueries(Value):
    """Drafted queries with the id of the text that each answers, in the order of drawing, and how all calls ended."""

    queries: Sequence[tuple[str, str]]
    outcomes: Mapping[JudgeOutcome, int]
    repeated: int
    """Queries that were drafted before, in other letters or not."""
    details: Sequence[str]
    """Reasons of calls that brought no query, each once."""


def draft_queries(
    store: Store,
    vault: Vault,
    ask: AskJudge,
    slug: str,
    texts: Sequence[tuple[str, str]],
    *,
    number: int,
    seed: int,
    clock: Callable[[], datetime],
) -> DraftedQueries:
    """Draw texts, (id, text) each, and have a query drafted for each. Raises NotFoundError without the judge.

    What is drawn depends on `seed` alone. Ends where the rest of the day's budget pays for no more.
    """
    with store.read() as connection:
        judge_id, found = load_judge(connection, vault, slug)
    if judge_id is None or found is None:
        raise NotFoundError(f"there is no judge '{slug}'")
    judge = JudgeInUse(store=store, judge=found, judge_id=judge_id, ask=ask, clock=clock)
    places = np.random.default_rng(seed).permutation(len(texts))[:number]
    drawn = [texts[int(place)] for place in places]
    drafts: list[tuple[str, Draft]] = []
    for start in range(0, len(drawn), QUESTIONS_BLOCK):
        block = drawn[start : start + QUESTIONS_BLOCK]
        prompts = [build_draft_prompt(text, secrets.token_hex(8)) for _, text in block]
        replies, affordable = judge.collect_replies(prompts)
        read = {place: read_draft(reply) for place, reply in sorted(replies.items())}
        drafts += [(block[place][0], draft) for place, draft in read.items()]
        now = clock()
        with store.write() as connection:
            judge.add_to_day(connection, prompts, replies, [one.outcome for one in read.values()], now)
        if affordable < len(prompts):
            over = Draft(query=None, outcome=JudgeOutcome.OVER_BUDGET, detail=judge.over_budget)
            drafts += [(name, over) for name, _ in drawn[start + affordable :]]
            break
    queries = [(draft.query, name) for name, draft in drafts if draft.query is not None]
    first = {query.casefold(): (query, name) for query, name in reversed(queries)}
    return DraftedQueries(
        queries=[one for one in queries if first[one[0].casefold()] == one],
        outcomes=Counter(draft.outcome for _, draft in drafts),
        repeated=len(queries) - len(first),
        details=list(dict.fromkeys(draft.detail for _, draft in drafts if draft.detail is not None)),
    )
