"""Keeps the metrics snapshot: what this process changed is read at once and together, all of it every few seconds."""

import threading
import time
from collections.abc import Callable

from app.metrics.snapshot import Snapshot
from app.services.history.overload import report_overload
from app.services.self_monitor import SelfMonitor
from app.services.store_watch import report_store
from app.store.engine import Store

COALESCE_SECONDS = 1.0
"""How far apart changes are read, however many there are."""


class SnapshotKeeper:
    """Reads what threads note as changed; one thread keeps, any may note."""

    def __init__(self, snapshot: Snapshot, monitor: SelfMonitor, store: Store) -> None:
        """Begin without a change."""
        self._snapshot = snapshot
        self._monitor = monitor
        self._store = store
        self._noted = threading.Condition()
        self._check_ids: set[int] = set()
        self._deliveries = False
        self._closed = False

    def note_run(self, check_id: int) -> None:
        """Note that a run of a check ended."""
        with self._noted:
            self._check_ids.add(check_id)
            self._noted.notify_all()

    def note_delivery(self) -> None:
        """Note that a delivery was attempted."""
        with self._noted:
            self._deliveries = True
            self._noted.notify_all()

    def close(self) -> None:
        """End `keep`."""
        with self._noted:
            self._closed = True
            self._noted.notify_all()

    def keep(self, seconds: float, guarded: Callable[[Callable[[], None]], None]) -> None:
        """Refresh all of the snapshot every so many seconds and what is noted soon; `guarded` outlives any error."""
        refreshed_at = float("-inf")
        while not self._closed:
            left = refreshed_at + seconds - time.monotonic()
            if left <= 0:
                refreshed_at = time.monotonic()
                guarded(self.refresh)
            elif self._wait(left):
                guarded(self.refresh_noted)
                self._wait_for_more(min(COALESCE_SECONDS, seconds))

    def refresh(self) -> None:
        """Refresh all of the snapshot, and report what it says of this process."""
        report_store(self._monitor, self._store)
        self._take()
        self._snapshot.refresh(self._store)
        report_overload(self._monitor, self._snapshot.state)

    def refresh_noted(self) -> None:
        """Refresh what was noted as changed since the last time."""
        check_ids, deliveries = self._take()
        self._snapshot.refresh_checks(self._store, check_ids, deliveries=deliveries)

    def _take(self) -> tuple[frozenset[int], bool]:
        with self._noted:
            noted = frozenset(self._check_ids), self._deliveries
            self._check_ids, self._deliveries = set(), False
            return noted

    def _wait(self, seconds: float) -> bool:
        """Wait until something is noted; False where nothing was for so long."""
        with self._noted:
            self._noted.wait_for(lambda: self._closed or self._check_ids or self._deliveries, seconds)
            return bool(self._check_ids or self._deliveries)

    def _wait_for_more(self, seconds: float) -> None:
        with self._noted:
            self._noted.wait_for(lambda: self._closed, seconds)
