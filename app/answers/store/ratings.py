"""Rows of what judges said, so that nothing is asked twice, and of what each day cost."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy import Connection

from app.answers.domain.views import RatingBody
from app.answers.tables import judge_days, ratings
from app.base.db.engine import blocks, upsert, upsert_many


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeDay:
    """What a judge did in a day, UTC."""

    day: int
    """Days since 1970."""
    calls: int = 0
    cached: int = 0
    """Questions that were answered from what it said before."""
    tokens: int = 0
    cost: float = 0.0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Calls by outcome."""


def known_ratings(connection: Connection, judge_id: int, keys: Sequence[str]) -> dict[str, tuple[RatingBody, int]]:
    """Return what a judge said under these keys, and when each was last known to be used."""
    found: dict[str, tuple[RatingBody, int]] = {}
    for block in blocks(keys):
        here = sa.and_(ratings.c.judge_id == judge_id, ratings.c.key.in_(block))
        rows = connection.execute(sa.select(ratings.c.key, ratings.c.body, ratings.c.used_at).where(here))
        found.update((row.key, (json.loads(row.body), row.used_at)) for row in rows)
    return found


def note_use(connection: Connection, judge_id: int, keys: Sequence[str], *, at: int) -> None:
    """Note that what a judge said under these keys, a few hundred, is still used."""
    here = sa.and_(ratings.c.judge_id == judge_id, ratings.c.key.in_(keys))
    connection.execute(sa.update(ratings).where(here).values(used_at=at))


def old_ratings(connection: Connection, limit: int, *, horizon: int) -> list[tuple[int, ...]]:
    """Find what judges said that no answer has needed since `horizon`."""
    old = sa.select(ratings.c.key, ratings.c.judge_id).where(ratings.c.used_at < horizon).limit(limit)
    return [tuple(row) for row in connection.execute(old)]


def drop_ratings(connection: Connection, old: Sequence[tuple[int, ...]]) -> int:
    """Delete what judges said, by key and judge."""
    for key, judge_id in old:
        connection.execute(sa.delete(ratings).where(ratings.c.key == key, ratings.c.judge_id == judge_id))
    return len(old)


def save_ratings(connection: Connection, judge_id: int, said: Mapping[str, RatingBody], *, at: int) -> None:
    """Keep what a judge said, by key."""
    rows = [(key, judge_id, json.dumps(body), at) for key, body in said.items()]
    upsert_many(connection, ratings, ("key", "judge_id"), ("key", "judge_id", "body", "used_at"), rows)


def read_day(connection: Connection, judge_id: int, day: int) -> JudgeDay:
    """Return what a judge did on a day so far."""
    return next(iter(read_days(connection, judge_id, [day])), JudgeDay(day=day))


def read_days(connection: Connection, judge_id: int, days: Iterable[int]) -> list[JudgeDay]:
    """Return what a judge did on these days, those on which it did anything, oldest first."""
    here = sa.select(judge_days).where(judge_days.c.judge_id == judge_id, judge_days.c.day.in_(list(days)))
    return [
        JudgeDay(
            day=row.day,
            calls=row.calls,
            cached=row.cached,
            tokens=row.tokens,
            cost=row.cost,
            outcomes=json.loads(row.outcomes),
        )
        for row in connection.execute(here.order_by(judge_days.c.day))
    ]


def add_to_day(connection: Connection, judge_id: int, more: JudgeDay) -> None:
    """Add to what a judge did on a day. Of the jobs that ask a judge one is done at a time, so nothing is lost."""
    before = read_day(connection, judge_id, more.day)
    upsert(
        connection,
        judge_days,
        ["judge_id", "day"],
        judge_id=judge_id,
        day=more.day,
        calls=before.calls + more.calls,
        cached=before.cached + more.cached,
        tokens=before.tokens + more.tokens,
        cost=before.cost + more.cost,
        outcomes=json.dumps(Counter(before.outcomes) + Counter(more.outcomes)),
    )
