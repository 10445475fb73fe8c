"""Search for a cause that a whole run shares, from stored rankings alone: what each canary retrieved before and now."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import median

from app.base.values import Canary, Ranking
from app.diagnosis.domain.expected_chunks import MOSTLY, Search, SearchedChunk, search_for
from app.diagnosis.domain.reanchoring import reanchor
from app.diagnosis.domain.run_causes import HALF, RunCause, RunCauseKind
from app.diagnosis.domain.score_changes import by_content, change_of, limit_of
from app.diagnosis.domain.text_overlap import containment, overlap
from app.diagnosis.domain.values import Case
from app.retrievers.domain.retrievers import Scale

FEWEST = 3
"""Canaries or judgments; fewer have causes of their own."""
SHARE = 0.1
"""Least share of the judgments found by name before that must be lost for a cause of the whole run."""


_ORDER = (RunCauseKind.RECHUNKED, RunCauseKind.RENAMED_DOCUMENTS, RunCauseKind.REINDEXED)
"""Of equally frequent kinds the first is reported."""
_EQUAL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Rankings of a canary before and now."""

    canary: Canary
    before: Ranking
    now: Ranking


def find_run_cause(
    pairs: Sequence[Pair], *, k: int, scale: Scale | None, since_run: int, before_run: int
) -> RunCause | None:
    """Return the cause that the canaries of a run share; None where there is none.

    Chunks were renamed where a tenth of the judgments found by name before are not any more (three at least), or half
    of the hits of the top k, and at least half of these are found by their texts, in chunks that no canary retrieved
    before. Scores changed where those of the same chunks moved for half of the canaries, by more than new or deleted
    documents explain.
    """
    hits_before = {hit for pair in pairs for hit in zip(pair.before.ids, pair.before.texts, strict=True)}
    before_ids = {chunk for chunk, _ in hits_before}
    moved = [pair for pair in pairs if not _is_settled(pair)]
    all_names = cache(partial(_names, pairs, k, hits_before))  # which compares texts: most runs can do without
    could_be_renamed = sum(one.lost for one in _names(moved, k, hits_before)) >= FEWEST
    kinds = _renamed_judgments(all_names()) if could_be_renamed else Counter()
    kinds = kinds or _renamed_hits(pairs, k, hits_before)
    figures = RunCause(
        kind=RunCauseKind.SCORES_CHANGED, since_run=since_run, before_run=before_run, canaries=len(pairs)
    )
    if kinds:
        return replace(
            figures,
            kind=max(_ORDER, key=lambda kind: kinds[kind]),
            affected=len({one.pair for one in all_names() if one.lost}),
            recall_by_id_before=_share(one.by_name_before for one in all_names() if one.named),
            recall_by_id_now=_share(one.by_name_now for one in all_names() if one.named),
            recall_by_passage_before=_share(one.is_found_before for one in all_names()),
            recall_by_passage_now=_share(one.is_found_now for one in all_names()),
            unseen_ids=_share(chunk not in before_ids for pair in pairs for chunk in pair.now.ids),
            split=sum(one.renaming.split for one in all_names() if one.renaming is not None),
        )
    changes = [change for pair in pairs if (change := change_of(pair.before, [pair.now])) is not None]
    far = [one.median for one in changes if one.median > limit_of(scale) and not by_content(scale, one)]
    if len(far) >= max(FEWEST, HALF * len(pairs)):
        return replace(figures, affected=len(far), score_change=round(median(far), 4))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """Kind of renaming of a judgment whose text is found under another name."""

    kind: RunCauseKind
    split: bool
    """Its passage is spread over several chunks."""


