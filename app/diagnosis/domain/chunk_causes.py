"""Cause rules on expected chunks: of the wrong field, renamed, missing, scored low, never found, cut lower, outranked.

Each returns its finding, or None where it does not hold. Limits were measured, see benchmarks/diagnosis.py.
"""

from collections.abc import Sequence

from app.base.counts import counted
from app.base.number_text import percent_text
from app.base.values import Cause
from app.diagnosis.domain.evidence import Evidence
from app.diagnosis.domain.findings import Finding, fall_text, is_missing, latest_rank
from app.diagnosis.domain.near_copies import near_copies
from app.diagnosis.domain.reanchoring import reanchor
from app.diagnosis.domain.values import Reanchor
from app.diagnosis.domain.views import TextMatch
from app.diagnosis.quality.domain.vocabulary import LITTLE, word_overlap
from app.scoring.matching import match, prepare
from app.scoring.text_changes import TextComparison
from app.scoring.wrong_fields import WRONG_FIELDS, named_by


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
    copied = evidence.shown is not None and near_copies(evidence.shown, evidence.case.healthy)
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
    if searches:
        reason = "The expected chunk is gone from the index: a query by its own text does not return it"
    else:
        reason = (
            f"The expected chunk is not among the {counted(deepest, 'hit')} of the deepest answer and seems gone; "
            "its text is not known, so the index could not be asked for it"
        )
    return Finding(cause=Cause.MISSING, reason=reason, evidence={"gone": indices})


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
    """Find that the canary never found what it expects.

    One that had it below the top k, and fell from there, has another cause.
    """
    if evidence.case.ever_passed or evidence.before is not None or not evidence.search.chunks:
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
    return Finding(cause=Cause.OUTRANKED, reason=reason)
