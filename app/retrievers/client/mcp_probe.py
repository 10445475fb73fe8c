"""Probes a tool of an MCP server over streamable HTTP: one call per canary, in one session per run.

The protocol is spoken by its own SDK, which is an extra; its bytes travel by our transport, with our address checks,
size caps and time-outs, and without redirects.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from app.base.addresses import OAuth2
from app.base.errors import InvalidInputError, LocalResourceError, Problem
from app.base.limits import RETRY_SECONDS
from app.base.net.transfer import NO_AUTH, Failure, NoAnswerError, Request, RequestAuth, Response, header_line
from app.base.net.transport import exchange
from app.base.texts import excess_of_answer
from app.base.values import EMPTY, Answer, Exchange, Outcome, Step, replace
from app.retrievers.client.background_loop import (
    Batch,
    Deliver,
    RefusedAnswer,
    open_in_turn,
    query_in_sessions,
    run_in_background,
)
from app.retrievers.client.compiled_retriever import (
    Plan,
    compile_retriever,
    read_answer,
    request_headers,
    varied_options,
)
from app.retrievers.client.credentials import CredentialError, Redaction, masked, secret_headers
from app.retrievers.client.endpoint_client import EndpointClient
from app.retrievers.client.responses import failed_answer, message_of_body, quoted
from app.retrievers.domain.retrievers import KEPT_CHARACTERS, ProbeContext, ProbeQuery

if TYPE_CHECKING:  # an extra; at run time it is imported where it is needed
    from mcp.types import CallToolResult

    from app.retrievers.client.mcp_session import Session

CLOSE_SECONDS = 2.0
"""How long a server may take to hear that a session ends."""

T = TypeVar("T")
Vectors = Mapping[str, Sequence[float]]


class McpProbe:
    """Probes tools as `asker` asks; the run id is added to its user agent, and goes along as `traceparent`."""

    def __init__(self, asker: EndpointClient) -> None:
        self._asker = asker

    def __call__(
        self, context: ProbeContext, queries: Sequence[ProbeQuery], vectors: Vectors = EMPTY
    ) -> Iterator[Batch]:
        """Send every query; see `Probe`. Raises InvalidInputError at once for an unusable tool or without the SDK."""
        plan = compile_retriever(context.retriever, context.k, varied_options(context.retriever, queries))
        if plan.varied_headers:
            what = f"stands in the header {plan.varied_headers[0][0]}, which a session of MCP sends once"
            raise InvalidInputError([Problem(path="vars", message=f"a variable {what}: take it out of vars")])
        _check_configuration(context, plan)
        return run_in_background(partial(self._work, plan, context, queries, vectors), "mcp probe")

    async def _work(
        self, plan: Plan, context: ProbeContext, queries: Sequence[ProbeQuery], vectors: Vectors, deliver: Deliver
    ) -> None:
        """Answer every query, also where the session breaks: what a hostile server does to the SDK is an answer."""
        waiting = {item.position for item in queries}

        def deliver_answer(position: int, answer: Answer) -> None:
            waiting.discard(position)
            deliver(position, answer)

        run = _SessionRun(self._asker, plan, context)
        step = Step.RETRIEVER
        try:
            if queries:
                await run.ask_all(queries, vectors, deliver_answer)
        except LocalResourceError:
            raise
        except NoAnswerError as error:
            outcome, detail, status = error.outcome, error.detail, error.http_status
            step = Step.AUTHENTICATION if isinstance(error, CredentialError) else step
        except Exception as error:  # noqa: BLE001 - see above
            outcome, detail, status = Outcome.MALFORMED, f"the session broke ({type(error).__name__})", None
        finally:
            run.close()
        for position in sorted(waiting):
            deliver(position, failed_answer(outcome, run.quotable(detail), status, step=step))


class _SessionRun:
    """One session of a run and the threads its requests wait in."""

    def __init__(self, asker: EndpointClient, plan: Plan, context: ProbeContext) -> None:
        self._asker = asker
        self._plan = plan
        self._asking = context
        self._auth = NO_AUTH
        self._redaction = Redaction.of(NO_AUTH, thorough=False)
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(context.concurrency + 1, "mcp transport")
        self._renewal = asyncio.Lock()
        self._was_refused = False

    async def ask_all(self, queries: Sequence[ProbeQuery], vectors: Vectors, deliver: Deliver) -> None:
        """Open the session, call, close it. Raises CredentialError and NoAnswerError."""
        from app.retrievers.client.mcp_session import open_session  # noqa: PLC0415 - an extra, see _check

        retriever = self._asking.retriever
        await self._set_auth()
        opening = partial(
            open_session,
            self._plan.url.render().decode(),
            retriever.tool or "",
            self._send,
            # It takes two exchanges, with all that may be repeated of them.
            opening_seconds=2 * (retriever.retries + 1) * (retriever.timeout_seconds + RETRY_SECONDS),
            seconds=retriever.timeout_seconds,
            max_bytes=retriever.max_body_bytes,
            user_agent=self._asker.user_agent,
        )
        async with AsyncExitStack() as stack:
            # The requests that open a session count as one.
            session = await open_in_turn(self._asking, self._asker.limits, lambda: stack.enter_async_context(opening()))

            @asynccontextmanager
            async def calls() -> AsyncIterator[Any]:
                yield lambda item: self._ask(session, item, vectors)

            try:
                await query_in_sessions(self._asking, queries, calls, deliver, self._asker.limits)
            except asyncio.CancelledError:
                self._stopping.set()
                raise

    def close(self) -> None:
        """Stop the threads."""
        self._stopping.set()
        self._threads.shutdown()

    async def _ask(self, session: "Session", item: ProbeQuery, vectors: Vectors) -> Answer | RefusedAnswer:
        values = self._plan.values_of(item, vectors)
        values["query"] = item.query.encode(errors="replace").decode()  # no halves of characters
        body = b"{}" if self._plan.body is None else self._plan.body.render(**values)
        trace, parent = self._asking.trace, None
        if trace is not None:
            began = trace.begin(item)
            parent = None if "traceparent" in self._plan.header_names else began
        started = time.perf_counter()
        content, refused = b"", None
        try:
            result = await session.call(json.loads(body), parent)
        except NoAnswerError as error:
            refused = error if error.is_refused else None
            answer = failed_answer(
                error.outcome, self.quotable(error.detail), error.http_status, time.perf_counter() - started
            )
        else:
            seconds = time.perf_counter() - started
            content = self._redaction.body(result_json(result))
            if result.is_error:
                detail = f"the tool answered that it failed{quoted(message_of_body(content))}"
                answer = failed_answer(Outcome.REFUSED, self.quotable(detail), None, seconds)
            else:
                answer = read_answer(
                    Response(body=content, latency_seconds=seconds), self._plan.reader, self._auth.secrets
                )
        if self._asking.shows:
            answer = replace(answer, exchange=self._shown_exchange(body, content))
        return answer if refused is None else RefusedAnswer(answer, refused.retry_after_seconds)

    def quotable(self, detail: str) -> str:
        """Return a sentence that may quote the server, without secrets."""
        return masked(detail, self._auth.secrets)

    async def _send(self, method: str, fields: Mapping[str, str], body: bytes, *, calls: bool) -> Response:
        """Send a request of the SDK. Raises ValueError for what cannot be a header."""
        retriever = self._asking.retriever
        headers = request_headers(self._plan, self._asking, self._asker.user_agent)
        headers = tuple([line for line in headers if line.partition(b":")[0].decode().lower() not in fields])
        seconds = retriever.timeout_seconds
        request = Request(
            url=self._plan.url.render().decode(),
            method=method,
            headers=(*(header_line(name, value) for name, value in fields.items()), *headers),
            body=body if method == "POST" else None,
            timeout_seconds=min(seconds, CLOSE_SECONDS) if method == "DELETE" else seconds,
            max_body_bytes=retriever.max_body_bytes,
            retries=0 if calls or method == "DELETE" else retriever.retries,  # calls are repeated as a whole
            wants_headers=True,
        )
        auth = self._auth
        response = await self._in_thread(partial(self._exchange, request, auth))
        if response.status == HTTPStatus.UNAUTHORIZED and isinstance(retriever.lone_auth, OAuth2):
            await self._renew(auth)
            if self._auth is not auth:  # a refused call was not made: it may be sent again
                response = await self._in_thread(partial(self._exchange, request, self._auth))
        return response

    async def _set_auth(self) -> None:
        retriever, shows = self._asking.retriever, self._asking.shows
        secret = {**(retriever.headers if shows else EMPTY), **secret_headers(retriever.headers)}
        auth = await self._in_thread(
            partial(self._asker.keyring.request_auth, retriever.lone_auth, retriever.tls, secret)
        )
        secrets = dict.fromkeys((*auth.secrets, *self._auth.secrets))  # answers to an older token come yet
        self._auth = replace(auth, secrets=tuple(secrets))
        self._redaction = Redaction.of(self._auth, thorough=shows)

    async def _renew(self, refused: RequestAuth) -> None:
        """Replace a refused token, once a run: one that is refused when fresh is not the token's fault."""
        async with self._renewal:
            if self._auth is refused and not self._was_refused:
                self._was_refused = True
                self._asker.keyring.forget(self._asking.retriever.lone_auth)
                with suppress(CredentialError):
                    await self._set_auth()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _exchange(self, request: Request, auth: RequestAuth) -> Response:
        """Send one request, unless the run is over before it is answered."""
        exchanged = exchange((request,), policy=self._asker.policy, concurrency=1, auth=auth)
        with closing(exchanged) as batches:
            for batch in batches:
                if batch:
                    return batch[0][1]
                if self._stopping.is_set():
                    break
        return Response(failure=Failure.UNREACHABLE, detail="the run ended first")

    def _shown_exchange(self, body: bytes, content: bytes) -> Exchange:
        hidden = self._auth.secrets
        return Exchange(
            method=f"tools/call {self._asking.retriever.tool}",
            url=masked(self._plan.url.render().decode(), hidden),
            request_body=masked(body.decode(), hidden)[:KEPT_CHARACTERS],
            response_body=masked(content.decode(), hidden)[:KEPT_CHARACTERS] if content else None,
            response_bytes=len(content),
        )


