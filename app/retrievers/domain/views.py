"""Views of trials of a retriever, of suggested mappings, and of embedders."""

from dataclasses import dataclass
from typing import NotRequired

from typing_extensions import TypedDict

from app.base.values import EmbedderChange, Level, Outcome, Step, TimeText
from app.retrievers.domain.retrievers import Scale, ScorerKind


class FailureView(TypedDict):
    """The failure that most failed probes of a run share, and how many failed, were not sent, and were in all."""

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


class UnmeasuredView(TypedDict):
    """Canaries of a run that were not measured for the same reason."""

    step: Step
    outcome: Outcome
    http_status: int | None
    error: str
    """Who failed and how, with the server's own words, secrets masked."""
    count: int
    """Number of canaries."""
    canaries: list[str]
    """Keys of the first twenty."""


class TrialRequest(TypedDict):
    """Request that was sent, secrets masked."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None
    cut: bool
    """Only the beginning of the body is shown."""


class TrialResponse(TypedDict):
    """Response that was received, secrets masked."""

    status: int | None
    headers: dict[str, str]
    body: str
    bytes: int
    cut: bool


class TrialHit(TypedDict):
    """A hit as the mapping read it."""

    rank: int
    id: str
    document: str | None
    text: str | None
    score: float | None
    relevance: float | None
    updated: TimeText | None


class TrialScorer(TypedDict):
    """Source of relevance."""

    kind: ScorerKind
    scale: Scale | None


class SuggestedScorer(TypedDict):
    """How relevance would be told, as documents write it."""

    scale: Scale


class MappingSuggestion(TypedDict):
    """A mapping that would find hits in the answer."""

    response: dict[str, str | None]
    scorer: SuggestedScorer | None
    hits: int
    reasons: dict[str, str]
    yaml: str


class TrialView(TypedDict):
    """One query sent to a retriever, and everything between the request and the hits."""

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


class ExpectedMatch(TypedDict):
    """A judgment, with the rank and the level of its best hit."""

    id: NotRequired[str]
    document: NotRequired[str]
    text: NotRequired[str]
    grade: int
    rank: int | None
    level: Level | None


class CanaryMatches(TypedDict):
    """Expected chunks of a canary among the hits of a trial."""

    key: str
    expected: list[ExpectedMatch]
    missing: int
    matched_ranks: list[int]
    """Ranks of hits with a grade of at least 1."""


class MappingPreview(TrialView):
    """A trial of a response mapping."""

    refused: str | None
    """Why a run would refuse the response."""
    warnings: list[str]
    matches: CanaryMatches | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderReference:
    """Vectors of known texts that later answers of an embedder are compared with."""

    run: str | None
    at: TimeText | None
    dimensions: int
    texts: int


class StoredPair(TypedDict):
    """Cosines of two known texts, now and by the reference."""

    key: str
    similar: bool
    cosine: float
    reference: float
    agreement: float


class StoredFinding(TypedDict):
    """Finding of a run about an embedder."""

    outcome: Outcome
    http_status: int | None
    kind: EmbedderChange | None
    reason: str
    dimensions: int | None
    pairs: list[StoredPair]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderView:
    """Last finding about the embedder of a retriever; nulls where no run has asked one."""

    retriever: str
    model: str | None
    reference: EmbedderReference | None
    finding: StoredFinding | None
    run: str | None
    at: TimeText | None
    since_run: str | None
    since: TimeText | None
