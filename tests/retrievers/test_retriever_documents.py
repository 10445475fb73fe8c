"""What users may say about a retriever, how a preset is mixed in, and how what is wrong is told."""

from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from app.base.addresses import ApiKey, Basic, Bearer, OAuth2, SigV4
from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.catalog.documents.canary_export import exported_secrets, write_canary_file
from app.catalog.documents.canary_files import Documents, read_canary_files
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import Dialect, EmbeddingCanary, Lookup, Scale, ScorerKind
from app.retrievers.presets import PRESETS

NEEDS_VECTORS = "needs query vectors: set an embeddings endpoint (OpenAI-compatible): url and model"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PRIVATE_KEY = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"
EMBEDDING = {"url": "http://embedder.test/v1", "model": "small"}
CHROMA = {
    "preset": "chroma",
    "url": "http://chroma.test:8000",
    "options": {"collection": "docs"},
    "embedding": EMBEDDING,
}
SQL = {
    "preset": "pgvector",
    "url": "postgresql://db.test:5432/rag",
    "options": {"table": "public.chunks"},
    "embedding": EMBEDDING,
    "auth": {"user": "reader", "password": "p"},
}
AUTHS: dict[str, tuple[dict[str, Any], Any]] = {
    "bearer": ({"kind": "bearer", "token": "t"}, Bearer(token="t")),
    "api_key in a header": (
        {"kind": "api_key", "key": "k", "header": "X-Key", "prefix": "Key "},
        ApiKey(key="k", header="X-Key", prefix="Key "),
    ),
    "api_key in the query": ({"kind": "api_key", "key": "k", "query": "api-key"}, ApiKey(key="k", query="api-key")),
    "basic": ({"kind": "basic", "user": "u", "password": "p:%ü"}, Basic(user="u", password="p:%ü")),
    "oauth2": (
        {
            "kind": "oauth2",
            "token_url": "https://login.test/token",
            "client_id": "i",
            "client_secret": "c",
            "scope": "read",
            "audience": "docs",
        },
        OAuth2(token_url="https://login.test/token", client_id="i", client_secret="c", scope="read", audience="docs"),
    ),
    "sigv4": (
        {"kind": "sigv4", "region": "eu-1", "service": "es", "access_key": "a", "secret_key": "s"},
        SigV4(region="eu-1", service="es", access_key="a", secret_key="s"),
    ),
    "sigv4 of a session": (
        {
            "kind": "sigv4",
            "region": "eu-1",
            "service": "es",
            "access_key": "a",
            "secret_key": "s",
            "session_token": "n",
        },
        SigV4(region="eu-1", service="es", access_key="a", secret_key="s", session_token="n"),
    ),
}


def read(**changes: Any) -> RetrieverDocument:
    return parse_document(RetrieverDocument, {"slug": "docs", "url": "http://search.test/ask"} | changes)


def told(**changes: Any) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        read(**changes)
    return [str(problem) for problem in caught.value.problems]


def exported(document: RetrieverDocument) -> RetrieverDocument:
    """Write a document as a canary file and read it back."""
    documents = Documents(retrievers=(document,))
    text = write_canary_file(documents)
    return read_canary_files([("a.yaml", text)], exported_secrets(documents), None).retrievers[0]


# --- presets -------------------------------------------------------------------------------------------------


def test_an_address_is_all_a_generic_retriever_needs() -> None:
    document = read()
    assert document.request.body == {"query": "{{ query }}", "top_k": "{{ k }}"}
    assert (document.response.hits, document.response.index_version) == ("results", "index")
    assert document.scorer.kind is ScorerKind.JUDGED


@pytest.mark.parametrize("mine", [{"id": "key"}, {"hits": "docs", "text": "body"}, {"hits": None, "id": "ids"}])
def test_nothing_is_mixed_into_the_mapping_of_a_generic_retriever(mine: dict[str, Any]) -> None:
    assert read(response=mine).response.model_dump(exclude_none=True) == {k: v for k, v in mine.items() if v}


