"""What the REST API takes and gives, as typed dictionaries. Made by `generate.py`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict


class AcknowledgeRequest(TypedDict):
    note: NotRequired[str | None]


Action: TypeAlias = Literal["accepted", "pinned", "moving"]


class AdjudicationRequest(TypedDict):
    grade: int


class AdoptionDoubt(TypedDict):
    wrong: float | None
    low: float | None
    high: float | None
    kappa: float | None
    graded_once: int
    graded: int
    sentence: str


AlertState: TypeAlias = Literal["ok", "pending", "firing", "recovering", "resolved"]


class AnnotationRequest(TypedDict):
    grade: NotRequired[int | None]
    skip: NotRequired[bool]
    seconds: NotRequired[float | None]
    annotator: NotRequired[str | None]


class Annotator(TypedDict):
    annotator: str
    graded: int
    skipped: int
    pace_seconds: float | None
    planted_graded: int
    planted_wrong: int


AnswerChange: TypeAlias = Literal["retrieval", "chunks", "answer", "judge"]


class AnswerContext(TypedDict):
    question: str
    expected_answer: str | None
    contexts: list[str]


class ApiKeyDocument(TypedDict):
    kind: NotRequired[Literal["api_key"]]
    key: NotRequired[str]
    header: NotRequired[str | None]
    query: NotRequired[str | None]
    prefix: NotRequired[str]


class ApiKeySettings(TypedDict):
    kind: Literal["api_key"]
    key: NotRequired[str | None]
    header: str | None
    query: str | None
    prefix: str


class Arm(TypedDict):
    name: str
    share: float
    exposed: int
    units: int
    successes: int
    late: int
    rate: float | None


class ArmDocument(TypedDict):
    name: str
    share: float


class Attempt(TypedDict):
    at: str
    http_status: int | None
    error: str | None
    detail: str | None
    latency_seconds: float | None


class BaselineChoice(TypedDict):
    action: Action
    run: str | None
    after_run: str | None
    at: str
    by: str
    note: str | None


class BaselineRequest(TypedDict):
    run: NotRequired[str | None]
    accept: NotRequired[bool]
    note: NotRequired[str | None]


class BasicDocument(TypedDict):
    kind: NotRequired[Literal["basic"]]
    user: NotRequired[str]
    password: NotRequired[str]


class BasicSettings(TypedDict):
    kind: Literal["basic"]
    user: str
    password: NotRequired[str | None]


class BearerDocument(TypedDict):
    kind: NotRequired[Literal["bearer"]]
    token: NotRequired[str]


class BearerSettings(TypedDict):
    kind: Literal["bearer"]
    token: NotRequired[str | None]


class BoundDocument(TypedDict):
    below: NotRequired[float | None]
    above: NotRequired[float | str]
    by: NotRequired[float | None]


class BoundSettings(TypedDict):
    below: float | None
    above: float | None
    by: float | None


class BoundSides(TypedDict):
    below: NotRequired[float]
    above: NotRequired[float]
    by: NotRequired[float]


class CanaryCounts(TypedDict):
    looked_at: int
    total: int
    measured: int


Tag: TypeAlias = str


class CanaryFeedback(TypedDict):
    thumbs_up: int
    thumbs_down: int
    task_done: int
    task_not_done: int
    canary: str
    versions: int


class CanaryWins(TypedDict):
    a: int
    b: int
    ties: int


Category: TypeAlias = Literal[
    "simple_factual", "complex_factual", "procedural", "entity_centric", "comparative", "negative"
]


class CategoryComposition(TypedDict):
    category: str
    segments: dict[str, int]
    not_stated: int


Cause: TypeAlias = Literal[
    "retriever_error",
    "wrong_field",
    "truncated",
    "texts_changed",
    "score_drift",
    "rechunked",
    "missing",
    "vocabulary_mismatch",
    "duplicates",
    "unstable",
    "left_out",
    "low_relevance",
    "outranked",
]


CautionKind: TypeAlias = Literal[
    "recall_loss", "judgments", "violations", "answers", "labels", "outdated", "edited", "alert", "archived"
]


Change: TypeAlias = Literal[
    "degraded", "worse", "better", "reranked", "same", "healed", "unknown", "rewritten", "rejudged", "added", "removed"
]


Cutoff: TypeAlias = int


Hook: TypeAlias = str


class ChunkCounts(TypedDict):
    looked_at: int


class ChunkDocument1(TypedDict):
    id: NotRequired[str | None]
    document: NotRequired[str | None]
    text: NotRequired[str | None]


ChunkDocument: TypeAlias = str | ChunkDocument1


class ChunkSettings(TypedDict):
    id: str | None
    document: str | None
    text: str | None


Claim: TypeAlias = Literal["claimed", "not_claimed_after_correction", "self_judged", "not_shown", "too_few"]


class Coefficient(TypedDict):
    value: float | None
    low: float | None
    high: float | None


ComparisonVerdict: TypeAlias = Literal["better", "worse", "trade", "no_difference_shown", "too_few"]


ConsensusState: TypeAlias = Literal["open", "graded_once", "agreed", "disputed", "adjudicated"]


class Corpus(TypedDict):
    name: str
    texts: int
    updated_at: str


class CorpusPage(TypedDict):
    items: list[Corpus]
    next: str | None


class CorrectedInterval(TypedDict):
    low: float
    high: float
    judge_rate: float
    answers: int
    unrated: NotRequired[int]
    edited_since: NotRequired[bool]
    labelled_of: NotRequired[str]
    labelled_before_edit_of: NotRequired[str]


class CorrectedRate(TypedDict):
    low: float
    high: float
    judge_rate: float
    answers: int
    unrated: NotRequired[int]
    edited_since: NotRequired[bool]
    labelled_of: NotRequired[str]
    labelled_before_edit_of: NotRequired[str]
    value: float
    labels: int
    task: str


class CriticalAlert(TypedDict):
    check: str
    alert_id: str
    rule: str
    opened_at: str | None


DeliveryState: TypeAlias = Literal["pending", "delivered", "dead", "cancelled"]


class DifferentPair(TypedDict):
    query: str
    rbo: float


class DifferentPairPage(TypedDict):
    items: list[DifferentPair]
    next: str | None


class DrawnAnswers(TypedDict):
    judge: str
    question: str
    count: int
    window_hours: int


class DrawnPairs(TypedDict):
    shadow: str
    count: int


DriftKind: TypeAlias = Literal["none", "scores", "scores_and_rankings", "unknown"]


EmbedderChange: TypeAlias = Literal["same", "drifted", "truncated", "swapped", "collapsed"]


class EmbedderReference(TypedDict):
    run: str | None
    at: str | None
    dimensions: int
    texts: int


Text: TypeAlias = str


class EmbeddingCanaryDocument(TypedDict):
    key: str
    texts: list[Text]
    similar: bool


class EmbeddingCanarySettings(TypedDict):
    key: str
    texts: list[str]
    similar: bool


class EvidencePoint(TypedDict):
    at: str
    run: str
    runs: int
    evidence: float | None
    lost: int | None
    worse: int | None
    open: bool


EvidenceSeries = TypedDict(
    "EvidenceSeries",
    {
        "check": str,
        "from": str,
        "to": str,
        "since": str,
        "threshold": float,
        "points": list[EvidencePoint],
    },
)


class ExactDocument(TypedDict):
    canaries: NotRequired[int]
    url: NotRequired[str | None]
    json: NotRequired[Any]
    sql: NotRequired[str | None]
    settings: NotRequired[dict[str, str]]


class ExactSettings(TypedDict):
    canaries: int
    url: str | None
    json: Any
    sql: str | None
    settings: dict[str, str]


Exclusion: TypeAlias = Literal[
    "only_in_a",
    "only_in_b",
    "other_query",
    "other_judgments",
    "nothing_expected",
    "not_measured_in_a",
    "not_measured_in_b",
    "not_measured",
]


class ExperimentDocument(TypedDict):
    slug: str
    arms: list[ArmDocument]
    outcome: NotRequired[Literal["binary"]]
    delta: NotRequired[float]
    window: NotRequired[float | str]
    max_units: NotRequired[int]


ExperimentState: TypeAlias = Literal["running", "mismatch", "winner", "equivalent", "inconclusive"]


class ExportedFiles(TypedDict):
    files: dict[str, str]
    notes: list[str]


class Exposure(TypedDict):
    unit: str
    arm: NotRequired[str | None]
    at: NotRequired[str | None]


class FactDocument(TypedDict):
    url: NotRequired[str | None]
    path: NotRequired[str | None]
    method: NotRequired[Literal["GET", "POST"] | None]
    json: NotRequired[Any]
    sql: NotRequired[str | None]


class FactSettings(TypedDict):
    url: str | None
    path: str | None
    method: Literal["GET", "POST"] | None
    json: Any
    sql: str | None


class FactValue(TypedDict):
    value: float | None
    reason: str | None
    low: float | None
    high: float | None


class Feedback(TypedDict):
    thumbs_up: int
    thumbs_down: int
    task_done: int
    task_not_done: int


FeedbackKind: TypeAlias = Literal["thumbs", "task_done"]


class FeedbackPage(TypedDict):
    total: Feedback
    items: list[CanaryFeedback]
    next: str | None


class FilePatch(TypedDict):
    file: str | None
    canaries: list[str]
    diff: str | None
    yaml: str


Finding: TypeAlias = Literal["found", "not_found", "unmeasured"]


class FleetGroup(TypedDict):
    kind: str
    name: str


class ForbiddenHit(TypedDict):
    id: str
    document: str | None
    rank: int


class ForgetRequest(TypedDict):
    retriever: NotRequired[str | None]
    query: NotRequired[str | None]


class ForgottenFeedback(TypedDict):
    forgotten: int


class ForgottenTraffic(TypedDict):
    forgotten: int


GapReason: TypeAlias = Literal["not_measured", "no_runs"]


GateName: TypeAlias = Literal["offline", "judge", "exposure"]


GateResult: TypeAlias = Literal["pass", "fail", "inconclusive", "waived"]


class GradedAgain(TypedDict):
    items: int


class Group(TypedDict):
    group: str
    traffic: float
    covered: bool


class Grouping(TypedDict):
    separator: str
    parts: int


class Guard(TypedDict):
    measure: str | None
    experiment: str | None
    allowed_loss: float


class GuardDocument(TypedDict):
    measure: NotRequired[Literal["faithfulness", "answer_relevance"] | None]
    experiment: NotRequired[str | None]
    allowed_loss: NotRequired[float]


class GuardFinding(TypedDict):
    name: str
    allowed_loss: float
    result: GateResult
    reason: str


class HabitRefusal(TypedDict):
    at: str
    by: str
    note: str | None


class HeatMapColumn(TypedDict):
    at: str
    runs: int
    first_run: str
    last_run: str


class HeatMapLayout(TypedDict):
    width: int
    height: int
    left: int
    column: float
    tops: list[int]
    row: int


class HeatMapMark(TypedDict):
    column: int
    at: str
    index_version: str


class HeatMapRow(TypedDict):
    key: str
    query: str
    cells: str


class HitDocument(TypedDict):
    id: str
    text: NotRequired[str | None]


class HitsReturned(TypedDict):
    before: NotRequired[int | None]
    run: NotRequired[int | None]
    repeats: NotRequired[list[int]]
    deep: NotRequired[int | None]


Hook1 = TypedDict(
    "Hook1",
    {
        "slug": str,
        "kind": Literal["webhook", "slack", "slack-app", "pagerduty", "alertmanager", "email", "apprise"],
        "to": NotRequired[list[str]],
        "from": NotRequired[str | None],
        "host": NotRequired[str | None],
        "port": NotRequired[int | None],
        "tls": NotRequired[Literal["starttls", "implicit", "none"]],
        "routing_key": NotRequired[str | None],
        "token": NotRequired[str | None],
        "channel": NotRequired[str | None],
        "url": NotRequired[str | None],
        "secret": NotRequired[str | None],
        "username": NotRequired[str | None],
        "password": NotRequired[str | None],
        "labels": NotRequired[dict[str, str]],
        "authority": NotRequired[str | None],
        "proxy": NotRequired[str | None],
        "timeout": NotRequired[float],
        "managed_by": Literal["file", "api"],
        "source": str | None,
        "hash": str,
        "disabled_reason": str | None,
        "created_at": str,
        "updated_at": str,
        "secrets_set": NotRequired[list[str]],
        "warnings": NotRequired[list[str]],
    },
)


HookDocument = TypedDict(
    "HookDocument",
    {
        "slug": str,
        "kind": Literal["webhook", "slack", "slack-app", "pagerduty", "alertmanager", "email", "apprise"],
        "to": NotRequired[list[str]],
        "from": NotRequired[str | None],
        "host": NotRequired[str | None],
        "port": NotRequired[int | None],
        "tls": NotRequired[Literal["starttls", "implicit", "none"]],
        "routing_key": NotRequired[str | None],
        "token": NotRequired[str | None],
        "channel": NotRequired[str | None],
        "url": NotRequired[str | None],
        "secret": NotRequired[str | None],
        "username": NotRequired[str | None],
        "password": NotRequired[str | None],
        "labels": NotRequired[dict[str, str]],
        "authority": NotRequired[str | None],
        "proxy": NotRequired[str | None],
        "timeout": NotRequired[float | str],
    },
)


class HookPage(TypedDict):
    items: list[Hook1]
    next: str | None


class HookReplay(TypedDict):
    hook: str
    replayed: int
    overtaken: int


class HookState(TypedDict):
    slug: str
    disabled_reason: str | None


class ImportNote(TypedDict):
    file: NotRequired[str]
    line: NotRequired[int]
    path: NotRequired[str]
    message: str


class ImportedAnnotations(TypedDict):
    annotations: int


class IndexFact(TypedDict):
    fact: str
    value: float | None
    reason: str | None
    low: float | None
    high: float | None
    canaries: int | None
    before: float | None
    before_run: str | None
    change: float | None
    usual: float | None
    sentence: str | None


class IndexMark(TypedDict):
    at: str
    index_version: str


class IndexRun(TypedDict):
    run: str
    at: str | None
    facts: dict[str, FactValue]


class IndexRunPage(TypedDict):
    items: list[IndexRun]
    next: str | None


class InterleavingDocument(TypedDict):
    slug: str
    a: str
    b: str
    max_units: NotRequired[int]


class JudgeAgreement(TypedDict):
    items: int
    raw: Coefficient
    kappa: Coefficient
    weighted_kappa: Coefficient
    judge: str


class JudgeDay(TypedDict):
    calls: int
    cached: int
    tokens: int
    cost: float
    budget: float | None
    outcomes: dict[str, int]


class JudgedClaim(TypedDict):
    text: str
    supported: bool


class JudgedSide(TypedDict):
    judge: float | None
    judge_rate: float | None
    model: str | None
    confirmed: bool
    corrected: float | None
    low: float | None
    high: float | None
    labels: int
    labelled: str | None
    answers: int
    asked: int
    unrated: int


class Judgment(TypedDict):
    id: NotRequired[str]
    document: NotRequired[str]
    text: NotRequired[str]
    grade: int


class JudgmentDocument1(TypedDict):
    id: NotRequired[str | None]
    document: NotRequired[str | None]
    text: NotRequired[str | None]
    grade: NotRequired[int]
    source: NotRequired[str | None]


JudgmentDocument: TypeAlias = str | JudgmentDocument1


class JudgmentSettings(TypedDict):
    id: str | None
    document: str | None
    text: str | None
    grade: int
    source: str | None


class Labellers(TypedDict):
    twice: int
    differ: int
    kappa: Coefficient
    wrong: Coefficient
    passing: Coefficient


class Latency(TypedDict):
    p50: float | None
    p95: float | None
    max: float | None


class LatencyPoint(TypedDict):
    at: str
    p50: float | None
    p95: float | None
    max: float | None
    runs: int
    first_run: str
    last_run: str


class LearnedBaseline(TypedDict):
    runs: int
    deterministic: bool
    first_run: str
    last_run: str
    at: str


class LeftOutCanary(TypedDict):
    canary: str
    reason: str


class LengthBias(TypedDict):
    pairs: int
    padded_only: int
    plain_only: int
    difference: float | None
    low: float | None
    high: float | None
    shown: bool
    outcomes: dict[str, int]


Level: TypeAlias = Literal["id", "document", "text", "passage"]


AItem: TypeAlias = str


BItem: TypeAlias = str


class ListsRequest(TypedDict):
    unit: str
    a: list[AItem]
    b: list[BItem]


class LookupDocument(TypedDict):
    name: NotRequired[str]
    url: NotRequired[str]
    path: NotRequired[str]


class LookupSettings(TypedDict):
    name: str
    url: str
    path: str


class LowerChunk(TypedDict):
    id: str | None
    document: str | None
    rank_before: int
    rank_now: int | None


Mark: TypeAlias = Literal["good", "look_at_this", "unknown"]


class MeanInterval(TypedDict):
    canaries: int
    low: float
    high: float


class MeanIntervals(TypedDict):
    run: dict[str, MeanInterval]
    categories: dict[str, dict[str, MeanInterval]]


class NewPublicLink(TypedDict):
    check: str
    created_by: str
    created_at: str
    page: str
    badge: str


NextStep: TypeAlias = Literal[
    "change_candidate",
    "measure_more",
    "mend_answers",
    "grade_task",
    "ask_judge",
    "label_answers",
    "run_again",
    "await_users",
    "await_outcomes",
    "await_guards",
    "mend_shares",
    "begin_again",
]


class NormalRange(TypedDict):
    low: float
    mean: float
    high: float
    runs: int
    first_run: str
    last_run: str


class NotNormalRequest(TypedDict):
    note: NotRequired[str | None]


class OpenDocument(TypedDict):
    bad: NotRequired[int]
    of: NotRequired[int]


class OpenSettings(TypedDict):
    bad: int
    of: int


Outcome: TypeAlias = Literal[
    "ok", "timeout", "unreachable", "refused", "malformed", "blocked", "oversize", "partial", "skipped"
]


class PairAgreement(TypedDict):
    items: int
    raw: Coefficient
    kappa: Coefficient
    weighted_kappa: Coefficient
    a: str
    b: str


class PairContext(TypedDict):
    left: list[str]
    right: list[str]


class PairedSides(TypedDict):
    before: float | None
    now: float | None
    difference: float | None
    canaries: int
    low: float | None
    high: float | None
    confidence: float | None
    p: float | None


class PairsDocument(TypedDict):
    shadow: str
    count: NotRequired[int]


Percentile: TypeAlias = Literal["p50", "p95", "max"]


class PlannedChange(TypedDict):
    kind: str
    name: str
    action: str
    fields: list[str]
    note: str | None


PlantProblem: TypeAlias = Literal["left_behind", "not_gone", "not_found", "slow"]


CommandItem: TypeAlias = str


class PlantRequestDocument(TypedDict):
    url: NotRequired[str | None]
    method: NotRequired[Literal["POST", "PUT", "PATCH", "DELETE"] | None]
    query: NotRequired[dict[str, Any]]
    json: NotRequired[Any]
    sql: NotRequired[str | None]
    command: NotRequired[list[CommandItem] | None]
    timeout: NotRequired[str | None]


class PlantRequestSettings(TypedDict):
    url: str | None
    method: Literal["POST", "PUT", "PATCH", "DELETE"] | None
    query: dict[str, Any]
    json: Any
    sql: str | None
    command: list[str] | None
    timeout: str | None


class PlantSettings(TypedDict):
    every: str | None
    cron: str | None
    timezone: str | None
    text: str
    query: str
    put: PlantRequestSettings
    remove: PlantRequestSettings
    credentials: str | None
    found_within: str
    gone_within: str
    poll: str


PlantState: TypeAlias = Literal["due", "sending", "awaited", "removing", "leaving", "watched", "ended"]


class Planted(TypedDict):
    items: int
    graded: int
    grades: int
    wrong: int


class PoolFailure(TypedDict):
    canary: str
    reason: str


class PooledNote(TypedDict):
    k: int
    value: float
    low: float | None
    high: float | None
    task: str
    assumes: str
    self_judged: bool
    edited_since: bool
    asked_otherwise: NotRequired[bool]
    queries: int | None
    asked_queries: int | None
    few_queries: bool


class PooledRecall(TypedDict):
    retriever: str
    k: int
    value: float | None
    low: float | None
    high: float | None
    found: int
    relevant: float | None
    queries: int
    frame: str
    rest_share: float | None
    uncorrected: float | None
    assumes: str
    task: str
    self_judged: bool
    edited_since: bool


class ProblemError(TypedDict):
    file: NotRequired[str]
    line: NotRequired[int]
    path: NotRequired[str]
    message: str


class Progress(TypedDict):
    annotator: str
    graded: int
    skipped: int
    left: int
    with_others: int
    seconds_left: float | None


class PromotionDocument(TypedDict):
    slug: str
    current: str
    candidate: str
    experiment: NotRequired[str | None]
    guards: NotRequired[list[GuardDocument]]
    stop_on_critical: NotRequired[bool]


class PromotionRun(TypedDict):
    check: str
    run_id: str
    finished_at: str | None


PromotionState: TypeAlias = Literal["promote", "stopped", "open", "needs_decision"]


class Proportion(TypedDict):
    successes: int
    count: int
    value: float | None
    low: float
    high: float


class PublicLink(TypedDict):
    check: str
    created_by: str
    created_at: str


class QualityExample(TypedDict):
    canary: str | None
    chunk: str | None
    told: str
    text: str | None


class QualityHistogram(TypedDict):
    edges: list[float | None]
    counts: dict[str, list[int]]


class QualitySection(TypedDict):
    name: str
    verdict: Mark
    reason: str
    numbers: dict[str, int | float | None]
    groups: dict[str, dict[str, int | float | None]]
    examples: list[QualityExample]
    advice: str | None
    histogram: QualityHistogram | None


Question: TypeAlias = Literal["faithful", "faithfulness", "answer_relevance", "correctness"]


class RanksFound(TypedDict):
    before: NotRequired[int | None]
    run: NotRequired[int | None]
    repeats: NotRequired[list[int | None]]
    deep: NotRequired[int | None]
    known_items: NotRequired[list[int | None]]
    control: NotRequired[int | None]


class Rate(TypedDict):
    value: float | None
    low: float
    high: float
    basis: str
    reason: str
    judge_rate: float | None


class RateDifference(TypedDict):
    value: float
    low: float
    high: float


class Rater(TypedDict):
    model: str
    wordings: dict[str, str]
    endpoint: NotRequired[str]


class RatingBody(TypedDict):
    outcome: str
    value: float | None
    detail: NotRequired[str | None]
    claims: NotRequired[list[JudgedClaim]]
    model: NotRequired[str]
    wording: NotRequired[str]
    endpoint: NotRequired[str]


class ReachRequest(TypedDict):
    retriever: str
    group: NotRequired[Grouping | None]


ReachState: TypeAlias = Literal["asking", "asked"]


AcceptItem: TypeAlias = str


RejectItem: TypeAlias = str


class ReanchorRequest(TypedDict):
    accept: NotRequired[Literal["all"] | list[AcceptItem]]
    reject: NotRequired[Literal["all"] | list[RejectItem]]


ReanchorState: TypeAlias = Literal["proposed", "accepted", "rejected", "outdated"]


Reason: TypeAlias = Literal[
    "low_relevance", "missing", "below_floor", "forbidden", "answered", "regressed", "stale", "slow"
]


class Recall(TypedDict):
    queries: int
    undecided: int
    chunks: int
    skipped: int
    estimates: list[PooledRecall]
    to_grade_again: int


class ReceivedClicks(TypedDict):
    received: int
    without_team: int
    units: int


class ReceivedExposures(TypedDict):
    received: int
    new: int
    other_arm: int
    unlike_assignment: int
    before_epoch: int


class ReceivedFeedback(TypedDict):
    received: int
    stored: int
    known: int
    unmatched: int


class ReceivedOutcomes(TypedDict):
    received: int
    new: int
    repeated: int
    second_value: int
    late: int
    early: int
    not_exposed: int


class ReceivedPairs(TypedDict):
    received: int
    compared: int
    to_ask: int
    notes: list[str]


class ReceivedTraffic(TypedDict):
    queries: int
    new: int
    notes: list[str]


Hook2: TypeAlias = str


class ReportScheduleDocument(TypedDict):
    cron: str
    timezone: NotRequired[str]
    hooks: list[Hook2]


class ReportScheduleSettings(TypedDict):
    cron: str
    timezone: str
    hooks: list[str]


class ReportedCanary(TypedDict):
    key: str
    query: str
    reasons: list[Reason]
    rank_before: int | None
    rank_now: int | None


class RequestDocument(TypedDict):
    method: NotRequired[Literal["GET", "POST"]]
    headers: NotRequired[dict[str, str]]
    json: NotRequired[Any]
    query: NotRequired[dict[str, Any]]
    sql: NotRequired[str | None]
    tool: NotRequired[str | None]


class RequestSettings(TypedDict):
    method: Literal["GET", "POST"]
    headers: dict[str, str | None]
    json: Any
    query: dict[str, Any]
    sql: str | None
    tool: str | None


class RescoringProgress(TypedDict):
    runs_done: int
    runs_total: int


class RescoringRequest(TypedDict):
    since: NotRequired[str | None]
    wait_seconds: NotRequired[float]


class RescoringSide(TypedDict):
    runs: int
    coverage: float | None
    health_score: float | None
    degraded: int
    verdicts: dict[str, int]


class ResponseDocument(TypedDict):
    hits: NotRequired[str | None]
    id: NotRequired[str | None]
    score: NotRequired[str | None]
    text: NotRequired[str | None]
    document: NotRequired[str | None]
    updated: NotRequired[str | None]
    index_version: NotRequired[str | None]
    answer: NotRequired[str | None]
    error: NotRequired[str | None]
    partial: NotRequired[str | None]
    unwrap: NotRequired[str | None]
    absent: NotRequired[Literal["empty", "malformed"] | None]


class ResponseSettings(TypedDict):
    hits: str | None
    id: str | None
    score: str | None
    text: str | None
    document: str | None
    updated: str | None
    index_version: str | None
    answer: str | None
    error: str | None
    partial: str | None
    unwrap: str | None
    absent: Literal["empty", "malformed"] | None


RuleKind: TypeAlias = Literal[
    "threshold",
    "drop",
    "regression",
    "canary",
    "latency",
    "probe_errors",
    "no_data",
    "embedding",
    "guard",
    "slower",
    "leak",
    "plant",
    "index",
]


class RunAnswers(TypedDict):
    judge: str | None
    rated_by: NotRequired[Rater | None]
    sampled: int
    answered: int
    outcomes: dict[str, int]
    ratings: dict[str, dict[str, int]]
    failures: NotRequired[dict[str, str]]
    measures: dict[str, float | None]
    corrected: NotRequired[dict[str, CorrectedRate]]
    problem: NotRequired[str]


class RunCause(TypedDict):
    kind: Literal[
        "rechunked",
        "reindexed",
        "renamed_documents",
        "embedder_changed",
        "texts_changed",
        "scores_changed",
        "empty_answers",
        "limited",
        "score_threshold",
        "missing",
        "replicas_differ",
        "search_misses",
        "left_out",
        "near_copies",
        "new_chunks",
        "other_vectors",
        "ranking_changed",
    ]
    since_run: int
    before_run: int
    canaries: int
    affected: int
    recall_by_id_before: float | None
    recall_by_id_now: float | None
    recall_by_passage_before: float | None
    recall_by_passage_now: float | None
    unseen_ids: float | None
    split: int
    score_change: float | None
    detail: str | None
    losing: NotRequired[int]
    quiet_runs: int
    shape: str | None
    evidence: str | None
    against: str | None
    beside: str | None
    index: NotRequired[str | None]
    phrase: str
    reason: str


class RunCounts(TypedDict):
    total: int | None
    measured: int | None
    failed: int | None
    undefined: int | None
    degraded: int | None


class RunFacts(TypedDict):
    items: list[IndexFact]


class RunNote(TypedDict):
    text: str
    by: str
    at: str


class RunNoteRequest(TypedDict):
    text: str


class RunProgress(TypedDict):
    done: int | None
    total: int | None


class RunRequest(TypedDict):
    trigger: NotRequired[Literal["api", "update", "cli", "page"]]
    index_version: NotRequired[str | None]
    wait_seconds: NotRequired[float]


RunStatus: TypeAlias = Literal["queued", "running", "finished", "partial", "failed"]


class RunsToOpen(TypedDict):
    bad: int
    of: int


class SavedCanaries(TypedDict):
    given: int
    changed: int
    keys: list[str]


Scale: TypeAlias = Literal["similarity", "cosine", "distance", "logit", "unbounded"]


class ScheduleDocument(TypedDict):
    every: NotRequired[str | None]
    cron: NotRequired[str | None]
    timezone: NotRequired[str | None]


class ScheduleSettings(TypedDict):
    every: str | None
    cron: str | None
    timezone: str | None


ScorerKind: TypeAlias = Literal["score", "judged", "embedding", "rerank"]


Segment: TypeAlias = Literal["frequent", "edge", "challenging", "temporal"]


class SegmentComposition(TypedDict):
    segment: str
    canaries: int
    target: int


SeriesGap = TypedDict(
    "SeriesGap",
    {
        "from": str,
        "to": str,
        "why": GapReason | None,
        "runs": int | None,
        "first_run": str | None,
        "last_run": str | None,
    },
)


class SeriesPoint(TypedDict):
    at: str
    mean: float | None
    min: float | None
    max: float | None
    runs: int
    first_run: str | None
    last_run: str | None
    unknown: bool
    corrected: CorrectedInterval | None


Severity: TypeAlias = Literal["warning", "critical"]


class Shadow(TypedDict):
    pairs: int
    failed: int
    dropped: int
    rbo: float | None
    jaccard: float | None
    a_empty: int
    b_empty: int
    a_seconds: float | None
    b_seconds: float | None
    slug: str
    candidate: str | None
    share: float | None
    k: int | None
    keep: int | None
    first_at: str | None
    last_at: str | None


class ShadowDocument(TypedDict):
    slug: str
    candidate: NotRequired[str | None]
    share: NotRequired[float]
    k: NotRequired[int]
    keep: NotRequired[int]


class ShadowHour(TypedDict):
    pairs: int
    failed: int
    dropped: int
    rbo: float | None
    jaccard: float | None
    a_empty: int
    b_empty: int
    a_seconds: float | None
    b_seconds: float | None
    at: str


class ShadowPage(TypedDict):
    items: list[Shadow]
    next: str | None


class A(TypedDict):
    id: str
    text: NotRequired[str | None]


class B(TypedDict):
    id: str
    text: NotRequired[str | None]


class ShadowPair(TypedDict):
    query: str
    a: list[str | A]
    b: NotRequired[list[str | B] | None]
    b_failed: NotRequired[bool]
    a_seconds: NotRequired[float | None]
    b_seconds: NotRequired[float | None]


Side: TypeAlias = Literal["a", "b"]


class Sides(TypedDict):
    before: float | None
    now: float | None
    difference: float | None


class SigV4Document(TypedDict):
    kind: NotRequired[Literal["sigv4"]]
    region: NotRequired[str]
    service: NotRequired[str]
    access_key: NotRequired[str]
    secret_key: NotRequired[str]
    session_token: NotRequired[str | None]


class SigV4Settings(TypedDict):
    kind: Literal["sigv4"]
    region: str
    service: str
    access_key: str
    secret_key: NotRequired[str | None]
    session_token: NotRequired[str | None]


Check1: TypeAlias = str


Suite: TypeAlias = str


Retriever1: TypeAlias = str


Rule: TypeAlias = str


class SilenceOutlook(TypedDict):
    slug: str
    active: bool
    until: str | None
    next_change: str | None


class SilencedAlert(TypedDict):
    id: str
    check: str
    rule: str
    severity: Severity
    state: AlertState


class Since(TypedDict):
    run_id: str
    index_version: str | None
    index_version_before: str | None
    runs_after: int | None
    text: str


class Slice(TypedDict):
    canaries: int | None
    measured: int | None
    health_score: float | None
    coverage: float | None
    measures: dict[str, float | None]


Step: TypeAlias = Literal["retriever", "embedder", "lookup", "authentication"]


class StoredCulprit(TypedDict):
    key: str
    signal: Literal["lost", "worse"]
    evidence: float | None


class StoredCulprits(TypedDict):
    total: int
    named: list[StoredCulprit]


class StoredDrift(TypedDict):
    kind: DriftKind
    reason: str
    median_z: float | None
    overlap: float | None
    canaries: int


class StoredHabit(TypedDict):
    id: str
    canaries: list[str]
    total: int
    answers: int
    times: int
    runs: int
    bound: int


class StoredJudgment(TypedDict):
    id: str | None
    document: str | None
    text: str | None
    grade: int


class StoredPair(TypedDict):
    key: str
    similar: bool
    cosine: float
    reference: float
    agreement: float


class Stratum(TypedDict):
    to: int | None
    sample: int | None
    rest: int | None


class StratumDocument(TypedDict):
    to: NotRequired[int | None]
    sample: NotRequired[int | None]
    rest: NotRequired[int | None]


class SuggestedBound(TypedDict):
    below: float


class SuggestedRuleBody(TypedDict):
    kind: Literal["threshold"]
    measure: str
    critical: SuggestedBound


class SuggestedScorer(TypedDict):
    scale: Scale


class Suggestion(TypedDict):
    query: str
    group: str
    traffic: float
    segments: list[str]
    negative_candidate: bool


class SuggestionPage(TypedDict):
    items: list[Suggestion]
    next: str | None


Query: TypeAlias = str


class SuggestionsRequest(TypedDict):
    retriever: str
    task: str
    queries: list[Query]


class Suite1(TypedDict):
    managed_by: Literal["file", "api"]
    source: str | None
    hash: str
    disabled_reason: str | None
    created_at: str
    updated_at: str
    slug: str


class SuiteFiles(TypedDict):
    files: dict[str, str]
    as_documents: NotRequired[bool]
    notes: NotRequired[list[str]]


class SuitePage(TypedDict):
    items: list[Suite1]
    next: str | None


Key: TypeAlias = str


TaskState: TypeAlias = Literal["created", "pooling", "pooled"]


class TextFiles(TypedDict):
    files: dict[str, str]


class TextMatch(TypedDict):
    judgment: int
    id: str | None
    document: str | None
    similarity: float


class ThinTopic(TypedDict):
    kind: str
    name: str
    canaries: int


class TlsDocument(TypedDict):
    certificate: NotRequired[str | None]
    key: NotRequired[str | None]
    authority: NotRequired[str | None]


class TlsSettings(TypedDict):
    certificate: str | None
    key: NotRequired[str | None]
    authority: str | None


class Traffic(TypedDict):
    retriever: str
    distinct: int
    traffic: int
    first_seen: str
    last_seen: str


class TrafficPage(TypedDict):
    items: list[Traffic]
    next: str | None


class TrafficReach(TypedDict):
    retriever: str
    checks: list[str]
    state: ReachState
    requested_at: str
    traffic: int
    distinct: int
    head: int
    sample: int
    asked: int
    answered: int
    value: float | None
    low: float | None
    high: float | None
    reason: str | None
    covered_groups: int
    all_groups: int
    groups: list[Group]
    empty: float
    unanswered: float
    taken_up: int
    too_fine: bool
    edited_since: bool
    grouped_by: str | None


TransitionType: TypeAlias = Literal["opened", "escalated", "updated", "acknowledged", "reminded", "resolved"]


class TrialHit(TypedDict):
    rank: int
    id: str
    document: str | None
    text: str | None
    score: float | None
    relevance: float | None
    updated: str | None


class TrialRequest(TypedDict):
    method: str
    url: str
    headers: dict[str, str]
    body: str | None
    cut: bool


class TrialResponse(TypedDict):
    status: int | None
    headers: dict[str, str]
    body: str
    bytes: int
    cut: bool


class TrialScorer(TypedDict):
    kind: ScorerKind
    scale: Scale | None


Trigger: TypeAlias = Literal["schedule", "api", "update", "cli", "page"]


class Turn(TypedDict):
    role: str
    content: str


class TurnDocument(TypedDict):
    role: str
    content: str


class TurnSettings(TypedDict):
    role: str
    content: str


class UndoRequest(TypedDict):
    annotator: NotRequired[str | None]


class UnitOutcome(TypedDict):
    event_id: str
    unit: str
    value: int
    at: NotRequired[str | None]


class Unmeasured(TypedDict):
    step: Step
    outcome: Outcome
    http_status: int | None
    error: str
    count: int
    canaries: list[str]


class UnnamedChunk(TypedDict):
    ids: list[str]
    text: str
    grade: int


Use: TypeAlias = Literal["general", "completeness", "precision", "single_answer", "graded"]


class Usual(TypedDict):
    plants: int
    median_seconds: float
    high_seconds: float
    slow_above_seconds: float


Verdict: TypeAlias = Literal["healthy", "degraded", "unknown"]


ViolationKind: TypeAlias = Literal["forbidden", "answered"]


class Waiver(TypedDict):
    by: str
    reason: str
    at: str
    finding: GateResult
    found: str
    losses: NotRequired[dict[str, tuple[float, float]] | None]


class WaiverRequest(TypedDict):
    reason: str


class WarmUp(TypedDict):
    summary: str
    identical_runs: int
    identical_runs_needed: int
    runs: int
    runs_needed: int
    note: str | None


class WindowDocument(TypedDict):
    cron: str
    timezone: NotRequired[str]
    duration: str


class WindowSettings(TypedDict):
    cron: str
    timezone: str
    duration: str


class WorseAnswer(TypedDict):
    key: str
    query: str
    value_before: float
    value: float
    change: AnswerChange


class WorseAnswers(TypedDict):
    worse: int
    of: int
    came: NotRequired[int]
    changes: dict[AnswerChange, int]
    edited: NotRequired[str]
    edited_judge_alone: NotRequired[bool]
    listed: list[WorseAnswer]


class AdoptedCanary(TypedDict):
    canary: str
    grades: dict[str, int]
    added: int
    changed: int
    kept: int
    undecided: int
    unnamed: list[UnnamedChunk]


class Adoption(TypedDict):
    adopted: list[AdoptedCanary]
    to_commit: list[AdoptedCanary]
    patches: list[FilePatch]
    changes: str
    left_out: list[LeftOutCanary]
    doubt: AdoptionDoubt | None
    checks: list[str]


class Agreement(TypedDict):
    items: int
    graded_again: int
    annotators: list[str]
    raw: Coefficient
    alpha: dict[str, Coefficient]
    pairs: list[PairAgreement]
    judges: list[JudgeAgreement]


class Answer(TypedDict):
    outcome: str
    detail: str | None
    utilisation: float | None
    chunks_used: float | None
    ratings: dict[str, RatingBody]
    key: str
    query: str
    answer: str | None
    expected_answer: str | None
    since_run: str
    feedback: Feedback | None
    contexts: list[str]


class BoundLine(TypedDict):
    rule: str
    severity: Severity
    bad: Literal["below", "above"]
    value: float
    by: NotRequired[float]


class Budget(TypedDict):
    items: int
    states: dict[ConsensusState, int]
    annotations_left: int
    pace_seconds: float | None
    hours_left: float | None
    annotators: list[Annotator]
    planted: Planted


class Canary(TypedDict):
    key: str
    query: str
    vars: dict[str, str]
    history: list[TurnSettings]
    expected_chunks: list[JudgmentSettings]
    forbidden_chunks: list[ChunkSettings]
    expected_answer: str | None
    min_relevance_score: float
    max_relevance_score: float
    floors: dict[str, float]
    expect_empty: bool
    max_age: float | None
    max_latency: float | None
    category: Category
    segment: Segment | None
    tags: list[str]
    managed_by: Literal["file", "api"]
    source: str | None
    hash: str
    warnings: list[str]
    given: NotRequired[int]
    changed: NotRequired[int]


class CanaryDocument(TypedDict):
    key: str
    query: str
    vars: NotRequired[dict[str, str]]
    history: NotRequired[list[TurnDocument]]
    expected_chunks: NotRequired[list[JudgmentDocument] | JudgmentDocument]
    forbidden_chunks: NotRequired[list[ChunkDocument] | ChunkDocument]
    expected_answer: NotRequired[str | None]
    min_relevance_score: NotRequired[float]
    max_relevance_score: NotRequired[float]
    floors: NotRequired[dict[str, float]]
    expect_empty: NotRequired[bool]
    max_age: NotRequired[float | str | None]
    max_latency: NotRequired[float | str | None]
    category: NotRequired[Category]
    segment: NotRequired[Segment | None]
    tags: NotRequired[list[Tag]]


class CanaryPage(TypedDict):
    items: list[Canary]
    next: str | None


CanaryState = TypedDict(
    "CanaryState",
    {
        "verdict": Verdict,
        "reasons": list[Reason],
        "first_run": str,
        "from": str | None,
        "last_run": str | None,
        "until": str | None,
        "top_score": float | None,
        "measures": dict[str, float | None],
        "ranking": list[str],
    },
)


class CategoryDifference(TypedDict):
    health_score: Sides
    coverage: Sides


class ChangedCanary(TypedDict):
    lost: NotRequired[list[str]]
    lost_documents: NotRequired[list[str | None]]
    lost_total: NotRequired[int]
    cause: NotRequired[Cause | None]
    cause_reason: NotRequired[str | None]
    persistent: NotRequired[bool | None]
    asked_as: NotRequired[dict[str, str]]
    forbidden: NotRequired[list[ForbiddenHit]]
    key: str
    query: str
    reasons: list[Reason]
    rank_before: int | None
    rank_now: int | None
    lower: NotRequired[list[LowerChunk]]


class CheckRate(TypedDict):
    check: str
    labels: int
    yes: int
    unlabelled: int
    rate: Rate
    sensitivity: Proportion
    specificity: Proportion
    corrects: bool
    reason: str


class CheckTrust(TypedDict):
    check: str
    labels: int
    yes: int
    unlabelled: int
    rate: Rate
    sensitivity: Proportion
    specificity: Proportion
    corrects: bool
    reason: str
    task: str | None
    sentence: str


class Click(TypedDict):
    event_id: str
    unit: str
    team: NotRequired[Side | None]


class ComparedAnswers(TypedDict):
    measure: str
    a: JudgedSide
    b: JudgedSide
    difference: float | None
    low: float | None
    high: float | None


class ComparedCanary(TypedDict):
    key: str
    query: str
    category: Category
    tags: list[str]
    winner: Side | None
    a: float | None
    b: float | None
    difference: float | None
    rank_a: int | None
    rank_b: int | None


class ComparedMeasure(TypedDict):
    measure: str
    canaries: int
    a: float | None
    b: float | None
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    corrected_p: float | None
    claim: Claim | None
    winner: Side | None


class ComparedRunOutline(TypedDict):
    id: str
    check: str
    suite: str
    retriever: str
    finished_at: str | None
    index_version: str | None
    verdict: Verdict | None
    suite_hash: str | None
    config_hash: str | None
    measures_version: str | None
    self_judged: bool
    judged_before_edit: bool
    pooled_recall: list[PooledNote]
    reference: str
    k: int
    fetch_k: int


class ComparedViolations(TypedDict):
    kind: ViolationKind
    canaries: int
    a: int
    b: int
    only_a: list[str]
    only_b: list[str]
    p: float
    corrected_p: float | None
    winner: Side | None
    sentence: str


class Comparison(TypedDict):
    task: str
    state: TaskState
    pairs: int
    candidate: int
    current: int
    alike: int
    undecided: int
    share: Proportion


class ComparisonCaution(TypedDict):
    kind: CautionKind
    sentence: str
    measure: str | None
    winner: Side | None
    recall: str | None
    loss: float | None
    favours: Side | None
    retriever: str | None
    not_claimed: list[str]
    alert_id: str | None


class Composition(TypedDict):
    categories: list[CategoryComposition]
    segments: list[SegmentComposition]
    not_stated: int
    notes: list[str]


class Delivery(TypedDict):
    id: str
    hook: str
    alert_id: str | None
    incident_id: str | None
    type: str
    state: DeliveryState
    reason: str | None
    created_at: str
    next_attempt_at: str | None
    waits_for: str | None
    attempts: list[Attempt]


class DeliveryPage(TypedDict):
    items: list[Delivery]
    next: str | None


class Detector(TypedDict):
    run: str
    evidence: float | None
    scopes: dict[str, float]
    threshold: float
    open: bool
    since_run: str | None
    severity: Severity | None
    reason: str | None
    lost: int | None
    worse: int | None
    usual: list[int] | None
    unknown: int
    groups: list[str]
    culprits: StoredCulprits
    drift: StoredDrift | None
    habit: StoredHabit | None


class DiagnosisEvidence(TypedDict):
    asked: NotRequired[dict[str, int]]
    failed: NotRequired[list[str]]
    ranks: NotRequired[RanksFound]
    returned: NotRequired[HitsReturned]
    score_change: NotRequired[float | None]
    scores_compared: NotRequired[int]
    gone: NotRequired[list[int]]
    matches: NotRequired[list[TextMatch]]
    relevance: NotRequired[float | None]
    least_relevance: NotRequired[float]
    shared_words: NotRequired[float | None]
    near_copies: NotRequired[list[tuple[str, str, float]]]
    deeper: NotRequired[dict[str, int]]
    well_on_repeats: NotRequired[int]
    score_before: NotRequired[float]
    score_at_k: NotRequired[float]


class Disagreement(TypedDict):
    vars: dict[str, str]
    history: list[Turn]
    id: str
    canary: str | None
    query: str
    text: str
    document: str | None
    grades: dict[str, int]
    adjudicated: int | None


class DisagreementPage(TypedDict):
    items: list[Disagreement]
    next: str | None


class DrawnAnswersDocument(TypedDict):
    judge: str
    question: Question
    count: NotRequired[int]
    window_hours: NotRequired[int]


class Epoch(TypedDict):
    epoch: int
    began_at: str
    ended_at: str | None
    arms: list[Arm]
    pending: int
    pending_until: str | None
    delta: float
    window: float
    max_units: int
    state: ExperimentState
    reason: str
    winner: str | None
    decided_at: str | None
    difference: RateDifference | None
    later: RateDifference | None
    power: str


class EvaluatedRun(TypedDict):
    at: str
    value: float | None
    threshold: float | None
    baseline: float | None
    corrected: CorrectedRate | None
    beside: NotRequired[CorrectedRate]
    rated: NotRequired[str]
    severity: Severity | None
    good: bool
    unjudged: NotRequired[str]
    uncalibrated: NotRequired[bool]
    run_id: str


class ExcludedCanaries(TypedDict):
    reason: Exclusion
    canaries: int
    keys: list[str]
    sentence: str


class Experiment(TypedDict):
    epoch: int
    began_at: str
    ended_at: str | None
    arms: list[Arm]
    pending: int
    pending_until: str | None
    delta: float
    window: float
    max_units: int
    state: ExperimentState
    reason: str
    winner: str | None
    decided_at: str | None
    difference: RateDifference | None
    later: RateDifference | None
    power: str
    slug: str
    outcome: str
    created_at: str
    created_by: str


class ExperimentLook(TypedDict):
    at: str
    units: int
    difference: RateDifference | None


class ExperimentPage(TypedDict):
    items: list[Experiment]
    next: str | None


class Failure(TypedDict):
    step: Step
    address: str | None
    outcome: Outcome
    http_status: int | None
    error: str
    count: int
    failed: int
    skipped: int
    total: int
    text: str


class FeedbackEvent(TypedDict):
    event_id: str
    canary: str
    answer: str
    kind: FeedbackKind
    positive: bool


class FeedbackRequest(TypedDict):
    events: list[FeedbackEvent]


class Fleet(TypedDict):
    shape: str
    headline: str
    sentence: str
    group: FleetGroup | None
    fallen: int
    of: int
    expected_by_chance: float | None
    causes: dict[str, int]
    cause: RunCause | None


class Gate(TypedDict):
    gate: GateName
    result: GateResult
    reason: str
    evidence: GateResult
    waiver: Waiver | None
    guards: NotRequired[list[GuardFinding]]
    losses: NotRequired[dict[str, tuple[float, float]]]
    next: NotRequired[NextStep | None]


class Habit(TypedDict):
    id: str
    canaries: list[str]
    answers: int
    times: int
    longest: int
    bound: int
    learned: bool
    refused: HabitRefusal | None


class HeatMapGroup(TypedDict):
    name: str
    canaries: list[HeatMapRow]


class Hit(TypedDict):
    rank: int
    id: str
    document: str | None
    text: str | None
    score: float | None
    updated: str | None
    relevance: float | None
    judgment: Judgment | None
    level: Level | None
    grade: int | None


class ImportOutcome(TypedDict):
    applied: bool
    changes: list[PlannedChange]
    notes: list[str]
    warnings: list[ImportNote]


class Interleaving(TypedDict):
    slug: str
    a: str
    b: str
    max_units: int
    epoch: int
    began_at: str
    created_at: str
    created_by: str
    prefer_a: int
    prefer_b: int
    ties: int
    state: ExperimentState
    reason: str
    winner: str | None
    decided_at: str | None
    difference: RateDifference | None
    later: RateDifference | None


class InterleavingPage(TypedDict):
    items: list[Interleaving]
    next: str | None


class Item(TypedDict):
    vars: dict[str, str]
    history: list[Turn]
    id: str
    query: str
    text: str
    grade: int | None
    answer: AnswerContext | None
    pair: PairContext | None


class LatencyLine(TypedDict):
    rule: str
    percentile: str
    severity: Severity
    value: float


LatencySeries = TypedDict(
    "LatencySeries",
    {
        "check": str,
        "from": str,
        "to": str,
        "since": str,
        "points": list[LatencyPoint],
        "lines": list[LatencyLine],
    },
)


class MappingSuggestion(TypedDict):
    response: dict[str, str | None]
    scorer: SuggestedScorer | None
    hits: int
    reasons: dict[str, str]
    yaml: str


class MeasureDifference(TypedDict):
    before: float | None
    now: float | None
    difference: float | None
    paired: PairedSides | None


class MeasureGuide(TypedDict):
    use: Use
    measure: str
    recall: str
    sentence: str


class MergedHit(TypedDict):
    id: str
    team: Side | None


class MergedList(TypedDict):
    epoch: int
    hits: list[MergedHit]


class NextItem(TypedDict):
    item: Item | None
    following: Item | None
    progress: Progress


class OAuth2Document(TypedDict):
    kind: NotRequired[Literal["oauth2"]]
    token_url: NotRequired[str]
    client_id: NotRequired[str]
    client_secret: NotRequired[str]
    scope: NotRequired[str | None]
    audience: NotRequired[str | None]
    tls: NotRequired[TlsDocument | None]


class OAuth2Settings(TypedDict):
    kind: Literal["oauth2"]
    token_url: str
    client_id: str
    client_secret: NotRequired[str | None]
    scope: str | None
    audience: str | None
    tls: TlsSettings | None


class Plant(TypedDict):
    id: str
    document_id: str
    marker: str
    state: PlantState
    planted_at: str | None
    finding: Finding | None
    found_seconds: float | None
    is_sure: bool
    gone_seconds: float | None
    problem: PlantProblem | None
    sentence: str | None
    failure: str | None
    removal_failure: str | None
    ended_at: str | None


class PlantDocument(TypedDict):
    every: NotRequired[str | None]
    cron: NotRequired[str | None]
    timezone: NotRequired[str | None]
    text: NotRequired[str]
    query: NotRequired[str]
    put: PlantRequestDocument
    remove: PlantRequestDocument
    credentials: NotRequired[str | None]
    found_within: NotRequired[str]
    gone_within: NotRequired[str]
    poll: NotRequired[str]


class Plants(TypedDict):
    items: list[Plant]
    next: str | None
    usual: Usual | None
    next_at: str | None
    waits_for: str | None


class Problem(TypedDict):
    type: str
    title: str
    status: int
    detail: str
    errors: NotRequired[list[ProblemError]]


class Promotion(TypedDict):
    slug: str
    current: str
    candidate: str
    experiment: str | None
    candidate_arm: str | None
    guards: list[Guard]
    stop_on_critical: bool
    created_at: str
    created_by: str
    state: PromotionState
    reason: str
    by_waiver: bool
    gates: list[Gate]
    runs: list[PromotionRun]
    critical_alerts: list[CriticalAlert]


class PromotionPage(TypedDict):
    items: list[Promotion]
    next: str | None


class QualityReport(TypedDict):
    check: str
    run: str
    at: str | None
    k: int
    fetch_k: int
    canaries: CanaryCounts
    chunks: ChunkCounts
    notes: list[str]
    sections: list[QualitySection]


class Reach(TypedDict):
    canaries: int
    smallest_fraction: float | None
    failing_fraction: float | None
    thin_topics: list[ThinTopic]


class Reanchor(TypedDict):
    id: str
    key: str
    state: ReanchorState
    query: str | None
    managed_by: str | None
    source: str | None
    judgment: StoredJudgment
    proposals: list[StoredJudgment]
    old_text: str | None
    new_texts: list[str] | None
    similarity: float | None
    created_at: str
    decided_at: str | None
    decided_by: str | None


class ReanchorOutcome(TypedDict):
    id: str
    key: str
    state: ReanchorState


class ReanchorPage(TypedDict):
    items: list[Reanchor]
    next: str | None


class Rescoring(TypedDict):
    id: str
    check: str
    measures_version: str
    suite_hash: str
    since: str | None
    status: Literal["queued", "running", "finished", "failed"]
    created_at: str
    finished_at: str | None
    progress: RescoringProgress
    note: str | None
    failure: str | None
    before: RescoringSide | None
    after: RescoringSide | None


class RescoringPage(TypedDict):
    items: list[Rescoring]
    next: str | None


class Result(TypedDict):
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
    ranking: list[Hit]
    missing: list[Judgment]
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
    rbo: float | None


class ResultPage(TypedDict):
    items: list[Result]
    next: str | None


class RuleDocument(TypedDict):
    kind: RuleKind
    measure: NotRequired[str | None]
    category: NotRequired[Category | None]
    canary: NotRequired[str | None]
    percentile: NotRequired[Percentile | None]
    severity: NotRequired[Severity]
    warning: NotRequired[BoundDocument | None]
    critical: NotRequired[BoundDocument | None]
    confidence: NotRequired[float]
    open: NotRequired[OpenDocument]
    close: NotRequired[int]
    margin: NotRequired[float | str]
    failed_share: NotRequired[float | None]
    factor: NotRequired[float | None]
    rise: NotRequired[float | str | None]
    fact: NotRequired[str | None]
    minimum: NotRequired[float | None]
    maximum: NotRequired[float | None]
    fall: NotRequired[float | None]
    enabled: NotRequired[bool]
    key: NotRequired[str | None]


class RuleEvidence(TypedDict):
    canaries: NotRequired[list[ChangedCanary]]
    changed: NotRequired[int]
    failing_before: NotRequired[int]
    measure: NotRequired[str | None]
    self_judged: NotRequired[bool]
    pooled_recall: NotRequired[list[PooledNote]]
    uncalibrated: NotRequired[bool]
    answers: NotRequired[WorseAnswers]
    category: NotRequired[str | None]
    warning: NotRequired[BoundSides | None]
    critical: NotRequired[BoundSides | None]
    failed_share: NotRequired[float | None]
    factor: NotRequired[float]
    rise: NotRequired[float]
    margin: NotRequired[float]
    open: NotRequired[RunsToOpen]
    close: NotRequired[int]
    percentile: NotRequired[Percentile]
    bad: NotRequired[int]
    critical_runs: NotRequired[int]
    of: NotRequired[int]
    good_in_a_row: NotRequired[int]
    interrupted: NotRequired[bool]
    failure: NotRequired[Failure]
    culprits: NotRequired[list[str]]
    retriever: NotRequired[str]
    usual: NotRequired[float | None]
    since: NotRequired[str]
    deadline: NotRequired[str]
    ever: NotRequired[bool]
    cause: NotRequired[str]
    by: NotRequired[str]
    note: NotRequired[str | None]
    first_bad_run: NotRequired[str | None]
    window: NotRequired[list[EvaluatedRun]]


class RuleExplanation(TypedDict):
    rule: str
    kind: RuleKind
    scope: str
    state: AlertState | Literal["unknown"]
    severity: Severity | None
    alert_id: str | None
    incident_id: str | None
    opened_at: str | None
    acknowledged_at: str | None
    acknowledged_by: str | None
    reason: str
    evidence: RuleEvidence
    to_open: str | None
    to_close: str | None
    bad_runs_to_open: int | None
    good_runs_to_close: int | None
    unmeasured: list[str]
    deadline: str | None
    held_back: str | None
    held_back_reason: str | None
    silences: list[SilenceOutlook]
    next_reminder_at: str | None


class RuleSettings(TypedDict):
    kind: RuleKind
    measure: str | None
    category: Category | None
    canary: str | None
    percentile: Percentile | None
    severity: Severity
    warning: BoundSettings | None
    critical: BoundSettings | None
    confidence: float
    open: OpenSettings
    close: int
    margin: float
    failed_share: float | None
    factor: float | None
    rise: float | None
    fact: str | None
    minimum: float | None
    maximum: float | None
    fall: float | None
    enabled: bool
    key: str | None


class RunAnswersPage(TypedDict):
    status: Literal["off", "pending", "rated"]
    confirmed: list[str]
    summary: RunAnswers | None
    items: list[Answer]
    next: str | None


class RunOutline(TypedDict):
    id: str
    check: str
    suite: str
    retriever: str
    finished_at: str | None
    index_version: str | None
    verdict: Verdict | None
    suite_hash: str | None
    config_hash: str | None
    measures_version: str | None
    self_judged: bool
    judged_before_edit: bool
    pooled_recall: list[PooledNote]


class ScorerDocument(TypedDict):
    kind: NotRequired[ScorerKind | None]
    scale: NotRequired[Scale | None]
    anchor: NotRequired[float | None]
    url: NotRequired[str | None]
    model: NotRequired[str | None]
    headers: NotRequired[dict[str, str]]
    auth: NotRequired[BearerDocument | ApiKeyDocument | BasicDocument | OAuth2Document | SigV4Document | None]
    tls: NotRequired[TlsDocument | None]
    timeout: NotRequired[float | str | None]


class ScorerSettings(TypedDict):
    kind: ScorerKind | None
    scale: Scale | None
    anchor: float | None
    url: str | None
    model: str | None
    headers: dict[str, str | None]
    auth: BearerSettings | ApiKeySettings | BasicSettings | OAuth2Settings | SigV4Settings | None
    tls: TlsSettings | None
    timeout: float | None


class SeriesAlert(TypedDict):
    id: str
    rule: str
    severity: Severity
    opened_at: str
    resolved_at: str | None


class ShadowDetail(TypedDict):
    pairs: int
    failed: int
    dropped: int
    rbo: float | None
    jaccard: float | None
    a_empty: int
    b_empty: int
    a_seconds: float | None
    b_seconds: float | None
    slug: str
    candidate: str | None
    share: float | None
    k: int | None
    keep: int | None
    first_at: str | None
    last_at: str | None
    waiting: int
    kept: int
    comparisons: list[Comparison]
    hours: list[ShadowHour]


class SideResult(TypedDict):
    verdict: Verdict
    outcome: Outcome
    reasons: list[Reason]
    rank: int | None
    top_score: float | None
    measures: dict[str, float | None]


class Silence(TypedDict):
    slug: str
    reason: str | None
    checks: list[str]
    suites: list[str]
    retrievers: list[str]
    rules: list[str]
    severities: list[Severity]
    all: bool
    starts: str | None
    ends: str | None
    window: WindowSettings | None
    managed_by: Literal["file", "api"]
    source: str | None
    hash: str
    disabled_reason: str | None
    created_at: str
    updated_at: str
    active: bool
    until: str | None
    next_change: str | None
    holds_back: list[SilencedAlert]


class SilenceDocument(TypedDict):
    slug: str
    reason: NotRequired[str | None]
    checks: NotRequired[list[Check1]]
    suites: NotRequired[list[Suite]]
    retrievers: NotRequired[list[Retriever1]]
    rules: NotRequired[list[Rule]]
    severities: NotRequired[list[Severity]]
    all: NotRequired[bool]
    starts: NotRequired[str | None]
    ends: NotRequired[str | None]
    window: NotRequired[WindowDocument | None]


class SilencePage(TypedDict):
    items: list[Silence]
    next: str | None


class StoredFinding(TypedDict):
    outcome: Outcome
    http_status: int | None
    kind: EmbedderChange | None
    reason: str
    dimensions: int | None
    pairs: list[StoredPair]


class SuggestedRule(TypedDict):
    measure: str
    below: float
    usual_low: float
    runs: int
    rule: SuggestedRuleBody
    yaml: str
    watched_by: str | None


class SuggestedRules(TypedDict):
    check: str
    note: str | None
    revision: int
    managed_by: str
    guide: str | None
    rules: list[SuggestedRule]


class SuiteDetail(TypedDict):
    managed_by: Literal["file", "api"]
    source: str | None
    hash: str
    disabled_reason: str | None
    created_at: str
    updated_at: str
    slug: str
    coverage_note: str | None
    reach: Reach
    canary_count: int


class SuiteDocument(TypedDict):
    slug: str
    canaries: NotRequired[list[CanaryDocument] | None]


class Task(TypedDict):
    slug: str
    suite: str
    keys: list[str]
    retrievers: list[str]
    answers: DrawnAnswers | None
    pairs: DrawnPairs | None
    pool: int
    strata: list[Stratum]
    corpus: str | None
    scale: str
    overlap: float
    checks: int
    seed: int
    created_at: str
    created_by: str
    state: TaskState
    canaries: int
    pooled: int
    failed: int
    items: int
    planted: int


class TaskDetail(TypedDict):
    slug: str
    suite: str
    keys: list[str]
    retrievers: list[str]
    answers: DrawnAnswers | None
    pairs: DrawnPairs | None
    pool: int
    strata: list[Stratum]
    corpus: str | None
    scale: str
    overlap: float
    checks: int
    seed: int
    created_at: str
    created_by: str
    state: TaskState
    canaries: int
    pooled: int
    failed: int
    items: int
    planted: int
    failures: list[PoolFailure]
    planted_fewer: str | None


class TaskDocument(TypedDict):
    slug: str
    suite: str
    retrievers: NotRequired[list[Retriever1]]
    answers: NotRequired[DrawnAnswersDocument | None]
    pairs: NotRequired[PairsDocument | None]
    keys: NotRequired[list[Key]]
    pool: NotRequired[int]
    strata: NotRequired[list[StratumDocument]]
    corpus: NotRequired[str | None]
    scale: NotRequired[Literal["0-1", "0-2", "0-3"]]
    overlap: NotRequired[float]
    checks: NotRequired[int]
    seed: NotRequired[int]


class TaskPage(TypedDict):
    items: list[Task]
    next: str | None


class Transition(TypedDict):
    at: str
    type: TransitionType
    severity: Severity
    reason: str
    run_id: str | None
    suppressed: str | None
    silence: str | None
    evidence: RuleEvidence


class Trial(TypedDict):
    retriever: str
    query: str
    outcome: Outcome
    step: Step
    detail: str | None
    http_status: int | None
    latency_seconds: float | None
    index_version: str | None
    request: TrialRequest | None
    response: TrialResponse | None
    hits: list[TrialHit]
    returned: int | None
    scorer: TrialScorer
    top_score: float | None
    unscored: str | None
    remarks: list[str]
    suggestions: list[MappingSuggestion]


class TryRequest(TypedDict):
    query: str
    k: NotRequired[int]
    retriever: NotRequired[dict[str, Any]]
    answer: NotRequired[str | None]
    suggest: NotRequired[bool]
    vars: NotRequired[dict[str, str]]
    history: NotRequired[list[TurnDocument]]


class Alert(TypedDict):
    id: str
    check: str
    rule: str
    kind: RuleKind
    scope: str
    severity: Severity
    state: AlertState
    opened_at: str | None
    resolved_at: str | None
    acknowledged_at: str | None
    acknowledged_by: str | None
    reason: str
    evidence: RuleEvidence
    since_run: str | None
    incident_id: str | None
    dedupe_key: str
    transitions: list[Transition]


class AlertPage(TypedDict):
    items: list[Alert]
    next: str | None


class AnswerDocument(TypedDict):
    url: str
    request: Any
    path: str
    headers: NotRequired[dict[str, str]]
    auth: NotRequired[BearerDocument | ApiKeyDocument | BasicDocument | OAuth2Document | SigV4Document | None]
    tls: NotRequired[TlsDocument | None]
    timeout: NotRequired[float | str]


class AnswerSettings(TypedDict):
    url: str
    request: Any
    path: str
    headers: dict[str, str | None]
    auth: BearerSettings | ApiKeySettings | BasicSettings | OAuth2Settings | SigV4Settings | None
    tls: TlsSettings | None
    timeout: float


class Baseline(TypedDict):
    check: str
    mode: Literal["pinned", "moving"]
    run: str | None
    since: BaselineChoice | None
    pending: bool
    learned: LearnedBaseline | None
    warm_up: WarmUp | None
    waits: str | None
    detector: Detector | None
    habits: list[Habit]
    choices: list[BaselineChoice]


class Calibration(TypedDict):
    labels: int
    disputed: int
    yes: int
    unlabelled: int
    rate: Rate
    kappa: Coefficient
    sensitivity: Proportion
    specificity: Proportion
    calibrated: bool
    reason: str
    length_bias: LengthBias | None
    labellers: Labellers | None
    checks: list[CheckRate]
    measure: str
    task: str
    suite: str
    drawn_at: str
    updated_at: str


class CanaryDifference(TypedDict):
    key: str
    query: str
    category: Category
    tags: list[str]
    change: Change
    difference: float | None
    rbo: float | None
    before: SideResult | None
    now: SideResult | None


class CanaryHistory(TypedDict):
    check: str
    key: str
    items: list[CanaryState]


class Check(TypedDict):
    slug: str
    suite: str
    retriever: str
    vars: dict[str, str]
    schedule: ScheduleSettings
    k: int
    fetch_k: int
    cutoffs: list[int]
    use: Use
    rules: list[RuleSettings]
    hooks: list[str]
    remind: str | None
    report: ReportScheduleSettings | None
    judge: str | None
    sample: float
    plant: PlantSettings | None
    enabled: bool
    canary_metrics: int
    managed_by: Literal["file", "api"]
    source: str | None
    hash: str
    disabled_reason: str | None
    created_at: str
    updated_at: str
    warnings: NotRequired[list[str]]


class CheckAlerting(TypedDict):
    check: str
    enabled: bool
    newest_run: str | None
    verdict: Verdict | None
    rules: list[RuleExplanation]
    disabled_rules: list[str]
    hooks: list[HookState]
    remind: str | None


class CheckDocument(TypedDict):
    slug: str
    suite: str
    retriever: str
    vars: NotRequired[dict[str, str]]
    schedule: ScheduleDocument
    k: NotRequired[int]
    fetch_k: NotRequired[int | None]
    cutoffs: NotRequired[list[Cutoff]]
    use: NotRequired[Use]
    rules: NotRequired[list[RuleDocument]]
    hooks: NotRequired[list[Hook]]
    remind: NotRequired[str | None]
    report: NotRequired[ReportScheduleDocument | None]
    judge: NotRequired[str | None]
    sample: NotRequired[float]
    plant: NotRequired[PlantDocument | None]
    enabled: NotRequired[bool]
    canary_metrics: NotRequired[int]


class CheckPage(TypedDict):
    items: list[Check]
    next: str | None


class ComparedCategory(TypedDict):
    category: Category
    canaries: int
    verdict: ComparisonVerdict
    winner: Side | None
    measures: list[ComparedMeasure]
    cautions: list[ComparisonCaution]


class ComparisonDecision(TypedDict):
    verdict: ComparisonVerdict
    sentence: str
    cautions: list[ComparisonCaution]
    canaries: int
    excluded: list[ExcludedCanaries]
    k: int
    depth: int
    primary: list[ComparedMeasure]
    exploratory: list[ComparedMeasure]
    violations: list[ComparedViolations]
    by_category: list[ComparedCategory]


class ComparisonPage(TypedDict):
    verdict: ComparisonVerdict
    sentence: str
    cautions: list[ComparisonCaution]
    canaries: int
    excluded: list[ExcludedCanaries]
    k: int
    depth: int
    primary: list[ComparedMeasure]
    exploratory: list[ComparedMeasure]
    violations: list[ComparedViolations]
    by_category: list[ComparedCategory]
    a: ComparedRunOutline
    b: ComparedRunOutline
    differences: list[str]
    ordered_by: str
    wins: CanaryWins
    answers: list[ComparedAnswers]
    items: list[ComparedCanary]
    next: str | None


class Diagnosis(TypedDict):
    id: str
    check: str
    key: str
    run_id: str
    at: str
    requested_by: str | None
    cause: Cause
    reason: str
    persistent: bool | None
    rank_before: int | None
    rank_now: int | None
    evidence: DiagnosisEvidence
    reanchors: list[str]


class Embedder(TypedDict):
    retriever: str
    model: str | None
    reference: EmbedderReference | None
    finding: StoredFinding | None
    run: str | None
    at: str | None
    since_run: str | None
    since: str | None


class EmbeddingDocument(TypedDict):
    url: str
    model: str
    dimensions: NotRequired[int | None]
    batch: NotRequired[int]
    headers: NotRequired[dict[str, str]]
    auth: NotRequired[BearerDocument | ApiKeyDocument | BasicDocument | OAuth2Document | SigV4Document | None]
    tls: NotRequired[TlsDocument | None]
    timeout: NotRequired[float | str]
    canaries: NotRequired[list[EmbeddingCanaryDocument]]


class EmbeddingSettings(TypedDict):
    url: str
    model: str
    dimensions: int | None
    batch: int
    headers: dict[str, str | None]
    auth: BearerSettings | ApiKeySettings | BasicSettings | OAuth2Settings | SigV4Settings | None
    tls: TlsSettings | None
    timeout: float
    canaries: list[EmbeddingCanarySettings]


class ExperimentDetail(TypedDict):
    epoch: int
    began_at: str
    ended_at: str | None
    arms: list[Arm]
    pending: int
    pending_until: str | None
    delta: float
    window: float
    max_units: int
    state: ExperimentState
    reason: str
    winner: str | None
    decided_at: str | None
    difference: RateDifference | None
    later: RateDifference | None
    power: str
    slug: str
    outcome: str
    created_at: str
    created_by: str
    mismatch_evidence: float
    looks: list[ExperimentLook]
    epochs: list[Epoch]


class ExplainedTransition(TypedDict):
    at: str
    type: TransitionType
    severity: Severity
    reason: str
    run_id: str | None
    suppressed: str | None
    silence: str | None
    evidence: RuleEvidence
    fleet: Fleet | None


class HeatMap(TypedDict):
    check: str
    measures_version: str | None
    grouped_by: Literal["category", "tag"]
    columns: list[HeatMapColumn]
    marks: list[HeatMapMark]
    groups: list[HeatMapGroup]
    left_out_rows: int
    left_out_canaries: int
    layout: NotRequired[HeatMapLayout]
    is_cut: bool


class IdentityAuthDocument(TypedDict):
    by: str
    of: dict[str, BearerDocument | ApiKeyDocument | BasicDocument | OAuth2Document | SigV4Document]


class IdentityAuthSettings(TypedDict):
    by: str
    of: dict[str, BearerSettings | ApiKeySettings | BasicSettings | OAuth2Settings | SigV4Settings]


class Judge(TypedDict):
    slug: str
    url: str
    model: str
    auth: BearerSettings | ApiKeySettings | BasicSettings | OAuth2Settings | SigV4Settings | None
    tls: TlsSettings | None
    timeout: float
    questions: list[Question]
    price_per_million: float
    budget_per_day: float | None
    managed_by: Literal["file", "api"]
    source: str | None
    hash: str
    disabled_reason: str | None
    created_at: str
    updated_at: str
    secrets_set: list[str]


class JudgeDocument(TypedDict):
    slug: str
    url: str
    model: str
    auth: NotRequired[BearerDocument | ApiKeyDocument | BasicDocument | OAuth2Document | SigV4Document | None]
    tls: NotRequired[TlsDocument | None]
    timeout: NotRequired[float | str]
    questions: NotRequired[list[Question]]
    price_per_million: NotRequired[float]
    budget_per_day: NotRequired[float | None]


class JudgePage(TypedDict):
    items: list[Judge]
    next: str | None


MeasureSeries = TypedDict(
    "MeasureSeries",
    {
        "check": str,
        "measure": str,
        "category": str | None,
        "measures_version": str | None,
        "self_judged": bool | None,
        "pooled_recall": list[PooledNote],
        "from": str,
        "to": str,
        "seconds": int | None,
        "points": list[SeriesPoint],
        "marks": list[IndexMark],
        "edits": list[str],
        "gaps": list[SeriesGap],
        "usual": NormalRange | None,
        "lines": list[BoundLine],
        "alerts": list[SeriesAlert],
    },
)


class MeasureTrust(TypedDict):
    measure: str
    calibrated: bool
    sentences: list[str]
    next: str
    edited_since: bool
    checks: list[CheckTrust]
    calibration: Calibration | None


class ReanchorDecision(TypedDict):
    accepted: list[ReanchorOutcome]
    rejected: list[ReanchorOutcome]
    outdated: list[ReanchorOutcome]
    to_commit: list[ReanchorOutcome]
    unchanged: list[ReanchorOutcome]
    patches: list[FilePatch]


class ReportChange(TypedDict):
    before: RunOutline
    comparable: bool
    differences: list[str]
    changes: dict[Change, int]
    decision: ComparisonDecision
    degraded: list[ReportedCanary]
    healed: list[ReportedCanary]


class Retriever(TypedDict):
    slug: str
    preset: Literal[
        "generic",
        "haystack",
        "langserve",
        "mcp",
        "chroma",
        "pgvector",
        "qdrant",
        "weaviate",
        "weaviate-rest",
        "pinecone",
        "milvus",
        "elasticsearch",
        "elasticsearch-knn",
        "opensearch",
        "opensearch-knn",
        "vespa",
        "typesense",
        "azure-ai-search",
        "azure-ai-search-vector",
        "bedrock-kb",
        "openai-vector-store",
    ]
    options: dict[str, str]
    lookup: LookupSettings | None
    url: str
    request: RequestSettings
    embedding: EmbeddingSettings | None
    response: ResponseSettings
    scorer: ScorerSettings
    answer: AnswerSettings | None
    auth: BearerSettings | ApiKeySettings | BasicSettings | OAuth2Settings | SigV4Settings | IdentityAuthSettings | None
    tls: TlsSettings | None
    concurrency: int
    requests_per_second: float | None
    timeout: float
    retries: int
    breaker: int | None
    max_body_bytes: int
    score_precision: float
    score_tolerance: float
    facts: dict[str, FactSettings] | Literal[False] | None
    exact: ExactSettings | bool | None
    managed_by: Literal["file", "api"]
    source: str | None
    hash: str
    disabled_reason: str | None
    created_at: str
    updated_at: str
    secrets_set: list[str]


class RetrieverDocument(TypedDict):
    slug: str
    preset: NotRequired[
        Literal[
            "generic",
            "haystack",
            "langserve",
            "mcp",
            "chroma",
            "pgvector",
            "qdrant",
            "weaviate",
            "weaviate-rest",
            "pinecone",
            "milvus",
            "elasticsearch",
            "elasticsearch-knn",
            "opensearch",
            "opensearch-knn",
            "vespa",
            "typesense",
            "azure-ai-search",
            "azure-ai-search-vector",
            "bedrock-kb",
            "openai-vector-store",
        ]
    ]
    options: NotRequired[dict[str, str]]
    lookup: NotRequired[LookupDocument | None]
    url: str
    request: NotRequired[RequestDocument]
    embedding: NotRequired[EmbeddingDocument | None]
    response: NotRequired[ResponseDocument]
    scorer: NotRequired[ScorerDocument]
    answer: NotRequired[AnswerDocument | None]
    auth: NotRequired[
        BearerDocument | ApiKeyDocument | BasicDocument | OAuth2Document | SigV4Document | IdentityAuthDocument | None
    ]
    tls: NotRequired[TlsDocument | None]
    concurrency: NotRequired[int]
    requests_per_second: NotRequired[float | None]
    timeout: NotRequired[float | str]
    retries: NotRequired[int]
    breaker: NotRequired[int | None]
    max_body_bytes: NotRequired[int]
    score_precision: NotRequired[float]
    score_tolerance: NotRequired[float]
    facts: NotRequired[dict[str, FactDocument] | Literal[False] | None]
    exact: NotRequired[ExactDocument | bool | None]


class RetrieverPage(TypedDict):
    items: list[Retriever]
    next: str | None


class Run(TypedDict):
    id: str
    check: str
    suite: str
    retriever: str
    trigger: Trigger
    index_version: str | None
    status: RunStatus
    scheduled_for: str | None
    started_at: str | None
    finished_at: str | None
    verdict: Verdict | None
    reasons: list[str]
    health_score: float | None
    coverage: float | None
    degraded_share: float | None
    degraded_queries: list[str]
    canaries: RunCounts
    measures: dict[str, float | None]
    categories: dict[str, Slice]
    tags: dict[str, Slice]
    suite_hash: str | None
    config_hash: str | None
    measures_version: str | None
    probes: dict[str, int]
    probes_by_step: dict[str, dict[str, int]]
    unmeasured: list[Unmeasured] | None
    latency_seconds: Latency
    embedder: StoredFinding | None
    self_judged: bool | None
    judged_before_edit: bool | None
    judged_by: list[str] | None
    pooled_recall: list[PooledNote]
    note: RunNote | None
    progress: RunProgress | None


class RunDiffPage(TypedDict):
    before: RunOutline
    now: RunOutline
    comparable: bool
    differences: list[str]
    changes: dict[Change, int]
    decision: ComparisonDecision
    measures: dict[str, MeasureDifference]
    categories: dict[str, CategoryDifference]
    ordered_by: str
    items: list[CanaryDifference]
    next: str | None


class RunPage(TypedDict):
    items: list[Run]
    next: str | None


class AlertDetail(TypedDict):
    id: str
    check: str
    rule: str
    kind: RuleKind
    scope: str
    severity: Severity
    state: AlertState
    opened_at: str | None
    resolved_at: str | None
    acknowledged_at: str | None
    acknowledged_by: str | None
    reason: str
    evidence: RuleEvidence
    since_run: str | None
    incident_id: str | None
    dedupe_key: str
    transitions: list[ExplainedTransition]
    since: Since | None
    deliveries: list[Delivery]


class CanaryFile(TypedDict):
    suite: NotRequired[str | None]
    canaries: NotRequired[list[CanaryDocument]]
    retrievers: NotRequired[list[RetrieverDocument]]
    checks: NotRequired[list[CheckDocument]]
    hooks: NotRequired[list[HookDocument]]
    silences: NotRequired[list[SilenceDocument]]
    judges: NotRequired[list[JudgeDocument]]


class JudgeReport(TypedDict):
    judge: str
    failing: str | None
    model: str
    calibrated: bool
    measures: list[MeasureTrust]
    today: JudgeDay
    checks: list[str]


class Report(TypedDict):
    run: Run
    worst: list[Result]
    guide: MeasureGuide | None
    intervals: MeanIntervals
    since: ReportChange | None
    pooled_recall: list[PooledRecall]
    composition: Composition | None
    confirmed: list[str]
    corrected: dict[str, CorrectedRate]
    rated: dict[str, str]
    unjudged_answers: str | None
    bad_answers: list[str]
    unwatched: str | None
