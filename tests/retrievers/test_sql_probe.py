"""The SQL probe: each way a database can fail has its outcome, nothing is written, rows are read like any answer."""

import gc
import ssl
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from app.base.addresses import Basic, Bearer, Endpoint, Tls, hook_policy, parse_allow, retriever_policy
from app.base.errors import InvalidInputError
from app.base.values import Answer, Outcome, replace
from app.retrievers.client.credentials import MASK
from app.retrievers.client.sql import SqlProbe, compile_statement, permitted_addresses
from app.retrievers.domain.retrievers import (
    Dialect,
    Embedder,
    ProbeContext,
    ProbeQuery,
    ResponseMapping,
    Retriever,
    Scorer,
    ScorerKind,
)
from tests.support import event_loops
from tests.support.certificates import Authority, serving
from tests.support.databases import PASSWORD, READER, Database, database
from tests.support.http_servers import HANG, closed_port, peer
from tests.support.living import until
from tests.support.postgres_peers import ASKS_IN_CLEAR, FAREWELL, LOCKED_OUT, MUTE, behind_tls, impostor, wide_row
from tests.support.probed import answers_of

PROBE = SqlProbe(retriever_policy())
TRUSTED = Authority()
HIT = "SELECT 'a' AS id, 0.5::numeric AS score, 'one ' || :query AS text"


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with database() as running:
        running.owner.execute("CREATE TABLE docs (id int, body text, at timestamptz, meta jsonb)")
        running.owner.execute("INSERT INTO docs VALUES (7, 'secret', '2026-01-02 03:04:05+00', '{\"source\": \"hr\"}')")
        running.owner.execute(f"GRANT INSERT ON docs TO {READER}")  # it is the transaction that only reads
        running.owner.execute(f"GRANT pg_signal_backend TO {READER}")
        yield running


def retriever(url: str, sql: str = HIT, **changes: Any) -> Retriever:
    plain = Retriever(
        slug="docs",
        url=url,
        dialect=Dialect.SQL,
        sql=sql,
        auth=Basic(user=READER, password=PASSWORD),
        response=ResponseMapping(hits="@", id="id", score="score", text="text"),
        scorer=Scorer(kind=ScorerKind.JUDGED),
        retries=0,
        timeout_seconds=10.0,
    )
    return replace(plain, **changes)


def answers(described: Retriever, queries: list[str], *, probe: SqlProbe = PROBE, **more: Any) -> list[Answer]:
    """Ask everything; each position must come once."""
    return answers_of(described, *queries, probe=partial(probe, **more), k=10)


def answer_to(server: Database, sql: str, **changes: Any) -> Answer:
    return answers(retriever(server.url, sql, **changes), ["why?"])[0]


def test_a_row_that_holds_our_own_password_is_shown_without_it(server: Database) -> None:
    sql = f"SELECT 'a' AS id, 1.0 AS score, 'it is {PASSWORD}' AS text WHERE :query <> ''"
    described = retriever(server.url, sql, response=ResponseMapping(hits="@", id="id", text="reverse(text)"))
    asking = ProbeContext(retriever=described, k=10, run_id="run-7", shows=True)
    [(_, found)] = [pair for batch in PROBE(asking, [ProbeQuery(position=0, query="why?")]) for pair in batch]
    assert found.ranking is not None
    assert found.ranking.texts == ("••• si ti",)


def test_rows_are_read_like_any_answer(server: Database) -> None:
    mapping = ResponseMapping(hits="@", id="id", text="body", document="meta.source", updated="at")
    found = answer_to(server, "SELECT * FROM docs WHERE body <> :query LIMIT :k", response=mapping)
    assert found.outcome is Outcome.OK
    assert found.ranking is not None
    assert (found.ranking.ids, found.ranking.texts, found.ranking.documents) == (("7",), ("secret",), ("hr",))
    assert found.ranking.updated == (1767323045.0,)
    assert found.latency_seconds > 0


def test_no_rows_are_an_answer(server: Database) -> None:
    found = answer_to(server, "SELECT id, 1 AS score, body AS text FROM docs WHERE body = :query")
    assert found.outcome is Outcome.OK
    assert found.ranking is not None
    assert len(found.ranking) == 0