def test_a_mapping_of_ones_own_replaces_the_presets_field_by_field_and_null_takes_one_out() -> None:
    document = read(**CHROMA, response={"text": "uris[0]", "score": None})
    assert document.response.model_dump(exclude_none=True) == {
        "id": "ids[0]",
        "text": "uris[0]",
        "document": "metadatas[0][*].source",
    }
    assert document.scorer.kind is ScorerKind.JUDGED
    assert parse_document(RetrieverDocument, document.data()) == document
    assert exported(document) == document


def test_an_address_of_a_host_alone_gets_the_path_of_the_preset_and_its_lookup() -> None:
    for url in ("http://chroma.test:8000", "http://chroma.test:8000/"):
        retriever = read(**CHROMA | {"url": url}).to_domain()
        assert retriever.url == (
            "http://chroma.test:8000/api/v2/tenants/{{ tenant }}/databases/{{ database }}"
            "/collections/{{ collection_id }}/query"
        )
        assert retriever.lookup == Lookup(
            name="collection_id",
            url=(
                "http://chroma.test:8000/api/v2/tenants/{{ tenant }}/databases/{{ database }}"
                "/collections/{{ collection }}"
            ),
            path="id",
        )
        assert retriever.options == {"tenant": "default_tenant", "database": "default_database", "collection": "docs"}


def test_a_question_is_put_once_the_users_way() -> None:
    by_address = read(request={"method": "get", "query": {"q": "{{ query }}"}})
    assert (by_address.request.method, by_address.request.body) == ("GET", None)
    by_form = read(request={"query": {"q": "{{ query }}"}})
    assert (by_form.request.method, by_form.request.body) == ("POST", None)
    beside = read(request={"query": {"tenant": "a"}})
    assert beside.request.body == {"query": "{{ query }}", "top_k": "{{ k }}"}
    for document in (by_address, by_form, beside):
        assert parse_document(RetrieverDocument, document.data()) == document
        assert exported(document) == document


def test_what_puts_no_question_of_a_preset_stays_beside_the_users_body() -> None:
    azure = {"preset": "azure-ai-search", "url": "https://a.test", "options": {"index": "docs"}}
    document = read(**azure, request={"json": {"search": "{{ query }}", "queryType": "semantic"}})
    assert document.request.query == {"api-version": "{{ api_version }}"}
    assert document.request.body == {"search": "{{ query }}", "queryType": "semantic"}


def test_a_scale_of_ones_own_takes_the_place_of_the_presets() -> None:
    assert read(**CHROMA).scorer.scale is Scale.DISTANCE
    assert read(**CHROMA, scorer={"scale": "cosine"}).scorer.scale is Scale.COSINE
    assert read(**CHROMA, scorer={"kind": "embedding"}).scorer.scale is None


def test_a_header_of_a_preset_is_added_unless_it_is_given_in_any_case() -> None:
    pinecone = {"preset": "pinecone", "url": "https://i.test", "embedding": EMBEDDING}
    [(name, value)] = read(**pinecone).request.headers.items()
    assert read(**pinecone, request={"headers": {"X-A": "b"}}).request.headers == {name: value, "X-A": "b"}
    assert read(**pinecone, request={"headers": {name.lower(): "c"}}).request.headers == {name.lower(): "c"}


parts = st.fixed_dictionaries(
    {},
    optional={
        "request": st.fixed_dictionaries(
            {},
            optional={
                "method": st.sampled_from(["GET", "POST"]),
                "json": st.sampled_from([None, {"q": "{{ query }}"}, {"n": "{{ k }}"}, {"v": "{{ vector }}"}]),
                "query": st.sampled_from([{}, {"q": "{{ query }}"}, {"n": 1}]),
                "headers": st.sampled_from([{}, {"X-A": "b"}]),
            },
        ),
        "response": st.fixed_dictionaries(
            {}, optional={name: st.sampled_from([None, "a", "b[0]"]) for name in ("hits", "id", "score", "text")}
        ),
        "scorer": st.fixed_dictionaries(
            {},
            optional={
                "kind": st.sampled_from(["score", "judged", "embedding"]),
                "scale": st.sampled_from([None, "cosine", "distance"]),
            },
        ),
        "lookup": st.sampled_from([None, {"name": "other", "url": "/b", "path": "c"}]),
        "auth": st.sampled_from([None, {"key": "k", "header": "X-K"}, {"token": "t"}, {"user": "u", "password": "p"}]),
        "breaker": st.sampled_from([None, 1, 10]),
    },
)


