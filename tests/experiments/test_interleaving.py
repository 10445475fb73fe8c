"""Team-draft interleaving: what it promises of the merged list, credit of clicks, and its estimate."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.comparison.domain.outcomes import Side
from app.experiments.domain.experiments import Preferences, estimate_preference, interleave, radius

RANKINGS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@given(RANKINGS, RANKINGS, st.text(alphabet="xyz", max_size=4))
def test_teams_stay_even_and_each_contributes_its_best_in_order(a: list[str], b: list[str], unit: str) -> None:
    merged = interleave("search", 1, unit, a, b)
    names = [hit.id for hit in merged]
    assert len(set(names)) == len(names) == max(len(a), len(b))
    for place, hit in enumerate(merged):
        before = set(names[:place])
        if hit.team is not None:
            own = a if hit.team is Side.A else b
            assert hit.id == next(one for one in own if one not in before)
        teams = [one.team for one in merged[: place + 1]]
        assert abs(teams.count(Side.A) - teams.count(Side.B)) <= 1


def test_either_ranking_begins_for_about_half_of_the_units() -> None:
    first = [interleave("search", 1, f"user-{n}", ["x"], ["y"])[0].team for n in range(2_000)]
    assert first.count(Side.A) == pytest.approx(1_000, abs=100)


def test_the_estimate_is_that_of_one_sample_with_the_radius_of_experiments() -> None:
    found = estimate_preference(Preferences(a=40, b=160))
    assert found is not None
    variance = (40 * (-1 - 0.6) ** 2 + 160 * (1 - 0.6) ** 2) / 199
    assert found.value == pytest.approx(0.6)
    assert found.high - found.value == pytest.approx(radius(variance, 200))
    assert math.isclose(found.value - found.low, found.high - found.value)
    assert found.low > 0


def test_fewer_than_30_units_for_either_ranking_show_nothing() -> None:
    assert estimate_preference(Preferences(a=29, b=900)) is None
    assert estimate_preference(Preferences(a=30, b=900)) is not None
