"""The snapshot of the stored state for metrics; the keeper refreshes it, never a scrape."""

import threading
import time
from collections.abc import Callable, Collection

from app.base.db.engine import Store
from app.base.errors import StoreUnavailableError
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
