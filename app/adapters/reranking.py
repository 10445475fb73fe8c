"""Relevance measured outside the retriever: cosines of an embedder, scores of a reranker.

What scales mean is said in the domain's relevance; how bytes travel is left to the transport.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.domain.addresses import AddressPolicy
from app.domain.embeddings import Embed
from app.domain.retrievers import Embedder, Scorer

if TYPE_CHECKING:
    from app.adapters.credentials import Keyring


class Relevance:
    """Scores first hits for the scorer kinds embedding and rerank; one for all runs, shared by their threads."""

    def __init__(
        self, policy: AddressPolicy, keyring: "Keyring", embed: Embed, user_agent: str, *, proxy: str = ""
    ) -> None:
        self._policy = policy
        self._keyring = keyring
        self._embed = embed
        self._user_agent = user_agent
        self._proxy = proxy

    def of_first_hits(
        self, scorer: Scorer, retriever_embedder: Embedder | None, pairs: Sequence[tuple[str, str]]
    ) -> tuple[list[float | None], str | None]:
        """Give the relevance in [0, 1] of each (query, text), and one sentence why some are None, else None.

        A scorer of kind embedding without an embedder of its own takes that of the retriever.
        """
        raise NotImplementedError
