"""The overview: what is looked for is found, a page at a time, and what is wrong with Coalmine itself is said."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
import sqlalchemy as sa

from app.base.db.engine import Store, to_us
from app.base.db.keys import Scope
from app.base.web.pages import ABSENT
from app.hooks.domain import Receipt
from app.records.service import run_views
from app.records.tables import runs
from app.reports.pages.navigation import MENU, TASKS
from app.reports.service import check_details, overview
from app.reports.service.check_details import SPARK_RUNS
from app.reports.service.overview import PAGE, CheckFilter
from tests.support.fakes import answered, hits
from tests.support.html_pages import Page
from tests.support.pages_service import HOSTILE, Site, csrf, page, site
from tests.support.world import AT_ONCE, COVERAGE, World, canary, statements
from tests.support.world import page as canary_page

QUICK = {**COVERAGE, "open": {"bad": 1, "of": 1}}
REFUSED = Receipt(ok=False, http_status=410, error="refused", untaken=True, gone=True)


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give three checks: one lost what is tagged legal, one is well, one has not run yet."""
    return _pages_of(sqlite_store)


@pytest.fixture(scope="module")
def seen(shared_stores: Callable[[], Store]) -> Site:
    """Give the same to tests that only look at it."""
    return _pages_of(shared_stores())


def _pages_of(store: Store) -> Site:
    found = site(store)
    found.world.apply(*_three())
    found.world.run("leave")
    found.world.run("billing")
    found.world.probe.all_miss()
    found.world.probe.answers["vat"] = answered(hits("doc-vat"))
    found.world.run("billing")
    return found


def _three(**billing: Any) -> list[dict[str, Any]]:
    """Describe the three checks, the one of invoices with these fields changed."""
    legal = [canary("fee", tags=["legal"]), canary("tax", tags=["legal"]), canary("vat", category="procedural")]
    return [
        canary_page(legal, slug="billing", suite="invoices", rules=[QUICK], **billing),
        {**canary_page([canary("sick")], slug="leave", suite="people"), "retrievers": [], "hooks": []},
        {**canary_page([canary("new")], slug="novel", suite="books"), "retrievers": [], "hooks": []},
    ]


def _shown(pages: Site, **filters: Any) -> list[str]:
    return list(_rows(pages.page(f"/?{urlencode(filters)}")))


def _rows(shown: Page) -> dict[str, str]:
    rows = [row.text for row in shown.all("tr") if "on search" in row.text]
    return {row.split(" ")[0]: row for row in rows}


def _chips(shown: Page) -> str:
    return shown.one("fieldset", class_="chips").text


def _many(pages: Site, count: int) -> None:
    described: Mapping[str, Any] = canary_page([canary("one")], suite="invoices")
    check = described["checks"][0]
    pages.world.apply({**described, "checks": [{**check, "slug": f"c{number:03}"} for number in range(count)]})


# --- filters -------------------------------------------------------------------------------------------------


def test_each_filter_leaves_what_is_like_it(seen: Site) -> None:
    assert _shown(seen) == ["billing", "novel", "leave"]
    assert _shown(seen, suite="people") == ["leave"]
    assert _shown(seen, retriever="search") == ["billing", "novel", "leave"]
    assert _shown(seen, retriever="other") == []
    assert _shown(seen, q="INVOI") == ["billing"]
    assert _shown(seen, verdict="healthy") == ["leave"]
    assert _shown(seen, verdict="none") == ["novel"]
    assert _shown(seen, category="procedural") == ["billing"]
    assert _shown(seen, tag="legal", suite="people") == []


def test_only_failing_is_what_somebody_has_to_look_at(pages: Site) -> None:
    # The new one and the healthy one are overdue: nothing of theirs completed for two intervals.
    assert _shown(pages, failing="1") == ["billing", "novel", "leave"]
    world = pages.world
    world.clock.now = datetime.now(UTC)
    world.probe.all_answer()
    world.run("novel")
    world.run("leave")
    assert _shown(pages, failing="1") == ["billing"]
    assert _shown(pages, failing="1", verdict="healthy") == []


def test_the_coverage_of_the_part_one_asked_for_is_shown(seen: Site) -> None:
    assert "0.000 with tag legal, 2 of 2 canaries measured" in _rows(seen.page("/?tag=legal"))["billing"]
    row = _rows(seen.page("/?tag=legal&category=procedural"))["billing"]
    assert "1.000 in procedural, 1 of 1 canary measured" in row
    assert "with tag" not in _rows(seen.page("/"))["billing"]


