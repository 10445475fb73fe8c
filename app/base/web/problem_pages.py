"""Shows problems as pages to browsers, which may have to sign in first; programs get problem+json."""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app.base.api.deps import identify_visitor
from app.base.api.sub_path import route_path, sub_path
from app.base.errors import CoalmineError, ForbiddenError, UnauthorizedError
from app.base.web.rendering import render

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
