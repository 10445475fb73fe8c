"""The overview and running a check in a real browser: by keyboard, live without a reload, and without scripts."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from app.base.db.engine import Store
from app.records.store.open_runs import ClaimedRun
from app.runs.service.change_feed import Streams
from app.runs.service.finalising import EndedRun
from tests.support.browser import PHONE, inaccessible, opened, served, wider_than_the_screen
from tests.support.living import until
from tests.support.pages_service import Site, site
from tests.support.world import COVERAGE, canary, page

LINGERED = 5_000
"""Milliseconds after which a page that is looked at listens to what happens."""
QUICK = {**COVERAGE, "open": {"bad": 1, "of": 1}}


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give two checks, the one of 130 canaries healthy and the other without a run."""
    found = site(sqlite_store)
    many = [canary(f"c{number:03}", tags=["legal"]) for number in range(130)]
    found.world.apply(
        page(many, slug="billing", suite="invoices", rules=[QUICK]),
        {**page([canary("new")], slug="novel", suite="books"), "retrievers": [], "hooks": []},
    )
    found.world.run("billing")
    found.world.clock.now = datetime.now(UTC)
    return found


@pytest.fixture
def address(pages: Site) -> Iterator[str]:
    """Serve them, looking at the store often."""
    app = pages.app()
    app.state.streams = Streams(pages.world.store, poll_seconds=0.02)
    with served(app) as url:
        yield url


def _slugs(shown: Page) -> Locator:
    return shown.locator("table.checks tbody th a")


def _focused(shown: Page) -> str:
    return str(shown.evaluate("document.activeElement.id || document.activeElement.value"))


# --- filters -------------------------------------------------------------------------------------------------