def test_of_a_run_that_measured_nobody_no_number_is_degraded(pages: Site) -> None:
    pages.world.probe.all_fail()
    pages.world.run("leave")
    assert "0 of 0" not in _rows(pages.page("/"))["leave"]
    shown = pages.page("/checks/leave").one("dl", class_="tiles").text
    assert f"Degraded {ABSENT} of 0 measured canaries" in shown


def test_verdicts_are_counted_whichever_is_chosen(seen: Site) -> None:
    assert (
        _chips(seen.page("/"))
        == "Verdict of the newest run all 3 1 healthy 1 degraded 0 unknown 1 no runs yet 0 disabled"
    )
    shown = seen.page("/?verdict=degraded&q=b")
    assert _chips(shown) == "Verdict of the newest run all 2 0 healthy 1 degraded 0 unknown 1 no runs yet 0 disabled"
    assert "checked" in shown.one("input", value="degraded").attributes
    assert shown.one("p", id="found-count").text == "1 of 3 checks. Show all"


def test_what_was_chosen_stands_in_the_form_and_in_the_address_it_follows(seen: Site) -> None:
    shown = seen.page("/?q=b&suite=invoices&tag=gone&failing=1&category=&page=1")
    assert shown.one("input", id="by-text").get("value") == "b"
    assert [one.get("value") for one in shown.all("option") if "selected" in one.attributes] == ["invoices", "gone"]
    assert "checked" in shown.one("input", name="failing").attributes
    assert shown.one("div", id="found").get("hx-get") == "/?q=b&suite=invoices&tag=gone&failing=1"
    assert "No matching checks" in shown.text


def test_hostile_filters_stay_texts(seen: Site) -> None:
    shown = seen.page("/?" + urlencode({"q": HOSTILE, "tag": HOSTILE, "suite": HOSTILE}))
    assert shown.one("input", id="by-text").get("value") == HOSTILE
    assert not shown.all("script", src=None)  # type: ignore[arg-type] # none without a source
    assert not shown.all("img", src="x")


def test_a_verdict_there_is_none_of_is_a_problem(seen: Site) -> None:
    assert "is one of healthy, degraded, unknown, none, off" in seen.page("/?verdict=bad", 422).text


# --- the first line ------------------------------------------------------------------------------------------


def test_the_first_line_says_whether_all_is_well(pages: Site) -> None:
    assert pages.page("/").one("p", id="status").text == "3 of 3 active checks failing"
    world = pages.world
    world.clock.now = datetime.now(UTC)
    world.probe.all_answer()
    for check in ("billing", "novel", "leave"):
        for _ in range(2):
            world.run(check)
    assert pages.page("/").one("p", id="status").text == "All 3 active checks healthy"


def test_the_first_line_calls_nothing_healthy_that_has_not_run(sqlite_store: Store) -> None:
    pages = site(sqlite_store)

    def status() -> tuple[str, str | None]:
        line = pages.page("/").one("p", id="status")
        return line.text, line.get("class")

    pages.world.clock.now = datetime.now(UTC)
    pages.world.apply(canary_page([canary("new")], slug="novel"))
    assert status() == ("The check has not run yet", "status none")
    pages.world.apply(*_three())
    assert status() == ("None of 3 active checks has run yet", "status none")
    pages.world.probe.all_answer()
    pages.world.run("leave")
    assert status() == ("1 of 3 active checks healthy, 2 not run yet", "status healthy")


