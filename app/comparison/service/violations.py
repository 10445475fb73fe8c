"""Canaries that rule out some answers, counted in two runs: those that got a forbidden chunk, or a confident answer."""

from collections import Counter

from app.base.db.engine import Connection
from app.base.values import Reason
from app.comparison.domain.outcomes import Depth, ViolationKind, Violations, count_violations, expects_the_same
from app.comparison.service.compared_runs import ComparedRun
from app.records.store import ranking_rows
from app.retrievers.domain.retrievers import measures_relevance
from app.scoring.evaluation import forbidden_ranks, is_relevance_judged, pack_reasons

_FORBIDDEN = pack_reasons([Reason.FORBIDDEN])
_ANSWERED = pack_reasons([Reason.ANSWERED])


def violations_of(connection: Connection, a: ComparedRun, b: ComparedRun, depth: Depth) -> list[Violations]:
    """Count the canaries that both runs measured, and that ask and rule out the same in both.

    Forbidden chunks count to the depth of both; answers only where both runs measure relevance in the same way.
    """
    places = {canary.key: place for place, canary in enumerate(b.canaries)}
    pairs = [
        (place, other)
        for place, canary in enumerate(a.canaries)
        if (other := places.get(canary.key)) is not None
        and canary.query == b.canaries[other].query
        and a.states[place] is not None
        and b.states[other] is not None
    ]
    forbidding = [pair for pair in pairs if _forbids_the_same(a, b, pair)]
    relevance = a.inputs.yardstick.scorer == b.inputs.yardstick.scorer
    refusing = [pair for pair in pairs if relevance and _refuses_the_same(a, b, pair)]
    leaks = [_leaking(connection, run, depth) for run in (a, b)]
    confident = [{place for place, one in enumerate(run.states) if one and one.reasons & _ANSWERED} for run in (a, b)]
    found = (
        count_violations(
            kind,
            [a.canaries[place].key for place, _ in some],
            [place in got[0] for place, _ in some],
            [place in got[1] for _, place in some],
        )
        for kind, some, got in (
            (ViolationKind.FORBIDDEN, forbidding, leaks),
            (ViolationKind.ANSWERED, refusing, confident),
        )
    )
    return [one for one in found if one is not None]


def _forbids_the_same(a: ComparedRun, b: ComparedRun, pair: tuple[int, int]) -> bool:
    one, two = a.canaries[pair[0]], b.canaries[pair[1]]
    if one.expect_empty != two.expect_empty or not (one.forbidden or one.expect_empty):
        return False
    return Counter(one.forbidden) == Counter(two.forbidden)


def _refuses_the_same(a: ComparedRun, b: ComparedRun, pair: tuple[int, int]) -> bool:
    one, two = a.canaries[pair[0]], b.canaries[pair[1]]
    scorer = a.inputs.yardstick.scorer
    if not is_relevance_judged(one, scorer_measures_relevance=measures_relevance(scorer)) or not one.negative:
        return False
    alike = expects_the_same(one, two) and one.max_relevance_score == two.max_relevance_score
    return alike and not two.expect_empty


def _leaking(connection: Connection, run: ComparedRun, depth: Depth) -> set[int]:
    """Return the places of the canaries that got a forbidden hit to a depth."""
    flagged = {place: one for place, one in enumerate(run.states) if one is not None and one.reasons & _FORBIDDEN}
    if run.inputs.yardstick.fetch_k <= depth.m or not flagged:
        return set(flagged)
    rankings = ranking_rows.load_rankings(connection, sorted({one.ranking_id for one in flagged.values()}))
    return {
        place
        for place, one in flagged.items()
        if min(forbidden_ranks(run.canaries[place], rankings[one.ranking_id]), default=depth.m) <= depth.m
    }
