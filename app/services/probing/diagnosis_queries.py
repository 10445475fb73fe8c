"""Asks a retriever the extra questions of diagnoses: gently, within a time, and no more once it stops answering."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby

from app.domain.diagnosis.values import Question
from app.domain.model import Answer
from app.domain.probing.circuit_breaker import CircuitBreaker
from app.domain.probing.relevance import is_external
from app.domain.probing.retrievers import Probe, ProbeContext, ProbeQuery, Retriever, Scorer, ScorerKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBudget:
    """How long may be asked."""

    clock: Callable[[], datetime]
    until: datetime
    stopping: Callable[[], bool] = lambda: False

    @classmethod
    def of(
        cls, seconds: float, clock: Callable[[], datetime], stopping: Callable[[], bool] = lambda: False
    ) -> "TimeBudget":
        """Begin now."""
        return cls(clock=clock, until=clock() + timedelta(seconds=seconds), stopping=stopping)

    def is_spent(self) -> bool:
        """Whether nothing more should be asked."""
        return self.stopping() or self.clock() >= self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class _Put:
    """A question on its way: its canary, and its place among that canary's questions."""

    subject: int
    place: int
    key: str
    question: Question


ReportProgress = Callable[[int, int], None]
"""Hears how many questions are answered, of how many; at first none."""


def ask_questions(
    probe: Probe,
    retriever: Retriever,
    asked: Sequence[tuple[str, Sequence[Question]]],
    budget: TimeBudget,
    *,
    run_id: str,
    progress: ReportProgress = lambda _answered, _of: None,
) -> list[list[Answer | None]]:
    """Ask every canary's questions, given with its key; None = there was no time left for it, or no point.

    The first question of every canary comes before the second of any, so that what time there is goes to what tells
    most. The retriever's own concurrency and rate hold, and so does its breaker.
    """
    answers: list[list[Answer | None]] = [[None] * len(questions) for _, questions in asked]
    breaker = CircuitBreaker(limit=retriever.breaker)
    retriever = _unscored(retriever)
    answered, total = 0, sum(len(questions) for _, questions in asked)
    progress(answered, total)
    for k, block in _blocks(asked):
        if budget.is_spent() or breaker.is_open:
            break
        asking = ProbeContext(retriever=retriever, k=k, run_id=run_id)
        asks = [ProbeQuery(position=number, query=put.question.query, key=put.key) for number, put in enumerate(block)]
        with closing(probe(asking, asks)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
            for batch in batches:
                for position, answer in batch:
                    put = block[position]
                    answers[put.subject][put.place] = answer
                answered += len(batch)
                progress(answered, total)
                breaker = breaker.after(answer for _, answer in batch)
                if budget.is_spent() or breaker.is_open:
                    break
    return answers


def _blocks(asked: Sequence[tuple[str, Sequence[Question]]]) -> Iterator[tuple[int, list[_Put]]]:
    """Give what is asked together, in order: a probe asks for one number of hits."""
    rounds = [
        _Put(subject=subject, place=place, key=key, question=questions[place])
        for place in range(max((len(questions) for _, questions in asked), default=0))
        for subject, (key, questions) in enumerate(asked)
        if place < len(questions)
    ]
    for k, block in groupby(rounds, key=lambda put: put.question.k):
        yield k, list(block)


def _unscored(retriever: Retriever) -> Retriever:
    """Leave scorers beside the retriever alone: of these answers only ranks and the retriever's own scores count."""
    if not is_external(retriever.scorer):
        return retriever
    return replace(retriever, scorer=Scorer(kind=ScorerKind.JUDGED))
