"""Judges and answers in a real browser: people label by keyboard, and every page is readable on desktop and phone."""

import pytest
from playwright.sync_api import Browser, expect

from app.base.db.engine import Store
from tests.support.browser import DESKTOP, PHONE, inaccessible, opened, served, unreadable, wider_than_the_screen
from tests.support.labelled_answers import Labelled
from tests.support.pages_service import Site


@pytest.fixture
def labelled(sqlite_store: Store) -> Labelled:
    """Give a check whose answers are judged, and a task of 20 of them of which 15 are labelled."""
    made = Labelled.of(sqlite_store)
    made.put()
    made.draw()
    made.label(wrong=2, most=15)
    return made


def test_answers_are_labelled_by_keyboard(chromium: Browser, labelled: Labelled) -> None:
    site = Site(world=labelled.it.world)
    with served(site.app()) as address, opened(chromium, address) as tab:
        page = tab.open("/tasks/labels/annotate")
        page.get_by_label("Your name").fill("Bob")
        page.get_by_role("button", name="Begin").click()
        for done in range(1, 6):
            query = page.locator("#query").inner_text()
            expect(page.locator("#question")).to_have_text("Are all claims of the answer supported by the chunks?")
            expect(page.locator("#contexts li").first).to_contain_text(f"This is about {query}.")
            page.keyboard.press("0" if query in labelled.lies else "1")
            expect(page.locator("#told")).to_contain_text(f"{done} of 5 done")
        expect(page.locator("#finished")).to_be_visible()
        assert not tab.complaints


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_every_page_is_readable(chromium: Browser, labelled: Labelled, viewport: dict[str, int], scheme: str) -> None:
    run_id = labelled.it.run()
    paths = ("/judges", "/judges/reader", f"/runs/{run_id}/answers", "/tasks/labels", f"/runs/{run_id}")
    site = Site(world=labelled.it.world)
    with served(site.app()) as address, opened(chromium, address, viewport=viewport, color_scheme=scheme) as tab:
        for path in paths:
            page = tab.open(path)
            page.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
            assert not wider_than_the_screen(page), path
            assert not unreadable(page), path
            assert not inaccessible(page), path
        assert not tab.complaints
