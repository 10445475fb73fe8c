"""The pages of canaries, renamed chunks, runs and comparisons in a real browser, by mouse and by keyboard."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page, expect

from app.base.db.engine import Store
from app.base.values import Answer
from app.retrievers.domain.retrievers import ProbeContext, ProbeQuery
from tests.support.browser import DESKTOP, PHONE, inaccessible, opened, served, wider_than_the_screen
from tests.support.library import API, FILE, Diagnosed, Library, shelf
from tests.support.pages_service import Site

CHECK = "/checks/watch"
KEY = shelf()[0]["key"]
CANARY = f"{CHECK}/canaries/{KEY}"
COLOURS = {"desktop": (DESKTOP, "light"), "phone": (PHONE, "dark")}


@dataclass(kw_only=True)
class Slow:
    """A probe over the library that answers one question whenever it is let."""

    library: Library
    turns: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __call__(self, context: ProbeContext, queries: Sequence[ProbeQuery]) -> Iterator[Sequence[tuple[int, Answer]]]:
        """Wait for a turn before each answer."""
        for item in queries:
            assert self.turns.acquire(timeout=30)
            yield from self.library(context, [item])


@pytest.fixture
def setting(sqlite_store: Store) -> Diagnosed:
    """Give a check that was well in one run and whose first canary's chunk was renamed in the next, undiagnosed."""
    made = Diagnosed.of(sqlite_store, shelf(), owner=API)
    made.run()
    made.library.chunks[f"{KEY}@2"] = made.library.chunks.pop(KEY)
    made.run(diagnosed=False)
    return made


def left_and_top(page: Page, selector: str) -> tuple[float, float]:
    """Say where the top left corner of an element is."""
    box = page.locator(selector).bounding_box()
    assert box is not None
    return box["x"], box["y"]


@pytest.mark.parametrize("screen", COLOURS)
def test_the_rankings_stand_side_by_side_or_stacked_as_there_is_room(
    chromium: Browser, setting: Diagnosed, screen: str
) -> None:
    viewport, colours = COLOURS[screen]
    site = Site(world=setting.world, probe=setting.library)
    found: dict[str, list[str]] = {}
    with served(site.app()) as address, opened(chromium, address, viewport=viewport, color_scheme=colours) as tab:
        page = tab.open(CANARY)
        well = left_and_top(page, "article[aria-labelledby=side-well]")
        now = left_and_top(page, "article[aria-labelledby=side-now]")
        assert (well[0] < now[0], well[1] == now[1]) == ((True, True) if screen == "desktop" else (False, False))
        assert well[1] <= now[1]
        for path in (CANARY, "/compare?a=run:1&b=run:2" if screen == "phone" else "/runs/2"):
            shown = tab.open(path)
            for summary in shown.locator("main summary:visible").all()[:6]:
                summary.click()
            found[path] = inaccessible(shown) + ["is wider than the screen"] * wider_than_the_screen(shown)
    assert {path: problems for path, problems in found.items() if problems} == {}


def test_a_stretch_of_the_band_says_what_it_is_when_a_key_reaches_it_and_leads_to_its_run(
    chromium: Browser, setting: Diagnosed
) -> None:
    site = Site(world=setting.world, probe=setting.library)
    with served(site.app()) as address, opened(chromium, address) as tab:
        page = tab.open(CANARY)
        stretches = page.locator(".band a")
        expect(stretches).to_have_count(2)
        stretches.first.focus()
        expect(page.locator("#pointed")).to_contain_text("Healthy: ")
        page.keyboard.press("Tab")
        expect(page.locator("#pointed")).to_contain_text("Degraded (missing): ")
        expect(page.locator("#pointed")).to_contain_text(" to now")
        fills = [one.evaluate("one => getComputedStyle(one).fill") for one in page.locator(".band a > rect").all()]
        assert "hatched" in fills[1], "told apart by a pattern too"
        assert fills[0] != fills[1]
        page.keyboard.press("Enter")
        page.wait_for_url(f"{address}/runs/2")


def test_trying_shows_the_answer_in_place_and_reads_it_out(chromium: Browser, setting: Diagnosed) -> None:
    site = Site(world=setting.world, probe=setting.library)
    with served(site.app()) as address, opened(chromium, address) as tab:
        page = tab.open(CANARY)
        page.get_by_role("button", name="Try now").click()
        expect(page.locator("#just-now")).to_be_focused()
        expect(page.locator("#trial")).to_contain_text("would be degraded")
        expect(page.locator("#trial")).to_contain_text(f"{KEY}@2")
        assert page.url == f"{address}{CANARY}", "nothing was loaded anew"
        setting.library.chunks[KEY] = setting.library.chunks.pop(f"{KEY}@2")
        page.get_by_role("button", name="Try now").click()
        expect(page.locator("#trial")).to_contain_text("would be healthy")
        setting.apply([one for one in shelf() if one["key"] != KEY], owner=API)


