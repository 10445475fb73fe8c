"""What is taken from a request before a route acts on it: forms and their tokens, and where the service is mounted.

Beside them two brakes of this process: how often keys may be guessed, and how much expensive work one key may have
under way.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any, TypeVar
from urllib.parse import urlsplit

from anyio import CapacityLimiter
from fastapi import Request
from starlette.datastructures import FormData, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.base.errors import BusyError, ConfigurationError, ForbiddenError, TooLargeError, TooManyRequestsError

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


logger = logging.getLogger("coalmine.api")

MOST_AT_A_TIME = 16
"""Expensive requests of all keys under way in a process; other requests have the threads that are left."""
MOST_OF_A_KEY = 4
"""Of one key. The open service on loopback has no keys and no such limit."""
_RETRY_SECONDS = 2


class Attempts:
    """Rate limit of unknown keys for the whole process. Keys are too long to be guessed anyway."""

    def __init__(self, *, most: int = 20, per_second: float = 0.5, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._per_second, self._clock = most, per_second, clock
        self._left, self._at = float(most), clock()

    def count_failure(self) -> None:
        """Count a failed attempt. Raises TooManyRequestsError where there were too many before it."""
        now = self._clock()
        self._left = min(float(self._most), self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            raise TooManyRequestsError(
                "too many requests with unknown or revoked keys; wait a moment",
                retry_after_seconds=math.ceil((1 - self._left) / self._per_second),
            )
        self._left -= 1
        if self._left < 1:
            logger.warning("many_unknown_keys", extra={"detail": "further ones are answered 429 for a while"})


class Turns:
    """Expensive requests under way in this process."""

    def __init__(self, *, most: int = MOST_AT_A_TIME, most_of_a_key: int = MOST_OF_A_KEY) -> None:
        self._most, self._most_of_a_key = most, most_of_a_key
        self._taken: Counter[str | None] = Counter()

    @contextmanager
    def take(self, key: str | None) -> Iterator[None]:
        """Take a turn for the duration of the block. Raises TooManyRequestsError and BusyError where none is left."""
        if key is not None and self._taken[key] >= self._most_of_a_key:
            raise TooManyRequestsError(
                f"this key has {self._taken[key]} expensive requests under way, which is the limit; wait for one",
                retry_after_seconds=_RETRY_SECONDS,
            )
        if self._taken.total() >= self._most:
            raise BusyError(
                f"{self._most} expensive requests are under way, which is the limit of this process; wait for one"
            )
        self._taken[key] += 1
        try:
            yield
        finally:
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]


def expensive(route: RouteT) -> RouteT:
    """Mark a route that takes a turn: its work grows with a suite, or it waits for a retriever."""
    route.__dict__["is_expensive"] = True
    return route


async def take_turn(request: Request) -> AsyncIterator[None]:
    """Hold a turn while an expensive route is at work, also where its client has left. Raises as `Turns.take`."""
    if not getattr(request.scope.get("endpoint"), "is_expensive", False):
        yield
        return
    turns: Turns = request.app.state.access.turns
    with turns.take(request.state.identity.key_prefix):
        yield


_LEADING = ("location", "hx-redirect")
"""Headers that lead a browser or a program on."""


class SubPath:
    """ASGI middleware that puts the path of the service before the addresses of requests and of redirects."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on below the path, and complete where its response leads."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def completed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name in _LEADING:
                    if name in headers:
                        headers[name] = below(self._path, headers[name])
            await send(message)

        path = f"{self._path}{_without(self._path, scope['path']) or '/'}"
        await self._app({**scope, "root_path": self._path, "path": path}, receive, completed)


def path_of(public_url: str | None) -> str:
    """Return the path of a service within its host, without a slash at the end; "" = the root."""
    return urlsplit(public_url or "").path.rstrip("/")


def require_free(path: str, routes: Iterable[Any]) -> None:
    """Raise ConfigurationError where a path begins as pages of the service do.

    Of `/checks/checks` nobody could tell whether a proxy took the path of the service off.
    """
    first = path.split("/")[1] if path else None
    if first in {str(route.path).split("/")[1] for route in routes}:
        raise ConfigurationError(
            f"COALMINE_PUBLIC_URL: the path {path} begins like pages of Coalmine itself, /{first}; choose another, "
            "such as /coalmine"
        )


def below(path: str, address: str) -> str:
    """Return an address from the root of the service as one from the root of its host; others stay."""
    return f"{path}{address}" if address.startswith("/") and not address.startswith("//") else address


def sub_path(scope: Scope) -> str:
    """Return the path of the service within its host; "" = the root."""
    path: str = scope.get("app_root_path", scope.get("root_path", ""))  # a mounted app has a root of its own
    return path


def route_path(scope: Scope) -> str:
    """Return the path of a request from the root of the service."""
    return _without(sub_path(scope), scope["path"])


def _without(path: str, address: str) -> str:
    return address[len(path) :] if address == path or address.startswith(f"{path}/") else address


# Apart from the routes' threads, so that retrievers that hang block no pages.
PROBE_LIMITER = CapacityLimiter(4)


# Reading a large pasted response waits for no retriever.
PARSE_LIMITER = CapacityLimiter(4)
