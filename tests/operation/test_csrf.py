"""The token of a session: in the bodies of forms and in a header, and in no address."""

import re
from collections.abc import Iterator
from urllib.parse import urldefrag

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.web.pages import STATIC
from tests.support.asgi_client import TestClient
from tests.support.html_pages import Page
from tests.support.pages_service import HTML, Site, csrf, page, site
from tests.support.world import canary
from tests.support.world import page as canary_page

TEMPLATES = sorted(file for file in STATIC.parents[2].rglob("*.html") if file.parent.name == "templates")
FORM = re.compile(r'<form\b[^>]*method="post".*?</form>', re.DOTALL)
TOKEN_INPUT = '<input type="hidden" name="csrf" value="{{ csrf }}" autocomplete="off">'
TOKEN_BUTTON = '<button name="csrf" value="{{ csrf }}"'
HOLDERS = {
    ("meta", "csrf", "content"),
    ("input", "csrf", "value"),
    ("button", "csrf", "value"),
    ("body", "", "data-csrf"),
}
START = ("/", "/checks/watch", "/alerts", "/docs", "/deliveries", "/hooks", "/silences", "/suites", "/retrievers")


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over a check with a degraded canary and a firing alert."""
    made = site(sqlite_store)
    made.world.apply(canary_page([canary("a"), canary("b")]))
    made.world.run()
    made.world.probe.all_miss()
    made.world.run()
    made.world.run()
    return made


def test_every_form_of_a_template_posts_the_token_in_its_body() -> None:
    forms = [(path.name, form) for path in TEMPLATES for form in FORM.findall(path.read_text())]
    assert len(forms) > 20
    without = [(name, form[:80]) for name, form in forms if TOKEN_INPUT not in form and TOKEN_BUTTON not in form]
    assert {name for name, _ in without} == {"login.html"}, without
    by_button = [form for _, form in forms if TOKEN_INPUT not in form and TOKEN_BUTTON in form]
    assert all('hx-params="not csrf"' in form for form in by_button), "the fields of a preview stand in its address"


def test_no_template_and_no_script_writes_the_token_into_an_address() -> None:
    for path in [*TEMPLATES, *STATIC.glob("*.js")]:
        assert not re.search(r"[?&]csrf|csrf=|csrf \| urlencode|searchParams.*csrf", path.read_text()), path.name


@pytest.mark.systems
def test_no_page_of_a_session_links_to_its_token(pages: Site) -> None:
    client = pages.signed_in(pages.key(Scope.ADMIN))
    token = csrf(client)
    walked = dict(_walk(client))
    assert {"/runs/1", "/alerts/1", "/checks/watch/canaries/a", "/new-silence"} <= {
        one.partition("?")[0] for one in walked
    }
    for address, shown in walked.items():
        held = {
            (element.tag, element.get("name"), attribute)
            for element in shown.elements
            for attribute, value in element.attributes.items()
            if token in value
        }
        assert held <= HOLDERS, address
        assert token not in shown.text, address


@pytest.mark.systems
def test_a_form_with_the_token_in_its_address_is_refused_wherever_it_goes(pages: Site) -> None:
    client = pages.signed_in(pages.key(Scope.ADMIN))
    token = csrf(client)
    before = pages.world.dump()
    paths = [path for path in _posts(pages.app()) if path != "/login"]
    assert len(paths) > 25
    for path in paths:
        answers = [
            client.post(f"{path}?csrf={token}"),
            client.post(f"{path}?csrf={token}", data={"csrf": token}),
            client.post(f"{path}?csrf={token}", headers={"x-csrf-token": token}),
            client.post(path, data={"csrf": "guessed"}),
            client.post(path, data={"csrf": ""}),
            client.post(path, files={"csrf": ("csrf", token)}),
            client.post(path),
        ]
        assert all(answer.status_code in {400, 403} for answer in answers), path
        assert [answer.status_code for answer in answers[:4]] == [403] * 4, path
    assert pages.world.dump() == before


def test_a_session_acts_by_the_body_of_a_form_or_by_the_header(pages: Site) -> None:
    client = pages.signed_in(pages.key(Scope.WRITE))
    token = csrf(client)
    for sent in ({"data": {"csrf": token}}, {"files": {"csrf": (None, token)}}, {"headers": {"x-csrf-token": token}}):
        assert client.post("/checks/watch/runs", **sent).status_code == 303, sent


def test_the_api_takes_the_token_by_header_alone(pages: Site) -> None:
    client = pages.signed_in(pages.key(Scope.WRITE))
    token = csrf(client)
    assert client.post("/v1/checks/watch/runs", data={"csrf": token}).status_code == 403
    assert client.get(f"/v1/checks?csrf={token}").status_code == 422
    assert client.post(f"/v1/checks/watch/runs?csrf={token}", headers={"x-csrf-token": token}).status_code == 403


def test_a_form_of_a_session_holds_no_more_than_its_route_takes(pages: Site) -> None:
    client = pages.signed_in(pages.key(Scope.WRITE))
    note = {"note": "seen", "csrf": csrf(client)}
    many = {**note, **{f"more{place}": "" for place in range(4)}}
    assert client.post("/alerts/1/acknowledge", data=many).status_code == 400
    assert client.post("/alerts/1/acknowledge", data=note).status_code == 303


def _posts(app: FastAPI) -> list[str]:
    """List the addresses of pages that take forms, with 1 in the place of every parameter."""
    routes = [one for one in iter_route_contexts(app.routes) if one.methods is not None and "POST" in one.methods]
    paths = [re.sub(r"\{[^}]*\}", "1", str(one.path)) for one in routes]
    return [path for path in paths if not path.startswith("/v1/")]


def _walk(client: TestClient, most: int = 150) -> Iterator[tuple[str, Page]]:
    """Follow the links of pages to pages, each address once."""
    left, known = list(START), set(START)
    while left and most:
        address = left.pop(0)
        answer = client.get(address, headers=HTML)
        if answer.status_code != 200 or not answer.headers["content-type"].startswith("text/html"):
            continue
        most -= 1
        shown = page(answer)
        yield address, shown
        links = [urldefrag(one.get("href")).url for one in shown.all("a")]
        new = [one for one in dict.fromkeys(links) if one.startswith("/") and one not in known]
        known.update(new)
        left += new
