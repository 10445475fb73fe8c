"""The generated answers of a run: requested where responses have none, judged, and written with their means.

It is a job after the run, so that a slow model delays no alert about retrieval. Answers and ratings are kept as they
come: after a crash nothing is requested twice, and no judge is asked again what it has answered before. Below: the
answers of a run as views, feedback of users, and the judge in use with its daily budget.
"""

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

import numpy as np

from app.alerts.service import transitions
from app.answers.documents import FeedbackRequest, JudgeDocument
from app.answers.domain.generated import (
    AnswerBody,
    AnswerRequest,
    AskAnswers,
    GeneratedAnswer,
    RatedAnswer,
    RunAnswers,
    ground_answer,
    rater_of,
    summarise,
)
from app.answers.domain.judges import (
    AnswerToJudge,
    AskJudge,
    Judge,
    JudgeOutcome,
    JudgeReply,
    Prompt,
    Question,
    Rating,
    RatingBody,
    build_prompt,
    cache_key,
    cost,
    endpoint_hash,
    estimate_tokens,
    rating_key,
    read_rating,
    wording_of,
)
from app.answers.domain.trust import correct_rate
from app.answers.store import answer_rows as rows
from app.answers.store import feedback_rows
from app.answers.store.answer_rows import JudgeDay, NewAnswer, StagedAnswer, confirmed_of_run, confirmed_of_runs, digest
from app.answers.views import (
    AnswerView,
    CanaryFeedback,
    FeedbackPage,
    FeedbackView,
    ForgottenFeedback,
    ReceivedFeedback,
    RunAnswersPage,
)
from app.base.db.engine import Connection, Store, cached_of_run, from_us, to_us
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.errors import ConfigurationError, ConflictError, InvalidInputError
from app.base.statistics import clopper_pearson
from app.base.values import Canary, CorrectedRateView, Outcome, Ranking, Value, replace
from app.base.views import rounded, view_of
from app.catalog import store as catalog
from app.catalog.documents.secrets import join_secrets
from app.catalog.service.references import find_check, find_run
from app.catalog.service.versions import answers_otherwise, load_check, load_inputs
from app.comparison.service.answers import answers_of, watched_canaries
from app.records.store import ranking_rows, run_endings, run_rows, series, state_rows
from app.records.store.open_runs import Failure
from app.records.store.run_rows import RunRow
from app.retrievers.domain.retrievers import AnswerSource
from app.scoring.run_inputs import RunInputs

logger = logging.getLogger("coalmine.answers")

BLOCK: Final = 8
"""Answers asked for, or judged, and written at a time."""


class AnswerTools(Value):
    """What asks for answers, and judges about them."""

    ask_answers: AskAnswers
    ask_judge: AskJudge


class Subject(Value):
    """A canary whose answer is watched, with what it retrieved."""

    position: int
    canary_id: int
    version_id: int
    canary: Canary
    ranking_id: int
    contexts: tuple[str, ...]


class AnswerRound(Value):
    """The answers of one run that are to be had and judged."""

    run: RunRow
    inputs: RunInputs
    subjects: tuple[Subject, ...]
    failed: tuple[Failure, ...]
    """Of the probes of the other canaries whose answers are watched: these did not come."""
    staged: Mapping[int, StagedAnswer]
    judge: Judge | None
    judge_id: int | None


def rate_run(
    store: Store,
    vault: Vault,
    tools: AnswerTools,
    run_id: int,
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
) -> bool:
    """Have the answers of a run judged, and write what they come to; False where it was let go of, stopping."""
    try:
        with store.read() as connection:
            found = _load(connection, vault, run_id)
    except (ConfigurationError, ConflictError, InvalidInputError) as error:
        # It cannot be judged as it is defined; trying again would change nothing.
        logger.warning("answers_not_judged", extra={"run": run_id, "detail": str(error)})
        with store.write() as connection:
            summary: RunAnswers = {**summarise([], None), "problem": str(error)}
            rows.finish_answers(connection, run_id, summary, at=to_us(clock()))
        return True
    if found is None:
        return True
    staged = _have_answers(store, tools.ask_answers, found, stopping)
    if stopping():
        return False
    grounded = [_grounded(one, staged[one.position]) for one in found.subjects]
    rated = grounded
    if found.judge is not None and found.judge_id is not None:
        judged = [(one.canary, one.contexts, answer) for one, answer in zip(found.subjects, grounded, strict=True)]
        judge = JudgeInUse(
            store=store, judge=found.judge, judge_id=found.judge_id, ask=tools.ask_judge, clock=clock, stopping=stopping
        )
        rated = judge.rate(judged)
    if stopping():
        return False
    _finish(store, found, rated, now=clock())
    return True


