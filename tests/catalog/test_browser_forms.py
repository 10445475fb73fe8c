"""Forms in a browser: what was typed is still there when one is refused, secrets too, which no response holds."""

import re

from playwright.sync_api import Browser, expect

from app.formats.catalog.documents import HookDocument
from app.services.catalog import definitions
from app.store.engine import Store
from tests.support.browser import opened, served
from tests.support.fakes import FakeProbe
from tests.support.pages_service import site

MADE_UP = "whsec_ZGVtby1zZWNyZXQtZGVtby1zZWNyZXQtZGVtbw=="


def test_a_refused_hook_form_keeps_the_secret_in_the_browser_and_out_of_every_response(
    chromium: Browser, sqlite_store: Store
) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    with served(bench.app()) as url, opened(chromium, url) as tab:
        bodies: list[str] = []
        page = tab.open("/new-hook?kind=webhook")
        page.on("response", lambda one: bodies.append(one.text()) if "/new-hook" in one.url else None)
        page.get_by_label("Name", exact=True).fill("Ops!")
        page.get_by_label("Address", exact=True).fill("https://example.org/hook")
        page.get_by_label("Signing secret").fill(MADE_UP)
        page.get_by_role("button", name="Make this hook").click()
        expect(page.locator("#wrong-slug")).to_contain_text("lower-case letters")
        expect(page.get_by_label("Signing secret")).to_have_value(MADE_UP)
        page.get_by_label("Name", exact=True).fill("ops")
        page.get_by_role("button", name="Make this hook").click()
        page.wait_for_url("**/hooks/ops")
        assert bodies
        assert not [body for body in bodies if MADE_UP in body]
    stored = definitions.stored_secrets(sqlite_store, bench.world.vault, "hook", "ops")
    assert stored["secret"] == MADE_UP


def test_a_generated_signing_secret_is_shown_once_and_taken(chromium: Browser, sqlite_store: Store) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    with served(bench.app()) as url, opened(chromium, url) as tab:
        page = tab.open("/new-hook?kind=webhook")
        page.get_by_role("button", name="Generate a secret").click()
        field = page.get_by_label("Signing secret")
        expect(field).to_have_value(re.compile(r"whsec_[A-Za-z0-9+/]{43}="))
        expect(field).to_have_attribute("type", "text")
        made = field.input_value()
        page.get_by_role("button", name="Generate a secret").click()
        assert field.input_value() != made
        made = field.input_value()
        HookDocument.model_validate(
            {"slug": "ops", "kind": "webhook", "url": "https://example.org/hook", "secret": made}
        )
        page.get_by_label("Name", exact=True).fill("ops")
        page.get_by_label("Address", exact=True).fill("https://example.org/hook")
        page.get_by_role("button", name="Make this hook").click()
        page.wait_for_url("**/hooks/ops")
    assert definitions.stored_secrets(sqlite_store, bench.world.vault, "hook", "ops")["secret"] == made
