"""The page "Your own collection in ten minutes", run as it stands, each of its ways on a service of its own."""

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import opened
from tests.support.doc_pages import Block, Shell, blocks, is_shown, opened_shell, pages
from tests.support.embedder import MODEL, embedder
from tests.support.http_servers import Reply, Seen, peer, reply
from tests.support.living import until
from tests.support.processes import free_ports, listens
from tests.support.servers import chroma

pytestmark = pytest.mark.systems(seconds=70)

PAGE = "docs/ten-minutes.md"
START, QUESTIONS, ALERT = "1. An empty service and a receiver", "2. Questions", "4. An alert"
IN_THE_BROWSER, AS_FILES, BY_REST = "3a. In the browser", "3b. As files", "3c. By REST"
ANY_JSON, BEIR, DRAFTED = "Any JSON over HTTP", "Questions in BEIR format", "No questions yet"
NOT_RUN = {
    "make install": "installs with pip; the environment of the tests is what it makes",
    "export CHROMA_URL": "names the reader's servers; those of the test have other addresses",
    "export MODEL_URL": "the same",
}
"""How blocks begin that are not run, with the reason."""
ENDLESS = {"COALMINE_HOOK_ALLOW": "service.log", "python3 listen.py": "received", "python3 search.py": "asked"}
"""How blocks begin that run until the reader stops them, and where their output goes."""
ASKING = ".venv/bin/coalmine accept"
"""Begins the one command that asks its reader."""
EMPTY_INDEX = "python3 index.py"


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Somebody who follows the page: a folder, a shell in it, and ports for those of the page."""

    folder: Path
    shell: Shell
    port: int
    hook: int
    search: int

    @property
    def address(self) -> str:
        """Of the service."""
        return f"http://127.0.0.1:{self.port}"

    def follow(self, heading: str) -> None:
        """Save the files of a section and run its commands; each must write what the page shows."""
        for block in section(heading):
            text = block.text.replace("8080", str(self.port)).replace("9999", str(self.hook))
            text = text.replace("9998", str(self.search))
            if block.file is not None:
                file = self.folder / block.file
                file.parent.mkdir(exist_ok=True)
                file.write_text(text, encoding="utf-8")
            if block.language != "sh" or block.first.startswith(tuple(NOT_RUN)):
                continue
            log = next((log for start, log in ENDLESS.items() if block.first.startswith(start)), None)
            if log is not None:
                text = f"{text.rstrip()} >{log} 2>{log}.errors &\nbehind+=($!)\n"
            if block.first.startswith(ASKING):
                text = f"printf '\\nn\\n\\n' | {text}"  # Enter, n, Enter
            written = self.run(text)
            assert block.shown is None or is_shown(block.shown, written), f"{block.place} wrote\n{written}"

    def run(self, commands: str) -> str:
        """Run commands to their end; gives what they wrote."""
        code, written, errors = self.shell.run(commands)
        assert code == 0, f"{commands}\nended with {code}\n{written}\n{errors}"
        return written

    def receives(self, message: str) -> None:
        """Wait until the receiver has printed this."""
        received = self.folder / "received"
        until(lambda: is_shown(f"...{message}...", received.read_text(encoding="utf-8")), seconds=60)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """Start Chroma and an embedder, and open a shell that knows them; what it starts ends with it."""
    for name in ("server", "clone"):
        (tmp_path / name).mkdir()
    folder = tmp_path / "clone"
    (folder / ".venv").symlink_to(sys.prefix)
    with chroma(tmp_path / "server") as url, embedder() as embeddings:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "CHROMA_URL": url,
            "EMBEDDINGS_URL": f"{embeddings.url}/v1",
            "EMBEDDINGS_MODEL": MODEL,
        }
        with opened_shell(folder, environment) as shell:
            reader = Reader(folder=folder, shell=shell, port=free_ports(), hook=free_ports(), search=free_ports())
            reader.run("behind=(); trap 'kill \"${behind[@]}\"; wait' EXIT")
            yield reader


@pytest.mark.parametrize("way", [IN_THE_BROWSER, AS_FILES, BY_REST])
def test_each_way_leads_from_an_empty_service_to_an_alert_and_its_end(
    way: str, reader: Reader, request: pytest.FixtureRequest
) -> None:
    reader.follow(START)
    until(lambda: listens(reader.port) and listens(reader.hook), seconds=60)
    reader.follow(QUESTIONS)
    reader.run(EMPTY_INDEX)
    if way == IN_THE_BROWSER:
        click_through(request.getfixturevalue("chromium"), reader)
    reader.follow(way)
    reader.follow(ALERT)
    (message,) = [block.text.strip() for block in section(ALERT) if block.language == ""]
    reader.receives(message)
    reader.run(f"{EMPTY_INDEX}; run; run")
    reader.receives("alert.resolved handbook-chroma:")
    if way == AS_FILES:  # once, because commands take long
        reader.follow(BEIR)


def test_a_folder_of_documents_becomes_canaries_that_a_check_asks(reader: Reader) -> None:
    def write(seen: Seen) -> Reply:
        text = json.loads(seen.body)["messages"][1]["content"].partition("text>>>\n")[2]
        query = json.dumps({"query": f"What of {' '.join(text.split()[:3]).lower()}?"})
        return reply(json.dumps({"choices": [{"message": {"content": query}}]}).encode())

    reader.follow(START)
    until(lambda: listens(reader.port) and listens(reader.hook), seconds=60)
    reader.follow(QUESTIONS)
    reader.run(EMPTY_INDEX)
    reader.follow(AS_FILES)
    with peer(write) as model:
        reader.run(f"export MODEL_URL={model.url} MODEL=small")
        reader.follow(DRAFTED)
    made = yaml.safe_load((reader.folder / "drafted.yaml").read_text("utf-8"))["canaries"]
    assert len(made) == 2, "one of the three was dropped"
    run = reader.run(f"curl -sS {reader.address}/v1/checks/drafted/health")
    assert json.loads(run)["verdict"] == "healthy", run


def test_an_api_without_a_preset_is_connected_by_pointing_at_its_answer(chromium: Browser, reader: Reader) -> None:
    reader.follow(START)
    until(lambda: listens(reader.port) and listens(reader.hook), seconds=60)
    reader.follow(QUESTIONS)
    reader.follow(ANY_JSON)
    until(lambda: listens(reader.search), seconds=60)
    with opened(chromium, reader.address) as tab:
        for step in (point_at_an_answer, import_questions, make_a_hook, make_the_check):
            tab.open("/")
            step(tab.page, reader)
        expect(tab.page.get_by_role("heading", name="handbook-search", exact=True)).to_be_visible()
        expect(tab.page.locator(".headline.healthy")).to_be_visible()


def test_what_is_not_run_or_never_ends_is_still_on_the_page() -> None:
    firsts = [block.first for block in blocks(PAGE)]
    assert [start for start in (*NOT_RUN, *ENDLESS) if not any(one.startswith(start) for one in firsts)] == []


def test_every_section_of_the_page_is_followed() -> None:
    followed = {START, QUESTIONS, IN_THE_BROWSER, AS_FILES, BY_REST, ALERT, ANY_JSON, BEIR, DRAFTED}
    assert {block.heading for block in blocks(PAGE)} <= followed
    assert all(f"## {heading}\n" in pages()[PAGE] for heading in followed)


def section(heading: str) -> list[Block]:
    """Give the blocks below a heading."""
    return [block for block in blocks(PAGE) if block.heading == heading]


# --- the way through the browser -------------------------------------------------------------------------------------


def click_through(chromium: Browser, reader: Reader) -> None:
    """Do what the steps of the page say, by the names they say."""
    with opened(chromium, reader.address) as tab:
        for step in (connect_a_retriever, import_questions, make_a_hook, make_the_check):
            tab.open("/")
            step(tab.page, reader)
        expect(tab.page.get_by_role("heading", name="handbook-chroma", exact=True)).to_be_visible()


def connect_a_retriever(page: Page, reader: Reader) -> None:
    link(page, "Connect a retriever")
    page.get_by_role("link", name="chroma").first.click()
    page.get_by_label("Name", exact=True).fill("chroma")
    environment = {"URL": "CHROMA_URL", "Embeddings URL": "EMBEDDINGS_URL", "Model": "EMBEDDINGS_MODEL"}
    for label, variable in environment.items():
        page.get_by_label(label, exact=True).fill(reader.run(f"echo ${variable}").strip())
    page.get_by_label("Collection", exact=True).fill("handbook")
    page.get_by_label("Query", exact=True).fill("How long is parental leave?")
    button(page, "Send")
    expect(page.get_by_role("main")).to_contain_text("sixteen weeks")
    button(page, "Save the retriever")
    expect(page.get_by_role("heading", name="chroma", exact=True)).to_be_visible()


def point_at_an_answer(page: Page, reader: Reader) -> None:
    link(page, "Connect a retriever")
    page.get_by_role("link", name="generic").first.click()
    page.get_by_label("Name", exact=True).fill("search")
    page.get_by_label("URL", exact=True).fill(written("http://127.0.0.1:9998/").replace("9998", str(reader.search)))
    page.get_by_label(named("Body as JSON")).fill(written('{"question": "{{ query }}", "most": "{{ k }}"}'))
    page.get_by_label("Query", exact=True).fill("How long is parental leave?")
    button(page, "Send")
    expect(page.get_by_role("group", name=named("Paths"))).to_be_visible()
    for field, name in {"hits": "found", "id": "key", "score": "closeness", "text": "body", "document": "file"}.items():
        expect(page.locator(f'[name="pointing"][value="{field}"]')).to_be_checked()
        page.locator("button.node").filter(has=page.locator(".name", has_text=written(name))).first.click()
        expect(page.locator(f'[name="response.{field}"]')).to_have_value(name if field != "document" else "of.file")
    expect(page.locator("#preview")).to_contain_text("sixteen weeks")
    button(page, "Save the retriever")
    expect(page.get_by_role("heading", name="search", exact=True)).to_be_visible()


def make_a_hook(page: Page, reader: Reader) -> None:
    link(page, "Notify")
    link(page, "New hook")
    page.get_by_role("link", name=re.compile("^webhook ")).click()
    page.get_by_label("Name", exact=True).fill("ops")
    page.get_by_label("Address", exact=True).fill(f"http://127.0.0.1:{reader.hook}/")
    button(page, "Generate a secret")
    button(page, "Create hook")
    expect(page.get_by_role("heading", name="ops", exact=True)).to_be_visible()


def import_questions(page: Page, reader: Reader) -> None:
    link(page, "Questions")
    link(page, "Import a suite")
    page.get_by_label("Suite name").fill("handbook")
    page.get_by_label("Or paste the text").fill((reader.folder / "questions.csv").read_text(encoding="utf-8"))
    button(page, "Preview")
    button(page, "Import")
    expect(page.get_by_role("heading", name="handbook", exact=True)).to_be_visible()


def make_the_check(page: Page, _reader: Reader) -> None:
    link(page, "Questions")
    page.get_by_role("link", name=written("handbook"), exact=True).click()
    link(page, "New check")
    page.get_by_role("checkbox", name="ops").check()
    button(page, "Save the check")


def link(page: Page, name: str) -> None:
    """Follow a link that the page of the documentation names."""
    page.get_by_role("link", name=named(name)).first.click()


def button(page: Page, name: str) -> None:
    """Press a button that the page of the documentation names."""
    page.get_by_role("button", name=named(name), exact=True).click()


def written(text: str) -> str:
    """Give a text back that a reader types, or a name that is pressed; the documentation must have it as code."""
    assert f"`{text}`" in re.sub(r"\s+", " ", pages()[PAGE])
    return text


def named(name: str) -> str:
    """Give the name back; the documentation must have it in bold."""
    assert f"**{name}**" in re.sub(r"\s+", " ", pages()[PAGE])
    return name
