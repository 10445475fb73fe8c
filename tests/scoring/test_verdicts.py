"""Verdicts: why canaries are degraded, what a run amounts to, and when it is unknown, degraded or healthy."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.base.values import (
    Aggregates,
    Bound,
    Canary,
    Category,
    Judgment,
    Outcome,
    Ranking,
    Reason,
    Rule,
    RuleKind,
    Slice,
    Verdict,
    replace,
)
from app.retrievers.domain.retrievers import Scale, Scorer, ScorerKind
from app.scoring.evaluation import judge_canary, top_score
from app.scoring.verdicts import aggregate, remarks, run_verdict, too_few_scored

SIMILARITY = Scorer(kind=ScorerKind.SCORE, scale=Scale.SIMILARITY)
EXPECTING = Canary(key="a", query="?", judgments=(Judgment(id="d1"),), floors={"R@5": 0.8})
NEGATIVE = Canary(key="n", query="?", category=Category.NEGATIVE)
OPEN_ENDED = Canary(key="o", query="?")
COVERAGE = Rule(
    key="cov", kind=RuleKind.THRESHOLD, measure="coverage", warning=Bound(below=0.95), critical=Bound(below=0.9)
)


def judged(
    canary: Canary,
    *,
    top: float | None = 0.9,
    found: bool = True,
    forbidden: bool = False,
    scores: Mapping[str, float | None] | None = None,
    first_is_allowed: bool = False,
    empty: bool = False,
    measures_relevance: bool = True,
) -> str:
    reasons = judge_canary(
        canary,
        top_score=top,
        found_in_k=found,
        forbidden_returned=forbidden,
        scores={"R@5": 1.0} if scores is None else scores,
        first_is_allowed=first_is_allowed,
        empty=empty,
        scorer_measures_relevance=measures_relevance,
    )
    return " ".join(reasons)


@pytest.mark.parametrize(("top", "reasons"), [(0.49, "low_relevance"), (0.5, ""), (None, "")])
def test_relevance_below_the_minimum_degrades(top: float | None, reasons: str) -> None:
    assert judged(EXPECTING, top=top) == reasons


def test_the_minimum_is_the_canarys_own() -> None:
    strict = Canary(key="a", query="?", judgments=(Judgment(id="d1"),), min_relevance_score=0.85)
    assert judged(strict, top=0.84) == "low_relevance"
    assert judged(strict, top=0.85) == ""


def test_a_judged_score_is_never_low_relevance() -> None:
    assert judged(EXPECTING, top=0.0, measures_relevance=False) == ""


def test_nothing_expected_in_the_top_k_is_missing() -> None:
    assert judged(EXPECTING, found=False) == "missing"


def test_only_canaries_that_expect_something_can_miss_it() -> None:
    assert judged(OPEN_ENDED, found=False) == ""
    assert judged(NEGATIVE, top=0.1, found=False) == ""


def test_a_canary_without_expectations_is_still_held_to_its_relevance() -> None:
    assert judged(OPEN_ENDED, top=0.2, found=False) == "low_relevance"


@pytest.mark.parametrize(
    ("value", "reasons"), [(0.79, "below_floor"), (0.8, ""), (0.1 + 0.7, ""), (1.0, ""), (None, "")]
)
def test_a_floor_is_broken_only_from_below_and_only_by_a_measurement(value: float | None, reasons: str) -> None:
    assert judged(EXPECTING, scores={"R@5": value}) == reasons


def test_a_floor_of_a_measure_that_was_not_computed_is_not_broken() -> None:
    assert judged(EXPECTING, scores={}) == ""


@pytest.mark.parametrize("canary", [EXPECTING, OPEN_ENDED])
def test_a_forbidden_chunk_degrades_every_canary(canary: Canary) -> None:
    assert judged(canary, forbidden=True) == "forbidden"
    assert judged(NEGATIVE, top=0.1, forbidden=True) == "forbidden"


@pytest.mark.parametrize(
    ("top", "empty", "allowed", "reasons"),
    [
        (0.5, False, False, "answered"),
        (0.9, False, False, "answered"),
        (0.49, False, False, ""),
        (0.9, True, False, ""),
        (0.9, False, True, ""),
        (None, False, False, ""),
    ],
)
def test_a_negative_canary_must_not_be_answered_with_confidence(
    *, top: float | None, empty: bool, allowed: bool, reasons: str
) -> None:
    assert judged(NEGATIVE, top=top, found=False, empty=empty, first_is_allowed=allowed) == reasons


def test_the_maximum_is_the_negative_canarys_own() -> None:
    lenient = Canary(key="n", query="?", category=Category.NEGATIVE, max_relevance_score=0.8)
    assert judged(lenient, top=0.79) == ""
    assert judged(lenient, top=0.8) == "answered"


def test_a_negative_canary_is_never_low_relevance_even_if_it_allows_a_match() -> None:
    allowing = Canary(key="n", query="?", category=Category.NEGATIVE, judgments=(Judgment(id="d1"),))
    assert judged(allowing, top=0.0, found=False) == ""


def test_reasons_come_in_the_order_of_the_list() -> None:
    everything = judged(EXPECTING, top=0.1, found=False, forbidden=True, scores={"R@5": 0.0})
    assert everything == "low_relevance missing below_floor forbidden"
    assert everything.split() == [reason for reason in Reason if reason in everything.split()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One canary's part of a run, for the plain reckoning that `aggregate` is held against."""

    outcome: Outcome
    category: Category
    tags: tuple[str, ...]
    expects: bool
    degraded: bool
    answered: bool
    top: float
    found: bool
    scores: tuple[float, ...]


