"""Rankings: their hits matched to expected chunks, and their identity and similarity.

`prepare` runs once per canary version, `match` once per answer; measures and reasons read the `Match`, which has the
rank and the level of each match. Forbidden chunks go through the same two functions: any match is one too many.
Rankings are equal by the fingerprint of their rounded scores; scores of real retrievers jitter in their last digits, so
an answer also counts as unchanged where `scores_hold`. `rbo` is the overlap of two. Below: which fields hits have.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, repeat
from operator import attrgetter
from struct import Struct, pack
from typing import Final

from app.base.values import MAX_GRADE, Judgment, Level, Ranking, Value
from app.retrievers.domain.retrievers import ResponseMapping
from app.scoring.passages import Passage, match_level, prepare_passage
from app.scoring.words import normalise

LEVELS = tuple(Level)
"""The levels in the order of trying; a level's code in a `Match` is its place here plus one, 0 = no match."""

_ID, _DOCUMENT = 1, 2
_CODES = {level: code for code, level in enumerate(LEVELS, start=1)}

_MOST_CODES = 254
"""The most judgments whose codes fit one byte, 0 being none."""


def match(prepared: "Prepared", ranking: Ranking) -> "Match":
    """Return which judgments each hit satisfies.

    The identities of a judgment are alternatives: a hit satisfies it by the first level of id, document, text and
    passage that agrees, and the judgment's rank is the best rank where any level agreed. So the same chunk lower down
    never hides an equal text higher up; the rank by id alone is kept beside. It also means that a judgment with a
    document accepts every chunk of that document, whatever its other identities.
    """
    if prepared.codes is not None:
        return _match_ids(prepared, prepared.codes, ranking)
    judgment, level, grade, counts = [], bytearray(), bytearray(), list[int]()
    first: list[int | None] = [None] * len(prepared.judgments)
    first_by_id = first.copy()
    first_level = bytearray(len(first))
    for rank, hit in enumerate(zip(ranking.ids, ranking.documents, ranking.texts, strict=True), start=1):
        satisfied = _satisfied(prepared, *hit)
        gained = [index for index in satisfied if first[index] is None and prepared.grades[index]]
        for index, code in satisfied.items():
            if first[index] is None:
                first[index] = rank
                first_level[index] = code
            if code == _ID and first_by_id[index] is None:
                first_by_id[index] = rank
        counts.append(len(gained))
        if satisfied:
            best = min(gained or satisfied, key=lambda index: (-prepared.grades[index], satisfied[index], index))
            judgment.append(best)
            level.append(satisfied[best])
            grade.append(prepared.grades[best])
        else:
            judgment.append(-1)
            level.append(0)
            grade.append(0)
    return Match(
        judgment=tuple(judgment),
        level=bytes(level),
        grade=bytes(grade),
        found=_pack_counts(counts),
        first=tuple(first),
        first_level=bytes(first_level),
        first_by_id=tuple(first_by_id),
    )


def prepare(judgments: Sequence[Judgment], *, verbatim: bool = False) -> "Prepared":
    """Return the judgments of a canary arranged for `match`.

    With `verbatim` a text must be contained unchanged, so that the corrected version of a withdrawn text does not
    match. A text without a letter, digit or symbol matches nothing. Raises ValueError for a judgment without an
    identity, or a grade outside 0-3.
    """
    for judgment in judgments:
        if judgment.id is None and judgment.document is None and judgment.text is None:
            raise ValueError("a judgment needs an id, a document or a text")
        if not 0 <= judgment.grade <= MAX_GRADE:
            raise ValueError(f"a grade is between 0 and {MAX_GRADE}, not {judgment.grade}")
    uses = Counter(judgment.id for judgment in judgments)
    alone = sum(j.document is None and j.text is None and uses[j.id] == 1 for j in judgments)
    plain = alone == len(judgments) <= _MOST_CODES
    grades = bytes(judgment.grade for judgment in judgments)
    return Prepared(
        judgments=tuple(judgments),
        grades=grades,
        ideal=bytes(sorted((grade for grade in grades if grade), reverse=True)),
        codes={judgment.id: code for code, judgment in enumerate(judgments, 1) if judgment.id is not None}
        if plain
        else None,
        by_id=_places_by_key(judgment.id for judgment in judgments),
        by_document=_places_by_key(judgment.document for judgment in judgments),
        passages=tuple(
            (index, passage)
            for index, judgment in enumerate(judgments)
            if judgment.text is not None and (passage := prepare_passage(judgment.text, verbatim=verbatim)) is not None
        ),
        twofold=tuple(
            index
            for index, one in enumerate(judgments)
            if one.grade >= 1 and one.id is not None and one.text is not None
        ),
    )


