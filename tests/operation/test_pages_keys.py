"""API keys on their page: shown once, followed by a successor, revoked with a question; people invited by a link."""

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from app.base.db import keys
from app.base.db.engine import Store
from app.base.db.keys import Scope
from tests.support.browser import opened, served
from tests.support.pages_service import HOSTILE, Site, csrf, page, site


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages of a service without a key."""
    return site(sqlite_store)


def send(client: Any, path: str, **fields: str) -> Any:
    return client.post(path, data={"csrf": csrf(client, "/keys"), **fields})


def in_force(pages: Site) -> dict[str, str]:
    """Return names of the keys in force by their prefixes."""
    return {one.prefix: one.name for one in keys.list_keys(pages.world.store) if one.revoked_at is None}


def test_the_first_key_is_an_admins_since_from_then_on_nobody_gets_in_without_one(pages: Site) -> None:
    assert "No key was ever created" in pages.page("/keys").text
    client = pages.client()
    refused = page(send(client, "/keys", name="Ann", scope="annotate"), 422)
    assert "The first key has to be an admin key, yours" in refused.one("span", id="scope-error").text
    assert refused.one("input", id="f-name").get("value") == "Ann"
    assert in_force(pages) == {}
    made = page(send(client, "/keys", name="Eve", scope="admin"), 200)
    assert list(in_force(pages).values()) == ["Eve"]
    assert pages.client().get("/").status_code == 303, "to sign in"
    signed_in = pages.signed_in(made.one("pre", id="new-key").text)
    assert "yours" in page(signed_in.get("/keys")).text


def test_on_a_fresh_service_the_way_to_an_invitation_leads_over_the_own_key(pages: Site) -> None:
    asked = "/keys?scope=annotate&next=/tasks/truth/annotate"
    first = pages.page(asked)
    assert "Then you sign in with it, and invite the annotator." in first.text
    assert [one.get("value") for one in first.all("option")] == ["admin"]
    wanted = first.one("input", name="next").get("value")
    made = page(send(pages.client(), "/keys", name="Eve", scope="admin", next=wanted), 200)
    made.one("form", action="/login")
    sent = {name: str(made.one("input", name=name, type="hidden").get("value")) for name in ("next", "key")}
    assert sent == {"next": wanted, "key": made.one("pre", id="new-key").text}
    signed_in = pages.client()
    assert signed_in.post("/login", data=sent, follow_redirects=True).status_code == 200
    second = page(signed_in.get(wanted))
    (chosen,) = [one.get("value") for one in second.all("option") if "selected" in one.attributes]
    assert (chosen, second.one("input", name="next").get("value")) == ("annotate", "/tasks/truth/annotate")
    assert "First key" not in second.text


def test_a_key_is_shown_once_and_never_again(pages: Site) -> None:
    client = pages.signed_in(pages.key())
    answer = send(client, "/keys", name=HOSTILE, scope="write")
    text = page(answer).one("pre", id="new-key").text
    assert text.startswith("cmk_write_")
    assert answer.headers["cache-control"] == "no-store"
    assert keys.identify(pages.world.store, text, now=datetime.now(UTC)).scope is Scope.WRITE
    assert not page(answer).all("pre", id="invitation")
    shown = client.get("/keys")
    assert text not in shown.text
    assert HOSTILE in page(shown).text
    assert not page(shown).all("img", src="x")


def test_a_name_that_is_missing_is_refused_beside_its_field(pages: Site) -> None:
    client = pages.signed_in(pages.key())
    refused = page(send(client, "/keys", name=" ", scope="read"), 422)
    assert "must not be empty" in refused.one("span", id="name-error").text
    assert len(in_force(pages)) == 1


def test_a_key_is_rotated_while_the_old_one_works_until_it_is_revoked(pages: Site) -> None:
    client, old = (
        pages.signed_in(pages.key()),
        keys.create_key(pages.world.store, name="ci", scope=Scope.READ, now=datetime.now(UTC)),
    )
    (prefix,) = [prefix for prefix, name in in_force(pages).items() if name == "ci"]
    shown = page(send(client, f"/keys/{prefix}/successor"))
    new = shown.one("pre", id="new-key").text
    assert f"{prefix} still works" in shown.text
    found = [keys.identify(pages.world.store, one, now=datetime.now(UTC)) for one in (old, new)]
    assert {(one.name, one.scope) for one in found} == {("ci", Scope.READ)}
    assert send(client, f"/keys/{prefix}/revoke").headers["location"] == "/keys"
    assert list(in_force(pages).values()) == ["somebody", "ci"]
    assert prefix not in in_force(pages)
    assert "1 revoked key" in page(client.get("/keys")).text
    assert send(client, f"/keys/{prefix}/revoke").status_code == 404
    assert send(client, f"/keys/{prefix}/successor").status_code == 404


def test_the_last_key_of_an_admin_is_not_revoked(pages: Site) -> None:
    client = pages.signed_in(pages.key())
    pages.key(Scope.WRITE)
    (prefix,) = [one.prefix for one in keys.list_keys(pages.world.store) if one.scope == Scope.ADMIN]
    refused = page(send(client, f"/keys/{prefix}/revoke"), 409)
    assert "This is the last key with scope admin" in refused.text
    assert prefix in in_force(pages)
    pages.key()
    assert send(client, f"/keys/{prefix}/revoke").status_code == 303


def test_only_an_admin_sees_keys(pages: Site) -> None:
    pages.key()
    client = pages.signed_in(pages.key(Scope.WRITE))
    assert client.get("/keys").status_code == 403
    assert client.post("/keys", data={"csrf": csrf(client), "name": "x", "scope": "admin"}).status_code == 403
    assert len(in_force(pages)) == 2


def test_a_link_of_invitation_signs_an_annotator_in_and_leaves_no_key_in_any_address(
    pages: Site, chromium: Browser
) -> None:
    client = pages.signed_in(pages.key())
    asked = "/keys?scope=annotate&next=/tasks/truth/annotate"
    assert page(client.get(asked)).one("input", name="next").get("value") == "/tasks/truth/annotate"
    made = page(send(client, "/keys", name="Ann", scope="annotate", next="/tasks/truth/annotate"))
    link = urlsplit(made.one("pre", id="invitation").text)
    assert (link.path, link.query) == ("/login", "next=%2Ftasks%2Ftruth%2Fannotate")
    assert re.fullmatch(r"key=cmk_annotate_[\w-]+", link.fragment)
    outside = page(send(client, "/keys", name="Bob", scope="annotate", next="//evil.test"))
    assert "evil" not in outside.one("pre", id="invitation").text
    asked_for: list[str] = []
    with served(pages.app()) as address, opened(chromium, address) as tab:
        shown = tab.open("/login")
        shown.on("request", lambda one: asked_for.append(one.url))
        shown.goto(f"{address}/login?next=/annotate#{link.fragment}")
        shown.wait_for_url("**/annotate")
        expect(shown.get_by_text("Ann", exact=True)).to_be_visible()
    assert asked_for
    assert not any("cmk_" in one for one in asked_for)
