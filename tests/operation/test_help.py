"""Help: the documentation as pages, the chapter about each page, and headings that the search finds."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from fastapi.routing import iter_route_contexts

from app.base.api.requests import below
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.reports.pages import documentation
from app.reports.pages.navigation import CHAPTERS, MENU, TASKS
from tests.support.api_service import BASE, Api
from tests.support.asgi_client import TestClient
from tests.support.filled_service import app_of, filled_api, names_of
from tests.support.html_pages import Page
from tests.support.pages_service import Site, page, site
from tests.support.processes import ROOT

HTML = {"accept": "text/html"}
NO_PAGES = (
    "/v1/",
    "/static",
    "/help",
    "/badge/",
    "/public/",
    "/openapi.json",
    "/metrics",
    "/livez",
    "/readyz",
    "/cron-",
    "/login",
)
"""Help itself, and what is read by programs or by people who are not signed in: no page with a menu."""


@pytest.fixture(scope="module")
def pages(shared_stores: Callable[[], Store]) -> Site:
    return site(shared_stores())


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with filled_api(tmp_path_factory.mktemp("help")) as service:
        yield service


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Let the folder of the documentation be missing."""
    monkeypatch.setattr(documentation, "FOLDER", tmp_path / "docs")
    documentation.files.cache_clear()
    yield
    documentation.files.cache_clear()


def ids(shown: Page) -> set[str]:
    return {identifier for one in shown.elements if (identifier := one.get("id"))}


def test_every_page_is_reached_from_the_first_and_every_link_and_picture_is_there(pages: Site) -> None:
    client = pages.client()
    waiting, met = ["/help"], dict[str, Page]()
    wanted: set[tuple[str, str, str]] = set()
    while waiting:
        address = waiting.pop()
        if address in met:
            continue
        answer = client.get(address)
        assert answer.status_code == 200, address
        is_page = answer.headers["content-type"].startswith("text/html")
        met[address] = Page(answer.text if is_page else "")
        article = answer.text[answer.text.find("<article") : answer.text.find("</article>")] if is_page else ""
        for link in re.findall(r'(?:href|src)="([^"]+)"', article):
            target = urlsplit(urljoin(address, link))
            if not target.netloc:
                assert target.path.startswith("/help"), f"{address}: {link}"
                wanted.add((address, target.path, target.fragment))
                waiting.append(target.path)
    assert [one for one in sorted(wanted) if one[2] and one[2] not in ids(met[one[1]])] == []
    files = {one.relative_to(ROOT / "docs").as_posix() for one in (ROOT / "docs").rglob("*.md")}
    shown = {"README.md" if one == "/help" else f"{one.removeprefix('/help/')}.md" for one in met}
    assert files <= shown
    assert len(wanted) > 150


def test_every_page_has_a_chapter_about_it_that_is_there(filled: Api) -> None:
    client, names = TestClient(app_of(filled), base_url=BASE, headers=HTML, follow_redirects=True), names_of(filled)
    routes = {str(one.path) for one in iter_route_contexts(app_of(filled).routes) if "GET" in (one.methods or ())}
    addresses = [names.address(f"/v1{one}").removeprefix("/v1") for one in routes if not one.startswith(NO_PAGES)]
    led: dict[str, str] = {}
    for address in addresses + [one.address.partition("#")[0] for places in MENU.values() for one in places]:
        answer = client.get(address)
        if answer.headers.get("content-type", "").startswith("text/html") and answer.is_success:
            assert 'title="Help on this page"' in answer.text, address
            led[urlsplit(str(answer.url)).path] = Page(answer.text).one("a", title="Help on this page").get("href")
    assert len(led) > 40
    assert {one for one, chapter in led.items() if chapter == "/help"} == set()
    assert {one.partition("/help/")[2] for one in led.values()} >= {"pages#looking", "detection", "api", "presets"}
    for chapter in {*led.values(), *(f"/help/{one}" for one in CHAPTERS.values())}:
        target, _, anchor = chapter.partition("#")
        shown = page(client.get(target))
        assert not anchor or anchor in ids(shown), chapter


def test_no_chapter_is_hidden_by_one_before_it() -> None:
    patterns = [re.compile(one.replace("*", ".*")) for one in CHAPTERS]
    hidden = [
        later
        for place, later in enumerate(CHAPTERS)
        if any(earlier.fullmatch(later.replace("*", "x")) for earlier in patterns[:place])
    ]
    assert hidden == []


def test_a_page_is_markdown_as_github_shows_it_within_the_policy_of_all_pages(pages: Site) -> None:
    source = pages.page("/help/operations").text
    shown = pages.page("/help/operations")
    assert [one.text for one in shown.all("h1")] == ["Operations"]
    assert "sign-in-by-a-proxy" in ids(shown)
    assert "](" not in source
    assert "```" not in source
    for name in sorted(documentation.files()):
        if name.endswith(".md"):
            text = pages.client().get(documentation.address_of(name.removesuffix(".md"))).text
            assert "style=" not in text, name
            assert text.count("<table>") == text.count('<div class="scroll" tabindex="0" role="group"'), name
            assert "<pre>" not in text, name


