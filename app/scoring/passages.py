"""Finds an expected passage in the text of a hit that is reformatted, chunked differently or damaged.

`matching` calls `prepare_passage` once per judgment, `match_level` once per hit and judgment.
"""

import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise

from app.base.values import Level
from app.scoring.alignment import alignments
from app.scoring.text_damage import FIRST_UNSPACED, NUMBER_SIGNS, is_damage, may_begin, may_end, splits_word

_WHOLE_WORDS_BELOW = 20
_COMPARED_BY_LETTERS = 300
"""Longest passage in characters that is compared letter by letter; longer ones are compared by their words."""
_LETTERS_PER_EDIT = 20
_SHARED = 0.6
"""The share of the shorter text's word 3-grams that must occur in both."""
_FEWEST_SHINGLES = 12
_SMALLEST_PART = 3
"""A hit with less than a third of a passage's 3-grams is not compared: a heading would match its whole chunk."""


def match_level(passage: "Passage", body: str) -> Level | None:
    """Return the level at which a normalised text contains an expected passage; None = it does not contain it.

    `text`: both are equal. `passage`, by the length of the passage:
    - below 20 characters, or `verbatim`: contained as whole words ("30 days" is not in "130 days");
    - up to 300: contained, also cut inside a word, as fixed-size chunks are; or with at most one edit per 20
      characters or part thereof, if the edits are damage and change no number, see `text_damage`;
    - longer: contained, or 60 % of the shorter text's word 3-grams are in both and the hit has at least a third as
      many of them as the passage; numbers do not matter then.
    """
    if passage.text == body:
        return Level.TEXT
    matches = _contains(passage, body) or _contains_damaged(passage, body) or _shares_shingles(passage, body)
    return Level.PASSAGE if matches else None


def prepare_passage(text: str, *, verbatim: bool = False) -> "Passage | None":
    """Return an expected text arranged for `match_level`; None = it has no letter, digit or symbol to compare.

    A `verbatim` one has to be contained unchanged.
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
    """Return the parts of a text that survive reformatting: its words, in NFKC, case-folded, one space apart.

    Punctuation, quotes included, becomes a space. A hyphen inside a word goes, and a line break after it with it,
    so a word broken at a line end equals the whole one. Signs that carry meaning (currency, +, =, <) stay, and so do
    those of a number: a point or comma inside it, a minus before it, a percent sign after it.
    """
    return _normalise_cached(text) if len(text) <= _CACHED_UP_TO else _normalise_text(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """An expected text arranged for `match_level`. Made by `prepare_passage`."""

    text: str
    """Normalised."""
    whole_words: bool = False
    """Whether it must be contained unchanged, from word boundary to word boundary."""
    pieces: tuple[str, ...] = ()
    """A text of up to 300 characters in one piece more than the allowed edits, so that one stays whole; else ()."""
    shingles: Sequence[int] = ()
    """The hashes of a longer text's word 3-grams, each once; valid in this process only."""


def _normalise_text(text: str) -> str:
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


def _contains(passage: Passage, body: str) -> bool:
    begins, ends = (_is_word_boundary, _is_word_boundary) if passage.whole_words else (may_begin, may_end)
    start = body.find(passage.text)
    while start >= 0:
        if begins(body, start) and ends(body, start + len(passage.text)):
            return True
        start = body.find(passage.text, start + 1)
    return False


def _is_word_boundary(body: str, at: int) -> bool:
    return not splits_word(body, at)


