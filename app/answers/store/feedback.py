"""Rows of what users said of answers, joined to versions of answers by a hash."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from app.answers.store.answers import digest
from app.answers.tables import answer_texts, answers, feedback
from app.base.db.engine import blocks, insert_new
from app.base.db.row_tables import row_table
from app.catalog.tables import canaries


@dataclass(frozen=True, slots=True, kw_only=True)
class UserEvent:
    """What a user said of an answer to a canary."""

    event_id: str
    canary_id: int
    answer: str
    kind: str
    positive: bool


def save_events(connection: Connection, check_id: int, events: Sequence[UserEvent], *, at: int) -> int:
    """Store events, each id once; how many were not there yet."""
    rows = [
        (check_id, one.event_id, one.canary_id, digest(one.answer), one.kind, int(one.positive), at) for one in events
    ]
    mine = sa.select(sa.func.count()).select_from(feedback).where(feedback.c.check_id == check_id)
    before = connection.execute(mine).scalar_one()
    columns = ("check_id", "event_id", "canary_id", "answer_hash", "kind", "positive", "received_at")
    insert_new(connection, feedback, columns, rows)
    return int(connection.execute(mine).scalar_one() - before)


def known_answers(connection: Connection, check_id: int, canary_ids: Collection[int]) -> set[tuple[int, bytes]]:
    """Return the versions of answers to these canaries that a check has seen, as canary and hash."""
    found: set[tuple[int, bytes]] = set()
    for block in blocks(sorted(canary_ids)):
        statement = (
            sa.select(answers.c.canary_id, answer_texts.c.hash)
            .join(answer_texts, answer_texts.c.id == answers.c.text_id)
            .where(answers.c.check_id == check_id, answers.c.canary_id.in_(block))
        )
        found.update((row.canary_id, bytes(row.hash)) for row in connection.execute(statement))
    return found


def canaries_by_key(connection: Connection, suite_id: int, keys: Collection[str]) -> dict[str, int]:
    """Return the ids of the canaries of a suite with these keys."""
    wanted = row_table(connection, "wanted", {"key": sa.Text()}, [(key,) for key in sorted(keys)])
    statement = sa.select(canaries.c.key, canaries.c.id).where(
        canaries.c.suite_id == suite_id, canaries.c.key.in_(sa.select(wanted.c.key))
    )
    return {row.key: row.id for row in connection.execute(statement)}


def count_feedback(
    connection: Connection, check_id: int, versions: Collection[tuple[int, str]]
) -> Mapping[tuple[int, str], Counter[tuple[str, bool]]]:
    """Return what users said of these versions of answers (canary and text): events by kind and sign."""
    by_hash = {(canary_id, digest(text)): (canary_id, text) for canary_id, text in versions}
    found: dict[tuple[int, str], Counter[tuple[str, bool]]] = {}
    for block in blocks(sorted({canary_id for canary_id, _ in versions})):
        counted = (
            sa.select(
                feedback.c.canary_id,
                feedback.c.answer_hash,
                feedback.c.kind,
                feedback.c.positive,
                sa.func.count().label("events"),
            )
            .where(feedback.c.check_id == check_id, feedback.c.canary_id.in_(block))
            .group_by(feedback.c.canary_id, feedback.c.answer_hash, feedback.c.kind, feedback.c.positive)
        )
        for row in connection.execute(counted):
            version = by_hash.get((row.canary_id, bytes(row.answer_hash)))
            if version is not None:
                found.setdefault(version, Counter())[row.kind, bool(row.positive)] += row.events
    return found


def old_feedback(connection: Connection, limit: int, *, horizon: int) -> list[int]:
    """Find what was received before `horizon`."""
    return list(
        connection.execute(sa.select(feedback.c.id).where(feedback.c.received_at < horizon).limit(limit)).scalars()
    )


def drop_feedback(connection: Connection, old: Sequence[int]) -> int:
    """Delete this feedback."""
    return connection.execute(sa.delete(feedback).where(feedback.c.id.in_(old))).rowcount


def forget_feedback(connection: Connection, check_id: int) -> int:
    """Delete all feedback of a check; how much there was."""
    return connection.execute(sa.delete(feedback).where(feedback.c.check_id == check_id)).rowcount
