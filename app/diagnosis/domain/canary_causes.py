"""Causes of one degraded canary: a rule for each cause, and `classify`, which takes the first of `RULES` that holds.

A rule returns its finding, or None where it does not hold. Limits were measured, see benchmarks/diagnosis.py.
"""

from collections.abc import Callable, Sequence
from math import isfinite

from app.alerts.domain.views import chunk_name
from app.base.texts import counted, percent_text
from app.base.values import Answer, Cause, Ranking, Value, field
from app.diagnosis.domain.cases import Case, Diagnosis, Kind, Question, Reanchor
from app.diagnosis.domain.evidence import (
    MOVED_BY_CONTENT,
    Evidence,
    ScoreChange,
    collect_evidence,
    score_change,
    tell_ranks_alone,
)
from app.diagnosis.domain.quality_texts import LITTLE, word_overlap
from app.diagnosis.domain.reanchors import reanchor
from app.diagnosis.views import DiagnosisEvidence, TextMatch
from app.retrievers.domain.retrievers import Scale
from app.scoring.evaluation import WRONG_FIELDS, named_by
from app.scoring.rankings import match, prepare
from app.scoring.text_changes import TextComparison
from app.scoring.words import new_near_copies


class Finding(Value):
    """The cause a rule found, with its reason and evidence."""

    cause: Cause
    reason: str
    evidence: DiagnosisEvidence = field(default_factory=DiagnosisEvidence)
    reanchors: tuple[Reanchor, ...] = ()


def classify(case: Case, questions: Sequence[Question], answers: Sequence[Answer | None]) -> Diagnosis:
    """Return the diagnosis of a degraded canary: the first of `RULES` that holds.

    `answers` are in the order of the questions; None = it was not asked after all.
    """
    evidence = collect_evidence(case, questions, answers)
    finding = next(finding for rule in RULES if (finding := rule(evidence)) is not None)
    persistent = any(map(evidence.fails, evidence.repeats)) if evidence.repeats else None
    if not evidence.repeats and any(kind is Kind.REPEAT for kind, _ in evidence.failures):
        persistent = True if case.now is None else None
    reason = finding.reason
    if persistent is False:
        reason += f"; healthy on {counted(len(evidence.repeats), 'retry')}"
    return Diagnosis(
        cause=finding.cause,
        reason=reason,
        evidence={**_basic_evidence(evidence), **finding.evidence},
        persistent=persistent,
        rank_before=evidence.before,
        rank_now=latest_rank(evidence),
        reanchors=finding.reanchors,
    )


def is_missing(evidence: Evidence, place: int) -> bool:
    """Whether no answer has an expected chunk, though some were asked for it."""
    one = evidence.search.chunks[place]
    rankings = evidence.item_answers.get(one.index, ())
    if any(evidence.search.ranks(ranking)[place] is not None for ranking in (*rankings, *evidence.today)):
        return False
    if evidence.stands_elsewhere(place):
        return False
    if rankings:
        return True
    return evidence.deep is not None and (one.before is not None or evidence.case.ever_passed) and one.passage is None


def latest_rank(evidence: Evidence) -> int | None:
    """Best rank of the expected chunks now: in the repeats, else the deep answer, else the run."""
    ranks = (evidence.best_rank(ranking) for ranking in (*evidence.repeats, evidence.deep, evidence.case.now))
    return next((rank for rank in ranks if rank is not None), None)


def fall_text(evidence: Evidence) -> str:
    """How far the expected chunk fell, as the end of a sentence; empty where it did not."""
    if evidence.search.chunks and not evidence.targets:
        return ""
    now, before = latest_rank(evidence), evidence.before
    since = f" from rank {before}" if before is not None else ""
    if now is not None and before is not None and now <= before:
        return f": it stands at rank {now}"
    if now is not None:
        return f": it fell{since} to rank {now}"
    deepest = max((ranking.returned for ranking in evidence.today), default=0)
    return f": it fell{since} below the {deepest} best" if deepest else ""


def found_by_text(evidence: Evidence) -> str:
    """Say at the end of a sentence that another retriever found an expected chunk; empty where none did."""
    by = evidence.case.found_by
    return "" if by is None else f"; retriever {by}, which the check asked before, found what is expected"


def outcome_text(answer: Answer) -> str:
    """Outcome of an answer with its HTTP status."""
    return f"{answer.outcome}, HTTP {answer.http_status}" if answer.http_status is not None else str(answer.outcome)


