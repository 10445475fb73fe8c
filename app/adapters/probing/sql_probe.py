"""Probes a PostgreSQL database by one SELECT per canary, over psycopg; the only adapter that knows a database driver.

What is selected is the user's statement; its rows are read by the same mapping as any answer.
"""

import asyncio
import errno
import json
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, cast

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from app.adapters.file_descriptors import are_exhausted
from app.adapters.limits import Limits
from app.adapters.probing.async_lanes import Batch, Deliver, NoAnswerError, query_in_lanes, run_in_background
from app.adapters.probing.credentials import masked
from app.adapters.probing.database_rows import rows_json, too_large
from app.adapters.probing.postgresql import parse_target, permitted_addresses, received_bytes, tls_files
from app.adapters.probing.redaction import Redaction
from app.adapters.probing.request_templates import ProblemCollector, compile_reader
from app.adapters.probing.response_mapping import Reader
from app.adapters.probing.responses import SHOWN_CHARACTERS, failed_answer, read_answer
from app.adapters.probing.sql_statements import compile_statement
from app.adapters.transfer import CONNECT_SECONDS
from app.adapters.wire import RequestAuth, Response
from app.domain.addresses import AddressPolicy
from app.domain.errors import InvalidInputError, LocalResourceError, Problem
from app.domain.model import EMPTY, Answer, Exchange, Outcome
from app.domain.probing.retrievers import Basic, ProbeContext, ProbeQuery, Retriever

GRACE_SECONDS = 0.25
"""How much longer than the server's own statement time-out we wait: it ends a statement more gently."""
CANCEL_SECONDS = 0.5
"""How long a server may take to hear that a statement is cancelled; then the connection is cut."""

SUPERUSER = (
    "the role of the database is a superuser, whose statements may read the server's files and end its sessions: "
    "use a role that may only SELECT"
)

T = TypeVar("T")