def test_the_first_line_says_what_is_overdue_and_has_not_run(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(canary_page([canary("new")], slug="novel"))
    assert pages.page("/").one("p", id="status").text == "The check is overdue, it has not run yet"


def test_the_first_line_says_what_cannot_be_measured(pages: Site) -> None:
    world = pages.world
    world.clock.now = datetime.now(UTC)
    world.probe.all_fail()
    for check in ("billing", "novel", "leave"):
        world.run(check)
    assert pages.page("/").one("p", id="status").text == "3 of 3 active checks cannot be measured"


def test_few_checks_are_shown_without_filters_and_many_with_them(pages: Site) -> None:
    assert "open" not in pages.page("/").one("details", class_="filter").attributes
    assert "open" in pages.page("/?q=b").one("details", class_="filter").attributes
    _many(pages, 6)
    assert "open" in pages.page("/").one("details", class_="filter").attributes


def test_the_verdicts_of_the_last_runs_are_drawn_for_each_check(seen: Site) -> None:
    shown = seen.page("/")
    names = [one.get("aria-label") for one in shown.all("svg", class_="history")]
    assert names == ["Last 2 runs: 1 degraded, 1 healthy", "Last run: 1 healthy"]


def test_a_bar_leads_to_its_run_and_is_no_stop_of_the_keyboard(seen: Site) -> None:
    shown = seen.page("/")
    assert [one.get("href") for one in shown.all("a", tabindex="-1")] == ["/runs/2", "/runs/3", "/runs/1"]


def test_a_check_that_is_not_healthy_says_since_when(pages: Site) -> None:
    pages.world.clock.now += timedelta(hours=1)
    pages.world.run("billing")
    rows = _rows(pages.page("/"))
    assert "since " in rows["billing"], "it was healthy in the run before"
    assert "since" not in rows["leave"]
    (began,) = {one.get("datetime") for one in pages.page("/").all("time", **{"data-when": "since"})}
    assert began == run_views.run(pages.world.store, "3")["finished_at"]
    pages.world.clock.now += timedelta(hours=1)
    for _ in range(SPARK_RUNS):
        pages.world.run("billing")
    assert f"for more than {SPARK_RUNS} runs" in _rows(pages.page("/"))["billing"]


def test_checks_are_sorted_by_a_click_on_a_head(seen: Site) -> None:
    links = {
        one.text: one.get("href") for one in seen.page("/").all("a", class_="quiet-link") if "sort" in one.get("id")
    }
    assert links == {
        "Check": "/?sort=name",
        "Verdict": "/",
        "Coverage": "/?sort=coverage",
        "Degraded": "/?sort=degraded",
        "Last run": "/?sort=run",
    }
    assert _shown(seen, sort="name") == ["billing", "leave", "novel"]
    assert _shown(seen, sort="coverage") == ["billing", "leave", "novel"], "what was never measured comes last"
    assert _shown(seen, sort="run") == ["billing", "leave", "novel"]
    shown = seen.page("/?sort=degraded&q=e")
    assert shown.one("th", **{"aria-sort": "descending"}).text == "Degraded"
    assert shown.one("input", name="sort").get("value") == "degraded"
    seen.page("/?sort=size", 422)


def test_checks_are_grouped_the_one_with_the_most_urgent_first(seen: Site) -> None:
    shown = seen.page("/?group=suite")
    heads = [row.text for row in shown.all("tr", class_="group")]
    assert heads == ["invoices 1 check, 1 failing", "books 1 check, 1 failing", "people 1 check, 1 failing"]
    assert shown.one("p", id="found-count").text == "3 checks; sorted by severity."
    by_tag = seen.page("/?group=tag")
    assert next(row.text for row in by_tag.all("tr", class_="group")) == "legal 1 check, 1 failing"
    assert "0.000 with tag legal, 2 of 2 canaries measured" in _rows(by_tag)["billing"]
    seen.page("/?group=team", 422)


def test_a_wall_screen_shows_tiles_alone_and_leads_back(seen: Site) -> None:
    shown = seen.page("/?wall=1&sort=name")
    tiles = [one.text for one in shown.all("li", class_="card")]
    assert [tile.split(" ")[0] for tile in tiles] == ["billing", "leave", "novel"]
    assert not shown.all("table")
    (back,) = [one for one in shown.all("a", class_="button") if "Leave" in one.text]
    assert back.get("href") == "/?sort=name"
    assert "1 of 3 questions find their document" in shown.one("ul", class_="wall").text


def test_an_empty_overview_leads_on_with_two_buttons(sqlite_store: Store) -> None:
    shown = site(sqlite_store).page("/")
    assert [one.get("href") for one in shown.all("a", class_="button")][:2] == ["/new-retriever", "/import"]


# --- many ----------------------------------------------------------------------------------------------------


def test_many_checks_come_a_page_at_a_time_the_urgent_first(pages: Site) -> None:
    _many(pages, PAGE + 3)
    pages.world.probe.all_miss()
    pages.world.run("c052")
    first = pages.page("/")
    assert next(iter(_rows(first))) == "c052"
    assert len(_rows(first)) == PAGE
    assert first.one("p", id="found-count").text == f"{PAGE + 3} checks; sorted by severity. Page 1 of 2."
    (following,) = first.all("a", rel="next")
    last = pages.page(following.get("href"))
    assert list(_rows(last)) == ["c049", "c050", "c051"]
    assert last.one("a", rel="prev").get("href") == "/"
    assert list(_rows(pages.page("/?page=99"))) == list(_rows(last))


def test_the_incidents_of_the_last_day_are_counted_and_lead_to_their_list(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(canary_page([canary("ant")], rules=[AT_ONCE]))
    assert not pages.page("/").all("a", href="/alerts?within=24h")
    pages.world.degrade()
    assert pages.page("/").one("a", href="/alerts?within=24h").text == "1 incident in 24 h"
    assert not pages.page("/?verdict=degraded").all("a", href="/alerts?within=24h")


def test_more_checks_ask_no_more_of_the_database(pages: Site) -> None:
    store, counts = pages.world.store, []
    for count in (4, 16):
        _many(pages, count)
        for number in range(0, count, 3):
            pages.world.run(f"c{number:03}")
        asked: list[str] = []
        with statements(store, asked.append):
            found = overview.list_checks(store, CheckFilter(), pages.world.clock())
        assert found.total == count
        counts.append(len(asked))
    assert counts[0] == counts[1]


def test_either_database_shows_the_same(store: Store) -> None:
    world = World(store=store)
    world.apply(canary_page([canary("fee", tags=["legal"]), canary("tax")], slug="billing", rules=[QUICK]))
    world.run("billing")
    world.probe.all_miss()
    world.run("billing")
    world.wish("billing")
    world.send.receipts += [REFUSED]
    world.deliver_all()
    found = overview.list_checks(store, CheckFilter(tag="legal", verdict="degraded", failing=True), world.clock())
    (line,) = found.lines
    assert [(one.verdict, one.coverage) for one in line.recent] == [("healthy", 1.0), ("degraded", 0.0)]
    assert line.slices["tag"].coverage == 0.0
    assert (line.active, line.alerts) == ("queued", {("firing", "critical"): 1})
    assert (found.tags, found.dead) == (["legal"], {"ops": 1})


def test_a_run_by_schedule_is_shown_once_it_may_begin(pages: Site) -> None:
    world = pages.world
    world.apply(canary_page([canary("fee")], slug="billing"))
    world.run("billing")

    def queued() -> list[str]:
        badges = pages.page("/").all("span", class_="badge")
        shown = (*badges, pages.page("/checks/billing").one("div", id="run-state"))
        return [one.text for one in shown if "ueued" in one.text]

    def active(at: datetime) -> list[str | None]:
        line = check_details.load_line(world.store, "billing", at)
        return [line.active, *(one.active for one in overview.list_checks(world.store, CheckFilter(), at).lines)]

    begins = datetime.now(UTC) + timedelta(minutes=1)
    run_id = world.wish("billing")
    assert queued() == ["queued", f"Queued Run {run_id}"]
    with world.store.write() as connection:  # as the clock queues it, with its start spread
        connection.execute(sa.update(runs).where(runs.c.id == run_id).values(not_before=to_us(begins)))
    assert queued() == []
    assert active(begins - timedelta(seconds=1)) == [None, None]
    assert active(begins) == ["queued"] * 2
    world.clock.now = begins
    assert world.claim() is not None
    assert active(begins - timedelta(seconds=1)) == ["running"] * 2


# --- what is wrong with Coalmine itself ----------------------------------------------------------------------


def test_notifications_nobody_got_are_said_with_where_to_look(pages: Site) -> None:
    assert "could not be delivered" not in pages.page("/").text
    pages.world.send.receipts += [REFUSED]
    pages.world.deliver_all()
    shown = pages.page("/")
    (banner,) = [one for one in shown.all("p", class_="banner") if "hook ops" in one.text]
    assert banner.text.startswith("1 notification to hook ops could not be delivered in the last three days")
    assert shown.all("a", href="/deliveries?hook=ops&state=dead")


def test_a_banner_is_said_once_and_not_with_every_look(seen: Site) -> None:
    shown = seen.page("/")
    assert shown.one("div", id="banners").get("aria-live") == "polite"
    assert "#banners:innerHTML" in shown.one("div", id="found").get("hx-select-oob")


def test_a_check_that_is_switched_off_is_not_overdue(pages: Site) -> None:
    pages.world.apply(canary_page([canary("fee")], slug="billing", suite="invoices", enabled=False))
    row = _rows(pages.page("/"))["billing"]
    assert "disabled" in row
    assert "overdue" not in row


def test_a_check_that_is_switched_off_counts_as_neither_well_nor_failing_and_comes_last(pages: Site) -> None:
    pages.world.apply(*_three(enabled=False))
    shown = pages.page("/")
    assert list(_rows(shown))[-1] == "billing"
    assert _rows(shown)["billing"].startswith("billing invoices on search disabled degraded at its last run")
    assert _chips(shown).endswith("all 3 1 healthy 0 degraded 0 unknown 1 no runs yet 1 disabled")
    assert "billing" not in _shown(pages, failing="1")
    assert _shown(pages, verdict="degraded") == []
    assert _shown(pages, verdict="off") == ["billing"]
    assert "#count-off:innerHTML" in shown.one("div", id="found").get("hx-select-oob")


def test_whatever_fails_comes_before_what_is_quiet(pages: Site) -> None:
    pages.world.clock.now = datetime.now(UTC)
    young = {**canary_page([canary("fee")], slug="young", suite="new"), "retrievers": [], "hooks": []}
    pages.world.apply(*_three(), young)
    assert _shown(pages, failing="1") == ["billing", "novel", "leave"]
    assert _shown(pages) == ["billing", "novel", "leave", "young"]  # healthy, but overdue, before one without a run


# --- running now ---------------------------------------------------------------------------------------------


def test_the_page_of_a_run_says_how_many_canaries_it_has_asked(pages: Site) -> None:
    world = pages.world
    many = canary_page([canary(f"c{number:03}") for number in range(130)], slug="leave", suite="people")
    world.apply(many)
    run = world.wish("leave")
    claimed = world.claim()
    assert claimed is not None
    assert world.execute(claimed, stopping=lambda: len(world.probe.asked) > 50) is None  # the last shard of thirty
    shown = pages.page(f"/runs/{run}")
    bar = shown.one("progress")
    assert (bar.get("value"), bar.get("max")) == ("30", "130")
    assert shown.one("p", class_="progress-text").text == "Running: 30 of 130 probes done"


def test_a_run_is_started_by_who_may_write(pages: Site) -> None:
    admin, reader = pages.key(), pages.key(Scope.READ)
    client = pages.signed_in(reader)
    assert "disabled" in page(client.get("/checks/leave")).one("button", id="run-now").attributes
    assert client.post("/checks/leave/runs", data={"csrf": csrf(client)}).status_code == 403
    client = pages.signed_in(admin)
    assert client.post("/checks/leave/runs").status_code == 403
    form = page(client.get("/checks/leave")).one("form", id="run-form")
    begun = client.post(form.get("action"), data={"csrf": csrf(client)})
    assert begun.status_code == 303
    assert "started by a button on a page" in page(client.get(begun.headers["location"])).text
    assert page(client.post("/checks/nothing/runs", data={"csrf": csrf(client)}), 404).one("h1").text


# --- getting about -------------------------------------------------------------------------------------------


def test_the_navigation_marks_where_one_is(seen: Site) -> None:
    marked = {
        "/": {"Checks": "page"},
        "/runs/1": {"Checks": "true"},
        "/alerts": {"Incidents": "page"},
        "/import": {"Suites": "true"},
        "/new-retriever": {"Retrievers": "true"},
        "/deliveries": {"Deliveries": "page"},
        "/new-silence": {"Silences": "true"},
        "/tasks": {"Annotation": "page"},
    }
    for path, expected in marked.items():
        shown = seen.page(path)
        links = {link.text: link for link in reversed(shown.all("a")) if link.text in NAVIGATION}  # the first of each
        assert {name: links[name].get("href") for name in NAVIGATION} == NAVIGATION, path
        current = {name: links[name].get("aria-current") for name in NAVIGATION if links[name].get("aria-current")}
        assert current == expected, path


def test_the_menu_says_how_many_alerts_are_open_by_the_newest_snapshot(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(canary_page([canary("ant")], rules=[AT_ONCE]))
    pages.world.degrade()
    assert not pages.page("/hooks").all("span", class_="count")
    pages.exposition.snapshot.refresh(sqlite_store)
    assert [one.text for one in pages.page("/hooks").all("span", class_="count")] == ["1"]
    pages.world.heal()
    pages.exposition.snapshot.refresh(sqlite_store)
    assert not pages.page("/hooks").all("span", class_="count")


NAVIGATION = {
    "Checks": "/",
    "Incidents": "/alerts",
    "Suites": "/suites",
    "Retrievers": "/retrievers",
    "Hooks": "/hooks",
    "Deliveries": "/deliveries",
    "Silences": "/silences",
    "Annotation": "/tasks",
    "API": "/docs",
}


# --- search ---


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("run 2", "/runs/2"),
        ("RUN #2", "/runs/2"),
        ("incident 1", "/incidents/1"),
        ("alert 1", "/alerts/1"),
        ("leave", "/checks/leave"),
        ("SICK", "/checks/leave/canaries/sick"),
        ("novel", "/checks/novel"),
    ],
)
def test_a_search_that_can_mean_one_thing_only_goes_there(seen: Site, words: str, place: str) -> None:
    answer = seen.client().get(f"/search?{urlencode({'q': words})}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, place)


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("mute", "/silences"),
        ("maintenance", "/silences"),
        ("weekly report", "/reports"),
        ("reports", "/reports"),
        ("API key", "/keys"),
        ("invite", "/keys?scope=annotate"),
        ("annotator", "/keys?scope=annotate"),
        ("grade", "/tasks"),
        ("people", "/suites/people"),
        ("export", "/suites/books?show=export"),
        ("Export invoices", "/suites/invoices?show=export"),
        ("compare", "/compare"),
        ("hook", "/hooks"),
        ("Slack", "/hooks"),
        ("notifications", "/hooks"),
        ("settings", "/hooks"),
        ("coverage by traffic", "/traffic"),
        ("uncovered questions", "/traffic"),
        ("import CSV", "/import"),
        ("experiment", "/experiments"),
        ("promote", "/experiments"),
        ("judge", "/judges"),
        ("are answers true?", "/answers"),
        ("interval of leave", "/checks/leave/edit"),
        ("A/B test", "/experiments"),
        ("ab test", "/experiments"),
        ("why did the alert fire", "/alerts"),
        ("last night", "/alerts"),
        ("which canaries fail", "/"),
        ("failing queries", "/"),
        ("how often does leave run", "/checks/leave/edit"),
    ],
)
def test_a_page_or_a_task_is_found_by_what_people_call_it(seen: Site, words: str, first: str) -> None:
    answer = seen.client().get(f"/search?{urlencode({'q': words})}", follow_redirects=False)
    listed = [answer.headers["location"]] if answer.status_code == 303 else _found(answer.text)
    assert listed[0] == first


