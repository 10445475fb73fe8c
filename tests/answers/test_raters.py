"""Who rated a run keeps its name: whether people confirmed a number is decided by the model that said it."""

import json
from typing import Any

import sqlalchemy as sa

from app.alerts.service import transitions
from app.answers.domain.judges import endpoint_hash
from app.answers.service import labels
from app.answers.store import answer_rows as rows
from app.answers.tables import run_answers
from app.base.db.engine import Store
from app.catalog.service.references import find_check, find_run
from app.comparison.rendering import ComparisonReport, comparison_markdown
from app.comparison.service import comparisons
from app.reports.pages.overviews import make_badge
from app.reports.rendering.reports import report_markdown
from app.reports.service import check_details
from app.reports.service.reports import load_report
from tests.support.answered_world import JUDGE, answers_page
from tests.support.pages_service import Site
from tests.support.two_checks import KEYS, TwoChecks

RULE = {
    "kind": "threshold",
    "measure": "faithful",
    "warning": {"below": 0.9},
    "critical": {"below": 0.7},
    "open": {"bad": 2, "of": 3},
    "close": 2,
}
SMALL, LARGE = "small", "large"
STRICT = {f"about q0{tens}" for tens in range(5)}
RATED_BY = {
    "model": LARGE,
    "wordings": {"faithful": "faithful-1"},
    "endpoint": endpoint_hash({"url": "http://judge.test/v1/chat/completions"}),
}
SAID = "faithful (uncalibrated) 0.409 is below 0.9 (warning)"


def set_model(two: TwoChecks, model: str, **edited: Any) -> None:
    """Put the judge of both checks in force with a model, and otherwise edited."""
    described: dict[str, Any] = answers_page(KEYS, slug="seen", sample=1.0, rules=[RULE])
    checks = [{**described["checks"][0], "slug": slug} for slug in ("seen", "blind")]
    two.it.world.apply({**described, "checks": checks, "judges": [{**JUDGE, "model": model, **edited}]})


def labelled(store: Store) -> TwoChecks:
    """Return two checks by a judge whose model `small` people confirmed, and the runs of which labels correct."""
    two = TwoChecks.of(store)
    two.label()
    set_model(two, SMALL)
    return two


def run_strict(two: TwoChecks) -> int:
    """Run a check by a model that refuses half of the good answers too."""
    two.it.judge.no |= STRICT
    set_model(two, LARGE)
    run_id = two.run("seen")
    two.it.judge.no -= STRICT
    return run_id


def badge_of(two: TwoChecks, check: str) -> str:
    line = check_details.load_line(two.it.world.store, check, two.it.world.clock())
    return make_badge(two.it.world.store, line, measure="faithful").label


def reasons_of(two: TwoChecks, check: str, run_id: int) -> list[str]:
    with two.it.world.store.read() as connection:
        return transitions.bad_answers(connection, find_check(connection, check), find_run(connection, str(run_id)))


def test_a_number_of_a_model_that_nobody_confirmed_stays_a_hint_when_the_confirmed_one_is_put_back(
    sqlite_store: Store,
) -> None:
    two = labelled(sqlite_store)
    assert badge_of(two, "seen") == "seen faithful"
    set_model(two, LARGE)
    assert badge_of(two, "seen") == "seen faithful", "the newest run was rated by the confirmed model"
    run_id = run_strict(two)
    assert two.it.summary(run_id)["rated_by"] == RATED_BY
    set_model(two, SMALL)
    with sqlite_store.read() as connection:
        assert rows.calibrated_judges(connection) == {("reader", "faithful"): (True, False)}
    assert badge_of(two, "seen") == "seen faithful (uncalibrated)"
    report = load_report(sqlite_store, str(run_id))
    assert "| faithful (uncalibrated) |" in report_markdown(report)
    assert reasons_of(two, "seen", run_id) == [SAID]
    site = Site(world=two.it.world)
    for path in ("/checks/seen", f"/runs/{run_id}", f"/runs/{run_id}/answers", "/answers"):
        assert "faithful (uncalibrated)" in site.page(path).text.lower(), path
    overview = site.page("/").text
    assert SAID in overview
    assert "(critical)" not in overview


def test_runs_by_an_unconfirmed_model_make_no_alert_critical_once_it_is_replaced(sqlite_store: Store) -> None:
    two = labelled(sqlite_store)
    strict = [run_strict(two), run_strict(two)]
    set_model(two, SMALL)
    run_id = two.run("seen")
    site = Site(world=two.it.world)
    alert = site.client().get("/v1/alerts/1").json()
    assert (alert["severity"], [one["type"] for one in alert["transitions"]]) == ("warning", ["opened"])
    window = {int(one["run_id"]): one for one in alert["evidence"]["window"]}
    assert [window[one]["severity"] for one in (*strict, run_id)] == ["warning", "warning", "warning"]
    assert [window[one].get("uncalibrated", False) for one in (*strict, run_id)] == [True, True, False]
    assert "uncalibrated" not in alert["evidence"], "the newest value is one of the confirmed model"
    cells = site.page("/alerts/1").one("section", **{"aria-labelledby": "why"}).text
    assert (cells.count(" uncalibrated"), cells.count(" calibrated")) == (2, 2), "the first run is one of its too"


