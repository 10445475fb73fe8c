"""What runs, results and reports are to everybody who shows them: the API, saved reports and the gate; and series.

A series of a measure over time has points, gaps with their reasons, and marks; the history of a canary has its states.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from hashlib import blake2b
from statistics import median
from typing import Final, NotRequired

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from app.base.schedules import EPOCH, TICK, Schedule, next_due
from app.base.values import (
    Category,
    LatencyView,
    Level,
    Outcome,
    Reason,
    RunStatus,
    Severity,
    Step,
    TimeText,
    Trigger,
    Verdict,
)
from app.catalog.domain import CompositionView, MeasureGuideView
from app.comparison.domain import Change, mean_interval
from app.comparison.views import ComparisonDecision, RunOutline, Sides
from app.detection.domain.views import BoundLine, NormalRange
from app.retrievers.domain.probes import StoredFinding, UnmeasuredView
from app.scoring.measures import mean_name, parse_measure


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


class RunCounts(TypedDict):
    """Canaries of a run by fate; null before it ended."""

    total: int | None
    measured: int | None
    failed: int | None
    undefined: int | None
    degraded: int | None


class SliceView(TypedDict):
    """A category or tag of a run; counts are null where runs are listed."""

    canaries: int | None
    measured: int | None
    health_score: float | None
    coverage: float | None
    measures: dict[str, float | None]


class DegradedName(TypedDict):
    """A degraded canary of a stored run; where runs are listed only its query."""

    key: NotRequired[str]
    query: str
    reasons: NotRequired[list[Reason]]


class RunDetails(TypedDict, total=False):
    """What is stored beside the row of a run; absent where it measured nothing, or a release did not store it."""

    categories: dict[str, SliceView]
    tags: dict[str, SliceView]
    probes: dict[str, int]
    probes_by_step: dict[str, dict[str, int]]
    unmeasured: list[UnmeasuredView]
    latency_seconds: LatencyView
    degraded: list[DegradedName]
    judgment_sources: list[str]
    """Absent where not every judgment has one."""


class RunDocument(TypedDict):
    """One pass over a suite."""

    id: str
    check: str
    suite: str
    retriever: str
    trigger: Trigger
    index_version: str | None
    status: RunStatus
    scheduled_for: TimeText | None
    started_at: TimeText | None
    finished_at: TimeText | None
    verdict: Verdict | None
    reasons: list[str]
    """Reasons of the verdict, in sentences."""
    health_score: float | None
    coverage: float | None
    degraded_share: float | None
    degraded_queries: list[str]
    canaries: RunCounts
    measures: dict[str, float | None]
    categories: dict[str, SliceView]
    tags: dict[str, SliceView]
    suite_hash: str | None
    config_hash: str | None
    measures_version: str | None
    probes: dict[str, int]
    """Number of probes by outcome."""
    probes_by_step: dict[str, dict[str, int]]
    """The same by step, for probes that failed before the retriever."""
    unmeasured: list[UnmeasuredView] | None
    """Canaries without a measurement by what failed, the commonest first; null where runs are listed."""
    latency_seconds: LatencyView
    embedder: StoredFinding | None
    self_judged: bool | None
    """Whether all judgments are of this retriever's own first hits, so that R@k is near 1 whatever it misses; null
    where runs are listed."""


class RunProgress(TypedDict):
    """Recorded probes of a run in progress."""

    done: int | None
    total: int | None


class RunView(RunDocument):
    """A run of a check; `progress` is null once it ended."""

    progress: RunProgress | None


class JudgmentView(TypedDict):
    """An expected chunk, without the fields it does not set."""

    id: NotRequired[str]
    document: NotRequired[str]
    text: NotRequired[str]
    grade: int


class HitView(TypedDict):
    """A hit with the judgment it matches."""

    rank: int
    id: str
    document: str | None
    text: str | None
    score: float | None
    updated: TimeText | None
    relevance: float | None
    judgment: JudgmentView | None
    level: Level | None
    grade: int | None


class ResultView(TypedDict):
    """One canary's part of a run: with its evidence if its probe measured, else with the failure."""

    key: str
    query: str
    category: Category
    tags: list[str]
    outcome: Outcome
    step: Step
    http_status: int | None
    detail: str | None
    latency_seconds: float | None
    verdict: Verdict
    reasons: list[Reason]
    top_score: float | None
    any_match: bool | None
    measures: dict[str, float | None]
    ranking: list[HitView]
    missing: list[JudgmentView]
    k: int
    min_relevance_score: float | None
    max_relevance_score: float | None
    floors: dict[str, float]
    expect_empty: bool
    forbidden_chunks: int
    max_age_seconds: float | None
    max_latency_seconds: float | None
    age_seconds: float | None
    forbidden_ranks: list[int]
    since_run: str | None
    """The run since which this state holds."""
    rbo: float | None
    """Rank-biased overlap of its ranking with the baseline's."""


