"""Where numbers of the day are shown, those of a re-scoring can be: in the list of runs and on the pages."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.errors import InvalidInputError
from app.records.service import run_views
from app.runs.service import rescoring
from tests.support.fakes import FakeClock, answered, hits
from tests.support.html_pages import Page
from tests.support.pages_service import Site, csrf
from tests.support.pages_service import page as parsed
from tests.support.world import CHECK, World, canary, page, statements

THEN = "as recorded"


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over a check of three runs whose bee has missed in each, and been corrected since."""
    return _pages_of(sqlite_store)


@pytest.fixture(scope="module")
def seen(shared_stores: Callable[[], Store]) -> Site:
    """Give the same to tests that only look at it."""
    return _pages_of(shared_stores())


@pytest.fixture(scope="module")
def rescored(shared_stores: Callable[[], Store]) -> tuple[Site, str]:
    """Give the same re-scored, with the version of the re-scoring, to tests that only look."""
    pages = _pages_of(shared_stores())
    return pages, _rescored(pages.world)


def _pages_of(store: Store) -> Site:
    world = World(store=store, clock=FakeClock(now=datetime.now(UTC) - timedelta(minutes=30)))
    world.apply(page([canary(key) for key in ("ant", "bee")], hooks=[]))
    world.probe.answers["bee"] = answered(hits("bee-2024", "noise"))
    for _ in range(3):
        world.run()
    world.apply(page([canary("ant"), canary("bee", expected_chunks=["bee-2024"])], hooks=[]))
    return Site(world=world)


def _rescored(world: World, *, since: datetime | None = None) -> str:
    asked = rescoring.ask(world.store, CHECK, since=since, now=world.clock.advance(1))
    rescoring.claim(world.store, owner="one", now=world.clock(), only=asked)
    assert rescoring.carry_on(world.store, asked, owner="one", clock=world.clock)
    return str(rescoring.show(world.store, asked)["measures_version"])


def _switch(shown: Page) -> dict[str, str]:
    """Give the links of the switch between judgments, marked where chosen."""
    links = [link for link in shown.all("a") if link.text == THEN or link.text.startswith("re-scored ")]
    return {link.text + ("!" if link.get("aria-current") else ""): link.get("href") for link in links}


def test_the_runs_of_a_rescoring_are_listed_with_its_numbers_page_by_page(pages: Site) -> None:
    world = pages.world
    version = _rescored(world)
    world.run()  # is in no re-scoring yet
    listed = run_views.list_runs(world.store, CHECK, before=None, limit=50, version=version)
    assert [run["coverage"] for run in listed] == [1.0, 1.0, 1.0]
    assert {run["measures_version"] for run in listed} == {version}
    for run in listed:
        alone = run_views.run(world.store, run["id"], version=version)
        names = ("verdict", "canaries", "health_score", "coverage", "measures", "suite_hash", "reasons")
        told, again = ({name: one.get(name) for name in names} for one in (run, alone))
        assert told == again
    second = run_views.list_runs(world.store, CHECK, before=int(listed[0]["id"]), limit=1, version=version)
    assert second == listed[1:2]
    of_the_day = run_views.list_runs(world.store, CHECK, before=None, limit=50)
    assert [run["coverage"] for run in of_the_day] == [1.0, 0.5, 0.5, 0.5]


def test_a_long_list_of_a_rescoring_takes_no_more_statements_for_a_run_than_one_of_the_day(
    rescored: tuple[Site, str],
) -> None:
    pages, version = rescored
    world = pages.world

    def asked(limit: int, named: str | None) -> int:
        seen: list[str] = []
        with statements(world.store, seen.append):
            run_views.list_runs(world.store, CHECK, before=None, limit=limit, version=named)
        return len(seen)

    assert asked(3, version) - asked(1, version) == asked(3, None) - asked(1, None)


def test_the_list_names_the_versions_there_are(seen: Site) -> None:
    with pytest.raises(InvalidInputError, match=r"there is no version '9\.r9'; there are: "):
        run_views.list_runs(seen.world.store, CHECK, before=None, limit=1, version="9.r9")


def test_no_page_speaks_of_rescoring_where_there_is_none(seen: Site) -> None:
    run = run_views.health(seen.world.store, CHECK)["id"]
    assert _switch(seen.page("/checks/watch")) == _switch(seen.page(f"/runs/{run}")) == {}


def test_a_check_page_switches_its_history_and_nothing_else(rescored: tuple[Site, str]) -> None:
    pages, version = rescored
    there = f"/checks/watch?measures_version={version}"
    then, anew = pages.page("/checks/watch"), pages.page(there)
    assert _switch(then) == {f"{THEN}!": "/checks/watch", f"re-scored {version}": there}
    assert _switch(anew) == {THEN: "/checks/watch", f"re-scored {version}!": there}
    assert [shown.one("div", id="chart").get("data-version") for shown in (then, anew)] == ["", version]
    for shown, coverage, end in ((then, "0.500", ""), (anew, "1.000", f"?measures_version={version}")):
        assert shown.one("table", id="chart-table").text.count(coverage) == 3
        links = [link.get("href") for link in shown.all("a") if link.text.isdigit()][-3:]  # after those of alerts
        assert all(link.partition("?")[2] == end[1:] for link in links)
        tiles = shown.one("dl", class_="tiles").text
        assert "1 of 2 questions find their document in the top 5: 0.500" in tiles, "the newest run as it was judged"
    assert f"re-scored, measures version {version}" in anew.text


