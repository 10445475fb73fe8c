"""Sentences on comparisons: they say what is decided, in the words of their two sides, and nothing beyond it."""

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.comparison.domain.outcomes import (
    BroughtUp,
    Claim,
    ComparisonOutcome,
    ComparisonVerdict,
    Depth,
    Exclusion,
    JudgmentsCaution,
    Side,
    compare,
)
from app.comparison.domain.sentences import (
    A_AND_B,
    BEFORE_AND_NOW,
    SideNames,
    caution_sentence,
    claim_text,
    exclusion_sentence,
    headline,
    judgments_sentence,
)

DEPTH = Depth(k=5, m=10, equal=True)


def outcome(**differences: Sequence[float]) -> ComparisonOutcome:
    """Compare by primary measures of these differences; a name is spelled `R_5` for `R@5`."""
    b = {name.replace("_", "@"): np.array(column) for name, column in differences.items()}
    a = {name: np.zeros(len(column)) for name, column in b.items()}
    return compare(a, b, primaries=list(b), categories=())


UP = [0.2, 0.0] * 20
DOWN = [-0.2, 0.0] * 20
STILL = [0.0] * 40
EVEN = [0.3, -0.3] * 20
SHAKY = [0.5, 0.5, 0.5, 0.5, 0.5, *[0.0] * 35]


@pytest.mark.parametrize(
    ("found", "names", "sentence"),
    [
        (
            outcome(NDCG_10=UP, R_5=STILL),
            A_AND_B,
            (
                "B scores better than A: NDCG@10 up 0.100 (95 % between +0.065 and +0.130), over 40 canaries; nothing "
                "is claimed of the other primary measure"
            ),
        ),
        (
            outcome(NDCG_10=DOWN),
            BEFORE_AND_NOW,
            "worse than before: NDCG@10 down 0.100 (95 % between -0.130 and -0.065), over 40 canaries",
        ),
        (
            outcome(MRR_10=UP, R_5=DOWN),
            A_AND_B,
            (
                "a trade from A to B: MRR@10 up 0.100 (95 % between +0.065 and +0.130), paid for by R@5 down 0.100 (95 "
                "% between -0.130 and -0.065), over 40 canaries"
            ),
        ),
        (
            outcome(R_5=STILL, P_5=STILL),
            A_AND_B,
            (
                "no difference shown between A and B over 40 canaries: every canary scores the same in all primary "
                "measures"
            ),
        ),
        (
            outcome(R_5=EVEN),
            BEFORE_AND_NOW,
            "no difference shown between before and now over 40 canaries: canaries differ, but no mean does",
        ),
        (
            outcome(R_5=[0.2, -0.3] * 20, P_5=[0.04, -0.04] * 20),
            A_AND_B,
            (
                "no difference shown between A and B over 40 canaries: the largest is R@5 down 0.050 (95 % between "
                "-0.131 and +0.031)"
            ),
        ),
        (
            outcome(R_5=SHAKY, P_5=EVEN),
            A_AND_B,
            (
                "no difference shown between A and B over 40 canaries: R@5 has an interval without zero, not "
                "claimed after correction for 2 tests"
            ),
        ),
        (outcome(R_5=[-1.0] * 12), A_AND_B, "B scores worse than A: R@5 down 1.000 on every canary, over 12 canaries"),
        (outcome(R_5=UP[:9]), A_AND_B, "too few canaries to tell: 9 can be compared, and it takes 10"),
        (
            compare({}, {}, primaries=["R@5"], categories=()),
            BEFORE_AND_NOW,
            "nothing to compare between before and now: no canary that expects the same was measured in both",
        ),
    ],
)
def test_each_verdict_has_its_sentence(found: ComparisonOutcome, names: SideNames, sentence: str) -> None:
    numbers = re.compile(r"(?<=between )[+-][\d.]+ and [+-][\d.]+")
    assert numbers.sub("...", headline(found, names)) == numbers.sub("...", sentence)
    for told, expected in zip(numbers.findall(headline(found, names)), numbers.findall(sentence), strict=True):
        for one, other in zip(told.split(" and "), expected.split(" and "), strict=True):
            assert float(one) == pytest.approx(float(other), abs=0.006)


def test_a_self_judged_side_is_named_with_what_is_not_claimed_of_it() -> None:
    def judged_by_b(**differences: Sequence[float]) -> ComparisonOutcome:
        b = {name.replace("_", "@"): np.array(column) for name, column in differences.items()}
        a = {name: np.zeros(len(column)) for name, column in b.items()}
        return compare(a, b, primaries=list(b), categories=(), brought_up=[BroughtUp(retriever="dense", side=Side.B)])

    found = judged_by_b(R_5=[1.0] * 12)
    assert headline(found, A_AND_B) == (
        "no difference shown between A and B over 12 canaries: R@5 up 1.000 on every canary, which may come of the "
        "judgments that dense brought up, so it is not claimed"
    )
    start = (
        "much of what is expected was brought up by dense itself, which favours B in every measure and is against A: "
        "what only A finds may never have been judged"
    )
    assert judgments_sentence(found.judgments[0], A_AND_B) == f"{start}; R@5 is higher in B, which is not claimed"
    assert judgments_sentence(judged_by_b(R_5=STILL).judgments[0], A_AND_B) == start
    third = JudgmentsCaution(favours=None, retriever="words", not_claimed=())
    assert judgments_sentence(third, A_AND_B) == (
        "much of what is expected was brought up by words alone, which is neither side: what it does not find may "
        "never have been judged, so every measure favours the side that is more like it"
    )
    assert claim_text(found.decisions[0].claim, None, names=A_AND_B) == "not claimed: self-judged"


