"""Encryption of secrets at rest (Fernet). `catalog.service.vault` finds its key."""

import base64
import hmac
import json
from collections.abc import Mapping
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.base.errors import ConfigurationError

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
        self._first = Fernet(_derive(keys[0], b"coalmine secrets"))
        self._fernet = MultiFernet([self._first, *[Fernet(_derive(part, b"coalmine secrets")) for part in keys[1:]]])
        self._fingerprint_key = _derive(keys[0], b"coalmine fingerprints")

    def encrypt(self, secrets: Mapping[str, object]) -> bytes | None:
        """Return the ciphertext; None where there are no secrets."""
        return self._fernet.encrypt(json.dumps(secrets).encode()) if secrets else None

    def decrypt(self, token: bytes | None) -> dict[str, str]:
        """Return the secrets of a ciphertext. Raises ConfigurationError where it was encrypted under another key."""
        if token is None:
            return {}
        try:
            secrets: dict[str, str] = json.loads(self._fernet.decrypt(bytes(token)))
        except InvalidToken as error:
            raise ConfigurationError(_UNREADABLE) from error
        return secrets

    def renew(self, token: bytes) -> bytes:
        """Return the ciphertext re-encrypted under the first key. Raises ConfigurationError as `decrypt`."""
        try:
            return self._fernet.rotate(token)
        except InvalidToken as error:
            raise ConfigurationError(_UNREADABLE) from error

    def is_under_first(self, token: bytes) -> bool:
        """Whether the first key decrypts a ciphertext."""
        try:
            self._first.decrypt(bytes(token))
        except InvalidToken:
            return False
        return True

    def fingerprint(self, text: str) -> str:
        """Return a keyed hash of a text: whoever has the database, but not the key, can confirm no guess of it."""
        return hmac.digest(self._fingerprint_key, text.encode(), "sha256").hex()

    def decrypt_session(self, token: bytes, seconds: int) -> Any:
        """Return the JSON of a token no older than `seconds`. Raises InvalidToken, and ValueError for invalid JSON."""
        return json.loads(self._fernet.decrypt(token, ttl=seconds))


def _derive(key: str, purpose: bytes) -> bytes:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(key.encode())
    return base64.urlsafe_b64encode(derived)