@pytest.mark.parametrize("query", ["'; DROP TABLE docs; --", "%s %(k)s :k", "ünïcödé 🐤", "", "back\\slash"])
def test_query_is_a_value_and_never_a_part_of_the_statement(server: Database, query: str) -> None:
    found = answers(retriever(server.url), [query])[0]
    assert found.ranking is not None
    assert found.ranking.texts == (f"one {query}",)


def test_vector_is_bound_for_the_statement_to_cast(server: Database) -> None:
    embedder = Embedder(endpoint=Endpoint(url="http://unused/"), model="m")
    described = retriever(
        server.url, "SELECT 'a' AS id, :vector::vector <-> '[0,4]' AS score, '' AS text", embedder=embedder
    )
    found = answers(described, ["why?"], vectors={"why?": [3.0, 0.0]})[0]
    assert found.ranking is not None
    assert found.ranking.scores == (5.0,)


@pytest.mark.parametrize(
    ("sql", "outcome", "detail"),
    [
        ("SELECT * FROM secrets WHERE a = :query", Outcome.REFUSED, "the database answered 42P01 (undefined_table)"),
        ("SELEKT :query", Outcome.REFUSED, "the database answered 42601 (syntax_error)"),
        (
            "INSERT INTO docs (body) VALUES (:query) RETURNING *",
            Outcome.REFUSED,
            "the database answered 25006 (read_only_sql_transaction)",
        ),
        (
            "SELECT pg_read_file('/etc/passwd'), :query",
            Outcome.REFUSED,
            "the database answered 42501 (insufficient_privilege)",
        ),
        (
            "SELECT body::int, :query FROM docs",  # whose message quotes the row
            Outcome.REFUSED,
            "the database answered 22P02 (invalid_text_representation)",
        ),
        ("SELECT 'a' AS id, 1 AS score FROM generate_series(1, 20000) WHERE '' <> :query", Outcome.OVERSIZE, None),
        ("SELECT repeat('secret', 100000) AS text, :query", Outcome.OVERSIZE, None),
        ("SELECT id, body AS text FROM docs WHERE '' <> :query", Outcome.MALFORMED, "[0].score: missing"),
        (
            "SELECT 'a' AS id, 'NaN'::numeric AS score WHERE '' <> :query",
            Outcome.MALFORMED,
            "[0].score: not a finite number",
        ),
        (
            "SELECT 'infinity'::timestamptz AS id, :query AS text",
            Outcome.MALFORMED,
            "the rows hold a value that cannot be written as JSON",
        ),
        ("DECLARE c CURSOR FOR SELECT 1 WHERE '' <> :query", Outcome.MALFORMED, "the statement gives no rows"),
    ],
)
def test_every_failure_has_its_outcome_and_quotes_nothing(
    server: Database, sql: str, outcome: Outcome, detail: str | None
) -> None:
    found = answer_to(server, sql, max_body_bytes=100_000)
    assert found.outcome is outcome
    assert detail is None or found.detail == detail
    assert found.ranking is None
    assert "secret" not in str(found)
    assert PASSWORD not in str(found)
    assert server.owner.execute("SELECT count(*) FROM docs").fetchone() == (1,)


def test_forgotten_limit_is_named(server: Database) -> None:
    rows = "SELECT 'a' AS id, 1 AS score, '' AS text FROM generate_series(1, 20000) WHERE '' <> :query"
    assert answer_to(server, rows).detail == "the answer has more than 10,000 rows; has the statement a LIMIT :k?"


def test_slow_statement_is_cancelled_in_the_database(server: Database) -> None:
    found = answer_to(server, "SELECT pg_sleep(60), :query", timeout_seconds=0.2)
    assert found.outcome is Outcome.TIMEOUT
    assert sleepers(server) == 0


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"auth": Basic(user=READER, password="wrong")}, "the database answered 28P01 (invalid_password)"),
        ({"auth": Basic(user="nobody", password=PASSWORD)}, "the database answered 28P01 (invalid_password)"),
        ({"database": "nowhere"}, "the database answered 3D000 (invalid_catalog_name)"),
    ],
)
def test_refused_connection_is_refused_and_not_unreachable(
    server: Database, changes: dict[str, Any], detail: str
) -> None:
    url = server.url.replace("/docs", f"/{changes.pop('database', 'docs')}")
    found = answers(retriever(url, **changes), ["why?"])[0]
    assert (found.outcome, found.detail) == (Outcome.REFUSED, detail)


