"""Sign-in by an OpenID provider: the whole way, and whatever does not fit on it opens nothing and says why."""

import base64
import hmac
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from playwright.sync_api import Browser

from app.base.addresses import AddressPolicy
from app.base.api.requests import SESSION_COOKIE
from app.base.api.trusted_proxies import TrustedProxies
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.errors import ConfigurationError
from app.base.values import replace
from app.config import load_settings
from app.operation.client import OpenIdProvider
from tests.support.asgi_client import TestClient
from tests.support.http_servers import closed_port
from tests.support.openid import CLIENT, SECRET, OpenId, open_id
from tests.support.pages_service import Site, csrf, page, site
from tests.support.processes import free_ports, started

HOST = "http://127.0.0.1:8000"
BACK = f"{HOST}/login/oidc/callback"
SCOPES = (("*", Scope.READ), ("ops", Scope.WRITE), ("admins", Scope.ADMIN))
ANYWHERE = AddressPolicy(name="sign-in", deny_private=False)
KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages of a service in which nobody made a key."""
    return site(sqlite_store, public_url=HOST)


@pytest.fixture
def openid(pages: Site) -> Iterator[OpenId]:
    """Run a provider that signs people in there."""
    with open_id(BACK, key=KEY) as provider:
        _trust(pages, provider)
        yield provider


def _trust(pages: Site, provider: OpenId, *, scopes: Any = SCOPES, **changes: Any) -> None:
    state = pages.app().state
    proxies = TrustedProxies(scopes=scopes, public_url=HOST)
    state.access = replace(state.access, proxies=proxies, has_provider=True)
    settings = {"client_secret": SECRET, "redirect_uri": BACK, "policy": ANYWHERE, **changes}
    state.provider = OpenIdProvider(issuer=provider.issuer, client_id=CLIENT, **settings)


def _leave(client: TestClient, following: str = "/suites") -> str:
    """Leave for the provider; gives where it sends the browser back to."""
    left = client.get("/login/oidc", params={"next": following})
    assert left.status_code == 303, left.text
    back = httpx2.get(left.headers["location"], follow_redirects=False)
    assert back.status_code == 302
    return str(back.headers["location"])


def _sign_in(pages: Site, following: str = "/suites") -> TestClient:
    client = pages.client()
    entered = page(client.get(_leave(client, following)))
    assert entered.one("h1").text == "Signed in"
    return client


def _refused(pages: Site, status: int = 401) -> str:
    """Walk the way; gives why it ended."""
    client = pages.client()
    shown = page(client.get(_leave(client)), status)
    assert client.get("/suites").status_code == 303
    assert SESSION_COOKIE not in client.cookies
    return shown.one("p", id="message").text.removeprefix("You are not signed in: ")


# --- the way ---


def test_somebody_is_signed_in_under_their_name_and_out_again(pages: Site, openid: OpenId) -> None:
    assert pages.client().get("/suites").headers["location"].startswith("/login"), "no longer open without keys"
    link = pages.page("/login").one("a", id="provider")
    assert link.text == f"Sign in with {urlsplit(openid.issuer).netloc}"
    client = _sign_in(pages, "/suites?q=a&b=<c>")
    shown = page(client.get("/suites"))
    assert shown.one("form", class_="session").text.startswith("ada")
    token = csrf(client, "/suites")
    held = client.cookies[SESSION_COOKIE]
    assert client.post("/logout", data={"csrf": token}).headers["location"] == "/login"
    client.cookies.set(SESSION_COOKIE, held)
    assert client.get("/suites").status_code == 303, "its end holds for a copy of the cookie, too"


def test_the_page_that_one_comes_back_to_leads_on_by_itself_and_to_this_service_alone(
    pages: Site, openid: OpenId
) -> None:
    client = pages.client()
    answer = client.get(_leave(client, "/suites?q=a&b=<c>"))
    meta = page(answer).one("meta", **{"http-equiv": "refresh"}).get("content")
    assert meta == f"0; url=/login?{urlencode({'next': '/suites?q=a&b=<c>', 'entered': 'yes'})}"
    assert client.get(meta.removeprefix("0; url=")).headers["location"] == "/suites?q=a&b=%3Cc%3E"
    for foreign in ("https://evil.example/", "//evil.example", "javascript:alert(1)", "/\\evil.example"):
        answer = client.get(_leave(client, foreign))
        assert "evil" not in answer.text
        assert "alert(1)" not in answer.text
    assert openid.grants == {}


def test_cookies_of_a_sign_in_are_for_our_pages_alone(pages: Site, openid: OpenId) -> None:
    client = pages.client()
    left = client.get("/login/oidc")
    (flow,) = left.headers.get_list("set-cookie")
    assert {"HttpOnly", "SameSite=lax", "Path=/login/oidc", "Max-Age=600"} <= set(flow.split("; "))
    session, gone = sorted(client.get(_back(openid, left)).headers.get_list("set-cookie"))
    assert session.startswith(SESSION_COOKIE)
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(session.split("; "))
    assert "Max-Age=0" in gone


def _back(openid: OpenId, left: Any) -> str:
    assert left.headers["location"].startswith(f"{openid.issuer}/authorize?")
    return str(httpx2.get(left.headers["location"], follow_redirects=False).headers["location"])


def test_the_provider_is_asked_with_proof_that_stays_with_the_browser(pages: Site, openid: OpenId) -> None:
    client = pages.client()
    asked = {name: values[0] for name, values in parse_qs(urlsplit(_location(client)).query).items()}
    again = {name: values[0] for name, values in parse_qs(urlsplit(_location(client)).query).items()}
    assert asked["scope"] == "openid profile email groups"
    assert all(len(asked[name]) >= 43 and asked[name] != again[name] for name in ("state", "nonce", "code_challenge"))
    assert "code_verifier" not in asked
    cookie = client.cookies["coalmine_sign_in"]
    flow = pages.world.vault.decrypt_session(cookie.encode(), 600)
    assert create_s256_code_challenge(flow["verifier"]) == again["code_challenge"]
    assert not {flow["verifier"], flow["state"]} & set(re.split("[^A-Za-z0-9_-]", cookie))
    assert openid.server.seen[-1].target == "/keys"


def _location(client: TestClient) -> str:
    return str(client.get("/login/oidc").headers["location"])


def test_scopes_are_those_of_the_groups_and_follow_the_settings(pages: Site, openid: OpenId) -> None:
    def may(client: TestClient) -> str:
        if client.get("/keys").status_code == 200:
            return "admin"
        answer = client.post("/new-silence", data={"csrf": csrf(client, "/suites"), "slug": "x"})
        return "read" if answer.status_code == 403 else "write"

    found = {}
    for groups in ([], ["staff"], ["ops"], ["ops", "admins"], "admins", [["admins"], 7, None], {"admins": 1}, ["*"]):
        openid.claims["groups"] = groups
        found[str(groups)] = may(_sign_in(pages))
    assert list(found.values()) == ["read", "read", "write", "admin", "admin", "read", "read", "read"]
    openid.claims["groups"] = ["ops", "staff"]
    client = _sign_in(pages)
    _trust(pages, openid, scopes=(("*", Scope.READ),))
    assert may(client) == "read", "of a session that goes on"
    _trust(pages, openid, scopes=(("staff", Scope.READ),))
    assert client.get("/suites").status_code == 403, "who has no scope any more signs in again"
    pages.app().state.access = replace(pages.app().state.access, has_provider=False)
    assert client.get("/v1/checks", headers={"accept": "application/json"}).status_code == 401
    _trust(pages, openid, scopes=(("admins", Scope.ADMIN),))
    assert _refused(pages, 403) == "'ada' is in no group that COALMINE_REMOTE_SCOPES gives a scope."


def test_a_write_needs_the_token_of_the_session(pages: Site, openid: OpenId) -> None:
    client = _sign_in(pages)
    assert client.post("/new-silence", data={"slug": "x"}).status_code == 403
    assert client.post("/new-silence", data={"slug": "x", "csrf": "guessed"}).status_code == 403
    assert openid.grants == {}


@pytest.mark.parametrize("basic", [True, False])
def test_the_secret_is_told_as_the_provider_wants_it(pages: Site, openid: OpenId, basic: bool) -> None:  # noqa: FBT001 - pytest passes parameters by name
    openid.basic = basic
    _sign_in(pages)
    _trust(pages, openid, client_secret="wrong")
    assert _refused(pages) == "the provider refused: invalid_client."


def test_keys_of_curves_do_and_a_new_key_is_learnt(pages: Site, openid: OpenId) -> None:
    later = [0.0]
    _trust(pages, openid, clock=lambda: time.time() + later[0])
    _sign_in(pages)
    openid.key = ECKey.generate_key("P-256", {"kid": "two"})
    assert "not signed by a key" in _refused(pages), "keys are asked for once a minute at most"
    later[0] = 61.0
    _sign_in(pages)


def test_what_the_token_does_not_say_is_asked_of_the_provider(pages: Site, openid: OpenId) -> None:
    openid.claims = {}
    openid.userinfo = {"preferred_username": "ada", "groups": ["admins"]}
    assert _sign_in(pages).get("/keys").status_code == 200
    openid.userinfo["sub"] = "somebody else"
    assert _refused(pages) == "the provider tells of another person than it signed in."
    openid.userinfo = {}
    assert _refused(pages) == "the provider does not say who you are: no claim 'preferred_username'."


# --- what does not fit ---


def _expired(claims: dict[str, Any]) -> dict[str, Any]:
    return {**claims, "iat": claims["iat"] - 900, "exp": claims["exp"] - 900}


def _unsigned(claims: Mapping[str, Any]) -> str:
    parts = ({"alg": "none", "typ": "JWT"}, dict(claims))
    text = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return f"{text[0]}.{text[1]}."


def _by_secret(claims: Mapping[str, Any]) -> str:
    """Sign with what everybody knows, the public key of the provider, as if it were a shared secret."""
    head, body, _ = _unsigned(claims).split(".")
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "one"}).encode()).decode().rstrip("=")
    proof = hmac.digest(KEY.as_pem(private=False), f"{head}.{body}".encode(), "sha256")
    return f"{head}.{body}.{base64.urlsafe_b64encode(proof).decode().rstrip('=')}"


def _by_another(claims: Mapping[str, Any]) -> str:
    return jwt.encode({"alg": "RS256", "kid": "one"}, dict(claims), RSAKey.generate_key(2048))


def _changed(claims: Mapping[str, Any]) -> str:
    head, body, proof = jwt.encode({"alg": "RS256", "kid": "one"}, dict(claims), KEY).split(".")
    told = json.loads(base64.urlsafe_b64decode(f"{body}=="))
    forged = base64.urlsafe_b64encode(json.dumps({**told, "groups": ["admins"]}).encode()).decode().rstrip("=")
    return f"{head}.{forged}.{proof}"


UNSIGNED = "the ID token is not signed by a key of the provider."


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_unsigned, UNSIGNED),
        (_by_secret, UNSIGNED),
        (_by_another, UNSIGNED),
        (_changed, UNSIGNED),
        (lambda _: "", UNSIGNED),
        (lambda _: "a.b.c", UNSIGNED),
        (lambda _: "W10.W10.", UNSIGNED),
        (lambda _: "." * 10_000, UNSIGNED),
        (lambda _: {"a": "token"}, "the provider sent no ID token."),
    ],
)
def test_a_token_that_the_provider_did_not_sign_opens_nothing(
    pages: Site, openid: OpenId, make: Callable[[dict[str, Any]], Any], why: str
) -> None:
    openid.id_token = make
    assert _refused(pages) == why


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("iss", "https://evil.example"),
        ("aud", "another-client"),
        ("aud", [CLIENT, "another-client"]),
        ("azp", "another-client"),
        ("nonce", "of another sign-in"),
        ("nonce", None),
        ("sub", None),
        ("exp", "tomorrow"),
        ("at_hash", "of another token"),
    ],
)
def test_a_token_of_another_sign_in_opens_nothing(pages: Site, openid: OpenId, claim: str, value: object) -> None:
    openid.id_token = lambda claims: openid.signed(
        {name: one for name, one in {**claims, claim: value}.items() if one is not None}
    )
    assert re.match(r"the ID token is not (for this sign-in: \w+ does not fit|signed by)", _refused(pages))


def test_a_token_that_has_expired_opens_nothing(pages: Site, openid: OpenId) -> None:
    openid.id_token = lambda claims: openid.signed(_expired(claims))
    assert _refused(pages) == "the ID token has expired: compare the clocks of both machines."


@pytest.mark.parametrize(
    "name",
    [
        "ada, admin",
        "<script>alert(1)</script>",
        "a\nb",
        "a" * 201,
        "ada;admins",
        "\u202eada",
        7,
        None,
        "",
        " ",
        ["ada"],
    ],
)
def test_what_is_no_name_of_one_person_opens_nothing(pages: Site, openid: OpenId, name: object) -> None:
    openid.claims["preferred_username"] = name
    assert _refused(pages) in {
        "the provider sent a name that is no name of one person.",
        "the provider does not say who you are: no claim 'preferred_username'.",
    }


def test_an_address_of_mail_is_a_name_once_it_is_verified(pages: Site, openid: OpenId) -> None:
    _trust(pages, openid, name_claim="email")
    for unverified in (False, "false"):
        openid.claims |= {"email": "ada@example.org", "email_verified": unverified}
        assert _refused(pages) == "the provider has not verified your email address."
    openid.claims["email_verified"] = True
    assert "ada@example.org" in _sign_in(pages).get("/suites").text


def test_an_answer_is_good_for_once_and_for_the_browser_that_left(pages: Site, openid: OpenId) -> None:
    client = pages.client()
    back = _leave(client)
    flow = client.cookies["coalmine_sign_in"]
    stranger = pages.client()
    assert "belongs to another browser" in page(stranger.get(back), 401).one("p", id="message").text
    other = pages.client()
    other.get("/login/oidc")
    assert "belongs to another sign-in" in page(other.get(back), 401).one("p", id="message").text
    assert client.get(back).status_code == 200
    assert "belongs to another browser" in client.get(back).text
    client.cookies.set("coalmine_sign_in", flow, path="/login/oidc")
    client.cookies.delete(SESSION_COOKIE)
    assert "this answer was used before" in page(client.get(back), 401).one("p", id="message").text
    assert openid.grants == {}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"state": "forged"}, "belongs to another sign-in"),
        ({"state": ""}, "belongs to another sign-in"),
        ({"code": "guessed"}, "the provider refused: invalid_grant"),
        ({"code": ""}, "the provider sent no code"),
        ({"iss": "https://evil.example"}, "comes from another provider"),
        ({"iss": ""}, "comes from another provider"),
        ({"error": "access_denied"}, "the provider refused: access_denied"),
        ({"error": "x", "error_description": "<script>alert(1)</script>"}, "the provider refused: "),
        ({"code": "x" * 20_000}, "the provider refused: invalid_grant"),
    ],
)
def test_an_answer_that_was_changed_on_the_way_opens_nothing(
    pages: Site, openid: OpenId, change: Mapping[str, str], why: str
) -> None:
    client = pages.client()
    openid.metadata["authorization_response_iss_parameter_supported"] = True
    parts = urlsplit(_leave(client))
    query = {**{name: values[0] for name, values in parse_qs(parts.query).items()}, **change}
    query = {name: value for name, value in query.items() if value or name != "iss"}
    answer = client.get(f"{parts.path}?{urlencode(query)}")
    assert why in page(answer, 401).one("p", id="message").text
    assert "<script>alert" not in answer.text
    assert SESSION_COOKIE not in client.cookies
    assert openid.issuer


@pytest.mark.parametrize("cookie", ["", "nonsense", "gAAAAA", SESSION_COOKIE])
def test_a_forged_cookie_is_no_way_back(pages: Site, openid: OpenId, cookie: str) -> None:
    client = pages.client()
    back = _leave(client)
    if cookie == SESSION_COOKIE:
        cookie = (pages.world.vault.encrypt({"key": "user:ada", "csrf": "x", "at": 1, "groups": []}) or b"").decode()
    client.cookies.set("coalmine_sign_in", cookie, path="/login/oidc")
    assert "belongs to another browser" in client.get(back, headers={"cookie": f"coalmine_sign_in={cookie}"}).text
    assert openid.issuer


@pytest.mark.parametrize(
    ("metadata", "status", "why"),
    [
        ({"issuer": "https://evil.example"}, 401, "describes another provider than COALMINE_OIDC_ISSUER"),
        ({"authorization_endpoint": "javascript:alert(1)"}, 503, "no safe authorization_endpoint"),
        ({"authorization_endpoint": None}, 503, "no safe authorization_endpoint"),
        ({"jwks_uri": "file:///etc/passwd"}, 503, "no safe jwks_uri"),
        ({"jwks_uri": "http://169.254.169.254/keys"}, 503, "cannot be asked now"),
        ({"jwks_uri": 7}, 503, "no safe jwks_uri"),
    ],
)
def test_a_description_that_cannot_be_used_leads_nowhere(
    pages: Site, openid: OpenId, metadata: dict[str, Any], status: int, why: str
) -> None:
    openid.metadata = metadata
    assert why in page(pages.client().get("/login/oidc"), status).one("p", id="message").text


def test_a_provider_that_is_down_is_said_so_and_keys_still_do(pages: Site, openid: OpenId) -> None:
    pages.app().state.provider.issuer = f"http://127.0.0.1:{closed_port()}"
    shown = page(pages.client().get("/login/oidc?next=/suites"), 503)
    assert "cannot be asked now" in shown.one("p", id="message").text
    assert pages.signed_in(pages.key()).get("/suites").status_code == 200
    assert openid.grants == {}


def test_without_a_provider_its_addresses_lead_to_the_key(pages: Site) -> None:
    for path in ("/login/oidc", "/login/oidc/callback"):
        assert pages.client().get(path).headers["location"] == "/login"
    assert not pages.page("/login").all("a", id="provider")


# --- settings, and a service of its own ---

SETTINGS = {"COALMINE_OIDC_ISSUER": "https://login.example.com/", "COALMINE_OIDC_CLIENT_ID": "coalmine"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"COALMINE_OIDC_ISSUER": "http://login.example.com"}, "OIDC_ISSUER: must begin with https://"),
        ({"COALMINE_OIDC_ISSUER": "https://a/?b"}, "OIDC_ISSUER: must be the issuer"),
        ({"COALMINE_OIDC_ISSUER": "https://a:b@c/"}, "OIDC_ISSUER: must be the issuer"),
        ({"COALMINE_OIDC_CLIENT_ID": ""}, "OIDC_ISSUER: set COALMINE_OIDC_CLIENT_ID too"),
        ({"COALMINE_PUBLIC_URL": ""}, "OIDC_ISSUER: set COALMINE_PUBLIC_URL too"),
        ({"COALMINE_OIDC_CLIENT_SECRET": "sécret"}, "OIDC_CLIENT_SECRET: must be visible ASCII"),
    ],
)
def test_settings_that_make_no_provider_stop_the_start(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(words)) as told:
        load_settings({**SETTINGS, "COALMINE_PUBLIC_URL": "https://ops.example.com", **settings})
    assert "sécret" not in str(told.value)


def test_an_issuer_is_taken_with_and_without_its_last_slash(pages: Site, openid: OpenId) -> None:
    read = load_settings({**SETTINGS, "COALMINE_PUBLIC_URL": "https://ops.example.com"})
    assert read.oidc_issuer == "https://login.example.com"
    openid.metadata["issuer"] = f"{openid.issuer}/"
    openid.claims["iss"] = f"{openid.issuer}/"
    client = pages.client()
    back = _leave(client).replace(urlencode({"iss": openid.issuer}), urlencode({"iss": f"{openid.issuer}/"}))
    assert client.get(back).status_code == 200


@contextmanager
def _service(folder: Path) -> Iterator[tuple[str, OpenId]]:
    """Run a service below a path whose people a provider signs in, all by its settings."""
    port = free_ports()
    public = f"http://127.0.0.1:{port}/coalmine"
    with open_id(f"{public}/login/oidc/callback", key=KEY) as provider:
        (folder / "secret").write_text(SECRET + "\n", encoding="utf-8")
        environment = {
            "COALMINE_OIDC_ISSUER": provider.issuer,
            "COALMINE_OIDC_CLIENT_ID": CLIENT,
            "COALMINE_OIDC_CLIENT_SECRET_FILE": str(folder / "secret"),
            "COALMINE_REMOTE_SCOPES": "ops=write",
            "COALMINE_PUBLIC_URL": public,
        }
        with started(folder, "serve", "--port", str(port), **environment) as process:
            process.wait_for("is serving")
            yield public, provider


def test_a_service_below_a_path_signs_people_in_by_its_settings(tmp_path: Path) -> None:
    with _service(tmp_path) as (public, provider), httpx2.Client(follow_redirects=True) as browser:
        shown = browser.get(f"{public}/login/oidc", params={"next": "/suites"}, headers={"accept": "text/html"})
        (address,) = re.findall(r'content="0; url=([^"]+)"', shown.text)
        port = urlsplit(public).netloc
        arrived = browser.get(f"http://{port}{address.replace('&amp;', '&')}", headers={"accept": "text/html"})
        assert arrived.url.path == "/coalmine/suites"
        assert arrived.status_code == 200
        assert "ada" in arrived.text
        assert provider.grants == {}


def test_a_browser_arrives_where_it_wanted_to_go(tmp_path: Path, chromium: Browser) -> None:
    with _service(tmp_path) as (public, _), chromium.new_context() as context:
        shown = context.new_page()
        shown.goto(f"{public}/suites")
        shown.get_by_role("link", name="Sign in with").click()
        shown.wait_for_url(f"{public}/suites")
        assert shown.locator("form.session").inner_text().startswith("ada")
        shown.get_by_role("button", name="Sign out").click()
        shown.wait_for_url(f"{public}/login")
        shown.goto(f"{public}/suites")
        assert shown.url.startswith(f"{public}/login")
