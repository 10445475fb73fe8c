"""The demo's corpus in the indexes of real servers, embedded by the embedder of the tests."""

import httpx2

from tests.support.databases import Database
from tests.support.embedder import DIMENSIONS, vector
from tests.support.live_suite import CORPUS

DATABASE = "/api/v2/tenants/default_tenant/databases/default_database"


def collection(server: str, name: str) -> str:
    """Index the corpus under a name; gives the address of the collection."""
    with httpx2.Client(base_url=server + DATABASE, trust_env=False) as client:
        made = client.post("/collections", json={"name": name, "configuration": {"hnsw": {"space": "cosine"}}})
        address = f"{server}{DATABASE}/collections/{made.raise_for_status().json()['id']}"
        added = client.post(
            f"{address}/add",
            json={
                "ids": [chunk.id for chunk in CORPUS],
                "documents": [chunk.text for chunk in CORPUS],
                "metadatas": [{"source": chunk.document} for chunk in CORPUS],
                "embeddings": [vector(f"{chunk.title} {chunk.text}") for chunk in CORPUS],
            },
        )
        added.raise_for_status()
    return address


def indexed(server: Database, name: str) -> None:
    """Index the corpus in a table of PostgreSQL, as the preset `pgvector` expects it."""
    server.owner.execute(
        f"CREATE TABLE {name} (id text PRIMARY KEY, text text, source text, embedding vector({DIMENSIONS}))"
    )
    with server.owner.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {name} VALUES (%s, %s, %s, %s)",  # noqa: S608 - the names are ours
            [(one.id, one.text, one.document, str(vector(f"{one.title} {one.text}"))) for one in CORPUS],
        )
