"""Facts of real indexes: PostgreSQL with pgvector, an index that loses rows and one that misses hits; and Chroma."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app import USER_AGENT
from app.base.addresses import AddressPolicy, parse_allow
from app.base.db.engine import Store
from app.base.values import RunStatus
from app.retrievers.client.probe import RetrieverProbe
from tests.index_facts.test_reading import read
from tests.support.databases import READER, Database, database
from tests.support.embedder import embedder, embedding
from tests.support.http_servers import Peer
from tests.support.live_indexes import collection, indexed
from tests.support.live_suite import CORPUS
from tests.support.servers import chroma
from tests.support.world import World, page

pytestmark = pytest.mark.systems


@pytest.fixture(scope="module")
def vectors() -> Iterator[Peer]:
    with embedder() as served:
        yield served


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with database() as running:
        yield running


def world_over(store: Store, retriever: dict[str, Any], **check: Any) -> World:
    """Make a world whose canaries ask a real retriever for twenty passages of the corpus."""
    world = World(store=store)
    chosen = CORPUS[:: max(1, len(CORPUS) // 20)][:20]
    canaries = [
        {"key": f"c{at}", "query": one.text[:300], "expected_chunks": [one.id]} for at, one in enumerate(chosen)
    ]
    described = page(canaries, retriever="docs", **{"rules": [], "hooks": [], **check})
    world.apply(described | {"retrievers": [retriever]})
    policy = AddressPolicy(name="retriever", allow=parse_allow("127.0.0.0/8"))
    world.probe = RetrieverProbe(policy, USER_AGENT)  # type: ignore[assignment] # the real one
    return world


def test_a_table_that_loses_rows_is_told(sqlite_store: Store, vectors: Peer, server: Database) -> None:
    indexed(server, "lossy")
    world = world_over(sqlite_store, server.retriever(options={"table": "lossy"}, embedding=embedding(vectors)))
    first = world.run()
    found = read(world, first.id)
    assert (found["vectors"]["value"], found["dimension"]["value"]) == (len(CORPUS), 256)
    server.owner.execute(
        "DELETE FROM lossy WHERE id IN (SELECT id FROM lossy ORDER BY id LIMIT %s)", [len(CORPUS) // 8]
    )
    left = len(CORPUS) - len(CORPUS) // 8
    world.run()
    last = world.run()
    sentence = read(world, last.id)["vectors"]["sentence"]
    share = round(100 * (len(CORPUS) - left) / len(CORPUS))
    assert sentence == (f"the index has {share} % fewer vectors than in run {first.id} ({left:,} of {len(CORPUS):,})")
    (alert,) = [one for one in world.alerts() if one["kind"] == "index"]
    assert alert["state"] == "firing"
    assert sentence in alert["reason"]


def test_an_index_that_misses_hits_has_a_low_recall_against_exact_search(
    sqlite_store: Store, vectors: Peer, server: Database
) -> None:
    indexed(server, "approximate")
    server.owner.execute("CREATE INDEX ON approximate USING ivfflat (embedding vector_cosine_ops) WITH (lists = 40)")
    server.owner.execute(f"ALTER ROLE {READER} SET enable_seqscan = off")
    described = server.retriever(options={"table": "approximate"}, embedding=embedding(vectors), exact=True)
    try:
        world = world_over(sqlite_store, described)
        poor = read(world, world.run().id)["exact_recall"]
        server.owner.execute(f"ALTER ROLE {READER} SET ivfflat.probes = 40")
        good = read(world, world.run().id)["exact_recall"]
    finally:
        server.owner.execute(f"ALTER ROLE {READER} RESET ALL")
    assert poor["canaries"] == 20
    assert poor["value"] is not None
    assert poor["value"] < 0.8
    assert good["value"] == pytest.approx(1.0)


def test_a_statement_of_facts_cannot_write(sqlite_store: Store, vectors: Peer, server: Database) -> None:
    indexed(server, "written")
    facts = {
        "gone": {"sql": "DELETE FROM {{ table }} RETURNING 1"},
        "two": {"sql": "SELECT 1; SELECT 2"},
        "slow": {"sql": "SELECT 1 FROM pg_sleep(30)"},
    }
    described = server.retriever(options={"table": "written"}, embedding=embedding(vectors), facts=facts)
    world = world_over(sqlite_store, described)
    run = world.run()
    found = read(world, run.id)
    assert {name: one["value"] for name, one in found.items()} == dict.fromkeys(facts)
    assert run.status is RunStatus.FINISHED
    assert server.owner.execute("SELECT count(*) FROM written").fetchone() == (len(CORPUS),)


def test_a_collection_of_chroma_is_counted(sqlite_store: Store, vectors: Peer, tmp_path: Path) -> None:
    with chroma(tmp_path) as url:
        address = collection(url, "counted")
        described = {"slug": "docs", "preset": "chroma", "url": url, "options": {"collection": "counted"}}
        world = world_over(sqlite_store, {**described, "embedding": embedding(vectors)})
        found = read(world, world.run().id)
        assert (found["vectors"]["value"], found["dimension"]["value"]) == (len(CORPUS), 256)
        ids = [one.id for one in CORPUS[:30]]
        httpx2.post(f"{address}/delete", json={"ids": ids}, trust_env=False).raise_for_status()
        assert read(world, world.run().id)["vectors"]["value"] == len(CORPUS) - 30
