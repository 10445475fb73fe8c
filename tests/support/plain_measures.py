"""The measures once more, one ranking at a time and as plainly as they are defined; tests hold the fast ones to it.

Nothing is shared with the code under test but the values of the domain: hits are compared with judgments here too.
"""

import math
from collections.abc import Sequence

from app.base.values import Judgment, Ranking


def plain_measure(name: str, k: int | None, judgments: Sequence[Judgment], ranking: Ranking) -> float:
    """Score one ranking by one measure; NaN where nothing is expected."""
    relevant = [place for place, judgment in enumerate(judgments) if judgment.grade >= 1]
    if not relevant:
        return math.nan
    depth = len(ranking) if k is None else k
    satisfied = plain_matches(judgments, ranking)
    top = satisfied[:depth]
    hits = [any(judgments[place].grade >= 1 for place in places) for places in top]
    found = set().union(*top) & set(relevant)
    precision = sum(hits) / depth if depth else 0.0
    recall = len(found) / len(relevant)
    twofold = {place for place in relevant if judgments[place].id is not None and judgments[place].text is not None}
    gains = _gains(judgments, top)
    ideal = sorted((judgment.grade for judgment in judgments), reverse=True)[:depth]
    returned = ranking.returned
    values = {
        "Hit": lambda: float(any(hits)),
        "P": lambda: precision,
        "R": lambda: recall,
        "F1": lambda: 2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        "RR": lambda: 1 / (hits.index(True) + 1) if True in hits else 0.0,
        "AP": lambda: sum(_precision_at_first(place, judgments, satisfied) for place in relevant) / len(relevant),
        "NDCG": lambda: _dcg(gains) / _dcg(ideal),
        "NDCG_exp": lambda: _dcg([2**gain - 1 for gain in gains]) / _dcg([2**grade - 1 for grade in ideal]),
        "ERR": lambda: _err(gains),
        "Judged": lambda: sum(bool(places) for places in top) / len(top) if top else 0.0,
        "R_id": lambda: _share(twofold, {place for place in twofold if judgments[place].id in ranking.ids[:depth]}),
        "R_passage": lambda: _share(twofold, found),
        "duplicate_ratio": lambda: (returned - len(ranking)) / returned if returned else 0.0,
    }
    return values[name]()


def plain_matches(judgments: Sequence[Judgment], ranking: Ranking) -> list[set[int]]:
    """List for each hit the places of the judgments it satisfies; texts are compared by their words, in lower case."""
    return [
        {place for place, judgment in enumerate(judgments) if _satisfies(judgment, *hit)}
        for hit in zip(ranking.ids, ranking.documents, ranking.texts, strict=True)
    ]


def _satisfies(judgment: Judgment, chunk: str, document: str | None, text: str | None) -> bool:
    if judgment.id is not None and judgment.id == chunk:
        return True
    if judgment.document is not None and judgment.document == document:
        return True
    if judgment.text is None or text is None:
        return False
    return f" {' '.join(judgment.text.lower().split())} " in f" {' '.join(text.lower().split())} "


def _share(wanted: set[int], found: set[int]) -> float:
    return len(wanted & found) / len(wanted) if wanted else math.nan


def _gains(judgments: Sequence[Judgment], satisfied: Sequence[set[int]]) -> list[int]:
    """Take the best grade among the judgments that each hit is the first to satisfy."""
    known: set[int] = set()
    gains = []
    for places in satisfied:
        gains.append(max((judgments[place].grade for place in places - known), default=0))
        known |= places
    return gains


def _precision_at_first(place: int, judgments: Sequence[Judgment], satisfied: Sequence[set[int]]) -> float:
    """Take the precision at the rank where one judgment is first satisfied, 0 if it never is."""
    for rank, places in enumerate(satisfied, start=1):
        if place in places:
            return sum(any(judgments[one].grade >= 1 for one in above) for above in satisfied[:rank]) / rank
    return 0.0


def _dcg(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def _err(gains: Sequence[int]) -> float:
    total, arrive = 0.0, 1.0
    for rank, gain in enumerate(gains, start=1):
        stop = (2**gain - 1) / 2**3
        total += arrive * stop / rank
        arrive *= 1 - stop
    return total
