"""Retrievers as users write them: how to ask an endpoint, how to read its answer, how gently.

Sending the request and evaluating the paths is the retriever adapter's work; here they are only checked.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import jmespath
from jmespath.exceptions import JMESPathError
from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from app.domain.retrievers import ResponseMapping, Retriever, Scale, Scorer, ScorerKind
from app.formats.fields import (
    Document,
    FreeJson,
    Number,
    Place,
    Seconds,
    Slug,
    Text,
    Url,
    Whole,
    complaint,
    complaints,
    refuse_unbuilt,
    shortened,
    strings_in,
    suggestion,
)

PRESETS = ("generic",)
PLANNED_PRESETS = (
    "chroma",
    "pgvector",
    "haystack",
    "langserve",
    "mcp",
    "elasticsearch",
    "opensearch",
    "qdrant",
    "weaviate",
    "pinecone",
    "milvus",
    "azure-ai-search",
    "bedrock-kb",
    "openai-vector-store",
)
SCORERS = ("score", "judged")
PLANNED_SCORERS = ("embedding", "rerank")

PLACEHOLDERS = ("query", "k")

_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")  # a token of RFC 9110, section 5.6.2
_HEADER_VALUE = re.compile(r"[\t -~\x80-\xff]*")  # field-content of RFC 9110: no line breaks, so nothing is injected
_OWN_HEADERS = {"host", "content-length", "transfer-encoding", "connection"}


def _headers(headers: dict[str, str]) -> dict[str, str]:
    wrong: list[tuple[Place, str]] = []
    seen: set[str] = set()
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            wrong.append(((name,), "is not the name of a header"))
        elif name.lower() in _OWN_HEADERS:
            wrong.append(((name,), "is set by Coalmine and cannot be changed"))
        elif name.lower() in seen:
            wrong.append(((name,), "is given twice; upper and lower case are the same header"))
        if not _HEADER_VALUE.fullmatch(value):
            wrong.append(((name,), "must be one line of Latin-1 characters"))
        seen.add(name.lower())
    if wrong:
        raise complaints(wrong)
    return headers


def _upper_case(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _template(value: Any) -> Any:
    wrong = []
    for place, text in strings_in(value):
        names = _PLACEHOLDER.findall(text)
        unknown = next((name for name in names if name not in PLACEHOLDERS), None)
        if unknown is not None:
            near = suggestion(unknown, PLACEHOLDERS) or "; known are: query, k"
            wrong.append((place, f"unknown placeholder '{{{{ {shortened(unknown)} }}}}'{near}"))
        elif "{{" in _PLACEHOLDER.sub("", text):
            wrong.append((place, "has a '{{' that begins no placeholder; write {{ query }} or {{ k }}"))
    if wrong:
        raise complaints(wrong)
    return value


class RequestDocument(Document):
    """What is sent. Values of `json` and `query` may hold `{{ query }}` and `{{ k }}`.

    A GET sends nothing but its query; a POST that says nothing else sends `{"query": ..., "top_k": ...}`.
    """

    method: Annotated[Literal["GET", "POST"], BeforeValidator(_upper_case)] = "POST"
    headers: Annotated[
        dict[str, Annotated[str, StringConstraints(max_length=16_384)]],
        AfterValidator(_headers),
        Field(max_length=50),
    ] = Field(default={}, repr=False)
    """Write-only: their values are secrets."""
    body: Annotated[FreeJson, AfterValidator(_template)] = Field(default=None, alias="json")
    query: Annotated[dict[str, FreeJson], AfterValidator(_template), Field(max_length=50)] = Field(
        default={}, validation_alias=AliasChoices("query", "params")
    )

    @field_validator("query")
    @classmethod
    def _flat(cls, query: dict[str, Any]) -> dict[str, Any]:
        nested = [((name,), "must be a text, a number or a list of them") for name in query if not _flat(query[name])]
        if nested:
            raise complaints(nested)
        return query

    @model_validator(mode="before")
    @classmethod
    def _default_body(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        method = value.get("method", "POST")
        asks = any(value.get(name) not in (None, {}) for name in ("json", "query", "params"))
        if asks or not isinstance(method, str) or method.upper() != "POST":
            return value
        return {**value, "json": {"query": "{{ query }}", "top_k": "{{ k }}"}}

    @model_validator(mode="after")
    def _asks(self) -> Self:
        if self.method == "GET" and self.body is not None:
            raise complaints([(("json",), "cannot be sent with GET; use query, or method: POST")])
        if not any("query" in _PLACEHOLDER.findall(text) for _, text in strings_in([self.body, self.query])):
            raise complaint("never uses {{ query }}, so every canary would ask the same")
        return self


def _flat(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, str | int | float) for item in items)


def _path(text: str) -> str:
    try:
        jmespath.compile(text)
    except JMESPathError:
        raise complaint(f"'{shortened(text)}' is not a JMESPath expression, see https://jmespath.org") from None
    return text


def _body_path(text: str) -> str:
    if text.startswith("header:"):
        raise complaint("must be a path in the body; only index_version can come from a header")
    return _path(text)


def _version_path(text: str) -> str:
    if not text.startswith("header:"):
        return _path(text)
    if not _HEADER_NAME.fullmatch(text.removeprefix("header:")):
        raise complaint("must name a header, for example header:x-index-version")
    return text


Path = Annotated[Text, StringConstraints(max_length=1024), AfterValidator(_body_path)]


class ResponseDocument(Document):
    """Where hits and their fields stand in an answer, as JMESPath; field paths start at the hit."""

    hits: Path
    id: Path | None = None
    score: Path | None = None
    text: Path | None = None
    document: Path | None = None
    index_version: Annotated[Text, StringConstraints(max_length=1024), AfterValidator(_version_path)] | None = None

    @model_validator(mode="after")
    def _tells_hits_apart(self) -> Self:
        if self.id is None and self.text is None:
            raise complaint("must map id or text, or hits cannot be told apart")
        return self


def _scorer_kind(value: Any) -> Any:
    refuse_unbuilt("scorer kind", value, SCORERS, PLANNED_SCORERS)
    return value


class ScorerDocument(Document):
    """How relevant the first hit is. A kind that is not said follows from the scale, see `RetrieverDocument`."""

    kind: Annotated[ScorerKind, BeforeValidator(_scorer_kind)] | None = None
    scale: Scale | None = None
    anchor: Annotated[Number, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.kind is ScorerKind.SCORE and self.scale is None:
            raise complaint(f"a scorer of kind score must declare its scale: {', '.join(Scale)}")
        if self.scale is Scale.UNBOUNDED and self.kind is None:
            raise complaint("an unbounded scale needs the kind said: score (with an anchor) or judged")
        if self.scale is Scale.UNBOUNDED and self.anchor is None:
            raise complaint("an unbounded scale needs an anchor, the score that counts as half relevant")
        if self.scale is not Scale.UNBOUNDED and self.anchor is not None:
            raise complaints([(("anchor",), "belongs to the scale unbounded only")])
        return self


def _preset(value: Any) -> Any:
    refuse_unbuilt("preset", value, PRESETS, PLANNED_PRESETS)
    return value


class RetrieverDocument(Document):
    """The endpoint a check watches.

    The scorer is filled in when it is not said: `score` where a bounded scale is declared and the score is mapped,
    else `judged`.
    """

    slug: Slug
    preset: Annotated[str, BeforeValidator(_preset), WithJsonSchema({"enum": list(PRESETS)})] = "generic"
    url: Url
    request: Annotated[RequestDocument, Field(validate_default=True)] = Field(default_factory=RequestDocument)
    response: ResponseDocument
    scorer: Annotated[ScorerDocument, Field(validate_default=True)] = ScorerDocument()
    concurrency: Annotated[Whole, Field(ge=1, le=256)] = 8
    requests_per_second: Annotated[Number, Field(gt=0, le=100_000)] | None = None
    timeout: Seconds = 10.0
    retries: Annotated[Whole, Field(ge=0, le=3)] = 1
    max_body_bytes: Annotated[Whole, Field(ge=1_000, le=100_000_000)] = 5_000_000
    score_precision: Annotated[Number, Field(ge=0, le=1)] = 1e-6

    @field_validator("scorer")
    @classmethod
    def _fill_kind(cls, scorer: ScorerDocument, info: ValidationInfo) -> ScorerDocument:
        response = info.data.get("response")
        scored = response is None or response.score is not None
        if scorer.kind is ScorerKind.SCORE and not scored:
            raise complaint("a scorer of kind score needs response: score to be mapped")
        if scorer.kind is not None:
            return scorer
        kind = ScorerKind.SCORE if scorer.scale is not None and scored else ScorerKind.JUDGED
        return scorer.model_copy(update={"kind": kind})

    def to_domain(self) -> Retriever:
        """Return the value the domain works with."""
        return Retriever(
            slug=self.slug,
            url=self.url,
            method=self.request.method,
            headers=dict(self.request.headers),
            query_parameters=dict(self.request.query),
            json=self.request.body,
            response=ResponseMapping(**self.response.model_dump()),
            scorer=Scorer(
                kind=self.scorer.kind or ScorerKind.JUDGED, scale=self.scorer.scale, anchor=self.scorer.anchor
            ),
            concurrency=self.concurrency,
            requests_per_second=self.requests_per_second,
            timeout_seconds=self.timeout,
            retries=self.retries,
            max_body_bytes=self.max_body_bytes,
            score_precision=self.score_precision,
        )
