"""API keys and page sessions: creation, identification, revocation. Keys are hashed, and compared in constant time."""

import hmac
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

from app.base.db import api_keys as rows
from app.base.db.engine import Store, to_us
from app.base.errors import (
    ConfigurationError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    Problem,
    StoreUnavailableError,
    UnauthorizedError,
)

_LEAST_LENGTH = 20
_USE_RESOLUTION = 60_000_000  # microseconds; recording every use would make each request a write


class Scope(StrEnum):
    """Scope of a key: write and admin include those before them; annotate is to grade chunks and nothing else."""

    ANNOTATE = "annotate"
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, needed: "Scope") -> bool:
        """Whether a key of this scope may do what needs `needed`."""
        return needed in _INCLUDED[self]


_INCLUDED: Final = {
    Scope.ANNOTATE: {Scope.ANNOTATE},
    Scope.READ: {Scope.READ},
    Scope.WRITE: {Scope.ANNOTATE, Scope.READ, Scope.WRITE},
    Scope.ADMIN: set(Scope),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The caller of a request. The open loopback service has no keys; every caller is an admin."""

    name: str
    scope: Scope
    key_prefix: str | None = None


OPEN = Identity(name="anyone on this machine", scope=Scope.ADMIN)


def create_key(store: Store, *, name: str, scope: Scope, now: datetime) -> str:
    """Create a key and return its text, which is not stored."""
    key = f"cmk_{scope}_{token_urlsafe(32)}"
    if not _insert(store, key, name=name, scope=scope, now=now):
        return create_key(store, name=name, scope=scope, now=now)  # its prefix is another key's
    return key


def bootstrap_key(store: Store, file: Path, *, now: datetime) -> bool:
    """Create the first admin key from a file, if no key was ever created; True when it was."""
    try:
        key = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigurationError(f"BOOTSTRAP_KEY_FILE cannot be read: {error.strerror}") from error
    if len(key) < _LEAST_LENGTH:
        raise ConfigurationError(f"BOOTSTRAP_KEY_FILE must hold a key of at least {_LEAST_LENGTH} characters")
    if any_key_ever(store):
        return False
    return _insert(store, key, name="bootstrap", scope=Scope.ADMIN, now=now)


def _insert(store: Store, key: str, *, name: str, scope: Scope, now: datetime) -> bool:
    if not name.strip():
        raise InvalidInputError([Problem(path="name", message="must not be empty")])
    with store.write() as connection:
        prefix, digest = _prefix(key), _digest(key)
        key_id = rows.insert_key(connection, name=name, prefix=prefix, digest=digest, scope=scope, now=to_us(now))
    return key_id is not None


def any_key_ever(store: Store) -> bool:
    """Whether a key was ever created; from then on every request needs one."""
    with store.read() as connection:
        return rows.any_key_ever(connection)


def identify(store: Store, presented: str, *, now: datetime) -> Identity:
    """Return the identity of a key. Raises UnauthorizedError for an unknown or revoked one."""
    with store.read() as connection:
        row = rows.find_key(connection, _prefix(presented))
    if row is None or not hmac.compare_digest(bytes(row.hash), _digest(presented)) or row.revoked_at is not None:
        raise UnauthorizedError("this key is unknown or has been revoked")
    if row.last_used_at is None or to_us(now) - row.last_used_at > _USE_RESOLUTION:
        with suppress(StoreUnavailableError), store.write() as connection:  # reads work without this record
            rows.note_use(connection, row.id, to_us(now))
    return Identity(name=row.name, scope=Scope(row.scope), key_prefix=row.prefix)


def identify_session(store: Store, prefix: str, session: str) -> Identity:
    """Return the identity of a session by its key's prefix; a revoked key ends its sessions.

    `session` is the random part of its cookie. Raises UnauthorizedError for one that has ended.
    """
    with store.read() as connection:
        row = rows.find_key(connection, prefix)
        ended = rows.is_ended(connection, _session_digest(session))
    if ended:
        raise UnauthorizedError("this session has ended; sign in again")
    if row is None or row.revoked_at is not None:
        raise UnauthorizedError("the key of this session has been revoked")
    return Identity(name=row.name, scope=Scope(row.scope), key_prefix=row.prefix)


def end_session(store: Store, session: str, *, expires_at: datetime, now: datetime) -> None:
    """End a session on every replica; `expires_at` is when its cookie expires anyway."""
    with store.write() as connection:
        rows.end_session(connection, _session_digest(session), expires_at=to_us(expires_at), now=to_us(now))


def require(identity: Identity, needed: Scope, *instead: Scope) -> None:
    """Raise ForbiddenError if the identity's scope includes neither `needed` nor one that does `instead`."""
    if not any(identity.scope.includes(one) for one in (needed, *instead)):
        raise ForbiddenError(f"this needs a key with scope {needed}; this one has {identity.scope}")


def list_keys(store: Store) -> list[rows.KeyRow]:
    """List all keys, revoked ones included."""
    with store.read() as connection:
        return rows.list_keys(connection)


def revoke_key(store: Store, prefix: str, *, now: datetime) -> None:
    """Revoke a key at once."""
    with store.write() as connection:
        if not rows.revoke_key(connection, prefix, to_us(now)):
            raise NotFoundError(f"there is no key {prefix} in force; `coalmine keys list` shows them")


def _session_digest(session: str) -> bytes:
    return sha256(b"session:" + session.encode()).digest()


def _prefix(key: str) -> str:
    return sha256(b"prefix:" + key.encode()).hexdigest()[:10]


def _digest(key: str) -> bytes:
    return sha256(key.encode()).digest()
