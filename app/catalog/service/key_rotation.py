"""Rotation of the secret key: re-encrypts all stored secrets under the vault's first key, or none.

Afterwards that key alone decrypts the store, unless a service that is still running stores something under an old one.
"""

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.base.db.engine import Store
from app.base.errors import ConfigurationError
from app.catalog.service.vault import KEY_FILE, Vault, generate_key, read_key
from app.catalog.store.encrypted_rows import list_encrypted, replace_encrypted


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
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