def wrong_field(evidence: Evidence) -> Finding | None:
    """Find that expected ids are documents of the hits, or the reverse, where the canary never found its chunk.

    A document whose first chunk bears its name would else be reported so once that chunk is gone.
    """
    case = evidence.case
    if case.ever_passed or evidence.before is not None or any(map(evidence.best_rank, evidence.today)):
        return None
    names = (named_by(case.canary, ranking) for ranking in evidence.today)
    reason = next((WRONG_FIELDS[one] for one in names if one in WRONG_FIELDS), None)
    return None if reason is None else Finding(cause=Cause.WRONG_FIELD, reason=reason)


def renamed_chunks(evidence: Evidence) -> Finding | None:
    """Find that no answer has an expected chunk under its name, and that other chunks have its text, at any rank.

    Near copies of it are no new cut: they have a cause of their own.
    """
    copied = evidence.shown is not None and new_near_copies(evidence.shown, evidence.case.healthy)
    if copied and not evidence.case.renamed:
        return None
    places = range(len(evidence.search.chunks)) if evidence.case.renamed else evidence.targets
    moved = [
        proposal
        for place in places
        if evidence.lacks_name(place) and (proposal := _find_reanchor(evidence, place)) is not None
    ]
    return _rechunked_finding(moved, [one.index for one in moved]) if moved else None


def _find_reanchor(evidence: Evidence, place: int) -> Reanchor | None:
    answers = list(evidence.answers_for(place))
    return reanchor(evidence.search.chunks[place], answers, evidence.case.healthy, pieces=evidence.case.renamed)


def _rechunked_finding(moved: Sequence[Reanchor], gone: Sequence[int]) -> Finding:
    best = max(moved, key=lambda one: one.similarity)
    where = "another chunk holds" if len(best.chunks) == 1 else f"{len(best.chunks)} other chunks hold"
    reason = f"The expected chunk is gone, and {where} its text ({percent_text(best.similarity)} of its word 3-grams): "
    reason += "the documents were re-cut"
    matches: list[TextMatch] = [
        {"judgment": one.index, "id": part.id, "document": part.document, "similarity": part.similarity}
        for one in moved
        for part in one.chunks
    ]
    return Finding(
        cause=Cause.RECHUNKED,
        reason=reason,
        evidence={"gone": list(gone), "matches": matches},
        reanchors=tuple(one for one in moved if one.changes),
    )


def missing_chunks(evidence: Evidence) -> Finding | None:
    """Find that no answer has an expected chunk: its passage is under another id, or gone."""
    gone = [place for place in evidence.targets if is_missing(evidence, place)]
    if not gone:
        return None
    moved = [proposal for place in gone if (proposal := _find_reanchor(evidence, place)) is not None]
    indices = [evidence.search.chunks[place].index for place in gone]
    if moved:
        return _rechunked_finding(moved, indices)
    searches = sum(len(evidence.item_answers.get(index, ())) for index in indices)
    deepest = max((ranking.returned for ranking in evidence.today), default=0)
    if searches and evidence.misses_own_texts:
        return _unknown_whether_there(evidence)
    rank = latest_rank(evidence)
    which = "The expected chunk" if rank is None else "An expected chunk"
    by_other = found_by_text(evidence)
    if searches:
        gone_from = "gone from the index" if not by_other else "not in the index of this retriever"
        reason = f"{which} is {gone_from}: a query by its own text does not return it"
    else:
        reason = (
            f"{which} is not among the {counted(deepest, 'hit')} of the deepest answer and seems gone; "
            "its text is not known, so the index could not be asked for it"
        )
    reason += "" if rank is None else f"; another one stands at rank {rank}"
    return Finding(cause=Cause.MISSING, reason=f"{reason}{by_other}", evidence={"gone": indices})


def _unknown_whether_there(evidence: Evidence) -> Finding | None:
    """Find only that a chunk fell, where the retriever finds nothing by its text."""
    if not evidence.case.ever_passed and evidence.before is None:
        return None
    cause, reason = Cause.OUTRANKED, f"Other chunks rank before the expected one{fall_text(evidence)}"
    if any(_is_left_out(evidence, place) for place in evidence.targets):
        cause, reason = Cause.LEFT_OUT, _LEFT_OUT
    if latest_rank(evidence) is None:
        reason += "; whether it is still in the index cannot be told by asking for it, as the retriever does not find "
        reason += "its first hit by that hit's text either"
    return Finding(cause=cause, reason=reason)


