"""Report of a judge: how far people confirm each of its measures, and what it did and cost today."""

from typing_extensions import TypedDict

from app.annotation.domain.views import CoefficientView
from app.base.views import TimeText


class RateView(TypedDict):
    """Share of answers that people would say yes of, with its 95 % interval; `value` is null without labels."""

    value: float | None
    low: float
    high: float
    basis: str
    """`people_and_judge`, or `people`: labels alone."""
    reason: str
    """Why this basis."""
    judge_rate: float | None
    """Mean of the judge's own verdicts, uncorrected."""


class ProportionView(TypedDict):
    """Share of cases with its exact 95 % interval; `value` is null without a case."""

    successes: int
    count: int
    value: float | None
    low: float
    high: float


class LengthBiasView(TypedDict):
    """Difference in YES between answers that are padded with true sentences and the same ones plain."""

    pairs: int
    padded_only: int
    """YES only when padded."""
    plain_only: int
    difference: float | None
    low: float | None
    high: float | None
    shown: bool
    """Whether 0 is outside the interval: length alone changes verdicts."""
    outcomes: dict[str, int]
    """Questions about padded answers by outcome."""


class CalibrationBody(TypedDict):
    """What the labels of a task say of a judge."""

    labels: int
    """Answers that people decided; disputed, skipped and open ones are left out."""
    yes: int
    unlabelled: int
    """Rated answers beside them that enter the estimate."""
    rate: RateView
    kappa: CoefficientView
    sensitivity: ProportionView
    """Of the answers that people say yes of, those that the judge says yes of."""
    specificity: ProportionView
    """Of the answers that people say no of, those that the judge says no of."""
    calibrated: bool
    reason: str
    """Why it is calibrated or not."""
    length_bias: LengthBiasView | None
    """Null where padding may change the right answer: for relevance."""


class CalibrationView(CalibrationBody):
    """The same with the task that the labels are of."""

    measure: str
    task: str
    suite: str
    drawn_at: TimeText
    updated_at: TimeText


class MeasureTrust(TypedDict):
    """How far one measure of a judge can be trusted, and what to do next, in words."""

    measure: str
    calibrated: bool
    sentences: list[str]
    next: str
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
    model: str
    calibrated: bool
    """Whether people confirmed every measure of it."""
    measures: list[MeasureTrust]
    today: JudgeDayView
    checks: list[str]
    """That use it."""
