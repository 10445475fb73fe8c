"""HTTP over libcurl, many requests at a time; with `transfer` the only modules that know pycurl.

It promises exact time-outs, size caps, no redirects, no environment proxy and an address check on every connection.
What a request and a response mean is left to the clients of retrievers, judges and hooks.
"""

import math
import queue
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pycurl

from app.base.addresses import AddressPolicy
from app.base.errors import LocalResourceError
from app.base.limits import FIRST_PAUSE_SECONDS, RETRY_SECONDS, TRANSIENT, Limits, Peer, Share
from app.base.net.transfer import (
    LOCAL_ERRORS,
    NO_AUTH,
    OUTCOMES,
    Failure,
    Request,
    RequestAuth,
    Response,
    Transfer,
    blocked_text,
    options_of,
    parse_host,
)
from app.base.values import Slowing, replace

PAUSE_SECONDS = 60.0
"""How long at most other requests wait after a refusal that is not sent again: a peer may ask for a day."""
POSTPONED_REFUSALS = 3
"""A request refused so often goes behind all others: it may be refused for what it is, not for the rate."""
POLL_SECONDS = 0.2
JOIN_SECONDS = 1.0
"""How long closing waits for the loop, whose last act, libcurl's clean-up, sits out a hanging name resolution."""
BACKLOG_BYTES = 32_000_000
"""Size of the waiting responses at which nothing new is started; what is under way goes on."""
BATCH = 64
"""Most responses in a batch; fewer as soon as no socket is ready."""

Batch = list[tuple[int, Response]]


def exchange(
    requests: Iterable[Request],
    *,
    policy: AddressPolicy,
    concurrency: int,
    requests_per_second: float | None = None,
    auth: RequestAuth = NO_AUTH,
    peer: Peer | None = None,
    sign: Callable[[Request], Request] | None = None,
) -> Generator[Batch, None, None]:
    """Send every request and yield batches of (tag, response) as they come in, each request once.

    One loop in a thread of its own does the talking (and draws from `requests`), so that latencies do not contain what
    the consumer does in between. Peers' failures are responses, never exceptions;
    LocalResourceError says that this process could not ask. Closing the iterator cancels the
    rest; where nothing comes for a while, an empty batch gives the consumer the chance to. Connections are reused
    within one call only, hence never across policies or identities. `auth` is added to every request. The proxy
    is that of the policy, whatever the environment says.

    `concurrency` and `requests_per_second` hold for this exchange or, with `peer`, for all that ask it. Waiting for a
    turn is part of no latency and no time-out.

    A peer that answers 429, or 503 with `Retry-After`, is left alone for so long, after a 429 without it for a second
    and longer each time; what is under way goes on. Refused requests are then sent again, at a rate that is halved at
    refusals and raised by steps; see `base.limits`. That ends once the peer has accepted nothing for as long
    as the patience of `peer`, or asks for more than is left of it: the refusals are responses then, and others wait
    PAUSE_SECONDS at most. `sign` completes a request each time before it is sent, from the loop's thread.
    """
    try:
        new_transfer = partial(Transfer, policy, auth, options_of(auth))
        loop = _Loop(iter(requests), policy, new_transfer, concurrency, sign)
    except OSError as error:
        if error.errno not in LOCAL_ERRORS:
            raise
        raise LocalResourceError(f"nothing could be asked from here: {error.strerror}") from error
    peer = peer or Peer(limits=Limits(), name="")
    loop.share = peer.share(concurrency=concurrency, requests_per_second=requests_per_second, wake=loop.wake)
    thread = threading.Thread(target=loop.run, name="transport", daemon=True)
    thread.start()
    try:
        while (batch := loop.take()) is not None:
            yield batch
    finally:
        loop.stop()
        thread.join(JOIN_SECONDS)


def send_one(request: Request, *, policy: AddressPolicy, auth: RequestAuth = NO_AUTH) -> Response:
    """Send one request over a connection of its own."""
    with closing(exchange((request,), policy=policy, concurrency=1, auth=auth)) as batches:
        return next(batch[0][1] for batch in batches if batch)


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """A request on its way to a response."""

    request: Request
    retries: int
    """How many more after transport failures."""
    refusals: int = 0
    refused: Response | None = None
    """Response to the newest refusal."""
    slowing: Slowing | None = None
    begun_at: float = 0.0
    """By the clock of the limits."""


