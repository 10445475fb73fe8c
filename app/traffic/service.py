"""Traffic of a suite: reach and suggestions from it, a sample asked, suggestions made a task; received and forgotten.

Queries of users are personal data: kept for 30 days after they came, never in metrics, logs or exports, deleted at once
on request. A suite may have 100,000 canaries and pages ask each time, so canaries are read once for each revision of
their suite, results once for each run, and a task's queries once.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import partial
from hashlib import sha256
from sys import getsizeof
from typing import Any, Final, cast

import numpy as np

from app.annotation.documents import TaskDocument
from app.annotation.service import tasks
from app.annotation.store import task_rows
from app.annotation.views import TaskDetail
from app.base.db.engine import (
    RECEIVED_BEFORE,
    Connection,
    ReceivedPart,
    Store,
    answer_before,
    blocks,
    cached,
    from_us,
    to_us,
)
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.base.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.texts import Source, counted
from app.base.values import Answer, Category, Outcome, Value, field, replace
from app.base.views import rounded, view_of
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import SuiteDocument
from app.catalog.service import suites
from app.catalog.service.references import load_canaries
from app.catalog.service.versions import load_suite
from app.catalog.store import Definition, require
from app.records.store import ranking_rows, run_rows, state_rows
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
from app.scoring.evaluation import RELEVANCE
from app.scoring.rankings import Match
from app.traffic import domain as estimates
from app.traffic import store as rows
from app.traffic.documents.exports import TracedCall
from app.traffic.documents.queries import (
    LONGEST_QUERY,
    MOST_READ,
    Grouping,
    QueryCounter,
    ReadTraffic,
    TooManyQueriesError,
    read_traffic,
)
from app.traffic.domain import (
    GroupView,
    ReachState,
    ReceivedTraffic,
    SuggestionView,
    TrafficReachView,
    TrafficSample,
    TrafficView,
    guess_segments,
    is_negative_candidate,
    normalise_query,
)
from app.traffic.store import FirstHit, ReachRow, TrafficQuery
from app.traffic.tables import traffic_parts

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
        runs = _newest_runs(connection, reach)
        standing = standing_canaries(connection, _suite(connection, reach))
        seen = [one for run in runs for one in found_documents(connection, run).by_chunk.items()]
        edited = bool(catalog.made_since(connection, "retriever", [reach.retriever], reach.requested_at))
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
            unseen=0 if runs else standing.unnamed,
            unplaced=len(standing.unplaced - dict([*seen, *sample.first_hits]).keys()) if runs else 0,
        ),
        unanswered=rounded(unanswered),
        edited_since=edited,
        grouped_by=None if sample.grouping is None else sample.grouping.words,
        too_fine=sample.grouping is None
        and any(group is not None for group in sample.groups.values())
        and estimates.are_groups_fine([*sample.first_hits, *seen], list(sample.groups.values())),
    )


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
        runs = [found_documents(connection, run) for run in _newest_runs(connection, sample.reach)]
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


def _newest_runs(connection: Connection, reach: ReachRow) -> list[RunRow]:
    """Return the newest ended run of each check of the suite with the retriever, then the newest healthy ones.

    A fault hides for a while which documents the chunks are of that canaries expect; they are watched all the same.
    """
    checks = [
        row
        for row in catalog.list_definitions(connection, "check")
        if row.body["suite"] == reach.suite and row.body["retriever"] == reach.retriever
    ]
    newest, healthy = run_rows.newest_ended, run_rows.newest_healthy
    found = [read(connection, check.id) for read in (newest, healthy) for check in checks]
    return list({run.id: run for run in found if run is not None and run.suite_version_id is not None}.values())


BLOCK: Final = 20
"""Queries asked and written at a time."""
_SEED: Final = 0


def request_reach(store: Store, suite: str, retriever: str, *, grouping: Grouping | None, now: datetime) -> None:
    """Draw a sample of the traffic and have it asked. It takes the place of the one before.

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


def name_part(vault: Vault, key: str, content: str) -> ReceivedPart:
    """Name a part by the key it came with and what it holds."""
    return ReceivedPart(key=vault.fingerprint(key), content=vault.fingerprint(content))


