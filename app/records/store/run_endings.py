"""What is written when a run ends: its row, what its probes came to, and the states that end and begin with it.

The service that finalises calls it inside its transaction, but for `fill_aggregates`: the numbers of generated answers
are known once they are judged, after the run has ended. Before it, `ranking_rows` stored what was found; with it,
`series` folds the run's numbers into hours and days. `run_rows` and `state_rows` read it back.
"""

import json
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection

from app.base.db.engine import insert_new, upsert
from app.base.db.rows import numbers
from app.base.values import Value
from app.records.domain import RunDetails
from app.records.store.encodings import pack_latencies, packed_positions, unpack_vector, with_vector
from app.records.tables import latest, marks, run_probes, runs, states


class NewState(Value):
    """What begins to hold for a canary with this run."""

    canary_id: int
    canary_version_id: int
    ranking_id: int
    layout_id: int
    reasons: int
    top_score: float | None


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
    rows = [(check_id, run_id, *_NEW_FIELDS(state)) for state in opened]
    insert_new(connection, states, ("check_id", "first_run", *NewState.__struct_fields__), rows)


_NEW_FIELDS = attrgetter(*NewState.__struct_fields__)


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
