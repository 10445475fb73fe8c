"""Identity and similarity of rankings: rounded scores and a fingerprint for equality, `rbo` for the overlap.

Scores of real retrievers jitter in their last digits, so an answer also counts as unchanged where `scores_hold`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct, pack

import numpy as np
from numpy.typing import NDArray

from app.base.values import Ranking
from app.scoring.evaluation import Result, Tally, unpack_reasons
from app.scoring.matching import Match

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
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


class ScoredRankings(Mapping[int, Result]):
    """Results by position of the panel: matches in their stored form, numbers and reasons as the tally has them."""

    def __init__(self, tally: Tally) -> None:
        """Hold nothing yet."""
        self._tally = tally
        self._matches: dict[int, bytes] = {}

    def add(self, results: Mapping[int, Result]) -> None:
        """Add results that were just judged, also to the tally."""
        self._tally.add(results)
        self._matches.update((position, result.match.to_bytes()) for position, result in results.items())

    def match_bytes(self, position: int) -> bytes:
        """Return the match of a ranking in its stored form."""
        return self._matches[position]

    def vector(self, position: int) -> NDArray[np.float64]:
        """Return the measures of a ranking in the yardstick's order; NaN = undefined."""
        return self._tally.vector(position)

    def top_score(self, position: int) -> float | None:
        """Return the relevance of the first hit."""
        return self._tally.top_score(position)

    def __getitem__(self, position: int) -> Result:
        """Return the result of a ranking; its reasons include those of the timing."""
        return Result(
            match=Match.from_bytes(self._matches[position]),
            vector=self.vector(position),
            top_score=self.top_score(position),
            reasons=unpack_reasons(int(self._tally.reasons[position])),
        )

    def __iter__(self) -> Iterator[int]:
        """Iterate over the positions."""
        return iter(self._matches)

    def __len__(self) -> int:
        """Count the rankings."""
        return len(self._matches)
