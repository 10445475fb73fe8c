"""Plants in a real Chroma and a real PostgreSQL with pgvector: found, removed, gone, and nothing is left."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app import USER_AGENT
from app.base.addresses import AddressPolicy, parse_allow
from app.base.db.engine import Store
from app.plants.domain import Finding, PlantState, PlantView
from app.plants.service import planting, shown
from app.retrievers.client.probe import RetrieverProbe
from tests.support.databases import PASSWORD, Database, database
from tests.support.embedder import embedder, embedding
from tests.support.http_servers import Peer
from tests.support.live_indexes import collection, indexed
from tests.support.servers import chroma
from tests.support.world import CHECK, World, canary, page

pytestmark = pytest.mark.systems

WRITER = "writer"
COLLECTION = "/api/v2/tenants/{{ tenant }}/databases/{{ database }}/collections/{{ collection_id }}"
IN_CHROMA = {
    "put": {
        "url": f"{COLLECTION}/add",
        "json": {"ids": ["{{ id }}"], "documents": ["{{ text }}"], "embeddings": ["{{ vector }}"]},
    },
    "remove": {"url": f"{COLLECTION}/delete", "json": {"ids": ["{{ id }}"]}},
}
IN_POSTGRESQL = {
    "credentials": WRITER,
    "put": {"sql": "INSERT INTO {{ table }} (id, text, source, embedding) VALUES (:id, :text, :marker, :vector)"},
    "remove": {"sql": "DELETE FROM {{ table }} WHERE id = :id"},
}


@pytest.fixture(scope="module")
def vectors() -> Iterator[Peer]:
    with embedder() as served:
        yield served


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with database() as running:
        running.owner.execute(f"CREATE ROLE {WRITER} LOGIN PASSWORD '{PASSWORD}'")
        running.owner.execute(f"ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {WRITER}")
        yield running


def _now() -> datetime:
    return datetime.now(UTC)


def planted(store: Store, retrievers: list[dict[str, Any]], plant: dict[str, Any]) -> PlantView:
    """Plant a document and carry it on, by the real clock."""
    world = World(store=store)
    described = page([canary("one")], retriever=retrievers[0]["slug"], rules=[], hooks=[])
    described["checks"][0]["plant"] = {"every": "1h", "poll": "1s", **plant}
    world.apply(described | {"retrievers": retrievers})
    probe = RetrieverProbe(AddressPolicy(name="retriever", allow=parse_allow("127.0.0.0/8")), USER_AGENT)
    plant_id = planting.plant_of(store, CHECK, now=datetime.now(UTC))
    end = datetime.now(UTC) + timedelta(seconds=60)
    while planting.carry_on(store, world.vault, probe, plant_id, clock=_now) is not None:
        assert datetime.now(UTC) < end, shown.load_plant(store, plant_id)
        time.sleep(0.1)
    return shown.load_plant(store, plant_id)


def test_a_document_in_chroma(sqlite_store: Store, vectors: Peer, tmp_path: Path) -> None:
    with chroma(tmp_path) as url:
        address = collection(url, "planted")
        before = httpx2.get(f"{address}/count", trust_env=False).json()
        retriever = {"slug": "docs", "preset": "chroma", "url": url, "options": {"collection": "planted"}}
        one = planted(sqlite_store, [{**retriever, "embedding": embedding(vectors)}], IN_CHROMA)
        assert (one["state"], one["finding"], one["problem"]) == (PlantState.ENDED, Finding.FOUND, None), one
        assert httpx2.get(f"{address}/count", trust_env=False).json() == before


def test_a_document_in_postgresql(sqlite_store: Store, vectors: Peer, server: Database) -> None:
    indexed(server, "planted")
    before = server.owner.execute("SELECT count(*) FROM planted").fetchone()
    reader = server.retriever(options={"table": "planted"}, embedding=embedding(vectors))
    writer = {**reader, "slug": WRITER, "auth": {"kind": "basic", "user": WRITER, "password": PASSWORD}}
    one = planted(sqlite_store, [reader, writer], IN_POSTGRESQL)
    assert (one["state"], one["finding"], one["problem"]) == (PlantState.ENDED, Finding.FOUND, None), one
    assert server.owner.execute("SELECT count(*) FROM planted").fetchone() == before


def test_a_role_that_may_only_read_puts_nothing(sqlite_store: Store, vectors: Peer, server: Database) -> None:
    indexed(server, "readable")
    reader = server.retriever(options={"table": "readable"}, embedding=embedding(vectors))
    world = World(store=sqlite_store)
    plant = {name: request for name, request in IN_POSTGRESQL.items() if name != "credentials"}
    described = page([canary("one")], retriever="docs", rules=[], hooks=[], plant={"every": "1h", **plant})
    world.apply(described | {"retrievers": [reader]})
    probe = RetrieverProbe(AddressPolicy(name="retriever", allow=parse_allow("127.0.0.0/8")), USER_AGENT)
    plant_id = planting.plant_of(sqlite_store, CHECK, now=world.clock())
    planting.carry_on(sqlite_store, world.vault, probe, plant_id, clock=world.clock)
    one = shown.load_plant(sqlite_store, plant_id)
    assert one["finding"] is Finding.UNMEASURED
    assert "42501 (insufficient_privilege)" in (one["failure"] or "")
