"""Retrievers as users write them: the whole, expanded by its preset, and what its parts have to say to each other.

The parts have modules of their own: request, auth, embedding. Sending the request and evaluating the paths is the
retriever adapters' work; here they are only checked.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from app.domain.probing.retrievers import Dialect, Retriever, ScorerKind
from app.formats.auth_documents import AuthDocument, BasicDocument, TlsDocument, auth_value, tls_value
from app.formats.fields import (
    Document,
    Name,
    Number,
    Place,
    Seconds,
    Slug,
    Whole,
    check_url,
    did_you_mean,
    field_error,
    field_errors,
    one_line,
)
from app.formats.http_fields import origin_of
from app.formats.probing.embedding_documents import EmbeddingDocument, ScorerDocument, refuse_duplicate_header
from app.formats.probing.expansion import apply_preset
from app.formats.probing.placeholders import (
    COMMON_NAMES,
    QUERY_NAMES,
    VECTOR,
    UrlTemplate,
    check_url_template,
    fill_sql_names,
    name_problem,
    parameters_in,
    placeholders_in,
    sql_problems,
    template_problems,
)
from app.formats.probing.presets import PRESETS, Preset
from app.formats.probing.request_documents import LookupDocument, RequestDocument, ResponseDocument
from app.formats.validation_messages import parse_document
from app.formats.widgets import Widget

GENERIC = "generic"
_SSL_MODES = {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}


def _preset(value: Any) -> Any:
    if isinstance(value, str) and value not in PRESETS:
        near = did_you_mean(value, PRESETS) or f"; there are: {', '.join(PRESETS)}"
        raise field_error(f"unknown preset '{one_line(value)}'{near}")
    return value


def _names_only(options: dict[str, str]) -> dict[str, str]:
    wrong = [((name,), problem) for name in options if (problem := name_problem(name)) is not None]
    if wrong:
        raise field_errors(wrong)
    return options


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
    preset: Annotated[str, BeforeValidator(_preset), WithJsonSchema({"type": "string", "enum": list(PRESETS)})] = (
        GENERIC
    )
    options: Annotated[dict[str, Name], AfterValidator(_names_only), Field(max_length=50)] = Field(default={})
    """Names of one's own for the templates, and those a preset asks for."""
    lookup: LookupDocument | None = None
    url: Annotated[UrlTemplate, Field(title="URL"), Widget(mono=True)]
    request: RequestDocument = Field(default_factory=RequestDocument)
    embedding: Annotated[EmbeddingDocument | None, Field(validate_default=True)] = None
    response: ResponseDocument = Field(default_factory=lambda: ResponseDocument(**PRESETS[GENERIC].response))
    scorer: Annotated[ScorerDocument, Field(validate_default=True)] = ScorerDocument()
    auth: AuthDocument | None = None
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
    max_body_bytes: Annotated[Whole, Field(ge=1_000, le=100_000_000)] = 5_000_000
    score_precision: Annotated[Number, Field(ge=0, le=1)] = 1e-6

    @model_validator(mode="before")
    @classmethod
    def _expanded(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        name = value.get("preset", GENERIC)
        known = isinstance(name, str) and name in PRESETS
        return apply_preset(value, PRESETS[name if known else GENERIC])

    @field_validator("options", mode="before")
    @classmethod
    def _all_given(cls, options: Any, info: ValidationInfo) -> Any:
        given, preset = options if isinstance(options, Mapping) else {}, _preset_of(info)
        wrong = [((str(name),), _missing_option(str(name), preset)) for name, value in given.items() if value is None]
        if wrong:
            raise field_errors(wrong)
        return options

    @field_validator("lookup")
    @classmethod
    def _fetched(cls, lookup: LookupDocument | None, info: ValidationInfo) -> LookupDocument | None:
        if lookup is None or "options" not in info.data:
            return lookup
        if lookup.name in info.data["options"]:
            raise field_errors([(("name",), f"'{lookup.name}' is an option already")])
        wrong = list(template_problems(lookup.url, info.data["options"], place=("url",)))
        if wrong:
            raise field_errors(wrong)
        return lookup

    @field_validator("url")
    @classmethod
    def _address(cls, url: str, info: ValidationInfo) -> str:
        preset, names = _preset_of(info), _names(info)
        if preset is not None and preset.dialect is Dialect.SQL:
            return _database_url(url)
        check_url_template(url)
        wrong = list(template_problems(url, names)) if names is not None else []
        if wrong:
            raise field_errors(wrong)
        return url

    @field_validator("request")
    @classmethod
    def _asks(cls, request: RequestDocument, info: ValidationInfo) -> RequestDocument:
        preset, names = _preset_of(info), _names(info)
        if preset is None or names is None:
            return request
        wrong = list(_foreign(request, preset.dialect))
        if preset.dialect is Dialect.SQL:
            wrong += [(("sql",), message) for message in sql_problems(request.sql or "", info.data["options"])]
            placeholders = parameters_in(request.sql or "")
        else:
            known = (*names, VECTOR)
            wrong += template_problems(request.body, known, place=("json",), in_names=info.data["options"])
            wrong += template_problems(request.query, known, place=("query",))
            placeholders = placeholders_in([request.body, request.query, info.data.get("url", "{{ query }}")])
        if wrong:
            raise field_errors(wrong)
        if QUERY_NAMES.isdisjoint(placeholders):
            raise field_error("never uses {{ query }}, so every canary would ask the same")
        return request

    @field_validator("embedding")
    @classmethod
    def _gives_vectors(cls, embedding: EmbeddingDocument | None, info: ValidationInfo) -> EmbeddingDocument | None:
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
    def _fill_kind(cls, scorer: ScorerDocument, info: ValidationInfo) -> ScorerDocument:
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

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        wrong = [*self._of_secrets(), *self._unused_options()]
        if wrong:
            raise field_errors(wrong)
        refuse_duplicate_header(self.request.headers, self.auth)
        return self

    def _of_secrets(self) -> Iterator[tuple[Place, str]]:
        """Yield what would send secrets astray."""
        if self.dialect is Dialect.SQL and self.auth is None:
            yield ("auth",), "is missing: a database needs {user: ..., password: ...} of a role that may only read"
        elif self.dialect is Dialect.SQL and not isinstance(self.auth, BasicDocument):
            yield ("auth", "kind"), "of a database must be basic: its user and password"
        if self.lookup is not None and origin_of(self.lookup.url) != origin_of(self.url):
            # It is asked with the secrets of the retriever, which go nowhere else.
            yield ("lookup", "url"), "must be at the host of the retriever's url, or a path that begins with /"

    def _unused_options(self) -> Iterator[tuple[Place, str]]:
        """Yield options that nothing uses: they are likely misspelled."""
        request, asks_for = self.request, {option.name for option in PRESETS[self.preset].options}
        templates = [self.url, self.lookup.url if self.lookup else None, request.body, request.query, request.sql]
        used = placeholders_in(templates)
        for name in self.options:
            if name not in used and name not in asks_for:
                near = did_you_mean(name, {*used, *asks_for} - {*COMMON_NAMES, VECTOR})
                yield ("options", name), f"is used by no template{near}"

    @property
    def dialect(self) -> Dialect:
        """What the retriever speaks; the preset says it."""
        return PRESETS[self.preset].dialect

    def at(self, url: str) -> Self:
        """Return the document of the same retriever at another address. Raises InvalidInputError for a bad one."""
        data = {**self.data(), "url": url}
        if self.lookup is not None:
            data["lookup"] = {**data["lookup"], "url": self.lookup.url[len(origin_of(self.lookup.url)) :]}
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
            auth=auth_value(self.auth),
            tls=tls_value(self.tls),
            embedder=self.embedding.to_domain() if self.embedding is not None else None,
            response=self.response.to_domain(),
            scorer=self.scorer.to_domain(self.embedding),
            concurrency=self.concurrency,
            requests_per_second=self.requests_per_second,
            timeout_seconds=self.timeout,
            retries=self.retries,
            breaker=self.breaker,
            max_body_bytes=self.max_body_bytes,
            score_precision=self.score_precision,
        )


