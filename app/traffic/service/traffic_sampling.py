"""The sample of a suite's traffic: drawn, and asked of the retriever in the background.

It is frozen when it is drawn and asked block by block, so that whoever goes on after a crash does so where it stands.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from typing import Final

import numpy as np

from app.base.db.engine import Store, to_us
from app.base.errors import ConflictError, InvalidInputError, NotFoundError
from app.base.jobs.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.values import Answer, Outcome
from app.catalog.service.vault import Vault
from app.retrievers.domain.circuit_breaker import CircuitBreaker
from app.retrievers.domain.probe_failures import outcome_text
from app.retrievers.domain.relevance import score_relevance
from app.retrievers.domain.retrievers import Probe, ProbeContext, ProbeQuery, Retriever, Scorer, ScorerKind
from app.retrievers.service.trials import stored_retriever
from app.traffic.documents.traffic_documents import Grouping
from app.traffic.domain import reach as estimates
from app.traffic.service.traffic import find_suite
from app.traffic.store import traffic as rows
from app.traffic.store.traffic import FirstHit, TrafficQuery

BLOCK: Final = 20
"""Queries asked and written at a time."""
_SEED: Final = 0


def request_reach(store: Store, suite: str, retriever: str, *, grouping: Grouping | None, now: datetime) -> int:
    """Draw a sample of the traffic and have it asked; how many queries it has. It takes the place of the one before.

    Raises NotFoundError, and ConflictError where there is no traffic.
    """
    with store.write() as connection:
        suite_id = find_suite(connection, suite)
        counts = rows.query_counts(connection, suite_id, retriever)
        if not counts:
            raise ConflictError(f"suite '{suite}' has no traffic of retriever '{retriever}'; send some first")
        sample = estimates.draw_sample([count for _, count in counts], np.random.default_rng(_SEED))
        body = {
            "ids": [counts[place][0] for place in sample.places],
            "counts": [counts[place][1] for place in sample.places],
            "times": [times for _, times in sample.rest],
            "head": len(sample.head),
            "head_size": estimates.head_size([count for _, count in counts]),
            "head_traffic": sample.head_traffic,
            "rest_traffic": sample.rest_traffic,
            "whole": sample.whole,
            "distinct": len(counts),
            "grouping": None if grouping is None else grouping.data(),
        }
        reach_id = rows.save_sample(connection, suite_id, retriever, body, to_us(now))
        defer(connection, [NewJob(JobKind.REACH, reach_id)])
    return len(sample.places)


def ask_sample(
    store: Store,
    vault: Vault,
    probe: Probe,
    reach_id: int,
    *,
    clock: Callable[[], datetime],
    stopping: Callable[[], bool] = lambda: False,
) -> bool:
    """Ask the queries of a sample that were not asked since it was drawn; False where it was let go of, stopping.

    Each is asked once; the retriever's own limits hold. Once it stops answering, the others are told as not asked.
    """
    with store.read() as connection:
        reach = rows.read_reach(connection, reach_id)
        queries = {} if reach is None else rows.read_queries(connection, reach.body["ids"])
    if reach is None:
        return True
    left = [one for one in queries.values() if one.asked_at is None or one.asked_at < reach.requested_at]
    try:
        retriever = stored_retriever(store, vault, reach.retriever, {}).to_domain()
        breaker = CircuitBreaker(limit=retriever.breaker)
        for start in range(0, len(left), BLOCK):
            block = left[start : start + BLOCK]
            hits, breaker = _ask(probe, retriever, block, breaker, stopping)
            if stopping():
                return False
            _save(store, hits, max(to_us(clock()), reach.requested_at))
    except (NotFoundError, InvalidInputError) as error:
        _save(store, {one.id: FirstHit(failure=str(error)) for one in left}, max(to_us(clock()), reach.requested_at))
    with store.write() as connection:
        rows.finish_sample(connection, reach_id, to_us(clock()), requested_at=reach.requested_at)
    return True


def _ask(
    probe: Probe,
    retriever: Retriever,
    block: Sequence[TrafficQuery],
    breaker: CircuitBreaker,
    stopping: Callable[[], bool],
) -> tuple[dict[int, FirstHit], CircuitBreaker]:
    """Ask some queries for their first hit."""
    hits = {one.id: FirstHit(failure="not asked, because queries before it failed") for one in block}
    if breaker.is_open:
        return hits, breaker
    plain = replace(retriever, scorer=_own_scorer(retriever.scorer))
    context = ProbeContext(retriever=plain, k=1, run_id="reach")
    queries = [ProbeQuery(position=place, query=one.query) for place, one in enumerate(block)]
    with closing(probe(context, queries)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
        for batch in batches:
            for position, answer in batch:
                hits[block[position].id] = _first_hit(plain.scorer, answer)
            breaker = breaker.after(answer for _, answer in batch)
            if stopping() or breaker.is_open:
                break
    return hits, breaker


def _first_hit(scorer: Scorer, answer: Answer) -> FirstHit:
    ranking = answer.ranking
    if answer.outcome is not Outcome.OK or ranking is None:
        return FirstHit(failure=answer.detail or outcome_text(answer.outcome, answer.http_status))
    if not ranking:
        return FirstHit()
    relevance = score_relevance(scorer, ranking.scores[0]) if scorer.kind is ScorerKind.SCORE else None
    return FirstHit(chunk=ranking.ids[0], document=ranking.documents[0], relevance=relevance)


def _own_scorer(scorer: Scorer) -> Scorer:
    """Return the retriever's own scores, or none: nobody else is asked to score."""
    return scorer if scorer.kind is ScorerKind.SCORE else Scorer(kind=ScorerKind.JUDGED)


def _save(store: Store, hits: Mapping[int, FirstHit], at: int) -> None:
    with store.write() as connection:
        rows.save_first_hits(connection, hits, at)
