"""Where nothing is known there is a gap: runs that measured nothing, and runs that never came."""

from app.base.schedules import Schedule
from app.records.domain import Gap, GapReason, Span, find_gaps

MINUTE = 60_000_000
EVERY_FIVE = Schedule(every_seconds=300)


def _spans(*minutes: int, lasting: int = 0) -> list[Span]:
    return [Span(start=at * MINUTE, end=(at + lasting) * MINUTE) for at in minutes]


def _found(
    points: list[Span], *silent: tuple[int, int], schedule: Schedule = EVERY_FIVE, start: int = 0, end: int = 60
) -> list[tuple[int, int, str, tuple[int, ...]]]:
    moments = [(at * MINUTE, run) for at, run in silent]
    found: list[Gap] = find_gaps(points, moments, schedule, start=start * MINUTE, end=end * MINUTE)
    return [(gap.start // MINUTE, gap.end // MINUTE, str(gap.why), gap.runs) for gap in found]


def test_runs_that_measured_nothing_before_the_first_point_and_after_the_last_are_gaps() -> None:
    assert _found(_spans(20, 25), (5, 1), (30, 2), end=33) == [
        (0, 20, GapReason.NOT_MEASURED, (1,)),
        (25, 33, GapReason.NOT_MEASURED, (2,)),
    ]


def test_runs_that_never_came_are_a_gap_and_one_that_was_late_is_none() -> None:
    assert _found(_spans(1, 6, 11, 16, 46, 51, 56)) == [(16, 46, GapReason.NO_RUNS, ())]
    assert _found(_spans(1, 6, 11, 20, 26, 31, 36), end=38) == []


def test_since_the_last_run_nothing_is_known_once_two_are_overdue() -> None:
    assert _found(_spans(1, 6, 11, 16), end=60) == [(16, 60, GapReason.NO_RUNS, ())]
    assert _found(_spans(1, 6, 11, 16), end=24) == []


def test_a_period_that_begins_before_the_check_does_has_no_gap_there() -> None:
    assert _found(_spans(50, 55)) == []


def test_nights_without_a_scheduled_run_are_no_gap() -> None:
    office = Schedule(cron="0 8-18 * * 1-5", timezone="UTC")
    monday = 4 * 24 * 60  # the epoch was a Thursday
    hours = [monday + day * 1440 + hour * 60 for day in range(2) for hour in range(8, 19)]
    assert _found(_spans(*hours), schedule=office, start=monday, end=hours[-1] + 30) == []
    missed = [*hours[:11], *hours[15:]]
    assert [gap[:3] for gap in _found(_spans(*missed), schedule=office, start=monday, end=hours[-1] + 30)] == [
        (hours[10], hours[15], GapReason.NO_RUNS)
    ]


def test_points_of_a_time_with_another_schedule_are_no_gaps() -> None:
    hourly, often = [hour * 60 for hour in range(10)], [600 + five * 5 for five in range(20)]
    assert _found(_spans(*hourly, *often), end=700) == []
