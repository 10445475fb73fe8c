"""Issues of this process itself, for readiness, metrics, pages and the log; they are never alerts of a check."""

import logging
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from threading import Lock
from typing import Final

logger = logging.getLogger("coalmine.self")

KEPT_SECONDS: Final = 120.0
"""How long an issue lasts after its last report."""


class Issue(StrEnum):
    """Kind of an issue; also the label of its metric."""

    CLOCK = "clock"
    """The wall clock was set; instants that it wrote before may be wrong."""
    DELIVERIES = "deliveries"
    """A hook does not take what it is sent: three attempts failed, or more."""
    HEARTBEAT = "heartbeat"
    """The database got no sign of life: other replicas may take over what this process is at."""
    OVERLOAD = "overload"
    """Runs are due that no worker has begun."""
    RESOURCES = "resources"
    """This process or machine is out of file descriptors or memory."""
    STORE_READ = "store_read"
    """The database answers, but its tables are damaged, missing or of an older release."""
    STORE_WRITE = "store_write"
    """The database can be read but not written."""


class SelfMonitor:
    """The issues of this process, each with a sentence. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without an issue; `clock` counts seconds and cannot be set."""
        self._clock = clock
        self._lock = Lock()
        self._issues: dict[Issue, tuple[str, float]] = {}
        """Sentence and expiry by issue."""

    def report(self, issue: Issue, detail: str, *, seconds: float = KEPT_SECONDS) -> None:
        """Set an issue for `seconds`; logged when it is new."""
        with self._lock:
            now = self._clock()
            before = self._issues.get(issue)
            self._issues[issue] = detail, now + seconds
        if before is None or before[1] <= now:
            logger.error("self_issue", extra={"issue": str(issue), "detail": detail})

    def clear(self, issue: Issue) -> None:
        """End an issue; logged if it was set."""
        with self._lock:
            before = self._issues.pop(issue, None)
        if before is not None:
            logger.info("self_issue_over", extra={"issue": str(issue)})

    @property
    def issues(self) -> Mapping[Issue, str]:
        """The present issues, each with its sentence."""
        with self._lock:
            now = self._clock()
            return {issue: detail for issue, (detail, until) in self._issues.items() if until > now}

    def has(self, issue: Issue) -> bool:
        """Whether an issue is set."""
        return issue in self.issues
