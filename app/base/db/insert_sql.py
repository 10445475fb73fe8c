"""Statements of content-addressed and other rows as text, each written once.

SQLAlchemy takes longer to put one together, and to make rows of what comes back, than the database takes to answer.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Table
from sqlalchemy.dialects import postgresql

_POSTGRESQL: Final[sa.Dialect] = postgresql.dialect()  # type: ignore[no-untyped-call] # as SQLAlchemy has it


@cache
def insert_sql(dialect: str, table: str, columns: tuple[str, ...], keys: tuple[str, ...] = ()) -> str:
    """Write an INSERT of one row.

    What a unique constraint already holds is passed over or, where `keys` name it, overwritten.
    """
    mark = "?" if dialect == "sqlite" else "%s"
    overwritten = ", ".join([f'"{name}" = excluded."{name}"' for name in columns if name not in keys])
    conflict = f"({', '.join(keys)}) DO UPDATE SET {overwritten}" if keys else "DO NOTHING"
    names = ", ".join([f'"{name}"' for name in columns])
    marks = ", ".join([mark] * len(columns))
    return f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT {conflict}"  # noqa: S608 - names from our tables only


@cache
def insert_arrays_sql(table: Table, columns: tuple[str, ...]) -> str:
    """Write an INSERT of PostgreSQL that takes an array for each column."""
    names = ", ".join([f'"{name}"' for name in columns])
    arrays = ", ".join([f"%s::{table.c[name].type.compile(_POSTGRESQL)}[]" for name in columns])
    return f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({arrays}) ON CONFLICT DO NOTHING"  # noqa: S608 - as above


@cache
def ids_sql(dialect: str, table: str, count: int) -> str:
    """Write a SELECT of hash and id of the rows that have one of so many hashes; on PostgreSQL they are one array."""
    hashes = f"IN ({', '.join('?' * count)})" if dialect == "sqlite" else "= ANY(%s)"
    return f"SELECT hash, id FROM {table} WHERE hash {hashes}"  # noqa: S608 - names from our tables only


def typed_array(column: sa.Column[Any], values: Sequence[Any]) -> list[Any]:
    """Give values as an array of one type: the driver takes no numbers of two kinds, and no enumerations with texts."""
    kind = column.type.python_type
    return [None if value is None else kind(value) for value in values] if kind in {float, str} else list(values)
