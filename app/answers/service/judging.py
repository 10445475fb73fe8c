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


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeInUse:
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
                query=canary.query, contexts=contexts, answer=rated.answer.text, expected=canary.expected_answer
            )
            for place, (canary, contexts, rated) in enumerate(answers)
            if rated.answer.text is not None
        }
        ratings_of = self.ask_questions(judged)
        return [replace(rated, ratings=ratings_of.get(place, {})) for place, (_, _, rated) in enumerate(answers)]

    def ask_questions(self, judged: Mapping[int, AnswerToJudge]) -> Mapping[int, Mapping[Question, Rating]]:
        """Return what the judge says to its questions about each answer, by the place of the answer.

        What it said before is not asked again, and the budget of the day is kept. Missing is what is left when it is
        `stopping`. About correctness it is asked only where the canary says what is expected.
        """
        asks = [
            _Ask(place=place, question=question, key=cache_key(question, answer, self.judge.model), judged=answer)
            for place, answer in judged.items()
            for question in self.judge.questions
            if question is not Question.CORRECTNESS or answer.expected is not None
        ]
        found = self._known(asks)
        missing = list({one.key: one for one in asks if one.key not in found}.values())
        for start in range(0, len(missing), BLOCK):
            if self.stopping():
                break
            found |= self._asked(missing[start : start + BLOCK])
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
            known = ratings.known_ratings(connection, self.judge_id, keys)
        unnoted = [key for key, (_, used_at) in known.items() if used_at < to_us(now - _NOTED_EACH)]
        for start in range(0, len(unnoted), _NOTES):  # the writer is not held for long
            with self.store.write() as connection:
                ratings.note_use(connection, self.judge_id, unnoted[start : start + _NOTES], at=to_us(now))
        if known:
            with self.store.write() as connection:
                ratings.add_to_day(connection, self.judge_id, JudgeDay(day=day_of(now), cached=len(known)))
        return {key: read_rating_body(body) for key, (body, _) in known.items()}

    def _asked(self, asks: Sequence[_Ask]) -> dict[str, Rating]:
        """Ask some questions within the budget of the day, and keep what comes of each."""
        prompts = [build_prompt(one.question, one.judged, secrets.token_hex(8)) for one in asks]
        replies, affordable = self.collect_replies(prompts)
        found = {asks[place].key: read_rating(prompts[place], reply) for place, reply in replies.items()}
        lasting = {key: rating_body(rating) for key, rating in found.items() if rating.outcome in _LASTING}
        now = self.clock()
        with self.store.write() as connection:
            ratings.save_ratings(connection, self.judge_id, lasting, at=to_us(now))
            self.add_to_day(connection, prompts, replies, [rating.outcome for rating in found.values()], now)
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
            spent = ratings.read_day(connection, self.judge_id, day_of(self.clock())).cost
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
        ratings.add_to_day(connection, self.judge_id, day)


def day_of(now: datetime) -> int:
    """Return the days since 1970, UTC."""
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