def changed_texts(evidence: Evidence) -> Finding | None:
    """Find that the expected chunks are in place, and what was expected of them is not in their texts any more."""
    now, healthy = evidence.case.now, evidence.case.healthy
    if now is None or healthy is None:
        return None
    prepared, comparison = prepare(evidence.case.canary.judgments), TextComparison()
    comparison.add(0, prepared, match(prepared, now), healthy, now, k=evidence.case.k)
    texts = comparison.finish()
    if not texts.lost:
        return None
    reason = f"The expected chunk is in place, and its text is not what it was: {texts}"
    return Finding(cause=Cause.TEXTS_CHANGED, reason=reason)


def low_relevance(evidence: Evidence) -> Finding | None:
    """Find that the expected chunks are in place, and only the relevance of the first hit is too low."""
    low, rank = evidence.case.too_low, evidence.best_rank(evidence.case.now)
    if low is None or evidence.targets or rank is None:
        return None
    least = evidence.case.canary.min_relevance_score
    number = f"{low:.2f}" if float(f"{low:.2f}") < least else f"{low}"
    reason = f"An expected chunk is found at rank {rank}; the first hit's relevance {number} is below its "
    reason += f"min_relevance_score {least:.4g}"
    return Finding(cause=Cause.LOW_RELEVANCE, reason=reason, evidence={"relevance": low, "least_relevance": least})


def vocabulary_mismatch(evidence: Evidence) -> Finding | None:
    """Find that the canary never found what it expects, of whichever retriever.

    One that had it below the top k, and fell from there, has another cause.
    """
    if evidence.case.found_by or evidence.case.ever_passed or evidence.before is not None or not evidence.search.chunks:
        return None
    reason = f"The canary never found what it expects among the top {evidence.case.k}"
    overlap = word_overlap(evidence.case.canary.query, (one.passage for one in evidence.search.chunks if one.passage))
    if overlap is not None and overlap < LITTLE:
        reason += f": query and chunk use other words, {percent_text(overlap)} of the query's are in the chunk"
    elif overlap is not None:
        reason += f", though {percent_text(overlap)} of the query's words are in the chunk: "
        reason += "other chunks always rank before it"
    rank = latest_rank(evidence)
    reason += f"; the chunk stands at rank {rank}" if rank is not None else ""
    shared = None if overlap is None else round(overlap, 3)
    return Finding(cause=Cause.VOCABULARY_MISMATCH, reason=reason, evidence={"shared_words": shared})


def lower_in_new_cut(evidence: Evidence) -> Finding | None:
    """Find that a new cut of the whole index ranks the expected text lower, though it is there."""
    healthy = evidence.case.healthy
    if not evidence.case.renamed or healthy is None or not evidence.targets or evidence.before is None:
        return None
    if latest_rank(evidence) is None:
        return None  # a deeper question may still find it under another name
    chunk_before = healthy.ids[evidence.before - 1], healthy.texts[evidence.before - 1]
    if any(chunk_before in zip(ranking.ids, ranking.texts, strict=True) for ranking in evidence.today):
        return None
    return Finding(
        cause=Cause.RECHUNKED, reason=f"The documents were re-cut, and the new cut ranks lower{fall_text(evidence)}"
    )


def left_out(evidence: Evidence) -> Finding | None:
    """Find that an answer lacks the expected chunk though nothing came in above it: a filter, or the search itself."""
    place = next((place for place in evidence.targets if _is_left_out(evidence, place)), None)
    if place is None:
        return None
    items = evidence.item_answers.get(evidence.search.chunks[place].index, ())
    reason = _LEFT_OUT
    if any(evidence.search.ranks(ranking)[place] is not None for ranking in items):
        reason += "; it is in the index: a query by its own text finds it"
    elif evidence.stands_elsewhere(place):
        reason += "; it is in the index: answers to other canaries have it"
    else:
        reason += "; whether it is still in the index is not known: no answer to its own text came"
    return Finding(cause=Cause.LEFT_OUT, reason=reason)


_LEFT_OUT = "The answer leaves the expected chunk out: the others keep their order, and nothing came in above its place"


