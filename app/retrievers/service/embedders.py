"""Embedders of retrievers: each run compares the vectors one gives for known texts with those of its reference."""

import json
from datetime import datetime
from hashlib import blake2b
from typing import cast
from urllib.parse import urlsplit

from app.base.db.engine import Connection, Store, to_us
from app.base.values import EmbedderChange, Outcome, Value, asdict, replace
from app.base.views import id_text, time_text
from app.catalog import store as catalog
from app.catalog.store import require
from app.records.store import run_rows
from app.records.views import finding_shape
from app.retrievers import store as retriever_rows
from app.retrievers.domain.probes import EmbedderReference, EmbedderView, StoredFinding, StoredPair
from app.retrievers.domain.retrievers import (
    Embed,
    Embedder,
    EmbedderFinding,
    EmbeddingResult,
    ReferenceVectors,
    Retriever,
    compare_embedder,
    distinct_texts,
    embedding_canaries,
    watched_embedder,
)
from app.retrievers.store import EmbedderRow

_DIGITS = 3  # of cosines: the arithmetic of models repeats itself no better, and equal findings are stored once


class EmbedderRecord(Value):
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
