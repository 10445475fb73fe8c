"""Limits of a peer over all that this process sends it: requests at a time, requests per second, and after refusals.

The rate of a peer that refuses requests is halved at a refusal and raised again by steps: decisions alone, whose
moments are numbers of seconds that the caller gives. A refusal is HTTP 429, or 503 with `Retry-After`. The sentence
about it follows; how long a run waits for such a peer is said in `schedules`. What holds for one request stands first:
how large its answer may be, what is sent again, and what a refusal is.

Several runs, a diagnosis and a test request may ask one retriever at the same time. Each has a `Share` in its limits,
and those who wait take turns, request by request, so that a small run is not starved by a large one. Requests are
spaced evenly: what was not used is never made up for by a burst. A lower rate, or a pause, holds for all shares, and
where a retriever is asked in lanes, for all lanes of this process.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from threading import Lock
from typing import Final, NamedTuple

from app.base.texts import counted
from app.base.values import Outcome, Slowing, Value, replace

LARGEST_ANSWER_BYTES: Final = 5_000_000
"""Largest body, after decompression, of the answer to a request that states no other `max_body_bytes`."""
RETRY_SECONDS: Final = 0.2
"""Pause before a request is sent again after a `TRANSIENT` outcome, as often as the `retries` of who asks say."""
TRANSIENT: Final = frozenset({Outcome.TIMEOUT, Outcome.UNREACHABLE})
"""Outcomes that a second attempt may not have; an answer, however bad, is not asked for again."""
STREAK: Final = 10
"""Accepted requests after which the rate is raised."""
STEP: Final = 1.25
"""By how much it is raised."""
FREE: Final = 10.0
"""Times the rate before it was slowed at which a peer is taken to have no limit: a burst is counted by the second."""
LEAST_RATE: Final = 0.05
"""Requests a second; what is slower than this is said by `Retry-After`."""
FIRST_PAUSE_SECONDS: Final = 1.0
"""Pause after a refusal that asks for none; doubled for each one in a row."""
LONGEST_PAUSE_SECONDS: Final = 30.0
IDLE_SECONDS: Final = 60.0
"""After so long without a request the rate is not remembered: most limits are by the minute or shorter."""
GIVEN_UP_SECONDS: Final = 900.0
"""For so long a peer that refuses everything is remembered as one."""
GRACE_SECONDS: Final = 10.0
"""For how long a caller waits at least, though others were refused for longer than it would wait."""
_WINDOW_SECONDS: Final = 10.0
_MOST_STARTS: Final = 1_000


def is_refusal(status: int | None, retry_after_seconds: float | None) -> bool:
    """Whether a response asks to send the request again later: 429, and 503 that says when."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    return status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after_seconds is not None


class Refusal(Value):
    """What follows from a refused request."""

    is_final: bool
    """Whether it is not to be sent again: the peer refuses for longer than the caller waits."""
    refused_seconds: float
    """For how long the peer has accepted nothing."""


