"""The page of a check reads well in one pass: verdict, alerts, degraded queries, chart, detector, configuration."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.texts import first_clause
from app.base.values import Outcome
from app.base.web.pages import ABSENT, plainly
from app.detection.service import baselines
from app.reports.service import check_details
from tests.support.fakes import answered, failed, hits
from tests.support.html_pages import Page
from tests.support.pages_service import HOSTILE, Site, page, site
from tests.support.world import COVERAGE, canary, statements
from tests.support.world import page as canary_page

CHECK = "/checks/watch"
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
    return healthy


def _section(shown: Page, heading: str) -> str:
    (found,) = [one.text for one in shown.all("section") if one.get("aria-labelledby") == heading]
    return found


def _rows(shown: Page, heading: str) -> dict[str, list[str]]:
    """Give the rows of the tables under a heading by their first cell."""
    start = next(at for at, element in enumerate(shown.elements) if element.get("id") == heading)
    rows: dict[str, list[str]] = {}
    cells: list[str] = []
    for element in shown.elements[start + 1 :]:
        if element.tag in {"section", "footer", "details"}:
            break
        if element.tag == "tr":
            cells = []
        elif element.tag in {"th", "td"}:
            cells.append(element.text)
            if element.tag == "th" and element.get("scope") == "row":
                rows[element.text] = cells
    return rows


# --- the headline ---


def test_a_healthy_check_says_so(seen_healthy: Site) -> None:
    shown = seen_healthy.page(CHECK)
    assert shown.one("h1").text == "watch"
    assert "No rule is violated in the latest run." in shown.text
    assert "No degraded canaries." in shown.text
    assert "No alert is open." in shown.text
    assert "canaries.yaml:1" in _section(shown, "definition")
    assert "every 5m" in shown.text
    assert len(_rows(shown, "runs")) == 2


def test_a_healthy_check_admits_canaries_below_their_own_limits(healthy: Site) -> None:
    healthy.world.probe.answers["a"] = answered(hits("doc-a", scores=[0.7]))
    healthy.world.run()
    shown = healthy.page(CHECK).text
    assert "Healthy by the rules; 1 of 4 canaries is degraded." in shown
    assert "No rule is violated" not in shown


def test_before_the_first_run_the_page_says_what_a_check_is_and_what_to_do(pages: Site) -> None:
    pages.world.apply(canary_page(CANARIES))
    shown = pages.page(CHECK)
    assert "No run has ended yet." in shown.text
    assert "“Run now” sends them at once." in shown.text
    assert not shown.all("div", id="chart")
    assert not shown.all("div", id="evidence")
    assert not shown.all("a", href=f"{CHECK}/quality")
    assert shown.all("button", id="run-now")


def test_an_archived_check_keeps_its_page_and_no_rule_looks_at_it(healthy: Site) -> None:
    healthy.world.apply()
    shown = healthy.page(CHECK)
    assert "This check is archived" in shown.text
    assert not shown.all("button", id="run-now")
    assert not shown.all("details", id="why")
    assert "threshold-coverage: bad when coverage is below 0.9 (warning)" in _section(shown, "definition")


def test_what_a_rule_saw_is_not_said_over_and_over(seen_degraded: Site) -> None:
    shown = seen_degraded.page(CHECK)
    assert shown.one("ul", class_="reasons").text == "coverage 0.333 is below 0.5 (critical)"
    assert shown.text.casefold().count("coverage 0.333 is below 0.5") == 2, (
        "in the headline, and with what every rule saw"
    )


def test_names_of_ours_are_words_and_names_of_others_stay() -> None:
    told = "health_score of simple_factual 0.4, most of all in category:complex_factual and tag:my_tag; since run 3"
    words = (
        "first-hit relevance of simple factual 0.4, most of all in category complex factual and tag my_tag; since run 3"
    )
    assert plainly(told) == words
    assert plainly("the canary my_health_score_1 is degraded") == "the canary my_health_score_1 is degraded"
    assert first_clause(told) == told.removesuffix("; since run 3")
    label = "R@3 (self-judged; pooled 0.907 (0.851 to 0.952)) 0.5 is below 0.9"
    assert first_clause(f"{label}; since run 3; it fires") == label


# --- the chart ---


def test_a_chart_offers_every_measure_there_is_and_the_categories_it_is_kept_for(seen_degraded: Site) -> None:
    shown = seen_degraded.page(CHECK)
    offered = [option.get("value") for option in shown.all("option")]
    assert {"", "health_score", "coverage", "NDCG@10", "MRR", "*", "procedural"} <= set(offered)
    assert "R_id@5" not in offered, "nothing is expected by id and text"
    kept = {
        one.get("value"): one.get("data-measures").split() for one in shown.all("option") if one.get("data-measures")
    }
    assert kept["procedural"] == ["health_score", "coverage"]
    assert kept["negative"] == ["health_score", "coverage", "answered_ratio"]
    assert {one.get("value") for one in shown.all("input", name="range")} == {"1h", "24h", "7d", "30d", "own"}


def test_without_scripts_a_table_says_what_the_chart_would(seen_degraded: Site) -> None:
    shown = seen_degraded.page(CHECK)
    assert shown.one("div", id="chart").get("data-check") == "watch"
    rows = shown.one("table", id="chart-table").text
    assert rows.count("0.333") == 3
    assert rows.count("1.000") == 2


# --- alerts and rules ---


def test_the_head_says_since_when_it_is_bad_and_not_when_the_alert_opened(seen_degraded: Site) -> None:
    (alert,) = seen_degraded.world.alerts()
    first = seen_degraded.world.shown(int(alert["since_run"]))["finished_at"]
    assert first < alert["opened_at"], "it opens at the second bad run of three"
    for address in (CHECK, f"/runs/{alert['transitions'][0]['run_id']}"):
        elements = seen_degraded.page(address).elements
        head = next(place for place, one in enumerate(elements) if one.get("class") == "what")
        (since, *_) = [one for one in elements[head:] if one.tag == "time"]
        assert since.get("datetime") == first, address


def test_an_incident_is_a_line_that_leads_to_its_page_and_to_its_rules(seen_degraded: Site) -> None:
    shown = seen_degraded.page(CHECK)
    line = shown.one("li", id="incident-1").text
    assert line.startswith("critical firing watch: 4 of 4 questions got worse threshold-coverage ")
    assert " threshold-coverage 3 of the last 3 runs bad; opened " in line
    links = [link.text for link in shown.all("a", href="/incidents/1")]
    assert links == ["4 of 4 questions got worse", "watch: 4 of 4 questions got worse"], "at the top, too"
    assert shown.one("p", id="advice").text.startswith("What to do: ")
    assert shown.one("span", id="alert-1").text.startswith("threshold-coverage")
    assert shown.all("a", href="/alerts/1")
    assert not shown.all("article")


def test_alerts_that_are_one_incident_are_one_line(healthy: Site) -> None:
    rules = [COVERAGE, {"kind": "threshold", "measure": "degraded_share", "critical": {"above": 0.5}}]
    healthy.world.apply(canary_page(CANARIES, rules=rules))
    shown = _degraded_of(healthy).page(CHECK)
    assert len(healthy.world.alerts()) == 2
    assert len([one for one in shown.all("li") if one.get("id").startswith("incident-")]) == 1
    assert {one.get("id") for one in shown.all("span") if one.get("id").startswith("alert-")} == {"alert-1", "alert-2"}


def test_why_it_did_and_did_not_alert_is_said_of_every_rule(seen_degraded: Site) -> None:
    shown = seen_degraded.page(CHECK)
    rules = _rows(shown, "why")
    told = {name.split(" ")[0]: " ".join(cells) for name, cells in rules.items()}
    assert list(told) == ["threshold-coverage", "probe_errors", "no_data", "embedding", "leak", "slower", "index"]
    assert "bad when coverage is below 0.9 (warning) or below 0.5 (critical)" in told["threshold-coverage"]
    assert "firing" in told["threshold-coverage"]
    assert "It resolves after 2 good runs in a row" in told["threshold-coverage"]
    assert "0 of 4 probes failed" in told["probe_errors"]
    assert "2 more bad runs in a row would open it" in told["probe_errors"]
    assert "Notifications are sent to ops" in _section(shown, "alerts")


def test_of_a_fault_of_many_the_page_says_what_they_have_in_common(seen_degraded: Site) -> None:
    assert "4 of 4" in _section(seen_degraded.page(CHECK), "degraded")


def test_resolved_alerts_stay_readable(degraded: Site) -> None:
    degraded.world.probe.all_answer()
    for _ in range(3):
        degraded.world.run()
    shown = degraded.page(CHECK)
    assert "No alert is open." in shown.text
    assert "Recently resolved: 1" in shown.text
    assert "4 of 4" not in shown.text


def test_a_check_without_hooks_says_that_nobody_is_told(pages: Site) -> None:
    pages.world.apply(canary_page([canary("a")], hooks=[]))
    pages.world.run()
    shown = pages.page(CHECK)
    assert "No notifications: the check has no hook." in _section(shown, "alerts")
    assert "Nobody is notified. Add a hook." in shown.all("section", class_="headline")[0].text
    assert "none, so nobody is notified" in _section(shown, "definition")


def test_the_chart_calls_repeated_ids_what_they_are(seen_healthy: Site) -> None:
    shown = {one.get("value"): one.text for one in seen_healthy.page(CHECK).all("option")}
    assert shown["duplicate_ratio"] == "duplicate ids"  # near copies under different ids are none of these


# --- the detector ---


def test_while_learning_the_page_says_how_far_it_is(seen_healthy: Site) -> None:
    told = _section(seen_healthy.page(CHECK), "detector")
    assert "no baseline yet: 2 of 20 identical runs" in told
    assert "Identical runs 2 of 20" in told
    assert "Baseline: none yet." in told


def test_while_learning_the_headline_says_what_is_watched_already(pages: Site) -> None:
    pages.world.apply(canary_page([canary("a"), canary("b")], rules=[{"kind": "regression"}]))
    for _ in range(2):
        pages.world.run()
    said = "Protected now: alerts when coverage falls below 80 % of the first run's in 2 of 3 runs. After "
    assert said + "18 more runs with the same results: smaller losses too." in _headline(pages)
    pages.world.apply(canary_page([canary("a"), canary("b")], rules=[{"kind": "regression"}, COVERAGE]))
    assert "Protected now: alerts when coverage falls below 0." in _headline(pages)
    for _ in range(18):
        pages.world.run()
    assert "Protected now" not in _headline(pages)
    told = _section(pages.page(CHECK), "detector")  # learned, and nothing was compared with it yet
    assert told.startswith("Regression detector baseline learned Every run from the next one on is compared with")
    assert "Baseline: learned from 20 runs" in told


def _headline(pages: Site) -> str:
    return pages.page(CHECK).all("section", class_="headline")[0].text


def test_a_baseline_that_was_learned_is_said_with_its_runs_and_evidence(pages: Site) -> None:
    pages.world.apply(canary_page([canary("a"), canary("b"), canary("c")]))
    for _ in range(21):
        pages.world.run()
    shown = pages.page(CHECK)
    told = _section(shown, "detector")
    assert "learned from 20 runs, 1 to 20, all the same" in told
    assert "alarm line 10,000" in told
    assert shown.one("div", id="evidence").get("data-check") == "watch"


def test_who_may_only_read_is_not_offered_to_accept_the_present(healthy: Site) -> None:
    reader = healthy.signed_in(healthy.key(Scope.READ))
    assert "Reset baseline" not in page(reader.get(CHECK)).text
    writer = healthy.signed_in(healthy.key(Scope.WRITE))
    assert "Reset baseline" in page(writer.get(CHECK)).text


def test_a_choice_that_waits_for_the_next_run_is_said(healthy: Site) -> None:
    baselines.pin(healthy.world.store, "watch", "1", by="Ada", note="before the move", now=healthy.world.clock())
    told = _section(healthy.page(CHECK), "detector")
    assert "takes effect with the next run" in told
    assert "by Ada" in told
    assert "before the move" in told


# --- the canaries ---


def test_a_degraded_query_is_a_line_with_reasons_in_numbers_and_ranks(seen_degraded: Site) -> None:
    shown = seen_degraded.page(CHECK)
    rows = {name.split(" ")[0]: cells for name, cells in _rows(shown, "degraded").items()}
    assert rows.keys() == {"a", "b", "c", "nobody"}
    assert rows["a"][1:] == ["Relevance 0.700 is below its minimum 0.8", "1", "2"]
    assert rows["b"][1:] == ["No expected chunk in the top 5", "1", "not found"]
    assert rows["nobody"][1:] == [
        "Answered with relevance 0.900 though no good answer exists (at most 0.4)",
        ABSENT,
        ABSENT,
    ]
    assert shown.all("a", href=f"{CHECK}/canaries/a")
    assert shown.all("a", href="/runs/5?verdict=degraded")


def test_a_query_is_degraded_since_its_verdict_changed_not_since_its_answer_did(degraded: Site) -> None:
    degraded.world.probe.answers["a"] = answered(hits("y", "doc-a", scores=[0.6, 0.5]))
    degraded.world.run()
    cells = {name.split(" ")[0]: cells[0] for name, cells in _rows(degraded.page(CHECK), "degraded").items()}
    assert cells["a"].endswith("degraded since run 3")
    told = degraded.page(f"{CHECK}/canaries/a").text
    assert "Degraded since run 3" in told
    degraded.world.probe.answers["a"] = answered(hits("doc-a", scores=[0.9]))
    degraded.world.run()
    degraded.world.probe.answers["a"] = answered(hits("y", "doc-a", scores=[0.6, 0.5]))
    degraded.world.run()
    cells = {name.split(" ")[0]: cells[0] for name, cells in _rows(degraded.page(CHECK), "degraded").items()}
    assert "since" not in cells["a"], "it was healthy in between: the degraded period began with the newest run"
    assert cells["b"].endswith("degraded since run 3")


def test_a_canary_that_was_never_healthy_has_no_rank_before(pages: Site) -> None:
    pages.world.apply(canary_page([canary("a", min_relevance_score=0.8)]))
    pages.world.probe.answers["a"] = answered(hits("x", "doc-a", scores=[0.7, 0.6]))
    for _ in range(3):
        pages.world.run()
    (cells,) = _rows(pages.page(CHECK), "degraded").values()
    assert cells[2:] == ["never healthy", "2"]


def test_what_must_not_be_returned_has_no_rank_of_what_should(pages: Site) -> None:
    pages.world.apply(canary_page([{"key": "a", "query": "a", "forbidden_chunks": ["leak"]}]))
    pages.world.probe.answers["a"] = answered(hits("leak"))
    pages.world.run()
    (cells,) = _rows(pages.page(CHECK), "degraded").values()
    assert cells[1:] == ["A chunk that must not be returned was returned at rank 1", ABSENT, ABSENT]


def test_of_many_degraded_queries_the_worst_ten_are_shown(pages: Site) -> None:
    pages.world.apply(canary_page([canary(f"k{number:02}") for number in range(14)]))
    pages.world.probe.all_miss()
    pages.world.run()
    shown = pages.page(CHECK)
    assert len(_rows(shown, "degraded")) == 10
    assert "The worst 10 of 14." in shown.text


def test_more_degraded_queries_ask_no_more_of_the_database(pages: Site) -> None:
    world, sizes = pages.world, {"few": 12, "many": 230}
    described = [
        {**canary_page([canary(f"c{number:03}") for number in range(size)], slug=slug, suite=slug), "hooks": []}
        for slug, size in sizes.items()
    ]
    for one in described:
        one["checks"][0]["hooks"] = []
    world.apply(described[0], {**described[1], "retrievers": []})
    counts = []
    for slug in sizes:
        world.probe.all_answer()
        world.run(slug)
        world.probe.all_miss()
        world.run(slug)
        asked: list[str] = []
        with statements(world.store, asked.append):
            found = check_details.load_check(world.store, slug, world.clock())
        assert [result["key"] for result in found.degraded] == [f"c{number:03}" for number in range(10)]
        assert found.fleet is not None
        counts.append(len(asked))
    assert counts[0] == counts[1]


def test_the_canaries_of_a_run_are_read_once_to_say_why_they_fell(degraded: Site) -> None:
    asked: list[str] = []
    with statements(degraded.world.store, asked.append):
        degraded.page(CHECK)
    assert sum("diagnoses" in statement and "GROUP BY" in statement for statement in asked) == 1


def test_measures_are_shown_at_every_k_by_category_and_by_tag(seen_degraded: Site) -> None:
    shown = seen_degraded.page(CHECK)
    assert _rows(shown, "measures")["Hit"][1:] == ["0.000", "0.333", "0.333", "0.333"]
    groups = _rows(shown, "categories")
    assert list(groups) == ["negative answered: 1.000", "procedural", "simple factual"]
    assert groups["procedural"][1:4] == ["1", "1.000", "0.700"]
    assert _rows(shown, "tags")["legal"][1:4] == ["1", "0.000", "0.900"]
    assert shown.all("a", href="/runs/5?tag=legal")


def test_an_unknown_run_shows_why_probes_failed(healthy: Site) -> None:
    healthy.world.probe.answers.clear()
    healthy.world.probe.otherwise = lambda _: failed(Outcome.REFUSED, http_status=503, detail="It is closed.")
    healthy.world.run()
    shown = healthy.page(CHECK)
    assert "only 0 of 4 probes measured" in shown.text
    assert "HTTP 503 It is closed." in shown.text
    assert "4 error response" in shown.text
    assert "Nothing was measured." in shown.text
    assert "No degraded queries" not in shown.text


# --- runs and definition ---


def test_two_runs_can_be_picked_and_compared_beginning_with_the_last_that_was_well(seen_degraded: Site) -> None:
    shown = seen_degraded.page(CHECK)
    form = shown.one("form", id="compare")
    assert (form.get("method"), form.get("action")) == ("get", "/runs/compare")
    picked = [(one.get("name"), one.get("value")) for one in shown.all("input", type="radio", checked="")]
    assert ("before", "2") in picked
    assert ("now", "5") in picked
    answer = seen_degraded.client().get("/runs/compare?before=2&now=5")
    assert answer.headers["location"] == "/compare?a=run%3A2&b=run%3A5"


def test_runs_beyond_the_newest_five_are_folded(healthy: Site) -> None:
    for _ in range(6):
        healthy.world.run()
    shown = healthy.page(CHECK)
    assert list(_rows(shown, "runs")) == ["8", "7", "6", "5", "4"]
    assert list(_rows(shown, "older-runs")) == ["3", "2", "1"]
    assert shown.one("summary", id="older-runs").text == "3 older runs"


def test_a_thin_suite_is_said_where_the_check_is_described(seen_healthy: Site) -> None:
    assert "Suite 'suite' is thin" in _section(seen_healthy.page(CHECK), "definition")


def test_a_badge_is_shown_with_what_to_paste(healthy: Site) -> None:
    healthy.public_url = "https://coalmine.example"
    told = _section(healthy.page(CHECK), "definition")
    assert "![watch](https://coalmine.example/badge/watch.svg)" in told
    assert "Private: needs a session or a key" in told
    assert "overdue" in told, "as the badge itself says"


def test_hostile_texts_stay_texts(pages: Site) -> None:
    world = pages.world
    world.apply(
        canary_page([canary("a", query=HOSTILE, tags=["x"]), canary("b", query=f"b {HOSTILE}")], rules=[COVERAGE])
    )
    world.probe.answers[HOSTILE] = answered(hits(HOSTILE, scores=[0.1], texts={HOSTILE: HOSTILE}))
    world.probe.answers[f"b {HOSTILE}"] = failed(Outcome.MALFORMED, detail=HOSTILE)
    for _ in range(3):
        world.run(index_version=HOSTILE[:200])
    for path in (CHECK, f"{CHECK}/quality?report=true"):
        answer = pages.client().get(path)
        shown = page(answer)
        assert HOSTILE not in answer.text
        assert all(script.get("src") and not script.text for script in shown.all("script"))
        assert not [name for element in shown.elements for name in element.attributes if name.startswith("on")]


def test_pictures_stand_before_the_alerts_and_the_history_at_the_end_folded(seen_degraded: Site) -> None:
    headings = [one.text for one in seen_degraded.page(CHECK).all("h2")]
    places = {name: next(n for n, text in enumerate(headings) if text.startswith(name)) for name in ORDER}
    assert sorted(places, key=places.__getitem__) == list(ORDER)
    folds = seen_degraded.page(CHECK).all("details", class_="fold")
    assert [one.text.split("(")[0][:12].strip() for one in folds] == [
        *("By category", "Days of the", "Latency over", "Regression d", "Configuratio")
    ]
    assert not [one for one in folds if "open" in one.attributes]


ORDER = (
    *("Over time", "Every canary, run by run", "Alerts", "Degraded canaries", "Recent runs"),
    *("By category", "Regression detector", "Configuration"),
)


# --- one category alone ---


def test_a_single_category_is_nothing_to_compare_and_so_nothing_is_said_of_it(sqlite_store: Store) -> None:
    bench = site(sqlite_store)
    bench.world.apply(canary_page([canary("a"), canary("b")]))
    bench.world.run()
    bench.world.probe.all_miss()
    bench.world.run()
    shown = bench.page(CHECK)
    assert "simple factual" not in shown.text
    assert _rows(shown, "measures")["Hit"]
    assert "*" not in [option.get("value") for option in shown.all("option")]
    assert "simple factual" not in bench.page("/compare?a=run:1&b=run:2").text


def test_canaries_whose_category_nobody_stated_are_no_group_that_fell(sqlite_store: Store) -> None:
    bench = site(sqlite_store)
    stated = [{**canary(f"p{number}"), "category": "procedural"} for number in range(12)]
    bench.world.apply(canary_page([*[canary(f"u{number}") for number in range(6)], *stated]))
    bench.world.run()
    bench.world.probe.answers = {f"u{number}": answered(hits("x")) for number in range(6)}
    bench.world.run()
    fleet = check_details.load_check(bench.world.store, "watch", bench.world.clock()).fleet
    assert fleet is not None
    assert (fleet["fallen"], fleet["group"]) == (6, None)
    assert "simple" not in fleet["headline"]


def test_the_days_of_the_year_lead_to_the_chart_of_each(sqlite_store: Store) -> None:
    pages = site(sqlite_store)
    pages.world.apply(canary_page([canary("ant")]))
    pages.world.clock.now = datetime.now(UTC) - timedelta(hours=1)
    pages.world.run()
    shown = pages.page("/checks/watch")
    (day,) = [one for one in shown.all("a") if one.get("href").startswith("?from=")]
    today = f"{pages.world.clock():%Y-%m-%d}"
    assert day.get("href") == f"?from={today}T00:00:00Z&to={today}T23:59:59Z"
    assert f"{today}: 1 run, coverage 1.000" in [one.text for one in shown.all("title")]
    assert "1 day with runs, 0 with an alert" in shown.text
