"""Retrievers in runs: findings on their embedders, their checks with how the last runs ended, and shared limits.

Every run compares the vectors that the embedder gives for known texts with those of its reference. The limits are those
that all replicas share, within which whoever asks a retriever holds a lane.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from itertools import count
from typing import Final, cast
from urllib.parse import urlsplit

from app.base.db.engine import Connection, Store, from_us, to_us
from app.base.values import Answer, EmbedderChange, LatencyView, Outcome
from app.base.views import id_text, time_text
from app.catalog import store as catalog
from app.catalog.store import require
from app.records.domain import RunDetails
from app.records.store import run_rows
from app.records.views import finding_shape
from app.retrievers import store as retriever_rows
from app.retrievers.domain.probes import EmbedderReference, EmbedderView, StoredFinding, StoredPair, fan_out, lane_count
from app.retrievers.domain.retrievers import (
    Embed,
    Embedder,
    EmbedderFinding,
    EmbeddingResult,
    Lane,
    Probe,
    ProbeContext,
    ProbeQuery,
    ReferenceVectors,
    Retriever,
    compare_embedder,
    distinct_texts,
    embedding_canaries,
    watched_embedder,
)
from app.retrievers.store import EmbedderRow, hold_lane

_DIGITS = 3  # of cosines: the arithmetic of models repeats itself no better, and equal findings are stored once


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderRecord:
    """Finding of a run about its retriever's embedder."""

    embedder_id: int
    outcome: Outcome
    body: StoredFinding


def check_embedder(
    store: Store, embed: Embed | None, retriever: Retriever, *, run_id: int, now: datetime
) -> EmbedderRecord | None:
    """Embed the known texts and compare; None where the retriever has no embedder, or it is not watched.

    The first answer of an embedder becomes its reference. Raises InvalidInputError for one that cannot be asked at
    all; its failures are findings.
    """
    embedder = watched_embedder(retriever)
    if embed is None or embedder is None:
        return None
    pairs = embedding_canaries(embedder)
    embedded = embed(embedder, distinct_texts(pairs), refresh=True)
    row = _load_or_learn(store, run_id, embedder, embedded, now=now)
    host = urlsplit(embedder.endpoint.url).netloc.rpartition("@")[2]  # path and query may hold secrets
    if embedded.outcome is not Outcome.OK or row.vectors is None:
        body: StoredFinding = {
            "outcome": embedded.outcome,
            "http_status": embedded.http_status,
            "kind": None,
            "reason": f"the embedder at {host} does not answer: {embedded.detail}",
            "dimensions": None,
            "pairs": [],
        }
    else:
        finding = compare_embedder(ReferenceVectors(pairs=pairs, vectors=row.vectors), embedded.vectors, where=host)
        if row.learned_run == run_id and finding.kind is EmbedderChange.SAME:
            finding = replace(finding, reason=f"the embedder at {host} was learned by {len(row.vectors)} texts")
        body = _finding_body(finding)
    return EmbedderRecord(embedder_id=row.id, outcome=embedded.outcome, body=body)


def save_record(connection: Connection, run_id: int, finding: EmbedderRecord | None) -> None:
    """Save the finding of a run, inside the transaction that ends it."""
    if finding is not None:
        retriever_rows.save_finding(connection, run_id, finding.embedder_id, finding.body)


def embedder_view(store: Store, slug: str) -> EmbedderView:
    """Return the last finding about a retriever's embedder, nulls where there is none. Raises NotFoundError."""
    with store.read() as connection:
        retriever = require(catalog.find_definition(connection, "retriever", slug), f"retriever '{slug}'")
        row = retriever_rows.newest_embedder(connection, retriever.id) or _NO_EMBEDDER
        times = run_rows.run_times(connection, [run for run in (row.seen_run, row.since_run) if run is not None])
    return EmbedderView(
        retriever=slug,
        model=row.model or None,
        reference=None
        if row.vectors is None
        else EmbedderReference(
            run=id_text(row.learned_run),
            at=time_text(row.learned_at),
            dimensions=len(next(iter(row.vectors.values()))),
            texts=len(row.vectors),
        ),
        finding=finding_shape(row.finding),
        run=id_text(row.seen_run),
        at=time_text(times.get(row.seen_run or 0)),
        since_run=id_text(row.since_run),
        since=time_text(times.get(row.since_run or 0)),
    )


