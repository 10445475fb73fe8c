"""Cause of a degraded canary: thirteen rules in a fixed order, over the answers to the extra probes.

The rules are in `answer_causes` and `chunk_causes`; which questions are asked, in `questions`.
"""

from collections.abc import Callable, Sequence

from app.base.counts import counted
from app.base.values import Answer, Ranking
from app.diagnosis.domain import answer_causes, chunk_causes
from app.diagnosis.domain.evidence import Evidence, collect_evidence
from app.diagnosis.domain.findings import Finding, latest_rank, outcome_text
from app.diagnosis.domain.score_changes import change_of
from app.diagnosis.domain.values import Case, Diagnosis, Kind, Question
from app.diagnosis.domain.views import DiagnosisEvidence


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


def is_overcome(rank_then: int | None, rank_now: int | None) -> bool:
    """Whether an expected chunk ranks higher by now than when it was diagnosed; None = it is not within k.

    Then the diagnosis tells of the past: whatever degrades the canary by now is something else.
    """
    return rank_now is not None and (rank_then is None or rank_now < rank_then)


RULES: tuple[Callable[[Evidence], Finding | None], ...] = (
    answer_causes.retriever_error,
    chunk_causes.wrong_field,
    answer_causes.truncation,
    chunk_causes.changed_texts,
    answer_causes.score_drift,
    chunk_causes.renamed_chunks,
    chunk_causes.missing_chunks,
    chunk_causes.low_relevance,
    chunk_causes.vocabulary_mismatch,
    chunk_causes.lower_in_new_cut,
    answer_causes.near_duplicates,
    answer_causes.instability,
    chunk_causes.outranking,
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
    change = change_of(healthy, evidence.today) if healthy is not None else None
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
    }
