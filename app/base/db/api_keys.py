"""Rows of API keys: hashed, never deleted (the API is open until one is created)."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Connection, LargeBinary, Table, Text

from app.base.db.engine import insert_new, insert_one, row_value
from app.base.db.rows import id_column, metadata

# Sessions that were signed out of before their time: a cookie is encrypted, so only a row can take it back.
ended_sessions = Table(
    "ended_sessions",
    metadata,
    Column("digest", LargeBinary, primary_key=True),  # of what is random in the cookie
    Column("expires_at", BigInteger, nullable=False),  # from then on the cookie holds no more by itself
)


api_keys = Table(
    "api_keys",
    metadata,
    id_column(),
    Column("name", Text, nullable=False),
    Column("prefix", Text, nullable=False, unique=True),  # shown in lists, finds the row
    Column("hash", LargeBinary, nullable=False),
    Column("scope", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("last_used_at", BigInteger),
    Column("revoked_at", BigInteger),  # rows stay: "was a key ever created" decides whether we are open
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """A stored API key, without its secret."""

    id: int
    name: str
    prefix: str
    hash: bytes
    scope: str
    created_at: int
    last_used_at: int | None
    revoked_at: int | None


def any_key_ever(connection: Connection) -> bool:
    """Whether a key was ever created, revoked ones included."""
    return connection.execute(sa.select(api_keys.c.id).limit(1)).one_or_none() is not None


def insert_key(connection: Connection, *, name: str, prefix: str, digest: bytes, scope: str, now: int) -> int | None:
    """Insert a key and return its id; None where its prefix exists."""
    return insert_one(connection, api_keys, name=name, prefix=prefix, hash=digest, scope=scope, created_at=now)


def find_key(connection: Connection, prefix: str) -> KeyRow | None:
    """Return a key by its public prefix."""
    row = connection.execute(sa.select(api_keys).where(api_keys.c.prefix == prefix)).one_or_none()
    return row_value(KeyRow, row) if row else None


def list_keys(connection: Connection) -> list[KeyRow]:
    """Return all keys, revoked ones included."""
    return [row_value(KeyRow, row) for row in connection.execute(sa.select(api_keys).order_by(api_keys.c.id))]


def note_use(connection: Connection, key_id: int, now: int) -> None:
    """Store when a key was last used."""
    connection.execute(sa.update(api_keys).where(api_keys.c.id == key_id).values(last_used_at=now))


def revoke_key(connection: Connection, prefix: str, now: int) -> bool:
    """Revoke a key; False where there is no valid key with this prefix."""
    live = sa.and_(api_keys.c.prefix == prefix, api_keys.c.revoked_at.is_(None))
    return connection.execute(sa.update(api_keys).where(live).values(revoked_at=now)).rowcount == 1


def end_session(connection: Connection, digest: bytes, *, expires_at: int, now: int) -> None:
    """Store that a session was ended, and delete those whose cookies have expired."""
    connection.execute(sa.delete(ended_sessions).where(ended_sessions.c.expires_at < now))
    insert_new(connection, ended_sessions, ("digest", "expires_at"), [(digest, expires_at)])


def is_ended(connection: Connection, digest: bytes) -> bool:
    """Whether a session was ended."""
    row = connection.execute(sa.select(ended_sessions.c.digest).where(ended_sessions.c.digest == digest))
    return row.one_or_none() is not None
