"""A service below a path of its host: nothing it writes leaves that path, whether a proxy takes it off or leaves it."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from fastapi.routing import iter_route_contexts
from starlette.types import ASGIApp, Receive, Scope, Send

from app.base.api import bodies
from app.base.db import keys
from app.base.db.keys import Scope as KeyScope
from app.base.errors import ConfigurationError
from app.base.web.pages import STATIC
from app.config import Settings, load_settings
from app.main import create_app
from tests.support.api_service import BASE, Api, api
from tests.support.asgi_client import TestClient
from tests.support.filled_service import app_of, filled_api, names_of
from tests.support.html_pages import Element, Page

PATH = "/coalmine"
URL = f"{BASE}{PATH}"
HTML = {"accept": "text/html"}
LINKS = ("href", "src", "srcset", "action", "formaction", "hx-get", "hx-post", "hx-put", "hx-delete", "data-follows")


class Proxy:
    """A proxy of a site on which the service has one path; it takes the path off, or leaves it."""

    def __init__(self, app: ASGIApp, *, strips: bool) -> None:
        self._app, self._strips = app, strips

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is below the path."""
        assert scope["path"].startswith(f"{PATH}/"), f"{scope['path']} is not the service's"
        path = scope["path"][len(PATH) :] if self._strips else scope["path"]
        await self._app({**scope, "path": path, "raw_path": path.encode()}, receive, send)


def browser(service: Api, *, strips: bool, base: str = BASE) -> TestClient:
    return TestClient(Proxy(app_of(service), strips=strips), base_url=base, headers=HTML, follow_redirects=False)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with filled_api(tmp_path_factory.mktemp("filled"), public_url=URL) as service:
        yield service


def test_no_page_has_a_link_that_leaves_the_path(filled: Api) -> None:
    client, names = browser(filled, strips=True), names_of(filled)
    pages = [
        route.path
        for route in iter_route_contexts(app_of(filled).routes)
        if "GET" in (route.methods or ()) and not str(route.path).startswith(("/v1/", "/static"))
    ]
    waiting = [PATH + names.address(str(page)) for page in pages]
    assert len(waiting) > 40
    met: set[str] = set()
    while waiting:
        address = waiting.pop()
        if urlsplit(address).path in met:
            continue
        met.add(urlsplit(address).path)
        waiting += _linked(client, address)
    assert f"{PATH}/static/site.css" in met
    assert len(met) > 80, sorted(met)


def test_neither_has_one_where_the_proxy_leaves_the_path(filled: Api) -> None:
    client = browser(filled, strips=False)
    found = _linked(client, f"{PATH}/") + _linked(client, f"{PATH}/checks/docs")
    assert len(found) > 20
    for address in sorted({*found}):
        _linked(client, address)


def _linked(client: TestClient, address: str) -> list[str]:
    """Open an address; gives those it leads to, of which none may leave the path."""
    response = client.get(address)
    assert response.status_code < 500, address
    found = [_below(address, response.headers["location"])] if "location" in response.headers else []
    if response.headers.get("content-type", "").startswith("text/html"):
        below = [(element, _below(address, link)) for element, link in _links(Page(response.text))]
        found += [link for element, link in below if element.get("method") != "post" and "/v1/" not in link]
    return found


def _links(shown: Page) -> Iterator[tuple[Element, str]]:
    for element in shown.elements:
        for name in LINKS:
            link = element.attributes.get(name)
            if link is not None and not link.startswith(("http://judge.test", "https://", "data:")):
                yield element, link


def _below(page: str, link: str) -> str:
    address = urlsplit(urljoin(f"{BASE}{page}", link))
    assert f"{address.scheme}://{address.netloc}" == BASE, f"{page}: {link}"
    assert address.path.startswith(f"{PATH}/"), f"{page}: {link} leaves {PATH}"
    return address.path + (f"?{address.query}" if address.query else "")


def test_scripts_ask_below_the_path(filled: Api) -> None:
    shown = Page(browser(filled, strips=True).get(f"{PATH}/suites").text)
    assert shown.one("html").get("data-path") == PATH
    for script in STATIC.glob("*.js"):
        code = re.sub(r"(?m)(^|\s)//.*$", "", script.read_text(encoding="utf-8"))
        assert not re.findall(r"""["'`]/[a-z].*""", code), script.name
        roots = re.findall(r"\broot = ([^;]+);", code)
        assert set(roots) <= {"document.documentElement.dataset.path"}, script.name


