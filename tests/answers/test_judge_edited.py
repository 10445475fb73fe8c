"""Labels of what a judge was before it asked another endpoint are told as such wherever they count."""

import json
from typing import Any

import pytest
import sqlalchemy as sa

from app.answers.domain.judges import endpoint_hash
from app.answers.domain.sentences import LabelsOfNow, label_anew
from app.answers.service import labels
from app.answers.store import answer_rows as rows
from app.answers.tables import answers, ratings
from app.base.db.engine import Store, to_us
from app.base.texts import corrected_text
from app.comparison.rendering import comparison_notes
from app.comparison.service import comparisons
from app.experiments.domain.margins import decide_guard, decide_judged
from app.experiments.domain.promotion_evidence import GuardEvidence
from app.experiments.service.promotions import compare_judged
from app.reports.metrics import state_families
from app.reports.pages.overviews import make_badge
from app.reports.rendering.reports import report_markdown
from app.reports.service import charts, check_details
from app.reports.service.metrics_snapshot import read_state
from app.reports.service.reports import load_report
from tests.support.answered_world import JUDGE, answers_page
from tests.support.pages_service import Site
from tests.support.present import present
from tests.support.two_checks import KEYS, LIES, RULE, TwoChecks

BEFORE = "labelled before the judge was edited"
MOVED = {"url": "http://another.test/v1"}


def edit(two: TwoChecks, **changes: object) -> None:
    """Edit the judge, some time after everything else."""
    world = two.it.world
    world.clock.advance(60)
    described = answers_page(KEYS, slug="seen", sample=1.0, rules=[RULE])
    checks = [{**described["checks"][0], "slug": slug} for slug in ("seen", "blind")]
    world.apply({**described, "checks": checks, "judges": [{**JUDGE, **changes}]})
    world.clock.advance(60)


def samples(two: TwoChecks, name: str) -> dict[str, float]:
    """Return the values of a metric by measure."""
    return {
        one.labels["measure"]: one.value
        for family in state_families(read_state(two.it.world.store))
        for one in family.samples
        if one.name == name
    }


def run_anew(two: TwoChecks) -> int:
    """Run a check whose answers are all new, and have them judged."""
    two.it.ask_answers.texts = {key: f"A lie about {key}, once more." for key in LIES}
    run_id = two.it.world.run("blind").id
    two.it.rate(run_id)
    return run_id


