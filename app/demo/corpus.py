"""Loader of the demo corpus: passages of JSONL files as the chunks that the demo retriever serves.

The bundled ones are the documentation of DataForge, a product that does not exist. `retriever` indexes them.
"""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from app.demo.analysis import cut

BUNDLED = Path(__file__).with_name("corpus.jsonl")


class CorpusError(ValueError):
    """A corpus file cannot be used; the message says which, where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One retrievable passage; `document` is the page it comes from."""

    id: str
    document: str
    title: str
    topic: str
    text: str


def read_corpus(paths: Sequence[Path] | None = None, *, chunk_characters: int | None = None) -> tuple[Chunk, ...]:
    """Read JSONL files (plain or `.gz`), by default the bundled one, in order; later files may be mere distractors.

    A line is an object with `id` or `doc_id`, `text`, and optionally `document`, `title` and `topic`; empty texts,
    which public collections do hold, are left out. With `chunk_characters` each text is cut into chunks `<id>#<n>`,
    n from 0, whose document is the id of the line. Raises CorpusError naming file and line.
    """
    if chunk_characters is not None and chunk_characters < 1:
        raise CorpusError(f"chunk_characters must be at least 1, not {chunk_characters}")
    chunks: dict[str, Chunk] = {}
    for path in paths if paths is not None else [BUNDLED]:
        for place, passage in _passages(path):
            for chunk in _chunks(passage, chunk_characters):
                if chunk.id in chunks:
                    raise CorpusError(f"{place}: the id {chunk.id!r} has come before")
                chunks[chunk.id] = chunk
    if not chunks:
        raise CorpusError("the corpus holds no passages")
    return tuple(chunks.values())


def _chunks(passage: Chunk, characters: int | None) -> Iterator[Chunk]:
    if characters is None:
        yield passage
        return
    for number, piece in enumerate(cut(passage.text, characters)):
        yield Chunk(
            id=f"{passage.id}#{number}", document=passage.id, title=passage.title, topic=passage.topic, text=piece
        )


def _passages(path: Path) -> Iterator[tuple[str, Chunk]]:
    try:
        with path.open("rb") as raw, gzip.open(raw) if path.suffix == ".gz" else nullcontext(raw) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip() and (passage := _passage(f"{path}:{number}", line)).text:
                    yield f"{path}:{number}", passage
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path}: cannot be read: {error}") from error


def _passage(place: str, line: bytes) -> Chunk:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise CorpusError(f"{place}: not JSON in UTF-8: {error}") from error
    if not isinstance(fields, dict):
        raise CorpusError(f"{place}: expected an object")
    identity = _text(place, fields, "id") or _text(place, fields, "doc_id")
    text = _text(place, fields, "text")
    if not identity or "text" not in fields:
        raise CorpusError(f"{place}: needs {'a text' if identity else 'an id'}")
    return Chunk(
        id=identity,
        document=_text(place, fields, "document") or identity,
        title=_text(place, fields, "title"),
        topic=_text(place, fields, "topic"),
        text=text,
    )


def _text(place: str, fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise CorpusError(f"{place}: {name!r} must be a string")
    return value.strip()
