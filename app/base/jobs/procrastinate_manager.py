"""Procrastinate's manager of jobs on a connection of ours: its statements are part of our transactions.

What it offers only to coroutines is run to its end at once, since nothing in it waits for anything but the database.
"""

from collections.abc import Coroutine
from typing import Any, LiteralString, TypeVar

from procrastinate.connector import BaseConnector
from procrastinate.manager import JobManager
from psycopg.types.json import Jsonb
from sqlalchemy import Connection

_ValueT = TypeVar("_ValueT")


def manager_on(connection: Connection) -> JobManager:
    """Return the manager of jobs on this connection."""
    return JobManager(_OnConnection(connection))


def done(work: Coroutine[Any, Any, _ValueT]) -> _ValueT:
    """Run a coroutine of the manager to its end and give what it returns."""
    try:
        work.send(None)
    except StopIteration as stop:
        found: _ValueT = stop.value
        return found
    raise AssertionError("a coroutine on a connection of ours waits for an event loop")


class _OnConnection(BaseConnector):
    """Sends statements on one connection, as SQLAlchemy does its own: its errors are those of any statement."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get_sync_connector(self) -> BaseConnector:
        return self

    def execute_query_all(self, query: LiteralString, **arguments: Any) -> list[dict[str, Any]]:
        sent = {name: _wrapped(value) for name, value in arguments.items()}
        return [dict(row) for row in self._connection.exec_driver_sql(query, sent).mappings()]

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        self.execute_query_all(query, **arguments)

    async def execute_query_one_async(self, query: LiteralString, **arguments: Any) -> dict[str, Any]:
        (row,) = self.execute_query_all(query, **arguments)
        return row

    async def execute_query_all_async(self, query: LiteralString, **arguments: Any) -> list[dict[str, Any]]:
        return self.execute_query_all(query, **arguments)


def _wrapped(value: Any) -> Any:
    """Wrap mappings as JSON, which the driver does not do of itself."""
    if isinstance(value, dict):
        return Jsonb(value)
    if isinstance(value, list):
        return [_wrapped(one) for one in value]
    if isinstance(value, tuple):
        return tuple(_wrapped(one) for one in value)
    return value