def missing_judgments(prepared: "Prepared", match: "Match", k: int | None = None) -> tuple[Judgment, ...]:
    """Return the judgments of grade 1 or better that no hit of the top k satisfies (None = of the whole ranking)."""
    return tuple(
        judgment
        for judgment, rank in zip(prepared.judgments, match.first, strict=True)
        if judgment.grade >= 1 and (rank is None or (k is not None and rank > k))
    )


class Prepared(Value):
    """The judgments of one canary, arranged for matching. Made by `prepare`."""

    judgments: tuple[Judgment, ...]
    grades: bytes
    """The grade of each judgment."""
    ideal: bytes
    """The grades of at least 1, best first: the gains of a perfect ranking."""
    codes: Mapping[str, int] | None
    """Where every judgment is an id of its own and nothing else, and at most 254 are (the common case): id -> index
    + 1; else None."""
    by_id: Mapping[str, tuple[int, ...]]
    by_document: Mapping[str, tuple[int, ...]]
    passages: tuple[tuple[int, Passage], ...]
    """(index, its text ready for comparing) of the judgments that carry a text."""
    twofold: tuple[int, ...]
    """The indices of the judgments of grade 1 or better that carry both an id and a text."""


class Match(Value):
    """The judgments that one ranking satisfies: columns over its n positions, then over the judgments.

    Where a hit satisfies several judgments, the credited one is the best grade among those first found there;
    where none of grade 1 or better is new, the best grade of all it satisfies (ties: the stronger level, then the
    earlier judgment). Therefore a position is relevant exactly when its grade is at least 1, judged exactly when
    it has a level, and its gain is its grade or, where nothing was newly found, 0.
    """

    judgment: tuple[int, ...]
    """The index of the judgment credited at each position, -1 = none."""
    level: bytes
    """The code of the level that matched: place in `LEVELS` plus one, 0 = none."""
    grade: bytes
    """The grade of the credited judgment, 0 also where there is none."""
    found: bytes | tuple[int, ...]
    """How many judgments of grade 1 or better are found here for the first time; bytes where each count fits in one."""
    first: tuple[int | None, ...]
    """For each judgment the best rank (from 1) that satisfies it, None = not in the ranking."""
    first_level: bytes
    """For each judgment the code of the level at that rank, 0 = not in the ranking."""
    first_by_id: tuple[int | None, ...]
    """For each judgment the rank of the hit that has its id, None = not in the ranking, whatever else agreed."""

    def __len__(self) -> int:
        """Count the positions of the ranking."""
        return len(self.level)

    @property
    def gain(self) -> bytes:
        """At each position the best grade among the judgments first found there, 0 = nothing new."""
        return bytes(grade if new else 0 for grade, new in zip(self.grade, self.found, strict=True))

    @property
    def relevant(self) -> bytes:
        """1 at each position that satisfies a judgment of grade 1 or better, also one already found above."""
        return self.grade.translate(_IS_SET)

    @property
    def judged(self) -> bytes:
        """1 at each position that satisfies any judgment, also one of grade 0."""
        return self.level.translate(_IS_SET)

    @property
    def levels(self) -> tuple[Level | None, ...]:
        """The level that matched the credited judgment at each position."""
        return tuple(LEVELS[code - 1] if code else None for code in self.level)

    @property
    def first_relevant(self) -> int | None:
        """The rank (from 1) of the first relevant hit, None = there is none. Among forbidden chunks: the first."""
        return self.relevant.find(1) + 1 or None

    def to_bytes(self) -> bytes:
        """Return the stored form: 5 bytes, 4 per judged position, 2 per judgment found by id and 3 per other one found.

        Small numbers take one byte.
        """
        packed = bytearray([_FORMAT])
        _append_varints(
            packed, len(self.level), len(self.first), sum(self.judged), len(self.first) - self.first.count(None)
        )
        for position, code in enumerate(self.level):
            if code:
                bits = code << 2 | self.grade[position]
                _append_varints(packed, position, bits, self.judgment[position], self.found[position])
        for index, rank in enumerate(self.first):
            if rank:
                code = self.first_level[index]
                _append_varints(packed, index, rank << 3 | code)
                if code != _ID:  # else its own id is where it was first found
                    _append_varints(packed, self.first_by_id[index] or 0)
        return bytes(packed)

    @classmethod
    def from_bytes(cls, packed: bytes) -> "Match":
        """Return the match from its stored form. Raises ValueError for another format and for bytes cut short.

        Format 1 has no rank by id for a judgment that was found by another level; it is read as not in the ranking.
        """
        if packed[:1] not in {bytes([_FORMAT_1]), bytes([_FORMAT])}:
            raise ValueError(f"not a stored match of format {_FORMAT_1} or {_FORMAT}")
        numbers = _read_varints(packed[1:])
        try:
            positions, judgments, judged, levels_length = islice(numbers, 4)
            judgment = [-1] * positions
            first: list[int | None] = [None] * judgments
            first_by_id = first.copy()
            level, grade, first_level = map(bytearray, (positions, positions, judgments))
            counts = [0] * positions
            for _ in range(judged):
                position, bits, judgment[position], counts[position] = islice(numbers, 4)
                level[position], grade[position] = bits >> 2, bits & 3
            for _ in range(levels_length):
                index, bits = islice(numbers, 2)
                first[index], first_level[index] = bits >> 3, bits & 7
                if first_level[index] == _ID:
                    first_by_id[index] = first[index]
                elif packed[0] != _FORMAT_1:
                    (by_id,) = islice(numbers, 1)
                    first_by_id[index] = by_id or None
        except (ValueError, IndexError) as error:
            raise ValueError("a stored match is cut short or garbled") from error
        return cls(
            judgment=tuple(judgment),
            level=bytes(level),
            grade=bytes(grade),
            found=_pack_counts(counts),
            first=tuple(first),
            first_level=bytes(first_level),
            first_by_id=tuple(first_by_id),
        )