_Hits = Collection[tuple[str, str | None]]
"""Chunks by id and text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Name:
    """How a judgment is found by name, its id or document, and by its text."""

    pair: int
    named: bool
    """Whether the judgment has an id or document; else its chunk of before has."""
    by_name_before: bool
    by_name_now: bool
    is_found_before: bool
    is_found_now: bool
    lost: bool
    renaming: Renaming | None


def _renamed_judgments(judged: Sequence[_Name]) -> Counter[RunCauseKind]:
    """Count the lost judgments by kind of renaming; empty where too few are lost, or their texts are gone."""
    lost = sum(one.lost for one in judged)
    kinds = Counter(one.renaming.kind for one in judged if one.renaming is not None)
    enough = lost >= max(FEWEST, SHARE * sum(one.by_name_before for one in judged))
    return kinds if enough and kinds.total() >= HALF * lost else Counter()


def _renamed_hits(pairs: Sequence[Pair], k: int, hits_before: _Hits) -> Counter[RunCauseKind]:
    """Return the counts by kind of renaming of the chunks in the top k; empty where most are still there."""
    before = [(pair, place) for pair in pairs for place, text in enumerate(pair.before.texts[:k]) if text]
    there = [frozenset(zip(pair.now.ids, pair.now.texts, strict=True)) for pair in pairs]
    of = dict(zip(map(id, pairs), there, strict=True))
    gone = [
        (pair, place)
        for pair, place in before
        if (pair.before.ids[place], pair.before.texts[place]) not in of[id(pair)]
    ]
    if len(pairs) < FEWEST or not gone or len(gone) < HALF * len(before):
        return Counter()
    found = (_hit_kind(pair, place, hits_before) for pair, place in gone)
    kinds = Counter(kind for kind in found if kind is not None)
    return kinds if kinds.total() >= HALF * len(gone) else Counter()


def _hit_kind(pair: Pair, place: int, hits_before: _Hits) -> RunCauseKind | None:
    """Kind of renaming of a chunk that was retrieved before; None = its text is not found."""
    text = pair.before.texts[place] or ""
    homes = [
        rank
        for rank, hit in enumerate(zip(pair.now.ids, pair.now.texts, strict=True))
        if hit not in hits_before and hit[1] and overlap(text, hit[1]) >= MOSTLY
    ]
    return _kind(pair, place, homes)


def _kind(pair: Pair, place: int, homes: Sequence[int]) -> RunCauseKind | None:
    """Kind of renaming of a chunk, given the places where its text is now, the best first."""
    text = pair.before.texts[place]
    whole = [home for home in homes if _same(text, pair.now.texts[home])]
    if not homes or (whole and sum(_same(text, other) for other in pair.now.texts) > 1):
        return None  # copies crowd it out; nothing was renamed
    if not whole:
        return RunCauseKind.RECHUNKED
    documents = {pair.before.documents[place], pair.now.documents[whole[0]]}
    renamed = None not in documents and len(documents) > 1
    return RunCauseKind.RENAMED_DOCUMENTS if renamed else RunCauseKind.REINDEXED


def _is_settled(pair: Pair) -> bool:
    """Whether nothing of a canary can be lost by name: it has names alone, and the same chunks were retrieved again."""
    columns = [(one.ids, one.documents, one.texts) for one in (pair.before, pair.now)]
    before, now = (set(zip(*three, strict=True)) for three in columns)
    return before == now and all(one.id is not None or one.document is not None for one in pair.canary.judgments)


def _names(pairs: Sequence[Pair], k: int, hits_before: _Hits) -> list["_Name"]:
    """How the judgments of canaries are found, before and now."""
    return [
        _name(place, pair, one, k, hits_before)
        for place, pair in enumerate(pairs)
        for one in _search(pair, pair.canary, k).chunks
    ]


def _search(pair: Pair, canary: Canary, k: int) -> Search:
    return search_for(Case(canary=canary, k=k, fetch_k=k, now=pair.now, healthy=pair.before, ever_passed=True))


def _name(place: int, pair: Pair, one: SearchedChunk, k: int, hits_before: _Hits) -> _Name:
    """Whether a judgment is found by its name and by its text, before and now."""
    judgment = replace(one.judgment, text=one.passage or one.judgment.text)
    search = _search(pair, replace(pair.canary, judgments=(judgment,)), k)
    before, now = search.match(pair.before), search.match(pair.now)
    rank, found = before.first_by_id[0] or one.before, now.first[0]
    document = one.judgment.document
    named = one.judgment.id is not None or document is not None
    if named:
        was = before.first_by_id[0] is not None or (document is not None and document in pair.before.documents)
        stands = now.first_by_id[0] is not None or (document is not None and document in pair.now.documents)
    else:  # a new cut that still has the text is harmless
        was, stands = one.before is not None and one.before <= k, found is not None and found <= k
    lost = was and not stands
    return _Name(
        pair=place,
        named=named,
        by_name_before=was,
        by_name_now=stands,
        is_found_before=one.before is not None,
        is_found_now=found is not None,
        lost=lost,
        renaming=_renaming(pair, one, rank - 1, found, hits_before) if lost and rank is not None else None,
    )


def _renaming(pair: Pair, one: SearchedChunk, place: int, found: int | None, hits_before: _Hits) -> Renaming | None:
    """Return the renaming of a lost judgment; None = its text is gone, or in chunks that were there before."""
    moved = reanchor(one, [pair.now], pair.before, pieces=True)
    homes = [pair.now.ids.index(home.id) for home in moved.chunks] if moved is not None else []
    if not homes and found is not None:
        homes = [found - 1]
    by_document = one.judgment.id is None and one.judgment.document is not None
    fresh = [home for home in homes if by_document or (pair.now.ids[home], pair.now.texts[home]) not in hits_before]
    kind = _kind(pair, place, fresh)
    return None if kind is None else Renaming(kind=kind, split=len(homes) > 1)


def _same(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and min(containment(one, other), containment(other, one)) >= _EQUAL


def _share(values: Iterable[bool]) -> float | None:
    listed = list(values)
    return round(sum(listed) / len(listed), 4) if listed else None