MOST_DISTINCT: Final = 100_000
"""Distinct queries that are kept of a suite with a retriever."""
_FORGOTTEN_BLOCK: Final = 2_000


def receive_traffic(
    store: Store,
    vault: Vault,
    suite: str,
    retriever: str,
    sources: Sequence[Source],
    *,
    now: datetime,
    key: str | None = None,
) -> ReceivedTraffic:
    """Add the queries of files to the traffic of a suite with a retriever: all or none.

    Beyond `MOST_DISTINCT` new ones are left out, the least frequent first. What comes with the `key` of what arrived
    within a day is not added again: the answer is that of the first time, with a note. Raises InvalidInputError for
    files that cannot be read, ConflictError where the key came with other queries, and NotFoundError.
    """
    found = read_traffic(sources, now=now)
    # What tells two parts apart is queries and counts: a time that is not given is that of arrival.
    content = json.dumps(sorted((one.query, one.count) for one in found.queries))
    part = None if key is None else name_part(vault, key, content)
    return add_traffic(store, suite, retriever, found, now=now, part=part)


def add_traffic(
    store: Store, suite: str, retriever: str, found: ReadTraffic, *, now: datetime, part: ReceivedPart | None = None
) -> ReceivedTraffic:
    """Add queries that are read already; see `receive_traffic`."""
    with store.read() as connection:
        named = catalog.find_definition(connection, "retriever", retriever)
        if named is None or named.archived_at is not None:
            raise NotFoundError(f"there is no retriever '{retriever}'")
        suite_id = find_suite(connection, suite)
        known = rows.known_digests(connection, suite_id, retriever, found.queries)
        stored = rows.count_distinct(connection, suite_id, retriever)
    fresh = [one for one in found.queries if rows.digest_of(one.query) not in known]
    fresh.sort(key=lambda one: (-one.count, one.query))
    room = max(0, MOST_DISTINCT - stored)
    left_out = {one.query for one in fresh[room:]}
    taken = [one for one in found.queries if one.query not in left_out]
    full = f"{counted(len(left_out), 'query')} left out: a suite keeps at most {MOST_DISTINCT:,} of a retriever"
    notes = [*([full] if left_out else ()), *left_out_notes(found)]
    answer: ReceivedTraffic = {"queries": len(taken), "new": len(fresh) - len(left_out), "notes": notes}
    if not taken and part is None:  # as of most exports of spans: they hold no retrieval
        return answer
    with store.write() as connection:
        if part is not None:
            owner = {"suite_id": suite_id, "retriever": retriever}
            before = answer_before(connection, traffic_parts, owner, part, answer, at=to_us(now))
            if before is not None:
                return cast("ReceivedTraffic", before)
        rows.add_queries(connection, suite_id, retriever, taken, at=to_us(now))
    return answer


class ReceivedSpans(Value):
    """What became of the retrievals of an export: queries that count, spans that do not, and why."""

    counted: int
    rejected: int
    notes: tuple[str, ...]


def receive_spans(
    store: Store,
    vault: Vault,
    suite: str,
    retriever: str | None,
    calls: Iterable[TracedCall],
    *,
    content: bytes,
    now: datetime,
) -> ReceivedSpans:
    """Add the queries of an export to the traffic of a suite; without a `retriever` of the one that its checks ask.

    `content` is what came: an exporter that got no answer sends the same again, which counts once within a day. Raises
    InvalidInputError, and NotFoundError.
    """
    counter = QueryCounter(now)
    try:
        for call in calls:
            counter.add_call(call)
    except TooManyQueriesError:
        message = f"holds more than {MOST_READ:,} distinct queries; send smaller batches"
        raise InvalidInputError([Problem(path="body", message=message)]) from None
    found = counter.result()
    name = sha256(content).hexdigest()
    part = name_part(vault, name, name) if found.queries else None
    answer = add_traffic(store, suite, retriever or _asked_retriever(store, suite), found, now=now, part=part)
    kept = sum(one.count for one in found.queries)
    rejected = found.too_long + found.unclear + len(found.queries) - answer["queries"]
    notes = tuple(note for note in answer["notes"] if note != RECEIVED_BEFORE)
    return ReceivedSpans(counted=kept, rejected=rejected, notes=notes)