@given(preset=st.sampled_from([name for name in PRESETS if PRESETS[name].dialect is Dialect.HTTP]), mine=parts)
def test_what_was_expanded_reads_back_the_same_stored_or_exported(preset: str, mine: dict[str, Any]) -> None:
    options = {one.name: "mine" for one in PRESETS[preset].options if one.required}
    document = {"slug": "docs", "preset": preset, "url": "http://a.test", "options": options, "embedding": EMBEDDING}
    try:
        whole = parse_document(RetrieverDocument, document | mine)
    except InvalidInputError:
        return
    assert parse_document(RetrieverDocument, whole.data()) == whole
    assert exported(whole) == whole


def test_what_a_preset_asks_for_is_asked_for_by_name() -> None:
    assert told(preset="chroma", url="http://chroma.test") == [
        "options.collection: is missing; preset chroma needs option `collection`, for example docs",
        f"embedding: is missing; chroma {NEEDS_VECTORS}",
    ]


def test_what_no_template_uses_need_not_be_said() -> None:
    document = read(preset="elasticsearch", url="http://es.test/docs/_search")
    assert document.options == {"field": "text"}


def test_an_option_nothing_uses_is_told() -> None:
    assert told(**CHROMA | {"options": {"collection": "a", "tennant": "b"}}) == [
        "options.tennant: is used by no template; did you mean 'tenant'?"
    ]


def test_a_retriever_moves_with_its_lookup() -> None:
    moved = read(**CHROMA).at("https://staging.test")
    assert moved == read(**CHROMA | {"url": "https://staging.test"})
    with pytest.raises(InvalidInputError):
        moved.at("nowhere")


# --- what is asked -------------------------------------------------------------------------------------------


def test_names_of_ones_own_stand_in_the_address_and_the_body() -> None:
    document = read(
        url="http://search.test/{{ tenant }}/ask/{{ query }}?n={{ k }}",
        options={"tenant": "a", "lang": "de"},
        request={"json": {"lang": "{{ lang }}", "id": "{{ id }}"}},
        lookup={"name": "id", "url": "/{{ tenant }}/id", "path": "id"},
    )
    assert document.to_domain().lookup == Lookup(name="id", url="http://search.test/{{ tenant }}/id", path="id")


def test_a_wrong_template_is_told_at_its_place() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"url": "http://a.test/{{ tenant }}"}, "url: unknown placeholder '{{ tenant }}'; known are: query, k"),
        (
            {"url": "http://a.test/{{ vector }}", "embedding": EMBEDDING},
            "url: must not hold {{ vector }}: a vector is too long for an address",
        ),
        ({"url": "http://a.test/{{ query"}, "url: has a '{{' that begins no placeholder; write {{ query }} or {{ k }}"),
        ({"request": {"json": {"v": "{{ vector }}"}}}, f"embedding: is missing; the request {NEEDS_VECTORS}"),
        (
            {"request": {"json": {"{{ query }}": "{{ query }}"}}},
            "request.json.{{ query }}: has a placeholder in its name; they may stand in values only",
        ),
        (
            {"options": {"a": "b"}, "request": {"json": {"{{ a }}": {"{{ k }}": "{{ query }}"}}}},
            "request.json.{{ a }}.{{ k }}: has a placeholder in its name; those of options alone may stand there",
        ),
        (
            {"options": {"a": "b"}, "request": {"json": {"{{ a }} {{": "{{ query }}"}}},
            "request.json.{{ a }} {{: has a placeholder in its name; those of options alone may stand there",
        ),
        (
            {"options": {"a": "b"}, "request": {"query": {"{{ a }}": "{{ query }}"}}},
            "request.query.{{ a }}: has a placeholder in its name; they may stand in values only",
        ),
        ({"request": {"sql": "SELECT :query"}}, "request.sql: belongs to presets that speak SQL"),
        ({"request": {"tool": "search"}}, "request.tool: belongs to presets that speak MCP"),
        ({"options": {"query": "a"}}, "options.query: cannot be called 'query': that is what is asked"),
        (
            {"lookup": {"name": "id", "url": "http://other.test/id", "path": "id"}},
            "lookup.url: must be at the host of the retriever's url, or a path that begins with /",
        ),
        (
            {"lookup": {"name": "id", "url": "/{{ query }}", "path": "id"}},
            "lookup.url: unknown placeholder '{{ query }}'",
        ),
        (
            {"lookup": {"name": "a", "url": "/b", "path": "c"}, "options": {"a": "b"}},
            "lookup.name: 'a' is an option already",
        ),
        ({"breaker": 0}, "breaker: must be at least 1"),
    ]
    for changes, problem in cases:
        assert told(**changes) == [problem], changes