def test_database_that_is_not_there_is_unreachable() -> None:
    with closed_port() as port:
        found = answers(retriever(f"postgresql://127.0.0.1:{port}/docs"), ["why?"])[0]
    assert (found.outcome, found.detail) == (Outcome.UNREACHABLE, "connection failed: Connection refused")


def test_host_that_does_not_resolve_is_unreachable() -> None:
    found = answers(retriever("postgresql://nowhere.invalid/docs"), ["why?"])[0]
    assert (found.outcome, found.detail) == (Outcome.UNREACHABLE, "the host name does not resolve")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]"])
@pytest.mark.parametrize("policy", [hook_policy(), retriever_policy(parse_allow("10.0.0.0/8, search.example"))])
def test_address_outside_the_policy_is_blocked(host: str, policy: Any) -> None:
    with peer(HANG) as server:
        described = retriever(f"postgresql://{host}:{server.port}/docs")
        found = answers(described, ["why?"], probe=SqlProbe(policy))[0]
        assert server.connections == 0
    assert found.outcome is Outcome.BLOCKED
    assert str(found.detail).startswith("not allowed to connect: ")


def test_connection_goes_to_what_was_judged_whatever_the_name_means_later() -> None:
    only_one = retriever_policy(parse_allow("127.0.0.1"))
    places = event_loops.run(permitted_addresses("localhost", 5432, only_one))
    assert places == {"host": "localhost", "hostaddr": "127.0.0.1", "port": "5432"}


def test_environment_leads_nowhere_else(server: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_port() as port:
        for name, value in {"PGHOST": "/tmp", "PGHOSTADDR": "127.0.0.2", "PGPORT": str(port), "PGUSER": "x"}.items():  # noqa: S108 - not a file of ours
            monkeypatch.setenv(name, value)
        assert answers(retriever(server.url), ["why?"])[0].outcome is Outcome.OK


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PGOPTIONS", "-c nonsense=1"),
        ("PGTARGETSESSIONATTRS", "standby"),
        ("PGCHANNELBINDING", "require"),
        ("PGSSLROOTCERT", __file__),
        ("PGSSLCERT", __file__),
        ("PGSSLCRLDIR", "/"),
        ("HOME", None),
    ],
)
def test_nothing_of_whoever_runs_us_changes_a_connection(
    name: str, value: str | None, secured: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".postgresql").mkdir()
    for file in ("root.crt", "postgresql.crt"):
        (tmp_path / ".postgresql" / file).write_text("no certificate")
    monkeypatch.setenv(name, str(tmp_path) if value is None else value)
    url, clients = secured
    for tls in (None, Tls(authority=TRUSTED.certificate)):
        assert answers(retriever(f"{url}?sslmode=require" if tls is None else url, tls=tls), ["why?"])[0].detail is None
    assert clients == ["", ""]


