"""A client of apps in this process that costs half of Starlette's: most tests ask one, and some a thousand times."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import anyio
import httpx2
from anyio.from_thread import BlockingPortal
from fastapi import testclient
from starlette.types import Message, Scope


class TestClient(testclient.TestClient):
    """Starlette's client, save that each answer is read whole within the one call that asks for it.

    Starlette passes an answer on piece by piece, eight times from thread to thread. A stream that ends only with its
    client hangs here: read it from a real server (`tests.support.living`). Clients whose app is not entered share an
    event loop, where Starlette starts one for each request, and with it each thread that answers.
    """

    def __init__(self, app: Any, *, raise_server_exceptions: bool = True, **more: Any) -> None:
        super().__init__(app, raise_server_exceptions=raise_server_exceptions, **more)
        self._transport = _Whole(self, raises=raise_server_exceptions)

    @contextmanager
    def _portal_factory(self) -> Iterator[BlockingPortal]:
        yield self.portal or _shared_portal()


_SHARED: list[BlockingPortal] = []
_ONE_AT_A_TIME = threading.Lock()


def _shared_portal() -> BlockingPortal:
    """Give the loop of this process for apps that are not entered; its thread ends with the process."""
    with _ONE_AT_A_TIME:
        if not _SHARED:
            started = threading.Event()

            async def run() -> None:
                async with BlockingPortal() as portal:
                    _SHARED.append(portal)
                    started.set()
                    await portal.sleep_until_stopped()

            threading.Thread(target=anyio.run, args=(run,), daemon=True, name="apps of tests").start()
            started.wait()
    return _SHARED[0]


class _Whole(httpx2.BaseTransport):
    """Calls the app once for each request."""

    def __init__(self, client: TestClient, *, raises: bool) -> None:
        self._client = client
        self._raises = raises

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Give the answer of the app."""
        exchange = _Exchange(request.read())
        scope = _scope(request, dict(self._client.app_state))
        with self._client._portal_factory() as portal:
            try:
                portal.call(exchange.carry_out, self._client.app, scope)
            except Exception:
                if self._raises:
                    raise
        assert exchange.head is not None or not self._raises, "the app answered nothing"
        head = exchange.head or {"status": 500}
        headers = [(name.decode(), value.decode()) for name, value in head.get("headers", [])]
        body = b"" if request.method == "HEAD" else b"".join(exchange.body)
        return httpx2.Response(head["status"], headers=headers, stream=httpx2.ByteStream(body), request=request)


class _Exchange:
    """What an app is given and gives back, as ASGI has it."""

    def __init__(self, sent: bytes) -> None:
        self._sent: bytes | None = sent
        self.head: Message | None = None
        self.body: list[bytes] = []

    async def carry_out(self, app: Any, scope: Scope) -> None:
        self._complete = anyio.Event()
        await app(scope, self._receive, self._send)

    async def _receive(self) -> Message:
        if self._sent is None:
            await self._complete.wait()
            return {"type": "http.disconnect"}
        body, self._sent = self._sent, None
        return {"type": "http.request", "body": body}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            assert self.head is None, "an answer began twice"
            self.head = message
        elif message["type"] == "http.response.body":
            assert self.head is not None, "a body came before its head"
            assert not self._complete.is_set(), "a body went on after its end"
            self.body.append(bytes(message.get("body", b"")))
            if not message.get("more_body", False):
                self._complete.set()


def _scope(request: httpx2.Request, state: dict[str, Any]) -> Scope:
    url = request.url
    return {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "path": unquote(url.path),
        "raw_path": url.raw_path.split(b"?", 1)[0],
        "root_path": "",
        "scheme": url.scheme,
        "query_string": url.query,
        "headers": [(name.lower().encode(), value.encode()) for name, value in request.headers.multi_items()],
        "client": ("testclient", 50_000),
        "server": [url.host, url.port or {"http": 80, "https": 443}[url.scheme]],
        "extensions": {},
        "state": state,
    }
