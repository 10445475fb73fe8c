"""Sign-in by an OpenID provider: what a browser takes along, who comes back, and `Provider`, which is asked."""

from collections.abc import Mapping
from typing import Final, Protocol, TypedDict

from app.base.values import Value

RETURN_PATH: Final = "/login/oidc/callback"
"""Where a provider leads back to, below the address of the service."""


class SignInFlow(TypedDict):
    """What a browser keeps, encrypted, between leaving for the provider and coming back."""

    state: str
    nonce: str
    verifier: str
    next: str


class Person(Value):
    """Who the provider says is there."""

    name: str
    groups: tuple[str, ...]


class Provider(Protocol):
    """An OpenID provider; `operation.client` asks one over the network."""

    @property
    def name(self) -> str:
        """What people know it by: its host."""
        ...

    def begin(self, following: str) -> tuple[str, SignInFlow]:
        """Return where the browser goes to sign in, and what it brings back; `following`: the page wanted then.

        Raises UnauthorizedError and BusyError where the provider cannot be used.
        """
        ...

    def finish(self, flow: SignInFlow, answer: Mapping[str, str]) -> Person:
        """Return who came back with this answer of the provider.

        Raises UnauthorizedError, with a sentence for people, for whatever does not fit, and BusyError where the
        provider cannot be asked.
        """
        ...
