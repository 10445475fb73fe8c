"""Connections of clients: bounded in number, and closed where a request does not come in time.

uvicorn keeps a connection without a complete request for as long as the client likes. Those are closed here, the
oldest first where there are too many, so that half of the descriptors stay free for the worker.
"""

import asyncio
from typing import Any, ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS: Final = 10.0
"""From connecting, or from the first byte of a further request, to the end of its headers."""
BODY_SECONDS: Final = 900.0
"""From the end of the headers to the end of the body, however steadily it comes."""
BODY_IDLE_SECONDS: Final = 30.0
"""From one part of a body to the next."""
MOST_CONNECTIONS: Final = 4_096


def bounded_protocol(descriptors: int) -> type[H11Protocol]:
    """Return the protocol of one server that may have so many files open: half of them are for connections."""
    most = max(8, min(MOST_CONNECTIONS, descriptors // 2))
    return type("BoundedProtocol", (_BoundedProtocol,), {"most": most, "waiting": {}})


class _BoundedProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for requests."""

    most: ClassVar[int]
    waiting: ClassVar[dict["_BoundedProtocol", None]]
    """Connections whose request has not come, the oldest first."""
    header_seconds: ClassVar[float] = HEADER_SECONDS
    body_seconds: ClassVar[float] = BODY_SECONDS
    body_idle_seconds: ClassVar[float] = BODY_IDLE_SECONDS
    _timer: asyncio.TimerHandle | None = None
    _state: Any = None
    """What the timer waits for: h11's state of the client when it was started."""
    _body_ends: float = 0.0
    """By the loop's clock, when a body has to be whole."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # a stream's
        """Wait for a request; where there are too many connections, close the one that has waited longest for one."""
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > self.most and self.waiting:
            next(iter(self.waiting)).drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, and see whether the request is whole."""
        super().data_received(data)
        if not self.transport.is_closing():
            self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request as uvicorn does, which closes after a while without one."""
        self._unwatch()
        super().on_response_complete()

    def _watch(self) -> None:
        state = self.conn.their_state
        if state is self._state:
            if state is h11.SEND_BODY:
                self._wait_for_body()
            return
        self._unwatch()
        if state is h11.IDLE:
            self.waiting[self] = None
            self._timer = self.loop.call_later(self.header_seconds, self.drop)
        elif state is h11.SEND_BODY:
            self._body_ends = self.loop.time() + self.body_seconds
            self._wait_for_body()
        else:
            return
        self._state = state

    def _wait_for_body(self) -> None:
        """Give the client time for the next part of its body, within that for the whole."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(min(self.loop.time() + self.body_idle_seconds, self._body_ends), self.drop)

    def _unwatch(self) -> None:
        self._state = None
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def drop(self) -> None:
        """Close the connection at once."""
        self._unwatch()
        self.transport.abort()
