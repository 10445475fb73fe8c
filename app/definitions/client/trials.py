"""The fields of a trial that the command line shows; whatever answers at an address need not be Coalmine."""

from typing import NotRequired, TypedDict


class Request(TypedDict):
    """Request that was sent."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None


class Response(TypedDict):
    """Response that was received."""

    status: int | None
    body: str | None
    bytes: int


class Hit(TypedDict):
    """Hit as the mapping read it."""

    rank: int
    id: str
    document: str | None
    text: str | None
    score: float | None
    relevance: float | None
    updated: str | None


class Suggestion(TypedDict):
    """Another mapping."""

    hits: int
    reasons: dict[str, str]
    yaml: str


class Scored(TypedDict):
    """Source of relevance."""

    kind: str
    scale: NotRequired[str | None]


class Trial(TypedDict):
    """A trial; `remarks` came later than the rest."""

    retriever: str
    outcome: str
    detail: str | None
    http_status: int | None
    latency_seconds: float | None
    index_version: str | None
    request: Request | None
    response: Response | None
    hits: list[Hit]
    returned: int | None
    scorer: Scored
    top_score: float | None
    unscored: str | None
    suggestions: list[Suggestion]
    remarks: NotRequired[list[str]]
