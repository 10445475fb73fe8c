"""Cause rules on whole answers: failed, truncated, other scores, near copies, unstable.

Each returns its finding, or None where it does not hold. Limits were measured, see benchmarks/diagnosis.py.
"""

from app.base.counts import counted
from app.base.number_text import percent_text
from app.base.values import Cause, Ranking
from app.diagnosis.domain.evidence import Evidence
from app.diagnosis.domain.findings import Finding, fall_text, is_missing, outcome_text
from app.diagnosis.domain.near_copies import near_copies
from app.diagnosis.domain.score_changes import MOVED_BY_CONTENT, Change, beats, by_content, change_of, limit_of
from app.diagnosis.domain.values import Kind


def retriever_error(evidence: Evidence) -> Finding | None:
    """Find that the run's probe failed, or that no repeat was answered.

    Deeper questions and long passages may be refused, so their failures do not count.
    """
    failed = [answer for kind, answer in evidence.failures if kind is Kind.REPEAT]
    if evidence.case.now is not None and (evidence.repeats or not failed):
        return None
    reason = "The retriever did not answer the run's probe"
    if failed:
        outcomes = ", ".join(dict.fromkeys(outcome_text(answer) for answer in failed))
        again = f"{len(failed)} of {counted(evidence.asked_counts[Kind.REPEAT], 'repeat')} failed ({outcomes})"
        reason = f"{reason}, and {again}" if evidence.case.now is None else f"The retriever does not answer: {again}"
    return Finding(cause=Cause.RETRIEVER_ERROR, reason=reason)


def truncation(evidence: Evidence) -> Finding | None:
    """Find that answers are shorter than before and than `fetch_k`, and that the expected chunk is lost by that.

    A short answer alone proves little: a small index has no more hits, and word search returns only those that share a
    word. So a longer answer from before is needed; if that was short itself, no limit cut it off.
    """
    longest = max(evidence.repeats, key=lambda ranking: ranking.returned, default=None)
    healthy, asks = evidence.case.healthy, evidence.case.fetch_k
    if longest is None or healthy is None or not evidence.search.chunks or evidence.best_rank(longest) is not None:
        return None
    if longest.returned >= min(asks, healthy.returned) or not _is_cut_off(evidence, healthy, longest):
        return None
    returned = "nothing at all" if not longest.returned else f"only {counted(longest.returned, 'hit')}"
    reason = f"The retriever returns {returned} where {asks} were asked for"
    reason += f"; it returned {healthy.returned} when the canary was healthy"
    if evidence.before is not None:
        reason += f", the expected chunk at rank {evidence.before}"
    return Finding(cause=Cause.TRUNCATED, reason=reason)


def _is_cut_off(evidence: Evidence, healthy: Ranking, longest: Ranking) -> bool:
    """Whether a short answer is the beginning of the healthy one, rather than what a loss left over.

    Prevents that lost or skipped chunks are reported as `truncated`. Measured (benchmarks/diagnosis.py): without it
    the demo scores .932 instead of .987, since 17 of 72 lost chunks are. An answer that was short when healthy is cut
    off where even whole passages return nothing at all, or where the chunk is found by its own text.
    """
    rankings = [ranking for group in evidence.item_answers.values() for ranking in group]
    full = healthy.returned >= evidence.case.fetch_k or (bool(rankings) and not any(one.returned for one in rankings))
    proven = full and all(one.returned <= longest.returned for one in rankings)
    change = change_of(healthy, [longest])
    if change is not None and change.median > limit_of(evidence.case.scale):
        return False
    if evidence.before is not None:
        left, above = frozenset(longest.ids), healthy.ids[: evidence.before - 1]
        if not left.isdisjoint(healthy.ids[evidence.before :]) or not left.issuperset(above[: len(longest)]):
            return False  # something below the expected chunk is still there, or something above it is not
    return proven or any(evidence.best_rank(ranking) is not None for ranking in rankings)


