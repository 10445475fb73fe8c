"""Which chunks hold a passage whose own chunk is gone, and which judgments should stand for it from now on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from app.domain.diagnosis.expected_chunks import COMPARABLE, MOSTLY, SearchedChunk
from app.domain.diagnosis.text_overlap import Grams, grams, held, part_held
from app.domain.diagnosis.values import FoundChunk, Reanchor
from app.domain.model import Judgment, Ranking
from app.domain.runs.matching import match, prepare

TOGETHER = 0.8
"""Pieces that hold less than half of a passage each must hold this share of it together."""
MOST_PIECES = 3
MOST_LOOKED_AT = 60
"""Chunks; an answer may have hundreds of long ones."""


def reanchor(
    wanted: SearchedChunk, answers: Iterable[Ranking], before: Ranking | None, *, pieces: bool = False
) -> Reanchor | None:
    """Find the chunk that holds a passage now, or the few that hold it together; None = there is none.

    Chunks that stood beside the expected one when all was well, and still say the same, are no new home of it: they
    are neighbours that overlap with it. With `pieces`, where it is known that everything was cut anew, the pieces that
    were retrieved do, even if they hold little of a long passage; but a few words that both have, or a piece of a
    document that stood beside the expected one, prove nothing.
    """
    if wanted.passage is None:
        return None
    whole = grams(wanted.passage)
    candidates = _candidates(whole, answers, before)
    cover = _cover(whole, candidates)
    share = _share(cover, whole)
    if not cover or (cover[0].found.similarity < MOSTLY and share < TOGETHER):
        cover = _cover(whole, _pieces(wanted, whole, candidates, before) if pieces else [])
        share = _share(cover, whole)
    if not cover:
        return None
    chunks = [one.found for one in cover]
    return Reanchor(
        index=wanted.index,
        judgment=wanted.judgment,
        passage=wanted.passage,
        proposals=tuple(_proposal(wanted, one, alone=len(chunks) == 1) for one in chunks),
        found=tuple(chunks),
        similarity=round(share, 3),
    )


def is_back(old: Judgment, passage: str | None, ranking: Ranking) -> bool:
    """Whether a ranking holds, at any rank, what a proposal would replace: the chunk, the document or the text.

    A chunk counts under its id with its text, `passage`; a document by its name alone, its text may stand in another's.
    """
    if old.id is not None:
        text = ranking.texts[ranking.ids.index(old.id)] if old.id in ranking.ids else None
        return passage is not None and text is not None and held(passage, text) >= MOSTLY
    named = Judgment(text=old.text) if old.document is None else Judgment(document=old.document)
    return match(prepare([named]), ranking).first[0] is not None


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A chunk, and what it holds of the passage; its other 3-grams are not kept."""

    found: FoundChunk
    held: Grams
    is_piece: bool
    """Most of what it says is of the passage."""


def _candidates(whole: Grams, answers: Iterable[Ranking], before: Ranking | None) -> list[_Candidate]:
    """List the chunks that hold something of a passage, among the 60 that stand best in any answer."""
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
    for _, _, chunk, document, text in sorted(islice(first.values(), MOST_LOOKED_AT), key=lambda one: (one[1], one[0])):
        own = grams(text)
        both = whole & own
        if both:
            share = round(len(both) / len(whole), 3)
            is_piece = len(both) >= MOSTLY * len(own)
            candidates.append(
                _Candidate(FoundChunk(id=chunk, document=document, text=text, similarity=share), both, is_piece)
            )
    return candidates


def _pieces(
    wanted: SearchedChunk, whole: Grams, candidates: Sequence[_Candidate], before: Ranking | None
) -> list[_Candidate]:
    """Keep the chunks that say little but what the passage says, and enough of it to prove that they were cut from it.

    For a judgment by document no piece of another document that was retrieved already when all was well.
    """
    least = max(_PIECE * len(whole), min(COMPARABLE, len(whole)))
    by_document = wanted.judgment.id is None and wanted.judgment.document is not None
    documents_before = frozenset(before.documents) if before is not None and by_document else frozenset()
    return [
        one
        for one in candidates
        if one.is_piece and len(one.held) >= least and one.found.document not in documents_before
    ]


def _share(taken: Sequence[_Candidate], whole: Grams) -> float:
    held = frozenset[tuple[str, ...]]().union(*(one.held for one in taken))
    return len(held) / len(whole) if whole else 0.0


def _cover(whole: Grams, candidates: Sequence[_Candidate]) -> Sequence[_Candidate]:
    """Take the chunk that holds most of a passage, then whichever adds most, as long as it adds a fifth."""
    cover, left, rest = list[_Candidate](), whole, list(candidates)
    while rest and left and len(cover) < MOST_PIECES:
        best = max(rest, key=lambda one: (len(left & one.held), one.found.similarity))
        gained = left & best.held
        if cover and len(gained) < _WORTH_ADDING * len(whole):
            break
        cover.append(best)
        rest.remove(best)
        left -= gained
    return cover


def _proposal(wanted: SearchedChunk, found: FoundChunk, *, alone: bool) -> Judgment:
    """Write the judgment anew with the identities it had: a document that it did not name would widen it."""
    old = wanted.judgment
    text = old.text if alone or old.text is None else part_held(old.text, found.text)
    if old.id is None and old.document is not None and found.document is not None:
        return replace(old, document=found.document, text=text)
    if old.id is None and text is not None:
        return replace(old, text=text)
    return replace(old, id=found.id, document=None if old.document is None else found.document, text=text)


_WORTH_ADDING = 0.2
_PIECE = 0.1
"""The least share of a passage that a piece of it holds."""
