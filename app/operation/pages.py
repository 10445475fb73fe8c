"""Pages of signing in, by a key or an OpenID provider, and out, and of keys. A browser gets a cookie, never a key.

`base.api.requests` makes the cookie, which is encrypted, and says for how long it is good. A key is shown once, in the
answer to the form that made it.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import cast
from urllib.parse import quote, urlencode, urlsplit

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from app.annotation.service import tasks
from app.base.api.requests import (
    SESSION_COOKIE,
    Access,
    StoreDep,
    close_session,
    is_loopback_name,
    needs,
    open_session,
    plain_router,
    sub_path,
    takes_form,
    visitor,
)
from app.base.db import keys
from app.base.db.engine import Store
from app.base.db.keys import Identity, KeyRow, Scope
from app.base.errors import (
    BusyError,
    CoalmineError,
    ForbiddenError,
    InvalidInputError,
    Problem,
    TooManyRequestsError,
    UnauthorizedError,
)
from app.base.values import Value, asdict
from app.base.views import time_text
from app.base.web.forms import Form, FormInput, problems_by_field, refuse_other, safe_path
from app.base.web.pages import render
from app.operation.domain import RETURN_PATH, Provider, SignInFlow

router = plain_router(include_in_schema=False)

logger = logging.getLogger("coalmine.api")
_FLOW_COOKIE = "coalmine_sign_in"
_FLOW_SECONDS = 600
_LONGEST_ANSWER = 4_000
_LONGEST_FORM = 8_192
_LONGEST_KEY = 500
_PAUSE_SECONDS = 0.3
_LOST_TO_HTTP = (
    "The key is right, but the browser did not keep the session: its cookie is for https alone, and this page came "
    "over http."
)
_LOST = "The key is right, but the browser did not keep the session. Allow cookies for this site, then sign in again."

# Threads of their own, so that guessing keys does not block pages.
_SIGN_INS = CapacityLimiter(2)

# The same for a provider that does not answer.
_PROVIDER_THREADS = CapacityLimiter(4)


@router.get("/login", response_class=HTMLResponse)
def show_login(request: Request, next: str = "", entered: bool = False) -> Response:  # noqa: A002, FBT001, FBT002 - as in the address
    """Show the form, that no key is needed, or that the browser is signed in already.

    A browser that was signed in a moment ago comes by here: with its cookie it goes on, without it is told why.
    """
    access: Access = request.app.state.access
    request.state.identity = visitor(request)
    following = safe_path(next)
    if entered and request.state.identity is not None:
        return RedirectResponse(following, status_code=303)
    if entered:
        return _refusal(request, following, 401, _LOST_TO_HTTP if _needs_https(request) else _LOST)
    is_open = access.loopback and not access.knows_people and not keys.any_key_ever(access.store)
    return _show(request, following, is_open=is_open)


@router.post("/login")
async def log_in(request: Request) -> Response:
    """Open a session for a valid key; show a message for any other."""
    _refuse_other_sites(request)
    key, following = await _read_form(request)
    access: Access = request.app.state.access
    try:
        identity = await anyio.to_thread.run_sync(_identify, access, key, limiter=_SIGN_INS)
    except UnauthorizedError:
        await anyio.sleep(_PAUSE_SECONDS)
        try:
            access.unknown_keys.count_failure()  # after the look-up: a valid key is never limited
        except TooManyRequestsError as error:
            refused = _refusal(request, following, 429, "Too many failed attempts. Wait a moment and try again.")
            refused.headers["retry-after"] = str(error.retry_after_seconds)
            return refused
        return _refusal(request, following, 401, "This key is unknown or has been revoked.")
    if following == "/" and identity.scope is Scope.ANNOTATE:
        following = "/annotate"
    response = RedirectResponse(_entered(following), status_code=303)
    _keep_session(request, response, open_session(access, identity))
    return response


def _entered(following: str) -> str:
    return f"/login?{urlencode({'next': following, 'entered': 'yes'})}"


def _keep_session(request: Request, response: Response, session: str) -> None:
    response.set_cookie(
        SESSION_COOKIE,
        session,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https" or _is_for_https(request),
        path=sub_path(request.scope) or "/",
    )


@router.get("/login/oidc")
async def leave_for_provider(request: Request, next: str = "") -> Response:  # noqa: A002 - as in the address
    """Lead to the OpenID provider, with what proves on the way back that this browser left."""
    provider: Provider | None = request.app.state.provider
    access: Access = request.app.state.access
    following = safe_path(next)
    if provider is None:
        return RedirectResponse("/login", status_code=303)
    try:
        address, flow = await anyio.to_thread.run_sync(provider.begin, following, limiter=_PROVIDER_THREADS)
    except (UnauthorizedError, BusyError) as error:
        return _not_signed_in(request, following, error)
    response = RedirectResponse(address, status_code=303)
    response.set_cookie(
        _FLOW_COOKIE,
        (access.vault.encrypt(flow) or b"").decode(),
        max_age=_FLOW_SECONDS,
        httponly=True,
        samesite="lax",  # the way back begins at the provider
        secure=request.url.scheme == "https" or _is_for_https(request),
        path=f"{sub_path(request.scope)}/login/oidc",
    )
    return response


@router.get(RETURN_PATH)
async def return_from_provider(request: Request) -> Response:
    """Open a session for whoever the provider signed in; show why not for everything else.

    The page leads on by itself: a browser that comes from another site sends no strict cookie before it does.
    """
    provider: Provider | None = request.app.state.provider
    access: Access = request.app.state.access
    if provider is None:
        return RedirectResponse("/login", status_code=303)
    flow = _read_flow(request, access)
    if flow is None:
        message = f"This sign-in has expired or belongs to another browser. Begin at {access.proxies.public_url}/login"
        return _without_flow(request, _refusal(request, "/", 401, message))
    following = safe_path(flow["next"])
    answer = {name: value[:_LONGEST_ANSWER] for name, value in request.query_params.items()}
    try:
        identity, groups = await anyio.to_thread.run_sync(
            _sign_in, access, provider, flow, answer, limiter=_PROVIDER_THREADS
        )
    except (UnauthorizedError, ForbiddenError, BusyError) as error:
        return _without_flow(request, _not_signed_in(request, following, error))
    if following == "/" and identity.scope is Scope.ANNOTATE:
        following = "/annotate"
    response = render(request, "operation/entered.html", name=identity.name, entered=_entered(following))
    _keep_session(request, response, open_session(access, identity, groups))
    return _without_flow(request, response)


def _sign_in(
    access: Access, provider: Provider, flow: SignInFlow, answer: Mapping[str, str]
) -> tuple[Identity, Collection[str]]:
    """Return who came back from the provider, and their groups; each way there leads back once."""
    now = datetime.now(UTC)
    if not keys.end_session(access.store, flow["state"], expires_at=now + timedelta(seconds=_FLOW_SECONDS), now=now):
        raise UnauthorizedError("this answer was used before")
    person = provider.finish(flow, answer)
    return access.proxies.person(person.name, person.groups), person.groups


def _read_flow(request: Request, access: Access) -> SignInFlow | None:
    """Return what this browser left with; None where it did not, or too long ago."""
    flow = access.vault.decrypt_session(request.cookies.get(_FLOW_COOKIE, "").encode(), _FLOW_SECONDS)
    return cast("SignInFlow", flow) if isinstance(flow, dict) and flow.keys() == SignInFlow.__required_keys__ else None


def _without_flow(request: Request, response: HTMLResponse) -> HTMLResponse:
    response.delete_cookie(_FLOW_COOKIE, path=f"{sub_path(request.scope)}/login/oidc", httponly=True, samesite="lax")
    return response


def _not_signed_in(request: Request, following: str, error: CoalmineError) -> HTMLResponse:
    """Return the page that says why a provider signed nobody in."""
    logger.warning("sign_in_refused", extra={"detail": str(error)})
    status = {UnauthorizedError: 401, ForbiddenError: 403}.get(type(error), 503)
    return _refusal(request, following, status, f"You are not signed in: {error}.")


@router.post("/logout")
@needs(Scope.READ, Scope.ANNOTATE)
def log_out(request: Request) -> Response:
    """End the browser's session."""
    close_session(request, request.app.state.access)
    response = RedirectResponse("/login", status_code=303)
    response.delete_cookie(SESSION_COOKIE, path=sub_path(request.scope) or "/", httponly=True, samesite="strict")
    return response


