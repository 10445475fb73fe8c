"""The limits of a peer over everything in this process that asks it: requests at once, and requests a second.

Several runs, a diagnosis and a test request may ask one retriever at the same time. Each has a `Share` in its limits,
and those who wait for a turn take turns, request by request, so that a small run is not starved by a large one.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock


class Limits:
    """The limits of all peers of a process, by a name such as the retriever's slug."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with no peer; `clock` counts seconds and cannot be set."""
        self._clock = clock
        self._lock = Lock()
        self._limiters: dict[str, _Limiter] = {}

    def share(
        self, name: str, *, concurrency: int, requests_per_second: float | None, wake: Callable[[], object]
    ) -> "Share":
        """Open a share in the limits of a peer; `wake` is called from any thread when it may be its turn.

        Where shares were opened under different limits, since somebody edited them, the strictest hold until those
        who began under them are done.
        """
        with self._lock:
            for idle in [name for name, limiter in self._limiters.items() if limiter.is_idle]:
                del self._limiters[idle]
            limiter = self._limiters.setdefault(name, _Limiter(self._clock))
            interval = 1 / requests_per_second if requests_per_second else 0.0
            return limiter.opened(Share(limiter, concurrency, interval, wake))


class Share:
    """What one exchange may do within the limits; every `begin` that gave 0 is followed by one `end` or `undo`."""

    __slots__ = ("_limiter", "before", "concurrency", "held", "interval", "queued", "wake")

    def __init__(self, limiter: "_Limiter", concurrency: int, interval: float, wake: Callable[[], object]) -> None:
        self._limiter = limiter
        self.concurrency = concurrency
        self.interval = interval
        """Seconds between two requests."""
        self.wake = wake
        self.held = 0
        """Requests under way."""
        self.queued = False
        self.before = (0.0, 0.0)
        """When the next request could start before the last `begin`, and since."""

    def begin(self) -> float:
        """Begin a request: 0 = it has begun; else seconds to wait, infinite where only `wake` says more.

        Whoever has to wait stands in the queue until it begins or withdraws.
        """
        return self._limiter.begin(self)

    def end(self) -> None:
        """End a request: it is answered or given up."""
        self._limiter.end(self)

    def undo(self) -> None:
        """Take a `begin` back: nothing was sent."""
        self._limiter.end(self, undo=True)

    def withdraw(self) -> None:
        """Leave the queue: there is nothing to ask just now."""
        if self.queued:
            self._limiter.withdraw(self)

    def close(self) -> None:
        """Give everything back."""
        self._limiter.close(self)


class _Limiter:
    """The limits of one peer."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = Lock()
        self._shares: list[Share] = []
        self._queue: deque[Share] = deque()
        self._under_way = 0
        self._concurrency = 0
        self._interval = 0.0
        self._next_start = -math.inf

    @property
    def is_idle(self) -> bool:
        """Whether it can be forgotten: nobody asks, and whoever asks next need not wait."""
        with self._lock:
            return not self._shares and self._clock() >= self._next_start

    def opened(self, share: Share) -> Share:
        with self._lock:
            self._shares.append(share)
            self._tighten()
        return share

    def begin(self, share: Share) -> float:
        with self._lock:
            now = self._clock()
            if (self._queue and self._queue[0] is not share) or self._under_way >= self._concurrency:
                wait = math.inf
            else:
                wait = max(0.0, self._next_start - now)
            if wait > 0.0:
                if not share.queued:
                    share.queued = True
                    self._queue.append(share)
                return wait
            if share.queued:
                share.queued = False
                self._queue.popleft()
            self._under_way += 1
            share.held += 1
            before = self._next_start
            if self._interval:
                # A start that is a little late is made up for, but by no more than half an interval: no bursts.
                late = now - before
                made_up = min(late, self._interval / 2) if late <= 2 * self._interval else 0.0
                self._next_start = now - made_up + self._interval
            share.before = before, self._next_start
            following = self._queue[0] if self._queue else None
        _wake(following)
        return 0.0

    def end(self, share: Share, *, undo: bool = False) -> None:
        with self._lock:
            self._under_way -= 1
            share.held -= 1
            if undo and self._next_start == share.before[1]:
                self._next_start = share.before[0]
            following = self._queue[0] if self._queue else None
        _wake(following)

    def withdraw(self, share: Share) -> None:
        with self._lock:
            following = self._without(share)
        _wake(following)

    def close(self, share: Share) -> None:
        with self._lock:
            if share not in self._shares:
                return
            self._shares.remove(share)
            self._under_way -= share.held
            share.held = 0
            self._tighten()
            self._without(share)
            following = self._queue[0] if self._queue else None
        _wake(following)

    def _without(self, share: Share) -> Share | None:
        """Take a share out of the queue; gives the one whose turn it is then."""
        if not share.queued:
            return None
        share.queued = False
        self._queue.remove(share)
        return self._queue[0] if self._queue else None

    def _tighten(self) -> None:
        self._concurrency = min((one.concurrency for one in self._shares), default=0)
        self._interval = max((one.interval for one in self._shares), default=0.0)


def _wake(share: Share | None) -> None:
    if share is not None:
        with suppress(RuntimeError):  # its event loop is closed: it asks no more
            share.wake()
