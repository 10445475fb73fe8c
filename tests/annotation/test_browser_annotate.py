"""Annotating in a real browser, by keyboard and by thumb; and what a team gets out of it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Browser, Page, Response, Route, expect

from app.annotation.store import task_rows as rows
from app.base.db.engine import Store
from app.base.values import Answer
from app.retrievers.domain.retrievers import ProbeQuery
from app.runs.service import rescoring
from app.runs.service.change_feed import Streams
from tests.support.annotation_tasks import Desk
from tests.support.browser import DESKTOP, PHONE, Tab, inaccessible, opened, served, wider_than_the_screen
from tests.support.fakes import answered
from tests.support.pages_service import Site
from tests.support.present import present

ANNOTATE = "/tasks/truth/annotate"
QUERIES = ("refunds", "invoices", "exports", "quotas", "backups", "tokens", "audits", "regions")
ITEMS = 9 * len(QUERIES)
TELLING = ("bm25", "dense", "rank", "score", "stratum", "retriever=")
"""Words that nothing an annotator gets may hold; `bm25` and `dense` begin the ids of the chunks, too."""


@pytest.fixture
def desk(sqlite_store: Store) -> Desk:
    """Give a pooled task of 72 chunks, each for everybody, and a check over its suite that has run.

    What its canaries expect is nowhere in the index: coverage is 0 until people say what is relevant.
    """
    made = Desk.of(sqlite_store, queries=QUERIES, overlap=1.0)
    made.make_pool()

    def answer(item: ProbeQuery) -> Answer:
        return answered(made.shelves.ranking("bm25", item.query, 5))

    made.world.probe.otherwise = answer
    made.world.run()
    return made


def begin(tab: Tab, name: str) -> Page:
    """Open the page and say who annotates."""
    page = tab.open(ANNOTATE)
    page.get_by_label("Your name").fill(name)
    page.get_by_role("button", name="Begin").click()
    expect(page.locator("#told")).to_be_visible()
    page.wait_for_load_state("load")  # a key pressed before the script has run is nobody's
    return page


@contextmanager
def blind(page: Page) -> Iterator[None]:
    """Hold that neither an address nor an answer tells rank, score, retriever, stratum or chunk meanwhile."""
    addresses: list[str] = []
    answers: list[str] = []

    def keep(response: Response) -> None:
        addresses.append(response.url)
        if "/static/" not in response.url and response.ok:
            answers.append(response.text())

    page.on("response", keep)
    try:
        yield
    finally:
        page.remove_listener("response", keep)
    answers.append(page.content())
    assert any("/annotation" in one for one in addresses)
    found = {word for one in (*addresses, *answers) for word in TELLING if word in one.casefold()}
    assert found == set()


def number(page: Page) -> int:
    """Give the number of the text that is shown."""
    return int(page.locator("#text").inner_text().split()[1])


def press(page: Page, key: str, done: int) -> None:
    """Press a key, and wait until what it says is stored."""
    page.keyboard.press(key)
    expect(page.locator("#told")).to_contain_text(f"{done} of {ITEMS} done")


def test_a_team_annotates_by_keyboard_and_adopts(chromium: Browser, desk: Desk) -> None:
    world, app = desk.world, Site(world=desk.world).app()
    app.state.streams = Streams(desk.store, poll_seconds=0.02)
    with served(app) as address:
        with opened(chromium, address) as tab:
            page = begin(tab, "Ann")
            with blind(page):
                for done in range(1, 21):
                    press(page, "1" if number(page) < 5 else "0", done)
                shown = page.locator("#text").inner_text()
                page.reload()
                expect(page.locator("#told")).to_contain_text(f"20 of {ITEMS} done, about 1 min left")
                assert page.locator("#text").inner_text() == shown, "it goes on where it was"
                press(page, "s", 21)
                press(page, "Backspace", 20)
                assert page.locator("#text").inner_text() == shown, "the last one is back"
            assert page.url == f"{address}{ANNOTATE}"
            while (found := desk.next("Ann"))["progress"]["left"] > 1:
                item = present(found["item"])
                desk.say("Ann", item["id"], int(int(item["text"].split()[1]) < 5))
            page.reload()
            press(page, "1" if number(page) < 5 else "0", ITEMS)
            expect(page.get_by_role("heading", name="Nothing left to annotate")).to_be_visible()
        desk.work_through("Bob", flip=12)
        with opened(chromium, address) as tab:
            page = tab.open("/tasks/truth")
            ordinal = page.locator("section[aria-labelledby=agreement] dl div", has_text="alpha, ordinal")
            expect(ordinal.locator("dd")).to_contain_text("0.834 0.696 to 0.945")
            expect(page.locator("#disagreements + .count")).to_have_text("6")
            for left in range(5, -1, -1):
                page.locator("article.item form button[value='1']").first.click()
                expect(page.locator("#disagreements + .count")).to_have_text(str(left))
            page.get_by_role("button", name="Adopt judgments").click()
            expect(page.get_by_role("status").filter(has_text="8 canaries changed")).to_be_visible()
            page.get_by_role("button", name="Re-score watch").click()
            expect(page.get_by_role("heading", name="Re-scoring 1")).to_be_visible()
            expect(page.get_by_role("status").filter(has_text="Queued: 0 of 1 runs judged")).to_be_visible()
            claimed = rescoring.claim(desk.store, owner="one", now=world.clock())
            assert claimed is not None
            assert rescoring.carry_on(desk.store, claimed, owner="one", clock=world.clock)
            expect(page.get_by_role("row", name="Coverage, mean")).to_have_text(re.compile(r"0\.000\s*1\.000"))
            page.get_by_role("link", name="Show watch re-scored").click()
            expect(page.get_by_text("1.000").first).to_be_visible()


def test_a_grade_that_cannot_be_stored_is_told_and_the_chunk_stays(chromium: Browser, desk: Desk) -> None:
    def fail(route: Route) -> None:
        route.abort()

    with (
        served(Site(world=desk.world).app()) as address,
        opened(chromium, address, expected=("Failed to load",)) as tab,
    ):
        tab.page.route("**/annotation", fail)  # before the page is there: one that is may send a request past it
        page = begin(tab, "Ann")
        shown = page.locator("#text").inner_text()
        page.keyboard.press("1")
        expect(page.locator("#unsaved")).to_contain_text("Not saved")
        assert page.locator("#text").inner_text() == shown
        page.unroute("**/annotation")
        press(page, "1", 1)
        expect(page.locator("#unsaved")).to_be_hidden()


def test_keys_with_modifiers_and_other_keys_grade_nothing(chromium: Browser, desk: Desk) -> None:
    with served(Site(world=desk.world).app()) as address, opened(chromium, address) as tab:
        page = begin(tab, "Ann")
        for key in ("Control+1", "Alt+2", "3", "9", "x", "Backspace"):  # 3 is beyond the scale
            page.keyboard.press(key)
        press(page, "2", 1)
        page.reload()
        expect(page.locator("#told")).to_contain_text(f"1 of {ITEMS} done")


def test_four_grades_are_given_by_keyboard(chromium: Browser, sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store, queries=("refunds",), scale="0-3", overlap=1.0)
    desk.make_pool()
    given: dict[str, int] = {}
    with served(Site(world=desk.world).app()) as address, opened(chromium, address) as tab:
        page = begin(tab, "Ann")
        names = page.locator(".grades button:not(.plain)")
        expect(names).to_have_text([re.compile(rf"{grade}\s+\w+") for grade in range(4)])
        page.keyboard.press("4")
        for done, key in enumerate("3201302", start=1):
            given[page.locator("#text").inner_text()] = int(key)
            page.keyboard.press(key)
            expect(page.locator("#told")).to_contain_text(f"{done} of 9 done")
        page.keyboard.press("Backspace")
        expect(page.locator("#told")).to_contain_text("6 of 9 done")
        expect(page.locator("button[value='2']")).to_be_enabled()
        page.keyboard.press("3")
        expect(page.locator("#told")).to_contain_text("7 of 9 done")
        given[list(given)[-1]] = 3
    with desk.store.read() as connection:
        task = present(rows.find_task(connection, "truth"))
        texts = {item.id: item.text for item in rows.list_items(connection, task.id)}
        stored = {texts[one.item_id]: one.grade for one in rows.list_annotations(connection, task.id)}
    assert stored == given
    assert set(stored.values()) == {0, 1, 2, 3}


@pytest.mark.parametrize(("viewport", "colours"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_it_is_made_for_thumbs_and_screen_readers(
    chromium: Browser, desk: Desk, viewport: dict[str, int], colours: str
) -> None:
    touch = viewport == PHONE
    with (
        served(Site(world=desk.world).app()) as address,
        opened(chromium, address, viewport=viewport, color_scheme=colours, has_touch=touch) as tab,
    ):
        page = begin(tab, "Ann")
        assert inaccessible(page) == []
        assert not wider_than_the_screen(page)
        button = page.get_by_role("button", name="Highly relevant")
        box = button.bounding_box()
        assert box is not None
        assert box["height"] >= 48
        assert box["y"] + box["height"] <= viewport["height"], "no scrolling to grade"
        button.click()
        expect(page.locator("#told")).to_contain_text(f"1 of {ITEMS} done")


def test_who_comes_to_what_others_have_in_hand_is_told_so(chromium: Browser, sqlite_store: Store) -> None:
    desk = Desk.of(sqlite_store, queries=["refunds"], overlap=0.0)
    desk.make_pool()
    desk.world.clock.now = datetime.now(UTC)
    desk.next("Ann")
    with served(Site(world=desk.world).app()) as address, opened(chromium, address) as tab:
        page = begin(tab, "Bob")
        for done in range(1, 8):
            page.keyboard.press("1")
            expect(page.locator("#told")).to_contain_text(f"{done} of 9 done")
        expect(page.get_by_role("heading", name="Nothing for you now")).to_be_visible()
        expect(page.get_by_role("heading", name="Nothing left to annotate")).to_be_hidden()
        desk.work_through("Ann")
        page.get_by_role("link", name="Look again").click()
        expect(page.get_by_role("heading", name="Nothing left to annotate")).to_be_visible()
        expect(page.get_by_role("heading", name="Nothing for you now")).to_be_hidden()


def test_without_scripts_it_is_a_form(chromium: Browser, desk: Desk) -> None:
    with served(Site(world=desk.world).app()) as address, opened(chromium, address, java_script_enabled=False) as tab:
        page = begin(tab, "Ann")
        for done in range(1, 4):
            page.get_by_role("button", name="Not relevant").click()
            expect(page.locator("#told")).to_contain_text(f"{done} of {ITEMS} done")
        page.get_by_role("button", name="Undo").click()
        expect(page.locator("#told")).to_contain_text(f"2 of {ITEMS} done")
