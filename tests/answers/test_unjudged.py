"""Answers that a judge did not judge are not known to be good, and pages, badges and reports say so."""

import json
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from app.alerts.documents import protection_text
from app.alerts.domain.rules import RunFacts, condition
from app.answers.domain.generated import RunAnswers, unjudged, unjudged_text
from app.answers.service import labels
from app.base.db.engine import Store
from app.base.values import Aggregates, Bound, Rule, RuleKind
from app.catalog.store import API
from app.definitions.service import applying
from app.reports.pages.overviews import make_badge
from app.reports.rendering.reports import report_html, report_markdown
from app.reports.service import check_details
from app.reports.service.reports import load_report
from tests.answers.test_answer_alerts import FEW, few, lie, mail_of, notices
from tests.support.answered_world import JUDGE, Answered, answered_world, answers_page, with_texts
from tests.support.pages_service import Site
from tests.support.world import RETRIEVER, World, documents

CLAUSE = "6 of 6 answers were not judged (the judge answers HTTP 500)"
SAID = f"healthy by what was retrieved; {CLAUSE}"


def fail(it: Answered) -> int:
    """Run a check while its judge answers with an error about every answer, and all answers are lies."""
    lie(it, len(FEW))
    it.judge.refused.add("about")
    return it.run()


def summary(ratings: dict[str, dict[str, int]], **more: object) -> RunAnswers:
    """Return what the answers of a run come to, by the outcomes of its judge."""
    found: RunAnswers = {
        "judge": "reader", "sampled": 20, "answered": 20, "outcomes": {"ok": 20}, "ratings": ratings, "measures": {}
    }  # fmt: skip
    return {**found, **more}  # type: ignore[typeddict-item] # fields by their names


@pytest.mark.parametrize(
    ("ratings", "text"),
    [
        ({"faithful": {"ok": 20}}, ""),
        ({"faithful": {"ok": 18, "judge_timeout": 2}}, ""),
        ({"faithful": {"ok": 10, "declined": 10}}, ""),
        ({"faithful": {"ok": 17, "judge_timeout": 3}}, "3 of 20 answers were not judged (judge timeout)"),
        ({"faithful": {"over_budget": 20}}, "20 of 20 answers were not judged (over budget)"),
        (
            {"faithful": {"ok": 20}, "answer_relevance": {"unparsable": 12, "judge_timeout": 8}},
            "answer relevance: 20 of 20 answers were not judged (unparsable, judge timeout)",
        ),
    ],
)
def test_answers_without_a_verdict_are_told_where_the_others_do_not_stand_for_them(
    ratings: dict[str, dict[str, int]], text: str
) -> None:
    assert unjudged_text(summary(ratings)) == text


def test_the_reason_is_told_where_it_is_known_and_answers_that_wait_are_no_failure() -> None:
    failed = summary({"faithful": {"judge_refused": 20}}, failures={"faithful": "the judge answers HTTP 500"})
    assert unjudged(failed) == {"faithful": "20 of 20 answers were not judged (the judge answers HTTP 500)"}
    assert unjudged_text(summary({}, problem="there is no key")) == "its answers were not judged (there is no key)"
    assert (unjudged(None), unjudged_text(None)) == ({}, "")


def test_answers_that_did_not_come_are_told_too(sqlite_store: Store) -> None:
    found = summary({"faithful": {"ok": 4}}, answered=4, outcomes={"ok": 4, "timeout": 10, "refused": 6})
    assert unjudged_text(found) == "16 of 20 answers did not come (error response, timeout)"
    few_lack = summary({"faithful": {"ok": 18}}, answered=18, outcomes={"ok": 18, "timeout": 2})
    assert unjudged_text(few_lack) == ""
    it = few(sqlite_store)
    it.ask_answers.failing = True
    it.run()
    [notice] = notices(it)
    assert notice["data"]["summary"].endswith("was not measured; 6 of 6 answers did not come (timeout)")


