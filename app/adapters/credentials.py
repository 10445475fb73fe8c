"""Turns the credentials of a retriever into what goes with its requests, fetching OAuth2 tokens where needed.

Sending them is left to the transport, what a failure means for a probe to whoever asked.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from app.adapters.wire import NO_HEADERS, Identity
from app.domain.addresses import AddressPolicy
from app.domain.model import Outcome
from app.domain.retrievers import Auth, Tls


class CredentialError(Exception):
    """No token was to be had; `outcome` is what a probe that needs one ends with.

    `detail` is one sentence for people, without secrets and without a word of an answer's body.
    """

    def __init__(self, outcome: Outcome, detail: str, http_status: int | None = None) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail
        self.http_status = http_status


class Keyring:
    """Makes identities; one for all runs, shared by their threads, because tokens are kept while they are valid."""

    def __init__(
        self,
        policy: AddressPolicy,
        user_agent: str,
        *,
        proxy: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._user_agent = user_agent
        self._proxy = proxy
        self._clock = clock

    def identity(self, auth: Auth | None, tls: Tls | None, headers: Mapping[str, str] = NO_HEADERS) -> Identity:
        """Say who asks. `headers` are those the caller sends itself: their values only count among the secrets.

        Blocks while a token is fetched. Raises CredentialError where none is to be had, and InvalidInputError for
        credentials that cannot be sent, such as a key with a line break.
        """
        raise NotImplementedError

    def forget(self, auth: Auth | None) -> None:
        """Let go of the token kept for `auth`, because it was refused (401): the next identity has a new one."""
        raise NotImplementedError


def masked(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret in `text` by three dots, also where it is encoded for a URL, in JSON or as base64."""
    raise NotImplementedError
