"""Answers of runs: had, grounded, judged once, within a budget, and told of by rules."""

from collections.abc import Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from app.answers.domain.judges import JudgeOutcome
from app.answers.service import answering, labels
from app.answers.store import answer_rows as rows
from app.base.db.engine import Store, to_us
from app.base.errors import InvalidInputError
from app.base.jobs.values import JobKind
from app.base.values import replace
from app.comparison.service import comparisons
from app.reports.service import charts
from app.retrievers.domain.retrievers import ProbeQuery
from tests.support.answered_world import JUDGE, answered_world, answers_page, with_texts
from tests.support.fakes import START
from tests.support.world import CHECK, World, canary, page


@pytest.mark.both
def test_answers_are_had_after_the_run_judged_and_shown_as_measures(store: Store) -> None:
    it = answered_world(store, answers_page(["ant", "bee", "cat"]))
    it.judge.no.add("bees")
    it.ask_answers.texts["bee"] = "Nobody knows about bees."
    run_id = it.world.run().id
    assert it.measures(run_id)["faithful"] is None, "not judged yet is not 0"
    it.rate(run_id)
    measures = it.measures(run_id)
    assert measures["faithful"] == pytest.approx(2 / 3)
    assert measures["utilisation"] == pytest.approx(2 / 3)
    assert measures["faithfulness"] is None, "the judge is not asked that"
    assert it.summary(run_id)["ratings"] == {"faithful": {"ok": 3}}
    assert it.ask_answers.asked[0].contexts[1] == "Nothing else here."


@pytest.mark.databases
def test_they_are_in_the_charts_like_any_measure(sqlite_store: Store) -> None:
    it = answered_world(sqlite_store, answers_page(["ant", "bee"]))
    it.judge.no.add("about bee")
    it.run()
    now = to_us(it.world.clock())
    series = charts.series(sqlite_store, CHECK, measure="faithful", category=None, start=0, end=now + 1, points=10)
    assert [point.mean for point in series["points"]] == [0.5]


@pytest.mark.databases
def test_an_unchanged_answer_costs_nothing(sqlite_store: Store) -> None:
    it = answered_world(sqlite_store, answers_page(["ant", "bee"]))
    it.run()
    assert len(it.judge.asked) == 2
    second = it.run()
    assert len(it.judge.asked) == 2
    assert it.measures(second)["faithful"] == 1
    it.ask_answers.texts["ant"] = "Something new."
    it.run()
    assert len(it.judge.asked) == 3
    with sqlite_store.read() as connection:
        judge_id = next(iter(connection.exec_driver_sql("SELECT id FROM definitions WHERE kind = 'judge'")))[0]
        day = rows.read_day(connection, judge_id, (START - answering_epoch()).days)
    assert (day.calls, day.cached, day.tokens) == (3, 3, 300)


def answering_epoch() -> Any:
    """Return the first day that is counted."""
    return START.replace(year=1970, month=1, day=1, hour=0, minute=0, second=0, microsecond=0)


@pytest.mark.databases
def test_what_holds_is_written_only_where_it_changes(store: Store) -> None:
    it = answered_world(store, answers_page(["ant", "bee"]))
    first = it.run()
    it.run()
    assert it.world.count("answers", "answer_texts") == {"answers": 2, "answer_texts": 2}
    it.ask_answers.texts["ant"] = "Something new."
    third = it.run()
    with store.read() as connection:
        check_id = connection.exec_driver_sql("SELECT id FROM definitions WHERE kind = 'check'").scalar_one()
        before = {row.text for row in rows.answers_at(connection, check_id, first).values()}
        now = {row.text for row in rows.answers_at(connection, check_id, third).values()}
    assert "Something new." in now - before
    assert len(before & now) == 1


