"""Length bias of a judge."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answers.domain.generated import ground_answer
from app.answers.domain.trust import measure_length_bias, pad_answer


def test_the_interval_worked_by_hand() -> None:
    plain = [True] * 20 + [False] * 20
    padded = [True] * 18 + [False] * 2 + [True] * 8 + [False] * 12
    found = measure_length_bias(plain, padded)
    up, down = 9 / 42, 3 / 42
    side = 1.959964 * math.sqrt((up + down - (up - down) ** 2) / 42)
    assert (found.pairs, found.padded_only, found.plain_only) == (40, 8, 2)
    assert found.difference == pytest.approx(0.15)
    assert (found.low, found.high) == pytest.approx((up - down - side, up - down + side), abs=1e-6)
    assert not found.shown


def test_a_judge_that_loves_length_is_shown() -> None:
    found = measure_length_bias([False] * 20, [True] * 8 + [False] * 12)
    assert found.shown
    assert found.low is not None
    assert found.low > 0


def test_equal_verdicts_show_nothing_but_keep_a_width() -> None:
    found = measure_length_bias([True] * 10, [True] * 10)
    assert found.difference == 0
    assert found.low is not None
    assert found.high is not None
    assert found.low < -0.1 < 0.1 < found.high


def test_without_pairs_nothing_is_known() -> None:
    found = measure_length_bias([], [])
    assert (found.difference, found.low, found.high, found.shown) == (None, None, None, False)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=200))
def test_the_difference_lies_within_its_interval(pairs: list[tuple[bool, bool]]) -> None:
    plain, padded = zip(*pairs, strict=True)
    found = measure_length_bias(plain, padded)
    assert found.difference is not None
    assert found.low is not None
    assert found.high is not None
    assert -1 <= found.low <= found.difference <= found.high <= 1


CONTEXTS = ["A token lasts 24 hours. It is renewed by hand.", "Keys never expire. Each key may send 100 requests."]


def test_padding_adds_true_sentences_until_the_answer_is_three_times_as_long() -> None:
    padded = pad_answer("A token lasts 24 hours.", CONTEXTS)
    assert padded == "A token lasts 24 hours. It is renewed by hand. Keys never expire. Each key may send 100 requests."
    assert ground_answer(padded, CONTEXTS).grounded_share == 1


def test_padding_keeps_what_is_wrong_with_an_answer() -> None:
    padded = pad_answer("A token lasts 48 hours.", CONTEXTS)
    assert padded is not None
    assert padded.startswith("A token lasts 48 hours. A token lasts 24 hours.")


def test_padding_stays_apart_from_an_answer_that_ends_without_a_stop() -> None:
    padded = pad_answer("It lasts 24 hours", CONTEXTS)
    assert padded == "It lasts 24 hours\nA token lasts 24 hours. It is renewed by hand."


def test_what_cannot_be_padded_is_no_control() -> None:
    assert pad_answer("A token lasts 24 hours.", ["A token lasts 24 hours."]) is None
    assert pad_answer("A token lasts 24 hours.", []) is None
