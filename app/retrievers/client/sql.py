"""Probes a PostgreSQL database by one SELECT per canary, over psycopg; its rows are read like any response.

The statement's named parameters are compiled once, addresses are checked before connecting, and errors of the driver
become answers.
"""

import asyncio
import datetime as dt
import errno
import json
import os
import re
import socket
import ssl
import struct
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from app.base.addresses import AddressPolicy, Basic, Tls
from app.base.errors import InvalidInputError, LocalResourceError, Problem
from app.base.limits import Limits
from app.base.net.transfer import CONNECT_SECONDS, NoAnswerError, RequestAuth, Response, are_exhausted, blocked_text
from app.base.values import EMPTY, Answer, Exchange, Outcome, Value, replace
from app.retrievers.client.background_loop import Batch, Deliver, query_in_sessions, run_in_background
from app.retrievers.client.compiled_retriever import (
    ProblemCollector,
    Reader,
    compile_reader,
    read_answer,
    varied_options,
)
from app.retrievers.client.credentials import Redaction, masked
from app.retrievers.client.responses import failed_answer
from app.retrievers.domain.retrievers import KEPT_CHARACTERS, ProbeContext, ProbeQuery, Retriever

GRACE_SECONDS = 0.25
"""Added to the server's own statement time-out, which ends a statement more gently."""
CANCEL_SECONDS = 0.5
"""Time for cancelling a statement; then the connection is cut."""

SUPERUSER = (
    "the role of the database is a superuser, whose statements may read the server's files and end its sessions: "
    "use a role that may only SELECT"
)

T = TypeVar("T")


class SqlProbe:
    """Probes PostgreSQL: connections go to permitted addresses only, in transactions that only read."""

    def __init__(self, policy: AddressPolicy, *, limits: Limits | None = None) -> None:
        """`limits` are those of all retrievers of the process."""
        self._policy = policy
        self._limits = limits or Limits()

    def __call__(
        self, context: ProbeContext, queries: Sequence[ProbeQuery], vectors: Mapping[str, Sequence[float]] = EMPTY
    ) -> Iterator[Batch]:
        """Send every query; see `Probe`. Raises InvalidInputError at once for an unusable database."""
        plan = _compile_plan(context.retriever, context.k)
        names_alone = sorted(varied_options(context.retriever, queries) - plan.names)
        if names_alone:
            message = "cannot be set, since the statement has it as a name and not as a parameter: take it out of vars"
            raise InvalidInputError([Problem(path="vars", message=f"'{name}' {message}") for name in names_alone])
        return run_in_background(partial(self._work, plan, context, queries, vectors), "sql probe")

    async def _work(
        self,
        plan: "_Plan",
        context: ProbeContext,
        queries: Sequence[ProbeQuery],
        vectors: Mapping[str, Sequence[float]],
        deliver: Deliver,
    ) -> None:
        with TemporaryDirectory(prefix="coalmine-") as folder:  # libpq reads certificates from files alone
            parameters = plan.parameters | tls_files(context.retriever.tls, Path(folder))
            parameters["application_name"] = f"coalmine (+run {context.run_id})"[:63]

            @asynccontextmanager
            async def session() -> AsyncIterator[Any]:
                connector = _Connector(self._policy, replace(plan, parameters=parameters), context)
                try:
                    yield lambda item: connector.query(item, vectors)
                finally:
                    await connector.close()

            await query_in_sessions(context, queries, session, deliver, self._limits)


class _Plan(Value):
    """Compiled configuration of a retriever."""

    host: str
    port: int
    parameters: dict[str, str]
    statement: str
    names: frozenset[str]
    reader: Reader


