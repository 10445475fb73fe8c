"""API keys: creation, identification, revocation; page sessions that were ended before their time; and the vault.

Keys are hashed, and compared in constant time. Their rows are never deleted: the API is open until one is created. A
session is a cookie, which `base.api.requests` makes and reads; here is whether its key is in force and it has not
ended. The vault encrypts secrets at rest (Fernet) under a key that `catalog.service.vault` finds.
"""

import base64
import hmac
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Connection, LargeBinary, Table, Text

from app.base.db.engine import Store, insert_one, row_value, to_us
from app.base.db.rows import id_column, insert_sql, metadata
from app.base.errors import (
    ConfigurationError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    Problem,
    StoreUnavailableError,
    UnauthorizedError,
)
from app.base.values import Value

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

_LEAST_LENGTH = 20
_USE_RESOLUTION = 60_000_000  # microseconds; recording every use would make each request a write


class Scope(StrEnum):
    """Scope of a key: write and admin include those before them.

    Annotate is to grade chunks and nothing else, ingest to send queries of users and nothing else.
    """

    ANNOTATE = "annotate"
    INGEST = "ingest"
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, needed: "Scope") -> bool:
        """Whether a key of this scope may do what needs `needed`."""
        return needed in _INCLUDED[self]


_INCLUDED: Final = {
    Scope.ANNOTATE: {Scope.ANNOTATE},
    Scope.INGEST: {Scope.INGEST},
    Scope.READ: {Scope.READ},
    Scope.WRITE: {Scope.ANNOTATE, Scope.INGEST, Scope.READ, Scope.WRITE},
    Scope.ADMIN: set(Scope),
}


class Identity(Value):
    """The caller of a request. The open loopback service has no keys; every caller is an admin."""

    name: str
    scope: Scope
    key_prefix: str | None = None
    """Of whoever a proxy or a provider signs in: `user:` and the name."""
    by_proxy: bool = False


OPEN = Identity(name="anyone on this machine", scope=Scope.ADMIN)


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


class KeyRow(Value):
    """A stored API key, without its secret."""

    id: int
    name: str
    prefix: str
    hash: bytes
    scope: str
    created_at: int
    last_used_at: int | None
    revoked_at: int | None


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
        values = {"prefix": _prefix(key), "hash": _digest(key), "scope": scope, "created_at": to_us(now)}
        return insert_one(connection, api_keys, name=name, **values) is not None


def any_key_ever(store: Store) -> bool:
    """Whether a key was ever created; from then on every request needs one."""
    with store.read() as connection:
        return connection.execute(sa.select(api_keys.c.id).limit(1)).one_or_none() is not None


def identify(store: Store, presented: str, *, now: datetime) -> Identity:
    """Return the identity of a key. Raises UnauthorizedError for an unknown or revoked one."""
    with store.read() as connection:
        row = _find_key(connection, _prefix(presented))
    if row is None or not hmac.compare_digest(bytes(row.hash), _digest(presented)) or row.revoked_at is not None:
        raise UnauthorizedError("this key is unknown or has been revoked")
    if row.last_used_at is None or to_us(now) - row.last_used_at > _USE_RESOLUTION:
        with suppress(StoreUnavailableError), store.write() as connection:  # reads work without this record
            used = sa.update(api_keys).where(api_keys.c.id == row.id).values(last_used_at=to_us(now))
            connection.execute(used)
    return Identity(name=row.name, scope=Scope(row.scope), key_prefix=row.prefix)


def identify_session(store: Store, prefix: str, session: str) -> Identity:
    """Return the identity of a session by its key's prefix; a revoked key ends its sessions.

    `session` is the random part of its cookie. Raises UnauthorizedError for one that has ended.
    """
    with store.read() as connection:
        row = _find_key(connection, prefix)
        _require_session(connection, session)
    if row is None or row.revoked_at is not None:
        raise UnauthorizedError("the key of this session has been revoked")
    return Identity(name=row.name, scope=Scope(row.scope), key_prefix=row.prefix)


def require_session(store: Store, session: str) -> None:
    """Raise UnauthorizedError for a session that has ended; `session` as for `identify_session`."""
    with store.read() as connection:
        _require_session(connection, session)


def _require_session(connection: Connection, session: str) -> None:
    its_end = sa.select(ended_sessions.c.digest).where(ended_sessions.c.digest == _session_digest(session))
    if connection.execute(its_end).one_or_none() is not None:
        raise UnauthorizedError("this session has ended; sign in again")


def end_session(store: Store, session: str, *, expires_at: datetime, now: datetime) -> bool:
    """End a session on every replica, False where it had ended; `expires_at` is when its cookie expires anyway."""
    with store.write() as connection:
        connection.execute(sa.delete(ended_sessions).where(ended_sessions.c.expires_at < to_us(now)))
        row = (_session_digest(session), to_us(expires_at))
        insert = insert_sql(connection.dialect.name, ended_sessions.name, ("digest", "expires_at"))
        return connection.exec_driver_sql(insert, row).rowcount == 1


