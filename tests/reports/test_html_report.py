"""The report to print: the numbers of the others, on one page that loads nothing and runs nothing."""

from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from typer.testing import CliRunner

from app.base.db.engine import Store
from app.base.texts import UNDEFINED, measure_words
from app.base.values import Outcome
from app.cli import app as command
from app.records.service import run_views
from app.reports.rendering.reports import report_html, report_markdown
from app.reports.service import reports
from tests.support.browser import inaccessible, opened, served
from tests.support.fakes import answered, failed, hits
from tests.support.html_pages import Page
from tests.support.pages_service import HOSTILE, Site, site
from tests.support.world import COVERAGE, canary, page

ADDRESS = "/v1/runs/1/report?format=html"
A4 = 688
"""Pixels between the margins of a sheet of paper, 182 mm."""


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give a run with a bit of everything: found first, found lower, failed, and with no good answer."""
    found = site(sqlite_store)
    negative = {"key": "dodo", "query": "dodo", "category": "negative"}
    canaries = [canary("ant"), canary("bee"), canary("cow", category="procedural"), negative]
    found.world.apply(page(canaries, rules=[COVERAGE]))
    found.world.probe.answers["bee"] = answered(hits("noise", "doc-bee", scores=[0.2, 0.1]))
    found.world.probe.answers["dodo"] = answered(hits())
    found.world.probe.answers["cow"] = failed(Outcome.TIMEOUT, detail="after 5 s")
    found.world.run()
    return found


def test_it_has_the_numbers_of_the_json(pages: Site) -> None:
    report = run_views.report(pages.world.store, "1")
    run = report["run"]
    shown = Page(pages.client().get(ADDRESS).text)
    tiles = dict(zip([one.text for one in shown.all("dt")], [one.text for one in shown.all("dd")], strict=True))
    assert list(tiles)[:2] == ["NDCG@10", "R@5"], "what is read first comes first"
    assert tiles == {
        **{name: f"{run['measures'][name]:.3f}" for name in ("NDCG@10", "R@5")},
        "First-hit relevance": f"{run['health_score']:.3f}",
        "Coverage": f"2 of 2 {run['coverage']:.3f}",
        "Degraded share": f"{run['degraded_share']:.3f}",
        "Canaries": "4",
        **{name.capitalize(): str(run["canaries"][name]) for name in ("measured", "failed", "undefined", "degraded")},
    }
    tables = {one.get("aria-label"): one.text for one in shown.all("div", role="group")}
    for name, value in run["measures"].items():
        base, _, _ = name.partition("@")
        if value is not None:
            where = "Measures" if "@" in name else "Over the whole ranking"
            head = f"{base if where == 'Measures' else measure_words(base)} "
            lines = [row.text for row in shown.all("tr") if row.text.startswith(head) and row.text in tables[where]]
            assert f"{value:.3f}" in lines[0].split(" "), name
    assert f"simple factual 2 {run['categories']['simple_factual']['coverage']:.3f}" in tables["Categories"]
    assert "dodo" not in tables["Worst canaries"]
    assert tables["Worst canaries"].index("cow") < tables["Worst canaries"].index("bee"), "what failed comes first"
    assert "1 x timeout: after 5 s" in shown.text


def test_it_has_every_number_of_the_markdown(pages: Site) -> None:
    report = reports.load_report(pages.world.store, "1")
    cells = [
        cell.strip().strip("`").replace("\\", "")
        for line in report_markdown(report).splitlines()
        if line.startswith("| ") and "---" not in line
        for cell in line.strip("|").split("|")
    ]
    shown = Page(report_html(report))
    told = [one.text for one in shown.elements if one.tag in {"th", "td"}]
    assert len(cells) > 40
    for cell in cells:
        assert cell in told
        told.remove(cell)


def test_a_category_without_numbers_has_no_table_and_others_theirs(pages: Site) -> None:
    shown = Page(pages.client().get(ADDRESS).text)
    assert [one.text for one in shown.all("h3")] == ["Simple factual"], "cow was not measured, dodo expects nothing"


def test_nothing_is_loaded_or_run_and_only_its_own_style_is_allowed(pages: Site) -> None:
    answer = pages.client().get(ADDRESS)
    shown = Page(answer.text)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert {one.tag for one in shown.elements} & {"script", "link", "img", "iframe", "form", "object", "svg"} == set()
    assert not [
        name for one in shown.elements for name in one.attributes if name in {"style", "src"} or name[:2] == "on"
    ]
    allowed = b64encode(sha256("".join(shown.one("style").pieces).encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert policy == f"default-src 'none'; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'"
    (meta,) = [one for one in shown.all("meta") if one.get("http-equiv")]
    assert meta.get("content") == policy, "a copy that was saved is held to it too"


def test_hostile_queries_ids_texts_and_details_are_only_text(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(page([canary("a", query=HOSTILE), canary("b", query=f"b {HOSTILE}")]))
    hostile = hits(HOSTILE, scores=[0.1], texts={HOSTILE: HOSTILE})
    pages.world.probe.answers[HOSTILE] = answered(hostile, index_version=HOSTILE)
    pages.world.probe.answers[f"b {HOSTILE}"] = failed(Outcome.MALFORMED, detail=HOSTILE)
    pages.world.run(index_version=HOSTILE[:200])
    answer = pages.client().get(ADDRESS)
    shown = Page(answer.text)
    assert not shown.all("script")
    assert not shown.all("img")
    assert "<script" not in answer.text
    assert "alert(1)" in shown.text
    assert "{{ 7*7 }}" in shown.text


def test_what_is_undefined_is_a_dash(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(page([canary("ant")]))
    pages.world.probe.all_fail()
    pages.world.run()
    shown = Page(pages.client().get(ADDRESS).text)
    assert [one.text for one in shown.all("dd")][:3] == [UNDEFINED] * 3
    assert "Unknown: watch" in shown.one("h1").text
    assert "Measures" not in [one.text for one in shown.all("h2")]


def test_the_gate_writes_the_same_page_for_all_it_measured(tmp_path: Path) -> None:
    file = tmp_path / "canaries.yaml"
    file.write_text(
        """
