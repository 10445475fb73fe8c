"""Checks the embedder of a retriever in every run: its vectors of known texts against those of its reference.

Beside it questions of diagnoses to a retriever, within a time limit, and which checks use a retriever.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import groupby
from typing import Any
from urllib.parse import urlsplit

from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.values import Answer, EmbedderChange, LatencyView, Outcome, ReportProgress
from app.catalog import store as catalog
from app.catalog.service.references import require
from app.diagnosis.domain import Question
from app.records import documents as shapes
from app.records.domain import RunDetails
from app.records.store import results
from app.retrievers import store as embedders
from app.retrievers.domain.probes import CircuitBreaker, EmbedderReference, EmbedderView, StoredFinding
from app.retrievers.domain.retrievers import (
    Embed,
    Embedder,
    EmbedderFinding,
    EmbeddingResult,
    Probe,
    ProbeContext,
    ProbeQuery,
    ReferenceVectors,
    Retriever,
    Scorer,
    ScorerKind,
    compare_embedder,
    distinct_texts,
    embedding_canaries,
    is_external,
    watched_embedder,
)
from app.retrievers.store import EmbedderRow

_DIGITS = 3  # of cosines: the arithmetic of models repeats itself no better, and equal findings are stored once


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderRecord:
    """Finding of a run about its retriever's embedder."""

    embedder_id: int
    outcome: Outcome
    body: StoredFinding


def check_embedder(
    store: Store, embed: Embed, retriever: Retriever, *, run_id: int, now: datetime
) -> EmbedderRecord | None:
    """Embed the known texts and compare; None where the retriever has no embedder.

    The first answer of an embedder becomes its reference. Raises InvalidInputError for one that cannot be asked at
    all; its failures are findings.
    """
    embedder = watched_embedder(retriever)
    if embedder is None:
        return None
    pairs = embedding_canaries(embedder)
    embedded = embed(embedder, distinct_texts(pairs), refresh=True)
    row = _load_or_learn(store, run_id, embedder, embedded, now=now)
    host = _host(embedder)
    if embedded.outcome is not Outcome.OK or row.vectors is None:
        body = _failure_body(embedded, f"the embedder at {host} does not answer: {embedded.detail}")
    else:
        finding = compare_embedder(ReferenceVectors(pairs=pairs, vectors=row.vectors), embedded.vectors, where=host)
        if row.learned_run == run_id and finding.kind is EmbedderChange.SAME:
            finding = replace(finding, reason=f"the embedder at {host} was learned by {len(row.vectors)} texts")
        body = _finding_body(finding)
    return EmbedderRecord(embedder_id=row.id, outcome=embedded.outcome, body=body)


def save_record(connection: Connection, run_id: int, finding: EmbedderRecord | None) -> None:
    """Save the finding of a run, inside the transaction that ends it."""
    if finding is not None:
        embedders.save_finding(connection, run_id, finding.embedder_id, finding.body)


def embedder_view(store: Store, slug: str) -> EmbedderView:
    """Return the last finding about a retriever's embedder, nulls where there is none. Raises NotFoundError."""
    with store.read() as connection:
        retriever = require(catalog.find_definition(connection, "retriever", slug), f"retriever '{slug}'")
        row = embedders.newest_embedder(connection, retriever.id) or _NO_EMBEDDER
        times = results.run_times(connection, [run for run in (row.seen_run, row.since_run) if run is not None])
    return EmbedderView(
        retriever=slug,
        model=row.model or None,
        reference=None
        if row.vectors is None
        else EmbedderReference(
            run=_run_id(row.learned_run),
            at=shapes.time_text(row.learned_at),
            dimensions=len(next(iter(row.vectors.values()))),
            texts=len(row.vectors),
        ),
        finding=shapes.finding_shape(row.finding),
        run=_run_id(row.seen_run),
        at=shapes.time_text(times.get(row.seen_run or 0)),
        since_run=_run_id(row.since_run),
        since=shapes.time_text(times.get(row.since_run or 0)),
    )


_NO_EMBEDDER = EmbedderRow(
    id=0, model="", vectors=None, learned_at=None, learned_run=None, finding=None, seen_run=None, since_run=None
)


def reset_reference(store: Store, slug: str) -> None:
    """Let the next run learn a new reference. Raises NotFoundError where there is no such retriever."""
    with store.write() as connection:
        retriever = require(catalog.find_definition(connection, "retriever", slug), f"retriever '{slug}'")
        embedders.forget(connection, retriever.id)


def _load_or_learn(
    store: Store, run_id: int, embedder: Embedder, embedded: EmbeddingResult, *, now: datetime
) -> EmbedderRow:
    """Return the row of an embedder; these vectors become its reference where it has none."""
    digest = _digest(embedder)
    with store.read() as connection:
        retriever_id = embedders.retriever_of(connection, run_id)
        row = embedders.find_embedder(connection, retriever_id, digest)
    learns = embedded.outcome is Outcome.OK and (row is None or row.vectors is None)
    if row is not None and not learns:
        return row
    with store.write() as connection:
        row = embedders.save_embedder(connection, retriever_id, digest, embedder.model)
        if learns:
            embedders.learn(connection, row.id, embedded.vectors, run_id=run_id, at=to_us(now))
        return embedders.find_embedder(connection, retriever_id, digest) or row