def require(identity: Identity, needed: Scope, *instead: Scope) -> None:
    """Raise ForbiddenError if the identity's scope includes neither `needed` nor one that does `instead`."""
    if not any(identity.scope.includes(one) for one in (needed, *instead)):
        raise ForbiddenError(f"this needs a key with scope {needed}; this one has {identity.scope}")


def list_keys(store: Store) -> list[KeyRow]:
    """List all keys, revoked ones included."""
    with store.read() as connection:
        return [row_value(KeyRow, row) for row in connection.execute(sa.select(api_keys).order_by(api_keys.c.id))]


def key_in_force(store: Store, prefix: str) -> KeyRow:
    """Return a key that is not revoked. Raises NotFoundError."""
    with store.read() as connection:
        row = _find_key(connection, prefix)
    if row is None or row.revoked_at is not None:
        raise _no_key(prefix)
    return row


def _no_key(prefix: str) -> NotFoundError:
    return NotFoundError(f"there is no key {prefix} in force; `coalmine keys list` shows them")


def revoke_key(store: Store, prefix: str, *, now: datetime) -> None:
    """Revoke a key at once."""
    with store.write() as connection:
        live = sa.and_(api_keys.c.prefix == prefix, api_keys.c.revoked_at.is_(None))
        if connection.execute(sa.update(api_keys).where(live).values(revoked_at=to_us(now))).rowcount != 1:
            raise _no_key(prefix)


def _find_key(connection: Connection, prefix: str) -> KeyRow | None:
    row = connection.execute(sa.select(api_keys).where(api_keys.c.prefix == prefix)).one_or_none()
    return row_value(KeyRow, row) if row else None


def _session_digest(session: str) -> bytes:
    return sha256(b"session:" + session.encode()).digest()


def _prefix(key: str) -> str:
    return sha256(b"prefix:" + key.encode()).hexdigest()[:10]


def _digest(key: str) -> bytes:
    return sha256(key.encode()).digest()


_LEAST_KEY = 16
_UNREADABLE = "a stored secret cannot be decrypted: SECRET_KEY is not the one it was stored under"


class Vault:
    """Encrypts and decrypts JSON under the service's secret key.

    `key` may be several, comma-separated: the first encrypts, all decrypt, for key rotation.
    """

    def __init__(self, key: str) -> None:
        keys = [part.strip() for part in key.split(",") if part.strip()]
        if not keys or any(len(part) < _LEAST_KEY for part in keys):
            raise ConfigurationError(f"SECRET_KEY must have at least {_LEAST_KEY} characters")
        self._keys = keys

    @cached_property
    def _fernet(self) -> "MultiFernet":
        from cryptography.fernet import Fernet, MultiFernet  # noqa: PLC0415 - 7 MB that most services do without

        return MultiFernet([Fernet(_derive(key, b"coalmine secrets")) for key in self._keys])

    @cached_property
    def _fingerprint_key(self) -> bytes:
        return _derive(self._keys[0], b"coalmine fingerprints")

    def encrypt(self, secrets: Mapping[str, object]) -> bytes | None:
        """Return the ciphertext; None where there are no secrets."""
        return self._fernet.encrypt(json.dumps(secrets).encode()) if secrets else None

    def decrypt(self, token: bytes | None) -> dict[str, str]:
        """Return the secrets of a ciphertext. Raises ConfigurationError where it was encrypted under another key."""
        if token is None:
            return {}
        with _readable():
            secrets: dict[str, str] = json.loads(self._fernet.decrypt(bytes(token)))
        return secrets

    def renew(self, token: bytes) -> bytes:
        """Return the ciphertext re-encrypted under the first key. Raises ConfigurationError as `decrypt`."""
        with _readable():
            return self._fernet.rotate(token)

    def is_under_first(self, token: bytes) -> bool:
        """Whether the first key decrypts a ciphertext."""
        try:
            Vault(self._keys[0]).decrypt(token)
        except ConfigurationError:
            return False
        return True

    def fingerprint(self, text: str) -> str:
        """Return a keyed hash of a text: whoever has the database, but not the key, can confirm no guess of it."""
        return hmac.digest(self._fingerprint_key, text.encode(), "sha256").hex()

    def decrypt_session(self, token: bytes, seconds: int) -> Any:
        """Return the JSON of a token; None where it is of another key, older than `seconds`, or none at all."""
        try:
            with _readable():
                return json.loads(self._fernet.decrypt(token, ttl=seconds))
        except (ConfigurationError, ValueError):
            return None


@contextmanager
def _readable() -> Iterator[None]:
    from cryptography.fernet import InvalidToken  # noqa: PLC0415 - as above

    try:
        yield
    except InvalidToken as error:
        raise ConfigurationError(_UNREADABLE) from error


def _derive(key: str, purpose: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415 - as above

    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(key.encode())
    return base64.urlsafe_b64encode(derived)