@pytest.mark.parametrize("outcome", [one for one in JudgeOutcome if one is not JudgeOutcome.OK])
def test_what_a_judge_does_not_say_is_undefined_and_asked_again(sqlite_store: Store, outcome: JudgeOutcome) -> None:
    it = answered_world(sqlite_store, answers_page(["ant", "bee"]))
    it.judge.outcome = outcome
    run_id = it.run()
    assert it.measures(run_id)["faithful"] is None
    assert it.world.shown(run_id)["verdict"] == "healthy", "it is no failure of retrieval"
    assert it.summary(run_id)["ratings"] == {"faithful": {str(outcome): 2}}
    it.judge.outcome = None
    again = it.run()
    assert it.measures(again)["faithful"] == (None if outcome is JudgeOutcome.DECLINED else 1)


@pytest.mark.both
def test_a_day_has_a_budget(store: Store) -> None:
    document = answers_page([f"q{number}" for number in range(40)])
    document["judges"] = [{**JUDGE, "price_per_million": 1_000_000, "budget_per_day": 6_000}]
    it = answered_world(store, document)
    run_id = it.run()
    asked = len(it.judge.asked)
    assert 0 < asked < 40
    counts = it.summary(run_id)["ratings"]["faithful"]
    assert counts == {"ok": asked, "over_budget": 40 - asked}
    report = labels.load_report(store, "reader", now=it.world.clock())
    assert report["failing"] == f"it said nothing to {40 - asked} of 40 questions today (over budget)"
    assert (report["today"]["calls"], report["today"]["outcomes"]) == (asked, counts)
    it.world.clock.advance(86_400)
    it.run()
    assert len(it.judge.asked) > asked, "a new day"


def test_an_answer_that_cannot_be_had_is_no_failure_of_retrieval(sqlite_store: Store) -> None:
    it = answered_world(sqlite_store, answers_page(["ant", "bee"]))
    it.ask_answers.failing = True
    run_id = it.run()
    assert it.judge.asked == []
    assert it.measures(run_id)["utilisation"] is None
    summary = it.summary(run_id)
    assert (summary["answered"], summary["outcomes"]) == (0, {"timeout": 2})
    assert it.world.shown(run_id)["verdict"] == "healthy"


def test_answers_may_come_with_the_hits(sqlite_store: Store) -> None:
    it = answered_world(sqlite_store, answers_page(["ant", "bee"], source=None))
    it.world.probe.otherwise = lambda item: replace(with_texts(item), generated=f"All about {item.query}.")
    it.world.probe.answers["bee"] = replace(with_texts(ProbeQuery(position=1, query="bee")), generated=None)
    run_id = it.run()
    assert it.ask_answers.asked == []
    assert ["All about ant." in prompt.user for prompt in it.judge.asked] == [True]
    assert it.summary(run_id)["outcomes"] == {"ok": 1, "malformed": 1}


def test_a_sample_is_always_of_the_same_canaries(sqlite_store: Store) -> None:
    it = answered_world(sqlite_store, answers_page([f"q{number}" for number in range(60)], sample=0.25))
    it.run()
    first = {request.query for request in it.ask_answers.asked}
    it.ask_answers.asked.clear()
    it.run()
    assert {request.query for request in it.ask_answers.asked} == first
    assert 6 <= len(first) <= 25


@pytest.mark.both
def test_a_job_let_go_of_asks_nothing_twice(store: Store) -> None:
    it = answered_world(store, answers_page([f"q{number:02}" for number in range(40)]))
    run_id = it.world.run().id
    assert not it.rate(run_id, calls=30)
    assert it.summary(run_id) is None
    for calls in (45, 60):
        it.rate(run_id, calls=calls)
    assert it.rate(run_id)
    assert len({request.query for request in it.ask_answers.asked}) == 40
    assert len(it.ask_answers.asked) <= 40 + 3 * answering.BLOCK
    assert it.measures(run_id)["faithful"] == 1
    assert it.rate(run_id), "done is done"


RULE = {"kind": "threshold", "measure": "faithful", "critical": {"below": 0.9}, "open": {"bad": 2, "of": 3}, "close": 2}


