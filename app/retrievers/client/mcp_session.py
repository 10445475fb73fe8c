"""A session with an MCP server by the protocol's own SDK, whose bytes travel by our transport.

The only module that needs the extra `mcp`, so it is imported where a session is needed and not before. What a call
asks and its result means is left to the probe.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, Implementation
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from app.base.net.transfer import NoAnswerError, Response
from app.base.texts import excess_of_answer
from app.base.values import Outcome
from app.retrievers.client.responses import response_problem

GRACE_SECONDS = 0.5
"""How much longer than its time-out we wait for the transport, which says better what was late."""
MAX_EVENTS = 1_000
"""Of one stream of events: an answer and what comes before it, such as messages of progress."""
MAX_RESUMPTIONS = 8
"""How often the stream of one answer may break off and be gone on with, on average."""
MAX_PAGES = 20

T = TypeVar("T")

for _name in ("mcp", "client"):  # the SDK's loggers quote what servers say, where nobody may read it
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class Transport(Protocol):
    """Carries the requests of the SDK."""

    async def __call__(self, method: str, fields: Mapping[str, str], body: bytes, *, calls: bool) -> Response:
        """Send one request; failures are responses. Raises ValueError for what cannot be a header."""
        ...


class Session:
    """An open session, for one run; its calls may overlap."""

    def __init__(self, client: Client, transport: "_Transport", tool: str, seconds: float) -> None:
        self._client = client
        self._transport = transport
        self._tool = tool
        self._seconds = seconds

    async def call(self, arguments: dict[str, Any], traceparent: str | None = None) -> CallToolResult:
        """Call the tool. Raises NoAnswerError where no result came; a tool's own failure is a result.

        `traceparent` goes along where the protocol has it, in the call's `_meta`, and as a header.

        Not by the SDK's own function, which would hold the result against the schema that the server declares for it:
        patterns and references of a hostile schema take for ever, and the whole process with them. What the mapping
        does not find in the result is missing all the same.
        """
        meta = None if traceparent is None else {"traceparent": traceparent}  # SEP-414: a key of the protocol's own
        params = {"name": self._tool, "arguments": arguments, "_meta": meta}
        request = CallToolRequest(params=CallToolRequestParams.model_validate(params))
        calling = self._client.session.send_request(request, CallToolResult)
        return await _wait_for(calling, self._transport, self._seconds)


@asynccontextmanager
async def open_session(
    url: str, tool: str, carry: Transport, *, opening_seconds: float, seconds: float, max_bytes: int, user_agent: str
) -> AsyncIterator[Session]:
    """Open a session and close it afterwards, within these seconds. Raises NoAnswerError."""
    transport = _Transport(carry)
    name, _, version = user_agent.partition("/")
    async with httpx2.AsyncClient(transport=transport, trust_env=False, timeout=None) as http:
        streams = streamable_http_client(url, http_client=http, max_sse_event_size=max_bytes)
        client = Client(streams, client_info=Implementation(name=name, version=version), cache=None)
        await _wait_for(client.__aenter__(), transport, opening_seconds)
        try:
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                with suppress(NoAnswerError):  # the call says better what is wrong
                    await _wait_for(_list_tool(client, tool), transport, seconds)
            yield Session(client, transport, tool, seconds)
        finally:
            await client.__aexit__(None, None, None)


async def _list_tool(client: Client, tool: str) -> None:
    """Let the SDK see the tool in the list: since 2026-07-28 it says there which arguments go along as headers."""
    cursor = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        cursor = page.next_cursor
        if cursor is None or any(one.name == tool for one in page.tools):
            return


class _Transport(httpx2.AsyncBaseTransport):
    """Sends the SDK's requests by our transport. It never raises: the SDK takes that for the end of the session.

    A failure is answered as an error of the protocol, under a name nobody can guess, and found again by it.
    """

    def __init__(self, carry: Transport) -> None:
        self._carry = carry
        self._failures: dict[str, NoAnswerError] = {}
        self._connection_error: NoAnswerError | None = None
        self._resumptions = 0  # how many more there may be

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and return its response."""
        body = await request.aread()
        message = json.loads(body) if body else {}
        if not self._is_sent(request, message):
            return httpx2.Response(405)
        fields = {
            name: value
            for name, value in request.headers.items()
            if name in _REQUEST_HEADERS or name.startswith("mcp-")
        }
        if traceparent := _traceparent_of(message):
            fields["traceparent"] = traceparent
        if message.get("method") == "initialize" and self._connection_error is not None:
            return self._failure_response(message, self._connection_error)  # whoever could not be reached a moment ago
        try:
            response = await self._carry(request.method, fields, body, calls=message.get("method") == "tools/call")
        except ValueError:
            return self._failure_response(
                message, NoAnswerError(Outcome.MALFORMED, "the server's session id is no header")
            )
        oversize = _oversize(response)
        problem, content = response_problem(response) or oversize, response.body
        if oversize is None and _is(response, "application/json") and "id" in message:
            answer = _answer_to(content, message["id"])
            if answer is None:  # for what answers nothing the SDK would wait in vain
                problem = problem or (Outcome.MALFORMED, _NOT_MCP)
            elif response.failure is None:
                problem, content = None, answer  # a bad status with an error of the protocol, which says more
        if problem is not None:
            error = NoAnswerError(*problem, response.status, retry_after_seconds=response.retry_after_seconds)
            self._connection_error = error if error.outcome in _OUT_OF_REACH else None
            return self._failure_response(message, error)
        headers = {name: value for name, value in response.headers.items() if name in _RESPONSE_HEADERS}
        if _is(response, _EVENTS):
            headers["content-type"] = _EVENTS  # a charset beside it would make another text of it than the one counted
        return httpx2.Response(response.status or 200, headers=headers, content=content)

    def _is_sent(self, request: httpx2.Request, message: Mapping[str, Any]) -> bool:
        """Whether a request is sent: one that listens to a server's own news is not, which it must bear."""
        if request.method == "GET":
            if "last-event-id" not in request.headers:
                return False
            self._resumptions -= 1  # a server may break a stream off for ever
            return self._resumptions >= 0
        if "method" in message and "id" in message:
            self._resumptions += MAX_RESUMPTIONS
        return True

    def failure(self, data: Any) -> NoAnswerError | None:
        """Return the failure behind the data of an error; None = the server itself sent this error."""
        return self._failures.pop(data, None) if isinstance(data, str) else None

    def _failure_response(self, message: Mapping[str, Any], error: NoAnswerError) -> httpx2.Response:
        if "id" not in message:
            return httpx2.Response(202)  # nobody waits for an answer; whatever is asked next fails as well
        name = secrets.token_hex(16)
        self._failures[name] = error
        error_body = {"code": _NO_ANSWER, "message": "no answer", "data": name}
        return httpx2.Response(200, json={"jsonrpc": "2.0", "id": message["id"], "error": error_body})


