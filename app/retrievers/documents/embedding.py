"""Documents of the endpoints beside a retriever: the embedder and the scorer."""

from operator import attrgetter
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, field_validator, model_validator

from app.base.documents.fields import (
    CanaryKey,
    Document,
    Flag,
    Name,
    Number,
    Place,
    Seconds,
    Text,
    Url,
    Whole,
    Widget,
    each_once,
    field_error,
    field_errors,
)
from app.base.documents.http_fields import (
    BEARER_STYLE,
    AuthDocument,
    Headers,
    TlsDocument,
    apply_style,
    auth_header,
    endpoint_value,
    has_header,
)
from app.retrievers.domain.retrievers import Embedder, EmbeddingCanary, Scale, Scorer, ScorerKind

TIMEOUT_SECONDS = 10.0


def _bearer(value: Any) -> Any:
    return apply_style(value, BEARER_STYLE)


EndpointAuth = Annotated[AuthDocument, BeforeValidator(_bearer)]
"""Without a kind it is a bearer token, as with all servers of these two kinds."""


def refuse_duplicate_header(headers: dict[str, str], auth: Any) -> None:
    """Raise for a header that the authentication sets too."""
    name = auth_header(auth)
    if name is not None and has_header(headers, name):
        raise field_errors([(("auth",), f"sets the header {name}, which headers give too; say it once")])


class EmbeddingCanaryDocument(Document):
    """Two texts whose vectors are known to be close, or known not to be."""

    key: CanaryKey
    texts: Annotated[
        tuple[Annotated[Text, StringConstraints(max_length=10_000)], ...], Field(min_length=2, max_length=2)
    ]
    similar: Flag

    def to_domain(self) -> EmbeddingCanary:
        """Return the value the domain works with."""
        return EmbeddingCanary(key=self.key, texts=(self.texts[0], self.texts[1]), similar=self.similar)


