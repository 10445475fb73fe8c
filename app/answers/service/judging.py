"""Questions to a judge about answers: what it said before is not asked again, and a day's budget is kept."""

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from app.answers import store as ratings
from app.answers.documents import JudgeDocument
from app.answers.domain.judges import (
    VERSIONS,
    AnswerToJudge,
    AskJudge,
    Judge,
    JudgeOutcome,
    JudgeReply,
    Prompt,
    Question,
    RatedAnswer,
    Rating,
    build_prompt,
    cache_key,
    read_rating,
)
from app.answers.domain.measures import cost, estimate_tokens
from app.answers.domain.views import AnswerBody, RatingBody
from app.answers.store import JudgeDay
from app.base.db.engine import Connection, Store, to_us
from app.base.documents.validation_messages import parse_document
from app.base.errors import InvalidInputError
from app.base.values import Canary, Ranking
from app.base.vault import Vault
from app.catalog.documents.secret_fields import join_secrets
from app.catalog.store import definitions

BLOCK: Final = 16
"""Questions asked and written at a time."""
_LASTING: Final = frozenset({JudgeOutcome.OK, JudgeOutcome.DECLINED})
"""Outcomes that the same question would have again."""
_NOTED_EACH: Final = timedelta(days=1)
"""Use is noted so often, for retention, which counts in weeks."""
_NOTES: Final = 500
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """One question about one answer."""

    place: int
    question: Question
    key: str
    judged: AnswerToJudge


def judge_answers(
    store: Store,
    ask: AskJudge,
    judge: Judge,
    judge_id: int,
    answers: Sequence[tuple[Canary, tuple[str, ...], RatedAnswer]],
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool],
) -> list[RatedAnswer]:
    """Return the answers with the judge's ratings; of those left when it is `stopping`, without."""
    judged = {
        place: AnswerToJudge(
            query=canary.query, contexts=contexts, answer=rated.answer.text, expected=canary.expected_answer
        )
        for place, (canary, contexts, rated) in enumerate(answers)
        if rated.answer.text is not None
    }
    ratings_of = ask_questions(store, ask, judge, judge_id, judged, clock=clock, stopping=stopping)
    return [replace(rated, ratings=ratings_of.get(place, {})) for place, (_, _, rated) in enumerate(answers)]


def ask_questions(
    store: Store,
    ask: AskJudge,
    judge: Judge,
    judge_id: int,
    judged: Mapping[int, AnswerToJudge],
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool],
) -> Mapping[int, Mapping[Question, Rating]]:
    """Return what a judge says to its questions about each answer, by the place of the answer.

    What it said before is not asked again, and the budget of the day is kept. Missing is what is left when it is
    `stopping`.
    """
    asks = [one for place, answer in judged.items() for one in _asks(place, judge, answer)]
    found = _known(store, judge_id, asks, clock())
    missing = list({one.key: one for one in asks if one.key not in found}.values())
    for start in range(0, len(missing), BLOCK):
        if stopping():
            break
        found |= _asked(store, ask, judge, judge_id, missing[start : start + BLOCK], clock, stopping)
    by_place: dict[int, dict[Question, Rating]] = {}
    for one in asks:
        if one.key in found:
            by_place.setdefault(one.place, {})[one.question] = found[one.key]
    return by_place


def _asks(place: int, judge: Judge, judged: AnswerToJudge) -> list[_Ask]:
    """Return the questions about an answer; correctness only where the canary says what is expected."""
    return [
        _Ask(place=place, question=question, key=cache_key(question, judged, judge.model), judged=judged)
        for question in judge.questions
        if question is not Question.CORRECTNESS or judged.expected is not None
    ]


def _known(store: Store, judge_id: int, asks: Sequence[_Ask], now: datetime) -> dict[str, Rating]:
    """Return what the judge said before, by key."""
    keys = list(dict.fromkeys(one.key for one in asks))
    if not keys:
        return {}
    with store.read() as connection:
        known = ratings.known_ratings(connection, judge_id, keys)
    unnoted = [key for key, (_, used_at) in known.items() if used_at < to_us(now - _NOTED_EACH)]
    for start in range(0, len(unnoted), _NOTES):  # the writer is not held for long
        with store.write() as connection:
            ratings.note_use(connection, judge_id, unnoted[start : start + _NOTES], at=to_us(now))
    if known:
        with store.write() as connection:
            ratings.add_to_day(connection, judge_id, JudgeDay(day=_day(now), cached=len(known)))
    return {key: read_rating_body(body) for key, (body, _) in known.items()}