@pytest.mark.parametrize(("faithful", "severity"), [(0.95, None), (None, "warning")])
def test_a_corrected_rate_that_nobody_has_yet_is_not_bad_where_others_were_judged(
    faithful: float | None, severity: str | None
) -> None:
    rule = Rule(key="f", kind=RuleKind.THRESHOLD, measure="faithful_corrected", critical=Bound(below=0.7))
    run = Aggregates(
        total=20,
        measured=20,
        failed=0,
        undefined=0,
        degraded=0,
        health_score=1,
        coverage=1,
        measures={"faithful": faithful},
    )
    facts = RunFacts(unjudged={"faithful": "4 of 20 answers were not judged (judge timeout)"})
    found = condition(rule, run, unknown=False, facts=facts)
    assert (found.severity, found.good_beyond_margin, found.measured) == (severity, False, severity is not None)


def test_a_check_whose_judge_fails_is_nowhere_healthy_without_a_word(sqlite_store: Store) -> None:
    it = few(sqlite_store)
    site = Site(world=it.world)
    assert "Protected now: alerts when faithful falls below 0.9 in one run." in site.page("/checks/watch").text
    run_id = fail(it)
    assert it.summary(run_id)["failures"] == {
        "answer_relevance": "the judge answers HTTP 500", "faithful": "the judge answers HTTP 500"
    }  # fmt: skip
    report_of_judge = labels.load_report(sqlite_store, "reader", now=it.world.clock())
    assert report_of_judge["failing"] == "it said nothing to 12 of 24 questions today (judge refused)"
    head = site.page("/checks/watch").one("section", **{"class": "headline recovering"}).text
    assert "answers not judged" in head
    assert SAID[1:] in head
    assert "No rule is violated" not in head
    assert "faithful falls below" not in head
    assert "Not protected now: answers, until a judge reads them again." in head
    assert "0 of 6 answers rated" in site.page("/checks/watch").one("dl", class_="tiles").text
    assert SAID[1:] in site.page(f"/runs/{run_id}").text
    overview = site.page("/").text
    assert "answers not judged" in overview
    assert SAID in overview
    line = check_details.load_line(sqlite_store, "watch", it.world.clock())
    assert make_badge(sqlite_store, line).value == "answers not judged"
    report = load_report(sqlite_store, str(run_id))
    assert report["unjudged_answers"] == CLAUSE
    assert report_markdown(report).startswith("# Healthy by what was retrieved; its answers were not judged: watch")
    assert f"- {SAID}" in report_markdown(report)
    assert SAID in report_html(report)
    assert SAID in site.client().get(f"/v1/runs/{run_id}/report?format=junit").text
    it.judge.refused.clear()
    it.run()
    assert "answers bad" in site.page("/checks/watch").text


def test_a_run_of_which_many_answers_are_not_judged_does_not_end_an_alert(sqlite_store: Store) -> None:
    it = few(sqlite_store)
    site = Site(world=it.world)
    lie(it, 2)
    it.run()

    def alert() -> tuple[str, str]:
        [found] = site.client().get("/v1/alerts").json()["items"]
        return found["state"], found["reason"]

    assert alert()[0] == "firing"
    it.ask_answers.texts = {key: f"Another word about {key}." for key in FEW}
    it.judge.refused |= {"about ant", "about bee"}  # the very two that were bad
    it.run()
    state, reason = alert()
    assert state == "firing", "of the two that were bad nothing is known"
    assert "is not below 0.9; 2 of 6 answers were not judged (the judge answers HTTP 500)" in reason
    page = site.page("/checks/watch").one("section", **{"class": "headline recovering"}).text
    assert "ealthy by what was retrieved; 2 of 6 answers were not judged" in page
    assert "1 alert is open, and resolves after 1 good run" in page
    it.judge.refused.clear()
    it.run()
    assert json.dumps(site.client().get("/v1/alerts").json()).count('"resolved"')


def test_a_judge_that_says_nothing_is_a_warning_of_its_rules(sqlite_store: Store) -> None:
    it = few(sqlite_store)
    site = Site(world=it.world)
    fail(it)
    [notice] = notices(it)
    data = notice["data"]
    assert (notice["type"], data["severity"], data["value"]) == ("alert.opened", "warning", None)
    assert data["title"] == "watch: faithful (uncalibrated) was not measured"
    assert data["summary"] == f"watch: faithful (uncalibrated) was not measured; {CLAUSE}"
    assert str(data["advice"]).startswith("See why answers were not judged, at the judge and the generator")
    assert CLAUSE in mail_of(notice)[1]
    it.judge.refused.clear()
    lie(it, 2)
    it.run()
    [shown] = site.client().get("/v1/alerts").json()["items"]
    assert shown["state"] == "firing"
    page = site.page("/alerts/1").text
    assert "faithful (uncalibrated) 0.667, below 0.9; bad at times since" in page, "not judged is not known to be bad"
    lie(it, 0)
    it.run()
    assert [one["type"] for one in notices(it)][1:] == ["alert.resolved"]


