"""Whether a hit holds an expected passage, though it was reformatted, cut elsewhere or garbled on the way.

`prepare_passage` once per judgment, `recognise` once per hit and judgment. What follows from it is left to matching.
"""

import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise

from app.domain.model import Level
from app.domain.runs.alignment import alignments
from app.domain.runs.text_damage import FIRST_UNSPACED, NUMBER_SIGNS, is_damage, may_begin, may_end, splits_word

_WHOLE_WORDS_BELOW = 20
_COMPARED_BY_LETTERS = 300
"""Up to this many characters a passage is sought letter by letter, longer ones by their words."""
_LETTERS_PER_EDIT = 20
_SHARED = 0.6
"""The share of the shorter text's word 3-grams that must occur in both."""
_FEWEST_SHINGLES = 12
_SMALLEST_PART = 3
"""A hit with less than the third part of a passage's 3-grams is not compared: a heading would pass for its chunk."""


def recognise(passage: "Passage", body: str) -> Level | None:
    """Say by which level a normalised text agrees with an expected passage; None = it does not hold it.

    Equal is `text`, all else is `passage`: contained, if below 20 characters or verbatim as whole words ("30 days" is
    not in "130 days"), else also cut inside a word, as chunks cut by size are; from 20 to 300 characters with at most
    one edit per 20 of them or part thereof, as far as these are damage and leave its numbers as they were; beyond,
    where six in ten of the shorter text's word 3-grams are in both and the hit has at least a third as many of them as
    the passage, whatever its numbers.
    """
    if passage.text == body:
        return Level.TEXT
    held = _contained(passage, body) or _nearly(passage, body) or _mostly(passage, body)
    return Level.PASSAGE if held else None