def _is_left_out(evidence: Evidence, place: int) -> bool:
    """Whether no answer has an expected chunk, and each has one that ranked below it, with none above but of before."""
    healthy, before = evidence.case.healthy, evidence.search.chunks[place].before
    if healthy is None or before is None:
        return False
    ranks = {chunk: rank for rank, chunk in enumerate(healthy.ids, 1)}
    for ranking in evidence.today:
        stood = [ranks.get(chunk, 0) for chunk in ranking.ids]  # 0 = a chunk that came in
        known = [rank for rank in stood if rank]
        in_its_place = next((rank for rank in stood if not rank or rank > before), 0)
        if evidence.search.ranks(ranking)[place] is not None or not in_its_place or known != sorted(known):
            return False
    return bool(evidence.today)


def outranking(evidence: Evidence) -> Finding:
    """Find that other chunks score better; the rule that always holds."""
    if not evidence.search.chunks:
        reason = "Nothing is expected of this canary, and what it retrieves ranks where it should not"
    elif not evidence.targets:
        stand = (
            f"is found at rank {evidence.best_rank(evidence.case.now)}"
            if evidence.case.healthy is None
            else "stands where it stood"
        )
        reason = f"The best placed expected chunk {stand}; if the canary degraded, then not by that rank"
    else:
        reason = f"Other chunks rank before the expected one{fall_text(evidence)}"
        if latest_rank(evidence) is None and any(map(evidence.stands_elsewhere, evidence.targets)):
            reason += "; it is in the index: answers to other canaries have it"
        reason += found_by_text(evidence)
    return Finding(cause=Cause.OUTRANKED, reason=reason)


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
    change = score_change(healthy, [longest])
    if change is not None and change.is_large(evidence.case.scale):
        return False
    if evidence.before is not None:
        left, above = frozenset(longest.ids), healthy.ids[: evidence.before - 1]
        if not left.isdisjoint(healthy.ids[evidence.before :]) or not left.issuperset(above[: len(longest)]):
            return False  # something below the expected chunk is still there, or something above it is not
    return proven or any(evidence.best_rank(ranking) is not None for ranking in rankings)


def score_drift(evidence: Evidence) -> Finding | None:
    """Find that the chunks that are still there have other scores: the encoder or the scoring changed."""
    healthy = evidence.case.healthy
    change = score_change(healthy, evidence.today) if healthy is not None else None
    if change is None:
        return _encoder_drift(evidence)
    if healthy is not None and any(tell_ranks_alone(healthy, ranking) for ranking in evidence.today):
        return None
    if not change.is_large(evidence.case.scale):
        return None
    # Prevents that new or deleted documents, which change the weights of words, are reported as score drift. Measured
    # (benchmarks/diagnosis.py): without it the demo scores .821, not .987, and xquad_en by words .715, not .985.
    if change.may_be_content(evidence.case.scale) and evidence.targets and _is_content_change(evidence, change):
        return None
    reason = (
        f"The same chunks have other scores than when the canary was healthy: {percent_text(change.median)} off "
        f"in the median of {counted(change.chunks, 'chunk')}, so the encoder or the scoring changed"
    )
    return Finding(cause=Cause.SCORE_DRIFT, reason=reason)


def _encoder_drift(evidence: Evidence) -> Finding | None:
    """Find that queries do not fit the index: no chunk is left to compare, and the control is not found by its text.

    Prevents that a new encoder, which leaves no chunk of the healthy answer in place, is reported as `missing`. Of a
    canary that never found anything no change is known, so none is claimed.
    Measured (benchmarks/diagnosis.py): no canary of the demo depends on it, .987 with and without.
    """
    if not evidence.misses_own_texts or not any(is_missing(evidence, place) for place in evidence.targets):
        return None
    if evidence.case.healthy is None and evidence.before is None and not evidence.case.ever_passed:
        by = evidence.case.found_by
        which, cause = ("The canary", Cause.VOCABULARY_MISMATCH) if by is None else ("This retriever", Cause.OUTRANKED)
        never = (
            f"{which} never found what {'it' if by is None else 'the canary'} expects, and the retriever does not find "
            "its own first hit by that hit's text either, so whether the chunk is in the index cannot be told by "
            f"asking for it{found_by_text(evidence)}"
        )
        return Finding(cause=cause, reason=never)
    healthy = frozenset[str]() if evidence.case.healthy is None else frozenset(evidence.case.healthy.ids)
    left = any(not healthy.isdisjoint(ranking.ids) for ranking in evidence.today)
    reason = (
        f"{'Hits have no scores to compare' if left else 'None of the chunks of the healthy answer is left'}, and the "
        "retriever does not find its own first hit by that hit's text, so queries are encoded or scored otherwise than "
        "the index"
    )
    return Finding(cause=Cause.SCORE_DRIFT, reason=reason)


