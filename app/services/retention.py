"""Forgetting: what is older than wanted goes, in small batches off the write path."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from app.store import diagnosis, pruning
from app.store.engine import Connection, Store, to_us

BATCH = 500
ALERT_DAYS = 366


def prune(store: Store, now: datetime, *, days: int, batch: int = BATCH) -> int:
    """Delete runs and states older than `days`; alerts, diagnoses and hourly figures of a year ago; what nothing uses.

    Returns how many rows went. Each batch is a transaction of its own, so that writers never wait long.
    """
    horizon = to_us(now - timedelta(days=days))
    alert_horizon = to_us(now - timedelta(days=max(days, ALERT_DAYS)))
    gone = 0
    steps: tuple[Callable[[Connection], int], ...] = (
        partial(pruning.prune_runs, horizon=horizon, batch=batch),
        partial(pruning.prune_states, batch=batch),
        partial(pruning.prune_rankings, batch=batch),
        partial(pruning.prune_findings, batch=batch),
        partial(pruning.prune_baselines, batch=batch),
        partial(pruning.prune_alerts, horizon=alert_horizon, batch=batch),
        partial(pruning.prune_tests, horizon=alert_horizon, batch=batch),
        partial(diagnosis.prune_diagnoses, horizon=alert_horizon, batch=batch),
    )
    for step in steps:
        while True:
            with store.write() as connection:
                count = step(connection)
            gone += count
            if count < batch:
                break
    with store.write() as connection:
        gone += pruning.prune_hours(connection, alert_horizon)
    return gone + _prune_content(store, batch) if gone else 0


def _prune_content(store: Store, batch: int) -> int:
    """Look for unused texts and vectors at leisure, then delete them in batches that only look at what came since."""
    with store.write() as connection:
        since = pruning.newest_ranking(connection)
    with store.read() as connection:
        unused = pruning.unused_chunks(connection)
        vectors = pruning.unused_vectors(connection)
    gone = 0
    for start in range(0, len(unused), batch):
        with store.write() as connection:
            gone += pruning.prune_chunks(connection, unused[start : start + batch], since=since)
    for start in range(0, len(vectors), batch):
        with store.write() as connection:
            gone += pruning.prune_vectors(connection, vectors[start : start + batch])
    return gone
