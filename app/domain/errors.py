"""Every error Coalmine raises on purpose, without a word of HTTP.

CoalmineError
├── InvalidInputError      what was given cannot be used; carries every problem found
├── UnsupportedError       it is of a kind nobody here reads
├── TooLargeError          there is more of it than anybody here reads
├── NotFoundError          no such thing
├── ConflictError          it cannot be done to the thing as it is now
│   └── FileManagedError   the thing is owned by a canary file
├── UnauthorizedError      no key, or a key we do not know
├── ForbiddenError         a key without the scope
├── BusyError              as many of it as this process takes are under way
│   └── LocalResourceError this process or machine is out of descriptors or memory
├── StoreUnavailableError  the database is locked, gone or unreachable
└── ConfigurationError     the process must not start like this
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with an input: where (`path` in a document, `file` and `line` in a file) and what."""

    message: str
    path: str | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        """Render as `file:line: path: message`, leaving out what is not known."""
        place = f"{self.file}:{self.line}" if self.line is not None else self.file
        return ": ".join(part for part in (place, self.path, self.message) if part)


class CoalmineError(Exception):
    """The base of all errors raised on purpose."""


class InvalidInputError(CoalmineError):
    """What was given cannot be used; nothing of it was."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))


class UnsupportedError(CoalmineError):
    """What was given is of a kind nobody here reads."""


class TooLargeError(CoalmineError):
    """There is more of it than anybody here reads."""


class NotFoundError(CoalmineError):
    """There is no such thing."""


class ConflictError(CoalmineError):
    """It cannot be done to the thing as it is now."""


class FileManagedError(ConflictError):
    """The thing is owned by a canary file; change the file instead."""


class UnauthorizedError(CoalmineError):
    """No key was given, or none we know."""


class ForbiddenError(CoalmineError):
    """The key is known but its scope does not reach this far."""


class BusyError(CoalmineError):
    """As many of it as this process takes are under way; later, or elsewhere."""


class LocalResourceError(BusyError):
    """Out of file descriptors or memory, here: nothing is known about the peer that was to be asked."""


class StoreUnavailableError(CoalmineError):
    """The database is locked, gone or unreachable; nothing was written."""


class ConfigurationError(CoalmineError):
    """The process must not start with these settings."""
