"""Canaries that ask within a conversation, or as somebody: who grades knows of which question."""

import csv
import io
from html import escape

import pytest
from playwright.sync_api import Browser, expect

from app.annotation.service import annotations
from app.base.db.engine import Store
from tests.support.annotation_tasks import Desk
from tests.support.browser import opened, served
from tests.support.pages_service import Site
from tests.support.present import present
from tests.support.world import canary

COST = "And what does that cost?"
SHIPPING = [{"role": "user", "content": "Do you ship to <b>Iceland</b>?"}, {"role": "assistant", "content": "Yes."}]
RETURNS = [{"role": "user", "content": "Can I return a gift?"}]
CANARIES = [
    canary("shipping", query=COST, history=SHIPPING),
    canary("returns", query=COST, history=RETURNS),
    canary("acme", query="Who signs?", vars={"tenant": "acme"}),
    canary("plain", query="Who pays?"),
]


@pytest.fixture
def desk(sqlite_store: Store) -> Desk:
    """Give a pooled task of them, all items for everybody."""
    made = Desk.of(sqlite_store, canaries=CANARIES, overlap=1.0)
    made.make_pool()
    return made


@pytest.mark.both
def test_an_annotator_gets_the_conversation_and_as_whom_a_query_is_asked(store: Store) -> None:
    desk = Desk.of(store, canaries=CANARIES, overlap=1.0)
    desk.make_pool()
    asked: dict[str, int] = {}
    found = desk.next("Ann")
    while (item := found["item"]) is not None:
        asked[repr((item["query"], item["vars"], item["history"]))] = asked.get(repr(item), 0) + 1
        again = annotations.load_item(desk.store, "truth", item["id"], annotator="Ann")
        assert (again["vars"], again["history"]) == (item["vars"], item["history"])
        found = desk.say("Ann", item["id"], 1)
    assert set(asked) == {
        repr((COST, {}, SHIPPING)),
        repr((COST, {}, RETURNS)),
        repr(("Who signs?", {"tenant": "acme"}, [])),
        repr(("Who pays?", {}, [])),
    }, "canaries of one query stay apart"


def test_the_page_shows_them_before_the_query_and_escaped(desk: Desk) -> None:
    client = Site(world=desk.world).client()
    client.cookies.set("coalmine_annotator", "Ann")
    shown: dict[str, str] = {}
    found = desk.next("Ann")
    while (item := found["item"]) is not None:
        shown[str(item["vars"]) + str(item["history"])] = client.get("/tasks/truth/annotate").text
        found = desk.say("Ann", item["id"], 1)
    pages = {"".join(one for one in ("Iceland", "gift", "acme") if one in page): page for page in shown.values()}
    assert pages.keys() == {"Iceland", "gift", "acme", ""}
    assert escape("Do you ship to <b>Iceland</b>?") in pages["Iceland"]
    assert "<b>Iceland" not in pages["Iceland"]
    assert pages["Iceland"].index("Iceland") < pages["Iceland"].index(f'<h1 id="query">{COST}')
    assert "tenant: acme" in pages["acme"]
    assert '<div id="conversation" hidden>' in pages[""]
    assert '<p id="asked-as" hidden>' in pages[""]


def test_whoever_decides_on_a_disputed_chunk_sees_them_too(desk: Desk) -> None:
    desk.work_through("Ann")
    desk.work_through("Bob", flip=2)
    disputed = annotations.list_disagreements(desk.store, "truth")
    asked = {one["canary"]: (one["vars"], one["history"]) for one in disputed}
    assert asked["shipping"] == ({}, SHIPPING)
    assert asked["acme"] == ({"tenant": "acme"}, [])
    page = Site(world=desk.world).client().get("/tasks/truth").text
    assert page.count(escape(SHIPPING[0]["content"])) == [one["canary"] for one in disputed].count("shipping") > 0
    assert "tenant: acme" in page


def test_annotations_as_csv_say_what_was_asked(desk: Desk) -> None:
    desk.work_through("Ann")
    text = annotations.export_annotations(desk.store, "truth")
    asked = {one["canary"]: (one["query"], one["vars"], one["history"]) for one in csv.DictReader(io.StringIO(text))}
    assert asked == {
        "shipping": (COST, "", "user: Do you ship to <b>Iceland</b>?\nassistant: Yes."),
        "returns": (COST, "", "user: Can I return a gift?"),
        "acme": ("Who signs?", "tenant: acme", ""),
        "plain": ("Who pays?", "", ""),
    }


def test_the_conversation_follows_the_item_in_a_browser(chromium: Browser, desk: Desk) -> None:
    with served(Site(world=desk.world).app()) as address, opened(chromium, address) as tab:
        page = tab.open("/tasks/truth/annotate")
        page.get_by_label("Your name").fill("Ann")
        page.get_by_role("button", name="Begin").click()
        expect(page.locator("#told")).to_be_visible()
        page.wait_for_load_state("load")
        asked = set()
        items = len(desk.items())
        for done in range(1, items + 1):
            item = present(desk.next("Ann")["item"])
            turns = page.locator("#turns li")
            expect(turns).to_have_text([f"{turn['role']}: {turn['content']}" for turn in item["history"]])
            expect(page.locator("#conversation")).to_be_visible(visible=bool(item["history"]))
            expect(page.locator("#asked-as")).to_be_visible(visible=bool(item["vars"]))
            expect(page.locator("#vars")).to_have_text("tenant: acme" if item["vars"] else "")
            asked.add((bool(item["history"]), bool(item["vars"])))
            page.keyboard.press("1")
            expect(page.locator("#told")).to_contain_text(f"{done} of {items} done")
        assert len(asked) == 3