def test_texts_are_sent_as_utf_8_whatever_the_environment_says(
    server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    found = answers(retriever(server.url, "SELECT 'a' AS id, 1 AS score, 'ж€ ' || :query AS text"), ["größe"])[0]
    assert found.ranking is not None
    assert found.ranking.texts == ("ж€ größe",)


@pytest.mark.parametrize(
    ("script", "outcome", "detail"),
    [
        (MUTE, Outcome.TIMEOUT, "no complete answer within 0.3 s"),
        (FAREWELL, Outcome.UNREACHABLE, "the connection was closed without an answer"),
        (LOCKED_OUT, Outcome.REFUSED, "the database refused the connection"),
    ],
)
def test_hostile_database_is_an_answer(script: Any, outcome: Outcome, detail: str) -> None:
    with impostor(script) as port:
        found = answers(retriever(f"postgresql://127.0.0.1:{port}/docs", timeout_seconds=0.3), ["why?"])[0]
    assert (found.outcome, found.detail) == (outcome, detail)
    assert "secret" not in str(found)
    assert "sql probe" not in {thread.name for thread in threading.enumerate()}


IN_CLEAR = "the database asked for the password as it is, which takes sslmode=verify-full, or an authority under tls"


@pytest.mark.parametrize(
    ("options", "script"),
    [
        ("", ASKS_IN_CLEAR),
        ("?sslmode=prefer", ASKS_IN_CLEAR),
        ("?sslmode=allow", ASKS_IN_CLEAR[1:]),  # which asks for no TLS to begin with
        ("?sslmode=disable", ASKS_IN_CLEAR[1:]),
    ],
)
def test_password_is_not_said_to_a_server_that_did_not_prove_who_it_is(options: str, script: Any) -> None:
    heard: list[bytes] = []
    with impostor(script, heard) as port:
        found = answers(retriever(f"postgresql://127.0.0.1:{port}/docs{options}"), ["why?"])[0]
    assert (found.outcome, found.detail) == (Outcome.REFUSED, IN_CLEAR)
    assert READER.encode() in b"".join(heard)
    assert PASSWORD.encode() not in b"".join(heard)


def test_password_is_said_to_a_server_that_proved_who_it_is(tmp_path: Path) -> None:
    heard: list[bytes] = []
    context = serving(tmp_path, TRUSTED.issue("localhost"))
    # Inside of TLS the client asks for no more TLS, so the script begins behind that.
    with impostor(ASKS_IN_CLEAR[1:], heard) as port, behind_tls(port, context) as (secured, _):
        url = f"postgresql://localhost:{secured}/docs"
        found = answers(retriever(f"{url}?sslmode=require"), ["why?"])[0]
        assert (found.outcome, found.detail) == (Outcome.REFUSED, IN_CLEAR)
        assert PASSWORD.encode() not in b"".join(heard)
        answers(retriever(url, tls=Tls(authority=TRUSTED.certificate)), ["why?"])
        assert PASSWORD.encode() in b"".join(heard)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the bytes of a connection")
def test_row_wider_than_an_answer_may_be_is_not_waited_for() -> None:
    """Else libpq would hold a gigabyte before anybody could say that it is too much."""
    with impostor(wide_row(announced=1_000_000_000, sent=1_000_000)) as port:
        described = retriever(f"postgresql://127.0.0.1:{port}/docs", max_body_bytes=100_000)
        found = answers(described, ["why?"])[0]
    assert (found.outcome, found.detail) == (
        Outcome.OVERSIZE,
        "the answer is larger than 100,000 bytes; has the statement a LIMIT :k?",
    )


def test_many_answers_of_one_connection_are_not_taken_for_a_large_one(server: Database) -> None:
    sql = "SELECT 'a' AS id, 1 AS score, repeat('x', 90000) AS text WHERE '' <> :query"
    found = answers(retriever(server.url, sql, max_body_bytes=100_000, concurrency=1), ["why?"] * 12)
    assert {answer.outcome for answer in found} == {Outcome.OK}


def test_nothing_of_an_abandoned_statement_is_left_in_the_loop(
    server: Database, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "SELECT 'a' AS id, 1 AS score, repeat('x', 1000) AS text FROM generate_series(1, 100000) WHERE '' <> :query"
    assert answer_to(server, rows, max_body_bytes=10_000).outcome is Outcome.OVERSIZE
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_database_that_says_nothing_at_all_is_given_up() -> None:
    with peer(HANG) as server:
        described = retriever(f"postgresql://127.0.0.1:{server.port}/docs", timeout_seconds=0.3)
        found = answers(described, ["why?"])[0]
    assert (found.outcome, found.detail) == (Outcome.TIMEOUT, "no connection within 0.3 s")


def test_lost_connection_is_made_anew(server: Database) -> None:
    suicide = "SELECT CASE WHEN :query = 'die' THEN pg_terminate_backend(pg_backend_pid())::text END AS id, 1 AS score"
    described = retriever(
        server.url, f"{suicide}, 'x' AS text", concurrency=1, response=ResponseMapping(hits="@", text="text")
    )
    found = answers(described, ["die", "live"])
    assert (found[0].outcome, found[0].detail) == (Outcome.UNREACHABLE, "the database answered 57P01 (admin_shutdown)")
    assert found[1].outcome is Outcome.OK


def test_all_answers_of_a_busy_run_find_their_canary(server: Database) -> None:
    queries = [f"query {number}" for number in range(100)]
    found = answers(retriever(server.url, concurrency=8), queries)
    for position, query in enumerate(queries):
        ranking = found[position].ranking
        assert ranking is not None
        assert ranking.texts == (f"one {query}",)


def test_database_learns_who_asks_and_for_which_run(server: Database) -> None:
    named = "SELECT 'a' AS id, 1 AS score, current_setting('application_name') AS text WHERE '' <> :query"
    ranking = answer_to(server, named).ranking
    assert ranking is not None
    assert ranking.texts == ("coalmine (+run run-7)",)


def test_closing_stops_asking(server: Database) -> None:
    sql = "SELECT 'a' AS id, 1 AS score, pg_sleep(CASE WHEN :query = 'first' THEN 0 ELSE 60 END)::text AS text"
    described = retriever(server.url, sql, concurrency=4, timeout_seconds=90.0)
    asks = [ProbeQuery(position=n, query="first" if n == 0 else "later") for n in range(50)]
    batches = PROBE(ProbeContext(retriever=described, k=10, run_id="run-7"), asks)
    with closing(cast("Generator[Any, None, None]", batches)):
        assert [position for position, _ in next(batch for batch in batches if batch)] == [0]
        until(lambda: sleepers(server) == 4)
    assert "sql probe" not in {thread.name for thread in threading.enumerate()}
    until(lambda: sleepers(server) == 0)


def sleepers(server: Database) -> int:
    found = server.owner.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE usename = 'reader' AND query LIKE '%pg_sleep%' AND state = 'active'"
    ).fetchone()
    assert found is not None
    return int(found[0])


@pytest.fixture
def secured(server: Database, tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """Give the address of the database behind TLS, and whom clients say they are."""
    context = serving(tmp_path, TRUSTED.issue("localhost"))
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=TRUSTED.certificate)
    with behind_tls(server.port, context) as (port, clients):
        yield f"postgresql://localhost:{port}/docs", clients


def test_tls_is_verified_by_the_authority_given(secured: tuple[str, list[str]]) -> None:
    url, clients = secured
    for tls in (Tls(authority=TRUSTED.certificate), TRUSTED.issue("watcher")):
        assert answers(retriever(url, tls=tls), ["why?"])[0].outcome is Outcome.OK
    assert clients == ["", "watcher"]
    other = Tls(authority=Authority("Somebody else").certificate)
    for untrusted in (retriever(url, tls=other), retriever(f"{url}?sslmode=verify-full")):
        found = answers(untrusted, ["why?"])[0]
        assert (found.outcome, found.detail) == (
            Outcome.UNREACHABLE,
            "the TLS handshake failed, or the database does not speak TLS",
        )


def test_tls_is_insisted_on_where_an_authority_is_given(server: Database) -> None:
    url = server.url.replace("127.0.0.1", "localhost")
    found = answers(retriever(url, tls=Tls(authority=TRUSTED.certificate)), ["why?"])[0]
    assert found.outcome is Outcome.UNREACHABLE
    assert found.detail == "the TLS handshake failed, or the database does not speak TLS"


def test_files_of_certificates_are_gone_afterwards(
    secured: tuple[str, list[str]], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("certificates")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert answers(retriever(secured[0], tls=TRUSTED.issue("watcher")), ["why?"])[0].outcome is Outcome.OK
    assert list(folder.iterdir()) == []


def test_exchange_is_shown_without_the_password(server: Database) -> None:
    described = retriever(server.url)
    batches = PROBE(
        ProbeContext(retriever=described, k=3, run_id="run-7", shows=True),
        [ProbeQuery(position=0, query=f"is it {PASSWORD}?")],
    )
    ((_, answer),) = [pair for batch in batches for pair in batch]
    assert answer.exchange is not None
    assert answer.exchange.method == "SELECT"
    assert answer.exchange.request_body == f'{HIT}\n{{"query": "is it {MASK}?"}}'
    assert answer.exchange.response_body == f'[{{"id": "a", "score": 0.5, "text": "one is it {MASK}?"}}]'


def test_database_that_cannot_be_asked_is_refused_before_asking() -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"url": "http://127.0.0.1/docs"}, "url", "must be written postgresql://host:port/database"),
        ({"url": "postgresql:///docs"}, "url", "must be written postgresql://host:port/database"),
        ({"url": "postgresql://%2Ftmp/docs"}, "url", "must be written postgresql://host:port/database"),
        ({"url": "postgresql://a,b/docs"}, "url", "must be written postgresql://host:port/database"),
        ({"url": "postgresql://u:hunter2@h/docs"}, "url", "belong into auth"),
        ({"url": "postgresql://h/docs?hostaddr=127.0.0.1"}, "url", "sslmode is the only parameter"),
        ({"url": "postgresql://h/docs?sslmode=maybe"}, "url", "sslmode must be one of"),
        ({"url": "postgresql://h:port/docs"}, "url", "malformed"),
        ({"sql": None}, "sql", "never uses :query"),
        ({"sql": "SELECT :vector"}, "sql", ":vector is not a known parameter"),
        ({"auth": None}, "auth", "must be of kind basic"),
        ({"auth": Bearer(token="hunter2")}, "auth", "must be of kind basic"),
        ({"response": ResponseMapping(hits="a[", id="id")}, "response", "hits: not a JMESPath expression"),
    ]
    for changes, path, message in cases:
        with pytest.raises(InvalidInputError) as caught:
            PROBE(
                ProbeContext(retriever=replace(retriever("postgresql://h/docs"), **changes), k=10, run_id="run-7"), []
            )
        (problem,) = caught.value.problems
        assert problem.path == path, changes
        assert message in problem.message, changes
        assert PASSWORD not in str(caught.value), changes