def _contains_damaged(passage: Passage, body: str) -> bool:
    """Whether some part of the body is the passage with few edits that are damage.

    With e edits allowed and the passage cut into e + 1 pieces, one piece must occur unchanged (the pigeonhole
    principle; Wu and Manber, CACM 1992). So only the surroundings of such pieces are compared, and most texts have
    none. Beyond 20,000 characters around pieces only the first of them are compared, so that no text delays a run.
    """
    edits = len(passage.pieces) - 1
    if edits < 1 or len(body) < len(passage.text) - edits:
        return False
    places = list(islice(_places(passage, body), _MOST_PLACES))
    if len(places) == _MOST_PLACES:
        places = [(0, len(body))]
    budget = _MOST_COMPARED
    for start, end in _merged(places):
        if budget <= 0:
            break
        matches = alignments(passage.text, body, edits, start, min(end, start + budget))
        if any(is_damage(passage.text, body, one) for one in islice(matches, _MOST_ALIGNED)):
            return True
        budget -= end - start
    return False


def _places(passage: Passage, body: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the parts of the body where the passage may be, around each piece of it."""
    offset, edits = 0, len(passage.pieces) - 1
    for piece in passage.pieces:
        place = body.find(piece)
        while place >= 0:
            start = place - offset - edits
            yield max(0, start), start + len(passage.text) + 2 * edits
            place = body.find(piece, place + 1)
        offset += len(piece)


def _merged(places: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the places in order, overlapping ones joined."""
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


def _shares_shingles(passage: Passage, body: str) -> bool:
    """Whether two texts share most of the shorter one's word 3-grams (Broder 1997: shingles, containment)."""
    if not passage.shingles:
        return False
    shingles = _shingles_cached(body) if len(body) <= _CACHED_UP_TO else _shingles(body)
    shorter = min(len(passage.shingles), len(shingles))
    if shorter < max(_FEWEST_SHINGLES, len(passage.shingles) / _SMALLEST_PART):
        return False
    return len(shingles.intersection(passage.shingles)) >= _SHARED * shorter


def _shingles(body: str) -> frozenset[int]:
    """Return the hashes of each three words in a row. In scripts without spaces each character is a word."""
    spaced = body.isascii() or max(body, default="") < FIRST_UNSPACED
    words = body.split() if spaced else _WORDS.findall(body)
    return frozenset(map(hash, zip(words, words[1:], words[2:], strict=False)))


class _Punctuation(dict[int, str | None]):
    """Table for `str.translate`, filled on demand: a character becomes a space, nothing, or itself."""

    def __missing__(self, code: int) -> str | None:
        sign = chr(code)
        category = unicodedata.category(sign)
        typographic = (category.startswith("P") and sign not in NUMBER_SIGNS) or sign in "`|"
        self[code] = answer = " " if typographic else None if category == "Cf" else sign
        return answer


_MOST_PLACES = 1_000
_MOST_COMPARED = 20_000
_CACHED_UP_TO = 8_192
_MOST_ALIGNED = 100
_PUNCTUATION = _Punctuation()
_LINE_END = r"(?:[^\S\n]*\n\s*)?"
_HYPHEN = re.compile(rf"[-\u00ad\u2010-\u2013](?:(?<=[^\W\d].){_LINE_END}(?=\w)|(?<=\d.){_LINE_END}(?=[^\W\d]))")
_BEFORE_MINUS = r"\s(\[{<=>+\u00b1~$|`\"'\u2018\u201c\u201e\u00ab"
_MINUS = re.compile(rf"\u2212|[\u2010-\u2013](?<![^{_BEFORE_MINUS}].)(?=\d)")
_SPACED_PERCENT = re.compile(r"(?<=\d)\s+(?=[%\u2030])")
_LOOSE = re.compile(rf"[.,%\u2030-](?!(?<=\d[.,])\d|(?<=\d[%\u2030])|(?<![^{_BEFORE_MINUS}]-)(?<=-)\d)")
"""These characters where they do not belong to a number."""
_WORDS = re.compile(f"[^\\s{FIRST_UNSPACED}-\U0010ffff]+|[{FIRST_UNSPACED}-\U0010ffff]")

# The same chunks answer many canaries of a run, and every judgment of one.
_normalise_cached = lru_cache(maxsize=1024)(_normalise_text)
_shingles_cached = lru_cache(maxsize=1024)(_shingles)
