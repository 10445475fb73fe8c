"""The status pages show what is: verdicts with reasons, evidence, alerts; for healthy, degraded and empty stores."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.base.db.engine import Store
from app.base.values import Outcome, Verdict
from app.base.web import pages as rendering
from app.base.web.pages import ABSENT, score, spark_points, timed
from app.catalog.service import references
from app.runs.service import due_checks
from tests.support.fakes import answered, failed, hits
from tests.support.html_pages import Page
from tests.support.pages_service import HOSTILE, HTML, Site, idle_worker, page, site
from tests.support.world import RETRIEVER, canary
from tests.support.world import page as canary_page

CANARIES = [
    canary("a", category="procedural", min_relevance_score=0.8),
    canary("b", tags=["legal"]),
    canary("c"),
    {"key": "n", "query": "nobody knows", "category": "negative", "max_relevance_score": 0.4},
]


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over an empty store."""
    return site(sqlite_store)


@pytest.fixture(scope="module")
def seen(shared_stores: Callable[[], Store]) -> Site:
    """Give the same to tests that only look at it."""
    return site(shared_stores())


@pytest.fixture
def healthy(pages: Site) -> Site:
    """Give the pages over a check whose two runs were healthy."""
    return _healthy_of(pages)


@pytest.fixture(scope="module")
def seen_healthy(shared_stores: Callable[[], Store]) -> Site:
    """Give the same to tests that only look at it."""
    return _healthy_of(site(shared_stores()))


def _healthy_of(pages: Site) -> Site:
    pages.world.apply(canary_page(CANARIES))
    pages.world.probe.answers["nobody knows"] = answered(hits())
    pages.world.run()
    pages.world.run()
    return pages


@pytest.fixture
def degraded(healthy: Site) -> Site:
    """Give the pages over a check that lost documents: one canary slipped, the others miss, an alert is firing."""
    return _degraded_of(healthy)


@pytest.fixture(scope="module")
def seen_degraded(shared_stores: Callable[[], Store]) -> Site:
    """Give the same to tests that only look at it."""
    return _degraded_of(_healthy_of(site(shared_stores())))


def _degraded_of(healthy: Site) -> Site:
    probe = healthy.world.probe
    probe.all_miss()
    probe.answers["a"] = answered(hits("x", "doc-a", scores=[0.7, 0.6], texts={"x": "The text of another."}))
    for _ in range(3):
        healthy.world.run(index_version="index-2")
    healthy.world.deliver_all()
    return healthy


def test_an_empty_overview_tells_a_newcomer_what_to_do_first(seen: Site) -> None:
    shown = seen.page("/")
    assert "No checks yet" in shown.text
    assert "coalmine apply canaries/" in shown.text
    assert "README.md, section “Your own retriever in five minutes”" in shown.text
    assert shown.all("a", href="/docs")
    assert not shown.all("table")
    assert _steps(shown) == [
        ("A retriever", "/new-retriever"),
        ("A suite of canaries", "/suites"),
        ("A hook", "/new-hook"),
        ("A check", "/new-check"),
    ]
    assert "who is notified of an alert" in shown.one("ol", class_="setup").text
    assert _buttons(shown) == ["Connect a retriever", "Import queries and judgments"]


def test_an_overview_without_checks_marks_what_is_made_and_leads_to_what_is_not(pages: Site) -> None:
    client = pages.client()
    assert client.put("/v1/retrievers/search", json=dict(RETRIEVER)).status_code == 201
    client.put("/v1/suites/empty", json={})
    shown = pages.page("/")
    assert shown.one("li", **{"aria-current": "step"}).text.startswith("A suite of canaries")
    assert _buttons(shown) == ["Import queries and judgments", "New hook"]
    client.put("/v1/suites/mine", json={"canaries": [canary("a")]})
    shown = pages.page("/")
    assert [one.text.startswith("Done: ") for one in shown.all("li") if one.text.endswith(".")] == [
        *(True, True),
        *(False, False),
    ]
    assert _buttons(shown) == ["New hook", "New check"]


