"""A corrected rate never stands alone: its interval and the judge's own rate are beside it wherever it is shown."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from app.base.db.engine import Store, to_us
from app.base.texts import beside_text, corrected_text
from app.base.values import CorrectedRateView
from app.reports.pages.overviews import make_badge
from app.reports.rendering.reports import report_html, report_json, report_markdown
from app.reports.service import charts, check_details
from app.reports.service.reports import load_report
from tests.support.browser import opened, served
from tests.support.html_pages import Page
from tests.support.pages_service import Site
from tests.support.present import present
from tests.support.two_checks import KEYS, TwoChecks


@pytest.fixture(scope="module")
def two(shared_stores: Callable[[], Store]) -> TwoChecks:
    """Give two checks, labelled, of which one ran four times: before the labels, and three times after them."""
    checks = TwoChecks.of(shared_stores())
    checks.label()
    for count in (0, 60, 100):
        checks.it.ask_answers.texts = {key: f"A lie about {key}." for key in KEYS[:count]}
        checks.it.rate(checks.it.world.run("blind").id)
        checks.it.world.clock.advance(1_200)
    return checks


def rates(two: TwoChecks) -> list[CorrectedRateView]:
    """Return the corrected rates of the runs after the labels, the oldest first."""
    return [two.it.summary(run_id)["corrected"]["faithful"] for run_id in (3, 4, 5)]


def measure_series(two: TwoChecks, measure: str, **more: Any) -> Any:
    """Read the series of a measure over all runs."""
    end = to_us(two.it.world.clock() + timedelta(minutes=1))
    start = end - 4 * 3_600_000_000
    asked = {"category": None, "start": start, "end": end, "points": 300, **more}
    return charts.series(two.it.world.store, "blind", measure=measure, **asked)


def test_a_report_has_the_interval_and_the_judges_own_rate_in_every_form(two: TwoChecks) -> None:
    report = load_report(two.it.world.store, "4")
    rate = rates(two)[1]
    assert json.loads(report_json(report))["corrected"] == {"faithful": rate}
    markdown = report_markdown(report)
    assert f"| faithful corrected | {corrected_text(rate['value'], rate)} |" in markdown
    assert "| faithful | " in markdown
    note = (
        "Faithful, corrected by people's labels: by 110 labels of task faithful, in parentheses the 95 % interval and "
        "what the judge says of 110 answers."
    )
    assert note in markdown
    page = Page(report_html(report))
    assert any(one.text == corrected_text(rate["value"], rate) for one in page.all("td"))
    assert any(one.text == note for one in page.all("p"))


def test_a_report_without_labels_has_no_corrected_rate(two: TwoChecks) -> None:
    report = load_report(two.it.world.store, "2")
    assert report["corrected"] == {}
    assert "corrected by people" not in report_markdown(report)


def test_a_run_has_both_numbers_and_its_answers_and_pages_have_the_interval_too(two: TwoChecks) -> None:
    site, rate = Site(world=two.it.world), rates(two)[2]
    client = site.client()
    for path in ("/v1/runs/5", "/v1/checks/blind/health"):
        measures = client.get(path).json()["measures"]
        shown = {name: measures[name] for name in ("faithful", "faithful_corrected")}
        assert shown == {
            "faithful": pytest.approx(rate["judge_rate"], abs=1e-6),
            "faithful_corrected": pytest.approx(rate["value"], abs=1e-6),
        }
    assert client.get("/v1/runs/5/answers").json()["summary"]["corrected"] == {"faithful": rate}
    beside = f"{rate['low']:.3f} to {rate['high']:.3f}"
    for path in ("/runs/5", "/runs/5/answers", "/checks/blind"):
        text = site.page(path).text
        assert beside in text
        assert "corrected by 110 labels of people" in text


def test_each_point_of_a_run_has_the_interval(two: TwoChecks) -> None:
    points = measure_series(two, "faithful_corrected")["points"]
    assert [(one.first_run, one.mean) for one in points] == [
        (str(number), rate["value"]) for number, rate in zip((3, 4, 5), rates(two), strict=True)
    ]
    assert [one.corrected for one in points] == [
        {name: pytest.approx(rate[name], abs=1e-6) for name in ("low", "high", "judge_rate", "answers")}
        for rate in rates(two)
    ]
    assert {one.corrected for one in measure_series(two, "faithful")["points"]} == {None}


def test_a_point_of_several_runs_has_the_means_of_their_intervals(two: TwoChecks) -> None:
    [point] = measure_series(two, "faithful_corrected", points=1)["points"]
    assert point.runs == 3
    assert present(point.corrected) == {
        name: pytest.approx(sum(rate[name] for rate in rates(two)) / 3, abs=1e-5)
        for name in ("low", "high", "judge_rate")
    } | {"answers": sum(rate["answers"] for rate in rates(two))}


def test_an_hour_has_the_means_of_the_intervals_of_its_runs(two: TwoChecks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "MAX_POINTS", 2)
    start = to_us(two.it.world.clock() - timedelta(hours=2))
    points = measure_series(two, "faithful_corrected", start=start, end=start + 7_200_000_000)["points"]
    assert sum(one.runs for one in points) == 3
    assert all(present(one.corrected)["low"] < one.mean < present(one.corrected)["high"] for one in points)
    assert all(one.first_run is None for one in points), "they are sums"


def test_a_badge_has_the_interval(two: TwoChecks) -> None:
    store = two.it.world.store
    line = check_details.load_line(store, "blind", two.it.world.clock() - timedelta(minutes=20))
    rate = rates(two)[2]
    badge = make_badge(store, line, measure="faithful_corrected")
    assert badge.value == corrected_text(rate["value"], rate)
    assert make_badge(store, line, measure="faithful").value == f"{rate['judge_rate']:.3f}"


def test_the_page_of_a_check_has_the_interval_in_both_places(two: TwoChecks) -> None:
    rate = rates(two)[2]
    page = Site(world=two.it.world).page("/checks/blind")
    assert sum(beside_text(rate) in one.text for one in page.all("dd")) == 1
    answers = page.one("section", **{"aria-labelledby": "answers"}).text
    assert f"{rate['low']:.3f} to {rate['high']:.3f}" in answers
    assert f"the judge: {rate['judge_rate']:.3f} of 110 answers, corrected by 110 labels of people" in answers


def test_the_chart_draws_the_interval_and_says_it_in_words(chromium: Browser, two: TwoChecks) -> None:
    now = two.it.world.clock()
    since, until = ((now - timedelta(minutes=more)).strftime("%Y-%m-%dT%H:%M:%SZ") for more in (90, 0))
    rate = rates(two)[2]
    with served(Site(world=two.it.world).app()) as address, opened(chromium, address) as tab:
        shown = tab.open(f"/checks/blind?from={since}&to={until}&measure=faithful_corrected")
        expect(shown.locator("#chart-note")).to_have_text(re.compile("3 points"))
        cells = shown.locator("#chart-table tbody td.number").all_text_contents()
        assert cells == [corrected_text(one["value"], one) for one in reversed(rates(two))]
        shown.get_by_text("Key", exact=True).click()
        assert "95 % interval, by people\u2019s labels" in shown.locator("#chart-key li").all_inner_texts()
        shown.locator("#chart").focus()
        shown.keyboard.press("End")
        expect(shown.locator("#chart-point")).to_contain_text(
            f"faithful corrected {corrected_text(rate['value'], rate)}"
        )
        shown.locator("select[name=measure]").select_option("faithful")
        expect(shown.locator("#chart-table tbody td.number").first).to_have_text(f"{rate['judge_rate']:.3f}")


def test_a_mean_of_shares_is_called_so_wherever_the_rate_of_people_is_near(sqlite_store: Store) -> None:
    shares = TwoChecks.of(sqlite_store, "faithful", "faithfulness", half="smooth tale")
    site = Site(world=shares.it.world)
    line = check_details.load_line(sqlite_store, "blind", shares.it.world.clock())
    assert "mean share" not in report_markdown(load_report(sqlite_store, "2")), "no other rate is near"
    assert "mean share" not in make_badge(sqlite_store, line, measure="faithfulness").value
    assert "mean share" not in site.page("/runs/2").text
    for question in ("faithful", "faithfulness"):
        shares.label(question)
    run_id = shares.run("blind")
    measures = shares.it.measures(run_id)
    mean = f"{present(measures['faithfulness']):.3f}"
    assert present(measures["faithfulness_corrected"]) != pytest.approx(present(measures["faithfulness"]), abs=0.01)
    report = load_report(sqlite_store, str(run_id))
    assert f"| faithfulness | {mean} (mean share by the judge) |" in report_markdown(report)
    assert report_markdown(report).count("mean share by the judge") == 1, "faithful is a rate as the corrected one is"
    assert any(one.text == f"{mean} (mean share by the judge)" for one in Page(report_html(report)).all("td"))
    line = check_details.load_line(sqlite_store, "blind", shares.it.world.clock())
    assert make_badge(sqlite_store, line, measure="faithfulness").value == f"{mean} (mean share by the judge)"
    assert "mean share" not in make_badge(sqlite_store, line, measure="faithful").value
    for path in (f"/runs/{run_id}", f"/runs/{run_id}/answers", "/checks/blind"):
        assert f"{mean} mean share by the judge" in " ".join(site.page(path).text.split()), path