_column = st.lists(st.sampled_from([-1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0]), min_size=14, max_size=14)


@settings(max_examples=80)
@given(columns=st.lists(_column, min_size=1, max_size=4), strong=st.booleans())
def test_a_sentence_claims_exactly_what_is_decided(columns: list[list[float]], *, strong: bool) -> None:
    names = ["R_5", "MRR_10", "NDCG_10", "P_5"]
    shifted = [[value / 4 + 0.5 for value in column] if strong and not place else column for place, column in
               enumerate(columns)]  # fmt: skip
    found = outcome(**dict(zip(names, shifted, strict=False)))
    sentence = headline(found, A_AND_B)
    head = sentence.partition("; nothing is claimed")[0]
    for one in found.decisions:
        measure = re.escape(one.estimate.measure)
        if one.winner is not None:
            way = "up" if one.winner is Side.B else "down"
            assert re.search(rf"{measure} {way} ", head)
        elif found.verdict is not ComparisonVerdict.NO_DIFFERENCE_SHOWN:
            assert not re.search(measure, sentence), "what is not claimed is not told beside what is"
    assert ("better" in head) is (found.verdict is ComparisonVerdict.BETTER)
    assert ("worse" in head) is (found.verdict is ComparisonVerdict.WORSE)
    assert ("trade" in head) is (found.verdict is ComparisonVerdict.TRADE)


def test_what_recall_may_have_lost_is_said_of_the_side_that_gains() -> None:
    wide = [0.5, -0.5] * 20
    [caution] = outcome(MRR_10=UP, R_5=wide).cautions(DEPTH)
    assert re.fullmatch(
        r"B gains in MRR@10, which the first good hit decides; its R@5 may be lower by up to 0\.1\d\d",
        caution_sentence(caution, A_AND_B),
    )
    [caution] = outcome(MRR_10=UP, R_5=[-0.05] * 40).cautions(DEPTH)
    assert caution_sentence(caution, A_AND_B).endswith("its R@5 is lower by 0.050, at worst by 0.050")
    [caution] = outcome(MRR_10=DOWN, R_5=wide).cautions(DEPTH)
    assert caution_sentence(caution, BEFORE_AND_NOW).startswith("the run before gains in MRR@10")


@pytest.mark.parametrize(
    ("reason", "keys", "names", "sentence"),
    [
        (Exclusion.ONLY_IN_A, "x", A_AND_B, "1 canary is only in A: x"),
        (Exclusion.ONLY_IN_B, "xy", BEFORE_AND_NOW, "2 canaries are only now: x, y"),
        (Exclusion.OTHER_QUERY, "x", A_AND_B, "1 canary asks something else in each: x"),
        (Exclusion.OTHER_JUDGMENTS, "xy", A_AND_B, "2 canaries expect something else in each: x, y"),
        (Exclusion.NOTHING_EXPECTED, "x", A_AND_B, "1 canary expects no chunk: x"),
        (Exclusion.NOT_MEASURED_IN_A, "xy", BEFORE_AND_NOW, "2 canaries were not measured before: x, y"),
        (Exclusion.NOT_MEASURED_IN_B, "x", A_AND_B, "1 canary was not measured in B: x"),
        (Exclusion.NOT_MEASURED, "abcdef", A_AND_B, "6 canaries were measured in neither: a, b, c, d, e, ..."),
    ],
)
def test_canaries_that_are_not_compared_are_counted_and_named(
    reason: Exclusion, keys: str, names: SideNames, sentence: str
) -> None:
    assert exclusion_sentence(reason, tuple(keys), names) == sentence


def test_a_table_says_who_is_higher_only_where_that_is_claimed() -> None:
    assert claim_text(Claim.CLAIMED, Side.B, names=A_AND_B) == "B is better"
    assert claim_text(Claim.CLAIMED, Side.A, names=BEFORE_AND_NOW) == "fell"
    assert claim_text(Claim.CLAIMED, Side.B, names=BEFORE_AND_NOW) == "rose"
    assert claim_text(Claim.NOT_AFTER_CORRECTION, None, names=A_AND_B) == "not claimed after correction"
    assert claim_text(Claim.NOT_SHOWN, None, names=A_AND_B) == "no difference shown"
    assert claim_text(Claim.TOO_FEW, None, names=A_AND_B) == "too few to tell"
    assert claim_text(None, None, names=A_AND_B) == "exploratory"
