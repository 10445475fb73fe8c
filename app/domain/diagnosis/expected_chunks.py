"""Which chunks a case is about: those that were to be found and are not where they were, and where they stand.

What follows from it is causes'.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from app.domain.diagnosis.text_overlap import grams, held
from app.domain.diagnosis.values import Case
from app.domain.model import Judgment, Ranking
from app.domain.runs.matching import Match, Prepared, match, prepare

MOSTLY = 0.5
"""From this share of its word 3-grams on, a passage counts as found in a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedChunk:
    """A judgment of grade 1 or better, and what is known of its chunk."""

    index: int
    """Its place in the canary's judgments."""
    judgment: Judgment
    passage: str | None
    """Its text: the judgment's own or, failing that, the chunk's when it was last seen; None = never seen."""
    before: int | None
    """Its rank when the canary was last healthy."""
    score: float | None
    """Its score then."""


@dataclass(frozen=True, slots=True)
class Search:
    """Everything a case expects, ready to be looked for in answers. Made by `search_for`."""

    prepared: Prepared
    wanted: tuple[SearchedChunk, ...]
    known: dict[str, str]
    """What the expected chunks held, by id."""
    matches: dict[int, tuple[Ranking, Match]] = field(default_factory=dict, compare=False, repr=False)
    """Answers already matched, by identity: every rule asks for their ranks."""

    def ranks(self, ranking: Ranking | None) -> tuple[int | None, ...]:
        """Give the rank of each wanted judgment; None = not there.

        A chunk that kept its id and holds another text is not the expected one any more: chunks numbered within their
        document are all named like that after they were cut anew.
        """
        if ranking is None:
            return (None,) * len(self.wanted)
        first = self.match(ranking).first
        return tuple(first[one.index] for one in self.wanted)

    def match(self, ranking: Ranking) -> Match:
        """Match an answer against all judgments, a chunk that holds another text under its old id not by that id."""
        if id(ranking) not in self.matches:
            ids = tuple(
                f"{_RENAMED}{place}" if self._is_another(chunk, text) else chunk
                for place, (chunk, text) in enumerate(zip(ranking.ids, ranking.texts, strict=True))
            )
            matchable = ranking if ids == ranking.ids else replace(ranking, ids=ids)
            self.matches[id(ranking)] = ranking, match(self.prepared, matchable)
        return self.matches[id(ranking)][1]

    def _is_another(self, chunk: str, text: str | None) -> bool:
        was = self.known.get(chunk)
        if was is None or text is None or min(len(grams(was)), len(grams(text))) < COMPARABLE:
            return False
        return max(held(was, text), held(text, was)) < MOSTLY


def search_for(case: Case) -> Search:
    """Lay out what a case expects, in the order of its judgments; nothing where the canary is negative."""
    prepared = prepare(case.canary.judgments)
    if not case.canary.expects:
        return Search(prepared, (), {})
    healthy = case.healthy
    first = match(prepared, healthy).first if healthy is not None else (None,) * len(prepared.judgments)
    chunks, items = list[SearchedChunk](), dict[str, str]()
    for index, judgment in enumerate(prepared.judgments):
        if judgment.grade < 1:
            continue
        rank = first[index]
        text = case.texts.get(judgment.id) if judgment.id is not None else None
        if healthy is not None and rank is not None:
            text = healthy.texts[rank - 1] or text
        if judgment.id is not None and text:
            items[judgment.id] = text
        passage = judgment.text if judgment.text and grams(judgment.text) else text
        chunks.append(
            SearchedChunk(
                index=index,
                judgment=judgment,
                passage=passage if passage and grams(passage) else None,
                before=rank,
                score=healthy.scores[rank - 1] if healthy is not None and rank is not None else None,
            )
        )
    return Search(prepared, tuple(chunks), items)


def lost(search: Search, ranking: Ranking | None, k: int) -> bool:
    """Whether none of what is wanted is in the top k."""
    return not any(rank is not None and rank <= k for rank in search.ranks(ranking))


def targets(search: Search, now: Ranking | None, k: int, *, deep: bool = True) -> tuple[int, ...]:
    """List the places in `search.wanted` of what a diagnosis is about, most telling first.

    Where nothing wanted is in the top k: what was there before or, failing that, below it, or everything. Else what
    fell or went from the top k or, failing that and with `deep`, from below it, which measures of depth 10 see. Nothing
    where all stand as they stood: then the canary degraded for another reason.
    """
    everything = range(len(search.wanted))
    ranks = search.ranks(now)
    lost_places = [place for place in everything if search.wanted[place].before is not None]
    was = [place for place in lost_places if _within(search.wanted[place].before, k)]
    if lost(search, now, k):
        chosen: Sequence[int] = was or lost_places or everything
    else:
        fell = [place for place in lost_places if (ranks[place] or _NOWHERE) > (search.wanted[place].before or 0)]
        chosen = [place for place in fell if place in was] or (fell if deep else ())
    return tuple(sorted(chosen, key=lambda place: _urgency(search.wanted[place])))


def _urgency(one: SearchedChunk) -> tuple[int, int, int]:
    return one.before or _NOWHERE, -one.judgment.grade, one.index


def _within(rank: int | None, k: int) -> bool:
    return rank is not None and rank <= k


_NOWHERE = 1 << 30
_RENAMED = "\0another text under the id of rank "
COMPARABLE = 6
"""Texts with fewer 3-grams, such as headings, say nothing when they differ."""