def test_a_breaker_may_be_switched_off() -> None:
    assert read(breaker=None).to_domain().breaker is None
    assert read().to_domain().breaker == 10
    assert exported(read(breaker=None)).breaker is None


def test_a_database_is_asked_by_one_statement_in_which_options_are_names() -> None:
    retriever = read(**SQL).to_domain()
    assert retriever.dialect is Dialect.SQL
    assert "FROM public.chunks" in (retriever.sql or "")
    assert "{{" not in (retriever.sql or "")
    assert retriever.auth == Basic(user="reader", password="p")
    own = read(
        **SQL | {"request": {"sql": "SELECT ':text' AS t, id::text FROM {{ table }} WHERE :query <> '' LIMIT :k"}}
    )
    assert (own.to_domain().sql or "").endswith("FROM public.chunks WHERE :query <> '' LIMIT :k")


def test_what_no_database_can_be_asked_is_told() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"url": "http://db.test/"}, "url: must be an address that begins with postgresql:// and names a host"),
        ({"auth": None}, "auth: is missing: a database needs {user: ..., password: ...} of a role that may only read"),
        (
            {"url": "postgresql://u:p@db.test/rag"},
            "url: must not hold a user name or password; addresses are shown, headers and secrets are not",
        ),
        ({"url": "postgresql://db.test"}, "url: must be postgresql://host:port/database"),
        (
            {"url": "postgresql://db.test/rag?sslmode=require&host=10.0.0.1"},
            "url: may only have ?sslmode=... behind the database; user and password go to auth: {kind: basic}",
        ),
        (
            {"options": {"table": "chunks; DROP TABLE chunks"}},
            "request.sql: takes the option 'table' as the name of a table or column, which it is not",
        ),
        (
            {"request": {"sql": "SELECT :qurey FROM {{ table }} WHERE :vector IS NOT NULL"}},
            "request.sql: unknown parameter ':qurey'; did you mean 'query'?",
        ),
        (
            {"request": {"sql": "SELECT '{{ query }}' FROM {{ table }} WHERE :vector IS NOT NULL"}},
            "request.sql: unknown placeholder '{{ query }}'; known are: table, id, text, document, embedding",
        ),
        ({"request": {"sql": None}}, "request.sql: is missing; say a SELECT with :query"),
        ({"request": {"json": {"a": "b"}}}, "request.json: belongs to presets that speak HTTP"),
        ({"auth": {"kind": "bearer", "token": "t"}}, "auth.kind: of a database must be basic: its user and password"),
    ]
    for changes, problem in cases:
        assert problem in told(**SQL | changes), changes


def test_a_tool_is_called_with_arguments() -> None:
    tool = {"preset": "mcp", "url": "http://mcp.test", "request": {"tool": "search", "json": {"text": "{{ query }}"}}}
    retriever = read(**tool).to_domain()
    assert (retriever.dialect, retriever.tool, retriever.json) == (Dialect.MCP, "search", {"text": "{{ query }}"})
    assert told(preset="mcp", url="http://mcp.test") == ["request.tool: is missing; say the name of the tool to call"]


