"""Forms save over what they were opened with and nothing newer; making something never overwrites what is there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from app.base.db.engine import Connection, Store, to_us
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError
from app.catalog import store as catalog
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.service import references, suites
from app.catalog.service.suites import plan_suite, suite_content, suite_definition, write_suite_plan
from app.catalog.store import API
from app.definitions.service import definitions
from app.definitions.service.definitions import stored_content
from app.hooks.documents import HookDocument
from tests.retrievers.test_pages_wizard import ANSWER, fields_of
from tests.support.blocking import overtaken
from tests.support.fakes import START, FakeProbe
from tests.support.pages_service import Bench, Site, page, site
from tests.support.world import RETRIEVER, canary
from tests.support.world import page as canary_page


@dataclass(frozen=True, kw_only=True)
class Edited:
    """Something with a form: where that is, how the API changes it, and what is typed into which field."""

    form: str
    api: str
    first: Mapping[str, Any]
    newer: Mapping[str, Any]
    typed: tuple[str, str]
    makes: str
    slug: str = "slug"


CHECK: Mapping[str, Any] = {"suite": "mine", "retriever": "ours", "schedule": {"every": "5m"}}
OURS: Mapping[str, Any] = {name: value for name, value in RETRIEVER.items() if name != "slug"}
HOOK: Mapping[str, Any] = {"kind": "webhook", "url": "https://hooks.test/in"}
SILENCE: Mapping[str, Any] = {"checks": ["watch"], "ends": "2999-01-01T00:00:00Z"}
ASKED: Mapping[str, Any] = {"query": "What?"}
EDITED = {
    "check": Edited(
        form="/checks/sharp/edit",
        api="/v1/checks/sharp",
        first=CHECK,
        newer={**CHECK, "k": 7},
        typed=("schedule.every", "9m"),
        makes="/new-check",
    ),
    "retriever": Edited(
        form="/retrievers/ours/map",
        api="/v1/retrievers/ours",
        first=OURS,
        newer={**OURS, "timeout": 3},
        typed=("response.id", "key"),
        makes="/new-retriever",
    ),
    "hook": Edited(
        form="/hooks/chat/edit",
        api="/v1/hooks/chat",
        first=HOOK,
        newer={**HOOK, "timeout": 3},
        typed=("url", "https://else.test/"),
        makes="/new-hook",
    ),
    "silence": Edited(
        form="/silences/rebuild/edit",
        api="/v1/silences/rebuild",
        first=SILENCE,
        newer={**SILENCE, "reason": "theirs"},
        typed=("reason", "ours"),
        makes="/new-silence",
    ),
    "canary": Edited(
        form="/suites/mine/canaries/what",
        api="/v1/suites/mine/canaries/what",
        first=ASKED,
        newer={**ASKED, "tags": ["theirs"]},
        typed=("query", "What else?"),
        makes="/suites/mine/add",
        slug="key",
    ),
}


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over one of each kind, managed by the API."""
    made = Bench(world=site(sqlite_store).world, probe=FakeProbe())
    made.world.apply(canary_page([canary("ant")]))
    client = made.client()
    assert client.put("/v1/suites/mine", json={}).status_code == 201
    for kind in ("retriever", "hook", "canary", "check", "silence"):
        answer = client.put(EDITED[kind].api, json=EDITED[kind].first)
        assert answer.status_code == 201, answer.text
    return made


def test_a_form_does_not_save_over_what_came_since_it_was_opened_and_keeps_what_was_typed(pages: Site) -> None:
    client = pages.client()
    for edited in EDITED.values():
        form = {**fields_of(pages.page(edited.form)), edited.typed[0]: edited.typed[1], "do": "save"}
        assert client.put(edited.api, json=edited.newer).status_code == 200
        before = pages.world.dump()
        for _ in range(2):  # the refused form is as old as it was
            shown = page(client.post(edited.form, data=form), 409)
            assert "was changed by somebody else meanwhile" in shown.text
            assert shown.one("a", href=edited.form, target="_blank").text == "open it anew"
            form = {**fields_of(shown), "do": "save"}
            assert form[edited.typed[0]] == edited.typed[1]
        assert pages.world.dump() == before
        anew = {**fields_of(pages.page(edited.form)), edited.typed[0]: edited.typed[1], "do": "save"}
        assert client.post(edited.form, data=anew).status_code == 303


