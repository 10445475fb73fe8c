"""REST routes of server-sent events: progress of a run, a re-scoring or a task's pool, and events of all checks.

A browser that loses a stream reconnects by itself and gets the present state; the server remembers nothing.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from app.base.api.deps import refuse_unknown_parameters
from app.base.api.keys import Identity
from app.reports.service.change_feed import Kind
from app.runs.api.streams import LONGEST_SECONDS, Listener, Streams

router = APIRouter(prefix="/v1", tags=["history"], dependencies=[Depends(refuse_unknown_parameters)])

_COME_BACK_MILLISECONDS = 2_000

Seconds = Annotated[
    float,
    Query(gt=0, le=LONGEST_SECONDS, description="duration of the stream; a browser reconnects by itself at its end"),
]


async def _news(request: Request) -> AsyncIterator[Listener]:
    async with _listen(request, Kind.NEWS) as listener:
        yield listener


async def _run(request: Request, run_id: str) -> AsyncIterator[Listener]:
    async with _listen(request, Kind.RUN, run_id) as listener:
        yield listener


async def _rescoring(request: Request, rescoring_id: str) -> AsyncIterator[Listener]:
    async with _listen(request, Kind.RESCORING, rescoring_id) as listener:
        yield listener


async def _task(request: Request, slug: str) -> AsyncIterator[Listener]:
    async with _listen(request, Kind.TASK, slug) as listener:
        yield listener


# Opened in dependencies, where an error is still a problem response and not the end of a started stream.
NewsDep = Annotated[Listener, Depends(_news)]
RunDep = Annotated[Listener, Depends(_run)]
RescoringDep = Annotated[Listener, Depends(_rescoring)]
TaskDep = Annotated[Listener, Depends(_task)]


@router.get("/events", response_class=EventSourceResponse)
async def follow_all(listener: NewsDep, seconds: Seconds = LONGEST_SECONDS) -> AsyncIterator[ServerSentEvent]:
    """Stream `run_ended` {check, run} and `alert_changed` {check, alert} from now on.

    Of runs of one check that end within a second only the newest is reported. A process has at most 100 event streams
    of all kinds, and 20 per key: more are refused with 503 and `Retry-After`.
    """
    async for event in _send(listener, seconds):
        yield event


@router.get("/runs/{run_id}/events", response_class=EventSourceResponse)
async def follow_run(
    run_id: str,  # noqa: ARG001 - in the path
    listener: RunDep,
    seconds: Seconds = LONGEST_SECONDS,
) -> AsyncIterator[ServerSentEvent]:
    """Stream `progress` {done, total, failed, status} of a run, now and on changes, then `ended` with its verdict."""
    async for event in _send(listener, seconds):
        yield event


@router.get("/rescorings/{rescoring_id}/events", response_class=EventSourceResponse)
async def follow_rescoring(
    rescoring_id: str,  # noqa: ARG001 - in the path
    listener: RescoringDep,
    seconds: Seconds = LONGEST_SECONDS,
) -> AsyncIterator[ServerSentEvent]:
    """Stream `progress` {done, total, status} of a re-scoring in runs, then `ended` with its measures version."""
    async for event in _send(listener, seconds):
        yield event


@router.get("/tasks/{slug}/events", response_class=EventSourceResponse)
async def follow_task(
    slug: str,  # noqa: ARG001 - in the path
    listener: TaskDep,
    seconds: Seconds = LONGEST_SECONDS,
) -> AsyncIterator[ServerSentEvent]:
    """Stream `progress` {done, total, failed, status} of a task's pool in canaries, then `ended` with its `items`."""
    async for event in _send(listener, seconds):
        yield event


async def _send(listener: Listener, seconds: float) -> AsyncIterator[ServerSentEvent]:
    yield ServerSentEvent(comment="listening", retry=_COME_BACK_MILLISECONDS)
    async for event in listener.events(seconds):
        yield ServerSentEvent(event=event.name, data=dict(event.data))


def _listen(request: Request, kind: Kind, opaque: str = "") -> AbstractAsyncContextManager[Listener]:
    streams: Streams = request.app.state.streams
    identity: Identity = request.state.identity
    return streams.listen(kind, opaque, key=identity.key_prefix)
