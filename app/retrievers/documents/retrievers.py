"""The document of a retriever: the whole, merged with its preset, and the checks between its parts.

Its embedder, its scorer and the endpoint that answers are documents here; request, lookup and response mapping are in
`requests`. A response mapping as a document, and its YAML, stand at the end.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter
from typing import Annotated, Any, Self
from urllib.parse import parse_qsl, urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from app.base.documents.fields import (
    CanaryKey,
    Document,
    Flag,
    FreeJson,
    Name,
    Number,
    Place,
    Seconds,
    Slug,
    Text,
    Url,
    Whole,
    Widget,
    check_url,
    did_you_mean,
    each_once,
    field_error,
    field_errors,
    one_line,
    parse_document,
)
from app.base.documents.http_fields import (
    BEARER_STYLE,
    AuthDocument,
    BasicDocument,
    Headers,
    IdentityAuthDocument,
    RetrieverAuthDocument,
    TlsDocument,
    apply_style,
    auth_headers,
    endpoint_value,
    has_header,
    origin_of,
    tls_value,
)
from app.base.documents.parsing import escape_dollars
from app.base.limits import LARGEST_ANSWER_BYTES
from app.base.texts import named_text
from app.base.values import replace
from app.retrievers.documents.index_facts import Exact, Facts, preset_exact, preset_facts
from app.retrievers.documents.requests import (
    COMMON_NAMES,
    QUERY_NAMES,
    VECTOR,
    LookupDocument,
    Path,
    RequestDocument,
    ResponseDocument,
    UrlTemplate,
    apply_preset,
    check_url_template,
    fill_sql_names,
    name_problem,
    parameters_in,
    placeholders_in,
    sql_problems,
    template_problems,
)
from app.retrievers.domain.retrievers import (
    HISTORY,
    WHOLE_FIELDS,
    AnswerSource,
    Dialect,
    Embedder,
    EmbeddingCanary,
    ExactSearch,
    FactRequest,
    ResponseMapping,
    Retriever,
    Scale,
    Scorer,
    ScorerKind,
)
from app.retrievers.presets import PRESETS, Preset

EMBEDDER_TIMEOUT_SECONDS = 10.0


def _bearer(value: Any) -> Any:
    return apply_style(value, BEARER_STYLE)


EndpointAuth = Annotated[AuthDocument, BeforeValidator(_bearer)]
"""Without a kind it is a bearer token, as with all servers of these two kinds."""


def refuse_duplicate_header(headers: dict[str, str], auth: Any) -> None:
    """Raise for a header that the authentication sets too."""
    name = next((one for one in auth_headers(auth) if has_header(headers, one)), None)
    if name is not None:
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
    timeout: Seconds = EMBEDDER_TIMEOUT_SECONDS
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
                timeout=EMBEDDER_TIMEOUT_SECONDS if self.timeout is None else self.timeout,
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


ANSWER_NAMES = ("query", "contexts")
TIMEOUT_SECONDS = 60.0


def _with_query(request: Any) -> Any:
    problems = list(template_problems(request, ANSWER_NAMES))
    if not problems and "query" not in placeholders_in(request):
        problems = [((), "must hold {{ query }}, or all canaries would get the same answer")]
    if problems:
        raise field_errors(problems)
    return request


class AnswerDocument(Document):
    """An endpoint that answers a query from the texts of its hits; asked after a run, for canaries that are judged.

    `request` is the JSON that is posted: `{{ query }}` and, for the texts of the top k hits in their order, a list,
    `{{ contexts }}`. `path` is the JMESPath of the answer's text in the response.
    """

    url: Url
    request: Annotated[FreeJson, AfterValidator(_with_query)]
    path: Path
    headers: Headers = Field(default={}, repr=False)
    auth: AuthDocument | None = None
    tls: TlsDocument | None = None
    timeout: Seconds = TIMEOUT_SECONDS

    @model_validator(mode="after")
    def _check_headers(self) -> Self:
        refuse_duplicate_header(self.headers, self.auth)
        return self

    def to_domain(self) -> AnswerSource:
        """Return the value the domain works with."""
        return AnswerSource(
            endpoint=endpoint_value(self.url, headers=self.headers, auth=self.auth, tls=self.tls, timeout=self.timeout),
            json=self.request,
            path=self.path,
        )


def check_source(answer: AnswerDocument | None, response: ResponseDocument | None) -> AnswerDocument | None:
    """Return the endpoint; raise where a response of the retriever makes it useless. None = there is none."""
    if answer is None or response is None:
        return answer
    if response.answer is not None:
        raise field_error("is not needed: responses have an answer of their own, response: answer; keep one")
    if response.text is None:
        raise field_error("is made of the texts of hits; map them under response: text")
    return answer


GENERIC = "generic"
_SSL_MODES = {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}


def _check_preset(value: Any) -> Any:
    if isinstance(value, str) and value not in PRESETS:
        near = did_you_mean(value, PRESETS) or f"; there are: {', '.join(PRESETS)}"
        raise field_error(f"unknown preset '{one_line(value)}'{near}")
    return value


def _check_option_names(options: dict[str, str]) -> dict[str, str]:
    problems = [((name,), problem) for name in options if (problem := name_problem(name)) is not None]
    if problems:
        raise field_errors(problems)
    return options


Vars = Annotated[
    dict[str, Annotated[Text, StringConstraints(max_length=500)]],
    AfterValidator(_check_option_names),
    Field(max_length=20),
]
"""Values for options of a retriever, by name."""


class RetrieverDocument(Document):
    """The endpoint a check watches.

    What the preset says is filled in where nothing else is said. So is the kind of the scorer: `score` where a bounded
    scale is declared, else `judged`.
    """

    slug: Annotated[
        Slug,
        Field(title="Name", description="Lower-case letters, digits and hyphens, for example docs-search."),
        Widget(length=64),
    ]
    preset: Annotated[
        str, BeforeValidator(_check_preset), WithJsonSchema({"type": "string", "enum": list(PRESETS)})
    ] = GENERIC
    options: Annotated[dict[str, Name], AfterValidator(_check_option_names), Field(max_length=50)] = Field(default={})
    """Names of one's own for the templates, and those a preset asks for."""
    lookup: LookupDocument | None = None
    url: Annotated[UrlTemplate, Field(title="URL"), Widget(mono=True)]
    request: RequestDocument = Field(default_factory=RequestDocument)
    embedding: Annotated[EmbeddingDocument | None, Field(validate_default=True)] = None
    response: ResponseDocument = Field(default_factory=lambda: ResponseDocument(**PRESETS[GENERIC].response))
    scorer: Annotated[ScorerDocument, Field(validate_default=True)] = ScorerDocument()
    answer: Annotated[AnswerDocument | None, Field(validate_default=True)] = None
    """Generates an answer from the hits; only where responses have none of their own."""
    auth: RetrieverAuthDocument | None = None
    tls: TlsDocument | None = None
    concurrency: Annotated[
        Whole,
        Field(
            ge=1,
            le=256,
            title="Concurrency",
            description="Requests at once, over all checks of this retriever, per process.",
        ),
        Widget(placeholder="8", length=4),
    ] = 8
    requests_per_second: Annotated[
        Annotated[Number, Field(gt=0, le=100_000)] | None,
        Field(title="Requests per second", description="Over all checks of this retriever, per process."),
        Widget(placeholder="no limit", length=12),
    ] = None
    timeout: Annotated[Seconds, Field(title="Timeout"), Widget(placeholder="10s", length=12)] = 10.0
    retries: Annotated[Whole, Field(ge=0, le=3)] = 1
    breaker: Annotated[Whole, Field(ge=1, le=1_000)] | None = 10
    """After so many failed probes in a row a run ends early; null = never."""
    max_body_bytes: Annotated[Whole, Field(ge=1_000, le=100_000_000)] = LARGEST_ANSWER_BYTES
    score_precision: Annotated[Number, Field(ge=0, le=1)] = 1e-6
    """Scores are rounded to its digits."""
    score_tolerance: Annotated[
        Number,
        Field(
            ge=0,
            le=0.1,
            title="Ignore score changes smaller than",
            description="A share of the answer's largest score; 0 = every change counts.",
        ),
        Widget(placeholder="0.002", length=12),
    ] = 0.002
    facts: Facts = None
    """Numbers of the index, asked once a run; null = those of the preset, {} or false = none."""
    exact: Exact = None
    """How an exact search is asked for, which the index is compared with; true = as the preset knows."""

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        name = value.get("preset", GENERIC)
        known = isinstance(name, str) and name in PRESETS
        return apply_preset(value, PRESETS[name if known else GENERIC])

    @field_validator("options", mode="before")
    @classmethod
    def _check_options(cls, options: Any, info: ValidationInfo) -> Any:
        given, preset = options if isinstance(options, Mapping) else {}, _preset_of(info)
        problems = [
            ((str(name),), _missing_option(str(name), preset)) for name, value in given.items() if value is None
        ]
        if problems:
            raise field_errors(problems)
        return options

    @field_validator("lookup")
    @classmethod
    def _check_lookup(cls, lookup: LookupDocument | None, info: ValidationInfo) -> LookupDocument | None:
        if lookup is None or "options" not in info.data:
            return lookup
        if lookup.name in info.data["options"]:
            raise field_errors([(("name",), f"'{lookup.name}' is an option already")])
        problems = list(template_problems(lookup.url, info.data["options"], place=("url",)))
        if problems:
            raise field_errors(problems)
        return lookup

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str, info: ValidationInfo) -> str:
        preset, names = _preset_of(info), _placeholder_names(info)
        if preset is not None and preset.dialect is Dialect.SQL:
            return _database_url(url)
        check_url_template(url)
        problems = list(template_problems(url, names)) if names is not None else []
        if problems:
            raise field_errors(problems)
        return url

    @field_validator("request")
    @classmethod
    def _check_request(cls, request: RequestDocument, info: ValidationInfo) -> RequestDocument:
        preset, names = _preset_of(info), _placeholder_names(info)
        if preset is None or names is None:
            return request
        problems = list(_dialect_problems(request, preset.dialect))
        if preset.dialect is Dialect.SQL:
            problems += [(("sql",), message) for message in sql_problems(request.sql or "", info.data["options"])]
            placeholders = parameters_in(request.sql or "")
        else:
            known = (*names, VECTOR)
            in_body = (*known, HISTORY)
            problems += template_problems(request.body, in_body, place=("json",), in_names=info.data["options"])
            problems += template_problems(request.query, known, place=("query",))
            problems += template_problems(request.headers, info.data["options"], place=("headers",))
            placeholders = placeholders_in([request.body, request.query, info.data.get("url", "{{ query }}")])
        if problems:
            raise field_errors(problems)
        if QUERY_NAMES.isdisjoint(placeholders):
            raise field_error("never uses {{ query }}, so every canary would ask the same")
        return request

    @field_validator("embedding")
    @classmethod
    def _check_embedding(cls, embedding: EmbeddingDocument | None, info: ValidationInfo) -> EmbeddingDocument | None:
        preset, request = _preset_of(info), info.data.get("request")
        if embedding is not None or preset is None or request is None:
            return embedding
        if VECTOR in placeholders_in([request.body, request.query]) | parameters_in(request.sql or ""):
            who = preset.name if preset.needs_vector else "the request"
            message = "set an embeddings endpoint (OpenAI-compatible): url and model"
            raise field_error(f"is missing; {who} needs query vectors: {message}")
        return embedding

    @field_validator("scorer")
    @classmethod
    def _fill_scorer_kind(cls, scorer: ScorerDocument, info: ValidationInfo) -> ScorerDocument:
        response = info.data.get("response")
        scored = response is None or response.score is not None
        if not scored and (scorer.kind is ScorerKind.SCORE or (scorer.kind is None and scorer.scale is not None)):
            what = "of kind score" if scorer.kind is not None else "with a scale"
            raise field_error(
                f"a scorer {what} needs response: score to be mapped; without scores leave the scorer out"
            )
        if scorer.kind in {ScorerKind.EMBEDDING, ScorerKind.RERANK} and response is not None and response.text is None:
            raise field_error(f"a scorer of kind {scorer.kind} reads hits; map their text under response: text")
        if scorer.kind is ScorerKind.EMBEDDING and scorer.url is None and info.data.get("embedding", "") is None:
            raise field_error("a scorer of kind embedding needs an embedder: say embedding: {url, model}")
        if scorer.kind is not None:
            return scorer
        kind = ScorerKind.SCORE if scorer.scale is not None else ScorerKind.JUDGED
        return scorer.model_copy(update={"kind": kind})

    @field_validator("answer")
    @classmethod
    def _check_answer(cls, answer: AnswerDocument | None, info: ValidationInfo) -> AnswerDocument | None:
        return check_source(answer, info.data.get("response"))

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        problems = [*self._secret_problems(), *self._identity_problems(), *self._index_problems()]
        problems += self._unused_option_problems()
        if problems:
            raise field_errors(problems)
        refuse_duplicate_header(self.request.headers, self.auth)
        return self

    def _secret_problems(self) -> Iterator[tuple[Place, str]]:
        """Yield problems that would send secrets to a wrong place, or in a wrong way."""
        if self.dialect is Dialect.SQL and self.auth is None:
            yield ("auth",), "is missing: a database needs {user: ..., password: ...} of a role that may only read"
        elif self.dialect is Dialect.SQL:
            credentials: dict[Place, Any] = {("auth",): self.auth}
            if isinstance(self.auth, IdentityAuthDocument):
                credentials = {("auth", "of", value): one for value, one in self.auth.of.items()}
            for place, one in credentials.items():
                if not isinstance(one, BasicDocument):
                    yield (*place, "kind"), "of a database must be basic: its user and password"
        if self.lookup is not None and origin_of(self.lookup.url) != origin_of(self.url):
            # It is asked with the secrets of the retriever, which go nowhere else.
            yield ("lookup", "url"), "must be at the host of the retriever's url, or a path that begins with /"

    def _identity_problems(self) -> Iterator[tuple[Place, str]]:
        """Yield why nothing could say as whom it is asked, where each identity has its own credentials."""
        if isinstance(self.auth, IdentityAuthDocument) and self.auth.by not in self.options:
            name = self.auth.by
            near = did_you_mean(name, self.options) or f"; write options: {{{name}: <default>}}"
            yield ("auth", "by"), f"'{one_line(name)}' is no option of the retriever{near}"

    def _index_problems(self) -> Iterator[tuple[Place, str]]:
        """Yield what is wrong with the requests for facts of the index, and with that of an exact search."""
        lookup = self.lookup.name if self.lookup is not None else None
        for name, fact in (self.facts or {}).items():
            for place, message in fact.problems(self.url, self.dialect, self.options, lookup):
                yield ("facts", name, *place), message
        if self.exact is None:
            return
        known = (*COMMON_NAMES, *self.options, *([lookup] if lookup is not None else []))
        for place, message in self.exact.problems(self.url, self.dialect, known, self.options):
            yield ("exact", *place), message
        if VECTOR in self.exact.names and self.embedding is None:
            yield ("exact",), "needs query vectors: set an embedding of the retriever"
        if self._exact() is None:
            parts = "sql or settings" if self.dialect is Dialect.SQL else "json or url"
            yield ("exact",), f"is not known of this request; say under {parts} what is different in an exact search"

    def _facts(self) -> tuple[FactRequest, ...]:
        """Return its facts; those of its preset only where its path is that of the preset."""
        if self.facts is not None:
            return tuple(one.to_domain(name, self.url, self.options) for name, one in self.facts.items())
        preset = PRESETS[self.preset]
        if self.dialect is not Dialect.SQL and urlsplit(self.url).path != preset.path:
            return ()
        names = {*self.options, *([self.lookup.name] if self.lookup is not None else [])}
        return tuple(preset_facts(preset, url=self.url, names=names, options=self.options))

    def _exact(self) -> ExactSearch | None:
        if self.exact is None:
            return None
        if self.exact.is_own:
            return self.exact.to_domain(self.url, self.options)
        return preset_exact(PRESETS[self.preset], self.request.body, self.exact.canaries)

    def _unused_option_problems(self) -> Iterator[tuple[Place, str]]:
        """Yield options that nothing uses: they are likely misspelled."""
        request, asks_for = self.request, {option.name for option in PRESETS[self.preset].options}
        templates = [self.url, self.lookup.url if self.lookup else None, request.body, request.query, request.sql]
        templates.append(request.headers)
        used = placeholders_in(templates) | parameters_in(request.sql or "")
        used |= {self.auth.by} if isinstance(self.auth, IdentityAuthDocument) else set()
        used |= {name for fact in (self.facts or {}).values() for name in fact.names}
        used |= self.exact.names if self.exact is not None else set()
        for name in self.options:
            if name not in used and name not in asks_for:
                near = did_you_mean(name, {*used, *asks_for} - {*COMMON_NAMES, VECTOR})
                yield ("options", name), f"is used by no template{near}"

    def unknown_vars(self, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield (name, sentence) for each of these variables that canaries and checks cannot set for it, or not so."""
        once: list[Any] = [self.lookup.url if self.lookup else None, self.request.sql]
        once += [self.url] if self.dialect is Dialect.MCP else []
        for name in values:
            if name not in self.options:
                near = did_you_mean(name, self.options) or f"; write options: {{{name}: <default>}} there"
                yield name, f"is no option of retriever '{self.slug}'{near}"
            elif name in placeholders_in(once):
                what = "the name of a table or column" if self.dialect is Dialect.SQL else "asked for once per run"
                yield name, f"cannot be set: to retriever '{self.slug}' it is {what}"
            elif self.asks_by == name and (why := self.why_not_asked(values)) is not None:
                yield name, why

    @property
    def asks_by(self) -> str | None:
        """The variable whose value says with whose credentials it is asked; None = all are asked with the same."""
        return self.auth.by if isinstance(self.auth, IdentityAuthDocument) else None

    def why_not_asked(self, values: Mapping[str, str]) -> str | None:
        """Return why it cannot be asked with these variables: that identity has no credentials; None = it can."""
        if not isinstance(self.auth, IdentityAuthDocument):
            return None
        value = values.get(self.auth.by, self.options[self.auth.by])
        return None if value in self.auth.of else no_credentials(self.slug, value, self.auth.of)

    @property
    def takes_history(self) -> bool:
        """Whether it gets the conversation before a query."""
        return HISTORY in placeholders_in(self.request.body) and HISTORY not in self.options

    @property
    def dialect(self) -> Dialect:
        """The protocol of the retriever, by its preset."""
        return PRESETS[self.preset].dialect

    @property
    def gives_answers(self) -> bool:
        """Whether there is an answer to a query besides the hits."""
        return self.answer is not None or self.response.answer is not None

    def at(self, url: str) -> Self:
        """Return the document of the same retriever at another address. Raises InvalidInputError for a bad one."""
        data = {**self.data(), "url": url}
        if self.lookup is not None:
            data["lookup"] = {**data["lookup"], "url": self.lookup.url[len(origin_of(self.lookup.url)) :]}
        for part in (*(data["facts"] or {}).values(), data["exact"] or {}):
            if part.get("url") and not part["url"].startswith("/"):
                part["url"] = part["url"][len(origin_of(part["url"])) :]
        return parse_document(type(self), data)

    def to_domain(self) -> Retriever:
        """Return the value the domain works with."""
        return Retriever(
            slug=self.slug,
            url=self.url,
            dialect=self.dialect,
            method=self.request.method,
            headers=dict(self.request.headers),
            query_parameters=dict(self.request.query),
            json=self.request.body,
            options=dict(self.options),
            lookup=self.lookup.to_domain() if self.lookup is not None else None,
            sql=fill_sql_names(self.request.sql, self.options) if self.request.sql is not None else None,
            tool=self.request.tool,
            auth=self.auth.to_domain() if self.auth is not None else None,
            tls=tls_value(self.tls),
            embedder=self.embedding.to_domain() if self.embedding is not None else None,
            response=self.response.to_domain(),
            scorer=self.scorer.to_domain(self.embedding),
            answer=self.answer.to_domain() if self.answer is not None else None,
            concurrency=self.concurrency,
            requests_per_second=self.requests_per_second,
            timeout_seconds=self.timeout,
            retries=self.retries,
            breaker=self.breaker,
            max_body_bytes=self.max_body_bytes,
            score_precision=self.score_precision,
            score_tolerance=self.score_tolerance,
            facts=self._facts(),
            exact=self._exact(),
        )


def no_credentials(slug: str, value: str, known: Collection[str]) -> str:
    """Return that a value of the variable of `auth` has no credentials, as the rest of a sentence about it."""
    those = named_text(list(known))
    return f"is '{one_line(value)}', for which retriever '{slug}' has no credentials under auth: of; it has {those}"


def _preset_of(info: ValidationInfo) -> Preset | None:
    return PRESETS.get(info.data.get("preset", ""))


def _missing_option(name: str, preset: Preset | None) -> str:
    option = preset.option(name) if preset is not None else None
    if preset is None or option is None:
        return "is missing; the templates need it"
    return f"is missing; preset {preset.name} needs option `{name}`, for example {option.example}"


def _placeholder_names(info: ValidationInfo) -> tuple[str, ...] | None:
    """Return the placeholders besides the vector; None while what defines them is invalid."""
    if "options" not in info.data or "lookup" not in info.data or _preset_of(info) is None:
        return None
    lookup: LookupDocument | None = info.data["lookup"]
    return (*COMMON_NAMES, *info.data["options"], *([lookup.name] if lookup is not None else []))


def _database_url(url: str) -> str:
    check_url(url, schemes=("postgresql",))
    parts = urlsplit(url)
    if not re.fullmatch(r"/[^/]+", parts.path) or "{{" in url:
        raise field_error("must be postgresql://host:port/database")
    # Whatever else a client library takes there could lead it to another host or to files of this machine.
    if any(
        name != "sslmode" or mode not in _SSL_MODES for name, mode in parse_qsl(parts.query, keep_blank_values=True)
    ):
        raise field_error("may only have ?sslmode=... behind the database; user and password go to auth: {kind: basic}")
    return url


_FOREIGN_PARTS = {
    Dialect.HTTP: {"sql": "SQL", "tool": "MCP"},
    Dialect.MCP: {"sql": "SQL", "query": "HTTP"},
    Dialect.SQL: {"json": "HTTP", "query": "HTTP", "tool": "MCP", "headers": "HTTP"},
}
_NEEDED_PARTS = {Dialect.SQL: ("sql", "a SELECT with :query"), Dialect.MCP: ("tool", "the name of the tool to call")}


def _dialect_problems(request: RequestDocument, dialect: Dialect) -> Iterator[tuple[Place, str]]:
    """Yield parts of a request that its dialect does not have, and parts it needs."""
    parts = {"json": request.body, "query": request.query, "sql": request.sql, "tool": request.tool}
    parts["headers"] = request.headers
    for name, of in _FOREIGN_PARTS[dialect].items():
        if parts[name] not in (None, {}):
            yield (name,), f"belongs to presets that speak {of}"
    needed, what = _NEEDED_PARTS.get(dialect, ("", ""))
    if needed and parts[needed] is None:
        yield (needed,), f"is missing; say {what}"


FIELDS = ("hits", "id", "score", "text", "document", "updated")


def response_fields(mapping: ResponseMapping, document: RetrieverDocument) -> dict[str, str | None]:
    """Return a mapping as the `response` of a document, which keeps what it has of the whole response."""
    kept = {name: getattr(document.response, name) for name in WHOLE_FIELDS}
    return mapping_fields(replace(mapping, **kept), document)


def mapping_fields(mapping: ResponseMapping, document: RetrieverDocument) -> dict[str, str | None]:
    """Return a mapping as the `response` of a document; null takes out what its preset would fill in again."""
    preset = PRESETS[document.preset]
    preset_response: Mapping[str, Any] = {} if preset.response_as_one else preset.response
    paths = {name: getattr(mapping, name) for name in (*FIELDS, *WHOLE_FIELDS)}
    return {name: path for name, path in paths.items() if path is not None or name in preset_response}


def mapping_yaml(response: Mapping[str, str | None], scorer: Mapping[str, str | float] | None) -> str:
    """YAML of these parts of a retriever, as a canary file has them."""
    parts = {"response": response, **({"scorer": scorer} if scorer else {})}
    escaped = {
        part: {name: escape_dollars(value) if isinstance(value, str) else value for name, value in fields.items()}
        for part, fields in parts.items()
    }
    return str(yaml.safe_dump(escaped, sort_keys=False, allow_unicode=True, width=110))
