"""The table of presets as a whole: what holds for every entry, whoever adds one."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.base.documents.fields import parse_document
from app.base.errors import InvalidInputError
from app.retrievers.client.compiled_retriever import Reader, json_template, url_template
from app.retrievers.documents.requests import RESERVED, placeholders_in
from app.retrievers.documents.retrievers import RetrieverDocument
from app.retrievers.domain.retrievers import Dialect, Lookup, Retriever
from app.retrievers.presets import LIVE, PRESETS, SHAPE, Preset
from tests.support.preset_shapes import EMBEDDING

EACH = pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
HOSTS = {Dialect.SQL: "postgresql://db/docs"}
LIVE_PRESETS = {"generic", "chroma", "pgvector", "haystack", "langserve", "mcp"}


def shortest(preset: Preset, **more: Any) -> dict[str, Any]:
    """Write the least there is to a document with the preset: a host, and what has no default."""
    options = {one.name: "mine" for one in preset.options if one.required}
    return {
        "slug": "docs",
        "preset": preset.name,
        "url": HOSTS.get(preset.dialect, "https://host.example.org"),
        **({"options": options} if options else {}),
        **({"embedding": EMBEDDING} if preset.needs_vector else {}),
        **({"request": {"tool": "search"}} if preset.dialect is Dialect.MCP else {}),
        **({"auth": {"user": "reader", "password": "p"}} if preset.dialect is Dialect.SQL else {}),
        **more,
    }


def parsed(document: dict[str, Any]) -> RetrieverDocument:
    """Read it as users' documents are read."""
    return parse_document(RetrieverDocument, document)


def complaints(document: dict[str, Any]) -> str:
    """Read something bad and return what is said of it."""
    with pytest.raises(InvalidInputError) as caught:
        parsed(document)
    return str(caught.value)


def known(retriever: Retriever) -> tuple[str, ...]:
    """Name the placeholders a retriever's templates may hold."""
    looked_up = [retriever.lookup.name] if retriever.lookup else []
    return (*RESERVED, *retriever.options, *looked_up)


@EACH
def test_shortest_document_is_enough(preset: Preset) -> None:
    retriever = parsed(shortest(preset)).to_domain()
    assert retriever.dialect is preset.dialect
    assert preset.path in retriever.url


@EACH
def test_expanding_twice_changes_nothing(preset: Preset) -> None:
    once = parsed(shortest(preset))
    assert parsed(once.data()) == once


@EACH
def test_templates_hold_known_placeholders_alone(preset: Preset) -> None:
    retriever = parsed(shortest(preset)).to_domain()
    if preset.dialect is not Dialect.SQL:
        url_template(retriever.url, retriever.query_parameters, known(retriever))
        json_template(retriever.json, known(retriever), tuple(retriever.options))
    if retriever.lookup is not None:
        assert isinstance(retriever.lookup, Lookup)
        url_template(retriever.lookup.url, {}, tuple(retriever.options))


@EACH
def test_answers_can_be_mapped(preset: Preset) -> None:
    retriever = parsed(shortest(preset)).to_domain()
    Reader(retriever.response, 10, scale=retriever.scorer.scale)


@EACH
def test_every_option_and_lookup_is_used(preset: Preset) -> None:
    lookup = preset.lookup or {}
    used = placeholders_in([preset.path, lookup.get("url"), preset.request])
    assert {one.name for one in preset.options} | {lookup[name] for name in ("name",) if lookup} <= used


@EACH
def test_options_say_their_label_and_an_example(preset: Preset) -> None:
    for one in preset.options:
        assert re.fullmatch(r"[A-Z][\w ]{1,30}", one.label)
        assert one.example
    assert urlsplit(preset.example_url).hostname


@EACH
def test_vector_is_asked_for_exactly_where_it_is_needed(preset: Preset) -> None:
    sql = preset.request.get("sql", "")
    assert preset.needs_vector == ("vector" in placeholders_in(preset.request) or ":vector" in sql)
    if preset.needs_vector:
        document = shortest(preset)
        del document["embedding"]
        assert f"{preset.name} needs query vectors: set an embeddings endpoint" in complaints(document)


@EACH
def test_word_of_the_user_wins_field_by_field(preset: Preset) -> None:
    mine = {**(preset.response if preset.response_as_one else {}), "text": "own.text"}
    document = parsed(shortest(preset, response=mine, scorer={"kind": "judged"}))
    assert document.response.text == "own.text"
    assert document.response.hits == preset.response.get("hits")
    assert document.scorer.kind == "judged"


@EACH
def test_address_with_a_path_is_left_alone(preset: Preset) -> None:
    if preset.dialect is Dialect.SQL:
        return
    document = shortest(preset, url="https://gateway.example.org/kb/v7", options={}, lookup=None)
    missing = placeholders_in(preset.request) - set(RESERVED)
    document["options"] = {one.name: "mine" for one in preset.options if one.required and one.name in missing}
    assert parsed(document).url == "https://gateway.example.org/kb/v7"


@EACH
def test_entry_tells_people_what_and_by_which_page(preset: Preset) -> None:
    page = urlsplit(preset.source)
    if preset.name == "generic":
        assert not preset.source, "an endpoint of one's own has no page of a vendor"
    else:
        assert (page.scheme, page.username) == ("https", None)
        assert page.hostname
    assert re.fullmatch(r"[^\n.]{10,80}", preset.what)
    assert preset.tested == (LIVE if preset.name in LIVE_PRESETS else SHAPE)


@EACH
def test_no_secret_is_in_the_table(preset: Preset) -> None:
    assert not {"key", "token", "password", "secret_key", "client_secret"} & set(preset.auth)


def test_names_are_those_the_entries_give_themselves() -> None:
    assert all(preset.name == name and re.fullmatch(r"[a-z0-9-]{1,64}", name) for name, preset in PRESETS.items())
    assert len(PRESETS) == len({preset.what for preset in PRESETS.values()})


def test_promised_presets_are_all_there() -> None:
    promised = """generic chroma pgvector haystack langserve mcp elasticsearch opensearch qdrant weaviate pinecone
        milvus azure-ai-search bedrock-kb openai-vector-store"""
    assert set(promised.split()) <= PRESETS.keys()


def options_line(preset: Preset) -> str:
    """Write what a preset needs as its line of the table in docs/presets.md."""
    options = [
        f"**`{one.name}`**, for example `{one.example}`" if one.required else f"`{one.name}`: `{one.default}`"
        for one in preset.options
    ]
    needs = ["`embedding`"] * preset.needs_vector + ["`auth`"] * (preset.needs_auth or preset.dialect is Dialect.SQL)
    needs += ["`request: {tool: ...}`"] * (preset.dialect is Dialect.MCP)
    return f"| `{preset.name}` | {'; '.join(options) or 'none'} | {', '.join(needs) or 'none'} |"


def test_the_options_in_the_docs_are_those_of_the_presets() -> None:
    told = (Path(__file__).parents[2] / "docs" / "presets.md").read_text(encoding="utf-8").splitlines()
    start = told.index("| preset | options | needs |")
    assert told[start + 2 : start + 2 + len(PRESETS)] == [options_line(preset) for preset in PRESETS.values()]
