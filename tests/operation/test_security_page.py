"""SECURITY.md names a test for each threat: all of them exist, and each threat has one."""

import re
from collections.abc import Iterator

from tests.support.processes import ROOT

PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def defined_tests() -> set[str]:
    """Name every test there is."""
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py")]
    return {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}


def threats() -> Iterator[tuple[str, str]]:
    """Yield each threat of the tables with what tries it."""
    for row in re.findall(r"^\|(.+)\|$", PAGE.partition("## Who may attack")[2], re.MULTILINE):
        threat, _, tried = (cell.strip() for cell in row.split("|"))
        if threat != "threat" and set(threat) != {"-"}:
            yield threat, tried


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 60
    assert named - defined_tests() == set()


def test_every_threat_is_tried_by_a_test() -> None:
    untried = [threat for threat, tried in threats() if not re.match(r"`test_\w+`", tried)]
    assert untried == []
    assert len([*threats()]) > 25


def test_every_section_of_threats_says_what_remains() -> None:
    sections = re.split(r"^### ", PAGE.partition("## Who may attack")[2], flags=re.MULTILINE)[1:]
    tables = [section for section in sections if "| threat |" in section]
    assert [section.splitlines()[0] for section in tables if "\nWhat remains: " not in section] == []
    assert len(tables) > 5
