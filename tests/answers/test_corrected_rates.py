"""What people would say of the answers of each check: drawn for each, estimated for each, and correcting its runs."""

import json
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from app.alerts.domain.rules import RunFacts, condition
from app.annotation.service import tasks
from app.answers.domain.generated import AnswerCounts
from app.answers.domain.trust import (
    Basis,
    JudgedAnswer,
    LabelledAnswers,
    correct_rate,
    decide_correction,
    draw_answers,
    estimate_rate,
    estimate_together,
    measure_judge,
)
from app.answers.service import answering, labels
from app.answers.store import answer_rows as rows
from app.base.db.engine import Store
from app.base.statistics import clopper_pearson, interval_of_difference
from app.base.texts import change_text, corrected_text
from app.base.values import Aggregates, Bound, CorrectedRate, CorrectedRateView, Outcome, Rule, RuleKind, replace
from app.comparison.rendering import ComparisonReport, comparison_markdown, comparison_tables
from app.comparison.service import comparisons
from app.experiments.domain.promotion_evidence import JudgedQuestion, Margin
from app.experiments.domain.promotions import GateName, decide_promotion
from app.experiments.service import promotions
from app.reports.metrics import Snapshot, state_families
from app.reports.pages.overviews import make_badge
from app.reports.service import check_details
from app.reports.service.metrics_snapshot import read_state
from tests.support.answered_world import JUDGE, answered_world, answers_page, with_texts
from tests.support.fakes import failed
from tests.support.pages_service import Site
from tests.support.present import present
from tests.support.two_checks import KEYS, LIES, UNSEEN, TwoChecks

HOUR = 3_600_000_000


# What is drawn


def test_equally_many_answers_are_drawn_of_each_check_as_far_as_it_has_them() -> None:
    large = [JudgedAnswer(id=f"l{place}", canary=f"c{place}", at=0, check="large") for place in range(500)]
    small = [JudgedAnswer(id=f"s{place}", canary=f"c{place}", at=0, check="small") for place in range(40)]
    drawn, rest = draw_answers([*large, *small], 60, window=HOUR, seed=1)
    assert [one.check for one in drawn].count("small") == 30
    drawn, rest = draw_answers([*large, *small], 200, window=HOUR, seed=1)
    assert [one.check for one in drawn].count("small") == 40
    assert len({one.id for one in (*drawn, *rest)}) == 540, "the same canary in two checks is no repeat"


# What is estimated


def test_a_rate_is_corrected_by_what_the_judge_accepts_and_refuses() -> None:
    found = correct_rate(70, 100, clopper_pearson(72, 80), clopper_pearson(16, 20))
    assert found.value == pytest.approx((0.7 + 0.8 - 1) / (0.9 + 0.8 - 1))
    assert found.low < found.value < found.high
    wide = correct_rate(7, 10, clopper_pearson(72, 80), clopper_pearson(16, 20))
    assert wide.high - wide.low > found.high - found.low


