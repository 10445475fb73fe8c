"""The key of stored secrets: where it comes from, and how it is changed for another.

A wrong key is refused when the vault is opened, not when a run needs a secret. `base.db.keys` encrypts.
"""

import base64
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from app.base.db.engine import Store
from app.base.db.keys import Vault
from app.base.errors import ConfigurationError
from app.base.values import Value
from app.catalog import store as catalog
from app.catalog.store import list_encrypted, replace_encrypted

KEY_FILE = "secret.key"
_WITH_SECRETS = ("retriever", "hook", "judge")
_STORE_AGAIN = "store the secrets again with `coalmine apply`"


def open_vault(
    secret_key: str | None, data_dir: Path, store: Store, *, loopback: bool, keep: bool = True, readable: bool = True
) -> Vault:
    """Return the vault of a store, with the configured key or, on loopback, the one in `data_dir/secret.key`.

    A missing one is generated and, with `keep`, written there. Raises ConfigurationError where the key of stored
    secrets is missing and, with `readable`, where current ones are under another key.
    """
    require_key(secret_key, loopback=loopback)
    path = data_dir / KEY_FILE
    if secret_key is None and not path.exists() and _secrets(store, archived=True):
        raise ConfigurationError(
            f"the database holds secrets, and the key they were stored under is gone: put back {path}; "
            f"if it is lost, set COALMINE_SECRET_KEY to a new one and {_STORE_AGAIN}"
        )
    vault = Vault(secret_key if secret_key is not None else _load_or_generate(path, keep=keep))
    try:
        for token in _secrets(store) if readable else ():
            vault.decrypt(token)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{error}; set COALMINE_SECRET_KEY to that one (to change keys: the new one, a comma, the old one), "
            f"put back the {KEY_FILE} that belongs to this database, or {_STORE_AGAIN}"
        ) from error
    return vault


def require_key(secret_key: str | None, *, loopback: bool) -> None:
    """Raise ConfigurationError where a key is required: beyond loopback none is generated."""
    if secret_key is None and not loopback:
        raise ConfigurationError(
            "COALMINE_SECRET_KEY (or COALMINE_SECRET_KEY_FILE) is required when listening beyond loopback; "
            'make one with: python3 -c "import secrets; print(secrets.token_urlsafe(32))"'
        )


def _secrets(store: Store, *, archived: bool = False) -> list[bytes]:
    with store.read() as connection:
        secrets = [
            definition.secrets
            for kind in _WITH_SECRETS
            for definition in catalog.list_definitions(connection, kind, archived=archived)
        ]
    return [token for token in secrets if token is not None]


def generate_key() -> str:
    """Return a random key."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


def read_key(path: Path) -> str:
    """Return the keys of a key file, comma-separated."""
    return path.read_text(encoding="ascii").strip()


def _load_or_generate(path: Path, *, keep: bool) -> str:
    key = generate_key()
    if not keep and not path.exists():
        return key
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_key(path)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key + "\n")
    return key


class Rotation(Value):
    """Result of a key rotation."""

    count: int
    """Number of versions of retrievers and hooks whose secrets are under the first key now."""
    moved: Mapping[str, int]
    """Number of definitions by kind that had a version under another key."""
    unreadable: int
    """Number of old versions whose secrets no key decrypts; they stay unchanged and unusable."""


def rotate(store: Store, vault: Vault) -> Rotation:
    """Re-encrypt every stored secret under the first key of the vault, in one transaction.

    Raises ConfigurationError, naming the definition, where no key decrypts a current version.
    """
    with store.write() as connection:
        renewed: list[tuple[int, bytes]] = []
        moved: set[tuple[str, str]] = set()
        unreadable = 0
        for row in list_encrypted(connection):
            try:
                renewed.append((row.version_id, vault.renew(row.token)))
                if not vault.is_under_first(row.token):
                    moved.add((row.kind, row.slug))
            except ConfigurationError as error:
                if row.in_force:
                    raise ConfigurationError(f"{row.kind} '{row.slug}': {error}; nothing was changed") from error
                unreadable += 1
        replace_encrypted(connection, renewed)
    return Rotation(count=len(renewed), moved=Counter(kind for kind, _ in moved), unreadable=unreadable)


def rotate_key_file(store: Store, data_dir: Path, *, new_key: bool, shared: bool) -> Rotation:
    """Re-encrypt all secrets under the first key of `data_dir/secret.key`, and remove its other keys.

    With `new_key` one is generated and put first. Until the commit the file has both, so that after a failure some key
    in it decrypts every secret, and a second attempt completes the first. Where the store is `shared`, another service
    may still store under the old key: the file then keeps its keys until this is called without `new_key`.
    """
    path = data_dir / KEY_FILE
    if not path.exists():
        raise ConfigurationError(f"there is no {path}, and COALMINE_SECRET_KEY is not set: no key to change")
    before = key = read_key(path)
    if new_key:
        key = f"{generate_key()},{key}"
        _write(path, key)
    try:
        rotated = rotate(store, Vault(key))
    except ConfigurationError:  # nothing was written; after any other error that is not certain
        _write(path, before)
        raise
    first, _, others = key.partition(",")
    if others and not (new_key and shared):
        _write(path, first)
    return rotated


def _write(path: Path, key: str) -> None:
    """Replace a key file atomically, readable for its owner only."""
    beside = path.with_name(f"{path.name}.new")
    with suppress(FileNotFoundError):
        beside.unlink()  # of an attempt that was cut short
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
