"""What is shown of runs and results, by the API, in reports and by the gate.

They are typed as documents: reports are saved to files, and read back to be compared with.
"""

from typing import Any, NotRequired

from typing_extensions import TypedDict

from app.domain.model import Category, Level, Outcome, Reason, RunStatus, Step, Trigger, Verdict
from app.domain.probing.views import StoredFinding
from app.domain.views import TimeText


class RunCounts(TypedDict):
    """How many canaries of a run came to what; null before it ended."""

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


class LatencyView(TypedDict):
    """How long measured probes took; null where nothing was measured."""

    p50: float | None
    p95: float | None
    max: float | None


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
    """Why the verdict is what it is, in sentences."""
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
    """How many probes ended in which outcome."""
    probes_by_step: dict[str, dict[str, int]]
    """Those that failed elsewhere than at the retriever."""
    latency_seconds: LatencyView
    embedder: StoredFinding | None


class RunProgress(TypedDict):
    """How many probes of a run that goes on are on record."""

    done: int | None
    total: int | None


class RunView(RunDocument):
    """A run of a check; `progress` is null once it ended."""

    progress: RunProgress | None


class JudgmentView(TypedDict):
    """An expected chunk, without what it does not say."""

    id: NotRequired[str]
    document: NotRequired[str]
    text: NotRequired[str]
    grade: int


class HitView(TypedDict):
    """A hit with what it was recognised as."""

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
    """One canary's part of a run: with its evidence where its probe measured, else with why it did not."""

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
    """Since which run this state holds."""
    rbo: float | None
    """How alike its ranking and that of the baseline are."""


class ReportDocument(TypedDict):
    """A run with its worst canaries, and where wanted all results."""

    run: RunDocument
    worst: list[ResultView]
    results: NotRequired[list[ResultView]]
    comparison: NotRequired[dict[str, Any]]
    """With a report saved before, where the gate was given one."""


class ReportView(TypedDict):
    """A run of a check with its worst canaries."""

    run: RunView
    worst: list[ResultView]


class FullReport(ReportView):
    """The same with all results."""

    results: list[ResultView]
