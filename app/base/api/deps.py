"""Authentication and authorisation: one dependency for every route, sessions; the injected store, vault and worker.

A route needs scope `read` for GET and `write` for everything else, unless `needs` sets another. A session is an
encrypted cookie that names a key; it lasts twelve hours, and less where it is ended or its key revoked.
"""

import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from itertools import islice
from secrets import token_urlsafe
from typing import Annotated, TypedDict, cast
from urllib.parse import urlsplit

import anyio.to_thread
from anyio import CapacityLimiter
from cryptography.fernet import InvalidToken
from fastapi import Depends, Request
from starlette.requests import cookie_parser

from app.base.api.requests import Attempts, RouteT, Turns, expect_token, sub_path
from app.base.db import keys
from app.base.db.engine import Store
from app.base.db.keys import OPEN, Identity, Scope
from app.base.documents.fields import MOST_PROBLEMS, did_you_mean
from app.base.errors import (
    CoalmineError,
    ForbiddenError,
    InvalidInputError,
    Problem,
    StoreUnavailableError,
    UnauthorizedError,
)
from app.base.vault import Vault

SESSION_COOKIE = "coalmine_session"
EXEMPT = ("/livez", "/readyz", "/login")
"""The routes without authentication; static files are no routes and need none either."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Configuration of authentication, set when the app is created."""

    store: Store
    vault: Vault
    loopback: bool
    metrics_token: str | None = None
    unknown_keys: Attempts = field(default_factory=Attempts)
    turns: Turns = field(default_factory=Turns)
    lookups: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(4))
    """Threads for looking up identities, so that /metrics and waiting routes answer under load."""
    waiting: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(8))
    """Threads for routes that wait for a run."""
    scrapers: dict[tuple[str | None, str | None], Identity] = field(default_factory=dict, repr=False)
    """Recent scrapers by key and Host header: they still get `coalmine_store_up 0` when the store is gone."""


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
    if path in EXEMPT:
        return
    key = _bearer(request)
    if path == _METRICS and _is_metrics_token(key, access):
        return
    session = read_session(request, access) if key is None else None
    identify = _identify_scraper if path == _METRICS else _identify
    try:
        identity = await anyio.to_thread.run_sync(identify, request, access, key, session, limiter=access.lookups)
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


async def may_read(request: Request) -> bool:
    """Whether the caller of a route without authentication may read; False while the store is gone."""
    access: Access = request.app.state.access
    key = _bearer(request)
    session = read_session(request, access) if key is None else None
    try:
        identity = await anyio.to_thread.run_sync(_identify, request, access, key, session, limiter=access.lookups)
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
    """Return the identity of a session whose key is not revoked; None without one. Raises StoreUnavailableError."""
    access: Access = request.app.state.access
    session = read_session(request, access)
    try:
        return keys.identify_session(access.store, session["key"], session["csrf"]) if session is not None else None
    except UnauthorizedError:
        return None


_ELSEWHERE = {
    "measures_version": (
        "is for the health, runs and series of a check, and for a run with its results and report; elsewhere numbers "
        "are as recorded"
    )
}
"""Messages for parameters that only other routes have."""


async def refuse_unknown_parameters(request: Request) -> None:
    """Raise InvalidInputError for parameters the route does not have: a misspelt one would silently do nothing."""
    names = [field.alias for field in request.scope["route"].dependant.query_params]
    unknown = islice((name for name in request.query_params if name not in names), MOST_PROBLEMS)
    problems = [
        Problem(path=name[:60], message=_ELSEWHERE.get(name) or f"unknown parameter{did_you_mean(name, names)}")
        for name in unknown
    ]
    if problems:
        raise InvalidInputError(problems)


def _is_metrics_token(key: str | None, access: Access) -> bool:
    if not key or not access.metrics_token:
        return False
    return compare_digest(key.encode(), access.metrics_token.encode())


def _identify(request: Request, access: Access, key: str | None, session: Session | None) -> Identity:
    if key is not None:
        return keys.identify(access.store, key, now=datetime.now(UTC))
    if session is not None:
        return keys.identify_session(access.store, session["key"], session["csrf"])
    if not access.loopback or keys.any_key_ever(access.store):
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


def open_session(access: Access, identity: Identity) -> str:
    """Return the session cookie of a browser; encrypted, so that it cannot be forged."""
    content = {"key": identity.key_prefix, "csrf": token_urlsafe(16), "at": int(time.time())}
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
    try:
        session = access.vault.decrypt_session(cookie.encode(), _SESSION_SECONDS)
    except (InvalidToken, ValueError):  # of another key, too old, or no session
        return None
    whole = isinstance(session, dict) and session.keys() == Session.__required_keys__
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
