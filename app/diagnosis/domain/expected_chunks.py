"""Expected chunks of a case: their texts, their ranks in answers, and which of them fell."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from app.base.values import Judgment, Ranking
from app.diagnosis.domain.text_overlap import containment, grams
from app.diagnosis.domain.values import Case
from app.scoring.matching import Match, Prepared, match, prepare

MOSTLY = 0.5
"""From this share of its word 3-grams on, a passage counts as found in a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedChunk:
    """A judgment of grade 1 or better, with the text, rank and score of its chunk."""

    index: int
    """Its place in the canary's judgments."""
    judgment: Judgment
    passage: str | None
    """Its text: the judgment's own or, without one, that of the chunk when last retrieved; None = never retrieved."""
    before: int | None
    """Its rank when the canary was last healthy."""
    score: float | None
    """Its score then."""


@dataclass(frozen=True, slots=True)
class Search:
    """The expected chunks of a case, prepared for matching with answers. Made by `search_for`."""

    prepared: Prepared
    chunks: tuple[SearchedChunk, ...]
    texts: dict[str, str]
    """Texts of the expected chunks, by id."""
    matches: dict[int, tuple[Ranking, Match]] = field(default_factory=dict, compare=False, repr=False)
    """Cached matches of answers, by identity."""

    def ranks(self, ranking: Ranking | None) -> tuple[int | None, ...]:
        """Rank of each expected chunk; None = not retrieved.

        A chunk with the same id and another text is not the expected one: chunks numbered within their document keep
        their ids when they are re-cut.
        """
        if ranking is None:
            return (None,) * len(self.chunks)
        first = self.match(ranking).first
        return tuple(first[one.index] for one in self.chunks)

    def match(self, ranking: Ranking) -> Match:
        """Match an answer with all judgments; a chunk with another text than before is not matched by its id."""
        if id(ranking) not in self.matches:
            ids = tuple(
                f"{_RENAMED}{place}" if self._is_another(chunk, text) else chunk
                for place, (chunk, text) in enumerate(zip(ranking.ids, ranking.texts, strict=True))
            )
            matchable = ranking if ids == ranking.ids else replace(ranking, ids=ids)
            self.matches[id(ranking)] = ranking, match(self.prepared, matchable)
        return self.matches[id(ranking)][1]

    def _is_another(self, chunk: str, text: str | None) -> bool:
        was = self.texts.get(chunk)
        if was is None or text is None or min(len(grams(was)), len(grams(text))) < COMPARABLE:
            return False
        return max(containment(was, text), containment(text, was)) < MOSTLY


def search_for(case: Case) -> Search:
    """Return the expected chunks of a case, in the order of its judgments; empty where the canary is negative."""
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


def is_lost(search: Search, ranking: Ranking | None, k: int) -> bool:
    """Whether no expected chunk is in the top k."""
    return not any(rank is not None and rank <= k for rank in search.ranks(ranking))


def find_targets(search: Search, now: Ranking | None, k: int, *, deep: bool = True) -> tuple[int, ...]:
    """Places in `search.chunks` of the chunks that a diagnosis is about, the best ranked before first.

    Where no expected chunk is in the top k: those that were there before, else those below it, else all. Otherwise
    those that fell from the top k, else, with `deep`, from below it, which measures of depth 10 include. Empty where
    none fell: then the canary degraded for another reason.
    """
    everything = range(len(search.chunks))
    ranks = search.ranks(now)
    found_before = [place for place in everything if search.chunks[place].before is not None]
    was = [place for place in found_before if (search.chunks[place].before or _NOWHERE) <= k]
    if is_lost(search, now, k):
        chosen: Sequence[int] = was or found_before or everything
    else:
        fell = [place for place in found_before if (ranks[place] or _NOWHERE) > (search.chunks[place].before or 0)]
        chosen = [place for place in fell if place in was] or (fell if deep else ())
    one = search.chunks
    return tuple(sorted(chosen, key=lambda at: (one[at].before or _NOWHERE, -one[at].judgment.grade, one[at].index)))


_NOWHERE = 1 << 30
_RENAMED = "\0another text under the id of rank "
COMPARABLE = 6
"""Texts with fewer 3-grams, such as headings, are too short to compare."""