def test_a_rescoring_that_goes_on_is_said_to(pages: Site) -> None:
    rescoring.ask(pages.world.store, CHECK, since=None, now=pages.world.clock.advance(1))
    (link,) = [text for text in _switch(pages.page("/checks/watch")) if text.startswith("re-scored")]
    assert link.endswith(", running")


def test_a_run_page_switches_its_results_and_keeps_to_its_version(rescored: tuple[Site, str]) -> None:
    pages, version = rescored
    run = run_views.health(pages.world.store, CHECK)["id"]
    end = f"measures_version={version}"
    then, anew = pages.page(f"/runs/{run}"), pages.page(f"/runs/{run}?{end}")
    assert _switch(then) == {f"{THEN}!": f"/runs/{run}", f"re-scored {version}": f"/runs/{run}?{end}"}
    assert "1 of 2 questions find their document in the top 5: 0.500" in then.text
    assert "2 of 2 questions find their document in the top 5: 1.000" in anew.text
    assert ("Expected, but not found: doc-bee" in then.text, "Expected, but not found" in anew.text) == (True, False)
    assert anew.one("input", name="measures_version").get("value") == version
    reports = [link.get("href") for link in anew.all("a") if "/report?" in link.get("href")]
    assert len(reports) == 5
    assert all(link.endswith(f"&{end}") for link in reports)
    assert then.all("a", href=f"/v1/runs/{run}/report?format=json")


def test_a_run_that_is_not_in_a_rescoring_does_not_offer_it(pages: Site) -> None:
    _rescored(pages.world)
    late = pages.world.run()
    assert _switch(pages.page(f"/runs/{late.id}")) == {}


def test_pages_refuse_a_version_there_is_not(seen: Site) -> None:
    run = run_views.health(seen.world.store, CHECK)["id"]
    for path in ("/checks/watch", f"/runs/{run}"):
        assert "there is no version" in seen.page(f"{path}?measures_version=9.r9", 422).text


# --- asked for on a page, and followed there ---


def _ask(pages: Site, since: str = "") -> str:
    """Press the button of the check's page; gives where that leads."""
    form = pages.page("/checks/watch").one("form", class_="rescore")
    answer = pages.client().post(form.get("action"), data={"since": since})
    assert answer.status_code == 303
    return str(answer.headers["location"])


def _carry_on(world: World) -> None:
    claimed = rescoring.claim(world.store, owner="one", now=world.clock())
    assert claimed is not None
    assert rescoring.carry_on(world.store, claimed, owner="one", clock=world.clock)


def test_a_rescoring_is_asked_for_on_the_page_of_its_check_and_has_one_of_its_own(pages: Site) -> None:
    there = _ask(pages)
    waiting = pages.page(there)
    assert waiting.one("div", class_="progress").get("data-follows") == f"/v1{there}/events"
    assert (waiting.one("progress").get("value"), waiting.one("progress").get("max")) == ("0", "3")
    assert "Queued: 0 of 3 runs judged" in waiting.text
    assert _ask(pages) == there  # the same judgments are the same re-scoring
    assert {link.get("href") for link in pages.page("/checks/watch").all("a")} >= {there}
    assert [one.text for one in waiting.all("a", **{"aria-current": "true"}, href="/")] == ["Status", "Checks"]
    _carry_on(pages.world)
    ended = pages.page(there)
    assert not ended.all("progress")
    assert [row.text for row in ended.all("tr")[1:3]] == [
        "Coverage, mean 0.500 1.000",
        "First-hit relevance, mean 0.900 0.900",
    ]
    assert "Degraded canaries, summed 3 0" in {row.text for row in ended.all("tr")}
    version = rescoring.show(pages.world.store, int(there.rpartition("/")[2]))["measures_version"]
    assert ended.all("a", href=f"/checks/watch?measures_version={version}")


def test_a_rescoring_reaches_as_far_back_as_it_is_told(pages: Site) -> None:
    pages.world.clock.now += timedelta(days=3)
    assert "that ended from" in pages.page(_ask(pages, "1d")).text
    assert "that ended from" not in pages.page(_ask(pages)).text  # asked for from further back, it grows


def test_a_rescoring_without_runs_says_that_there_was_nothing_to_judge(sqlite_store: Store) -> None:
    pages = Site(world=World(store=sqlite_store, clock=FakeClock(now=datetime.now(UTC))))
    pages.world.apply(page([canary("ant")], hooks=[]))
    answer = pages.client().post("/checks/watch/rescorings")
    _carry_on(pages.world)
    assert "no run has ended, so there was nothing to re-score" in pages.page(answer.headers["location"]).text


def test_what_cannot_be_rescored_or_is_none_is_said(pages: Site) -> None:
    client = pages.client()
    assert client.post("/checks/watch/rescorings", data={"since": "ever"}).status_code == 422
    assert client.post("/checks/nothing/rescorings").status_code == 404
    for path in ("/rescorings/77", "/rescorings/x"):
        pages.page(path, 404)
    pages.world.apply()
    told = client.post("/checks/watch/rescorings")
    assert (told.status_code, "is not in force" in told.text) == (409, True)


def test_a_reading_key_sees_rescorings_and_asks_for_none(pages: Site) -> None:
    _ask(pages)
    client = pages.signed_in(pages.key(Scope.READ))
    shown = parsed(client.get("/checks/watch"))
    assert [one.text for one in shown.all("button") if one.text == "Re-score" and "disabled" in one.attributes]
    assert (
        client.post(shown.one("form", class_="rescore").get("action"), data={"csrf": csrf(client)}).status_code == 403
    )
    assert client.get("/rescorings/1").status_code == 200
