"""Secrets of retrievers: kept apart, shown to nobody, sent only where they were stored for, and encrypted anew."""

import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import sqlalchemy as sa
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from app.base.db.engine import Store
from app.base.db.files import lock_for_serving, lock_for_work
from app.base.db.keys import Vault
from app.base.documents.fields import FILE_TWINS, parse_document
from app.base.errors import ConfigurationError, InvalidInputError
from app.catalog.documents.canary_export import canary_file_schema, exported_secrets, write_canary_file
from app.catalog.documents.canary_files import Documents, read_canary_files
from app.catalog.documents.secrets import (
    content_hash,
    join_secrets,
    public_json,
    secret_names,
    split_secrets,
    with_placeholders,
)
from app.catalog.service.vault import KEY_FILE, open_vault, rotate, rotate_key_file
from app.catalog.tables import definition_versions
from app.cli import app
from app.definitions.service import definitions
from app.retrievers.documents.retrievers import RetrieverDocument
from tests.conftest import Databases
from tests.support.api_service import Api, api
from tests.support.fakes import START

pytestmark = pytest.mark.databases

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PRIVATE_KEY = "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n"
OAUTH = {"kind": "oauth2", "token_url": "https://login.test/token", "client_id": "shown-client"}
AUTHS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "bearer": ({"kind": "bearer"}, ("token",)),
    "api_key": ({"kind": "api_key", "header": "X-Api-Key"}, ("key",)),
    "basic": ({"kind": "basic", "user": "shown-user"}, ("password",)),
    "oauth2": (OAUTH, ("client_secret",)),
    "sigv4": (
        {"kind": "sigv4", "region": "eu-1", "service": "es", "access_key": "shown-access"},
        ("secret_key", "session_token"),
    ),
}


def endpoint(name: str, kind: str) -> dict[str, Any]:
    """Write every secret an endpoint can have, each a text that names its place."""
    shown, secrets = AUTHS[kind]
    if kind == "oauth2":
        shown = {**shown, "tls": {"certificate": CERTIFICATE, "key": PRIVATE_KEY.format(f"hush-{name}-token-tls")}}
    return {
        "auth": {**shown, **{key: f"hush-{name}-{key}" for key in secrets}},
        "tls": {"certificate": CERTIFICATE, "key": PRIVATE_KEY.format(f"hush-{name}-tls")},
    }


def whole(kind: str = "bearer", **changes: Any) -> dict[str, Any]:
    """Write a retriever with every secret there can be."""
    return {
        "slug": "search",
        "url": "http://127.0.0.1:1/search",
        "request": {"json": {"q": "{{ query }}"}, "headers": {"X-Team": "hush-header"}},
        "response": {"hits": "hits", "id": "id", "text": "text"},
        "embedding": {
            "url": "http://embedder.test/v1",
            "model": "small",
            "headers": {"X-Org": "hush-embedding-header"},
            **endpoint("embedding", kind),
        },
        "scorer": {
            "kind": "rerank",
            "url": "http://reranker.test/rerank",
            "headers": {"X.Y": "hush-scorer-header"},
            **endpoint("scorer", kind),
        },
        **endpoint("own", kind),
    } | changes


def read(written: Mapping[str, Any]) -> RetrieverDocument:
    return parse_document(RetrieverDocument, written)


