"""Errors on the wire: one table from our error tree to problem+json (RFC 9457), each with a stable type."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from app.domain.errors import (
    CoalmineError,
    ConfigurationError,
    ConflictError,
    FileManagedError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    Problem,
    StoreUnavailableError,
    UnauthorizedError,
)

logger = logging.getLogger("coalmine.api")

# Most particular first: the first class an error is an instance of decides.
PROBLEMS: tuple[tuple[type[CoalmineError], int, str, str], ...] = (
    (InvalidInputError, 422, "invalid-input", "The request cannot be used"),
    (NotFoundError, 404, "not-found", "There is no such thing"),
    (FileManagedError, 409, "file-managed", "This is managed by a canary file"),
    (ConflictError, 409, "conflict", "This cannot be done now"),
    (UnauthorizedError, 401, "unauthorized", "A key is needed"),
    (ForbiddenError, 403, "forbidden", "This key does not reach that far"),
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
    body: dict[str, Any] = {"type": f"/problems/{slug}", "title": title, "status": status, "detail": detail}
    if errors:
        body["errors"] = [
            {name: value for name in ("file", "line", "path", "message") if (value := getattr(error, name)) is not None}
            for error in errors
        ]
    return JSONResponse(
        body,
        status_code=status,
        media_type="application/problem+json",
        headers=headers,
    )


def as_problem(error: CoalmineError) -> JSONResponse:
    """Render one of our errors."""
    status, slug, title = next((row[1:] for row in PROBLEMS if isinstance(error, row[0])), (500, "error", "Error"))
    errors = error.problems if isinstance(error, InvalidInputError) else ()
    headers = {"WWW-Authenticate": 'Bearer realm="coalmine"'} if isinstance(error, UnauthorizedError) else {}
    if isinstance(error, StoreUnavailableError):
        headers = {"Retry-After": "5"}
        logger.error("store_unavailable", extra={"detail": str(error)})
    return problem(slug, title, status, str(error), errors, headers)


def install_problems(app: FastAPI) -> None:
    """Make every error leave as problem+json; only bugs are logged with a trace."""

    @app.exception_handler(CoalmineError)
    async def on_ours(_request: Request, error: CoalmineError) -> JSONResponse:
        return as_problem(error)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        problems = [Problem(path=_path(item["loc"]), message=item["msg"]) for item in error.errors()]
        return as_problem(InvalidInputError(problems))

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


def _path(location: Sequence[Any]) -> str:
    """Write a location as people do: `canaries[3].query`, without FastAPI's leading `body`."""
    parts = location[1:] if location and location[0] in {"body", "query", "path", "header"} else location
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "body"