def _load(connection: Connection, vault: Vault, run_id: int) -> AnswerRound | None:
    """Return what is to be done for a run; None = nothing, or it is done."""
    run = run_rows.find_run(connection, run_id)
    staged = rows.read_staged(connection, run_id)
    if run is None or run.versions is None or staged is None:
        return None
    inputs = load_inputs(connection, run.versions, vault=vault)
    check, _ = load_check(connection, run.versions.check)
    judge_id, judge = load_judge(connection, vault, check.judge)
    watched = watched_canaries(connection, run)
    sampled = [position for position, failure in watched.items() if failure is None]
    held = state_rows.rankings_at(connection, run.check_id, run.id, [inputs.canary_ids[one] for one in sampled])
    had = {one: held[inputs.canary_ids[one]][0] for one in sampled if inputs.canary_ids[one] in held}
    texts = ranking_rows.load_rankings(connection, list(set(had.values())))
    subjects = tuple(
        Subject(
            position=position,
            canary_id=inputs.canary_ids[position],
            version_id=inputs.version_ids[position],
            canary=inputs.canaries[position],
            ranking_id=ranking_id,
            contexts=contexts_of(texts[ranking_id], check.k),
        )
        for position, ranking_id in had.items()
    )
    failed = tuple(one for one in watched.values() if one is not None)
    return AnswerRound(
        run=run, inputs=inputs, subjects=subjects, failed=failed, staged=staged, judge=judge, judge_id=judge_id
    )


def _have_answers(
    store: Store, ask: AskAnswers, found: AnswerRound, stopping: Callable[[], bool]
) -> dict[int, StagedAnswer]:
    """Return the answer of each subject, asked for where there is none yet, and kept block by block."""
    staged = dict(found.staged)
    source = found.inputs.retriever.answer
    missing = [one for one in found.subjects if one.position not in staged]
    if source is None:
        return staged | {one.position: _NO_ANSWER for one in missing}
    for start in range(0, len(missing), BLOCK):
        block = missing[start : start + BLOCK]
        came = {
            block[place].position: StagedAnswer(text=one.text, outcome=str(one.outcome), detail=one.detail)
            for place, one in _asked(ask, source, block, stopping)
        }
        with store.write() as connection:
            rows.stage_answers(connection, found.run.id, came)
        staged |= came
        if stopping():
            break
    return staged


def _asked(
    ask: AskAnswers, source: AnswerSource, block: Sequence[Subject], stopping: Callable[[], bool]
) -> Iterator[tuple[int, GeneratedAnswer]]:
    requests = [AnswerRequest(query=one.canary.query, contexts=one.contexts) for one in block]
    try:
        with closing(ask(source, requests)) as calls:  # type: ignore[type-var] # a generator; Iterator has no close()
            for call in calls:
                if stopping():
                    return
                if call is not None:
                    yield call
    except InvalidInputError as error:
        refused = GeneratedAnswer(text=None, outcome=Outcome.REFUSED, detail=str(error))
        yield from ((place, refused) for place in range(len(block)))


_NO_ANSWER: Final = StagedAnswer(
    text=None, outcome=str(Outcome.MALFORMED), detail="the response has no text where the answer is mapped"
)


def _grounded(subject: Subject, staged: StagedAnswer) -> RatedAnswer:
    answer = GeneratedAnswer(text=staged.text, outcome=Outcome(staged.outcome), detail=staged.detail)
    if answer.text is None:
        return RatedAnswer(answer=answer, contexts=len(subject.contexts))
    grounding = ground_answer(answer.text, subject.contexts)
    return RatedAnswer(
        answer=answer,
        contexts=len(subject.contexts),
        utilisation=grounding.grounded_share,
        chunks_used=grounding.used_share,
    )