def test_a_run_in_which_more_is_wrong_is_not_drawn_back_to_the_rate_of_the_labels() -> None:
    sensitivity, specificity = clopper_pearson(720, 800), clopper_pearson(160, 200)
    says = round(1_000 * (0.3 * 0.9 + 0.7 * 0.2))  # a true rate of .3, where it was .8 among the labels
    assert correct_rate(says, 1_000, sensitivity, specificity).value == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("accepted", "count", "sensitivity", "specificity", "why"),
    [
        (0, 0, (9, 10), (9, 10), "cannot be corrected"),
        (3, 2, (9, 10), (9, 10), "cannot be corrected"),
        (1, 2, (0, 0), (9, 10), "both kinds"),
        (1, 2, (9, 10), (0, 0), "both kinds"),
        (1, 2, (5, 10), (5, 10), "no better than chance"),
    ],
)
def test_what_cannot_be_corrected_is_refused(
    accepted: int, count: int, sensitivity: tuple[int, int], specificity: tuple[int, int], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        correct_rate(accepted, count, clopper_pearson(*sensitivity), clopper_pearson(*specificity))


@pytest.mark.parametrize(("accepted", "value"), [(0, 0.0), (100, 1.0)])
def test_a_corrected_rate_and_its_limits_stay_within_0_and_1(accepted: int, value: float) -> None:
    found = correct_rate(accepted, 100, clopper_pearson(45, 50), clopper_pearson(40, 50))
    assert found.value == value
    assert 0 <= found.low <= found.value <= found.high <= 1


@pytest.mark.parametrize(
    ("both", "missed", "wrong", "neither", "corrects", "why"),
    [
        (70, 10, 3, 16, False, "99 labels of at least 100"),
        (90, 6, 1, 3, False, "4 labels of the rarer kind, of at least 5"),
        (40, 40, 10, 10, False, "not shown to be better than chance"),
        (72, 8, 4, 16, True, "100 labels show how often the judge errs"),
    ],
)
def test_labels_of_a_check_correct_its_runs_once_they_show_its_errors(
    both: int,
    missed: int,
    wrong: int,
    neither: int,
    corrects: bool,  # noqa: FBT001 - a case of the table
    why: str,
) -> None:
    people = [True] * (both + missed) + [False] * (wrong + neither)
    judged = [1.0] * both + [0.0] * missed + [1.0] * wrong + [0.0] * neither
    found, reason = decide_correction(measure_judge(people, judged), min(sum(people), len(people) - sum(people)))
    assert (found, why in reason) == (corrects, True), reason


def of_check(yes: int, no: int, unlabelled: int) -> LabelledAnswers:
    """Labels with which the judge agrees, and answers without one, as many of them right."""
    people = [True] * yes + [False] * no
    accepted = round(unlabelled * yes / (yes + no))
    return LabelledAnswers(
        labels=people, judged=list(map(float, people)), unlabelled=[1.0] * accepted + [0.0] * (unlabelled - accepted)
    )


def test_checks_count_by_their_answers_and_not_by_their_labels() -> None:
    large, small = of_check(80, 20, 1_900), of_check(40, 60, 400)
    found = estimate_together([large, small])
    assert found.value == pytest.approx((2_000 * 0.8 + 500 * 0.4) / 2_500, abs=0.01)
    assert (found.basis, found.labels, found.unlabelled) == (Basis.PEOPLE_AND_JUDGE, 200, 2_300)


def test_few_labels_of_several_checks_are_taken_alone_with_the_limits_of_as_many_as_they_are_worth() -> None:
    found = estimate_together([of_check(8, 2, 990), of_check(4, 6, 90)])
    assert found.basis is Basis.PEOPLE
    assert found.value == pytest.approx((1_000 * 0.8 + 100 * 0.4) / 1_100)
    alone = clopper_pearson(8, 10)
    assert found.high - found.low == pytest.approx(alone.high - alone.low, abs=0.05), "hardly more than 10 labels"


def test_one_check_is_estimated_as_ever_and_one_without_labels_is_left_out() -> None:
    one, other = of_check(80, 40, 300), LabelledAnswers(labels=[], judged=[], unlabelled=[1.0] * 50)
    alone = estimate_rate(one.labels, one.judged, one.unlabelled)
    assert estimate_together([one]) == estimate_together([one, other]) == alone
    nothing = estimate_together([other])
    assert (nothing.value, nothing.judge_rate) == (None, 1.0)


def test_a_difference_has_the_interval_of_both_sides() -> None:
    difference, low, high = interval_of_difference((0.5, 0.4, 0.7), (0.6, 0.57, 0.64))
    assert difference == pytest.approx(0.1)
    assert low == pytest.approx(0.1 - 0.202237, abs=1e-4)
    assert high == pytest.approx(0.1 + 0.107703, abs=1e-4)


# The whole way


@pytest.mark.both
def test_a_judge_that_serves_two_checks_has_a_rate_of_each_and_their_runs_are_corrected(store: Store) -> None:
    two = TwoChecks.of(store)
    raw = two.it.summary(two.run("blind"))
    assert raw["corrected"] == {}
    assert raw["measures"]["faithful"] == pytest.approx(96 / 110)
    two.label()
    trust = two.trust()
    truth = 82 / 110
    for check in ("seen", "blind"):
        assert trust[check]["labels"] == 110
        assert trust[check]["rate"]["value"] == pytest.approx(truth, abs=1e-4)
        assert trust[check]["corrects"], trust[check]["reason"]
    assert trust["seen"]["specificity"]["value"] == 1
    assert trust["blind"]["specificity"]["value"] == pytest.approx(0.5)
    run_id = two.run("blind")
    corrected = two.it.summary(run_id)["corrected"]["faithful"]
    assert corrected["value"] == pytest.approx(truth, abs=1e-4)
    assert corrected["low"] < corrected["value"] < corrected["high"]
    assert (corrected["judge_rate"], corrected["labels"], corrected["task"]) == (
        pytest.approx(96 / 110),
        110,
        "faithful",
    )
    measures = two.it.measures(run_id)
    assert measures["faithful"] == pytest.approx(96 / 110, abs=1e-3), "what the judge says stands beside"
    assert measures["faithful_corrected"] == pytest.approx(truth, abs=1e-3)


def test_the_report_says_in_a_sentence_what_each_check_needs(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    assert (
        two.trust()["blind"]["sentence"]
        == "No label of an answer of check blind counts yet, so its numbers are the judge's own."
    )
    two.label(count=60)
    found = two.trust()["blind"]
    assert (found["labels"], found["corrects"], found["task"]) == (30, False, "faithful")
    assert "Its runs are not corrected yet: 30 labels of at least 100." in found["sentence"]
    two.it.world.clock.advance(1)


def test_a_rule_judges_the_corrected_rate_and_says_so(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    two.label()
    two.run("blind")
    assert two.it.world.alerts() == [], "0.745 is not below 0.6"
    two.it.ask_answers.texts = {key: f"A lie about {key}." for key in KEYS[:46]}
    run_id = two.it.world.run("blind").id
    two.it.rate(run_id)
    raw, corrected = (two.it.measures(run_id)[name] for name in ("faithful", "faithful_corrected"))
    assert raw < 0.6
    assert corrected < raw - 0.1, "each lie that is seen stands for one that is not"
    [alert] = two.it.world.alerts()
    rate = two.it.summary(run_id)["corrected"]["faithful"]
    shown = f"faithful, corrected by people's labels, {corrected_text(rate['value'], rate)} is below 0.6 (critical)"
    assert alert["reason"].startswith(shown)
    assert alert["severity"] == "critical"


def by_labels(value: float, low: float, high: float, *, judge: float) -> CorrectedRateView:
    """Return what people would say of a run."""
    return CorrectedRateView(
        value=value, low=low, high=high, judge_rate=judge, answers=110, labels=110, task="faithful"
    )


@pytest.mark.parametrize("measure", ["faithful", "faithful_corrected"])
@pytest.mark.parametrize(
    ("own", "corrected", "severity", "good", "says"),
    [
        (0.76, (0.6, 0.3, 0.79), None, False, "is below 0.65, which its interval includes: it may be chance"),
        (0.76, (0.5, 0.4, 0.62), "warning", False, "is below 0.65 (warning)"),
        (0.64, (0.6, 0.3, 0.79), "warning", False, "is below 0.65 (warning)"),
        (0.76, (0.35, 0.3, 0.6), "warning", False, "is below 0.65 (warning)"),
        (0.76, (0.35, 0.3, 0.39), "critical", False, "is below 0.4 (critical)"),
        (0.39, (0.35, 0.3, 0.6), "critical", False, "is below 0.4 (critical)"),
        (0.5, (0.7, 0.6, 0.8), None, True, "is not below 0.65"),
        (0.76, (0.7, 0.6, 0.8), None, True, "is not below 0.65"),
    ],
)
def test_rules_on_a_rate_and_on_its_correction_judge_alike_and_not_by_what_may_be_chance(
    measure: str,
    own: float,
    corrected: CorrectedRate,
    severity: str | None,
    good: bool,  # noqa: FBT001 - a case of the table
    says: str,
) -> None:
    rule = Rule(
        key="f",
        kind=RuleKind.THRESHOLD,
        measure=measure,
        warning=Bound(below=0.65),
        critical=Bound(below=0.4),
        margin=0,
    )
    rate = by_labels(*corrected, judge=own)
    found = condition(
        rule,
        run_with(faithful=own, faithful_corrected=rate["value"]),
        unknown=False,
        facts=RunFacts(corrected={"faithful": rate}, confirmed={"faithful"}),
    )
    low, high = corrected[1:]
    shown = (
        f"faithful, corrected by people's labels, {rate['value']:.3f} ({low:.3f} to {high:.3f}; the judge: {own:.3f})"
    )
    assert found.reason == f"{shown} {says}"
    assert (found.severity, found.good_beyond_margin, found.value, found.corrected) == (
        severity,
        good,
        rate["value"],
        rate,
    )
    hint = condition(
        rule,
        run_with(faithful=own),
        unknown=False,
        facts=RunFacts(corrected={"faithful": rate}),
    )
    assert hint.severity == (None if severity is None else "warning"), "nobody confirmed the judge"


def run_with(**measures: float) -> Aggregates:
    """Return aggregates of a run with these measures."""
    return Aggregates(
        total=9, measured=9, failed=0, undefined=0, degraded=0, health_score=1, coverage=1, measures=measures
    )


def test_a_rule_without_labels_judges_what_was_measured_and_shares_are_another_number() -> None:
    rule = Rule(key="f", kind=RuleKind.THRESHOLD, measure="faithful", critical=Bound(below=0.65))
    by_people = RunFacts(confirmed={"faithful", "faithfulness"})
    said = condition(rule, run_with(faithful=0.5), unknown=False, facts=by_people).reason
    assert said == "faithful (the judge alone) 0.500 is below 0.65 (critical)"
    facts = replace(by_people, corrected={"faithfulness": by_labels(0.5, 0.4, 0.6, judge=0.55)})
    shares = replace(rule, measure="faithfulness")
    assert condition(shares, run_with(faithfulness=0.9), unknown=False, facts=facts).severity is None
    full = replace(rule, measure="faithfulness_corrected")
    assert condition(full, run_with(faithfulness=0.9), unknown=False, facts=facts).severity == "critical"
    assert not condition(full, run_with(faithfulness=0.9), unknown=False).measured
    assert not condition(full, run_with(faithfulness=0.9), unknown=True, facts=facts).measured


def test_the_badge_of_a_confirmed_measure_is_not_called_uncalibrated(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)

    def label() -> str:
        line = check_details.load_line(sqlite_store, "blind", two.it.world.clock())
        return make_badge(sqlite_store, line, measure="faithful").label

    assert label() == "blind faithful (uncalibrated)"
    two.label()
    assert label() == "blind faithful"


def test_metrics_show_the_corrected_rate_with_its_interval(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    assert "coalmine_corrected_ratio" not in {one.name for one in state_families(read_state(sqlite_store))}
    two.label()
    rate = two.it.summary(two.run("blind"))["corrected"]["faithful"]
    families = {one.name: one for one in state_families(read_state(sqlite_store))}
    shown = {
        (one.labels["check"], one.labels["measure"], one.labels["bound"]): one.value
        for one in families["coalmine_corrected_ratio"].samples
    }
    assert shown == {
        ("blind", "faithful", bound): pytest.approx(rate[name])
        for bound, name in (("estimate", "value"), ("low", "low"), ("high", "high"))
    }


@pytest.mark.both
def test_metrics_show_the_measures_of_answers_that_are_rated_after_the_run_was_read(store: Store) -> None:
    two = TwoChecks.of(store)
    two.label()
    snapshot = Snapshot()

    def shown() -> dict[tuple[str, str], float]:
        snapshot.refresh(store)
        return {
            (one.name, one.labels.get("bound", "")): one.value
            for family in state_families(present(snapshot.state))
            for one in family.samples
            if one.labels.get("check") == "blind" and one.labels.get("measure") == "faithful"
        }

    for told in (LIES, KEYS[:60]):  # the second time the check was read with numbers of answers before
        two.it.ask_answers.texts = {key: f"A lie about {key}." for key in told}
        run_id = two.it.world.run("blind").id
        assert shown() == {}, "the answers of the newest run are not rated yet"
        two.it.rate(run_id)
        rate = two.it.summary(run_id)["corrected"]["faithful"]
        assert shown() == {
            ("coalmine_measure_ratio", ""): pytest.approx(rate["judge_rate"]),
            ("coalmine_answers_unrated_ratio", ""): 0.0,
            **{
                ("coalmine_corrected_ratio", bound): pytest.approx(rate[name])
                for bound, name in (("estimate", "value"), ("low", "low"), ("high", "high"))
            },
        }


def test_a_comparison_shows_corrected_rates_where_both_sides_have_them(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)

    def compared() -> Any:
        [found] = comparisons.compare_references(sqlite_store, "check:seen", "check:blind")[0]["answers"]
        return found

    before = compared()
    assert before["difference"] == pytest.approx(14 / 110), "the judge's own: more lies are not seen"
    assert (before["low"], before["high"], before["a"]["corrected"]) == (None, None, None)
    two.label()
    two.run("seen")
    assert compared()["low"] is None, "one side alone is corrected"
    two.run("blind")
    after = compared()
    assert after["difference"] == pytest.approx(0, abs=1e-3)
    assert after["low"] < 0 < after["high"]
    assert after["b"]["judge"] == pytest.approx(96 / 110)
    assert after["b"]["labels"] == 110


def rate_without(two: TwoChecks, text: str, keys: Sequence[str]) -> int:
    """Run the check whose lies are seen less, with new answers that the judge refuses; return how many it refused."""
    two.it.ask_answers.texts = {key: f"{text} about {key}." for key in keys}
    two.it.judge.refused.add(text)
    run_id = two.it.world.run("blind").id
    two.it.rate(run_id)
    refused: int = two.it.summary(run_id)["ratings"]["faithful"]["judge_refused"]
    return refused


def test_a_comparison_claims_no_difference_of_answers_that_the_judge_did_not_judge(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    two.label()
    two.run("seen")
    lacking = rate_without(two, "A fib", sorted(LIES))
    site = Site(world=two.it.world)
    view = site.client().get("/v1/compare?a=check:seen&b=check:blind").json()
    [answers] = view["answers"]
    assert [answers["a"][one] for one in ("answers", "asked", "unrated")] == [110 - lacking, 110, 0]
    assert [answers["b"][one] for one in ("answers", "asked", "unrated")] == [110 - lacking, 110, lacking]
    assert (answers["low"], answers["high"]) == (None, None), "the rated answers do not stand for the others"
    assert answers["b"]["corrected"] is not None
    says = (
        f"{lacking} of 110 answers in B have no rating: the difference in faithful stands for the rated ones alone, "
        "so none is claimed"
    )
    assert [one["sentence"] for one in view["cautions"] if one["kind"] == "answers"] == [says]
    page = site.page("/compare?a=check:seen&b=check:blind")
    assert says in page.text
    shown = page.one("section", **{"aria-labelledby": "answers"}).text
    assert "by people\N{RIGHT SINGLE QUOTATION MARK}s labels" in shown
    assert f"of {110 - lacking}, {lacking} not rated" in shown
    report = ComparisonReport(view=view, losses=[], wins=[])
    [table] = [one for one in comparison_tables(report) if one.title == "Generated answers"]
    assert table.rows[0][5:] == (f"{110 - lacking}", f"{110 - lacking}, {lacking} not rated", "people's labels")
    assert says in comparison_markdown(report)


def test_answers_that_did_not_come_are_counted_as_unrated_and_a_tenth_of_them_lets_the_difference_stand(
    sqlite_store: Store,
) -> None:
    two = TwoChecks.of(sqlite_store)
    two.label()
    two.run("seen")
    rate_without(two, "A fib", KEYS[:11])
    view, _ = comparisons.compare_references(sqlite_store, "check:seen", "check:blind")
    [answers] = view["answers"]
    assert (answers["b"]["unrated"], answers["low"] is None) == (11, False)
    two.it.ask_answers.failing = True
    two.run("blind")
    [answers] = comparisons.compare_references(sqlite_store, "check:seen", "check:blind")[0]["answers"]
    assert (answers["b"]["answers"], answers["b"]["unrated"]) == (0, 110)


def test_the_own_numbers_of_two_judges_are_not_compared_and_both_are_named(sqlite_store: Store) -> None:
    described: dict[str, Any] = answers_page(KEYS[:4], slug="seen", sample=1.0)
    [check] = described["checks"]
    checks = [check, {**check, "slug": "blind", "judge": "second"}]
    it = answered_world(sqlite_store, {**described, "checks": checks, "judges": [JUDGE, {**JUDGE, "slug": "second"}]})
    for slug in ("seen", "blind"):
        it.rate(it.world.run(slug).id)
    view, _ = comparisons.compare_references(sqlite_store, "check:seen", "check:blind")
    [answers] = view["answers"]
    assert (answers["a"]["judge"], answers["b"]["judge"], answers["difference"]) == (1.0, 1.0, None)
    [note] = [one for one in view["differences"] if "judge" in one]
    assert note.startswith("judge 'reader' rated the answers of one run and 'second' those of the other")
    assert (
        "their own numbers cannot be compared" in Site(world=it.world).page("/compare?a=check:seen&b=check:blind").text
    )


def test_a_comparison_marks_each_side_whose_judge_nobody_confirmed(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)

    def compared() -> tuple[list[bool], list[str], str]:
        view, _ = comparisons.compare_references(sqlite_store, "check:seen", "check:blind")
        report = ComparisonReport(view=view, losses=[], wins=[])
        [answers] = view["answers"]
        [table] = [one for one in comparison_tables(report) if one.title == "Generated answers"]
        cells = list(table.rows[0][1:3])
        assert f"| faithful | {cells[0]} | {cells[1]} |" in comparison_markdown(report)
        page = Site(world=two.it.world).page("/compare?a=check:seen&b=check:blind")
        shown = page.one("section", **{"aria-labelledby": "answers"}).text
        return [answers["a"]["confirmed"], answers["b"]["confirmed"]], cells, shown

    confirmed, cells, shown = compared()
    assert (confirmed, cells) == ([False, False], ["0.745 (uncalibrated)", "0.873 (uncalibrated)"])
    assert all(cell in shown for cell in cells)
    two.label()
    described = answers_page(KEYS, slug="seen", sample=1.0, rules=[])
    own = described["checks"][0]
    described["checks"] = [own, {**own, "slug": "blind", "judge": "stranger"}]
    two.it.world.apply({**described, "judges": [JUDGE, {**JUDGE, "slug": "stranger"}]})
    two.run("seen")
    two.run("blind")
    confirmed, cells, shown = compared()
    assert (confirmed, cells) == ([True, False], ["0.745", "0.873 (uncalibrated)"]), "the judge of A alone is confirmed"
    assert shown.count("uncalibrated") == 1
    assert cells[1] in shown
    two.it.world.apply({**described, "checks": [own, {**own, "slug": "blind"}], "judges": [JUDGE]})
    two.run("blind")
    confirmed, cells, shown = compared()
    assert confirmed == [True, True]
    assert not any("uncalibrated" in text for text in (*cells, shown))


def margin_of(store: Store) -> Margin:
    """Return the difference that the gate of a judge reads of faithfulness."""
    return read_by_gate(store).margin


def read_by_gate(store: Store) -> JudgedQuestion:
    """Return what the gate of a judge reads of faithfulness."""
    found = promotions.compare_judged(store, "seen", "blind")
    assert not isinstance(found, str)
    one = found.measures["faithfulness"]["faithfulness"]
    assert not isinstance(one, str)
    return one


def test_a_promotion_reads_the_corrected_difference_of_a_judge_that_labels_do_not_confirm(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store, "faithfulness")
    assert not read_by_gate(sqlite_store).corrected
    two.label("faithfulness", refused={key for place, key in enumerate(KEYS) if place % 4 == 1})
    two.run("seen")
    two.run("blind")
    found = read_by_gate(sqlite_store)
    assert (found.calibrated, found.corrected) == (False, True)
    [gate] = [
        one
        for one in decide_promotion(
            "no runs", promotions.compare_judged(sqlite_store, "seen", "blind"), "none", {}
        ).gates
        if one.gate is GateName.JUDGE
    ]
    low, high = change_text(present(found.margin.low)), change_text(present(found.margin.high))
    told = f"faithfulness (uncalibrated) {low} to {high} "
    assert (
        f"known, though it decides nothing: {told}(corrected by 110 and 110 labels of people; the judge" in gate.reason
    )


def test_a_promotion_reads_the_corrected_difference(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store, "faithfulness", "answer_relevance")
    assert "mean share by the judge" in margin_of(sqlite_store).basis
    assert present(margin_of(sqlite_store).low) > 0, "the judge alone would promote what it cannot see"
    for question in ("faithfulness", "answer_relevance"):
        two.label(question)
    two.run("seen")
    two.run("blind")
    corrected = margin_of(sqlite_store)
    assert present(corrected.low) < 0 < present(corrected.high)
    assert corrected.basis.startswith("corrected by 110 and 110 labels of people; the judge alone +")


def run_without(two: TwoChecks, failing: Collection[str]) -> int:
    """Run the check whose lies are seen less, with probes that fail for these queries."""
    two.it.world.probe.otherwise = lambda item: failed(Outcome.TIMEOUT) if item.query in failing else with_texts(item)
    run_id = two.run("blind")
    two.it.world.probe.otherwise = with_texts
    return run_id


@pytest.mark.parametrize(("lacking", "claimed"), [(8, True), (12, False)])
def test_both_sides_are_compared_over_the_canaries_that_both_answered(
    lacking: int, *, claimed: bool, sqlite_store: Store
) -> None:
    two = TwoChecks.of(sqlite_store, "faithfulness")
    two.label("faithfulness")
    two.run("seen")
    two.run("blind")
    failing = sorted(LIES)[:lacking]  # of which earlier runs have an answer
    run_without(two, failing)
    view, _ = comparisons.compare_references(sqlite_store, "check:seen", "check:blind")
    [answers] = view["answers"]
    assert [(one["answers"], one["asked"], one["unrated"]) for one in (answers["a"], answers["b"])] == [
        (110 - lacking, 110, 0),
        (110 - lacking, 110, lacking),
    ]
    told = 28 - lacking
    assert answers["a"]["judge"] == pytest.approx(1 - told / (110 - lacking)), "of the questions that B answered"
    assert answers["b"]["judge"] == pytest.approx(1 - len(set(LIES) - set(failing) - UNSEEN) / (110 - lacking))
    assert (answers["low"] is not None) is claimed
    cautions = [one["sentence"] for one in view["cautions"] if one["kind"] == "answers"]
    assert [one.startswith(f"{lacking} of 110 answers in B have no rating: ") for one in cautions] == [True] * (
        not claimed
    )
    read = read_by_gate(sqlite_store)
    assert (read.answers, read.candidate) == (110 - lacking, AnswerCounts(asked=110, missing=lacking))
    assert read.current == AnswerCounts(asked=110)
    sides = [(one["corrected"], one["low"], one["high"]) for one in (answers["a"], answers["b"])]
    _, *interval = interval_of_difference(*[present_rate(one) for one in sides])
    assert [read.margin.low, read.margin.high] == pytest.approx(interval), "gate and comparison read one pair of runs"
    alone = present(read.margin.uncorrected)
    assert present(alone.low) < present(answers["b"]["judge"]) - present(answers["a"]["judge"]) < present(alone.high)
    assert read.lacks_ratings is not claimed


def present_rate(one: tuple[float | None, float | None, float | None]) -> CorrectedRate:
    """Return a corrected rate that is there."""
    value, low, high = (present(end) for end in one)
    return value, low, high


def test_the_judge_alone_counts_full_shares_wherever_people_stand_beside_it(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store, "faithfulness", "answer_relevance", half="smooth tale")
    for question in ("faithfulness", "answer_relevance"):
        two.label(question)
    runs = [two.run(check) for check in ("seen", "blind")]
    full, mean = 82 / 110, (82 + 14 / 2) / 110
    assert two.it.measures(runs[1])["faithfulness"] == pytest.approx(mean, abs=1e-3)
    site = Site(world=two.it.world)
    found = site.client().get("/v1/judges/reader/report").json()["measures"][0]
    assert found["calibration"]["rate"]["judge_rate"] == pytest.approx(full, abs=1e-4)
    assert [one["rate"]["judge_rate"] for one in found["checks"]] == [pytest.approx(full, abs=1e-4)] * 2
    shown = " ".join(site.page("/judges/reader").one("main").text.split())
    assert "the judge alone says 75 %, within that" in shown, "people say 75 %; the mean of shares is 78 %"
    assert "78 %" not in shown
    assert "0.777" not in shown

    side = site.client().get("/v1/compare?a=check:seen&b=check:blind").json()["answers"][0]["b"]
    assert (side["judge"], side["judge_rate"]) == (pytest.approx(mean, abs=1e-3), pytest.approx(full, abs=1e-4))
    compared = site.page("/compare?a=check:seen&b=check:blind").one("section", **{"aria-labelledby": "answers"}).text
    assert "the judge: 0.745" in compared
    assert "the judge: 0.809" not in compared

    margin = margin_of(sqlite_store)
    alone = present(margin.uncorrected)
    assert (alone.low, alone.high) == (0.0, 0.0), "both say yes of the same answers in full"
    assert "the judge alone 0.000 to 0.000" in margin.basis


def test_a_mean_of_shares_that_an_earlier_release_stored_is_not_told_as_a_rate(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store, "faithfulness", half="smooth tale")
    two.label("faithfulness")
    with sqlite_store.read() as connection:
        stored = str(connection.exec_driver_sql("SELECT body FROM calibrations").scalar_one())
    body = json.loads(stored)
    for rate in (body["rate"], *(one["rate"] for one in body["checks"])):
        assert rate["judge_rate"] == pytest.approx(82 / 110, abs=1e-4)
        rate["judge_rate"] = 0.89
    with sqlite_store.write() as connection:
        connection.exec_driver_sql("UPDATE calibrations SET body = ?", (json.dumps(body),))
    [found] = labels.load_report(sqlite_store, "reader", now=two.it.world.clock())["measures"]
    assert json.loads(json.dumps(found["calibration"]))["rate"] == json.loads(stored)["rate"]
    assert [one["rate"] for one in found["checks"]] == [one["rate"] for one in json.loads(stored)["checks"]][::-1]
    assert not any("89 %" in sentence for sentence in found["sentences"])


def test_what_a_judge_says_in_shares_has_its_own_name_where_labels_do_not_correct_it(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store, "faithful", "faithfulness", half="smooth tale")
    compared = Site(world=two.it.world).page("/compare?a=check:seen&b=check:blind")
    text = compared.one("section", **{"aria-labelledby": "answers"}).text
    assert "faithful the judge alone" in text
    assert "faithfulness mean share by the judge" in text


def test_a_draw_of_an_older_release_has_the_rate_of_all_and_none_of_a_check(sqlite_store: Store) -> None:
    two = TwoChecks.of(sqlite_store)
    two.label()
    with sqlite_store.write() as connection:
        connection.exec_driver_sql("UPDATE drawn_verdicts SET check_id = NULL")
        connection.exec_driver_sql("UPDATE answer_draws SET rest_checks = NULL")
    with sqlite_store.read() as connection:
        task = tasks.find_task(connection, "faithful")
        assert present(rows.find_draw(connection, task.id)).rest.keys() <= {None}
    labels.calibrate(sqlite_store, task.id, now=two.it.world.clock())
    assert two.trust()["blind"]["labels"] == 0
    [measure] = labels.load_report(sqlite_store, "reader", now=two.it.world.clock())["measures"]
    assert present(measure["calibration"])["labels"] == 220
    assert two.it.summary(two.run("blind"))["corrected"] == {}
    assert answering.answers_of_run(sqlite_store, "1")["status"] == "rated"
