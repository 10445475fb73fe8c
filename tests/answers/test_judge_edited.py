"""Labels of what a judge was before it asked another endpoint are told as such wherever they count."""

import pytest

from app.answers import store as rows
from app.answers.service import labels
from app.base.db.engine import Store
from app.base.texts import corrected_text
from app.reports.metrics import state_families
from app.reports.pages.overviews import make_badge
from app.reports.rendering.reports import report_markdown
from app.reports.service import check_details
from app.reports.service.metrics_snapshot import read_state
from app.reports.service.reports import load_report
from tests.support.answered_world import JUDGE, answers_page
from tests.support.pages_service import Site
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
    assert (measure["calibration"]["labels"], measure["edited_since"]) == (len(LIES), False)


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
