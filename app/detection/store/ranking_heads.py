"""What stored rankings begin with, read without all that they hold: first scores, first chunks, and how long they held.

Whole rankings are read by history.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from app.base.db.engine import blocks
from app.records.run_tables import runs
from app.records.store.ranking_rows import RankingBody
from app.records.tables import chunks, rankings, states


class Span(NamedTuple):
    """A ranking of a canary from one run to another; `last_run` None = still current."""

    canary_id: int
    canary_version_id: int
    ranking_id: int
    first_run: int
    last_run: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """First score and chunks of a ranking."""

    score: float | None
    """The retriever's own, of the first hit; None = there is none."""
    ids: tuple[str, ...]
    """Of the first chunks, as the retriever names them."""


def spans(
    connection: Connection, check_id: int, canary_ids: Sequence[int], first_run: int, last_run: int
) -> list[Span]:
    """Read the rankings of these canaries of a check at any run from `first_run` to `last_run`, oldest first."""
    reaches = sa.or_(states.c.last_run.is_(None), states.c.last_run >= first_run)
    columns = [states.c[name] for name in Span._fields]
    result: list[Span] = []
    for block in blocks(canary_ids):
        mine = sa.and_(states.c.check_id == check_id, states.c.canary_id.in_(block))
        statement = sa.select(*columns).where(mine, states.c.first_run <= last_run, reaches)
        rows = connection.execute(statement.order_by(states.c.canary_id, states.c.first_run))
        result += map(Span._make, rows)
    return result


def measured_runs(connection: Connection, check_id: int, first_run: int, last_run: int, *, limit: int) -> list[int]:
    """List the newest runs of a check between two, ends included, that measured anything; oldest first."""
    statement = sa.select(runs.c.id).where(
        runs.c.check_id == check_id, runs.c.id.between(first_run, last_run), runs.c.measured > 0
    )
    return list(connection.execute(statement.order_by(runs.c.id.desc()).limit(limit)).scalars())[::-1]


def first_suite(connection: Connection, check_id: int, since: int) -> int | None:
    """Suite version of the first run of a check that ended after a time; None = there is none."""
    statement = sa.select(runs.c.suite_version_id).where(
        runs.c.check_id == check_id, runs.c.finished_at >= since, runs.c.suite_version_id.is_not(None)
    )
    return connection.execute(statement.order_by(runs.c.finished_at).limit(1)).scalar_one_or_none()


def heads(connection: Connection, ranking_ids: Sequence[int], depth: int) -> dict[int, Head]:
    """Read the first score and `depth` chunk ids of rankings, by ranking id."""
    bodies: dict[int, RankingBody] = {}
    for block in blocks(sorted(set(ranking_ids))):
        rows = connection.execute(sa.select(rankings.c.id, rankings.c.body).where(rankings.c.id.in_(block)))
        bodies.update((row.id, msgspec.msgpack.decode(row.body, type=RankingBody)) for row in rows)
    names: dict[int, str] = {}
    for block in blocks(sorted({chunk for body in bodies.values() for chunk in body.chunks[:depth]})):
        names.update(connection.execute(sa.select(chunks.c.id, chunks.c.chunk).where(chunks.c.id.in_(block))).all())
    return {
        ranking_id: Head(score=_first_score(body), ids=tuple([names[chunk] for chunk in body.chunks[:depth]]))
        for ranking_id, body in bodies.items()
    }


def _first_score(body: RankingBody) -> float | None:
    score = body.scores[0] if body.scores else None
    return score / 10**body.decimals if isinstance(score, int) else score
