"""A number of a judge that did not rate all answers says of how many it is, and its interval holds for all of them."""

from collections.abc import Callable
from typing import Any

import pytest

from app.answers.domain.generated import rated_texts, unrated_shares, with_unrated
from app.base.db.engine import Store
from app.base.texts import corrected_text, rate_text
from app.base.values import CorrectedRateView
from app.reports.metrics import state_families
from app.reports.pages.overviews import make_badge
from app.reports.rendering.reports import report_markdown
from app.reports.service import check_details
from app.reports.service.metrics_snapshot import read_state
from app.reports.service.reports import load_report
from tests.answers.test_answer_alerts import FEW, few, lie
from tests.answers.test_corrected_shown import measure_series
from tests.answers.test_unjudged import summary
from tests.support.pages_service import Site
from tests.support.two_checks import KEYS, LIES, TwoChecks

RATE: CorrectedRateView = {
    "value": 0.9, "low": 0.8, "high": 1.0, "judge_rate": 0.85, "answers": 12, "labels": 120, "task": "labels"
}  # fmt: skip


@pytest.mark.parametrize(
    ("outcomes", "more", "low", "high", "rated"),
    [
        ({"ok": 20}, {}, 0.8, 1.0, ""),
        ({"ok": 12, "declined": 8}, {}, 0.8, 1.0, ""),
        ({"ok": 18, "judge_timeout": 2}, {}, 0.8, 1.0, "18 of 20 rated"),
        ({"ok": 12, "judge_refused": 8}, {}, 0.48, 1.0, "12 of 20 rated"),
        ({"ok": 12}, {"answered": 12, "outcomes": {"ok": 12, "timeout": 8}}, 0.48, 1.0, "12 of 20 rated"),
    ],
)
def test_above_a_tenth_the_interval_holds_whatever_people_would_say_of_the_answers_without_a_rating(
    outcomes: dict[str, int], more: dict[str, Any], low: float, high: float, rated: str
) -> None:
    found = with_unrated(
        summary({"faithful": outcomes}, corrected={"faithful": {**RATE, "answers": outcomes["ok"]}}, **more)
    )
    rate = found["corrected"]["faithful"]
    assert [rate["value"], rate["low"], rate["high"]] == pytest.approx([0.9, low, high])
    assert rated_texts(found).get("faithful", "") == rated
    assert unrated_shares(found) == {"faithful": pytest.approx(rate.get("unrated", 0) / 20 if rated else 0)}
    assert corrected_text(0.9, rate).endswith(f"; the judge: 0.850{rated and f'; {rated}'})")
    assert rate_text(rate).endswith(f"1.000{rated and f'; {rated}'}")
    assert with_unrated(summary({"faithful": outcomes})) == summary({"faithful": outcomes})


@pytest.fixture(scope="module")
def partly(shared_stores: Callable[[], Store]) -> tuple[TwoChecks, str, CorrectedRateView]:
    """Give a labelled check whose judge answers with an error about every bad answer, its run, and the rate of it."""
    two = TwoChecks.of(shared_stores(), measure="faithful_corrected")
    two.label()
    two.it.ask_answers.texts = {key: f"A fib about {key}." for key in LIES}
    two.it.judge.refused.add("A fib")
    run_id = two.it.world.run("blind").id
    two.it.rate(run_id)
    return two, str(run_id), two.it.summary(run_id)["corrected"]["faithful"]


def test_a_judge_that_refuses_the_bad_answers_leaves_an_interval_that_holds_the_truth(
    partly: tuple[TwoChecks, str, CorrectedRateView],
) -> None:
    two, run_id, rate = partly
    truth = 1 - len(LIES) / len(KEYS)
    assert (rate["answers"], rate["unrated"]) == (82, 28)
    assert rate["low"] <= truth <= rate["high"]
    shown, rated = corrected_text(rate["value"], rate), "82 of 110 rated"
    assert rated in shown
    store, site = two.it.world.store, Site(world=two.it.world)
    line = check_details.load_line(store, "blind", two.it.world.clock())
    assert make_badge(store, line, measure="faithful_corrected").value == shown
    assert make_badge(store, line, measure="faithful").value == f"1.000 ({rated})"
    report = load_report(store, run_id)
    assert f"| faithful corrected | {shown} |" in report_markdown(report)
    assert f"| faithful | 1.000 ({rated}) |" in report_markdown(report)
    assert report["rated"] == {"faithful": rated}
    point = measure_series(two, "faithful_corrected")["points"][-1]
    assert point.corrected == {name: rate[name] for name in ("low", "high", "judge_rate", "answers", "unrated")}
    samples = {
        (one.name, one.labels.get("bound", "")): one.value
        for family in state_families(read_state(store))
        for one in family.samples
        if one.labels.get("check") == "blind" and one.labels.get("measure") == "faithful"
    }
    assert samples["coalmine_answers_unrated_ratio", ""] == pytest.approx(28 / 110)
    assert samples["coalmine_corrected_ratio", "low"] == pytest.approx(rate["low"])
    rules = site.client().get("/v1/checks/blind/alerting").json()["rules"]
    [reason] = [one["reason"] for one in rules if "faithful_corrected" in one["rule"]]
    assert shown in reason
    assert f"of {rated.removesuffix(' rated')} answers, corrected" in site.page(f"/runs/{run_id}/answers").text


def test_a_rule_on_what_a_judge_says_that_no_labels_correct_tells_of_how_many_answers(sqlite_store: Store) -> None:
    it = few(sqlite_store)
    site = Site(world=it.world)
    it.judge.refused |= {"about ant", "about bee"}
    lie(it, len(FEW))
    it.run()
    page = site.page("/alerts/1").text
    assert "faithful (uncalibrated) 0.000 (4 of 6 rated), below 0.9" in page
    assert "0.000 4 of 6 rated" in page
    it.ask_answers.texts = {key: f"Another word about {key}." for key in FEW}
    it.run()
    page = site.page("/alerts/1").text
    assert "not bad, but 2 of 6 answers were not judged (the judge answers HTTP 500)" in page
    assert "it may be chance" not in page
