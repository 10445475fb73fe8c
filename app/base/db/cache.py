"""Values that never change under their key, kept while they are used and fit into a number of bytes."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

MOST_BYTES: Final = 256 * 1024 * 1024
IDLE_SECONDS: Final = 25 * 3600.0
"""Longer than the pause between daily runs, so that their suite stays."""

ValueT = TypeVar("ValueT")


@dataclass(slots=True, kw_only=True)
class _Entry:
    value: Any
    size: int
    used_at: float


class ByteCache:
    """Keeps what was used last, up to a number of bytes by the makers' own estimates; its threads may share it.

    A value larger than the bound is kept until another one comes: dropping it at once would have it made each time.
    What nobody used for `idle_seconds` is dropped when another value is made: a version replaced long ago, for example.
    """

    def __init__(
        self,
        most_bytes: int = MOST_BYTES,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most_bytes
        self._idle = idle_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, _Entry] = OrderedDict()
        """The one used last at the end."""
        self._making: dict[Hashable, threading.Lock] = {}
        self.size = 0
        """Bytes kept, as estimated."""

    def get(self, key: Hashable, make: Callable[[], tuple[ValueT, int]]) -> ValueT:
        """Return the value under a key, made with its size in bytes where it is not there.

        Of several threads that ask for the same at once, one makes it and the others wait. What `make` raises is not
        kept.
        """
        value: ValueT | None = self.peek(key)
        if value is not None:
            return value
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            value = self.peek(key)
            if value is not None:
                return value
            try:
                value, size = make()
                self._keep(key, value, size)
            finally:
                with self._lock:
                    self._making.pop(key, None)
        return value

    def peek(self, key: Hashable) -> Any:
        """Return the value under a key; None = it is not there."""
        with self._lock:
            entry = self._kept.get(key)
            if entry is None:
                return None
            self._kept.move_to_end(key)
            entry.used_at = self._clock()
            return entry.value

    def values(self, kind: type[ValueT]) -> list[ValueT]:
        """Return the values of a type, the one used last at the end."""
        with self._lock:
            return [entry.value for entry in self._kept.values() if isinstance(entry.value, kind)]

    def _keep(self, key: Hashable, value: Any, size: int) -> None:
        with self._lock:
            now = self._clock()
            self._kept[key] = _Entry(value=value, size=size, used_at=now)
            self.size += size
            while len(self._kept) > 1:
                oldest = next(iter(self._kept.values()))
                if self.size <= self._most and now - oldest.used_at <= self._idle:
                    return
                self._kept.popitem(last=False)
                self.size -= oldest.size
