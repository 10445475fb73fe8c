"""What happened, written: states only on change, one vector a run.

All of it is called inside the transaction of the service that records; see history for reading it back.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection

from app.base.db.engine import blocks, cached, hold_content, ids_of, insert_new, upsert
from app.base.db.packed import pack_latencies, packed_positions, unpack_vector, with_vector
from app.base.db.row_tables import numbers
from app.catalog.tables import canaries
from app.records.domain.run_views import RunDetails
from app.records.run_tables import runs
from app.records.tables import latest, layouts, marks, rankings, run_probes, scores, states, vectors
from app.scoring.rankings import HASH_BYTES

_LAYOUT_BYTES = 100  # in memory
_READ_AT_ONCE = 500
"""States: fewer calls than one by one, and few are in memory twice."""


class OpenState(msgspec.Struct, frozen=True, gc=False):
    """What holds now for a canary of a check; a struct, because a run makes one for each canary."""

    id: int
    canary_version_id: int
    ranking_id: int
    ranking_hash: bytes
    content_hash: bytes | None
    first_run: int
    layout_id: int
    reasons: int
    top_score: float | None
    vector: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NewState:
    """What begins to hold for a canary with this run."""

    canary_id: int
    canary_version_id: int
    ranking_id: int
    layout_id: int
    reasons: int
    top_score: float | None


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


def layout_id(connection: Connection, names: Sequence[str], measures_version: str, yardstick: str) -> int:
    """Give the id of a list of vector names judged by a yardstick, storing it if it is new."""
    stored = find_layout_id(connection, names, measures_version, yardstick)
    if stored is not None:
        return stored
    digest = _layout_hash(names, measures_version, yardstick)
    columns = ("hash", "measures_version", "names", "yardstick")
    insert_new(connection, layouts, columns, [(digest, measures_version, json.dumps(list(names)), yardstick)])
    return ids_of(connection, layouts, [digest])[digest]


def _layout_hash(names: Sequence[str], measures_version: str, yardstick: str) -> bytes:
    text = json.dumps([measures_version, yardstick, *names])
    return blake2b(text.encode(), digest_size=HASH_BYTES).digest()


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


def open_states(connection: Connection, check_id: int) -> dict[int, OpenState]:
    """Read what holds now, by canary id."""
    parts = connection.execute(_OPEN_STATES, {"check": check_id}).partitions(_READ_AT_ONCE)
    distinct: dict[bytes, bytes] = {}  # most canaries score as others do, and a vector is half of what is read
    held_by_canary: dict[int, OpenState] = {}
    for canary_id, *held in chain.from_iterable(parts):
        held[-1] = distinct.setdefault(held[-1], held[-1])
        held_by_canary[canary_id] = OpenState(*held)
    return held_by_canary


_OPEN_STATES = (
    sa.select(
        states.c.canary_id,
        states.c.id,
        states.c.canary_version_id,
        states.c.ranking_id,
        rankings.c.hash,
        rankings.c.content_hash,
        states.c.first_run,
        states.c.layout_id,
        states.c.reasons,
        states.c.top_score,
        vectors.c.body,
    )
    .join(rankings, rankings.c.id == states.c.ranking_id)
    .join(
        scores,
        sa.and_(
            scores.c.ranking_id == states.c.ranking_id,
            scores.c.canary_version_id == states.c.canary_version_id,
            scores.c.layout_id == states.c.layout_id,
        ),
    )
    .join(vectors, vectors.c.id == scores.c.vector_id)
    .where(states.c.check_id == sa.bindparam("check"), states.c.last_run.is_(None))
)


def rankings_lately(connection: Connection, check_id: int, canary_ids: Sequence[int]) -> dict[int, list[int]]:
    """Read the rankings that canaries had before the one they have, the newest two, by canary id; they are held."""
    hold_content(connection)  # the states that keep them may be just old enough for retention
    found: dict[int, list[int]] = {}
    for block in blocks(canary_ids):
        for canary_id, *ranking_ids in connection.execute(_LATELY, {"check": check_id, "canaries": block}):
            found[canary_id] = [one for one in ranking_ids if one is not None]
    return found


def whole_rankings(
    connection: Connection, check_id: int, canary_ids: Sequence[int], *, without: int
) -> dict[int, tuple[int, int]]:
    """Read the newest ranking and version of canaries in a state without these reasons, as bits; by canary id."""
    found: dict[int, tuple[int, int]] = {}
    mine = sa.and_(
        states.c.check_id == check_id,
        states.c.canary_id == canaries.c.id,
        states.c.reasons.bitwise_and(without) == 0,
    )
    newest = sa.select(states.c.id).where(mine).order_by(states.c.first_run.desc()).limit(1)
    columns = (states.c.canary_id, states.c.ranking_id, states.c.canary_version_id)
    for block in blocks(canary_ids):
        newest_ids = sa.select(newest.correlate(canaries).scalar_subquery()).where(canaries.c.id.in_(block))
        for canary_id, ranking_id, version_id in connection.execute(
            sa.select(*columns).where(states.c.id.in_(newest_ids))
        ):
            found[canary_id] = ranking_id, version_id
    return found


_MINE = sa.select(states.c.ranking_id).where(
    states.c.check_id == sa.bindparam("check"), states.c.canary_id == canaries.c.id
)
_LATELY = sa.select(
    canaries.c.id,
    *(_MINE.order_by(states.c.first_run.desc()).limit(1).offset(back).scalar_subquery() for back in (1, 2)),
).where(canaries.c.id.in_(sa.bindparam("canaries", expanding=True)))
"""Along ix_states_timeline, however many states a canary has had."""


def change_states(
    connection: Connection, check_id: int, run_id: int, *, closed: Sequence[int], opened: Sequence[NewState]
) -> None:
    """Close states with the run before this one and open those that begin with it."""
    if closed:
        newest = sa.select(latest.c.run_id).where(latest.c.check_id == check_id)
        last_run = connection.execute(newest).scalar_one_or_none() or run_id - 1
        ending = numbers(connection, "ending", ["id"], [(state_id,) for state_id in closed])
        held = sa.and_(states.c.id.in_(sa.select(ending.c.id)), states.c.last_run.is_(None))
        connection.execute(sa.update(states).where(held).values(last_run=last_run))
    columns = (
        "check_id",
        "canary_id",
        "canary_version_id",
        "ranking_id",
        "layout_id",
        "reasons",
        "top_score",
        "first_run",
    )
    rows = [
        (
            check_id,
            state.canary_id,
            state.canary_version_id,
            state.ranking_id,
            state.layout_id,
            state.reasons,
            state.top_score,
            run_id,
        )
        for state in opened
    ]
    insert_new(connection, states, columns, rows)


def finish_run(connection: Connection, run_id: int, owner: str, **outcome: Any) -> bool:
    """Write what a run amounted to; False where another worker has finished it meanwhile."""
    values = {**outcome, "claimed_by": None}
    return connection.execute(_FINISH, {"run": run_id, "owner": owner, **values}).rowcount == 1


_FINISH = sa.update(runs).where(
    runs.c.id == sa.bindparam("run"), runs.c.status == "running", runs.c.claimed_by == sa.bindparam("owner")
)
"""With the columns that the values name."""


def fill_aggregates(connection: Connection, run_id: int, names: Sequence[str], values: Mapping[str, float]) -> None:
    """Write numbers of an ended run that were not known when it ended; `names` are those of its vector."""
    aggregates, figures = connection.execute(
        sa.select(runs.c.aggregates, runs.c.figures).where(runs.c.id == run_id)
    ).one()
    stored = unpack_vector(aggregates, figures)
    if stored is None:
        return
    vector = np.frombuffer(stored).copy()
    for place, name in enumerate(names):
        if name in values:
            vector[place] = values[name]
    filled = vector.tobytes()
    packed = {"aggregates": filled} if figures is None else {"figures": with_vector(figures, filled)}
    connection.execute(sa.update(runs).where(runs.c.id == run_id).values(packed))


def save_probes(
    connection: Connection,
    run_id: int,
    latencies: NDArray[np.float16],
    failures: Mapping[int, Any],
    unscored: Sequence[int] = (),
    *,
    exact: bool = False,
) -> None:
    """Store how the probes of a run ended, by position in its suite version; latencies within 1 % unless `exact`."""
    packed = msgspec.msgpack.encode(failures) if failures else None
    paces = None if exact else pack_latencies(latencies)
    columns = ("run_id", "latencies", "failures", "unscored", "paces")
    row = (run_id, b"" if paces else latencies.tobytes(), packed, packed_positions(unscored), paces)
    insert_new(connection, run_probes, columns, [row])


def save_latest(connection: Connection, check_id: int, run_id: int, body: RunDetails) -> None:
    """Keep the newest ended run of a check in full."""
    upsert(connection, latest, ["check_id"], check_id=check_id, run_id=run_id, body=json.dumps(body))


def mark_index_version(connection: Connection, check_id: int, run_id: int, at: int, index_version: str) -> None:
    """Mark the run where the retriever began to report another index version."""
    previous = connection.execute(
        sa.select(marks.c.index_version)
        .where(marks.c.check_id == check_id, marks.c.run_id < run_id)
        .order_by(marks.c.at.desc())
        .limit(1)
    ).scalar_one_or_none()
    if previous != index_version:
        columns = ("run_id", "check_id", "at", "index_version")
        insert_new(connection, marks, columns, [(run_id, check_id, at, index_version)])