class ComparedRun(TypedDict):
    """The run of the report that was saved before."""

    id: str | None
    check: str | None
    finished_at: TimeText | None
    index_version: str | None
    verdict: Verdict | None


class RecoveredCanary(TypedDict):
    """A canary that is healthy and was degraded before."""

    key: str
    query: str


class DegradedCanary(RecoveredCanary):
    """A canary that is degraded and was not before; `why` has a sentence for each reason."""

    reasons: list[Reason]
    why: list[str]


class ReportComparison(TypedDict):
    """A report compared with one that was saved before."""

    baseline: ComparedRun
    differences: list[str]
    """Why the two are not strictly comparable, in sentences."""
    decision: ComparisonDecision | None
    """What is decided between the two; null where they cannot be compared."""
    measures: dict[str, Sides]
    newly_degraded: list[DegradedCanary]
    recovered: list[RecoveredCanary]


class ReportDocument(TypedDict):
    """A run with its worst canaries and, on request, all results."""

    run: RunDocument
    worst: list[ResultView]
    results: NotRequired[list[ResultView]]
    comparison: NotRequired[ReportComparison]
    """Comparison with a saved report, where the gate has one."""
    fetch_k: NotRequired[int]
    """Number of hits that were asked for. Of the gate."""
    expectations: NotRequired[dict[str, str]]
    """Digest of what each canary asks and expects, by key; "" where nothing is expected. Of the gate."""


class RunResults(TypedDict):
    """A run of a check with its worst canaries and all results."""

    run: RunView
    worst: list[ResultView]
    results: list[ResultView]


class PooledRecallView(TypedDict):
    """Estimated share of what is relevant that a retriever finds in its first k, from the annotations of a task.

    `value` and its 95 % interval (`low`, `high`) are null where unknown: a sample without a grade.
    """

    retriever: str
    k: int
    value: float | None
    low: float | None
    high: float | None
    found: int
    relevant: float | None
    """Estimated number of relevant texts."""
    queries: int
    frame: str
    """What it is a share of."""
    task: str


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


Floats = NDArray[np.float64]

_DIGITS: Final = 6
_OWN: Final = 2
"""Columns before those of measures: coverage and health score."""


