"""Event streams: the listeners of this process, served by one poll of the store a second, none without listeners.

A stream holds no thread and no database connection. A listener that does not keep up is disconnected; it reconnects
and gets the present state. A process has at most `MOST` streams, and `MOST_OF_A_KEY` per key.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from app.base.db.engine import Store
from app.base.errors import BusyError, StoreUnavailableError
from app.reports.service import change_feed
from app.reports.service.change_feed import ChangeSnapshot, Event, Kind, Topic

logger = logging.getLogger("coalmine.streams")

MOST: Final = 100
"""Most open streams of a process."""
MOST_OF_A_KEY: Final = 20
"""Most of them with one key; the open service on loopback has no keys and no such limit."""
LONGEST_SECONDS: Final = 600.0
"""Longest duration of a stream; on reconnection the key is checked again."""
_POLL_SECONDS: Final = 1.0
_UNREAD: Final = 2_000
"""Most events that wait for a slow listener before it is disconnected."""


@dataclass(eq=False, slots=True, kw_only=True)
class Listener:
    """A subscriber of a topic."""

    topic: Topic
    key: str | None
    """The prefix of its key."""
    inlet: MemoryObjectSendStream[Event]
    outlet: MemoryObjectReceiveStream[Event]
    longest_seconds: float
    previous: ChangeSnapshot | None = None

    async def events(self, seconds: float) -> AsyncIterator[Event]:
        """Yield events; ends with the last one, after `seconds`, or when the process ends."""
        until = anyio.current_time() + min(seconds, self.longest_seconds)
        while True:
            event: Event | None = None
            try:
                with anyio.move_on_after(until - anyio.current_time()):
                    event = await self.outlet.receive()
            except anyio.EndOfStream:
                return
            if event is None:
                return
            yield event
            if event.last:
                return


class Streams:
    """The event streams of this process."""

    def __init__(
        self,
        store: Store,
        *,
        most: int = MOST,
        most_of_a_key: int = MOST_OF_A_KEY,
        poll_seconds: float = _POLL_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._store, self._most, self._most_of_a_key = store, most, most_of_a_key
        self._poll_seconds, self._longest_seconds = poll_seconds, longest_seconds
        self._listeners: set[Listener] = set()
        self._polling: asyncio.Task[None] | None = None
        self._ending = False
        # A thread of its own, so that streams go on while all route threads are busy.
        self._thread = CapacityLimiter(1)

    @asynccontextmanager
    async def listen(self, kind: Kind, opaque: str = "", *, key: str | None = None) -> AsyncIterator[Listener]:
        """Open a stream of all checks, or of the run or re-scoring with this id, for the duration of the block.

        Raises BusyError where a limit is reached or the process is ending, NotFoundError, and StoreUnavailableError.
        """
        self._require_room(key)
        found = await anyio.to_thread.run_sync(change_feed.find_topic, self._store, kind, opaque, limiter=self._thread)
        self._require_room(key)  # others may have come meanwhile
        inlet, outlet = anyio.create_memory_object_stream[Event](_UNREAD)
        topic, now = found
        longest = self._longest_seconds
        listener = Listener(topic=topic, key=key, inlet=inlet, outlet=outlet, longest_seconds=longest)
        _send_events(listener, now)
        self._listeners.add(listener)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll_forever(), name="coalmine-streams")
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            inlet.close()
            outlet.close()
            if not self._listeners:
                self._polling.cancel()
                self._polling = None

    def end(self) -> None:
        """End every stream and refuse new ones: a server waits for open ones before it stops."""
        self._ending = True
        for listener in self._listeners:
            listener.inlet.close()

    def _require_room(self, key: str | None) -> None:
        if self._ending:
            raise BusyError("the service is stopping")
        if len(self._listeners) >= self._most:
            raise BusyError(f"this process has {self._most} open event streams, which is its limit")
        of_key = sum(listener.key == key for listener in self._listeners) if key is not None else 0
        if of_key >= self._most_of_a_key:
            raise BusyError(f"this key has {of_key} open event streams, which is the limit of this process")

    async def _poll_forever(self) -> None:
        before = ChangeSnapshot()
        while True:
            try:
                before = await self._poll(before)
            except StoreUnavailableError as error:
                logger.warning("store_unavailable", extra={"detail": str(error)})
            except Exception:
                logger.exception("bug")  # the next poll tries again
            await anyio.sleep(self._poll_seconds)

    async def _poll(self, before: ChangeSnapshot) -> ChangeSnapshot:
        topics = {listener.topic for listener in self._listeners}
        now = await anyio.to_thread.run_sync(
            change_feed.poll_changes, self._store, topics, before, limiter=self._thread
        )
        for listener in self._listeners:
            if listener.topic in topics:  # one added during the poll is served by the next
                _send_events(listener, now)
        return now


def _send_events(listener: Listener, now: ChangeSnapshot) -> None:
    try:
        for event in change_feed.events(listener.topic, listener.previous, now):
            listener.inlet.send_nowait(event)
    except (anyio.WouldBlock, anyio.ClosedResourceError):
        listener.inlet.close()
    listener.previous = now
