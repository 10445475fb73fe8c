"""An event loop in a thread, for MCP servers and PostgreSQL, whose libraries need one, and the sessions that ask in it.

Answers come in batches; the limits of a retriever hold here too. What shares them between processes is `Lane`.
"""

import asyncio
import contextlib
import math
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar

from app.base.errors import LocalResourceError
from app.base.limits import RETRY_SECONDS, TRANSIENT, Limits
from app.base.net.transfer import LOCAL_ERRORS, NoAnswerError
from app.base.values import Answer, Value, replace
from app.retrievers.client.responses import with_refusal
from app.retrievers.domain.probes import peer_of
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery

POLL_SECONDS = 0.2
JOIN_SECONDS = 2.0
"""How long closing waits for the loop; what still hangs then, hangs in a name resolution."""
BATCH = 64
T = TypeVar("T")


class RefusedAnswer(Value, kw_only=False):
    """Answer of a retriever that may accept the same query later."""

    answer: Answer
    retry_after_seconds: float | None


Batch = list[tuple[int, Answer]]


Deliver = Callable[[int, Answer], None]


QueryOnce = Callable[[ProbeQuery], Awaitable[Answer | RefusedAnswer]]


OpenSession = Callable[[], AbstractAsyncContextManager[QueryOnce]]
"""Opens what sends one query after another, such as a connection."""


def run_in_background(work: Callable[[Deliver], Awaitable[None]], name: str) -> Generator[Batch, None, None]:
    """Run `work` to its end and yield what it delivers; an empty batch where nothing came for a while.

    Closing the iterator cancels the work. What the work raises is raised here.
    """
    answers: queue.SimpleQueue[tuple[int, Answer] | BaseException | None] = queue.SimpleQueue()
    try:
        loop = asyncio.new_event_loop()
    except OSError as error:
        if error.errno not in LOCAL_ERRORS:
            raise
        raise LocalResourceError(f"nothing could be asked from here: {error.strerror}") from error
    task = loop.create_task(_run_work(work, answers))
    thread = threading.Thread(target=_run_loop, args=(loop, task, answers), name=name, daemon=True)
    thread.start()
    try:
        while (batch := _next_batch(answers)) is not None:
            yield batch
    finally:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the work had come to its end
            loop.call_soon_threadsafe(task.cancel)
        thread.join(JOIN_SECONDS)


async def query_in_sessions(
    context: ProbeContext,
    queries: Sequence[ProbeQuery],
    open_session: OpenSession,
    deliver: Deliver,
    limits: Limits | None = None,
) -> None:
    """Send every query, as many at once as the retriever takes; `limits` None = nobody else queries it."""
    retriever = context.retriever
    waiting = iter(queries)
    turns = _Turns(context, limits)

    async def run_session() -> None:
        async with open_session() as query_once:
            for item in waiting:
                deliver(item.position, await _query_with_retries(query_once, item, retriever.retries, turns))

    try:
        with contextlib.closing(turns):
            async with asyncio.TaskGroup() as group:
                for _ in range(min(context.concurrency, len(queries))):
                    group.create_task(run_session())
    except BaseExceptionGroup as group:
        if (local := group.subgroup(LocalResourceError)) is not None:
            raise LocalResourceError(str(local.exceptions[0])) from group
        raise


async def open_in_turn(context: ProbeContext, limits: Limits, open_session: Callable[[], Awaitable[T]]) -> T:
    """Open a session in a turn of a retriever, before its queries, and again where the retriever refuses it.

    Raises NoAnswerError.
    """
    with contextlib.closing(_Turns(context, limits)) as turns:
        while True:
            async with turns.turn() as begun_at:
                try:
                    return await open_session()
                except NoAnswerError as error:
                    status, retry_after = error.http_status or 0, error.retry_after_seconds
                    if (
                        not error.is_refused
                        or turns.share.refuse(begun_at, status=status, retry_after=retry_after).is_final
                    ):
                        raise


class _Turns:
    """Share of these sessions in the limits of a retriever."""

    def __init__(self, context: ProbeContext, limits: Limits | None) -> None:
        loop, retriever = asyncio.get_running_loop(), context.retriever
        self._changed = asyncio.Event()
        self._queue = asyncio.Lock()
        self.share = peer_of(context, limits or Limits(loop.time)).share(
            concurrency=context.concurrency,
            requests_per_second=retriever.requests_per_second,
            wake=partial(loop.call_soon_threadsafe, self._changed.set),
        )

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[float]:
        """Wait for a turn to send one request, and hold it; gives when it began, by the clock of the limits."""
        async with self._queue:  # one session waits for all of them
            self._changed.clear()
            while wait := self.share.begin():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if wait == math.inf else wait):
                        await self._changed.wait()
                self._changed.clear()
            begun_at = self.share.begun_at
        try:
            yield begun_at
        finally:
            self.share.end()

    def close(self) -> None:
        """Close the share."""
        self.share.close()


async def _query_with_retries(query_once: QueryOnce, item: ProbeQuery, retries: int, turns: _Turns) -> Answer:
    """Query, and again after transport failures: the last attempt counts; a bad answer is never retried.

    One that the retriever refused for now is sent again for as long as the run is patient.
    """
    share, refusals, slowing = turns.share, 0, None
    while True:
        async with turns.turn() as begun_at:
            answer = await query_once(item)
        if isinstance(answer, RefusedAnswer):
            status, retry_after = answer.answer.http_status or 0, answer.retry_after_seconds
            refusal = share.refuse(begun_at, status=status, retry_after=retry_after)
            slowing = share.slow_down(slowing, refusals=refusals)
            if refusal.is_final:
                final = replace(answer.answer, slowing=slowing)
                seconds = refusal.refused_seconds if share.patience > 0 else None
                return with_refusal(final, refused_seconds=seconds, retry_after_seconds=retry_after)
            refusals += 1
            continue
        if answer.outcome not in TRANSIENT:
            share.accept(begun_at)
        elif retries > 0:
            retries -= 1
            await asyncio.sleep(RETRY_SECONDS)
            continue
        slowing = share.slow_down(slowing, refusals=refusals)
        return answer if slowing is None else replace(answer, slowing=slowing)


async def _run_work(
    work: Callable[[Deliver], Awaitable[None]], answers: "queue.SimpleQueue[tuple[int, Answer] | BaseException | None]"
) -> None:
    await work(lambda position, answer: answers.put((position, answer)))


def _run_loop(
    loop: asyncio.AbstractEventLoop,
    task: "asyncio.Task[None]",
    answers: "queue.SimpleQueue[tuple[int, Answer] | BaseException | None]",
) -> None:
    try:
        loop.run_until_complete(task)
    except asyncio.CancelledError:
        pass
    except BaseException as error:  # noqa: BLE001 - a bug: it surfaces in the consumer
        answers.put(error)
    finally:
        answers.put(None)
        try:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()


def _next_batch(answers: "queue.SimpleQueue[tuple[int, Answer] | BaseException | None]") -> Batch | None:
    """Return the next batch, an empty one where none came for a while; None = that was all."""
    batch: Batch = []
    while len(batch) < BATCH:
        try:
            item = answers.get(timeout=0 if batch else POLL_SECONDS)
        except queue.Empty:
            break
        if isinstance(item, BaseException):
            raise item
        if item is None:
            if not batch:
                return None
            answers.put(None)  # read again after this batch
            break
        batch.append(item)
    return batch