NAMES = ("query", "k", "vector")


def test_parameters_are_found_where_they_are_meant() -> None:
    for sql, compiled, used in [
        ("SELECT :query LIMIT :k", "SELECT %(query)s LIMIT %(k)s", {"query", "k"}),
        ("SELECT :query, :query", "SELECT %(query)s, %(query)s", {"query"}),
        ("SELECT :vector::vector", "SELECT %(vector)s::vector", {"vector"}),
        ("SELECT e<=>:vector", "SELECT e<=>%(vector)s", {"vector"}),
        ("SELECT ':query', :query", "SELECT ':query', %(query)s", {"query"}),
        ("SELECT 'it''s :k', :query", "SELECT 'it''s :k', %(query)s", {"query"}),
        (r"SELECT E'it\'s :k', :query", r"SELECT E'it\'s :k', %(query)s", {"query"}),
        ('SELECT ":k", :query', 'SELECT ":k", %(query)s', {"query"}),
        ("SELECT $$:k$$, $a$:k $$ $a$, :query", "SELECT $$:k$$, $a$:k $$ $a$, %(query)s", {"query"}),
        ("SELECT :query -- :k\n, 1", "SELECT %(query)s -- :k\n, 1", {"query"}),
        ("SELECT /* :k ; */ :query", "SELECT /* :k ; */ %(query)s", {"query"}),
        ("SELECT a[1:2], :query", "SELECT a[1:2], %(query)s", {"query"}),
        ("SELECT 10 % 3, '50%', :query", "SELECT 10 %% 3, '50%%', %(query)s", {"query"}),
        ("SELECT :query ; -- done\n", "SELECT %(query)s  -- done", {"query"}),
    ]:
        assert compile_statement(sql, NAMES) == (compiled, frozenset(used)), sql


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT 1 LIMIT :k", "never uses :query"),
        ("", "never uses :query"),
        ("SELECT :quary", ":quary is not a known parameter; there are :query, :k, :vector"),
        ("SELECT :query; DROP TABLE docs", "must be one statement"),
        ("SELECT 'never closed :query", "never uses :query"),
    ],
)
def test_statement_that_cannot_be_asked_is_refused(sql: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile_statement(sql, NAMES)
