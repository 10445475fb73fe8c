"""What is shown of retrievers that were tried, and of their embedders."""

from dataclasses import dataclass

from typing_extensions import TypedDict

from app.domain.model import EmbedderChange, Outcome, Step
from app.domain.probing.retrievers import Scale, ScorerKind
from app.domain.views import TimeText


class TrialRequest(TypedDict):
    """What was sent, secrets masked."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None
    cut: bool
    """Only the beginning of the body is shown."""


class TrialResponse(TypedDict):
    """What came back, secrets masked."""

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
    """How relevance is told."""

    kind: ScorerKind
    scale: Scale | None


class MappingSuggestion(TypedDict):
    """A mapping that would find hits in the answer."""

    response: dict[str, str | None]
    scorer: dict[str, str] | None
    hits: int
    reasons: dict[str, str]
    yaml: str


class TrialView(TypedDict):
    """One query put to a retriever, and all that is between the request and the hits."""

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
    """Why relevance is not known."""
    remarks: list[str]
    suggestions: list[MappingSuggestion]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderReference:
    """What an embedder answered known texts once."""

    run: str | None
    at: TimeText | None
    dimensions: int
    texts: int


class StoredPair(TypedDict):
    """Two known texts, and how close they are now and were by the reference."""

    key: str
    similar: bool
    cosine: float
    reference: float
    agreement: float


class StoredFinding(TypedDict):
    """What a run found of an embedder."""

    outcome: Outcome
    http_status: int | None
    kind: EmbedderChange | None
    reason: str
    dimensions: int | None
    pairs: list[StoredPair]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderView:
    """How the embedder of a retriever answers known texts; nulls where no run has asked one."""

    retriever: str
    model: str | None
    reference: EmbedderReference | None
    finding: StoredFinding | None
    run: str | None
    at: TimeText | None
    since_run: str | None
    since: TimeText | None
