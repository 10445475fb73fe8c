"""Views of baselines, detectors and their evidence, as JSON on the wire; parts that a run stores as they are stored."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.base.values import Severity, TimeText
from app.comparison.domain.estimates import StoredDrop


class Action(StrEnum):
    """Kinds of choice of a baseline."""

    ACCEPTED = "accepted"
    PINNED = "pinned"
    MOVING = "moving"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineChoice:
    """A choice of a baseline by people."""

    action: Action
    run: str | None
    """The run that was pinned."""
    after_run: str | None
    """The newest ended run of that moment."""
    at: TimeText
    by: str
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedBaseline:
    """Of which runs a baseline was learned."""

    runs: int
    deterministic: bool
    first_run: str
    last_run: str
    at: TimeText


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpView:
    """Progress of learning until there is a baseline."""

    summary: str
    identical_runs: int
    identical_runs_needed: int
    runs: int
    runs_needed: int
    note: str | None


class StoredCulprit(TypedDict):
    """A canary the detector named."""

    key: str
    signal: Literal["lost", "worse"]
    evidence: float | None


class StoredCulprits(TypedDict):
    """How many canaries the detector named, and the strongest of them."""

    total: int
    named: list[StoredCulprit]


class DriftKind(StrEnum):
    """What became of scores and rankings since the baseline."""

    NONE = "none"
    SCORES = "scores"
    RANKINGS = "scores_and_rankings"
    UNKNOWN = "unknown"


class StoredDrift(TypedDict):
    """How far the scores of first hits are from their baseline."""

    kind: DriftKind
    reason: str
    """A sentence without its full stop."""
    median_z: float | None
    """The median over canaries of the distance from the mean in standard deviations, at most 1,000."""
    overlap: float | None
    """The mean share of the top 5 in common with the baseline's; None = unknown."""
    canaries: int
    """Number of compared ones."""


class IndexChange(TypedDict):
    """The first change of the index version since a fault began; `run` came with it."""

    run: str
    before: str
    now: str


class StoredFirstRun(TypedDict):
    """The run that a guard compares with until there is a baseline."""

    run: str
    coverage: float | None
    accepted: NotRequired[bool]  # by people, as the new normal


class StoredHabit(TypedDict):
    """A habit during one more episode of it: no alarm, and nobody is notified."""

    id: str
    canaries: list[str]
    total: int
    """Number of its canaries, of which 50 at most are named."""
    answers: int
    """Between so many answers they switch, the usual one included."""
    times: int
    """Number of episodes, this one included."""
    runs: int
    """From the first bad run of this episode to the last."""
    bound: int
    """It may last so many runs; then it is an alarm."""


class StoredReading(TypedDict, total=False):
    """What there is to say of a run besides its columns; what is empty is absent."""

    reason: str
    scopes: dict[str, float]
    severity: Severity | None
    change: str | None
    good: int
    groups: list[str]
    warming: str
    anew: str
    """Why the detector began anew with what it measures."""
    unknown: int
    usual: list[int]
    index_change: IndexChange | None
    drops: dict[str, StoredDrop]
    """By rule key."""
    drop_p: dict[str, float]
    """Corrected p values of the drops by rule key; absent where an earlier release ended the run."""
    drift: StoredDrift | None
    first: StoredFirstRun | None
    culprits: StoredCulprits
    habit: StoredHabit | None
    alerted: bool
    """Whether a standing alert kept baselines from being learned of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorView:
    """Reading of the detector of a check for the newest run."""

    run: str
    evidence: float | None
    scopes: dict[str, float]
    """What the evidence is the average of."""
    threshold: float
    """An alarm is raised at so much evidence."""
    open: bool
    since_run: str | None
    severity: Severity | None
    reason: str | None
    lost: int | None
    worse: int | None
    """One that is lost is usually worse, too, and counted in both."""
    usual: list[int] | None
    """The 99 % quantiles of `lost` and `worse`."""
    unknown: int
    groups: list[str]
    culprits: StoredCulprits
    drift: StoredDrift | None
    habit: StoredHabit | None
    """Of which this run is an episode; then no alarm is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HabitRefusal:
    """Who called a habit not normal."""

    at: TimeText
    by: str
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HabitView:
    """Alarms that closed by themselves and were alike."""

    id: str
    canaries: list[str]
    """Those that are still part of the suite."""
    answers: int
    """Between so many answers they switch, the usual one included."""
    times: int
    longest: int
    """Runs of the longest episode."""
    bound: int
    """An episode of more runs is an alarm."""
    learned: bool
    """Whether the next episode is shown without an alarm."""
    refused: HabitRefusal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineView:
    """Baseline of a check: the choice, the learned runs, and the state of its detector."""

    check: str
    mode: Literal["pinned", "moving"]
    run: str | None
    since: BaselineChoice | None
    pending: bool
    """The newest choice takes effect with the next run."""
    learned: LearnedBaseline | None
    warm_up: WarmUpView | None
    waits: str | None
    """Why nothing is learned at the moment."""
    detector: DetectorView | None
    habits: list[HabitView]
    """The one seen last comes first."""
    choices: list[BaselineChoice]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidencePoint:
    """The run of a stretch with most evidence of harm."""

    at: TimeText
    run: str
    runs: int
    evidence: float | None
    """None while the detector was still learning what is usual."""
    lost: int | None
    worse: int | None
    open: bool


EvidenceSeries = TypedDict(
    "EvidenceSeries",
    {
        "check": str,
        "from": TimeText,
        "to": TimeText,
        "since": TimeText,
        "threshold": float,
        "points": list[EvidencePoint],
    },
)
"""The evidence of harm a detector had after each run, against the line it alarms at."""
