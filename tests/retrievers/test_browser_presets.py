"""Every preset through the wizard in a browser: the real server where there is one, else its documented answer."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from app.base.addresses import retriever_policy
from app.base.db.engine import Store
from app.catalog.service import references
from app.retrievers.client.probe import RetrieverProbe
from app.retrievers.presets import LIVE, PRESETS, Preset
from tests.retrievers.test_preset_shapes import SHAPES
from tests.support.browser import opened, served
from tests.support.databases import PASSWORD, READER, database
from tests.support.embedder import MODEL, embedder
from tests.support.http_servers import Peer, Reply, Seen, peer, reply
from tests.support.live_indexes import collection, indexed
from tests.support.live_suite import CORPUS, WITHDRAWN, write_corpus
from tests.support.pages_service import site
from tests.support.preset_shapes import QUERY, VECTOR, K, Shape
from tests.support.servers import PROGRAMS, chroma, hayhooks, langserve, mcp

SHAPE_ONLY = [name for name, preset in PRESETS.items() if preset.tested != LIVE]
LIVE_ONES = [name for name, preset in PRESETS.items() if preset.tested == LIVE]
SOC2 = "Where can I download the current SOC 2 report?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """What a user types into the wizard, by the labels on the page."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    embeddings: tuple[str, str] | None = None
    """URL and model."""
    auth: Mapping[str, str] = field(default_factory=dict)
    tool: str = ""
    query: str = QUERY


AUTH_LABELS = {
    "token": "Token",
    "key": "Key",
    "user": "User",
    "password": "Password",
    "region": "Region",
    "access_key": "Access key",
    "secret_key": "Secret key",
}


def set_up(page: Page, preset: Preset, typed: Typed, first: str) -> None:
    """Fill in what the preset asks for, send a test request, see the first hit, and save."""
    page.get_by_label("Name", exact=True).fill(preset.name)
    page.get_by_label("URL", exact=True).fill(typed.url)
    for one in preset.options:
        box = page.get_by_label(one.label, exact=True)
        assert box.get_attribute("placeholder") == one.example
        if one.name in typed.options:
            box.fill(typed.options[one.name])
    if typed.tool:
        page.get_by_label("Tool", exact=True).fill(typed.tool)
    if typed.embeddings:
        expect(page.get_by_role("main")).to_contain_text(
            "This API needs query vectors. Set an embeddings endpoint (OpenAI-compatible)."
        )
        page.get_by_label("Embeddings URL", exact=True).fill(typed.embeddings[0])
        page.get_by_label("Model", exact=True).fill(typed.embeddings[1])
    for name, value in typed.auth.items():  # the preset has chosen the kind of authentication
        page.locator(".auth:visible").get_by_label(AUTH_LABELS[name], exact=True).fill(value)
    page.get_by_label("Query", exact=True).fill(typed.query)
    page.get_by_label("Hits", exact=True).fill(str(K))
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#preview table")).to_contain_text(first)
    page.wait_for_load_state("networkidle")  # a click upon a page that still moves may go beside the button
    with page.expect_response(lambda answer: answer.request.method == "POST") as saving:
        page.get_by_role("button", name="Save the retriever").click()
    assert saving.value.ok, saving.value.text()
    expect(page.get_by_role("heading", level=1)).to_have_text(preset.name)


def walked(browser: Browser, store: Store, name: str, typed: Typed, first: str) -> Mapping[str, Any]:
    """Walk one preset through the wizard, from the list of presets on; gives what was stored."""
    probe = RetrieverProbe(retriever_policy(), "coalmine/test")
    with served(site(store, probe=probe).app()) as url, opened(browser, url) as tab:
        page = tab.open("/new-retriever")
        page.locator(f"a[href='/new-retriever?preset={name}']").click()
        set_up(page, PRESETS[name], typed, first)
    return references.load_definition(store, "retriever", name).body


def mapped(name: str, stored: Mapping[str, Any]) -> None:
    """Check that the mapping that was saved is the preset's."""
    assert {field: path for field, path in stored["response"].items() if path} == dict(PRESETS[name].response)


# --- by the documented answer --------------------------------------------------------------------------------


