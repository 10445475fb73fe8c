"""How much of one text another holds, in word 3-grams: whether a passage moved house, whether two hits are copies.

Whether a hit satisfies a judgment is matching's to say; this is coarser on purpose.
"""

import re
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from app.domain.runs.passages import normalise
from app.domain.runs.text_damage import FIRST_UNSPACED

Grams = frozenset[tuple[str, ...]]


def held(passage: str, text: str) -> float:
    """Give the share of a passage's word 3-grams that a text holds, in [0, 1] (Broder 1997: containment)."""
    passage_grams = grams(passage)
    return len(passage_grams & grams(text)) / len(passage_grams) if passage_grams else 0.0


def alike(one: str, other: str) -> float:
    """Give the share of the shorter text's word 3-grams that are in both, in [0, 1]; 0 where either has none."""
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
    """Split a normalised text into words; where spaces do not tell words apart, each sign is one."""
    body = normalise(text)
    return body.split() if max(body, default="") < FIRST_UNSPACED else _WORDS.findall(body)


def parts_held(passage: str, text: str) -> list[tuple[str, bool]]:
    """Split a passage into stretches that a text holds and stretches that it does not, in order, nothing left out.

    A word counts as held where it is part of a 3-gram that both have, the white space between two held words too.
    """
    tokens = list(_TOKEN.finditer(passage))
    words, owner = list[str](), list[int]()
    for place, token in enumerate(tokens):
        own = words_of(token.group())
        words += own
        owner += [place] * len(own)
    passage_grams, size = grams(text), min(3, len(words))
    held_tokens = {
        owner[place]
        for at in range(len(words) - size + 1)
        if size and tuple(words[at : at + size]) in passage_grams
        for place in range(at, at + size)
    }
    pieces, end, before = list[tuple[str, bool]](), 0, False
    for place, token in enumerate(tokens):
        now = place in held_tokens
        pieces += [(passage[end : token.start()], before and now), (token.group(), now)]
        end, before = token.end(), now
    pieces.append((passage[end:], False))
    joined = [("".join(text for text, _ in run), now) for now, run in groupby(pieces, key=itemgetter(1))]
    return [(text, now) for text, now in joined if text]


def part_held(passage: str, text: str) -> str | None:
    """Cut out of a passage the longest stretch that a text holds, as it is written there; None = no 3-gram of it.

    A word counts as held where it is part of a 3-gram that both have.
    """
    tokens = list(_TOKEN.finditer(passage))
    words, owner = list[str](), list[int]()
    for place, token in enumerate(tokens):
        own = words_of(token.group())
        words += own
        owner += [place] * len(own)
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
