"""Connections of clients: bounded in number, and closed where a request does not come in time.

uvicorn keeps a connection on which no request, or half of one, ever comes for as long as the client likes. Those are
closed here, the oldest first where there are too many, so that half of the descriptors stay free for the worker.
"""

import asyncio
from typing import Any, ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS: Final = 10.0
"""From connecting, or from the first byte of a further request, to the end of its headers."""
BODY_SECONDS: Final = 60.0
"""From the end of the headers to the end of the body."""
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
    _timer: asyncio.TimerHandle | None = None
    _state: Any = None
    """What the timer waits for: h11's state of the client when it was started."""

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
            return
        self._unwatch()
        if state is h11.IDLE:
            self.waiting[self] = None
        if state in {h11.IDLE, h11.SEND_BODY}:
            self._state = state
            seconds = self.header_seconds if state is h11.IDLE else self.body_seconds
            self._timer = self.loop.call_later(seconds, self.drop)

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
