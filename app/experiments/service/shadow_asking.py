"""The candidate of a shadow, asked what users asked: block by block, within its own limits.

A query is deleted in the transaction that counts its answer, so that each counts once, whoever goes on after a crash.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from app.base.db.engine import Store, from_us, to_us
from app.base.errors import InvalidInputError, NotFoundError
from app.base.values import Answer, Outcome
from app.catalog.service.vault import Vault
from app.experiments.domain.shadow import Hits, ShadowHit, cut_to
from app.experiments.service.shadow_sums import AnsweredPair, count_pairs, keep_different
from app.experiments.service.shadows import document_of
from app.experiments.store import shadow_questions
from app.experiments.store import shadows as rows
from app.experiments.store.shadow_questions import Question
from app.retrievers.domain.circuit_breaker import CircuitBreaker
from app.retrievers.domain.retrievers import Probe, ProbeContext, ProbeQuery, Retriever, Scorer, ScorerKind
from app.retrievers.service.trials import stored_retriever

BLOCK: Final = 20
"""Queries asked and counted at a time."""
BLOCKS: Final = 25
"""Blocks of one shadow before others have their turn."""
PAUSE: Final = timedelta(minutes=1)
"""How long a candidate that does not answer is left alone, unless it asks for longer."""
LONGEST_PAUSE: Final = timedelta(hours=1)
_TURN: Final = timedelta(seconds=1)
"""Not at once: of the jobs that are due the oldest is taken."""


def ask_candidate(
    store: Store,
    vault: Vault,
    probe: Probe,
    shadow_id: int,
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
) -> datetime | None:
    """Ask the candidate of a shadow what waits; when to go on, None = nothing is left.

    What it fails to answer is counted as failed. Once its circuit breaker opens, it is left alone for a while, however
    much is sent meanwhile, and what was not asked waits. After some blocks other shadows have their turn.
    """
    breaker: CircuitBreaker | None = None
    for _ in range(BLOCKS):
        with store.read() as connection:
            shadow = rows.read_shadow(connection, shadow_id)
            waiting = [] if shadow is None else shadow_questions.next_questions(connection, shadow_id, BLOCK)
        if shadow is None or not waiting:
            return None
        if shadow.ask_after is not None and shadow.ask_after > to_us(clock()):
            return from_us(shadow.ask_after)
        document = document_of(shadow)
        try:
            retriever = stored_retriever(store, vault, document.candidate or "", {}).to_domain()
            breaker = breaker or CircuitBreaker(limit=retriever.breaker)
            answers, breaker = _ask(probe, retriever, document.k, waiting, breaker, stopping)
        except (NotFoundError, InvalidInputError):
            return (
                clock() + PAUSE
            )  # it is archived, or cannot be asked as it is defined now; what waits is dropped in a day
        pairs = {one.id: _pair(one, answers[one.id]) for one in waiting if one.id in answers}
        at = to_us(clock())
        with store.write() as connection:
            # First, as intake and deletion do: whoever holds it waits for no row of this.
            if rows.read_shadow(connection, shadow_id, lock=True) is None:
                return None
            taken = shadow_questions.take_questions(connection, sorted(pairs))
            counted = [pair for number, pair in pairs.items() if number in taken]
            count_pairs(connection, shadow.slug, counted, at)
            keep_different(connection, shadow.id, counted, most=document.keep, at=at)
            if breaker.is_open:
                wish = timedelta(seconds=breaker.retry_after_seconds or 0)
                rows.leave_alone(connection, shadow_id, to_us(clock() + min(max(PAUSE, wish), LONGEST_PAUSE)))
        if stopping():
            return clock()
    return clock() + _TURN


def _ask(
    probe: Probe,
    retriever: Retriever,
    k: int,
    waiting: Sequence[Question],
    breaker: CircuitBreaker,
    stopping: Callable[[], bool],
) -> tuple[dict[int, Answer], CircuitBreaker]:
    """Return the answers to some queries, by their ids; those that were not asked have none."""
    # Ranks alone are compared: nobody else is asked to score.
    plain = replace(retriever, scorer=Scorer(kind=ScorerKind.JUDGED))
    context = ProbeContext(retriever=plain, k=k, run_id="shadow")
    queries = [ProbeQuery(position=place, query=one.query) for place, one in enumerate(waiting)]
    answers: dict[int, Answer] = {}
    with closing(probe(context, queries)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
        for batch in batches:
            answers |= {waiting[place].id: one for place, one in batch if one.outcome is not Outcome.SKIPPED}
            breaker = breaker.after(answer for _, answer in batch)
            if stopping() or breaker.is_open:
                break
    return answers, breaker


def _pair(question: Question, answer: Answer) -> AnsweredPair:
    ranking = answer.ranking
    hits: Hits | None = None
    if answer.outcome is Outcome.OK and ranking is not None:
        found = [ShadowHit(id=one, text=text) for one, text in zip(ranking.ids, ranking.texts, strict=True)]
        hits = cut_to(found, question.hits)
    return AnsweredPair(
        query=question.query,
        a=question.hits,
        b=hits,
        a_seconds=question.seconds,
        b_seconds=answer.latency_seconds,
    )
