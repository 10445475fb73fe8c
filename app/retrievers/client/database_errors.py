"""Outcomes of failed connections and statements of PostgreSQL, in sentences that quote nothing of the server."""

import errno
import os
import re

import psycopg

from app.base.net.wire import NoAnswerError
from app.base.values import Outcome


def statement_error(error: Exception, seconds: float) -> tuple[Outcome, str]:
    """Return outcome and sentence of a failed statement; `seconds` is its time-out."""
    if isinstance(error, NoAnswerError):
        return error.outcome, error.detail
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    if isinstance(error, psycopg.errors.QueryCanceled):
        return Outcome.TIMEOUT, f"the database cancelled the statement, which may take {seconds:g} s"
    if state is not None:
        is_disconnect = state.startswith(("08", "57P"))
        return (Outcome.UNREACHABLE if is_disconnect else Outcome.REFUSED), f"the database answered {_condition(state)}"
    if isinstance(error, psycopg.OperationalError):
        return Outcome.UNREACHABLE, "the connection was closed without an answer"
    if isinstance(error, psycopg.ProgrammingError):
        return Outcome.MALFORMED, "the statement gives no rows"
    return Outcome.MALFORMED, "the rows hold a value that cannot be written as JSON"


def connection_error(message: str) -> tuple[Outcome, str]:
    """Return outcome and sentence of a failed connection, by the words of libpq, which has no codes."""
    if "authentication method requirement" in message:
        return Outcome.REFUSED, _UNSAFE_LOGIN
    for words, state in _FATAL.items():
        if words in message:
            return Outcome.REFUSED, f"the database answered {_condition(state)}"
    if "FATAL" in message:
        return Outcome.REFUSED, "the database refused the connection"
    if "SSL" in message or "certificate" in message:
        return Outcome.UNREACHABLE, "the TLS handshake failed, or the database does not speak TLS"
    for number in (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ECONNRESET, errno.ETIMEDOUT):
        if os.strerror(number) in message:
            return Outcome.UNREACHABLE, f"connection failed: {os.strerror(number)}"
    return Outcome.UNREACHABLE, "connection failed"


def _condition(state: str) -> str:
    """Return a SQLSTATE as PostgreSQL's manual names it (appendix A): `42P01 (undefined_table)`."""
    try:
        name = psycopg.errors.lookup(state).__name__
    except KeyError:
        return state if _STATE.fullmatch(state) else "an error"
    return f"{state} ({re.sub('(?<!^)(?=[A-Z])', '_', name).lower()})"


_STATE = re.compile(r"[0-9A-Z]{5}")
_UNSAFE_LOGIN = (
    "the database asked for the password as it is, which takes sslmode=verify-full, or an authority under tls"
)
_FATAL = {
    "password authentication failed": "28P01",
    "no pg_hba.conf entry": "28000",
    "is not permitted to log in": "28000",
    'role "': "28000",
    'database "': "3D000",
    "too many c": "53300",
    "remaining connection slots": "53300",
    "the database system is": "57P03",
}
