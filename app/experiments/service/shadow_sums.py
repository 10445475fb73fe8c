"""Answered pairs of a shadow: added to the sums of their hour, and the most different ones kept for people."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.base.db.engine import Connection
from app.experiments.domain.shadow import Hits, compare_pair, shown_texts
from app.experiments.store import shadow_pairs
from app.experiments.store import shadows as rows
from app.experiments.store.shadow_pairs import NewPair
from app.experiments.store.shadows import ShadowSums

_HOUR = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredPair:
    """What users got for a query and what the candidate gave; `b` None = it failed."""

    query: str
    a: Hits
    b: Hits | None
    a_seconds: float | None
    b_seconds: float | None


def count_pairs(connection: Connection, slug: str, pairs: Sequence[AnsweredPair], at: int) -> None:
    """Add pairs to the sums of the hour of `at`."""
    if pairs:
        rows.add_sums(connection, slug, at - at % _HOUR, _sum_up(pairs))


def keep_different(
    connection: Connection, shadow_id: int, pairs: Sequence[AnsweredPair], *, most: int, at: int
) -> None:
    """Keep those pairs that are among the `most` different ones, and whose first hits have texts to be read."""
    different = []
    for pair in pairs:
        b = pair.b or ()
        rbo = compare_pair([hit.id for hit in pair.a], [hit.id for hit in b]).rbo
        texts = (shown_texts(pair.a), shown_texts(b))
        if pair.b is not None and rbo < 1 and texts[0] is not None and texts[1] is not None and texts[0] != texts[1]:
            different.append(NewPair(query=pair.query, a=texts[0], b=texts[1], rbo=rbo))
    if different and most:
        shadow_pairs.keep_pairs(connection, shadow_id, different, most=most, at=at)


def _sum_up(pairs: Sequence[AnsweredPair]) -> ShadowSums:
    answered = [(pair, pair.b) for pair in pairs if pair.b is not None]
    overlaps = [compare_pair([hit.id for hit in pair.a], [hit.id for hit in b]) for pair, b in answered]
    times = [
        (pair.a_seconds, pair.b_seconds)
        for pair, _ in answered
        if pair.a_seconds is not None and pair.b_seconds is not None
    ]
    return ShadowSums(
        pairs=len(pairs),
        failed=len(pairs) - len(answered),
        rbo=sum(one.rbo for one in overlaps),
        jaccard=sum(one.jaccard for one in overlaps),
        a_empty=sum(not pair.a for pair, _ in answered),
        b_empty=sum(not b for _, b in answered),
        timed=len(times),
        a_seconds=sum(a for a, _ in times),
        b_seconds=sum(b for _, b in times),
    )
