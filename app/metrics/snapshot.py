"""The stored state as metrics show it, read by whoever keeps it and never by a scrape."""

import threading
import time
from collections.abc import Callable, Collection

from app.domain.errors import StoreUnavailableError
from app.services.history import metrics_snapshot
from app.services.history.metrics_snapshot import State
from app.store.engine import Store

_FRESH_SECONDS = 30  # several refreshes of the worker


class Snapshot:
    """The stored state as of a moment ago; None while the store cannot be read.

    `clock` counts seconds. A state nobody could renew for `_FRESH_SECONDS` counts as none: it may not hold any more.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._refreshing = threading.Lock()
        self._reader = metrics_snapshot.StateReader()
        self._clock = clock
        self._state: State | None = None
        self._taken_at = 0.0

    @property
    def state(self) -> State | None:
        """What the store said last, if that is recent."""
        state, taken_at = self._state, self._taken_at
        return state if self._clock() - taken_at <= _FRESH_SECONDS else None

    def refresh(self, store: Store) -> None:
        """Follow the store: whatever changed of any check, by whomever."""
        self._read(lambda: self._reader.read(store))

    def refresh_checks(self, store: Store, check_ids: Collection[int], *, deliveries: bool) -> None:
        """Follow what this process changed: these checks and, where `deliveries` were attempted, what is left to send.

        What is read so says nothing of the others: it does not make the state any more recent.
        """
        if self.state is None:  # all of it is old
            self.refresh(store)
        else:
            self._read(lambda: self._reader.read_changed(store, check_ids, deliveries=deliveries), all_of_it=False)

    def _read(self, read: Callable[[], State], *, all_of_it: bool = True) -> None:
        with self._refreshing:
            began = self._clock()
            try:
                state = read()
            except StoreUnavailableError:
                self._state = None
                self._reader.forget()
                raise
            if all_of_it:
                self._taken_at = began
            self._state = state
