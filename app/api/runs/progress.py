"""Progress by server-sent events: of a run, of a re-scoring, and of all that happens.

A browser that loses a stream comes back by itself and is told how things stand; nothing has to be remembered.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from app.api.deps import known_parameters
from app.api.runs.streams import LONGEST_SECONDS, Listener, Streams
from app.services.catalog.api_keys import Identity
from app.services.history.change_feed import Kind

router = APIRouter(prefix="/v1", tags=["history"], dependencies=[Depends(known_parameters)])

_COME_BACK_MILLISECONDS = 2_000

Seconds = Annotated[
    float,
    Query(gt=0, le=LONGEST_SECONDS, description="how long to stay; a browser comes back by itself when a stream ends"),
]


async def _news(request: Request) -> AsyncIterator[Listener]:
    async with _listening(request, Kind.NEWS) as listener:
        yield listener


async def _run(request: Request, run_id: str) -> AsyncIterator[Listener]:
    async with _listening(request, Kind.RUN, run_id) as listener:
        yield listener


async def _rescoring(request: Request, rescoring_id: str) -> AsyncIterator[Listener]:
    async with _listening(request, Kind.RESCORING, rescoring_id) as listener:
        yield listener


# In dependencies, for what goes wrong there is still a problem and not the end of a stream that has begun.
NewsDep = Annotated[Listener, Depends(_news)]
RunDep = Annotated[Listener, Depends(_run)]
RescoringDep = Annotated[Listener, Depends(_rescoring)]


@router.get("/events", response_class=EventSourceResponse)
async def follow_all(listener: NewsDep, seconds: Seconds = LONGEST_SECONDS) -> AsyncIterator[ServerSentEvent]:
    """Follow what happens: `run_ended` {check, run} and `alert_changed` {check, alert}, from now on.

    They say where to look, not what is there. Of runs of one check that end within a second the newest is told.
    A process holds 100 event streams open, of this kind and the others, and 20 of one key: more are refused with 503
    and `Retry-After`.
    """
    async for event in _sent(listener, seconds):
        yield event


@router.get("/runs/{run_id}/events", response_class=EventSourceResponse)
async def follow_run(
    run_id: str,  # noqa: ARG001 - in the path
    listener: RunDep,
    seconds: Seconds = LONGEST_SECONDS,
) -> AsyncIterator[ServerSentEvent]:
    """Follow a run: `progress` {done, total, failed, status} now and whenever it moves, then `ended` with its verdict.

    The stream ends with that; the run itself has the numbers.
    """
    async for event in _sent(listener, seconds):
        yield event


@router.get("/rescorings/{rescoring_id}/events", response_class=EventSourceResponse)
async def follow_rescoring(
    rescoring_id: str,  # noqa: ARG001 - in the path
    listener: RescoringDep,
    seconds: Seconds = LONGEST_SECONDS,
) -> AsyncIterator[ServerSentEvent]:
    """Follow a re-scoring: `progress` {done, total, status} in runs, then `ended` with its measures version."""
    async for event in _sent(listener, seconds):
        yield event


async def _sent(listener: Listener, seconds: float) -> AsyncIterator[ServerSentEvent]:
    yield ServerSentEvent(comment="listening", retry=_COME_BACK_MILLISECONDS)
    async for event in listener.events(seconds):
        yield ServerSentEvent(event=event.name, data=dict(event.data))


def _listening(request: Request, kind: Kind, opaque: str = "") -> AbstractAsyncContextManager[Listener]:
    streams: Streams = request.app.state.streams
    identity: Identity = request.state.identity
    return streams.listening(kind, opaque, key=identity.key_prefix)