def _traceparent_of(message: Mapping[str, Any]) -> str | None:
    """Return the traceparent of a call: the SDK hands messages on without saying whose they are."""
    meta = (message.get("params") or {}).get("_meta") or {}
    traceparent: str | None = meta.get("traceparent")
    return traceparent


async def _wait_for(work: Awaitable[T], transport: _Transport, seconds: float) -> T:
    """Wait, and turn whatever the SDK raises into the reason why there is no answer."""
    try:
        async with asyncio.timeout(seconds + GRACE_SECONDS):
            return await work
    except TimeoutError:
        raise NoAnswerError(Outcome.TIMEOUT, f"no complete answer within {seconds:g} s") from None
    except Exception as raised:  # noqa: BLE001 - a hostile answer may raise anything in the SDK
        error = _innermost(raised)
        if isinstance(error, MCPError):
            raise (transport.failure(error.data) or _protocol_error(error)) from None
        # A result that is none, a tool that asks something back, a version nobody speaks.
        raise NoAnswerError(Outcome.MALFORMED, f"{_NOT_MCP} ({type(error).__name__})") from None


def _innermost(error: Exception) -> Exception:
    """Take an error out of the groups it comes in."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _protocol_error(error: MCPError) -> NoAnswerError:
    """Return the meaning of an error of the protocol; its message may quote anything."""
    if error.message.startswith(_BY_THE_SDK):
        return NoAnswerError(Outcome.MALFORMED, _NOT_MCP)
    named = f"{error.code} ({_CODES[error.code]})" if error.code in _CODES else str(error.code)
    return NoAnswerError(Outcome.REFUSED, f"the server answered with the error {named}")


def _is(response: Response, media_type: str) -> bool:
    return response.headers.get("content-type", "").lower().startswith(media_type)


def _oversize(response: Response) -> tuple[Outcome, str] | None:
    """Return an error for too many values or events, which empty lines end: the SDK answers some of them."""
    excess = excess_of_answer(response.body)
    if excess is not None:
        return Outcome.OVERSIZE, excess
    lines = response.body.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if _is(response, _EVENTS) else b""
    if lines.count(b"\n\n") > MAX_EVENTS:
        return Outcome.OVERSIZE, f"the answer has more than {MAX_EVENTS:,} events"
    return None


def _answer_to(body: bytes, number: Any) -> bytes | None:
    """Return the answer to a message; None = it is none. An error may lack the number of what was not read."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or "jsonrpc" not in document:
        return None
    if isinstance(document.get("error"), dict) and document.get("id") in (number, None):
        return json.dumps({**document, "id": number}).encode()
    return body if "result" in document and document.get("id") == number else None


_EVENTS = "text/event-stream"
_NOT_MCP = "the answer is not MCP's"
_REQUEST_HEADERS = {"accept", "content-type", "last-event-id"}
_RESPONSE_HEADERS = {"content-type", "mcp-session-id"}
_NO_ANSWER = -32099  # of the range that JSON-RPC leaves to implementations
_OUT_OF_REACH = {Outcome.UNREACHABLE, Outcome.BLOCKED}
_BY_THE_SDK = ("Failed to parse", "Unexpected content type", "SSE stream", "server answered a request", "Connection")
"""How errors begin that the SDK makes up where an answer is no answer."""
_CODES: Mapping[int, str] = {
    -32700: "parse error",
    -32600: "invalid request",
    -32601: "method not found",
    -32602: "invalid params",
    -32603: "internal error",
}
