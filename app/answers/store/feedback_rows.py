"""Rows of what users said of answers: events by canary and by the hash of the answer that they are about."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection

from app.answers.documents import FeedbackEvent
from app.answers.store.answer_rows import digest
from app.answers.tables import answer_texts, answers, feedback
from app.base.db.engine import blocks, insert_new
from app.catalog.tables import canaries


def save_events(connection: Connection, check_id: int, events: Sequence[tuple[int, FeedbackEvent]], *, at: int) -> int:
    """Store events, each with its canary and each id once; how many were not there yet."""
    rows = [
        (check_id, one.event_id, canary_id, digest(one.answer), str(one.kind), int(one.positive), at)
        for canary_id, one in events
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


def total_feedback(connection: Connection, check_id: int) -> Counter[tuple[str, bool]]:
    """Return what users said of all answers of a check: events by kind and sign."""
    counted = (
        sa.select(feedback.c.kind, feedback.c.positive, sa.func.count().label("events"))
        .where(feedback.c.check_id == check_id)
        .group_by(feedback.c.kind, feedback.c.positive)
    )
    return Counter({(row.kind, bool(row.positive)): int(row.events) for row in connection.execute(counted)})


def feedback_by_canary(
    connection: Connection, check_id: int, *, after: str, limit: int
) -> list[tuple[str, int, Counter[tuple[str, bool]]]]:
    """Return (key, number of different answers, events) of canaries that users said something of, by key."""
    of_check = sa.and_(feedback.c.check_id == check_id, canaries.c.id == feedback.c.canary_id)
    heads = (
        sa.select(canaries.c.id, canaries.c.key, sa.func.count(feedback.c.answer_hash.distinct()).label("versions"))
        .where(of_check, canaries.c.key > after)
        .group_by(canaries.c.id, canaries.c.key)
        .order_by(canaries.c.key)
        .limit(limit)
    )
    found = {row.id: (str(row.key), int(row.versions)) for row in connection.execute(heads)}
    counted = (
        sa.select(feedback.c.canary_id, feedback.c.kind, feedback.c.positive, sa.func.count().label("events"))
        .where(feedback.c.check_id == check_id, feedback.c.canary_id.in_(found))
        .group_by(feedback.c.canary_id, feedback.c.kind, feedback.c.positive)
    )
    events: dict[int, Counter[tuple[str, bool]]] = {canary_id: Counter() for canary_id in found}
    for row in connection.execute(counted):
        events[row.canary_id][row.kind, bool(row.positive)] = int(row.events)
    return [(*found[canary_id], events[canary_id]) for canary_id in found]


def forget_feedback(connection: Connection, check_id: int) -> int:
    """Delete all feedback of a check; how much there was."""
    return connection.execute(sa.delete(feedback).where(feedback.c.check_id == check_id)).rowcount
