"""Where a passage is now that is not found by its name any more, and the judgments proposed in its place.

How much of a passage a chunk must hold to stand for it is said by the shares at the top.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from app.base.values import Judgment, Ranking, Value, replace
from app.diagnosis.domain.cases import FoundChunk, Reanchor
from app.diagnosis.domain.evidence import SearchedChunk
from app.scoring.rankings import match, prepare
from app.scoring.words import COMPARABLE, Grams, containment, grams, longest_common_part

ALONE = 0.5
"""Share of a passage's word 3-grams that one chunk must hold to be proposed in its place."""
TOGETHER = 0.8
"""Pieces that hold less than half of a passage each must hold this share of it together."""
OF_PASSAGE = 0.5
"""Share of a chunk's own 3-grams that are the passage's, from which on it is a piece of it."""
BACK = 0.5
"""Share of a passage's 3-grams in the chunk with its old id, from which on nothing is to be re-anchored."""
MOST_PIECES = 3
"""Chunks proposed in the place of one."""
MOST_CANDIDATES = 60
"""Chunks compared at most; an answer may have hundreds of long ones."""


def reanchor(
    searched: SearchedChunk, answers: Iterable[Ranking], before: Ranking | None, *, pieces: bool = False
) -> Reanchor | None:
    """Find the chunk that holds a passage now, or the few that hold it together; None = there is none.

    Chunks that were retrieved with the expected one when it was healthy, with the same text, do not count: they are
    neighbours that overlap with it. With `pieces`, where the whole index was re-cut, retrieved pieces count even if
    they hold little of a long passage; but not a few common words, nor a piece of a document retrieved before.
    """
    if searched.passage is None:
        return None
    whole = grams(searched.passage)
    candidates = _candidates(whole, answers, before)
    cover = _cover(whole, candidates)
    share = _share(cover, whole)
    if not cover or (cover[0].chunk.similarity < ALONE and share < TOGETHER):
        cover = _cover(whole, _pieces(searched, whole, candidates, before) if pieces else [])
        share = _share(cover, whole)
    if not cover:
        return None
    chunks = [one.chunk for one in cover]
    return Reanchor(
        index=searched.index,
        judgment=searched.judgment,
        passage=searched.passage,
        proposals=tuple(_proposal(searched, one, alone=len(chunks) == 1) for one in chunks),
        chunks=tuple(chunks),
        similarity=round(share, 3),
    )


def is_back(old: Judgment, passage: str | None, ranking: Ranking) -> bool:
    """Whether a ranking has, at any rank, what a proposal would replace: the chunk, the document or the text.

    A chunk counts under its id with its text, `passage`; a document by its name alone, its text may be in another.
    """
    if old.id is not None:
        text = ranking.texts[ranking.ids.index(old.id)] if old.id in ranking.ids else None
        return passage is not None and text is not None and containment(passage, text) >= BACK
    named = Judgment(text=old.text) if old.document is None else Judgment(document=old.document)
    return match(prepare([named]), ranking).first[0] is not None


class _Candidate(Value, kw_only=False):
    """A chunk, and the 3-grams it has in common with the passage."""

    chunk: FoundChunk
    common: Grams
    is_piece: bool
    """Most of its text is from the passage."""


def _candidates(whole: Grams, answers: Iterable[Ranking], before: Ranking | None) -> list[_Candidate]:
    """List the chunks that hold a part of a passage, among the 60 best ranked of all answers."""
    hits_before = set(zip(before.ids, before.texts, strict=True)) if before is not None else set()
    hits = [
        (rank, place, chunk, document, text)
        for place, ranking in enumerate(answers)
        for rank, (chunk, document, text) in enumerate(zip(ranking.ids, ranking.documents, ranking.texts, strict=True))
        if text and (chunk, text) not in hits_before
    ]
    first: dict[str, tuple[int, int, str, str | None, str]] = {}
    for hit in sorted(hits, key=lambda one: one[:2]):
        first.setdefault(hit[2], hit)
    candidates: list[_Candidate] = []
    # Answers come most telling first, which decides where two chunks hold as much.
    for _, _, chunk, document, text in sorted(
        islice(first.values(), MOST_CANDIDATES), key=lambda one: (one[1], one[0])
    ):
        own = grams(text)
        both = whole & own
        if both:
            share = round(len(both) / len(whole), 3)
            is_piece = len(both) >= OF_PASSAGE * len(own)
            candidates.append(
                _Candidate(FoundChunk(id=chunk, document=document, text=text, similarity=share), both, is_piece)
            )
    return candidates


def _pieces(
    searched: SearchedChunk, whole: Grams, candidates: Sequence[_Candidate], before: Ranking | None
) -> list[_Candidate]:
    """Keep the chunks that are mostly text of the passage, and have enough of it to prove that they were cut from it.

    For a judgment by document, none of a document that was retrieved already when the canary was healthy.
    """
    least = max(_PIECE * len(whole), min(COMPARABLE, len(whole)))
    by_document = searched.judgment.id is None and searched.judgment.document is not None
    documents_before = frozenset(before.documents) if before is not None and by_document else frozenset()
    return [
        one
        for one in candidates
        if one.is_piece and len(one.common) >= least and one.chunk.document not in documents_before
    ]


def _share(taken: Sequence[_Candidate], whole: Grams) -> float:
    common = frozenset[tuple[str, ...]]().union(*(one.common for one in taken))
    return len(common) / len(whole) if whole else 0.0


def _cover(whole: Grams, candidates: Sequence[_Candidate]) -> Sequence[_Candidate]:
    """Take the chunk that holds most of a passage, then those that add most, as long as each adds a fifth."""
    cover, left, rest = list[_Candidate](), whole, list(candidates)
    while rest and left and len(cover) < MOST_PIECES:
        best = max(rest, key=lambda one: (len(left & one.common), one.chunk.similarity))
        gained = left & best.common
        if cover and len(gained) < _WORTH_ADDING * len(whole):
            break
        cover.append(best)
        rest.remove(best)
        left -= gained
    return cover


def _proposal(searched: SearchedChunk, chunk: FoundChunk, *, alone: bool) -> Judgment:
    """Build the proposed judgment with the identities of the old one: an additional document would widen it."""
    old = searched.judgment
    text = old.text if alone or old.text is None else longest_common_part(old.text, chunk.text)
    if old.id is None and old.document is not None and chunk.document is not None:
        return replace(old, document=chunk.document, text=text)
    if old.id is None and text is not None:
        return replace(old, text=text)
    return replace(old, id=chunk.id, document=None if old.document is None else chunk.document, text=text)


_WORTH_ADDING = 0.2
_PIECE = 0.1
"""The least share of a passage that a piece of it holds."""