@dataclass(slots=True)
class RateControl:
    """Rate of one peer, and the pause it asked for."""

    rate: float | None = None
    """Requests a second; None = it is not slowed."""
    status: int = 0
    """HTTP status that slowed it."""
    paused_until: float = -math.inf
    refused_since: float = math.inf
    """When it refused the first request after the last that it accepted."""
    _round_at: float = -math.inf
    """When the newest round of refusals began: what was sent before belongs to it."""
    _accepted: int = 0
    """Requests accepted in a row, of those sent since then."""
    _rounds: int = 0
    """Rounds of refusals in a row."""
    _full_rate: float = 0.0
    """Rate at which requests were sent before it was slowed, or that it bore in the end."""
    _starts: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_STARTS))

    @property
    def interval(self) -> float:
        """Seconds between two requests; 0 = none."""
        return 0.0 if self.rate is None else 1 / self.rate

    def begin(self, now: float) -> None:
        """Note that a request is sent."""
        self._starts.append(now)

    def undo(self) -> None:
        """Take the newest `begin` back."""
        if self._starts:
            self._starts.pop()

    def accept(self, started_at: float, *, most: float = math.inf) -> None:
        """Note that a request was not refused; after a streak of them the rate is raised, up to `most` a second."""
        self.refused_since = math.inf
        if started_at < self._round_at:
            return
        self._rounds = 0
        self._accepted += 1
        if self.rate is not None and self._accepted % STREAK == 0:
            self.rate *= STEP
            if self.rate >= min(most, FREE * self._full_rate):
                self._full_rate, self.rate = self.rate, None

    def refuse(
        self, started_at: float, now: float, *, status: int, retry_after: float | None, since: float, patience: float
    ) -> Refusal:
        """Note that a request was refused, and decide what becomes of it.

        The rate is halved at most once for all requests that were under way together, and only where the peer accepted
        something since: one that accepts nothing needs time, not a lower rate. The peer is waited for until it has
        accepted nothing for `patience` in seconds, by whomever it was asked: a caller that began at `since`, when
        others had been refused for long, soon finds out that it still is so, and holds nobody up.
        """
        is_new_round = started_at >= self._round_at
        if is_new_round:
            if self._accepted:
                self._halve(now)
            self._rounds += 1
            self._round_at = math.nextafter(now, math.inf)
            self._accepted = 0
        self.status = status
        steps = FIRST_PAUSE_SECONDS * 2.0 ** min(self._rounds - 1, 10)
        pause = retry_after or (min(steps, LONGEST_PAUSE_SECONDS) if is_new_round else 0.0)
        self.refused_since = min(self.refused_since, now)
        refused_for = now - self.refused_since
        is_past = refused_for + pause > patience and now - since + pause > min(GRACE_SECONDS, patience)
        is_final = patience <= 0 or pause > patience or is_past
        if not is_final:
            self.paused_until = max(now + pause, self.paused_until)
        return Refusal(is_final=is_final, refused_seconds=refused_for)

    def is_stale(self, now: float) -> bool:
        """Whether the peer was not asked for so long that nothing is known of its rate."""
        newest = self._starts[-1] if self._starts else -math.inf
        kept = IDLE_SECONDS if self.refused_since == math.inf else GIVEN_UP_SECONDS
        return now - max(newest, self.paused_until) > kept

    def _halve(self, now: float) -> None:
        if self.rate is None:
            self._full_rate = max(self._full_rate, self._sent_rate(now))
        self.rate = max(LEAST_RATE, (self.rate or self._full_rate) / 2)

    def _sent_rate(self, now: float) -> float:
        """Return the requests a second of the last ten seconds; those of a shorter time count as of one second."""
        recent = [start for start in self._starts if now - start <= _WINDOW_SECONDS]
        return max(1, len(recent)) / max(1.0, now - recent[0] if recent else 1.0)


def merge_slowings(slowings: Iterable[Slowing | None]) -> Slowing | None:
    """Return what slowed a run, of its parts: the lowest rate and the number of all refusals; None = nothing."""
    merged: Slowing | None = None
    for one in slowings:
        if one is None:
            continue
        if merged is None:
            merged = one
        else:
            slower = min(merged, one, key=lambda slowing: math.inf if slowing.rate is None else slowing.rate)
            merged = replace(slower, refusals=merged.refusals + one.refusals)
    return merged


def slowing_text(slowing: Slowing) -> str:
    """Return the sentence, without a full stop, that says to which rate a run was slowed, and why."""
    rate = slowing.rate or 0.0
    shown = f" to {rate:,.0f}/s" if rate >= _WHOLE else f" to {rate:.2g}/s" if rate else ""
    text = f"{SLOWED}{shown} by {slowing.status}"
    if not slowing.refusals:
        return text
    were = "was" if slowing.refusals == 1 else "were"
    return f"{text}: {counted(slowing.refusals, 'request')} {were} refused and sent again"


SLOWED: Final = "slowed"
"""Beginning of that sentence, by which a re-scoring keeps it."""
_WHOLE: Final = 10
RESERVED_SECONDS: Final = 0.1
"""For how long requests are reserved at once where other processes take part in the rate."""
REMEMBERED: Final = 10_000
"""Of how many peers that nobody asks just now the newest limits are remembered."""


Reserve = Callable[[int, float], float]
"""Reserves so many requests at this interval in seconds, and gives the seconds until the first of them."""


class Bounds(NamedTuple):
    """How much may be asked of a peer."""

    concurrency: int
    interval: float
    """Seconds between two requests; 0 = none."""
    defined_at: datetime | None
    """When it was read in a definition that is in force; None = in none, such as one that is only tried."""
    reserve: Reserve | None = None
    """Asks whoever keeps the rate in common with other processes; None = it is that of this process."""