def _asked_retriever(store: Store, suite: str) -> str:
    with store.read() as connection:
        find_suite(connection, suite)
        checks = [row.body for row in catalog.list_definitions(connection, "check")]
    found = sorted({body["retriever"] for body in checks if body["suite"] == suite})
    if len(found) != 1:
        which = f"its checks ask {', '.join(found[:_SHOWN_RETRIEVERS])}" if found else "it has no check"
        raise InvalidInputError([Problem(path="retriever", message=f"is missing: say which was asked; {which}")])
    return str(found[0])


_SHOWN_RETRIEVERS: Final = 5


def left_out_notes(found: ReadTraffic) -> list[str]:
    """Return a note for each reason why lines of files were left out."""
    reasons = (
        (found.too_long, "query", f"longer than {LONGEST_QUERY} characters"),
        (found.empty, "query", "without a text"),
        (found.unclear, "span", "whose input names no query"),
        (found.other, "other span", ""),
    )
    return [
        " ".join([counted(number, what), *reason.split(), "left out"]) for number, what, reason in reasons if number
    ]


def load_traffic(store: Store, suite: str) -> list[TrafficView]:
    """Return the traffic of a suite by retriever, without the queries. Raises NotFoundError."""
    with store.read() as connection:
        found = rows.summaries(connection, find_suite(connection, suite))
    return [view_of(TrafficView, one) for one in found]


def forget_traffic(store: Store, suite: str, *, retriever: str | None = None, query: str | None = None) -> int:
    """Delete all traffic of a suite, or of one retriever, or one query of it, at once; how many queries there were.

    A query is found however it is written. What was estimated from deleted traffic goes too, but not for one query.
    Raises NotFoundError for the suite.
    """
    with store.read() as connection:
        suite_id = find_suite(connection, suite)
    if query is not None:
        with store.write() as connection:
            rows.forget_contents(connection, suite_id)
            return rows.forget_query(connection, suite_id, normalise_query(query))
    with store.write() as connection:
        rows.forget_parts(connection, suite_id, retriever)
        rows.forget_reaches(connection, suite_id, retriever)
    deleted = 0
    while True:
        with store.write() as connection:
            block = rows.forget_block(connection, suite_id, retriever, _FORGOTTEN_BLOCK)
        deleted += block
        if block < _FORGOTTEN_BLOCK:
            return deleted


def find_suite(connection: Connection, slug: str) -> int:
    """Return the id of a suite. Raises NotFoundError."""
    return require(catalog.find_definition(connection, "suite", slug), f"suite '{slug}'").id


_CANARIES_BLOCK: Final = 500
_BYTES_PER_ENTRY: Final = 40
"""Size of an entry of a set or mapping beside its text."""


class StandingCanaries(Value):
    """What the canaries of a suite in force ask and expect; queries are normalised as those of users are."""

    queries: frozenset[str]
    pending: frozenset[str]
    """Queries of which nothing is decided yet: no chunk is expected or forbidden."""
    documents: frozenset[str]
    chunks: frozenset[str]
    """Ids of expected chunks; which document they are of only answers tell."""
    expecting: frozenset[int]
    """Ids of the canaries that expect a chunk."""
    unplaced: frozenset[str]
    """Those of the chunks beside which no document stands."""
    unnamed: int
    """How many of them name neither id nor document of any, so that only a run tells what they find."""


class FoundDocuments(Value):
    """What the canaries of a run found: documents of hits by chunk id, and the first relevant one of a passing canary.

    A hit without a document is its own.
    """

    by_chunk: Mapping[str, str]
    watched: Mapping[int, str]


def standing_canaries(connection: Connection, suite: Definition) -> StandingCanaries:
    """Return what the canaries of a suite ask and expect, read once for each of its revisions."""

    def read() -> tuple[StandingCanaries, int]:
        found = _read_canaries(connection, suite.id)
        return found, _size(
            (found.queries, found.pending, found.documents, found.chunks, found.unplaced, found.expecting)
        )

    return cached(connection, ("standing canaries", suite.id, suite.revision), read)


