"""Texts as words: normalised, and compared by three words in a row; what share one has of another, what they share.

How much two texts must share to be taken for the same is said by those who ask, see `passages` for expected ones.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, groupby
from operator import itemgetter

from app.base.values import Ranking, Value

NUMBER_SIGNS = ".,-%\u2030"
"""In a normalised text these characters always belong to a number."""
FIRST_UNSPACED = "\u0e00"
"""First character of the scripts without spaces between words: Thai, Chinese and others."""


def normalise(text: str) -> str:
    """Return the parts of a text that survive reformatting: its words, in NFKC, case-folded, one space apart.

    Punctuation, quotes included, becomes a space. A hyphen inside a word goes, and a line break after it with it,
    so a word broken at a line end equals the whole one. Signs that carry meaning (currency, +, =, <) stay, and so do
    those of a number: a point or comma inside it, a minus before it, a percent sign after it.
    """
    return _normalise_cached(text) if len(text) <= _CACHED_UP_TO else _normalise_text(text)


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


class _Punctuation(dict[int, str | None]):
    """Table for `str.translate`, filled on demand: a character becomes a space, nothing, or itself."""

    def __missing__(self, code: int) -> str | None:
        sign = chr(code)
        category = unicodedata.category(sign)
        typographic = (category.startswith("P") and sign not in NUMBER_SIGNS) or sign in "`|"
        self[code] = answer = " " if typographic else None if category == "Cf" else sign
        return answer


COMPARABLE = 6
"""Texts with fewer 3-grams, such as headings, are too short to compare."""
Grams = frozenset[tuple[str, ...]]


def containment(passage: str, text: str) -> float:
    """Share of a passage's word 3-grams that a text has, in [0, 1] (Broder 1997: containment)."""
    passage_grams = grams(passage)
    return len(passage_grams & grams(text)) / len(passage_grams) if passage_grams else 0.0


def overlap(one: str, other: str) -> float:
    """Share of the shorter text's word 3-grams that are in both, in [0, 1]; 0 where either has none."""
    a, b = grams(one), grams(other)
    shorter = min(len(a), len(b))
    return len(a & b) / shorter if shorter else 0.0


@lru_cache(maxsize=64)  # the texts of one case; each may hold a megabyte
def grams(text: str) -> Grams:
    """List each three words in a row of the first 4,000 words; a text of one or two words is one gram."""
    words = words_of(text)[:_MOST_WORDS]
    if not words:
        return frozenset()
    return frozenset(threes(words)) or frozenset([tuple(words)])


def split_by_overlap(passage: str, text: str) -> list[tuple[str, bool]]:
    """Split a passage into parts that a text has and parts that it does not, in order and complete.

    A word is common where it is part of a 3-gram of both, and so is the white space between two common words.
    """
    tokens, words, owner = _word_tokens(passage)
    passage_grams, size = grams(text), min(3, len(words))
    common_tokens = {
        owner[place]
        for at in range(len(words) - size + 1)
        if size and tuple(words[at : at + size]) in passage_grams
        for place in range(at, at + size)
    }
    pieces, end, before = list[tuple[str, bool]](), 0, False
    for place, token in enumerate(tokens):
        now = place in common_tokens
        pieces += [(passage[end : token.start()], before and now), (token.group(), now)]
        end, before = token.end(), now
    pieces.append((passage[end:], False))
    joined = [("".join(text for text, _ in run), now) for now, run in groupby(pieces, key=itemgetter(1))]
    return [(text, now) for text, now in joined if text]


def _word_tokens(passage: str) -> tuple[list[re.Match[str]], list[str], list[int]]:
    """Split a passage: its tokens, their words, and for each word the place of its token."""
    tokens = list(_TOKEN.finditer(passage))
    words = [(word, place) for place, token in enumerate(tokens) for word in words_of(token.group())]
    return tokens, [word for word, _ in words], [place for _, place in words]