class _Pace:
    """Rate of a peer that refuses requests, shared by threads."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.control = RateControl()


class Limits:
    """The limits of all peers of a process, by a name such as the retriever's slug."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with no peer; `clock` counts seconds and cannot be set."""
        self._clock = clock
        self._lock = Lock()
        self._limiters: dict[str, _Limiter] = {}
        self._newest: dict[str, Bounds] = {}
        """By peer, the one opened last at the end."""
        self._paces: dict[str, _Pace] = {}

    def share(
        self,
        name: str,
        *,
        concurrency: int,
        requests_per_second: float | None,
        wake: Callable[[], object],
        defined_at: datetime | None = None,
        reserve: Reserve | None = None,
        rate_name: str | None = None,
        patience: float = 0.0,
    ) -> "Share":
        """Open a share in the limits of a peer; `wake` is called from any thread when it may be its turn.

        Where shares were opened under different limits, since somebody edited them, those `defined_at` last hold for
        whatever is asked from then on, by whomever. Where none say when, the strictest in use hold.

        Peers of one `rate_name` are slowed together when one of them refuses a request. A share waits for the pauses
        that a peer asks for up to `patience` in seconds.
        """
        interval = 1 / requests_per_second if requests_per_second else 0.0
        bounds = Bounds(concurrency, interval, defined_at, reserve)
        with self._lock:
            for idle in [name for name, limiter in self._limiters.items() if limiter.is_idle]:
                del self._limiters[idle]
            limiter = self._limiters.get(name)
            if limiter is None:
                pace = self._pace(rate_name or name)
                limiter = self._limiters[name] = _Limiter(self._clock, pace, self._newest.get(name))
            share = limiter.opened(Share(limiter, bounds, wake, patience))
            if limiter.newest is not None:
                self._newest.pop(name, None)
                self._newest[name] = limiter.newest
                if len(self._newest) > REMEMBERED:
                    del self._newest[next(iter(self._newest))]
            return share

    def _pace(self, name: str) -> _Pace:
        """Return the pace of a peer; those of peers that nobody has asked for a while are forgotten."""
        now, in_use = self._clock(), {id(limiter.pace) for limiter in self._limiters.values()}
        for other, pace in list(self._paces.items()):
            if id(pace) not in in_use and pace.control.is_stale(now):
                del self._paces[other]
        return self._paces.setdefault(name, _Pace())


class Peer(Value):
    """Whom somebody is about to ask, in the limits he has in common with others who do."""

    limits: Limits
    name: str
    defined_at: datetime | None = None
    """When the limits that come with it were read in a definition that is in force; see `Bounds`."""
    reserve: Reserve | None = None
    """As in `Bounds`."""
    rate_name: str | None = None
    """Name of the peer without its lane, see `Limits`."""
    patience: float = 0.0
    """For how many seconds it is asked again where it refuses every request."""

    def share(self, *, concurrency: int, requests_per_second: float | None, wake: Callable[[], object]) -> "Share":
        """Open a share, see `Limits`."""
        return self.limits.share(
            self.name,
            concurrency=concurrency,
            requests_per_second=requests_per_second,
            wake=wake,
            defined_at=self.defined_at,
            reserve=self.reserve,
            rate_name=self.rate_name,
            patience=self.patience,
        )


class Share:
    """What one exchange may do within the limits; every `begin` that gave 0 is followed by one `end` or `undo`."""

    __slots__ = ("_limiter", "before", "begun_at", "bounds", "first_at", "held", "patience", "queued", "wake")

    def __init__(self, limiter: "_Limiter", bounds: Bounds, wake: Callable[[], object], patience: float = 0.0) -> None:
        self._limiter = limiter
        self.bounds = bounds
        self.wake = wake
        self.patience = patience
        """Seconds for which it waits for a peer that accepts nothing."""
        self.first_at = math.inf
        """When its first request began."""
        self.begun_at = -math.inf
        """When its newest request began, by the clock of the limits."""
        self.held = 0
        """Requests under way."""
        self.queued = False
        self.before = (0.0, 0.0)
        """When the last request of the peer had started before the last `begin`, and since."""

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

    def accept(self, begun_at: float) -> None:
        """Note that the peer did not refuse a request that began then."""
        self._limiter.accept(begun_at)

    def refuse(self, begun_at: float, *, status: int, retry_after: float | None) -> Refusal:
        """Note that the peer refused a request that began then; gives what becomes of it."""
        return self._limiter.refuse(self, begun_at, status=status, retry_after=retry_after)

    def slow_down(self, before: Slowing | None, *, refusals: int) -> Slowing | None:
        """Return by how much the peer slowed a request until now, by how much it had `before`; None = by nothing.

        `refusals` is how often the request was sent again.
        """
        control = self._limiter.pace.control
        if control.rate is not None or refusals:
            before = merge_slowings((before, Slowing(rate=control.rate, status=control.status)))
        return before if before is None else replace(before, refusals=refusals)

    def withdraw(self) -> None:
        """Leave the queue: there is nothing to ask just now."""
        if self.queued:
            self._limiter.withdraw(self)

    def close(self) -> None:
        """Give everything back."""
        self._limiter.close(self)


