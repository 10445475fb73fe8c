"""Reach of a suite: a sample of its traffic is asked, and what canaries cover of it is estimated; and suggestions.

The sample is frozen when it is drawn and asked block by block, so that whoever goes on after a crash does so where it
stands. What canaries cover is read anew each time: it changes with every edit and run.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import numpy as np

from app.domain.annotation import reach as estimates
from app.domain.annotation.reach import TrafficSample
from app.domain.annotation.segments import guess_segments
from app.domain.annotation.views import GroupView, ReachState, SuggestionView, TrafficReachView
from app.domain.errors import ConflictError, InvalidInputError, NotFoundError
from app.domain.model import Answer, Outcome, Verdict
from app.domain.probing.circuit_breaker import CircuitBreaker
from app.domain.probing.probe_failures import outcome_text
from app.domain.probing.relevance import score_relevance
from app.domain.probing.retrievers import Probe, ProbeContext, ProbeQuery, Retriever, Scorer, ScorerKind
from app.formats.annotation.traffic_documents import Grouping
from app.formats.history import shapes
from app.services.catalog.references import require
from app.services.catalog.vault import Vault
from app.services.history import result_views
from app.services.probing.trials import stored_retriever
from app.store.annotation import traffic as rows
from app.store.annotation.traffic import FirstHit, ReachRow, TrafficQuery
from app.store.catalog import definitions, suites
from app.store.engine import Connection, Store, from_us, to_us
from app.store.jobs.jobs import defer
from app.store.jobs.values import JobKind, NewJob
from app.store.runs import results

BLOCK: Final = 20
"""Queries asked and written at a time."""
_SHOWN_GROUPS: Final = 50
_SEED: Final = 0


def request_reach(store: Store, suite: str, retriever: str, *, grouping: Grouping | None, now: datetime) -> int:
    """Draw a sample of the traffic and have it asked; how many queries it has. It takes the place of the one before.

    Raises NotFoundError, and ConflictError where there is no traffic.
    """
    with store.write() as connection:
        suite_id = _suite(connection, suite)
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


def load_reach(store: Store, suite: str, retriever: str) -> TrafficReachView:
    """Return the reach of a suite over the traffic of a retriever, as far as it is asked. Raises NotFoundError."""
    with store.read() as connection:
        suite_id = _suite(connection, suite)
        reach = rows.find_reach(connection, suite_id, retriever)
        if reach is None:
            raise NotFoundError(f"the reach of suite '{suite}' over the traffic of '{retriever}' was not asked for yet")
        sample = _Sample.read(connection, reach)
    covered = _covered_groups(store, sample)
    found = estimates.estimate_reach(
        sample.counts, sample.drawn, {place: group in covered for place, group in sample.groups.items()}
    )
    traffic = estimates.group_traffic(sample.counts, sample.drawn, sample.groups)
    groups: list[GroupView] = [
        {"group": group, "traffic": shapes.rounded(queries), "covered": group in covered}
        for group, queries in traffic.items()
    ]
    return {
        "retriever": retriever,
        "state": ReachState.ASKING if reach.finished_at is None else ReachState.ASKED,
        "requested_at": shapes.time_text(reach.requested_at),
        "traffic": found.traffic,
        "distinct": reach.body["distinct"],
        "head": reach.body["head_size"],
        "sample": len(sample.queries),
        "asked": sample.asked,
        "answered": len(sample.groups),
        "value": shapes.number(found.value),
        "low": shapes.number(found.low),
        "high": shapes.number(found.high),
        "covered_groups": sum(one["covered"] for one in groups),
        "all_groups": len(groups),
        "groups": groups[:_SHOWN_GROUPS],
        "too_fine": estimates.are_groups_fine(sample.first_hits) and sample.grouping is None,
    }


def suggest(store: Store, suite: str, retriever: str, *, limit: int) -> list[SuggestionView]:
    """Return queries of users that no canary stands for: one of each group, the most traffic first.

    Segments are guesses. Raises NotFoundError.
    """
    with store.read() as connection:
        suite_id = _suite(connection, suite)
        reach = rows.find_reach(connection, suite_id, retriever)
        if reach is None:
            raise NotFoundError(f"the reach of suite '{suite}' over the traffic of '{retriever}' was not asked for yet")
        sample = _Sample.read(connection, reach)
    covered = _covered_groups(store, sample)
    texts = [one.query if one is not None else "" for one in sample.queries]
    found = estimates.suggest_queries(texts, sample.counts, sample.drawn, sample.groups, covered)
    place_of = {text: place for place, text in enumerate(texts)}
    return [
        {
            "query": one.query,
            "group": one.group,
            "traffic": shapes.rounded(one.traffic),
            "segments": [*sample.segments(place_of[one.query])],
        }
        for one in found[:limit]
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """A sample as rows: its queries by place (None = deleted since), counts, draws and the groups of answered ones."""

    reach: ReachRow
    queries: Sequence[TrafficQuery | None]
    counts: Sequence[int]
    drawn: TrafficSample
    groups: Mapping[int, str | None]
    """Of the answered queries; None = no hit."""
    grouping: Grouping | None
    asked: int

    @classmethod
    def read(cls, connection: Connection, reach: ReachRow) -> "_Sample":
        body: Mapping[str, Any] = reach.body
        found = rows.read_queries(connection, body["ids"])
        queries = [found.get(number) for number in body["ids"]]
        grouping = None if body["grouping"] is None else Grouping.model_validate(body["grouping"])
        head = body["head"]
        drawn = TrafficSample(
            head=tuple(range(head)),
            rest=tuple((head + place, times) for place, times in enumerate(body["times"])),
            head_traffic=body["head_traffic"],
            rest_traffic=body["rest_traffic"],
            whole=body["whole"],
        )
        asked = {
            place: one
            for place, one in enumerate(queries)
            if one is not None and one.asked_at is not None and one.asked_at >= reach.requested_at
        }
        groups = {
            place: None if one.chunk is None else _group(one.document or one.chunk, grouping)
            for place, one in asked.items()
            if one.failure is None
        }
        return cls(
            reach=reach,
            queries=queries,
            counts=body["counts"],
            drawn=drawn,
            groups=groups,
            grouping=grouping,
            asked=len(asked),
        )

    @property
    def first_hits(self) -> list[tuple[str, str | None]]:
        """Chunk and document of the first hits."""
        return [(one.chunk, one.document) for one in self.queries if one is not None and one.chunk is not None]

    def segments(self, place: int) -> Sequence[str]:
        """Guess the segments of a query."""
        one = self.queries[place]
        if one is None:
            return ()
        times = [other for other in self.queries if other is not None]
        return guess_segments(
            one.query,
            in_head=place < len(self.drawn.head),
            first_seen=from_us(one.first_seen),
            log_start=from_us(min(other.first_seen for other in times)),
            log_end=from_us(max(other.last_seen for other in times)),
            top_score=one.relevance,
        )


def _group(document: str, grouping: Grouping | None) -> str:
    return document if grouping is None else grouping.group(document)


def _covered_groups(store: Store, sample: _Sample) -> AbstractSet[str]:
    """Return the groups of expected judgments, and of what passing canaries find first."""
    with store.read() as connection:
        canaries = suites.list_canaries(connection, sample.reach.suite_id)
        run_ids = _newest_runs(connection, sample.reach)
    judged = [chunk for row in canaries for chunk in row.body["expected_chunks"] if chunk["grade"] >= 1]
    documents = {str(chunk["document"]) for chunk in judged if chunk["document"] is not None}
    ids = {str(chunk["id"]) for chunk in judged if chunk["id"] is not None}
    documents |= {document or chunk for chunk, document in sample.first_hits if chunk in ids}
    for run_id in run_ids:
        for result in result_views.report(store, str(run_id))["results"]:
            relevant = [hit for hit in result["ranking"] or () if hit["grade"]]
            documents |= {hit["document"] or hit["id"] for hit in relevant if hit["id"] in ids}
            if relevant and result["verdict"] is Verdict.HEALTHY:
                documents.add(relevant[0]["document"] or relevant[0]["id"])
    return {_group(document, sample.grouping) for document in documents}


def _newest_runs(connection: Connection, reach: ReachRow) -> list[int]:
    """Return the newest ended run of each check of the suite with the retriever."""
    checks = [
        row
        for row in definitions.list_definitions(connection, "check")
        if row.body["suite"] == reach.suite and row.body["retriever"] == reach.retriever
    ]
    found = [results.newest_ended(connection, check.id) for check in checks]
    return [run.id for run in found if run is not None and run.suite_version_id is not None]


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


def _suite(connection: Connection, slug: str) -> int:
    return require(definitions.find_definition(connection, "suite", slug), f"suite '{slug}'").id
