"""Serving below a path of a host, which COALMINE_PUBLIC_URL names: `https://example.com/coalmine`.

A proxy may take that path off the address of a request or leave it. Inside, it is the `root_path` of ASGI, which `path`
begins with; what routes redirect to is written from the root of the service and completed here.
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.base.errors import ConfigurationError

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
