"""The README tells the truth: about settings, commands, files and the example it shows."""

import re
from dataclasses import fields
from pathlib import Path

import typer.main

from app.cli import app as command_line
from app.config import PREFIX, Settings
from app.formats.canary_files import read_canary_files
from app.formats.presets import PRESETS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_setting_is_documented() -> None:
    missing = [name for field in fields(Settings) if f"`{(name := PREFIX + field.name.upper())}`" not in README]
    assert missing == []


def test_every_documented_setting_exists() -> None:
    known = {PREFIX + field.name.upper() for field in fields(Settings)} | {"COALMINE_API_KEY", "COALMINE_BENCH_STUB"}
    assert set(re.findall(r"COALMINE_[A-Z_]*[A-Z]", README)) <= known


def test_every_command_named_exists() -> None:
    known = set(typer.main.get_group(command_line).commands)
    named = set(re.findall(r"coalmine ([a-z]+)", README))
    assert named
    assert named <= known


def test_the_example_canary_file_can_be_used() -> None:
    example = next(block for block in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "suite:" in block)
    text = "\n".join(line.removeprefix("   ") for line in example.splitlines())
    environment = {"SEARCH_TOKEN": "t", "OPS_WEBHOOK": "https://ops.example.com/", "OPS_SECRET": "whsec_" + "ab" * 20}
    documents = read_canary_files([("search.yaml", text)], environment, None)
    assert [canary.key for canary in documents.suites[0].canaries or ()] == ["parental-leave", "expense-limit"]


def test_every_preset_is_in_the_table_and_has_an_example_that_can_be_used() -> None:
    blocks = [block for block in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if block.startswith("retrievers:")]
    shown: set[str] = set()
    for block in blocks:
        environment = dict.fromkeys(re.findall(r"\$\{([A-Z_]+)\}", block), "secret-of-a-test")
        documents = read_canary_files([("README.md", block)], environment, None)
        shown |= {retriever.preset for retriever in documents.retrievers}
    assert shown == set(PRESETS)
    table = {
        name for row in re.findall(r"^\| (`.*?) \|", README, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    }
    assert set(PRESETS) <= table


def test_every_file_linked_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