@router.get("/keys", response_class=HTMLResponse)
@needs(Scope.ADMIN)
def show_keys(request: Request, store: StoreDep, scope: str = "", next: str = "") -> HTMLResponse:  # noqa: A002 - as in the address
    """Show the API keys without their secrets, and a form for another one; `next`: where its owner is to begin."""
    refuse_other(scope, ("", *Scope), "scope")
    return _show_keys(request, store, Form(texts={"scope": scope, "next": safe_path(next) if next else ""}))


class MadeKey(Value):
    """A key that was just made; `old` is the one that it follows."""

    text: str
    name: str
    scope: Scope
    old: KeyRow | None = None


@router.post("/keys", response_class=HTMLResponse)
@needs(Scope.ADMIN)
@takes_form(fields=4)
def make_key(request: Request, store: StoreDep, form: FormInput) -> HTMLResponse:
    """Create a key and show it, this once."""
    refuse_other(form.get("scope"), tuple(Scope), "scope")
    scope, name = Scope(form.get("scope")), form.stripped("name")
    if scope is not Scope.ADMIN and not keys.any_key_ever(store):
        message = "The first key has to be an admin key, yours: from then on nobody gets in without one."
        first = Problem(path="scope", message=message)
        return _show_keys(request, store, form, problems=[first], status=422)
    try:
        text = keys.create_key(store, name=name, scope=scope, now=datetime.now(UTC))
    except InvalidInputError as error:
        return _show_keys(request, store, form, problems=error.problems, status=422)
    return _show_keys(request, store, form, made=MadeKey(text=text, name=name, scope=scope))


