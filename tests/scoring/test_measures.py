"""Measures: figures worked out by hand, and what is undefined, empty or short."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.base.values import Judgment, Ranking
from app.scoring.measures import CUTOFFS, Batch, Measure, compute, mean_name, measures_for, parse_measure
from app.scoring.rankings import match, prepare, rbo
from tests.support.plain_measures import plain_measure
from tests.support.published_examples import Q1, Q2, expecting
from tests.support.random_rankings import judgment_lists, ranking_of, rankings


def scores(judgments: Sequence[Judgment], ranking: Ranking, *names: str, fetch_k: int = 20) -> list[float]:
    """Score one ranking by measures given by name."""
    prepared = prepare(judgments)
    batch = Batch.of([match(prepared, ranking)], [prepared], [ranking.returned])
    return list(compute(batch, [parse_measure(name) for name in names], fetch_k)[0])


# Retrieved grades 3, 0, 1, 2 of judged grades 3, 2, 2, 1, 0.
GRADED = (
    [Judgment(id=one, grade=grade) for one, grade in zip("abcde", (3, 0, 1, 2, 2), strict=True)],
    ranking_of("abcd"),
)


def test_precision_counts_chunks_and_recall_counts_judgments() -> None:
    judgments = [Judgment(document="doc"), Judgment(id="c")]
    ranking = Ranking(
        ids=("a", "b", "x"), documents=("doc", "doc", None), texts=(None,) * 3, scores=(None,) * 3, returned=3
    )
    assert scores(judgments, ranking, "P@3", "R@3", "AP", "RR") == pytest.approx([2 / 3, 1 / 2, 1 / 2, 1])


def test_a_chunk_that_satisfies_two_judgments_leaves_recall_full_and_ndcg_below_one() -> None:
    judgments = [Judgment(id="a"), Judgment(document="doc")]
    ranking = Ranking(ids=("a",), documents=("doc",), texts=(None,), scores=(None,), returned=1)
    recall, average, ndcg = scores(judgments, ranking, "R@5", "AP", "NDCG@5")
    assert (recall, average) == (1, 1)
    assert ndcg == pytest.approx(1 / (1 + 1 / math.log2(3)))


def test_duplicates_among_returned() -> None:
    assert scores(expecting("a"), ranking_of("ab", returned=8), "duplicate_ratio") == [6 / 8]


def test_an_empty_ranking_scores_zero_everywhere() -> None:
    names = [str(measure) for measure in measures_for(CUTOFFS)]
    assert scores([Judgment(id="a", text="ash")], ranking_of(""), *names) == [0.0] * len(names)


def test_nothing_expected_is_undefined() -> None:
    names = [str(measure) for measure in measures_for(CUTOFFS)]
    for judgments in ([], [Judgment(id="a", grade=0)]):
        assert all(map(math.isnan, scores(judgments, ranking_of("ab"), *names)))


def test_a_measure_cut_above_fetch_k_is_undefined_and_the_others_are_not() -> None:
    judgments, ranking = Q1
    values = scores(judgments, ranking, "R@5", "R@10", "RR", "AP", fetch_k=5)
    assert [math.isnan(value) for value in values] == [False, True, False, False]


def test_no_canaries_make_no_scores() -> None:
    assert compute(Batch.of([], [], []), measures_for(CUTOFFS), 20).shape == (0, 58)


def test_a_batch_refuses_columns_that_are_not_parallel() -> None:
    with pytest.raises(ValueError, match="parallel"):
        Batch.of([], [prepare([])], [])


def test_scores_do_not_depend_on_where_a_canary_stands_in_a_large_batch() -> None:
    topics = [Q1, Q2, GRADED, (expecting("z"), ranking_of("")), ([], ranking_of("ab"))]
    prepared = [prepare(judgments) for judgments, _ in topics]
    matches = [match(one, ranking) for one, (_, ranking) in zip(prepared, topics, strict=True)]
    returned = [ranking.returned for _, ranking in topics]
    measures = measures_for(CUTOFFS)
    few = compute(Batch.of(matches, prepared, returned), measures, 20)
    many = compute(Batch.of(matches * 1700, prepared * 1700, returned * 1700), measures, 20)
    np.testing.assert_allclose(many, np.tile(few, (1700, 1)), rtol=0, atol=1e-12)


def chunks(*hits: tuple[str, str]) -> Ranking:
    """Make a ranking of (id, text)."""
    nothing = (None,) * len(hits)
    ids, texts = zip(*hits, strict=True)
    return Ranking(ids=ids, documents=nothing, texts=texts, scores=nothing, returned=len(hits))


def test_recall_by_id_and_by_passage_part_where_chunks_came_back_under_other_ids() -> None:
    judgments = [Judgment(id="a", text="ash"), Judgment(id="b", text="birch"), Judgment(id="c", text="cedar")]
    ranking = chunks(("new-1", "ash"), ("new-2", "birch"), ("c", "cedar"), ("a", "ash"))
    names = ("R_id@3", "R_passage@3", "R_id@5", "R_passage@5", "R_id@1", "R_passage@1")
    assert scores(judgments, ranking, *names) == pytest.approx([1 / 3, 1, 2 / 3, 1, 0, 1 / 3])


def test_recall_by_passage_counts_what_is_found_by_its_id_alone() -> None:
    judgments = [Judgment(id="a", text="ash")]
    assert scores(judgments, chunks(("a", "rewritten")), "R_id@1", "R_passage@1") == [1, 1]


def test_recall_by_id_and_by_passage_looks_only_at_judgments_with_both() -> None:
    judgments = [
        Judgment(id="a", text="ash"),
        Judgment(id="z"),
        Judgment(text="elm"),
        Judgment(id="b", text="birch", grade=0),
    ]
    assert scores(judgments, chunks(("a", "ash"), ("b", "birch")), "R_id@5", "R_passage@5", "R@5") == [1, 1, 1 / 3]


def test_recall_by_id_is_undefined_where_no_judgment_carries_both() -> None:
    both, other = [Judgment(id="a", text="ash")], [Judgment(id="a"), Judgment(text="ash")]
    prepared = [prepare(other), prepare(both), prepare(other)]
    matches = [match(one, chunks(("a", "ash"))) for one in prepared]
    measures = [Measure("R_id", 1), Measure("R_passage", 5), Measure("R", 1)]
    table = compute(Batch.of(matches, prepared, [1, 1, 1]), measures, 5)
    np.testing.assert_equal(table, [[np.nan, np.nan, 1], [1, 1, 1], [np.nan, np.nan, 1]])
    alone = compute(Batch.of(matches[:1], prepared[:1], [1]), measures, 5)
    np.testing.assert_equal(alone, [[np.nan, np.nan, 1]])


@given(judgment_lists(), rankings())
def test_no_measure_leaves_zero_to_one(judgments: list[Judgment], ranking: Ranking) -> None:
    values = scores([*judgments, Judgment(id="a", text="ash")], ranking, *map(str, measures_for(CUTOFFS)))
    assert all(0 <= value <= 1 + 1e-12 for value in values)


def test_the_full_table_names_every_measure_once() -> None:
    names = [str(measure) for measure in measures_for([10, 5, 5])]
    assert names[:9] == ["Hit@5", "P@5", "R@5", "F1@5", "RR@5", "NDCG@5", "NDCG_exp@5", "ERR@5", "Judged@5"]
    assert names[9:11] == ["R_id@5", "R_passage@5"]
    assert names[-3:] == ["RR", "AP", "duplicate_ratio"]
    assert len(names) == len(set(names)) == 25


@pytest.mark.parametrize("measure", measures_for(CUTOFFS), ids=str)
def test_a_measure_is_read_back_from_its_name_and_the_name_of_its_mean(measure: Measure) -> None:
    assert parse_measure(str(measure)) == parse_measure(mean_name(measure)) == measure


def test_the_means_of_rr_and_ap_have_names_of_their_own() -> None:
    names = [mean_name(parse_measure(name)) for name in ("RR", "RR@10", "AP", "NDCG@10", "ERR@5")]
    assert names == ["MRR", "MRR@10", "MAP", "NDCG@10", "ERR@5"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("nDCG@10", "NDCG@10"),
        ("nDCG(dcg='exp-log2')@10", "NDCG_exp@10"),
        ("Success@5", "Hit@5"),
        ("Precision@5", "P@5"),
        ("Recall@5", "R@5"),
        ("MRR@10", "RR@10"),
        ("ndcg_cut_10", "NDCG@10"),
        ("ndcg_cut.10", "NDCG@10"),
        ("P_10", "P@10"),
        ("recall_5", "R@5"),
        ("success_5", "Hit@5"),
        ("recip_rank", "RR"),
        ("map", "AP"),
        ("hit_rate@5", "Hit@5"),
        ("ndcg_burges@5", "NDCG_exp@5"),
        (" ndcg_EXP@7 ", "NDCG_exp@7"),
        ("r_passage@3", "R_passage@3"),
    ],
)
def test_spellings_of_other_tools_are_understood(text: str, name: str) -> None:
    assert str(parse_measure(text)) == name


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("NDGC@10", "did you mean NDCG@10"),
        ("recal@5", "did you mean R@5"),
        ("sucess", "did you mean Hit@10"),
        ("mapp", "did you mean AP"),
        ("R", "R needs a cut-off, for example R@10"),
        ("MAP@10", "AP takes no cut-off"),
        ("P@0", "at least 1"),
        ("P@-5", "unknown measure 'P@-5'; there are Hit@k, P@k"),
        ("", "unknown measure ''; there are Hit@k"),
        ("quality", "there are Hit@k, P@k, R@k"),
    ],
)
def test_an_unknown_measure_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        parse_measure(text)


def test_a_measure_that_does_not_exist_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="unknown measure 'Q'"):
        Measure("Q", 5)


@pytest.mark.parametrize(
    ("a", "b", "value"),
    [
        ("abc", "acd", 0.685),  # .1/.9 (1 x .9 + 1/2 x .81 + 2/3 x .729) + 2/3 x .729
        ("ab", "cd", 0.0),
        ("abc", "abc", 1.0),
        ("abc", "a", 1.0),  # agreement is taken to go on
        ("", "", 1.0),
        ("", "a", 0.0),
    ],
)
def test_rbo_by_hand(a: str, b: str, value: float) -> None:
    assert rbo(a, b) == pytest.approx(value)


def test_rbo_of_uneven_lists_by_hand() -> None:
    # Equation 32 with s = 1, l = 2, X_1 = 0, X_2 = 1: .5/.5 (1/2 x .25 + 0) + ((1 - 0)/2 + 0) x .25
    assert rbo("a", "ba", p=0.5) == pytest.approx(0.25)
    # s = 1, l = 3, X = 1, 1, 1: (.5 + .25/2 + .125/3) + (1/2 x .25 + 2/3 x .125) + .125
    assert rbo("a", "abc", p=0.5) == pytest.approx(1.0)


LISTS = st.lists(st.sampled_from("abcdefghij"), unique=True)


@given(LISTS, LISTS, st.floats(0.05, 0.99))
def test_rbo_is_symmetric_and_stays_between_zero_and_one(a: list[str], b: list[str], p: float) -> None:
    assert rbo(a, b, p) == pytest.approx(rbo(b, a, p))
    assert -1e-9 <= rbo(a, b, p) <= 1 + 1e-9


@given(st.permutations("abcde"), st.permutations("abcde"), st.floats(0.05, 0.99))
def test_rbo_of_even_lists_is_the_weighted_agreement_of_their_tops(a: list[str], b: list[str], p: float) -> None:
    agreement = [len({*a[:depth]} & {*b[:depth]}) / depth for depth in range(1, 6)]
    tops = sum(value * p**depth for depth, value in enumerate(agreement, start=1))
    assert rbo(a, b, p) == pytest.approx(agreement[-1] * p**5 + (1 - p) / p * tops)


@pytest.mark.parametrize("p", [0.0, 1.0, -1.0])
def test_rbo_refuses_a_persistence_that_is_none(p: float) -> None:
    with pytest.raises(ValueError, match="strictly between"):
        rbo("a", "a", p)


def test_measures_count_more_judgments_in_one_hit_than_a_byte_holds_beside_rankings_of_few() -> None:
    many = [Judgment(document="doc")] * 300 + [Judgment(id="b", grade=2), Judgment(document="gone")]
    few = [Judgment(id="a")]
    ranking = Ranking(
        ids=("a", "b", "c"), documents=(None, "x", "doc"), texts=(None,) * 3, scores=(None,) * 3, returned=3
    )
    measures = [measure for measure in measures_for(CUTOFFS) if not measure.name.startswith("R_")]
    ready = [prepare(many), prepare(few)]
    batch = Batch.of([match(one, ranking) for one in ready], ready, [3, 3])
    wanted = [[plain_measure(one.name, one.k, judged, ranking) for one in measures] for judged in (many, few)]
    assert compute(batch, measures, 20) == pytest.approx(np.array(wanted))
