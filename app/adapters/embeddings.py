"""Asks an OpenAI-compatible `/v1/embeddings` for vectors, in batches, and remembers them by text.

What the vectors are good for is left to whoever asks; how bytes travel, to the transport.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.domain.addresses import AddressPolicy
from app.domain.embeddings import Embedded
from app.domain.retrievers import Embedder

if TYPE_CHECKING:
    from app.adapters.credentials import Keyring


class Embeddings:
    """The `Embed` for everything that speaks OpenAI's embeddings; one for all runs, shared by their threads."""

    def __init__(self, policy: AddressPolicy, keyring: "Keyring", user_agent: str, *, proxy: str = "") -> None:
        self._policy = policy
        self._keyring = keyring
        self._user_agent = user_agent
        self._proxy = proxy

    def __call__(self, embedder: Embedder, texts: Sequence[str], *, anew: bool = False) -> Embedded:
        """Ask for what is not remembered; see `Embed`."""
        raise NotImplementedError
