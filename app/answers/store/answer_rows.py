"""Rows of generated answers and of their judges: of a run until they are judged, and by canary from run to run.

Then the verdicts of judges with their daily use. Calibrations of judges (`save_calibration`,
`calibrations_in_force`), and the answers drawn for people to label (`rated_answers`, `save_draw`), stand at the end.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from app.annotation.tables import annotations, tasks
from app.answers.domain.generated import (
    AnswerBody,
    Rater,
    RunAnswers,
    rater_of,
    unjudged_text,
    with_endpoint,
    with_unrated,
)
from app.answers.domain.judges import Question, RatingBody, endpoint_hash, former_key, wording_of
from app.answers.domain.trust import CalibrationBody, CheckRateView, lacking_labels
from app.answers.tables import (
    answer_draws,
    answer_texts,
    answers,
    calibrations,
    drawn_verdicts,
    judge_days,
    ratings,
    run_answers,
    staged_answers,
)
from app.base.db.engine import blocks, hold_content, ids_of, insert_new, row_value, upsert, upsert_many
from app.base.values import CorrectedRateView, Value, asdict, field, replace
from app.catalog.store import Definition, bodies_of, definition_by_id, find_definition, list_definitions
from app.catalog.tables import canaries, definition_versions, definitions
from app.records.tables import runs


class StagedAnswer(msgspec.Struct, array_like=True, frozen=True):
    """An answer before it is judged, or why there is none."""

    text: str | None
    outcome: str
    detail: str | None = None


class NewAnswer(Value):
    """What holds for a canary from a run on."""

    canary_id: int
    canary_version_id: int
    ranking_id: int
    text: str | None
    judge_id: int | None
    body: AnswerBody


class AnswerRow(NewAnswer):
    """What held for a canary from `first_run` until `last_run` (None: it still does)."""

    id: int
    first_run: int
    last_run: int | None

    def is_same(self, now: NewAnswer, endpoint: str | None) -> bool:
        """Whether what held before is what holds now; `endpoint`: of ratings that an earlier release stored without."""
        before = replace(self, body=with_endpoint(self.body, endpoint))
        return all(getattr(before, name) == getattr(now, name) for name in NewAnswer.__struct_fields__)


def expect_answers(connection: Connection, run_id: int) -> None:
    """Note that the answers of a run are to be judged."""
    insert_new(connection, run_answers, ("run_id",), [(run_id,)])


def stage_answers(connection: Connection, run_id: int, staged: Mapping[int, StagedAnswer]) -> None:
    """Keep some answers of a run, by position of the canary, until they are judged."""
    if staged:
        body = msgspec.msgpack.encode(dict(staged))
        upsert(connection, staged_answers, ["run_id", "part"], run_id=run_id, part=min(staged), body=body)


def read_staged(connection: Connection, run_id: int) -> dict[int, StagedAnswer] | None:
    """Return the answers of a run that wait to be judged; None = they were judged, or are not known of."""
    waits = sa.select(run_answers.c.run_id).where(run_answers.c.run_id == run_id, run_answers.c.finished_at.is_(None))
    if connection.execute(waits).one_or_none() is None:
        return None
    parts = connection.execute(sa.select(staged_answers.c.body).where(staged_answers.c.run_id == run_id)).scalars()
    return {
        position: answer
        for body in parts
        for position, answer in msgspec.msgpack.decode(body, type=dict[int, StagedAnswer]).items()
    }


def is_overtaken(connection: Connection, check_id: int, run_id: int) -> bool:
    """Whether answers of a later run of the check were judged before those of this one."""
    later = sa.and_(runs.c.check_id == check_id, runs.c.id > run_id, run_answers.c.finished_at.is_not(None))
    found = sa.select(runs.c.id).join(run_answers, run_answers.c.run_id == runs.c.id).where(later).limit(1)
    return connection.execute(found).first() is not None


def finish_answers(connection: Connection, run_id: int, body: RunAnswers, *, at: int) -> bool:
    """Write what the answers of a run come to; False where that is done already."""
    open_row = sa.and_(run_answers.c.run_id == run_id, run_answers.c.finished_at.is_(None))
    connection.execute(sa.delete(staged_answers).where(staged_answers.c.run_id == run_id))
    values = {"body": json.dumps(body), "finished_at": at}
    return connection.execute(sa.update(run_answers).where(open_row).values(**values)).rowcount == 1


def read_run_answers(connection: Connection, run_ids: Sequence[int]) -> dict[int, RunAnswers | None]:
    """Return what the answers of runs came to, by run; None = they are not judged yet."""
    found: dict[int, RunAnswers | None] = {}
    for block in blocks(run_ids):
        rows = connection.execute(
            sa.select(run_answers.c.run_id, run_answers.c.body).where(run_answers.c.run_id.in_(block))
        )
        found.update((row.run_id, None if row.body is None else with_unrated(json.loads(row.body))) for row in rows)
    return found


def unjudged_of_run(connection: Connection, run_id: int) -> str:
    """Return which answers of a run were not judged, as a clause; empty where all were, or wait."""
    return unjudged_text(read_run_answers(connection, [run_id]).get(run_id))


def list_corrected(
    connection: Connection, check_id: int, question: str, start: int, end: int
) -> list[tuple[int, CorrectedRateView]]:
    """List what people would say of the answers of runs of a period, by when each ended, where labels tell.

    The newest of them, at most `_MOST_RUNS`.
    """
    period = sa.and_(runs.c.check_id == check_id, runs.c.finished_at.between(start, end))
    newest = runs.c.finished_at.desc()
    mine = sa.select(runs.c.finished_at, run_answers.c.body).join(runs, runs.c.id == run_answers.c.run_id)
    rows = connection.execute(mine.where(period, run_answers.c.body.is_not(None)).order_by(newest).limit(_MOST_RUNS))
    read: Iterable[tuple[int, RunAnswers]] = ((row.finished_at, with_unrated(json.loads(row.body))) for row in rows)
    return [(at, one["corrected"][question]) for at, one in read if question in one.get("corrected", {})]


_MOST_RUNS: Final = 20_000


def answers_at(
    connection: Connection, check_id: int, run_id: int, *, canary_ids: Collection[int] | None = None
) -> dict[int, AnswerRow]:
    """Read what held for each canary of a check at a run, or for a few of them, by canary id."""
    held: dict[int, AnswerRow] = {}
    mine = _ANSWER if canary_ids is None else _ANSWER.where(answers.c.canary_id.in_(canary_ids))
    for holding in (answers.c.last_run.is_(None), answers.c.last_run >= run_id):
        rows = connection.execute(mine.where(answers.c.check_id == check_id, answers.c.first_run <= run_id, holding))
        held.update((row.canary_id, row_value(AnswerRow, row, body=json.loads(row.body))) for row in rows)
    return held


def old_answers(connection: Connection, limit: int) -> list[int]:
    """Find what was answered to canaries before the oldest run their check still has."""
    oldest = sa.select(sa.func.min(runs.c.id)).where(runs.c.check_id == answers.c.check_id).scalar_subquery()
    return list(connection.execute(sa.select(answers.c.id).where(answers.c.last_run < oldest).limit(limit)).scalars())


def drop_answers(connection: Connection, old: Sequence[int]) -> int:
    """Delete what was answered to canaries."""
    return connection.execute(sa.delete(answers).where(answers.c.id.in_(old))).rowcount


def change_answers(
    connection: Connection, check_id: int, run_id: int, *, closed: Sequence[int], opened: Sequence[NewAnswer]
) -> None:
    """Close what no longer holds with the run before this one, and open what begins with it."""
    if closed:
        before = sa.select(sa.func.max(runs.c.id)).where(runs.c.check_id == check_id, runs.c.id < run_id)
        last_run = connection.execute(before).scalar_one() or run_id - 1
        for block in blocks(closed):
            held = sa.and_(answers.c.id.in_(block), answers.c.last_run.is_(None))
            connection.execute(sa.update(answers).where(held).values(last_run=last_run))
    hold_content(connection)  # a text that is found here must not be deleted as unused meanwhile
    texts = {text: digest(text) for text in dict.fromkeys(one.text for one in opened) if text is not None}
    insert_new(connection, answer_texts, ("hash", "text"), [(digest, text) for text, digest in texts.items()])
    ids = ids_of(connection, answer_texts, list(texts.values()))
    columns = ("check_id", "canary_id", "canary_version_id", "ranking_id", "text_id", "judge_id", "body", "first_run")
    insert_new(
        connection,
        answers,
        columns,
        [
            (
                check_id,
                one.canary_id,
                one.canary_version_id,
                one.ranking_id,
                None if one.text is None else ids[texts[one.text]],
                one.judge_id,
                json.dumps(one.body),
                run_id,
            )
            for one in opened
        ],
    )


_ANSWER: Final = sa.select(answers, answer_texts.c.text).outerjoin(answer_texts, answer_texts.c.id == answers.c.text_id)


def digest(text: str) -> bytes:
    """Return the hash by which a text is kept once."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


