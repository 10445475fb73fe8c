"""The cause of a degraded canary: eleven rules in a fixed order, over what the extra probes brought.

The rules and their limits were measured (see benchmarks/diagnosis.py). What to ask is asking's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.counts import counted
from app.domain.diagnosis.evidence import Evidence, gather
from app.domain.diagnosis.near_copies import near_copies
from app.domain.diagnosis.quality.vocabulary import LITTLE, word_overlap
from app.domain.diagnosis.reanchoring import reanchor
from app.domain.diagnosis.score_changes import MOVED_BY_CONTENT, Change, beats, by_content, change_of, limit_of
from app.domain.diagnosis.values import Case, Diagnosis, Kind, Question, Reanchor
from app.domain.model import EMPTY, Answer, Cause, Ranking
from app.domain.number_text import percent_text


def classify(case: Case, questions: Sequence[Question], answers: Sequence[Answer | None]) -> Diagnosis:
    """Say why a canary degraded. `answers` are in the order of what was asked; None = it was not asked after all.

    Always a cause: the first of these rules that holds.
    """
    evidence = gather(case, questions, answers)
    finding = next(finding for rule in RULES if (finding := rule(evidence)) is not None)
    persistent = any(map(evidence.fails, evidence.repeats)) if evidence.repeats else None
    if not evidence.repeats and any(kind is Kind.REPEAT for kind, _ in evidence.failures):
        persistent = True if case.now is None else None
    reason = finding.reason
    if persistent is False:
        reason += f"; asked again {counted(len(evidence.repeats), 'time')}, the retriever answered well"
    return Diagnosis(
        cause=finding.cause,
        reason=reason,
        evidence={**_basics(evidence), **finding.evidence},
        persistent=persistent,
        rank_before=evidence.before,
        rank_now=_rank_now(evidence),
        reanchors=finding.reanchors,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    cause: Cause
    reason: str
    evidence: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    reanchors: tuple[Reanchor, ...] = ()


def _failed(evidence: Evidence) -> _Finding | None:
    """Find that the run's probe failed, or that no repeat was answered.

    A deeper question than runs ask may be refused, and a passage may be too long: these do not count.
    """
    failed = [answer for kind, answer in evidence.failures if kind is Kind.REPEAT]
    if evidence.case.now is not None and (evidence.repeats or not failed):
        return None
    reason = "The retriever did not answer the run's probe"
    if failed:
        outcomes = ", ".join(dict.fromkeys(_outcome(answer) for answer in failed))
        again = f"{len(failed)} of {counted(evidence.asked[Kind.REPEAT], 'repeat')} failed ({outcomes})"
        reason = f"{reason}, and {again}" if evidence.case.now is None else f"The retriever does not answer: {again}"
    return _Finding(cause=Cause.RETRIEVER_ERROR, reason=reason)


def _truncated(evidence: Evidence) -> _Finding | None:
    """Find that answers are shorter than they were, or than was asked, and that the expected chunk fell to that.

    A short answer alone says little: a small index has no more, and word search brings only what shares a word. So it
    takes a longer answer to compare with; one that was short of what was asked for itself was not cut off by a limit.
    """
    longest = max(evidence.repeats, key=lambda ranking: ranking.returned, default=None)
    healthy, asks = evidence.case.healthy, evidence.case.fetch_k
    if longest is None or healthy is None or not evidence.search.wanted or evidence.best(longest) is not None:
        return None
    if longest.returned >= min(asks, healthy.returned) or not _end_is_cut_off(evidence, healthy, longest):
        return None
    returned = "nothing at all" if not longest.returned else f"only {counted(longest.returned, 'hit')}"
    reason = f"The retriever returns {returned} where {asks} were asked for"
    reason += f"; it returned {healthy.returned} when the canary was healthy"
    if evidence.before is not None:
        reason += f", the expected chunk at rank {evidence.before}"
    return _Finding(cause=Cause.TRUNCATED, reason=reason)


def _end_is_cut_off(evidence: Evidence, healthy: Ranking, longest: Ranking) -> bool:
    """Whether a short answer is the beginning of a longer one, rather than all there is or what a loss left over.

    Prevents that chunks lost or passed over are told as `truncated`. Measured (benchmarks/diagnosis.py): without it
    the demo scores .932 instead of .987, 17 of 72 lost chunks being told so. An answer that was short when healthy is
    cut off where even whole passages bring nothing at all, or where the chunk is found by its own text.
    """
    rankings = [ranking for group in evidence.known.values() for ranking in group]
    full = healthy.returned >= evidence.case.fetch_k or (bool(rankings) and not any(one.returned for one in rankings))
    proven = full and all(one.returned <= longest.returned for one in rankings)
    change = change_of(healthy, [longest])
    if change is not None and change.median > limit_of(evidence.case.scale):
        return False
    if evidence.before is not None:
        left, above = frozenset(longest.ids), healthy.ids[: evidence.before - 1]
        if not left.isdisjoint(healthy.ids[evidence.before :]) or not left.issuperset(above[: len(longest)]):
            return False  # something below the expected chunk is still there, or something above it is not
    return proven or any(evidence.best(ranking) is not None for ranking in rankings)


def _drifted(evidence: Evidence) -> _Finding | None:
    """Find that the chunks that are still there have other scores: the encoder or the scoring changed."""
    healthy = evidence.case.healthy
    change = change_of(healthy, evidence.today) if healthy is not None else None
    if change is None:
        return _encoder_changed(evidence)
    if change.median <= limit_of(evidence.case.scale):
        return None
    # Prevents that documents which come or go, and move the weights of words, are told as drift of scores. Measured
    # (benchmarks/diagnosis.py): without it the demo scores .821, not .987, and xquad_en by words .715, not .985.
    if by_content(evidence.case.scale, change) and evidence.targets and _content_explains(evidence, change):
        return None
    reason = (
        f"The same chunks have other scores than when the canary was healthy: {percent_text(change.median)} off "
        f"in the median of {counted(change.chunks, 'chunk')}, so the encoder or the scoring changed"
    )
    return _Finding(cause=Cause.SCORE_DRIFT, reason=reason)


def _encoder_changed(evidence: Evidence) -> _Finding | None:
    """Find that queries do not fit the index: no chunk is left to compare, and a sure one is not found by its text.

    Prevents that a new encoder, which leaves no chunk of the healthy answer in place, is told as `missing`. Measured
    (benchmarks/diagnosis.py): no canary of the demo depends on it, .987 with and without.
    """
    if not evidence.misses_own_texts or not any(_is_gone(evidence, place) for place in evidence.targets):
        return None
    reason = (
        "None of the chunks of the healthy answer is left to compare scores with, and the retriever does not find its "
        "own first hit by that hit's text, so queries are encoded or scored otherwise than the index"
    )
    return _Finding(cause=Cause.SCORE_DRIFT, reason=reason)


def _content_explains(evidence: Evidence, change: Change) -> bool:
    """Whether what came or went moves weights of words this far: a chunk that is gone, a flood of copies, a bit."""
    if any(_is_gone(evidence, place) for place in evidence.targets):
        return True
    flooded = evidence.shown is not None and near_copies(evidence.shown, evidence.case.healthy)
    return bool(flooded) or change.median <= MOVED_BY_CONTENT


def _renamed(evidence: Evidence) -> _Finding | None:
    """Find that an expected chunk is nowhere under its name, and that other chunks hold its text, wherever they rank.

    Copies of it beside one another are no other cut: they are told as what they are.
    """
    copied = evidence.shown is not None and near_copies(evidence.shown, evidence.case.healthy)
    if copied and not evidence.case.renamed:
        return None
    places = range(len(evidence.search.wanted)) if evidence.case.renamed else evidence.targets
    moved = [
        proposal
        for place in places
        if evidence.lacks_name(place) and (proposal := _new_home(evidence, place)) is not None
    ]
    return _rechunked(moved, [one.index for one in moved]) if moved else None


def _new_home(evidence: Evidence, place: int) -> Reanchor | None:
    answers = list(evidence.answers_for(place))
    return reanchor(evidence.search.wanted[place], answers, evidence.case.healthy, pieces=evidence.case.renamed)


def _rechunked(moved: Sequence[Reanchor], gone: Sequence[int]) -> _Finding:
    best = max(moved, key=lambda one: one.similarity)
    where = "another chunk holds" if len(best.found) == 1 else f"{len(best.found)} other chunks hold"
    reason = f"The expected chunk is gone, and {where} its text ({percent_text(best.similarity)} of its word 3-grams): "
    reason += "the documents were cut anew"
    matches = [
        {"judgment": one.index, "id": part.id, "document": part.document, "similarity": part.similarity}
        for one in moved
        for part in one.found
    ]
    return _Finding(
        cause=Cause.RECHUNKED,
        reason=reason,
        evidence={"gone": list(gone), "matches": matches},
        reanchors=tuple(one for one in moved if one.changes),
    )


def _gone(evidence: Evidence) -> _Finding | None:
    """Find that an expected chunk is nowhere: its passage is found under another id, or not at all."""
    gone = [place for place in evidence.targets if _is_gone(evidence, place)]
    if not gone:
        return None
    moved = [proposal for place in gone if (proposal := _new_home(evidence, place)) is not None]
    indices = [evidence.search.wanted[place].index for place in gone]
    if moved:
        return _rechunked(moved, indices)
    searches = sum(len(evidence.known.get(index, ())) for index in indices)
    deepest = max((ranking.returned for ranking in evidence.today), default=0)
    if searches:
        reason = "The expected chunk is gone from the index: asked for its own text, the retriever does not bring it"
    else:
        reason = (
            f"The expected chunk is not among the {counted(deepest, 'hit')} of the deepest answer and seems gone; "
            "its text is not known, so the index could not be asked for it"
        )
    return _Finding(cause=Cause.MISSING, reason=reason, evidence={"gone": indices})


def _is_gone(evidence: Evidence, place: int) -> bool:
    """Whether no answer brings a wanted chunk, and answers that should have came."""
    one = evidence.search.wanted[place]
    rankings = evidence.known.get(one.index, ())
    if any(evidence.search.ranks(ranking)[place] is not None for ranking in (*rankings, *evidence.today)):
        return False
    if rankings:
        return True
    return evidence.deep is not None and (one.before is not None or evidence.case.ever_passed) and one.passage is None


def _scored_low(evidence: Evidence) -> _Finding | None:
    """Find that what is expected stands where it should, and that only the relevance of the first hit is too low."""
    low, rank = evidence.case.too_low, evidence.best(evidence.case.now)
    if low is None or evidence.targets or rank is None:
        return None
    least = evidence.case.canary.min_relevance_score
    number = f"{low:.2f}" if float(f"{low:.2f}") < least else f"{low}"
    reason = f"An expected chunk is found at rank {rank}; the first hit's relevance {number} is below its "
    reason += f"min_relevance_score {least:.4g}"
    return _Finding(cause=Cause.LOW_RELEVANCE, reason=reason, evidence={"relevance": low, "least_relevance": least})


def _never_passed(evidence: Evidence) -> _Finding | None:
    """Find that the canary never found what it expects; whether that is for its words, the quality report decides.

    One that never had it in the top k and yet had it below, from where it fell, tells of what made it fall.
    """
    if evidence.case.ever_passed or evidence.before is not None or not evidence.search.wanted:
        return None
    reason = f"The canary never found what it expects among the top {evidence.case.k}"
    overlap = word_overlap(evidence.case.canary.query, (one.passage for one in evidence.search.wanted if one.passage))
    if overlap is not None and overlap < LITTLE:
        reason += f": query and chunk use other words, {percent_text(overlap)} of the query's are in the chunk"
    elif overlap is not None:
        reason += f", though {percent_text(overlap)} of the query's words are in the chunk: "
        reason += "other chunks always rank before it"
    rank = _rank_now(evidence)
    reason += f"; the chunk stands at rank {rank}" if rank is not None else ""
    shared = None if overlap is None else round(overlap, 3)
    return _Finding(cause=Cause.VOCABULARY_MISMATCH, reason=reason, evidence={"shared_words": shared})


def _cut_worse(evidence: Evidence) -> _Finding | None:
    """Find that a new cut of the whole index ranks what is expected lower, though its document or text is there."""
    healthy = evidence.case.healthy
    if not evidence.case.renamed or healthy is None or not evidence.targets or evidence.before is None:
        return None
    if _rank_now(evidence) is None:
        return None  # where it is gone from what was retrieved, asking deeper may still find it under another name
    chunk_before = healthy.ids[evidence.before - 1], healthy.texts[evidence.before - 1]
    if any(chunk_before in zip(ranking.ids, ranking.texts, strict=True) for ranking in evidence.today):
        return None
    return _Finding(
        cause=Cause.RECHUNKED, reason=f"The documents were cut anew, and the new cut ranks lower{_fell(evidence)}"
    )


def _duplicated(evidence: Evidence) -> _Finding | None:
    """Find that near copies of one another take the places."""
    pairs = near_copies(evidence.shown, evidence.case.healthy) if evidence.shown is not None else ()
    if not pairs:
        return None
    copies = {name for pair in pairs for name in (pair.one, pair.other)}
    reason = f"{len(copies)} of the top 5 hits are near copies of one another under different ids{_fell(evidence)}"
    similarities = [[pair.one, pair.other, round(pair.similarity, 3)] for pair in pairs]
    return _Finding(cause=Cause.DUPLICATES, reason=reason, evidence={"near_copies": similarities})


def _unstable(evidence: Evidence) -> _Finding | None:
    """Find that answers vary from one asking to the next, or that a chunk is passed over that should be brought."""
    if evidence.case.now is None:
        return None
    well = sum(not evidence.fails(ranking) for ranking in evidence.repeats)
    if well:
        reason = f"The expected chunk is back on {well} of {counted(len(evidence.repeats), 'repeat')}: answers vary"
        return _Finding(cause=Cause.UNSTABLE, reason=reason, evidence={"well_on_repeats": well})
    if evidence.deep is not None and not evidence.fails(evidence.deep):
        return _Finding(
            cause=Cause.UNSTABLE,
            reason="The expected chunk is in its place when more hits are asked for: approximate search passes over it",
        )
    return _passed_over(evidence)


def _passed_over(evidence: Evidence) -> _Finding | None:
    """Find that a chunk that no answer to the query brings had a score, when last healthy, that would still do."""
    shown, k = evidence.shown, evidence.case.k
    cut = shown.scores[k - 1] if shown is not None and 0 < k <= len(shown) else None
    for place in evidence.targets:
        one = evidence.search.wanted[place]
        if cut is None or one.score is None or not beats(evidence.case.scale, one.score, cut):
            continue
        if any(evidence.search.ranks(ranking)[place] is not None for ranking in evidence.today):
            continue  # it has a score of today, and that is what counts
        reason = (
            f"The expected chunk is passed over: its score when last healthy, {one.score:.4g}, would beat "
            f"today's rank {k} ({cut:.4g})"
        )
        return _Finding(cause=Cause.UNSTABLE, reason=reason, evidence={"score_before": one.score, "score_at_k": cut})
    return None


def _outranked(evidence: Evidence) -> _Finding:
    """Find that nothing else holds: other chunks score better."""
    if not evidence.search.wanted:
        reason = "Nothing is expected of this canary, and what it retrieves ranks where it should not"
    elif not evidence.targets:
        stand = (
            f"is found at rank {evidence.best(evidence.case.now)}"
            if evidence.case.healthy is None
            else "stands where it stood"
        )
        reason = f"The best placed expected chunk {stand}; if the canary degraded, then not by that rank"
    else:
        reason = f"Other chunks rank before the expected one{_fell(evidence)}"
    return _Finding(cause=Cause.OUTRANKED, reason=reason)


RULES: tuple[Callable[[Evidence], _Finding | None], ...] = (
    _failed,
    _truncated,
    _drifted,
    _renamed,
    _gone,
    _scored_low,
    _never_passed,
    _cut_worse,
    _duplicated,
    _unstable,
    _outranked,
)
"""In the order they are tried; the last one always holds."""


def _rank_now(evidence: Evidence) -> int | None:
    ranks = (evidence.best(ranking) for ranking in (*evidence.repeats, evidence.deep, evidence.case.now))
    return next((rank for rank in ranks if rank is not None), None)


def _fell(evidence: Evidence) -> str:
    """Say how far the expected chunk fell, if it did."""
    if evidence.search.wanted and not evidence.targets:
        return ""
    now, before = _rank_now(evidence), evidence.before
    since = f" from rank {before}" if before is not None else ""
    if now is not None:
        return f": it fell{since} to rank {now}"
    deepest = max((ranking.returned for ranking in evidence.today), default=0)
    return f": it fell{since} below the {deepest} best" if deepest else ""


def _outcome(answer: Answer) -> str:
    return f"{answer.outcome}, HTTP {answer.http_status}" if answer.http_status is not None else str(answer.outcome)


def _place(now: Ranking | None, control: Ranking | None) -> int | None:
    """Give the rank at which the control brought the first hit of the run."""
    if now is None or control is None or not len(now) or now.ids[0] not in control.ids:
        return None
    return control.ids.index(now.ids[0]) + 1


def _basics(evidence: Evidence) -> dict[str, Any]:
    """Tell what every diagnosis tells: ranks, counts and scores, by what was asked."""
    healthy = evidence.case.healthy
    change = change_of(healthy, evidence.today) if healthy is not None else None
    rankings = [ranking for group in evidence.known.values() for ranking in group]
    return {
        "asked": {str(kind): count for kind, count in evidence.asked.items()},
        "failed": [_outcome(answer) for _, answer in evidence.failures],
        "ranks": {
            "before": evidence.before,
            "run": evidence.best(evidence.case.now),
            "repeats": [evidence.best(ranking) for ranking in evidence.repeats],
            "deep": evidence.best(evidence.deep),
            "known_items": [evidence.best(ranking) for ranking in rankings],
            "control": _place(evidence.case.now, evidence.control),
        },
        "returned": {
            "before": None if healthy is None else healthy.returned,
            "run": None if evidence.case.now is None else evidence.case.now.returned,
            "repeats": [ranking.returned for ranking in evidence.repeats],
            "deep": None if evidence.deep is None else evidence.deep.returned,
        },
        "score_change": None if change is None else round(change.median, 4),
        "scores_compared": 0 if change is None else change.chunks,
    }
