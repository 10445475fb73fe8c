"""Sign-in by a proxy: whose headers are believed, what is smuggled past them, and what a browser may then do."""

import logging
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from app.base.api.trusted_proxies import PeerAddress, TrustedProxies
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.errors import ConfigurationError
from app.base.values import replace
from app.config import load_settings
from tests.support.api_service import bearer
from tests.support.asgi_client import TestClient
from tests.support.fakes import answered, hits
from tests.support.html_pages import Page
from tests.support.pages_service import Site, site
from tests.support.processes import free_ports, started
from tests.support.world import COVERAGE, canary
from tests.support.world import page as canary_page

PROXY, STRANGER = "10.0.0.7", "10.0.1.7"
HOST = "http://127.0.0.1:8000"
OURS = {"origin": HOST}
SCOPES = (("*", Scope.READ), ("ops", Scope.WRITE), ("search, platform", Scope.ADMIN), ("admins", Scope.ADMIN))


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over a check with an open alert, behind a proxy that signs people in."""
    made = site(sqlite_store)
    made.world.apply(canary_page([canary("ant"), canary("bee")], rules=[{**COVERAGE, "open": {"bad": 1, "of": 1}}]))
    made.world.probe.answers = {"ant": answered(hits("nothing"))}
    made.world.run()
    _trust(made)
    return made


def _trust(pages: Site, *networks: str, scopes: Any = SCOPES) -> None:
    state = pages.app().state
    listed = tuple(ip_network(one) for one in networks or ("10.0.0.0/24", "fd00::/64"))
    state.access = replace(state.access, proxies=TrustedProxies(networks=listed, scopes=scopes, public_url=HOST))


class _From:
    """An app that is asked from an address."""

    def __init__(self, app: ASGIApp, peer: str) -> None:
        self._app, self._peer = app, peer

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "client": (self._peer, 50_000) if self._peer else None}, receive, send)


def _client(pages: Site, peer: str = PROXY) -> TestClient:
    app = _From(PeerAddress(pages.app()), peer)
    return TestClient(app, base_url=HOST, headers={"accept": "text/html"}, follow_redirects=False)


def _ask(pages: Site, *headers: tuple[str, str], peer: str = PROXY, path: str = "/v1/checks") -> int:
    return int(_client(pages, peer).get(path, headers=[("accept", "application/json"), *headers]).status_code)


ADA = ("Remote-User", "ada")


def test_whoever_the_proxy_names_reads_and_everybody_else_is_asked_for_a_key(pages: Site) -> None:
    assert _ask(pages, ADA) == 200
    assert _ask(pages) == 401
    assert _ask(pages, ADA, peer="::ffff:10.0.0.7") == 200
    assert _ask(pages, ADA, peer="fd00::7") == 200
    for peer in (STRANGER, "127.0.0.1", "::1", "fd01::7", "testclient", ""):
        assert _ask(pages, ADA, peer=peer) == 401, peer


@pytest.mark.parametrize("name", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Client-IP", "CF-Connecting-IP"])
def test_no_header_makes_a_stranger_the_proxy_or_the_proxy_a_stranger(pages: Site, name: str) -> None:
    value = f"for={PROXY}" if name == "Forwarded" else PROXY
    assert _ask(pages, ADA, (name, value), peer=STRANGER) == 401
    assert _ask(pages, ADA, (name, "203.0.113.9")) == 200


@pytest.mark.parametrize(
    "headers",
    [
        [("Remote_User", "ada")],
        [("X-Remote-User", "ada")],
        [("X-Forwarded-User", "ada")],
        [("Remote-User", "")],
        [("Remote-User", "   ")],
        [("Remote-User", "eve"), ADA],
        [ADA, ADA],
        [("Remote-User", "eve, ada")],
        [("Remote-User", "ada;admins")],
        [("Remote-User", "<script>")],
        [("Remote-User", "a\x7fda")],
        [("Remote-User", "a" * 201)],
        [ADA, ("Remote-Groups", "ops"), ("Remote-Groups", "admins")],
    ],
)
def test_a_name_that_the_proxy_alone_cannot_have_sent_opens_nothing(
    pages: Site, headers: list[tuple[str, str]]
) -> None:
    assert _ask(pages, *headers) == 401


def test_scopes_are_those_of_the_groups_that_the_proxy_names(pages: Site) -> None:
    def may(groups: str) -> str:
        headers = {"remote-user": "ada", "remote-groups": groups, **OURS}
        client = _client(pages)
        if client.get("/keys", headers=headers).status_code == 200:
            return "admin"
        return {303: "write", 403: "read"}[client.post("/checks/watch/runs", headers=headers).status_code]

    assert [may(one) for one in ("", "staff", "ops", "staff, ops", "staff|ops", "admins,ops")] == [
        "read", "read", "write", "write", "write", "admin"
    ]  # fmt: skip
    assert [may(one) for one in ("*", "OPS", "ops admins", "search, platform")] == ["read"] * 4
    _trust(pages, scopes=(("ops", Scope.WRITE),))
    told = _client(pages).get("/v1/checks", headers={"remote-user": "ada", "accept": "application/json"})
    assert (told.status_code, "'ada' is in no group" in told.text) == (403, True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": HOST}, 303),
        ({}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9000"}, 403),
        ({"origin": "https://127.0.0.1:8000"}, 403),
        ({"origin": f"{HOST}.evil.example"}, 403),
        ({"origin": "http://rebound.example", "host": "rebound.example"}, 403),
        ({"sec-fetch-site": "same-origin"}, 403),
        ({"referer": f"{HOST}/checks/watch"}, 403),
    ],
)
def test_no_page_of_another_site_changes_anything_by_a_browser_that_the_proxy_signs_in(
    pages: Site, headers: Mapping[str, str], status: int
) -> None:
    by_ops = {"remote-user": "ada", "remote-groups": "ops", **headers}
    assert _client(pages).post("/checks/watch/runs", headers=by_ops).status_code == status


def test_what_a_person_does_is_under_their_name(pages: Site) -> None:
    raw = {"remote-user": "Åsa Müller", "remote-groups": "ops", **OURS}
    person = [(name.encode(), value.encode()) for name, value in raw.items()]
    assert _client(pages).post("/alerts/1/acknowledge", headers=person).status_code == 303
    said = _client(pages).get("/v1/alerts/1", headers=person).json()
    assert "Åsa Müller" in said["transitions"][-1]["reason"]
    shown = Page(_client(pages).get("/", headers=person).text)
    assert shown.one("span", class_="session").text == "Åsa Müller"
    assert not shown.all("form", action="/logout")
    assert "You are signed in as Åsa Müller" in _client(pages).get("/login", headers=person).text
    missing = _client(pages).get("/nothing", headers=person)
    assert (missing.status_code, "Åsa Müller" in missing.text) == (404, True)


def test_a_key_and_a_session_of_one_go_before_what_the_proxy_says(pages: Site) -> None:
    admin, reader = pages.key(), pages.key(Scope.READ)
    assert _ask(pages, ADA, ("Authorization", f"Bearer {admin}"), path="/keys") == 200
    assert _ask(pages, ("Remote-User", "ada"), ("Authorization", "Bearer nonsense")) == 401
    by_admins = {"remote-user": "ada", "remote-groups": "admins"}
    assert _client(pages).get("/keys", headers=by_admins | bearer(reader)).status_code == 403
    browser = _client(pages)
    assert browser.post("/login", data={"key": admin, "next": "/"}, headers=by_admins).status_code == 303
    assert browser.get("/keys", headers={"remote-user": "ada"}).status_code == 200
    refused = browser.post("/checks/watch/runs", headers={"remote-user": "ada", **OURS})
    assert refused.status_code == 403, "a session needs its token"


def test_without_the_setting_no_header_signs_anybody_in_and_with_it_nobody_is_let_in_without(
    sqlite_store: Store,
) -> None:
    made = site(sqlite_store)
    made.world.apply(canary_page([canary("ant")]))
    assert made.app().state.access.proxies.networks == ()
    assert _ask(made, ADA, peer="127.0.0.1") == 200  # open on loopback, as ever
    made.key()
    assert _ask(made, ADA, peer="127.0.0.1") == 401


def test_an_open_service_is_not_open_behind_a_proxy_that_signs_in(pages: Site) -> None:
    assert _ask(pages, peer="127.0.0.1") == 401
    assert "no key is needed" not in _client(pages).get("/login").text


def test_a_header_of_a_stranger_is_logged_once(pages: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="coalmine.api"):
        for _ in range(3):
            _ask(pages, ADA, peer=STRANGER)
    assert [(one.getMessage(), one.__dict__["peer"]) for one in caplog.records] == [("remote_user_ignored", STRANGER)]


def test_an_app_that_does_not_know_its_peer_believes_nobody(pages: Site) -> None:
    client = TestClient(_From(pages.app(), PROXY), base_url=HOST)
    assert client.get("/v1/checks", headers={"remote-user": "ada", "accept": "application/json"}).status_code == 401


def test_a_real_server_takes_no_forwarded_address_for_that_of_the_proxy(tmp_path: Path) -> None:
    """Of 127.0.0.1 `X-Forwarded-For` is believed for the log."""
    port = free_ports()
    arguments = ("serve", "--port", port, "--data-dir", tmp_path / "data")
    with started(tmp_path, *arguments, COALMINE_TRUSTED_PROXIES="10.0.0.7/32", COALMINE_PUBLIC_URL=HOST) as process:
        process.wait_for("is serving")
        address = f"http://127.0.0.1:{port}/v1/checks"
        spoofed = {"remote-user": "ada", "x-forwarded-for": PROXY}
        assert httpx2.get(address, headers=spoofed).status_code == 401
    with started(tmp_path, *arguments, COALMINE_TRUSTED_PROXIES="127.0.0.1/32", COALMINE_PUBLIC_URL=HOST) as process:
        process.wait_for("is serving")
        assert httpx2.get(address, headers={"remote-user": "ada", "x-forwarded-for": "203.0.113.9"}).status_code == 200
        assert httpx2.get(address).status_code == 401


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRUSTED_PROXIES", "0.0.0.0/0"),
        ("TRUSTED_PROXIES", "::/0"),
        ("TRUSTED_PROXIES", "proxy.internal"),
        ("TRUSTED_PROXIES", "10.0.0.7/24"),
        ("TRUSTED_PROXIES", "*"),
        ("REMOTE_SCOPES", "*"),
        ("REMOTE_SCOPES", "ops=root"),
        ("REMOTE_SCOPES", "=read"),
    ],
)
def test_settings_that_trust_everybody_or_nothing_stop_the_start(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"COALMINE_{name}: must be"):
        load_settings({f"COALMINE_{name}": value})


def test_the_address_that_people_type_has_to_be_known(pages: Site) -> None:
    with pytest.raises(ConfigurationError, match="set COALMINE_PUBLIC_URL"):
        load_settings({"COALMINE_TRUSTED_PROXIES": PROXY})
    assert load_settings({"COALMINE_TRUSTED_PROXIES": PROXY, "COALMINE_PUBLIC_URL": HOST}).public_url == HOST
    proxies = pages.app().state.access.proxies
    proxies.public_url = "https://Ops.example.com:443/coalmine"
    by_ops = {"remote-user": "ada", "remote-groups": "ops"}
    for origin, status in (("https://ops.example.com", 303), ("http://ops.example.com", 403), (HOST, 403)):
        asked = _client(pages).post("/checks/watch/runs", headers={**by_ops, "origin": origin})
        assert asked.status_code == status, origin
