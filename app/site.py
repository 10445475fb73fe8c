"""The routers of all subjects, REST and pages; and what pages need of the app: files, headers, compression, problems.

Scripts and styles are files of ours, never of another host.
"""

import json
import re
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio.to_thread
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, RedirectResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Match
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.alerts import api as alerts_api
from app.alerts import pages as alerts
from app.alerts.silences import api as silences_api
from app.alerts.silences import pages as silences
from app.annotation import api as annotation_api
from app.annotation import pages as annotation
from app.answers import api as answers_api
from app.answers import pages as answers
from app.base.api.requests import identify_visitor, route_path, sub_path
from app.base.errors import CoalmineError, ForbiddenError, UnauthorizedError
from app.base.web import rendering
from app.base.web.rendering import STATIC, render
from app.catalog.domain import recall_label
from app.comparison import api as comparison_api
from app.comparison import pages as comparisons
from app.definitions import api as definitions_api
from app.definitions import exchange_api
from app.definitions.pages import canary_editor, check_editor, importing, suites
from app.detection import api as detection_api
from app.diagnosis import api as diagnosis_api
from app.diagnosis import pages as diagnosis
from app.experiments import api as experiments_api
from app.experiments import pages as experiments
from app.hooks import api as hooks_api
from app.hooks import pages as hooks
from app.operation import api as operation_api
from app.operation import pages as operation
from app.records.views import first_expected, not_returned, starter, why_degraded
from app.reports import api as reports_api
from app.reports.pages import checks, overviews
from app.reports.pages.overviews import grave_issues
from app.reports.rendering.report_measures import ERR_SCALE
from app.retrievers import api as retrievers_api
from app.retrievers.pages import retrievers, wizard
from app.runs import api as runs_api
from app.runs import pages as runs
from app.traffic import api as traffic_api
from app.traffic import pages as traffic

ROUTERS = (
    operation_api.probes,
    operation_api.router,
    definitions_api.router,
    exchange_api.router,
    reports_api.router,
    alerts_api.router,
    hooks_api.router,
    runs_api.router,
    comparison_api.router,
    detection_api.router,
    diagnosis_api.quality_router,
    retrievers_api.router,
    retrievers_api.findings_router,
    silences_api.router,
    annotation_api.router,
    traffic_api.router,
    diagnosis_api.router,
    answers_api.router,
    experiments_api.router,
)
"""Routers of REST, in matching order."""

PAGES = tuple(
    pages.router
    for pages in (
        overviews,
        check_editor,
        checks,
        diagnosis,
        runs,
        comparisons,
        alerts,
        hooks,
        silences,
        wizard,
        retrievers,
        suites,
        canary_editor,
        importing,
        annotation,
        traffic,
        answers,
        experiments,
        operation,
    )
)
"""Routers of the pages, in matching order."""


rendering.add_words(
    filters={
        **alerts.FILTERS,
        **hooks.FILTERS,
        "bound": alerts.bound,
        "why": why_degraded,
        "rank": first_expected,
        "absent": not_returned,
        "starter": starter,
        "recall_label": lambda measure, own: recall_label(measure, self_judged=own),
    },
    constants={"err_scale": ERR_SCALE},
    values={"issues": grave_issues},
)


def install_pages(app: FastAPI) -> None:
    """Install static files, headers and problem pages on an app that has the problem handlers."""
    app.mount("/static", CompressedFiles(directory=STATIC), name="static")
    app.add_middleware(SecurityHeaders)
    install_problem_pages(app)


_POLICY = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"


# Swagger UI writes style attributes and draws its icons from data: URLs.
_DOCS_POLICY = f"{_POLICY}; style-src 'self' 'unsafe-inline'; img-src 'self' data:"


