"""Who may: the one dependency that covers every route, and what routes get handed.

A route needs scope `read` for GET and `write` for everything else, unless `needs` says otherwise.
"""

import ipaddress
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import anyio.to_thread
from anyio import CapacityLimiter
from cryptography.fernet import InvalidToken
from fastapi import Depends, Request

from app.domain.errors import ForbiddenError, UnauthorizedError
from app.services import keys
from app.services.keys import OPEN, Identity, Scope
from app.services.vault import Vault
from app.store.engine import Store

SESSION_COOKIE = "coalmine_session"
CSRF_FIELD = "csrf"
CSRF_HEADER = "x-csrf-token"
_EXEMPT = ("/livez", "/readyz", "/login", "/static/")
_SAFE = {"GET", "HEAD", "OPTIONS"}
_SESSION_SECONDS = 12 * 3600

# Identities are looked up in threads of their own, so that /metrics and event streams answer while every
# thread of the routes is busy.
_LOOKUPS = CapacityLimiter(4)

RouteT = TypeVar("RouteT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What decides who may: handed to the app once, at its creation."""

    store: Store
    vault: Vault
    loopback: bool
    metrics_token: str | None = None


def needs(scope: Scope) -> Callable[[RouteT], RouteT]:
    """Mark a route as needing another scope than its method implies."""

    def mark(route: RouteT) -> RouteT:
        route.__dict__["needs_scope"] = scope
        return route

    return mark


async def authorise(request: Request) -> None:
    """Let the request through or raise UnauthorizedError or ForbiddenError; the identity goes into its state."""
    access: Access = request.app.state.access
    path = request.url.path
    if path.startswith(_EXEMPT):
        return
    presented = _bearer(request)
    if path == "/metrics" and _is_metrics_token(presented, access):
        return
    identity = await anyio.to_thread.run_sync(_identify, request, access, presented, limiter=_LOOKUPS)
    endpoint = request.scope.get("endpoint")
    default = Scope.READ if request.method in _SAFE else Scope.WRITE
    keys.require(identity, getattr(endpoint, "needs_scope", default))
    request.state.identity = identity


def _is_metrics_token(presented: str | None, access: Access) -> bool:
    if not presented or not access.metrics_token:
        return False
    return compare_digest(presented.encode(), access.metrics_token.encode())


def _identify(request: Request, access: Access, presented: str | None) -> Identity:
    if presented is not None:
        return keys.identify(access.store, presented, now=datetime.now(UTC))
    if SESSION_COOKIE in request.cookies:
        return _session_identity(request, access)
    if not access.loopback or keys.any_key_ever(access.store):
        raise UnauthorizedError("send a key as `Authorization: Bearer ...`, or sign in at /login")
    if not _is_loopback_name(request.headers.get("host", "")):
        raise ForbiddenError("without keys the service answers only to loopback names such as localhost")
    origin = request.headers.get("origin")
    if request.method not in _SAFE and origin is not None and not _is_loopback_name(urlsplit(origin).netloc):
        raise ForbiddenError("without keys the service takes no writes from other sites")
    return OPEN


def _session_identity(request: Request, access: Access) -> Identity:
    session = read_session(request, access)
    if session is None:
        raise UnauthorizedError("the session has ended; sign in at /login")
    if request.method not in _SAFE:
        given = request.headers.get(CSRF_HEADER) or request.query_params.get(CSRF_FIELD) or ""
        if not compare_digest(given.encode(), str(session["csrf"]).encode()):
            raise ForbiddenError("the CSRF token of the page is missing or old; load the page again")
    return keys.identify_prefix(access.store, session["key"])


def open_session(access: Access, identity: Identity) -> str:
    """Make the cookie of a signed-in browser: encrypted, so nobody else can make one."""
    content = {"key": identity.key_prefix, "csrf": token_urlsafe(16), "at": int(time.time())}
    return (access.vault.encrypt(content) or b"").decode()


def read_session(request: Request, access: Access) -> dict[str, Any] | None:
    """Read the session cookie; None where there is none that still holds."""
    cookie = request.cookies.get(SESSION_COOKIE)
    if not cookie:
        return None
    try:
        session = access.vault.decrypt_session(cookie.encode(), _SESSION_SECONDS)
    except (InvalidToken, json.JSONDecodeError):
        return None
    return session


def csrf_token(request: Request) -> str:
    """Give the token a page puts into its forms; empty where there is no session."""
    session = read_session(request, request.app.state.access)
    return str(session["csrf"]) if session else ""


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_loopback_name(netloc: str) -> bool:
    try:
        name = urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return False
    return is_loopback(name)


def _bearer(request: Request) -> str | None:
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" and credentials.strip() else None


def _store(request: Request) -> Store:
    store: Store = request.app.state.access.store
    return store


def _vault(request: Request) -> Vault:
    vault: Vault = request.app.state.access.vault
    return vault


StoreDep = Annotated[Store, Depends(_store)]
VaultDep = Annotated[Vault, Depends(_vault)]