def test_asking_why_tells_how_far_it_is_and_then_the_cause(chromium: Browser, setting: Diagnosed) -> None:
    slow = Slow(library=setting.library)
    site = Site(world=setting.world, probe=slow)
    with served(site.app()) as address, opened(chromium, address) as tab:
        page = tab.open(CANARY)
        expect(page.get_by_text("Not diagnosed yet.")).to_be_visible()
        button = page.get_by_role("button", name="Diagnose (about 7 requests)")
        button.click()
        said, bar = page.locator("#asking [role=status]"), page.locator("#asking progress")
        expect(said).to_have_text("Request 1 of 8…")
        expect(button).to_be_disabled()
        slow.turns.release(2)
        expect(said).to_have_text("Request 3 of 8…")
        assert (bar.get_attribute("value"), bar.get_attribute("max")) == ("2", "8")
        assert inaccessible(page) == []
        slow.turns.release(6)
        expect(page.locator("#diagnosis")).to_have_text("Cause")
        expect(page.locator("section[aria-labelledby=diagnosis]")).to_contain_text("1 new judgment proposed")


def test_asking_why_of_what_was_changed_says_so_and_can_be_asked_again(chromium: Browser, setting: Diagnosed) -> None:
    site = Site(world=setting.world, probe=setting.library)
    with served(site.app()) as address, opened(chromium, address) as tab:
        page = tab.open(CANARY)
        setting.apply([{**one, "min_relevance_score": 0.1} for one in shelf()], owner=API)
        page.get_by_role("button", name="Diagnose (about 7 requests)").click()
        expect(page.locator("#asking [role=status]")).to_contain_text("run the check, then ask again")
        expect(page.get_by_role("button", name="Diagnose (about 7 requests)")).to_be_enabled()


def test_a_renamed_chunk_is_read_on_both_sides_and_accepted(chromium: Browser, setting: Diagnosed) -> None:
    setting.run()
    site = Site(world=setting.world, probe=setting.library)
    with served(site.app()) as address, opened(chromium, address) as tab:
        page = tab.open(CANARY)
        page.get_by_role("link", name="1 new judgment proposed").click()
        page.wait_for_url("**/reanchors")  # loaded: its script ticks all
        assert page.locator("blockquote").count() == 2
        assert page.locator("blockquote mark").first.inner_text() == setting.library.chunks[f"{KEY}@2"]
        every = page.get_by_label("All")
        every.uncheck()
        expect(page.get_by_label(f"The proposal for {KEY}")).not_to_be_checked()
        every.check()
        page.get_by_role("button", name="Accept ticked").click()
        expect(page.locator("[role=status]").first).to_contain_text("1 judgment replaced")
        expect(page.locator("section[aria-labelledby=decided]")).to_contain_text("accepted")


def test_the_patch_of_a_file_can_be_saved(chromium: Browser, sqlite_store: Store) -> None:
    setting = Diagnosed.of(sqlite_store, shelf(), owner=FILE)
    setting.run()
    setting.library.chunks[f"{KEY}@2"] = setting.library.chunks.pop(KEY)
    setting.run()
    site = Site(world=setting.world, probe=setting.library)
    with served(site.app()) as address, opened(chromium, address) as tab:
        page = tab.open(f"{CHECK}/reanchors")
        page.get_by_role("button", name="Accept ticked").click()
        with page.expect_download() as saving:
            page.get_by_role("button", name="Download").click()
        assert saving.value.suggested_filename == "canaries.yaml"
        assert f"{KEY}@2" in saving.value.path().read_text(encoding="utf-8")
        assert inaccessible(page) == []


def test_results_are_filtered_by_keyboard_in_place_and_the_address_keeps_it(
    chromium: Browser, setting: Diagnosed
) -> None:
    site = Site(world=setting.world, probe=setting.library)
    with served(site.app()) as address, opened(chromium, address) as tab:
        page = tab.open("/runs/2")
        expect(page.locator("table.results > tbody")).to_have_count(len(shelf()))
        page.get_by_label("Verdict").focus()
        page.keyboard.type("degr")
        expect(page.locator("table.results > tbody")).to_have_count(1)
        assert page.url == f"{address}/runs/2?verdict=degraded"
        expect(page.get_by_label("Verdict")).to_be_focused()
        expect(page.locator("#found-results [role=status]")).to_contain_text("1 result matches")
        page.go_back()
        expect(page.locator("table.results > tbody")).to_have_count(len(shelf()))


def test_two_runs_are_picked_compared_and_narrowed_to_what_got_worse(chromium: Browser, setting: Diagnosed) -> None:
    site = Site(world=setting.world, probe=setting.library)
    with served(site.app()) as address, opened(chromium, address, expected=("422",)) as tab:
        page = tab.open("/runs/2")
        page.get_by_role("link", name="with the previous run, 1").click()
        expect(page.locator("h1")).to_have_text("Run 2 against run 1")
        page.get_by_role("link", name="fell 1").click()
        expect(page.locator("section[aria-labelledby=canaries] tbody tr")).to_have_count(1)
        expect(page.locator("section[aria-labelledby=canaries] tbody tr")).to_contain_text("not found")
        page.get_by_text("Compare something else").click()
        page.get_by_label("Before", exact=True).fill("2")
        page.get_by_role("button", name="Compare").click()
        expect(page.get_by_role("alert")).to_contain_text("Both sides are run 2; choose another one")
        page.get_by_label("Before", exact=True).fill("1")
        page.get_by_role("button", name="Compare").click()
        page.wait_for_url(f"{address}/compare?**a=run%3A1&b=run%3A2")
        expect(page.locator("section[aria-labelledby=result]")).to_contain_text("Too few canaries to tell: 6")
