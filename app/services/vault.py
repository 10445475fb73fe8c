"""Secrets at rest: encrypted with Fernet before they reach the store, decrypted only to be used."""

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

_LEAST_KEY = 16


class Vault:
    """Encrypts and decrypts JSON under the service's secret key.

    `key` may be several, comma-separated: the first encrypts, all decrypt, so that keys can be rotated.
    """

    def __init__(self, key: str) -> None:
        keys = [part.strip() for part in key.split(",") if part.strip()]
        if not keys or any(len(part) < _LEAST_KEY for part in keys):
            raise ConfigurationError(f"SECRET_KEY must have at least {_LEAST_KEY} characters")
        self._fernet = MultiFernet([Fernet(_derived(part)) for part in keys])

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
            raise ConfigurationError(
                "a stored secret cannot be decrypted: SECRET_KEY is not the one it was stored under"
            ) from error
        return secrets

    def decrypt_session(self, token: bytes, seconds: int) -> Any:
        """Decrypt a token no older than `seconds`. Raises InvalidToken for any other, ValueError for no JSON."""
        return json.loads(self._fernet.decrypt(token, ttl=seconds))


def open_vault(secret_key: str | None, data_dir: Path, *, loopback: bool) -> Vault:
    """Open the vault with the configured key, or on loopback with one generated into `data_dir/secret.key`."""
    if secret_key is not None:
        return Vault(secret_key)
    if not loopback:
        raise ConfigurationError(
            "COALMINE_SECRET_KEY (or COALMINE_SECRET_KEY_FILE) is required when listening beyond loopback; "
            'make one with: python3 -c "import secrets; print(secrets.token_urlsafe(32))"'
        )
    path = data_dir / "secret.key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return Vault(path.read_text(encoding="ascii").strip())
    key = base64.urlsafe_b64encode(os.urandom(32)).decode()
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key + "\n")
    return Vault(key)


def _derived(key: str) -> bytes:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"coalmine secrets").derive(key.encode())
    return base64.urlsafe_b64encode(derived)
