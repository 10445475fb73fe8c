"""The errors Coalmine raises on purpose, independent of HTTP.

CoalmineError
├── InvalidInputError      the input is invalid; carries every problem of it
├── UnsupportedError       the input has an unsupported format
├── TooLargeError          the input exceeds a limit
├── NotFoundError          the object does not exist
├── ConflictError          the object's present state does not allow it
│   ├── UnendedIncidentsError  receivers would not hear of the end of open incidents
│   └── FileManagedError   the object is managed by a canary file
├── UnauthorizedError      no key, or an unknown one
├── ForbiddenError         the key lacks the scope
├── TooManyRequestsError   the caller asks too much at a time
├── BusyError              this process is at a concurrency limit
│   └── LocalResourceError this process or machine is out of descriptors or memory
├── StoreUnavailableError  the database is locked, gone or unreachable
└── ConfigurationError     the settings are unusable, so the process does not start
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

FoundT = TypeVar("FoundT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with an input: where (`path` in a document, `file` and `line` in a file) and what."""

    message: str
    path: str | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        """Return `file:line: path: message`, without the parts that are None."""
        place = f"{self.file}:{self.line}" if self.line is not None else self.file
        return ": ".join(part for part in (place, self.path, self.message) if part)


class CoalmineError(Exception):
    """The base of all errors raised on purpose."""


class InvalidInputError(CoalmineError):
    """The input is invalid; none of it was used."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))


class UnsupportedError(CoalmineError):
    """The input has an unsupported format."""


class TooLargeError(CoalmineError):
    """The input exceeds a limit."""


class NotFoundError(CoalmineError):
    """The object does not exist."""


class ConflictError(CoalmineError):
    """The object's present state does not allow the operation."""


class UnendedIncidentsError(ConflictError):
    """The receiver of a hook would never hear of the end of incidents it was told of, unless the change is forced."""

    def __init__(self, finding: str) -> None:
        self.finding = finding
        super().__init__(f"{finding}; wait for the end, or repeat with force=true and close there by hand what is open")


class FileManagedError(ConflictError):
    """The object is managed by a canary file; change the file instead."""


class UnauthorizedError(CoalmineError):
    """No key was sent, or an unknown one."""


class ForbiddenError(CoalmineError):
    """The key lacks the scope for this."""


class TooManyRequestsError(CoalmineError):
    """The caller asks too much at a time; this process answers again after `retry_after_seconds`."""

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class BusyError(CoalmineError):
    """A concurrency limit of this process is reached; retry later or on another replica."""


class LocalResourceError(BusyError):
    """File descriptors or memory of this machine are exhausted; the peer was not contacted."""


class StoreUnavailableError(CoalmineError):
    """The database is locked, gone or unreachable; nothing was written."""


class ConfigurationError(CoalmineError):
    """The settings are unusable, so the process does not start."""


def require_found(found: FoundT | None, name: str) -> FoundT:
    """Return what was found. Raises NotFoundError where that is None."""
    if found is None:
        raise NotFoundError(f"there is no {name}")
    return found
