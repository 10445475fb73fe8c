"""A retriever behind a token bucket, which refuses what is beyond."""

import math
import threading
import time
from email.utils import formatdate

from tests.support.http_servers import Reply, Seen, reply

HITS = b'{"hits": [{"id": "a"}]}'


class Limited:
    """Answers of a server that takes so many requests a second, and so many at once after a rest.

    `header` says how it tells when to come back: in seconds, by a date, or not at all.
    """

    def __init__(
        self, *, per_second: float, burst: int, status: int = 429, header: str | None = "seconds", hits: bytes = HITS
    ) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._status = status
        self._header = header
        self._hits = hits
        self._tokens = float(burst)
        self._at = time.monotonic()
        self._lock = threading.Lock()
        self.accepted = 0
        self.refused = 0
        self.starts: list[float] = []

    def __call__(self, _seen: Seen) -> Reply:
        """Answer, or refuse."""
        with self._lock:
            now = time.monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
            self._at = now
            self.starts.append(now)
            if self._tokens >= 1:
                self._tokens -= 1
                self.accepted += 1
                return reply(self._hits)
            self.refused += 1
            wait = math.ceil((1 - self._tokens) / self._per_second)
        headers = {"seconds": str(wait), "date": formatdate(time.time() + wait, usegmt=True)}
        told = {} if self._header is None else {"retry-after": headers[self._header]}
        return reply(b"", self._status, told)