class _Limiter:
    """The limits of one peer."""

    def __init__(self, clock: Callable[[], float], pace: _Pace, newest: Bounds | None = None) -> None:
        self._clock = clock
        self.pace = pace
        self._lock = Lock()
        self._shares: list[Share] = []
        self._queue: deque[Share] = deque()
        self._under_way = 0
        self._concurrency = 0
        self._interval = 0.0
        self._last_start = -math.inf
        """Not when the next may start: limits that are edited meanwhile hold for that one."""
        self._reserve: Reserve | None = None
        self._reserved: deque[float] = deque()
        """When requests may start that others know of."""
        self.newest = newest
        """Of all limits that say when they were defined."""

    @property
    def is_idle(self) -> bool:
        """Whether it can be forgotten: nobody asks, and whoever asks next need not wait."""
        with self._lock:
            return not self._shares and self._clock() >= self._last_start + self._spacing

    @property
    def _spacing(self) -> float:
        """Seconds between two requests: those of the limits or, where they are longer, those of a peer that refuses."""
        return max(self._interval, self.pace.control.interval)

    def accept(self, begun_at: float) -> None:
        with self.pace.lock:
            most = 1 / self._interval if self._interval else math.inf
            self.pace.control.accept(begun_at, most=most)

    def refuse(self, share: Share, begun_at: float, *, status: int, retry_after: float | None) -> Refusal:
        with self.pace.lock:
            return self.pace.control.refuse(
                begun_at,
                self._clock(),
                status=status,
                retry_after=retry_after,
                since=share.first_at,
                patience=share.patience,
            )

    def opened(self, share: Share) -> Share:
        with self._lock:
            self._shares.append(share)
            if share.bounds.defined_at is not None and (
                self.newest is None
                or self.newest.defined_at is None
                or share.bounds.defined_at >= self.newest.defined_at
            ):
                self.newest = share.bounds
            self._decide()
            following = self._queue[0] if self._queue else None
        _wake(following)  # what it waits for may be nearer now
        return share

    def begin(self, share: Share) -> float:
        pause = self.pace.control.paused_until - self._clock()
        if 0 < pause <= share.patience:
            self.withdraw(share)  # others may not have to wait for it
            return pause
        with self._lock:
            now = self._clock()
            if (self._queue and self._queue[0] is not share) or self._under_way >= self._concurrency:
                wait = math.inf
            else:
                wait = max(0.0, self._next_start() - now)
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
            before = self._last_start
            spacing = self._spacing
            if self._reserved:
                self._reserved.popleft()
            elif spacing:
                # A start that is a little late is made up for, but by no more than half an interval: no bursts.
                late = now - before - spacing
                made_up = min(late, spacing / 2) if late <= 2 * spacing else 0.0
                self._last_start = now - made_up
            with self.pace.lock:
                self.pace.control.begin(now)
            share.begun_at = now
            share.first_at = min(share.first_at, now)
            share.before = before, self._last_start
            following = self._queue[0] if self._queue else None
        _wake(following)
        return 0.0

    def _next_start(self) -> float:
        """Say when the next request may start; reserves a few where others take part in the rate."""
        spacing = self._spacing
        if self._reserve is None or not spacing:
            return self._last_start + spacing
        if not self._reserved:
            # No more than can be under way: whoever has to wait for answers lets what it reserved pass unused.
            count = max(1, min(self._concurrency, round(RESERVED_SECONDS / spacing)))
            first = self._clock() + self._reserve(count, spacing)
            self._reserved.extend(first + number * spacing for number in range(count))
        return self._reserved[0]

    def end(self, share: Share, *, undo: bool = False) -> None:
        with self._lock:
            self._under_way -= 1
            share.held -= 1
            if undo:
                with self.pace.lock:
                    self.pace.control.undo()
                if self._last_start == share.before[1]:
                    self._last_start = share.before[0]
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
            self._decide()
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

    def _decide(self) -> None:
        """Put the newest limits in force, else the strictest in use; those of who asked last where nobody does."""
        if self.newest is not None:
            self._concurrency, self._interval = self.newest.concurrency, self.newest.interval
            self._reserve = self.newest.reserve
        elif self._shares:
            self._concurrency = min(one.bounds.concurrency for one in self._shares)
            self._interval = max(one.bounds.interval for one in self._shares)


def _wake(share: Share | None) -> None:
    if share is not None:
        with suppress(RuntimeError):  # its event loop is closed: it asks no more
            share.wake()
