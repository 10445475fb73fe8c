"""What is wrong with this process itself, for readiness, metrics, pages and the log.

None of it is ever an alert about a check.
"""

import logging
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from threading import Lock
from typing import Final

logger = logging.getLogger("coalmine.self")

KEPT_SECONDS: Final = 120.0
"""How long an issue stands that is reported again and again while it lasts, and by nobody when it is over."""


class Issue(StrEnum):
    """What can be wrong with a process; also the label of its metric."""

    CLOCK = "clock"
    """The wall clock was set; instants that it wrote before may be wrong."""
    HEARTBEAT = "heartbeat"
    """Leases of runs could not be renewed: other workers may take the runs over."""
    OVERLOAD = "overload"
    """Runs are due that no worker has begun."""
    RESOURCES = "resources"
    """This process or machine is out of file descriptors or memory."""
    STORE_WRITE = "store_write"
    """The database can be read but not written."""


class SelfMonitor:
    """The issues of this process, each with a sentence for people. Threads may report and read at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without an issue; `clock` counts seconds and cannot be set."""
        self._clock = clock
        self._lock = Lock()
        self._issues: dict[Issue, tuple[str, float]] = {}
        """By issue its sentence, and until when it stands unless it is reported again."""

    def report(self, issue: Issue, detail: str, *, seconds: float = KEPT_SECONDS) -> None:
        """Let an issue stand for so many seconds from now; logged where it did not stand before."""
        with self._lock:
            now = self._clock()
            before = self._issues.get(issue)
            self._issues[issue] = detail, now + seconds
        if before is None or before[1] <= now:
            logger.error("self_issue", extra={"issue": str(issue), "detail": detail})

    def clear(self, issue: Issue) -> None:
        """End an issue; logged where it stood."""
        with self._lock:
            before = self._issues.pop(issue, None)
        if before is not None:
            logger.info("self_issue_over", extra={"issue": str(issue)})

    @property
    def issues(self) -> Mapping[Issue, str]:
        """The issues that stand now, each with its sentence."""
        with self._lock:
            now = self._clock()
            return {issue: detail for issue, (detail, until) in self._issues.items() if until > now}

    def has(self, issue: Issue) -> bool:
        """Whether an issue stands now."""
        return issue in self.issues