def score_drift(evidence: Evidence) -> Finding | None:
    """Find that the chunks that are still there have other scores: the encoder or the scoring changed."""
    healthy = evidence.case.healthy
    change = change_of(healthy, evidence.today) if healthy is not None else None
    if change is None:
        return _encoder_drift(evidence)
    if change.median <= limit_of(evidence.case.scale):
        return None
    # Prevents that new or deleted documents, which change the weights of words, are reported as score drift. Measured
    # (benchmarks/diagnosis.py): without it the demo scores .821, not .987, and xquad_en by words .715, not .985.
    if by_content(evidence.case.scale, change) and evidence.targets and _is_content_change(evidence, change):
        return None
    reason = (
        f"The same chunks have other scores than when the canary was healthy: {percent_text(change.median)} off "
        f"in the median of {counted(change.chunks, 'chunk')}, so the encoder or the scoring changed"
    )
    return Finding(cause=Cause.SCORE_DRIFT, reason=reason)


def _encoder_drift(evidence: Evidence) -> Finding | None:
    """Find that queries do not fit the index: no chunk is left to compare, and the control is not found by its text.

    Prevents that a new encoder, which leaves no chunk of the healthy answer in place, is reported as `missing`.
    Measured (benchmarks/diagnosis.py): no canary of the demo depends on it, .987 with and without.
    """
    if not evidence.misses_own_texts or not any(is_missing(evidence, place) for place in evidence.targets):
        return None
    reason = (
        "None of the chunks of the healthy answer is left to compare scores with, and the retriever does not find its "
        "own first hit by that hit's text, so queries are encoded or scored otherwise than the index"
    )
    return Finding(cause=Cause.SCORE_DRIFT, reason=reason)


def _is_content_change(evidence: Evidence, change: Change) -> bool:
    """Whether new or deleted documents explain the change: a chunk is gone, there are copies, or it is small."""
    if any(is_missing(evidence, place) for place in evidence.targets):
        return True
    flooded = evidence.shown is not None and near_copies(evidence.shown, evidence.case.healthy)
    return bool(flooded) or change.median <= MOVED_BY_CONTENT


def near_duplicates(evidence: Evidence) -> Finding | None:
    """Find that near copies of one another fill the top hits."""
    pairs = near_copies(evidence.shown, evidence.case.healthy) if evidence.shown is not None else ()
    if not pairs:
        return None
    copies = {name for pair in pairs for name in (pair.one, pair.other)}
    reason = f"{len(copies)} of the top 5 hits are near copies of one another under different ids{fall_text(evidence)}"
    similarities = [(pair.one, pair.other, round(pair.similarity, 3)) for pair in pairs]
    return Finding(cause=Cause.DUPLICATES, reason=reason, evidence={"near_copies": similarities})


def instability(evidence: Evidence) -> Finding | None:
    """Find that answers vary between repeats, or that approximate search skips a chunk."""
    if evidence.case.now is None:
        return None
    well = sum(not evidence.fails(ranking) for ranking in evidence.repeats)
    if well:
        reason = f"The expected chunk is back on {well} of {counted(len(evidence.repeats), 'repeat')}: answers vary"
        return Finding(cause=Cause.UNSTABLE, reason=reason, evidence={"well_on_repeats": well})
    if evidence.deep is not None and not evidence.fails(evidence.deep):
        return Finding(
            cause=Cause.UNSTABLE,
            reason="The expected chunk is in its place when more hits are asked for: approximate search passes over it",
        )
    return _skipped_by_search(evidence)


def _skipped_by_search(evidence: Evidence) -> Finding | None:
    """Find that a chunk that no answer to the query brings had a score, when last healthy, that would still do."""
    shown, k = evidence.shown, evidence.case.k
    cut = shown.scores[k - 1] if shown is not None and 0 < k <= len(shown) else None
    for place in evidence.targets:
        one = evidence.search.chunks[place]
        if cut is None or one.score is None or not beats(evidence.case.scale, one.score, cut):
            continue
        if any(evidence.search.ranks(ranking)[place] is not None for ranking in evidence.today):
            continue  # it has a score of today, and that is what counts
        reason = (
            f"The expected chunk is passed over: its score when last healthy, {one.score:.4g}, would beat "
            f"today's rank {k} ({cut:.4g})"
        )
        return Finding(cause=Cause.UNSTABLE, reason=reason, evidence={"score_before": one.score, "score_at_k": cut})
    return None