def longest_common_part(passage: str, text: str) -> str | None:
    """Longest part of a passage whose words are part of 3-grams of a text, as it is written; None = there is none."""
    tokens, words, owner = _word_tokens(passage)
    passage_grams, size = grams(text), min(3, len(words))
    longest, start, end = (0, 0), -1, -1
    for at in range(len(words) - size + 1):
        if not size or tuple(words[at : at + size]) not in passage_grams:
            continue
        start = start if at <= end else at
        end = at + size
        longest = max(longest, (end - start, -start))
    length, first = longest[0], -longest[1]
    if not length:
        return None
    return passage[tokens[owner[first]].start() : tokens[owner[first + length - 1]].end()]


_MOST_WORDS = 4_000
_TOKEN = re.compile(r"\S+")
LIKE = 0.7
"""Two hits that have more of the shorter one's word 3-grams in common are near copies."""
TOP = 5


class NearCopies(Value, kw_only=False):
    """Two hits with nearly the same text."""

    one: str
    other: str
    similarity: float


def new_near_copies(ranking: Ranking, before: Ranking | None) -> Sequence[NearCopies]:
    """List the pairs among the top 5 of which more than 0.7 of the shorter text's word 3-grams are in both.

    At least one of a pair is new: two overlapping neighbours that were always retrieved crowd out nothing.
    """
    old = frozenset(before.ids) if before is not None else frozenset()
    hits = [(chunk, text) for chunk, text in zip(ranking.ids[:TOP], ranking.texts[:TOP], strict=True) if text]
    pairs = [
        NearCopies(one, other, overlap(a, b))
        for (one, a), (other, b) in combinations(hits, 2)
        if not (one in old and other in old)
    ]
    return [pair for pair in pairs if pair.similarity > LIKE]


def shingles_of(body: str) -> frozenset[int]:
    """Return the hashes of each three words in a row of a normalised text; valid in this process only."""
    return _shingles_cached(body) if len(body) <= _CACHED_UP_TO else _shingles(body)


def _shingles(body: str) -> frozenset[int]:
    return frozenset(map(hash, threes(_split(body))))


def words_of(text: str) -> list[str]:
    """Split a text, normalised, into words; in scripts without spaces, each character is one."""
    return _split(normalise(text))


def threes(words: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield each three words in a row."""
    return zip(words, words[1:], words[2:], strict=False)


def _split(body: str) -> list[str]:
    spaced = body.isascii() or max(body, default="") < FIRST_UNSPACED
    return body.split() if spaced else re.findall(_WORDS, body)  # compiled at its first use, which takes 4 ms


_CACHED_UP_TO = 8_192
_PUNCTUATION = _Punctuation()
_LINE_END = r"(?:[^\S\n]*\n\s*)?"
_HYPHEN = re.compile(rf"[-\u00ad\u2010-\u2013](?:(?<=[^\W\d].){_LINE_END}(?=\w)|(?<=\d.){_LINE_END}(?=[^\W\d]))")
_BEFORE_MINUS = r"\s(\[{<=>+\u00b1~$|`\"'\u2018\u201c\u201e\u00ab"
_MINUS = re.compile(rf"\u2212|[\u2010-\u2013](?<![^{_BEFORE_MINUS}].)(?=\d)")
_SPACED_PERCENT = re.compile(r"(?<=\d)\s+(?=[%\u2030])")
_LOOSE = re.compile(rf"[.,%\u2030-](?!(?<=\d[.,])\d|(?<=\d[%\u2030])|(?<![^{_BEFORE_MINUS}]-)(?<=-)\d)")
"""These characters where they do not belong to a number."""
_WORDS = f"[^\\s{FIRST_UNSPACED}-\U0010ffff]+|[{FIRST_UNSPACED}-\U0010ffff]"

# The same chunks answer many canaries of a run, and every judgment of one.
_normalise_cached = lru_cache(maxsize=1024)(_normalise_text)
_shingles_cached = lru_cache(maxsize=1024)(_shingles)
