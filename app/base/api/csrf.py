"""The CSRF token of a session: in a header or in the body of a form, never in an address, which logs contain.

Checking the token parses the form, once, for the route as well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any, TypeVar

from fastapi import Request
from starlette.datastructures import FormData

from app.base.api.sub_path import route_path
from app.base.errors import ForbiddenError, TooLargeError

CSRF_FIELD = "csrf"
CSRF_HEADER = "x-csrf-token"
LONGEST_FIELD = 5_000_000
"""Bytes of a text field; files have the limit of all bodies."""
LARGE_FORM = 10_000_000
"""Bytes of a form that carries files or an answer: those of all bodies."""
_FORM = 1_000_000
_API = "/v1/"

RouteT = TypeVar("RouteT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class FormLimits:
    """Limits of a route's form, without the token."""

    fields: int = 200
    files: int = 0
    most_bytes: int = _FORM
    """Of the whole form: it is read in the thread that everybody waits for, at up to a microsecond a byte."""


def takes_form(*, fields: int = 200, files: int = 0, most_bytes: int = _FORM) -> Callable[[RouteT], RouteT]:
    """Return a decorator that sets the form limits of a route."""

    def mark(route: RouteT) -> RouteT:
        route.__dict__["form_limits"] = FormLimits(fields=fields, files=files, most_bytes=most_bytes)
        return route

    return mark


async def read_form_data(request: Request) -> FormData:
    """Return the form of a request, parsed on the first call. Raises TooLargeError beyond the limits of its route."""
    limits: FormLimits = getattr(request.scope.get("endpoint"), "form_limits", FormLimits())
    size = request.headers.get("content-length", "" if "transfer-encoding" in request.headers else "0")
    if not size.isdecimal() or int(size) > limits.most_bytes:
        raise TooLargeError(f"this form may have at most {limits.most_bytes:,} bytes, and must say how many")
    return await request.form(
        max_files=limits.files, max_fields=limits.fields + 1, max_part_size=LONGEST_FIELD
    )  # the one more is the token


async def expect_token(request: Request, token: str) -> None:
    """Raise ForbiddenError unless a write of a session has its token; for routes of the API, in the header."""
    given: Any = request.headers.get(CSRF_HEADER)
    in_address = CSRF_FIELD in request.query_params
    if given is None and not in_address and not route_path(request.scope).startswith(_API):
        given = (await read_form_data(request)).get(CSRF_FIELD)
    if in_address or not isinstance(given, str) or not compare_digest(given.encode(), token.encode()):
        await request.close()
        raise ForbiddenError("the CSRF token of the page is missing or old; reload the page")
