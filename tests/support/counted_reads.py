"""A world whose store counts what it reads, and what is done while it writes: work is measured without a clock."""

import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from unittest.mock import patch

import sqlalchemy as sa

from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.catalog import store as catalog
from tests.support.world import World


@dataclass
class Reads:
    """Counts canaries parsed and, on SQLite, rows read; and the same within write transactions."""

    parsed: int = 0
    parsed_in_write: int = 0
    rows: int = 0
    rows_in_write: int = 0
    statements_in_write: int = 0
    calls_in_write: int = 0
    """Of Python's functions: whatever loops over a suite calls one for each canary."""
    _writing: set[int] = field(default_factory=set)
    _read_body: Callable[..., dict[str, Any]] = field(default_factory=lambda: catalog.read_body)
    """That of the world opened before, which counts as well, or the real one."""

    def body(self, kind: str, text: str, *, secrets_set: bool = False) -> dict[str, Any]:
        """Read a stored body."""
        if kind == "canary":
            self._count_parsed()
        return self._read_body(kind, text, secrets_set=secrets_set)

    def document(self, kind: type[Any], value: Any) -> Any:
        """Parse a document, as suites have it done with each of their canaries."""
        self._count_parsed()
        return parse_document(kind, value)

    def _count_parsed(self) -> None:
        self.parsed += 1
        self.parsed_in_write += self._is_writing()

    def watch(self, store: Store, *, calls: bool = False) -> None:
        """Count the rows of new connections, and note which thread writes; its calls too where that is asked for."""

        def connected(connection: sqlite3.Connection, _record: object) -> None:
            connection.row_factory = self._row

        def begun(connection: sa.Connection) -> None:
            if connection.get_execution_options().get("coalmine_writes"):
                self._writing.add(threading.get_ident())
                if calls:
                    sys.setprofile(self._call)

        def ended(_connection: sa.Connection) -> None:
            if self._is_writing() and calls:
                sys.setprofile(None)
            self._writing.discard(threading.get_ident())

        def sent(*_: object) -> None:
            self.statements_in_write += self._is_writing()

        sa.event.listen(store.engine, "begin", begun)
        sa.event.listen(store.engine, "commit", ended)
        sa.event.listen(store.engine, "rollback", ended)
        sa.event.listen(store.engine, "before_cursor_execute", sent)
        if store.dialect == "sqlite":
            sa.event.listen(store.engine, "connect", connected)

    def _is_writing(self) -> bool:
        return threading.get_ident() in self._writing

    def _row(self, _cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        self.rows += 1
        self.rows_in_write += self._is_writing()
        return row

    def _call(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.calls_in_write += event == "call"


@contextmanager
def counted_world(url: str, *, calls: bool = False) -> Iterator[tuple[World, Reads]]:
    """Open a world whose store counts what it reads."""
    reads = Reads()
    store = Store(url)
    reads.watch(store, calls=calls)
    with patch.object(catalog, "parse_document", reads.document), patch.object(catalog, "read_body", reads.body):
        yield World(store=store), reads
    store.close()
