"""Statements compiled once for all stores of a session: half of what a test of a few runs takes, were each its own."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from sqlalchemy import Dialect, Engine, event

from app.base.db import engine as drivers

_MOST = 5_000  # statements
_UNCORRELATED = re.compile(r"\bFROM \w+(?: AS \"?\w+\"?)?, (\w+(?: AS \"?\w+\"?)?) +\n?WHERE\b")
"""Within a subquery: a table beside another, which SQLAlchemy adds where it correlates with no outer query."""


@contextmanager
def shared() -> Iterator[None]:
    """Let stores made within share what SQLAlchemy compiled, by kind of database.

    Its cache goes by the dialect, so they share that too: the first to have been connected, hence initialized.
    """
    connected: dict[str, tuple[Dialect, object]] = {}
    with patch.object(drivers, "create_engine", _sharing(drivers.create_engine, connected)):
        yield
    compiled = [one.string for _, cache in connected.values() for one in cache.values()]  # type: ignore[attr-defined]
    found = [sql for sql in compiled if is_uncorrelated(sql)]
    assert not found, f"a subquery joins a table of the outer query anew, correlate() it: {found[0]}"


def is_uncorrelated(sql: str) -> bool:
    """Whether a subquery names a table of its outer query beside its own, and so is of any row of it."""
    for one in _UNCORRELATED.finditer(sql):
        before = sql[: one.start()]
        if before.count("(") > before.count(")") and re.search(rf"FROM {one[1]}\s", before + sql[one.end() :] + " "):
            return True
    return False


def _sharing(
    create: Callable[[str, int], Engine], connected: dict[str, tuple[Dialect, object]]
) -> Callable[[str, int], Engine]:

    def create_sharing(url: str, busy_milliseconds: int) -> Engine:
        engine = create(url, busy_milliseconds)
        name = engine.dialect.name
        if name in connected:
            engine.dialect, engine._compiled_cache = connected[name]  # type: ignore[assignment] # the cache is untyped
            return engine

        def keep(*_: object) -> None:
            engine._compiled_cache.capacity = _MOST  # type: ignore[union-attr] # ours always has one
            connected.setdefault(name, (engine.dialect, engine._compiled_cache))

        event.listen(engine, "connect", keep)
        return engine

    return create_sharing