class _Connector:
    """One connection at a time, made when it is needed and dropped after any error."""

    def __init__(self, policy: AddressPolicy, plan: _Plan, context: ProbeContext) -> None:
        self._policy = policy
        self._plan = plan
        self._asking = context
        auth = RequestAuth(secrets=(str(plan.parameters["password"]),))
        self._redaction = Redaction.of(auth, thorough=context.shows)
        self._connection: _Connection | None = None
        self._is_superuser = False

    async def query(self, item: ProbeQuery, vectors: Mapping[str, Sequence[float]]) -> Answer:
        """Answer one query."""
        values: dict[str, object] = {**self._asking.retriever.options, **item.vars}
        values |= {"query": item.query, "k": self._asking.k}
        if "vector" in self._plan.names:
            values["vector"] = json.dumps(list(vectors[item.query]))
        values = {name: values[name] for name in self._plan.names}
        started = time.perf_counter()
        body = b""
        try:
            _check_text(item.query)
            body, seconds = await self._select_rows(await self._connect(), values)
        except (NoAnswerError, psycopg.Error, *_UNREADABLE) as error:
            seconds = time.perf_counter() - started
            await self.close()
            answer = failed_answer(*statement_error(error, self._timeout), None, seconds)
        else:
            body = self._redaction.body(body)
            answer = read_answer(Response(body=body, latency_seconds=seconds), self._plan.reader)
        return replace(answer, exchange=self._shown_exchange(values, body)) if self._asking.shows else answer

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    @property
    def _timeout(self) -> float:
        return self._asking.retriever.timeout_seconds

    async def _connect(self) -> "_Connection":
        """Return the connection; a new one goes to a permitted address. Raises NoAnswerError and psycopg's."""
        if self._connection is not None:
            return self._connection
        limit = min(self._timeout, CONNECT_SECONDS)
        try:
            async with asyncio.timeout(limit):
                addresses = await permitted_addresses(self._plan.host, self._plan.port, self._policy)
                self._connection = await _Connection.connect(
                    make_conninfo(**self._plan.parameters, **addresses),
                    autocommit=True,  # transactions are begun in words, to be those of a reader
                    prepare_threshold=None,  # poolers such as PgBouncer lose what was prepared
                    row_factory=dict_row,
                )
        except TimeoutError:
            raise NoAnswerError(Outcome.TIMEOUT, f"no connection within {limit:g} s") from None
        except (psycopg.OperationalError, OSError) as error:
            if are_exhausted():
                raise LocalResourceError(f"nothing could be asked from here: {os.strerror(errno.EMFILE)}") from None
            if isinstance(error, OSError):
                raise
            raise NoAnswerError(*connection_error(str(error))) from None
        # A server reports this with the connection (PostgreSQL's manual, PQparameterStatus): no statement is needed.
        self._is_superuser = self._connection.pgconn.parameter_status(b"is_superuser") == b"on"
        return self._connection

    async def _select_rows(self, connection: "_Connection", values: Mapping[str, Any]) -> tuple[bytes, float]:
        """Return the rows as a JSON list, and the seconds. Raises NoAnswerError and psycopg's errors."""
        milliseconds = max(1, round(self._timeout * 1000))
        writes = self._asking.retriever.writes
        begin = f"BEGIN TRANSACTION READ {'WRITE' if writes else 'ONLY'}; SET LOCAL statement_timeout = {milliseconds}"
        begin += "".join(f"; SET LOCAL {name} = {value}" for name, value in self._asking.retriever.settings.items())
        limit = self._timeout + GRACE_SECONDS
        late = NoAnswerError(Outcome.TIMEOUT, f"no complete answer within {self._timeout:g} s")
        connection.limit_answer(self._asking.retriever.max_body_bytes)
        await _wait_for(limit, connection.execute(begin), late)
        started = time.perf_counter()
        body = await _wait_for(limit, self._fetch_json(connection, values), late)
        seconds = time.perf_counter() - started
        await _wait_for(limit, connection.execute("COMMIT" if writes else "ROLLBACK"), late)
        return body, seconds

    async def _fetch_json(self, connection: "_Connection", values: Mapping[str, Any]) -> bytes:
        """Read row by row, so that of too many rows only the permitted ones are held; of a write there are none."""
        if self._asking.retriever.writes:
            await connection.execute(self._plan.statement.encode(), values)
            return b"[]"
        # Closed here: left to the loop, a stream would still be waiting for the server when the loop ends.
        async with connection.cursor() as cursor, aclosing(_stream_rows(cursor, self._plan.statement, values)) as rows:
            try:
                return await rows_json(rows, self._asking.retriever.max_body_bytes)
            except (NoAnswerError, *_UNREADABLE):
                await connection.close()  # else psycopg would hear the server out
                raise

    def _shown_exchange(self, values: Mapping[str, Any], body: bytes) -> Exchange:
        retriever = self._asking.retriever
        secrets = (retriever.auth.password,) if isinstance(retriever.auth, Basic) else ()
        statement = f"{retriever.sql}\n{json.dumps(dict(values), ensure_ascii=False)}"
        return Exchange(
            method="SELECT",
            url=masked(retriever.url, secrets),
            request_body=masked(statement, secrets)[:KEPT_CHARACTERS],
            response_body=masked(body.decode(), secrets)[:KEPT_CHARACTERS] if body else None,
            response_bytes=len(body),
            remarks=(SUPERUSER,) if self._is_superuser else (),
        )