class _Loop:
    """The event loop: libcurl's socket interface, which unlike its select() interface has no limit on descriptors."""

    def __init__(
        self,
        requests: Iterator[Request],
        policy: AddressPolicy,
        new_transfer: Callable[[], Transfer],
        concurrency: int,
        sign: Callable[[Request], Request] | None,
    ) -> None:
        self._requests = requests
        self._sign = sign
        self._exhausted = False
        self._next_request: Request | None = None
        self._retries: deque[tuple[float, _Attempt]] = deque()
        self._refused: deque[_Attempt] = deque()
        """To be sent again, as soon as the peer may be asked."""
        self._postponed: deque[_Attempt] = deque()
        """Likewise, once nothing else waits."""
        self._has_given_up = False
        """Whether the peer refused for longer than is waited: what it refuses now is not sent again."""
        self.share: Share
        """In the limits of the peer; to be given before `run`."""
        self._next_turn = self._paused_until = 0.0
        """When to ask for a turn again, and until when the peer asked to be left alone."""
        self._policy = policy
        self._done: queue.SimpleQueue[tuple[Batch, int] | BaseException | None] = queue.SimpleQueue()
        self._delivered_bytes = self._taken_bytes = 0
        self._stopping = self._is_backlog_full = False
        self._timer: float | None = None
        self._poll = select.poll()  # a table kept here, so that libcurl's many changes of mind are no system calls
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._wake_fd = self._wake_reader.fileno()
        self._poll.register(self._wake_fd, select.POLLIN)
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, concurrency)
        self._new_transfer = new_transfer
        self._concurrency = concurrency
        self._idle: list[Transfer] = []
        self._active: dict[Any, tuple[Transfer, _Attempt]] = {}

    def run(self) -> None:
        """Loop until every request is answered or `stop` was called; leaves nothing under way."""
        try:
            batch: Batch = []
            while not self._stopping:
                batch += self._start()
                if not self._active and not self._has_waiting:
                    self._deliver(batch)
                    break
                ready = self._poll.poll(0 if batch else self._wait_milliseconds())
                if batch and (not ready or len(batch) >= BATCH):
                    self._deliver(batch)
                    batch = []
                for fd, events in ready:
                    if fd == self._wake_fd:
                        self._wake_reader.recv(4096)
                    else:
                        self._multi.socket_action(fd, _ACTIONS[events & _POLL_EVENTS])
                if self._timer is not None and self._timer <= time.monotonic():
                    self._timer = None
                    self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
                self._collect_finished(batch)
        except BaseException as error:  # noqa: BLE001 - a bug, or the caller's iterator: it surfaces in the consumer
            self._done.put(error)
        finally:
            self._close()

    def take(self) -> Batch | None:
        """Return the next batch, an empty one where none came for a while; None = that was all."""
        try:
            item = self._done.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return []
        if item is None:
            return None
        if isinstance(item, BaseException):
            raise item
        batch, weight = item
        self._taken_bytes += weight
        if self._is_backlog_full:
            self.wake()
        return batch

    def stop(self) -> None:
        """Make `run` return soon; the loop must not be used afterwards."""
        self._stopping = True
        self.wake()
        self._wake_writer.close()

    def wake(self) -> None:
        """Make `run` check again what it may start; from any thread."""
        with suppress(OSError):  # nobody listens any more, or has so much to read that it is awake anyway
            self._wake_writer.send(b"\0")

    def _close(self) -> None:
        self._done.put(None)
        self.share.close()  # first: what follows may sit out a hanging name resolution
        active = [transfer for transfer, _ in self._active.values()]
        for transfer in active:
            transfer.stop_watching()
            self._multi.remove_handle(transfer.curl)
        for transfer in (*active, *self._idle):
            transfer.curl.close()
        self._multi.close()
        self._wake_reader.close()

    def _start(self) -> Batch:
        """Start what may start now; returns the responses to requests that need not be sent."""
        refusals: Batch = []
        self._is_backlog_full = False
        self._next_turn = 0.0
        while len(self._active) < self._concurrency and self._has_waiting:
            if self._delivered_bytes - self._taken_bytes > BACKLOG_BYTES:
                # The consumer moves `_taken` first and then looks here: so look once more, lest its wake-up be missed.
                self._is_backlog_full = True
                if self._delivered_bytes - self._taken_bytes > BACKLOG_BYTES:
                    break
                self._is_backlog_full = False
            now = time.monotonic()
            if now < max(self._paused_until, self._next_due()):
                break
            wait = self.share.begin()
            if wait:
                self._next_turn = now + wait
                return refusals
            attempt = self._next()
            if attempt is None:
                self.share.undo()
                break
            request = attempt.request
            refusal = self._refusal(request)
            if refusal is not None:
                self.share.undo()
                refusals.append((request.tag, refusal))
                continue
            attempt.begun_at = self.share.begun_at
            transfer = self._idle.pop() if self._idle else self._new_transfer()
            transfer.prepare(request if self._sign is None else self._sign(request))
            self._active[transfer.curl] = transfer, attempt
            self._multi.add_handle(transfer.curl)
        self.share.withdraw()
        return refusals

    @property
    def _has_waiting(self) -> bool:
        """Whether requests wait to be sent, or may still be drawn."""
        return bool(self._retries or self._refused or self._postponed) or not self._exhausted

    def _next_due(self) -> float:
        """When the next of the waiting requests may be sent at the earliest, apart from what the peer says."""
        if self._refused or self._postponed or not self._exhausted:
            return 0.0
        return self._retries[0][0] if self._retries else math.inf

    def _next(self) -> _Attempt | None:
        if self._retries and self._retries[0][0] <= time.monotonic():
            return self._retries.popleft()[1]
        if self._refused:
            return self._refused.popleft()
        self._draw_request()
        fresh, self._next_request = self._next_request, None
        if fresh is None:
            return self._postponed.popleft() if self._postponed else None
        return _Attempt(request=fresh, retries=fresh.retries)

    def _draw_request(self) -> None:
        if self._next_request is None and not self._exhausted:
            self._next_request = next(self._requests, None)
            self._exhausted = self._next_request is None

    def _refusal(self, request: Request) -> Response | None:
        """Return the response to a request that goes nowhere, whatever names resolve to; None = send it."""
        url = request.url
        if not url[:8].lower().startswith(("http://", "https://")):
            return Response(failure=Failure.BLOCKED, detail="only http and https addresses are contacted")
        if "\0" in url or not (url.isascii() or _is_text(url)):
            return Response(failure=Failure.UNREACHABLE, detail="the URL is malformed")
        if url.isascii() and self._policy.proxy is None:
            return None
        host = parse_host(url)
        reason = None if host else "the host is not written plainly"  # resolvers differ in what they make of it
        if host and self._policy.proxy_of(host) is not None:
            reason = self._policy.check_unresolved(host)
        return None if reason is None else Response(failure=Failure.BLOCKED, detail=blocked_text(reason))

    def _wait_milliseconds(self) -> float | None:
        """Return the milliseconds to the next due step without any event; None = any number."""
        due = [] if self._timer is None else [self._timer]
        if len(self._active) < self._concurrency and not self._is_backlog_full:
            due.append(max(self._paused_until, self._next_turn, self._next_due()))
        soonest = min(due, default=math.inf)
        return None if soonest == math.inf else max(0.0, (soonest - time.monotonic()) * 1000)

    def _collect_finished(self, batch: Batch) -> None:
        queued = 1
        while queued:
            queued, succeeded, failed = self._multi.info_read()
            for curl in succeeded:
                self._finish(curl, 0, batch)
            for curl, code, _message in failed:
                self._finish(curl, code, batch)

    def _finish(self, curl: Any, code: int, batch: Batch) -> None:
        transfer, attempt = self._active.pop(curl)
        self._multi.remove_handle(curl)
        self._idle.append(transfer)
        self.share.end()
        if code and (what := transfer.local_error(code)) is not None:
            raise LocalResourceError(f"nothing could be asked from here: {what}")
        response = transfer.response(code)
        if response.is_refused:
            self._refuse(attempt, response, batch)
            return
        answered = response.status is not None and response.status >= _REDIRECT  # a bad answer is never asked for again
        if response.status is not None and response.status < _SERVER_ERROR:
            self.share.accept(attempt.begun_at)
            self._has_given_up = False
        is_transient = response.failure is not None and OUTCOMES[response.failure] in TRANSIENT
        if attempt.retries and is_transient and not answered:
            attempt.retries -= 1
            self._retries.append((time.monotonic() + RETRY_SECONDS, attempt))
        else:
            batch.append((attempt.request.tag, self._with_slowing(response, attempt)))

    def _refuse(self, attempt: _Attempt, response: Response, batch: Batch) -> None:
        """Have a refused request sent again, or deliver it with all others that wait for the peer."""
        retry_after = response.retry_after_seconds
        refusal = self.share.refuse(attempt.begun_at, status=response.status or 0, retry_after=retry_after)
        attempt.slowing = self.share.slow_down(attempt.slowing, refusals=attempt.refusals)
        attempt.refused = response
        if not refusal.is_final and not self._has_given_up:
            attempt.refusals += 1
            (self._refused if attempt.refusals < POSTPONED_REFUSALS else self._postponed).append(attempt)
            return
        self._has_given_up = True
        is_patient = self.share.patience > 0
        if pause := retry_after or (FIRST_PAUSE_SECONDS if is_patient else 0.0):  # the consumer may want to stop now
            self._paused_until = max(self._paused_until, time.monotonic() + min(pause, PAUSE_SECONDS))
            self._draw_request()  # where nothing is left to ask, nobody need wait
        for one in (attempt, *self._refused, *self._postponed):
            final = self._with_slowing(one.refused or response, one)
            seconds = refusal.refused_seconds if is_patient else None
            batch.append((one.request.tag, replace(final, refused_seconds=seconds)))
        self._refused.clear()
        self._postponed.clear()

    def _with_slowing(self, response: Response, attempt: _Attempt) -> Response:
        slowing = self.share.slow_down(attempt.slowing, refusals=attempt.refusals)
        return response if slowing is None else replace(response, slowing=slowing)

    def _deliver(self, batch: Batch) -> None:
        if batch:
            weight = sum([1000 + len(response.body) for _, response in batch])
            self._delivered_bytes += weight
            self._done.put((batch, weight))

    def _on_socket(self, event: int, fd: int, _multi: Any, _data: Any) -> None:
        if event == pycurl.POLL_REMOVE:
            self._poll.unregister(fd)
        else:
            self._poll.register(fd, _INTERESTS[event])

    def _on_timer(self, milliseconds: int) -> None:
        self._timer = None if milliseconds < 0 else time.monotonic() + milliseconds / 1000


def _is_text(url: str) -> bool:
    try:
        url.encode()
    except UnicodeEncodeError:
        return False
    return True


# libcurl's events as those of poll, and those of poll as libcurl's.
_INTERESTS = {
    pycurl.POLL_NONE: 0,
    pycurl.POLL_IN: select.POLLIN,
    pycurl.POLL_OUT: select.POLLOUT,
    pycurl.POLL_INOUT: select.POLLIN | select.POLLOUT,
}
_POLL_ERRORS = select.POLLERR | select.POLLHUP | select.POLLNVAL
_POLL_EVENTS = select.POLLIN | select.POLLOUT | _POLL_ERRORS
_ACTIONS = [
    (pycurl.CSELECT_IN if event & (select.POLLIN | select.POLLHUP) else 0)
    | (pycurl.CSELECT_OUT if event & select.POLLOUT else 0)
    | (pycurl.CSELECT_ERR if event & (select.POLLERR | select.POLLNVAL) else 0)
    for event in range(_POLL_EVENTS + 1)
]
_SERVER_ERROR = 500
_REDIRECT = 300  # and all above it: an answer, though not a good one
