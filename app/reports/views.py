"""What reports and charts show: a run's report with what changed, and a measure or a canary over time.

Runs and results themselves are in `records.views`; `service.reports` and `service.charts` make what is declared here.
"""

from dataclasses import dataclass
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.alerts.domain.views import BoundLine, NormalRange
from app.annotation.views import PooledRecallView
from app.base.values import CorrectedInterval, CorrectedRateView, Outcome, Reason, Severity, TimeText, Verdict
from app.catalog.domain import MeasureGuideView, PooledNote
from app.catalog.views import CompositionView
from app.comparison.domain.outcomes import Change
from app.comparison.views import ComparisonDecision, RunOutline
from app.records.domain import GapReason
from app.records.views import ResultView, RunView


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


class ReportView(TypedDict):
    """A run of a check with its worst canaries, intervals of its means, and what changed since another run."""

    run: RunView
    worst: list[ResultView]
    guide: MeasureGuideView | None
    """Which measure to read first; null where the run was never carried out."""
    intervals: MeanIntervalsView
    since: ReportChange | None
    """Null where no other run is named."""
    pooled_recall: list[PooledRecallView]
    """Of the retriever, from the newest annotation task on the suite; stands beside recall, never in its place."""
    composition: CompositionView | None
    """Canaries of the run by category and segment against targets; null where it was never carried out."""
    confirmed: list[str]
    """Measures of its judge that people confirmed; its others are marked as uncalibrated."""
    corrected: dict[str, CorrectedRateView]
    """By what its judge says, where people labelled enough answers of the check: what they would say, with interval."""
    rated: dict[str, str]
    """By what its judge says, where it did not rate all answers: of how many a number of it is, `84 of 140 rated`."""
    unjudged_answers: str | None
    """Which of its answers have no verdict of the judge, and why, where those are more than a tenth; else null."""
    bad_answers: list[str]
    """What is bad of its answers by the rules of the check, which its verdict, of retrieval alone, does not know."""
    unwatched: str | None
    """That a healthy run measured nothing of what is retrieved, since no canary expects anything; else null."""


class ReportedOutcome(TypedDict):
    """What a report says of every canary that is not healthy; the worst of them it shows in full."""

    key: str
    outcome: Outcome
    detail: str | None
    verdict: Verdict
    reasons: list[Reason]
    top_score: float | None
    min_relevance_score: float | None


class FullReport(ReportView):
    """The same with what its texts count over."""

    results: list[ReportedOutcome]
    """Of the canaries that are not healthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """A single run, or the mean of several with the least and the greatest value."""

    at: TimeText
    mean: float | None
    min: float | None
    max: float | None
    runs: int
    first_run: str | None
    last_run: str | None
    unknown: bool
    """Whether the verdict of the run is unknown: its value is shown, and it closes no gap."""
    corrected: CorrectedInterval | None
    """Of a rate corrected by labels: its interval, and the judge's own rate; of several runs their means.

    None of other measures, of runs that are no longer stored, and of all before the newest 20,000 of the period.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMark:
    """A moment at which the index version changed."""

    at: TimeText
    index_version: str


SeriesGap = TypedDict(
    "SeriesGap",
    {
        "from": TimeText,
        "to": TimeText,
        "why": GapReason | None,
        "runs": int | None,
        "first_run": str | None,
        "last_run": str | None,
    },
)
"""A period without a measurement, with the reason where it is still known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesAlert:
    """An alert that was open within the period of a chart."""

    id: str
    rule: str
    severity: Severity
    opened_at: TimeText
    resolved_at: TimeText | None


MeasureSeries = TypedDict(
    "MeasureSeries",
    {
        "check": str,
        "measure": str,
        "category": str | None,
        "measures_version": str | None,
        "self_judged": bool | None,
        "pooled_recall": list[PooledNote],
        "from": TimeText,
        "to": TimeText,
        "seconds": int | None,
        "points": list[SeriesPoint],
        "marks": list[IndexMark],
        "edits": list[TimeText],
        "gaps": list[SeriesGap],
        "usual": NormalRange | None,
        "lines": list[BoundLine],
        "alerts": list[SeriesAlert],
    },
)
"""A measure of a check over time; `seconds` is what a point covers, None where it is a single run.