class _Connection(psycopg.AsyncConnection[dict[str, Any]]):
    """A connection that is cut when more arrives than permitted: libpq would read a whole row first.

    Where the system does not count the bytes received, on macOS, rows are only checked once they are there.
    """

    _limit = 0
    _max_bytes = 0

    def limit_answer(self, limit: int) -> None:
        """Permit so many bytes of an answer from now on, and as many again for the protocol."""
        self._limit = limit
        self._max_bytes = (received_bytes(self.fileno()) or 0) + 2 * limit + _PROTOCOL_BYTES

    async def wait(self, gen: Generator[Any, Any, T], *args: Any, **more: Any) -> T:
        """Drive a step of the protocol, as psycopg does."""
        return await super().wait(self._count_bytes(gen), *args, **more)

    def _count_bytes(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Check the bytes received whenever psycopg is about to read on."""
        event: Any = None
        while True:
            try:
                event = yield gen.send(event)
            except StopIteration as end:
                return cast("T", end.value)
            if (received_bytes(self.fileno()) or 0) > self._max_bytes > 0:
                self.pgconn.finish()
                raise too_large(self._limit)


def _stream_rows(
    cursor: psycopg.AsyncCursor[dict[str, Any]], statement: str, values: Mapping[str, Any]
) -> AsyncGenerator[dict[str, Any], None]:
    """Return the rows as the generator that psycopg makes, though it promises less."""
    return cast("AsyncGenerator[dict[str, Any], None]", cursor.stream(statement.encode(), values))


def _compile_plan(retriever: Retriever, k: int) -> _Plan:
    """Return what is the same for all probes of a run; raises InvalidInputError with everything wrong."""
    attempt = ProblemCollector()
    problems = attempt.problems
    target = attempt("url", partial(parse_target, retriever.url, retriever.tls))
    names = ("query", "k", *(["vector"] if retriever.embedder is not None else []), *retriever.options)
    changing = frozenset(names) if retriever.writes else _CHANGING if retriever.reads is None else None
    statement = attempt("sql", partial(compile_statement, retriever.sql or "", names, changing))
    reader = attempt("response", partial(compile_reader, retriever, k))
    auth = retriever.auth
    if not isinstance(auth, Basic):
        problems.append(Problem(path="auth", message="must be of kind basic: a user of the database, and its password"))
    if problems or target is None or statement is None or reader is None or not isinstance(auth, Basic):
        raise InvalidInputError(problems)
    host, port, parameters = target
    parameters |= {"user": auth.user, "password": auth.password}
    text, used = statement
    return _Plan(host=host, port=port, parameters=parameters, statement=text, names=used, reader=reader)


async def _wait_for(seconds: float, work: Coroutine[Any, Any, T], late: Exception) -> T:
    """Wait for a step up to a limit; raises `late`. Leaves nothing under way, even on a server that hears nothing."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise late
        return task.result()
    finally:
        for _ in range(2):  # psycopg asks the server to stop at the first call, and cuts the connection at the second
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=CANCEL_SECONDS)
        if task.done() and not task.cancelled():
            task.exception()  # looked at, lest the loop complain


