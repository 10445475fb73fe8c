"""Views of experiments, promotions, shadows and interleavings, as JSON on the wire."""

from typing_extensions import TypedDict

from app.annotation.views import TaskState
from app.answers.domain.trust import ProportionView
from app.base.values import TimeText
from app.experiments.domain.experiments import ExperimentState, MergedHit, RateDifference
from app.experiments.domain.promotion_evidence import PromotionRun
from app.experiments.domain.promotions import Gate, PromotionState


class ArmView(TypedDict):
    """An arm with what its units came to."""

    name: str
    share: float
    exposed: int
    """Units that were exposed to it."""
    units: int
    """Of these, those whose outcome is final: the window since their exposure has passed."""
    successes: int
    """Of the final ones."""
    late: int
    """Successes after the window, which count as none."""
    rate: float | None
    """Null without a final outcome."""


class EpochView(TypedDict):
    """An epoch of an experiment: what was counted in it, and what that decides."""

    epoch: int
    began_at: TimeText
    ended_at: TimeText | None
    """When a later epoch began or it was stopped; null while it takes in units."""
    arms: list[ArmView]
    pending: int
    """Units that were exposed and are not counted yet: their outcome is not final."""
    pending_until: TimeText | None
    """When all that were exposed so far are counted; null where they are."""
    delta: float
    window: float
    """In seconds."""
    max_units: int
    state: ExperimentState
    reason: str
    winner: str | None
    """Name of the arm that won."""
    decided_at: TimeText | None
    """Exposures until then decided; null while it runs."""
    difference: RateDifference | None
    """At the look that decided, else at the newest; null until each arm has 30 successes and 30 failures, and where
    the state is `mismatch`."""
    later: RateDifference | None
    """At the newest look, where that contradicts the one that decided; null where it does not."""
    power: str
    """What it can show, in words: the units that a difference of .05 needs, and what `max_units` show; nothing where
    the state is `mismatch`."""


class ExperimentView(EpochView):
    """An experiment in its current epoch."""

    slug: str
    outcome: str
    created_at: TimeText
    created_by: str


class ExperimentLook(TypedDict):
    """What was final of the units that were exposed until a moment."""

    at: TimeText
    units: int
    difference: RateDifference | None


class ExperimentDetail(ExperimentView):
    """An experiment with the interval over time, and its earlier epochs."""

    mismatch_evidence: float
    """Decimal logarithm of the evidence that the arms do not get their shares: 3 is an alarm."""
    looks: list[ExperimentLook]
    """Of the current epoch, at most 200. Their differences are not to be believed where the state is `mismatch`."""
    epochs: list[EpochView]
    """The earlier ones, the newest first."""


class ReceivedExposures(TypedDict):
    """What became of the exposures of a request."""

    received: int
    new: int
    """Units that were not exposed before in this epoch."""
    other_arm: int
    """Units that were exposed before to the other arm: the first exposure stays."""
    unlike_assignment: int
    """Units exposed to an arm that the published function does not give them."""
    before_epoch: int
    """Exposures dated before this epoch began, while there was one before: they are not kept, nor in other numbers."""


class ReceivedOutcomes(TypedDict):
    """What became of the outcomes of a request."""

    received: int
    new: int
    repeated: int
    """Sent before by the same event."""
    second_value: int
    """Of a unit that has a value by another event: the first stays."""
    late: int
    """Later than the window after the exposure: it counts as a 0."""
    early: int
    """More than a minute before the exposure: it is not kept, as it cannot be of what the unit saw."""
    not_exposed: int
    """Of units that no exposure came for; send exposures first."""


class CriticalAlert(TypedDict):
    """An open critical alert of a check that a promotion compares."""

    check: str
    alert_id: str
    rule: str
    opened_at: TimeText | None


class GuardView(TypedDict):
    """What must not get worse while users are served better, as it was defined."""

    measure: str | None
    experiment: str | None
    allowed_loss: float