def test_an_alert_about_bad_answers_counts_those_of_the_last_run_that_was_judged(sqlite_store: Store) -> None:
    it = few(sqlite_store)
    site = Site(world=it.world)
    lie(it, 2)
    bad = it.run()
    it.ask_answers.texts = {key: f"Another word about {key}." for key in FEW}
    it.judge.refused.add("about")
    it.run()
    page = site.page("/incidents/1")
    assert "2 of 6 answers got worse" in page.text
    assert f"Every answer of run {bad}" in page.one("section", **{"aria-labelledby": "worse"}).text
    alert = site.page("/alerts/1").text
    assert "0.667, below 0.9" in alert
    assert f"{CLAUSE} (warning); the alert is firing" in alert
    assert SAID[1:] in site.page("/checks/watch").text


def watched(store: Store, page: Mapping[str, Any]) -> Answered:
    """Run a check that the API defines, so that one definition can be changed alone, with good answers."""
    it = Answered(world=World(store=store))
    it.world.probe.otherwise = with_texts
    edit(it, page)
    it.judge.no.add("A lie about")
    it.run()
    return it


def edit(it: Answered, page: Mapping[str, Any]) -> None:
    """Put these definitions in force, as the API does."""
    world = it.world
    applying.apply(world.store, world.vault, documents(page), managed_by=API, now=world.clock.advance(1))


WATCHED = answers_page(FEW, sample=1.0, rules=[{"kind": "threshold", "measure": "faithful", "warning": {"below": 0.9}}])


def assert_is_told_as_unmeasured(it: Answered, why: str) -> None:
    """Assert that nowhere a rule on answers that nothing measures any more is told to protect."""
    site = Site(world=it.world)
    clause = f"faithful is not measured though a rule watches it: {why}"
    head = site.page("/checks/watch").one("section", **{"class": "headline recovering"}).text
    assert f"ealthy by what was retrieved; {clause}." in head
    assert f"Not protected now: answers, since {why}." in head
    assert "Protected now: alerts when" not in head
    assert "until a judge reads them again" not in head
    assert f"healthy by what was retrieved; {clause}" in site.page("/").text
    line = check_details.load_line(it.world.store, "watch", it.world.clock())
    assert make_badge(it.world.store, line).value == "answers not judged"
    rules = site.client().get("/v1/checks/watch/alerting").json()["rules"]
    [rule] = [one for one in rules if "faithful" in one["rule"]]
    assert (rule["state"], rule["bad_runs_to_open"]) == ("unknown", None)
    assert rule["reason"] == f"faithful is not measured: {why}"
    assert rule["to_open"] == f"It cannot open: {why}."


@pytest.mark.both
def test_a_rule_on_what_the_judge_is_not_asked_any_more_is_not_told_to_protect(store: Store) -> None:
    it = watched(store, WATCHED)
    edit(it, {"judges": [{**JUDGE, "questions": ["answer_relevance"]}]})
    lie(it, len(FEW))
    it.run()
    assert_is_told_as_unmeasured(it, "judge 'reader' is not asked about it")


def test_a_rule_on_answers_that_no_retriever_gives_any_more_is_not_told_to_protect(sqlite_store: Store) -> None:
    it = watched(sqlite_store, WATCHED)
    edit(it, {"retrievers": [{**RETRIEVER, "response": {**RETRIEVER["response"], "text": "text"}}]})
    it.run()
    assert_is_told_as_unmeasured(it, "retriever 'search' gives no answers any more")


def test_what_is_still_measured_protects_beside_what_is_not() -> None:
    rules = [
        Rule(key=name, kind=RuleKind.THRESHOLD, measure=name, critical=Bound(below=0.7))
        for name in ("faithful", "answer_relevance")
    ]
    said = protection_text(
        rules, identical_runs=8, runs=23, frozen=False, unmeasured={"faithful": "judge 'j' is not asked about it"}
    )
    assert said == (
        "Protected now: alerts when answer relevance falls below 0.7 in 2 of 3 runs. "
        "Not protected now: faithful of answers, since judge 'j' is not asked about it."
    )


