"""Reach of a suite over its traffic, estimated from the sample that was asked, and suggestions for what is left out.

What canaries cover changes with every edit and run, see `standing_canaries`.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from app.annotation.domain.views import GroupView, ReachState, SuggestionView, TrafficReachView, TrafficView
from app.annotation.service.standing_canaries import found_documents, queries_in_tasks, standing_canaries
from app.base.db.engine import Connection, Store, from_us
from app.base.errors import NotFoundError
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition
from app.records import documents as shapes
from app.records.store import results
from app.records.store.results import RunRow
from app.traffic.documents.traffic_documents import Grouping
from app.traffic.domain import reach as estimates
from app.traffic.domain.reach import TrafficSample
from app.traffic.domain.segments import guess_segments, is_negative_candidate
from app.traffic.service.traffic import find_suite, load_traffic
from app.traffic.store import traffic as rows
from app.traffic.store.traffic import ReachRow, TrafficQuery

_SHOWN_GROUPS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTraffic:
    """Traffic of a suite with a retriever, its reach (None = never asked for), and suggestions where wanted."""

    traffic: TrafficView
    reach: TrafficReachView | None
    suggestions: Sequence[SuggestionView]


def load_reach(store: Store, suite: str, retriever: str) -> TrafficReachView:
    """Return the reach of a suite over the traffic of a retriever, as far as it is asked. Raises NotFoundError."""
    sample = _require_sample(store, suite, retriever)
    return _view(sample, _covered_groups(store, sample))


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
                reach=None if sample is None else _view(sample, covered),
                suggestions=() if sample is None else _suggestions(store, sample, covered, suggestions),
            )
        )
    return found


def _view(sample: "_Sample", covered: AbstractSet[str]) -> TrafficReachView:
    reach = sample.reach
    found = estimates.estimate_reach(
        sample.counts, sample.drawn, {place: group in covered for place, group in sample.groups.items()}
    )
    traffic = estimates.group_traffic(sample.counts, sample.drawn, sample.groups)
    groups: list[GroupView] = [
        {"group": group, "traffic": shapes.rounded(queries), "covered": group in covered}
        for group, queries in traffic.items()
    ]
    return {
        "retriever": reach.retriever,
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


def _suggestions(store: Store, sample: "_Sample", covered: AbstractSet[str], limit: int) -> list[SuggestionView]:
    if not limit:
        return []
    texts = [one.query if one is not None else "" for one in sample.queries]
    taken_up, pending = _taken_up(store, sample)
    found = estimates.suggest_queries(
        texts,
        sample.counts,
        sample.drawn,
        sample.groups,
        covered,
        taken_up={place for place, text in enumerate(texts) if text in taken_up},
        pending={place for place, text in enumerate(texts) if text in pending},
    )
    place_of = {text: place for place, text in enumerate(texts)}
    return [
        {
            "query": one.query,
            "group": one.group,
            "traffic": shapes.rounded(one.traffic),
            "segments": [*sample.segments(place_of[one.query])],
            "negative_candidate": is_negative_candidate(sample.top_score(place_of[one.query])),
        }
        for one in found[:limit]
    ]


def _taken_up(store: Store, sample: "_Sample") -> tuple[AbstractSet[str], AbstractSet[str]]:
    """Return the normalised queries of canaries and of tasks, and those of canaries that nothing is decided of yet."""
    with store.read() as connection:
        standing = standing_canaries(connection, _suite(connection, sample.reach))
        return standing.queries | queries_in_tasks(connection, sample.reach.suite_id), standing.pending


def _find_sample(store: Store, suite: str, retriever: str) -> "_Sample | None":
    with store.read() as connection:
        reach = rows.find_reach(connection, find_suite(connection, suite), retriever)
        return None if reach is None else _Sample.read(connection, reach)


def _require_sample(store: Store, suite: str, retriever: str) -> "_Sample":
    sample = _find_sample(store, suite, retriever)
    if sample is None:
        raise NotFoundError(f"the reach of suite '{suite}' over the traffic of '{retriever}' was not asked for yet")
    return sample


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
    documents = set(standing.documents)
    documents |= {document or chunk for chunk, document in sample.first_hits if chunk in standing.chunks}
    for run in runs:
        documents |= run.watched | {run.by_chunk[chunk] for chunk in standing.chunks & run.by_chunk.keys()}
    return {_group(document, sample.grouping) for document in documents}


def _suite(connection: Connection, reach: ReachRow) -> Definition:
    return definitions.definition_by_id(connection, reach.suite_id)


def _newest_runs(connection: Connection, reach: ReachRow) -> list[RunRow]:
    """Return the newest ended run of each check of the suite with the retriever."""
    checks = [
        row
        for row in definitions.list_definitions(connection, "check")
        if row.body["suite"] == reach.suite and row.body["retriever"] == reach.retriever
    ]
    found = [results.newest_ended(connection, check.id) for check in checks]
    return [run for run in found if run is not None and run.suite_version_id is not None]
