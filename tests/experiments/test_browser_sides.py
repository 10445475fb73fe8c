"""Comparing pairs in a real browser: blind, by keyboard, by thumb and without JavaScript."""

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from app.base.db.engine import Store
from app.experiments.service import shadows
from tests.support.browser import DESKTOP, PHONE, Tab, inaccessible, opened, served, wider_than_the_screen
from tests.support.live_experiment import make_shadow
from tests.support.pages_service import Site, site
from tests.support.world import canary
from tests.support.world import page as described

SIDES = "/tasks/sides/annotate"
TELLING = ("candidate", "rbo", "rank", "score", "shadow", "hybrid")
"""Words that nothing an annotator gets may hold."""
LEFT = 5
"""Pairs that are left: of six, one is compared already."""


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give a site with a task of six pairs."""
    made = site(sqlite_store)
    made.world.apply(described([canary("ant")]))
    make_shadow(made.world, "suite")
    return made


def begin(tab: Tab) -> Page:
    """Open the page and say who compares."""
    page = tab.open(SIDES)
    page.get_by_label("Your name").fill("Bea")
    page.get_by_role("button", name="Begin").click()
    expect(page.locator("#told")).to_be_visible()
    page.wait_for_load_state("load")
    return page


def prefer_years(page: Page) -> str:
    """Give the key of the side that says years, which is the candidate's."""
    return "0" if "years" in page.locator("#left").inner_text() else "2"


def test_pairs_are_compared_blindly_by_keyboard_and_counted(chromium: Browser, pages: Site) -> None:
    told: list[str] = []

    def keep(response: Response) -> None:
        if "/static/" not in response.url and response.ok and "/tasks/sides" in response.url:
            told.append(response.url + response.text())

    with served(pages.app()) as address, opened(chromium, address) as tab:
        page = begin(tab)
        page.on("response", keep)
        page.reload()
        for done in range(1, LEFT):
            page.keyboard.press(prefer_years(page))
            expect(page.locator("#told")).to_contain_text(f"{done} of {LEFT} done")
        page.keyboard.press("1")
        expect(page.get_by_role("heading", name="Nothing left to annotate")).to_be_visible()
    assert len(told) == 1 + LEFT
    assert {word for one in told for word in TELLING if word in one.casefold()} == set()
    (found,) = shadows.load_shadow(pages.world.store, "hybrid")["comparisons"]
    assert (found["candidate"] + found["current"], found["undecided"]) == (LEFT, 0)
    assert found["candidate"] >= LEFT - 1
    assert found["alike"] == 1


@pytest.mark.parametrize(("viewport", "colours"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_pairs_are_compared_by_thumb(chromium: Browser, pages: Site, viewport: dict[str, int], colours: str) -> None:
    with (
        served(pages.app()) as address,
        opened(chromium, address, viewport=viewport, color_scheme=colours, has_touch=viewport == PHONE) as tab,
    ):
        page = begin(tab)
        assert inaccessible(page) == []
        assert not wider_than_the_screen(page)
        button = page.get_by_role("button", name="Right is better")
        box = button.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= viewport["height"], "no scrolling to compare"
        button.click()
        expect(page.locator("#told")).to_contain_text(f"1 of {LEFT} done")


def test_without_scripts_it_is_a_form(chromium: Browser, pages: Site) -> None:
    with served(pages.app()) as address, opened(chromium, address, java_script_enabled=False) as tab:
        page = begin(tab)
        page.get_by_role("button", name="Left is better").click()
        expect(page.locator("#told")).to_contain_text(f"1 of {LEFT} done")
        page.get_by_role("button", name="Undo").click()
        expect(page.locator("#told")).to_contain_text(f"0 of {LEFT} done")