class ScoreColumns:
    """The scores of measured canaries that expect something, added block by block, as columns by the names of means."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self.categories: dict[str, None] = {}
        """The categories of all canaries, in the order they came."""
        self._names: dict[str, None] = {}
        """The measures, in the order they came."""
        self._blocks: list[tuple[list[str], Floats]] = []
        """Categories and rows of each block: coverage, health score, and the measures that had come by then."""

    def add(self, results: Sequence[ResultView]) -> None:
        """Add the results of some canaries."""
        measured = [one for one in results if one["outcome"] == Outcome.OK and any(_defined(one))]
        self.categories.update(dict.fromkeys(one["category"] for one in results))
        for one in measured:
            self._names.update(dict.fromkeys(one["measures"]))
        rows = [[one["any_match"], one["top_score"], *map(one["measures"].get, self._names)] for one in measured]
        if rows:
            self._blocks.append(([one["category"] for one in measured], np.array(rows, dtype=np.float64)))

    def intervals(self, category: str | None = None) -> dict[str, MeanIntervalView]:
        """Return the 95 % intervals of means over canaries by the names of means, coverage and health score included.

        Bootstrap over the canaries that have the measure, of one category or all. Measures without an interval have no
        entry: those of fewer than ten canaries, and those in which all score the same.
        """
        found: dict[str, MeanIntervalView] = {}
        cache: dict[bytes, tuple[float, float] | None] = {}  # where each expects one chunk, many measures are equal
        for name, column in self._columns(category):
            scores = column[~np.isnan(column)]
            pattern = blake2b(scores.tobytes()).digest()
            if pattern not in cache:
                cache[pattern] = mean_interval(scores)
            interval = cache[pattern]
            if interval is not None:
                low, high = (round(end, _DIGITS) for end in interval)
                found[name] = {"canaries": len(scores), "low": low, "high": high}
        return found

    def _columns(self, category: str | None) -> Iterator[tuple[str, Floats]]:
        rows = [
            block if category is None else block[[one == category for one in categories]]
            for categories, block in self._blocks
        ]
        for place, name in enumerate(self._names, _OWN):
            yield mean_name(parse_measure(name)), _column(rows, place)
        yield "coverage", _column(rows, 0)
        yield "health_score", _column(rows, 1)


def _column(rows: Sequence[Floats], place: int) -> Floats:
    """Return a column of blocks of rows, of which the first may be narrower."""
    parts = [block[:, place] if place < block.shape[1] else np.full(len(block), np.nan) for block in rows]
    return np.concatenate(parts) if parts else np.empty(0)


def _defined(result: ResultView) -> list[bool]:
    return [value is not None for value in result["measures"].values()]


_LONG_GAP_FACTOR: Final = 2.5
_NEIGHBOURS: Final = 5
"""Points to either side from which the usual distance is taken: schedules change."""


class GapReason(StrEnum):
    """Reason of a gap."""

    NOT_MEASURED = "not_measured"
    """Runs ended, but none measured it, or their verdict is unknown."""
    NO_RUNS = "no_runs"
    """No run ended, though some were due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The time that a point of a series covers; for a single run only the moment it ended."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A period without a measurement, between two points or the ends of the chart."""

    start: int
    end: int
    why: GapReason
    runs: tuple[int, ...] = ()
    """Ids of the runs that ended in it."""


def find_gaps(
    points: Sequence[Span], unmeasured: Sequence[tuple[int, int]], schedule: Schedule, *, start: int, end: int
) -> list[Gap]:
    """Return the gaps between points in order of time, and around them; `unmeasured` runs are (time, id) in order.

    Without an unmeasured run there is a gap if no point follows by the second instant that was due, as for the rule
    `no_data`, and the distance is well above that of the points nearby. Before the first point only unmeasured runs
    count.
    """
    moments = [at for at, _ in unmeasured]
    edges = [
        (before.end, after.start)
        for before, after in zip(
            [Span(start=start, end=start), *points], [*points, Span(start=end, end=end)], strict=True
        )
    ]
    result: list[Gap] = []
    for place, (left, right) in enumerate(edges):
        inside = unmeasured[bisect_left(moments, left) : bisect_right(moments, right)]
        if inside:
            runs = tuple(run for _, run in inside)
            result.append(Gap(start=left, end=right, why=GapReason.NOT_MEASURED, runs=runs))
        elif (
            place > 0
            and right - left > _LONG_GAP_FACTOR * _usual_distance(edges, place)
            and _overdue(schedule, left, right)
        ):
            result.append(Gap(start=left, end=right, why=GapReason.NO_RUNS))
    return result


def _usual_distance(edges: Sequence[tuple[int, int]], place: int) -> float:
    """Return the median distance of the points around an edge, without the ends of the period."""
    near = [
        *edges[max(1, place - _NEIGHBOURS) : place],
        *edges[place + 1 : min(place + 1 + _NEIGHBOURS, len(edges) - 1)],
    ]
    return median(right - left for left, right in near) if near else 0.0


def _overdue(schedule: Schedule, left: int, right: int) -> bool:
    after = EPOCH + timedelta(microseconds=left)
    return (next_due(schedule, next_due(schedule, after)) - EPOCH) // TICK < right


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
        "from": TimeText,
        "to": TimeText,
        "seconds": int | None,
        "points": list[SeriesPoint],
        "marks": list[IndexMark],
        "gaps": list[SeriesGap],
        "usual": NormalRange | None,
        "lines": list[BoundLine],
        "alerts": list[SeriesAlert],
    },
)
"""A measure of a check over time; `seconds` is what a point covers, None where it is a single run.

`self_judged`: whether it is recall that is self-judged by the newest run; None = that was not carried out.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryHistory:
    """The states a canary of a check went through, newest first."""

    check: str
    key: str
    items: list[CanaryState]