class PromotionView(TypedDict):
    """A promotion with its gates, as they stand now."""

    slug: str
    current: str
    candidate: str
    experiment: str | None
    candidate_arm: str | None
    """Arm of the experiment that is taken for the candidate; null without an experiment."""
    guards: list[GuardView]
    stop_on_critical: bool
    created_at: TimeText
    created_by: str
    state: PromotionState
    reason: str
    by_waiver: bool
    """Whether it says `promote`, and would not without the waivers."""
    gates: list[Gate]
    runs: list[PromotionRun]
    """Which the offline gate compares: that of what is current, and that of the candidate; empty where none can be."""
    critical_alerts: list[CriticalAlert]
    """Open ones of the candidate and of what is current: figures may be those of a fault."""


class ShadowFigures(TypedDict):
    """How far a candidate's answers differ from those that users get, over some pairs."""

    pairs: int
    failed: int
    """Pairs to which the candidate gave no answer: in no other figure."""
    dropped: int
    """Queries that the candidate was to be asked, and was not within a day: no pairs."""
    rbo: float | None
    """Mean rank-biased overlap (p = .9); null where the candidate answered none, as the next."""
    jaccard: float | None
    """Mean share of the chunks among the first ten of either that both have."""
    a_empty: int
    b_empty: int
    """Answers without a hit."""
    a_seconds: float | None
    """Mean latency over the pairs that have both; null without any."""
    b_seconds: float | None


class ShadowHour(ShadowFigures):
    """An hour of a shadow."""

    at: TimeText
    """Its begin."""


class ShadowView(ShadowFigures):
    """A shadow over all its hours."""

    slug: str
    candidate: str | None
    """Retriever that is asked; null = clients bring its answers along."""
    share: float | None
    """Of the queries that it is asked; null = nobody defined the shadow, as the next two."""
    k: int | None
    keep: int | None
    first_at: TimeText | None
    """Null = there are no pairs yet, as the next."""
    last_at: TimeText | None


class DifferentPair(TypedDict):
    """A query of users whose two answers differ much."""

    query: str
    rbo: float


class ComparisonView(TypedDict):
    """A task of the most different pairs, and what people preferred; which is no random sample of the traffic."""

    task: str
    state: TaskState
    pairs: int
    candidate: int
    """Pairs in which the answer of the candidate is preferred."""
    current: int
    alike: int
    undecided: int
    """Open or disputed."""
    share: ProportionView
    """Of the candidate among the pairs in which one side is preferred."""


class ShadowDetail(ShadowView):
    """A shadow over time."""

    waiting: int
    """Queries that the candidate has yet to be asked."""
    kept: int
    """Pairs that are kept for people to compare."""
    comparisons: list[ComparisonView]
    hours: list[ShadowHour]
    """The newest last, at most 720."""


class ReceivedPairs(TypedDict):
    """What became of the pairs of a request."""

    received: int
    compared: int
    """Pairs that brought the answer of the candidate along."""
    to_ask: int
    """Queries of the others that the candidate is asked."""
    notes: list[str]


class MergedList(TypedDict):
    """Two rankings merged for a unit; the same for the same unit and epoch."""

    epoch: int
    hits: list[MergedHit]


class ReceivedClicks(TypedDict):
    """What became of the clicks of a request."""

    received: int
    without_team: int
    """Clicks that name no team, which say nothing: their chunk only filled the list up."""
    units: int
    """Distinct units among the others."""


class InterleavingView(TypedDict):
    """An interleaving in its current epoch: units by the ranking that got more of their clicks, and the decision."""

    slug: str
    a: str
    b: str
    max_units: int
    epoch: int
    began_at: TimeText
    created_at: TimeText
    created_by: str
    prefer_a: int
    prefer_b: int
    ties: int
    state: ExperimentState
    reason: str
    winner: str | None
    decided_at: TimeText | None
    """Of the first look at which it ended, by which the difference stays; null = it runs."""
    difference: RateDifference | None
    """Share of units for B less that for A; null below 30 units for each."""
    later: RateDifference | None
    """The same by now, where that contradicts what decided; null where it does not. Of fewer than 30 units for one of
    them it is as if there were 30, which is nearer to zero."""
