"""Two tenants of a real PostgreSQL with pgvector and row-level security: what leaks is told within one run."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from app.alerts.service import explanations
from app.base.addresses import retriever_policy
from app.base.db.engine import Store
from app.retrievers.client.probe import RetrieverProbe
from tests.support.databases import READER, Database, database
from tests.support.embedder import DIMENSIONS, embedder, embedding, vector
from tests.support.http_servers import Peer
from tests.support.world import CHECK, World, canary, page

pytestmark = pytest.mark.systems

QUESTION = "How long is the notice period of the contract?"
CONTRACTS = {
    "acme-notice": ("acme", "The notice period of the contract with the bakery is three months."),
    "acme-price": ("acme", "Bread costs two euros."),
    "globex-notice": ("globex", "The notice period of the contract with the harbour is one year."),
    "globex-price": ("globex", "A berth costs two thousand euros."),
}
SQL = (
    "WITH me AS MATERIALIZED (SELECT set_config('app.tenant', :tenant, true) AS tenant) "
    "SELECT mine.* FROM me CROSS JOIN LATERAL ("
    "SELECT id, text, source AS document, 1 - (embedding <=> CAST(:vector AS vector)) AS score FROM contracts "
    "WHERE me.tenant <> '' ORDER BY embedding <=> CAST(:vector AS vector) LIMIT :k) AS mine"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    """Serve contracts of two tenants; the database shows a session those of its own."""
    with database() as running:
        running.owner.execute(
            f"CREATE TABLE contracts (id text, text text, source text, tenant text, embedding vector({DIMENSIONS}))"
        )
        for name, (tenant, text) in CONTRACTS.items():
            running.owner.execute(
                "INSERT INTO contracts VALUES (%s, %s, %s, %s, %s)", [name, text, name, tenant, str(vector(text))]
            )
        running.owner.execute("ALTER TABLE contracts ENABLE ROW LEVEL SECURITY")
        running.owner.execute("CREATE POLICY own ON contracts USING (tenant = current_setting('app.tenant', true))")
        running.owner.execute(f"GRANT SELECT ON contracts TO {READER}")
        yield running


@pytest.fixture(scope="module")
def vectors() -> Iterator[Peer]:
    with embedder() as served:
        yield served


def asked(tenant: str, other: str) -> dict[str, Any]:
    """Ask the one question as a tenant, who must not get what is another's."""
    return canary(
        f"notice-{tenant}",
        query=QUESTION,
        vars={"tenant": tenant},
        expected_chunks=[f"{tenant}-notice"],
        forbidden_chunks=[{"document": f"{other}-notice"}, {"document": f"{other}-price"}],
        min_relevance_score=0,
    )


def world_of(store: Store, server: Database, vectors: Peer, *, sql: str = SQL) -> World:
    """Ask as both tenants by a real probe."""
    probe = RetrieverProbe(retriever_policy(), "coalmine/test")
    world = World(store=store, probe=probe, embed=probe.embed)  # type: ignore[arg-type] # the real one
    retriever = server.retriever(
        slug="search", options={"tenant": "nobody"}, embedding=embedding(vectors), request={"sql": sql}
    )
    world.apply({**page([asked("acme", "globex"), asked("globex", "acme")], fetch_k=10), "retrievers": [retriever]})
    return world


def test_a_policy_that_is_switched_off_is_a_critical_alert_in_the_next_run(
    sqlite_store: Store, server: Database, vectors: Peer
) -> None:
    world = world_of(sqlite_store, server, vectors)
    shown = world.shown(world.run())
    assert (shown["verdict"], shown["coverage"]) == ("healthy", 1.0), shown["reasons"]
    assert world.alerts() == []

    server.owner.execute("ALTER TABLE contracts DISABLE ROW LEVEL SECURITY")
    leaking = world.run()
    [alert] = world.alerts()
    assert (alert["kind"], alert["severity"], alert["state"], alert["since_run"]) == (
        "leak",
        "critical",
        "firing",
        str(leaking.id),
    )
    assert alert["reason"].startswith("a forbidden chunk was returned for 2 of 2 canaries that forbid any: ")
    assert "notice-acme (tenant acme) got globex-" in alert["reason"]
    assert "notice-globex (tenant globex) got acme-" in alert["reason"]
    world.deliver_all()
    [(_, message)] = world.send.sent
    assert json.loads(message.body)["type"] == "alert.opened"

    server.owner.execute("ALTER TABLE contracts ENABLE ROW LEVEL SECURITY")
    world.run()
    world.run()
    assert [one["state"] for one in world.alerts()] == ["resolved"]


def test_hits_that_do_not_tell_what_is_forbidden_are_not_called_tight(
    sqlite_store: Store, server: Database, vectors: Peer
) -> None:
    world = world_of(sqlite_store, server, vectors, sql=SQL.replace("source AS document", "source"))
    shown = world.shown(world.run())
    told = "2 of 2 canaries that forbid chunks cannot be judged: no hit has a `document` to tell them by"
    assert told in shown["reasons"]
    rules = explanations.explain_rules(sqlite_store, CHECK, now=world.clock())["rules"]
    [leak] = [one for one in rules if one["rule"] == "leak"]
    assert told in str(leak)
