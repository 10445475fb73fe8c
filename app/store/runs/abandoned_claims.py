"""Claims of a process that ended: let go of where nobody else can hold one, instead of waiting for their leases."""

import sqlalchemy as sa
from sqlalchemy import Connection

from app.store.engine import sql_literal
from app.store.tables import deliveries, rescorings, runs


def release_runs(connection: Connection) -> int:
    """Let go of every run that goes on; gives how many."""
    running = runs.c.status == sql_literal("running")
    return connection.execute(sa.update(runs).where(running).values(lease_until=0)).rowcount


def release_deliveries(connection: Connection) -> int:
    """Let go of every delivery that is being sent, for the first time or again; gives how many."""
    held = deliveries.c.claimed_by.is_not(None)
    count = 0
    # One by one, so that each finds its own partial index: what was delivered and is over is never looked at.
    for kind in (deliveries.c.state == sql_literal("pending"), deliveries.c.refresh_at.is_not(None)):
        release = sa.update(deliveries).where(kind, held).values(claimed_by=None, lease_until=None)
        count += connection.execute(release).rowcount
    return count


def send_held_news(connection: Connection, now: int) -> int:
    """Let go of the news that waits for diagnoses, which are in memory; gives how many deliveries that were."""
    waiting = sa.and_(
        deliveries.c.state == sql_literal("pending"),
        deliveries.c.attempts == 0,
        deliveries.c.next_attempt_at > now,
    )
    return connection.execute(sa.update(deliveries).where(waiting).values(next_attempt_at=now)).rowcount


def release_rescorings(connection: Connection, *, but: str) -> int:
    """Let go of every re-scoring but those whose owner's name begins so; gives how many.

    The attempt counts: it may be what ended the process.
    """
    held = sa.and_(
        rescorings.c.claimed_by.is_not(None),
        rescorings.c.finished_at.is_(None),
        ~rescorings.c.claimed_by.startswith(but, autoescape=True),
    )
    return connection.execute(sa.update(rescorings).where(held).values(claimed_by=None, lease_until=None)).rowcount