class SqlProbe:
    """Asks PostgreSQL. Every connection goes to an address that was judged, in a transaction that only reads."""

    def __init__(self, policy: AddressPolicy, *, limits: Limits | None = None) -> None:
        """`limits` are those of all retrievers of the process."""
        self._policy = policy
        self._limits = limits or Limits()

    def __call__(
        self, asking: ProbeContext, asks: Sequence[ProbeQuery], vectors: Mapping[str, Sequence[float]] = EMPTY
    ) -> Iterator[Batch]:
        """Ask everything; see `Probe`. `vectors` are those of the queries, for `:vector`.

        Raises InvalidInputError at once if the database cannot be asked at all.
        """
        plan = _compile(asking.retriever, asking.k)
        return run_in_background(partial(self._work, plan, asking, asks, vectors), "sql probe")

    async def _work(
        self,
        plan: "_Plan",
        asking: ProbeContext,
        asks: Sequence[ProbeQuery],
        vectors: Mapping[str, Sequence[float]],
        hand: Deliver,
    ) -> None:
        with TemporaryDirectory(prefix="coalmine-") as folder:  # libpq reads certificates from files alone
            parameters = plan.parameters | tls_files(asking.retriever.tls, Path(folder))
            parameters["application_name"] = f"coalmine (+run {asking.run_id})"[:63]

            @asynccontextmanager
            async def lane() -> AsyncIterator[Any]:
                line = _Line(self._policy, replace(plan, parameters=parameters), asking)
                try:
                    yield lambda ask: line.ask(ask, vectors)
                finally:
                    await line.close()

            await query_in_lanes(asking, asks, lane, hand, self._limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A retriever's configuration, compiled."""

    host: str
    port: int
    parameters: dict[str, str]
    """Of the connection, as libpq names them."""
    statement: str
    names: frozenset[str]
    reader: Reader


class _Line:
    """One connection at a time, made when it is needed and dropped when anything was wrong with it."""

    def __init__(self, policy: AddressPolicy, plan: _Plan, asking: ProbeContext) -> None:
        self._policy = policy
        self._plan = plan
        self._asking = asking
        ours = RequestAuth(secrets=(str(plan.parameters["password"]),))
        self._redaction = Redaction.of(ours, thorough=asking.shows)
        self._connection: _Connection | None = None
        self._is_superuser = False

    async def ask(self, ask: ProbeQuery, vectors: Mapping[str, Sequence[float]]) -> Answer:
        """Ask one query."""
        values: dict[str, Any] = {"query": ask.query, "k": self._asking.k}
        if "vector" in self._plan.names:
            values["vector"] = json.dumps(list(vectors[ask.query]))
        values = {name: values[name] for name in self._plan.names}
        started = time.perf_counter()
        body = b""
        try:
            _check(ask.query)
            body, seconds = await self._rows(await self._connected(), values)
        except (NoAnswerError, psycopg.Error, *_UNREADABLE) as error:
            seconds = time.perf_counter() - started
            await self.close()
            answer = failed_answer(*_diagnosed(error, self._timeout), None, seconds)
        else:
            body = self._redaction.body(body)
            answer = read_answer(Response(body=body, latency_seconds=seconds), self._plan.reader)
        return replace(answer, exchange=self._shown(values, body)) if self._asking.shows else answer

    async def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    @property
    def _timeout(self) -> float:
        return self._asking.retriever.timeout_seconds

    async def _connected(self) -> "_Connection":
        """Give the connection; a new one goes to an address that was judged, so that no name can rebind.

        Raises NoAnswerError and psycopg's errors.
        """
        if self._connection is not None:
            return self._connection
        limit = min(self._timeout, CONNECT_SECONDS)
        try:
            async with asyncio.timeout(limit):
                places = await permitted_addresses(self._plan.host, self._plan.port, self._policy)
                self._connection = await _Connection.connect(
                    make_conninfo(**self._plan.parameters, **places),
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
            raise NoAnswerError(*_not_connected(str(error))) from None
        # A server reports this with the connection (PostgreSQL's manual, PQparameterStatus): no statement is needed.
        self._is_superuser = self._connection.pgconn.parameter_status(b"is_superuser") == b"on"
        return self._connection

    async def _rows(self, connection: "_Connection", values: Mapping[str, Any]) -> tuple[bytes, float]:
        """Select; give the rows as a JSON list and the seconds it took. Raises NoAnswerError and psycopg's errors."""
        milliseconds = max(1, round(self._timeout * 1000))
        begin = f"BEGIN TRANSACTION READ ONLY; SET LOCAL statement_timeout = {milliseconds}"
        limit = self._timeout + GRACE_SECONDS
        late = NoAnswerError(Outcome.TIMEOUT, f"no complete answer within {self._timeout:g} s")
        connection.bear(self._asking.retriever.max_body_bytes)
        await _within(limit, connection.execute(begin), late)
        started = time.perf_counter()
        body = await _within(limit, self._selected(connection, values), late)
        seconds = time.perf_counter() - started
        await _within(limit, connection.execute("ROLLBACK"), late)
        return body, seconds

    async def _selected(self, connection: "_Connection", values: Mapping[str, Any]) -> bytes:
        """Read row by row, so that of too many rows no more are held than may be."""
        # Closed here: left to the loop, a stream would still be waiting for the server when the loop ends.
        async with connection.cursor() as cursor, aclosing(_rows_of(cursor, self._plan.statement, values)) as rows:
            try:
                return await rows_json(rows, self._asking.retriever.max_body_bytes)
            except (NoAnswerError, *_UNREADABLE):
                await connection.close()  # else psycopg would hear the server out
                raise

    def _shown(self, values: Mapping[str, Any], body: bytes) -> Exchange:
        retriever = self._asking.retriever
        secrets = (retriever.auth.password,) if isinstance(retriever.auth, Basic) else ()
        statement = f"{retriever.sql}\n{json.dumps(dict(values), ensure_ascii=False)}"
        return Exchange(
            method="SELECT",
            url=masked(retriever.url, secrets),
            request_body=masked(statement, secrets)[:SHOWN_CHARACTERS],
            response_body=masked(body.decode(), secrets)[:SHOWN_CHARACTERS] if body else None,
            response_bytes=len(body),
            remarks=(SUPERUSER,) if self._is_superuser else (),
        )


class _Connection(psycopg.AsyncConnection[dict[str, Any]]):
    """A connection that is cut where more comes than may: libpq would read a row whole before anybody sees it.

    Where the system does not count what came, on macOS, rows are only looked at once they are there.
    """

    _limit = 0
    _most = 0

    def bear(self, limit: int) -> None:
        """Let so many bytes of an answer come from now on, and as many again of the protocol's own."""
        self._limit = limit
        self._most = (received_bytes(self.fileno()) or 0) + 2 * limit + _PROTOCOL_BYTES

    async def wait(self, gen: Generator[Any, Any, T], *args: Any, **more: Any) -> T:
        """Drive a step of the protocol, as psycopg does."""
        return await super().wait(self._watched(gen), *args, **more)

    def _watched(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Look how much came whenever psycopg wants to go on reading."""
        event: Any = None
        while True:
            try:
                event = yield gen.send(event)
            except StopIteration as end:
                return cast("T", end.value)
            if (received_bytes(self.fileno()) or 0) > self._most > 0:
                self.pgconn.finish()
                raise too_large(self._limit)


def _rows_of(
    cursor: psycopg.AsyncCursor[dict[str, Any]], statement: str, values: Mapping[str, Any]
) -> AsyncGenerator[dict[str, Any], None]:
    """Select; a generator is what psycopg gives, though it promises less."""
    return cast("AsyncGenerator[dict[str, Any], None]", cursor.stream(statement.encode(), values))


def _compile(retriever: Retriever, k: int) -> _Plan:
    """Compile what is the same for all probes of a run; raises InvalidInputError with everything that is wrong."""
    attempt = ProblemCollector()
    problems = attempt.problems
    target = attempt("url", partial(parse_target, retriever.url, retriever.tls))
    names = ("query", "k", "vector") if retriever.embedder is not None else ("query", "k")
    statement = attempt("sql", partial(compile_statement, retriever.sql or "", names))
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


async def _within(seconds: float, work: Coroutine[Any, Any, T], late: Exception) -> T:
    """Wait for a step, but no longer; raises `late`. Leaves nothing under way, even where a server hears nothing."""
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


def _check(query: str) -> None:
    """Refuse a query that the protocol cannot carry."""
    if "\0" in query or any("\ud800" <= character <= "\udfff" for character in query):
        raise NoAnswerError(Outcome.REFUSED, "the query holds a character that PostgreSQL cannot take")


def _diagnosed(error: Exception, seconds: float) -> tuple[Outcome, str]:
    """Say what became of a statement, in words of our own: those of the server may quote data."""
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


def _not_connected(message: str) -> tuple[Outcome, str]:
    """Say why there is no connection; libpq has but sentences, which quote the server and name the user."""
    if "authentication method requirement" in message:
        return Outcome.REFUSED, _CLEAR
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
    """Name a SQLSTATE as PostgreSQL's manual does (appendix A): `42P01 (undefined_table)`."""
    try:
        name = psycopg.errors.lookup(state).__name__
    except KeyError:
        return state if _STATE.fullmatch(state) else "an error"
    return f"{state} ({re.sub('(?<!^)(?=[A-Z])', '_', name).lower()})"


_UNREADABLE = (ValueError, ArithmeticError, RecursionError)
"""What reading or writing a hostile value may raise besides psycopg's errors."""
_STATE = re.compile(r"[0-9A-Z]{5}")
_PROTOCOL_BYTES = 65_536
_CLEAR = "the database asked for the password as it is, which takes sslmode=verify-full, or an authority under tls"
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
