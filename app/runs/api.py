"""REST routes of server-sent events and of re-scorings.

Events are the progress of a run, a re-scoring or a task's pool, and changes of all checks. A browser that loses a
stream reconnects by itself and gets the present state; the server remembers nothing.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from app.base.api.bodies import OptionalContent, answers_with
from app.base.api.deps import StoreDep, refuse_unknown_parameters, wake
from app.base.api.schemas import Before, Limit, Page, RescoringRequest, body_schema
from app.base.db.engine import Store
from app.base.db.keys import Identity
from app.base.documents.parsing import parse_document
from app.base.errors import BusyError, StoreUnavailableError
from app.base.views import id_number
from app.reports.service import overview
from app.reports.service.overview import ChangeSnapshot, Event, Kind, Topic
from app.runs.service import rescoring
from app.scoring.runs import RescoringView

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
        found = await anyio.to_thread.run_sync(overview.find_topic, self._store, kind, opaque, limiter=self._thread)
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
        now = await anyio.to_thread.run_sync(overview.poll_changes, self._store, topics, before, limiter=self._thread)
        for listener in self._listeners:
            if listener.topic in topics:  # one added during the poll is served by the next
                _send_events(listener, now)
        return now


def _send_events(listener: Listener, now: ChangeSnapshot) -> None:
    try:
        for event in overview.events(listener.topic, listener.previous, now):
            listener.inlet.send_nowait(event)
    except (anyio.WouldBlock, anyio.ClosedResourceError):
        listener.inlet.close()
    listener.previous = now


router = APIRouter(prefix="/v1", tags=["history"], dependencies=[Depends(refuse_unknown_parameters)])

_COME_BACK_MILLISECONDS = 2_000

Seconds = Annotated[
    float,
    Query(gt=0, le=LONGEST_SECONDS, description="duration of the stream; a browser reconnects by itself at its end"),
]


def _listening(kind: Kind, parameter: str = "") -> Any:
    """Open a stream in a dependency, where an error is still a problem response and not the end of a started stream."""

    async def listen(request: Request) -> AsyncIterator[Listener]:
        streams: Streams = request.app.state.streams
        identity: Identity = request.state.identity
        opaque = request.path_params.get(parameter, "")
        async with streams.listen(kind, opaque, key=identity.key_prefix) as listener:
            yield listener

    return Depends(listen)


@router.get("/events", response_class=EventSourceResponse)
async def follow_all(
    listener: Annotated[Listener, _listening(Kind.NEWS)], seconds: Seconds = LONGEST_SECONDS
) -> AsyncIterator[ServerSentEvent]:
    """Stream `run_ended` {check, run} and `alert_changed` {check, alert} from now on.

    Of runs of one check that end within a second only the newest is reported. A process has at most 100 event streams
    of all kinds, and 20 per key: more are refused with 503 and `Retry-After`.
    """
    async for event in _send(listener, seconds):
        yield event


@router.get("/runs/{run_id}/events", response_class=EventSourceResponse)
async def follow_run(
    run_id: str,  # noqa: ARG001 - in the path
    listener: Annotated[Listener, _listening(Kind.RUN, "run_id")],
    seconds: Seconds = LONGEST_SECONDS,
) -> AsyncIterator[ServerSentEvent]:
    """Stream `progress` {done, total, failed, status} of a run, now and on changes, then `ended` with its verdict."""
    async for event in _send(listener, seconds):
        yield event


@router.get("/rescorings/{rescoring_id}/events", response_class=EventSourceResponse)
async def follow_rescoring(
    rescoring_id: str,  # noqa: ARG001 - in the path
    listener: Annotated[Listener, _listening(Kind.RESCORING, "rescoring_id")],
    seconds: Seconds = LONGEST_SECONDS,
) -> AsyncIterator[ServerSentEvent]:
    """Stream `progress` {done, total, status} of a re-scoring in runs, then `ended` with its measures version."""
    async for event in _send(listener, seconds):
        yield event


@router.get("/tasks/{slug}/events", response_class=EventSourceResponse)
async def follow_task(
    slug: str,  # noqa: ARG001 - in the path
    listener: Annotated[Listener, _listening(Kind.TASK, "slug")],
    seconds: Seconds = LONGEST_SECONDS,
) -> AsyncIterator[ServerSentEvent]:
    """Stream `progress` {done, total, failed, status} of a task's pool in canaries, then `ended` with its `items`."""
    async for event in _send(listener, seconds):
        yield event


async def _send(listener: Listener, seconds: float) -> AsyncIterator[ServerSentEvent]:
    yield ServerSentEvent(comment="listening", retry=_COME_BACK_MILLISECONDS)
    async for event in listener.events(seconds):
        yield ServerSentEvent(event=event.name, data=dict(event.data))


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
            overview.ended_topics, self._store, set(self._waiting), limiter=self._thread
        )
        for topic in ended & self._waiting.keys():
            for waiter in self._waiting[topic]:
                waiter.set()


def endings_of(request: Request) -> Endings:
    """Return the endings of the app."""
    endings: Endings = request.app.state.endings
    return endings


@router.post(
    "/checks/{slug}/rescorings",
    responses=answers_with(RescoringView, 200, 202),
    openapi_extra=body_schema(RescoringRequest, required=False),
)
async def post_rescoring(request: Request, store: StoreDep, slug: str, body: OptionalContent) -> JSONResponse:
    """Re-score a check's recorded runs with its present judgments: 202, or 200 when done within `wait_seconds`.

    The recorded numbers stay; the new ones are a measures version of their own. With an unchanged suite the same
    re-scoring continues with the runs since.
    """
    body_request = parse_document(RescoringRequest, {} if body is None else body)
    limiter: CapacityLimiter = request.app.state.access.waiting

    def ask() -> int:
        return rescoring.ask(store, slug, since=body_request.since, now=datetime.now(UTC))

    rescoring_id = await anyio.to_thread.run_sync(ask, limiter=limiter)
    wake(request)
    if body_request.wait_seconds:
        await endings_of(request).wait(Topic(Kind.RESCORING, rescoring_id), body_request.wait_seconds)
    found = await anyio.to_thread.run_sync(rescoring.show, store, rescoring_id, limiter=limiter)
    headers = {"location": f"/v1/rescorings/{rescoring_id}"}
    return JSONResponse(found, status_code=202 if found["finished_at"] is None else 200, headers=headers)


@router.get("/checks/{slug}/rescorings")
def list_rescorings(store: StoreDep, slug: str, before: Before = None, limit: Limit = 50) -> Page[RescoringView]:
    """List the re-scorings of a check, newest first."""
    found = rescoring.list_all(store, slug, before=before, limit=limit + 1)
    return Page(items=found[:limit], next=found[limit - 1]["id"] if len(found) > limit else None)


@router.get("/rescorings/{rescoring_id}")
def get_rescoring(store: StoreDep, rescoring_id: str) -> RescoringView:
    """Show a re-scoring: its progress and, once it has finished, its totals before and after."""
    return rescoring.show(store, id_number(rescoring_id, "re-scoring"))
