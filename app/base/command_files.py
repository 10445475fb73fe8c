"""Reading canary files and other files for commands."""

import codecs
import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path

from app.base.documents.texts import UTF_16_MARKS, Source, not_utf_8
from app.base.errors import InvalidInputError, Problem

_PACKED = ".gz"
_READ_AT_ONCE = 65_536
_BLOCK = 1_000  # lines between two moves of a progress bar


def file_source(path: Path, advance: Callable[[int], None] = lambda _: None) -> Source:
    """Return a file as a source, packed or not; `advance` is called with the number of bytes read."""

    def lines() -> Iterator[str]:
        with path.open("rb") as raw, gzip.GzipFile(fileobj=raw) if path.suffix == _PACKED else raw as unpacked:
            before = 0
            if unpacked.peek(2)[:2] in UTF_16_MARKS:  # Excel's "Unicode text"
                yield from _utf_16_lines(unpacked, path)
                return
            for number, line in enumerate(unpacked):
                try:
                    yield line.decode("utf-8-sig" if number == 0 else "utf-8")
                except UnicodeDecodeError as error:
                    message = not_utf_8(str(path))
                    raise InvalidInputError([Problem(file=str(path), line=number + 1, message=message)]) from error
                if number % _BLOCK == 0:
                    advance(raw.tell() - before)
                    before = raw.tell()
            advance(raw.tell() - before)

    return Source(name=str(path), lines=lines)


def _utf_16_lines(raw: io.BufferedReader | gzip.GzipFile, path: Path) -> Iterator[str]:
    decoder, rest = codecs.getincrementaldecoder("utf-16")(), ""
    try:
        while block := raw.read(_READ_AT_ONCE):
            *lines, rest = (rest + decoder.decode(block)).split("\n")
            yield from [f"{line}\n" for line in lines]
        rest += decoder.decode(b"", final=True)
        yield from [rest] if rest else []
    except UnicodeDecodeError as error:
        raise InvalidInputError([Problem(file=str(path), message="begins as UTF-16 text and is none")]) from error