# --- who we are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", AUTHS)
def test_every_kind_of_auth_becomes_the_domain_value_and_reads_back(kind: str) -> None:
    written, value = AUTHS[kind]
    document = read(
        auth=written,
        embedding=EMBEDDING | {"auth": written},
        scorer={"kind": "rerank", "url": "http://rerank.test/rerank", "auth": written},
    )
    retriever = document.to_domain()
    assert retriever.auth == value
    assert retriever.embedder is not None
    assert retriever.embedder.endpoint.auth == value
    assert retriever.scorer.reranker is not None
    assert retriever.scorer.reranker.auth == value
    assert parse_document(RetrieverDocument, document.data()) == document
    assert exported(document) == document


@pytest.mark.parametrize("word", ["key", "token"])
def test_a_secret_without_a_kind_takes_the_way_of_the_preset(word: str) -> None:
    qdrant = {"preset": "qdrant", "url": "http://q.test", "options": {"collection": "c"}, "embedding": EMBEDDING}
    assert read(**qdrant, auth={word: "s"}).to_domain().auth == ApiKey(key="s", header="api-key")
    milvus = qdrant | {"preset": "milvus"}
    assert read(**milvus, auth={word: "s"}).to_domain().auth == Bearer(token="s")


def test_a_way_of_ones_own_takes_the_place_of_the_presets() -> None:
    elastic = {"preset": "elasticsearch", "url": "http://e.test", "options": {"index": "i"}}
    assert read(**elastic, auth={"key": "s"}).to_domain().auth == ApiKey(
        key="s", header="Authorization", prefix="ApiKey "
    )
    assert read(**elastic, auth={"key": "s", "query": "k"}).to_domain().auth == ApiKey(key="s", query="k")
    assert read(**elastic, auth={"kind": "bearer", "token": "s"}).to_domain().auth == Bearer(token="s")
    bedrock = {"preset": "bedrock-kb", "url": "http://b.test", "options": {"knowledge_base": "i"}}
    written = {"region": "eu-1", "access_key": "a", "secret_key": "s"}
    assert read(**bedrock, auth=written).to_domain().auth == SigV4(service="bedrock", **written)


def test_a_wrong_auth_is_told_at_its_place() -> None:
    for auth, problem in [
        ({"token": "t"}, "auth.kind: is missing; say one of bearer, api_key, basic, oauth2, sigv4"),
        (
            {"kind": "baerer", "token": "t"},
            "auth.kind: must be one of bearer, api_key, basic, oauth2, sigv4; did you mean 'bearer'?",
        ),
        ({"kind": "bearer"}, "auth.token: the key 'token' is missing"),
        ({"kind": "bearer", "token": "t", "header": "A"}, "auth.header: 'header' belongs to another kind"),
        (
            {"kind": "bearer", "token": "t", "tokn": "A"},
            "auth: unknown key, not quoted as it may be a secret; did you mean 'token'?",
        ),
        ({"kind": "api_key", "key": "k"}, "auth: must say where the key goes, either 'header' or 'query'"),
        (
            {"kind": "api_key", "key": "k", "header": "Host"},
            "auth.header: must be the name of a header, for example X-Api-Key",
        ),
        (
            {"kind": "basic", "user": "a:b", "password": "p"},
            "auth.user: must not hold a ':', which ends the user in basic authentication",
        ),
        (
            {"kind": "oauth2", "token_url": "ftp://a", "client_id": "i", "client_secret": "c"},
            "auth.token_url: must be an address that begins with http:// or https:// and names a host",
        ),
        ("token", "auth: must be a mapping with a kind, for example {kind: bearer, token: ...}"),
        (
            {"token_file": "/etc/passwd", "kind": "bearer"},
            "auth.token_file: 'token_file' names a file of this server; only canary files may use it",
        ),
    ]:
        assert problem in told(auth=auth), auth