def _embeddings_url(url: str) -> str:
    """Complete the address of an OpenAI-compatible server: `.../v1` and `.../v1/embeddings` mean the same."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if path.endswith("/embeddings"):
        return url
    return parts._replace(path=f"{path or '/v1'}/embeddings").geturl()


class EmbeddingDocument(Document):
    """An OpenAI-compatible server that turns texts into vectors, and the pairs of texts it is watched by."""

    url: Annotated[
        Url,
        AfterValidator(_embeddings_url),
        Field(title="Embeddings URL"),
        Widget(placeholder="http://127.0.0.1:11434/v1"),
    ]
    model: Annotated[
        Name,
        Field(title="Model", description="The one that made the vectors of the index."),
        Widget(placeholder="all-minilm"),
    ]
    dimensions: Annotated[Whole, Field(ge=1, le=65_536)] | None = None
    batch: Annotated[Whole, Field(ge=1, le=2_048)] = 64
    headers: Headers = Field(default={}, repr=False)
    auth: EndpointAuth | None = None
    tls: TlsDocument | None = None
    timeout: Seconds = TIMEOUT_SECONDS
    canaries: Annotated[
        tuple[EmbeddingCanaryDocument, ...],
        Field(max_length=100),
        each_once("the key '{}' is used twice", of=attrgetter("key"), below=("key",)),
    ] = ()

    @model_validator(mode="after")
    def _check_headers(self) -> Self:
        refuse_duplicate_header(self.headers, self.auth)
        return self

    def to_domain(self) -> Embedder:
        """Return the value the domain works with."""
        return Embedder(
            endpoint=endpoint_value(self.url, headers=self.headers, auth=self.auth, tls=self.tls, timeout=self.timeout),
            model=self.model,
            dimensions=self.dimensions,
            batch=self.batch,
            canaries=tuple(canary.to_domain() for canary in self.canaries),
        )


_ENDPOINT_FIELDS = ("url", "model", "headers", "auth", "tls", "timeout")
_RERANK_SCALES = (Scale.SIMILARITY, Scale.LOGIT)


class ScorerDocument(Document):
    """How relevant the first hit is. A kind that is not said follows from the scale, see `RetrieverDocument`.

    `url` and what follows it belong to the kinds embedding (default: the retriever's own embedding) and rerank.
    """

    kind: ScorerKind | None = None
    scale: Scale | None = None
    anchor: Annotated[
        Annotated[Number, Field(gt=0)] | None,
        Field(title="Score that is half relevant", description="Of unbounded scores only."),
        Widget(length=20),
    ] = None
    url: Url | None = None
    model: Name | None = None
    headers: Headers = Field(default={}, repr=False)
    auth: EndpointAuth | None = None
    tls: TlsDocument | None = None
    timeout: Seconds | None = None

    @field_validator("scale")
    @classmethod
    def _check_reranker_scale(cls, scale: Scale | None, info: Any) -> Scale | None:
        kind = info.data.get("kind")
        if kind is ScorerKind.EMBEDDING and scale is not None:
            raise field_error("says nothing to a scorer of kind embedding; its cosines need none")
        if kind is ScorerKind.RERANK and scale not in (None, *_RERANK_SCALES):
            raise field_error(f"of a reranker must be one of {', '.join(_RERANK_SCALES)}")
        return scale

    @model_validator(mode="after")
    def _check_scale(self) -> Self:
        if self.kind is ScorerKind.SCORE and self.scale is None:
            raise field_error(f"a scorer of kind score must declare its scale: {', '.join(Scale)}")
        if self.scale is Scale.UNBOUNDED and self.kind is None:
            raise field_error("an unbounded scale needs the kind said: score (with an anchor) or judged")
        if self.scale is Scale.UNBOUNDED and self.anchor is None:
            raise field_error("an unbounded scale needs an anchor, the score that counts as half relevant")
        if self.scale is not Scale.UNBOUNDED and self.anchor is not None:
            raise field_errors([(("anchor",), "belongs to the scale unbounded only")])
        self._check_endpoint()
        return self

    def _check_endpoint(self) -> None:
        fields = [name for name in _ENDPOINT_FIELDS if getattr(self, name) not in (None, {})]
        problems: list[tuple[Place, str]] = []
        if self.kind not in {ScorerKind.EMBEDDING, ScorerKind.RERANK}:
            problems += [((name,), "belongs to the scorer kinds embedding and rerank") for name in fields]
        elif self.kind is ScorerKind.RERANK and self.url is None:
            problems.append((("url",), "is missing; a scorer of kind rerank asks a /rerank there"))
        elif self.url is None:
            message = "needs a url beside it; without one the embedding of the retriever is used as it is"
            problems += [((name,), message) for name in fields]
        elif self.kind is ScorerKind.EMBEDDING and self.model is None:
            problems.append((("model",), "is missing; an embedder of the scorer's own needs one"))
        if problems:
            raise field_errors(problems)
        refuse_duplicate_header(self.headers, self.auth)

    def to_domain(self, embedding: EmbeddingDocument | None) -> Scorer:
        """Return the value the domain works with; without a url, embedding takes the retriever's embedder."""
        endpoint = None
        if self.url is not None:
            is_embedder = self.kind is ScorerKind.EMBEDDING
            endpoint = endpoint_value(
                _embeddings_url(self.url) if is_embedder else self.url,
                headers=self.headers,
                auth=self.auth,
                tls=self.tls,
                timeout=TIMEOUT_SECONDS if self.timeout is None else self.timeout,
            )
        kind = self.kind or ScorerKind.JUDGED
        is_reranker = kind is ScorerKind.RERANK
        embedder = None
        if kind is ScorerKind.EMBEDDING and endpoint is not None and self.model is not None:
            embedder = Embedder(endpoint=endpoint, model=self.model)
        elif kind is ScorerKind.EMBEDDING and embedding is not None:
            embedder = embedding.to_domain()
        return Scorer(
            kind=kind,
            scale=self.scale or (Scale.SIMILARITY if is_reranker else None),
            anchor=self.anchor,
            embedder=embedder,
            reranker=endpoint if is_reranker else None,
            model=self.model if is_reranker else None,
        )
