"""The pages of alerts: found by what matters, told with why, what is next and who heard, acknowledged with a note."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from app.alerts.domain.views import ChangedCanary
from app.alerts.pages import by_cause
from app.alerts.service import explanations, shown_alerts
from app.alerts.service.shown_alerts import Links
from app.alerts.store import AlertFilter
from app.base.db.engine import Store
from app.base.db.keys import Scope
from app.base.values import Outcome
from app.catalog.service import references
from app.hooks.domain import Receipt
from app.runs.service import due_checks
from tests.support.fakes import answered, hits
from tests.support.html_pages import Page
from tests.support.pages_service import HOSTILE, Site, csrf, page, site
from tests.support.world import COVERAGE, LINKS, World, canary, statements
from tests.support.world import page as canary_page

CANARIES = [canary("ant", category="procedural"), canary("bee"), canary("cat")]
AT_ONCE = {"open": {"bad": 1, "of": 1}}
LOST = {"ant", "bee"}

SUMMARY = "watch: coverage 0.333, below 0.5 since (run 2, index two), 2 of 3 canaries lost their expected chunk"


@pytest.fixture
def pages(sqlite_store: Store) -> Site:
    """Give the pages over a check that was well once."""
    return _well(sqlite_store)


@pytest.fixture
def firing(pages: Site) -> Site:
    """Give the pages over a check whose newest run lost two of three chunks, of which a hook has heard."""
    return _fired(pages)


@pytest.fixture(scope="module")
def read(shared_stores: Callable[[], Store]) -> Site:
    """Give the same to those that only look."""
    return _fired(_well(shared_stores()))


def _well(store: Store) -> Site:
    made = site(store)
    made.world.apply(canary_page(CANARIES, rules=[{**COVERAGE, **AT_ONCE, "close": 2}], remind="30m"))
    made.world.run(index_version="one")
    return made


def _fired(pages: Site) -> Site:
    _lose(pages)
    pages.world.run(index_version="two")
    pages.world.deliver_all()
    return pages


def _lose(pages: Site) -> None:
    for query in LOST:
        pages.world.probe.answers[query] = answered(hits("noise"))


def _section(shown: Page, heading: str) -> str:
    (found,) = [element.text for element in shown.all("section") if element.get("aria-labelledby") == heading]
    return found


def _listed(shown: Page) -> list[str]:
    rules = [element.get("id") for element in shown.all("a") if element.get("id").startswith("rule-")]
    return [one.removeprefix("rule-") for one in rules]


def _untimed(summary: str) -> str:
    """Leave out the time of a summary: a page is made at the real one."""
    return re.sub(r"since [^(]* UTC \(", "since (", summary)


# --- the list ---


def test_a_list_without_alerts_says_when_there_would_be_one(pages: Site) -> None:
    assert "No alert has ever been raised" in pages.page("/alerts").text
    assert "No alert like that." in pages.page("/alerts?severity=warning").text


def test_an_alert_is_listed_with_what_fell_since_when_and_who_was_told(read: Site) -> None:
    (card,) = [element.text for element in read.page("/alerts").all("article")]
    assert card.startswith("watch: 2 of 3 questions got worse critical firing Opened ")
    assert "Coverage 0.333 is below 0.5 (critical)" in card
    assert "1 delivery delivered" in card


def test_alerts_are_found_by_state_severity_kind_check_time_and_whether_they_were_seen(firing: Site) -> None:
    world = firing.world
    world.probe.all_fail(Outcome.TIMEOUT)
    for _ in range(2):
        world.run()
    kinds = {alert["id"]: alert["kind"] for alert in world.alerts()}
    assert sorted(kinds.values()) == ["probe_errors", "threshold"]
    (threshold,) = [number for number, kind in kinds.items() if kind == "threshold"]
    (errors,) = [number for number, kind in kinds.items() if kind == "probe_errors"]
    assert firing.client().post(f"/alerts/{threshold}/acknowledge").status_code == 303
    both = [errors, threshold]
    wanted = {
        "": both,
        "state=open": both,
        "state=resolved": [],
        "severity=warning": [],
        "kind=threshold": [threshold],
        "check=watch&kind=probe_errors": [errors],
        "unacknowledged=on": [errors],
        "within=24h": both,
        "within=1h&severity=critical&kind=threshold": [threshold],
    }
    assert {query: _listed(firing.page(f"/alerts?{query}")) for query in wanted} == wanted


def test_alerts_of_long_ago_are_not_of_the_last_hour(firing: Site) -> None:
    assert _listed(firing.page("/alerts?within=1h")) == ["1"]
    firing.world.probe.all_answer()
    firing.world.clock.now = datetime.now(UTC) - timedelta(days=3)
    _lose(firing)
    firing.world.apply(canary_page(CANARIES[:2], slug="older", suite="other", rules=[{**COVERAGE, **AT_ONCE}]))
    firing.world.run("older")
    assert _listed(firing.page("/alerts?within=1h&check=older")) == []
    assert _listed(firing.page("/alerts?within=7d&check=older")) == ["2"]


def test_how_many_are_open_and_not_seen_is_counted(firing: Site) -> None:
    shown = firing.page("/alerts")
    tabs = {element.get("id"): element.text for element in shown.all("a") if element.get("id").startswith("tab-")}
    assert (tabs["tab-open"], tabs["tab-pending"], tabs["tab-resolved"]) == ("open 1", "pending 0", "resolved")
    assert shown.one("a", id="unacknowledged").text == "1 not acknowledged"
    firing.client().post("/alerts/1/acknowledge")
    assert not firing.page("/alerts").all("a", id="unacknowledged")


def test_older_alerts_stand_on_the_next_page(pages: Site) -> None:
    world = pages.world
    rules = [{**COVERAGE, **AT_ONCE, "key": f"rule-{number:02}"} for number in range(21)]
    world.apply(canary_page(CANARIES, rules=rules))
    _lose(pages)
    world.run()
    first = pages.page("/alerts?severity=critical")
    assert len(_listed(first)) == 20
    assert _listed(pages.page(first.one("a", id="older").get("href"))) == ["1"]


def test_more_alerts_ask_no_more_of_the_database(pages: Site) -> None:
    world, seen = pages.world, []
    slugs = [f"c{number}" for number in range(5)]
    for slug in slugs:
        world.apply(*(_check(one) for one in slugs[: slugs.index(slug) + 1]))
        world.probe.all_answer()
        world.run(slug)
        _lose(pages)
        bad = [world.run(slug) for _ in range(2)]
        assert {one["since_run"] for one in world.alerts(check=slug)} == {str(bad[0].id)}
        asked: list[str] = []
        with statements(world.store, asked.append):
            lines = shown_alerts.lines(world.store, AlertFilter(), check=None, before=None, limit=20)
        assert {line.summary.partition(" since ")[0] for line in lines} == {
            f"{one}: coverage 0.333, below 0.5" for one in slugs[: slugs.index(slug) + 1]
        }
        seen.append(len(asked))
    assert len(set(seen)) == 1


def test_an_alert_that_went_on_for_long_asks_no_more_of_the_database(pages: Site) -> None:
    world, seen = pages.world, []
    rule = {**COVERAGE, "open": {"bad": 2, "of": 10}, "close": 2}
    world.apply(canary_page(CANARIES, rules=[rule], remind="5m"))
    _lose(pages)
    world.run()
    for _ in range(2):
        for _ in range(3):
            world.run()
            world.clock.advance(300)
            world.tick()
            world.deliver_all()
        asked: list[str] = []
        with statements(world.store, asked.append):
            found = explanations.details(world.store, 1, links=LINKS, now=world.clock())
        seen.append((len(found["alert"]["transitions"]), len(found["versions"]), len(asked)))
    assert seen[0][0] < seen[1][0]
    assert seen[0][1] < seen[1][1]
    assert seen[0][2] == seen[1][2]


def _check(slug: str) -> dict[str, Any]:
    """Describe a check of its own suite with two rules that look at coverage."""
    rules = [{**COVERAGE, **AT_ONCE}, {**COVERAGE, **AT_ONCE, "key": "again"}]
    described = canary_page(CANARIES, slug=slug, suite=f"suite-{slug}", rules=rules, hooks=[])
    return described if slug == "c0" else {**described, "retrievers": [], "hooks": []}


def test_a_warning_beside_a_critical_alert_says_that_its_incident_was_open(pages: Site) -> None:
    warning = {**COVERAGE, **AT_ONCE, "key": "soft", "warning": {"below": 0.9}, "critical": {"below": 0.1}}
    pages.world.apply(canary_page(CANARIES, rules=[{**COVERAGE, **AT_ONCE}, warning]))
    _lose(pages)
    pages.world.run()
    (soft,) = [one["id"] for one in pages.world.alerts() if one["rule"] == "soft"]
    assert "Part of an incident that was already reported." in _section(pages.page(f"/alerts/{soft}"), "history")


def test_a_filter_there_is_not_is_refused_in_words(read: Site) -> None:
    for wrong in ("severity=loud", "kind=none", "within=ever", "state=ok"):
        assert f"{wrong.partition('=')[0]}: is one of" in read.page(f"/alerts?{wrong}", 422).text


# --- one alert ---


def test_an_alert_says_what_fell_what_the_rule_saw_and_since_which_index(read: Site) -> None:
    shown = read.page("/alerts/1")
    assert shown.one("h1").text == "threshold-coverage of watch"
    headline = _section(shown, "title")
    assert SUMMARY in _untimed(headline)
    assert "Coverage 0.333 is below 0.5 (critical)" in headline
    assert "when the index version changed from one to two" in headline
    why = _section(shown, "why")
    assert "Coverage: warning below 0.9, critical below 0.5." in why
    assert "It opens at once and closes after 2 good runs in a row." in why
    assert "Opened at the first bad run. Still bad." in why
    assert "of 1" not in why
    rows = [row.text for row in shown.all("tr") if row.text.startswith("run 2")]
    assert len(rows) == 1
    assert rows[0].endswith("two 0.333 0.500 critical opened it")


def test_an_alert_says_what_closes_it_and_counts_down(firing: Site) -> None:
    assert _section(firing.page("/alerts/1"), "next").startswith("Status 2 more good runs would close it.")
    firing.world.probe.all_answer()
    firing.world.run()
    after = firing.page("/alerts/1")
    assert _section(after, "next").startswith("Status 1 more good run would close it.")
    assert "recovering" in _section(after, "title")
    firing.world.run()
    assert "Resolved." in _section(firing.page("/alerts/1"), "next")


def test_degraded_canaries_are_told_with_their_ranks_and_lead_to_their_pages(read: Site) -> None:
    shown = read.page("/alerts/1")
    rows = [row.text for row in shown.all("tr") if row.text.startswith(("ant", "bee"))]
    assert rows == [f"{key} {key} · lost doc-{key} missing 1 not found" for key in ("ant", "bee")]
    assert shown.all("a", href="/checks/watch/canaries/ant")
    assert "Changed canaries now" in _section(shown, "degraded")


def test_degraded_canaries_stay_told_while_runs_measure_nobody_and_the_run_they_are_of_is_named(firing: Site) -> None:
    firing.world.probe.all_fail(Outcome.TIMEOUT)
    silent = firing.world.run()
    shown = firing.page("/alerts/1")
    told = _section(shown, "degraded")
    assert told.startswith("Changed canaries in the last run with a verdict By run 2, sorted by severity")
    assert f"The newest run, {silent.id}, measured too little for a verdict." in told
    rows = [row.text for row in shown.all("tr") if row.text.startswith(("ant", "bee"))]
    assert rows == [f"{key} {key} · lost doc-{key} missing 1 not found" for key in ("ant", "bee")]


def test_a_list_says_of_a_resolved_alert_what_its_rule_saw_while_it_was_open(firing: Site) -> None:
    firing.world.probe.all_answer()
    for _ in range(2):
        firing.world.run()
    (card,) = [element.text for element in firing.page("/alerts?state=resolved").all("article")]
    assert "threshold-coverage Coverage 0.333 is below 0.5 (critical)" in card
    assert "Coverage 1" not in card


def test_an_alert_says_which_chunks_were_lost_and_what_to_do(read: Site) -> None:
    shown = read.page("/alerts/1")
    assert shown.one("p", id="lost").text == "Lost chunks: doc-ant, doc-bee."
    assert shown.one("p", id="advice").text.startswith("Compare the run with the last healthy one")


def test_a_resolved_alert_keeps_what_was_degraded_and_what_happened(firing: Site) -> None:
    together = "Few canaries newly degraded"
    assert together in _section(firing.page("/alerts/1"), "title")
    assert _rank_titles(firing.page("/alerts/1")) == {"Rank now"}
    firing.world.probe.all_answer()
    for _ in range(2):
        firing.world.run()
    shown = firing.page("/alerts/1")
    headline = _section(shown, "title")
    assert together not in headline
    recovery = shown.all("strong")[0].text
    assert recovery.startswith("watch: recovered after ")
    assert recovery.endswith("coverage 1.000, no canary is worse than before the alert.")
    assert "watch: coverage 0.333, below 0.5 since" in headline
    assert "Rule threshold-coverage of watch: when it ended: Coverage 1" in headline
    assert "Changed canaries at last notification" in _section(shown, "degraded")
    assert _rank_titles(shown) == {"Rank then"}
    assert shown.all("a", href="/checks/watch/canaries/bee")
    happened = [item.text for item in shown.all("li") if item.text.startswith(("Opened", "Resolved"))]
    assert [item.split()[0] for item in happened] == ["Opened", "Resolved"]
    assert not shown.all("p", id="advice"), "there is nothing left to do"
    assert not shown.all("p", id="lost")
    assert not shown.all("form", class_="acknowledge")


def _rank_titles(shown: Page) -> set[str]:
    """Headings of the column of ranks by the shown run, for tables and for phones."""
    titles = [one.text for one in shown.all("th", scope="col")] + [one.get("data-label") for one in shown.all("td")]
    return {title for title in titles if title in {"Rank now", "Rank then"}}


def test_an_alert_that_is_over_still_shows_the_runs_that_opened_it_beside_those_that_ended_it(pages: Site) -> None:
    pages.world.apply(canary_page(CANARIES, rules=[{**COVERAGE, "open": {"bad": 2, "of": 3}, "close": 2}]))
    _lose(pages)
    for _ in range(6):  # opens at run 3, and goes on for longer than a rule looks back
        pages.world.run(index_version="two")
    pages.world.probe.all_answer()
    for _ in range(2):
        pages.world.run(index_version="three")
    shown = pages.page("/alerts/1")
    why = _section(shown, "why")
    assert "Opened on 2 bad of 3, 2 of them critical. When it ended, 2 runs had been good in a row." in why
    rows = [row.text for row in shown.all("tr") if row.text.startswith(("run ", "Runs in between"))]
    assert [" ".join(row.split()[:2]) for row in rows] == [
        "run 1",
        "run 2",
        "run 3",
        "Runs in",
        "run 7",
        "run 8",
        "run 9",
    ]
    assert rows[2].endswith("two 0.333 0.500 critical opened it")
    assert rows[-1].endswith("three 1.000 0.900 good resolved it")
    assert shown.all("a", href="/runs/1/diff/7"), "the newest bad run, though not of the last look alone"


def test_what_is_over_is_listed_by_what_had_fallen_and_not_by_what_is_well(firing: Site) -> None:
    firing.world.probe.all_answer()
    for _ in range(2):
        firing.world.run()
    assert firing.page("/alerts").one("a", id="to-incident-1").text == "watch: 2 of 3 questions got worse"


def test_an_alert_leads_to_its_runs_their_difference_and_the_links_of_the_setup(read: Site) -> None:
    look = [element.get("href") for element in read.page("/alerts/1").all("a")]
    assert {"/checks/watch", "/runs/2", "/runs/1/diff/2"} <= set(look)
    links = Links(
        public_url="http://c.test", dashboard_url="https://g.test/{check}", runbook_url="https://r.test/{rule}"
    )
    found = explanations.details(read.world.store, 1, links=links, now=read.world.clock())
    assert (found["dashboard"], found["runbook"]) == ("https://g.test/watch", "https://r.test/threshold-coverage")


def test_other_alerts_of_the_same_check_are_named(pages: Site) -> None:
    rules = [{**COVERAGE, **AT_ONCE}, {**COVERAGE, **AT_ONCE, "measure": "health_score", "key": "health"}]
    pages.world.apply(canary_page(CANARIES, rules=rules))
    pages.world.probe.all_miss()
    for one in CANARIES:
        pages.world.probe.answers[one["query"]] = answered(hits("noise", scores=[0.1]))
    pages.world.run()
    ids = {alert["rule"]: alert["id"] for alert in pages.world.alerts()}
    incident = _section(pages.page(f"/alerts/{ids['health']}"), "incident")
    assert "You are paged once. Incident 1" in incident
    assert "threshold-coverage" in incident


def test_alerts_of_one_incident_stand_together_in_the_list(pages: Site) -> None:
    rules = [{**COVERAGE, **AT_ONCE}, {**COVERAGE, **AT_ONCE, "measure": "health_score", "key": "health"}]
    pages.world.apply(canary_page(CANARIES, rules=rules))
    pages.world.probe.all_miss()
    for one in CANARIES:
        pages.world.probe.answers[one["query"]] = answered(hits("noise", scores=[0.1]))
    pages.world.run()
    (number,) = {alert["incident_id"] for alert in pages.world.alerts()}
    shown = pages.page("/alerts")
    assert shown.one("article").attributes["aria-labelledby"] == f"incident-{number}"
    assert "health" in shown.one("article").text
    assert _listed(shown) == _listed(pages.page(f"/alerts?incident_id={number}")) == ["2", "1"]
    assert "No alert like that" in pages.page("/alerts?incident_id=999").text


def test_who_was_told_is_shown_with_what_they_answered_and_when_it_is_tried_again(pages: Site) -> None:
    _lose(pages)
    pages.world.run()
    pages.world.send.receipts = [Receipt(ok=False, http_status=503, error="http_5xx", detail="answered 503")]
    pages.world.deliver_all()
    told = _section(pages.page("/alerts/1"), "notifications")
    assert "ops opened" in told
    assert "HTTP 503, failed over it: answered 503" in told
    assert "next attempt" in told


def test_a_rule_that_is_gone_is_told_in_words_not_in_those_of_programs(firing: Site) -> None:
    firing.world.apply(canary_page(CANARIES, rules=[{**COVERAGE, "key": "another"}]))
    shown = firing.page("/alerts/1")
    assert "The rule was removed from the check." in shown.text
    assert "rule_removed" not in shown.text
    assert "Opened at the first bad run." in _section(shown, "why"), "what the rule saw before"


def test_a_check_of_which_nothing_comes_is_told_with_its_deadline(pages: Site) -> None:
    world = pages.world
    world.clock.advance(1200)
    check = references.load_definition(world.store, "check", "watch")
    started = world.clock() - timedelta(days=1)
    assert due_checks.watch_for_no_data(world.store, check.id, started_at=started, now=world.clock())
    shown = pages.page("/alerts/1")
    assert "Second scheduled run after that" in _section(shown, "why")
    assert "It resolves when a run completes" in _section(shown, "next")
    assert not shown.all("section", **{"aria-labelledby": "degraded"})


def test_a_silenced_alert_names_the_silence(pages: Site) -> None:
    silence = {"slug": "night", "all": True, "ends": (datetime.now(UTC) + timedelta(hours=2)).isoformat()}
    described = canary_page(CANARIES, rules=[{**COVERAGE, **AT_ONCE}])
    pages.world.apply({**described, "silences": [silence]})
    _lose(pages)
    pages.world.run()
    shown = pages.page("/alerts/1")
    assert "suppressed by a silence" in _section(shown, "history")
    assert shown.all("a", href="/silences/night")
    assert "None" in _section(shown, "notifications")


# --- an incident ---


def _two_rules(pages: Site) -> Site:
    """Let both chunks be lost that two rules look at, of which the hook hears once."""
    softer = {**COVERAGE, "key": "softer", "warning": {"below": 0.9}, "critical": {"below": 0.1}, **AT_ONCE}
    pages.world.apply(canary_page(CANARIES, rules=[softer, {**COVERAGE, **AT_ONCE, "close": 2}], remind="30m"))
    return _fired(pages)


def test_an_incident_tells_once_what_broke_since_when_which_questions_and_what_to_do(pages: Site) -> None:
    shown = _two_rules(pages).page("/incidents/1")
    assert shown.one("h1").text == "watch: 2 of 3 questions got worse"
    headline = _section(shown, "title")
    assert SUMMARY in _untimed(headline)
    assert "first bad run 2, when the index version changed from one to two" in headline
    assert "What to do: Compare the run with the last healthy one" in headline
    rows = [row.text for row in shown.all("tr") if row.text.startswith(("ant", "bee"))]
    assert rows == [f"{key} {key} · lost doc-{key} missing 1 not found" for key in ("ant", "bee")]
    (picture,) = [one.get("src") for one in shown.all("img") if "heatmap" in one.get("src")]
    drawn = pages.client().get(picture)
    assert (drawn.status_code, drawn.headers["content-type"]) == (200, "image/png")
    rules = _section(shown, "rules")
    assert "warning firing softer Coverage 0.333 is below 0.9 (warning)" in rules
    assert "critical firing threshold-coverage Coverage 0.333 is below 0.5 (critical)" in rules
    assert shown.all("a", href="/runs/1/diff/2")
    happened = [one.text for one in shown.all("li") if one.text.startswith("Opened")]
    assert sorted(word for one in happened for word in ("softer", "threshold-coverage") if word in one) == [
        "softer",
        "threshold-coverage",
    ]
    assert "ops opened" in _section(shown, "notifications")


def test_an_incident_is_one_row_of_the_list_and_leads_to_its_page(pages: Site) -> None:
    shown = _two_rules(pages).page("/alerts")
    assert shown.one("article").text.startswith("watch: 2 of 3 questions got worse critical firing")
    assert shown.one("a", id="to-incident-1").get("href") == "/incidents/1"
    assert sorted(_listed(shown)) == ["1", "2"]


def test_an_incident_is_acknowledged_as_a_whole_on_its_own_page(pages: Site) -> None:
    client = _two_rules(pages).client()
    path, filled_in = _form(client.get("/incidents/1").text, "acknowledge")
    typed = {**filled_in, "note": "on it"}
    answer = client.post(path, data=typed)
    assert (answer.status_code, answer.headers["location"]) == (303, "/incidents/1")
    assert all(alert["acknowledged_at"] for alert in pages.world.alerts())
    shown = pages.page("/incidents/1")
    assert "acknowledged" in _section(shown, "title")
    assert not shown.all("form", class_="acknowledge")
    elsewhere = client.post(path, data={**typed, "next": "https://evil.test/"})
    assert elsewhere.headers["location"] == "/"


def test_an_incident_is_silenced_by_one_button(pages: Site) -> None:
    client = _two_rules(pages).client()
    path, filled_in = _form(client.get("/incidents/1").text, "/new-silence")
    answer = client.post(path, data=filled_in)
    assert (answer.status_code, answer.headers["location"]) == (303, "/silences/incident-1-watch")
    body = references.load_definition(pages.world.store, "silence", "incident-1-watch").body
    assert (body["checks"], sorted(body["rules"])) == (["watch"], ["softer", "threshold-coverage"])
    left = datetime.fromisoformat(body["ends"]) - datetime.now(UTC)
    assert timedelta(minutes=119) < left <= timedelta(minutes=121)
    shown = pages.page("/incidents/1")
    assert shown.one("p", id="silenced").text.endswith(": nobody is notified, but that what was told before is over.")
    assert "Silence for 2 h" not in shown.text
    assert "by incident-1-watch: nobody is notified of what it matches" in pages.page("/checks/watch").text


def test_an_incident_is_as_grave_as_its_alerts_though_a_silence_keeps_that_untold(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    rule = {"kind": "threshold", "measure": "coverage", "warning": {"below": 0.9}, "critical": {"below": 0.3}}
    keys = ("ant", "bee", "cat", "dog")
    world.apply(canary_page([canary(key) for key in keys], rules=[{**rule, "open": {"bad": 1, "of": 1}}]))
    world.probe.answers = {"ant": answered(hits("noise"))}
    world.run()
    shown = Site(world=world)
    path, filled_in = _form(shown.client().get("/incidents/1").text, "/new-silence")
    assert "warning" in shown.page("/incidents/1").one("p", class_="badges").text
    shown.client().post(path, data=filled_in)
    world.clock.now = datetime.now(UTC) + timedelta(minutes=1)
    world.probe.answers = {key: answered(hits("noise")) for key in keys}
    world.run()
    for one, tag in (("/incidents/1", "p"), ("/alerts", "span"), ("/checks/watch", "span")):
        badges = shown.page(one).all(tag, class_="badges")
        assert badges[0].text.startswith("critical"), one


def _form(html: str, told_by: str) -> tuple[str, dict[str, list[str]]]:
    """Return where the form goes that has this in its tag, and what it sends as it stands."""
    (tag, inside) = next(
        one for one in re.findall(r"(<form\b[^>]*>)(.*?)</form>", html, re.DOTALL) if told_by in one[0]
    )
    sent: dict[str, list[str]] = {}
    for one in Page(inside).all("input"):
        sent.setdefault(one.get("name"), []).append(one.get("value"))
    return re.findall(r'action="([^"]*)"', tag)[0], sent


def test_an_incident_that_is_over_tells_what_happened_and_asks_for_nothing(firing: Site) -> None:
    firing.world.probe.all_answer()
    for _ in range(2):
        firing.world.run()
    shown = firing.page("/incidents/1")
    assert shown.one("h1").text == "watch: 2 of 3 questions got worse"
    headline = _section(shown, "title")
    assert "critical resolved" in headline
    assert "watch: recovered after " in headline
    assert [one.get("action") for one in shown.all("form")] == ["/search"]
    assert "Coverage 0.333 is below 0.5 (critical)" in _section(shown, "rules")
    (picture,) = [one.get("src") for one in shown.all("img") if "heatmap" in one.get("src")]
    assert "&to=2" in picture
    assert firing.client().get(picture).status_code == 200


def test_an_incident_there_is_not_is_named(pages: Site) -> None:
    assert "incident '7'" in pages.page("/incidents/7", 404).text


# --- acting ---


def test_an_alert_is_acknowledged_with_a_note_that_others_read(firing: Site) -> None:
    client = firing.signed_in(firing.key(Scope.WRITE))
    answer = client.post("/alerts/1/acknowledge", data={"note": " index is being rebuilt ", "csrf": csrf(client)})
    assert (answer.status_code, answer.headers["location"]) == (303, "/alerts/1")
    shown = page(client.get("/alerts/1"))
    assert "Acknowledged by somebody: index is being rebuilt." in _section(shown, "history")
    assert "No reminder: it was acknowledged." in _section(shown, "next")
    assert not shown.all("form", class_="acknowledge")


def test_a_note_too_long_is_refused_beside_the_field_and_kept(read: Site) -> None:
    shown = page(read.client().post("/alerts/1/acknowledge", data={"note": "x" * 1001}), 422)
    assert "at most 1000 characters" in shown.one("span", id="note-error").text
    assert shown.one("input", id="note").get("value") == "x" * 1001
    assert read.world.alerts()[0]["acknowledged_at"] is None


def test_an_alert_that_is_over_cannot_be_acknowledged_and_says_so(firing: Site) -> None:
    firing.world.probe.all_answer()
    for _ in range(2):
        firing.world.run()
    shown = page(firing.client().post("/alerts/1/acknowledge"), 409)
    assert "has resolved" in shown.one("p", class_="warning").text


def test_a_key_that_may_only_read_sees_the_buttons_disabled_and_acknowledges_nothing(firing: Site) -> None:
    client = firing.signed_in(firing.key(Scope.READ))
    shown = page(client.get("/alerts/1"))
    (button,) = [one for one in shown.all("button") if one.text == "Acknowledge"]
    assert "disabled" in button.attributes
    assert button.get("title") == "This key may only read"
    assert client.post("/alerts/1/acknowledge", data={"csrf": csrf(client)}).status_code == 403
    assert firing.world.alerts()[0]["acknowledged_at"] is None


def test_silencing_an_alert_begins_with_a_form_that_says_exactly_that(read: Site) -> None:
    (link,) = [one for one in read.page("/alerts/1").all("a") if one.text == "Silence alert"]
    asked = parse_qs(urlsplit(link.get("href")).query)
    assert (asked["checks"], asked["rules"]) == (["watch"], ["threshold-coverage"])
    form = read.page(link.get("href"))
    assert form.one("input", name="slug").get("value") == "watch-threshold-coverage"
    assert "1 open alert would be silenced now" in _section(form, "preview-title")


def test_what_strangers_wrote_is_only_text(sqlite_store: Store) -> None:
    made = site(sqlite_store)
    made.world.apply(canary_page([canary("ant", query=HOSTILE), canary("bee")], rules=[{**COVERAGE, **AT_ONCE}]))
    made.world.probe.all_miss()
    made.world.send.receipts = [Receipt(ok=False, http_status=500, error="http_5xx", detail=HOSTILE)]
    made.world.run(index_version=HOSTILE)
    made.world.deliver_all()
    made.client().post("/alerts/1/acknowledge", data={"note": HOSTILE})
    for path in ("/alerts", "/alerts/1", "/incidents/1"):
        shown = made.page(path)
        assert not shown.all("img", src="x"), path
        assert all(script.get("src").startswith("/static/") for script in shown.all("script")), path
    assert HOSTILE in made.page("/alerts/1").text


def test_a_cause_stands_once_on_the_page_of_an_alert_however_many_canaries_share_it() -> None:
    told = [("ant", "missing"), ("bee", None), *((f"c{number}", "missing") for number in range(8))]
    canaries = [{"key": key, "cause": cause, "cause_reason": "in no deep result"} for key, cause in told]
    groups = by_cause(cast("list[ChangedCanary]", canaries))
    assert [(group["title"], len(group["canaries"])) for group in groups] == [
        ("9 missing from the index", 9),
        ("1 not diagnosed", 1),
    ]
    assert groups[0]["detail"] == "in no deep result"


def test_a_group_of_which_some_canaries_are_listed_counts_all_of_them() -> None:
    listed: list[dict[str, str | None]] = [
        {"key": f"c{number}", "cause": "missing", "cause_reason": "in no deep result"} for number in range(8)
    ]
    listed += [{"key": key, "cause": None, "cause_reason": None} for key in ("ant", "bee")]
    canaries = cast("list[ChangedCanary]", listed)
    titles = [group["title"] for group in by_cause(canaries, {"missing": 21}, 32)]
    assert titles == ["21 missing from the index, 8 of them listed", "11 not diagnosed, 2 of them listed"]
    titles = [group["title"] for group in by_cause(canaries, {}, 32)]
    assert titles == ["8 listed: missing from the index", "2 listed: not diagnosed"]
    assert by_cause(canaries, {"missing": 8}, 10)[0]["title"] == "8 missing from the index"