def test_a_secret_in_the_wrong_place_of_auth_or_tls_is_not_quoted() -> None:
    cases: list[dict[str, Any]] = [
        {"auth": {"kind": "s3cr3t-of-ours"}},
        {"auth": {"kind": "bearer", "s3cr3t-of-ours": None}},
        {"auth": {"kind": "bearer", "token": "t", "s3cr3t-of-ours": "t"}},
        {"auth": {"s3cr3t-of-ours": {"kind": "bearer"}}},
        {"tls": {"s3cr3t-of-ours": "key"}},
        {"auth": {"kind": "oauth2", "tls": {"s3cr3t-of-ours": "key"}}},
        {"embedding": {**EMBEDDING, "auth": {"kind": "s3cr3t-of-ours"}}},
        {"embedding": {**EMBEDDING, "tls": {"s3cr3t-of-ours": "key"}}},
        {"scorer": {"kind": "rerank", "url": "http://r.test", "auth": {"kind": "bearer", "s3cr3t-of-ours": "t"}}},
    ]
    for part in cases:
        problems = told(**part)
        assert problems, part
        assert not [problem for problem in problems if "s3cr3t" in problem], part
        page = {"retrievers": [{"slug": "search", "url": "http://127.0.0.1:1", **part}]}
        with pytest.raises(InvalidInputError) as refused:
            read_canary_files([("a.yaml", yaml.safe_dump(page))], {}, None)
        assert all(problem.line for problem in refused.value.problems), part
        assert "s3cr3t" not in str(refused.value), part


def test_a_header_is_not_said_twice() -> None:
    told_once = ["auth: sets the header Authorization, which headers give too; say it once"]
    bearer = {"kind": "bearer", "token": "t"}
    assert told(auth=bearer, request={"headers": {"authorization": "x"}}) == told_once
    both = {"auth": bearer, "headers": {"Authorization": "x"}}
    assert told(embedding=EMBEDDING | both) == [f"embedding.{told_once[0]}"]


def test_certificates_and_keys_are_pem_that_goes_together() -> None:
    document = read(tls={"certificate": CERTIFICATE, "key": PRIVATE_KEY, "authority": CERTIFICATE})
    assert document.tls is not None
    assert document.to_domain().tls == document.tls.to_domain()
    assert exported(document) == document
    assert told(tls={"certificate": CERTIFICATE}) == ["tls.key: is missing; a certificate and its key go together"]
    assert told(tls={"certificate": PRIVATE_KEY + CERTIFICATE, "key": PRIVATE_KEY}) == [
        "tls.certificate: holds a private key, which is a secret; put it under key"
    ]
    for text in ("/etc/ssl/ca.pem", f"{CERTIFICATE}# Größe\n{CERTIFICATE}", f"{CERTIFICATE}\u00a0"):
        assert told(tls={"authority": text}) == [
            "tls.authority: must be a certificate as PEM: -----BEGIN CERTIFICATE----- and so on"
        ]
    encrypted = PRIVATE_KEY.replace("PRIVATE", "ENCRYPTED PRIVATE")
    assert told(tls={"certificate": CERTIFICATE, "key": encrypted}) == [
        "tls.key: must be a private key without a passphrase; it is stored encrypted"
    ]


# --- embedding and scorer ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("http://e.test", "http://e.test/v1/embeddings"),
        ("http://e.test/v1", "http://e.test/v1/embeddings"),
        ("http://e.test/v1/", "http://e.test/v1/embeddings"),
        ("http://e.test/v1/embeddings", "http://e.test/v1/embeddings"),
        ("http://e.test/openai/embeddings?api-version=1", "http://e.test/openai/embeddings?api-version=1"),
    ],
)
def test_the_address_of_an_embedder_is_completed(written: str, meant: str) -> None:
    document = read(embedding=EMBEDDING | {"url": written})
    embedder = document.to_domain().embedder
    assert embedder is not None
    assert embedder.endpoint.url == meant
    assert parse_document(RetrieverDocument, document.data()) == document


def test_an_embedder_becomes_the_domain_value() -> None:
    canaries = [{"key": "cat", "texts": ["a cat", "a kitten"], "similar": True}]
    embedder = (
        read(
            embedding=EMBEDDING
            | {"dimensions": 256, "batch": 8, "timeout": "2s", "auth": {"key": "k"}, "canaries": canaries}
        )
        .to_domain()
        .embedder
    )
    assert embedder is not None
    assert (embedder.model, embedder.dimensions, embedder.batch) == ("small", 256, 8)
    assert (embedder.endpoint.auth, embedder.endpoint.timeout_seconds) == (Bearer(token="k"), 2.0)
    assert embedder.canaries == (EmbeddingCanary(key="cat", texts=("a cat", "a kitten"), similar=True),)


