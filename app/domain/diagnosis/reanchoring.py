"""Which chunks hold a passage whose own chunk is gone, and which judgments should stand for it from now on."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from app.domain.diagnosis.expected import MOSTLY, Wanted
from app.domain.diagnosis.texts import Grams, grams, part_held
from app.domain.diagnosis.values import Found, Reanchor
from app.domain.model import Judgment, Ranking

TOGETHER = 0.8
"""Pieces that hold less than half of a passage each must hold this share of it together."""
MOST_PIECES = 3


def reanchor(wanted: Wanted, answers: Iterable[Ranking], before: Ranking | None) -> Reanchor | None:
    """Find the chunk that holds a passage now, or the few that hold it together; None = there is none.

    Chunks that stood beside the expected one when all was well, and still say the same, are no new home of it: they
    are neighbours that overlap with it.
    """
    if wanted.passage is None:
        return None
    whole = grams(wanted.passage)
    found = _cover(whole, _candidates(wanted, answers, before))
    held = frozenset[tuple[str, ...]]().union(*(grams(one.text) & whole for one in found))
    share = len(held) / len(whole) if whole else 0.0
    if not found or (found[0].similarity < MOSTLY and share < TOGETHER):
        return None
    return Reanchor(
        index=wanted.index,
        judgment=wanted.judgment,
        proposals=tuple(_proposal(wanted, one, alone=len(found) == 1) for one in found),
        found=tuple(found),
        similarity=round(share, 3),
    )


def _candidates(wanted: Wanted, answers: Iterable[Ranking], before: Ranking | None) -> dict[str, Found]:
    stood = set(zip(before.ids, before.texts, strict=True)) if before is not None else set()
    whole = grams(wanted.passage or "")
    found: dict[str, Found] = {}
    for ranking in answers:
        for chunk, document, text in zip(ranking.ids, ranking.documents, ranking.texts, strict=True):
            if text and chunk not in found and (chunk, text) not in stood:
                share = len(whole & grams(text)) / len(whole) if whole else 0.0
                if share > 0:
                    found[chunk] = Found(id=chunk, document=document, text=text, similarity=round(share, 3))
    return found


def _cover(whole: Grams, candidates: dict[str, Found]) -> Sequence[Found]:
    """Take the chunk that holds most of a passage, then whichever adds most, as long as it adds a fifth."""
    taken, left, rest = list[Found](), whole, dict(candidates)
    while rest and left and len(taken) < MOST_PIECES:
        best = max(rest.values(), key=lambda one: (len(left & grams(one.text)), one.similarity))
        gained = left & grams(best.text)
        if taken and len(gained) < _WORTH_ADDING * len(whole):
            break
        taken.append(rest.pop(best.id))
        left -= gained
    return taken


def _proposal(wanted: Wanted, found: Found, *, alone: bool) -> Judgment:
    """Write the judgment anew with the identities it had: a document that it did not name would widen it."""
    old = wanted.judgment
    text = old.text if alone or old.text is None else part_held(old.text, found.text)
    if old.id is None and text is not None:
        return replace(old, text=text)
    return replace(old, id=found.id, document=None if old.document is None else found.document, text=text)


_WORTH_ADDING = 0.2
