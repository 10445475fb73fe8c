"""What stands before every route: limits and tokens of forms, two brakes, and who may ask.

The brakes are of this process: how often keys may be guessed, and how much expensive work one key may have under way.
Then where the service is mounted. Below: authentication and authorisation, one dependency for every route. A route
needs scope `read` for GET and `write` for everything else, unless `needs` sets another. A session is an encrypted
cookie that names a key; it lasts twelve hours, and less where it is ended or its key revoked. At the end the injected
store, vault and worker.
"""

import ipaddress
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from itertools import chain, islice
from secrets import token_urlsafe
from threading import RLock
from typing import Annotated, Any, NotRequired, TypedDict, TypeVar, cast
from urllib.parse import urlsplit

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.datastructures import FormData, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse
from starlette.routing import compile_path, get_name
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from app.base.api.trusted_proxies import PERSON, TrustedProxies
from app.base.db import keys
from app.base.db.engine import Store
from app.base.db.keys import OPEN, Identity, Scope, Vault
from app.base.documents.fields import MOST_PROBLEMS, did_you_mean
from app.base.errors import (
    BusyError,
    CoalmineError,
    ConfigurationError,
    ForbiddenError,
    InvalidInputError,
    Problem,
    StoreUnavailableError,
    TooLargeError,
    TooManyRequestsError,
    UnauthorizedError,
)
from app.base.values import Value

CSRF_FIELD = "csrf"
CSRF_HEADER = "x-csrf-token"
LONGEST_FIELD = 5_000_000
"""Bytes of a text field; files have the limit of all bodies."""
LARGE_FORM = 10_000_000
"""Bytes of a form that carries files or an answer: those of all bodies."""
_FORM = 1_000_000
_API = "/v1/"
RouteT = TypeVar("RouteT", bound=Callable[..., Any])


class FormLimits(Value):
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

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
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


def sub_path(scope: AsgiScope) -> str:
    """Return the path of the service within its host; "" = the root."""
    path: str = scope.get("app_root_path", scope.get("root_path", ""))  # a mounted app has a root of its own
    return path


def route_path(scope: AsgiScope) -> str:
    """Return the path of a request from the root of the service."""
    return _without(sub_path(scope), scope["path"])


def _without(path: str, address: str) -> str:
    return address[len(path) :] if address == path or address.startswith(f"{path}/") else address


# Apart from the routes' threads, so that retrievers that hang block no pages.
PROBE_LIMITER = CapacityLimiter(4)

# Reading a large pasted response waits for no retriever.
PARSE_LIMITER = CapacityLimiter(4)
SESSION_COOKIE = "coalmine_session"
EXEMPT = ("/livez", "/readyz", "/login", "/login/oidc", "/login/oidc/callback")
"""The routes without authentication; static files are no routes and need none either."""
PUBLIC = ("/public/{token}.svg", "/public/{token}")
"""The routes whose address is their secret."""
_METRICS = "/metrics"
_MOST_SCRAPERS = 16
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_SAFE = {"GET", "HEAD", "OPTIONS"}
_SESSION_SECONDS = 12 * 3600


class Session(TypedDict):
    """Content of the session cookie: the prefix of a key, the token of forms, and the second it was opened."""

    key: str
    csrf: str
    at: int
    groups: NotRequired[list[str]]
    """Set where a provider signed somebody in, whose name is in the place of the prefix: those that have a scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Configuration of authentication, set when the app is created."""

    store: Store
    vault: Vault
    loopback: bool
    metrics_token: str | None = None
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    has_provider: bool = False
    """Whether an OpenID provider signs people in."""
    unknown_keys: Attempts = field(default_factory=Attempts)
    turns: Turns = field(default_factory=Turns)
    lookups: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(4))
    """Threads for looking up identities, so that /metrics and waiting routes answer under load."""
    waiting: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(8))
    """Threads for routes that wait for a run."""
    scrapers: dict[tuple[str | None, str | None], Identity] = field(default_factory=dict, repr=False)
    """Recent scrapers by key and Host header: they still get `coalmine_store_up 0` when the store is gone."""

    @property
    def knows_people(self) -> bool:
        """Whether people are signed in by others: then nobody gets in unasked, with or without keys."""
        return self.has_provider or bool(self.proxies.networks)


def needs(scope: Scope, *instead: Scope) -> Callable[[RouteT], RouteT]:
    """Return a decorator that sets the scope of a route, where its method implies another; any of several will do."""

    def mark(route: RouteT) -> RouteT:
        route.__dict__["needs_scope"] = (scope, *instead)
        return route

    return mark


async def authorise(request: Request) -> None:
    """Set the identity of a request, or raise UnauthorizedError, TooManyRequestsError or ForbiddenError."""
    access: Access = request.app.state.access
    path = request.scope["route"].path
    if path in EXEMPT or path in PUBLIC:
        return
    key = _bearer(request)
    if path == _METRICS and _is_metrics_token(key, access):
        return
    session = read_session(request, access) if key is None else None
    identify = _identify_scraper if path == _METRICS else _identify
    try:
        identity, session = await _caller(request, access, key, session, identify)
    except UnauthorizedError:
        if key is not None:
            access.unknown_keys.count_failure()  # after the look-up: a valid key is never limited
        raise
    endpoint = request.scope.get("endpoint")
    default = Scope.READ if request.method in _SAFE else Scope.WRITE
    keys.require(identity, *getattr(endpoint, "needs_scope", (default,)))
    if session is not None and request.method not in _SAFE:
        await expect_token(request, session["csrf"])
    request.state.identity = identity