def test_wrong_embedding_canaries_are_told() -> None:
    one = {"key": "a", "texts": ["b"], "similar": "yes"}
    assert told(embedding=EMBEDDING | {"canaries": [one]}) == [
        "embedding.canaries[0].texts: must have at least 2 entries",
        "embedding.canaries[0].similar: must be true or false, not text ('yes')",
    ]
    good = {"key": "a", "texts": ["b", "c"], "similar": False}
    assert told(embedding=EMBEDDING | {"canaries": [good, good]}) == [
        "embedding.canaries[1].key: the key 'a' is used twice"
    ]


def test_a_scorer_outside_the_retriever_becomes_the_domain_value() -> None:
    rerank = {"kind": "rerank", "url": "http://r.test/rerank", "model": "m", "timeout": 3, "headers": {"A": "b"}}
    scorer = read(scorer=rerank).to_domain().scorer
    assert (scorer.kind, scorer.scale, scorer.model) == (ScorerKind.RERANK, Scale.SIMILARITY, "m")
    assert scorer.reranker is not None
    assert (scorer.reranker.url, scorer.reranker.timeout_seconds) == ("http://r.test/rerank", 3.0)
    own = read(scorer={"kind": "embedding", "url": "http://e.test/v1", "model": "m"}).to_domain().scorer
    assert own.embedder is not None
    assert (own.embedder.endpoint.url, own.embedder.model) == ("http://e.test/v1/embeddings", "m")
    shared = read(scorer={"kind": "embedding"}, embedding=EMBEDDING).to_domain()
    assert shared.scorer.embedder == shared.embedder
    assert shared.embedder is not None


def test_a_wrong_scorer_is_told_at_its_place() -> None:
    for scorer, problem in [
        ({"kind": "rerank"}, "scorer.url: is missing; a scorer of kind rerank asks a /rerank there"),
        (
            {"kind": "rerank", "url": "http://r.test", "scale": "cosine"},
            "scorer.scale: of a reranker must be one of similarity, logit",
        ),
        ({"kind": "embedding"}, "scorer: a scorer of kind embedding needs an embedder: say embedding: {url, model}"),
        (
            {"kind": "embedding", "url": "http://e.test"},
            "scorer.model: is missing; an embedder of the scorer's own needs one",
        ),
        (
            {"kind": "embedding", "model": "m"},
            "scorer.model: needs a url beside it; without one the embedding of the retriever is used as it is",
        ),
        ({"url": "http://e.test"}, "scorer.url: belongs to the scorer kinds embedding and rerank"),
        ({"kind": "judged", "auth": {"key": "k"}}, "scorer.auth: belongs to the scorer kinds embedding and rerank"),
    ]:
        assert told(scorer=scorer) == [problem], scorer


def test_a_scorer_that_reads_hits_needs_their_text() -> None:
    assert told(response={"hits": "h", "id": "i"}, scorer={"kind": "rerank", "url": "http://r.test"}) == [
        "scorer: a scorer of kind rerank reads hits; map their text under response: text"
    ]


# --- hostile documents ---------------------------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["{{ query }}", "{{", "/x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["preset", "url", "options", "request", "lookup", "response", "auth", "tls", "embedding", "scorer", "breaker"]
INNER = ["kind", "key", "token", "json", "query", "params", "sql", "headers", "url", "name", "auth", "tls", "method"]


@given(
    mine=st.dictionaries(
        st.sampled_from(KEYS), anything | st.dictionaries(st.sampled_from(INNER), anything, max_size=4), max_size=5
    ),
    preset=st.sampled_from(list(PRESETS)),
)
def test_whatever_is_written_is_read_or_refused_in_words(mine: dict[str, Any], preset: str) -> None:
    with suppress(InvalidInputError):
        document = parse_document(RetrieverDocument, {"slug": "docs", "url": "http://a.test", "preset": preset} | mine)
        assert parse_document(RetrieverDocument, document.data()) == document