def _missing(failure: Failure) -> RatedAnswer:
    answer = GeneratedAnswer(text=None, outcome=Outcome(failure.outcome), detail=failure.detail)
    return RatedAnswer(answer=answer, contexts=0)


def _finish(store: Store, found: AnswerRound, rated: Sequence[RatedAnswer], *, now: datetime) -> None:
    """Write what holds now, the run's means, and what its rules make of them, in one transaction, once."""
    run = found.run
    with store.read() as connection:
        corrected = _correct(connection, found, rated)
        held = rows.answers_at(connection, run.check_id, run.id)
        names = [] if run.layout_id is None else ranking_rows.layout_names(connection, run.layout_id)
        endpoints = [] if found.judge_id is None else rows.list_endpoints(connection, found.judge_id)
    now_held = [
        NewAnswer(
            canary_id=one.canary_id,
            canary_version_id=one.version_id,
            ranking_id=one.ranking_id,
            text=answer.answer.text,
            judge_id=found.judge_id,
            body=answer_body(answer, found.judge, one.canary),
        )
        for one, answer in zip(found.subjects, rated, strict=True)
    ]
    sole = rows.sole_endpoint(endpoints, to_us(now))
    changed = [one for one in now_held if one.canary_id not in held or not held[one.canary_id].is_same(one, sole)]
    closed = [held[one.canary_id].id for one in changed if one.canary_id in held]
    summary = summarise([*rated, *map(_missing, found.failed)], found.judge, corrected)
    measured = {name: value for name, value in summary["measures"].items() if value is not None and name in names}
    with store.write() as connection:
        catalog.lock_definition(connection, run.check_id)
        if not rows.finish_answers(connection, run.id, summary, at=to_us(now)):
            return
        if not rows.is_overtaken(connection, run.check_id, run.id):  # what holds now is what the later run found
            rows.change_answers(connection, run.check_id, run.id, closed=closed, opened=changed)
        if measured and run.layout_id is not None:
            run_endings.fill_aggregates(connection, run.id, names, measured)
            vector = np.array([measured.get(name, np.nan) for name in names])
            series.fill_rollups(connection, run.check_id, run.layout_id, run.finished_at or to_us(now), vector)
        transitions.after_answers(connection, run.check_id, run.id, now=now)


def _correct(connection: Connection, found: AnswerRound, rated: Sequence[RatedAnswer]) -> dict[str, CorrectedRateView]:
    """Return by measure what people would say of the answers of a run, where their labels of its check tell."""
    if found.judge is None or found.judge_id is None:
        return {}
    judge = catalog.definition_by_id(connection, found.judge_id)
    check = catalog.definition_by_id(connection, found.run.check_id).slug
    # It may have been edited while it rated.
    rater = rater_of(found.judge.model, found.judge.questions, found.judge.endpoint_hash)
    calibrations = rows.list_calibrations(connection, judge, rater)
    labels = rows.labels_of_checks(calibrations)
    before = {one.task for one in calibrations if one.edited_since}
    drawn_at = {one.task: one.drawn_at for one in calibrations}
    asked = found.inputs.retriever.slug
    corrected: dict[str, CorrectedRateView] = {}
    for question in found.judge.questions:
        task, known = labels.get((str(question), check), ("", None))
        said = [one.ratings[question].value for one in rated if question in one.ratings]
        verdicts = [value >= 1 for value in said if value is not None]
        if known is None or not known["corrects"] or not verdicts:
            continue
        sides = (
            clopper_pearson(one["successes"], one["count"]) for one in (known["sensitivity"], known["specificity"])
        )
        rate = correct_rate(sum(verdicts), len(verdicts), *sides)
        corrected[str(question)] = CorrectedRateView(
            value=rounded(rate.value),
            low=rounded(rate.low),
            high=rounded(rate.high),
            judge_rate=sum(verdicts) / len(verdicts),
            answers=len(verdicts),
            labels=known["labels"],
            task=task,
        )
        if task in before:
            corrected[str(question)]["edited_since"] = True
        labelled = rows.retriever_asked(connection, check, drawn_at[task])
        if labelled is not None and labelled[0] != asked:
            corrected[str(question)]["labelled_of"] = labelled[0]
        elif labelled is not None and answers_otherwise(connection, labelled[1], found.run.retriever_version_id):
            corrected[str(question)]["labelled_before_edit_of"] = asked
    return corrected