NAMES = ("MRR", "R@5", "NDCG@20")
MAYBE = st.one_of(st.floats(0, 1), st.just(math.nan))


@st.composite
def rows(draw: st.DrawFn) -> Row:
    category = draw(st.sampled_from(Category))
    negative = category is Category.NEGATIVE
    return Row(
        outcome=draw(st.sampled_from([Outcome.OK, Outcome.OK, Outcome.OK, Outcome.TIMEOUT, Outcome.SKIPPED])),
        category=category,
        tags=tuple(draw(st.sets(st.sampled_from(["red", "blue", "negative"])))),
        expects=not negative and draw(st.booleans()),
        degraded=draw(st.booleans()),
        answered=negative and draw(st.booleans()),
        top=draw(MAYBE),
        found=draw(st.booleans()),
        scores=(draw(MAYBE), draw(MAYBE), math.nan),
    )


def columns(run: Sequence[Row], *, measures_relevance: bool = True) -> Aggregates:
    groups = {str(c): [i for i, row in enumerate(run) if row.category is c] for c in Category}
    tags = {tag: [i for i, row in enumerate(run) if tag in row.tags] for tag in ("blue", "negative", "red")}
    return aggregate(
        outcomes=[row.outcome for row in run],
        expects=np.array([row.expects for row in run], dtype=np.bool_),
        negative=np.array([row.category is Category.NEGATIVE for row in run], dtype=np.bool_),
        degraded=np.array([row.degraded for row in run], dtype=np.bool_),
        answered=np.array([row.answered for row in run], dtype=np.bool_),
        top_scores=np.array([row.top for row in run], dtype=np.float64),
        found=np.array([row.found for row in run], dtype=np.bool_),
        scores=np.array([row.scores for row in run], dtype=np.float64).reshape(len(run), len(NAMES)),
        measures=NAMES,
        categories={name: np.array(places, dtype=np.intp) for name, places in groups.items()},
        tags={name: np.array(places, dtype=np.intp) for name, places in tags.items()},
        measures_relevance=measures_relevance,
    )


def mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None


