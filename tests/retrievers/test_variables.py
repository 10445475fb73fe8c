"""Variables of canaries and checks: each question asked as somebody, in whatever way the retriever is asked."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from typer.testing import CliRunner

from app.base.addresses import Basic, retriever_policy
from app.base.db.engine import Store
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.base.values import Outcome, Turn, replace
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import read_canary_files
from app.catalog.store import FILE
from app.cli import app as cli
from app.definitions.service import applying
from app.retrievers.client.credentials import Keyring
from app.retrievers.client.endpoint_client import EndpointClient
from app.retrievers.client.mcp_probe import McpProbe
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.client.sql import SqlProbe
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import Dialect, Lookup, ProbeContext, ProbeQuery, ResponseMapping
from tests.support.databases import PASSWORD, READER, Database, database
from tests.support.fakes import answered, hits
from tests.support.http_servers import peer, reply
from tests.support.mcp_peers import Tool, result
from tests.support.pages_service import Site
from tests.support.probed import answers_of, retriever_at
from tests.support.world import CHECK, RETRIEVER, SECRET, World, canary, documents, page

BY_TENANT: Mapping[str, Any] = {
    **RETRIEVER,
    "options": {"tenant": "acme"},
    "request": {"json": {"q": "{{ query }}", "tenant": "{{ tenant }}"}},
}
HTTP = RetrieverProbe(retriever_policy(), "coalmine/test")
HOSTILE = '../x"&a=b #%'
FOUND = reply(json.dumps({"results": [{"id": "a"}]}).encode())


def test_each_query_fills_url_parameters_and_body_with_its_own_values() -> None:
    with peer(FOUND) as server:
        described = retriever_at(
            f"{server.url}/of/{{{{ tenant }}}}/search",
            options={"tenant": "acme", "lang": "en"},
            query_parameters={"for": "{{ tenant }}"},
            json={"q": "{{ query }}", "tenant": "{{ tenant }}", "lang": "{{ lang }}"},
        )
        found = answers_of(described, "a", "b", "c", variables=[{}, {"tenant": "globex"}, {"tenant": HOSTILE}])
        again = answers_of(described, "d")
    assert {one.outcome for one in (*found, *again)} == {Outcome.OK}
    asked = {json.loads(one.body)["q"]: one for one in server.seen}
    tenants = {"a": "acme", "b": "globex", "c": HOSTILE, "d": "acme"}
    for query, tenant in tenants.items():
        body, target = json.loads(asked[query].body), urlsplit(asked[query].target)
        assert (body["tenant"], body["lang"]) == (tenant, "en")
        assert parse_qsl(target.query) == [("for", tenant)]
        assert target.path.count("/") == 3
    assert urlsplit(asked["b"].target).path == "/of/globex/search"


def test_a_value_for_what_is_no_option_keeps_the_run_from_asking() -> None:
    described = retriever_at("http://127.0.0.1:9/", options={"tenant": "acme"})
    with pytest.raises(InvalidInputError, match="'tenat' is no option of the retriever"):
        answers_of(described, "a", variables=[{"tenat": "globex"}])


def test_what_the_lookup_takes_once_cannot_be_set_by_a_query() -> None:
    lookup = Lookup(name="id", url="http://127.0.0.1:9/of/{{ tenant }}", path="id")
    described = retriever_at("http://127.0.0.1:9/{{ id }}", options={"tenant": "acme"}, lookup=lookup)
    with pytest.raises(InvalidInputError, match="'tenant' cannot be set, since the lookup takes it once per run"):
        answers_of(described, "a", variables=[{"tenant": "globex"}])


@pytest.fixture(scope="module")
def tenants() -> Iterator[Database]:
    """Serve documents of two tenants; the database itself shows a session those of its own (row-level security)."""
    with database() as running:
        running.owner.execute("CREATE TABLE docs (id text, tenant text)")
        running.owner.execute("INSERT INTO docs VALUES ('a', 'acme'), ('g', 'globex')")
        running.owner.execute("ALTER TABLE docs ENABLE ROW LEVEL SECURITY")
        running.owner.execute("CREATE POLICY own ON docs USING (tenant = current_setting('app.tenant', true))")
        running.owner.execute(f"GRANT SELECT ON docs TO {READER}")
        yield running


def test_a_database_is_asked_as_each_tenant(tenants: Database) -> None:
    described = retriever_at(
        tenants.url,
        dialect=Dialect.SQL,
        json=None,
        options={"tenant": "acme"},
        sql="WITH me AS MATERIALIZED (SELECT set_config('app.tenant', :tenant, true) AS tenant) SELECT mine.id "
        "FROM me CROSS JOIN LATERAL (SELECT id FROM docs WHERE me.tenant <> '' AND :query <> '') AS mine",
        auth=Basic(user=READER, password=PASSWORD),
        response=ResponseMapping(hits="@", id="id"),
    )
    injected = "x' OR 'a' = 'a"
    values = [{}, {"tenant": "globex"}, {"tenant": injected}]
    probe = SqlProbe(retriever_policy())
    found = answers_of(described, "a", "b", "c", variables=values, probe=probe)
    assert [None if one.ranking is None else one.ranking.ids for one in found] == [("a",), ("g",), ()]
    with pytest.raises(InvalidInputError, match="'user' is no option"):
        answers_of(described, "a", variables=[{"user": "x"}], probe=probe)
    named = replace(described, options={"tenant": "acme", "table": "docs"})
    with pytest.raises(InvalidInputError, match="'table' cannot be set, since the statement has it as a name"):
        answers_of(named, "a", variables=[{"table": "secrets"}], probe=probe)


def test_a_tool_gets_each_value_as_its_argument() -> None:
    policy = retriever_policy()
    client = EndpointClient(policy=policy, keyring=Keyring(policy, "coalmine/1.0"), user_agent="coalmine/1.0")
    told: list[Any] = []

    def call(arguments: Any) -> Any:
        told.append(arguments)
        return result({"result": [{"id": "a"}]})

    with peer(Tool(call=call)) as server:
        described = retriever_at(
            f"{server.url}/mcp",
            dialect=Dialect.MCP,
            tool="search",
            options={"tenant": "acme"},
            json={"query": "{{ query }}", "tenant": "{{ tenant }}"},
            response=ResponseMapping(hits="result", id="id"),
        )
        found = answers_of(described, "a", "b", variables=[{}, {"tenant": "globex"}], probe=McpProbe(client))
    assert {one.outcome for one in found} == {Outcome.OK}
    assert sorted((one["query"], one["tenant"]) for one in told) == [("a", "acme"), ("b", "globex")]


def test_what_is_asked_once_or_names_a_table_cannot_be_set() -> None:
    sql = parse_document(
        RetrieverDocument,
        {
            "slug": "db",
            "preset": "pgvector",
            "url": "postgresql://db.test/docs",
            "auth": {"user": "reader", "password": "x"},
            "options": {"table": "docs", "tenant": "acme"},
            "request": {"sql": "SELECT id FROM {{ table }} WHERE tenant = :tenant AND body = :query LIMIT :k"},
        },
    )
    assert dict(sql.unknown_vars({"tenant": "globex", "table": "other"})) == {
        "table": "cannot be set: to retriever 'db' it is the name of a table or column"
    }
    assert dict(sql.unknown_vars({"tenat": "globex"})) == {
        "tenat": "is no option of retriever 'db'; did you mean 'tenant'?"
    }


def test_a_file_that_sets_what_the_retriever_does_not_take_is_refused_at_its_line() -> None:
    content = {**page([canary("ant", vars={"tenat": "globex"})], vars={"lang": "de"}), "retrievers": [BY_TENANT]}
    with pytest.raises(InvalidInputError) as raised:
        read_canary_files([("canaries.yaml", json.dumps(content, indent=1))], {}, None)
    said = {problem.path: problem.message for problem in raised.value.problems}
    assert said["canaries[0].vars.tenat"].startswith("is no option of retriever 'search'; did you mean 'tenant'?")
    assert said["checks[0].vars.lang"].startswith("is no option of retriever 'search'")
    assert all(problem.line for problem in raised.value.problems)


@pytest.mark.parametrize("name", ["query", "k", "vector", "9", "a b"])
def test_a_variable_has_a_name_that_a_template_can_hold(name: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_document(CanaryDocument, {"key": "a", "query": "a", "vars": {name: "x"}})


@pytest.fixture
def world(sqlite_store: Store) -> World:
    """Give one question asked as two tenants; the second must not get what belongs to the first."""
    world = World(store=sqlite_store)
    world.probe.otherwise = _as_whom
    asked = [
        canary("own", query="plan", expected_chunks=["doc-acme"], vars={"tenant": "acme"}),
        canary("other", query="plan", expected_chunks=["doc-globex"], forbidden_chunks=["doc-acme"]),
    ]
    world.apply({**page(asked, vars={"tenant": "globex"}), "retrievers": [BY_TENANT]})
    return world


def _as_whom(item: ProbeQuery) -> Any:
    return answered(hits(f"doc-{item.vars['tenant']}"))


def test_a_check_asks_each_canary_with_its_own_values_before_those_of_the_check(world: World) -> None:
    assert world.run().verdict == "healthy"
    world.probe.otherwise = lambda item: answered(hits(f"doc-{item.vars['tenant']}", "doc-acme"))
    world.run()
    site = Site(world=world)
    assert "Degraded since run 2" in site.page(f"/checks/{CHECK}/canaries/other").text
    assert "Healthy" in site.page(f"/checks/{CHECK}/canaries/own").text
    assert "tenant: acme" in site.page(f"/checks/{CHECK}/canaries/own").text
    assert "tenant: globex, for canaries that state none" in site.page(f"/checks/{CHECK}").text


def test_numbers_and_causes_are_sliced_by_variables(world: World) -> None:
    many = [
        canary(f"{tenant}-{number}", expected_chunks=[f"doc-{tenant}"], vars={"tenant": tenant}, tags=["all"])
        for tenant in ("acme", "globex")
        for number in range(6)
    ]
    world.apply({**page(many), "retrievers": [BY_TENANT]})
    world.run()
    world.probe.otherwise = lambda item: answered(hits(f"doc-{item.vars['tenant']}".replace("globex", "acme")))
    run = world.run()
    shown = world.shown(run)
    assert shown["tags"]["tenant:globex"]["coverage"] == 0
    assert (shown["tags"]["tenant:acme"]["coverage"], shown["tags"]["all"]["coverage"]) == (1, 0.5)
    site = Site(world=world)
    assert "tenant:globex" in site.page(f"/checks/{CHECK}").text
    assert "globex-1" in (found := site.page(f"/runs/{run.id}?tag=tenant:globex").text)
    assert "acme-1" not in found


def test_one_query_is_tried_as_somebody(tmp_path: Path) -> None:
    with peer(FOUND) as server:
        tenants = {
            **BY_TENANT,
            "url": server.url,
            "response": {"hits": "results", "id": "id"},
            "scorer": {"kind": "judged"},
        }
        (file := tmp_path / "canaries.yaml").write_text(json.dumps({"retrievers": [tenants]}), "utf-8")
        done = CliRunner().invoke(cli, ["try", str(file), "plan", "--var", "tenant=globex"])
        wrong = CliRunner().invoke(cli, ["try", str(file), "plan", "--var", "tenant"])
    assert done.exit_code == 0, done.output
    assert json.loads(server.seen[0].body) == {"q": "plan", "tenant": "globex"}
    assert wrong.exit_code == 2
    assert "--var: 'tenant' is not NAME=VALUE" in wrong.output


def test_another_value_asks_another_question(world: World) -> None:
    world.run()
    other = [
        canary("own", query="plan", expected_chunks=["doc-acme"], vars={"tenant": "initech"}),
        canary("other", query="plan", expected_chunks=["doc-globex"], forbidden_chunks=["doc-acme"]),
    ]
    world.apply({**page(other, vars={"tenant": "globex"}), "retrievers": [BY_TENANT]})
    shown = Site(world=world).page(f"/checks/{CHECK}/canaries/own").text
    assert "The query was changed after the last run" in shown


def test_variables_survive_the_way_into_a_file_and_back() -> None:
    content = {
        **page([canary("ant", vars={"tenant": "globex"})], vars={"tenant": "acme"}),
        "retrievers": [BY_TENANT],
    }
    read = documents(content)
    again = read_canary_files([("canaries.yaml", write_canary_file(read))], {"HOOK_OPS_SECRET": SECRET}, None)
    (suite,), (check,) = again.suites, again.checks
    assert suite.canaries is not None
    assert (suite.canaries[0].vars, check.vars) == ({"tenant": "globex"}, {"tenant": "acme"})


def test_a_form_keeps_what_a_canary_is_asked_with(world: World) -> None:
    site = Site(world=world)
    shown = site.page("/suites/suite/canaries/own")
    assert "tenant: acme" in shown.text


SAID = [{"role": "user", "content": "We are in Iceland."}, {"role": "assistant", "content": 'A "cold"\nplace.'}]
WITHIN: Mapping[str, Any] = {**RETRIEVER, "request": {"json": {"q": "{{ query }}", "messages": "{{ history }}"}}}


def test_a_retriever_gets_the_conversation_before_a_query_as_json() -> None:
    turns = tuple(Turn(**turn) for turn in SAID)
    with peer(FOUND) as server:
        described = retriever_at(server.url, json={"q": "{{ query }}", "messages": "{{ history }}"})
        asks = [ProbeQuery(position=0, query="and shipping?", history=turns), ProbeQuery(position=1, query="alone")]
        found = [one for batch in HTTP(ProbeContext(retriever=described, k=5, run_id="r"), asks) for _, one in batch]
    assert {one.outcome for one in found} == {Outcome.OK}
    said = {body["q"]: body["messages"] for one in server.seen for body in [json.loads(one.body)]}
    assert said == {"and shipping?": SAID, "alone": []}


def test_a_conversation_that_nobody_would_get_is_refused_at_its_line_and_before_asking() -> None:
    content = {**page([canary("ant", history=SAID)]), "retrievers": [RETRIEVER]}
    with pytest.raises(InvalidInputError) as raised:
        read_canary_files([("canaries.yaml", json.dumps(content, indent=1))], {}, None)
    [problem] = raised.value.problems
    assert (problem.path, problem.message) == (
        "canaries[0].history",
        "is not sent: write {{ history }} in request: json of retriever 'search'",
    )
    assert problem.line
    described = retriever_at("http://127.0.0.1:9/", json={"q": "{{ query }}"})
    asks = [ProbeQuery(position=0, query="a", key="ant", history=(Turn(role="user", content="b"),))]
    with pytest.raises(InvalidInputError, match="of canary 'ant' is not sent"):
        list(HTTP(ProbeContext(retriever=described, k=5, run_id="r"), asks))


def test_an_address_or_a_statement_holds_no_conversation() -> None:
    with pytest.raises(InvalidInputError, match=r"unknown placeholder '\{\{ history \}\}'"):
        parse_document(RetrieverDocument, {**WITHIN, "url": "http://127.0.0.1:9/{{ history }}"})


def test_a_conversation_is_part_of_the_question_from_file_to_page(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    heard: list[Any] = []

    def listen(item: ProbeQuery) -> Any:
        heard.append([turn.content for turn in item.history])
        return answered(hits("doc-own"))

    world.probe.otherwise = listen
    content = {**page([canary("own", expected_chunks=["doc-own"], history=SAID)]), "retrievers": [WITHIN]}
    world.apply(content)
    assert world.run().verdict == "healthy"
    assert heard == [[turn["content"] for turn in SAID]]
    site = Site(world=world)
    assert "Asked after user: We are in Iceland." in site.page(f"/checks/{CHECK}/canaries/own").text
    assert "We are in Iceland." in site.page("/suites/suite/canaries/own?draft=yes").text
    again = read_canary_files(
        [("canaries.yaml", write_canary_file(documents(content)))], {"HOOK_OPS_SECRET": SECRET}, None
    )
    assert again.suites[0].canaries is not None
    assert [turn.data() for turn in again.suites[0].canaries[0].history] == SAID
    other = [canary("own", expected_chunks=["doc-own"], history=SAID[:1])]
    world.apply({**page(other), "retrievers": [WITHIN]})
    assert "The query was changed after the last run" in site.page(f"/checks/{CHECK}/canaries/own").text


IN_HEADERS: Mapping[str, Any] = {
    **RETRIEVER,
    "options": {"tenant": "acme"},
    "request": {
        "json": {"q": "{{ query }}"},
        "headers": {"X-Tenant": "{{ tenant }}", "Authorization": "Bearer key-7f3c41d9-{{ tenant }}"},
    },
}


def test_each_query_sends_its_own_headers() -> None:
    with peer(FOUND) as server:
        described = retriever_at(
            server.url,
            options={"tenant": "acme", "lang": "en"},
            headers=IN_HEADERS["request"]["headers"] | {"X-Lang": "{{ lang }}"},
        )
        answers_of(described, "a", "b", variables=[{}, {"tenant": "globex"}])
    sent = {json.loads(one.body)["query"]: one.headers for one in server.seen}
    assert [(sent[name]["x-tenant"], sent[name]["authorization"]) for name in "ab"] == [
        ("acme", "Bearer key-7f3c41d9-acme"),
        ("globex", "Bearer key-7f3c41d9-globex"),
    ]
    assert {headers["x-lang"] for headers in sent.values()} == {"en"}


@pytest.mark.parametrize("value", ["a\r\nX-Admin: yes", "北京"])
def test_a_value_that_no_header_can_carry_is_refused_before_anybody_is_asked(value: str) -> None:
    with peer(FOUND) as server:
        described = retriever_at(server.url, options={"tenant": "acme"}, headers={"X-Tenant": "{{ tenant }}"})
        with pytest.raises(InvalidInputError, match="'tenant' of canary '' cannot be sent in the header X-Tenant"):
            answers_of(described, "a", "b", variables=[{}, {"tenant": value}])
        assert server.seen == []


def test_the_fixed_part_of_a_header_stays_a_secret() -> None:
    echo = reply(json.dumps({"error": "no such key: key-7f3c41d9-globex"}).encode(), 403)
    with peer(echo) as server:
        described = retriever_at(server.url, options={"tenant": "acme"}, headers=dict(IN_HEADERS["request"]["headers"]))
        [found] = answers_of(described, "a", variables=[{"tenant": "globex"}], shows=True)
    assert "7f3c41d9" not in str(found)


def test_a_session_of_mcp_sends_its_headers_once() -> None:
    policy = retriever_policy()
    client = EndpointClient(policy=policy, keyring=Keyring(policy, "coalmine/1.0"), user_agent="coalmine/1.0")
    described = retriever_at(
        "http://127.0.0.1:9/mcp",
        dialect=Dialect.MCP,
        tool="search",
        options={"tenant": "acme"},
        headers={"X-Tenant": "{{ tenant }}"},
        json={"query": "{{ query }}"},
    )
    with pytest.raises(InvalidInputError, match="stands in the header X-Tenant, which a session of MCP sends once"):
        answers_of(described, "a", variables=[{"tenant": "globex"}], probe=McpProbe(client))


def test_an_option_that_only_a_hidden_header_uses_is_stored_and_read_again(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.probe.otherwise = _as_whom
    asked = [canary("other", query="plan", expected_chunks=["doc-globex"])]
    world.apply({**page(asked, vars={"tenant": "globex"}), "retrievers": [IN_HEADERS]})
    assert world.run().verdict == "healthy"
    assert "7f3c41d9" not in Site(world=world).page("/retrievers/search").text
    with pytest.raises(InvalidInputError, match=r"unknown placeholder '\{\{ tenat \}\}'"):
        parse_document(
            RetrieverDocument, {**IN_HEADERS, "request": {**IN_HEADERS["request"], "headers": {"X": "{{ tenat }}"}}}
        )


def _read(content: Any) -> Any:
    return read_canary_files([("canaries.yaml", json.dumps(content, indent=1))], {"HOOK_OPS_SECRET": SECRET}, None)


def _with_matrix(matrix: Any, **check: Any) -> dict[str, Any]:
    several = {**BY_TENANT, "options": {"tenant": "acme", "lang": "en"}, "url": "http://x.test/{{ lang }}"}
    return {**page([canary("ant")], matrix=matrix, **check), "retrievers": [several]}


def test_a_matrix_makes_a_check_of_each_combination_of_values() -> None:
    made = _read(_with_matrix({"tenant": ["Acme Corp.", "globex"], "lang": ["en", "de"]})).checks
    assert [(check.slug, check.vars) for check in made] == [
        (f"{CHECK}-acme-corp-en", {"tenant": "Acme Corp.", "lang": "en"}),
        (f"{CHECK}-acme-corp-de", {"tenant": "Acme Corp.", "lang": "de"}),
        (f"{CHECK}-globex-en", {"tenant": "globex", "lang": "en"}),
        (f"{CHECK}-globex-de", {"tenant": "globex", "lang": "de"}),
    ]
    [german] = _read(_with_matrix({"tenant": ["globex"]}, vars={"lang": "de"})).checks
    assert (german.slug, german.vars) == (f"{CHECK}-globex", {"lang": "de", "tenant": "globex"})


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        ("acme", "must be a mapping of variables to lists of values"),
        ({}, "must be a mapping of variables to lists of values"),
        ({"tenant": "acme"}, "needs a list of texts for 'tenant'"),
        ({"tenant": [1]}, "needs a list of texts for 'tenant'"),
        ({"lang": ["en"]}, "gives values to 'lang', and so does vars"),
        ({"tenant": ["a b", "a-b"]}, f"makes two checks with the name '{CHECK}-a-b'"),
        ({"tenant": [str(number) for number in range(51)]}, "makes 51 checks; at most 50 are possible"),
        (
            {f"of{one}": [str(number) for number in range(100)] for one in range(9)},
            "makes 1,000,000,000,000,000,000 checks",
        ),
    ],
)
def test_a_matrix_that_makes_no_checks_is_refused_with_its_line(matrix: Any, said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        _read(_with_matrix(matrix, vars={"lang": "de"}))
    [problem] = raised.value.problems
    assert problem.path == "checks[0].matrix"
    assert problem.message.startswith(said)
    assert problem.line


def test_what_is_wrong_with_a_check_is_said_once_where_the_file_says_it() -> None:
    nowhere = _with_matrix({"tenant": ["acme", "globex"]}, retriever="serch")
    with pytest.raises(InvalidInputError) as raised:
        _read(nowhere)
    assert [problem.path for problem in raised.value.problems] == ["checks[0].retriever"]
    content = _with_matrix({"tenat": ["acme", "globex"]}, schedule={"every": "never"})
    content["checks"].append({**content["checks"][0], "slug": "other", "schedule": {"every": "often"}})
    with pytest.raises(InvalidInputError) as raised:
        _read(content)
    told = [(problem.path, problem.line) for problem in raised.value.problems]
    assert len(told) == len(set(told))
    assert {path for path, _ in told} == {"checks[0].schedule.every", "checks[1].schedule.every"}


def test_the_checks_of_a_matrix_have_a_history_each(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.probe.otherwise = _as_whom
    asked = [canary("plan", expected_chunks=["doc-acme"])]
    content = {**page(asked, matrix={"tenant": ["acme", "globex"]}), "retrievers": [BY_TENANT]}
    applying.apply(world.store, world.vault, _read(content), managed_by=FILE, now=world.clock.advance(1))
    assert [world.run(f"{CHECK}-{tenant}").verdict for tenant in ("acme", "globex")] == ["healthy", "degraded"]