def test_a_form_that_does_not_say_what_it_was_opened_with_saves_nothing(pages: Site) -> None:
    client = pages.client()
    for edited in EDITED.values():
        opened = {**fields_of(pages.page(edited.form)), edited.typed[0]: edited.typed[1], "do": "save"}
        assert client.put(edited.api, json=edited.newer).status_code == 200
        before = pages.world.dump()
        for revision in ({}, {"revision": ""}, {"revision": "newest"}, {"revision": "1.0"}):
            form = {**{name: text for name, text in opened.items() if name != "revision"}, **revision}
            for _ in range(2):  # pressed again, it does not pass for one that shows what came meanwhile
                shown = page(client.post(edited.form, data=form), 422)
                assert "the form is incomplete; load the page again" in shown.text.lower()
                assert "This form does not say which version of it you opened" in shown.text
                assert shown.one("a", href=edited.form, target="_blank").text == "open it anew"
                form = {**fields_of(shown), "do": "save"}
                assert form[edited.typed[0]] == edited.typed[1]
        assert pages.world.dump() == before


MADE: Mapping[str, Mapping[str, str]] = {
    "check": {"slug": "sharp", "suite": "mine", "retriever": "ours", "schedule.every": "9m", "k": "5"},
    "retriever": {"slug": "ours", "url": "http://else.test/", "response.id": "key", "scorer": "judged"},
    "hook": {"slug": "chat", "kind": "webhook", "url": "https://else.test/"},
    "silence": {"slug": "rebuild", "checks": "watch", "for": "2h", "when": "once", "timezone": "UTC"},
    "canary": {"key": "what", "query": "Else?"},
}


def test_making_something_does_not_overwrite_what_has_its_name(pages: Site) -> None:
    for kind, edited in EDITED.items():
        before = pages.world.dump()
        request = {"request.json": '{"q": "{{ query }}"}', "answer": str(ANSWER)} if kind == "retriever" else {}
        shown = page(pages.client().post(edited.makes, data={**MADE[kind], **request, "do": "save"}), 409)
        told = shown.one("span", id=f"wrong-{edited.slug}").text
        assert f"there is a {kind} '{MADE[kind][edited.slug]}' already" in told
        assert pages.world.dump() == before


def test_making_a_suite_does_not_touch_the_one_that_has_its_name(pages: Site) -> None:
    before = pages.world.dump()
    shown = page(pages.client().post("/suites", data={"slug": "mine"}), 409)
    assert "there is a suite 'mine' already" in shown.one("span", id="wrong-slug").text
    assert pages.world.dump() == before


# --- what only happens between two transactions ---


def hook(url: str) -> HookDocument:
    """Give a hook."""
    return parse_document(HookDocument, {"slug": "chat", "kind": "webhook", "url": url})


def asking(query: str) -> CanaryDocument:
    """Give a canary."""
    return parse_document(CanaryDocument, {"key": "what", "query": query})


def test_of_two_that_make_the_same_at_once_the_second_hears_of_the_first(postgresql_store: Store) -> None:
    """There is no row to hold yet, so both find nothing there."""
    store, vault = postgresql_store, Vault("a key for tests alone")

    def make(connection: Connection) -> None:
        content = stored_content(vault, hook("https://first.test/"))
        catalog.save_definition(connection, "hook", "chat", content, managed_by=API, source=None, now=to_us(START))

    with pytest.raises(ConflictError):
        overtaken(
            store, make, lambda: definitions.put(store, vault, hook("https://second.test/"), now=START, only_new=True)
        )
    assert references.load_definition(store, "hook", "chat").body["url"] == "https://first.test/"


def test_of_two_that_make_a_suite_at_once_the_second_hears_of_the_first(postgresql_store: Store) -> None:
    store = postgresql_store

    def make(connection: Connection) -> None:
        content = suite_definition("mine")
        catalog.save_definition(connection, "suite", "mine", content, managed_by=API, source=None, now=to_us(START))

    with pytest.raises(ConflictError):
        overtaken(store, make, lambda: suites.put_suite(store, SuiteDocument(slug="mine"), now=START, only_new=True))


@pytest.mark.parametrize("there", ["new", "known"])
def test_of_two_that_write_a_canary_at_once_the_second_hears_of_the_first(postgresql_store: Store, there: str) -> None:
    store = postgresql_store
    suites.put_suite(store, SuiteDocument(slug="mine"), now=START)
    if there == "known":
        suites.put_canary(store, "mine", asking("Before?"), now=START, over=None)
    over = None if there == "new" else references.load_canary(store, "mine", "what").version_id

    def write(connection: Connection) -> None:
        plan = plan_suite(connection, suite_content("mine", [asking("First?")]), replace=False)
        write_suite_plan(connection, plan, managed_by=API, now=to_us(START))

    with pytest.raises(ConflictError):
        overtaken(store, write, lambda: suites.put_canary(store, "mine", asking("Second?"), now=START, over=over))
    assert references.load_canary(store, "mine", "what").body["query"] == "First?"
