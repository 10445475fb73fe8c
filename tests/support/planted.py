"""A source for plants: an ingest endpoint whose queue can be stopped, an index that is searched, and its failures."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_servers import Peer, Reply, Seen, peer, reply


@dataclass(kw_only=True)
class Source:
    """An index behind a queue; requests need its key."""

    key: str = "source-key"
    indexed: dict[str, str] = field(default_factory=dict)
    queued: list[tuple[str, str | None]] = field(default_factory=list)
    """(id, text) to be put, (id, None) to be removed."""
    stopped: bool = False
    """Whether the queue is: requests are taken, and nothing reaches the index."""
    refusing: set[str] = field(default_factory=set)
    """Methods that are answered with 503, and `search`."""
    puts: list[str] = field(default_factory=list)
    refused: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, seen: Seen) -> Reply:
        """Answer a request."""
        with self.lock:
            if seen.headers.get("authorization") != f"Bearer {self.key}":
                return reply(b'{"error": "no key"}', 401)
            name = "search" if seen.target == "/search" else seen.method
            if name in self.refusing:
                self.refused += 1
                return reply(b'{"error": "down"}', 503)
            if name == "search":
                return reply(json.dumps({"hits": self._search(json.loads(seen.body)["q"])}).encode())
            if seen.method == "POST":
                document = json.loads(seen.body)
                self.puts.append(document["id"])
                self.queued.append((document["id"], document["text"]))
            else:
                self.queued.append((seen.target.rpartition("/")[2], None))
            self.work()
            return reply(b'{"queued": true}', 202)

    def work(self) -> None:
        """Let the queue reach the index, unless it is stopped."""
        while self.queued and not self.stopped:
            name, text = self.queued.pop(0)
            if text is None:
                self.indexed.pop(name, None)
            else:
                self.indexed[name] = text

    def _search(self, query: str) -> list[Mapping[str, Any]]:
        words = set(query.lower().strip("?").split())
        found = [(len(words & set(text.lower().replace(".", "").split())), name) for name, text in self.indexed.items()]
        best = sorted(found, reverse=True)[:10]
        return [{"id": name, "text": self.indexed[name], "score": 0.5} for count, name in best if count]


@contextmanager
def source() -> Iterator[tuple[Source, Peer]]:
    """Serve a source."""
    held = Source()
    with peer(held) as served:
        yield held, served


def retriever_of(served: Peer, key: str = "source-key") -> dict[str, Any]:
    """Describe the retriever of a source."""
    return {
        "slug": "search",
        "preset": "generic",
        "url": f"{served.url}/search",
        "request": {"method": "POST", "json": {"q": "{{ query }}", "k": "{{ k }}"}},
        "response": {"hits": "hits", "id": "id", "text": "text", "score": "score"},
        "auth": {"kind": "bearer", "token": key},
        "retries": 0,
    }


PLANT: Mapping[str, Any] = {
    "every": "10m",
    "put": {"url": "/documents", "json": {"id": "{{ id }}", "text": "{{ text }}"}},
    "remove": {"url": "/documents/{{ id }}"},
    "found_within": "60s",
    "gone_within": "60s",
    "poll": "5s",
}
