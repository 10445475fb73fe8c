"""Views of runs, results and reports, shared by the API, saved reports and the gate."""

from typing import NotRequired

from typing_extensions import TypedDict

from app.base.values import Category, Level, Outcome, Reason, RunStatus, Step, Trigger, Verdict
from app.base.views import TimeText
from app.catalog.domain.measure_guide import MeasureGuideView
from app.catalog.domain.views import CompositionView
from app.comparison.domain.views import ComparisonDecision, Sides
from app.reports.domain import MeanIntervalsView, ReportChange
from app.retrievers.domain.views import LatencyView, StoredFinding, UnmeasuredView


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
