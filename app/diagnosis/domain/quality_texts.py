"""The checklist of retrieval quality about texts: chunks, near copies, vocabulary, chunk boundaries.

Each point is one function that returns a `QualitySection`, as in `quality`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, count, islice
from math import ceil
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.base.texts import counted, percent_text
from app.base.values import Value
from app.diagnosis.domain.quality import EXAMPLES, SHOWN, Answered, DistinctChunk, example, point, unknown
from app.diagnosis.views import Mark, QualityExample, QualitySection
from app.scoring.words import FIRST_UNSPACED, threes

CHUNK_QUALITY: Final = "chunk_quality"
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


def chunk_quality(chunks: Sequence[DistinctChunk], *, retrieved: int | None = None) -> QualitySection:
    """Section on distinct retrieved chunks; `retrieved` is their number where only some of them are given.

    Counted are chunks that are empty (no letter or digit), begin in the middle of a sentence (with a lower-case
    letter or a comma), end in one (without a mark that ends sentences), are over-long (more than 4,000 characters, or
    four times the median and more than 1,000), have a near copy (see `nearest_copies`), or are mostly markup or lines
    that many chunks repeat. Chunks of markup are not checked for sentences.
    """
    texts = [chunk.text for chunk in chunks if chunk.text is not None]
    with_text = [chunk for chunk in chunks if chunk.text is not None]
    if not with_text:
        why = "answers are mapped without texts" if chunks else "nothing was retrieved"
        return unknown(CHUNK_QUALITY, why, chunks=len(chunks) if retrieved is None else retrieved)
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
        example(summary, chunk=with_text[place].id, text=texts[place][:SHOWN])
        for fault in sorted(FAULTS, key=lambda one: one not in wrong)
        for place, summary in sorted(faults[fault.name].items())[:EXAMPLES]
    ]
    summary = "; ".join(f"{percent_text(counts[fault.name] / len(with_text))} {fault.predicate}" for fault in wrong)
    return point(
        CHUNK_QUALITY,
        Mark.REVIEW if wrong else Mark.GOOD,
        summary or f"of {len(with_text):,} chunks few are empty, cut, over-long, copies or markup",
        numbers=numbers,
        examples=examples,
        advice=wrong[0].advice if wrong else None,
    )


class Fault(Value):
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
    copies = {place: of for place, of in nearest_copies(texts).items() if place not in empty}
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


def nearest_copies(texts: Sequence[str]) -> dict[int, tuple[int, float]]:
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
        words = tuple(map(numbers.__getitem__, folded_words(text, most=_WORDS_READ)))
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


def folded_words(text: str, *, most: int | None = None) -> list[str]:
    """List the first `most` words of a text, in scripts without spaces each character; case-folded alone, for speed."""
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
VOCABULARY: Final = "vocabulary"
LITTLE: Final = 0.2
"""Share of a query's words in the expected text below which both use different words."""
_STEM_LETTERS = 6
"""First letters of words that are compared, so that most endings do not matter."""


def vocabulary(answered: Sequence[Answered], chunks: Sequence[DistinctChunk], *, k: int) -> QualitySection:
    """Compare the content words of each query with those of the best expected text: found canaries against missed.

    An expected text is the one the judgment has or, for one by id, the text of that chunk if any canary retrieved it.
    Only English function words are left out. Good where no missed canary lacks its words; that of a missed canary no
    text is known is unknown.
    """
    texts = {chunk.id: chunk.text for chunk in chunks if chunk.text is not None}
    shared = _shared(answered, texts)
    found_overlaps: list[float] = []
    missed_overlaps: list[tuple[float, str]] = []
    unread = 0
    for one in answered:
        if not one.canary.expects:
            continue
        rank = one.match.first_relevant
        lost = rank is None or rank > k
        overlap = _overlap(one, texts, shared)
        if overlap is None:
            unread += lost
        elif lost:
            missed_overlaps.append((overlap, one.canary.key))
        else:
            found_overlaps.append(overlap)
    numbers = {
        "found_canaries": len(found_overlaps),
        "found_mean_overlap": _mean(found_overlaps),
        "missed_canaries": len(missed_overlaps),
        "missed_mean_overlap": _mean([overlap for overlap, _ in missed_overlaps]),
        "missed_without_text": unread,
    }
    strange = sorted(one for one in missed_overlaps if one[0] < LITTLE)
    numbers["missed_with_little_overlap"] = len(strange)
    if not found_overlaps and not missed_overlaps:
        return unknown(VOCABULARY, "of no canary the expected text is known", **numbers)
    if unread and not strange:
        return unknown(VOCABULARY, f"of {unread:,} missed canaries the expected text is not known", **numbers)
    if not missed_overlaps:
        common = percent_text(_mean(found_overlaps) or 0.0)
        note = f"no canary is missed; queries share {common} of their words with what they expect"
    elif not strange:
        note = f"the {len(missed_overlaps):,} missed canaries share words with what they expect"
    else:
        note = (
            f"{len(strange):,} of {len(missed_overlaps):,} missed canaries share next to no word with what they expect"
        )
    return point(
        VOCABULARY,
        Mark.REVIEW if strange else Mark.GOOD,
        note,
        numbers=numbers,
        examples=[
            example(f"{percent_text(overlap)} of the query's words are in the expected text", canary=key)
            for overlap, key in strange[:EXAMPLES]
        ],
        advice="Expand queries, add synonyms or put the users' words into the documents." if strange else None,
    )