def test_a_judge_that_asks_another_endpoint_says_that_it_was_labelled_before(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    two.label()
    site = Site(world=two.it.world)
    assert BEFORE not in site.page("/judges/reader").text
    assert samples(two, "coalmine_judge_edited") == {"faithful": 0.0}
    edit(two, **MOVED)
    run_id = run_anew(two)
    rate = two.it.summary(run_id)["corrected"]["faithful"]
    assert rate["edited_since"]
    shown = corrected_text(rate["value"], rate)
    assert shown.endswith(f"; {BEFORE})")
    line = check_details.load_line(sqlite_store, "blind", two.it.world.clock())
    assert make_badge(sqlite_store, line, measure="faithful_corrected").value == shown
    assert f"| faithful corrected | {shown} |" in report_markdown(load_report(sqlite_store, str(run_id)))
    assert "before the judge was edited" in site.page(f"/runs/{run_id}").text
    page = site.page("/judges/reader")
    assert "People confirmed every measure of this judge, but before it was edited" in page.text
    assert "Labelled before the judge was edited: it asks another endpoint now" in page.text
    assert "Its runs are corrected by 110 labels, given before the judge was edited." in page.text
    assert "Next: Draw answers of new runs below" in page.text
    assert BEFORE in site.page("/judges").text
    report = site.client().get("/v1/judges/reader/report").json()
    assert [one["edited_since"] for one in report["measures"]] == [True]
    assert samples(two, "coalmine_judge_edited") == {"faithful": 1.0}
    assert samples(two, "coalmine_judge_calibrated") == {"faithful": 1.0}


def rated_anew(two: TwoChecks) -> tuple[int, int]:
    """Run a check whose answers stay as they are; the run, and how often the judge is asked for it."""
    before = len(two.it.judge.asked)
    run_id = two.run("seen")
    return run_id, len(two.it.judge.asked) - before


def test_what_another_endpoint_said_is_not_taken_for_what_this_one_says(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    first, asked = rated_anew(two)
    assert asked == 0
    edit(two, **MOVED)
    two.it.judge.no.add("about")  # the endpoint of now refuses all
    second, asked = rated_anew(two)
    assert asked == len(KEYS)
    assert (two.it.measures(first)["faithful"], two.it.measures(second)["faithful"]) == (pytest.approx(82 / 110), 0)
    edit(two)
    third, asked = rated_anew(two)
    assert (asked, two.it.measures(third)["faithful"]) == (0, pytest.approx(82 / 110)), "what this url gave is reused"
    edit(two, **MOVED)
    assert (rated_anew(two)[1], rated_anew(two)[1]) == (0, 0)
    edit(two, url="http://third.test/v1")
    assert rated_anew(two)[1] == len(KEYS)


def test_a_task_takes_ratings_of_the_judge_as_it_is_now_alone(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    edit(two, **MOVED)
    answer_anew(two)
    edit(two, url="http://third.test/v1")
    two.label(slug="third")
    edit(two)
    two.label(slug="first")
    reports = labels.load_report(sqlite_store, "reader", now=two.it.world.clock())["measures"]
    assert [one["calibration"] and one["calibration"]["task"] for one in reports] == ["first"]
    with sqlite_store.read() as connection:
        counts = rows.count_labels(connection, 1, "faithful", {"model": "small", "wordings": {}})
        assert rows.calibrated_judges(connection)["reader", "faithful"] == (True, False)
    assert not counts.waiting


def test_ratings_of_an_earlier_release_are_kept_where_only_one_endpoint_was_ever_asked(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    with sqlite_store.write() as connection:
        for key in connection.execute(sa.select(ratings.c.key)).scalars().all():
            mine = ratings.c.key == key
            connection.execute(sa.update(ratings).where(mine).values(key=key.partition("@")[0]))
        for row in connection.execute(sa.select(answers.c.id, answers.c.body)).all():
            body = json.loads(row.body)
            for one in body["ratings"].values():
                del one["endpoint"]
            connection.execute(sa.update(answers).where(answers.c.id == row.id).values(body=json.dumps(body)))
        stored = connection.execute(sa.select(sa.func.count()).select_from(answers)).scalar_one()
    assert rated_anew(two)[1] == 0
    with sqlite_store.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(answers)).scalar_one() == stored
    two.label()
    assert samples(two, "coalmine_judge_calibrated") == {"faithful": 1.0}
    edit(two, **MOVED)
    assert rated_anew(two)[1] == len(KEYS), "who gave them is known no more"


def test_marks_of_a_past_run_are_those_of_the_endpoint_that_rated_it(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    two.label()
    run_id = two.run("seen")
    edit(two, **MOVED)
    two.it.judge.no.clear()  # the endpoint of now refuses nothing, which labels do not confirm
    answer_anew(two)
    two.label(slug="later", count=205)
    later = run_anew(two)
    with sqlite_store.read() as connection:
        assert rows.confirmed_of_runs(connection, [run_id, later]) == {run_id: {"faithful"}, later: set()}
    assert load_report(sqlite_store, str(run_id))["confirmed"] == ["faithful"]
    edit(two)
    with sqlite_store.read() as connection:
        assert rows.confirmed_of_runs(connection, [run_id, later]) == {run_id: {"faithful"}, later: set()}


def test_another_account_is_another_judge_and_another_password_is_not() -> None:
    basic: dict[str, Any] = {"url": "http://judge.test/v1", "auth": {"kind": "basic", "user": "a", "password": "one"}}
    renewed = {**basic, "auth": {**basic["auth"], "password": "two"}}
    other = {**basic, "auth": {**basic["auth"], "user": "b"}}
    assert endpoint_hash(basic) == endpoint_hash(renewed) != endpoint_hash(other)


@pytest.mark.parametrize("changes", [{"timeout": 12}, {"auth": {"token": "another"}}, {"price_per_million": 3}])
def test_another_key_timeout_or_price_is_no_other_judge(sqlite_store: Store, changes: dict[str, object]) -> None:
    two = TwoChecks.of(sqlite_store)
    two.label()
    edit(two, **changes)
    run_id = run_anew(two)
    assert "edited_since" not in two.it.summary(run_id)["corrected"]["faithful"]
    assert samples(two, "coalmine_judge_edited") == {"faithful": 0.0}


def test_a_judge_that_is_put_back_is_the_labelled_one_again(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    two.label()
    edit(two, **MOVED)
    edit(two)
    assert "edited_since" not in two.it.summary(run_anew(two))["corrected"]["faithful"]
    [report] = labels.list_reports(sqlite_store, now=two.it.world.clock())
    assert not report["measures"][0]["edited_since"]


def test_labels_are_drawn_of_what_the_endpoint_of_now_said(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    edit(two, **MOVED)
    two.label(slug="empty")
    with sqlite_store.read() as connection:
        assert rows.calibrated_judges(connection) == {("reader", "faithful"): (False, False)}
    run_anew(two)
    two.label(slug="later")
    report = labels.load_report(sqlite_store, "reader", now=two.it.world.clock())
    [measure] = report["measures"]
    assert measure["calibration"] is not None
    assert (measure["calibration"]["labels"], measure["edited_since"]) == (len(KEYS), False)


def answer_anew(two: TwoChecks) -> None:
    """Run both checks with another text as each answer, and have them judged."""
    two.it.world.clock.advance(60)
    for check in ("seen", "blind"):
        texts = {key: f"A {'lie' if key in LIES else 'word'} about {key}, anew." for key in KEYS}
        two.it.ask_answers.texts = texts
        two.it.rate(two.it.world.run(check).id)


def edited_and_labelled(store: Store, count: int) -> TwoChecks:
    """Let people label 220 answers, edit the judge, and let them label some of those that it rated since."""
    two = TwoChecks.of(store)
    two.label()
    edit(two, **MOVED)
    answer_anew(two)
    two.label(slug="later", count=count)
    return two


def test_labels_of_now_come_before_more_of_a_former_endpoint(sqlite_store: Store) -> None:
    two = edited_and_labelled(sqlite_store, 205)
    [measure] = labels.load_report(sqlite_store, "reader", now=two.it.world.clock())["measures"]
    assert measure["calibration"] is not None
    assert (measure["calibration"]["task"], measure["edited_since"]) == ("later", False)
    assert "the labels are of another endpoint" not in measure["next"]
    assert {one["task"] for one in measure["checks"]} == {"later"}
    assert samples(two, "coalmine_judge_edited") == {"faithful": 0.0}
    rate = two.it.summary(run_anew(two))["corrected"]["faithful"]
    assert (rate["task"], rate["labels"]) == ("later", 102)
    assert "edited_since" not in rate
    assert BEFORE not in Site(world=two.it.world).page("/judges/reader").text


def test_former_labels_stand_until_those_of_now_are_enough(sqlite_store: Store) -> None:
    two = edited_and_labelled(sqlite_store, 80)
    page = Site(world=two.it.world).page("/judges/reader").text
    assert BEFORE in page
    assert (
        "Task later is of the judge as it is now, and counts instead once it has enough: 80 labels of at least 100"
        " so far." in page
    )
    assert "Next: Draw more answers of new runs below: all 80 of task later are labelled." in page
    assert (
        "Its runs are corrected by 110 labels, given before the judge was edited; of the judge as it is now there are"
        " 40 labels of at least 100." in page
    )
    rate = two.it.summary(run_anew(two))["corrected"]["faithful"]
    assert (rate["task"], rate["edited_since"]) == ("faithful", True)
    assert samples(two, "coalmine_judge_edited") == {"faithful": 1.0}


def test_each_check_waits_for_enough_labels_of_its_own(sqlite_store: Store) -> None:
    two = edited_and_labelled(sqlite_store, 160)
    assert samples(two, "coalmine_judge_edited") == {"faithful": 0.0}
    assert {one["task"] for one in two.trust().values()} == {"faithful"}
    assert all("there are 80 labels of at least 100." in one["sentence"] for one in two.trust().values())


def test_a_judge_of_now_that_is_no_better_than_chance_is_not_excused_by_former_labels(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    two.label()
    edit(two, **MOVED)
    two.it.judge.no.clear()
    answer_anew(two)
    two.label(slug="later", count=205)
    assert samples(two, "coalmine_judge_calibrated") == {"faithful": 0.0}
    assert all("not shown to be better than chance" in one["sentence"] for one in two.trust().values())
    assert "faithful" not in two.it.summary(run_anew(two)).get("corrected", {})


@pytest.mark.parametrize(
    ("disputed", "labels_of_now", "advice"),
    [
        (2, 90, "Decide on the 2 disputed answers of task later: each becomes a label."),
        (0, 30, "Label more answers of task later."),
        (0, 120, "Draw more answers of new runs below: all 120 of task later are labelled."),
    ],
)
def test_what_to_do_next_follows_the_task_of_now(disputed: int, labels_of_now: int, advice: str) -> None:
    found = LabelsOfNow(task="later", labels=labels_of_now, yes=118, disputed=disputed, drawn=120)
    assert label_anew(found) == advice


def test_labels_of_answers_of_another_retriever_are_told_as_such(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    two.label()
    assert not any("These are answers of" in one["sentence"] for one in two.trust().values())
    described = answers_page(KEYS, slug="seen", sample=1.0, rules=[RULE])
    [search], [seen] = described["retrievers"], described["checks"]
    checks = [seen, {**seen, "slug": "blind", "retriever": "other"}]
    two.it.world.apply({**described, "retrievers": [search, {**search, "slug": "other"}], "checks": checks})
    trust = two.trust()
    assert trust["blind"]["sentence"].endswith(
        "These are answers of retriever search, and the check asks other by now: label anew."
    )
    assert "These are answers of" not in trust["seen"]["sentence"]
    run_id = run_anew(two)
    rate = two.it.summary(run_id)["corrected"]["faithful"]
    assert rate["labelled_of"] == "search"
    assert corrected_text(rate["value"], rate).endswith("; labelled on answers of retriever search)")
    assert " on answers of retriever search)" in Site(world=two.it.world).page(f"/runs/{run_id}").text
    two.it.world.apply({**described, "checks": [seen, {**seen, "slug": "blind"}]})
    assert "labelled_of" not in two.it.summary(run_anew(two))["corrected"]["faithful"]


def test_labels_of_before_the_retriever_was_edited_are_told_as_such(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    two.label()
    described = answers_page(KEYS, slug="seen", sample=1.0, rules=[RULE])
    [search], [seen] = described["retrievers"], described["checks"]

    def answering_at(url: str, timeout: int) -> None:
        changed = {**search, "answer": {**search["answer"], "url": url}, "timeout": timeout}
        two.it.world.clock.advance(60)
        two.it.world.apply({**described, "retrievers": [changed], "checks": [seen, {**seen, "slug": "blind"}]})

    answering_at(search["answer"]["url"], 7)  # another timeout is no other answer
    assert "labelled_before_edit_of" not in two.it.summary(run_anew(two))["corrected"]["faithful"]
    answering_at("http://another.test/", 7)
    run_id = run_anew(two)
    rate = two.it.summary(run_id)["corrected"]["faithful"]
    assert rate["labelled_before_edit_of"] == "search"
    assert corrected_text(rate["value"], rate).endswith("; labelled before retriever search was edited)")
    site = Site(world=two.it.world)
    assert ", before retriever search was edited)" in site.page(f"/runs/{run_id}").text
    assert "These are answers of retriever search before it was edited: label anew." in two.trust()["blind"]["sentence"]
    line = check_details.load_line(sqlite_store, "blind", two.it.world.clock())
    badge = make_badge(sqlite_store, line, measure="faithful_corrected").value
    assert badge == corrected_text(rate["value"], rate)
    end = to_us(two.it.world.clock()) + 1
    asked: dict[str, Any] = {"measure": "faithful_corrected", "category": None, "start": 0, "end": end, "points": 100}
    last = charts.series(sqlite_store, "blind", **asked)["points"][-1]
    assert present(last.corrected)["labelled_before_edit_of"] == "search"


def test_comparisons_and_promotions_say_that_labels_are_older_than_an_edit(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    two.label()
    two.run("seen")
    two.run("blind")
    whole = comparisons.compare_references(sqlite_store, "check:seen", "check:blind")[0]
    assert [one["labelled"] for one in (whole["answers"][0]["a"], whole["answers"][0]["b"])] == [None, None]
    assert not [one for one in whole["cautions"] if one["kind"] == "labels"]
    before = compare_judged(sqlite_store, "seen", "blind")
    assert not isinstance(before, str)
    assert "labelled" not in decide_judged([*before.measures.values()], 0.9)[1]
    described = answers_page(KEYS, slug="seen", sample=1.0, rules=[RULE])
    [search], [seen] = described["retrievers"], described["checks"]
    other = {**search, "slug": "other"}
    two.it.world.clock.advance(60)
    checks = [seen, {**seen, "slug": "blind", "retriever": "other"}]
    two.it.world.apply({**described, "retrievers": [search, other], "checks": checks})
    two.run("blind")
    found = comparisons.compare_references(sqlite_store, "check:seen", "check:blind")[0]
    said = "labelled on answers of retriever search"
    [answers] = found["answers"]
    assert (answers["a"]["labelled"], answers["b"]["labelled"]) == (None, said)
    told = f"faithful in B is {said}, so what labels say of the difference may be wrong: label these answers anew"
    assert [one["sentence"] for one in found["cautions"] if one["kind"] == "labels"] == [told]
    page = Site(world=two.it.world).page("/compare?a=check:seen&b=check:blind").text
    assert f"; {said}" in page
    assert f"F{told[1:]}." in page
    assert f"F{told[1:]}." in comparison_notes(found)
    evidence = compare_judged(sqlite_store, "seen", "blind")
    assert not isinstance(evidence, str)
    result, reason = decide_judged([evidence.measures["faithfulness"]], 0.9)
    assert result == "inconclusive"
    assert f"; faithful is {said} (the candidate), which rules out no loss: label these answers anew" in reason
    rail = decide_guard(GuardEvidence(name="faithfulness", allowed_loss=0.9, found=evidence.measures["faithfulness"]))
    assert (rail.result, said in rail.reason) == ("inconclusive", True)
    edit(two, **MOVED)
    two.run("seen")
    two.run("blind")
    [both] = [
        one["sentence"]
        for one in comparisons.compare_references(sqlite_store, "check:seen", "check:blind")[0]["cautions"]
        if one["kind"] == "labels"
    ]
    assert both.startswith(f"faithful in A and in B is {BEFORE}, so what labels say of the difference may be wrong")
