"""Request bodies before routes see them: limits of size, valid addresses, and strict JSON.

JSON is parsed here, so that errors use our words and nothing odd (NaN, repeated keys, thousands of levels) reaches the
documents, which validate the content.

Refusals are problem+json: one table gives every error its status and type.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NotRequired
from urllib.parse import unquote_to_bytes

import anyio.to_thread
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typing_extensions import TypedDict

from app.base.api.requests import route_path
from app.base.documents.fields import Document
from app.base.documents.parsing import message_of, path_of
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
from app.base.texts import REQUEST_LIMITS, excess_of

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
    "SilenceDocument": {
        "slug": "reindex",
        "reason": "new index every Saturday",
        "severities": ["warning"],
        "window": {"cron": "0 2 * * 6", "duration": "4h"},
    },
}


def with_example(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the media type objects of a body, with the example of its schema if there is one."""
    schema = content["schema"]
    first = schema.get("anyOf", [schema])[0]
    example = EXAMPLES.get(first.get("$ref", "").rpartition("/")[2])
    return dict(content) if example is None else {**content, "example": example}


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
    return JSONResponse(
        body,
        status_code=status,
        media_type=PROBLEM_TYPE,
        headers=headers,
    )


def _error(found: Problem) -> ProblemError:
    shown: ProblemError = {"message": found.message}
    if found.path is not None:
        shown = {"path": found.path, **shown}
    if found.line is not None:
        shown = {"line": found.line, **shown}
    return shown if found.file is None else {"file": found.file, **shown}


def as_problem(error: CoalmineError) -> JSONResponse:
    """Return the response of one of our errors."""
    status, slug, title = next((row[1:] for row in PROBLEMS if isinstance(error, row[0])), (500, "error", "Error"))
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
    return problem(slug, title, status, detail, errors, headers)


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