def _digest(embedder: Embedder) -> bytes:
    """Return 16 bytes that name an embedder by what its reference depends on."""
    pairs = [(pair.key, pair.texts, pair.similar) for pair in embedding_canaries(embedder)]
    parts = [embedder.endpoint.url, embedder.model, embedder.dimensions, pairs]
    return blake2b(json.dumps(parts).encode(), digest_size=16).digest()


def _host(embedder: Embedder) -> str:
    """Return host and port of an embedder: path and query may hold secrets."""
    return urlsplit(embedder.endpoint.url).netloc.rpartition("@")[2]


def _failure_body(embedded: EmbeddingResult, reason: str) -> StoredFinding:
    return {
        "outcome": embedded.outcome,
        "http_status": embedded.http_status,
        "kind": None,
        "reason": reason,
        "dimensions": None,
        "pairs": [],
    }


def _finding_body(finding: EmbedderFinding) -> StoredFinding:
    return {
        "outcome": Outcome.OK,
        "http_status": None,
        "kind": finding.kind,
        "reason": finding.reason,
        "dimensions": finding.dimensions,
        "pairs": [
            {
                "key": pair.key,
                "similar": pair.similar,
                "cosine": round(pair.cosine, _DIGITS) + 0.0,
                "reference": round(pair.reference, _DIGITS) + 0.0,
                "agreement": round(pair.agreement, _DIGITS) + 0.0,
            }
            for pair in finding.pairs
        ],
    }


def _run_id(run: int | None) -> str | None:
    return None if run is None else str(run)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueuedQuestion:
    """A question in the queue: its canary, and its place among that canary's questions."""

    subject: int
    place: int
    key: str
    question: Question


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
    retriever = _without_external_scorer(retriever)
    answer_count, total = 0, sum(len(questions) for _, questions in questions_by_canary)
    progress(answer_count, total)
    for k, block in _group_by_k(questions_by_canary):
        if budget.is_spent() or breaker.is_open:
            break
        asking = ProbeContext(retriever=retriever, k=k, run_id=run_id)
        asks = [
            ProbeQuery(position=number, query=queued.question.query, key=queued.key)
            for number, queued in enumerate(block)
        ]
        with closing(probe(asking, asks)) as batches:  # type: ignore[type-var] # a generator; Iterator has no close()
            for batch in batches:
                for position, answer in batch:
                    queued = block[position]
                    answers[queued.subject][queued.place] = answer
                answer_count += len(batch)
                progress(answer_count, total)
                breaker = breaker.after(answer for _, answer in batch)
                if budget.is_spent() or breaker.is_open:
                    break
    return answers


def _group_by_k(
    questions_by_canary: Sequence[tuple[str, Sequence[Question]]],
) -> Iterator[tuple[int, list[_QueuedQuestion]]]:
    """Yield (k, questions) in order: a probe requests one number of hits."""
    queue = [
        _QueuedQuestion(subject=subject, place=place, key=key, question=questions[place])
        for place in range(max((len(questions) for _, questions in questions_by_canary), default=0))
        for subject, (key, questions) in enumerate(questions_by_canary)
        if place < len(questions)
    ]
    for k, block in groupby(queue, key=lambda queued: queued.question.k):
        yield k, list(block)


def _without_external_scorer(retriever: Retriever) -> Retriever:
    """Return the retriever without its external scorer: diagnoses need ranks and own scores alone."""
    if not is_external(retriever.scorer):
        return retriever
    return replace(retriever, scorer=Scorer(kind=ScorerKind.JUDGED))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrieverCheck:
    """A check that uses a retriever, with its last ended run."""

    check: str
    suite: str
    run_id: str | None
    """None before the first."""
    ended_at: datetime | None
    outcomes: Mapping[str, int]
    """Number of probes by outcome; empty where the run could not be executed."""
    latency: LatencyView | None


def checks_by_retriever(store: Store) -> dict[str, list[RetrieverCheck]]:
    """Return the checks in force by the slug of their retriever."""
    checks: dict[str, list[RetrieverCheck]] = {}
    with store.read() as connection:
        newest = results.latest_bodies(connection)
        times = results.run_times(connection, [run_id for run_id, _ in newest.values()])
        for check in catalog.list_definitions(connection, "check"):
            run_id, body = newest.get(check.id, (None, RunDetails()))
            checks.setdefault(str(check.body["retriever"]), []).append(
                _retriever_check(check.slug, check.body, run_id, body, times)
            )
    return checks


def _retriever_check(
    check: str,
    definition: Mapping[str, Any],
    run_id: int | None,
    body: RunDetails,
    times: Mapping[int, int],
) -> RetrieverCheck:
    at = times.get(run_id) if run_id is not None else None
    return RetrieverCheck(
        check=check,
        suite=str(definition["suite"]),
        run_id=None if run_id is None else str(run_id),
        ended_at=None if at is None else from_us(at),
        outcomes=body.get("probes", {}),
        latency=body.get("latency_seconds"),
    )