def _steps(shown: Page) -> list[tuple[str, str]]:
    told = shown.one("ol", class_="setup").text
    names = ("A retriever", "A suite of canaries", "A hook", "A check")
    return [(one.text, one.get("href")) for one in shown.all("a") if one.text in names and one.text in told]


def _buttons(shown: Page) -> list[str]:
    """Name the buttons of the page, the primary one first."""
    return [one.text for one in shown.all("a", class_="button")]


def test_before_its_first_run_a_check_stands_in_the_overview_with_a_question_in_a_circle(pages: Site) -> None:
    pages.world.apply(canary_page(CANARIES))
    assert "none yet" in _rows(pages.page("/"))["watch"]
    (icon,) = re.findall(r'<span class="badge none">(<svg.*?</svg>)no run yet', pages.client().get("/").text)
    assert '<circle cx="8" cy="8" r="6.600" fill="none"' in icon


def test_a_healthy_check_is_shown_in_a_word_and_a_shape_with_its_numbers(seen_healthy: Site) -> None:
    shown = seen_healthy.page("/")
    row = _rows(shown)["watch"]
    assert "healthy" in row
    assert "0.900" in row
    assert "1.000" in row
    assert "0 of 4" in row
    assert "suite on search" in row
    badges = re.findall(r'<span class="badge \w+">(<svg.*?</svg>)\w+', seen_healthy.client().get("/").text)
    assert badges, "a badge without a shape or without a word"
    label = " ".join(shown.one("svg", class_="spark").get("aria-label").split())
    assert label == "Coverage of the last 2 runs: lowest 1.000, newest 1.000"


def test_times_are_machine_readable_utc_and_the_next_run_lies_ahead(seen_healthy: Site) -> None:
    moments = seen_healthy.page("/").all("time")
    assert len(moments) == 2
    last, following = (datetime.fromisoformat(moment.get("datetime")) for moment in moments)
    assert last < datetime.now(UTC) < following
    assert all(moment.text.endswith(" UTC") for moment in moments)


def test_what_needs_a_look_comes_first(degraded: Site) -> None:
    world = degraded.world
    world.probe.all_answer()
    world.apply(canary_page(CANARIES[:2]), canary_page(CANARIES[:1], slug="a-fine-one", suite="other"))
    world.run("a-fine-one")
    rows = _rows(degraded.page("/"))
    assert list(rows) == ["watch", "a-fine-one"]
    assert "degraded" in rows["watch"]
    assert "coverage 0.333 is below 0.5 (critical)" in rows["watch"]
    assert "4 of 4" in rows["watch"]
    assert "1 critical" in rows["watch"]
    assert "none" in rows["a-fine-one"]


def _untouched_times(html: str) -> list[str]:
    """Return the times of a page that scripts do not show in the zone of whoever looks."""
    texts = re.sub(r"<(time|script|title)\b.*?</\1>", "", html, flags=re.DOTALL)
    return [found[0] for found in re.finditer(r"\d\d:\d\d(:\d\d)? UTC", texts)]


def test_times_within_sentences_are_shown_in_the_zone_of_all_others(degraded: Site) -> None:
    (alert,) = degraded.world.alerts()
    began = datetime.fromisoformat(alert["opened_at"])
    assert _untouched_times(degraded.client().get("/alerts").text) == []
    assert _untouched_times(degraded.client().get("/checks/watch").text) == []
    for path in (f"/incidents/{alert['incident_id']}", f"/alerts/{alert['id']}"):
        html = degraded.client().get(path).text
        assert _untouched_times(html) == [], path
        assert re.search(rf' since <time datetime="{began:%Y-%m-%d}T\d\d:\d\dZ" data-when="minute">', html), path


def test_times_within_reasons_are_shown_so_too(healthy: Site) -> None:
    world = healthy.world
    check = references.load_definition(world.store, "check", "watch")
    last, now = world.clock(), world.clock.advance(86_400)
    due_checks.watch_for_no_data(world.store, check.id, started_at=last, now=now)
    (alert,) = world.alerts()
    assert re.search(r"^No run has completed since .* UTC; the second scheduled one was due at .* UTC", alert["reason"])
    for path in ("/alerts", f"/alerts/{alert['id']}", "/checks/watch"):
        html = healthy.client().get(path).text
        assert _untouched_times(html) == [], path
        assert 'No run has completed since <time datetime="' in html, path


