"""Limits of retrievers that several processes ask: whatever is no run takes its turn in a lane of the retriever too.

Runs are asked lane by lane, see `services.runs.lanes`. Diagnoses, test requests, pools and samples of traffic would add
to what they have under way: each holds a lane alone while it asks, a few queries at a time, and reserves its requests
in the rate that all have in common.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final

from app.base.db.engine import Store
from app.base.values import Answer
from app.retrievers.domain.lanes import fan_out, lane_count
from app.retrievers.domain.retrievers import Lane, Probe, ProbeContext, ProbeQuery
from app.retrievers.store import rates
from app.retrievers.store.lane_locks import hold_lane

logger = logging.getLogger("coalmine.probing")

PATIENCE_SECONDS: Final = 30.0
"""Longest wait for a lane. Whoever holds it for longer is frozen, or slower than anybody should wait for."""
SHARD_PATIENCE_SECONDS: Final = 5.0
"""Longest wait of a shard of a run: whoever holds a lane, or waits for it, may be frozen."""
ROUNDS: Final = 4
"""Queries, for each request at a time, that are asked before others get the lane."""


def share_limits(store: Store, probe: Probe) -> Probe:
    """Return a probe whose limits hold over all processes of this database; on SQLite there is one."""
    return SharedProbe(store, probe) if store.dialect == "postgresql" else probe


class SharedProbe:
    """Asks in the lane of a context, and where it has none, in one of the retriever's."""

    def __init__(self, store: Store, probe: Probe, *, patience: float = PATIENCE_SECONDS) -> None:
        self._store = store
        self._probe = probe
        self._patience = patience
        self._turns = count()
        """Spread over the lanes."""

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Send every query; see `Probe`. Raises StoreUnavailableError where no lane can be held."""
        if context.lane is not None:
            return self._probe(context, queries)
        self._probe(context, ())  # raises at once where the retriever cannot be asked; asks nobody
        return self._ask_in_a_lane(context, queries)

    def _ask_in_a_lane(
        self, context: ProbeContext, queries: Sequence[ProbeQuery]
    ) -> Iterator[Sequence[tuple[int, Answer]]]:
        retriever = context.retriever
        number = next(self._turns) % lane_count(retriever)
        reserve = partial(reserve_rate, self._store, retriever.slug)
        lane = Lane(number=number, concurrency=fan_out(retriever, number), reserve=reserve)
        in_lane = replace(context, lane=lane)
        size = ROUNDS * lane.concurrency
        for start in range(0, len(queries), size):
            block = queries[start : start + size]
            with hold_lane(self._store, retriever.slug, number, alone=True, at_most=self._patience) as is_held:
                if not is_held:
                    logger.warning("lane_not_held", extra={"retriever": retriever.slug, "seconds": self._patience})
                with closing(self._probe(in_lane, block)) as batches:  # type: ignore[type-var] # a generator
                    yield from batches


def reserve_rate(store: Store, retriever: str, count: int, interval: float) -> float:
    """Reserve requests in the rate that all processes have in common; gives the seconds until the first."""
    with store.write() as connection:
        width = round(count * interval * 1_000_000)
        return rates.reserve(connection, retriever, microseconds=width) / 1_000_000
