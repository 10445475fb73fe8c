"""Looks at running totals: final once the window has passed, in the order of exposure, each with all before it."""

import pytest

from app.experiments.domain.experiments import (
    ArmCounts,
    bucket_of,
    bucket_us,
    count_exposed,
    count_pending,
    make_looks,
    thin_looks,
)

HOUR = 3_600_000_000
DAY = 24 * HOUR
TOTALS = [(0, 0, 10, 4), (0, 1, 12, 6), (5 * HOUR, 1, 3, 3), (40 * HOUR, 0, 7, 7)]


def counts(*pairs: tuple[int, int]) -> tuple[ArmCounts, ...]:
    return tuple(ArmCounts(units=units, successes=successes) for units, successes in pairs)


def test_units_count_once_the_window_since_their_exposure_has_passed() -> None:
    assert make_looks(TOTALS, window=DAY, now=25 * HOUR - 1) == []
    (look,) = make_looks(TOTALS, window=DAY, now=25 * HOUR)
    assert (look.at, look.counts) == (HOUR, counts((10, 4), (12, 6)))


def test_each_look_has_all_before_it() -> None:
    looks = make_looks(reversed(TOTALS), window=DAY, now=100 * HOUR)
    assert [look.at for look in looks] == [HOUR, 6 * HOUR, 41 * HOUR]
    assert [look.counts for look in looks] == [
        counts((10, 4), (12, 6)),
        counts((10, 4), (15, 9)),
        counts((17, 11), (15, 9)),
    ]


def test_exposed_units_count_at_once_for_the_check_of_shares() -> None:
    assert count_exposed(TOTALS) == (17, 15)


@pytest.mark.parametrize(
    ("now", "pending", "until"),
    [(0, 32, 65 * HOUR), (25 * HOUR, 10, 65 * HOUR), (65 * HOUR - 1, 7, 65 * HOUR), (65 * HOUR, 0, None)],
)
def test_units_that_no_look_has_yet_are_pending_until_the_last_is_final(
    now: int, pending: int, until: int | None
) -> None:
    assert count_pending(TOTALS, window=DAY, now=now) == (pending, until)
    looks = make_looks(TOTALS, window=DAY, now=now)
    counted = sum(one.units for one in looks[-1].counts) if looks else 0
    assert counted + pending == sum(count_exposed(TOTALS))


@pytest.mark.parametrize(
    ("window", "span"), [(DAY, HOUR), (6 * HOUR, HOUR), (HOUR, HOUR // 12), (HOUR // 2, HOUR // 12), (1, HOUR // 60)]
)
def test_spans_are_shorter_for_shorter_windows(window: int, span: int) -> None:
    assert bucket_us(window) == span
    assert bucket_of(7 * span + span - 1, span) == 7 * span


def test_thinned_looks_keep_the_last_one() -> None:
    looks = make_looks([(place * HOUR, 0, 1, 0) for place in range(1_001)], window=DAY, now=10_000 * HOUR)
    thinned = thin_looks(looks, 200)
    assert len(thinned) <= 200
    assert thinned[-1] == looks[-1]
    assert thin_looks(looks[:5], 200) == looks[:5]
    assert thin_looks([], 200) == []