@router.post("/keys/{prefix}/successor", response_class=HTMLResponse)
@needs(Scope.ADMIN)
def rotate_key(request: Request, store: StoreDep, prefix: str) -> HTMLResponse:
    """Create a key of the same name and scope and show it, this once; the old one works until it is revoked."""
    old = keys.key_in_force(store, prefix)
    text = keys.create_key(store, name=old.name, scope=Scope(old.scope), now=datetime.now(UTC))
    made = MadeKey(text=text, name=old.name, scope=Scope(old.scope), old=old)
    task = tasks.task_of(store, old.name, now=datetime.now(UTC)) if made.scope is Scope.ANNOTATE else None
    following = "" if task is None else f"/tasks/{quote(task)}/annotate"
    return _show_keys(request, store, Form(texts={"next": following}), made=made)


@router.post("/keys/{prefix}/revoke")
@needs(Scope.ADMIN)
def end_key(request: Request, store: StoreDep, prefix: str) -> Response:
    """Revoke a key at once, with its sessions; not the last one of scope admin."""
    others = [one for one in keys.list_keys(store) if one.revoked_at is None and one.prefix != prefix]
    old = keys.key_in_force(store, prefix)
    if old.scope == Scope.ADMIN and not any(one.scope == Scope.ADMIN for one in others):
        why = Problem(path=None, message="this is the last key with scope admin: create another one first")
        return _show_keys(request, store, Form(), problems=[why], status=409)
    keys.revoke_key(store, prefix, now=datetime.now(UTC))
    return RedirectResponse("/keys", status_code=303)


