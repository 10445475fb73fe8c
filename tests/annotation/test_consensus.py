"""Consensus: medians, disputes, and the choice of overlap items."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.annotation.domain.agreement import ConsensusState, is_disputed, is_overlap, reach_consensus


@pytest.mark.parametrize(
    ("grades", "grade"), [((0, 0), 0), ((1, 2), 1), ((2, 3), 2), ((1, 2, 2), 2), ((1, 1, 2), 1), ((1, 1, 2, 2), 1)]
)
def test_consensus_is_the_median_with_halves_rounded_down(grades: tuple[int, ...], grade: int) -> None:
    found = reach_consensus(grades)
    assert (found.state, found.grade) == (ConsensusState.AGREED, grade)


@pytest.mark.parametrize("grade", [0, 2])
def test_one_person_alone_agrees_with_nobody(grade: int) -> None:
    found = reach_consensus([grade])
    assert (found.state, found.grade) == (ConsensusState.GRADED_ONCE, grade)


@pytest.mark.parametrize("grades", [(0, 1), (1, 3), (0, 0, 1), (0, 3), (1, 2, 3), (2, 2, 2, 0)])
def test_grades_on_both_sides_of_relevance_or_two_apart_are_disputed(grades: tuple[int, ...]) -> None:
    found = reach_consensus(grades)
    assert (found.state, found.grade) == (ConsensusState.DISPUTED, None)


@given(st.lists(st.integers(0, 3), max_size=5), st.integers(0, 3))
def test_an_adjudication_wins(grades: list[int], decided: int) -> None:
    found = reach_consensus(grades, adjudicated=decided)
    assert (found.state, found.grade) == (ConsensusState.ADJUDICATED, decided)


def test_an_item_without_grades_is_open() -> None:
    assert reach_consensus([]).state is ConsensusState.OPEN
    assert not is_disputed([])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_an_agreed_grade_is_never_far_from_any_grade(grades: list[int]) -> None:
    found = reach_consensus(grades)
    if found.grade is not None:
        assert all(abs(grade - found.grade) <= 1 for grade in grades)
        assert all((grade >= 1) == (found.grade >= 1) for grade in grades)


def test_the_overlap_is_about_its_share_and_always_the_same() -> None:
    items = [f"item-{number}" for number in range(5_000)]
    chosen = [item for item in items if is_overlap(item, share=0.2, seed=1)]
    assert len(chosen) == pytest.approx(1_000, abs=85)  # three standard errors
    assert chosen == [item for item in items if is_overlap(item, share=0.2, seed=1)]
    assert chosen != [item for item in items if is_overlap(item, share=0.2, seed=2)]


def test_a_larger_share_keeps_the_items_of_a_smaller_one() -> None:
    items = [f"item-{number}" for number in range(500)]
    small = {item for item in items if is_overlap(item, share=0.1, seed=0)}
    large = {item for item in items if is_overlap(item, share=0.4, seed=0)}
    assert small < large
    assert not any(is_overlap(item, share=0.0, seed=0) for item in items)
    assert all(is_overlap(item, share=1.0, seed=0) for item in items)