def test_a_rule_on_answers_opens_and_closes_when_they_are_judged(sqlite_store: Store) -> None:
    it = answered_world(sqlite_store, answers_page(["ant", "bee"], rules=[RULE]))
    it.run()
    it.judge.no.add("Lies")
    it.ask_answers.texts["ant"] = "Lies."
    it.run()
    assert it.world.alerts() == [] or it.world.alerts()[0]["state"] == "pending"
    run_id = it.world.run().id
    assert [one["state"] for one in it.world.alerts()] in (["pending"], [])
    it.rate(run_id)
    [alert] = it.world.alerts()
    assert (alert["state"], alert["rule"]) == ("firing", "threshold-faithful")
    assert alert["severity"] == "warning", "nobody has confirmed the judge"
    assert alert["reason"].startswith("faithful (uncalibrated) 0.500 is below 0.9 (warning)")
    del it.ask_answers.texts["ant"]
    it.run()
    it.run()
    assert it.world.alerts()[0]["state"] == "resolved"


@pytest.mark.databases
def test_answers_judged_after_those_of_a_later_run_do_not_take_their_place(store: Store) -> None:
    it = answered_world(store, answers_page(["ant"]))
    it.run()
    late = it.world.run().id
    it.ask_answers.texts["ant"] = "The newest."
    newest = it.world.run().id
    it.rate(newest)
    it.ask_answers.texts["ant"] = "Of the run before."
    it.rate(late)
    assert it.measures(late)["faithful"] == 1, "its own numbers it has"
    assert [one["answer"] for one in answering.answers_of_run(store, str(newest))["items"]] == ["The newest."]
    with store.read() as connection:
        still = connection.exec_driver_sql("SELECT count(*) FROM answers WHERE last_run IS NULL").scalar_one()
    assert still == 1


def test_answers_that_cannot_be_judged_as_defined_end_with_the_reason(sqlite_store: Store) -> None:
    it = answered_world(sqlite_store, answers_page(["ant"]))
    judged = it.run()
    run_id = it.world.run().id
    with sqlite_store.write() as connection:
        connection.execute(sa.text("UPDATE definition_versions SET body = '{}' WHERE body LIKE '%judge.test%'"))
    assert it.rate(run_id), "trying again would change nothing"
    compared, _ = comparisons.compare_references(sqlite_store, f"run:{judged}", f"run:{run_id}")
    [told] = [one for one in compared["differences"] if "not judged" in one]
    assert told.startswith(f"the answers of run {run_id} were not judged (")
    assert told.endswith("), so answers are not compared")
    page_ = answering.answers_of_run(sqlite_store, str(run_id))
    assert page_["summary"] is not None
    assert "is missing" in page_["summary"]["problem"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"judge": None, "rules": [RULE]}, "rules[0].measure"),
        ({"rules": [{**RULE, "kind": "drop", "critical": {"by": 0.1}}]}, "rules[0].measure"),
        ({"judge": "nobody"}, "judge"),
    ],
)
def test_a_check_that_watches_answers_nobody_gives_or_judges_is_refused(
    sqlite_store: Store, change: Mapping[str, Any], path: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        answered_world(sqlite_store, answers_page(["ant"], **change))
    assert [problem.path for problem in refused.value.problems if str(problem.path).endswith(path)]


@pytest.mark.parametrize("rule", [None, {"kind": "threshold", "measure": "utilisation", "warning": {"below": 0.5}}])
def test_a_retriever_without_answers_is_said_to_give_none(sqlite_store: Store, rule: Mapping[str, Any] | None) -> None:
    document = page([canary("ant")], **({"judge": "reader"} if rule is None else {"rules": [rule]}))
    with pytest.raises(InvalidInputError, match="gives no answers to"):
        World(store=sqlite_store).apply({**document, "judges": [JUDGE]})


def test_without_answers_there_is_no_job(sqlite_store: Store) -> None:
    world = World(store=sqlite_store)
    world.apply(page([canary("ant")]))
    run_id = world.run().id
    assert "faithful" not in world.shown(run_id)["measures"]
    assert world.count("run_answers") == {"run_answers": 0}
    assert JobKind.ANSWERS not in {JobKind(one) for one in _waiting(sqlite_store)}


def _waiting(store: Store) -> list[str]:
    if store.dialect != "sqlite":
        return []
    with store.read() as connection:
        return [row[0] for row in connection.exec_driver_sql("SELECT kind FROM jobs")]
