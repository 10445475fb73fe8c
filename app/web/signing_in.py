"""Signing in with a key and out again. A browser then holds an encrypted cookie, never the key."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from app.api.deps import SESSION_COOKIE, Access, close_session, needs, open_session, visitor
from app.domain.errors import ForbiddenError, InvalidInputError, Problem, UnauthorizedError
from app.services.catalog import api_keys
from app.services.catalog.api_keys import Identity, Scope
from app.web.rendering import render

router = APIRouter(include_in_schema=False)

_LONGEST_FORM = 8_192
_LONGEST_KEY = 500
_PAUSE_SECONDS = 0.3

# Not the routes' threads: whoever guesses keys must not keep others from their pages.
_SIGN_INS = CapacityLimiter(2)


class Attempts:
    """A bucket of failed sign-ins for the whole process, refilled with time. Keys are too long to be guessed anyway."""

    def __init__(self, *, most: int = 20, per_second: float = 0.5, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._per_second, self._clock = most, per_second, clock
        self._left, self._at = float(most), clock()

    def wait_seconds(self) -> float:
        """Give how long until the next attempt is let through; 0 = now."""
        self._refill()
        return 0.0 if self._left >= 1 else (1 - self._left) / self._per_second

    def failed(self) -> None:
        """Count a failed attempt."""
        self._refill()
        self._left = max(0.0, self._left - 1)

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(float(self._most), self._left + (now - self._at) * self._per_second)
        self._at = now


@router.get("/login", response_class=HTMLResponse)
def show_login(request: Request, next: str = "") -> HTMLResponse:  # noqa: A002 - the name in the address
    """Show the form, or that none is needed; to whoever is signed in already, how to go on."""
    access: Access = request.app.state.access
    request.state.identity = visitor(request)
    is_open = access.loopback and not api_keys.any_key_ever(access.store)
    return render(request, "login.html", following=safe_path(next), is_open=is_open, message=None)


@router.post("/login")
async def log_in(request: Request) -> Response:
    """Open a session for a good key; a page with a message for any other."""
    _refuse_other_sites(request)
    attempts: Attempts = request.app.state.failed_sign_ins
    key, following = await _read_form(request)
    access: Access = request.app.state.access
    try:
        identity = await anyio.to_thread.run_sync(_identify, access, key, limiter=_SIGN_INS)
    except UnauthorizedError:
        # Counted after the look-up: a good key always gets in, however many bad ones others try.
        wait = attempts.wait_seconds()
        attempts.failed()
        await anyio.sleep(_PAUSE_SECONDS)
        if not wait:
            return _refused(request, following, 401, "This key is unknown or has been revoked.")
        refused = _refused(request, following, 429, "Too many failed attempts. Wait a moment and try again.")
        refused.headers["retry-after"] = str(int(wait) + 1)
        return refused
    response = RedirectResponse(following, status_code=303)
    response.set_cookie(
        SESSION_COOKIE,
        open_session(access, identity),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https" or request.app.state.links.public_url.startswith("https://"),
        path="/",
    )
    return response


@router.post("/logout")
@needs(Scope.READ)
def log_out(request: Request) -> Response:
    """End the browser's session."""
    close_session(request, request.app.state.access)
    response = RedirectResponse("/login", status_code=303)
    response.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="strict")
    return response


def safe_path(wanted: str) -> str:
    """Give where to go after signing in: a path on this host, else the overview."""
    plain = wanted.isprintable() and "\\" not in wanted and wanted.startswith("/") and not wanted.startswith("//")
    return wanted if plain else "/"


def _identify(access: Access, key: str) -> Identity:
    return api_keys.identify(access.store, key, now=datetime.now(UTC))


def _refused(request: Request, following: str, status: int, message: str) -> HTMLResponse:
    return render(request, "login.html", status=status, following=following, is_open=False, message=message)


async def _read_form(request: Request) -> tuple[str, str]:
    """Read the key and where to go, of a form no larger than it can be: nobody has signed in yet."""
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > _LONGEST_FORM:
        raise InvalidInputError([Problem(path="body", message=f"must be a form of at most {_LONGEST_FORM} bytes")])
    async with request.form(max_files=0, max_fields=4) as form:
        key, following = form.get("key", ""), form.get("next", "")
    if not isinstance(key, str) or not isinstance(following, str):
        raise InvalidInputError([Problem(path="key", message="must be a text")])
    return key.strip()[:_LONGEST_KEY], safe_path(following)


def _refuse_other_sites(request: Request) -> None:
    """Refuse a form another site sends: it would sign this browser in as somebody else."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        foreign = site not in {"same-origin", "none"}
    else:
        own = {request.headers.get("host", ""), urlsplit(request.app.state.links.public_url).netloc}
        foreign = origin is not None and urlsplit(origin).netloc not in own
    if foreign:
        raise ForbiddenError("sign in on the page of this service itself")