def test_redirects_of_actions_and_locations_of_the_api_stay_below_the_path(filled: Api) -> None:
    client = browser(filled, strips=True)
    headers = {"origin": BASE}
    tested = client.post(f"{PATH}/hooks/ops/test", headers=headers)
    assert (tested.status_code, tested.headers["location"].startswith(f"{PATH}/hooks/ops")) == (303, True)
    begun = client.post(f"{PATH}/v1/checks/docs-hybrid/runs", json={}, headers={"accept": "application/json"})
    assert begun.headers["location"] == f"{PATH}/v1/runs/{begun.json()['id']}"
    assert client.get(begun.headers["location"]).status_code == 200
    lost = client.get(f"{PATH}/checks/docs/baseline")
    assert (lost.status_code, lost.headers.get("location")) == (303, f"{PATH}/checks/docs")


@pytest.mark.parametrize("strips", [True, False], ids=["path taken off", "path left"])
def test_streams_below_the_path_may_be_as_large_as_at_the_root(
    filled: Api,
    monkeypatch: pytest.MonkeyPatch,
    strips: bool,  # noqa: FBT001 - a parameter
) -> None:
    monkeypatch.setattr(bodies, "MAX_BODY_BYTES", 100)
    client = browser(filled, strips=strips)
    lines = b'{"query": "fees"}\n' * 20
    sent = {
        kind: client.post(f"{PATH}/v1/suites/docs/traffic", content=lines, headers={"content-type": kind})
        for kind in ("application/x-ndjson", "application/json")
    }
    assert {kind: one.status_code == 413 for kind, one in sent.items()} == {
        "application/x-ndjson": False,
        "application/json": True,
    }


def test_the_name_of_an_annotator_is_kept_below_the_path(filled: Api) -> None:
    client = browser(filled, strips=True)
    named = client.post(f"{PATH}/tasks/truth/annotate", data={"annotator": "Ada"}, headers={"origin": BASE})
    assert (named.status_code, f"Path={PATH}/tasks;" in named.headers["set-cookie"]) == (303, True)


def test_the_description_names_the_path_and_the_service_answers_at_its_root_too(filled: Api) -> None:
    client = browser(filled, strips=True)
    assert client.get(f"{PATH}/openapi.json").json()["servers"] == [{"url": PATH}]
    direct = TestClient(app_of(filled), base_url=BASE)
    for path in ("/livez", "/readyz", "/metrics", "/v1/checks", PATH, f"{PATH}/", f"{PATH}/v1/checks"):
        assert direct.get(path).status_code == 200, path
    assert direct.get(f"{PATH}ish/").status_code == 404
    nothing = client.get(f"{PATH}/v1/checks/nothing")
    assert (nothing.status_code, nothing.headers["content-type"]) == (404, "application/problem+json")


def test_a_browser_signs_in_and_out_below_the_path_with_a_cookie_of_its_own(tmp_path: Path) -> None:
    with api(tmp_path, public_url=URL) as service:
        key = keys.create_key(service.service.store, name="me", scope=KeyScope.ADMIN, now=datetime.now(UTC))
        client = browser(service, strips=True)
        asked = client.get(f"{PATH}/suites?q=a b")
        assert asked.headers["location"] == f"{PATH}/login?next=%2Fsuites%3Fq%3Da%2520b"
        form = Page(client.get(asked.headers["location"]).text)
        assert form.one("form", id="login").get("action") == f"{PATH}/login"
        typed = {"key": key, "next": form.one("input", name="next").get("value")}
        # Of another service at the root of the host, sent behind ours.
        client.cookies.set("coalmine_session", "another", domain="127.0.0.1", path="/")
        entered = client.post(f"{PATH}/login", data=typed)
        assert f"Path={PATH};" in entered.headers["set-cookie"]
        checked = client.get(entered.headers["location"])
        assert (checked.status_code, checked.headers["location"]) == (303, f"{PATH}/suites?q=a%20b")
        assert client.get(f"{PATH}/suites").status_code == 200
        token = Page(client.get(f"{PATH}/").text).one("meta", name="csrf").get("content")
        by_form = client.post(f"{PATH}/v1/checks/docs/runs", data={"csrf": token})
        assert by_form.status_code == 403, "for the API the token is in a header"
        left = client.post(f"{PATH}/logout", data={"csrf": token})
        assert (left.status_code, left.headers["location"]) == (303, f"{PATH}/login")
        assert f"Path={PATH};" in left.headers["set-cookie"]


@pytest.mark.parametrize("url", ["https://x.example/checks", "https://x.example/v1", "https://x.example/static/a"])
def test_a_path_that_pages_have_themselves_is_refused(filled: Api, url: str) -> None:
    service = filled.service
    settings = Settings(data_dir=service.settings.data_dir, public_url=url)
    taken: Any = type(service)
    parts = {name: getattr(service, name) for name in taken.__dataclass_fields__} | {"settings": settings}
    with pytest.raises(ConfigurationError, match="choose another, such as /coalmine"):
        create_app(taken(**parts))


@pytest.mark.parametrize("url", ["https://x.example/a?b=c", "https://x.example/a#b", "https://x.example/a%20b"])
def test_a_path_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="must be an address such as"):
        load_settings({"COALMINE_PUBLIC_URL": url})
