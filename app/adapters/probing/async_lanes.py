"""Asks a retriever whose library is asynchronous: an event loop in a thread of its own, batches for the consumer.

What is asked, and what an answer means, is left to the probes; HTTP has a transport of its own.
"""

import asyncio
import contextlib
import math
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from app.adapters.file_descriptors import LOCAL_ERRORS
from app.adapters.limits import Limits
from app.adapters.probing.retriever_limits import peer_of
from app.domain.errors import LocalResourceError
from app.domain.model import Answer, Outcome
from app.domain.probing.retrievers import ProbeContext, ProbeQuery

POLL_SECONDS = 0.2
"""How long the consumer is left without a batch."""
JOIN_SECONDS = 2.0
"""How long closing waits for the loop; what still hangs then, hangs in a name resolution."""
RETRY_SECONDS = 0.2
"""How long a transport failure is left alone before it is tried again."""
BATCH = 64

Batch = list[tuple[int, Answer]]
Deliver = Callable[[int, Answer], None]
QueryOnce = Callable[[ProbeQuery], Awaitable[Answer]]
Lane = Callable[[], AbstractAsyncContextManager[QueryOnce]]


class NoAnswerError(Exception):
    """There is no answer to read: what a probe ends with instead, and one sentence why."""

    def __init__(self, outcome: Outcome, detail: str, http_status: int | None = None) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.http_status = http_status


def run_in_background(work: Callable[[Deliver], Awaitable[None]], name: str) -> Generator[Batch, None, None]:
    """Run `work` to its end and yield what it hands over; an empty batch where nothing came for a while.

    Closing the iterator cancels the work. What the work raises is raised here.
    """
    done: queue.SimpleQueue[tuple[int, Answer] | BaseException | None] = queue.SimpleQueue()
    try:
        loop = asyncio.new_event_loop()
    except OSError as error:
        if error.errno not in LOCAL_ERRORS:
            raise
        raise LocalResourceError(f"nothing could be asked from here: {error.strerror}") from error
    task = loop.create_task(_hold(work, done))
    thread = threading.Thread(target=_run, args=(loop, task, done), name=name, daemon=True)
    thread.start()
    try:
        while (batch := _take(done)) is not None:
            yield batch
    finally:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the work had come to its end
            loop.call_soon_threadsafe(task.cancel)
        thread.join(JOIN_SECONDS)


async def query_in_lanes(
    asking: ProbeContext, asks: Sequence[ProbeQuery], lane: Lane, hand: Deliver, limits: Limits | None = None
) -> None:
    """Ask everything, as many at once as the retriever takes and no faster; each lane is entered for itself.

    `limits` are those of all retrievers of the process; None = this retriever is asked by nobody else.
    """
    retriever = asking.retriever
    waiting = iter(asks)
    turns = _Turns(asking, limits)

    async def walk() -> None:
        async with lane() as ask_one:
            for ask in waiting:
                hand(ask.position, await _ask_with_retries(ask_one, ask, retriever.retries, turns))

    try:
        with contextlib.closing(turns):
            async with asyncio.TaskGroup() as lanes:
                for _ in range(min(retriever.concurrency, len(asks))):
                    lanes.create_task(walk())
    except BaseExceptionGroup as group:
        if (local := group.subgroup(LocalResourceError)) is not None:
            raise LocalResourceError(str(local.exceptions[0])) from group
        raise


@contextlib.asynccontextmanager
async def hold_turn(asking: ProbeContext, limits: Limits) -> AsyncIterator[None]:
    """Wait for a turn to ask a retriever outside of lanes, and hold it."""
    with contextlib.closing(_Turns(asking, limits)) as turns:
        async with turns.turn():
            yield


class _Turns:
    """The share of these lanes in the limits of a retriever."""

    def __init__(self, asking: ProbeContext, limits: Limits | None) -> None:
        loop, retriever = asyncio.get_running_loop(), asking.retriever
        self._changed = asyncio.Event()
        self._queue = asyncio.Lock()
        self._share = peer_of(asking, limits or Limits(loop.time)).share(
            concurrency=retriever.concurrency,
            requests_per_second=retriever.requests_per_second,
            wake=partial(loop.call_soon_threadsafe, self._changed.set),
        )

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn to send one request."""
        async with self._queue:  # one lane waits for all of them
            self._changed.clear()
            while wait := self._share.begin():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if wait == math.inf else wait):
                        await self._changed.wait()
                self._changed.clear()
        try:
            yield
        finally:
            self._share.end()

    def close(self) -> None:
        """Give everything back."""
        self._share.close()


async def _ask_with_retries(ask_one: QueryOnce, ask: ProbeQuery, retries: int, turns: _Turns) -> Answer:
    """Ask, and ask again after transport failures: the last attempt decides, and a bad answer is never retried."""
    async with turns.turn():
        answer = await ask_one(ask)
    while retries > 0 and answer.outcome in _TRANSIENT:
        retries -= 1
        await asyncio.sleep(RETRY_SECONDS)
        async with turns.turn():
            answer = await ask_one(ask)
    return answer


async def _hold(
    work: Callable[[Deliver], Awaitable[None]], done: "queue.SimpleQueue[tuple[int, Answer] | BaseException | None]"
) -> None:
    await work(lambda position, answer: done.put((position, answer)))


def _run(
    loop: asyncio.AbstractEventLoop,
    task: "asyncio.Task[None]",
    done: "queue.SimpleQueue[tuple[int, Answer] | BaseException | None]",
) -> None:
    try:
        loop.run_until_complete(task)
    except asyncio.CancelledError:
        pass
    except BaseException as error:  # noqa: BLE001 - a bug: it surfaces in the consumer
        done.put(error)
    finally:
        done.put(None)
        try:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()


def _take(done: "queue.SimpleQueue[tuple[int, Answer] | BaseException | None]") -> Batch | None:
    """Wait for the next batch, an empty one where none came for a while; None = that was all."""
    batch: Batch = []
    while len(batch) < BATCH:
        try:
            item = done.get(timeout=0 if batch else POLL_SECONDS)
        except queue.Empty:
            break
        if isinstance(item, BaseException):
            raise item
        if item is None:
            if not batch:
                return None
            done.put(None)  # found again after this batch
            break
        batch.append(item)
    return batch


_TRANSIENT = (Outcome.TIMEOUT, Outcome.UNREACHABLE)
