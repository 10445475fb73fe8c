"""What all tables share (`metadata`, `Id`, `id_column`, `partial_index`, at the end), and many rows in one statement.

Rows are selected from as from a table, or staged in a temporary one. However many they are, the statement is the same,
so that both databases prepare it once.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeEngine

from app.base.values import Value

STAGED_ROWS: Final = 2_000
"""Inserted by one statement; SQLite binds 32,766 values. A row at a time would give up its turn to others each time."""


def row_table(
    connection: Connection, name: str, columns: Mapping[str, TypeEngine[Any]], rows: Sequence[tuple[Any, ...]]
) -> sa.Subquery:
    """Give rows of numbers and texts as a table to select from; however many they are, the statement is the same.

    On SQLite one such statement holds neither the interpreter nor, row by row, its turn among the other threads.
    """
    each: sa.TableValuedAlias
    types = list(columns.items())
    if connection.dialect.name == "sqlite":
        each = sa.func.json_each(sa.literal(json.dumps(rows), sa.Text)).table_valued("value")
        cells = [sa.func.json_extract(each.c.value, f"$[{at}]", type_=type_) for at, (_, type_) in enumerate(types)]
        return sa.select(*(cell.label(column) for cell, column in zip(cells, columns, strict=True))).subquery(name)
    lists = [sa.literal([row[at] for row in rows], sa.ARRAY(type_)) for at, (_, type_) in enumerate(types)]
    each = sa.func.unnest(*lists).table_valued(*(sa.column(column, type_) for column, type_ in types))
    return sa.select(*each.render_derived().c).subquery(name)


def numbers(connection: Connection, name: str, columns: Sequence[str], rows: Sequence[tuple[int, ...]]) -> sa.Subquery:
    """Give rows of whole numbers as a table to select from."""
    return row_table(connection, name, dict.fromkeys(columns, sa.BigInteger()), rows)


class StagedRows(Value):
    """Rows that a writing transaction selects from, made ready before it: see `Store.write` and `staged_table`."""

    name: str
    columns: Mapping[str, TypeEngine[Any]]
    rows: Sequence[tuple[Any, ...]]


def staged_table(connection: Connection, staged: StagedRows) -> sa.FromClause:
    """Give staged rows as a table to select from; `place` counts them from 1."""
    if connection.dialect.name == "sqlite":
        columns = [sa.column(name, type_) for name, type_ in staged.columns.items()]
        return sa.table(staged.name, sa.column("place", sa.BigInteger), *columns, schema="temp")
    lists = [
        sa.literal([row[at] for row in staged.rows], sa.ARRAY(type_))
        for at, type_ in enumerate(staged.columns.values())
    ]
    each = sa.func.unnest(*lists).table_valued(
        *(sa.column(name, type_) for name, type_ in staged.columns.items()), with_ordinality="place"
    )
    return sa.select(*each.render_derived().c).subquery(staged.name)


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


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
"""The tables of the subjects that were imported; each has its own in `tables.py`, or beside its one store.

Times are integer UTC microseconds; JSON that nobody filters by is TEXT, vectors are bytes.
"""

# SQLite fills only a column of type INTEGER from its row id.
Id = BigInteger().with_variant(Integer, "sqlite")


def id_column() -> Column[int]:
    """Return the column of an id that the database assigns."""
    return Column("id", Id, primary_key=True, autoincrement=True)


def partial_index(name: str, *columns: str, where: str, unique: bool = False) -> sa.Index:
    """Return an index of the rows for which a condition holds."""
    return sa.Index(name, *columns, unique=unique, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
