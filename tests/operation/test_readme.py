"""README and docs tell the truth: about settings, commands, presets, routes, messages and where links lead."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer.main
from fastapi.routing import iter_route_contexts

from app.alerts.documents import rules_in_force
from app.base.db.engine import Store
from app.base.values import RuleKind
from app.catalog.documents.canary_files import read_canary_files
from app.cli import app as command_line
from app.config import PREFIX, Settings
from app.retrievers.presets import PRESETS
from tests.support.doc_pages import blocks, pages
from tests.support.pages_service import site
from tests.support.processes import ROOT

TEXT = "\n".join(pages().values())
PRESETS_PAGE = "docs/presets.md"
MOST_LINES = 155
"""Of the README: more takes longer than the five minutes it is for."""
NEXT_TO_SETTINGS = {"COALMINE_API_KEY", "COALMINE_URL"}
"""Variables that are none of the service's: of commands, of the examples in Python."""


def listed_commands() -> dict[str, Any]:
    """Give the commands the help lists, by name; their modules are imported when they are asked for."""
    group = typer.main.get_group(command_line)
    context = typer.Context(group)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}


def test_every_setting_is_documented_once() -> None:
    names = [PREFIX + field.name.upper() for field in fields(Settings)]
    rows = re.findall(r"^\| (`COALMINE_.*?) \|", TEXT, re.MULTILINE)
    told = [name for row in rows for name in re.findall(r"`(COALMINE_[A-Z_]+)`", row)]
    assert sorted(told) == sorted(names)


def test_every_documented_setting_exists() -> None:
    known = {PREFIX + field.name.upper() for field in fields(Settings)} | NEXT_TO_SETTINGS
    assert set(re.findall(r"\bCOALMINE_[A-Z_]*[A-Z]", TEXT)) - {"COALMINE_"} <= known


def test_every_command_named_exists() -> None:
    known = set(listed_commands())
    named = set(re.findall(r"(?<![-\w])coalmine ([a-z]+)", TEXT.replace("-m benchmarks", "")))
    assert named
    assert named <= known


def test_every_command_is_told_of() -> None:
    commands = set(listed_commands())
    assert {name for name in commands if f"coalmine {name}" not in TEXT} == set()


def test_the_example_canary_file_of_the_readme_can_be_used() -> None:
    example = next(block for block in blocks("README.md") if block.language == "yaml")
    environment = {"SEARCH_TOKEN": "t", "OPS_WEBHOOK": "https://ops.example.com/", "OPS_SECRET": "whsec_" + "ab" * 20}
    documents = read_canary_files([("search.yaml", example.text)], environment, None)
    assert [canary.key for canary in documents.suites[0].canaries or ()] == ["trial-length", "rate-limit"]
    (check,) = documents.checks
    assert RuleKind.REGRESSION in {rule.kind for rule in rules_in_force(check.rules)}


def test_the_readme_is_for_five_minutes_and_begins_with_a_picture_of_an_alert() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES
    assert any(re.search(r"!\[An alert, as an? \w+ shows it\]\(docs/images/", line) for line in lines[:20])


def test_every_preset_is_in_the_table_and_has_an_example_that_can_be_used() -> None:
    shown: set[str] = set()
    for block in blocks(PRESETS_PAGE):
        if block.language == "yaml":
            environment = dict.fromkeys(re.findall(r"\$\{([A-Z_]+)\}", block.text), "secret-of-a-test")
            documents = read_canary_files([(block.place, block.text)], environment, None)
            shown |= {retriever.preset for retriever in documents.retrievers}
    assert shown == set(PRESETS)
    rows = re.findall(r"^\| (`.*?) \|", pages()[PRESETS_PAGE], re.MULTILINE)
    assert set(PRESETS) <= {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


# --- links -------------------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """Give the anchors of a page's headings, as the places that show Markdown make them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere() -> None:
    for page in pages():
        links = [link for link in re.findall(r"\]\(([^)\s]+)\)", pages()[page]) if "://" not in link]
        lost = []
        for link in links:
            path, _, anchor = link.partition("#")
            file = ((ROOT / page).parent / path).resolve() if path else ROOT / page
            if not file.exists() or (anchor and anchor not in anchors(file.read_text(encoding="utf-8"))):
                lost.append(link)
        assert lost == [], page


NOT_IN_THE_REPOSITORY = {"deploy/compose/secrets/canaries.env"}
"""What pages tell the reader to make."""


def test_every_file_named_exists() -> None:
    """But for commands of an earlier commit, which is named behind them."""
    named = re.findall(r"`((?:\.ci|app|benchmarks|deploy|docs|migrations|tests)/[\w./-]+)`", TEXT)
    modules = re.findall(r"python -m ([\w.]+)(?![^`\n]*` at [0-9a-f]{8})", TEXT)
    paths = [module.replace(".", "/") for module in modules]
    named += [f"{path}/__main__.py" if (ROOT / path).is_dir() else f"{path}.py" for path in paths]
    named += re.findall(r"python (\w+/[\w/]+\.py)", TEXT)
    assert "app/runs/service/execution.py" in named
    assert [path for path in sorted({*named} - NOT_IN_THE_REPOSITORY) if not (ROOT / path).exists()] == []


def test_every_target_of_make_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", TEXT, re.MULTILINE))
    assert {"run", "test", "test-systems", "install"} <= named
    assert named - targets == set()


def test_every_page_is_in_the_index() -> None:
    index = pages()["docs/README.md"]
    missing = [page for page in pages() if page.startswith("docs/") and page.count("/") == 1]
    assert [page for page in missing if page != "docs/README.md" and f"]({Path(page).name})" not in index] == []


# --- what the program says and has -------------------------------------------------------------------------------


def source() -> str:
    """Give the code with texts that are written over several lines made one."""
    code = "\n".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "app").rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", code)


def test_every_message_that_is_explained_is_one_of_ours() -> None:
    table = pages()["docs/faq.md"].partition("## Messages, and what to do")[2]
    messages = re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)
    assert messages
    code = source()
    parts = [part.strip() for message in messages for part in message.split("...")]
    assert [part for part in parts if part not in code] == []


def test_every_route_named_exists(sqlite_store: Store) -> None:
    app = site(sqlite_store).app()
    known = {re.sub(r"\{[^}]*\}", "{}", str(route.path)) for route in iter_route_contexts(app.routes)}
    assert "/v1/checks/{}" in known
    named = {
        route
        for text in pages().values()
        for route in re.findall(r"\b(?:GET|POST|PUT|DELETE)\s(/[\w/{}-]+\w\}?)", " ".join(text.split()))
    }
    named |= {f"/v1/{name}" for name in re.findall(r"`/v1/(\w+)`", pages()["docs/api.md"])}
    assert named
    assert {route for route in named if re.sub(r"\{[^}]*\}", "{}", route) not in known} == set()


def every_command() -> dict[str, Any]:
    """Give every command that does something, by its words."""
    found: dict[str, Any] = {}
    for name, command in listed_commands().items():
        below = getattr(command, "commands", None)
        found |= {name: command} if below is None else {f"{name} {one}": each for one, each in below.items()}
    return found


def test_the_help_of_every_command_has_examples_that_begin_with_it() -> None:
    for name in every_command():
        command = every_command()[name]
        assert command.help, name
        assert f"coalmine {name}" in (command.epilog or ""), name
