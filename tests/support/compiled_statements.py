"""Statements compiled once for all stores of a session: half of what a test of a few runs takes, were each its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from sqlalchemy import Dialect, Engine, event

from app.store import drivers
from app.store import engine as stores

_MOST = 5_000  # statements


@contextmanager
def shared() -> Iterator[None]:
    """Let stores made within share what SQLAlchemy compiled, by kind of database.

    Its cache goes by the dialect, so they share that too: the first to have been connected, hence initialized.
    """
    with patch.object(stores, "create_engine", _sharing(drivers.create_engine)):
        yield


def _sharing(create: Callable[[str, int], Engine]) -> Callable[[str, int], Engine]:
    connected: dict[str, tuple[Dialect, object]] = {}

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