@contextmanager
def documented(shape: Shape) -> Iterator[Peer]:
    """Serve the answer of a vendor's reference, and the vectors its requests are made of."""

    def answer(seen: Seen) -> Reply:
        if seen.target == "/v1/embeddings":
            data = [{"object": "embedding", "index": 0, "embedding": VECTOR}]
            return reply(json.dumps({"object": "list", "data": data, "model": "small"}).encode())
        return reply(json.dumps(shape.answer).encode())

    with peer(answer) as running:
        yield running


@pytest.mark.parametrize("name", SHAPE_ONLY)
def test_a_preset_is_set_up_set_up_by_its_documented_answer(chromium: Browser, sqlite_store: Store, name: str) -> None:
    shape, preset = SHAPES[name], PRESETS[name]
    with documented(shape) as server:
        typed = Typed(
            url=server.url,
            options=shape.written.get("options", {}),
            embeddings=(f"{server.url}/v1", "small") if preset.needs_vector else None,
            auth={name: shape.secret.get(name, "eu-west-1") for name in _secrets(preset)} if preset.needs_auth else {},
        )
        hit = shape.hits[0]
        stored = walked(chromium, sqlite_store, name, typed, hit.id or hit.text or "")
        sent = next(one for one in server.seen if one.target != "/v1/embeddings")
    assert json.loads(sent.body) == shape.sent
    assert shape.url.endswith(sent.target)
    if not shape.written.get("response"):
        mapped(name, stored)


def _secrets(preset: Preset) -> tuple[str, ...]:
    return {"sigv4": ("region", "access_key", "secret_key"), "bearer": ("token",)}.get(preset.auth["kind"], ("key",))


# --- live ----------------------------------------------------------------------------------------------------


@contextmanager
def _chroma(folder: Path) -> Iterator[Typed]:
    with chroma(folder) as url, embedder() as vectors:
        collection(url, "docs")
        yield Typed(url=url, options={"collection": "docs"}, embeddings=(f"{vectors.url}/v1", MODEL), query=SOC2)


@contextmanager
def _haystack(folder: Path) -> Iterator[Typed]:
    corpus = write_corpus(folder.with_suffix(".jsonl"))
    wrapper = (PROGRAMS / "haystack_wrapper.py").read_text(encoding="utf-8").replace("CORPUS", str(corpus))
    body = {"name": "docs", "files": {"pipeline_wrapper.py": wrapper}, "overwrite": True, "save_files": False}
    with hayhooks(folder) as url:
        httpx2.post(f"{url}/deploy_files", json=body, timeout=30, trust_env=False).raise_for_status()
        yield Typed(url=url, options={"pipeline": "docs"}, query=SOC2)


@contextmanager
def _langserve(folder: Path) -> Iterator[Typed]:
    with langserve(folder, write_corpus(folder.with_suffix(".jsonl"))) as url:
        yield Typed(url=f"{url}/search/invoke", query=SOC2)


@contextmanager
def _mcp(folder: Path) -> Iterator[Typed]:
    with mcp(folder, write_corpus(folder.with_suffix(".jsonl"))) as url:
        yield Typed(url=url, tool="search", query=SOC2)


@contextmanager
def _pgvector(_folder: Path) -> Iterator[Typed]:
    with database() as server, embedder() as vectors:
        indexed(server, "chunks")
        yield Typed(
            url=server.url,
            options={"table": "chunks"},
            embeddings=(f"{vectors.url}/v1", MODEL),
            auth={"user": READER, "password": PASSWORD},
            query=SOC2,
        )


SERVERS = {"chroma": _chroma, "haystack": _haystack, "langserve": _langserve, "mcp": _mcp, "pgvector": _pgvector}


@pytest.mark.systems(seconds=30)
@pytest.mark.parametrize("name", SERVERS)
def test_a_preset_is_set_up_set_up_at_the_real_server(
    chromium: Browser, sqlite_store: Store, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    text = next(one.text for one in CORPUS if one.id == WITHDRAWN)
    with SERVERS[name](folder) as typed:
        mapped(name, walked(chromium, sqlite_store, name, typed, text[:60]))


def test_the_presets_walked_here_are_all_there_are() -> None:
    assert {*SHAPE_ONLY, *SERVERS, "generic"} == PRESETS.keys()
    assert {*SERVERS, "generic"} == set(LIVE_ONES)  # generic: test_browser_wizard walks it by pointing
