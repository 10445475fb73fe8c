"""Near copies among many texts, found without comparing each pair."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.scoring.texts import FIRST_UNSPACED

NEAR_COPY: Final = 0.7
"""Least share of the shorter text's word 3-grams that near copies have in common."""
_WORDS_READ = 400
"""Characters of a text that are compared."""
_FEWEST_WORDS = 5
"""Shorter texts are copies of one another only where they are equal."""
_ALL_PAIRS_UP_TO = 8
_LEAST_SHARED = 0.4
"""Of the sampled 3-grams: pairs below are not compared in full."""
_SAMPLED = 4
_MANY = 64
"""3-grams from which on every fourth suffices to find candidates."""

_SPACED = re.compile(r"\w+")
_UNSPACED = re.compile(f"[{FIRST_UNSPACED}-\U0010ffff]|[^\\W{FIRST_UNSPACED}-\U0010ffff]+")
Hashes = NDArray[np.uint64]
Places = NDArray[np.intp]


def near_copies(texts: Sequence[str]) -> dict[int, tuple[int, float]]:
    """By place, a text of which it is a near copy and the share of the shorter one's 3-grams in common.

    Texts are near copies where more than 0.7 of the shorter one's distinct word 3-grams are in both (containment,
    Broder 1997), read up to 400 words; equal texts of any length are. Candidates come from an inverted index over a
    fixed sample of the 3-grams (every fourth hash of longer texts), in which each text is paired with all others of
    a short posting list, and with the first and the one before it of a long one. So a copy is found to be one, but
    for rare exceptions, though not always of whom else. 10,000 chunks of 150 words take about a second.
    """
    closest: dict[int, tuple[int, float]] = {}
    groups: dict[tuple[int, ...], int] = {}
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    for place, text in enumerate(texts):
        words = tuple(map(numbers.__getitem__, words_of(text, most=_WORDS_READ)))
        first = groups.setdefault(words, place)
        if words and first != place:
            closest[place] = first, 1.0
            closest.setdefault(first, (place, 1.0))
    long = [(place, words) for words, place in groups.items() if len(words) >= _FEWEST_WORDS]
    if not long:
        return closest
    hashes, ends = _shingles([words for _, words in long])
    starts = np.concatenate([[0], ends[:-1]])
    sets: dict[int, frozenset[int]] = {}
    for one, other in _candidates(hashes, starts, ends):
        for which in (one, other):
            if which not in sets:
                sets[which] = frozenset(hashes[starts[which] : ends[which]].tolist())
        common = len(sets[one] & sets[other]) / min(len(sets[one]), len(sets[other]))
        if common > NEAR_COPY:
            for mine, its in ((long[one][0], long[other][0]), (long[other][0], long[one][0])):
                if mine not in closest or closest[mine][1] < common:
                    closest[mine] = its, common
    return closest


def words_of(text: str, *, most: int | None = None) -> list[str]:
    """List the words of a text, the first `most`; in scripts without spaces each character is one."""
    pattern = _SPACED if text.isascii() else _UNSPACED
    if most is None or len(text) <= most:  # then there are no more
        return pattern.findall(text.casefold())[:most]
    return [found[0] for found in islice(pattern.finditer(text.casefold()), most)]


def _shingles(texts: Sequence[Sequence[int]]) -> tuple[Hashes, Places]:
    """Hash each three words in a row: the distinct hashes of one text after the other, and where each text's end.

    Words are numbers, so hashes are the same in every process.
    """
    ids: Hashes = np.concatenate([np.array(words, dtype=np.uint64) for words in texts])
    owners = np.repeat(np.arange(len(texts)), [len(words) for words in texts])
    mixed: Hashes = (ids[:-2] * _ONE ^ (ids[1:-1] * _TWO)) * _ONE + ids[2:] * _THREE
    mixed = (mixed ^ mixed >> np.uint64(29)) * _ONE
    inside = owners[:-2] == owners[2:]
    hashes, owners = mixed[inside], owners[:-2][inside]
    order = np.lexsort((hashes, owners))
    hashes, owners = hashes[order], owners[order]
    distinct = np.concatenate([[True], (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1])])
    return hashes[distinct], np.searchsorted(owners[distinct], np.arange(len(texts)), side="right")


_ONE, _TWO, _THREE = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))


def _candidates(hashes: Hashes, starts: Places, ends: Places) -> list[tuple[int, int]]:
    """List pairs of texts that share at least four in ten of the shorter one's sampled 3-grams."""
    sizes = ends - starts
    owners = np.repeat(np.arange(len(sizes)), sizes)
    sampled = (sizes < _MANY)[owners] | ((hashes >> np.uint64(40)) % np.uint64(_SAMPLED) == 0)
    hashes, owners = hashes[sampled], owners[sampled]
    if not len(hashes):
        return []
    order = np.argsort(hashes, kind="stable")
    hashes, owners = hashes[order], owners[order]
    begins = np.concatenate([[True], hashes[1:] != hashes[:-1]])
    pairs = np.concatenate(list(_paired(owners, np.flatnonzero(begins))))
    packed, counts = np.unique(pairs, return_counts=True)
    one, other = packed // _WIDE, packed % _WIDE
    longer, shorter = np.maximum(sizes[one], sizes[other]), np.minimum(sizes[one], sizes[other])
    likely = counts >= _LEAST_SHARED * shorter / np.where(longer < _MANY, 1, _SAMPLED)
    return list(zip(one[likely].tolist(), other[likely].tolist(), strict=True))


def _paired(owners: NDArray[np.intp], starts: NDArray[np.intp]) -> Iterator[NDArray[np.int64]]:
    """Yield pairs of texts, the earlier one first, that stand in one posting list; these begin at `starts`."""
    sizes = np.diff(starts, append=len(owners))
    lists = np.repeat(np.arange(len(starts)), sizes)
    short = np.repeat(sizes <= _ALL_PAIRS_UP_TO, sizes)
    for away in range(1, _ALL_PAIRS_UP_TO):
        together = lists[:-away] == lists[away:]
        if away > 1:
            together &= short[:-away]
        yield _packed(owners[:-away][together], owners[away:][together])
    firsts = np.repeat(owners[starts], sizes)
    others = ~short
    others[starts] = False
    yield _packed(firsts[others], owners[others])


def _packed(one: NDArray[np.intp], other: NDArray[np.intp]) -> NDArray[np.int64]:
    return one.astype(np.int64) * _WIDE + other


_WIDE: Final = 2**31
