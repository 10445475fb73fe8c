"""Removes secrets from responses before they are read: a retriever may echo them, and a mapping turn them around."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.base.net.wire import RequestAuth, Response
from app.retrievers.client.masking import MASK, masked

LEAST = 12
"""Shorter secrets are left alone in runs: they may well be words of a text, which must stay what it is."""
_PUBLIC = frozenset({"accept", "accept-charset", "accept-language", "cache-control", "content-type", "user-agent"})
"""Names, in lower case, of headers whose values everybody sends."""
_WORDS = re.compile(r"[A-Za-z]{1,15}(?:[-_./ ][A-Za-z]{1,15})*")
_CREDENTIAL = re.compile(r"auth|key|token|secret|cookie|passw|credential|session|signature", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Redaction:
    """Secrets of one exchange. `thorough`: in every encoding and however short, for responses shown to people."""

    secrets: tuple[str, ...]
    thorough: bool
    _bytes: tuple[bytes, ...]

    @classmethod
    def of(cls, auth: RequestAuth, *, thorough: bool) -> "Redaction":
        """Redaction of the responses to requests with this authentication."""
        secrets = auth.secrets if thorough else tuple(one for one in auth.secrets if len(one) >= LEAST)
        forms = {form for one in secrets for form in (one, json.dumps(one)[1:-1], one.replace("/", "\\/"))}
        # The longest first: of a secret that holds another nothing may be left, and equal answers must read equal.
        longest = sorted(forms, key=lambda form: (-len(form), form))
        return cls(secrets, thorough, tuple(form.encode(errors="replace") for form in longest))

    def body(self, body: bytes) -> bytes:
        """Body without the secrets; the same object where none is in it."""
        if self.thorough and self.secrets:
            return masked(body.decode("utf-8", errors="surrogateescape"), self.secrets).encode(errors="surrogateescape")
        for secret in self._bytes:
            if secret in body:
                body = body.replace(secret, MASK.encode())
        return body

    def response(self, response: Response) -> Response:
        """Response without the secrets; the same object where none is in it."""
        if not self.secrets:
            return response
        body = self.body(response.body)
        headers = {name: masked(value, self.secrets) for name, value in response.headers.items()}
        return response if body is response.body and not headers else replace(response, body=body, headers=headers)


def secret_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers whose values count as secrets: by name, and values that are no plain words.

    `x-tenant: acme-corporation` is not secret, `x-tenant: 7f3c-41d9-aa02` may be: it looks like a key.
    """
    return {
        name: value
        for name, value in headers.items()
        if _CREDENTIAL.search(name) or not (name.lower() in _PUBLIC or _WORDS.fullmatch(value))
    }
