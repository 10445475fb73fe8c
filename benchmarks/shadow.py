"""A shadow over a retriever that somebody else wrote: real Chroma asked what users asked, the service killed meanwhile.

    python -m benchmarks.shadow [FOLDER]

FOLDER (default ../shared/data/xquad_en) has documents and queries. Users get BM25; the candidate is a real Chroma
(`.venv-servers`) over the same chunks, embedded by latent semantic indexing, see `chroma_collection`. All queries are
sent as pairs without its answer; the service is killed with SIGKILL twice while it asks, and started again. Then all
figures are held against what both rankings are, asked directly, and simulated people, who prefer the side on which a
relevant chunk stands higher, compare the most different pairs. About three minutes.
"""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from app.experiments.domain.promotion import SHOWN, compare_pair, is_asked
from benchmarks.chroma_collection import MODEL, NAME, Chunk, Embedder
from benchmarks.chroma_collection import Collection as Chroma
from benchmarks.service_process import Service
from benchmarks.text_indexes import Collection, rank_bm25, read_collection

DEPTH: Final = 10
_PART: Final = 100
_PAIRS: Final = 50
_DEADLINE_SECONDS: Final = 300
_SHADOW: Final = "chroma"


def main(folder: str = "../shared/data/xquad_en") -> None:
    """Print the figures of the shadow beside those of both rankings, and raise where they differ."""
    collection = read_collection(Path(folder))
    chunks = [Chunk(id=str(place), document="d", text=text) for place, text in enumerate(collection.texts)]
    users = rank_bm25(collection.texts, [query.text for query in collection.queries], DEPTH)
    embedder = Embedder(collection.texts, by_words=True)
    with (
        tempfile.TemporaryDirectory() as home,
        Chroma(folder=Path(home), embedders=[embedder], chunks=chunks).running() as chroma,
        Service(Path(home) / "data") as service,
    ):
        service.put("/v1/suites/xquad", {})
        described = {
            "preset": "chroma",
            "url": f"http://127.0.0.1:{chroma.port}",
            "options": {"collection": NAME},
            "embedding": {"url": chroma.embedder_url, "model": MODEL},
        }
        service.put("/v1/retrievers/chroma", described)
        for share in (0.05, 1.0):
            slug = f"{_SHADOW}-{round(100 * share)}"
            service.put(f"/v1/shadows/{slug}", {"candidate": "chroma", "share": share, "keep": _PAIRS})
            _send(service, slug, collection, users)
            found = _wait(service, slug, kills=2 if share == 1 else 0)
            asked = [one for one, query in enumerate(collection.queries) if is_asked(slug, query.text, share=share)]
            _hold(found, collection, users, asked, service)
        _compare(service, slug, collection)


def _send(service: Service, slug: str, collection: Collection, users: Sequence[Sequence[int]]) -> None:
    """Send what users got, each part twice with the same Idempotency-Key."""
    pairs = [
        {"query": query.text, "a": [{"id": str(one), "text": collection.texts[one]} for one in found]}
        for query, found in zip(collection.queries, users, strict=True)
    ]
    for start in range(0, len(pairs), _PART):
        for _ in range(2):
            headers = {"idempotency-key": f"part-{start}"}
            service.post(f"/v1/shadows/{slug}/pairs", pairs[start : start + _PART], headers=headers)


def _wait(service: Service, slug: str, *, kills: int) -> Mapping[str, Any]:
    """Wait until everything is asked, and kill the service so often meanwhile."""
    began = time.monotonic()
    killed_at: list[int] = []
    found: dict[str, Any] = {}
    while time.monotonic() - began < _DEADLINE_SECONDS:
        found = service.get(f"/v1/shadows/{slug}")
        if not found["waiting"]:
            print(
                f"{slug}: {found['pairs']} asked in {time.monotonic() - began:.1f} s, killed with {killed_at} waiting"
            )
            return found
        if len(killed_at) < kills and found["pairs"] > 200 * (len(killed_at) + 1):
            killed_at.append(found["waiting"])
            service.kill()
            service.start()
        time.sleep(0.05)
    raise SystemExit(f"{slug}: {found['waiting']} queries still wait")


def _hold(
    found: Mapping[str, Any],
    collection: Collection,
    users: Sequence[Sequence[int]],
    asked: Sequence[int],
    service: Service,
) -> None:
    """Hold the figures of a shadow against both rankings, asked one by one."""
    overlaps = []
    for place in asked:
        body = {"query": collection.queries[place].text, "k": DEPTH}
        hits = service.post("/v1/retrievers/chroma/try", body)["hits"]
        overlaps.append(compare_pair([str(one) for one in users[place]], [hit["id"] for hit in hits]))
    rbo = sum(one.rbo for one in overlaps) / len(overlaps)
    jaccard = sum(one.jaccard for one in overlaps) / len(overlaps)
    print(f"  pairs {found['pairs']} of {len(asked)} chosen, failed {found['failed']}, kept {found['kept']}")
    print(f"  RBO {found['rbo']:.4f}, directly {rbo:.4f}; Jaccard {found['jaccard']:.4f}, directly {jaccard:.4f}")
    if found["pairs"] != len(asked) or abs(found["rbo"] - rbo) > 1e-3 or abs(found["jaccard"] - jaccard) > 1e-3:
        raise SystemExit("the figures of the shadow are not those of the rankings")


def _compare(service: Service, slug: str, collection: Collection) -> None:
    """Let a simulated person compare the most different pairs, and print what is preferred."""
    relevant = {query.text: {collection.texts[one] for one in query.relevant} for query in collection.queries}
    task = "/v1/tasks/sides"
    service.put(task, {"suite": "xquad", "pairs": {"shadow": slug, "count": _PAIRS}, "overlap": 0})
    service.post(f"{task}/pool")
    while service.get(task)["state"] != "pooled":
        time.sleep(0.1)
    item = service.get(f"{task}/next", annotator="Ann")["item"]
    while item is not None:
        left, right = (_rank(item["pair"][side], relevant[item["query"]]) for side in ("left", "right"))
        grade = 1 if left == right else 0 if left < right else 2
        answer = service.put(f"{task}/items/{item['id']}/annotation", {"grade": grade, "annotator": "Ann"})
        item = answer["item"]
    (found,) = service.get(f"/v1/shadows/{slug}")["comparisons"]
    share = found["share"]
    print(f"  side by side: candidate {found['candidate']}, users' {found['current']}, alike {found['alike']}", end="")
    print(f"; share of the candidate {share['value']:.3f} [{share['low']:.3f}, {share['high']:.3f}]")


def _rank(texts: Sequence[str], relevant: set[str]) -> int:
    return next((rank for rank, text in enumerate(texts) if text in relevant), SHOWN)


if __name__ == "__main__":
    main(*sys.argv[1:2])