def test_checks_are_filtered_by_keyboard_and_the_address_can_be_shared(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as tab:
        shown = tab.open("/")
        expect(_slugs(shown)).to_have_text(["novel", "billing"])
        shown.locator("details.filter > summary").click()
        shown.locator("#by-text").focus()
        shown.keyboard.type("invo", delay=5)
        expect(shown.locator("#found-count")).to_have_text("1 of 2 checks. Show all")
        expect(_slugs(shown)).to_have_text(["billing"])
        assert _focused(shown) == "by-text"
        expect(shown).to_have_url(f"{address}/?q=invo")

        shown.keyboard.press("Shift+Tab")  # to the verdicts, then from all to healthy to degraded
        shown.keyboard.press("ArrowRight")
        expect(shown).to_have_url(f"{address}/?verdict=healthy&q=invo")
        expect(_slugs(shown)).to_have_text(["billing"])
        assert _focused(shown) == "healthy"
        expect(shown.get_by_role("radio", name="degraded")).to_be_hidden()  # there is none to choose

        shared = tab.open("/?verdict=degraded&q=invo")
        expect(shared.get_by_role("heading", name="No matching checks")).to_be_visible()
        expect(shared.get_by_role("radio", name="degraded")).to_be_checked()
        shared.locator("#show-all").click()
        expect(_slugs(shared)).to_have_text(["novel", "billing"])


def test_going_back_shows_what_was_there(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as tab:
        shown = tab.open("/")
        shown.locator("details.filter > summary").click()
        shown.get_by_label("Suite", exact=True).select_option("books")
        expect(shown).to_have_url(f"{address}/?suite=books")
        expect(shown.locator("#check-billing")).to_have_count(0)
        shown.go_back()
        expect(shown.locator("#check-billing")).to_be_visible()
        expect(shown.get_by_label("Suite", exact=True)).to_have_value("")


def test_filters_work_on_a_phone_without_scripts(chromium: Browser, address: str) -> None:
    with opened(chromium, address, viewport=PHONE, java_script_enabled=False) as tab:
        shown = tab.open("/")
        shown.locator("details.filter > summary").click()
        shown.get_by_label("Tag").select_option("legal")
        shown.get_by_role("button", name="Filter").click()
        expect(_slugs(shown)).to_have_text(["billing"])
        expect(shown.get_by_role("main")).to_contain_text("1.000 with tag legal, 130 of 130 canaries measured")


def test_a_filtered_overview_can_be_used_by_everybody(chromium: Browser, address: str) -> None:
    with opened(chromium, address, viewport=PHONE, color_scheme="dark") as tab:
        shown = tab.open("/?tag=legal&failing=1")
        assert inaccessible(shown) == []
        assert not wider_than_the_screen(shown)


# --- live ----------------------------------------------------------------------------------------------------


def test_the_overview_follows_what_happens_without_a_reload(chromium: Browser, pages: Site, address: str) -> None:
    with opened(chromium, address, viewport={"width": 900, "height": 300}) as tab:
        tab.page.clock.install()
        shown = tab.open("/")
        shown.evaluate("window.isKept = true")
        link = shown.locator("#check-billing")
        link.evaluate("link => { link.focus(); scrollTo(0, 100) }")
        with shown.expect_request("**/v1/events"):
            shown.clock.fast_forward(LINGERED)
        pages.world.probe.all_miss()
        pages.world.run("billing")
        row = shown.locator("tr", has=link)
        expect(row).to_contain_text("degraded")
        expect(row).to_contain_text("1 critical")
        expect(shown.locator("#count-degraded")).to_have_text("1")
        assert shown.evaluate("window.isKept")
        assert shown.evaluate("scrollY") == 100
        assert _focused(shown) == "check-billing"


def test_a_check_without_a_run_shows_its_first_by_itself(chromium: Browser, pages: Site, address: str) -> None:
    with opened(chromium, address) as tab:
        tab.page.clock.install()
        shown = tab.open("/checks/novel")
        expect(shown.locator(".headline")).to_contain_text("no run yet")
        pages.world.run("novel")
        with shown.expect_request("**/v1/events"):
            shown.clock.fast_forward(LINGERED)
        expect(shown.locator(".headline.healthy")).to_be_visible()


def test_a_service_out_of_reach_is_said_until_it_is_back(chromium: Browser, address: str) -> None:
    with opened(
        chromium, address, expected=("ERR_INTERNET_DISCONNECTED", "htmx:sendError", "htmx:afterRequest")
    ) as tab:
        tab.page.clock.install()
        shown = tab.open("/")
        lost = shown.get_by_text("Coalmine cannot be reached from this browser")
        expect(lost).to_be_hidden()
        shown.context.set_offline(True)
        shown.clock.fast_forward(31_000)
        shown.clock.fast_forward(31_000)
        expect(lost).to_be_visible()
        shown.context.set_offline(False)
        shown.clock.fast_forward(31_000)
        expect(lost).to_be_hidden()


def test_an_open_page_notices_within_ten_seconds_that_the_service_is_gone_and_back(
    chromium: Browser, address: str
) -> None:
    with opened(chromium, address, expected=("502",)) as tab:
        gone = True
        tab.page.clock.install()
        tab.page.route("**/livez", lambda route: route.fulfill(status=502) if gone else route.continue_())
        shown = tab.open("/hooks")
        lost = shown.get_by_text("Coalmine cannot be reached from this browser")
        shown.clock.fast_forward(9_000)
        expect(lost).to_be_in_viewport()
        expect(shown.locator("body.is-unreachable")).to_be_visible()
        gone = False
        shown.clock.fast_forward(9_000)
        expect(lost).to_be_hidden()
        expect(shown.locator("body.is-unreachable")).to_have_count(0)


# --- running now ---------------------------------------------------------------------------------------------


def _claimed(pages: Site) -> ClaimedRun:
    """Claim the run somebody asked for in the browser, as soon as it is there."""
    pages.world.clock.now = datetime.now(UTC)
    claimed: ClaimedRun = until(pages.world.claim)
    return claimed


def _rest(pages: Site) -> EndedRun | None:
    again = pages.world.claim("another")
    assert again is not None
    return pages.world.execute(again, "another")


def test_a_run_is_followed_on_the_page_of_its_check_and_on_its_own(
    chromium: Browser, pages: Site, address: str
) -> None:
    world = pages.world
    with opened(chromium, address) as tab, opened(chromium, address) as other, opened(chromium, address) as late:
        shown = tab.open("/checks/billing")
        shown.get_by_role("button", name="Run now").click()
        expect(shown.locator("#run-state")).to_have_text("Queued")
        claimed = _claimed(pages)
        already = len(world.probe.asked)
        assert world.execute(claimed, stopping=lambda: len(world.probe.asked) > already + 50) is None
        expect(shown.locator("#run-state")).to_have_text("Running: 30 of 130 probes done")
        expect(shown.locator("#run-state progress")).to_have_js_property("position", 30 / 130)
        assert inaccessible(shown) == []

        own = other.open(f"/runs/{claimed.id}")
        expect(own.get_by_role("status").first).to_have_text("Running: 30 of 130 probes done")
        assert inaccessible(own) == []
        same = late.open("/checks/billing")
        expect(same.locator("#run-state .progress-text")).to_have_text("Running: 30 of 130 probes done")

        assert _rest(pages) is not None
        expect(shown.locator(".headline")).to_contain_text(
            f"Last run {claimed.id}"
        )  # who pressed the button waits for it
        expect(same.locator("#run-state")).to_have_text(f"Run {claimed.id} ended: healthy.")
        expect(same.locator("#newer a")).to_be_visible()
        expect(same.locator(".headline")).not_to_contain_text(f"Last run {claimed.id}")
        expect(own.get_by_role("heading", name="Results")).to_be_visible()
        expect(own.locator(".headline")).to_contain_text("started by a button on a page")
        same.locator("#run-state a").click()
        expect(same.get_by_role("heading", name=f"Run {claimed.id}")).to_be_visible()


def test_a_check_is_run_without_scripts(chromium: Browser, pages: Site, address: str) -> None:
    with opened(chromium, address, java_script_enabled=False) as tab:
        shown = tab.open("/checks/billing")
        shown.get_by_role("button", name="Run now").click()
        expect(shown.get_by_role("main")).to_contain_text("This run is queued")
        claimed = _claimed(pages)
        assert pages.world.execute(claimed) is not None
        shown.get_by_role("link", name="Reload this page").click()
        expect(shown.get_by_role("heading", name="Results")).to_be_visible()