def result_json(result: "CallToolResult") -> bytes:
    """Return the result of a tool as one JSON response.

    Structured content stands for itself. Else texts that are JSON do: one for itself, several as a list, and a list
    under `result`, where servers put it in structured content. Else there are blocks of text under `content`.
    """
    if result.structured_content is not None:
        return json.dumps(result.structured_content).encode()
    texts = [block.text for block in result.content if block.type == "text"]
    values = [_parse_container(text) for text in texts]
    if not texts or None in values:
        blocks = [{"type": "text", "text": text} for text in texts]
        return json.dumps({"content": blocks}).encode()
    value = values[0] if len(values) == 1 else values
    return json.dumps({"result": value} if isinstance(value, list) else value).encode()


def _parse_container(text: str) -> Any:
    """Parse a list or an object; None = the text is neither, or holds more than an answer may."""
    if excess_of_answer(text.encode(errors="replace")) is not None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _check_configuration(context: ProbeContext, plan: Plan) -> None:
    """Raise InvalidInputError for what HTTP takes and MCP does not."""
    retriever = context.retriever
    problems = []
    if not retriever.tool:
        problems.append(Problem(path="tool", message="is missing; say the name of the tool to call"))
    if not isinstance(retriever.json, Mapping):
        problems.append(Problem(path="json", message="must be an object: the arguments of the tool"))
    if plan.url.names:
        problems.append(Problem(path="url", message="is that of a session, which cannot hang on what is asked"))
    try:
        import app.retrievers.client.mcp_session  # noqa: F401, PLC0415 - to see whether it is there
    except ImportError:
        message = "speaks MCP, whose SDK is an extra that is not installed: pip install 'coalmine[mcp]'"
        problems.append(Problem(path="preset", message=message))
    if problems:
        raise InvalidInputError(problems)