def _asked(
    store: Store,
    ask: AskJudge,
    judge: Judge,
    judge_id: int,
    asks: Sequence[_Ask],
    clock: Callable[[], datetime],
    stopping: Callable[[], bool],
) -> dict[str, Rating]:
    """Ask some questions within the budget of the day, and keep what comes of each."""
    prompts = [build_prompt(one.question, one.judged, secrets.token_hex(8)) for one in asks]
    affordable = count_affordable(store, judge, judge_id, prompts, clock())
    replies = collect_replies(ask, judge, prompts[:affordable], stopping)
    found = {asks[place].key: read_rating(prompts[place], reply) for place, reply in replies.items()}
    lasting = {key: rating_body(rating) for key, rating in found.items() if rating.outcome in _LASTING}
    now = clock()
    with store.write() as connection:
        ratings.save_ratings(connection, judge_id, lasting, at=to_us(now))
        day = judge_day(judge, prompts, replies, [rating.outcome for rating in found.values()], now)
        ratings.add_to_day(connection, judge_id, day)
    over = Rating(outcome=JudgeOutcome.OVER_BUDGET, detail=f"the budget of judge '{judge.slug}' for today is used up")
    return found | {one.key: over for one in asks[affordable:]}


def judge_day(
    judge: Judge,
    prompts: Sequence[Prompt],
    replies: Mapping[int, JudgeReply],
    outcomes: Sequence[JudgeOutcome],
    now: datetime,
) -> JudgeDay:
    """Return what these replies add to the day of a judge; tokens that an endpoint does not count are estimated."""
    tokens = sum(
        estimate_tokens(prompts[place]) if reply.tokens is None else reply.tokens for place, reply in replies.items()
    )
    return JudgeDay(
        day=_day(now),
        calls=len(replies),
        tokens=tokens,
        cost=cost(tokens, judge.price_per_million),
        outcomes=Counter(map(str, outcomes)),
    )


def count_affordable(store: Store, judge: Judge, judge_id: int, prompts: Sequence[Prompt], now: datetime) -> int:
    """Return how many of these prompts, from the first, the rest of the day's budget pays for."""
    if judge.budget_per_day is None:
        return len(prompts)
    with store.read() as connection:
        spent = ratings.read_day(connection, judge_id, _day(now)).cost
    for number, prompt in enumerate(prompts):
        spent += cost(estimate_tokens(prompt), judge.price_per_million)
        if spent > judge.budget_per_day:
            return number
    return len(prompts)


def collect_replies(
    ask: AskJudge, judge: Judge, prompts: Sequence[Prompt], stopping: Callable[[], bool]
) -> Mapping[int, JudgeReply]:
    """Return the replies to prompts by their places; of those left when it is `stopping`, none."""
    replies: dict[int, JudgeReply] = {}
    if not prompts:
        return replies
    try:
        with closing(ask(judge, prompts)) as calls:  # type: ignore[type-var] # a generator; Iterator has no close()
            for call in calls:
                if call is not None:
                    replies[call[0]] = call[1]
                if stopping():
                    break
    except InvalidInputError as error:
        refused = JudgeReply(text=None, outcome=JudgeOutcome.JUDGE_REFUSED, detail=str(error))
        replies |= {place: refused for place in range(len(prompts)) if place not in replies}
    return replies


def _day(now: datetime) -> int:
    return (now - _EPOCH).days


def load_judge(connection: Connection, vault: Vault, slug: str | None) -> tuple[int | None, Judge | None]:
    """Return id and value of a judge; None = there is none of this name in force."""
    row = None if slug is None else definitions.find_definition(connection, "judge", slug)
    if row is None or row.archived_at is not None:
        return None, None
    whole = join_secrets(row.body, vault.decrypt(row.secrets))
    return row.id, parse_document(JudgeDocument, whole).to_domain()


def contexts_of(ranking: Ranking, k: int) -> tuple[str, ...]:
    """Return the texts of the top k hits; a hit without a text gives the model nothing."""
    return tuple(text for text in ranking.texts[:k] if text is not None)


def answer_body(rated: RatedAnswer, judge: Judge | None) -> AnswerBody:
    """Return what is stored of an answer besides its text; ratings name the model and the wording they depend on."""
    model = "" if judge is None else judge.model
    return {
        "outcome": str(rated.answer.outcome),
        "detail": rated.answer.detail,
        "utilisation": rated.utilisation,
        "chunks_used": rated.chunks_used,
        "ratings": {
            str(question): {**rating_body(rating), "model": model, "wording": VERSIONS[question]}
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
