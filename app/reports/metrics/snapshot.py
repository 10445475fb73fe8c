"""Refreshes the metrics snapshot: changes of this process at once, in batches, and everything every few seconds."""

import threading
import time
from collections.abc import Callable, Collection

from app.base.db.engine import Store
from app.base.errors import StoreUnavailableError
from app.operation.service.self_monitor import SelfMonitor, report_deliveries, report_overload, report_store
from app.reports.service import metrics_snapshot
from app.reports.service.metrics_snapshot import State

_FRESH_SECONDS = 30  # several refreshes of the worker


class Snapshot:
    """The recent stored state; None while the store cannot be read, or `_FRESH_SECONDS` after the last refresh.

    `clock` counts seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._refreshing = threading.Lock()
        self._reader = metrics_snapshot.StateReader()
        self._clock = clock
        self._state: State | None = None
        self._taken_at = 0.0

    @property
    def state(self) -> State | None:
        """The last state read, if it is recent."""
        state, taken_at = self._state, self._taken_at
        return state if self._clock() - taken_at <= _FRESH_SECONDS else None

    def refresh(self, store: Store) -> None:
        """Read the changes of all checks."""
        self._read(lambda: self._reader.read(store))

    def refresh_checks(self, store: Store, check_ids: Collection[int], *, deliveries: bool) -> None:
        """Read these checks, and the outbox if `deliveries` were attempted; the age of the whole state stays."""
        if self.state is None:  # all of it is old
            self.refresh(store)
        else:
            self._read(lambda: self._reader.read_changed(store, check_ids, deliveries=deliveries), is_complete=False)

    def _read(self, read: Callable[[], State], *, is_complete: bool = True) -> None:
        with self._refreshing:
            began = self._clock()
            try:
                state = read()
            except StoreUnavailableError:
                self._state = None
                self._reader.forget()
                raise
            if is_complete:
                self._taken_at = began
            self._state = state


COALESCE_SECONDS = 1.0
"""Least time between two batches."""


class SnapshotKeeper:
    """Refreshes the snapshot in one thread; any thread may report changes."""

    def __init__(self, snapshot: Snapshot, monitor: SelfMonitor, store: Store) -> None:
        """Start without changes."""
        self._snapshot = snapshot
        self._monitor = monitor
        self._store = store
        self._changed = threading.Condition()
        self._check_ids: set[int] = set()
        self._deliveries = False
        self._closed = False

    def note_run(self, check_id: int) -> None:
        """Report that a run of a check ended."""
        with self._changed:
            self._check_ids.add(check_id)
            self._changed.notify_all()

    def note_delivery(self) -> None:
        """Report that a delivery was attempted."""
        with self._changed:
            self._deliveries = True
            self._changed.notify_all()

    def close(self) -> None:
        """End `keep`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def keep(self, seconds: float, guarded: Callable[[Callable[[], None]], None]) -> None:
        """Refresh the whole snapshot every `seconds`, and changes within one; `guarded` catches and logs errors."""
        refreshed_at = float("-inf")
        while not self._closed:
            left = refreshed_at + seconds - time.monotonic()
            if left <= 0:
                refreshed_at = time.monotonic()
                guarded(self.refresh)
            elif self._wait(left):
                guarded(self.refresh_changed)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, min(COALESCE_SECONDS, seconds))

    def refresh(self) -> None:
        """Refresh the whole snapshot, and report issues of this process."""
        report_store(self._monitor, self._store)
        self._take()
        self._snapshot.refresh(self._store)
        report_overload(self._monitor, self._snapshot.state)
        report_deliveries(self._monitor, self._snapshot.state)

    def refresh_changed(self) -> None:
        """Refresh the changes since the last time."""
        check_ids, deliveries = self._take()
        self._snapshot.refresh_checks(self._store, check_ids, deliveries=deliveries)
        if deliveries:
            report_deliveries(self._monitor, self._snapshot.state)

    def _take(self) -> tuple[frozenset[int], bool]:
        with self._changed:
            changes = frozenset(self._check_ids), self._deliveries
            self._check_ids, self._deliveries = set(), False
            return changes

    def _wait(self, seconds: float) -> bool:
        """Wait for a change; return False if there was none within `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._check_ids or self._deliveries, seconds)
            return bool(self._check_ids or self._deliveries)
