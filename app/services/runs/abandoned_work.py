"""Work that a process left behind when it ended; where nobody else can be at it, it need not wait for leases."""

from datetime import datetime
from typing import NamedTuple

from app.services.runs.rescoring import COMMAND
from app.store.engine import Store, to_us
from app.store.runs import abandoned_claims


class Released(NamedTuple):
    """How much was let go of."""

    runs: int
    deliveries: int
    news: int
    """Deliveries that waited for a diagnosis."""
    rescorings: int


def release_abandoned(store: Store, *, now: datetime) -> Released:
    """Let go of all that workers hold; a re-scoring that a command carries out stays with it.

    Only for the one worker of a database, before it begins.
    """
    with store.write() as connection:
        return Released(
            runs=abandoned_claims.release_runs(connection),
            deliveries=abandoned_claims.release_deliveries(connection),
            news=abandoned_claims.send_held_news(connection, to_us(now)),
            rescorings=abandoned_claims.release_rescorings(connection, but=COMMAND),
        )
