"""Views of what a report says beside its run: intervals of means, and the change since another run."""

from typing_extensions import TypedDict

from app.base.values import Reason
from app.comparison.domain import Change
from app.comparison.views import ComparisonDecision, RunOutline


class MeanIntervalView(TypedDict):
    """The 95 % interval of a mean over canaries."""

    canaries: int
    low: float
    high: float


class MeanIntervalsView(TypedDict):
    """Intervals by the names of means; none below ten canaries, and where all score the same."""

    run: dict[str, MeanIntervalView]
    categories: dict[str, dict[str, MeanIntervalView]]


class ReportedCanary(TypedDict):
    """A canary that degraded or healed since another run."""

    key: str
    query: str
    reasons: list[Reason]
    """Why it is degraded now; empty where it healed."""
    rank_before: int | None
    """Of the first expected chunk; null where it was not found."""
    rank_now: int | None


class ReportChange(TypedDict):
    """What changed since another run of the check."""

    before: RunOutline
    comparable: bool
    differences: list[str]
    """Differences of configuration and suite, in sentences."""
    changes: dict[Change, int]
    """Number of canaries by change."""
    decision: ComparisonDecision
    """A is the run before, B that of the report."""
    degraded: list[ReportedCanary]
    """The first 50, those that lost most first."""
    healed: list[ReportedCanary]