class JudgeDay(Value):
    """What a judge did in a day, UTC."""

    day: int
    """Days since 1970."""
    calls: int = 0
    cached: int = 0
    """Questions that were answered from what it said before."""
    tokens: int = 0
    cost: float = 0.0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Questions by outcome: the calls, and what the budget did not pay for."""


def known_ratings(connection: Connection, judge_id: int, keys: Sequence[str]) -> dict[str, tuple[RatingBody, int]]:
    """Return what a judge said under these keys, and when each was last known to be used."""
    found: dict[str, tuple[RatingBody, int]] = {}
    for block in blocks(keys):
        here = sa.and_(ratings.c.judge_id == judge_id, ratings.c.key.in_(block))
        rows = connection.execute(sa.select(ratings.c.key, ratings.c.body, ratings.c.used_at).where(here))
        found.update((row.key, (json.loads(row.body), row.used_at)) for row in rows)
    return found


def earlier_ratings(connection: Connection, judge_id: int, keys: Sequence[str], endpoint: str) -> dict[str, RatingBody]:
    """Return by these keys what an earlier release kept, whose keys name no endpoint, where only this one can say it.

    That is where every version of the judge that was there when it was used last asked this endpoint.
    """
    by_former = {former_key(key): key for key in keys}
    known = known_ratings(connection, judge_id, list(by_former))
    if not known:
        return {}
    endpoints = list_endpoints(connection, judge_id)
    said = {key: body for key, (body, used_at) in known.items() if sole_endpoint(endpoints, used_at) == endpoint}
    return {by_former[key]: body for key, body in said.items()}


def note_use(connection: Connection, judge_id: int, keys: Sequence[str], *, at: int) -> None:
    """Note that what a judge said under these keys, a few hundred, is still used."""
    here = sa.and_(ratings.c.judge_id == judge_id, ratings.c.key.in_(keys))
    connection.execute(sa.update(ratings).where(here).values(used_at=at))


def old_ratings(connection: Connection, limit: int, *, horizon: int) -> list[tuple[int, ...]]:
    """Find what judges said that no answer has needed since `horizon`."""
    old = sa.select(ratings.c.key, ratings.c.judge_id).where(ratings.c.used_at < horizon).limit(limit)
    return [tuple(row) for row in connection.execute(old)]


def drop_ratings(connection: Connection, old: Sequence[tuple[int, ...]]) -> int:
    """Delete what judges said, by key and judge."""
    for key, judge_id in old:
        connection.execute(sa.delete(ratings).where(ratings.c.key == key, ratings.c.judge_id == judge_id))
    return len(old)


def save_ratings(connection: Connection, judge_id: int, said: Mapping[str, RatingBody], *, at: int) -> None:
    """Keep what a judge said, by key."""
    rows = [(key, judge_id, json.dumps(body), at) for key, body in said.items()]
    upsert_many(connection, ratings, ("key", "judge_id"), ("key", "judge_id", "body", "used_at"), rows)


def read_day(connection: Connection, judge_id: int, day: int) -> JudgeDay:
    """Return what a judge did on a day so far."""
    return next(iter(read_days(connection, judge_id, [day])), JudgeDay(day=day))


def read_days(connection: Connection, judge_id: int, days: Iterable[int]) -> list[JudgeDay]:
    """Return what a judge did on these days, those on which it did anything, oldest first."""
    here = sa.select(judge_days).where(judge_days.c.judge_id == judge_id, judge_days.c.day.in_(list(days)))
    return [
        row_value(JudgeDay, row, outcomes=json.loads(row.outcomes))
        for row in connection.execute(here.order_by(judge_days.c.day))
    ]


def add_to_day(connection: Connection, judge_id: int, more: JudgeDay) -> None:
    """Add to what a judge did on a day. Of the jobs that ask a judge one is done at a time, so nothing is lost."""
    before = read_day(connection, judge_id, more.day)
    upsert(
        connection,
        judge_days,
        ["judge_id", "day"],
        judge_id=judge_id,
        day=more.day,
        calls=before.calls + more.calls,
        cached=before.cached + more.cached,
        tokens=before.tokens + more.tokens,
        cost=before.cost + more.cost,
        outcomes=json.dumps(Counter(before.outcomes) + Counter(more.outcomes)),
    )


class CalibrationRow(Value):
    """What the labels of a task say of a judge."""

    task_id: int
    task: str
    suite: str
    measure: str
    model: str
    wording: str
    labels: int
    calibrated: bool
    body: CalibrationBody
    drawn_at: int
    at: int
    edited_since: bool = False
    """Whether the judge asked another endpoint when the answers were drawn than the one in question, that of now or of
    a run: that may err otherwise."""


class DrawRow(Value):
    """A draw: by whom the answers were rated and how, and by check the verdicts on those that were not drawn.

    Of a draw of an older release the check is not known (None).
    """

    task_id: int
    judge_id: int
    question: str
    model: str
    wording: str
    endpoint: str | None
    """None = drawn by a release that did not keep it."""
    rest: Mapping[int | None, Sequence[float]]
    at: int


def save_calibration(connection: Connection, draw: DrawRow, body: CalibrationBody, *, at: int) -> None:
    """Store what the labels of a draw say in the place of what was computed before."""
    values = {name: getattr(draw, name) for name in ("task_id", "judge_id", "model", "wording")}
    counts = {"labels": body["labels"], "calibrated": int(body["calibrated"])}
    text = json.dumps(body)
    upsert(connection, calibrations, ["task_id"], **values, measure=draw.question, **counts, body=text, at=at)


def calibrations_in_force(
    connection: Connection, judge: Definition, rater: Rater | None = None
) -> dict[str, CalibrationRow]:
    """Return by measure what counts of a judge: labels of a model and wording, else of what it is now.

    Of several tasks it is the first of `list_calibrations`; archived ones do not count.
    """
    found: dict[str, CalibrationRow] = {}
    for one in list_calibrations(connection, judge, rater):
        found.setdefault(one.measure, one)
    return found


def list_calibrations(connection: Connection, judge: Definition, rater: Rater | None = None) -> list[CalibrationRow]:
    """Return all labels of a judge by task: of a model and wording, without a `rater` of those that it has now.

    Those of the endpoint of the `rater`, or of now, come first, where they are enough to be used; then those with the
    most labels, of those with as many the newest.
    """
    now = endpoint_hash(judge.body)
    counting = rater_of(judge.body["model"], Question, now) if rater is None else rater
    statement = (
        sa.select(
            calibrations,
            tasks.c.slug.label("task"),
            definitions.c.slug.label("suite"),
            answer_draws.c.at.label("drawn_at"),
            answer_draws.c.endpoint,
        )
        .join(tasks, tasks.c.id == calibrations.c.task_id)
        .join(definitions, definitions.c.id == tasks.c.suite_id)
        .join(answer_draws, answer_draws.c.task_id == calibrations.c.task_id)
        .where(calibrations.c.judge_id == judge.id, tasks.c.archived_at.is_(None))
    )
    endpoints, asked = list_endpoints(connection, judge.id), counting.get("endpoint", now)
    found = [
        row_value(
            CalibrationRow,
            row,
            calibrated=bool(row.calibrated),
            body={**_OF_EARLIER, **json.loads(row.body)},
            edited_since=(row.endpoint or endpoint_at(judge, endpoints, row.drawn_at)) != asked,
        )
        for row in connection.execute(statement).all()
        if (row.model, row.wording) == (counting["model"], counting["wordings"].get(row.measure))
    ]
    return sorted(found, key=lambda one: (_speaks_of_now(one, one.body), one.labels, one.task_id), reverse=True)


def _speaks_of_now(row: CalibrationRow, found: CalibrationBody | CheckRateView) -> bool:
    return not row.edited_since and not lacking_labels(found["labels"], found["yes"])


def list_endpoints(connection: Connection, judge_id: int) -> list[tuple[int, str]]:
    """List when each version of a judge was made, and the endpoint that it asks, by its hash, the oldest first."""
    mine = sa.select(definition_versions).where(definition_versions.c.definition_id == judge_id)
    ordered = mine.order_by(definition_versions.c.created_at, definition_versions.c.id)
    return [(row.created_at, endpoint_hash(json.loads(row.body))) for row in connection.execute(ordered)]


def endpoint_at(judge: Definition, endpoints: Sequence[tuple[int, str]], at: int) -> str:
    """Return the endpoint that a judge asked at a time, where what it said does not name it.

    That of the newest version that was there: of a version that came back only the first time is kept.
    """
    if judge.updated_at <= at:
        return endpoint_hash(judge.body)
    asked = [endpoint for made_at, endpoint in endpoints if made_at <= at]
    return asked[-1] if asked else endpoint_hash(judge.body)


def sole_endpoint(endpoints: Sequence[tuple[int, str]], at: int) -> str | None:
    """Return the endpoint that every version of a judge asked which was there by then; None = there were several."""
    asked = {endpoint for made_at, endpoint in endpoints if made_at <= at}
    return asked.pop() if len(asked) == 1 else None


_OF_EARLIER: Final = {"checks": [], "disputed": 0, "labellers": None}
"""What calibrations of earlier releases lack."""


def labels_of_checks(found: Iterable[CalibrationRow]) -> dict[tuple[str, str], tuple[str, CheckRateView]]:
    """Return by measure and check the labels that count, with their task.

    Those of the judge as it is now, where they are enough to be used; then those that correct, then the most.
    """
    best: dict[tuple[str, str], tuple[tuple[bool, bool, int], str, CheckRateView]] = {}
    for row in found:
        for one in row.body["checks"]:
            place, rank = (row.measure, one["check"]), (_speaks_of_now(row, one), one["corrects"], one["labels"])
            if place not in best or rank > best[place][0]:
                best[place] = (rank, row.task, one)
    return {place: (task, one) for place, (_, task, one) in best.items()}


def archived_labels(connection: Connection, judge_id: int, question: str, rater: Rater) -> dict[str, int]:
    """Return by archived task how many labels it has of a model and wording of a judge; they count no more."""
    counting = (rater["model"], rater["wordings"].get(question))
    statement = (
        sa.select(tasks.c.slug, calibrations.c.labels, calibrations.c.model, calibrations.c.wording)
        .join(tasks, tasks.c.id == calibrations.c.task_id)
        .where(calibrations.c.judge_id == judge_id, calibrations.c.measure == question, calibrations.c.labels > 0)
        .where(tasks.c.archived_at.is_not(None))
        .order_by(calibrations.c.task_id)
    )
    return {row.slug: row.labels for row in connection.execute(statement) if (row.model, row.wording) == counting}


class LabelCounts(Value):
    """Labels of people that are not among those which count of a judge."""

    waiting: int
    """For its present model and wording: they came after their task was counted last."""
    of_others: Mapping[str, int]
    """By who rated their answers, in words: another model, or this one in other words. They never count for it."""


def count_labels(connection: Connection, judge_id: int, question: str, rater: Rater) -> LabelCounts:
    """Count the labels that people gave to answers which a judge rated by a question, and that do not count yet."""
    mine = (answer_draws.c.judge_id == judge_id, answer_draws.c.question == question, tasks.c.archived_at.is_(None))
    by_people = (annotations.c.by_judge == 0, annotations.c.grade.is_not(None), annotations.c.withdrawn_at.is_(None))
    is_new = annotations.c.at > sa.func.coalesce(calibrations.c.at, 0)
    statement = (
        sa.select(
            answer_draws.c.model,
            answer_draws.c.wording,
            sa.func.count().label("labels"),
            sa.func.sum(sa.case((is_new, 1), else_=0)).label("new"),
        )
        .select_from(annotations)
        .join(answer_draws, answer_draws.c.task_id == annotations.c.task_id)
        .join(tasks, tasks.c.id == annotations.c.task_id)
        .outerjoin(calibrations, calibrations.c.task_id == annotations.c.task_id)
        .where(*mine, *by_people)
        .group_by(answer_draws.c.model, answer_draws.c.wording)
        .order_by(answer_draws.c.model, answer_draws.c.wording)
    )
    waiting, of_others = 0, Counter[str]()
    for row in connection.execute(statement):
        if (row.model, row.wording) == (rater["model"], rater["wordings"].get(question)):
            waiting = int(row.new)
        else:
            same = row.model == rater["model"]
            of_others["this model, asked in other words" if same else f"model '{row.model}'"] += row.labels
    return LabelCounts(waiting=waiting, of_others=of_others)


def confirmed_of_runs(connection: Connection, run_ids: Collection[int]) -> dict[int, frozenset[str]]:
    """Return by run the measures that people confirmed of the judge that rated its answers, as it was then.

    Whatever the judge is now: a number keeps who said it. Of a run whose answers wait, the judge that its check names
    is meant as it is now.
    """
    answers_of = read_run_answers(connection, sorted(run_ids))
    judges = {run_id: None if found is None else found["judge"] for run_id, found in answers_of.items()}
    raters = {run_id: _rater(connection, run_id, found) for run_id, found in answers_of.items()}
    for run_id, check_id in _checks_of(connection, [one for one in run_ids if answers_of.get(one) is None]).items():
        judges[run_id] = definition_by_id(connection, check_id).body.get("judge")
    known: dict[tuple[str, str], frozenset[str]] = {}  # most runs of a check were rated by one
    confirmed: dict[int, frozenset[str]] = {}
    for run_id in run_ids:
        judge, rater = judges.get(run_id), raters.get(run_id)
        if judge is None or (rater is None and answers_of.get(run_id) is not None):
            confirmed[run_id] = frozenset()
            continue
        place = (judge, json.dumps(rater, sort_keys=True))
        if place not in known:
            known[place] = _confirmed(connection, judge, rater)
        confirmed[run_id] = known[place]
    return confirmed


def confirmed_of_run(connection: Connection, run_id: int) -> frozenset[str]:
    """Return the same of one run."""
    return confirmed_of_runs(connection, [run_id])[run_id]


def rater_of_run(connection: Connection, run_id: int) -> Rater | None:
    """Return what the judge that rated the answers of a run was then; None = no judge did, or not yet."""
    return _rater(connection, run_id, read_run_answers(connection, [run_id]).get(run_id))


def _rater(connection: Connection, run_id: int, found: RunAnswers | None) -> Rater | None:
    """Return by what the answers of a run were rated; of an earlier release, what ratings and versions tell."""
    if found is None or found["judge"] is None:
        return None
    rater = found["rated_by"] if "rated_by" in found else _rater_of_ratings(connection, run_id)
    if rater is None or "endpoint" in rater:
        return rater
    judge = find_definition(connection, "judge", found["judge"])
    ended = sa.func.coalesce(runs.c.finished_at, runs.c.created_at)
    at = connection.execute(sa.select(ended).where(runs.c.id == run_id)).scalar()
    if judge is None or at is None:
        return rater
    return {**rater, "endpoint": endpoint_at(judge, list_endpoints(connection, judge.id), at)}


def _rater_of_ratings(connection: Connection, run_id: int) -> Rater | None:
    held = sa.and_(answers.c.first_run <= run_id, sa.or_(answers.c.last_run.is_(None), answers.c.last_run >= run_id))
    rated = (
        sa.select(answers.c.body)
        .join(runs, runs.c.check_id == answers.c.check_id)
        .where(runs.c.id == run_id, held, answers.c.judge_id.is_not(None), answers.c.text_id.is_not(None))
        .limit(_READ_FOR_A_RATER)
    )
    ratings_of: dict[str, RatingBody] = {}
    for body in connection.execute(rated).scalars():
        ratings_of |= json.loads(body)["ratings"]
    if not ratings_of:
        return None
    models = [one.get("model", "") for one in ratings_of.values()]
    return {"model": models[0], "wordings": {name: one.get("wording", "") for name, one in ratings_of.items()}}


_READ_FOR_A_RATER: Final = 16
"""Answers read for it: about correctness some are not asked about."""


def _checks_of(connection: Connection, run_ids: Sequence[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for block in blocks(run_ids):
        rows = connection.execute(sa.select(runs.c.id, runs.c.check_id).where(runs.c.id.in_(block)))
        found.update((row.id, row.check_id) for row in rows)
    return found


def _confirmed(connection: Connection, judge: str, rater: Rater | None) -> frozenset[str]:
    row = find_definition(connection, "judge", judge)
    if row is None:
        return frozenset()
    counting = calibrations_in_force(connection, row, rater)
    return frozenset(measure for measure, one in counting.items() if one.calibrated)


def retriever_asked(connection: Connection, check: str, at: int) -> tuple[str, int | None] | None:
    """Return the retriever that a check asked in its newest run that had ended by then, and which version of it.

    None = there is no such run; the version may be unknown.
    """
    asked = (
        sa.select(definition_versions.c.body, runs.c.retriever_version_id)
        .join(runs, runs.c.check_version_id == definition_versions.c.id)
        .join(definitions, definitions.c.id == runs.c.check_id)
        .where(definitions.c.kind == "check", definitions.c.slug == check, runs.c.finished_at <= at)
        .order_by(runs.c.id.desc())
        .limit(1)
    )
    row = connection.execute(asked).one_or_none()
    return None if row is None else (str(json.loads(row.body)["retriever"]), row.retriever_version_id)


class Confirmation(NamedTuple):
    """Whether people confirmed a measure of a judge, and did so before it asked the endpoint that it asks now."""

    calibrated: bool
    edited_since: bool


def calibrated_judges(connection: Connection) -> dict[tuple[str, str], Confirmation]:
    """Return for each judge in force and each measure it is asked for whether people confirmed it."""
    found: dict[tuple[str, str], Confirmation] = {}
    for judge in list_definitions(connection, "judge"):
        counting = calibrations_in_force(connection, judge)
        for measure in judge.body["questions"]:
            one = counting.get(measure)
            found[judge.slug, measure] = Confirmation(
                calibrated=one is not None and one.calibrated, edited_since=one is not None and one.edited_since
            )
    return found


class RatedRow(Value):
    """An answer with a defined rating of a judge to one question; `at` = when it was given first."""

    id: int
    check_id: int
    canary_id: int
    at: int
    value: float


class DrawnRow(Value):
    """An answer with all that an item needs."""

    id: int
    check_id: int
    canary_id: int
    canary_version_id: int
    ranking_id: int
    text: str


class DrawnVerdict(Value):
    """Verdict on a drawn answer, and on it once padded; `padded` None = undefined, or it was not asked."""

    item_id: int
    check_id: int | None
    value: float
    padded: float | None
    padded_outcome: str | None


def rated_answers(
    connection: Connection,
    judge_id: int,
    suite_id: int,
    *,
    question: str,
    model: str,
    wording: str,
    endpoint: str,
    since: int = 0,
) -> list[RatedRow]:
    """Read the answers to canaries of a suite of which a judge, with this model, wording and endpoint, said something.

    `since`: only those that a run which ended from then on gave first. Where a canary has variables or a conversation,
    only what the judge said knowing them.
    What an earlier release kept names no endpoint: it counts where the judge had asked no other one by then.
    """
    ended = sa.func.coalesce(runs.c.finished_at, runs.c.created_at)
    statement = (
        sa.select(
            answers.c.id,
            answers.c.check_id,
            answers.c.canary_id,
            answers.c.canary_version_id,
            answers.c.body,
            runs.c.finished_at,
            runs.c.created_at,
        )
        .join(runs, runs.c.id == answers.c.first_run)
        .join(canaries, canaries.c.id == answers.c.canary_id)
        .where(answers.c.judge_id == judge_id, answers.c.text_id.is_not(None), canaries.c.suite_id == suite_id)
        .where(ended >= since)
        .order_by(answers.c.id)
    )
    found, endpoints = [], list_endpoints(connection, judge_id)
    answered = connection.execute(statement).all()
    canary_of = bodies_of(connection, {row.canary_version_id for row in answered})
    for row in answered:
        rating: RatingBody | None = json.loads(row.body)["ratings"].get(question)
        if rating is None or rating["value"] is None:
            continue
        canary = canary_of[row.canary_version_id]
        in_context = bool(canary.get("vars") or canary.get("history"))
        asked = wording_of(Question(question), in_context=True) if in_context else wording
        at = row.finished_at or row.created_at
        at_endpoint = rating.get("endpoint") or sole_endpoint(endpoints, at)
        if (rating.get("model"), rating.get("wording"), at_endpoint) == (model, asked, endpoint):
            found.append(row_value(RatedRow, row, at=at, value=rating["value"]))
    return found


def read_drawn(connection: Connection, ids: Sequence[int]) -> dict[int, DrawnRow]:
    """Read answers by id."""
    found: dict[int, DrawnRow] = {}
    for block in blocks(ids):
        statement = (
            sa.select(answers, answer_texts.c.text)
            .join(answer_texts, answer_texts.c.id == answers.c.text_id)
            .where(answers.c.id.in_(block))
        )
        for row in connection.execute(statement):
            found[row.id] = row_value(DrawnRow, row)
    return found


def save_draw(connection: Connection, draw: DrawRow, verdicts: Mapping[int, tuple[int, float]]) -> None:
    """Store a draw, with check and verdict of the drawn answers by item."""
    others = [(check, value) for check, values in draw.rest.items() for value in values]
    lists = {
        "rest": json.dumps([value for _, value in others]),
        "rest_checks": json.dumps([check for check, _ in others]),
    }
    values = asdict(draw) | lists
    insert_new(connection, answer_draws, tuple(values), [tuple(values.values())])
    rows = [(item_id, draw.task_id, check_id, value) for item_id, (check_id, value) in verdicts.items()]
    insert_new(connection, drawn_verdicts, ("item_id", "task_id", "check_id", "value"), rows)


def find_draw(connection: Connection, task_id: int) -> DrawRow | None:
    """Return the draw of a task; None = nothing is drawn yet."""
    row = connection.execute(sa.select(answer_draws).where(answer_draws.c.task_id == task_id)).one_or_none()
    if row is None:
        return None
    rest: list[float] = json.loads(row.rest)
    by_check: dict[int | None, list[float]] = {}
    for check, value in zip(json.loads(row.rest_checks or "null") or [None] * len(rest), rest, strict=True):
        by_check.setdefault(check, []).append(value)
    return row_value(DrawRow, row, rest=by_check)


def list_verdicts(connection: Connection, task_id: int) -> list[DrawnVerdict]:
    """Return the verdicts on the drawn answers of a task, by item."""
    statement = sa.select(drawn_verdicts).where(drawn_verdicts.c.task_id == task_id).order_by(drawn_verdicts.c.item_id)
    return [row_value(DrawnVerdict, row) for row in connection.execute(statement)]


def save_padded(connection: Connection, said: Mapping[int, tuple[str, float | None]]) -> None:
    """Store outcome and verdict on padded answers, by item."""
    for item_id, (outcome, value) in sorted(said.items()):
        mine = drawn_verdicts.c.item_id == item_id
        connection.execute(sa.update(drawn_verdicts).where(mine).values(padded=value, padded_outcome=outcome))