def _match_ids(prepared: Prepared, codes: Mapping[str, int], ranking: Ranking) -> Match:
    """Return the match of judgments that are only ids: one look-up per hit, then the match of that pattern."""
    row = bytes(map(codes.get, ranking.ids, repeat(0)))
    return (pattern_match if len(row) <= _REMEMBERED_HITS else _match_codes)(row, prepared.grades)


def _match_codes(row: bytes, grades: bytes) -> Match:
    """Return the match of hits that satisfy the judgments of these codes (index + 1, 0 = none)."""
    grade, found = _grade_tables(grades)
    first: list[int | None] = [None] * len(grades)
    for rank, code in enumerate(row, start=1):
        if code:
            first[code - 1] = rank
    return Match(
        judgment=tuple([code - 1 for code in row]),
        level=row.translate(_IS_SET),
        grade=row.translate(grade),
        found=row.translate(found),
        first=tuple(first),
        first_level=bytes(map(bool, first)),
        first_by_id=tuple(first),
    )


_REMEMBERED_HITS = 32
"""The longest rankings of which matches are shared: at most 4 MB."""
pattern_match = lru_cache(maxsize=4_096)(_match_codes)
"""The match of a pattern, shared by all canaries: what is expected stands at the same few places of most answers."""


def _satisfied(prepared: Prepared, chunk: str, document: str | None, text: str | None) -> dict[int, int]:
    """Return the judgments this hit satisfies, each with the code of the first level that agreed."""
    satisfied = dict.fromkeys(prepared.by_id.get(chunk, ()), _ID)
    if document is not None:
        for index in prepared.by_document.get(document, ()):
            satisfied.setdefault(index, _DOCUMENT)
    if text is not None and len(satisfied) < len(prepared.judgments) and prepared.passages:
        body = normalise(text)
        for index, passage in prepared.passages:
            if index not in satisfied and (level := match_level(passage, body)) is not None:
                satisfied[index] = _CODES[level]
    return satisfied


