"""What people see of generated answers: those of a run, feedback of users, and how far a judge can be trusted.

What is stored as it is shown, such as `RunAnswers`, stands in `domain`.
"""

from typing import Literal

from typing_extensions import TypedDict

from app.answers.domain.generated import AnswerBody, RunAnswers
from app.answers.domain.trust import CalibrationBody, CheckRateView
from app.base.values import TimeText


class FeedbackView(TypedDict):
    """What users said of an answer, in events."""

    thumbs_up: int
    thumbs_down: int
    task_done: int
    task_not_done: int


class CanaryFeedback(FeedbackView):
    """What users said of the answers to one canary, whichever version of them."""

    canary: str
    versions: int
    """How many different answers they said it of."""


class FeedbackPage(TypedDict):
    """What users said of the answers of a check: of all of them, and by canary in the order of keys."""

    total: FeedbackView
    items: list[CanaryFeedback]
    next: str | None


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
    """Measures that people confirmed of the judge as it rated this run; its other numbers are a hint only."""
    summary: RunAnswers | None
    """Null unless `rated`."""
    items: list[AnswerView]
    next: str | None


class ReceivedFeedback(TypedDict):
    """What became of feedback: stored, known by its event id already, or about no answer that the check has seen."""

    received: int
    stored: int
    known: int
    unmatched: int


class ForgottenFeedback(TypedDict):
    """Number of events that were deleted."""

    forgotten: int


class CalibrationView(CalibrationBody):
    """The same with the task that the labels are of."""

    measure: str
    task: str
    suite: str
    drawn_at: TimeText
    updated_at: TimeText


class CheckTrust(CheckRateView):
    """The same with the task that the labels are of."""

    task: str | None
    """Null where no answer of the check is labelled."""
    sentence: str
    """What people would say of its answers, and whether its runs are corrected."""


class MeasureTrust(TypedDict):
    """How far one measure of a judge can be trusted, and what to do next, in words."""

    measure: str
    calibrated: bool
    sentences: list[str]
    next: str
    edited_since: bool
    """Whether the judge asks another endpoint than when the answers that people labelled were drawn."""
    checks: list[CheckTrust]
    """Each check that uses the judge."""
    calibration: CalibrationView | None
    """Null without labels of the present model and wording."""


class JudgeDayView(TypedDict):
    """What a judge did today, UTC."""

    calls: int
    cached: int
    """Questions answered from what it said before, at no cost."""
    tokens: int
    cost: float
    budget: float | None
    outcomes: dict[str, int]


class JudgeReport(TypedDict):
    """How far the numbers of a judge can be trusted."""

    judge: str
    failing: str | None
    """To how many questions of today it said nothing, and why, where those are more than a tenth; else null."""
    model: str
    calibrated: bool
    """Whether people confirmed every measure of it."""
    measures: list[MeasureTrust]
    today: JudgeDayView
    checks: list[str]
    """That use it."""
