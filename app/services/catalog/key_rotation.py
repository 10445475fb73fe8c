"""Changing the key of stored secrets: all of them encrypted anew under the first key there is, or none.

Afterwards that key alone opens the store, unless a service that still runs stores something under one it read before.
Keys themselves are the vault's business.
"""

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.domain.errors import ConfigurationError
from app.services.catalog.vault import KEY_FILE, Vault, made_up_key, read_key
from app.store.catalog.encrypted_rows import replace_sealed, sealed_secrets
from app.store.engine import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """What a change of keys came to."""

    count: int
    """How many versions of retrievers and hooks have their secrets under the first key now."""
    moved: Mapping[str, int]
    """Of how many definitions of each kind some version was under another key before."""
    unreadable: int
    """Versions not in force whose secrets no key opens; they stay as they were, as good as gone."""


def rotate(store: Store, vault: Vault) -> Rotated:
    """Encrypt every stored secret anew under the first key of the vault, in one transaction.

    Raises ConfigurationError, naming the definition, where one in force opens with none of the keys.
    """
    with store.write() as connection:
        renewed: list[tuple[int, bytes]] = []
        moved: set[tuple[str, str]] = set()
        unreadable = 0
        for sealed in sealed_secrets(connection):
            try:
                renewed.append((sealed.version_id, vault.renew(sealed.token)))
                if not vault.is_under_first(sealed.token):
                    moved.add((sealed.kind, sealed.slug))
            except ConfigurationError as error:
                if sealed.in_force:
                    raise ConfigurationError(f"{sealed.kind} '{sealed.slug}': {error}; nothing was changed") from error
                unreadable += 1
        replace_sealed(connection, renewed)
    return Rotated(count=len(renewed), moved=Counter(kind for kind, _ in moved), unreadable=unreadable)


def rotate_key_file(store: Store, data_dir: Path, *, new_key: bool, shared: bool) -> Rotated:
    """Encrypt everything anew under the first key of `data_dir/secret.key`, and leave that key alone in the file.

    With `new_key` one is made up and put before the others first. Until all is committed the file holds both, so that
    whatever happens in between, some key in it opens every secret; a second attempt then finishes the first. Where the
    store is `shared`, a service may run and store under the old key even after that: the file then keeps the keys it
    had until this is called without `new_key`.
    """
    path = data_dir / KEY_FILE
    if not path.exists():
        raise ConfigurationError(f"there is no {path}, and COALMINE_SECRET_KEY is not set: no key to change")
    before = key = read_key(path)
    if new_key:
        key = f"{made_up_key()},{key}"
        _write(path, key)
    try:
        rotated = rotate(store, Vault(key))
    except ConfigurationError:  # refused before anything was written; of all else we do not know
        _write(path, before)
        raise
    first, _, others = key.partition(",")
    if others and not (new_key and shared):
        _write(path, first)
    return rotated


def _write(path: Path, key: str) -> None:
    """Replace a key file so that at every moment there is a whole one, for its owner alone."""
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