_FEW: Final = 500
"""So many answers are read by their canaries; more of them with all others of the run."""


def answers_of_run(
    store: Store, run_id: str, *, after: int = 0, limit: int = 50, only_bad: bool = False
) -> RunAnswersPage:
    """Return the answers of a run, the worst by its judge first; those alone in which it found something, if wanted.

    Raises NotFoundError for a run that is not there.
    """
    with store.read() as connection:
        run = find_run(connection, run_id)
        known = rows.read_run_answers(connection, [run.id])
        summary = known.get(run.id)
        if summary is None or run.versions is None:
            waits = run.id in known
            return {
                "status": "pending" if waits else "off",
                "confirmed": [],
                "summary": None,
                "items": [],
                "next": None,
            }
        inputs = load_inputs(connection, run.versions)
        confirmed = sorted(confirmed_of_run(connection, run.id))
        canaries = dict(zip(inputs.canary_ids, inputs.canaries, strict=True))

        def worst_first() -> tuple[tuple[list[int], int], int]:
            held = answers_of(connection, run)
            worst = {one: _worst(row.body) for one, row in held.items() if one in canaries}
            ids = sorted(worst, key=lambda one: (worst[one], canaries[one].key))
            return (ids, sum(value < 1 for value in worst.values())), 40 * len(ids)

        found, bad = cached_of_run(connection, ("answers, worst first", run.id), worst_first)
        found = found[:bad] if only_bad else found
        wanted = found[after : after + limit]
        few = wanted if len(wanted) <= _FEW else None
        held = answers_of(connection, run, canary_ids=few)
        shown = [(canaries[one], held[one]) for one in wanted]
        versions = {(row.canary_id, row.text) for _, row in shown if row.text is not None}
        said = feedback_rows.count_feedback(connection, run.check_id, versions)
        rankings = ranking_rows.load_rankings(connection, sorted({row.ranking_id for _, row in shown}))
    items: list[AnswerView] = []
    for canary, row in shown:
        events = None if row.text is None else said.get((row.canary_id, row.text))
        items.append(
            view_of(
                AnswerView,
                row.body,
                canary,
                answer=row.text,
                since_run=str(row.first_run),
                feedback=None if events is None else _feedback(events),
                contexts=list(contexts_of(rankings[row.ranking_id], inputs.yardstick.k)),
            )
        )
    following = str(after + limit) if len(found) > after + limit else None
    return {"status": "rated", "confirmed": confirmed, "summary": summary, "items": items, "next": following}


def _worst(body: AnswerBody) -> float:
    """Return the lowest that a judge said of an answer; one without any rating comes after those with one."""
    values = [rating["value"] for name, rating in body["ratings"].items() if name in set(Question)]
    return min((value for value in values if value is not None), default=2.0)


def summary_of_run(store: Store, run_id: str) -> RunAnswers | None:
    """Return what the answers of a run came to; None = it watches none, or they are not judged yet."""
    with store.read() as connection:
        run = find_run(connection, run_id)
        return rows.read_run_answers(connection, [run.id]).get(run.id)


class NewestAnswers(Value):
    """What the answers of the newest run of a check came to (None = they are not judged yet)."""

    check: str
    run_id: int
    ended: datetime | None
    summary: RunAnswers | None
    confirmed: frozenset[str]
    """Measures that people confirmed of the judge as it rated them."""


def newest_of_checks(store: Store) -> list[NewestAnswers]:
    """Return what the answers of the newest runs came to, of the checks in force that watch answers, by name."""
    with store.read() as connection:
        newest = {run.check_id: run for run in run_rows.newest_ended_of_all(connection)}
        known = rows.read_run_answers(connection, [run.id for run in newest.values()])
        confirmed = confirmed_of_runs(connection, known.keys())
        return [
            NewestAnswers(
                check=check.slug,
                run_id=run.id,
                ended=None if run.finished_at is None else from_us(run.finished_at),
                summary=known[run.id],
                confirmed=confirmed[run.id],
            )
            for check in catalog.list_definitions(connection, "check")
            if (run := newest.get(check.id)) is not None and run.id in known
        ]