def test_what_a_confirmed_model_said_stays_confirmed_when_another_one_follows(sqlite_store: Store) -> None:
    two = labelled(sqlite_store)
    run_id = two.run("seen")
    before = reasons_of(two, "seen", run_id)
    set_model(two, LARGE)
    assert reasons_of(two, "seen", run_id) == before
    assert "faithful (uncalibrated)" not in Site(world=two.it.world).page(f"/runs/{run_id}").text.lower()
    assert load_report(sqlite_store, str(run_id))["confirmed"] == ["faithful"]


def test_labels_of_another_model_are_told_as_such_and_not_as_counted_soon(sqlite_store: Store) -> None:
    two = labelled(sqlite_store)

    def sentences() -> list[str]:
        [measure] = labels.load_report(sqlite_store, "reader", now=two.it.world.clock())["measures"]
        return measure["sentences"]

    own = sentences()
    assert not any("counted within a minute" in one or "do not count" in one for one in own)
    set_model(two, LARGE)
    unknown, others = sentences()
    assert unknown.startswith("Uncalibrated: people have labelled no answers for its present model")
    assert others == "220 labels of answers rated by model 'small' do not count for the judge as it is now."
    assert others in Site(world=two.it.world).page("/judges/reader").text
    run_strict(two)
    two.label("faithful", slug="anew", calibrate=False)
    counts = sentences()
    assert counts[0].endswith("new labels are counted within a minute.")
    assert counts[1] == others
    set_model(two, SMALL)
    assert sentences()[: len(own)] == own
    assert len(sentences()) == len(own) + 1, "the labels of the other model are told there too"


def test_two_models_of_one_judge_are_told_apart_and_their_own_numbers_not_compared(sqlite_store: Store) -> None:
    two = labelled(sqlite_store)
    a, b = run_strict(two), run_strict(two)

    def compared(before: int, after: int) -> tuple[Any, str]:
        view, _ = comparisons.compare_references(sqlite_store, f"run:{before}", f"run:{after}")
        [answers] = view["answers"]
        return answers, comparison_markdown(ComparisonReport(view=view, losses=[], wins=[]))

    answers, text = compared(a, b)
    assert answers["difference"] == 0, "one model said both"
    assert "model" not in text
    set_model(two, SMALL)
    c = two.run("seen")
    answers, text = compared(b, c)
    assert (answers["a"]["model"], answers["b"]["model"]) == (LARGE, SMALL)
    assert (answers["a"]["confirmed"], answers["b"]["confirmed"]) == (False, True)
    assert (answers["difference"], answers["low"]) == (None, None)
    said = "judge 'reader' rated the answers of one run with model 'large' and those of the other with 'small'"
    assert said in text.replace("Judge", "judge")
    page = Site(world=two.it.world).page(f"/compare?a=run:{b}&b=run:{c}").text
    assert "with model 'large' and those of the other with 'small': its own numbers cannot be compared" in page


def test_two_endpoints_of_one_judge_are_told_apart_and_their_own_numbers_not_compared(sqlite_store: Store) -> None:
    two = labelled(sqlite_store)
    a = run_strict(two)
    set_model(two, LARGE, url="http://other.test/v1/chat/completions")
    b = two.run("seen")
    view, _ = comparisons.compare_references(sqlite_store, f"run:{a}", f"run:{b}")
    [answers] = view["answers"]
    assert (answers["a"]["model"], answers["b"]["model"]) == (LARGE, LARGE)
    assert (answers["difference"], answers["low"]) == (None, None)
    text = comparison_markdown(ComparisonReport(view=view, losses=[], wins=[]))
    assert "was another endpoint, or asked as another account, when it rated the answers of one run" in text


def test_a_run_of_a_release_that_kept_no_rater_is_told_by_its_ratings(sqlite_store: Store) -> None:
    two = labelled(sqlite_store)
    confirmed, strict = two.run("seen"), run_strict(two)
    with sqlite_store.write() as connection:
        for run_id, body in connection.execute(sa.select(run_answers.c.run_id, run_answers.c.body)).all():
            older = {name: value for name, value in json.loads(body).items() if name != "rated_by"}
            mine = run_answers.c.run_id == run_id
            connection.execute(sa.update(run_answers).where(mine).values(body=json.dumps(older)))
    set_model(two, SMALL)
    with sqlite_store.read() as connection:
        assert rows.rater_of_run(connection, strict) == RATED_BY
        found = rows.confirmed_of_runs(connection, [confirmed, strict])
    assert found == {confirmed: {"faithful"}, strict: set()}
