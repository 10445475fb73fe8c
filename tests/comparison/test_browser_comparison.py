"""The page of a comparison in a real browser: used by keyboard, without scripts, and as wide as any screen."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from app.base.db.engine import Store
from tests.support.browser import PHONE, inaccessible, opened, served, unreadable, wider_than_the_screen
from tests.support.fakes import answered, hits
from tests.support.pages_service import site
from tests.support.world import CHECK, RETRIEVER, canary, page

KEYS = tuple(f"c{number:02}" for number in range(24))
COMPARED = "/compare?a=run:1&b=run:2"
SCREENS = (360, 390, 768, 1024, 1440)


@pytest.fixture
def address(sqlite_store: Store) -> Iterator[str]:
    """Serve two runs of one check, the later one with ten canaries lost and one lower, and one of another check."""
    pages = site(sqlite_store)
    canaries = [canary(key, category="procedural" if key > "c11" else "simple_factual") for key in KEYS]
    one, two = page(canaries, k=5, rules=[]), page(canaries, slug="second", retriever="other", k=5, rules=[])
    one["retrievers"] = [RETRIEVER, {**RETRIEVER, "slug": "other"}]
    one["checks"] += two["checks"]
    pages.world.apply(one)
    pages.world.run(index_version="2026-11-22-before")
    pages.world.probe.answers = {key: answered(hits("noise")) for key in KEYS[:10]}
    pages.world.probe.answers["c10"] = answered(hits("noise", "doc-c10"))
    pages.world.run(index_version="2026-11-22-after-a-new-index")
    pages.world.run("second")
    with served(pages.app()) as found:
        yield found


def test_a_canary_that_moved_is_opened_from_the_chart_by_keyboard(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as tab:
        shown = tab.open(COMPARED)
        line = shown.get_by_role("link", name="c10: rank 1 before, rank 2 now")
        for name in KEYS[:10]:
            expect(shown.get_by_role("link", name=f"{name}: rank 1 before, not found now")).to_be_visible()
        line.focus()
        shown.keyboard.press("Enter")
        expect(shown).to_have_url(re.compile(r"/compare/canary\?a=run%3A1&b=run%3A2&key=c10$"))
        expect(shown.locator("h2").first).to_have_text(re.compile(f"^Before: {CHECK}, run 1"))


def test_two_retrievers_are_chosen_without_scripts(chromium: Browser, address: str) -> None:
    with opened(chromium, address, java_script_enabled=False) as tab:
        shown = tab.open("/compare")
        shown.get_by_role("link", name="Retrievers", exact=True).first.click()
        shown.get_by_label("A", exact=True).fill("search")
        shown.get_by_label("B", exact=True).fill("other")
        shown.get_by_role("button", name="Compare").click()
        expect(shown).to_have_url(f"{address}/compare?a=retriever%3Asearch&b=retriever%3Aother")
        expect(shown.locator("h1")).to_have_text(f"{CHECK} against second")


def test_runs_are_offered_whole_with_their_times_in_the_zone_of_the_viewer(chromium: Browser, address: str) -> None:
    with opened(chromium, address, timezone_id="Asia/Tokyo") as tab:
        shown = tab.open("/compare?what=run")
        texts = shown.locator("datalist option").all_text_contents()
        assert len(texts) == 3
        assert "index 2026-11-22-after-a-new-index" in texts[1]
        assert not [text for text in texts if "UTC" in text]


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_screen_is_too_narrow_for_a_comparison(chromium: Browser, address: str, colours: str) -> None:
    found = {}
    for width in SCREENS:
        with opened(chromium, address, viewport={"width": width, "height": 900}, color_scheme=colours) as tab:
            for path in (COMPARED, "/compare?a=check:watch&b=check:second", "/compare"):
                shown = tab.open(path)
                shown.evaluate("document.querySelectorAll('main details').forEach((one) => { one.open = true; })")
                found[width, path] = inaccessible(shown) + ["is wider than the screen"] * wider_than_the_screen(shown)
                if width == PHONE["width"]:
                    found[width, path] += unreadable(shown)
    assert {where: problems for where, problems in found.items() if problems} == {}
