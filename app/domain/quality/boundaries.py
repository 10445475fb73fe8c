"""Chunk boundaries: whether expected evidence was cut in two, so that no one chunk holds it."""

from collections.abc import Sequence
from itertools import combinations
from math import ceil
from typing import Final

from app.domain.counting import counted
from app.domain.quality.copies import words_of
from app.domain.quality.evidence import EXAMPLES, Answered, Example, Mark, Section, percent, unknown

NAME: Final = "chunk_boundaries"
FEWEST_WORDS: Final = 8
"""Of an expected text: what is shorter is as good as never cut."""
WHOLE: Final = 0.85
"""Of a text's word 3-grams, the share in a chunk from which on it holds the whole."""
_LOST_AT_A_CUT = 4
"""3-grams at most that a cut inside a word takes from both sides."""
_LEAST = 0.5
_ALLOWED = 0.02
_MOST_WORDS = 4_000
_WORDS_OF_ONE = 3

_Shingles = frozenset[tuple[str, str, str]]


def chunk_boundaries(answered: Sequence[Answered]) -> Section:
    """Look for expected texts that two hits of one document hold together and neither alone.

    Judged by word 3-grams: a hit holds a text where 85 % of them are in it, or all but the four that one cut can take.
    Good where of the texts that were retrieved no more than 2 % are split. Judgments without a text, or one of fewer
    than eight words, say nothing here.
    """
    texts = whole = 0
    examples: list[Example] = []
    kept: dict[str, _Shingles] = {}
    for one in answered:
        for place, judgment in one.expected:
            shingles = _shingles(judgment.text or "")
            if len(shingles) <= FEWEST_WORDS - _WORDS_OF_ONE:
                continue
            texts += 1
            need = _needed(len(shingles))
            rank = one.match.first[place]
            if rank is not None and len(shingles & _kept(one.ranking.texts[rank - 1], kept)) >= need:
                whole += 1  # nearly always, and the other hits need not be looked at
                continue
            held = [shingles & _kept(text, kept) for text in one.ranking.texts]
            if any(len(part) >= need for part in held):
                whole += 1
            elif (pair := _pair(held, one.ranking.documents, need)) is not None:
                first, second = pair
                told = f"{percent(len(held[first]) / len(shingles))} of an expected text is here, at rank {first + 1}, "
                told += f"and {percent(len(held[second]) / len(shingles))} of it at rank {second + 1}"
                examples.append(Example(told=told, canary=one.canary.key, chunk=one.ranking.ids[first]))
    return _section(texts=texts, whole=whole, examples=examples)


def _section(*, texts: int, whole: int, examples: Sequence[Example]) -> Section:
    split = len(examples)
    numbers = {"expected_texts": texts, "held_whole": whole, "split": split, "not_held": texts - whole - split}
    if not texts:
        return unknown(NAME, f"no expected chunk has a text of {FEWEST_WORDS} words or more", **numbers)
    if not whole + split:
        return unknown(NAME, f"of {counted(texts, 'expected text')} none was retrieved, whole or in parts", **numbers)
    good = split <= _ALLOWED * (whole + split)
    return Section(
        name=NAME,
        mark=Mark.GOOD if good else Mark.LOOK,
        reason=f"of {counted(whole + split, 'expected text')} that were retrieved {split:,} are split over two chunks",
        numbers=numbers,
        examples=examples[:EXAMPLES],
        advice=None if good else "Let chunks overlap, or cut them where sections begin: evidence is being cut in two.",
    )


def _pair(held: Sequence[_Shingles], documents: Sequence[str | None], need: int) -> tuple[int, int] | None:
    """Find the first two hits, not of two documents, that hold enough together; each must add something."""
    places = [place for place, part in enumerate(held) if part]
    for first, second in combinations(places, 2):
        apart = None not in {documents[first], documents[second]} and documents[first] != documents[second]
        if not apart and len(held[first] | held[second]) >= need:
            return first, second
    return None


def _needed(shingles: int) -> int:
    return min(ceil(WHOLE * shingles), max(ceil(_LEAST * shingles), shingles - _LOST_AT_A_CUT))


def _kept(text: str | None, kept: dict[str, _Shingles]) -> _Shingles:
    if text is None:
        return frozenset()
    if text not in kept:
        kept[text] = _shingles(text)
    return kept[text]


def _shingles(text: str) -> _Shingles:
    words = words_of(text)[:_MOST_WORDS]
    return frozenset(zip(words, words[1:], words[2:], strict=False))
