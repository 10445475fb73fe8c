"""Compressed responses: gzip for who accepts it, made once for static files and with each response for the rest.

Event streams stay as they are, and so does what another site asks for. There a page could be made to repeat text of an
attacker beside the token of its forms, whose characters the size of the compressed page would tell one by one (BREACH);
with the session's cookie, which is SameSite=Strict, that needs a page of the same site, and browsers say of those too
where they came from.
"""

import re
import zlib
from functools import lru_cache
from pathlib import Path

import anyio.to_thread
from fastapi.responses import FileResponse, Response
from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

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