def _places_by_key(keys: Iterator[str | None]) -> dict[str, tuple[int, ...]]:
    """Return the places of each key."""
    places: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        if key is not None:
            places.setdefault(key, []).append(place)
    return {key: tuple(positions) for key, positions in places.items()}


def _pack_counts(found: Sequence[int]) -> bytes | tuple[int, ...]:
    """Return counts in a byte each where they fit: they nearly always do, and many matches are stacked at once."""
    return bytes(found) if max(found, default=0) <= _LARGEST_BYTE else tuple(found)


@lru_cache(maxsize=1024)
def _grade_tables(grades: bytes) -> tuple[bytes, bytes]:
    """Return tables from codes (index + 1) to grades, and to 1 where the grade is at least 1; cached."""
    table = bytes(1) + grades + bytes(255 - len(grades))
    return table, table.translate(_IS_SET)


_FORMAT_1, _FORMAT = 1, 2
_LARGEST_BYTE = 255
_MORE = 128
"""The bit that marks a following 7-bit group."""
_IS_SET = bytes(1) + b"\1" * 255


def _append_varints(packed: bytearray, *numbers: int) -> None:
    """Append numbers in 7-bit groups, lowest first (LEB128)."""
    for number in numbers:
        rest = number
        while rest >= _MORE:
            packed.append(rest % _MORE | _MORE)
            rest //= _MORE
        packed.append(rest)


def _read_varints(packed: bytes) -> Iterator[int]:
    """Yield numbers in 7-bit groups; an unfinished last one is dropped."""
    number, weight = 0, 1
    for byte in packed:
        number += byte % _MORE * weight
        weight *= _MORE
        if byte < _MORE:
            yield number
            number, weight = 0, 1


HASH_BYTES = 16
_CHUNK_HEAD = Struct("<3I2?").pack
RELEVANCE_DECIMALS = 3
"""Precision of relevance from a scorer outside the retriever, which varies by less between two calls."""


def decimals_of(precision: float) -> int:
    """Return the decimals that a score precision such as 1e-6 keeps; at most 15, also for 0."""
    return min(15, max(0, -math.floor(math.log10(max(precision, 1e-15)) + 1e-9)))


def round_ranking(ranking: Ranking, decimals: int) -> Ranking:
    """Return the ranking with rounded scores and relevance and its fingerprints: judged and stored alike."""
    scores = tuple([None if score is None else round(score, decimals) + 0.0 for score in ranking.scores])
    relevance = None if ranking.relevance is None else round(ranking.relevance, RELEVANCE_DECIMALS)
    whole, content = _fingerprints(ranking, scores, relevance)
    return Ranking(
        ids=ranking.ids,
        documents=ranking.documents,
        texts=ranking.texts,
        scores=scores,
        returned=ranking.returned,
        updated=ranking.updated,
        relevance=relevance,
        fingerprint=whole,
        content_fingerprint=content,
    )


class Scores(Value):
    """The numbers of a ranking that jitter."""

    of_hits: tuple[float | None, ...]
    relevance: float | None


def scores_hold(before: Scores, now: Scores, tolerance: float) -> bool:
    """Whether no score of a ranking has moved by more than a share of the largest score it had before.

    Nor has its relevance, which lies between 0 and 1, by more than that share of 1. A score that came or went has
    moved. `before` is what was stored last, so that a drift in small steps counts once it has come to that much.
    """
    largest = max((abs(score) for score in before.of_hits if score is not None), default=0.0)
    return _holds(before.relevance, now.relevance, tolerance) and all(
        _holds(old, new, tolerance * largest) for old, new in zip(before.of_hits, now.of_hits, strict=True)
    )


def _holds(before: float | None, now: float | None, allowed: float) -> bool:
    if before is None or now is None:
        return before is now
    return abs(before - now) <= allowed


