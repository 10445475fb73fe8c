"""The program of the other side, a process of its own: a retriever and a receiver of hooks that log every request.

`python tests/faults/peer_program.py PORT LOG` serves `/search`, `/hook` and, for those who give the orders, `/mode`,
whose fields are merged into the mode in force. Every answer of the retriever is unlike every other: its second hit
carries a serial number that also stands in the log, so each stored result can be traced to the one answer it came from.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_RUN = re.compile(r"\(\+run ([^)]+)\)")
_DRIP_SECONDS = 0.2


class PeerProgram:
    """Answers by the mode in force; what it answered is in the log before the first byte of it is sent."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("a", encoding="utf-8", buffering=1)
        self._serial = len(log.read_text(encoding="utf-8").splitlines())  # goes on where the one before was killed
        self._mode: dict[str, Any] = {}
        self._under_way = 0

    async def serve(self, port: int) -> None:
        """Listen on this port of 127.0.0.1 for ever."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", port, backlog=512)
        async with server:
            await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                await self._answer(*request, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # killed, or it gave up waiting
        finally:
            writer.close()

    async def _answer(self, path: str, headers: Mapping[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        if path == "/mode":
            self._mode |= json.loads(body)
            writer.write(_response(200, b"{}"))
            return
        self._under_way += 1
        try:
            await self._serve_request(path, headers, body, writer)
        finally:
            self._under_way -= 1

    async def _serve_request(
        self, path: str, headers: Mapping[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        self._serial += 1
        status = self._status()
        line: dict[str, Any] = {"at": time.time(), "path": path, "serial": self._serial, "status": status}
        if path == "/search":
            run = _RUN.search(headers.get("user-agent", ""))
            line |= {"run": run[1] if run else "", "query": json.loads(body)["q"], "under_way": self._under_way}
            answer = self._hits(line["query"])
        else:
            line |= {"id": headers.get("webhook-id", ""), "body": json.loads(body)}
            answer = b""
        self._log.write(json.dumps(line) + "\n")
        await asyncio.sleep(float(self._mode.get("delay", 0)))
        if status == 0:
            raise ConnectionResetError
        response = _response(status, answer)
        if self._mode.get("drip"):
            for place in range(len(response)):
                writer.write(response[place : place + 1])
                await writer.drain()
                await asyncio.sleep(_DRIP_SECONDS)
            return
        writer.write(response)
        await writer.drain()

    def _status(self) -> int:
        """Return the status of an answer; 0 = the connection is closed instead."""
        period = float(self._mode.get("flap", 0))
        if period and int(time.monotonic() / period) % 2:
            return 0
        return int(self._mode.get("status", 200))

    def _hits(self, query: str) -> bytes:
        first = "another" if self._mode.get("miss") else f"doc-{query}"
        text = f"{self._serial:08} " + "x" * int(self._mode.get("pad", 0))
        hits = [{"id": first, "score": 0.9, "text": ""}, {"id": f"serial-{self._serial}", "score": 0.5, "text": text}]
        return json.dumps({"hits": hits}).encode()


async def _read(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes] | None:
    start = (await reader.readline()).split()
    if not start:
        return None
    headers: dict[str, str] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return start[1].decode(), headers, body


def _response(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


if __name__ == "__main__":
    asyncio.run(PeerProgram(Path(sys.argv[2])).serve(int(sys.argv[1])))