def _check_text(query: str) -> None:
    if "\0" in query or any("\ud800" <= character <= "\udfff" for character in query):
        raise NoAnswerError(Outcome.REFUSED, "the query holds a character that PostgreSQL cannot take")


_UNREADABLE = (ValueError, ArithmeticError, RecursionError)
"""Errors of hostile values besides psycopg's."""
_PROTOCOL_BYTES = 65_536
PORT = 5432
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_NO_FILE = "/dev/null/nowhere"
"""A path without a file; libpq takes an empty name for its own place in the home folder."""
OWN_PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        "options": "",
        "client_encoding": "UTF8",
        "target_session_attrs": "any",
        "channel_binding": "prefer",
        "gssencmode": "disable",  # Kerberos would ask servers nobody judged
        "passfile": _NO_FILE,
        "sslrootcert": _NO_FILE,
        "sslcert": _NO_FILE,
        "sslkey": _NO_FILE,
        "sslcrl": _NO_FILE,
        "sslcrldir": "",
    }
)
"""Values that libpq would otherwise take from the environment and the home folder (PostgreSQL's manual, libpq,
"Environment Variables"). A `PGSERVICE` can add to these, and replace none."""

SAFE_AUTH = "scram-sha-256,md5,none"
"""Authentication methods for a server that did not prove who it is: never the password itself."""


def parse_target(url: str, tls: Tls | None) -> tuple[str, int, dict[str, str]]:
    """Return host, port and parameters of the URL; raises ValueError for what would lead libpq elsewhere."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or PORT
    except ValueError as error:
        raise ValueError(f"the URL is malformed: {error}") from None
    if parts.scheme not in {"postgresql", "postgres"} or not _HOST.fullmatch(host):
        raise ValueError("the URL must be written postgresql://host:port/database")
    if "@" in parts.netloc:
        raise ValueError("user and password belong into auth, where they are kept secret")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    mode = options.pop("sslmode", "verify-full" if tls is not None and tls.authority else "prefer")
    if options or parts.fragment:
        raise ValueError("sslmode is the only parameter a URL may have")
    if mode not in SSL_MODES:
        raise ValueError(f"sslmode must be one of {', '.join(SSL_MODES)}")
    parameters = {"dbname": unquote(parts.path.strip("/")) or "postgres", "sslmode": mode}
    if mode.startswith("verify-"):
        parameters["sslrootcert"] = ssl.get_default_verify_paths().cafile or "system"
    else:
        parameters["require_auth"] = SAFE_AUTH
    return host, port, {**OWN_PARAMETERS, **parameters}


def received_bytes(connection: int) -> int | None:
    """Return the bytes a TCP connection received, by `tcp_info.tcpi_bytes_received` of Linux; None elsewhere."""
    place = socket.socket(fileno=connection)
    try:
        info = place.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        return int(_TCP_INFO.unpack(info)[0])
    except (AttributeError, OSError, struct.error):
        return None
    finally:
        place.detach()


def tls_files(tls: Tls | None, folder: Path) -> dict[str, str]:
    """Write the PEM texts to files that only we can read; returns their paths by libpq's names."""
    texts = {} if tls is None else {"sslrootcert": tls.authority, "sslcert": tls.certificate, "sslkey": tls.key}
    files = {}
    for name, text in texts.items():
        if text is not None:
            file = folder / name
            file.touch(mode=0o600)
            file.write_text(text, encoding="ascii")
            files[name] = str(file)
    return files