def _preset_of(info: ValidationInfo) -> Preset | None:
    return PRESETS.get(info.data.get("preset", ""))


def _missing_option(name: str, preset: Preset | None) -> str:
    option = preset.option(name) if preset is not None else None
    if preset is None or option is None:
        return "is missing; the templates need it"
    return f"is missing; preset {preset.name} needs option `{name}`, for example {option.example}"


def _names(info: ValidationInfo) -> tuple[str, ...] | None:
    """Return the placeholders there are besides the vector; None where what says so is not valid."""
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


_FOREIGN = {
    Dialect.HTTP: {"sql": "SQL", "tool": "MCP"},
    Dialect.MCP: {"sql": "SQL", "query": "HTTP"},
    Dialect.SQL: {"json": "HTTP", "query": "HTTP", "tool": "MCP", "headers": "HTTP"},
}
_NEEDED = {Dialect.SQL: ("sql", "a SELECT with :query"), Dialect.MCP: ("tool", "the name of the tool to call")}


def _foreign(request: RequestDocument, dialect: Dialect) -> Iterator[tuple[Place, str]]:
    """Yield what a request says that its preset's dialect has no use for, and what it must say and does not."""
    parts = {"json": request.body, "query": request.query, "sql": request.sql, "tool": request.tool}
    parts["headers"] = request.headers
    for name, of in _FOREIGN[dialect].items():
        if parts[name] not in (None, {}):
            yield (name,), f"belongs to presets that speak {of}"
    needed, what = _NEEDED.get(dialect, ("", ""))
    if needed and parts[needed] is None:
        yield (needed,), f"is missing; say {what}"
