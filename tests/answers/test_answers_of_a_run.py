"""The answers of a run are those that came in it: what did not come is counted, and no earlier answer stands for it."""

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from app.answers.service import answering
from app.base.db.engine import Store
from app.base.values import Answer, Outcome, replace
from app.reports.metrics import state_families
from app.reports.pages.overviews import make_badge
from app.reports.service import check_details
from app.reports.service.metrics_snapshot import read_state
from app.reports.service.reports import load_report
from app.retrievers.domain.retrievers import ProbeQuery
from tests.answers.test_answer_alerts import FEW, few, lie, notices
from tests.support.answered_world import JUDGE, SOURCE, Answered, answers_page, with_texts
from tests.support.fakes import failed
from tests.support.pages_service import Site

MISSING = "2 of 6 answers did not come (error response)"


def answering_itself(it: Answered, failing: Collection[str] = ()) -> None:
    """Let the retriever give the answers that an endpoint would, and fail for some queries."""

    def answer(item: ProbeQuery) -> Answer:
        if item.query in failing:
            return failed(Outcome.REFUSED, http_status=500)
        return replace(with_texts(item), generated=it.ask_answers.texts[item.query])

    it.world.probe.otherwise = answer


def firing(it: Answered) -> list[str]:
    """Return the pages of the open alerts on answers."""
    rules = [one for one in it.world.alerts() if one["rule"] == "threshold-faithful"]
    return [f"/alerts/{one['id']}" for one in rules if one["state"] == "firing"]


def keys_of(it: Answered, run_id: int) -> list[str]:
    """Return the canaries whose answers the page of a run lists."""
    return sorted(one["key"] for one in answering.answers_of_run(it.world.store, str(run_id))["items"])


@pytest.mark.parametrize("source", [None, SOURCE])
def test_what_a_failing_retriever_did_not_answer_is_missing_whoever_gives_the_answers(
    sqlite_store: Store, source: Mapping[str, Any] | None
) -> None:
    it = few(sqlite_store, {"source": source})
    answering_itself(it)
    it.run()
    lie(it, 2)
    it.run()
    [alert] = firing(it)

    answering_itself(it, FEW[:2])
    run_id = it.run()
    summary = it.summary(run_id)
    assert (summary["sampled"], summary["answered"]) == (6, 4)
    assert summary["outcomes"] == {"ok": 4, "refused": 2}
    assert summary["measures"]["faithful"] == 1
    assert firing(it) == [alert], "what did not come is not known to be good"
    report = load_report(sqlite_store, str(run_id))
    assert (report["rated"]["faithful"], report["unjudged_answers"]) == ("4 of 6 rated", MISSING)
    site = Site(world=it.world)
    assert "4 of 6 answers came" in site.page(f"/runs/{run_id}/answers").text
    assert MISSING in site.page(alert).text
    line = check_details.load_line(sqlite_store, "watch", it.world.clock())
    assert make_badge(sqlite_store, line, measure="faithful").value == "1.000 (4 of 6 rated)"
    [share] = [
        one.value
        for family in state_families(read_state(sqlite_store))
        for one in family.samples
        if one.name == "coalmine_answers_unrated_ratio" and one.labels["measure"] == "faithful"
    ]
    assert share == pytest.approx(2 / 6)


def test_a_run_lists_no_answer_of_an_earlier_run(sqlite_store: Store) -> None:
    it = few(sqlite_store, {"source": None})
    answering_itself(it)
    lie(it, 6)
    it.run()
    answering_itself(it, FEW[:2])
    run_id = it.run()
    assert keys_of(it, run_id) == FEW[2:]
    assert len(Site(world=it.world).page(f"/runs/{run_id}/answers").all("article", class_="answer")) == len(FEW[2:])
    assert keys_of(it, it.run()) == FEW[2:]


def test_a_run_that_watches_a_part_lists_and_counts_that_alone(sqlite_store: Store) -> None:
    it = few(sqlite_store)
    rule = {"kind": "threshold", "measure": "faithful", "warning": {"below": 0.9}, "open": {"bad": 1, "of": 1}}
    it.world.apply({**answers_page(FEW, sample=0.5, rules=[rule]), "judges": [JUDGE]})
    before = it.run()
    part = keys_of(it, before)
    assert 0 < len(part) < len(FEW)
    assert it.summary(before)["sampled"] == len(part)
    lie(it, 6)
    it.run()
    [notice] = notices(it)
    answers = notice["data"]["answers"]
    assert answers is not None
    assert (answers["worse"], answers["of"], answers["came"]) == (len(part), len(part), len(part))


def test_an_alert_counts_no_answer_that_did_not_come(sqlite_store: Store) -> None:
    it = few(sqlite_store, {"source": None})
    answering_itself(it)
    it.run()
    lie(it, 4)
    answering_itself(it, FEW[:2])
    it.run()
    told = [one["data"]["answers"] for one in notices(it)]
    assert [(one["worse"], one["of"], one["came"]) for one in told if one is not None and one["worse"]] == [(2, 4, 4)]