class SecurityHeaders:
    """ASGI middleware that sets headers where a route has not."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and complete the headers of its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def completed(message: Message) -> None:
            if message["type"] == "http.response.start":
                _complete(MutableHeaders(scope=message), scope, ok=message["status"] < 400)  # noqa: PLR2004 - errors
            await send(message)

        await self._app(scope, receive, completed)


def _complete(headers: MutableHeaders, scope: Scope, *, ok: bool) -> None:
    path = route_path(scope)
    headers.setdefault("content-security-policy", _DOCS_POLICY if path == "/docs" else _POLICY)
    headers.setdefault("x-content-type-options", "nosniff")
    headers.setdefault("referrer-policy", "same-origin")
    headers.setdefault("x-frame-options", "DENY")
    headers.setdefault("cache-control", _caching(path, scope["query_string"], ok=ok))


def _caching(path: str, query: bytes, *, ok: bool) -> str:
    """Return the cache-control header: only static files with a version in their address are cached."""
    if not path.startswith("/static/") or not ok:
        return "no-store"
    return "public, max-age=31536000, immutable" if query.startswith(b"v=") else "no-cache"


_LEAST_BYTES = 1_000
"""Less than that is one packet anyway."""
_LEVEL = 4
"""A page of 270 kB in 2 ms; 9 takes twice as long for 5 % less."""
_OWN_SITE = {None, "same-origin", "none"}
"""What `Sec-Fetch-Site` is where no page of another origin asks; programs send none."""
_GZIP = 16 + zlib.MAX_WBITS
_MOST_FILES = 100


class Compression:
    """ASGI middleware that compresses responses for who accepts it and is of no other site."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressed = GZipMiddleware(app, minimum_size=_LEAST_BYTES, compresslevel=_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to where its response is compressed, or is not."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            plain = _refuses_gzip(headers) or headers.get("sec-fetch-site") not in _OWN_SITE
        else:
            plain = True
        await (self._app if plain else self._compressed)(scope, receive, send)


class CompressedFiles(StaticFiles):
    """Static files, each compressed once."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file, or that it has not changed; its tag is weak, as it is one for both forms of the file."""
        response = await super().get_response(path, scope)
        response.headers["etag"] = f"W/{response.headers['etag']}"
        response.headers["vary"] = "Accept-Encoding"
        request = Headers(scope=scope)
        takes_gzip = "gzip" in request.get("accept-encoding", "") and not _refuses_gzip(request)
        if not isinstance(response, FileResponse) or not takes_gzip or "range" in request:
            return response
        body = await anyio.to_thread.run_sync(_compressed, str(response.path), response.headers["etag"])
        headers = {**response.headers, "content-encoding": "gzip", "content-length": str(len(body))}
        return Response(body, headers=headers)


def _refuses_gzip(headers: Headers) -> bool:
    return re.search(r"gzip\s*;\s*q=0(\.0*)?\s*(,|$)", headers.get("accept-encoding", "")) is not None


@lru_cache(maxsize=_MOST_FILES)
def _compressed(file: str, _etag: str) -> bytes:
    """Return a file, of which the tag tells another one, as gzip."""
    compressor = zlib.compressobj(wbits=_GZIP)
    return compressor.compress(Path(file).read_bytes()) + compressor.flush()


_PROGRAMS = ("/v1", "/metrics", "/livez", "/readyz", "/openapi.json", "/static/")


Handler = Callable[[Request, Any], Awaitable[Response]]


def install_problem_pages(app: FastAPI) -> None:
    """Wrap every exception handler so that browsers get a page with the same status."""
    for kind in (CoalmineError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _page_handler(app.exception_handlers[kind]))


def _page_handler(handler: Any) -> Handler:
    async def handle(request: Request, error: Exception) -> Response:
        if isinstance(error, UnauthorizedError) and _is_navigation(request):
            return RedirectResponse(_sign_in(request), status_code=303)
        problem: Response = await handler(request, error)
        if not _is_navigation(request):
            return problem
        if problem.status_code == HTTPStatus.METHOD_NOT_ALLOWED and request.method == "GET":
            return RedirectResponse(_parent_page(request), status_code=303)
        problem_view = json.loads(bytes(problem.body))
        if isinstance(error, HTTPException | ForbiddenError):  # no route matched, or it refused: nobody is identified
            with suppress(CoalmineError):
                await identify_visitor(request)
        if isinstance(error, HTTPException) and problem.status_code == HTTPStatus.NOT_FOUND:
            problem_view["detail"] = "No page has this address. It may be cut off or mistyped."
        page = render(request, "problem.html", status=problem.status_code, problem=problem_view)
        page.headers.update({name: value for name, value in problem.headers.items() if not name.startswith("content-")})
        return page

    return handle


def _parent_page(request: Request) -> str:
    """Return the page that an action belongs to: an address such as `/archive` has no page of its own."""
    path = route_path(request.scope)
    while path.strip("/"):
        path = path.rpartition("/")[0]
        scope = {**request.scope, "path": f"{sub_path(request.scope)}{path}"}
        if path and any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes):
            return quote(path)
    return "/"


def _is_navigation(request: Request) -> bool:
    return not route_path(request.scope).startswith(_PROGRAMS) and "text/html" in request.headers.get("accept", "")


def _sign_in(request: Request) -> str:
    path = route_path(request.scope)
    if request.method != "GET" or path == "/":
        return "/login"
    target = quote(path) + (f"?{request.url.query}" if request.url.query else "")
    return f"/login?next={quote(target, safe='')}"
