"""Bodies that are files themselves, JSON lines or CSV: taken to disk as they arrive, then read line by line.

The same routes take JSON with the texts of files, `{"files": {...}}`, which is held in memory and may be smaller.
"""

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any, BinaryIO, Final, cast

import anyio.to_thread
from fastapi import Depends, Request

from app.base.api.bodies import read_json
from app.base.api.schemas import TextFiles
from app.base.documents.validation_messages import parse_document
from app.base.errors import InvalidInputError, Problem, UnsupportedError
from app.catalog.api.definitions import body_schema
from app.catalog.exchange import Source

_CSV: Final = "text/csv"
_NAMES: Final = {"application/x-ndjson": "body.jsonl", "application/jsonl": "body.jsonl", _CSV: "body.csv"}
"""Names of the files in messages, by media type."""
_IN_MEMORY: Final = 1_000_000
"""Bytes that are held in memory; more of them go to a temporary file."""
LONGEST_LINE: Final = 1_000_000
"""Most bytes of a line: one is held in memory at a time."""


async def read_lines(request: Request) -> AsyncIterator[Sequence[Source]]:
    """Give the texts of a body of JSON lines, as `read_texts`."""
    async with _taken(request, [kind for kind in _NAMES if kind != _CSV]) as sources:
        yield sources


async def read_texts(request: Request) -> AsyncIterator[Sequence[Source]]:
    """Give the texts of a body of JSON lines or CSV, which can be read until the request is answered.

    Raises UnsupportedError for other media types, InvalidInputError for an empty body.
    """
    async with _taken(request, list(_NAMES)) as sources:
        yield sources


@asynccontextmanager
async def _taken(request: Request, kinds: Sequence[str]) -> AsyncIterator[Sequence[Source]]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in {*kinds, "application/json"}:
        raise UnsupportedError(f"send the file with the header Content-Type: {' or '.join(kinds)}, or its text in JSON")
    name = _NAMES.get(kind)
    if name is None:
        yield parse_document(TextFiles, await read_json(request)).sources
        return
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise UnsupportedError("send the lines unpacked, without Content-Encoding")
    with SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            await anyio.to_thread.run_sync(file.write, chunk)
        if not size:
            raise InvalidInputError([Problem(path="body", message="is empty; send JSON lines or CSV")])
        yield [Source(name=name, lines=lambda: _lines(cast("BinaryIO", file), name))]


def _lines(file: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of a file from its beginning. Raises InvalidInputError with the line."""
    file.seek(0)
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            message = f"is longer than {LONGEST_LINE:,} bytes; every line is an object of its own"
            raise InvalidInputError([Problem(file=name, line=number, message=message)])
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInputError([Problem(file=name, line=number, message="is not UTF-8 text")]) from error


def texts_schema(**examples: str) -> dict[str, Any]:
    """Return the description of a body of texts; `examples`: of JSON lines and CSV, for those that are taken raw."""
    described = body_schema(TextFiles)
    for kind in _NAMES:
        example = examples.get(re.sub(r".*\.", "", _NAMES[kind]))
        if example is not None:
            described["requestBody"]["content"][kind] = {"schema": {"type": "string"}, "example": example}
    return described


Texts = Annotated[Sequence[Source], Depends(read_texts)]
Lines = Annotated[Sequence[Source], Depends(read_lines)]