def plain_slice(run: Sequence[Row], *, answers: bool) -> Slice:
    measured = [row for row in run if row.outcome is Outcome.OK]
    counted = [row for row in measured if row.expects]
    measures = {name: mean([row.scores[place] for row in counted]) for place, name in enumerate(NAMES)}
    measures["degraded_share"] = mean([float(row.degraded) for row in measured])
    if answers:
        told = [row for row in measured if row.answered or not math.isnan(row.top)]
        measures["answered_ratio"] = mean([float(row.answered) for row in told])
    return Slice(
        canaries=len(run),
        measured=len(measured),
        health_score=mean([row.top for row in counted]),
        coverage=mean([float(row.found) for row in counted]),
        measures=measures,
    )


def equal(found: float | None, plain: float | None) -> bool:
    return found == plain or (found is not None and plain is not None and math.isclose(found, plain, abs_tol=1e-12))


def alike(found: Slice, plain: Slice) -> bool:
    return (
        (found.canaries, found.measured) == (plain.canaries, plain.measured)
        and equal(found.health_score, plain.health_score)
        and equal(found.coverage, plain.coverage)
        and set(found.measures) == set(plain.measures)
        and all(equal(found.measures[name], plain.measures[name]) for name in plain.measures)
    )


@settings(deadline=None, max_examples=150)
@given(run=st.lists(rows(), max_size=30))
def test_aggregates_equal_a_plain_reckoning(run: list[Row]) -> None:
    found = columns(run)
    whole = plain_slice(run, answers=False)
    measured = [row for row in run if row.outcome is Outcome.OK]
    assert (found.total, found.measured, found.failed) == (len(run), len(measured), len(run) - len(measured))
    assert found.undefined == sum(not row.expects for row in measured)
    assert found.degraded == sum(row.degraded for row in measured)
    assert equal(found.health_score, whole.health_score)
    assert equal(found.coverage, whole.coverage)
    assert list(found.measures) == list(NAMES)
    assert all(equal(found.measures[name], whole.measures[name]) for name in NAMES)
    for category in Category:
        rows_of = [row for row in run if row.category is category]
        assert alike(found.categories[category], plain_slice(rows_of, answers=category is Category.NEGATIVE))
    for tag, tagged in found.tags.items():
        assert alike(tagged, plain_slice([row for row in run if tag in row.tags], answers=False))
    outcomes = [row.outcome for row in run]
    assert found.probes == {outcome: outcomes.count(outcome) for outcome in Outcome if outcome in outcomes}


def test_failed_probes_are_counted_and_enter_no_mean() -> None:
    good = Row(
        outcome=Outcome.OK,
        category=Category.PROCEDURAL,
        tags=(),
        expects=True,
        degraded=False,
        answered=False,
        top=0.8,
        found=True,
        scores=(1.0, 1.0, math.nan),
    )
    failed = Row(
        outcome=Outcome.REFUSED,
        category=Category.PROCEDURAL,
        tags=(),
        expects=True,
        degraded=True,
        answered=False,
        top=0.0,
        found=False,
        scores=(0.0, 0.0, 0.0),
    )
    run = columns([good, failed])
    assert (run.measured, run.failed, run.degraded) == (1, 1, 0)
    assert (run.health_score, run.coverage) == (0.8, 1.0)
    assert run.measures == {"MRR": 1.0, "R@5": 1.0, "NDCG@20": None}
    assert run.probes == {"ok": 1, "refused": 1}


def test_the_answered_ratio_is_none_where_confidence_cannot_be_measured() -> None:
    row = Row(
        outcome=Outcome.OK,
        category=Category.NEGATIVE,
        tags=(),
        expects=False,
        degraded=False,
        answered=False,
        top=0.3,
        found=False,
        scores=(math.nan, math.nan, math.nan),
    )
    assert columns([row]).categories["negative"].measures["answered_ratio"] == 0.0
    assert "answered_ratio" not in columns([row], measures_relevance=False).categories["negative"].measures