_NO_EMBEDDER = EmbedderRow(
    id=0, model="", vectors=None, learned_at=None, learned_run=None, finding=None, seen_run=None, since_run=None
)


def reset_reference(store: Store, slug: str) -> None:
    """Let the next run learn a new reference. Raises NotFoundError where there is no such retriever."""
    with store.write() as connection:
        retriever = require(catalog.find_definition(connection, "retriever", slug), f"retriever '{slug}'")
        retriever_rows.forget(connection, retriever.id)


def _load_or_learn(
    store: Store, run_id: int, embedder: Embedder, embedded: EmbeddingResult, *, now: datetime
) -> EmbedderRow:
    """Return the row of an embedder; these vectors become its reference where it has none."""
    digest = _digest(embedder)
    with store.read() as connection:
        retriever_id = retriever_rows.retriever_of(connection, run_id)
        row = retriever_rows.find_embedder(connection, retriever_id, digest)
    learns = embedded.outcome is Outcome.OK and (row is None or row.vectors is None)
    if row is not None and not learns:
        return row
    with store.write() as connection:
        row = retriever_rows.save_embedder(connection, retriever_id, digest, embedder.model)
        if learns:
            retriever_rows.learn(connection, row.id, embedded.vectors, run_id=run_id, at=to_us(now))
        return retriever_rows.find_embedder(connection, retriever_id, digest) or row


def _digest(embedder: Embedder) -> bytes:
    """Return 16 bytes that name an embedder by what its reference depends on."""
    pairs = [(pair.key, pair.texts, pair.similar) for pair in embedding_canaries(embedder)]
    parts = [embedder.endpoint.url, embedder.model, embedder.dimensions, pairs]
    return blake2b(json.dumps(parts).encode(), digest_size=16).digest()


def _finding_body(finding: EmbedderFinding) -> StoredFinding:
    return {
        "outcome": Outcome.OK,
        "http_status": None,
        "kind": finding.kind,
        "reason": finding.reason,
        "dimensions": finding.dimensions,
        "pairs": [
            cast(
                "StoredPair",
                {
                    name: round(one, _DIGITS) + 0.0 if isinstance(one, float) else one
                    for name, one in asdict(pair).items()
                },
            )
            for pair in finding.pairs
        ],
    }


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
        newest = run_rows.latest_bodies(connection)
        times = run_rows.run_times(connection, [run_id for run_id, _ in newest.values()])
        for check in catalog.list_definitions(connection, "check"):
            run_id, body = newest.get(check.id, (None, RunDetails()))
            at = None if run_id is None else times.get(run_id)
            checks.setdefault(str(check.body["retriever"]), []).append(
                RetrieverCheck(
                    check=check.slug,
                    suite=str(check.body["suite"]),
                    run_id=id_text(run_id),
                    ended_at=None if at is None else from_us(at),
                    outcomes=body.get("probes", {}),
                    latency=body.get("latency_seconds"),
                )
            )
    return checks


logger = logging.getLogger("coalmine.probing")
LANE_SECONDS: Final = 30.0
"""Longest wait for a lane. Whoever holds it for longer is frozen, or slower than anybody should wait for."""
SHARD_LANE_SECONDS: Final = 5.0
"""Longest wait of a shard of a run: whoever holds a lane, or waits for it, may be frozen."""
ROUNDS: Final = 4
"""Queries, for each request at a time, that are asked before others get the lane."""


def share_limits(store: Store, probe: Probe) -> Probe:
    """Return a probe whose limits hold over all processes of this database; on SQLite there is one."""
    return SharedProbe(store, probe) if store.dialect == "postgresql" else probe


class SharedProbe:
    """Asks in the lane of a context, and where it has none, in one of the retriever's."""

    def __init__(self, store: Store, probe: Probe, *, patience: float = LANE_SECONDS) -> None:
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
