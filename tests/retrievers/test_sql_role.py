"""The role that docs/presets.md tells people to give a retriever that is a database: it reads, and nothing else."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from app.base.addresses import retriever_policy
from app.base.documents.fields import parse_document
from app.retrievers.client.sql import SUPERUSER, SqlProbe
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.probes import TrialView
from app.retrievers.domain.retrievers import ProbeQuery
from app.retrievers.service.trials import try_retriever
from tests.support.databases import Database, database
from tests.support.doc_pages import blocks

ROLE, PASSWORD = "coalmine_reader", "change-me"
PROBE = SqlProbe(retriever_policy())


@pytest.fixture(scope="module")
def docs() -> Iterator[Database]:
    """Run a database with a table of chunks and the role as the page makes it."""
    (statements,) = [block.text for block in blocks("docs/presets.md") if block.language == "sql"]
    with database() as opened:
        opened.owner.execute("CREATE TABLE chunks (id text PRIMARY KEY, text text, source text, embedding vector(3))")
        opened.owner.execute("INSERT INTO chunks VALUES ('a', 'a text', 'a.md', '[1, 0, 0]')")
        opened.owner.execute(statements)
        yield opened


def _connected(docs: Database) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(host="127.0.0.1", port=docs.port, dbname="docs", user=ROLE, password=PASSWORD)


def test_the_role_of_the_page_reads_the_chunks(docs: Database) -> None:
    with _connected(docs) as connection:
        found = connection.execute("SELECT id FROM public.chunks ORDER BY embedding <=> '[1, 0, 0]' LIMIT 1").fetchone()
    assert found == ("a",)


def test_a_trial_as_a_superuser_says_so_and_one_as_the_role_of_the_page_does_not(docs: Database) -> None:
    docs.owner.execute(f"CREATE ROLE root_like SUPERUSER LOGIN PASSWORD '{PASSWORD}'")

    def trial(user: str, **changes: Any) -> TrialView:
        auth = {"kind": "basic", "user": user, "password": PASSWORD}
        sql = {
            "sql": "SELECT id, text, source AS document, 1.0 AS score FROM public.chunks WHERE text <> :query LIMIT :k"
        }
        body = {"request": sql, "auth": auth, **changes}
        document = parse_document(RetrieverDocument, docs.retriever(**body))
        return try_retriever(PROBE, document, ProbeQuery(query="a"), k=1, run_id="try")

    plain, powerful = trial(ROLE), trial("root_like")
    assert (plain["outcome"], plain["remarks"]) == ("ok", [])
    assert (powerful["outcome"], powerful["remarks"]) == ("ok", [SUPERUSER])
    failing = trial("root_like", request={"sql": "SELECT id FROM public.nowhere WHERE text <> :query"})
    assert (failing["outcome"], failing["remarks"]) == ("refused", [SUPERUSER])


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO public.chunks VALUES ('b', 'b', 'b', '[0, 0, 0]')",
        "CREATE TABLE public.other (id int)",
        "SELECT pg_read_file('PG_VERSION')",
        "SELECT pg_reload_conf()",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres'",
        "COPY (SELECT 1) TO PROGRAM 'true'",
    ],
)
def test_the_role_of_the_page_may_do_nothing_else(docs: Database, statement: str) -> None:
    with _connected(docs) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.commit()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)
