"""Credentials of each identity in documents: said per value, kept apart, shown to nobody, and asked for by canaries."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from app.base.addresses import Bearer, IdentityAuth
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.catalog.documents.canary_export import exported_secrets, write_canary_file
from app.catalog.documents.canary_files import Documents, read_canary_files
from app.catalog.documents.secrets import content_hash, destinations, join_secrets, secret_names, split_secrets
from app.catalog.service.references import load_definition
from app.cli import app as cli
from app.definitions.service import definitions
from app.retrievers.documents.retrievers import RetrieverDocument
from tests.catalog.test_secrets import CERTIFICATE, OAUTH, PRIVATE_KEY
from tests.support.api_service import Api, api
from tests.support.http_servers import peer, reply
from tests.support.pages_service import csrf
from tests.support.world import canary, page

OF: Mapping[str, Mapping[str, Any]] = {
    "u-17": {"kind": "bearer", "token": "hush-17"},
    "anna@acme.test": {
        **OAUTH,
        "client_secret": "hush-anna",
        "tls": {"certificate": CERTIFICATE, "key": PRIVATE_KEY.format("hush-tls")},
    },
    "ben": {"kind": "basic", "user": "shown-ben", "password": "hush-ben"},
    "x": {"kind": "api_key", "header": "X-Key", "key": "hush-x"},
}
NAMES = {
    "auth.of.u-17.token": "hush-17",
    "auth.of.anna@acme.test.client_secret": "hush-anna",
    "auth.of.anna@acme.test.tls.key": PRIVATE_KEY.format("hush-tls"),
    "auth.of.ben.password": "hush-ben",
    "auth.of.x.key": "hush-x",
}


def whole(**changes: Any) -> dict[str, Any]:
    return {
        "slug": "search",
        "url": "http://127.0.0.1:1/search",
        "options": {"user": "u-17"},
        "auth": {"by": "user", "of": {**OF}},
        "request": {"json": {"q": "{{ query }}"}},
        "response": {"hits": "hits", "id": "id", "text": "text"},
        **changes,
    }


def read(written: Mapping[str, Any]) -> RetrieverDocument:
    return parse_document(RetrieverDocument, written)


def problems(content: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> dict[str, tuple[str, int]]:
    """Read it as a file, which must be refused; gives message and line by path."""
    with pytest.raises(InvalidInputError) as raised:
        read_canary_files([("a.yaml", yaml.safe_dump(dict(content), sort_keys=False))], environment or {}, None)
    return {str(one.path): (one.message, one.line or 0) for one in raised.value.problems}


# --- said and kept apart -------------------------------------------------------------------------------------


def test_secrets_of_identities_leave_the_public_json_and_come_back() -> None:
    document = read(whole())
    public, secrets = split_secrets(document)
    assert "hush" not in json.dumps(public)
    assert secrets == NAMES
    assert set(secret_names(public)) == set(NAMES)
    assert read(join_secrets(public, secrets)) == document
    assert "hush" not in repr(document) + repr(document.to_domain())


def test_each_secret_goes_where_its_identity_is_asked() -> None:
    data = read(whole()).data()
    search, login = "http://127.0.0.1:1", "https://login.test"
    assert {name: destinations(data, name) for name in NAMES} == {
        "auth.of.u-17.token": {search},
        "auth.of.anna@acme.test.client_secret": {search, login},
        "auth.of.anna@acme.test.tls.key": {login},
        "auth.of.ben.password": {search},
        "auth.of.x.key": {search},
    }


def test_no_two_secrets_have_one_name() -> None:
    """`auth.of.x.tls.key` is the private key of x, and would be the API key of `x.tls` too."""
    with pytest.raises(InvalidInputError, match=r"must not end in \.tls"):
        read(whole(auth={"by": "user", "of": {**OF, "x.tls": OF["x"]}}))


def test_an_export_holds_variables_and_reads_back() -> None:
    documents = Documents(retrievers=(read(whole(options={"user": "ben"})),))
    text = write_canary_file(documents)
    assert "hush" not in text
    assert "${RETRIEVER_SEARCH_AUTH_OF_U_17_TOKEN}" in text
    variables = exported_secrets(documents)
    assert sorted(variables.values()) == sorted(NAMES.values())
    assert read_canary_files([("a.yaml", text)], variables, None).retrievers == documents.retrievers


def test_the_hash_knows_who_has_credentials_and_not_which() -> None:
    other = yaml.safe_load(yaml.safe_dump(whole()).replace("hush", "quiet"))
    assert content_hash(read(whole())) == content_hash(read(other))
    fewer = {value: one for value, one in OF.items() if value != "x"}
    assert content_hash(read(whole())) != content_hash(read(whole(auth={"by": "user", "of": fewer})))


def test_a_preset_styles_the_credentials_of_each() -> None:
    document = read(
        {
            "slug": "docs",
            "preset": "elasticsearch",
            "url": "https://es.test",
            "options": {"index": "docs", "user": "a"},
            "auth": {"by": "user", "of": {"a": {"key": "k"}, "b": {"kind": "bearer", "token": "t"}}},
        }
    )
    auth = document.to_domain().auth
    assert isinstance(auth, IdentityAuth)
    assert auth.of["b"] == Bearer(token="t")
    assert read({**document.data()}) == document


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"options": {"usr": "u-17"}}, "auth.by", "'user' is no option of the retriever; did you mean 'usr'?"),
        ({"auth": {"by": "user"}}, "auth.of", "is missing"),
        ({"auth": {"by": "user", "of": {}}}, "auth.of", "at least 1"),
        ({"auth": {"by": "user", "of": {"a": {"token": "hush"}}}}, "auth.of.a.kind", "is missing; say one of bearer"),
        ({"auth": {"by": "user", "of": {"a": "hush"}}}, "auth.of.a", "must be a mapping with a kind"),
        (
            {"auth": {"by": "user", "of": OF}, "request": {"json": {"q": "{{ query }}"}, "headers": {"x-key": "1"}}},
            "auth",
            "sets the header X-Key",
        ),
        (
            {"embedding": {"url": "http://e.test", "model": "m", "auth": {"by": "user", "of": OF}}},
            "embedding.auth.by",
            "belongs to the auth of the retriever itself",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_quotes_no_secret(changes: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        read(whole(**changes))
    said = {one.path: one.message for one in raised.value.problems}
    assert message in said[path]
    assert "hush" not in str(said)


def test_a_database_takes_users_and_passwords() -> None:
    sql = {
        "slug": "db",
        "preset": "pgvector",
        "url": "postgresql://db.test/docs",
        "options": {"table": "docs", "user": "a"},
        "request": {"sql": "SELECT id FROM {{ table }} WHERE body = :query LIMIT :k"},
    }
    basic = {"kind": "basic", "user": "a", "password": "p"}
    document = read({**sql, "auth": {"by": "user", "of": {"a": basic}}})
    assert list(document.unknown_vars({"user": "a"})) == []
    assert [name for name, _ in document.unknown_vars({"user": "b"})] == ["user"]
    with pytest.raises(InvalidInputError) as raised:
        read({**sql, "auth": {"by": "user", "of": {"a": basic, "b": {"kind": "bearer", "token": "t"}}}})
    assert [one.path for one in raised.value.problems] == ["auth.of.b.kind"]


# --- asked for by canaries and checks ------------------------------------------------------------------------


def content(canaries: list[dict[str, Any]], user: str = "nobody", **check: Any) -> dict[str, Any]:
    retriever = whole(options={"user": user}, auth={"by": "user", "of": dict.fromkeys(("u-17", "u-18"), OF["u-17"])})
    return {
        **page(canaries, **check),
        "retrievers": [retriever],
        "hooks": [],
        "checks": [{**page(canaries, **check)["checks"][0], "hooks": []}],
    }


def test_a_canary_whose_value_has_no_credentials_is_refused_at_its_line() -> None:
    found = problems(content([canary("a", vars={"user": "u-17"}), canary("b", vars={"user": "u-19"}), canary("c")]))
    message, line = found["canaries[1].vars.user"]
    assert message == "is 'u-19', for which retriever 'search' has no credentials under auth: of; it has u-17, u-18"
    assert line == 14
    message, line = found["canaries[2].vars"]
    assert message.startswith(
        "do not set user, which then is 'nobody', for which retriever 'search' has no credentials"
    )
    assert line == 15
    assert len(found) == 2


def test_a_check_whose_value_has_no_credentials_is_refused_and_one_that_has_asks_for_all() -> None:
    found = problems(content([canary("a")], vars={"user": "nobody"}))
    assert found["checks[0].vars.user"][0].startswith("is 'nobody', for which retriever 'search' has no credentials")
    assert len(found) == 1
    asked = content([canary("a"), canary("b", vars={"user": "u-17"})], vars={"user": "u-18"})
    read_canary_files([("a.yaml", yaml.safe_dump(asked))], {}, None)
    read_canary_files([("a.yaml", yaml.safe_dump(content([canary("a")], user="u-18")))], {}, None)


PLANT = {
    "every": "15m",
    "put": {"url": "/documents", "json": {"id": "{{ id }}", "text": "{{ text }}"}},
    "remove": {"url": "/documents/{{ id }}"},
}


def test_a_plant_is_written_and_asked_for_as_somebody_who_has_credentials() -> None:
    asked = [canary("a", vars={"user": "u-17"})]
    found = problems(content(asked, plant=PLANT))
    assert found["checks[0].plant"][0].startswith("is asked as the check says, whose user is 'nobody'")
    read_canary_files([("a.yaml", yaml.safe_dump(content(asked, plant=PLANT, vars={"user": "u-18"})))], {}, None)
    writer = {**whole(auth={"by": "user", "of": {"u-18": OF["u-17"]}}), "slug": "writer"}
    both = content(asked, plant={**PLANT, "credentials": "writer"}, vars={"user": "u-17"})
    both["retrievers"] = [*both["retrievers"], writer]
    assert problems(both)["checks[0].plant.credentials"][0].startswith("is asked as the check says, whose user is")


def test_a_matrix_asks_as_each_who_has_credentials() -> None:
    asked = content([canary("a")])
    asked["checks"][0]["matrix"] = {"user": ["u-17", "u-18"]}
    assert len(read_canary_files([("a.yaml", yaml.safe_dump(asked))], {}, None).checks) == 2
    asked["checks"][0]["matrix"] = {"user": ["u-17", "u-19"]}
    [(message, _)] = problems(asked).values()
    assert "'u-19'" in message


def test_a_file_has_secrets_from_the_environment_and_from_files(tmp_path: Path) -> None:
    def answer(seen: Any) -> Any:
        own = {"Bearer hush-17": "doc-a", "Bearer hush-18": "doc-b"}[seen.headers["authorization"]]
        return reply(json.dumps({"hits": [{"id": own}]}).encode())

    (tmp_path / "token").write_text("hush-18\n", "utf-8")
    with peer(answer) as server:
        text = f"""