async def permitted_addresses(host: str, port: int, policy: AddressPolicy) -> dict[str, str]:
    """Resolve a host and return its permitted addresses for libpq, which then resolves nothing itself."""
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NoAnswerError(Outcome.UNREACHABLE, "the host name does not resolve") from None
    reasons = {str(place[4][0]): policy.check(str(place[4][0]), host) for place in addresses}
    permitted = [address for address, reason in reasons.items() if reason is None]
    if not permitted:
        raise NoAnswerError(Outcome.BLOCKED, blocked_text(next(iter(reasons.values())) or ""))
    count = len(permitted)
    return {
        "host": ",".join([host] * count),  # what a certificate must be for
        "hostaddr": ",".join(permitted),
        "port": ",".join([str(port)] * count),
    }


_TCP_INFO = struct.Struct("=128xQ")
_HOST = re.compile(r"[A-Za-z0-9._:-]+")  # a comma would be a list to libpq, a slash a folder of sockets


_CHANGING = frozenset({"query", "vector"})


def compile_statement(
    sql: str, names: Sequence[str], changing: frozenset[str] | None = _CHANGING
) -> tuple[str, frozenset[str]]:
    """Return the statement as psycopg takes it, and the names of its parameters.

    Texts, quoted names, dollar-quoted texts and comments are left alone, and `::` is a cast (PostgreSQL's manual,
    section 4.1). Raises ValueError for a parameter that is not among `names`, for none that changes with what is asked
    (`changing`; None = none has to), and for more than one statement.
    """
    parts: list[str] = []
    used: set[str] = set()
    ended = False
    for token in _TOKEN.finditer(sql):
        text, name = token[0], token["name"]
        comment = text.startswith(("--", "/*"))
        if ended and not comment and text.strip():
            raise ValueError("must be one statement")
        if name is not None:
            if name not in names:
                raise ValueError(f":{name} is not a known parameter; there are {', '.join(f':{one}' for one in names)}")
            used.add(name)
            text = f"%({name})s"
        elif text == ";":
            ended, text = True, ""
        else:
            text = text.replace("%", "%%")
        parts.append(text)
    if changing is not None and not used & changing:
        # A statement with parameters goes by the extended protocol, where the server itself refuses a second one.
        raise ValueError("never uses :query, so every canary would ask the same")
    return "".join(parts).strip(), frozenset(used)


_TOKEN = re.compile(
    r"""
    [eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)      # a text with escapes; unclosed ones are the server's to complain about
    | '(?:[^']|'')*(?:'|\Z)
    | "(?:[^"]|"")*(?:"|\Z)
    | (?<![\w$])\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z)
    | --[^\n]*
    | /\*.*?(?:\*/|\Z)
    | ::
    | (?<![\w\]:]):(?P<name>[A-Za-z_]\w*)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


MAX_ROWS = 10_000


async def rows_json(rows: AsyncIterator[Mapping[str, Any]], limit: int) -> bytes:
    """Return the rows as JSON. Raises NoAnswerError for too much, and errors of values that cannot be written."""
    rows_written: list[bytes] = []
    size = 2
    async for row in rows:
        rows_written.append(json.dumps(row, default=_json_value, ensure_ascii=False).encode())
        size += len(rows_written[-1]) + 1
        if size > limit:
            raise too_large(limit)
        if len(rows_written) > MAX_ROWS:
            raise NoAnswerError(Outcome.OVERSIZE, f"the answer has more than {MAX_ROWS:,} rows; {_LIMIT}")
    return b"[" + b",".join(rows_written) + b"]"


def too_large(limit: int) -> NoAnswerError:
    """Return the error for a response of more than `limit` bytes."""
    return NoAnswerError(Outcome.OVERSIZE, f"the answer is larger than {limit:,} bytes; {_LIMIT}")


def _json_value(value: Any) -> Any:
    """Return a value that JSON has no type for as a number, an ISO 8601 time or a text."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else str(value)


_LIMIT = "has the statement a LIMIT :k?"


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
