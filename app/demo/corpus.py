"""Loader of the demo corpus: passages of JSONL files as the chunks that the demo retriever serves, and their terms.

The bundled ones are the documentation of DataForge, a product that does not exist. `retriever` indexes them. The same
analysis (lower case, a stop list, a light English stemmer) serves passages and queries.
"""

import gzip
import json
import re
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

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


_TERM = re.compile(r"[^\W_]+")
_CLAUSE_END = re.compile(r"(?<=[.!?;:])\s+")
_VOWEL = re.compile(r"[aeiouy]")
_SHORTEST_STEM = 3

# Words that say how a question is asked rather than what it is about, and the letters apostrophes leave behind.
_STOPWORDS = """
a about after again all also although am an and another any anybody anyone anything are as ask at be because been
before being between both but by can cannot could d did do does doing done don during each either else ever every
everyone everything few for from further get gets getting give given go goes going good got had happen happened
happens has have having he her here his how i if in instead into is it its itself just know let like ll m make many
may me might more most much must my myself need needed needs neither no nor not now of off on once one only or
other our ours out over own please possible put re s same see shall she should show so some somebody someone
something still such t take tell than that the their them themselves then there these they thing things this those
through to too under until up us use used uses using ve very want was way ways we well were what whatever when where
whether which while who whom whose why will with without won would yet you your yours
"""
STOPWORDS = frozenset(_STOPWORDS.split())


def terms(text: str) -> list[str]:
    """Return the index terms of a text in order, repeats included."""
    words = _TERM.findall(unicodedata.normalize("NFKC", text).casefold())
    return [stem(word) for word in words if word not in STOPWORDS and (len(word) > 1 or word.isdigit())]


def stem(word: str) -> str:
    """Strip plural, participle and the commonest noun endings, so that `configure` meets `configuration`.

    In the manner of Porter (1980), cut down to the endings technical English is made of; words with digits stay.
    """
    if len(word) <= _SHORTEST_STEM or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > _SHORTEST_STEM + 1:
        word = word[:-3] + "y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    word = _without_participle(word)
    for ending, shortest in (("ally", 4), ("ation", 4), ("ate", 4), ("at", 5), ("ion", 4), ("ment", 3), ("ly", 4)):
        if word.endswith(ending) and len(word) - len(ending) >= shortest:
            word = word.removesuffix(ending)
            break
    return word.removesuffix("e") if len(word) > _SHORTEST_STEM else word


def _without_participle(word: str) -> str:
    for ending in ("ing", "ed"):
        stump = word.removesuffix(ending)
        if stump != word and len(stump) >= _SHORTEST_STEM and _VOWEL.search(stump) and not word.endswith("eed"):
            doubled = stump[-1] == stump[-2] and stump[-1] not in "aeioulsz"
            return stump[:-1] if doubled else stump
    return word


def cut(text: str, characters: int) -> list[str]:
    """Cut a text into pieces of at most `characters`, after a sentence or clause where possible, else after a word.

    A single word longer than that stays whole. Nothing is lost or repeated but the white space at the cuts.
    """
    pieces: list[str] = []
    for clause in _CLAUSE_END.split(text.strip()):
        units = [clause] if len(clause) <= characters else clause.split()
        for unit in units:
            if pieces and len(pieces[-1]) + 1 + len(unit) <= characters:
                pieces[-1] += " " + unit
            else:
                pieces.append(unit)
    return [piece for piece in pieces if piece]


def near_copy(text: str, variant: int) -> str:
    """Return the text without one of its function words, which `variant` chooses: other bytes, the same terms."""
    words = text.split(" ")
    spare = [place for place, word in enumerate(words) if word in STOPWORDS]
    if not spare:
        return text
    left_out = spare[variant % len(spare)]
    return " ".join(words[:left_out] + words[left_out + 1 :])
