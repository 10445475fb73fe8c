"""Sends the extra queries of diagnoses: within a time, and none once the retriever stops answering."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby

from app.base.values import Answer
from app.diagnosis.domain.values import Question
from app.retrievers.domain.circuit_breaker import CircuitBreaker
from app.retrievers.domain.relevance import is_external
from app.retrievers.domain.retrievers import Probe, ProbeContext, ProbeQuery, Retriever, Scorer, ScorerKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBudget:
    """Time limit for queries."""

    clock: Callable[[], datetime]
    until: datetime
    stopping: Callable[[], bool] = lambda: False

    @classmethod
    def of(
        cls, seconds: float, clock: Callable[[], datetime], stopping: Callable[[], bool] = lambda: False
    ) -> "TimeBudget":
        """Budget that begins now."""
        return cls(clock=clock, until=clock() + timedelta(seconds=seconds), stopping=stopping)

    def is_spent(self) -> bool:
        """Whether no more queries may be sent."""
        return self.stopping() or self.clock() >= self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueuedQuestion:
    """A question in the queue: its canary, and its place among that canary's questions."""

    subject: int
    place: int
    key: str
    question: Question


ReportProgress = Callable[[int, int], None]
"""Called with the number of answered questions and of all; at first with 0."""


def ask_questions(
    probe: Probe,
    retriever: Retriever,
    questions_by_canary: Sequence[tuple[str, Sequence[Question]]],
    budget: TimeBudget,
    *,
    run_id: str,
    progress: ReportProgress = lambda _answered, _of: None,
) -> list[list[Answer | None]]:
    """Return the answers to every canary's questions, given with its key; None = not asked in time.

    The first question of every canary comes before the second of any, so that a short time yields the most telling
    answers. The retriever's own concurrency, rate and circuit breaker hold.
    """
    answers: list[list[Answer | None]] = [[None] * len(questions) for _, questions in questions_by_canary]
    breaker = CircuitBreaker(limit=retriever.breaker)
    retriever = _without_external_scorer(retriever)
    answer_count, total = 0, sum(len(questions) for _, questions in questions_by_canary)
    progress(answer_count, total)
    for k, block in _group_by_k(questions_by_canary):
        if budget.is_spent() or breaker.is_open:
            break
        asking = ProbeContext(retriever=retriever, k=k, run_id=run_id)
        asks = [
            ProbeQuery(position=number, query=queued.question.query, key=queued.key)
            for number, queued in enumerate(block)
        ]
        with closing(probe(asking, asks)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
            for batch in batches:
                for position, answer in batch:
                    queued = block[position]
                    answers[queued.subject][queued.place] = answer
                answer_count += len(batch)
                progress(answer_count, total)
                breaker = breaker.after(answer for _, answer in batch)
                if budget.is_spent() or breaker.is_open:
                    break
    return answers


def _group_by_k(
    questions_by_canary: Sequence[tuple[str, Sequence[Question]]],
) -> Iterator[tuple[int, list[_QueuedQuestion]]]:
    """Yield (k, questions) in order: a probe requests one number of hits."""
    queue = [
        _QueuedQuestion(subject=subject, place=place, key=key, question=questions[place])
        for place in range(max((len(questions) for _, questions in questions_by_canary), default=0))
        for subject, (key, questions) in enumerate(questions_by_canary)
        if place < len(questions)
    ]
    for k, block in groupby(queue, key=lambda queued: queued.question.k):
        yield k, list(block)


def _without_external_scorer(retriever: Retriever) -> Retriever:
    """Return the retriever without its external scorer: diagnoses need ranks and own scores alone."""
    if not is_external(retriever.scorer):
        return retriever
    return replace(retriever, scorer=Scorer(kind=ScorerKind.JUDGED))
