"""Bodies of requests: limits of size, valid addresses and strict JSON before routes see them; and what they may be.

JSON is parsed here, so that errors use our words and nothing odd (NaN, repeated keys, thousands of levels) reaches the
documents, which validate the content. Refusals are problem+json: one table gives every error its status and type.
Below: bodies other than the documents of subjects, pages of lists, and the names and titles of published schemas; the
whole description is put together in `operation`.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from io import StringIO
from typing import Annotated, Any, Final, Generic, Literal, NotRequired, Self, TypeVar
from urllib.parse import unquote_to_bytes

import anyio.to_thread
from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BeforeValidator, Field, StringConstraints, model_validator
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import TypedDict

from app.base.api.requests import route_path
from app.base.documents.fields import Document, Flag, Number, Text, field_error, message_of, path_of
from app.base.errors import (
    BusyError,
    CoalmineError,
    ConfigurationError,
    ConflictError,
    FileManagedError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    Problem,
    StoreUnavailableError,
    TooLargeError,
    TooManyRequestsError,
    UnauthorizedError,
    UnsupportedError,
)
from app.base.texts import REQUEST_LIMITS, Source, excess_of

MAX_BODY_BYTES = 10_000_000
MAX_STREAM_BYTES = 100_000_000
"""Of JSON lines and CSV, which are taken to disk as they arrive, where a route takes them."""
_SMALL = 64_000
_MAX_KEYS = 2_000  # of one object; the documents need some dozens
_STREAMED = re.compile(r"/v1/(?:suites/[^/]+/traffic|corpora/[^/]+)")
_STREAM_TYPES = (b"application/x-ndjson", b"application/jsonl", b"text/csv")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


class Gate:
    """ASGI middleware that refuses invalid addresses and large bodies, and answers HEAD as GET without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with a problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        if _CONTROL.search(scope["path"].encode()) or _CONTROL.search(unquote_to_bytes(scope["query_string"])):
            refusal = problem("bad-address", "The address cannot be used", 400, "it holds control characters")
            await refusal(scope, receive, send)
            return
        most = _most_bytes(scope)
        if _declared_length(scope) > most:
            await as_problem(_too_large(most))(scope, receive, send)
            return
        await self._app(scope, _limit_size(receive, most), send)


def _most_bytes(scope: Scope) -> int:
    """Return how many bytes a body may have: only what a route takes to disk may be larger than what is parsed."""
    headers = dict(scope["headers"])
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    streamed = scope["method"] == "POST" and kind in _STREAM_TYPES and _STREAMED.fullmatch(route_path(scope))
    return MAX_STREAM_BYTES if streamed else MAX_BODY_BYTES


def _limit_size(receive: Receive, most: int) -> Receive:
    """Return `receive` with a limit on the bytes received: content-length may be absent or wrong."""
    received_bytes = 0

    async def counting() -> Message:
        nonlocal received_bytes
        message = await receive()
        received_bytes += len(message.get("body", b""))
        if received_bytes > most:
            raise _too_large(most)
        return message

    return counting


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"a body may have at most {most // 1_000_000} MB; send it in parts")


def _declared_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value) if len(value) < 20 else MAX_STREAM_BYTES + 1  # noqa: PLR2004 - digits of 64 bits
    return 0


