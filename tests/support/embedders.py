"""Embedders to play with: real HTTP servers whose models are hashes of words, and which can be broken."""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from app.base.addresses import Endpoint
from app.base.values import replace
from app.retrievers.domain.retrievers import Embedder
from tests.support.http_servers import Peer, Reply, Seen, peer, reply

_STEMS = {"money": "refund", "back": "refund", "raining": "rain", "heavily": "heavy", "forgot": "reset"}


def vector(text: str, *, model: str = "one", dimensions: int = 64) -> list[float]:
    """Embed a text as the sum of directions of its words, which are random for each model: texts that share are close.

    The first dimensions of a longer vector are the shorter one's.
    """
    total = np.zeros(dimensions)
    for word in re.findall(r"\w+", text.lower()):
        stem = _STEMS.get(word, word)
        seed = int.from_bytes(blake2b(f"{model} {stem}".encode(), digest_size=8).digest())
        total += np.random.default_rng(seed).standard_normal(4_096)[:dimensions] * (0.2 if len(stem) < 4 else 1.0)
    return [float(number) for number in total / (np.linalg.norm(total) or 1.0)]


@dataclass(kw_only=True)
class FakeModel:
    """What an embedding server serves, and how it misbehaves; may be changed while it runs."""

    model: str = "one"
    dimensions: int = 64
    spoil: Callable[[list[list[float]]], list[list[float]]] = field(default=lambda vectors: vectors)
    """Changes the vectors of an answer."""
    answer: Callable[[Seen], Reply | None] = field(default=lambda _seen: None)
    """Answers in place of the server, where it gives something."""
    asked: list[list[str]] = field(default_factory=list)
    """The texts of each request."""

    def __call__(self, seen: Seen) -> Reply:
        """Answer one request as OpenAI does."""
        body = json.loads(seen.body)
        self.asked.append(body["input"])
        given = self.answer(seen)
        if given is not None:
            return given
        dimensions = min(self.dimensions, body.get("dimensions", self.dimensions))
        vectors = self.spoil([vector(text, model=self.model, dimensions=dimensions) for text in body["input"]])
        return embeddings_reply(vectors)

    @property
    def texts(self) -> list[str]:
        """Every text that was asked for, in order."""
        return [text for texts in self.asked for text in texts]


def embeddings_reply(vectors: Sequence[Any]) -> Reply:
    """Answer with these vectors in OpenAI's shape."""
    data = [{"object": "embedding", "index": place, "embedding": one} for place, one in enumerate(vectors)]
    return reply(json.dumps({"object": "list", "data": data, "model": "m", "usage": {"total_tokens": 1}}).encode())


@contextmanager
def embedding_server(model: FakeModel) -> Iterator[tuple[Peer, Embedder]]:
    """Serve a model, and describe the embedder that asks it."""
    with peer(model) as server:
        yield server, embedder_at(f"{server.url}/v1/embeddings")


def embedder_at(url: str, **changes: Any) -> Embedder:
    """Describe an embedder."""
    return replace(Embedder(endpoint=Endpoint(url=url), model="m"), **changes)


def rounded(vectors: list[list[float]], *, steps: int) -> list[list[float]]:
    """Round vectors to so many steps on either side of zero; int8 has 127."""
    return [[round(number * steps / _largest(one)) * _largest(one) / steps for number in one] for one in vectors]


def constant(vectors: list[list[float]]) -> list[list[float]]:
    """Say nearly the same of every text."""
    return [[1.0 + 1e-4 * math.sin(sum(one) * 1e3 + place) for place in range(len(one))] for one in vectors]


def _largest(numbers: Sequence[float]) -> float:
    return max(abs(number) for number in numbers)