def _is_content_change(evidence: Evidence, change: ScoreChange) -> bool:
    """Whether new or deleted documents explain the change: a chunk is gone, there are copies, or it is small."""
    if any(is_missing(evidence, place) for place in evidence.targets):
        return True
    flooded = evidence.shown is not None and new_near_copies(evidence.shown, evidence.case.healthy)
    return bool(flooded) or change.median <= MOVED_BY_CONTENT


def near_duplicates(evidence: Evidence) -> Finding | None:
    """Find that near copies of one another fill the top hits."""
    pairs = new_near_copies(evidence.shown, evidence.case.healthy) if evidence.shown is not None else ()
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
    shown, healthy, k = evidence.shown, evidence.case.healthy, evidence.case.k
    if shown is None or healthy is None or tell_ranks_alone(healthy, shown):
        return None
    cut = shown.scores[k - 1] if 0 < k <= len(shown) else None
    for place in evidence.targets:
        one = evidence.search.chunks[place]
        if cut is None or one.score is None or not _beats(evidence.case.scale, one.score, cut):
            continue
        if any(evidence.search.ranks(ranking)[place] is not None for ranking in evidence.today):
            continue  # it has a score of today, and that is what counts
        reason = (
            f"The expected chunk is passed over: its score when last healthy, {one.score:.4g}, would beat "
            f"today's rank {k} ({cut:.4g})"
        )
        return Finding(cause=Cause.UNSTABLE, reason=reason, evidence={"score_before": one.score, "score_at_k": cut})
    return None


def _beats(scale: Scale | None, score: float, other: float) -> bool:
    """Whether a score is the better one of two numbers; distances are better the smaller they are."""
    if not (isfinite(score) and isfinite(other)):
        return False
    return score < other if scale is Scale.DISTANCE else score > other


RULES: tuple[Callable[[Evidence], Finding | None], ...] = (
    retriever_error,
    wrong_field,
    truncation,
    changed_texts,
    score_drift,
    renamed_chunks,
    missing_chunks,
    low_relevance,
    vocabulary_mismatch,
    lower_in_new_cut,
    near_duplicates,
    instability,
    left_out,
    outranking,
)
"""In the order they are tried; the last one always holds."""


def _control_rank(now: Ranking | None, control: Ranking | None) -> int | None:
    """Rank of the run's first hit in the answer to the control question."""
    if now is None or control is None or not len(now) or now.ids[0] not in control.ids:
        return None
    return control.ids.index(now.ids[0]) + 1


def _basic_evidence(evidence: Evidence) -> DiagnosisEvidence:
    """Evidence of every diagnosis: ranks, counts and scores by kind of question."""
    healthy = evidence.case.healthy
    change = score_change(healthy, evidence.today) if healthy is not None else None
    rankings = [ranking for group in evidence.item_answers.values() for ranking in group]
    return {
        "asked": {str(kind): count for kind, count in evidence.asked_counts.items()},
        "failed": [outcome_text(answer) for _, answer in evidence.failures],
        "ranks": {
            "before": evidence.before,
            "run": evidence.best_rank(evidence.case.now),
            "repeats": [evidence.best_rank(ranking) for ranking in evidence.repeats],
            "deep": evidence.best_rank(evidence.deep),
            "known_items": [evidence.best_rank(ranking) for ranking in rankings],
            "control": _control_rank(evidence.case.now, evidence.control),
        },
        "returned": {
            "before": None if healthy is None else healthy.returned,
            "run": None if evidence.case.now is None else evidence.case.now.returned,
            "repeats": [ranking.returned for ranking in evidence.repeats],
            "deep": None if evidence.deep is None else evidence.deep.returned,
        },
        "score_change": None if change is None else round(change.median, 4),
        "scores_compared": 0 if change is None else change.chunks,
        "deeper": _deeper(evidence),
    }


def _deeper(evidence: Evidence) -> dict[str, int]:
    """Ranks of the expected chunks that the deep answer has and the run has not, by their names."""
    chunks = zip(evidence.search.chunks, evidence.search.ranks(evidence.case.now), strict=True)
    deep = evidence.search.ranks(evidence.deep)
    return {
        chunk_name(one.judgment): rank
        for (one, now), rank in zip(chunks, deep, strict=True)
        if now is None and rank is not None
    }
