"""Reach of a suite over its traffic, and suggestions: a sample drawn, asked, estimated by, and made a task."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, Final

import numpy as np

from app.annotation.documents import TaskDocument
from app.annotation.service import tasks
from app.annotation.views import TaskDetail
from app.base.db.engine import (
    Connection,
    Store,
    from_us,
    to_us,
)
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.base.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.texts import listed
from app.base.values import Answer, Outcome, Value, field, replace
from app.base.views import rounded, view_of
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.service import suites
from app.catalog.service.references import load_canaries
from app.catalog.store import Definition
from app.records.store import run_rows
from app.records.store.run_rows import RunRow
from app.retrievers.domain.probes import CircuitBreaker, ask_in_turn, outcome_text
from app.retrievers.domain.retrievers import (
    Probe,
    ProbeContext,
    ProbeQuery,
    Retriever,
    Scorer,
    ScorerKind,
    score_relevance,
)
from app.retrievers.service.trials import stored_retriever
from app.traffic import domain as estimates
from app.traffic import store as rows
from app.traffic.documents.queries import (
    Grouping,
)
from app.traffic.domain import (
    GroupView,
    Lacking,
    ReachState,
    SuggestionView,
    TrafficReachView,
    TrafficSample,
    TrafficView,
    guess_segments,
    is_negative_candidate,
)
from app.traffic.service.intake import find_suite, load_traffic
from app.traffic.service.standing import found_documents, queries_in_tasks, standing_canaries
from app.traffic.store import FirstHit, ReachRow, TrafficQuery

_DELETED: Final = "deleted since the sample was drawn"
_SHOWN_GROUPS: Final = 50
_SHOWN_QUESTIONS: Final = 5
"""Of each group."""


class SuiteTraffic(Value):
    """Traffic of a suite with a retriever, its reach (None = never asked for), and suggestions where wanted."""

    traffic: TrafficView
    reach: TrafficReachView | None
    suggestions: Sequence[SuggestionView]
    questions: Mapping[str, Sequence[tuple[str, int]]] = field(default_factory=dict)
    """Where suggestions are wanted: the most frequent queries of the sample by group, with how often each came."""


def load_reach(store: Store, suite: str, retriever: str) -> TrafficReachView:
    """Return the reach of a suite over the traffic of a retriever, as far as it is asked. Raises NotFoundError."""
    sample = _require_sample(store, suite, retriever)
    return _view(store, sample, _covered_groups(store, sample))


def suggest(store: Store, suite: str, retriever: str, *, limit: int) -> list[SuggestionView]:
    """Return queries of users that no canary stands for: one of each group, the most traffic first.

    Segments are guesses. Raises NotFoundError.
    """
    sample = _require_sample(store, suite, retriever)
    return _suggestions(store, sample, _covered_groups(store, sample), limit)


def load_reaches(store: Store, suite: str, *, suggestions: int = 0) -> list[SuiteTraffic]:
    """Return the traffic of a suite by retriever, with its reach and so many suggestions. Raises NotFoundError."""
    found = []
    for one in load_traffic(store, suite):
        sample = _find_sample(store, suite, one["retriever"])
        covered = frozenset[str]() if sample is None else _covered_groups(store, sample)
        found.append(
            SuiteTraffic(
                traffic=one,
                reach=None if sample is None else _view(store, sample, covered),
                suggestions=() if sample is None else _suggestions(store, sample, covered, suggestions),
                questions={} if sample is None or not suggestions else _questions(sample),
            )
        )
    return found


def _view(store: Store, sample: "_Sample", covered: AbstractSet[str]) -> TrafficReachView:
    reach = sample.reach
    with store.read() as connection:
        checks = _checks(connection, reach)
        runs = [found_documents(connection, run) for run in _newest_runs(connection, checks)]
        standing = standing_canaries(connection, _suite(connection, reach))
        edited = bool(catalog.made_since(connection, "retriever", [reach.retriever], reach.requested_at))
    seen = [one for run in runs for one in run.by_chunk.items()]
    enabled = [check.slug for check in checks if check.body.get("enabled", True)]
    taken_up = sample.taken_up(standing.queries - standing.pending)
    found = estimates.estimate_reach(
        sample.counts, sample.drawn, {place: group in covered for place, group in sample.groups.items()}
    )
    traffic = estimates.group_traffic(sample.counts, sample.drawn, sample.groups)
    unanswered = estimates.unanswered_share(sample.counts, sample.drawn, sample.groups)
    groups: list[GroupView] = [
        {"group": group, "traffic": rounded(queries), "covered": group in covered} for group, queries in traffic.items()
    ]
    return view_of(
        TrafficReachView,
        found,
        reach,
        rounding=True,
        checks=enabled,
        state=ReachState.ASKING if reach.finished_at is None else ReachState.ASKED,
        distinct=reach.body["distinct"],
        head=reach.body["head_size"],
        sample=len(sample.queries),
        asked=sample.asked,
        answered=len(sample.groups),
        covered_groups=sum(one["covered"] for one in groups),
        all_groups=len(groups),
        groups=groups[:_SHOWN_GROUPS],
        empty=rounded(estimates.empty_share(sample.counts, sample.drawn, sample.groups)),
        reason=estimates.reach_reason(
            sample.failures,
            answered=len(sample.groups),
            empty=sum(group is None for group in sample.groups.values()),
            unanswered=unanswered,
            lacking=Lacking(
                unasked="" if enabled else _unasked(reach.retriever, checks),
                unseen=len(standing.unnamed.difference(*(run.watched for run in runs))),
                has_run=bool(runs),
                unplaced=len(standing.unplaced - dict([*seen, *sample.first_hits]).keys()),
                taken_up=taken_up,
            ),
        ),
        unanswered=rounded(unanswered),
        edited_since=edited,
        taken_up=taken_up,
        grouped_by=None if sample.grouping is None else sample.grouping.words,
        too_fine=sample.grouping is None
        and any(group is not None for group in sample.groups.values())
        and estimates.are_groups_fine([*sample.first_hits, *seen], list(sample.groups.values())),
    )


def _unasked(retriever: str, disabled: Sequence[Definition]) -> str:
    """Say that no check asks a retriever by itself."""
    names = listed([check.slug for check in disabled])
    are = f", as {names} {'is' if len(disabled) == 1 else 'are'} disabled" if disabled else ""
    return f"no check asks {retriever}{are}"


def _suggestions(store: Store, sample: "_Sample", covered: AbstractSet[str], limit: int) -> list[SuggestionView]:
    if not limit:
        return []
    texts = [one.query if one is not None else "" for one in sample.queries]
    with store.read() as connection:
        standing = standing_canaries(connection, _suite(connection, sample.reach))
        taken_up = standing.queries | queries_in_tasks(connection, sample.reach.suite_id)
    found = estimates.suggest_queries(
        texts,
        sample.counts,
        sample.drawn,
        sample.groups,
        covered,
        taken_up={place for place, text in enumerate(texts) if text in taken_up},
        pending={place for place, text in enumerate(texts) if text in standing.pending},
    )
    place_of = {text: place for place, text in enumerate(texts)}
    return [
        view_of(
            SuggestionView,
            one,
            rounding=True,
            segments=[*sample.segments(place_of[one.query])],
            negative_candidate=is_negative_candidate(sample.top_score(place_of[one.query])),
        )
        for one in found[:limit]
    ]


def _questions(sample: "_Sample") -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for place in sorted(sample.groups, key=lambda place: -sample.counts[place]):
        group, one = sample.groups[place], sample.queries[place]
        if group is not None and one is not None and len(found.setdefault(group, [])) < _SHOWN_QUESTIONS:
            found[group].append((one.query, sample.counts[place]))
    return found


def _find_sample(store: Store, suite: str, retriever: str) -> "_Sample | None":
    with store.read() as connection:
        reach = rows.find_reach(connection, find_suite(connection, suite), retriever)
        return None if reach is None else _Sample.read(connection, reach)


def _require_sample(store: Store, suite: str, retriever: str) -> "_Sample":
    sample = _find_sample(store, suite, retriever)
    if sample is None:
        raise NotFoundError(f"the reach of suite '{suite}' over the traffic of '{retriever}' was not asked for yet")
    return sample


class _Sample(Value):
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
    def failures(self) -> list[str]:
        """Why queries have no answer: they got none since the sample was drawn, or were deleted."""
        found = []
        for one in self.queries:
            if one is None:
                found.append(_DELETED)
            elif one.failure is not None and (one.asked_at or 0) >= self.reach.requested_at:
                found.append(one.failure)
        return found

    @property
    def first_hits(self) -> list[tuple[str, str | None]]:
        """Chunk and document of the first hits."""
        return [(one.chunk, one.document) for one in self.queries if one is not None and one.chunk is not None]

    def taken_up(self, queries: AbstractSet[str]) -> int:
        """Count the queries that are among these, were no canary's when the sample was drawn, and whose group it drew.

        None where nothing was drawn. What is covered since it was drawn is then more of the sample than of all others.
        """
        known = self.reach.body.get("canaries")
        if known is None or self.drawn.whole:  # drawn by an earlier release, or asked whole
            return 0
        of_draws = {self.groups.get(place) for place, _ in self.drawn.rest} - {None}
        return sum(
            one is not None and one.query in queries and one.id not in known and self.groups.get(place) in of_draws
            for place, one in enumerate(self.queries)
        )

    def top_score(self, place: int) -> float | None:
        """Return the relevance of a query's first hit; None = not measured."""
        one = self.queries[place]
        return None if one is None else one.relevance

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
        standing = standing_canaries(connection, _suite(connection, sample.reach))
        checks = _checks(connection, sample.reach)
        runs = [found_documents(connection, run) for run in _newest_runs(connection, checks)]
    documents, passing = set(standing.documents), set[int]()
    documents |= {document or chunk for chunk, document in sample.first_hits if chunk in standing.chunks}
    for run in runs:
        # A canary that was archived since, or expects nothing any more, watches nothing: its check may never run again.
        documents |= {run.watched[canary] for canary in (standing.expecting & run.watched.keys()) - passing}
        passing |= run.watched.keys()
        documents |= {run.by_chunk[chunk] for chunk in standing.chunks & run.by_chunk.keys()}
    return {_group(document, sample.grouping) for document in documents}


