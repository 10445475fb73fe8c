"""States of canaries, read back as they held at a run; recording writes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import blocks
from app.records.tables import scores, states, vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """What held for a canary from `first_run` until `last_run` (None: it still does)."""

    id: int
    canary_id: int
    canary_version_id: int
    ranking_id: int
    layout_id: int
    reasons: int
    top_score: float | None
    first_run: int
    last_run: int | None
    matched: bytes
    vector: bytes


_STATE = (
    sa.select(states, scores.c.matched, vectors.c.body.label("vector"))
    .join(
        scores,
        sa.and_(
            scores.c.ranking_id == states.c.ranking_id,
            scores.c.canary_version_id == states.c.canary_version_id,
            scores.c.layout_id == states.c.layout_id,
        ),
    )
    .join(vectors, vectors.c.id == scores.c.vector_id)
)


def states_at(
    connection: Connection, check_id: int, run_id: int, *, only_degraded: bool = False
) -> dict[int, StateRow]:
    """Read what held for each canary of a check at a run, by canary id."""
    held: dict[int, StateRow] = {}
    # Two statements, each along an index, where one for either would read every state there ever was.
    for holding in (states.c.last_run.is_(None), states.c.last_run >= run_id):
        statement = _STATE.where(states.c.check_id == check_id, states.c.first_run <= run_id, holding)
        if only_degraded:
            statement = statement.where(states.c.reasons != 0)
        held.update((row.canary_id, _state(row)) for row in connection.execute(statement))
    return held


def states_of(connection: Connection, check_id: int, run_id: int, canary_ids: Sequence[int]) -> dict[int, StateRow]:
    """Read the same of a few of its canaries."""
    statement = _STATE.where(
        states.c.check_id == check_id,
        states.c.canary_id.in_(canary_ids),
        states.c.first_run <= run_id,
        sa.or_(states.c.last_run.is_(None), states.c.last_run >= run_id),
    )
    return {row.canary_id: _state(row) for row in connection.execute(statement)} if canary_ids else {}


def all_reasons_at(
    connection: Connection, check_id: int, run_id: int, *, only_degraded: bool = False
) -> dict[int, int]:
    """Read why canaries of a check were degraded at a run, as bits by canary id; 0 = it was healthy."""
    reasons: dict[int, int] = {}
    for holding in (states.c.last_run.is_(None), states.c.last_run >= run_id):
        statement = sa.select(states.c.canary_id, states.c.reasons).where(
            states.c.check_id == check_id, states.c.first_run <= run_id, holding
        )
        if only_degraded:
            statement = statement.where(states.c.reasons != 0)
        reasons.update(connection.execute(statement).all())
    return reasons


def rankings_at(
    connection: Connection, check_id: int, run_id: int, canary_ids: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """Read what canaries of a check had at a run: (ranking id, canary version id) by canary id."""
    held: dict[int, tuple[int, int]] = {}
    for block in blocks(canary_ids):
        statement = sa.select(states.c.canary_id, states.c.ranking_id, states.c.canary_version_id).where(
            states.c.check_id == check_id,
            states.c.canary_id.in_(block),
            states.c.first_run <= run_id,
            sa.or_(states.c.last_run.is_(None), states.c.last_run >= run_id),
        )
        held.update((canary, (ranking, version)) for canary, ranking, version in connection.execute(statement))
    return held


def timeline(connection: Connection, check_id: int, canary_id: int, *, limit: int = 200) -> list[StateRow]:
    """Read the newest states a canary went through, newest first."""
    statement = _STATE.where(states.c.check_id == check_id, states.c.canary_id == canary_id)
    rows = connection.execute(statement.order_by(states.c.first_run.desc()).limit(limit))
    return [_state(row) for row in rows]


def _state(row: Any) -> StateRow:
    return StateRow(**{name: getattr(row, name) for name in StateRow.__dataclass_fields__})
