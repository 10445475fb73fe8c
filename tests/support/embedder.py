"""An OpenAI-compatible embedder for tests: words hashed to places of a vector, so shared words bring texts close."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

from tests.support.http_servers import Peer, Reply, Seen, peer, reply

DIMENSIONS = 256
MODEL = "bag-of-words"


def vector(text: str) -> list[float]:
    """Embed a text: of its longer words, one place each; of length 1."""
    counts = [1e-3] + [0.0] * (DIMENSIONS - 1)  # a text without a word has a direction, too
    for word in set(re.findall(r"[a-z0-9]{4,}", text.lower())):
        counts[int.from_bytes(blake2b(word.rstrip("s").encode(), digest_size=4).digest()) % DIMENSIONS] += 1
    length = math.hypot(*counts)
    return [count / length for count in counts]


@contextmanager
def embedder() -> Iterator[Peer]:
    """Serve `/v1/embeddings` on a free port of 127.0.0.1."""
    with peer(_answer) as server:
        yield server


def embedding(server: Peer) -> dict[str, str]:
    """Describe it as a retriever's document does."""
    return {"url": f"{server.url}/v1/embeddings", "model": MODEL}


def _answer(seen: Seen) -> Reply:
    asked = json.loads(seen.body)
    if seen.target != "/v1/embeddings" or asked["model"] != MODEL:
        return reply(b'{"error": {"message": "no such model"}}', 404)
    texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
    data = [{"object": "embedding", "index": number, "embedding": vector(text)} for number, text in enumerate(texts)]
    return reply(json.dumps({"object": "list", "data": data, "model": MODEL}).encode())
