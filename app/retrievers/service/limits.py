"""Limits within which a retriever is asked: those that all replicas share, and the time that a diagnosis has."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count, groupby
from typing import Final

from app.base.db.engine import Store
from app.base.values import (
    Answer,
    ReportProgress,
)
from app.diagnosis.domain import Question
from app.retrievers import store as retriever_rows
from app.retrievers.domain.probes import (
    CircuitBreaker,
    fan_out,
    lane_count,
)
from app.retrievers.domain.retrievers import (
    Lane,
    Probe,
    ProbeContext,
    ProbeQuery,
    Retriever,
    Scorer,
    ScorerKind,
    is_external,
)
from app.retrievers.store import hold_lane

logger = logging.getLogger("coalmine.probing")
PATIENCE_SECONDS: Final = 30.0
"""Longest wait for a lane. Whoever holds it for longer is frozen, or slower than anybody should wait for."""
SHARD_PATIENCE_SECONDS: Final = 5.0
"""Longest wait of a shard of a run: whoever holds a lane, or waits for it, may be frozen."""
ROUNDS: Final = 4
"""Queries, for each request at a time, that are asked before others get the lane."""


def share_limits(store: Store, probe: Probe) -> Probe:
    """Return a probe whose limits hold over all processes of this database; on SQLite there is one."""
    return SharedProbe(store, probe) if store.dialect == "postgresql" else probe


class SharedProbe:
    """Asks in the lane of a context, and where it has none, in one of the retriever's."""

    def __init__(self, store: Store, probe: Probe, *, patience: float = PATIENCE_SECONDS) -> None:
        self._store = store
        self._probe = probe
        self._patience = patience
        self._turns = count()
        """Spread over the lanes."""

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Send every query; see `Probe`. Raises StoreUnavailableError where no lane can be held."""
        if context.lane is not None:
            return self._probe(context, queries)
        self._probe(context, ())  # raises at once where the retriever cannot be asked; asks nobody
        return self._ask_in_a_lane(context, queries)

    def _ask_in_a_lane(
        self, context: ProbeContext, queries: Sequence[ProbeQuery]
    ) -> Iterator[Sequence[tuple[int, Answer]]]:
        retriever = context.retriever
        number = next(self._turns) % lane_count(retriever)
        reserve = partial(reserve_rate, self._store, retriever.slug)
        lane = Lane(number=number, concurrency=fan_out(retriever, number), reserve=reserve)
        in_lane = replace(context, lane=lane)
        size = ROUNDS * lane.concurrency
        for start in range(0, len(queries), size):
            block = queries[start : start + size]
            with hold_lane(self._store, retriever.slug, number, alone=True, at_most=self._patience) as is_held:
                if not is_held:
                    logger.warning("lane_not_held", extra={"retriever": retriever.slug, "seconds": self._patience})
                with closing(self._probe(in_lane, block)) as batches:  # type: ignore[type-var] # a generator
                    yield from batches


def reserve_rate(store: Store, retriever: str, count: int, interval: float) -> float:
    """Reserve requests in the rate that all processes have in common; gives the seconds until the first."""
    with store.write() as connection:
        width = round(count * interval * 1_000_000)
        return retriever_rows.reserve(connection, retriever, microseconds=width) / 1_000_000


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
    if is_external(retriever.scorer):  # diagnoses need ranks and own scores alone
        retriever = replace(retriever, scorer=Scorer(kind=ScorerKind.JUDGED))
    queue = [
        (subject, place, ProbeQuery(position=0, query=questions[place].query, key=key), questions[place].k)
        for place in range(max((len(questions) for _, questions in questions_by_canary), default=0))
        for subject, (key, questions) in enumerate(questions_by_canary)
        if place < len(questions)
    ]
    answer_count = 0
    progress(answer_count, len(queue))
    for k, queued in groupby(queue, key=lambda one: one[3]):  # a probe requests one number of hits
        if budget.is_spent() or breaker.is_open:
            break
        block = list(queued)
        asking = ProbeContext(retriever=retriever, k=k, run_id=run_id)
        asks = [replace(ask, position=number) for number, (_, _, ask, _) in enumerate(block)]
        with closing(probe(asking, asks)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
            for batch in batches:
                for position, answer in batch:
                    subject, place, _, _ = block[position]
                    answers[subject][place] = answer
                answer_count += len(batch)
                progress(answer_count, len(queue))
                breaker = breaker.after(answer for _, answer in batch)
                if budget.is_spent() or breaker.is_open:
                    break
    return answers
