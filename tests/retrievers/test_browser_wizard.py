"""From nothing to a first healthy run with a browser alone; the answer pointed at by mouse and by keyboard."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from app.base.db.engine import Store
from tests.support.browser import DESKTOP, PHONE, inaccessible, opened, served, wider_than_the_screen
from tests.support.fakes import FakeProbe, answered, hits
from tests.support.http_servers import Peer, Reply, Seen, peer, reply
from tests.support.living import coalmine
from tests.support.pages_service import HOSTILE, site
from tests.support.world import canary
from tests.support.world import page as canary_page

PROSE = "Logs are kept for thirty days in the hot tier and for a year in the archive."
ANSWER = {
    "took": 3,
    "found": [
        {"key": "run-logs", "closeness": 0.91, "body": PROSE, "of": {"file": "logs.md"}},
        {"key": "access", "closeness": 0.42, "body": "Access is granted by the owner of a workspace.", "of": {}},
    ],
    "version": "v7",
}
NEW = "/new-retriever?preset=generic"


@pytest.fixture
def address(sqlite_store: Store) -> Iterator[str]:
    """Serve the pages over nothing yet."""
    with served(site(sqlite_store, probe=FakeProbe()).app()) as found:
        yield found


@pytest.fixture
def retriever() -> Iterator[Peer]:
    """Serve a retriever that answers everything alike, in a shape of its own."""

    def answer(seen: Seen) -> Reply:
        return reply(json.dumps(ANSWER).encode()) if b"question" in seen.body else reply(b"{}", 400)

    with peer(answer) as running:
        yield running


def node(*parts: str | int) -> str:
    """Name the value of an answer as a selector."""
    return f"button.node[value='{json.dumps(parts)}']"


def test_a_newcomer_gets_from_nothing_to_a_healthy_run(chromium: Browser, tmp_path: Path, retriever: Peer) -> None:
    with coalmine(tmp_path) as (url, _), opened(chromium, url) as tab:
        page = tab.open("/retrievers")
        page.get_by_role("link", name="Connect a retriever").click()
        page.get_by_role("link", name="generic").click()
        page.get_by_label("Name", exact=True).fill("docs")
        page.get_by_label("URL", exact=True).fill(f"{retriever.url}/ask")
        page.get_by_label("Body as JSON").fill('{"question": "{{ query }}", "most": "{{ k }}"}')
        page.get_by_label("Query", exact=True).fill("How long are logs kept?")
        page.get_by_label("Query", exact=True).press("Enter")
        for field, parts, path in (
            ("hits", ("found",), "found"),
            ("id", ("found", 0, "key"), "key"),
            ("score", ("found", 0, "closeness"), "closeness"),
            ("text", ("found", 0, "body"), "body"),
        ):
            expect(page.locator(f'[name="pointing"][value="{field}"]')).to_be_checked()
            page.locator(node(*parts)).click()
            expect(page.locator(f'[name="response.{field}"]')).to_have_value(path)
        expect(page.locator("#preview")).to_contain_text("top score 0.910")
        expect(page.locator("#f-scorer")).to_have_value("similarity")
        expect(page.locator(node("found", 0, "key"))).to_contain_text("Id")
        page.get_by_role("button", name="Save the retriever").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("docs")

        page.get_by_role("link", name="A suite of canaries").click()
        page.get_by_label("Name").fill("mine")
        page.get_by_role("button", name="Create suite").click()
        page.get_by_role("link", name="Add the first canary").click()
        page.get_by_label("Query", exact=True).fill("How long are logs kept?")
        page.get_by_role("button", name="Send query").click()
        page.get_by_label("Expect run-logs").check()
        page.get_by_role("button", name="Save the canary").click()
        expect(page.get_by_role("status").first).to_contain_text("how-long-are-logs-kept")

        page.get_by_role("link", name="New check").click()
        page.get_by_role("button", name="Save the check").click()
        page.wait_for_url("**/checks/mine-docs?saved=yes")
        expect(page.locator(".headline.healthy")).to_be_visible(timeout=60_000)  # shown by itself, as there was no run
        expect(page.locator("table.runs")).not_to_contain_text("running")


def test_a_least_relevance_is_taken_over_without_losing_what_was_found(chromium: Browser, sqlite_store: Store) -> None:
    bench = site(sqlite_store, probe=FakeProbe(otherwise=lambda _: answered(hits("c1", "c2", scores=(0.4, 0.3)))))
    bench.world.apply(canary_page([canary("a")]))
    with served(bench.app()) as url, opened(chromium, url) as tab:
        page = tab.open("/suites/suite/add")
        page.get_by_label("Query", exact=True).fill("How long?")
        page.get_by_role("button", name="Send query").click()
        page.get_by_label("Expect c1").check()
        page.get_by_role("button", name="Set the minimum relevance to 0.32").click()
        expect(page.get_by_label("Minimum relevance")).to_have_value("0.32")
        expect(page.get_by_label("Expect c1")).to_be_checked()


def test_on_a_phone_all_that_a_canary_expects_stands_beside_its_label(chromium: Browser, sqlite_store: Store) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    bench.world.apply(
        canary_page([{**canary("a"), "expected_chunks": [{"id": "c1", "text": PROSE}], "tags": ["legal"]}])
    )
    with served(bench.app()) as url, opened(chromium, url, viewport=PHONE) as tab:
        page = tab.open("/suites/suite")
        boxes = [page.locator(f"td {inner}").first.bounding_box() for inner in ("code", "q", ".tags")]
        left = [box["x"] for box in boxes if box is not None]
        assert left == [left[0]] * 3
        assert not wider_than_the_screen(page)


IDS = ("retention_policy_doc", "3f0c1e52-9a1b-4b7e-8f60-7d1c2a9b4e11", "handbook/" + "a-very-long-chapter-" * 8 + "end")


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_ids_of_a_suite_stand_on_one_line_and_long_ones_end_in_dots(
    chromium: Browser, sqlite_store: Store, viewport: dict[str, int]
) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    keys = ("who-pays-the-hotel", "how-long-is-parental-leave-and-may-it-be-taken-in-two-parts")
    expected = [IDS[0], {"document": IDS[1]}, IDS[2]]
    words = "and what of the very many other things that people ask about hotels?"
    suite = [{**canary(key), "query": f"Who pays, {words}", "expected_chunks": expected} for key in keys]
    bench.world.apply(canary_page(suite))
    with served(bench.app()) as url, opened(chromium, url, viewport=viewport) as tab:
        page = tab.open("/suites/suite")
        names = page.locator("table.canaries :is(.names > a:first-child, code)")
        told = names.evaluate_all(
            """(all) => all.map((one) => {
              const text = document.createRange();
              text.selectNodeContents(one);
              const cut = one.scrollWidth > one.clientWidth;
              const lines = new Set([...text.getClientRects()].map((box) => Math.round(box.top)));
              return [one.textContent, lines.size, cut ? one.title : one.textContent];
            })"""
        )
        assert len(told) == 2 * (1 + len(IDS))
        assert {lines for _, lines, _ in told} == {1}
        assert {whole for _, _, whole in told} == {*keys, *IDS}
        assert not wider_than_the_screen(page)


def test_the_token_of_a_refused_form_stays_in_no_address(chromium: Browser, sqlite_store: Store) -> None:
    bench = site(sqlite_store, probe=FakeProbe())
    bench.world.apply(canary_page([canary("a")]))
    with served(bench.app()) as url, opened(chromium, url, expected=("status of 409",)) as tab:
        page = tab.open("/suites")
        page.get_by_label("Name").fill("suite")
        page.get_by_role("button", name="Create suite").click()
        expect(page.get_by_role("main")).to_contain_text("there is a suite 'suite' already")
        expect(page).to_have_url(f"{url}/suites")
        page.goto(page.url)
        expect(page.get_by_role("main")).not_to_contain_text("already")


def test_an_answer_made_taller_by_hand_breaks_no_policy(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as tab:
        page = tab.open(NEW)
        answer = page.get_by_label("Response", exact=True)
        answer.fill(json.dumps(ANSWER))
        answer.scroll_into_view_if_needed()
        before = answer.bounding_box()
        assert before is not None
        right, bottom = before["x"] + before["width"], before["y"] + before["height"]
        page.mouse.move(right - 5, bottom - 5)
        page.mouse.down()
        page.mouse.move(right - 5, bottom + 60)
        page.mouse.up()
        assert "height" in str(answer.get_attribute("style"))
        page.get_by_role("button", name="Parse response").click()
        expect(page.locator(".tree")).to_contain_text("closeness")


def test_the_preview_follows_the_score_that_is_half_relevant(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as tab:
        page = tab.open(NEW)
        page.get_by_label("Response", exact=True).fill(json.dumps(ANSWER))
        page.get_by_role("button", name="Parse response").click()
        page.get_by_role("button", name="Use this").click()
        expect(page.locator(".said")).to_contain_text("was taken over")
        page.get_by_label("Path of score").fill("closeness")
        expect(page.locator("#preview")).to_contain_text("0.91")
        page.get_by_label("Scores are").select_option("unbounded")
        page.get_by_label("Score that is half relevant").fill("0.91")
        expect(page.locator("#preview")).to_contain_text("top score 0.500")
        page.get_by_label("Score that is half relevant").fill("many")
        expect(page.locator("#wrong-scorer-anchor")).to_have_text("must be a number, not text")
        expect(page.get_by_label("Score that is half relevant")).to_have_value("many")


def test_the_answer_is_pointed_at_by_keyboard(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as tab:
        page = tab.open(NEW)
        page.get_by_label("Response", exact=True).fill(json.dumps(ANSWER))
        page.get_by_role("button", name="Parse response").focus()
        page.keyboard.press("Enter")
        page.locator("button.node").first.focus()
        for keys, field, path in (
            (["ArrowDown", "ArrowDown"], "hits", "found"),
            (["ArrowRight", "ArrowDown"], "id", "key"),
            (["ArrowDown"], "score", "closeness"),
            (["ArrowDown"], "text", "body"),
            (["ArrowDown", "ArrowDown"], "document", "of.file"),
        ):
            for key in keys:
                page.keyboard.press(key)
            page.keyboard.press("Enter")
            expect(page.locator(f'[name="response.{field}"]')).to_have_value(path)
        expect(page.locator("#preview")).to_contain_text("logs.md")
        expect(page.locator(node("found", 0, "of", "file"))).to_be_focused()
        page.keyboard.press("ArrowLeft")
        expect(page.locator(node("found", 0, "of"))).to_be_focused()
        page.keyboard.press("End")
        expect(page.locator(node("version"))).to_be_focused()
        page.keyboard.press("Home")
        expect(page.locator(node())).to_be_focused()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('.tree')") is None  # one stop for the whole tree


def test_a_typed_path_is_previewed_as_it_is_typed(chromium: Browser, address: str) -> None:
    with opened(chromium, address) as tab:
        page = tab.open(NEW)
        page.get_by_label("Response", exact=True).fill(json.dumps(ANSWER))
        page.get_by_role("button", name="Parse response").click()
        page.get_by_label("Path of list of hits").fill("found")
        page.get_by_label("Path of id").fill("key")
        expect(page.locator("#preview table")).to_contain_text("run-logs")
        page.get_by_label("Path of id").press_sequentially("[")
        expect(page.locator("#wrong-response-id")).to_contain_text("not a JMESPath expression")
        expect(page.get_by_label("Path of id")).to_be_focused()
        page.get_by_label("Path of id").press("Backspace")
        expect(page.locator("#wrong-response-id")).to_be_empty()
        expect(page.locator(node("found", 1, "key"))).to_contain_text("Id")


def test_the_wizard_at_work_is_for_everybody_and_hostile_answers_do_nothing(chromium: Browser, address: str) -> None:
    hostile = {
        "found": [{"key": HOSTILE, HOSTILE: HOSTILE, "closeness": 0.5, "body": HOSTILE * 9}] * 9,
        HOSTILE: [HOSTILE],
    }
    with opened(chromium, address, viewport=PHONE, color_scheme="dark") as tab:
        page = tab.open(NEW)
        page.get_by_label("Response", exact=True).fill(json.dumps(hostile))
        page.get_by_role("button", name="Parse response").click()
        page.locator(node("found", 0, "key")).click()
        page.locator('[name="pointing"][value="text"]').check()
        page.get_by_role("button", name=HOSTILE).nth(0).click()
        expect(page.locator("#preview table")).to_contain_text("<img src=x")
        assert inaccessible(page) == []
        assert not wider_than_the_screen(page)