def test_a_time_within_a_sentence_is_an_element_and_the_rest_is_escaped() -> None:
    assert str(timed("<b> since 2026-03-02 14:05 UTC, by 2026-03-02 14:15:09 UTC; 14:05 UTC")) == (
        '&lt;b&gt; since <time datetime="2026-03-02T14:05Z" data-when="minute">2026-03-02 14:05 UTC</time>, by '
        '<time datetime="2026-03-02T14:15:09Z" data-when="clock">2026-03-02 14:15:09 UTC</time>; 14:05 UTC'
    )


def test_a_check_whose_alerts_are_still_open_is_recovering_and_not_green(degraded: Site) -> None:
    def badge() -> str:
        return degraded.client().get("/badge/watch.svg").text

    degraded.world.apply(canary_page(CANARIES, schedule={"every": "1d"}))  # nothing is overdue
    degraded.world.probe.all_answer()
    degraded.world.probe.answers["nobody knows"] = answered(hits())  # no canary is degraded
    degraded.world.run()
    shown = degraded.page("/checks/watch")
    assert "Healthy again: 1 alert is still open, and resolves after 1 more good run." in shown.text
    assert "No rule is violated" not in shown.text
    assert shown.all("section", class_="recovering")
    row = _rows(degraded.page("/"))["watch"]
    assert "recovering healthy again; 1 alert still open" in row
    assert degraded.page("/").one("p", id="status").text == "The check is healthy again: its alerts are still open"
    assert degraded.page("/").one("p", id="status").get("class") == "status recovering"
    assert ">recovering<" in badge()
    degraded.world.run()
    well = degraded.page("/checks/watch").text
    assert ("Healthy again" in well, "No rule is violated in the latest run." in well) == (False, True)
    assert degraded.page("/").one("p", id="status").text == "The check is healthy"
    assert ">healthy<" in badge()


def test_a_healthy_run_under_an_alert_that_still_fires_says_so(healthy: Site) -> None:
    rule = {"kind": "threshold", "measure": "coverage", "critical": {"below": 0.5}, "margin": 0.4, "close": 2}
    healthy.world.apply(canary_page(CANARIES, rules=[{**rule, "open": {"bad": 1, "of": 1}}], schedule={"every": "1d"}))
    healthy.world.probe.all_miss()
    healthy.world.run()
    healthy.world.probe.all_answer()
    healthy.world.probe.answers |= {key: answered(hits("noise")) for key in ("b",)}
    healthy.world.run()
    shown = healthy.page("/checks/watch").text
    assert "Healthy in this run: 1 alert is still open, and resolves after 2 more good runs." in shown
    assert "No rule is violated" not in shown
    assert "alert open healthy again; 1 alert still open" in _rows(healthy.page("/"))["watch"]
    assert ">alert open<" in healthy.client().get("/badge/watch.svg").text


def test_a_healthy_check_admits_canaries_below_their_own_limits(healthy: Site) -> None:
    healthy.world.probe.answers["a"] = answered(hits("doc-a", scores=[0.7]))
    healthy.world.run()
    assert "healthy by the rules; 1 of 4 canaries is degraded" in _rows(healthy.page("/"))["watch"]


def test_an_unknown_run_shows_why_probes_failed(healthy: Site) -> None:
    healthy.world.probe.answers.clear()
    healthy.world.probe.otherwise = lambda _: failed(Outcome.REFUSED, http_status=503, detail="It is closed.")
    healthy.world.run()
    assert "unknown" in _rows(healthy.page("/"))["watch"]
    assert "It is closed." in healthy.page("/runs/3?verdict=unknown").text


def test_a_run_page_shows_results_with_their_evidence(seen_degraded: Site) -> None:
    shown = seen_degraded.page("/runs/5")
    assert shown.one("h1").text == "Run 5"
    assert "index-2" in shown.text
    results = shown.one("table", class_="results").text
    for expected in ("relevance 0.700 is below its minimum 0.8", "yes, by id", "doc-b"):
        assert expected in results
    assert re.search(r"\b(49[5-9]|50[0-5]) ms\b", results), "500 ms, within 1 %"
    report = seen_degraded.client().get(shown.one("a", class_="button").get("href"))
    assert report.headers["content-type"].startswith("text/html")


