"""Errors on the wire: one table from our error tree to problem+json (RFC 9457), each with a stable type."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NotRequired

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from app.domain.errors import (
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
    UnauthorizedError,
    UnsupportedError,
)
from app.formats.fields import Document
from app.formats.validation_messages import message_of, path_of

logger = logging.getLogger("coalmine.api")

PROBLEM_TYPE: Final = "application/problem+json"


class ProblemError(TypedDict):
    """An error in what was sent: where it is, as a path in the body or a line of a file, and what is wrong."""

    file: NotRequired[str]
    line: NotRequired[int]
    path: NotRequired[str]
    message: str


class ProblemView(TypedDict):
    """What went wrong (RFC 9457), with every error found in what was sent; `type` is stable."""

    type: str
    title: str
    status: int
    detail: str
    errors: NotRequired[list[ProblemError]]


# Most particular first: the first class an error is an instance of decides.
PROBLEMS: tuple[tuple[type[CoalmineError], int, str, str], ...] = (
    (InvalidInputError, 422, "invalid-input", "The request cannot be used"),
    (UnsupportedError, 415, "unsupported-content", "The request is of another kind"),
    (TooLargeError, 413, "too-large", "The request is too large"),
    (NotFoundError, 404, "not-found", "There is no such thing"),
    (FileManagedError, 409, "file-managed", "This is managed by a canary file"),
    (ConflictError, 409, "conflict", "This cannot be done now"),
    (UnauthorizedError, 401, "unauthorized", "A key is needed"),
    (ForbiddenError, 403, "forbidden", "This key does not reach that far"),
    (BusyError, 503, "busy", "There are too many of these now"),
    (StoreUnavailableError, 503, "store-unavailable", "The database cannot be used now"),
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
    """Build a problem+json response."""
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
    """Render one of our errors."""
    status, slug, title = next((row[1:] for row in PROBLEMS if isinstance(error, row[0])), (500, "error", "Error"))
    errors = error.problems if isinstance(error, InvalidInputError) else ()
    headers = {"WWW-Authenticate": 'Bearer realm="coalmine"'} if isinstance(error, UnauthorizedError) else {}
    if isinstance(error, BusyError | StoreUnavailableError):
        headers = {"Retry-After": "5"}
    if isinstance(error, StoreUnavailableError):
        logger.error("store_unavailable", extra={"detail": str(error)})
    # What the driver says names hosts and users; it is for the log. Of long lists the first line says enough.
    detail = title if isinstance(error, StoreUnavailableError) else str(error).partition("\n")[0]
    return problem(slug, title, status, detail, errors, headers)


def install_problems(app: FastAPI) -> None:
    """Make every error leave as problem+json; only bugs are logged with a trace."""

    @app.exception_handler(CoalmineError)
    async def on_ours(_request: Request, error: CoalmineError) -> JSONResponse:
        return as_problem(error)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        return as_problem(InvalidInputError([_parameter_problem(item) for item in error.errors()]))

    @app.exception_handler(HTTPException)
    async def on_http(_request: Request, error: HTTPException) -> JSONResponse:
        slugs = {404: "not-found", 405: "method-not-allowed"}
        titles = {404: "There is no such thing", 405: "This cannot be done here"}
        slug, title = slugs.get(error.status_code, "http"), titles.get(error.status_code, "The request failed")
        return problem(slug, title, error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(Exception)
    async def on_bug(_request: Request, error: Exception) -> JSONResponse:
        logger.error("bug", exc_info=error)
        return problem("bug", "Something is broken in Coalmine", 500, "The log of the service has the details.")


def _parameter_problem(error: Any) -> Problem:
    """Say what is wrong with a parameter of a route; bodies are parsed by the routes and never come here."""
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
"""Texts of an address are parsed, unlike values of JSON; `validation_messages` speaks of the latter."""
