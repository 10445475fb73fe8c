"""Security and caching headers of every response. Scripts and styles are files of ours."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.base.api.sub_path import route_path

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