def prepare_passage(text: str, *, verbatim: bool = False) -> "Passage | None":
    """Do once per judgment what need not be done per hit; None = no letter, digit or symbol that could agree.

    A `verbatim` one is recognised where it is contained, not where it is nearly.
    """
    text = normalise(text)
    if not text:
        return None
    if len(text) < _WHOLE_WORDS_BELOW or verbatim:
        return Passage(text=text, whole_words=True)
    if len(text) > _COMPARED_BY_LETTERS:
        return Passage(text=text, shingles=array("q", _shingles(text)))
    count = -(-len(text) // _LETTERS_PER_EDIT) + 1
    cuts = [len(text) * number // count for number in range(count + 1)]
    return Passage(text=text, pieces=tuple([text[start:end] for start, end in pairwise(cuts)]))


def normalise(text: str) -> str:
    """Reduce a text to what survives reformatting: its words, in NFKC, case-folded, one space apart.

    Punctuation, quotes included, becomes a space. A hyphen inside a word goes, and a line break after it with it,
    so a word broken at a line end equals the whole one. Signs that carry meaning (currency, +, =, <) stay, and so do
    those of a number: a point or comma inside it, a minus before it, a percent sign after it.
    """
    return _normalised_before(text) if len(text) <= _REMEMBERED_UP_TO else _normalised(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """An expected text, arranged for finding it. Made by `prepare_passage`."""

    text: str
    """Normalised."""
    whole_words: bool = False
    """Whether it must be contained as it is, and begin and end where words do."""
    pieces: tuple[str, ...] = ()
    """The text of up to 300 characters in one piece more than edits are allowed, so that one stays whole; else ()."""
    shingles: Sequence[int] = ()
    """The hashes of a longer text's word 3-grams, each once; they mean something in this process alone."""


def _normalised(text: str) -> str:
    plain = text.isascii()
    if not plain:
        text = unicodedata.normalize("NFKC", text)
    text = _MINUS.sub("-", _HYPHEN.sub("", text))
    if "%" in text or "\u2030" in text:
        text = _SPACED_PERCENT.sub("", text)
    text = _LOOSE.sub(" ", text)
    text = text.casefold().translate(_PUNCTUATION)
    if not plain:
        text = unicodedata.normalize("NFKC", text)  # folding and dropping marks can undo it
    return " ".join(text.split())


def _contained(passage: Passage, body: str) -> bool:
    begins, ends = (_parts_words, _parts_words) if passage.whole_words else (may_begin, may_end)
    start = body.find(passage.text)
    while start >= 0:
        if begins(body, start) and ends(body, start + len(passage.text)):
            return True
        start = body.find(passage.text, start + 1)
    return False


def _parts_words(body: str, at: int) -> bool:
    return not splits_word(body, at)


def _nearly(passage: Passage, body: str) -> bool:
    """Decide whether some part of the body is the passage but for few edits that are damage.

    Where e edits are allowed and the passage is cut into e + 1 pieces, one of them must stand there untouched (the
    pigeonhole principle; Wu and Manber, CACM 1992). So only what lies around such pieces is compared, and most texts
    end at looking for them. Nothing is lost by it, unless more than 20,000 characters lie around pieces: then the
    first of them decide, so that no text can hold up a run.
    """
    edits = len(passage.pieces) - 1
    if edits < 1 or len(body) < len(passage.text) - edits:
        return False
    places = list(islice(_places(passage, body), _MOST_PLACES))
    if len(places) == _MOST_PLACES:
        places = [(0, len(body))]
    left = _MOST_COMPARED
    for start, end in _merged(places):
        if left <= 0:
            break
        matches = alignments(passage.text, body, edits, start, min(end, start + left))
        if any(is_damage(passage.text, body, one) for one in islice(matches, _MOST_ALIGNED)):
            return True
        left -= end - start
    return False


def _places(passage: Passage, body: str) -> Iterator[tuple[int, int]]:
    """Yield where in the body the passage could stand (start, end), going by each piece that does."""
    offset, edits = 0, len(passage.pieces) - 1
    for piece in passage.pieces:
        place = body.find(piece)
        while place >= 0:
            start = place - offset - edits
            yield max(0, start), start + len(passage.text) + 2 * edits
            place = body.find(piece, place + 1)
        offset += len(piece)


def _merged(places: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join places that overlap, first ones first."""
    reach: tuple[int, int] | None = None
    for start, end in sorted(places):
        if reach is None or start > reach[1]:
            if reach:
                yield reach
            reach = start, end
        else:
            reach = reach[0], max(reach[1], end)
    if reach:
        yield reach


def _mostly(passage: Passage, body: str) -> bool:
    """Decide whether two texts share most of the shorter one's word 3-grams (Broder 1997: shingles, containment)."""
    if not passage.shingles:
        return False
    shingles = _shingles_before(body) if len(body) <= _REMEMBERED_UP_TO else _shingles(body)
    shorter = min(len(passage.shingles), len(shingles))
    if shorter < max(_FEWEST_SHINGLES, len(passage.shingles) / _SMALLEST_PART):
        return False
    return len(shingles.intersection(passage.shingles)) >= _SHARED * shorter


def _shingles(body: str) -> frozenset[int]:
    """Hash each three words in a row. Where words are not told apart by spaces, each sign stands for one."""
    spaced = body.isascii() or max(body, default="") < FIRST_UNSPACED
    words = body.split() if spaced else _WORDS.findall(body)
    return frozenset(map(hash, zip(words, words[1:], words[2:], strict=False)))


class _Punctuation(dict[int, str | None]):
    """What `str.translate` does with each sign, learned as signs are met: a space, nothing, or itself."""

    def __missing__(self, code: int) -> str | None:
        sign = chr(code)
        category = unicodedata.category(sign)
        typographic = (category.startswith("P") and sign not in NUMBER_SIGNS) or sign in "`|"
        self[code] = answer = " " if typographic else None if category == "Cf" else sign
        return answer


_MOST_PLACES = 1_000
_MOST_COMPARED = 20_000
_REMEMBERED_UP_TO = 8_192
_MOST_ALIGNED = 100
_PUNCTUATION = _Punctuation()
_LINE_END = r"(?:[^\S\n]*\n\s*)?"
_HYPHEN = re.compile(rf"[-\u00ad\u2010-\u2013](?:(?<=[^\W\d].){_LINE_END}(?=\w)|(?<=\d.){_LINE_END}(?=[^\W\d]))")
_BEFORE_MINUS = r"\s(\[{<=>+\u00b1~$|`\"'\u2018\u201c\u201e\u00ab"
_MINUS = re.compile(rf"\u2212|[\u2010-\u2013](?<![^{_BEFORE_MINUS}].)(?=\d)")
_SPACED_PERCENT = re.compile(r"(?<=\d)\s+(?=[%\u2030])")
_LOOSE = re.compile(rf"[.,%\u2030-](?!(?<=\d[.,])\d|(?<=\d[%\u2030])|(?<![^{_BEFORE_MINUS}]-)(?<=-)\d)")
"""Such signs where they do not belong to a number."""
_WORDS = re.compile(f"[^\\s{FIRST_UNSPACED}-\U0010ffff]+|[{FIRST_UNSPACED}-\U0010ffff]")

# The same chunks answer many canaries of a run, and every judgment of one.
_normalised_before = lru_cache(maxsize=1024)(_normalised)
_shingles_before = lru_cache(maxsize=1024)(_shingles)
