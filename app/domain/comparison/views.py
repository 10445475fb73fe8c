"""Views of a run comparison, as JSON on the wire."""

from typing_extensions import TypedDict

from app.domain.comparison.run_diff import Change
from app.domain.model import Category, Outcome, Reason, Verdict
from app.domain.views import TimeText


class RunOutline(TypedDict):
    """One of the two runs, with its versions."""

    id: str
    check: str
    suite: str
    retriever: str
    finished_at: TimeText | None
    index_version: str | None
    verdict: Verdict | None
    suite_hash: str | None
    config_hash: str | None
    measures_version: str | None


class Sides(TypedDict):
    """A number in both runs; null where a run has none."""

    before: float | None
    now: float | None
    difference: float | None


class PairedSides(Sides):
    """A measure over the canaries both runs measured: the difference with its interval and p value."""

    canaries: int
    low: float | None
    high: float | None
    confidence: float | None
    p: float | None
    """P value of the difference."""


class MeasureDifference(Sides):
    """A measure of the runs, and the same over pairs of canaries."""

    paired: PairedSides | None


class CategoryDifference(TypedDict):
    """A category in both runs."""

    health_score: Sides
    coverage: Sides


class SideResult(TypedDict):
    """A canary in one run."""

    verdict: Verdict
    outcome: Outcome
    reasons: list[Reason]
    rank: int | None
    """Of the first expected chunk."""
    top_score: float | None
    measures: dict[str, float | None]


class CanaryDifference(TypedDict):
    """A canary in both runs; null where a run did not ask it."""

    key: str
    query: str
    category: Category
    tags: list[str]
    change: Change
    difference: float | None
    """Of the measure canaries are ordered by."""
    rbo: float | None
    """Rank-biased overlap of the two rankings, from 0 to 1."""
    before: SideResult | None
    now: SideResult | None


class RunDiff(TypedDict):
    """Comparison of two runs, the worst canaries first."""

    before: RunOutline
    now: RunOutline
    comparable: bool
    differences: list[str]
    """Differences of configuration and suite, in sentences."""
    changes: dict[Change, int]
    """Number of canaries by change."""
    measures: dict[str, MeasureDifference]
    categories: dict[str, CategoryDifference]
    ordered_by: str
    items: list[CanaryDifference]


class RunDiffPage(RunDiff):
    """The same with the place of the next page."""

    next: str | None
