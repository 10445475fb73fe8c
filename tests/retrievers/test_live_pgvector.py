"""A real PostgreSQL with pgvector: a suite runs against a table, finds what it should, and a broken index is seen."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.databases import Database, database
from tests.support.embedder import embedder, embedding
from tests.support.http_servers import Peer
from tests.support.live_indexes import indexed
from tests.support.live_suite import KEYS, SOUND, WITHDRAWN, WITHOUT_ONE, asked, report

pytestmark = pytest.mark.systems


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with database() as running:
        yield running


@pytest.fixture(scope="module")
def vectors() -> Iterator[Peer]:
    with embedder() as served:
        yield served


def table(server: Database, vectors: Peer, name: str) -> dict[str, Any]:
    """Index the corpus in a table; gives the retriever."""
    indexed(server, name)
    return server.retriever(options={"table": name}, embedding=embedding(vectors))


def test_suite_finds_what_it_should(server: Database, vectors: Peer) -> None:
    found = report(table(server, vectors, "sound"))
    assert found["run"]["verdict"] == "healthy"
    assert found["run"]["coverage"] == 1.0
    first = next(result for result in found["results"] if result["key"] == KEYS[0])["ranking"][0]
    assert (first["id"], first["document"], first["level"]) == (WITHDRAWN, "compliance/certifications", "id")
    assert first["score"] == pytest.approx(first["relevance"])
    assert 0 < first["score"] < 1


def test_deleted_row_is_missed(server: Database, vectors: Peer) -> None:
    described = table(server, vectors, "thinned")
    assert asked(described) == SOUND
    server.owner.execute("DELETE FROM thinned WHERE id = %s", [WITHDRAWN])
    assert asked(described) == WITHOUT_ONE


def test_dropped_table_is_refused_and_not_taken_for_empty(server: Database, vectors: Peer) -> None:
    described = table(server, vectors, "dropped")
    server.owner.execute("DROP TABLE dropped")
    results = report(described)["results"]
    assert {(result["outcome"], result["detail"], result["verdict"]) for result in results} == {
        ("refused", "the database answered 42P01 (undefined_table)", "unknown")
    }


def test_column_of_other_dimensions_is_refused(server: Database, vectors: Peer) -> None:
    described = table(server, vectors, "resized")
    server.owner.execute("ALTER TABLE resized ALTER embedding TYPE vector(4) USING '[1,2,3,4]'")
    details = {result["detail"] for result in report(described)["results"]}
    assert details == {"the database answered 22000 (data_exception)"}