def content_words(text: str) -> frozenset[str]:
    """Content words of a text, cut to their first six letters."""
    return frozenset(word[:_STEM_LETTERS] for word in folded_words(text[:_READ]) if word not in _FUNCTION_WORDS)


def word_overlap(query: str, texts: Iterable[str]) -> float | None:
    """Share of a query's content words in the one of these texts that has most of them; None = unknown.

    Below `LITTLE` query and text count as using different words, here and in the causes of single canaries.
    """
    query_words = content_words(query)
    shares = [len(query_words & content_words(text)) / len(query_words) for text in texts] if query_words else []
    return max(shares, default=None)


def _shared(answered: Sequence[Answered], texts: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """By expected text, those of its words that a query with this expectation has."""
    queries_by_word: defaultdict[str, set[str]] = defaultdict(set)
    for one in answered:
        words = content_words(one.canary.query)
        for text in _expected(one, texts):
            queries_by_word[text] |= words
    return {text: content_words(text) & words for text, words in queries_by_word.items()}


def _overlap(one: Answered, texts: Mapping[str, str], shared: Mapping[str, frozenset[str]]) -> float | None:
    """Share of the query's content words in the expected text that has most of them; None = unknown."""
    query_words = content_words(one.canary.query)
    expected = _expected(one, texts)
    if not query_words or not expected:
        return None
    return max(len(query_words & shared[text]) for text in expected) / len(query_words)


def _expected(one: Answered, texts: Mapping[str, str]) -> list[str]:
    return [text for _, judgment in one.expected if (text := judgment.text or texts.get(judgment.id or ""))]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


_FUNCTION_WORDS = frozenset(
    folded_words(
        "a about after all am an and any are as at be been before being but by can could did do does doing "
        "for from had has have having he her him his how i if in into is it its just me more most my no not "
        "of off on or our out over own she should so some such than that the their them then there these they "
        "this those to too under up us very was we were what when where which while who whom whose why will "
        "with would you your"
    )
)


CUTS: Final = "chunk_boundaries"
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


def chunk_boundaries(answered: Sequence[Answered]) -> QualitySection:
    """Section on expected texts that two hits of one document hold together and neither alone.

    Judged by word 3-grams: a hit holds a text where 85 % of them are in it, or all but the four that one cut can take.
    Good where of the texts that were retrieved no more than 2 % are split. Judgments without a text, or one of fewer
    than eight words, say nothing here. Read are the first 4,000 words and 20,000 characters of a text, and pairs are
    sought among the 20 hits that hold most. Nothing is kept from one canary to the next.
    """
    texts = whole = 0
    examples: list[QualityExample] = []
    for one in answered:
        passage = _ExpectedTexts(one)
        for place, mask in passage.masks.items():
            count = mask.bit_count()
            texts += 1
            need = min(ceil(WHOLE * count), max(ceil(_LEAST * count), count - _LOST_AT_A_CUT))
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
                examples.append(example(note, canary=one.canary.key, chunk=one.ranking.ids[first]))
    return _boundaries_section(texts=texts, whole=whole, examples=examples)


def _boundaries_section(*, texts: int, whole: int, examples: Sequence[QualityExample]) -> QualitySection:
    split = len(examples)
    numbers = {"expected_texts": texts, "held_whole": whole, "split": split, "not_held": texts - whole - split}
    if not texts:
        return unknown(
            CUTS,
            f"no canary expects a passage by its text of {FEWEST_WORDS} words or more; ids do not show the cuts",
            **numbers,
        )
    if not whole + split:
        return unknown(CUTS, f"of {counted(texts, 'expected text')} none was retrieved, whole or in parts", **numbers)
    verb = "is" if split == 1 else "are"
    good = split <= _ALLOWED * (whole + split)
    return point(
        CUTS,
        Mark.GOOD if good else Mark.REVIEW,
        f"{split:,} of {counted(whole + split, 'expected text')} retrieved {verb} split over two chunks",
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
            shingles = _word_shingles(judgment.text or "")
            if len(shingles) > FEWEST_WORDS - _WORDS_OF_ONE:
                numbers = [self._numbers.setdefault(shingle, len(self._numbers)) for shingle in shingles]
                self.masks[place] = self._mask(numbers)

    def mask_of(self, hit: int) -> int:
        """Return the expected 3-grams that a hit has."""
        if hit not in self._masks:
            shingles = _word_shingles(self._texts[hit] or "")
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


def _word_shingles(text: str) -> set[_Shingle]:
    words = folded_words(text[:_MOST_CHARACTERS], most=_MOST_WORDS)
    return set(threes(words))
