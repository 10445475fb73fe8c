"""Maps our errors to problem+json (RFC 9457) in one table, each with a stable type."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NotRequired

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from typing_extensions import TypedDict

from app.base.documents.fields import Document
from app.base.documents.validation_messages import message_of, path_of
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
"""Messages for parameters, which are parsed from text; `validation_messages` has those for JSON."""
