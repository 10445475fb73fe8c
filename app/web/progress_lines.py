"""Long work that says how far it is: lines of JSON as they come, `{"done", "of"}`, the last one how it ended."""

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
from starlette.types import Receive, Scope, Send

from app.domain.errors import CoalmineError

MEDIA_TYPE = "application/x-ndjson"

Told = Callable[[int, int], None]


class ProgressLines(Response):
    """Does work in a thread of its own and sends how far it is; whoever goes away meanwhile does not end it.

    The last line is `{"ended": true}` or, for what may go wrong, `{"error": "..."}`. An event stream would take a
    second request that need not reach the replica at work; this is the answer to the one that asked for the work.
    """

    media_type = MEDIA_TYPE

    def __init__(self, work: Callable[[Told], Callable[[], object]], limiter: CapacityLimiter) -> None:
        super().__init__()
        del self.headers["content-length"]  # nobody knows
        self._work = work
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Answer with the lines as they come."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        lines, told = anyio.create_memory_object_stream[dict[str, Any]](math.inf)
        async with anyio.create_task_group() as group, told:
            group.start_soon(self._carry_out, lines)
            async for line in told:
                await send({"type": "http.response.body", "body": json.dumps(line).encode() + b"\n", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _carry_out(self, lines: ObjectSendStream[dict[str, Any]]) -> None:
        def tell(done: int, of: int) -> None:
            anyio.from_thread.run(lines.send, {"done": done, "of": of})

        async with lines:
            try:
                await anyio.to_thread.run_sync(self._work(tell), limiter=self._limiter)
            except CoalmineError as error:
                await lines.send({"error": str(error)})
            else:
                await lines.send({"ended": True})
