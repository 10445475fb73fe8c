"""Views of generated answers, as JSON in rows and on the wire."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class JudgedClaim(TypedDict):
    """A claim as the judge worded it, and whether it holds."""

    text: str
    supported: bool


class RatingBody(TypedDict):
    """What a judge says of one answer to one question."""

    outcome: str
    value: float | None
    """In [0, 1]; null unless the outcome is `ok`: undefined, never 0."""
    detail: NotRequired[str | None]
    claims: NotRequired[list[JudgedClaim]]
    model: NotRequired[str]
    """Of the judge, when it said so."""
    wording: NotRequired[str]
    """Version of the question's wording."""


class AnswerBody(TypedDict):
    """What is known of one answer besides its text."""

    outcome: str
    """`ok`, or how the request for it ended."""
    detail: str | None
    utilisation: float | None
    """Share of its sentences that are worded like a retrieved chunk: lexical grounding."""
    chunks_used: float | None
    """Share of the chunks whose words it repeats."""
    ratings: dict[str, RatingBody]
    """By question; empty where no judge was asked."""


class RunAnswers(TypedDict):
    """What the answers of a run come to."""

    judge: str | None
    sampled: int
    """Measured canaries whose answers are watched."""
    answered: int
    outcomes: dict[str, int]
    """Requests for answers by outcome."""
    ratings: dict[str, dict[str, int]]
    """By question: how many ended with each outcome."""
    measures: dict[str, float | None]
    """Means over the answers in which each is defined."""
    problem: NotRequired[str]
    """Why nothing was judged, where definitions could not be used; a sentence without its full stop."""


class FeedbackView(TypedDict):
    """What users said of an answer, in events."""

    thumbs_up: int
    thumbs_down: int
    task_done: int
    task_not_done: int


class ReceivedFeedback(TypedDict):
    """What became of feedback: stored, known by its event id already, or about no answer that the check has seen."""

    received: int
    stored: int
    known: int
    unmatched: int


class ForgottenFeedback(TypedDict):
    """Number of events that were deleted."""

    forgotten: int


class AnswerView(AnswerBody):
    """The answer to one canary of a run."""

    key: str
    query: str
    answer: str | None
    """Null where there is none; `outcome` and `detail` say why."""
    expected_answer: str | None
    since_run: str
    """The run from which on the answer has been the same."""
    feedback: FeedbackView | None
    """Of users, about this very answer; null = none."""
    contexts: list[str]
    """The chunks that the answer was made of."""


class RunAnswersPage(TypedDict):
    """The answers of a run."""

    status: Literal["off", "pending", "rated"]
    confirmed: list[str]
    """Measures of the judge that people confirmed; its other numbers are a hint only."""
    summary: RunAnswers | None
    """Null unless `rated`."""
    items: list[AnswerView]
    next: str | None