suite: small
canaries: [{key: a, query: alpha, expected_chunks: [doc-alpha]}]
retrievers: [{slug: there, url: "http://127.0.0.1:1/", retries: 0, response: {hits: results, id: id}}]
checks:
  - {slug: one, suite: small, retriever: there, schedule: {every: 1d}}
  - {slug: two, suite: small, retriever: there, schedule: {every: 1d}}
""",
        encoding="utf-8",
    )
    result: Any = CliRunner().invoke(command, ["check", str(file), "--format", "html"])
    assert result.exit_code == 3, result.stderr
    shown = Page(result.stdout)
    assert [one.text for one in shown.all("h1")] == ["Unknown: one", "Unknown: two"]
    assert "unreachable" in shown.text


def test_it_is_styled_in_a_browser_can_be_read_by_everybody_and_prints(
    chromium: Browser, pages: Site, tmp_path: Path
) -> None:
    with served(pages.app()) as address, opened(chromium, address) as tab:
        shown = tab.open(ADDRESS)
        assert shown.evaluate("getComputedStyle(document.querySelector('h1')).fontSize") == "25.6px"
        shown.emulate_media(media="print")
        shown.set_viewport_size({"width": A4, "height": 900})
        wide = (
            "[...document.querySelectorAll('table')].filter((one) => one.scrollWidth > one.parentElement.clientWidth)"
        )
        assert shown.evaluate(f"[document.documentElement.scrollWidth, {wide}.length]") == [A4, 0]
        printed = tmp_path / "report.pdf"
        shown.pdf(path=printed)
        assert printed.read_bytes().startswith(b"%PDF")
        assert inaccessible(shown) == []
