"""How often keys may be guessed, and how much expensive work one key may have under way; both per process."""

import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from fastapi import Request

from app.base.api.csrf import RouteT
from app.base.errors import BusyError, TooManyRequestsError

logger = logging.getLogger("coalmine.api")

MOST_AT_A_TIME = 16
"""Expensive requests of all keys under way in a process; other requests have the threads that are left."""
MOST_OF_A_KEY = 4
"""Of one key. The open service on loopback has no keys and no such limit."""
_RETRY_SECONDS = 2


class Attempts:
    """Rate limit of unknown keys for the whole process. Keys are too long to be guessed anyway."""

    def __init__(self, *, most: int = 20, per_second: float = 0.5, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._per_second, self._clock = most, per_second, clock
        self._left, self._at = float(most), clock()

    def count_failure(self) -> None:
        """Count a failed attempt. Raises TooManyRequestsError where there were too many before it."""
        now = self._clock()
        self._left = min(float(self._most), self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            raise TooManyRequestsError(
                "too many requests with unknown or revoked keys; wait a moment",
                retry_after_seconds=math.ceil((1 - self._left) / self._per_second),
            )
        self._left -= 1
        if self._left < 1:
            logger.warning("many_unknown_keys", extra={"detail": "further ones are answered 429 for a while"})


class Turns:
    """Expensive requests under way in this process."""

    def __init__(self, *, most: int = MOST_AT_A_TIME, most_of_a_key: int = MOST_OF_A_KEY) -> None:
        self._most, self._most_of_a_key = most, most_of_a_key
        self._taken: Counter[str | None] = Counter()

    @contextmanager
    def take(self, key: str | None) -> Iterator[None]:
        """Take a turn for the duration of the block. Raises TooManyRequestsError and BusyError where none is left."""
        if key is not None and self._taken[key] >= self._most_of_a_key:
            raise TooManyRequestsError(
                f"this key has {self._taken[key]} expensive requests under way, which is the limit; wait for one",
                retry_after_seconds=_RETRY_SECONDS,
            )
        if self._taken.total() >= self._most:
            raise BusyError(
                f"{self._most} expensive requests are under way, which is the limit of this process; wait for one"
            )
        self._taken[key] += 1
        try:
            yield
        finally:
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]


def expensive(route: RouteT) -> RouteT:
    """Mark a route that takes a turn: its work grows with a suite, or it waits for a retriever."""
    route.__dict__["is_expensive"] = True
    return route


async def take_turn(request: Request) -> AsyncIterator[None]:
    """Hold a turn while an expensive route is at work, also where its client has left. Raises as `Turns.take`."""
    if not getattr(request.scope.get("endpoint"), "is_expensive", False):
        yield
        return
    turns: Turns = request.app.state.access.turns
    with turns.take(request.state.identity.key_prefix):
        yield