def test_a_page_of_marks_and_hostile_links_is_only_what_markdown_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.png").touch()
    (tmp_path / "README.md").write_text("# All")
    (tmp_path / "sub/README.md").write_text("# Sub")
    (tmp_path / "sub/one.md").write_text(
        "# One `x`\n\n## Why (not)?\n\n## Why (not)?\n\n<script>alert(1)</script> ~~old~~\n\n"
        "[up](../README.md) [sub](../sub#a) [self](#why-not-1) [code](../../app/main.py) [bad](javascript:alert(1)) "
        "[out](https://example.com/) ![pic](../images/a.png) ![lost](/etc/passwd) ![far](https://x.test/a.png) "
        "[![pic](../images/a.png)](../../app) [mail](mailto:a@x.test)\n\n"
        "| a | b |\n|--:|:--|\n| 1 | 2 |\n"
    )
    monkeypatch.setattr(documentation, "FOLDER", tmp_path)
    documentation.files.cache_clear()
    try:
        made = documentation.read.__wrapped__("sub/one", "/coalmine")
    finally:
        documentation.files.cache_clear()
    assert (made.title, [one.anchor for one in made.headings]) == ("One x", ["one-x", "why-not", "why-not-1"])
    body = str(made.body)
    assert "<script" not in body
    assert "<h1" not in body
    assert re.findall(r'href="([^"]+)"', body) == [
        "/coalmine/help",
        "/coalmine/help/sub/README#a",
        "#why-not-1",
        "https://example.com/",
    ]
    assert re.findall(r'src="([^"]*)"', body) == ["/coalmine/help/images/a.png"] * 2
    assert "code" in body
    assert "lost far" in body
    assert '<td class="number">1</td>' in body
    assert "style" not in body
    assert below("/coalmine", made.headings[1].address) == "/coalmine/help/sub/one#why-not"


@pytest.mark.parametrize(
    "name", ["nothing", "../pyproject.toml", "..%2fpyproject.toml", "%2fetc%2fpasswd", "rules.md/x"]
)
def test_nothing_outside_the_documentation_is_shown(pages: Site, name: str) -> None:
    answer = pages.client().get(f"/help/{name}")
    assert answer.status_code == 404
    assert "flit" not in answer.text


def test_a_file_of_the_documentation_is_sent(pages: Site) -> None:
    sent = pages.client().get("/help/assignment-vectors.json")
    assert sent.content == (ROOT / "docs/assignment-vectors.json").read_bytes()
    assert pages.client().get("/help/images/check.png").headers["content-type"] == "image/png"


def test_help_is_for_whoever_is_signed_in_and_for_annotators(sqlite_store: Store) -> None:
    guarded = site(sqlite_store)
    keyed = {scope: guarded.key(scope) for scope in (Scope.ADMIN, Scope.READ, Scope.ANNOTATE)}
    assert guarded.client().get("/help").headers["location"] == "/login?next=%2Fhelp"
    assert not page(guarded.client().get("/login")).all("a", title="Help on this page")
    for key in keyed.values():
        assert guarded.signed_in(key).get("/help/rules").status_code == 200
    annotated = page(guarded.signed_in(keyed[Scope.ANNOTATE]).get("/annotate"))
    assert annotated.one("a", title="Help on this page").get("href") == "/help/annotation#annotating"


@pytest.mark.usefixtures("not_installed")
def test_without_documentation_help_says_so_and_nothing_leads_there(pages: Site) -> None:
    assert "The documentation is not installed here." in pages.page("/help").text
    assert pages.client().get("/help/rules").status_code == 404
    shown = pages.page("/")
    assert not shown.all("a", title="Help on this page")
    assert "In the documentation" not in pages.page("/search?q=silences and alerts").text


def test_the_search_lists_headings_of_the_documentation_below_its_own_results(pages: Site) -> None:
    shown = pages.page("/search?q=silences")
    links = [one.get("href") for one in shown.all("a") if one.get("href").startswith(("/silences", "/help/"))]
    assert links.index("/help/rules#silences-and-maintenance-windows") > links.index("/silences")
    assert "Silences and maintenance windows in Rules and alerts" in shown.text
    by_title = pages.page("/search?q=diagnosis causes")
    assert by_title.all("a", href="/help/diagnosis#causes")
    assert "Nothing is called that" not in by_title.text
    first = [one.get("href") for one in pages.page("/search?q=alerts").all("a") if one.get("href").startswith("/help/")]
    assert first[1] == "/help/rules", "the page of that title, behind the help on the search itself"
    assert len(first) == 6
    assert pages.client().get("/search?q=help", follow_redirects=False).headers["location"] == "/help"
    assert any(one.address == "/help" for one in TASKS)
