"""Drawing of answers to label."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answers.domain.trust import JudgedAnswer, draw_answers, pool_answers

HOUR = 3_600_000_000


def answer(canary: int, at: int) -> JudgedAnswer:
    return JudgedAnswer(id=f"{canary}-{at}", canary=f"c{canary}", at=at)


answers = st.lists(st.builds(answer, st.integers(0, 8), st.integers(0, 10 * HOUR)), unique_by=lambda each: each.id)


@given(answers, st.integers(0, 99), st.integers(0, 30))
def test_one_answer_of_each_canary_and_window_is_drawn(
    given_answers: list[JudgedAnswer], seed: int, count: int
) -> None:
    labelled, rest = draw_answers(given_answers, count, window=HOUR, seed=seed)
    places = [(each.canary, each.at // HOUR) for each in (*labelled, *rest)]
    assert len(set(places)) == len(places)
    assert set(places) == {(each.canary, each.at // HOUR) for each in given_answers}
    assert len(labelled) == min(count, len(places))


@given(answers, st.integers(0, 99), st.randoms(use_true_random=False))
def test_the_draw_does_not_depend_on_the_order_of_the_answers(
    given_answers: list[JudgedAnswer], seed: int, shuffler: random.Random
) -> None:
    shuffled = list(given_answers)
    shuffler.shuffle(shuffled)
    assert pool_answers(shuffled, window=HOUR, seed=seed) == pool_answers(given_answers, window=HOUR, seed=seed)


@given(answers, st.integers(0, 20), st.integers(0, 20))
def test_a_larger_draw_contains_the_smaller(given_answers: list[JudgedAnswer], one: int, other: int) -> None:
    small, large = sorted((one, other))
    first, _ = draw_answers(given_answers, small, window=HOUR, seed=1)
    second, _ = draw_answers(given_answers, large, window=HOUR, seed=1)
    assert second[: len(first)] == first


def test_canaries_with_many_answers_are_drawn_no_more_often_than_others() -> None:
    busy = [answer(0, minute * HOUR // 60) for minute in range(60)]
    given_answers = [*busy, *(answer(number, 0) for number in range(1, 10))]
    firsts = [pool_answers(given_answers, window=HOUR, seed=seed)[0].canary for seed in range(2_000)]
    assert 150 < firsts.count("c0") < 250  # one canary of ten


def test_each_answer_of_a_window_is_as_likely() -> None:
    given_answers = [answer(0, number) for number in range(10)]
    drawn = [pool_answers(given_answers, window=HOUR, seed=seed)[0].at for seed in range(2_000)]
    assert all(140 < drawn.count(number) < 260 for number in range(10))


def test_impossible_draws_are_refused() -> None:
    with pytest.raises(ValueError, match="window"):
        pool_answers([], window=0, seed=1)
    with pytest.raises(ValueError, match="cannot be drawn"):
        draw_answers([], -1, window=HOUR, seed=1)
