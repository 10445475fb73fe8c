"""A judge as a value, what it is asked, and what came of that; and `AskJudge`, which asks it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from app.answers.domain.prompts import Prompt, Question
from app.base.values import Outcome
from app.retrievers.domain.retrievers import AnswerSource, Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A language model that is asked about answers, by an OpenAI-compatible endpoint."""

    slug: str
    endpoint: Endpoint
    model: str
    questions: tuple[Question, ...] = tuple(Question)
    price_per_million: float = 0.0
    """Of tokens, in any currency; 0 = costs are not counted."""
    budget_per_day: float | None = None
    """In the same currency, from midnight UTC; None = no limit."""


class JudgeOutcome(StrEnum):
    """How a question to a judge ended. Only `ok` is a measurement; none of the others is a failure of retrieval."""

    OK = "ok"
    DECLINED = "declined"
    """The answer makes no claim, so that there is nothing to judge."""
    JUDGE_TIMEOUT = "judge_timeout"
    JUDGE_REFUSED = "judge_refused"
    """It answered with an error, could not be reached, or its model declined."""
    UNPARSABLE = "unparsable"
    OVER_BUDGET = "over_budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """What came of one prompt: a text to read, or why there is none."""

    text: str | None
    outcome: JudgeOutcome = JudgeOutcome.OK
    """`ok` exactly where there is a text."""
    detail: str | None = None
    """One sentence for people; never holds a secret or a piece of a reply."""
    tokens: int | None = None
    """Sent and received, as the endpoint counts them; None = it does not say."""


class AskJudge(Protocol):
    """Asks a judge; one of the seams where tests put a fake."""

    def __call__(self, judge: Judge, prompts: Sequence[Prompt]) -> Iterator[tuple[int, JudgeReply] | None]:
        """Yield (position, reply) as they come in, each position once.

        None = nothing came for a while, and the caller may want to stop; closing cancels the rest. Whatever the judge
        does is a reply, never an exception.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequest:
    """A query with the texts of its hits, to be answered."""

    query: str
    contexts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedAnswer:
    """An answer, or why there is none."""

    text: str | None
    outcome: Outcome = Outcome.OK
    """`ok` exactly where there is a text."""
    detail: str | None = None
    """One sentence for people, without secrets."""


class AskAnswers(Protocol):
    """Asks the endpoint that answers queries from retrieved texts; otherwise as `AskJudge`."""

    def __call__(
        self, source: AnswerSource, requests: Sequence[AnswerRequest]
    ) -> Iterator[tuple[int, GeneratedAnswer] | None]:
        """Yield (position, answer) as they come in, each position once; None where nothing came for a while."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """What a judge says of one answer to one question."""

    outcome: JudgeOutcome
    value: float | None = None
    """In [0, 1]; None unless the outcome is `ok`: undefined, never 0."""
    detail: str | None = None
    claims: tuple[tuple[str, bool], ...] = ()
    """The claims as the judge worded them, and whether each holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedAnswer:
    """An answer of a run with everything that is known of it."""

    answer: GeneratedAnswer
    contexts: int
    utilisation: float | None = None
    """Share of its sentences that are worded like a chunk: lexical grounding."""
    chunks_used: float | None = None
    """Share of the chunks whose words it repeats."""
    ratings: Mapping[Question, Rating] = field(default_factory=dict)
