"""Chunk quality: faults of the retrieved chunks as texts, whatever the query."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from app.base.texts import percent_text
from app.diagnosis.quality.domain.evidence import EXAMPLES, SHOWN, Chunk, Example, Mark, Section, unknown
from app.diagnosis.quality.domain.near_copies import near_copies

NAME: Final = "chunk_quality"
LONG: Final = 4_000
"""Characters, about a thousand tokens: many embedders read no further, and few longer passages have one topic."""
TIMES_MEDIAN: Final = 4
_LONG_AT_ALL = 1_000
"""Characters: shorter chunks are never over-long, however short the others are."""
_LITTLE_TEXT = 0.5
"""Share of letters and digits outside of markup, of all that is not blank, below which a chunk is mostly markup."""
_REPEATED = 0.5
"""Share of a chunk's characters in lines that many chunks repeat, above which it is boilerplate."""
_LINE = 15
"""Characters: shorter lines may repeat by chance."""
_MANY_CHUNKS, _MANY_SHARE = 5, 0.02
_CASED = 0.1
"""Share of texts with a capital letter below which sentences may begin without one."""
_READ = 20_000
"""Characters of a text that are evaluated; stored answers are cut there."""


def chunk_quality(chunks: Sequence[Chunk], *, retrieved: int | None = None) -> Section:
    """Section on distinct retrieved chunks; `retrieved` is their number where only some of them are given.

    Counted are chunks that are empty (no letter or digit), begin in the middle of a sentence (with a lower-case
    letter or a comma), end in one (without a mark that ends sentences), are over-long (more than 4,000 characters, or
    four times the median and more than 1,000), have a near copy (see `near_copies`), or are mostly markup or lines
    that many chunks repeat. Chunks of markup are not checked for sentences.
    """
    texts = [chunk.text for chunk in chunks if chunk.text is not None]
    with_text = [chunk for chunk in chunks if chunk.text is not None]
    if not with_text:
        why = "answers are mapped without texts" if chunks else "nothing was retrieved"
        return unknown(NAME, why, chunks=len(chunks) if retrieved is None else retrieved)
    faults = _find_faults(texts)
    counts = {fault.name: len(faults[fault.name]) for fault in FAULTS}
    numbers: dict[str, float | int | None] = {
        "chunks": len(chunks) if retrieved is None else retrieved,
        "looked_at": len(with_text),
        "without_text": len(chunks) - len(with_text),
        "median_characters": round(median(map(len, texts))),
        "longest_characters": max(map(len, texts)),
        **counts,
    }
    wrong = [fault for fault in FAULTS if counts[fault.name] > fault.allowed * len(with_text)]
    examples = [
        Example(note=summary, chunk=with_text[place].id, text=texts[place][:SHOWN])
        for fault in sorted(FAULTS, key=lambda one: one not in wrong)
        for place, summary in sorted(faults[fault.name].items())[:EXAMPLES]
    ]
    summary = "; ".join(f"{percent_text(counts[fault.name] / len(with_text))} {fault.predicate}" for fault in wrong)
    return Section(
        name=NAME,
        mark=Mark.REVIEW if wrong else Mark.GOOD,
        reason=summary or f"of {len(with_text):,} chunks few are empty, cut, over-long, copies or markup",
        numbers=numbers,
        examples=examples,
        advice=wrong[0].advice if wrong else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of chunks, and the share of chunks that may have it."""

    name: str
    allowed: float
    predicate: str
    advice: str


FAULTS: Final = (
    Fault(
        name="empty",
        allowed=0.0,
        predicate="are empty",
        advice="Drop chunks without a word before they are embedded: they take places from those that have some.",
    ),
    Fault(
        name="near_copies",
        allowed=0.05,
        predicate="have a near copy",
        advice="Remove repeated chunks from the index: copies fill the top k with one and the same passage.",
    ),
    Fault(
        name="starting_inside_a_sentence",
        allowed=0.2,
        predicate="begin inside a sentence",
        advice="Cut chunks where sentences or sections begin, not after a number of characters.",
    ),
    Fault(
        name="ending_inside_a_sentence",
        allowed=0.5,
        predicate="end inside a sentence",
        advice="Cut chunks where sentences or sections end, not after a number of characters.",
    ),
    Fault(
        name="over_long",
        allowed=0.05,
        predicate="are over-long",
        advice="Cut long chunks: what an embedder does not read is not found, and what it averages is found poorly.",
    ),
    Fault(
        name="markup_or_boilerplate",
        allowed=0.05,
        predicate="are mostly markup or boilerplate",
        advice="Strip markup, menus and footers before chunks are cut: they make all chunks alike.",
    ),
)


def _find_faults(texts: Sequence[str]) -> dict[str, dict[int, str]]:
    """Return the notes by fault and place."""
    texts = [text[:_READ] for text in texts]
    limit = min(LONG, max(_LONG_AT_ALL, TIMES_MEDIAN * median(map(len, texts))))
    empty = {place for place, text in enumerate(texts) if not _LETTER.search(text)}
    noise = {place: note for place, note in _noise(texts).items() if place not in empty}
    prose = [place for place in range(len(texts)) if place not in empty and place not in noise]
    cased = sum(text != text.lower() for text in texts) >= _CASED * len(texts)
    copies = {place: of for place, of in near_copies(texts).items() if place not in empty}
    return {
        "empty": dict.fromkeys(sorted(empty), "no letter or digit"),
        "near_copies": {
            place: f"{percent_text(common)} in common with another chunk" for place, (_, common) in copies.items()
        },
        "starting_inside_a_sentence": _notes(
            prose, lambda place: cased and _starts_inside(texts[place]), "begins inside a sentence"
        ),
        "ending_inside_a_sentence": _notes(prose, lambda place: _ends_inside(texts[place]), "ends inside a sentence"),
        "over_long": {place: f"{len(text):,} characters" for place, text in enumerate(texts) if len(text) > limit},
        "markup_or_boilerplate": noise,
    }


def _notes(places: Iterable[int], wrong: Callable[[int], bool], note: str) -> dict[int, str]:
    return {place: note for place in places if wrong(place)}


def _starts_inside(text: str) -> bool:
    """Whether it begins inside a sentence: with a lower-case letter, or a sign that begins none."""
    head = text.lstrip()[:2]
    # "iPhone" and "pH" begin sentences; a list may begin with "a)" or "b."
    return head[:1] in _CONTINUES or (head[:1].islower() and (head[1:].islower() or head[1:] in {" ", ",", ""}))


def _ends_inside(text: str) -> bool:
    """Whether it ends inside a sentence: with a letter, a digit, a comma or the like."""
    if len(text) >= _READ:
        return False  # we cut it, not the retriever
    last = text.rstrip().rstrip(_CLOSING)[-1:]
    return last.isalnum() or last in _OPEN_END


def _noise(texts: Sequence[str]) -> dict[int, str]:
    """Find the chunks that are mostly markup, or mostly lines that many chunks repeat."""
    lines = [[line for raw in text.splitlines() if len(line := raw.strip()) >= _LINE] for text in texts]
    counts = Counter(line for one in lines for line in set(one))
    many = max(_MANY_CHUNKS, _MANY_SHARE * len(texts))
    notes: dict[int, str] = {}
    for place, text in enumerate(texts):
        solid = len(text) - sum(map(text.count, " \n\t\r"))
        words = sum(map(len, _LETTERS.findall(_TAG.sub(" ", text))))
        repeated = sum(len(line) for line in lines[place] if counts[line] >= many)
        if solid and words < _LITTLE_TEXT * solid:
            notes[place] = f"{percent_text(1 - words / solid)} of it is markup or signs"
        elif repeated > _REPEATED * len(text) and len(lines[place]) > 1:
            notes[place] = f"{percent_text(repeated / len(text))} of it stands in many other chunks"
    return notes


_LETTER = re.compile(r"[^\W_]")
_LETTERS = re.compile(r"[^\W_]+")
_TAG = re.compile(r"<[^<>]{1,500}>|&#?\w{1,10};|https?://\S+|!?\]\([^()\s]*\)")
_CONTINUES = frozenset(",;:.)]}!?%")
_CLOSING = "\"'\u201d\u2019\u00bb)]}*_`"
_OPEN_END = frozenset(",-\u2013\u2014/(&")