def found_documents(connection: Connection, run: RunRow) -> FoundDocuments:
    """Return what the canaries of an ended run found, read once."""

    def read() -> tuple[FoundDocuments, int]:
        found = _read_results(connection, run)
        return found, _size((found.by_chunk, found.by_chunk.values(), found.watched, found.watched.values()))

    return cached(connection, ("found documents", run.id), read)


def queries_in_tasks(connection: Connection, suite_id: int) -> frozenset[str]:
    """Return the queries of the canaries that tasks of a suite froze, archived tasks too, normalised."""

    def read(task_id: int) -> tuple[frozenset[str], int]:
        found = frozenset(map(normalise_query, task_rows.task_queries(connection, task_id)))
        return found, _size((found,))

    found: set[str] = set()
    for task_id in task_rows.frozen_tasks(connection, suite_id):
        found |= cached(connection, ("task queries", task_id), partial(read, task_id))
    return frozenset(found)


def _read_canaries(connection: Connection, suite_id: int) -> StandingCanaries:
    queries, pending, documents, chunks, expecting = set[str](), set[str](), set[str](), set[str](), set[int]()
    unnamed, unplaced = 0, set[str]()
    after = ""
    while block := catalog.list_canaries(connection, suite_id, after=after, limit=_CANARIES_BLOCK):
        after = block[-1].key
        for row in block:
            body = row.body
            query = normalise_query(body["query"])
            queries.add(query)
            decided = body["expected_chunks"] or body["forbidden_chunks"] or body["expect_empty"]
            if not decided and body["category"] != Category.NEGATIVE:
                pending.add(query)
            relevant = [chunk for chunk in body["expected_chunks"] if chunk["grade"] >= 1]
            if relevant:
                expecting.add(row.id)
                unnamed += all(chunk["id"] is None and chunk["document"] is None for chunk in relevant)
            documents.update(str(chunk["document"]) for chunk in relevant if chunk["document"] is not None)
            chunks.update(str(chunk["id"]) for chunk in relevant if chunk["id"] is not None)
            unplaced.update(str(one["id"]) for one in relevant if one["id"] is not None and one["document"] is None)
    return StandingCanaries(
        queries=frozenset(queries),
        pending=frozenset(pending),
        documents=frozenset(documents),
        chunks=frozenset(chunks),
        expecting=frozenset(expecting),
        unplaced=frozenset(unplaced),
        unnamed=unnamed,
    )


def _read_results(connection: Connection, run: RunRow) -> FoundDocuments:
    by_chunk: dict[str, str] = {}
    watched: dict[int, str] = {}
    if run.suite_version_id is None:
        return FoundDocuments(by_chunk=by_chunk, watched=watched)
    canary_ids = load_suite(connection, run.suite_version_id).canary_ids
    _, failures = run_rows.probes_of(connection, run.id)
    unscored = frozenset(run_rows.unscored_at(connection, run.id))
    for block in blocks(range(len(canary_ids)), _CANARIES_BLOCK):
        states = state_rows.states_of(connection, run.check_id, run.id, [canary_ids[place] for place in block])
        rankings = ranking_rows.load_rankings(connection, [state.ranking_id for state in states.values()])
        for place in block:
            state = states.get(canary_ids[place])
            if state is None or place in failures:
                continue
            ranking, relevant = rankings[state.ranking_id], Match.from_bytes(state.matched).relevant
            hits = [(ranking.ids[rank], ranking.documents[rank]) for rank, is_one in enumerate(relevant) if is_one]
            by_chunk.update(
                (chunk, document or chunk) for chunk, document in zip(ranking.ids, ranking.documents, strict=True)
            )
            reasons = state.reasons & ~RELEVANCE if place in unscored else state.reasons
            if hits and not reasons:
                watched[canary_ids[place]] = hits[0][1] or hits[0][0]
    return FoundDocuments(by_chunk=by_chunk, watched=watched)


def _size(parts: Sequence[Any]) -> int:
    """Return about how many bytes texts take in memory, those that several share counted each time."""
    return sum(getsizeof(text) + _BYTES_PER_ENTRY for part in parts for text in part)