async def _caller(
    request: Request, access: Access, key: str | None, session: Session | None, identify: Callable[..., Identity]
) -> tuple[Identity, Session | None]:
    """Return who asks, by a key, else a session, else what a trusted proxy says; and the session if it is by that."""
    proxied = access.proxies.identify(request) if key is None and session is None else None
    if proxied is not None:
        return proxied, None
    try:
        found = await anyio.to_thread.run_sync(identify, request, access, key, session, limiter=access.lookups)
    except UnauthorizedError:
        proxied = access.proxies.identify(request) if session is not None else None  # the session has ended
        if proxied is None:
            raise
        return proxied, None
    return found, session


async def may_read(request: Request) -> bool:
    """Whether the caller of a route without authentication may read; False while the store is gone."""
    access: Access = request.app.state.access
    key = _bearer(request)
    session = read_session(request, access) if key is None else None
    try:
        identity, _ = await _caller(request, access, key, session, _identify)
        keys.require(identity, Scope.READ)
    except CoalmineError:
        return False
    return True


async def identify_visitor(request: Request) -> None:
    """Set the identity of a request that matched no route, if there is one. Raises StoreUnavailableError."""
    if not hasattr(request.state, "identity"):
        access: Access = request.app.state.access
        request.state.identity = await anyio.to_thread.run_sync(visitor, request, limiter=access.lookups)


def visitor(request: Request) -> Identity | None:
    """Return the identity of a session whose key is not revoked, or of whoever others sign in; None without one.

    Raises StoreUnavailableError.
    """
    access: Access = request.app.state.access
    session = read_session(request, access)
    if session is not None:
        with suppress(UnauthorizedError, ForbiddenError):
            return _identify_session(access, session)
    with suppress(UnauthorizedError, ForbiddenError):
        return access.proxies.identify(request)
    return None


_ELSEWHERE = {
    "measures_version": (
        "is for the health, runs, series and heat map of a check, and for a run with its results and report; elsewhere "
        "numbers are as recorded"
    )
}
"""Messages for parameters that only other routes have."""


async def refuse_unknown_parameters(request: Request) -> None:
    """Raise InvalidInputError for parameters the route does not have: a misspelt one would silently do nothing."""
    names = _parameters(request.scope["route"].dependant)
    unknown = islice((name for name in request.query_params if name not in names), MOST_PROBLEMS)
    problems = [
        Problem(path=name[:60], message=_ELSEWHERE.get(name) or f"unknown parameter{did_you_mean(name, names)}")
        for name in unknown
    ]
    if problems:
        raise InvalidInputError(problems)


def _parameters(dependant: Dependant) -> list[str]:
    """Return the names of the parameters of a route and of what it depends on."""
    below = chain.from_iterable(map(_parameters, dependant.dependencies))
    return [*(field.alias for field in dependant.query_params), *below]


class Route(APIRoute):
    """A route that asks who calls and takes a turn, and is prepared when first asked for.

    FastAPI reads the types and builds the schemas of all routes as they are declared: a third of a start.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.path, self.endpoint = path, endpoint
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.name = options.get("name") or get_name(endpoint)
        self.methods = set(options.get("methods") or ("GET",))
        dependencies = [Depends(authorise), Depends(take_turn), *(options.get("dependencies") or ())]
        self._options = {**options, "dependencies": dependencies, "generate_unique_id_function": _name_of}

    def __getattr__(self, name: str) -> Any:
        """Return what only a prepared route has."""
        with _PREPARING:  # the description of the API is made in a thread
            options = self.__dict__.pop("_options", None)
            if options is not None:
                super().__init__(self.path, self.endpoint, **options)
        return object.__getattribute__(self, name)


_PREPARING = RLock()


def _name_of(route: APIRoute) -> str:
    return route.name  # what generators call the function for it


def plain_router(**options: Any) -> APIRouter:
    """Return a router with these options of FastAPI's; `route_class` is a `Route`, or one made of it."""
    return APIRouter(**{"route_class": Route, **options})


def api_router(*tags: str, route_class: type[Route] = Route) -> APIRouter:
    """Return a router of the REST API."""
    known = [Depends(refuse_unknown_parameters)]
    return plain_router(prefix="/v1", tags=[*tags], dependencies=known, route_class=route_class)


def page_router() -> APIRouter:
    """Return a router of pages."""
    return plain_router(include_in_schema=False, default_response_class=HTMLResponse)


def _is_metrics_token(key: str | None, access: Access) -> bool:
    if not key or not access.metrics_token:
        return False
    return compare_digest(key.encode(), access.metrics_token.encode())


