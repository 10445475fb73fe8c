"""Waits for runs and re-scorings to end: one poll of the store serves all waiting requests, none without any.

A worker of this process calls `notify` when it has ended one; those of other replicas are found within a second.
"""

import asyncio
import logging
from collections import defaultdict
from contextlib import suppress
from typing import Final

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Request

from app.base.db.engine import Store
from app.base.errors import StoreUnavailableError
from app.reports.service import change_feed
from app.reports.service.change_feed import Topic

logger = logging.getLogger("coalmine.api")

_POLL_SECONDS: Final = 1.0


class Endings:
    """The requests of this process that wait for something to end."""

    def __init__(self, store: Store, *, poll_seconds: float = _POLL_SECONDS) -> None:
        self._store, self._poll_seconds = store, poll_seconds
        self._waiting: defaultdict[Topic, set[asyncio.Event]] = defaultdict(set)
        self._polling: asyncio.Task[None] | None = None
        self._hint: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # A thread of its own, so that waiting requests are answered while all route threads are busy.
        self._thread = CapacityLimiter(1)

    async def wait(self, topic: Topic, seconds: float) -> None:
        """Return once the topic has ended or does not exist, and after `seconds` at the latest."""
        ended = asyncio.Event()
        self._waiting[topic].add(ended)
        if self._polling is None or self._polling.done():
            self._loop, self._hint = asyncio.get_running_loop(), asyncio.Event()
            self._polling = asyncio.create_task(self._poll_forever(self._hint), name="coalmine-endings")
        elif self._hint is not None:
            self._hint.set()
        try:
            with anyio.move_on_after(seconds):
                await ended.wait()
        finally:
            self._waiting[topic].discard(ended)
            if not self._waiting[topic]:
                del self._waiting[topic]
            if not self._waiting:
                self._polling.cancel()
                self._polling = None

    def notify(self) -> None:
        """Poll now, since something has ended in this process. Thread-safe."""
        if self._waiting and self._loop is not None and self._hint is not None:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                self._loop.call_soon_threadsafe(self._hint.set)

    async def _poll_forever(self, hint: asyncio.Event) -> None:
        while True:
            hint.clear()
            try:
                await self._wake_ended()
            except StoreUnavailableError as error:
                logger.warning("store_unavailable", extra={"detail": str(error)})
            except Exception:
                logger.exception("bug")  # the next look tries again
            with anyio.move_on_after(self._poll_seconds):
                await hint.wait()

    async def _wake_ended(self) -> None:
        ended = await anyio.to_thread.run_sync(
            change_feed.ended_topics, self._store, set(self._waiting), limiter=self._thread
        )
        for topic in ended & self._waiting.keys():
            for waiter in self._waiting[topic]:
                waiter.set()


def endings_of(request: Request) -> Endings:
    """Return the endings of the app."""
    endings: Endings = request.app.state.endings
    return endings