def confirmed_by_people(store: Store, run_id: str) -> frozenset[str]:
    """Return the measures of a run that people confirmed of the judge as it rated them. Raises NotFoundError."""
    with store.read() as connection:
        return confirmed_of_run(connection, find_run(connection, run_id).id)


def receive_feedback(store: Store, slug: str, sent: FeedbackRequest, *, now: datetime) -> ReceivedFeedback:
    """Store what users said of answers that a check has seen, each event once. Raises NotFoundError.

    Events about another answer or an unknown canary are counted and not stored.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        suite = catalog.find_definition(connection, "suite", check.body["suite"])
        named = {one.canary for one in sent.events}
        heads = () if suite is None else catalog.list_canary_heads(connection, suite.id, archived=True, keys=named)
        keys = {one.key: one.id for one in heads}
        known = feedback_rows.known_answers(connection, check.id, set(keys.values()))
    events = [
        (keys[one.canary], one)
        for one in sent.events
        if one.canary in keys and (keys[one.canary], digest(one.answer)) in known
    ]
    with store.write() as connection:
        stored = feedback_rows.save_events(connection, check.id, events, at=to_us(now))
    return {
        "received": len(sent.events),
        "stored": stored,
        "known": len(events) - stored,
        "unmatched": len(sent.events) - len(events),
    }


def load_feedback(store: Store, slug: str, *, after: str, limit: int) -> FeedbackPage:
    """Return what users said of the answers of a check, whichever version of them. Raises NotFoundError."""
    with store.read() as connection:
        check = find_check(connection, slug)
        total = feedback_rows.total_feedback(connection, check.id)
        found = feedback_rows.feedback_by_canary(connection, check.id, after=after, limit=limit + 1)
    items: list[CanaryFeedback] = [
        {"canary": key, "versions": versions, **_feedback(events)} for key, versions, events in found[:limit]
    ]
    return {"total": _feedback(total), "items": items, "next": found[limit - 1][0] if len(found) > limit else None}


def _feedback(events: Counter[tuple[str, bool]]) -> FeedbackView:
    return {
        "thumbs_up": events["thumbs", True],
        "thumbs_down": events["thumbs", False],
        "task_done": events["task_done", True],
        "task_not_done": events["task_done", False],
    }


def forget_feedback(store: Store, slug: str) -> ForgottenFeedback:
    """Delete all feedback about a check. Raises NotFoundError."""
    with store.write() as connection:
        return {"forgotten": feedback_rows.forget_feedback(connection, find_check(connection, slug).id)}


QUESTIONS_BLOCK: Final = 16
"""Questions asked and written at a time."""
_LASTING: Final = frozenset({JudgeOutcome.OK, JudgeOutcome.DECLINED})
"""Outcomes that the same question would have again."""
_NOTED_EACH: Final = timedelta(days=1)
"""Use is noted so often, for retention, which counts in weeks."""
_NOTES: Final = 500
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Ask(Value):
    """One question about one answer."""

    place: int
    question: Question
    key: str
    judged: AnswerToJudge


class JudgeInUse(Value):
    """A judge with what asks it and keeps what it says."""

    store: Store
    judge: Judge
    judge_id: int
    ask: AskJudge
    clock: Callable[[], datetime]
    stopping: Callable[[], bool] = lambda: False

    def rate(self, answers: Sequence[tuple[Canary, tuple[str, ...], RatedAnswer]]) -> list[RatedAnswer]:
        """Return the answers with the judge's ratings; of those left when it is `stopping`, without."""
        judged = {
            place: AnswerToJudge(
                query=canary.query,
                contexts=contexts,
                answer=rated.answer.text,
                expected=canary.expected_answer,
                vars=canary.vars,
                history=canary.history,
            )
            for place, (canary, contexts, rated) in enumerate(answers)
            if rated.answer.text is not None
        }
        ratings_of = self.ask_questions(judged)
        return [replace(rated, ratings=ratings_of.get(place, {})) for place, (_, _, rated) in enumerate(answers)]

    def ask_questions(self, judged: Mapping[int, AnswerToJudge]) -> Mapping[int, Mapping[Question, Rating]]:
        """Return what the judge says to its questions about each answer, by the place of the answer.

        What its endpoint said before is not asked again, and the budget of the day is kept. Missing is what is left
        when it is `stopping`. About correctness it is asked only where the canary says what is expected.
        """
        model, endpoint = self.judge.model, self.judge.endpoint_hash
        asks = [
            _Ask(
                place=place,
                question=question,
                key=rating_key(cache_key(question, answer, model), endpoint),
                judged=answer,
            )
            for place, answer in judged.items()
            for question in self.judge.questions
            if question is not Question.CORRECTNESS or answer.expected is not None
        ]
        found = self._known(asks)
        missing = list({one.key: one for one in asks if one.key not in found}.values())
        for start in range(0, len(missing), QUESTIONS_BLOCK):
            if self.stopping():
                break
            found |= self._asked(missing[start : start + QUESTIONS_BLOCK])
        by_place: dict[int, dict[Question, Rating]] = {}
        for one in asks:
            if one.key in found:
                by_place.setdefault(one.place, {})[one.question] = found[one.key]
        return by_place

    def _known(self, asks: Sequence[_Ask]) -> dict[str, Rating]:
        """Return what the judge said before, by key."""
        keys, now = list(dict.fromkeys(one.key for one in asks)), self.clock()
        if not keys:
            return {}
        with self.store.read() as connection:
            known = rows.known_ratings(connection, self.judge_id, keys)
            missing = [key for key in keys if key not in known]
            earlier = rows.earlier_ratings(connection, self.judge_id, missing, self.judge.endpoint_hash)
        for start in range(0, len(earlier), _NOTES):
            block = dict(islice(earlier.items(), start, start + _NOTES))
            with self.store.write() as connection:
                rows.save_ratings(connection, self.judge_id, block, at=to_us(now))
        known |= {key: (body, to_us(now)) for key, body in earlier.items()}
        unnoted = [key for key, (_, used_at) in known.items() if used_at < to_us(now - _NOTED_EACH)]
        for start in range(0, len(unnoted), _NOTES):  # the writer is not held for long
            with self.store.write() as connection:
                rows.note_use(connection, self.judge_id, unnoted[start : start + _NOTES], at=to_us(now))
        if known:
            with self.store.write() as connection:
                rows.add_to_day(connection, self.judge_id, JudgeDay(day=day_of(now), cached=len(known)))
        return {key: read_rating_body(body) for key, (body, _) in known.items()}

    def _asked(self, asks: Sequence[_Ask]) -> dict[str, Rating]:
        """Ask some questions within the budget of the day, and keep what comes of each."""
        prompts = [build_prompt(one.question, one.judged, secrets.token_hex(8)) for one in asks]
        replies, affordable = self.collect_replies(prompts)
        found = {asks[place].key: read_rating(prompts[place], reply) for place, reply in replies.items()}
        lasting = {key: rating_body(rating) for key, rating in found.items() if rating.outcome in _LASTING}
        now = self.clock()
        with self.store.write() as connection:
            rows.save_ratings(connection, self.judge_id, lasting, at=to_us(now))
            # What the budget does not pay for is no call, but counts: else nobody sees that answers have no verdict.
            unpaid = [JudgeOutcome.OVER_BUDGET] * (len(asks) - affordable)
            self.add_to_day(connection, prompts, replies, [*(one.outcome for one in found.values()), *unpaid], now)
        over = Rating(outcome=JudgeOutcome.OVER_BUDGET, detail=self.over_budget)
        return found | {one.key: over for one in asks[affordable:]}

    @property
    def over_budget(self) -> str:
        """What is said of a question that the budget of the day does not pay for."""
        return f"the budget of judge '{self.judge.slug}' for today is used up"

    def collect_replies(self, prompts: Sequence[Prompt]) -> tuple[Mapping[int, JudgeReply], int]:
        """Return the replies to prompts by their places, and how many, from the first, the day's budget pays for.

        Of those left when it is `stopping` there are none.
        """
        affordable = self._count_affordable(prompts)
        replies: dict[int, JudgeReply] = {}
        if not affordable:
            return replies, affordable
        try:
            with closing(self.ask(self.judge, prompts[:affordable])) as calls:  # type: ignore[type-var] # a generator; Iterator has no close()
                for call in calls:
                    if call is not None:
                        replies[call[0]] = call[1]
                    if self.stopping():
                        break
        except InvalidInputError as error:
            refused = JudgeReply(text=None, outcome=JudgeOutcome.JUDGE_REFUSED, detail=str(error))
            replies |= {place: refused for place in range(affordable) if place not in replies}
        return replies, affordable

    def _count_affordable(self, prompts: Sequence[Prompt]) -> int:
        if self.judge.budget_per_day is None:
            return len(prompts)
        with self.store.read() as connection:
            spent = rows.read_day(connection, self.judge_id, day_of(self.clock())).cost
        for number, prompt in enumerate(prompts):
            spent += cost(estimate_tokens(prompt), self.judge.price_per_million)
            if spent > self.judge.budget_per_day:
                return number
        return len(prompts)

    def add_to_day(
        self,
        connection: Connection,
        prompts: Sequence[Prompt],
        replies: Mapping[int, JudgeReply],
        outcomes: Sequence[JudgeOutcome],
        now: datetime,
    ) -> None:
        """Add replies to the day of the judge; tokens that an endpoint does not count are estimated."""
        tokens = sum(
            estimate_tokens(prompts[place]) if reply.tokens is None else reply.tokens
            for place, reply in replies.items()
        )
        day = JudgeDay(
            day=day_of(now),
            calls=len(replies),
            tokens=tokens,
            cost=cost(tokens, self.judge.price_per_million),
            outcomes=Counter(map(str, outcomes)),
        )
        rows.add_to_day(connection, self.judge_id, day)