def test_a_negative_canary_nobody_scored_was_neither_answered_nor_not() -> None:
    unscored = Row(
        outcome=Outcome.OK,
        category=Category.NEGATIVE,
        tags=(),
        expects=False,
        degraded=False,
        answered=False,
        top=math.nan,
        found=False,
        scores=(math.nan, math.nan, math.nan),
    )
    answered, silent = replace(unscored, top=0.9, answered=True), replace(unscored, top=0.1)
    ratios = [
        columns(run).categories["negative"].measures["answered_ratio"]
        for run in ([unscored] * 3, [answered, unscored], [answered, silent, unscored, unscored])
    ]
    assert ratios == [None, 1.0, 0.5]


def original_figures(
    answers: Mapping[str, Sequence[tuple[str, float]]], expected: Mapping[str, set[str]], k: int
) -> tuple[float, float, list[str]]:
    """Reckon as the textbook function does: mean top score, mean any-match, queries whose top score is below 0.5."""
    tops: list[float] = []
    matches: list[bool] = []
    degraded: list[str] = []
    for query, results in answers.items():
        top = results[0][1] if results else 0.0
        tops.append(top)
        matches.append(any(chunk in expected[query] for chunk, _ in results[:k]))
        if top < 0.5:
            degraded.append(query)
    return sum(tops) / len(tops), sum(matches) / len(matches), degraded


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_health_coverage_and_degraded_queries_equal_the_original_function(data: st.DataObject) -> None:
    k = 3
    hit = st.tuples(st.sampled_from("abcdefgh"), st.floats(0, 1))
    answers = {
        f"query {number}": data.draw(st.lists(hit, max_size=6, unique_by=lambda one: one[0]))
        for number in range(data.draw(st.integers(1, 12)))
    }
    expected = {query: data.draw(st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=3)) for query in answers}
    tops, found, reasons = [], [], {}
    for query, results in answers.items():
        judgments = tuple(Judgment(id=chunk) for chunk in sorted(expected[query]))
        canary = Canary(key=query, query=query, judgments=judgments)
        ranking = Ranking(
            ids=tuple(chunk for chunk, _ in results),
            documents=(None,) * len(results),
            texts=(None,) * len(results),
            scores=tuple(score for _, score in results),
            returned=len(results),
        )
        grades = [int(chunk in expected[query]) for chunk in ranking.ids]
        top = top_score(SIMILARITY, ranking, grades, 1)
        assert top is not None
        tops.append(top)
        found.append(any(grades[:k]))
        reasons[query] = judge_canary(
            canary,
            top_score=top,
            found_in_k=found[-1],
            forbidden_returned=False,
            scores={},
            first_is_allowed=False,
            empty=not ranking,
            scorer_measures_relevance=True,
        )
    size = len(answers)
    run = aggregate(
        outcomes=[Outcome.OK] * size,
        expects=np.ones(size, dtype=np.bool_),
        negative=np.zeros(size, dtype=np.bool_),
        degraded=np.array([bool(why) for why in reasons.values()]),
        answered=np.zeros(size, dtype=np.bool_),
        top_scores=np.array(tops),
        found=np.array(found),
        scores=np.empty((size, 0)),
        measures=[],
        categories={},
        tags={},
    )
    health, coverage, degraded = original_figures(answers, expected, k)
    assert run.health_score == pytest.approx(health, abs=1e-12)
    assert run.coverage == pytest.approx(coverage, abs=1e-12)
    assert [query for query, why in reasons.items() if Reason.LOW_RELEVANCE in why] == degraded


def figures(total: int, measured: int, coverage: float | None, probes: Mapping[str, int] | None = None) -> Aggregates:
    return Aggregates(
        total=total,
        measured=measured,
        failed=total - measured,
        undefined=0,
        degraded=0,
        health_score=coverage,
        coverage=coverage,
        probes=probes or {},
    )