def _show_keys(
    request: Request,
    store: Store,
    form: Form,
    *,
    problems: Sequence[Problem] = (),
    status: int = 200,
    made: MadeKey | None = None,
) -> HTMLResponse:
    found = [
        {
            **asdict(one),
            "created_at": time_text(one.created_at),
            "last_used_at": time_text(one.last_used_at),
            "revoked_at": time_text(one.revoked_at),
        }
        for one in keys.list_keys(store)
    ]
    is_first = not found
    if is_first and form.get("scope") not in {"", Scope.ADMIN}:  # what was asked for comes once there is an admin
        wanted = urlencode({"scope": form.get("scope"), "next": safe_path(form.get("next") or "/annotate")})
        form = Form(texts={"next": f"/keys?{wanted}", "name": form.get("name")})
    query = urlencode({"next": safe_path(form.get("next") or "/annotate")})
    invitation = f"{request.app.state.links.public_url}/login?{query}#key={made.text}" if made is not None else ""
    return render(
        request,
        "operation/keys.html",
        status=status,
        keys=[one for one in found if one["revoked_at"] is None],
        revoked=[one for one in found if one["revoked_at"] is not None],
        own=request.state.identity.key_prefix,
        scopes={Scope.ADMIN: _MEANINGS[Scope.ADMIN]} if is_first else _MEANINGS,
        is_first=is_first,
        sign_in=f"/login?{query}" if form.get("next") else "/login",
        following=safe_path(form.get("next") or "/keys"),
        typed=form,
        wrong=problems_by_field(problems, ("name", "scope")),
        made=made,
        invitation=invitation if made is not None and made.scope is Scope.ANNOTATE else "",
    )


_MEANINGS = {
    Scope.READ: "read: look at everything, change nothing",
    Scope.WRITE: "write: run checks, acknowledge, silence, change suites and checks",
    Scope.ADMIN: "admin: hooks, retrievers, keys and all else",
    Scope.ANNOTATE: "annotate: grade chunks and answers, and nothing else",
    Scope.INGEST: "ingest: send what users ask, such as traces, and nothing else",
}


def _identify(access: Access, key: str) -> Identity:
    return keys.identify(access.store, key, now=datetime.now(UTC))


def _refusal(request: Request, following: str, status: int, message: str) -> HTMLResponse:
    return _show(request, following, is_open=False, status=status, message=message)


def _show(
    request: Request, following: str, *, is_open: bool, status: int = 200, message: str | None = None
) -> HTMLResponse:
    secure_url = None
    if message == _LOST_TO_HTTP or _came_past_the_proxy(request):
        secure_url = f"{request.app.state.links.public_url}/login?{urlencode({'next': following})}"
    return render(
        request,
        "operation/login.html",
        status=status,
        following=following,
        is_open=is_open,
        provider=request.app.state.provider,
        message=message,
        secure_url=secure_url,
    )


def _is_for_https(request: Request) -> bool:
    return bool(request.app.state.links.public_url.startswith("https://"))


def _needs_https(request: Request) -> bool:
    """Whether the cookie is for https alone, and this request came by http or a proxy did not say by what."""
    return _is_for_https(request) and request.url.scheme == "http"


def _came_past_the_proxy(request: Request) -> bool:
    """Whether a browser would not keep the cookie, as far as a request tells: a proxy may not say what it got."""
    if not _needs_https(request) or is_loopback_name(request.headers.get("host", "")):
        return False
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    of_proxy = request.headers.get("host", "") == urlsplit(request.app.state.links.public_url).netloc
    return forwarded != "https" and (forwarded == "http" or not of_proxy)


async def _read_form(request: Request) -> tuple[str, str]:
    """Return key and target of the form, with a strict size limit: the caller is not authenticated."""
    length = request.headers.get("content-length", "")
    if not length.isdecimal() or int(length) > _LONGEST_FORM:
        raise InvalidInputError([Problem(path="body", message=f"must be a form of at most {_LONGEST_FORM} bytes")])
    async with request.form(max_files=0, max_fields=4) as form:
        key, following = form.get("key", ""), form.get("next", "")
    if not isinstance(key, str) or not isinstance(following, str):
        raise InvalidInputError([Problem(path="key", message="must be a text")])
    return key.strip()[:_LONGEST_KEY], safe_path(following)


def _refuse_other_sites(request: Request) -> None:
    """Raise ForbiddenError for a form of another site, which would sign this browser in as somebody else."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        foreign = site not in {"same-origin", "none"}
    else:
        own = {request.headers.get("host", ""), urlsplit(request.app.state.links.public_url).netloc}
        foreign = origin is not None and urlsplit(origin).netloc not in own
    if foreign:
        raise ForbiddenError("sign in on the page of this service itself")
