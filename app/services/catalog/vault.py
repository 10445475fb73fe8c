"""Secrets at rest: encrypted with Fernet before they reach the store, decrypted only to be used.

A key that does not belong to the secrets of a store is refused when the vault is opened, not when a run needs one.
"""

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.domain.errors import ConfigurationError
from app.store.catalog import definitions
from app.store.engine import Store

KEY_FILE = "secret.key"
_LEAST_KEY = 16
_WITH_SECRETS = ("retriever", "hook")
_UNREADABLE = "a stored secret cannot be decrypted: SECRET_KEY is not the one it was stored under"
_ANEW = "store the secrets anew with `coalmine apply`"


class Vault:
    """Encrypts and decrypts JSON under the service's secret key.

    `key` may be several, comma-separated: the first encrypts, all decrypt, so that keys can be rotated.
    """

    def __init__(self, key: str) -> None:
        keys = [part.strip() for part in key.split(",") if part.strip()]
        if not keys or any(len(part) < _LEAST_KEY for part in keys):
            raise ConfigurationError(f"SECRET_KEY must have at least {_LEAST_KEY} characters")
        self._first = Fernet(_derived(keys[0]))
        self._fernet = MultiFernet([self._first, *[Fernet(_derived(part)) for part in keys[1:]]])

    def encrypt(self, secrets: Mapping[str, Any]) -> bytes | None:
        """Encrypt; None stays None where there is nothing to hide."""
        return self._fernet.encrypt(json.dumps(secrets).encode()) if secrets else None

    def decrypt(self, token: bytes | None) -> dict[str, Any]:
        """Decrypt what `encrypt` gave. Raises ConfigurationError where it was encrypted under another key."""
        if token is None:
            return {}
        try:
            secrets: dict[str, Any] = json.loads(self._fernet.decrypt(bytes(token)))
        except InvalidToken as error:
            raise ConfigurationError(_UNREADABLE) from error
        return secrets

    def renew(self, token: bytes) -> bytes:
        """Encrypt anew, under the first key, what `encrypt` gave. Raises ConfigurationError as `decrypt`."""
        try:
            return self._fernet.rotate(token)
        except InvalidToken as error:
            raise ConfigurationError(_UNREADABLE) from error

    def is_under_first(self, token: bytes) -> bool:
        """Whether the first key alone opens what `encrypt` gave."""
        try:
            self._first.decrypt(bytes(token))
        except InvalidToken:
            return False
        return True

    def decrypt_session(self, token: bytes, seconds: int) -> Any:
        """Decrypt a token no older than `seconds`. Raises InvalidToken for any other, ValueError for no JSON."""
        return json.loads(self._fernet.decrypt(token, ttl=seconds))


def open_vault(
    secret_key: str | None,
    data_dir: Path,
    store: Store,
    *,
    loopback: bool,
    keep: bool = True,
    readable: bool = True,
) -> Vault:
    """Open the vault of a store: with the configured key, or on loopback with the one in `data_dir/secret.key`.

    Where there is none, one is made up and, with `keep`, written there. Raises ConfigurationError where the key of
    the secrets in the store is gone and, with `readable`, where some of those in force are under another one.
    """
    expect_key(secret_key, loopback=loopback)
    path = data_dir / KEY_FILE
    if secret_key is None and not path.exists() and _secrets(store, archived=True):
        raise ConfigurationError(
            f"the database holds secrets, and the key they were stored under is gone: put back {path}; "
            f"if it is lost, set COALMINE_SECRET_KEY to a new one and {_ANEW}"
        )
    vault = Vault(secret_key if secret_key is not None else _generated(path, keep=keep))
    try:
        for token in _secrets(store) if readable else ():
            vault.decrypt(token)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{error}; set COALMINE_SECRET_KEY to that one (to change keys: the new one, a comma, the old one), "
            f"put back the {KEY_FILE} that belongs to this database, or {_ANEW}"
        ) from error
    return vault


def expect_key(secret_key: str | None, *, loopback: bool) -> None:
    """Refuse to make up a key beyond loopback. Raises ConfigurationError."""
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
            for definition in definitions.list_definitions(connection, kind, archived=archived)
        ]
    return [token for token in secrets if token is not None]


def made_up_key() -> str:
    """Make a key up."""
    return base64.urlsafe_b64encode(os.urandom(32)).decode()


def read_key(path: Path) -> str:
    """Read the keys of a key file."""
    return path.read_text(encoding="ascii").strip()


def _generated(path: Path, *, keep: bool) -> str:
    key = made_up_key()
    if not keep and not path.exists():
        return key
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_key(path)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key + "\n")
    return key


def _derived(key: str) -> bytes:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"coalmine secrets").derive(key.encode())
    return base64.urlsafe_b64encode(derived)
