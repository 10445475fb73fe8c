"""What was found, stored once: rankings by their content, their texts, what they scored, and the names of scores.

Written while a run goes on, and read back equal. Which canary had which ranking when is in `state_rows`.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import blocks, cached, hold_content, ids_of, insert_new
from app.base.values import Ranking
from app.records.tables import chunks, layouts, rankings, scores, vectors
from app.scoring.rankings import HASH_BYTES, Scores, chunk_fingerprint


class RankingBody(msgspec.Struct, array_like=True, frozen=True):
    """A stored ranking: chunk ids, and scores as whole multiples of 10 ** -decimals; beyond 53 bits as they are."""

    returned: int
    decimals: int
    chunks: list[int]
    scores: list[int | float | None]
    updated: list[int | float | None] | None = None
    """Seconds since 1970; rows written before there were times end with the scores."""
    relevance: float | None = None


def save_rankings(connection: Connection, decimals: int, new: Mapping[bytes, Ranking]) -> dict[bytes, int]:
    """Store rankings under their fingerprints, and their texts, each once; give the id of every one."""
    hold_content(connection)
    ids = ids_of(connection, rankings, list(new))
    missing = {digest: ranking for digest, ranking in new.items() if digest not in ids}
    if not missing:
        return ids
    chunk_ids, digests_of = _save_chunks(connection, missing)
    scale = 10**decimals
    rows = [
        (
            digest,
            msgspec.msgpack.encode(
                RankingBody(
                    returned=ranking.returned,
                    decimals=decimals,
                    chunks=[chunk_ids[chunk] for chunk in digests_of[digest]],
                    scores=[_packed_score(score, scale) for score in ranking.scores],
                    updated=None if ranking.updated is None else [_packed_score(at, 1) for at in ranking.updated],
                    relevance=ranking.relevance,
                )
            ),
            ranking.content_fingerprint,
        )
        for digest, ranking in missing.items()
    ]
    insert_new(connection, rankings, ("hash", "body", "content_hash"), rows)
    return ids | ids_of(connection, rankings, list(missing))


_EXACT = 2.0**53  # whole numbers up to here are floats


def _packed_score(score: float | None, scale: int) -> int | float | None:
    if score is None or abs(score) >= _EXACT / scale:
        return score
    whole = round(score * scale)
    return whole if whole / scale == score else score


def _save_chunks(
    connection: Connection, new: Mapping[bytes, Ranking]
) -> tuple[dict[bytes, int], dict[bytes, list[bytes]]]:
    content: dict[bytes, tuple[bytes, str, str | None, str | None]] = {}
    digests_of: dict[bytes, list[bytes]] = {}
    for ranking_digest, ranking in new.items():
        digests = digests_of[ranking_digest] = []
        for chunk, document, text in zip(ranking.ids, ranking.documents, ranking.texts, strict=True):
            digest = chunk_fingerprint(chunk, document, text)
            digests.append(digest)
            content[digest] = (digest, chunk, document, text)
    ids = ids_of(connection, chunks, list(content))
    fresh = [row for digest, row in content.items() if digest not in ids]
    if fresh:
        insert_new(connection, chunks, ("hash", "chunk", "document", "text"), fresh)
        ids |= ids_of(connection, chunks, [row[0] for row in fresh])
    return ids, digests_of


def save_content_hashes(connection: Connection, content_hashes: Mapping[int, bytes | None]) -> None:
    """Fill in what earlier releases did not write, by ranking id."""
    rows = [{"ranking": ranking_id, "content": digest} for ranking_id, digest in content_hashes.items()]
    mine = sa.update(rankings).where(rankings.c.id == sa.bindparam("ranking"))
    connection.execute(mine.values(content_hash=sa.bindparam("content")), rows)


def load_rankings(connection: Connection, ranking_ids: Sequence[int]) -> dict[int, Ranking]:
    """Read rankings back, equal to what was saved."""
    bodies = load_bodies(connection, ranking_ids)
    content: dict[int, Any] = {}
    for block in blocks(sorted({chunk for body in bodies.values() for chunk in body.chunks})):
        rows = connection.execute(
            sa.select(chunks.c.id, chunks.c.chunk, chunks.c.document, chunks.c.text).where(chunks.c.id.in_(block))
        )
        content.update((row.id, row) for row in rows)
    return {ranking_id: _ranking(body, content) for ranking_id, body in bodies.items()}


def load_bodies(connection: Connection, ranking_ids: Iterable[int]) -> dict[int, RankingBody]:
    """Read rankings as they are stored, with the ids of their texts."""
    bodies: dict[int, RankingBody] = {}
    for block in blocks(sorted(set(ranking_ids))):
        rows = connection.execute(_BODIES, {"ids": block})
        bodies.update((row.id, msgspec.msgpack.decode(row.body, type=RankingBody)) for row in rows)
    return bodies


_BODIES = sa.select(rankings.c.id, rankings.c.body, rankings.c.content_hash).where(
    rankings.c.id.in_(sa.bindparam("ids", expanding=True))
)


def _ranking(body: RankingBody, content: Mapping[int, Any]) -> Ranking:
    hits = [content[chunk] for chunk in body.chunks]
    return Ranking(
        ids=tuple([hit.chunk for hit in hits]),
        documents=tuple([hit.document for hit in hits]),
        texts=tuple([hit.text for hit in hits]),
        scores=_scores(body),
        returned=body.returned,
        updated=None if body.updated is None else tuple([at if at is None else float(at) for at in body.updated]),
        relevance=body.relevance,
    )


def load_scores(connection: Connection, ranking_ids: Collection[int]) -> dict[int, tuple[bytes | None, Scores]]:
    """Read what tells whether only scores differ, by ranking id: the hash of all else, and the scores."""
    found: dict[int, tuple[bytes | None, Scores]] = {}
    for block in blocks(sorted(ranking_ids)):
        for ranking_id, packed, content_hash in connection.execute(_BODIES, {"ids": block}):
            body = msgspec.msgpack.decode(packed, type=RankingBody)
            found[ranking_id] = content_hash, Scores(of_hits=_scores(body), relevance=body.relevance)
    return found


def _scores(body: RankingBody) -> tuple[float | None, ...]:
    scale = 10**body.decimals
    return tuple([score / scale if isinstance(score, int) else score for score in body.scores])


def save_scores(connection: Connection, layout: int, rows: Sequence[tuple[int, int, bytes, bytes]]) -> None:
    """Store what rankings scored: rows of (ranking id, canary version id, matched, vector)."""
    hold_content(connection)
    digests = [blake2b(vector, digest_size=HASH_BYTES).digest() for *_, vector in rows]
    content = {digest: (digest, row[3]) for digest, row in zip(digests, rows, strict=True)}
    ids = ids_of(connection, vectors, list(content))
    fresh = [row for digest, row in content.items() if digest not in ids]
    if fresh:
        insert_new(connection, vectors, ("hash", "body"), fresh)
        ids |= ids_of(connection, vectors, [row[0] for row in fresh])
    insert_new(
        connection,
        scores,
        ("ranking_id", "canary_version_id", "layout_id", "matched", "vector_id"),
        [
            (ranking_id, version_id, layout, matched, ids[digest])
            for digest, (ranking_id, version_id, matched, _) in zip(digests, rows, strict=True)
        ],
    )


def scores_of(
    connection: Connection, pairs: Iterable[tuple[int, int]], layout: int
) -> dict[tuple[int, int], tuple[bytes, bytes]]:
    """Read what rankings scored: `matched` and vector by (ranking id, canary version id), those that are there."""
    ordered = sorted(set(pairs))
    scored: dict[tuple[int, int], tuple[bytes, bytes]] = {}
    for block in blocks(ordered, 200):  # bound twice, and the databases try every combination
        statement = (
            sa.select(scores.c.ranking_id, scores.c.canary_version_id, scores.c.matched, vectors.c.body)
            .join(vectors, vectors.c.id == scores.c.vector_id)
            .where(
                scores.c.ranking_id.in_([ranking for ranking, _ in block]),
                scores.c.canary_version_id.in_([version for _, version in block]),
                scores.c.layout_id == layout,
            )
        )
        for ranking, version, matched, vector in connection.execute(statement):
            scored[ranking, version] = matched, vector
    return scored


def layout_id(connection: Connection, names: Sequence[str], measures_version: str, yardstick: str) -> int:
    """Give the id of a list of vector names judged by a yardstick, storing it if it is new."""
    stored = find_layout_id(connection, names, measures_version, yardstick)
    if stored is not None:
        return stored
    digest = _layout_hash(names, measures_version, yardstick)
    columns = ("hash", "measures_version", "names", "yardstick")
    insert_new(connection, layouts, columns, [(digest, measures_version, json.dumps(list(names)), yardstick)])
    return ids_of(connection, layouts, [digest])[digest]


def find_layout_id(connection: Connection, names: Sequence[str], measures_version: str, yardstick: str) -> int | None:
    """Id of a list of vector names judged by a yardstick; None = it is not stored yet.

    It stays for good once it is, so a reading transaction keeps it in memory.
    """
    digest = _layout_hash(names, measures_version, yardstick)
    try:
        return cached(
            connection, ("layout", digest), lambda: (ids_of(connection, layouts, [digest])[digest], _LAYOUT_BYTES)
        )
    except KeyError:
        return None


_LAYOUT_BYTES = 100  # in memory


def _layout_hash(names: Sequence[str], measures_version: str, yardstick: str) -> bytes:
    text = json.dumps([measures_version, yardstick, *names])
    return blake2b(text.encode(), digest_size=HASH_BYTES).digest()


def layout_names(connection: Connection, layout: int) -> list[str]:
    """Read the names of the numbers in vectors of a layout."""
    return list(json.loads(connection.execute(sa.select(layouts.c.names).where(layouts.c.id == layout)).scalar_one()))