@pytest.mark.parametrize(
    ("total", "measured", "verdict"),
    [(10, 4, Verdict.UNKNOWN), (10, 5, Verdict.HEALTHY), (9, 4, Verdict.UNKNOWN), (9, 5, Verdict.HEALTHY)],
)
def test_a_run_is_unknown_when_fewer_than_half_of_its_probes_measured(
    total: int, measured: int, verdict: Verdict
) -> None:
    assert run_verdict(figures(total, measured, 1.0), [COVERAGE])[0] is verdict


def test_an_unknown_run_says_what_its_probes_met() -> None:
    run = figures(10, 3, 0.1, {"ok": 3, "timeout": 5, "refused": 2})
    assert run_verdict(run, [COVERAGE]) == (
        Verdict.UNKNOWN,
        ["only 3 of 10 probes measured: 5 timeout, 2 error response"],
    )


def test_a_run_without_probes_is_unknown() -> None:
    assert run_verdict(figures(0, 0, None), []) == (Verdict.UNKNOWN, ["there were no probes"])


def test_a_run_is_degraded_by_any_rule_and_says_by_which() -> None:
    health = Rule(key="h", kind=RuleKind.THRESHOLD, measure="health_score", warning=Bound(below=0.5))
    assert run_verdict(figures(10, 10, 0.72), [health, COVERAGE]) == (
        Verdict.DEGRADED,
        ["coverage 0.720 is below 0.9 (critical)"],
    )
    assert run_verdict(figures(10, 10, 0.92), [COVERAGE])[1] == ["coverage 0.920 is below 0.95 (warning)"]


def test_degraded_canaries_alone_do_not_degrade_a_run() -> None:
    run = Aggregates(total=10, measured=10, failed=0, undefined=0, degraded=9, health_score=0.1, coverage=1.0)
    assert run_verdict(run, [COVERAGE]) == (Verdict.HEALTHY, [])


def test_a_failed_share_of_ones_own_degrades_a_run_that_is_not_unknown() -> None:
    strict = Rule(key="p", kind=RuleKind.PROBE_ERRORS, failed_share=0.2)
    assert run_verdict(figures(10, 7, 1.0), [strict]) == (
        Verdict.DEGRADED,
        ["3 of 10 probes failed, more than 20 % of them (warning)"],
    )


def test_reasons_of_a_run_of_one_canary_are_in_the_singular() -> None:
    assert run_verdict(figures(1, 0, None), []) == (Verdict.UNKNOWN, ["only 0 of 1 probe measured"])
    (remark,) = remarks(1, unscored=1, why_unscored=None, undated=0)
    assert remark.endswith("1 of 1 canary")


def test_what_was_not_measured_degrades_nothing() -> None:
    silent = Rule(key="s", kind=RuleKind.NO_DATA)
    assert run_verdict(figures(4, 4, None), [COVERAGE, silent]) == (Verdict.HEALTHY, [])


@pytest.mark.parametrize(("scored", "unscored", "unknown"), [(0, 0, False), (5, 5, False), (4, 5, True), (0, 1, True)])
def test_a_run_is_unknown_when_fewer_than_half_of_its_hits_were_scored(
    scored: int, unscored: int, *, unknown: bool
) -> None:
    why = too_few_scored(scored=scored, unscored=unscored, why_unscored="it is away")
    verdict, reasons = run_verdict(figures(10, 10, 0.1), [COVERAGE], too_few_scored=why)
    assert verdict is (Verdict.UNKNOWN if unknown else Verdict.DEGRADED)
    of = "1 canary" if scored + unscored == 1 else f"{scored + unscored} canaries"
    assert (reasons == [f"relevance was measured for only {scored} of {of} that got hits: it is away"]) is unknown


def test_a_run_that_ended_early_and_was_hardly_scored_says_both() -> None:
    verdict, reasons = run_verdict(figures(10, 10, 1.0), [], ended_early="it ended", too_few_scored="it is away")
    assert (verdict, reasons) == (Verdict.UNKNOWN, ["it ended", "it is away"])
