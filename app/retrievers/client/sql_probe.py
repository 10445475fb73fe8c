"""Probes a PostgreSQL database by one SELECT per canary, over psycopg; its rows are read like any response."""

import asyncio
import errno
import json
import os
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

from app.base.addresses import AddressPolicy
from app.base.errors import InvalidInputError, LocalResourceError, Problem
from app.base.net.file_descriptors import are_exhausted
from app.base.net.limits import Limits
from app.base.net.transfer import CONNECT_SECONDS
from app.base.net.wire import NoAnswerError, RequestAuth, Response
from app.base.values import EMPTY, Answer, Exchange, Outcome
from app.retrievers.client.async_lanes import Batch, Deliver, query_in_lanes, run_in_background
from app.retrievers.client.credentials import masked
from app.retrievers.client.database_errors import connection_error, statement_error
from app.retrievers.client.database_rows import rows_json, too_large
from app.retrievers.client.postgresql import parse_target, permitted_addresses, received_bytes, tls_files
from app.retrievers.client.redaction import Redaction
from app.retrievers.client.request_templates import ProblemCollector, compile_reader
from app.retrievers.client.response_mapping import Reader
from app.retrievers.client.responses import SHOWN_CHARACTERS, failed_answer, read_answer
from app.retrievers.client.sql_statements import compile_statement
from app.retrievers.domain.retrievers import Basic, ProbeContext, ProbeQuery, Retriever

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
            async def lane() -> AsyncIterator[Any]:
                connector = _Connector(self._policy, replace(plan, parameters=parameters), context)
                try:
                    yield lambda item: connector.query(item, vectors)
                finally:
                    await connector.close()

            await query_in_lanes(context, queries, lane, deliver, self._limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
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
        values: dict[str, object] = {"query": item.query, "k": self._asking.k}
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
        begin = f"BEGIN TRANSACTION READ ONLY; SET LOCAL statement_timeout = {milliseconds}"
        limit = self._timeout + GRACE_SECONDS
        late = NoAnswerError(Outcome.TIMEOUT, f"no complete answer within {self._timeout:g} s")
        connection.limit_answer(self._asking.retriever.max_body_bytes)
        await _wait_for(limit, connection.execute(begin), late)
        started = time.perf_counter()
        body = await _wait_for(limit, self._fetch_json(connection, values), late)
        seconds = time.perf_counter() - started
        await _wait_for(limit, connection.execute("ROLLBACK"), late)
        return body, seconds

    async def _fetch_json(self, connection: "_Connection", values: Mapping[str, Any]) -> bytes:
        """Read row by row, so that of too many rows only the permitted ones are held."""
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
            request_body=masked(statement, secrets)[:SHOWN_CHARACTERS],
            response_body=masked(body.decode(), secrets)[:SHOWN_CHARACTERS] if body else None,
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
