"""What every page and file is answered with: security and caching headers, compression, problem pages, event streams.

Scripts and styles are files of ours.
"""

import json
import math
import re
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio import CapacityLimiter
from anyio.abc import ObjectSendStream
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, RedirectResponse
from fastapi.sse import format_sse_event
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Match
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.base.api.deps import identify_visitor
from app.base.api.requests import route_path, sub_path
from app.base.errors import CoalmineError, ForbiddenError, UnauthorizedError
from app.base.values import ReportProgress
from app.base.web.rendering import render

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


MEDIA_TYPE = "text/event-stream"


class ProgressEvents(Response):
    """Runs work in a thread and sends its progress; a disconnected browser does not stop the work.

    Events: `progress` {done, of}, then `ended`, or `refused` {detail} for an error. They are sent in this response
    because a second request could reach another replica.
    """

    media_type = MEDIA_TYPE

    def __init__(self, work: Callable[[ReportProgress], Callable[[], object]], limiter: CapacityLimiter) -> None:
        super().__init__()
        del self.headers["content-length"]  # not known
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"  # or nginx buffers the events until the end
        self._work = work
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Answer with the events as they come."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        events, received = anyio.create_memory_object_stream[bytes](math.inf)
        async with anyio.create_task_group() as group, received:
            group.start_soon(self._run, events)
            async for event in received:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _run(self, events: ObjectSendStream[bytes]) -> None:
        def report(done: int, of: int) -> None:
            anyio.from_thread.run(events.send, _event("progress", done=done, of=of))

        async with events:
            try:
                await anyio.to_thread.run_sync(self._work(report), limiter=self._limiter)
            except CoalmineError as error:
                await events.send(_event("refused", detail=str(error)))
            else:
                await events.send(_event("ended"))


def _event(name: str, **data: Any) -> bytes:
    return format_sse_event(event=name, data_str=json.dumps(data))