`self_judged`: whether it is recall that is self-judged by the newest run; None = that was not carried out.
`edits`: from when runs ask or expect something else, the newest 200: canaries were edited, added or archived.
`pooled_recall`: what stands beside recall at the same k; empty for other measures, and where no task estimates it.
"""


CanaryState = TypedDict(
    "CanaryState",
    {
        "verdict": Verdict,
        "reasons": list[Reason],
        "first_run": str,
        "from": TimeText | None,
        "last_run": str | None,
        "until": TimeText | None,
        "top_score": float | None,
        "measures": dict[str, float | None],
        "ranking": list[str],
    },
)
"""State of a canary from one run to another; `last_run` is None while it holds."""


class HeatMapColumn(TypedDict):
    """One run, or several that follow each other."""

    at: TimeText
    """When the first of them ended."""
    runs: int
    first_run: str
    last_run: str


class HeatMapMark(TypedDict):
    """Where the index version changed."""

    column: int
    """The first column whose runs asked it, from 0."""
    at: TimeText
    index_version: str


class HeatMapRow(TypedDict):
    """A canary."""

    key: str
    query: str
    """Its first 100 characters."""
    cells: str
    """A letter a column: `.` healthy, `~` degraded in fewer than half of the runs, `#` degraded, `?` not measured, and
    a space where it was not asked."""


class HeatMapGroup(TypedDict):
    """The canaries of a category or tag, those first that were degraded most."""

    name: str
    canaries: list[HeatMapRow]


class HeatMapLayout(TypedDict):
    """Where the cells of the picture are, in pixels of a page."""

    width: int
    height: int
    left: int
    """Of the first column."""
    column: float
    """Width of a column."""
    tops: list[int]
    """Of the rows, in the order of the groups."""
    row: int
    """Height of a row."""


class HeatMap(TypedDict):
    """Every canary of a check in every run of a period."""

    check: str
    measures_version: str | None
    grouped_by: Literal["category", "tag"]
    columns: list[HeatMapColumn]
    marks: list[HeatMapMark]
    groups: list[HeatMapGroup]
    left_out_rows: int
    """How many rows are not drawn beyond 2,000 in 60 groups: those of the canaries that were degraded least."""
    left_out_canaries: int
    """How many of earlier runs are not drawn, for the newest of these runs did not ask them."""
    layout: NotRequired[HeatMapLayout]
    """Of a picture of the width that was asked for."""
    is_cut: bool
    """Whether the period has earlier runs that are not drawn, for there are too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryHistory:
    """The states a canary of a check went through, newest first."""

    check: str
    key: str
    items: list[CanaryState]


class LatencyPoint(TypedDict):
    """Latency of the probes of a run, in seconds; of several runs in a row the mean of a percentile, and the maximum.

    Null where no run of them measured it.
    """

    at: TimeText
    p50: float | None
    p95: float | None
    max: float | None
    runs: int
    first_run: str
    last_run: str


class LatencyLine(TypedDict):
    """A bound of a rule in force on latency, in seconds."""

    rule: str
    percentile: str
    severity: Severity
    value: float


LatencySeries = TypedDict(
    "LatencySeries",
    {
        "check": str,
        "from": TimeText,
        "to": TimeText,
        "since": TimeText,
        "points": list[LatencyPoint],
        "lines": list[LatencyLine],
    },
)
"""Percentiles of the latency of a check over time, and the bounds of its rules."""


class PublicLinkView(TypedDict):
    """The public link of a check, without its address."""

    check: str
    created_by: str
    created_at: TimeText


class NewPublicLink(PublicLinkView):
    """A public link with its addresses, which are shown this once."""

    page: str
    badge: str