def day_of(now: datetime) -> int:
    """Return the days since 1970, UTC."""
    return (now - _EPOCH).days


def load_judge(connection: Connection, vault: Vault, slug: str | None) -> tuple[int | None, Judge | None]:
    """Return id and value of a judge; None = there is none of this name in force."""
    row = None if slug is None else catalog.find_definition(connection, "judge", slug)
    if row is None or row.archived_at is not None:
        return None, None
    whole = join_secrets(row.body, vault.decrypt(row.secrets))
    judge = parse_document(JudgeDocument, whole).to_domain()
    return row.id, replace(judge, endpoint_hash=endpoint_hash(row.body))


def contexts_of(ranking: Ranking, k: int) -> tuple[str, ...]:
    """Return the texts of the top k hits; a hit without a text gives the model nothing."""
    return tuple(text for text in ranking.texts[:k] if text is not None)


def answer_body(rated: RatedAnswer, judge: Judge | None, canary: Canary) -> AnswerBody:
    """Return what is stored of an answer besides its text; ratings name the judge, as it is now, that gave them."""
    model, endpoint = ("", "") if judge is None else (judge.model, judge.endpoint_hash)
    return {
        "outcome": str(rated.answer.outcome),
        "detail": rated.answer.detail,
        "utilisation": rated.utilisation,
        "chunks_used": rated.chunks_used,
        "ratings": {
            str(question): {
                **rating_body(rating),
                "model": model,
                "wording": wording_of(question, in_context=bool(canary.vars or canary.history)),
                "endpoint": endpoint,
            }
            for question, rating in rated.ratings.items()
        },
    }


def rating_body(rating: Rating) -> RatingBody:
    """Return what is stored of a rating."""
    return {
        "outcome": str(rating.outcome),
        "value": rating.value,
        "detail": rating.detail,
        "claims": [{"text": text, "supported": supported} for text, supported in rating.claims],
    }


def read_rating_body(body: RatingBody) -> Rating:
    """Return a rating from what is stored of it."""
    return Rating(
        outcome=JudgeOutcome(body["outcome"]),
        value=body["value"],
        detail=body.get("detail"),
        claims=tuple((claim["text"], claim["supported"]) for claim in body.get("claims", ())),
    )
