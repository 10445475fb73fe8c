"""Chunk boundaries: whether expected evidence was cut in two, so that no one chunk holds it."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import ceil
from typing import Final

from app.base.texts import counted, percent_text
from app.diagnosis.quality.domain.evidence import EXAMPLES, Answered, Example, Mark, Section, unknown
from app.diagnosis.quality.domain.near_copies import words_of

NAME: Final = "chunk_boundaries"
FEWEST_WORDS: Final = 8
"""Of an expected text: shorter ones are hardly ever cut."""
WHOLE: Final = 0.85
"""Least share of a text's word 3-grams in a chunk that holds it whole."""
_LOST_AT_A_CUT = 4
"""3-grams lost at most by a cut inside a word."""
_LEAST = 0.5
_ALLOWED = 0.02
_MOST_WORDS = 4_000
_MOST_CHARACTERS = 20_000
_PAIRED = 20
"""Hits at most, those with most of the text, that are compared in pairs."""
_WORDS_OF_ONE = 3

_Shingle = tuple[str, str, str]


def chunk_boundaries(answered: Sequence[Answered]) -> Section:
    """Section on expected texts that two hits of one document hold together and neither alone.

    Judged by word 3-grams: a hit holds a text where 85 % of them are in it, or all but the four that one cut can take.
    Good where of the texts that were retrieved no more than 2 % are split. Judgments without a text, or one of fewer
    than eight words, say nothing here. Read are the first 4,000 words and 20,000 characters of a text, and pairs are
    sought among the 20 hits that hold most. Nothing is kept from one canary to the next.
    """
    texts = whole = 0
    examples: list[Example] = []
    for one in answered:
        passage = _ExpectedTexts(one)
        for place, mask in passage.masks.items():
            count = mask.bit_count()
            texts += 1
            need = _needed(count)
            rank = one.match.first[place]
            if rank is not None and (mask & passage.mask_of(rank - 1)).bit_count() >= need:
                whole += 1  # the usual case: the other hits are not needed
                continue
            masks = [mask & passage.mask_of(hit) for hit in range(len(one.ranking.texts))]
            if any(part.bit_count() >= need for part in masks):
                whole += 1
            elif (pair := _pair(masks, one.ranking.documents, need)) is not None:
                first, second = pair
                here, there = (percent_text(masks[place].bit_count() / count) for place in pair)
                note = (
                    f"{here} of an expected text is here, at rank {first + 1}, and {there} of it at rank {second + 1}"
                )
                examples.append(Example(note=note, canary=one.canary.key, chunk=one.ranking.ids[first]))
    return _section(texts=texts, whole=whole, examples=examples)


def _section(*, texts: int, whole: int, examples: Sequence[Example]) -> Section:
    split = len(examples)
    numbers = {"expected_texts": texts, "held_whole": whole, "split": split, "not_held": texts - whole - split}
    if not texts:
        return unknown(
            NAME,
            f"no canary expects a passage by its text of {FEWEST_WORDS} words or more; ids do not show the cuts",
            **numbers,
        )
    if not whole + split:
        return unknown(NAME, f"of {counted(texts, 'expected text')} none was retrieved, whole or in parts", **numbers)
    verb = "is" if split == 1 else "are"
    good = split <= _ALLOWED * (whole + split)
    return Section(
        name=NAME,
        mark=Mark.GOOD if good else Mark.REVIEW,
        reason=f"{split:,} of {counted(whole + split, 'expected text')} retrieved {verb} split over two chunks",
        numbers=numbers,
        examples=examples[:EXAMPLES],
        advice=None if good else "Let chunks overlap, or cut them where sections begin: evidence is being cut in two.",
    )


class _ExpectedTexts:
    """Word 3-grams of the expected texts of a canary and of its hits, as sets in the bits of integers."""

    def __init__(self, one: Answered) -> None:
        self.masks: dict[int, int] = {}
        """By place among the judgments, of those with a text of eight words or more."""
        self._numbers: dict[_Shingle, int] = {}
        self._texts = one.ranking.texts
        self._masks: dict[int, int] = {}
        for place, judgment in one.expected:
            shingles = _shingles(judgment.text or "")
            if len(shingles) > FEWEST_WORDS - _WORDS_OF_ONE:
                numbers = [self._numbers.setdefault(shingle, len(self._numbers)) for shingle in shingles]
                self.masks[place] = self._mask(numbers)

    def mask_of(self, hit: int) -> int:
        """Return the expected 3-grams that a hit has."""
        if hit not in self._masks:
            shingles = _shingles(self._texts[hit] or "")
            self._masks[hit] = self._mask([self._numbers[one] for one in shingles if one in self._numbers])
        return self._masks[hit]

    def _mask(self, numbers: Iterable[int]) -> int:
        bits = bytearray(len(self._numbers) // 8 + 1)
        for number in numbers:
            bits[number >> 3] |= 1 << (number & 7)
        return int.from_bytes(bits, "little")


def _pair(masks: Sequence[int], documents: Sequence[str | None], need: int) -> tuple[int, int] | None:
    """Find the first two hits, not of different documents, that hold enough together; each must add something."""
    fullest = sorted((place for place, part in enumerate(masks) if part), key=lambda place: -masks[place].bit_count())
    for first, second in combinations(sorted(fullest[:_PAIRED]), 2):
        apart = None not in {documents[first], documents[second]} and documents[first] != documents[second]
        if not apart and (masks[first] | masks[second]).bit_count() >= need:
            return first, second
    return None


def _needed(shingles: int) -> int:
    return min(ceil(WHOLE * shingles), max(ceil(_LEAST * shingles), shingles - _LOST_AT_A_CUT))


def _shingles(text: str) -> set[_Shingle]:
    words = words_of(text[:_MOST_CHARACTERS], most=_MOST_WORDS)
    return set(zip(words, words[1:], words[2:], strict=False))
