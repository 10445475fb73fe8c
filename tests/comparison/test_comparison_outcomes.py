"""Outcomes of comparisons: what pairs, how deep, what is claimed, and that equals are rarely said to differ."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from app.base.values import Canary, Category, Judgment, replace
from app.catalog.domain import Use, is_top_heavy
from app.comparison.domain.estimates import FEWEST_PAIRS, estimate, estimate_all
from app.comparison.domain.outcomes import (
    BroughtUp,
    Claim,
    ComparisonOutcome,
    ComparisonVerdict,
    Depth,
    Exclusion,
    Members,
    Side,
    common_depth,
    compare,
    holm,
    pair_canaries,
    primary_measures,
)
from app.scoring.measures import cut_batch
from tests.support.exchangeable_runs import NoisyRetriever, compare_batches, outcomes

Floats = NDArray[np.float64]
DEPTH = Depth(k=5, m=10, equal=True)


def canary(key: str, **more: Any) -> Canary:
    return Canary(key=key, query=more.pop("query", key), judgments=more.pop("judgments", (Judgment(id=key),)), **more)


def members(*canaries: Canary, unmeasured: Sequence[str] = ()) -> Members:
    return Members(canaries=canaries, measured=[one.key not in unmeasured for one in canaries])


# Pairs


def test_every_reason_why_a_canary_is_not_compared_has_a_name() -> None:
    negative = {"category": Category.NEGATIVE, "judgments": ()}
    a = members(
        canary("same"), canary("gone"), canary("asks"), canary("expects"), canary("moon", **negative),
        canary("turned"), canary("unheard"), canary("silent"), canary("lost"),
        unmeasured=["unheard", "lost", "asks"],
    )  # fmt: skip
    b = members(
        canary("new"), canary("lost"), canary("silent"), canary("unheard"), canary("turned", **negative),
        canary("moon", **negative), canary("expects", judgments=(Judgment(id="expects", grade=2),)),
        canary("asks", query="another question"), canary("same", tags=("x",), category=Category.PROCEDURAL),
        unmeasured=["silent", "lost"],
    )  # fmt: skip
    found = pair_canaries(a, b)
    assert found.places == ((0, 8),), "tags and category decide nothing about an answer"
    assert found.excluded == {
        Exclusion.ONLY_IN_A: ("gone",),
        Exclusion.ONLY_IN_B: ("new",),
        Exclusion.OTHER_QUERY: ("asks",),
        Exclusion.OTHER_JUDGMENTS: ("expects", "turned"),
        Exclusion.NOTHING_EXPECTED: ("moon",),
        Exclusion.NOT_MEASURED_IN_A: ("unheard",),
        Exclusion.NOT_MEASURED_IN_B: ("silent",),
        Exclusion.NOT_MEASURED: ("lost",),
    }
    assert list(found.excluded) == list(Exclusion), "in the order of asking"
    assert found.total == 10


def test_the_order_of_judgments_is_no_difference() -> None:
    some = (Judgment(id="x"), Judgment(id="y", grade=2))
    assert pair_canaries(members(canary("c", judgments=some)), members(canary("c", judgments=some[::-1]))).places
    twice = (Judgment(id="x"), Judgment(id="x"))
    assert not pair_canaries(members(canary("c", judgments=twice)), members(canary("c", judgments=twice[:1]))).places


# Depth


def test_both_runs_are_read_to_the_depth_that_both_have() -> None:
    assert common_depth(k=(5, 3), fetch_k=(10, 20)) == Depth(k=3, m=10, equal=False)
    assert primary_measures(common_depth(k=(5, 5), fetch_k=(20, 20))) == ("NDCG@10", "R@5", "P@5", "MRR@20", "coverage")
    assert primary_measures(common_depth(k=(3, 3), fetch_k=(5, 20))) == ("NDCG@5", "R@3", "P@3", "MRR@5", "coverage")


@pytest.mark.parametrize(
    ("use", "first"),
    [
        (Use.GENERAL, "NDCG@10"),
        (Use.COMPLETENESS, "R@5"),
        (Use.PRECISION, "P@5"),
        (Use.SINGLE_ANSWER, "MRR@20"),
        (Use.GRADED, "NDCG@5"),
    ],
)
def test_the_measure_of_the_use_comes_first_and_recall_is_always_there(use: Use, first: str) -> None:
    found = primary_measures(common_depth(k=(5, 5), fetch_k=(20, 20)), use)
    assert found[0] == first
    assert len(set(found)) == len(found) == 5
    assert "R@5" in found


def test_measures_that_the_first_good_hit_decides_are_named() -> None:
    names = ["MRR@10", "NDCG@1", "P@1", "Hit@1", "coverage", "R@1", "NDCG@10", "P@5", "R@5"]
    assert [name for name in names if is_top_heavy(name, DEPTH.k)] == ["MRR@10", "NDCG@1", "P@1", "Hit@1"]
    assert is_top_heavy("coverage", 1)


def test_one_retriever_read_to_5_and_to_20_hits_is_never_said_to_differ() -> None:
    one = NoisyRetriever(canaries=100)
    for seed in range(20):
        random = np.random.default_rng(seed)
        deep = one.ask(random, *one.prepare(random), 20)
        found = compare_batches(cut_batch(deep, 5), deep, common_depth(k=(5, 5), fetch_k=(5, 20)))
        assert found.verdict is ComparisonVerdict.NO_DIFFERENCE_SHOWN
        assert {one.estimate.difference for one in found.decisions} == {0.0}


# Estimates


def test_there_is_no_interval_below_ten_pairs_and_no_p_value_either() -> None:
    found = estimate("R@5", np.ones(FEWEST_PAIRS - 1), np.zeros(FEWEST_PAIRS - 1))
    assert (found.pairs, found.difference, found.low, found.high, found.p) == (9, -1.0, None, None, None)
    assert not found.excludes_zero


def test_where_all_pairs_differ_by_the_same_the_p_value_alone_decides() -> None:
    found = estimate("R@5", np.ones(20), np.zeros(20))
    assert (found.low, found.high) == (None, None), "there is nothing to resample"
    assert found.p == pytest.approx(1e-4)
    assert (found.lower, found.upper, found.excludes_zero) == (-1.0, -1.0, True)
    same = estimate("R@5", np.ones(20), np.ones(20))
    assert (same.low, same.p, same.excludes_zero) == (None, 1.0, False)


def test_the_same_scores_summed_in_another_order_do_not_differ() -> None:
    scores = np.random.default_rng(1).random(50)
    found = estimate("NDCG@10", scores, scores + 1e-16)
    assert (found.difference, found.p, found.excludes_zero) == (0.0, 1.0, False)


def test_a_measure_that_one_run_lacks_is_not_estimated_and_equal_columns_share_one_estimate() -> None:
    a = {"R@5": np.linspace(0, 1, 12), "Hit@5": np.linspace(0, 1, 12), "P@5": np.ones(12)}
    found = estimate_all(["R@5", "Hit@5", "P@5"], a, {"R@5": np.ones(12), "Hit@5": np.ones(12)})
    assert set(found) == {"R@5", "Hit@5"}
    assert replace(found["Hit@5"], measure="R@5") == found["R@5"]


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        estimate("R@5", [0.1, 0.2], [0.1])


# Claims


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_that_of_the_literature(p_values: list[float]) -> None:
    """By its definition: in ascending order, each times the number of those not smaller, and never below the last."""
    ordered = sorted(p_values)
    stepped = [min(1.0, (len(ordered) - rank) * p) for rank, p in enumerate(ordered)]
    expected = {p: max(stepped[: rank + 1]) for rank, p in enumerate(ordered)}
    corrected = holm(p_values)
    assert corrected == pytest.approx([max(expected[p], 0) for p in p_values])
    assert all(one >= p for one, p in zip(corrected, p_values, strict=True))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def outcome(**differences: Sequence[float] | Floats) -> ComparisonOutcome:
    """Compare by primary measures of these differences; a name is spelled `R_5` for `R@5`."""
    named = {name.replace("_", "@"): np.asarray(column, dtype=np.float64) for name, column in differences.items()}
    rows = len(next(iter(named.values())))
    zeros = {name: np.zeros(rows) for name in named}
    return compare(zeros, named, primaries=list(named), categories=())


def sloped(mean: float, spread: float, count: int = 40) -> Floats:
    """Return differences of an exact mean, evenly spread."""
    return mean + np.linspace(-spread, spread, count)


def test_an_interval_without_zero_is_not_claimed_where_the_correction_forbids() -> None:
    shaky = sloped(0.1, 0.5)
    alone = outcome(R_5=shaky)
    [decision] = alone.decisions
    assert (decision.claim, alone.verdict) == (Claim.CLAIMED, ComparisonVerdict.BETTER)
    random = np.random.default_rng(2)
    rest = [np.concatenate([column, -column]) for column in random.random((4, 20))]  # means of 0, each its own test
    among = outcome(R_5=shaky, **dict(zip(("P_5", "NDCG_10", "MRR_10", "coverage"), rest, strict=True)))
    first, *others = among.decisions
    assert first.estimate == decision.estimate
    assert first.estimate.excludes_zero
    assert first.corrected_p == pytest.approx(5 * (decision.corrected_p or 0))
    assert first.claim is Claim.NOT_AFTER_CORRECTION
    assert {one.claim for one in others} == {Claim.NOT_SHOWN}
    assert among.verdict is ComparisonVerdict.NO_DIFFERENCE_SHOWN


def test_measures_that_differ_in_proportion_are_one_test() -> None:
    """Where each canary expects one chunk, P@5 is a fifth of R@5, and coverage is R@5."""
    shaky = sloped(0.1, 0.5)
    found = outcome(R_5=shaky, P_5=shaky / 5, coverage=shaky)
    assert found.tests == 1
    assert [one.corrected_p for one in found.decisions] == [found.decisions[0].estimate.p] * 3
    assert outcome(R_5=shaky, P_5=-shaky).tests == 2, "it would be claimed in the other direction"


def test_each_verdict_follows_from_what_is_claimed() -> None:
    up, down, still = sloped(0.1, 0.1), sloped(-0.1, 0.1), np.zeros(40)
    assert outcome(R_5=up, MRR_10=still).verdict is ComparisonVerdict.BETTER
    assert outcome(R_5=down, MRR_10=still).verdict is ComparisonVerdict.WORSE
    trade = outcome(R_5=down, MRR_10=up)
    assert (trade.verdict, trade.winner) == (ComparisonVerdict.TRADE, None)
    assert [one.winner for one in trade.decisions] == [Side.A, Side.B]
    assert outcome(R_5=still).verdict is ComparisonVerdict.NO_DIFFERENCE_SHOWN
    assert outcome(R_5=up[:9]).verdict is ComparisonVerdict.TOO_FEW
    assert compare({}, {}, primaries=["R@5"], categories=()).verdict is ComparisonVerdict.TOO_FEW


def test_nothing_is_claimed_in_favour_of_a_side_that_is_self_judged_and_all_against_it() -> None:
    up, down, still = sloped(0.1, 0.1), sloped(-0.1, 0.1), np.zeros(40)

    def judged_by(*sides: Side, **differences: Floats) -> ComparisonOutcome:
        named = {name.replace("_", "@"): column for name, column in differences.items()}
        zeros = {name: np.zeros(40) for name in named}
        own = [BroughtUp(retriever=f"r{side}", side=side) for side in sides]
        return compare(zeros, named, primaries=list(named), categories=["one"] * 40, brought_up=own)

    found = judged_by(Side.B, R_5=up, MRR_10=still, NDCG_10=up)
    assert [one.claim for one in found.decisions] == [Claim.SELF_JUDGED, Claim.NOT_SHOWN, Claim.SELF_JUDGED]
    assert {one.winner for one in found.decisions} == {None}
    assert (found.verdict, found.categories[0].verdict) == (ComparisonVerdict.NO_DIFFERENCE_SHOWN,) * 2
    [caution] = found.judgments
    assert (caution.favours, caution.retriever, caution.not_claimed) == (Side.B, "rb", ("R@5", "NDCG@10"))
    against = judged_by(Side.B, R_5=down, MRR_10=still)
    assert (against.verdict, against.judgments[0].not_claimed) == (ComparisonVerdict.WORSE, ())
    assert judged_by(Side.A, R_5=up).verdict is ComparisonVerdict.BETTER
    assert judged_by(Side.A, R_5=down).verdict is ComparisonVerdict.NO_DIFFERENCE_SHOWN
    assert judged_by(Side.A, R_5=down, MRR_10=up).verdict is ComparisonVerdict.BETTER, "no trade: the loss is not shown"
    both = judged_by(Side.A, Side.B, R_5=down, MRR_10=up)
    assert both.verdict is ComparisonVerdict.NO_DIFFERENCE_SHOWN
    assert [(one.favours, one.not_claimed) for one in both.judgments] == [(Side.A, ("R@5",)), (Side.B, ("MRR@10",))]
    assert judged_by(R_5=up).judgments == ()
    other = compare(
        {"R@5": np.zeros(40)}, {"R@5": up}, primaries=["R@5"], categories=(), brought_up=[BroughtUp(retriever="rc")]
    )
    assert other.verdict is ComparisonVerdict.BETTER, "whom the judgments of a third one favour is not known"
    assert [(one.favours, one.retriever, one.not_claimed) for one in other.judgments] == [(None, "rc", ())]


def test_judgments_of_one_of_two_equal_retrievers_call_the_other_worse_and_nothing_is_claimed() -> None:
    """Each finds half of six relevant texts by itself; judged is what A finds, of 100 queries."""
    random, claims = np.random.default_rng(3), {"as if by all": 0, "self-judged": 0, "by all": 0}
    for _ in range(50):
        findable = random.random((100, 6)) < 0.6
        a, b = (findable & (random.random((100, 6)) < 0.8) for _ in range(2))
        for name, judged in (("as if by all", a), ("self-judged", a), ("by all", np.ones_like(a))):
            rows = judged.any(axis=1)
            columns = [
                {"R@5": ((one & judged).sum(axis=1) / np.maximum(judged.sum(axis=1), 1))[rows]} for one in (a, b)
            ]
            own = [BroughtUp(retriever="ra", side=Side.A)] if name == "self-judged" else []
            found = compare(*columns, primaries=["R@5"], categories=(), brought_up=own)
            claims[name] += found.winner is not None
    assert claims["as if by all"] == 50
    assert claims["self-judged"] == 0
    assert claims["by all"] <= 5


def test_beside_the_gain_of_a_top_heavy_measure_stands_what_recall_may_have_lost() -> None:
    up, wide = sloped(0.1, 0.1), sloped(0.0, 0.3)
    [caution] = outcome(MRR_10=up, R_5=wide).cautions(DEPTH)
    assert (caution.measure, caution.winner, caution.recall) == ("MRR@10", Side.B, "R@5")
    low = estimate("R@5", np.zeros(40), wide).low
    assert low is not None
    assert caution.loss == pytest.approx(-low)
    [mirrored] = outcome(MRR_10=-up, R_5=wide).cautions(DEPTH)
    assert mirrored.winner is Side.A, "the gain may be that of A"
    assert not outcome(MRR_10=up, R_5=sloped(0.0, 0.05)).cautions(DEPTH), "at most a loss of .02 is no loss"
    assert not outcome(NDCG_10=up, R_5=wide).cautions(DEPTH), "NDCG@10 sees the whole ranking"
    assert not outcome(MRR_10=sloped(0.0, 0.1), R_5=wide).cautions(DEPTH), "nothing is claimed"
    assert not outcome(MRR_10=up).cautions(DEPTH), "no recall was measured"
    [certain] = outcome(MRR_10=up, R_5=np.full(40, -0.05)).cautions(DEPTH)
    assert (certain.loss, certain.claimed) == pytest.approx((0.05, 0.05))
    assert caution.claimed is None


def test_categories_are_a_family_of_their_own_and_decide_nothing() -> None:
    weak, still = sloped(-0.16, 0.4, 20), np.zeros(60)
    column = np.concatenate([weak, still])
    rows = ["procedural"] * 20 + ["comparative"] * 55 + ["entity_centric"] * 5
    found = compare({"R@5": np.zeros(80)}, {"R@5": column}, primaries=["R@5"], categories=rows)
    alone = compare({"R@5": np.zeros(80)}, {"R@5": column}, primaries=["R@5"], categories=())
    assert found.decisions == alone.decisions
    second, third, first = found.categories
    assert (first.pairs, first.winner, first.verdict) == (20, Side.A, ComparisonVerdict.WORSE)
    assert (second.winner, second.verdict) == (None, ComparisonVerdict.NO_DIFFERENCE_SHOWN)
    assert (third.pairs, third.verdict) == (5, ComparisonVerdict.TOO_FEW)
    p = first.decisions[0].estimate.p
    assert p is not None
    assert first.decisions[0].corrected_p == pytest.approx(2 * p), "two categories have enough pairs to be tested"


def test_categories_with_the_same_differences_are_tests_of_their_own() -> None:
    column = np.concatenate([sloped(0.1, 0.4), sloped(0.1, 0.4)])
    rows = ["procedural"] * 40 + ["comparative"] * 40
    first, second = compare({"R@5": np.zeros(80)}, {"R@5": column}, primaries=["R@5"], categories=rows).categories
    assert first.decisions[0].estimate == second.decisions[0].estimate
    assert first.decisions[0].corrected_p == pytest.approx(2 * (first.decisions[0].estimate.p or 0))


def test_what_is_not_primary_is_never_claimed() -> None:
    a = {"R@5": np.zeros(40), "Hit@1": np.zeros(40)}
    found = compare(a, {"R@5": np.zeros(40), "Hit@1": np.ones(40)}, primaries=["R@5"], categories=())
    assert found.verdict is ComparisonVerdict.NO_DIFFERENCE_SHOWN
    assert [one.measure for one in found.exploratory] == ["Hit@1"]


_scores = st.lists(st.sampled_from([0.0, 0.2, 1 / 3, 0.5, 1.0]), min_size=12, max_size=12)


@settings(max_examples=60)
@given(st.lists(st.tuples(_scores, _scores), min_size=1, max_size=4))
def test_exchanging_the_sides_exchanges_the_verdict(both: list[tuple[list[float], list[float]]]) -> None:
    names = ["R@5", "MRR@10", "NDCG@10", "P@5"][: len(both)]
    a = {name: np.array(old) for name, (old, _) in zip(names, both, strict=True)}
    b = {name: np.array(new) for name, (_, new) in zip(names, both, strict=True)}
    there = compare(a, b, primaries=names, categories=())
    back = compare(b, a, primaries=names, categories=())
    mirrored = {ComparisonVerdict.BETTER: ComparisonVerdict.WORSE, ComparisonVerdict.WORSE: ComparisonVerdict.BETTER}
    assert back.verdict == mirrored.get(there.verdict, there.verdict)
    for one, other in zip(there.decisions, back.decisions, strict=True):
        assert one.corrected_p == other.corrected_p
        assert one.estimate.difference == pytest.approx(-(other.estimate.difference or 0.0))
        if one.claim is Claim.CLAIMED:
            assert one.estimate.excludes_zero
            assert one.corrected_p is not None
            assert one.corrected_p <= 0.05


_EQUALS = {"noisy": NoisyRetriever(canaries=30), "nearly steady": NoisyRetriever(canaries=30, grades=(1,), noise=0.05)}
_PAIRS = 200


@pytest.fixture(scope="module")
def of_equals() -> dict[str, list[ComparisonOutcome]]:
    """Compare retrievers with themselves."""
    return {name: list(outcomes(one, one, pairs=_PAIRS, seed=14)) for name, one in _EQUALS.items()}


def test_equals_are_said_to_differ_in_at_most_six_of_a_hundred_comparisons(
    of_equals: dict[str, list[ComparisonOutcome]],
) -> None:
    """The small form of benchmarks/comparing.py. Without the correction it is several times as often."""
    for name, found in of_equals.items():
        assert sum(bool(one.claimed) for one in found) <= 0.06 * _PAIRS, name
        claimed = [one.verdict is not ComparisonVerdict.NO_DIFFERENCE_SHOWN for one in found]
        assert [bool(one.claimed) for one in found] == claimed, name


def test_without_the_correction_more_would_be_claimed_than_is_promised(
    of_equals: dict[str, list[ComparisonOutcome]],
) -> None:
    excluding = sum(any(one.estimate.excludes_zero for one in each.decisions) for each in of_equals["noisy"])
    assert excluding > 0.06 * _PAIRS


def test_a_retriever_that_lost_a_fifth_of_the_chunks_is_said_to_be_worse() -> None:
    one = NoisyRetriever(canaries=100)
    found = outcomes(one, replace(one, loss=0.2), pairs=20, seed=1)
    assert [each.verdict for each in found] == [ComparisonVerdict.WORSE] * 20


def test_the_p_value_of_a_decision_agrees_with_that_of_scipy() -> None:
    differences = np.random.default_rng(3).normal(0.1, 0.4, 60)
    found = estimate("R@5", np.zeros(60), differences).p
    theirs = stats.permutation_test(
        (differences, np.zeros(60)), lambda a, b: float(np.mean(a - b)), permutation_type="samples",
        n_resamples=20_000, rng=np.random.default_rng(5),
    ).pvalue  # fmt: skip
    assert found == pytest.approx(theirs, abs=0.01)
