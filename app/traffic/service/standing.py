"""What the canaries of a suite expect and find: which documents they stand for, and which queries they ask.

A suite may have 100,000 canaries and pages ask each time, so canaries are read once for each revision of their suite,
results once for each run, and a task's queries once.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from sys import getsizeof
from typing import Any, Final

from app.annotation.store import task_rows
from app.base.db.engine import (
    Connection,
    blocks,
    cached,
)
from app.base.values import Category, Value
from app.catalog import store as catalog
from app.catalog.service.versions import load_suite
from app.catalog.store import Definition
from app.records.store import ranking_rows, run_rows, state_rows
from app.records.store.run_rows import RunRow
from app.scoring.evaluation import RELEVANCE
from app.scoring.rankings import Match
from app.traffic.domain import (
    normalise_query,
)

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
    unnamed: frozenset[int]
    """Those of them that name neither id nor document of any, so that only a run tells what they find."""


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
            (
                found.queries,
                found.pending,
                found.documents,
                found.chunks,
                found.unplaced,
                found.expecting,
                found.unnamed,
            )
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
    unnamed, unplaced = set[int](), set[str]()
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
                if all(chunk["id"] is None and chunk["document"] is None for chunk in relevant):
                    unnamed.add(row.id)
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
        unnamed=frozenset(unnamed),
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
