"""Texts of a diagnosis: a row per question, the findings in sentences, and advice on the cause.

It reads the evidence of a diagnosis, whose ids may be hostile; nothing here is markup.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.alerts.domain.advice import CAUSE_ADVICE
from app.base.counts import counted
from app.base.number_text import percent_text
from app.base.values import Cause
from app.diagnosis.domain.values import Kind
from app.diagnosis.domain.views import DiagnosisEvidence
from app.retrievers.domain.probe_failures import outcome_word


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRow:
    """One question of a diagnosis, in words."""

    question: str
    why: str
    rank: str
    """Rank of the expected chunk."""
    returned: int | None
    """Hits of the answer; None = not stored."""


def probed(evidence: DiagnosisEvidence) -> list[QuestionRow]:
    """List the stored rankings and the questions, each with the rank of the expected chunk."""
    ranks, returned, counts = evidence.get("ranks"), evidence.get("returned"), evidence.get("asked") or {}
    if not ranks or not returned:
        return []
    rows = [
        QuestionRow(
            question="Last healthy run",
            why="what it was like",
            rank=_rank(ranks["before"], is_stored=returned["before"] is not None),
            returned=returned["before"],
        ),
        QuestionRow(
            question="In the run",
            why="the ranking to be explained",
            rank=_rank(ranks["run"], is_stored=returned["run"] is not None),
            returned=returned["run"],
        ),
    ]
    repeats = list(zip(ranks["repeats"], returned["repeats"], strict=True))
    rows += [
        QuestionRow(
            question=f"The query again, {number}", why="is the fault persistent?", rank=_rank(rank), returned=count
        )
        for number, (rank, count) in enumerate(repeats, 1)
    ]
    rows += _unanswered("The query again", counts.get(Kind.REPEAT, 0) - len(repeats))
    if counts.get(Kind.DEEP):
        rank = _rank(ranks["deep"], is_stored=returned["deep"] is not None, unknown="not answered")
        why = "how far did the expected chunk fall?"
        rows.append(QuestionRow(question="The query, far deeper", why=why, rank=rank, returned=returned["deep"]))
    rows += [
        QuestionRow(
            question=f"The expected text as the query, {number}",
            why="is it in the index at all?",
            rank=_rank(rank),
            returned=None,
        )
        for number, rank in enumerate(ranks["known_items"], 1)
    ]
    rows += _unanswered("The expected text as the query", counts.get(Kind.KNOWN_ITEM, 0) - len(ranks["known_items"]))
    if counts.get(Kind.CONTROL):
        why = "is it found, as it must be if the index knows it?"
        rank = _rank(ranks["control"], missing="not brought, or not answered")
        rows.append(QuestionRow(question="The text of the run's first hit", why=why, rank=rank, returned=None))
    return rows


def findings(evidence: DiagnosisEvidence) -> list[str]:
    """Return the rest of the evidence in sentences without full stops."""
    return list(_findings(evidence))


def advice(cause: Cause) -> str:
    """Return what to do about the cause."""
    return CAUSE_ADVICE[cause]


def _findings(evidence: DiagnosisEvidence) -> Iterator[str]:
    if failed := evidence.get("failed"):
        yield f"not answered: {', '.join(map(_failure_text, failed))}"
    change, chunks = evidence.get("score_change"), evidence.get("scores_compared", 0)
    if change is not None:
        yield f"the scores of {counted(chunks, 'chunk')} found then and now differ by {change:.1%} in the median"
    for match in evidence.get("matches", ()):
        yield f"chunk {match['id']} holds {percent_text(match['similarity'])} of the word 3-grams of the expected text"
    for one, other, share in evidence.get("near_copies", ()):
        yield f"{one} and {other} share {percent_text(share)} of their word 3-grams"
    if "score_before" in evidence:
        yield (
            f"the expected chunk scored {evidence['score_before']:.4g} when last healthy, and the last of the top k "
            f"{evidence['score_at_k']:.4g} today"
        )


def _rank(
    rank: int | None, *, is_stored: bool = True, missing: str = "not in the answer", unknown: str = "unknown"
) -> str:
    if rank is not None:
        return f"rank {rank}"
    return missing if is_stored else unknown


def _unanswered(question: str, count: int) -> Sequence[QuestionRow]:
    why = "failed, so it proves nothing"
    return [QuestionRow(question=f"{question}, {counted(count, 'time')}", why=why, rank="not answered", returned=None)][
        : max(count, 0)
    ]


def _failure_text(failure: str) -> str:
    """Return a failed probe of the evidence, `refused, HTTP 503`, in words."""
    outcome, comma, status = failure.partition(", ")
    return f"{outcome_word(outcome)}{comma}{status}"
