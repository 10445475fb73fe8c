"""MCP servers for tests, byte for byte as told: a peer that speaks as much of the protocol as a probe needs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_servers import Reply, Seen, reply

MODERN = "2026-07-28"
"""The protocol's first version without a handshake."""
ACCEPTED = Reply(raw=b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An error of the protocol in place of a result."""

    code: int
    status: int = 200


@dataclass(kw_only=True)
class Tool:
    """Answers the handshake well and calls of the tool as told; remembers which methods came."""

    call: Callable[[Mapping[str, Any]], Any] = field(default=lambda _: result({"result": []}))
    """From the arguments to the result of the call, as JSON, or to the whole reply."""
    schema: Mapping[str, Any] | None = None
    """What the tool declares its structured content to be."""
    version: str = "2025-06-18"
    """Of the protocol. From 2026-07-28 on there is no handshake."""
    resumed: Reply | None = None
    """What a stream goes on with that broke off."""
    session: str | None = "session-7"
    answers: int = 0
    """To what the server itself asked."""
    methods: list[str] = field(default_factory=list)

    def __call__(self, seen: Seen) -> Reply:
        """Answer one request."""
        if seen.method != "POST":
            self.methods.append(seen.method)
            return self.resumed if seen.method == "GET" and self.resumed is not None else reply(b"")
        message = json.loads(seen.body)
        if "method" not in message:
            self.answers += 1
            return ACCEPTED
        self.methods.append(message["method"])
        if "id" not in message:
            return ACCEPTED
        if message["method"] == "tools/call":
            return self._called(message)
        known = self._known().get(message["method"])
        if known is None:
            return refused(message["id"], -32601)
        named = (
            {"mcp-session-id": self.session} if self.session is not None and message["method"] == "initialize" else {}
        )
        return answered(message["id"], known, named)

    def _known(self) -> dict[str, Any]:
        """Give the results of all methods but the call."""
        tool = {"name": "search", "inputSchema": {"type": "object"}}
        tools = [tool | ({"outputSchema": self.schema} if self.schema is not None else {})]
        cached = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"} if self.version >= MODERN else {}
        greeting = {"protocolVersion": self.version, "serverInfo": {"name": "peer", "version": "1"}}
        discovered = {"server/discover": {"supportedVersions": [self.version], "capabilities": {}, **cached}}
        return {"initialize": {"capabilities": {}, **greeting}, "tools/list": {"tools": tools, **cached}} | (
            discovered if self.version >= MODERN else {}
        )

    def _called(self, message: Mapping[str, Any]) -> Reply:
        told = self.call(message["params"]["arguments"])
        if isinstance(told, Refusal):
            return refused(message["id"], told.code, told.status)
        return told if isinstance(told, Reply) else answered(message["id"], told)


def answered(number: Any, told: Any, headers: Mapping[str, str] | None = None) -> Reply:
    """Answer a message with a result."""
    return reply(json.dumps({"jsonrpc": "2.0", "id": number, "result": told}).encode(), headers=headers)


def refused(number: Any, code: int, status: int = 200) -> Reply:
    """Answer a message with an error."""
    error = {"code": code, "message": "a secret of the server's"}
    return reply(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode(), status)


def result(structured: Any = None, *texts: str, failed: bool = False) -> dict[str, Any]:
    """Make the result of a call."""
    told: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts], "isError": failed}
    return told | ({"structuredContent": structured} if structured is not None else {})


def events(*data: str) -> Reply:
    """Answer with a stream of events that ends there."""
    body = "".join(f"event: message\ndata: {one}\n\n" for one in data).encode()
    return reply(body, headers={"content-type": "text/event-stream"})
