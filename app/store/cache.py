"""Values that never change under their key, kept for as long as they fit into a number of bytes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

MOST_BYTES: Final = 256 * 1024 * 1024

ValueT = TypeVar("ValueT")


class ByteCache:
    """Keeps what was used last, up to a number of bytes by the makers' own estimates; its threads may share it.

    A value larger than the bound is kept until another one comes: dropping it at once would have it made each time.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
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
            return entry[0]

    def values(self, kind: type[ValueT]) -> list[ValueT]:
        """Return the values of a type, the one used last at the end."""
        with self._lock:
            return [value for value, _ in self._kept.values() if isinstance(value, kind)]

    def _keep(self, key: Hashable, value: Any, size: int) -> None:
        with self._lock:
            self._kept[key] = value, size
            self.size += size
            while self.size > self._most and len(self._kept) > 1:
                self.size -= self._kept.popitem(last=False)[1][1]
