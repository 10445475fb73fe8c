"""The pages of runs: results filtered, what changed since another run in plain words, and which runs to compare."""

import re
from collections.abc import Callable

import pytest

from app.base.db.engine import Store
from app.base.values import Outcome
from app.detection.service import baselines
from app.records.service import run_views
from app.reports.service import check_details
from tests.support.fakes import answered, failed, hits
from tests.support.html_pages import Page
from tests.support.pages_service import HOSTILE, Site, site
from tests.support.world import CHECK, COVERAGE, canary, page

KEYS = tuple(f"c{number:02}" for number in range(14))


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give three runs of fourteen canaries: well, well, and with six that lost what they expect and one unanswered."""
    return _pages_of(sqlite_store)


@pytest.fixture(scope="module")
def seen(shared_stores: Callable[[], Store]) -> Site:
    """Give the same to tests that only look at it."""
    return _pages_of(shared_stores())


def _pages_of(store: Store) -> Site:
    found = site(store)
    found.world.apply(
        page(
            [canary(key, tags=["even" if number % 2 == 0 else "odd"]) for number, key in enumerate(KEYS)],
            rules=[COVERAGE],
        )
    )
    found.world.run(index_version="v1")
    found.world.run(index_version="v1")
    for key in KEYS[:6]:
        found.world.probe.answers[key] = answered(hits("noise", "more"))
    found.world.probe.answers["c06"] = answered(hits("noise", "doc-c06"))
    found.world.probe.answers["c13"] = failed(Outcome.REFUSED, http_status=503)
    found.world.run(index_version="v2")
    return found


def shown_keys(shown: Page) -> list[str]:
    """Give the keys of the results on a page."""
    return [one.text for one in shown.all("code") if one.text in KEYS]


# The page of a run


FILTERED = {
    "verdict=degraded": KEYS[:6],
    "verdict=degraded&tag=even": ("c00", "c02", "c04"),
    "reason=missing": KEYS[:6],
    "reason=slow": (),
    "outcome=refused": ("c13",),
    "outcome=ok&tag=odd": ("c01", "c03", "c05", "c07", "c09", "c11"),
    "verdict=unknown": ("c13",),
    "category=procedural": (),
    "tag=nobody-has-it": (),
}


def test_results_are_filtered_by_whatever_is_chosen(seen: Site) -> None:
    for asked, found in FILTERED.items():
        shown = seen.page(f"/runs/3?{asked}")
        assert tuple(shown_keys(shown)) == found, asked
        told = shown.all("p", role="status")
        assert any("No results match" in one.text for one in told) is (not found), asked
        chosen = [one.get("value") for one in shown.all("option") if "selected" in one.attributes]
        assert asked.partition("&")[0].partition("=")[2] in chosen, "the choice is kept"


def test_a_run_shows_degraded_results_first_then_failed_ones(pages: Site) -> None:
    order = (*KEYS[:6], "c13", *KEYS[6:13])
    assert tuple(shown_keys(pages.page("/runs/3"))) == order
    assert tuple(shown_keys(pages.page("/runs/3?tag=odd"))) == tuple(key for key in order if int(key[1:]) % 2)
    found: list[str] = []
    after: int | None = -1
    while after is not None:  # page by page, as the links lead
        part, after = run_views.results(pages.world.store, "3", after=after, limit=4, worst_first=True)
        found += [one["key"] for one in part]
    assert tuple(found) == order
    plainly, _ = run_views.results(pages.world.store, "3", limit=100)
    assert tuple(one["key"] for one in plainly) == KEYS  # the API's order is the suite's


def test_of_degraded_results_the_gravest_come_first_also_where_they_are_filtered(pages: Site) -> None:
    pages.world.probe.answers["c01"] = answered(hits("doc-c01", scores=[0.1]))
    pages.world.probe.answers["c04"] = answered(hits("noise", scores=[0.1]))
    pages.world.run(index_version="v2")
    order = ("c04", "c00", "c02", "c03", "c05", "c01")
    for asked in ("", "?verdict=degraded"):
        shown = pages.page(f"/runs/4{asked}")
        assert tuple(shown_keys(shown))[:6] == order, asked
        assert "Sorted by severity" in shown.text
    assert "Sorted by severity" not in pages.page("/runs/4?verdict=healthy").text


def test_the_head_of_a_bad_run_leads_to_its_incident(pages: Site) -> None:
    assert not pages.page("/runs/2").all("a", href="/incidents/1")
    pages.world.run(index_version="v2")
    pages.world.run(index_version="v2")
    advised = [one.text for one in pages.page("/incidents/1").all("p", id="advice")]
    assert advised
    for run in (3, 4, 5):
        shown = pages.page(f"/runs/{run}")
        (link,) = shown.all("a", href="/incidents/1")
        assert link.text == "Incident 1", run
        assert "Incident 1 since" in shown.one("section", class_="headline").text, run
        assert [one.text for one in shown.all("p", id="advice")] == advised, run
    for key in (*KEYS[:6], "c13"):
        pages.world.probe.answers[key] = answered(hits(f"doc-{key}"))
    for _ in range(3):
        pages.world.run(index_version="v3")
    over = pages.page("/runs/3")
    assert re.search("Incident 1 from .* to ", over.one("section", class_="headline").text)
    assert not over.all("p", id="advice")
    assert not pages.page("/runs/8").all("a", href="/incidents/1")


def test_coverage_is_explained_by_the_k_of_the_run(pages: Site) -> None:
    pages.world.apply(page([canary(key) for key in KEYS], k=3))
    pages.world.run()
    pages.world.wish()
    tiles = [pages.page(f"/runs/{run}").one("dl", class_="tiles").text for run in (3, 4)]
    assert ["find their document in the top 5: " in tiles[0], "find their document in the top 3: " in tiles[1]] == [
        True,
        True,
    ]
    assert check_details.k_of_run(pages.world.store, "5") is None, "it has not started"


def test_what_no_filter_knows_is_refused(seen: Site) -> None:
    refused = ("verdict=bogus", "reason=bogus", "outcome=bogus", "category=bogus", "after=-2")
    assert {asked: seen.client().get(f"/runs/3?{asked}").status_code for asked in refused} == dict.fromkeys(
        refused, 422
    )


def test_the_same_filters_are_those_of_the_api(seen: Site) -> None:
    items = seen.client().get("/v1/runs/3/results?reason=missing&tag=even").json()["items"]
    assert [one["key"] for one in items] == ["c00", "c02", "c04"]
    items = seen.client().get("/v1/runs/3/results?outcome=refused").json()["items"]
    assert [(one["key"], one["http_status"]) for one in items] == [("c13", 503)]


def test_a_run_leads_to_what_changed_to_its_canaries_and_to_its_reports(pages: Site) -> None:
    baselines.pin(pages.world.store, CHECK, "1", by="Ada", note=None, now=pages.world.clock())
    shown = pages.page("/runs/3")
    links = {one.get("href"): one.text for one in shown.all("a")}
    assert links["/compare?a=run:2&b=run:3"] == "with the previous run, 2"
    assert links["/compare?a=run:1&b=run:3"] == "with the baseline, run 1"
    assert f"/checks/{CHECK}/canaries/c00" in links
    for form in ("html", "markdown", "json", "junit"):
        assert f"/v1/runs/3/report?format={form}" in links
    assert links["/runs/3?outcome=refused#results"] == "1"
    assert shown.one("h2", id="unmeasured").text == "Not measured"
    assert "answers HTTP 503" in shown.text
    assert any(one.text == "c13" and one.get("href") == f"/checks/{CHECK}/canaries/c13" for one in shown.all("a"))


def test_the_last_healthy_run_is_named_where_it_is_another_than_the_one_before(pages: Site) -> None:
    pages.world.run()
    links = {one.get("href"): one.text for one in pages.page("/runs/4").all("a")}
    assert links["/compare?a=run:3&b=run:4"] == "with the previous run, 3"
    assert links["/compare?a=run:2&b=run:4"] == "with the last healthy run, 2"


def test_the_first_run_has_nothing_to_be_compared_with(seen: Site) -> None:
    shown = seen.page("/runs/1")
    assert "It is the first stored run of watch" in shown.text
    assert not [one for one in shown.all("a") if "&b=run:" in one.get("href")]


def test_a_run_that_waits_is_no_reason_to_fail(pages: Site) -> None:
    pages.world.wish()
    assert pages.page("/runs/4").all("section", id="under-way")


# The page of a comparison


def test_a_run_diff_names_what_got_worse_and_by_how_much(seen: Site) -> None:
    shown = seen.page("/compare?a=run:2&b=run:3")
    assert "The runs can be compared" in shown.text
    assert "The index versions are v1 and v2" in shown.text
    assert "index version" not in shown.one("div", class_="pair").text, "they are told once"
    assert "worse Worse than before: NDCG@10 down 0." in shown.text
    assert "over 13 canaries" in shown.text
    rows = [one.text for one in shown.all("tr")]
    (coverage,) = [row for row in rows if row.startswith("coverage ")]
    assert coverage.startswith("coverage 1.000 0.538 -0.462 -0.")
    assert coverage.endswith("fell")
    (exploratory,) = [row for row in rows if row.startswith("Hit@1 ")]
    assert exploratory.endswith("exploratory"), "nothing is claimed of it, however much it fell"
    assert "1 canary was not measured now: c13." in shown.text
    (first,) = [row for row in rows if row.startswith("c00 ")]
    assert "degraded missing rank 1 before, → not found now 1.000 0.000 -1.000" in first
    (slid,) = [row for row in rows if row.startswith("c06 ")]
    assert "fell rank 1 before, → rank 2 now" in slid
    (unheard,) = [row for row in rows if row.startswith("c13 ")]
    assert "unknown rank 1 before, → error response now" in unheard
    assert shown_keys(shown)[:7] == list(KEYS[:7]), "the most harmed first"


def test_a_diff_shows_only_what_is_asked_for(seen: Site) -> None:
    wanted = {"worse": KEYS[:7], "better": (), "changed": (*KEYS[:7], "c13"), "": KEYS}
    ways = ("all ", "fell ", "rose ", "changed ")
    for show, found in wanted.items():
        shown = seen.page(f"/compare?a=run:2&b=run:3&show={show}" if show else "/compare?a=run:2&b=run:3")
        assert sorted(shown_keys(shown)) == sorted(found), show
        (chosen,) = [one for one in shown.all("a", **{"aria-current": "true"}) if one.text.startswith(ways)]
        assert chosen.text.rpartition(" ")[2] == str(len(found)), "it says how many"


def test_a_diff_of_what_is_the_same_says_so(seen: Site) -> None:
    shown = seen.page("/compare?a=run:1&b=run:2&show=changed")
    assert "Nothing changed" in shown.text
    assert "every canary scores the same in all primary measures" in shown.text


def test_a_diff_says_why_runs_cannot_be_compared_strictly(pages: Site) -> None:
    pages.world.apply(page([canary(key) for key in KEYS], k=3, rules=[COVERAGE]))
    pages.world.run()
    shown = pages.page("/compare?a=run:2&b=run:4")
    assert "Not directly comparable" in shown.text
    assert "K is 5 and 3" in shown.text


def test_other_runs_are_picked_and_the_two_are_swapped(seen: Site) -> None:
    shown = seen.page("/compare?a=run:2&b=run:3")
    for name, label, chosen in (("a", "Before", "2"), ("b", "Now", "3")):
        assert shown.one("input", name=name).get("value") == chosen
        assert [one for one in shown.all("label") if one.text == label]
    assert shown.one("input", name="what").get("value") == "run"
    assert shown.all("a", href="/compare?a=run%3A3&b=run%3A2")


def test_picking_leads_nowhere_else(seen: Site) -> None:
    for hostile in ("//elsewhere.example", "../../login", "1?x=//elsewhere"):
        answer = seen.client().get("/runs/compare", params={"before": hostile, "now": "3"})
        assert answer.headers["location"].startswith("/compare?a=run%3A")
        assert answer.headers["location"].endswith("&b=run%3A3")
        assert answer.headers["location"].count("/") == 1
        assert answer.headers["location"].count("?") == 1


def test_what_cannot_be_compared_is_a_page_that_says_so(seen: Site) -> None:
    cases = {"a=run:1&b=run:99": 404, "a=run:x&b=run:1": 404, "a=run:1&b=run:2&show=x": 422}
    for query, status in cases.items():
        seen.page(f"/compare?{query}", status)


def test_the_former_addresses_of_two_runs_lead_to_their_comparison(seen: Site) -> None:
    cases = {
        "/runs/2/diff/3": "/compare?a=run%3A2&b=run%3A3",
        "/runs/2/diff/3?show=worse&after=1": "/compare?a=run%3A2&b=run%3A3&show=worse&after=1",
        "/runs/2/diff/3?measures_version=2.r1": "/compare?a=run%3A2&b=run%3A3&measures_version=2.r1",
        "/runs/compare?before=1&now=3": "/compare?a=run%3A1&b=run%3A3",
    }
    for path, target in cases.items():
        answer = seen.client().get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, target)


def test_a_run_under_way_cannot_be_compared(pages: Site) -> None:
    pages.world.wish()
    assert "has not ended yet" in pages.page("/compare?a=run:3&b=run:4", 409).text


def test_hostile_texts_are_only_text_in_a_comparison(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(page([canary("a", query=HOSTILE, tags=["t"]), canary("b")]))
    pages.world.probe.answers[HOSTILE] = answered(hits(HOSTILE))
    pages.world.run(index_version=HOSTILE[:200])
    pages.world.run(index_version=f"2 {HOSTILE}"[:200])
    shown = pages.page("/compare?a=run:1&b=run:2")
    assert all(script.get("src").startswith("/static/") for script in shown.all("script"))
    assert not shown.all("img", src="x")
    assert HOSTILE in shown.text
