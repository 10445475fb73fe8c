"""Responses that report the progress of long work by server-sent events."""

import json
import math
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio import CapacityLimiter
from anyio.abc import ObjectSendStream
from fastapi.responses import Response
from fastapi.sse import format_sse_event
from starlette.types import Receive, Scope, Send

from app.base.errors import CoalmineError
from app.retrievers.service.diagnosis_queries import ReportProgress

MEDIA_TYPE = "text/event-stream"


class ProgressEvents(Response):
    """Runs work in a thread and sends its progress; a disconnected browser does not stop the work.

    Events: `progress` {done, of}, then `ended`, or `refused` {detail} for an error. They are sent in this response
    because a second request could reach another replica.
    """

    media_type = MEDIA_TYPE

    def __init__(self, work: Callable[[ReportProgress], Callable[[], object]], limiter: CapacityLimiter) -> None:
        super().__init__()
        del self.headers["content-length"]  # not known
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"  # or nginx buffers the events until the end
        self._work = work
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Answer with the events as they come."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        events, received = anyio.create_memory_object_stream[bytes](math.inf)
        async with anyio.create_task_group() as group, received:
            group.start_soon(self._run, events)
            async for event in received:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _run(self, events: ObjectSendStream[bytes]) -> None:
        def report(done: int, of: int) -> None:
            anyio.from_thread.run(events.send, _event("progress", done=done, of=of))

        async with events:
            try:
                await anyio.to_thread.run_sync(self._work(report), limiter=self._limiter)
            except CoalmineError as error:
                await events.send(_event("refused", detail=str(error)))
            else:
                await events.send(_event("ended"))


def _event(name: str, **data: Any) -> bytes:
    return format_sse_event(event=name, data_str=json.dumps(data))