def _without_body(send: Send) -> Send:
    async def bare(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return bare


async def read_json(request: Request) -> Any:
    """Return the JSON of a body. Raises UnsupportedError, or InvalidInputError with the place."""
    return await _read(_require_json(request, await request.body()))


async def read_json_if_any(request: Request) -> Any:
    """Return the JSON of a body; None where there is no body."""
    body = await request.body()
    return await _read(_require_json(request, body)) if body else None


async def _read(body: bytes) -> Any:
    """Parse a small body at once and a large one in a thread, so that /livez answers meanwhile."""
    return _parse(body) if len(body) < _SMALL else await anyio.to_thread.run_sync(_parse, body)


def _require_json(request: Request, body: bytes) -> bytes:
    if not body:
        raise _unusable("a JSON body is needed")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Strict against CSRF: other sites may send other types without a preflight request.
    if kind != "application/json" and not re.fullmatch(r"application/[a-z0-9.-]+\+json", kind):
        raise UnsupportedError("send JSON with the header Content-Type: application/json")
    return body


def _parse(body: bytes) -> Any:
    excess = excess_of(body, REQUEST_LIMITS)  # before parsing: objects take a hundred times their bytes
    if excess is not None:
        raise _unusable(excess)
    try:
        return json.loads(body.decode(), parse_constant=_no_constant, object_pairs_hook=_refuse_repeated_keys)
    except json.JSONDecodeError as error:
        raise _unusable(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except UnicodeDecodeError:
        raise _unusable("is not UTF-8 text") from None
    except ValueError:  # Python's own limit on the digits of a number
        raise _unusable("holds a number with too many digits") from None


def _no_constant(name: str) -> Any:
    raise _unusable(f"holds {name}, which JSON does not have; leave the key out or write null")


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    whole = dict(pairs)
    if len(pairs) > _MAX_KEYS:
        raise _unusable(f"has an object of more than {_MAX_KEYS:,} keys")
    if len(whole) < len(pairs):
        keys: set[str] = set()
        again = next(key for key, _ in pairs if key in keys or keys.add(key))  # type: ignore[func-returns-value] # add() gives None
        raise _unusable(f"has the key '{again[:60]}' twice")
    return whole


def _unusable(message: str) -> InvalidInputError:
    return InvalidInputError([Problem(path="body", message=message)])


Content = Annotated[Any, Depends(read_json)]
OptionalContent = Annotated[Any, Depends(read_json_if_any)]
EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "RetrieverDocument": {
        "slug": "docs-search",
        "url": "http://127.0.0.1:8001/search",
        "request": {"method": "POST", "json": {"query": "{{ query }}", "top_k": "{{ k }}"}},
        "response": {"hits": "results", "id": "id", "score": "score", "text": "text"},
    },
    "CheckDocument": {
        "slug": "docs",
        "suite": "docs",
        "retriever": "docs-search",
        "schedule": {"every": "1h"},
        "rules": [{"kind": "threshold", "measure": "coverage", "critical": {"below": 0.9}}],
    },
    "TaskDocument": {
        "slug": "truth",
        "suite": "docs",
        "retrievers": ["docs-search"],
        "pool": 10,
        "strata": [{"to": 30, "sample": 10}, {"to": 100, "sample": 10}],
    },
    "HookDocument": {"slug": "ops", "kind": "webhook", "url": "https://ops.example.org/coalmine"},
    "JudgeDocument": {
        "slug": "reader",
        "url": "http://127.0.0.1:11434/v1",
        "model": "llama3.1",
        "auth": {"token": "sk-..."},
        "price_per_million": 0.5,
        "budget_per_day": 2,
    },
    "PromotionDocument": {
        "slug": "hybrid",
        "current": "docs",
        "candidate": "docs-hybrid",
        "experiment": None,
        "guards": [{"measure": "faithfulness", "allowed_loss": 0.05}],
    },
    "SilenceDocument": {
        "slug": "reindex",
        "reason": "new index every Saturday",
        "severities": ["warning"],
        "window": {"cron": "0 2 * * 6", "duration": "4h"},
    },
    "SuiteDocument": {
        "slug": "docs",
        "canaries": [{"key": "refunds", "query": "How long do refunds take?", "expected_chunks": ["refund-policy-2"]}],
    },
    "CanaryDocument": {
        "key": "refunds",
        "query": "How long do refunds take?",
        "expected_chunks": [{"id": "refund-policy-2", "grade": 3}, {"text": "Refunds take five working days."}],
        "category": "simple_factual",
        "tags": ["billing"],
    },
    "CanaryFile": {
        "suite": "docs",
        "canaries": [{"key": "refunds", "query": "How long do refunds take?", "expected_chunks": ["refund-policy-2"]}],
    },
    "AcknowledgeRequest": {"note": "The index is being rebuilt until noon."},
    "RunRequest": {"trigger": "update", "index_version": "2026-11-29", "wait_seconds": 60},
    "RunNoteRequest": {"text": "First run with the new embedding model."},
    "RescoringRequest": {"since": "2026-11-01T00:00:00Z", "wait_seconds": 60},
    "BaselineRequest": {"accept": True, "note": "The new chunks are meant."},
    "NotNormalRequest": {"note": "This was an outage."},
    "TryRequest": {"query": "How long do refunds take?", "k": 5},
    "AdjudicationRequest": {"grade": 2},
    "AnnotationRequest": {"grade": 2, "seconds": 8.5},
    "UndoRequest": {"annotator": "ann"},
    "TextFiles": {"files": {"lines.jsonl": '{"_id": "d1", "text": "Fees are due monthly."}\n'}},
    "ForgetRequest": {"query": "my account number is 123"},
    "ReachRequest": {"retriever": "docs-search", "group": {"separator": "/", "parts": 1}},
    "SuggestionsRequest": {"retriever": "docs-search", "task": "truth", "queries": ["rate limit"]},
    "ReanchorRequest": {"accept": ["12"], "reject": []},
    "FeedbackRequest": {
        "events": [
            {"event_id": "5f0c", "canary": "refunds", "answer": "Five days.", "kind": "thumbs", "positive": True}
        ]
    },
    "ExperimentDocument": {
        "slug": "hybrid-search",
        "arms": [{"name": "vector", "share": 0.95}, {"name": "hybrid", "share": 0.05}],
        "delta": 0.02,
        "window": "24h",
    },
    "Exposure": {"unit": "user-1"},
    "UnitOutcome": {"event_id": "thumbs-17", "unit": "user-1", "value": 1},
    "ShadowDocument": {"slug": "hybrid", "candidate": "docs-hybrid", "share": 0.05},
    "ShadowPair": {"query": "Fees?", "a": ["c4"], "b": ["c4", "c9"], "a_seconds": 0.12, "b_seconds": 0.31},
    "InterleavingDocument": {"slug": "mixed", "a": "vector", "b": "hybrid"},
    "ListsRequest": {"unit": "user-1", "a": ["c1", "c2"], "b": ["c2", "c3"]},
    "Click": {"event_id": "click-9", "unit": "user-1", "team": "a"},
    "WaiverRequest": {"reason": "No judge is configured for these answers."},
}


def with_example(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the media type objects of a body, with the example of its schema if there is one."""
    schema = content["schema"]
    first = schema.get("anyOf", [schema])[0]
    is_list = first.get("type") == "array"
    example = EXAMPLES.get((first["items"] if is_list else first).get("$ref", "").rpartition("/")[2])
    return dict(content) if example is None else {**content, "example": [example] if is_list else example}


Answers = dict[int | str, dict[str, Any]]

_MEANINGS = {200: "Successful Response", 201: "Created", 202: "Accepted"}


class YamlResponse(PlainTextResponse):
    """A text that is YAML."""

    media_type = "application/yaml"


def answers_with(model: Any, *statuses: int) -> Answers:
    """Return the description of JSON responses of this type with these statuses."""
    return {status: {"description": _MEANINGS[status], "model": model} for status in statuses}


def refusals(*statuses: int) -> Answers:
    """Return the description of problems specific to a route; see `openapi`."""
    return {status: {"description": ""} for status in statuses}


def text_answers(*statuses: int, types: tuple[str, ...]) -> Answers:
    """Return the description of text responses of these media types with these statuses."""
    content = {kind: {"schema": {"type": "string"}} for kind in types}
    return {status: {"description": _MEANINGS[status], "content": content} for status in statuses}


logger = logging.getLogger("coalmine.api")

PROBLEM_TYPE: Final = "application/problem+json"


class ProblemError(TypedDict):
    """An error in a request: its path in the body or line of a file, and a message."""

    file: NotRequired[str]
    line: NotRequired[int]
    path: NotRequired[str]
    message: str


class ProblemView(TypedDict):
    """A problem (RFC 9457), with every error in the request; `type` is stable."""

    type: str
    title: str
    status: int
    detail: str
    errors: NotRequired[list[ProblemError]]


# Most particular first: the first class an error is an instance of decides.
PROBLEMS: tuple[tuple[type[CoalmineError], int, str, str], ...] = (
    (InvalidInputError, 422, "invalid-input", "The request is invalid"),
    (UnsupportedError, 415, "unsupported-content", "The request has an unsupported format"),
    (TooLargeError, 413, "too-large", "The request is too large"),
    (NotFoundError, 404, "not-found", "Not found"),
    (FileManagedError, 409, "file-managed", "This is managed by a canary file"),
    (ConflictError, 409, "conflict", "Conflict"),
    (UnauthorizedError, 401, "unauthorized", "Authentication required"),
    (ForbiddenError, 403, "forbidden", "The key lacks the scope"),
    (TooManyRequestsError, 429, "too-many-requests", "Too many requests"),
    (BusyError, 503, "busy", "Too many at once"),
    (StoreUnavailableError, 503, "store-unavailable", "The database is unavailable"),
    (ConfigurationError, 500, "configuration", "The service is not configured for this"),
)


def problem(
    slug: str,
    title: str,
    status: int,
    detail: str,
    errors: Sequence[Problem] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return a problem+json response."""
    body: ProblemView = {"type": f"/problems/{slug}", "title": title, "status": status, "detail": detail}
    if errors:
        body["errors"] = [_error(one) for one in errors]
    return JSONResponse(body, status_code=status, media_type=PROBLEM_TYPE, headers=headers)


def _error(found: Problem) -> ProblemError:
    shown: ProblemError = {"message": found.message}
    if found.path is not None:
        shown = {"path": found.path, **shown}
    if found.line is not None:
        shown = {"line": found.line, **shown}
    return shown if found.file is None else {"file": found.file, **shown}


def as_problem(error: CoalmineError, *, status: int | None = None) -> JSONResponse:
    """Return the response of one of our errors; `status` where a protocol wants another one."""
    usual, slug, title = next((row[1:] for row in PROBLEMS if isinstance(error, row[0])), (500, "error", "Error"))
    errors = error.problems if isinstance(error, InvalidInputError) else ()
    headers = {"WWW-Authenticate": 'Bearer realm="coalmine"'} if isinstance(error, UnauthorizedError) else {}
    if isinstance(error, BusyError | StoreUnavailableError):
        headers = {"Retry-After": "5"}
    if isinstance(error, TooManyRequestsError):
        headers = {"Retry-After": str(error.retry_after_seconds)}
    if isinstance(error, StoreUnavailableError):
        logger.error("store_unavailable", extra={"detail": str(error)})
    # The driver's message has hosts and users and goes to the log only; of long lists the first line is enough.
    detail = title if isinstance(error, StoreUnavailableError) else str(error).partition("\n")[0]
    return problem(slug, title, status or usual, detail, errors, headers)


def install_problems(app: FastAPI) -> None:
    """Install handlers that return every error as problem+json; only bugs are logged with a trace."""

    @app.exception_handler(CoalmineError)
    async def on_ours(_request: Request, error: CoalmineError) -> JSONResponse:
        return as_problem(error)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        return as_problem(InvalidInputError([_parameter_problem(item) for item in error.errors()]))

    @app.exception_handler(HTTPException)
    async def on_http(_request: Request, error: HTTPException) -> JSONResponse:
        slugs = {404: "not-found", 405: "method-not-allowed"}
        titles = {404: "Not found", 405: "Method not allowed"}
        slug, title = slugs.get(error.status_code, "http"), titles.get(error.status_code, "The request failed")
        return problem(slug, title, error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(ClientDisconnect)
    async def on_broken_off(request: Request, _error: ClientDisconnect) -> JSONResponse:
        logger.info("request_broken_off", extra={"method": request.method, "path": request.url.path[:200]})
        return problem("broken-off", "The request was broken off by its sender", 400, "nothing was done")  # to nobody

    @app.exception_handler(Exception)
    async def on_bug(_request: Request, error: Exception) -> JSONResponse:
        logger.error("bug", exc_info=error)
        return problem("bug", "Internal error", 500, "The log of the service has the details.")


def _parameter_problem(error: Any) -> Problem:
    """Return the problem of a parameter of a route; bodies are parsed by the routes themselves."""
    name = path_of(error["loc"][1:]) or "body"
    return Problem(path=name, message=_PARAMETERS.get(error["type"]) or message_of(Document, error))


_MOMENT = "must be a time such as 2026-01-31T12:00:00Z"
_PARAMETERS = {
    "missing": "is missing",
    "int_parsing": "must be a whole number",
    "float_parsing": "must be a number",
    "int_parsing_size": "must be a whole number of at most 64 bits",
    "bool_parsing": "must be true or false",
    "datetime_parsing": _MOMENT,
    "datetime_from_date_parsing": _MOMENT,
    "datetime_object_invalid": _MOMENT,
}
"""Messages for parameters, which are parsed from text; `documents.parsing` has those for JSON."""
LARGEST_ID: Final = 2**63 - 1
Limit = Annotated[int, Query(ge=1, le=500)]
"""How many items a page has at most."""
After = Annotated[str, Query(max_length=200)]
"""The `next` of the page before, where it is a name; `Before` where it is an id and newer ones come first."""
Before = Annotated[int | None, Query(alias="after", ge=1, le=LARGEST_ID, description="the `next` of the page before")]
Slug = Annotated[str | None, Query(pattern="^[a-z0-9-]{1,64}$")]
Version = Annotated[
    str | None, Query(alias="measures_version", max_length=40, description="that of a re-scoring, such as 2.r7")
]


class RunNoteRequest(Document):
    """A note on a run."""

    text: Annotated[Text, StringConstraints(strip_whitespace=True, max_length=500)]


class RunRequest(Document):
    """A request to run a check now."""

    trigger: Literal["api", "update", "cli", "page"] = "api"
    index_version: Annotated[Text, StringConstraints(max_length=200)] | None = None
    wait_seconds: Annotated[Number, Field(ge=0, le=300)] = 0


def _moment(value: object) -> object:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise field_error("must be a time with a time zone, such as 2026-01-31T12:00:00Z")
    return moment


class RescoringRequest(Document):
    """A request to re-score recorded runs with the present judgments."""

    since: Annotated[datetime, BeforeValidator(_moment)] | None = None
    """Only runs that ended from then on; default all."""
    wait_seconds: Annotated[Number, Field(ge=0, le=300)] = 0


class SuiteFiles(Document):
    """Files of another tool: their texts by name."""

    files: Annotated[dict[Annotated[str, StringConstraints(max_length=256)], str], Field(min_length=1, max_length=50)]
    as_documents: Flag = False
    """Their ids are documents, not chunks."""
    notes: tuple[str, ...] = ()
    """Notes of the export, ignored, so that its response can be sent as it is."""


class TextFiles(Document):
    """Texts of files by name."""

    files: Annotated[dict[Annotated[str, StringConstraints(max_length=256)], str], Field(min_length=1, max_length=50)]

    @property
    def sources(self) -> list[Source]:
        """The files, to be read line by line."""
        return [Source(name=name, lines=partial(StringIO, text)) for name, text in self.files.items()]


Proposals = (
    Literal["all"] | Annotated[tuple[Annotated[str, StringConstraints(max_length=18)], ...], Field(max_length=1_000)]
)


class ReanchorRequest(Document):
    """Decisions on proposed judgments: their ids, or `all` open ones."""

    accept: Proposals = ()
    reject: Proposals = ()


class AcknowledgeRequest(Document):
    """An acknowledgement of an alert."""

    note: Annotated[Text, StringConstraints(max_length=1000)] | None = None


class BaselineRequest(Document):
    """A new baseline of a check: one of its runs, or its present state."""

    run: Annotated[Text, StringConstraints(max_length=40)] | None = None
    """Compare with this run, and with the baseline learned from the runs up to it."""
    accept: Flag = False
    """Accept the present state as the baseline."""
    note: Annotated[Text, StringConstraints(max_length=1000)] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.run is None) != self.accept:
            raise field_error("must have either 'run' or 'accept: true'")
        return self


class NotNormalRequest(Document):
    """A habit that is not normal."""

    note: Annotated[Text, StringConstraints(max_length=1000)] | None = None


ViewT = TypeVar("ViewT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[ViewT]):
    """A page of a list: `next` goes into `after` of the next request; null at the end."""

    items: list[ViewT]
    next: str | None


COMPONENTS: Final = "#/components/schemas/"
DOCUMENTS: Final[dict[type[Document], None]] = {}
"""Documents that routes refer to, in the order of the routes: the description defines them."""
_VALUES: Final = frozenset({"default", "enum", "const", "examples", "required"})
_BY_NAME: Final = frozenset({"properties", "patternProperties", "$defs"})


def reference(model: type[Document]) -> dict[str, str]:
    """Return a reference to a document in the API's description, which defines it then."""
    DOCUMENTS[model] = None
    return {"$ref": COMPONENTS + model.__name__}


def json_body(schema: Mapping[str, Any], *, required: bool = True) -> dict[str, Any]:
    """Return the description of a body; it is parsed by the route, so that errors are the same as for files."""
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def body_schema(model: type[Document], *, required: bool = True) -> dict[str, Any]:
    """Return the description of a body that is such a document."""
    return json_body(reference(model), required=required)


def list_schema(item: type[Document], *, most: int) -> dict[str, Any]:
    """Return the description of a body that is a list of documents."""
    return json_body({"type": "array", "items": reference(item), "maxItems": most})


def settings_name(model: str) -> str:
    """Name a document, or a part of one, as answers show it; an enumeration keeps its name."""
    return f"{model.removesuffix('Document')}Settings" if model.endswith("Document") else model


def plain_names(schemas: Mapping[str, Any]) -> dict[str, str]:
    """Return the name that each schema is published by. Raises ValueError where two would have the same."""
    names = {name: _plain_name(name, schema) for name, schema in schemas.items()}
    taken: dict[str, str] = {}
    for name, plain in names.items():
        if taken.setdefault(plain, name) != name:
            raise ValueError(f"'{name}' and '{taken[plain]}' are both published as '{plain}'")
    return names


def _plain_name(name: str, schema: Any) -> str:
    """Pages of different things are all called Page by pydantic, with the type they list in brackets."""
    properties = schema.get("properties", {})
    if properties.keys() == {"items", "next"} and "$ref" in properties["items"].get("items", {}):
        listed = properties["items"]["items"]["$ref"].removeprefix(COMPONENTS)
        return f"{listed.removesuffix('View')}Page"
    return name.removesuffix("View")


def renamed(schema: Any, names: Mapping[str, str]) -> Any:
    """Return a schema, or a larger part of the description, whose references go by these names."""
    if isinstance(schema, list):
        return [renamed(part, names) for part in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {keyword: renamed(part, names) for keyword, part in schema.items()}
    if isinstance(reference := whole.get("$ref"), str) and reference.startswith(COMPONENTS):
        name = reference.removeprefix(COMPONENTS)
        whole["$ref"] = COMPONENTS + names.get(name, name)
    return whole


def titled(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its name as the only title: generators name types by titles, and those of fields repeat.

    A title of a field that says more than its name becomes its description, where it has none. The long form of
    what also has a short one is named after it, or generators would number it.
    """
    whole = {**_untitled(schema, None), "title": name}
    if "anyOf" in whole:
        whole["anyOf"] = [{**one, "title": f"{name}Fields"} if "properties" in one else one for one in whole["anyOf"]]
    return whole


def plain_parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a parameter, which is left out and never null, without a title and without null."""
    schema = {keyword: part for keyword, part in parameter["schema"].items() if keyword != "title"}
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        schema = {**{keyword: part for keyword, part in schema.items() if keyword != "anyOf"}, **kinds[0]}
    return {**parameter, "schema": schema}


def _untitled(schema: Any, field: str | None) -> Any:
    if isinstance(schema, list):
        return [_untitled(part, None) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    whole = {keyword: _without_titles(keyword, part) for keyword, part in schema.items() if keyword != "title"}
    title = schema.get("title")
    if field is not None and title and title.lower() != field.replace("_", " ").lower() and "description" not in whole:
        whole["description"] = title
    return whole


def _without_titles(keyword: str, value: Any) -> Any:
    if keyword in _VALUES:
        return value
    if keyword in _BY_NAME and isinstance(value, Mapping):
        return {name: _untitled(part, name) for name, part in value.items()}
    return _untitled(value, None)