def test_results_can_be_filtered_by_verdict_and_category(seen_degraded: Site) -> None:
    for query, keys in [
        ("", ["b", "c", "n", "a"]),
        ("?verdict=degraded&category=", ["b", "c", "n", "a"]),
        ("?category=procedural", ["a"]),
        ("?verdict=degraded&category=negative", ["n"]),
    ]:
        shown = seen_degraded.page(f"/runs/5{query}")
        assert [code.text for code in shown.all("code") if code.text in {"a", "b", "c", "n"}] == keys, query


def test_an_unknown_filter_is_refused_in_words(seen_degraded: Site) -> None:
    assert "is one of healthy, degraded, unknown" in seen_degraded.page("/runs/5?verdict=fine", 422).text
    assert "is one of open, firing" in seen_degraded.page("/alerts?state=loud", 422).text


def test_many_results_come_in_pages(pages: Site) -> None:
    pages.world.apply(canary_page([canary(f"k{number:02}") for number in range(30)]))
    pages.world.run()
    path, seen = "/runs/1", list[str]()
    while path:
        shown = pages.page(path)
        seen += [head.text.split(" ")[0] for head in shown.all("th", scope="row")]
        path = next((link.get("href") for link in shown.all("a") if link.text == "More results"), "")
    assert seen == [f"k{number:02}" for number in range(30)]


def test_a_run_under_way_says_so(pages: Site) -> None:
    pages.world.apply(canary_page(CANARIES))
    pages.world.wish()
    shown = pages.page("/runs/1")
    assert "This run is queued." in shown.text
    assert shown.one("section", id="under-way").get("data-run") == "1"
    assert "queued" in _rows(pages.page("/"))["watch"]


def test_hostile_texts_stay_texts_on_every_page(pages: Site) -> None:
    world = pages.world
    world.apply(canary_page([canary("a", query=HOSTILE), canary("b", query=f"b {HOSTILE}")]))
    hostile = hits(HOSTILE, scores=[0.1], texts={HOSTILE: HOSTILE})
    world.probe.answers[HOSTILE] = answered(hostile, index_version=HOSTILE)
    world.probe.answers[f"b {HOSTILE}"] = failed(Outcome.MALFORMED, detail=HOSTILE)
    for _ in range(3):
        world.run(index_version=HOSTILE[:200])
    for path in ("/", "/checks/watch", "/runs/3", "/alerts"):
        answer = pages.client().get(path)
        shown = page(answer)
        assert HOSTILE not in answer.text
        assert "49" not in shown.all("title")[0].text
        assert all(script.get("src") and not script.text for script in shown.all("script"))
        assert not [name for element in shown.elements for name in element.attributes if name.startswith("on")]
        own = ("/static/", "/heatmap/watch.png?")
        assert all(image.get("src").startswith(own) for image in shown.all("img"))
    assert HOSTILE in Page(pages.client().get("/runs/3").text).text


def test_what_is_not_there_is_a_page_for_people_and_a_problem_for_programs(seen: Site) -> None:
    for path in ["/nothing", "/checks/nothing", "/runs/99", "/runs/x", "/alerts?check=nothing"]:
        shown = seen.page(path, 404)
        assert shown.one("h1").text == "Not found", path
        told = seen.client().get(path, headers={"accept": "application/json"})
        assert told.status_code == 404, path
        assert told.headers["content-type"] == "application/problem+json", path


def test_the_api_answers_with_problems_whoever_asks(seen: Site) -> None:
    told = seen.client().get("/v1/checks/nothing", headers=HTML)
    assert told.status_code == 404
    assert told.headers["content-type"] == "application/problem+json"