def test_without_a_word_every_page_and_task_is_listed_and_each_page_leads_there(seen: Site) -> None:
    shown = seen.page("/search")
    for place in [place for places in MENU.values() for place in places] + list(TASKS):
        assert place.name.format(suite="people", check="leave") in shown.text
    assert seen.page("/hooks").one("a", href="/search").text == "All pages and tasks"
    assert not seen.page("/search?q=zebra").all("a", href="/?wall=1")


def test_every_page_that_a_search_finds_is_there(seen: Site) -> None:
    client = seen.client()
    places = [place for places in MENU.values() for place in places] + list(TASKS)
    for place in places:
        address = place.address.format(suite="people", check="leave")
        path, _, part = address.partition("#")
        answer = client.get(path)
        assert answer.status_code == 200, address
        assert not part or f'id="{part}"' in answer.text, address


def _found(text: str) -> list[str]:
    return [unescape(address) for address in re.findall('<li><a href="([^"]+)"', text)]


def test_a_search_lists_what_it_may_mean_with_what_is_called_exactly_that_first(pages: Site) -> None:
    pages.world.apply(*_three(), canary_page([canary("bill")], slug="a-billing", suite="more", retriever="search"))
    shown = pages.page("/search?q=billing")
    links = [one.get("href") for one in shown.all("a") if one.get("href").startswith("/checks/")]
    assert links == ["/checks/billing", "/checks/a-billing"]
    assert {"/runs/1", "/incidents/1", "/alerts/1"} <= {one.get("href") for one in pages.page("/search?q=1").all("a")}
    assert "Nothing is called that" in pages.page("/search?q=zebra").text
    assert "Nothing is called that" not in pages.page("/search").text


@pytest.mark.both
def test_a_canary_is_found_by_words_of_its_query_and_nothing_by_what_is_only_in_its_document(store: Store) -> None:
    world = World(store=store)
    asked = [
        canary("a", query="Größe 50% of_it?"),
        canary("b", query="what is a tax?"),
        canary("c", query="a Tax twice"),
    ]
    world.apply(canary_page(asked))
    found = {
        words: [one.name for one in overview.search(store, words)] for words in ("Größe 50%", "TAX", "of_it", "xof")
    }
    assert found == {"Größe 50%": ["a"], "TAX": ["b", "c"], "of_it": ["a"], "xof": []}
    assert overview.search(store, "expected_chunks") == []
    assert overview.search(store, " ") == []
    (hostile,) = overview.search(store, "Größe")
    assert hostile.address == "/checks/watch/canaries/a"