def test_only_what_the_judge_did_not_say_is_told_as_not_protected() -> None:
    rules = [
        Rule(key=name, kind=RuleKind.THRESHOLD, measure=name, critical=Bound(below=0.7))
        for name in ("faithful_corrected", "answer_relevance")
    ]
    assert protection_text(rules, identical_runs=8, runs=23, frozen=False, silent={"faithful"}) == (
        "Protected now: alerts when answer relevance falls below 0.7 in 2 of 3 runs. "
        "Not protected now: faithful corrected of answers, until a judge reads them again."
    )
    both = protection_text(rules, identical_runs=8, runs=23, frozen=False, silent={"faithful", "answer_relevance"})
    assert both == "Not protected now: answers, until a judge reads them again."


@pytest.mark.parametrize(
    ("missing", "silent", "said"),
    [
        (
            13 / 53,
            (),
            (
                "Protected now: alerts when faithful falls below 0.7 in 2 of 3 runs. "
                "Not protected now: answers that do not come, until the generator or the retriever gives them again."
            ),
        ),
        (1.0, (), "Not protected now: answers, until the generator or the retriever gives them again."),
        (
            0.5,
            {"faithful"},
            (
                "Not protected now: answers that do not come, until the generator or the retriever gives them again. "
                "Not protected now: answers, until a judge reads them again."
            ),
        ),
    ],
)
def test_answers_that_did_not_come_are_no_fault_of_the_judge(
    missing: float, silent: Collection[str], said: str
) -> None:
    rule = Rule(key="f", kind=RuleKind.THRESHOLD, measure="faithful", critical=Bound(below=0.7))
    assert protection_text([rule], identical_runs=8, runs=23, frozen=False, missing=missing, silent=silent) == said


def test_the_page_of_a_check_names_who_gave_no_answers(sqlite_store: Store) -> None:
    it = few(sqlite_store)
    site = Site(world=it.world)
    it.ask_answers.lost = {FEW[0], FEW[1]}
    it.run()
    head = site.page("/checks/watch").one("section", **{"class": "headline recovering"}).text
    assert "2 of 6 answers did not come (timeout)" in head
    assert "Protected now: alerts when faithful falls below 0.9 in one run." in head
    told = "Not protected now: answers that do not come, until the generator or the retriever gives them again."
    assert told in head
    assert "until a judge reads them again" not in head
    it.ask_answers.lost = {*FEW}
    it.run()
    head = site.page("/checks/watch").one("section", **{"class": "headline recovering"}).text
    assert "Not protected now: answers, until the generator or the retriever gives them again." in head
    assert "Protected now: alerts when" not in head
    assert "until a judge reads them again" not in head


def test_a_corrected_rate_that_was_not_measured_is_called_no_mean_share() -> None:
    rule = Rule(key="f", kind=RuleKind.THRESHOLD, measure="faithfulness_corrected", critical=Bound(below=0.7))
    run = Aggregates(total=20, measured=20, failed=0, undefined=0, degraded=0, health_score=1, coverage=1)
    found = condition(rule, run, unknown=False, facts=RunFacts(confirmed=("faithfulness",)))
    assert found.reason == "faithfulness_corrected was not measured"


@pytest.mark.parametrize(
    ("clause", "says"),
    [
        ("33 of 140 answers did not come (malformed)", "were not all judged"),
        ("faithful: 3 of 20 answers were not judged (the judge answers HTTP 500)", "were not all judged"),
        ("1,033 of 1,033 answers were not judged (the judge answers HTTP 500)", "were not judged"),
        ("1 of 1 answer was not judged (the judge answers HTTP 500)", "were not judged"),
        ("its answers were not judged (there is no key)", "were not judged"),
    ],
)
def test_a_heading_says_of_a_part_of_the_answers_that_it_is_a_part(sqlite_store: Store, clause: str, says: str) -> None:
    it = answered_world(sqlite_store, answers_page(["ant"]))
    run_id = it.run()
    report = {**load_report(sqlite_store, str(run_id)), "unjudged_answers": clause}
    assert report_markdown(report).startswith(f"# Healthy by what was retrieved; its answers {says}: watch")
