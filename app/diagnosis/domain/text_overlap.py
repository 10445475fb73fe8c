"""Overlap of texts in word 3-grams: whether a passage moved to another chunk, whether two hits are copies.

Coarser than `runs.matching`, which decides whether a hit satisfies a judgment.
"""

import re
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from app.scoring.passages import normalise
from app.scoring.text_damage import FIRST_UNSPACED

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
    return frozenset(zip(words, words[1:], words[2:], strict=False)) or frozenset([tuple(words)])


def words_of(text: str) -> list[str]:
    """Split a normalised text into words; in scripts without spaces, each character is one."""
    body = normalise(text)
    return body.split() if max(body, default="") < FIRST_UNSPACED else _WORDS.findall(body)


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
_WORDS = re.compile(f"[^\\s{FIRST_UNSPACED}-\U0010ffff]+|[{FIRST_UNSPACED}-\U0010ffff]")