def over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Lay a change over a document, key by key."""
    return below | {key: over(below[key], value) if isinstance(value, dict) else value for key, value in above.items()}


def names_of(kind: str) -> set[str]:
    inner = {"tls.key", *(f"auth.{key}" for key in AUTHS[kind][1]), *(["auth.tls.key"] if kind == "oauth2" else [])}
    headers = {"request.headers.X-Team", "embedding.headers.X-Org", "scorer.headers.X.Y"}
    return headers | inner | {f"{name}.{one}" for name in ("embedding", "scorer") for one in inner}


# --- kept apart ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", AUTHS)
def test_every_secret_leaves_the_public_json_and_comes_back(kind: str) -> None:
    document = read(whole(kind))
    public, secrets = split_secrets(document)
    shown = public_json(public, secrets_set=True)
    assert "hush" not in str(public)
    assert set(secrets) == names_of(kind) == set(shown["secrets_set"])
    assert all("hush" in value for value in secrets.values())
    assert read(join_secrets(public, secrets)) == document
    assert read(join_secrets(shown, secrets)) == document
    assert read(with_placeholders(public, secrets_set=True)).auth is not None


@pytest.mark.parametrize("kind", AUTHS)
def test_no_secret_is_in_an_export_which_reads_back(kind: str) -> None:
    documents = Documents(retrievers=(read(whole(kind)),))
    text = write_canary_file(documents)
    assert "hush" not in text
    variables = exported_secrets(documents)
    assert len(variables) == len(names_of(kind))
    assert read_canary_files([("a.yaml", text)], variables, None).retrievers == documents.retrievers


@pytest.mark.parametrize("kind", AUTHS)
def test_documents_and_their_values_do_not_show_secrets_when_printed(kind: str) -> None:
    document = read(whole(kind))
    assert "hush" not in repr(document) + str(document) + repr(document.to_domain())


def test_what_is_no_secret_is_shown() -> None:
    shown = "".join(str(split_secrets(read(whole(kind)))[0]) for kind in AUTHS)
    for text in ("shown-user", "shown-client", "shown-access", "X-Api-Key", "MIIB"):
        assert text in shown


def test_an_optional_secret_that_is_not_set_leaves_no_place_for_one() -> None:
    written = whole("sigv4")
    del written["auth"]["session_token"]
    public, secrets = split_secrets(read(written | {"tls": {"authority": CERTIFICATE}}))
    assert {"auth.session_token", "tls.key"} & {*secret_names(public), *secrets} == set()
    assert "embedding.auth.session_token" in secret_names(public)


def test_a_header_that_says_what_the_preset_says_is_no_secret() -> None:
    pinecone = {
        "slug": "docs",
        "preset": "pinecone",
        "url": "https://index.test",
        "embedding": {"url": "http://e.test", "model": "m"},
        "auth": {"key": "hush"},
    }
    public, secrets = split_secrets(read(pinecone))
    assert set(secrets) == {"auth.key"}
    assert read(join_secrets(public, secrets)) == read(pinecone)
    [(name, _)] = public["request"]["headers"].items()
    own = split_secrets(read({**pinecone, "request": {"headers": {name: "hush"}}}))[1]
    assert set(own) == {"auth.key", f"request.headers.{name}"}


@pytest.mark.parametrize("kind", AUTHS)
def test_the_hash_of_a_retriever_depends_on_which_secrets_there_are_and_not_on_their_values(kind: str) -> None:
    one = whole(kind)
    other = yaml.safe_load(yaml.safe_dump(one).replace("hush", "quiet"))
    assert read(one) != read(other)
    assert content_hash(read(one)) == content_hash(read(other))
    assert content_hash(read(one)) != content_hash(read({**one, "auth": None}))


raw = st.recursive(
    st.none() | st.text(max_size=4) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["secret", "request", "headers", "auth", "tls", "embedding", "scorer", "key", "token"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["secret", "request", "auth", "tls", "embedding", "scorer"]), raw))
def test_whatever_is_sent_open_secrets_are_found_and_filled(body: dict[str, Any]) -> None:
    names = secret_names(body)
    assert secret_names(join_secrets(body, dict.fromkeys(names, "x"))) == []


# --- shown to nobody -----------------------------------------------------------------------------------------


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    with api(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("kind", AUTHS)
def test_the_api_shows_no_secret_and_null_keeps_it(
    kind: str, service: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service.put("/v1/retrievers/search", whole(kind))
    shown = service.get("/v1/retrievers/search")
    assert set(shown["secrets_set"]) == names_of(kind)
    service.put("/v1/retrievers/search", {**shown, "timeout": 2})
    stored = definitions.stored_secrets(service.service.store, service.service.vault, "retriever", "search")
    assert stored == split_secrets(read(whole(kind)))[1]
    texts = [service.client.get(path).text for path in ("/v1/retrievers", "/v1/retrievers/search", "/v1/export")]
    texts += [caplog.text, *(repr(file.read_bytes()) for file in tmp_path.glob("coalmine.db*"))]
    assert not [text for text in texts if "hush" in text]


def test_no_problem_quotes_a_secret(service: Api, caplog: pytest.LogCaptureFixture) -> None:
    long, lines = "hush" * 5_000, "hush\nhush"
    wrong: list[dict[str, Any]] = [
        {"auth": "hush"},
        {"auth": ["hush"]},
        *({"auth": {"kind": "bearer", "token": token}} for token in (long, lines, ["hush"], {"hush": 1}, " ")),
        {"auth": {"kind": "bearer", "key": "hush"}},
        {"auth": {"kind": "basic", "user": "u", "password": ["hush"]}},
        {"auth": {**OAUTH, "client_secret": {"a": "hush"}}},
        {"auth": {"kind": "sigv4", "secret_key": lines, "session_token": long}},
        {"tls": {"certificate": "hush", "key": "hush"}},
        {"tls": {"certificate": PRIVATE_KEY.format("hush"), "key": PRIVATE_KEY.format("hush")}},
        {"embedding": {"url": "http://e.test", "model": "m", "headers": {"A": lines}}},
        {"embedding": {"url": "http://e.test", "model": "m", "auth": {"token": long}}},
        {"scorer": {"kind": "judged", "headers": {"A": "hush"}}},
    ]
    for one in wrong:
        answer = service.client.put("/v1/retrievers/search", json=whole() | one)
        assert answer.status_code == 422, one
        assert "hush" not in answer.text
    assert "hush" not in caplog.text


# --- sent only where they were stored for --------------------------------------------------------------------


def test_a_kept_secret_goes_only_to_the_address_it_was_stored_for(service: Api) -> None:
    cases: list[tuple[str, dict[str, Any], set[str]]] = [
        ("bearer", {"url": "http://127.0.0.1:2/search"}, {"request.headers.X-Team", "auth.token", "tls.key"}),
        (
            "bearer",
            {"embedding": {"url": "https://embedder.test/v1"}},
            {"embedding.headers.X-Org", "embedding.auth.token", "embedding.tls.key"},
        ),
        (
            "basic",
            {"scorer": {"url": "http://elsewhere.test/rerank"}},
            {"scorer.headers.X.Y", "scorer.auth.password", "scorer.tls.key"},
        ),
        ("oauth2", {"auth": {"token_url": "https://elsewhere.test/token"}}, {"auth.client_secret", "auth.tls.key"}),
        (
            "oauth2",
            {"embedding": {"auth": {"token_url": "http://login.test/token"}}},
            {"embedding.auth.client_secret", "embedding.auth.tls.key"},
        ),
        ("oauth2", {"url": "http://other.test"}, {"request.headers.X-Team", "auth.client_secret", "tls.key"}),
        ("bearer", {"url": "http://127.0.0.1:1/elsewhere"}, set()),
        ("bearer", {"embedding": {"url": "http://embedder.test/v2", "model": "large"}}, set()),
    ]
    for kind, change, refused in cases:
        shown = service.put("/v1/retrievers/search", whole(kind))
        answer = service.client.put("/v1/retrievers/search", json=over(shown, change))
        assert answer.status_code == (422 if refused else 200), answer.text
        assert {error["path"] for error in answer.json().get("errors", [])} == refused, kind
        service.put("/v1/retrievers/search", over(whole(kind), change))


# --- files beside canary files -------------------------------------------------------------------------------

TWINS = """
retrievers:
  - slug: search
    url: http://a.test/
    request: {headers: {X-Plain: a}, headers_file: {X-Team: /s/team}}
    auth: {kind: sigv4, region: r, service: s, access_key: a, secret_key_file: /s/secret, session_token_file: /s/t}
    tls: {certificate_file: /s/cert, key_file: /s/key, authority_file: /s/cert}
    embedding:
      url: http://e.test/
      model: m
      headers_file: {X-Org: /s/org}
      auth: {token_file: /s/token}
    scorer:
      kind: rerank
      url: http://r.test/
      auth: {kind: basic, user: u, password_file: /s/password}
  - slug: qdrant
    preset: qdrant
    url: http://q.test
    options: {collection: c}
    embedding: {url: http://e.test, model: m}
    auth: {key_file: /s/key-of-qdrant}
  - slug: oauth
    url: http://o.test/
    auth:
      kind: oauth2
      token_url: "http://l.test/"
      client_id: i
      client_secret_file: /s/client
      tls: {certificate_file: /s/cert, key_file: /s/key, authority_file: /s/cert}
"""
FILES = {
    "/s/team": "hush-team\n",
    "/s/secret": "hush-secret\r\n",
    "/s/t": "hush-session",
    "/s/cert": CERTIFICATE,
    "/s/key": PRIVATE_KEY.format("hush"),
    "/s/org": "hush-org",
    "/s/token": "hush-token\n",
    "/s/password": "hush-password",
    "/s/key-of-qdrant": "hush-qdrant",
    "/s/client": "hush-client",
}


def problems(text: str, files: Mapping[str, str] | None) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read_canary_files([("a.yaml", text)], {}, files.__getitem__ if files is not None else None)
    return [str(problem) for problem in caught.value.problems]


def test_every_secret_may_be_in_a_file() -> None:
    search, qdrant, oauth = read_canary_files([("a.yaml", TWINS)], {}, FILES.__getitem__).retrievers
    assert split_secrets(search)[1] == {
        "request.headers.X-Plain": "a",
        "request.headers.X-Team": "hush-team",
        "embedding.headers.X-Org": "hush-org",
        "auth.secret_key": "hush-secret",
        "auth.session_token": "hush-session",
        "tls.key": PRIVATE_KEY.format("hush").rstrip(),
        "embedding.auth.token": "hush-token",
        "scorer.auth.password": "hush-password",
    }
    assert search.tls is not None
    assert search.tls.authority == CERTIFICATE.rstrip()
    assert split_secrets(qdrant)[1] == {"auth.key": "hush-qdrant"}
    assert split_secrets(oauth)[1] == {
        "auth.client_secret": "hush-client",
        "auth.tls.key": PRIVATE_KEY.format("hush").rstrip(),
    }


def test_the_schema_knows_the_files_too() -> None:
    schema = canary_file_schema()
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(TWINS))
    properties = {name for part in schema["$defs"].values() for name in part.get("properties", ())}
    assert {name for name in properties if name.endswith("_file")} == FILE_TWINS | {"url_file"}


def test_no_file_is_read_for_a_text_from_the_network() -> None:
    refused = problems(TWINS, None)
    assert len([one for one in refused if "names a file of this server" in one]) == 14


def test_a_secret_said_twice_and_a_wrong_one_are_told_on_their_lines_and_not_quoted() -> None:
    text = TWINS.replace("{token_file: /s/token}", "{token: hush, token_file: /s/token}")
    assert problems(text, FILES) == [
        "a.yaml:12: retrievers[0].embedding.auth.token_file: 'token' is given already; write one of the two"
    ]
    broken = problems(TWINS, {**FILES, "/s/token": "hush\nhush", "/s/key": "hush"})
    assert broken == [
        "a.yaml:7: retrievers[0].tls.key: must be a private key as PEM: -----BEGIN PRIVATE KEY----- and so on",
        "a.yaml:12: retrievers[0].embedding.auth.token: must be one line of Latin-1 characters",
        "a.yaml:30: retrievers[2].auth.tls.key: must be a private key as PEM: -----BEGIN PRIVATE KEY----- and so on",
    ]


# --- encrypted anew ------------------------------------------------------------------------------------------

OLD, NEW = "the-key-of-last-year", "the-key-of-this-year"


def put(store: Store, vault: Vault, slug: str, **changes: Any) -> None:
    definitions.put(store, vault, read(whole() | {"slug": slug} | changes), now=START)


def tokens(store: Store) -> list[bytes]:
    with store.read() as connection:
        found = connection.execute(sa.select(definition_versions.c.secrets).order_by(definition_versions.c.id))
        return [bytes(token) for token in found.scalars() if token is not None]


def opens(store: Store, key: str, folder: Path) -> bool:
    try:
        open_vault(key, folder, store, loopback=True)
    except ConfigurationError:
        return False
    return True


def test_rotation_leaves_every_secret_to_the_new_key_alone(store: Store, tmp_path: Path) -> None:
    old = Vault(OLD)
    put(store, old, "kept")
    put(store, old, "kept", timeout=2)  # the version before it stays, for runs under way
    put(store, old, "gone")
    definitions.archive(store, "retriever", "gone", now=START)
    before = [old.decrypt(token) for token in tokens(store)]
    rotated = rotate(store, Vault(f"{NEW},{OLD}"))
    assert (rotated.count, rotated.unreadable) == (3, 0)
    assert [Vault(NEW).decrypt(token) for token in tokens(store)] == before
    assert (opens(store, NEW, tmp_path), opens(store, OLD, tmp_path)) == (True, False)
    assert rotate(store, Vault(NEW)).count == 3


def test_a_rotation_that_cannot_read_what_is_in_force_changes_nothing(store: Store) -> None:
    put(store, Vault(OLD), "good")
    put(store, Vault("a-key-that-is-lost"), "lost")
    before = tokens(store)
    with pytest.raises(ConfigurationError, match=r"^retriever 'lost': .* nothing was changed$"):
        rotate(store, Vault(f"{NEW},{OLD}"))
    assert tokens(store) == before


def test_what_is_out_of_force_and_lost_does_not_hinder_a_rotation(store: Store, tmp_path: Path) -> None:
    put(store, Vault("a-key-that-is-lost"), "lost")
    definitions.archive(store, "retriever", "lost", now=START)
    put(store, Vault(OLD), "good")
    rotated = rotate(store, Vault(f"{NEW},{OLD}"))
    assert (rotated.count, rotated.unreadable) == (1, 1)
    assert opens(store, NEW, tmp_path)


CANARY_FILE = """
suite: small
canaries: [{key: a, query: alpha}]
retrievers: [{slug: there, url: "http://127.0.0.1:1/", auth: {kind: bearer, token: hush}}]
"""


def run(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Give the folder of a database with a secret under a generated key."""
    (tmp_path / "canaries.yaml").write_text(CANARY_FILE, encoding="utf-8")
    assert run("apply", tmp_path / "canaries.yaml", "--data-dir", tmp_path / "data").exit_code == 0
    return tmp_path / "data"


def reads(data: Path, key: str) -> bool:
    store = Store(f"sqlite:///{data / 'coalmine.db'}")
    try:
        return opens(store, key, data)
    finally:
        store.close()


def test_a_generated_key_is_changed_for_a_new_one(data: Path) -> None:
    file = data / KEY_FILE
    old = file.read_text().strip()
    result = run("secrets", "rotate", "--new-key", "--data-dir", data)
    said = "The secrets of 1 retriever were encrypted anew under the first key, those of their past versions too."
    assert (result.exit_code, result.stdout) == (0, f"{said} {file} holds that key alone.\n")
    new = file.read_text().strip()
    assert new != old
    assert "," not in new
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (reads(data, new), reads(data, old)) == (True, False)
    assert [one.name for one in data.glob("secret.key*")] == [KEY_FILE]


def test_a_change_of_keys_with_nothing_to_change_says_so(data: Path, tmp_path: Path) -> None:
    again = run("secrets", "rotate", "--data-dir", data)
    nothing = "Nothing to rotate: every stored secret was under the first key already."
    assert (again.exit_code, again.stdout) == (0, f"{nothing} {data / KEY_FILE} holds that key alone.\n")
    key = (data / KEY_FILE).read_text().strip()
    named = run("secrets", "rotate", "--data-dir", data, COALMINE_SECRET_KEY=key)
    assert (named.exit_code, named.stdout) == (0, f"{nothing}\n")
    (tmp_path / "none.yaml").write_text("suite: s\n")
    run("apply", tmp_path / "none.yaml", "--data-dir", tmp_path / "empty")
    empty = run("secrets", "rotate", "--data-dir", tmp_path / "empty", COALMINE_SECRET_KEY=f"{NEW},{OLD}")
    told = "No secret is stored, so nothing had to be encrypted anew."
    known = "Once every service knows it, COALMINE_SECRET_KEY needs no other key."
    assert (empty.exit_code, empty.stdout) == (0, f"{told} {known}\n")


def test_what_a_running_service_stores_under_the_old_key_is_not_lost(store: Store, tmp_path: Path) -> None:
    file = tmp_path / KEY_FILE
    file.write_text(f"{OLD}\n")
    put(store, Vault(OLD), "before")
    assert rotate_key_file(store, tmp_path, new_key=True, shared=True).count == 1
    put(store, Vault(OLD), "late")
    new, old = file.read_text().strip().split(",")
    assert (old, opens(store, new, tmp_path), opens(store, f"{new},{old}", tmp_path)) == (OLD, False, True)
    assert rotate_key_file(store, tmp_path, new_key=False, shared=True).count == 2
    assert file.read_text() == f"{new}\n"
    assert opens(store, new, tmp_path)


def test_a_generated_key_of_a_shared_database_is_changed_in_two_steps(databases: Databases, tmp_path: Path) -> None:
    file, shared = tmp_path / KEY_FILE, {"COALMINE_DATABASE_URL": databases.postgresql()}
    file.write_text(f"{OLD}\n")
    first = run("secrets", "rotate", "--new-key", "--data-dir", tmp_path, **shared)
    assert (first.exit_code, "restart every service, then rotate again" in first.stdout) == (0, True), first.output
    new, old = file.read_text().strip().split(",")
    assert old == OLD
    second = run("secrets", "rotate", "--data-dir", tmp_path, **shared)
    assert (second.exit_code, "holds that key alone" in second.stdout) == (0, True), second.output
    assert file.read_text() == f"{new}\n"


def test_a_change_that_was_cut_short_is_finished_by_the_next(data: Path) -> None:
    file = data / KEY_FILE
    old = file.read_text().strip()
    file.write_text(f"{NEW},{old}\n")
    (data / f"{KEY_FILE}.new").write_text("half a k")
    assert reads(data, file.read_text())
    assert run("secrets", "rotate", "--data-dir", data).exit_code == 0
    assert file.read_text() == f"{NEW}\n"
    assert reads(data, NEW)


def test_a_change_that_is_refused_leaves_the_key_file_as_it_was(data: Path) -> None:
    file = data / KEY_FILE
    file.write_text("another-key-altogether\n")
    result = run("secrets", "rotate", "--new-key", "--data-dir", data)
    assert result.exit_code == 2
    assert "retriever 'there': a stored secret cannot be decrypted" in result.stderr
    assert file.read_text() == "another-key-altogether\n"


def test_a_configured_key_is_changed_by_putting_the_new_one_before_it(data: Path) -> None:
    old = (data / KEY_FILE).read_text().strip()
    result = run("secrets", "rotate", "--data-dir", data, COALMINE_SECRET_KEY=f"{NEW},{old}")
    assert result.exit_code == 0
    assert (reads(data, NEW), reads(data, old)) == (True, False)
    assert (data / KEY_FILE).read_text().strip() == old
    refused = run("secrets", "rotate", "--new-key", "--data-dir", data, COALMINE_SECRET_KEY=f"{NEW},{old}")
    assert (refused.exit_code, "--new-key is for a generated secret.key" in refused.stderr) == (2, True)


@pytest.mark.parametrize("lock", [lock_for_work, lock_for_serving])
def test_the_key_of_a_service_that_runs_is_not_changed_under_it(
    data: Path, lock: Callable[[Path], AbstractContextManager[None]]
) -> None:
    before = (data / KEY_FILE).read_text()
    with lock(data / "coalmine.db"):
        result = run("secrets", "rotate", "--new-key", "--data-dir", data)
    assert result.exit_code == 2
    assert "stop it" in result.stderr
    assert (data / KEY_FILE).read_text() == before


def test_without_a_key_there_is_none_to_change(data: Path) -> None:
    (data / KEY_FILE).unlink()
    result = run("secrets", "rotate", "--new-key", "--data-dir", data)
    assert (result.exit_code, "no key to change" in result.stderr) == (2, True)
    assert not (data / KEY_FILE).exists()
