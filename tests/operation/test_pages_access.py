"""Who sees the pages, how one signs in and out, and what every page promises a browser."""

import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.routing import iter_route_contexts
from httpx2 import Response

from app.base.api.requests import SESSION_COOKIE, Attempts
from app.base.db import keys
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.values import replace
from app.base.web.forms import safe_path
from app.base.web.pages import STATIC
from tests.support.fakes import FakeClock
from tests.support.pages_service import HTML, Site, csrf, page, site
from tests.support.world import RETRIEVER, canary
from tests.support.world import page as canary_page

PATHS = (
    "/",
    "/checks/watch",
    "/runs/1",
    "/runs/1?verdict=degraded",
    "/alerts",
    "/retrievers",
    "/retrievers/search/try",
    "/login",
    "/nothing",
)
PROTECTED = ("/", "/checks/watch", "/runs/1", "/alerts?state=firing", "/retrievers/search/try", "/docs")


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over a check that never ran."""
    made = site(sqlite_store)
    made.world.apply(canary_page([canary("a"), canary("b")]))
    return made


@pytest.fixture(scope="module")
def seen(shared_stores: Callable[[], Store]) -> Site:
    """Give the pages over a check with a degraded canary and a firing alert, to tests that only look at it."""
    made = site(shared_stores())
    made.world.apply(canary_page([canary("a"), canary("b")]))
    made.world.run()
    made.world.probe.all_miss()
    made.world.run()
    made.world.run()
    return made


NAMED: dict[str, dict[str, Any]] = {
    "suite": {},
    "retriever": {name: value for name, value in RETRIEVER.items() if name != "slug"},
    "hook": {"kind": "webhook", "url": "https://hooks.test/"},
    "check": {"suite": "new", "retriever": "new", "schedule": {"every": "5m"}},
    "silence": {"all": True, "ends": "2999-01-01T00:00:00Z"},
}


def test_whatever_the_api_lets_a_thing_be_called_it_has_a_page(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    for kind, body in NAMED.items():
        assert pages.client().put(f"/v1/{kind}s/new", json=body).status_code == 201
    for kind in NAMED:
        assert pages.page(f"/{kind}s/new").all("h1")[0].text.startswith("new"), kind


def test_no_page_stands_where_the_page_of_a_thing_may_stand(sqlite_store: Store) -> None:
    routes = [one for one in iter_route_contexts(site(sqlite_store).app().routes) if one.methods is not None]
    paths = {tuple(str(one.path).split("/")[1:]) for one in routes}
    assert {("checks", "{slug}"), ("v1", "checks", "{slug}")} <= paths
    hidden = [
        (page, thing)
        for page in paths
        for thing in paths
        if page != thing
        and len(page) == len(thing)
        and all(here == there or there.startswith("{") for here, there in zip(page, thing, strict=True))
        and not any(here.startswith("{") and here != there for here, there in zip(page, thing, strict=True))
    ]
    assert hidden == [(("runs", "compare"), ("runs", "{run_id}"))]  # whose ids are numbers


def test_every_page_asks_for_a_key_once_one_exists(pages: Site) -> None:
    pages.key()
    client = pages.client()
    for path in PROTECTED:
        answer = client.get(path)
        assert answer.status_code == 303
        to = urlsplit(answer.headers["location"])
        assert to.path == "/login"
        assert parse_qs(to.query).get("next", ["/"]) == [path]


def test_the_api_never_redirects_to_the_form(pages: Site) -> None:
    pages.key()
    for path in ("/v1/checks", "/v1/nothing/else", "/metrics", "/openapi.json"):
        answer = pages.client().get(path, headers=HTML)
        assert answer.status_code in {401, 404}
        assert answer.headers["content-type"] == "application/problem+json"


def test_the_form_says_when_no_key_is_needed(seen: Site) -> None:
    shown = seen.page("/login")
    assert "open to everybody on this machine" in shown.text
    assert not shown.all("input")


def test_whoever_is_signed_in_already_is_told_so_where_one_signs_in(pages: Site) -> None:
    key = pages.key()
    client = pages.signed_in(key)
    shown = page(client.get("/login?next=/alerts"))
    assert "signed in as somebody" in shown.one("main").text
    assert shown.one("a", id="go-on").get("href") == "/alerts"
    keys.revoke_key(pages.world.store, keys.list_keys(pages.world.store)[0].prefix, now=datetime.now(UTC))
    shown = page(client.get("/login?next=/alerts"))
    assert not shown.all("a", id="go-on")
    assert not shown.all("form", class_="session")


def test_a_good_key_opens_a_session_and_leads_back(pages: Site) -> None:
    key = pages.key()
    client = pages.client()
    form = page(client.get("/login?next=/checks/watch%3Frange=7d"))
    assert form.one("input", name="next").get("value") == "/checks/watch?range=7d"
    answer = client.post("/login", data={"key": f" {key}\n", "next": "/checks/watch?range=7d"})
    assert answer.status_code == 303
    assert client.get(answer.headers["location"]).headers["location"] == "/checks/watch?range=7d"
    cookie = _cookie(answer)
    assert cookie["httponly"]
    assert cookie["samesite"] == "strict"
    assert cookie["path"] == "/"
    assert not cookie["secure"]
    assert key not in answer.headers["set-cookie"]
    assert "somebody" in page(client.get("/checks/watch")).one("form", class_="session").text


@pytest.mark.parametrize(
    ("base_url", "public_url"), [("https://127.0.0.1", None), ("http://127.0.0.1", "https://coalmine.test")]
)
def test_the_cookie_is_secure_where_people_use_https(pages: Site, base_url: str, public_url: str | None) -> None:
    pages.public_url = public_url
    answer = pages.client(base_url).post("/login", data={"key": pages.key()})
    assert _cookie(answer)["secure"]


def test_who_signs_in_over_http_where_sessions_are_for_https_is_told_and_shown_the_way(pages: Site) -> None:
    pages.public_url = "https://ops.example.com/coalmine"
    client, key = pages.client("http://ops.internal:8884"), pages.key()
    before = page(client.get("/login?next=/suites")).one("p", id="plain")
    assert before.text.startswith("This page came over http, but sessions of this service are for https alone.")
    answer = client.post("/login", data={"key": key, "next": "/suites"})
    assert _cookie(answer)["secure"], "a browser drops it"
    told = page(client.get(answer.headers["location"].removeprefix("/coalmine")), 401)
    assert told.one("p", id="message").text == (
        "The key is right, but the browser did not keep the session: its cookie is for https alone, and this page "
        "came over http."
    )
    assert told.one("p", id="plain").text == "Sign in over https"
    assert told.all("a", href="https://ops.example.com/coalmine/login?next=%2Fsuites")


def test_a_browser_without_cookies_is_told_so(pages: Site) -> None:
    client, key = pages.client(), pages.key()
    answer = client.post("/login", data={"key": key, "next": "/suites"})
    client.cookies.clear()
    told = page(client.get(answer.headers["location"]), 401).one("p", id="message").text
    assert told.endswith("Allow cookies for this site, then sign in again.")


def test_a_proxy_that_speaks_https_is_no_reason_to_warn(pages: Site) -> None:
    pages.public_url = "https://ops.example.com"
    pages.key()
    warned = {
        ("ops.example.com", "https"): False,
        ("10.0.0.7:8000", "https"): False,
        ("ops.example.com", ""): False,
        ("ops.example.com", "http"): True,
        ("10.0.0.7:8000", ""): True,
        ("localhost:8000", ""): False,
    }
    shown = {}
    for host, forwarded in warned:
        headers = {"host": host} | ({"x-forwarded-proto": forwarded} if forwarded else {})
        shown[host, forwarded] = bool(page(pages.client(**headers).get("/login")).all("p", id="plain"))
        # Whose session was lost is shown the way in any case: the proxy may not say what it got.
        assert page(pages.client(**headers).get("/login?entered=yes"), 401).all("p", id="plain")
    assert shown == warned


def test_a_wrong_key_is_told_so_and_opens_nothing(pages: Site) -> None:
    pages.key()
    for wrong in ("cmk_admin_wrong", "", "ключ", "x" * 5_000):
        answer = pages.client().post("/login", data={"key": wrong, "next": "/alerts"})
        shown = page(answer, 401)
        assert shown.one("p", role="alert").text == "This key is unknown or has been revoked."
        assert shown.one("input", name="next").get("value") == "/alerts"
        assert shown.one("input", name="key").get("value") == ""
        assert "set-cookie" not in answer.headers


def test_guessing_is_slowed_down_for_a_while(pages: Site) -> None:
    key = pages.key()
    client = pages.client()
    clock = FakeClock()
    state = pages.app().state
    state.access = replace(state.access, unknown_keys=Attempts(most=2, clock=lambda: clock().timestamp()))
    codes = [client.post("/login", data={"key": "wrong"}).status_code for _ in range(3)]
    assert codes == [401, 401, 429]
    refused = client.post("/login", data={"key": "wrong again"})
    assert page(refused, 429).one("p", role="alert").text.startswith("Too many failed attempts")
    assert int(refused.headers["retry-after"]) == 2
    assert client.post("/login", data={"key": key}).status_code == 303, "a good key always gets in"
    clock.advance(2)
    assert client.post("/login", data={"key": "wrong"}).status_code == 401


def test_signing_in_never_leads_to_another_site() -> None:
    wanted = [
        "https://evil.test/",
        "//evil.test",
        "/\\evil.test",
        "\\\\evil.test",
        "javascript:alert(1)",
        "evil",
        "",
        "/\t/evil",
    ]
    assert {one: path for one in wanted if (path := safe_path(one)) != "/"} == {}


def test_a_form_of_another_site_signs_nobody_in(pages: Site) -> None:
    key = pages.key()
    for headers in ({"origin": "https://evil.test"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        answer = pages.client(**headers).post("/login", data={"key": key})
        assert page(answer, 403).one("h1").text == "The key lacks the scope"
        assert "set-cookie" not in answer.headers
    for headers in ({"origin": "http://127.0.0.1:8000"}, {"sec-fetch-site": "same-origin"}):
        assert pages.client(**headers).post("/login", data={"key": key}).status_code == 303


def test_a_form_too_large_or_of_unknown_size_is_not_read(pages: Site) -> None:
    pages.key()

    def endless() -> Iterator[bytes]:
        yield b"key=x"

    assert pages.client().post("/login", data={"key": "x" * 9_000}).status_code == 422
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert pages.client().post("/login", content=endless(), headers=form).status_code == 422


def test_a_session_of_a_reading_key_looks_and_touches_nothing(pages: Site) -> None:
    pages.world.run()
    client = pages.signed_in(pages.key(Scope.READ))
    for path in PROTECTED:
        assert client.get(path).status_code == 200
    assert "disabled" in page(client.get("/checks/watch")).one("button", id="run-now").attributes
    answer = client.post("/v1/checks/watch/runs", json={}, headers={"x-csrf-token": csrf(client)})
    assert answer.status_code == 403


@pytest.mark.parametrize("scope", [Scope.READ, Scope.ANNOTATE])
def test_signing_out_ends_the_session_and_needs_the_token(pages: Site, scope: Scope) -> None:
    client = pages.signed_in(pages.key(scope))
    assert page(client.post("/logout"), 403).one("h1").text == "The key lacks the scope"
    home = "/annotate" if scope is Scope.ANNOTATE else "/"
    assert client.get(home).status_code == 200
    form = page(client.get(home)).one("form", class_="session")
    assert form.get("method") == "post"
    answer = client.post(form.get("action"), data={"csrf": csrf(client, home)})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login"
    assert client.get(home).headers["location"].startswith("/login")


def test_the_address_of_an_action_leads_to_the_page_it_belongs_to(seen: Site) -> None:
    pages_of = {
        "/checks/watch/archive": "/checks/watch",
        "/checks/watch/runs?from=x": "/checks/watch",
        "/checks/watch/canaries/ant/diagnosis": "/checks/watch/canaries/ant",
        "/suites/a%20b/archive": "/suites/a%20b",
        "/alerts/1/acknowledge": "/alerts/1",
        "/alerts/1/diagnosis": "/alerts/1",
        "/deliveries/5/replay": "/deliveries",
        "/logout": "/",
    }
    answers = {action: seen.client().get(action) for action in pages_of}
    assert {action: answer.headers["location"] for action, answer in answers.items()} == pages_of
    assert {answer.status_code for answer in answers.values()} == {303}
    assert seen.client(accept="application/json").get("/checks/watch/archive").status_code == 405


def test_the_address_of_an_action_never_leads_to_another_host(seen: Site) -> None:
    for hostile in (
        "//evil.example/checks/x/archive",
        "//evil.example/x/archive",
        "/checks//evil.example/archive",
        "/checks/%2F%2Fevil.example/archive",
        "/%2F/evil.example/archive",
        "/checks/%5C%5Cevil.example/archive",
        "/%5Cevil.example/checks/x/archive",
        "/checks/%09%2Fevil.example/archive",
        "/checks/x%0D%0ALocation:%20https:evil.example/archive",
        "/suites/%2E%2E/canaries/%5Cevil.example/archive",
    ):
        answer = seen.client().get(f"http://127.0.0.1:8000{hostile}")
        assert answer.status_code in {303, 400, 404}, answer.text
        leads_to = answer.headers.get("location", "/")
        assert leads_to == safe_path(leads_to), hostile
        assert urlsplit(leads_to).netloc == "", hostile
        assert not {"\\", "\r", "\n", "\t"} & set(leads_to), hostile


def test_a_page_there_is_none_of_still_knows_who_is_signed_in(pages: Site) -> None:
    key = pages.key()
    shown = page(pages.signed_in(key).get("/nothing"), 404)
    assert "No page has this address" in shown.one("main").text
    assert shown.one("form", class_="session").text.endswith("Sign out")
    assert not page(pages.client().get("/nothing"), 404).all("form", class_="session")


def test_every_page_is_well_formed_and_has_nothing_inline(seen: Site) -> None:
    client = seen.client()
    for path in PATHS:
        answer = client.get(path)
        shown = page(answer, 404 if path == "/nothing" else 200)
        assert shown.one("html").get("lang") == "en"
        assert len(shown.all("h1")) == 1
        assert shown.one("main").get("id") == "main"
        assert len(shown.all("nav", **{"aria-label": "Main"})) == 1
        assert not shown.all("style")
        for element in shown.elements:
            assert "style" not in element.attributes
            assert not [name for name in element.attributes if name.startswith("on")]
            assert not element.get("href").startswith(("javascript:", "data:", "http:", "https:", "//"))
        assert all(script.get("src").startswith("/static/") and not script.text for script in shown.all("script"))
        ids = [element.get("id") for element in shown.elements if element.get("id")]
        assert len(ids) == len(set(ids))
        assert all(head.get("scope") in {"col", "row"} for head in shown.all("th"))
        named = [element.get(name) for element in shown.elements for name in ("aria-labelledby", "aria-describedby")]
        assert set(filter(None, named)) <= set(ids)
        assert all("alt" in image.attributes for image in shown.all("img"))


def test_every_file_a_page_refers_to_is_there_and_may_be_kept(pages: Site, seen: Site) -> None:
    client = seen.client()
    pages.key()
    stranger = pages.client()
    wanted = set[str]()
    for path in (*PATHS, "/docs"):
        shown = page(client.get(path), 404 if path == "/nothing" else 200)
        wanted |= {element.get("src") for element in shown.elements} | {link.get("href") for link in shown.all("link")}
    assert len(wanted) > 8
    pictures = {address for address in wanted if address.startswith("/heatmap/")}
    assert pictures
    for address in pictures:  # of what a check measures, which is not for strangers
        assert stranger.get(address).headers["location"].startswith("/login"), address
        answer = client.get(address)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "private, no-cache"), address
    for address in wanted - {""} - pictures:
        answer = stranger.get(address)
        assert answer.status_code == 200, address
        versioned = "?v=" in address
        assert answer.headers["cache-control"] == ("public, max-age=31536000, immutable" if versioned else "no-cache")
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_every_link_of_a_page_leads_somewhere(seen: Site) -> None:
    client = seen.client()
    wanted = {link.get("href") for path in PATHS[:5] for link in page(client.get(path)).all("a")}
    assert len(wanted) > 10
    for address in sorted(wanted):
        if not address.startswith("#") and address:
            assert client.get(address).status_code == 200, address


WAYS: dict[str, tuple[str, ...]] = {
    "/incidents/1": ("Incidents", "watch: 2 of 2 questions got worse"),
    "/checks/watch/canaries/a": ("watch", "a"),
    "/suites/suite/add": ("Questions", "suite", "Add a canary"),
    "/import": ("Questions", "Import a suite"),
    "/suites/suite/traffic": ("Questions", "Traffic"),
    "/suites/suite/export?format=csv": ("Questions", "Export suite", "CSV"),
    "/new-silence": ("Notify", "Silences", "New silence"),
    "/compare?what=run": ("Compare", "Runs"),
    "/compare?what=retriever": ("Compare", "Retrievers"),
    "/answers": ("Answers",),
    "/new-hook?kind=slack": ("Notify", "New hook", "slackA message in a channel, by…"),
    "/checks/watch/edit?report=weekly": ("Notify", "Reports", "Add a weekly report of watch"),
    "/checks/watch/edit": ("watch", "Edit in canaries.yaml:1"),
    "/keys": ("Set up", "Keys"),
    "/docs": ("Set up", "API"),
}
"""What people come for, and the links that lead there from the first page: at most three."""


@pytest.mark.parametrize("end", WAYS)
def test_what_people_come_for_is_at_most_three_clicks_away(seen: Site, end: str) -> None:
    client, path = seen.client(), "/"
    for name in WAYS[end]:
        links = page(client.get(path)).all("a")
        found = [
            link.get("href") for link in links if link.text == name or ("…" in name and link.text.startswith(name[:-1]))
        ]
        assert found, f"{name} on {path}"
        here = [one for one in found if path != "/" and one.startswith(path)]
        path = min(here or found, key=len)
    assert len(WAYS[end]) <= 3
    shown = client.get(path)
    assert shown.status_code == 200
    heading = {"/suites/suite/traffic": "Traffic of suite"}.get(end)
    assert path == end or (heading is not None and heading in shown.text)


def test_every_answer_carries_the_headers_that_protect_it(seen: Site) -> None:
    for path in [*PATHS, "/v1/checks", "/livez", "/docs", "/static/nothing.js"]:
        headers = seen.client().get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self'; "), path
        assert "frame-ancestors 'none'" in policy, path
        assert ("unsafe" in policy) == (path == "/docs"), path
        assert "script-src" not in policy, path
        kept = [headers[name] for name in ("x-frame-options", "referrer-policy", "cache-control")]
        assert kept == ["DENY", "same-origin", "no-store"], path
        assert headers["x-content-type-options"] == "nosniff", path


def test_vendored_files_are_those_that_were_published() -> None:
    versions = sorted(STATIC.glob("vendor/*/VERSION"))
    assert [version.parent.name for version in versions] == ["htmx", "swagger-ui", "uplot"]
    for version in versions:
        digests = [line.split(" ")[1:] for line in version.read_text().splitlines() if line.startswith("sha256 ")]
        assert {name for _, name in digests} == {file.name for file in version.parent.iterdir()} - {"VERSION"}
        assert "LICENSE" in {name for _, name in digests}
        for digest, name in digests:
            assert hashlib.sha256((version.parent / name).read_bytes()).hexdigest() == digest, name


def test_the_api_page_asks_nothing_of_the_internet(pages: Site) -> None:
    client = pages.signed_in(pages.key())
    shown = page(client.get("/docs"))
    assert shown.one("meta", name="csrf").get("content") == csrf(client)
    assert not [element for element in shown.elements if "//" in element.get("src") + element.get("href")]
    assert "validatorUrl: null" in (STATIC / "docs.js").read_text()


def test_the_description_of_the_api_is_whole(seen: Site) -> None:
    described: dict[str, Any] = seen.client().get("/openapi.json").json()
    schemas = described["components"]["schemas"]
    parts = {
        f"#/components/{kind}/{name}" for kind in ("schemas", "responses") for name in described["components"][kind]
    }
    refs = set(_refs(described))
    assert {f"#/components/schemas/{name}" for name in ("CheckDocument", "CanaryFile", "Problem")} <= refs
    for ref in refs:
        assert ref in parts, ref
    assert "$defs" not in json.dumps(described)
    assert "HTTPValidationError" not in schemas
    assert described["components"]["securitySchemes"]["key"] == {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key: `coalmine keys create`.",
    }
    assert described["security"] == [{"key": []}, {"session": []}]
    open_paths = {
        path for path, item in described["paths"].items() for one in item.values() if one.get("security") == []
    }
    assert open_paths == {"/livez", "/readyz"}
    assert not [path for path in described["paths"] if not path.startswith(("/v1/", "/livez", "/readyz", "/metrics"))]


def _refs(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref":
                yield value
            else:
                yield from _refs(value)
    elif isinstance(part, list):
        for value in part:
            yield from _refs(value)


def _cookie(answer: Response) -> Any:
    cookie: SimpleCookie = SimpleCookie(answer.headers["set-cookie"])
    return cookie[SESSION_COOKIE]