suite: docs
canaries:
  - {{key: a, query: a, expected_chunks: [doc-a], forbidden_chunks: [{{id: doc-b}}], vars: {{user: "17"}}}}
  - {{key: b, query: b, expected_chunks: [doc-b], forbidden_chunks: [{{id: doc-a}}], vars: {{user: u-18}}}}
retrievers:
  - slug: search
    url: {server.url}
    options: {{user: nobody}}
    auth:
      by: user
      of:
        "17": {{kind: bearer, token: "${{TOKEN_17}}"}}
        u-18: {{kind: bearer, token_file: {tmp_path / "token"}}}
    request: {{json: {{q: "{{{{ query }}}}"}}}}
    response: {{hits: hits, id: id}}
"""
        (file := tmp_path / "canaries.yaml").write_text(text, "utf-8")
        done = CliRunner().invoke(cli, ["check", str(file), "--format", "json"], env={"TOKEN_17": "hush-17"})
        tried = CliRunner().invoke(cli, ["try", str(file), "a", "--var", "user=u-18"], env={"TOKEN_17": "hush-17"})
        unset = CliRunner().invoke(cli, ["check", str(file)])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["vars"] == {"a": {"user": "17"}, "b": {"user": "u-18"}}
    assert (tried.exit_code, "doc-b" in tried.output) == (0, True), tried.output
    assert "hush" not in done.output + tried.output
    assert unset.exit_code == 2
    assert "TOKEN_17" in unset.output


# --- shown to nobody -----------------------------------------------------------------------------------------


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as opened:
        yield opened


def stored(service: Api) -> dict[str, Any]:
    return definitions.stored_secrets(service.service.store, service.service.vault, "retriever", "search")


def test_the_api_shows_no_secret_of_an_identity_and_null_keeps_it(
    service: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service.put("/v1/retrievers/search", whole())
    shown = service.get("/v1/retrievers/search")
    assert shown["secrets_set"] == sorted(NAMES)
    assert shown["auth"]["of"]["u-17"] == {"kind": "bearer", "token": None}
    service.put("/v1/retrievers/search", {**shown, "timeout": 2})
    assert stored(service) == NAMES
    fewer = {**shown, "auth": {"by": "user", "of": {"u-17": {"kind": "bearer", "token": None}}}}
    service.put("/v1/retrievers/search", fewer)
    assert stored(service) == {"auth.of.u-17.token": "hush-17"}
    renamed = {**shown, "auth": {"by": "user", "of": {"u-18": {"kind": "bearer", "token": None}}}}
    assert service.client.put("/v1/retrievers/search", json=renamed).status_code == 422
    moved = service.client.put("/v1/retrievers/search", json={**fewer, "url": "http://127.0.0.1:2/"})
    assert [one["path"] for one in moved.json()["errors"]] == ["auth.of.u-17.token"]
    paths = ("/v1/retrievers", "/v1/retrievers/search", "/v1/export", "/retrievers/search", "/retrievers/search/map")
    texts = [service.client.get(path).text for path in paths]
    texts += [caplog.text, *(repr(file.read_bytes()) for file in tmp_path.glob("coalmine.db*"))]
    assert not [text for text in texts if "hush" in text]


def test_a_check_of_the_api_asks_as_those_who_have_credentials(service: Api) -> None:
    service.put("/v1/retrievers/search", whole(options={"user": "nobody"}))
    service.put("/v1/suites/suite", {})
    service.put("/v1/suites/suite/canaries/a", {"query": "a", "expected_chunks": ["a"], "vars": {"user": "ben"}})
    check = {"suite": "suite", "retriever": "search", "schedule": {"every": "5m"}}
    service.put("/v1/checks/watch", check)
    answer = service.client.put("/v1/checks/watch", json={**check, "vars": {"user": "carl"}})
    assert [one["path"] for one in answer.json()["errors"]] == ["vars.user"]
    service.put("/v1/suites/suite/canaries/b", {"query": "b", "expected_chunks": ["b"]})
    answer = service.client.put("/v1/checks/watch", json={**check, "k": 4})
    [error] = answer.json()["errors"]
    assert error["path"] == "suite"
    assert error["message"].startswith("the user of canary 'b' is 'nobody', for which retriever 'search' has no")
    service.put("/v1/checks/watch", {**check, "k": 4, "vars": {"user": "ben"}})


def test_the_form_keeps_the_credentials_of_identities(service: Api) -> None:
    service.put("/v1/retrievers/search", whole())
    page_of = service.client.get("/retrievers/search/map", headers={"accept": "text/html"}).text
    assert "by user, as stored: u-17, anna@acme.test, ben, x" in page_of
    fields = {"do": "save", "auth.kind": "by_identity", "timeout": "3s", "options.user": "u-17"}
    form = {
        "csrf": csrf(service.client, "/retrievers/search/map"),
        "preset": "generic",
        "revision": str(definitions_revision(service)),
        "url": "http://127.0.0.1:1/search",
        "request.json": '{"q": "{{ query }}"}',
        "response.hits": "hits",
        "response.id": "id",
        "response.text": "text",
        **fields,
    }
    saved = service.client.post("/retrievers/search/map", data=form, headers={"accept": "text/html"})
    assert "Saved." in saved.text
    assert stored(service) == NAMES
    shown = service.get("/v1/retrievers/search")
    assert (shown["timeout"], shown["auth"]["by"]) == (3.0, "user")
    other = {**form, "auth.kind": "bearer", "auth.bearer.token": "hush-one"}
    other["revision"] = str(definitions_revision(service))
    service.client.post("/retrievers/search/map", data=other, headers={"accept": "text/html"})
    assert stored(service) == NAMES  # refused: nothing uses the variable any more
    assert "u-17" in service.client.get("/retrievers/search", headers={"accept": "text/html"}).text


def definitions_revision(service: Api) -> int:
    return load_definition(service.service.store, "retriever", "search").revision


def test_the_page_of_a_test_request_asks_as_whom(service: Api) -> None:
    service.put("/v1/retrievers/search", whole())
    shown = service.client.get("/retrievers/search/try", headers={"accept": "text/html"}).text
    assert '<select name="identity"><option selected>u-17</option><option>anna@acme.test</option>' in shown