def rbo(a: Sequence[str], b: Sequence[str], p: float = 0.9) -> float:
    """Return the rank-biased overlap of two rankings of distinct ids, in [0, 1]: the point estimate RBO_ext.

    Webber, Moffat and Zobel, "A similarity measure for indefinite rankings" (TOIS 2010), equation 32, which takes
    lists of uneven length: agreement is extrapolated beyond the ends. So a list and its own beginning score 1; hits
    missing at the end do not count. Two empty rankings are equal (1), one empty ranking shares nothing (0). Raises
    ValueError unless 0 < p < 1.
    """
    if not 0 < p < 1:
        raise ValueError(f"p lies strictly between 0 and 1, not {p}")
    short, long = sorted((a, b), key=len)
    if not short:
        return 0.0 if long else 1.0
    s, agreed, overlap, overlap_short, weight = len(short), 0.0, 0, 0, 1.0
    union: set[str] = set()
    for depth, right in enumerate(long, start=1):
        weight *= p
        fresh = {right, short[depth - 1]} if depth <= s else {right}
        overlap += len(fresh & union) + (depth <= s and len(fresh) == 1)
        union |= fresh
        agreed += overlap / depth * weight
        if depth <= s:
            overlap_short = overlap
        else:
            agreed += overlap_short * (depth - s) / (s * depth) * weight
    return (1 - p) / p * agreed + ((overlap - overlap_short) / len(long) + overlap_short / s) * weight


def _fingerprints(ranking: Ranking, scores: tuple[float | None, ...], relevance: float | None) -> tuple[bytes, bytes]:
    """Return two hashes of 16 bytes: of all there is, scores and relevance included, and of all but these two.

    The first is equal exactly for equal rounded rankings. Each part's length is hashed too, so that no text can
    imitate another split.
    """
    parts = [*ranking.ids, *[text or "" for text in ranking.texts], *[document or "" for document in ranking.documents]]
    count = len(ranking.ids)
    head = pack(f"<2I{len(parts)}I", ranking.returned, count, *map(len, parts))
    numbers = pack(f"<{count}d", *[math.nan if score is None else score for score in scores])
    times = b""
    if ranking.updated is not None:
        moments = [math.nan if moment is None else moment for moment in ranking.updated]
        times = pack(f"<B{count}d", 2, *moments)  # flags of absence are 0 or 1, so 2 and 3 are unambiguous
    relevant = b"" if relevance is None else pack("<Bd", 3, relevance)
    absent = bytes([value is None for value in (*ranking.texts, *ranking.documents)])
    body = absent + "".join(parts).encode()
    whole = blake2b(head + numbers + times + relevant + body, digest_size=HASH_BYTES).digest()
    return whole, blake2b(head + times + body, digest_size=HASH_BYTES).digest()


def chunk_fingerprint(chunk: str, document: str | None, text: str | None) -> bytes:
    """Return 16 bytes: the hash of one retrieved chunk."""
    name = chunk.encode()
    of, body = (document or "").encode(), (text or "").encode()
    head = _CHUNK_HEAD(len(name), len(of), len(body), document is None, text is None)
    return blake2b(head + name + of + body, digest_size=HASH_BYTES).digest()


HITS: Final = "hits"
_FIELDS: Final = {"text": "texts", "document": "documents", "updated": "updated"}
_SHOWN = 100


def present_fields(rankings: Iterable[Ranking]) -> frozenset[str]:
    """Fields, of `text`, `document` and `updated`, that at least one hit has; `hits` where there is a hit."""
    with_hits = [ranking for ranking in rankings if len(ranking)]
    if not with_hits:
        return frozenset()
    return frozenset({HITS, *(field for field, column in _FIELDS.items() if _is_present(with_hits, column))})


def _is_present(rankings: Iterable[Ranking], column: str) -> bool:
    """Whether any hit has a value there. A field that is not mapped has none in any answer, so all are looked at."""
    values = map(attrgetter(column), rankings)
    return any(each is not None and each.count(None) < len(each) for each in values)


def missing_fields(mapping: ResponseMapping, fields: Collection[str]) -> tuple[str, ...]:
    """Return the mapped fields not `present_fields`, as mapped (`text: body`); () without a hit."""
    if HITS not in fields:
        return ()
    paths = {field: getattr(mapping, field) for field in _FIELDS if field not in fields}
    return tuple(f"{field}: {_shortened(path)}" for field, path in paths.items() if path is not None)


def _shortened(path: str) -> str:
    line = " ".join(path.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