def _identify(request: Request, access: Access, key: str | None, session: Session | None) -> Identity:
    if key is not None:
        return keys.identify(access.store, key, now=datetime.now(UTC))
    if session is not None:
        return _identify_session(access, session)
    if not access.loopback or access.knows_people or keys.any_key_ever(access.store):
        sign_in = f"{sub_path(request.scope)}/login"
        raise UnauthorizedError(f"send a key as `Authorization: Bearer ...`, or sign in at {sign_in}")
    host = request.headers.get("host", "")
    if not is_loopback_name(host):
        raise ForbiddenError("without keys the service answers only to loopback names such as localhost")
    if any(name in request.headers for name in _FORWARDED):
        raise ForbiddenError("without keys the service does not answer behind a proxy; create a key first")
    origin = request.headers.get("origin")
    if request.method not in _SAFE and origin is not None and urlsplit(origin).netloc != host:
        raise ForbiddenError("without keys the service accepts no writes from other sites")
    return OPEN


def _identify_session(access: Access, session: Session) -> Identity:
    """Return whose a session is. Raises UnauthorizedError, and ForbiddenError for somebody who lost their scope."""
    if "groups" not in session:
        return keys.identify_session(access.store, session["key"], session["csrf"])
    keys.require_session(access.store, session["csrf"])
    if not access.has_provider:
        raise UnauthorizedError("nobody is signed in by a provider any more; sign in again")
    return access.proxies.person(session["key"].removeprefix(PERSON), session["groups"])


def _identify_scraper(request: Request, access: Access, key: str | None, session: Session | None) -> Identity:
    """Return the identity of a scraper; while the store is gone, recent scrapers keep theirs and see the outage."""
    if key is None and SESSION_COOKIE in request.cookies:
        return _identify(request, access, key, session)
    if key is not None and access.loopback and access.metrics_token is None and not _any_key(access):
        key = None  # open to everybody on this machine: a scraper configured with a token is no stranger
    scraper = (key, request.headers.get("host"))
    try:
        identity = _identify(request, access, key, session)
    except StoreUnavailableError:
        if scraper in access.scrapers:
            return access.scrapers[scraper]
        raise
    except CoalmineError:
        access.scrapers.pop(scraper, None)
        raise
    if len(access.scrapers) < _MOST_SCRAPERS:
        access.scrapers[scraper] = identity
    return identity


def _any_key(access: Access) -> bool:
    try:
        return keys.any_key_ever(access.store)
    except StoreUnavailableError:
        return True  # not known, so the token is checked


def open_session(access: Access, identity: Identity, groups: Collection[str] | None = None) -> str:
    """Return the session cookie of a browser; encrypted, so that it cannot be forged. `groups`: as in `Session`."""
    content: dict[str, object] = {"key": identity.key_prefix, "csrf": token_urlsafe(16), "at": int(time.time())}
    if groups is not None:
        content["groups"] = access.proxies.groups_with_scope(groups)
    return (access.vault.encrypt(content) or b"").decode()


def close_session(request: Request, access: Access) -> None:
    """End the session of a browser: its cookie is invalid from now on."""
    session = read_session(request, access)
    if session is not None:
        now = datetime.now(UTC)
        expires_at = datetime.fromtimestamp(session["at"], UTC) + timedelta(seconds=_SESSION_SECONDS)
        keys.end_session(access.store, session["csrf"], expires_at=expires_at, now=now)


def read_session(request: Request, access: Access) -> Session | None:
    """Return the content of the session cookie; None where it is absent, expired or of another service.

    Cookies ignore ports, so another service on this machine may have set it.
    """
    cookie = _session_cookie(request)
    if not cookie:
        return None
    session = access.vault.decrypt_session(cookie.encode(), _SESSION_SECONDS)
    whole = isinstance(session, dict) and session.keys() - Session.__optional_keys__ == Session.__required_keys__
    return cast("Session", session) if whole else None


def _session_cookie(request: Request) -> str | None:
    """Return the first session cookie: of several, browsers send that of the longest path first, which is ours."""
    parts = (cookie_parser(part) for header in request.headers.getlist("cookie") for part in header.split(";"))
    return next((cookies[SESSION_COOKIE] for cookies in parts if SESSION_COOKIE in cookies), None)


def csrf_token(request: Request) -> str:
    """Return the CSRF token for the forms of a page; empty without a session."""
    session = read_session(request, request.app.state.access)
    return str(session["csrf"]) if session else ""


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_loopback_name(netloc: str) -> bool:
    """Whether the host of an address is this machine's own."""
    try:
        name = urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return False
    return is_loopback(name)


def _bearer(request: Request) -> str | None:
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" and credentials.strip() else None


async def _store(request: Request) -> Store:
    store: Store = request.app.state.access.store
    return store


async def _vault(request: Request) -> Vault:
    vault: Vault = request.app.state.access.vault
    return vault


# Coroutines, because plain functions would each take one of the route threads, which may all be busy.
StoreDep = Annotated[Store, Depends(_store)]
VaultDep = Annotated[Vault, Depends(_vault)]


def wake(request: Request) -> None:
    """Wake the embedded worker, if there is one."""
    if request.app.state.worker is not None:
        request.app.state.worker.wake()
