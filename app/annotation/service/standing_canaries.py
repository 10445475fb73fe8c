"""What canaries of a suite stand for: the documents they expect or find, and the queries that are taken up.

A suite may have 100,000 canaries and pages ask each time, so canaries are read once for each revision of their suite,
results once for each run, and a task's queries once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from sys import getsizeof
from typing import Any, Final

from app.annotation.store import tasks
from app.base.db.engine import Connection, blocks, cached
from app.base.values import Category
from app.catalog.service.snapshots import load_suite
from app.catalog.store import suites
from app.catalog.store.definitions import Definition
from app.records.store import results
from app.records.store.results import RunRow
from app.scoring.evaluation import RELEVANCE
from app.scoring.matching import Match
from app.traffic.documents import normalise_query

_BLOCK: Final = 500
_BYTES_PER_ENTRY: Final = 40
"""Size of an entry of a set or mapping beside its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingCanaries:
    """What the canaries of a suite in force ask and expect; queries are normalised as those of users are."""

    queries: frozenset[str]
    pending: frozenset[str]
    """Queries of which nothing is decided yet: no chunk is expected or forbidden."""
    documents: frozenset[str]
    chunks: frozenset[str]
    """Ids of expected chunks; which document they are of only answers tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDocuments:
    """What the canaries of a run found: the documents of relevant hits by chunk id, and those a passing one has first.

    A hit without a document is its own.
    """

    by_chunk: Mapping[str, str]
    watched: frozenset[str]


def standing_canaries(connection: Connection, suite: Definition) -> StandingCanaries:
    """Return what the canaries of a suite ask and expect, read once for each of its revisions."""

    def read() -> tuple[StandingCanaries, int]:
        found = _read_canaries(connection, suite.id)
        return found, _size((found.queries, found.pending, found.documents, found.chunks))

    return cached(connection, ("standing canaries", suite.id, suite.revision), read)


def found_documents(connection: Connection, run: RunRow) -> FoundDocuments:
    """Return what the canaries of an ended run found, read once."""

    def read() -> tuple[FoundDocuments, int]:
        found = _read_results(connection, run)
        return found, _size((found.by_chunk, found.by_chunk.values(), found.watched))

    return cached(connection, ("found documents", run.id), read)


def queries_in_tasks(connection: Connection, suite_id: int) -> frozenset[str]:
    """Return the queries of the canaries that tasks of a suite froze, archived tasks too, normalised."""

    def read(task_id: int) -> tuple[frozenset[str], int]:
        found = frozenset(map(normalise_query, tasks.task_queries(connection, task_id)))
        return found, _size((found,))

    found: set[str] = set()
    for task_id in tasks.frozen_tasks(connection, suite_id):
        found |= cached(connection, ("task queries", task_id), partial(read, task_id))
    return frozenset(found)


def _read_canaries(connection: Connection, suite_id: int) -> StandingCanaries:
    queries, pending, documents, chunks = set[str](), set[str](), set[str](), set[str]()
    for body in _bodies(connection, suite_id):
        query = normalise_query(body["query"])
        queries.add(query)
        if _is_pending(body):
            pending.add(query)
        for chunk in body["expected_chunks"]:
            if chunk["grade"] >= 1 and chunk["document"] is not None:
                documents.add(str(chunk["document"]))
            if chunk["grade"] >= 1 and chunk["id"] is not None:
                chunks.add(str(chunk["id"]))
    return StandingCanaries(
        queries=frozenset(queries),
        pending=frozenset(pending),
        documents=frozenset(documents),
        chunks=frozenset(chunks),
    )


def _bodies(connection: Connection, suite_id: int) -> Iterator[Mapping[str, Any]]:
    after = ""
    while rows := suites.list_canaries(connection, suite_id, after=after, limit=_BLOCK):
        yield from (row.body for row in rows)
        after = rows[-1].key


def _is_pending(body: Mapping[str, Any]) -> bool:
    decided = body["expected_chunks"] or body["forbidden_chunks"] or body["expect_empty"]
    return not decided and body["category"] != Category.NEGATIVE


def _read_results(connection: Connection, run: RunRow) -> FoundDocuments:
    by_chunk: dict[str, str] = {}
    watched: set[str] = set()
    if run.suite_version_id is None:
        return FoundDocuments(by_chunk=by_chunk, watched=frozenset())
    canary_ids = load_suite(connection, run.suite_version_id).canary_ids
    _, failures = results.probes_of(connection, run.id)
    unscored = frozenset(results.unscored_at(connection, run.id))
    for block in blocks(range(len(canary_ids)), _BLOCK):
        states = results.states_of(connection, run.check_id, run.id, [canary_ids[place] for place in block])
        rankings = results.load_rankings(connection, [state.ranking_id for state in states.values()])
        for place in block:
            state = states.get(canary_ids[place])
            if state is None or place in failures:
                continue
            ranking, relevant = rankings[state.ranking_id], Match.from_bytes(state.matched).relevant
            hits = [(ranking.ids[rank], ranking.documents[rank]) for rank, is_one in enumerate(relevant) if is_one]
            by_chunk.update((chunk, document or chunk) for chunk, document in hits)
            reasons = state.reasons & ~RELEVANCE if place in unscored else state.reasons
            if hits and not reasons:
                watched.add(hits[0][1] or hits[0][0])
    return FoundDocuments(by_chunk=by_chunk, watched=frozenset(watched))


def _size(parts: Sequence[Any]) -> int:
    """Return about how many bytes texts take in memory, those that several share counted each time."""
    return sum(getsizeof(text) + _BYTES_PER_ENTRY for part in parts for text in part)