def test_a_store_that_is_gone_is_a_readable_page(healthy: Site) -> None:
    with healthy.world.store.write() as connection:
        connection.exec_driver_sql("ALTER TABLE definitions RENAME TO gone")
    for path in ("/", "/checks/watch", "/alerts?check=watch"):
        answer = healthy.client().get(path)
        assert page(answer, 503).one("h1").text == "The database is unavailable"
        assert answer.headers["retry-after"] == "5"
        assert answer.headers["cache-control"] == "no-store"


def test_a_worker_that_does_not_run_is_said_first(healthy: Site) -> None:
    healthy.worker = idle_worker(healthy.world)
    assert "The worker is not running" in _banners(healthy.page("/"))
    assert "The worker is not running" in _banners(healthy.page("/checks/watch"))


def test_overdue_checks_without_a_worker_here_ask_for_one(seen_healthy: Site) -> None:
    shown = seen_healthy.page("/")
    assert "overdue" in _rows(shown)["watch"]
    assert "is a coalmine work process running?" in _banners(shown)


def test_canary_files_that_could_not_be_applied_are_said(healthy: Site) -> None:
    assert "canary files" not in _banners(healthy.page("/"))
    healthy.exposition.process.config_reloaded(successful=False)
    assert "The canary files could not be applied" in _banners(healthy.page("/"))


def test_an_absent_score_is_a_dash() -> None:
    assert score(None) == ABSENT == "\N{EN DASH}"
    assert score(0.0) == "0.000"


def test_a_sparkline_leaves_out_what_was_not_measured() -> None:
    assert spark_points([1.0, 0.5, None, 0.75, 0.75]) == ["2.0,3.0 31.0,25.0", "89.0,14.0 118.0,14.0"]
    assert spark_points([None, 1.0, None]) == ["60.0,3.0 60.0,3.0"]
    assert spark_points([None]) == []
    assert spark_points([0.0, 1.0]) == ["2.0,25.0 118.0,3.0"]


def _rows(shown: Page) -> dict[str, str]:
    """Give the rows of the overview by slug, in order."""
    table = [row for row in shown.all("tr") if "on search" in row.text]
    return {row.text.split(" ")[0]: row.text for row in table}


def _banners(shown: Page) -> str:
    return " ".join(element.text for element in shown.all("p", class_="banner") if "hidden" not in element.attributes)


def test_verdicts_of_the_filter_are_all_there_are(seen_degraded: Site) -> None:
    offered = {option.get("value") for option in seen_degraded.page("/runs/5").all("option")}
    assert set(Verdict) <= offered


DEEDS = re.compile(r'action="[^"]*/(archive|delete|end|revoke|stop)["?]')


def test_what_cannot_be_taken_back_asks_first_on_every_page() -> None:
    by_hand: dict[str, list[str]] = {}
    for template in Path(rendering.__file__).parents[2].glob("**/templates/*.html"):
        found = [line for line in template.read_text().splitlines() if DEEDS.search(line)]
        by_hand |= {template.name: found} if found else {}
    # The macro `confirm` asks; these two ask for more than a click.
    assert {name: len(lines) for name, lines in by_hand.items()} == {"hook.html": 1, "traffic.html": 1}
    assert "Archive anyway" in by_hand["hook.html"][0]
    assert 'name="query"' in by_hand["traffic.html"][0]


def test_pages_of_an_empty_service_say_what_they_are_for_and_what_comes_first(seen: Site) -> None:
    for path, said, first in [
        ("/", "No checks yet", "/new-retriever"),
        ("/hooks", "No hooks yet", "/new-hook"),
        ("/retrievers", "No retrievers yet", "/new-retriever"),
        ("/suites", "First suite", "/import"),
        ("/silences", "No silences", "/new-silence"),
        ("/tasks", "First: a suite with questions, and a retriever that is asked for chunks.", "/new-retriever"),
        ("/judges", "First: a check whose retriever also gives answers.", "/hooks"),
        ("/compare", "First: a check that has run, better two.", "/"),
        ("/experiments", "First: two checks over one suite", "/new-check"),
    ]:
        shown = seen.page(path)
        assert said in shown.text, path
        assert shown.all("a", href=first), path
        assert shown.one("svg", class_="picture").get("aria-hidden") == "true", path
    assert not seen.page("/tasks").all("form", action="/tasks")