def _suite(connection: Connection, reach: ReachRow) -> Definition:
    return catalog.definition_by_id(connection, reach.suite_id)


def _checks(connection: Connection, reach: ReachRow) -> list[Definition]:
    """Return the checks of the suite with the retriever, disabled ones too."""
    return [
        row
        for row in catalog.list_definitions(connection, "check")
        if row.body["suite"] == reach.suite and row.body["retriever"] == reach.retriever
    ]


def _newest_runs(connection: Connection, checks: Sequence[Definition]) -> list[RunRow]:
    """Return the newest ended run of each of these checks, then the newest healthy ones.

    A fault hides for a while which documents the chunks are of that canaries expect; they are watched all the same.
    """
    newest, healthy = run_rows.newest_ended, run_rows.newest_healthy
    found = [read(connection, check.id) for read in (newest, healthy) for check in checks]
    return list({run.id: run for run in found if run is not None and run.suite_version_id is not None}.values())


BLOCK: Final = 20
"""Queries asked and written at a time."""


def request_reach(store: Store, suite: str, retriever: str, *, grouping: Grouping | None, now: datetime) -> None:
    """Draw a sample of the traffic and have it asked. It takes the place of the one before, and is another one.

    Canaries that were made of the one before say nothing of a new one. Raises NotFoundError, and ConflictError where
    there is no traffic.
    """
    with store.read() as connection:
        suite_id = find_suite(connection, suite)
        asked = standing_canaries(connection, catalog.definition_by_id(connection, suite_id)).queries
    with store.write() as connection:
        counts = rows.query_counts(connection, suite_id, retriever)
        if not counts:
            raise ConflictError(f"suite '{suite}' has no traffic of retriever '{retriever}'; send some first")
        sample = estimates.draw_sample([count for _, count in counts], np.random.default_rng(to_us(now)))
        ids = [counts[place][0] for place in sample.places]
        body = {
            "ids": ids,
            "canaries": [one.id for one in rows.read_queries(connection, ids).values() if one.query in asked],
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
    # The retriever's own scores, or none: nobody else is asked to score.
    own = retriever.scorer if retriever.scorer.kind is ScorerKind.SCORE else Scorer(kind=ScorerKind.JUDGED)
    plain = replace(retriever, scorer=own)
    context = ProbeContext(retriever=plain, k=1, run_id="reach")
    queries = [ProbeQuery(position=place, query=one.query) for place, one in enumerate(block)]
    answers, breaker = ask_in_turn(probe, context, queries, breaker, stopping=stopping)
    return hits | {block[place].id: _first_hit(plain.scorer, one) for place, one in answers.items()}, breaker


def _first_hit(scorer: Scorer, answer: Answer) -> FirstHit:
    ranking = answer.ranking
    if answer.outcome is not Outcome.OK or ranking is None:
        return FirstHit(failure=answer.detail or outcome_text(answer.outcome, answer.http_status))
    if not ranking:
        return FirstHit()
    relevance = score_relevance(scorer, ranking.scores[0]) if scorer.kind is ScorerKind.SCORE else None
    return FirstHit(chunk=ranking.ids[0], document=ranking.documents[0], relevance=relevance)


def _save(store: Store, hits: Mapping[int, FirstHit], at: int) -> None:
    with store.write() as connection:
        rows.save_first_hits(connection, hits, at)


def open_task(
    store: Store, suite: str, retriever: str, *, task: str, queries: Sequence[str], by: str, now: datetime
) -> TaskDetail:
    """Add these queries to a suite as canaries that expect nothing yet, and make a task of them with its pool.

    The same query is the same canary. From now on it is a definition, which the retention of traffic does not delete.
    Raises InvalidInputError, NotFoundError, and ConflictError where there is such a task.
    """
    if not queries:
        raise InvalidInputError([Problem(path="queries", message="choose at least one")])
    bodies = suites.assign_suite_keys(store, suite, [{"query": query} for query in dict.fromkeys(queries)])
    documents = parse_document(SuiteDocument, {"slug": suite, "canaries": bodies}).canaries or ()
    document = parse_document(
        TaskDocument, {"slug": task, "suite": suite, "retrievers": [retriever], "keys": [one.key for one in documents]}
    )
    tasks.put_task(store, document, by=by, now=now, only_new=True)
    known = {row.key for row in load_canaries(store, suite)}
    fresh = [one for one in documents if one.key not in known]
    if fresh:
        suites.put_canaries(store, suite, fresh, now=now)
    tasks.request_pool(store, task, now=now)
    return tasks.load_task(store, task)
