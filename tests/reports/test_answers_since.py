"""A report since another run: what the decision leaves out, which is about retrieval alone, is told beside it."""

from app.base.db.engine import Store
from app.reports.rendering.reports import change_lines
from app.reports.service import reports
from tests.support.answered_world import answered_world, answers_page


def test_a_report_since_another_run_tells_of_answers_that_fell(sqlite_store: Store) -> None:
    keys = [f"q{number}" for number in range(6)]
    it = answered_world(sqlite_store, answers_page(keys))
    before = it.run()
    it.ask_answers.texts |= {key: f"A lie about {key}." for key in keys[:3]}
    it.judge.no.add("A lie about")
    now = it.run()
    lines = change_lines(reports.load_report(sqlite_store, str(now), since=str(before)))
    worth = "faithful by the judge alone 1.000 before, 0.500 now"
    assert f"the decision is about what was retrieved; generated answers: {worth}" in lines


def test_a_report_of_a_check_without_answers_says_nothing_of_them(sqlite_store: Store) -> None:
    it = answered_world(sqlite_store, answers_page(["a"], source=None, judge=None))
    first, second = it.world.run().id, it.world.run().id
    lines = change_lines(reports.load_report(sqlite_store, str(second), since=str(first)))
    assert not any("generated answers" in line for line in lines)
