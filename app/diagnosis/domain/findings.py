"""Findings of the cause rules, and what several rules share: the rank now, how far a chunk fell, whether it is gone."""

from dataclasses import dataclass, field

from app.base.values import Answer, Cause
from app.diagnosis.domain.evidence import Evidence
from app.diagnosis.domain.values import Reanchor
from app.diagnosis.domain.views import DiagnosisEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The cause a rule found, with its reason and evidence."""

    cause: Cause
    reason: str
    evidence: DiagnosisEvidence = field(default_factory=DiagnosisEvidence)
    reanchors: tuple[Reanchor, ...] = ()


def is_missing(evidence: Evidence, place: int) -> bool:
    """Whether no answer has an expected chunk, though some were asked for it."""
    one = evidence.search.chunks[place]
    rankings = evidence.item_answers.get(one.index, ())
    if any(evidence.search.ranks(ranking)[place] is not None for ranking in (*rankings, *evidence.today)):
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
    if now is not None:
        return f": it fell{since} to rank {now}"
    deepest = max((ranking.returned for ranking in evidence.today), default=0)
    return f": it fell{since} below the {deepest} best" if deepest else ""


def outcome_text(answer: Answer) -> str:
    """Outcome of an answer with its HTTP status."""
    return f"{answer.outcome}, HTTP {answer.http_status}" if answer.http_status is not None else str(answer.outcome)
