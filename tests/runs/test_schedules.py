"""Schedules: the same instants on every replica, over restarts, weekends and clock changes."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.base.schedules import (
    Schedule,
    cron_preview,
    cron_words,
    interval_seconds,
    last_due,
    next_due,
    parse_schedule,
    run_patience,
    spread,
)

BERLIN = "Europe/Berlin"
TROLL = "Antarctica/Troll"  # its clock jumps by two hours
CRONS = ["*/5 * * * *", "30 2 * * *", "0,30 1-3 * * *", "0 9 * * 1-5", "*/20 2 * * *", "15 */3 * * *", "0 0 1 * 0"]
ZONES = ["UTC", BERLIN, TROLL, "Australia/Lord_Howe", "America/New_York"]
CHANGES = [
    (BERLIN, "2026-03-29T01:00"),
    (BERLIN, "2026-10-25T01:00"),
    (TROLL, "2026-03-29T01:00"),
    (TROLL, "2026-10-25T01:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
]
MOMENTS = st.datetimes(datetime(2025, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - Hypothesis adds the zone


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def named(value: int, field: str) -> bool:
    """Say by brute force whether a number is among those a cron field names."""
    if field.startswith("*"):
        return value % int(field.removeprefix("*").removeprefix("/") or 1) == 0
    bounds = [part.split("-") for part in field.split(",")]
    return any(int(bound[0]) <= value <= int(bound[-1]) for bound in bounds)


def shows(wall: datetime, cron: str) -> bool:
    minutes, hours = cron.split()[:2]
    return named(wall.minute, minutes) and named(wall.hour, hours)


def comes_late(instant: datetime, zone: str, cron: str) -> bool:
    """Say whether the cron names a time that the clock jumped over in the three hours before."""
    wall, earlier = instant.astimezone(ZoneInfo(zone)), (instant - timedelta(hours=3)).astimezone(ZoneInfo(zone))
    now, before = wall.utcoffset(), earlier.utcoffset()
    assert now is not None
    assert before is not None
    return now > before and shows(wall.replace(tzinfo=None) - (now - before), cron)


def instants(schedule: Schedule, after: str, count: int) -> list[str]:
    moment, found = at(after), []
    for _ in range(count):
        moment = next_due(schedule, moment)
        found.append(f"{moment:%Y-%m-%d %H:%M}")
    return found


@pytest.mark.parametrize(
    ("every", "seconds"),
    [("30s", 30), ("5m", 300), ("1h", 3600), ("1d", 86_400), ("1h30m", 5400), (" 90s ", 90), (45, 45)],
)
def test_a_duration_is_read_in_seconds(every: str | int, seconds: int) -> None:
    assert parse_schedule(every=every) == Schedule(every_seconds=seconds)


@pytest.mark.parametrize("every", ["", "5", "5x", "m5", "-5m", "1.5h", "5m 3s", "0s", 0, -1, True, "400d", "\u0665m"])
def test_what_is_no_duration_is_refused_in_a_sentence(every: str | int) -> None:
    with pytest.raises(ValueError, match=r"`.*` is not .*\.$"):
        parse_schedule(every=every)


def test_intervals_count_from_the_epoch_not_from_the_start_of_a_process() -> None:
    schedule = parse_schedule(every="5m")
    assert instants(schedule, "2026-05-04T10:02:17", 2) == ["2026-05-04 10:05", "2026-05-04 10:10"]
    assert next_due(schedule, at("2026-05-04T10:05:00")) == at("2026-05-04T10:10:00")


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("0", "Sun"),
        ("7", "Sun"),
        ("sun", "Sun"),
        ("1-5", "Mon Tue Wed Thu Fri"),
        ("MON-FRI", "Mon Tue Wed Thu Fri"),
        ("5-7", "Fri Sat Sun"),
        ("fri-mon", "Mon Fri Sat Sun"),
        ("0-6", "Mon Tue Wed Thu Fri Sat Sun"),
        ("*/2", "Tue Thu Sat Sun"),
        ("1-5/2", "Mon Wed Fri"),
        ("3/2", "Wed Fri"),
        ("0,3", "Wed Sun"),
    ],
)
def test_weekdays_are_numbered_as_in_crontab(field: str, days: str) -> None:
    schedule = parse_schedule(cron=f"0 12 * * {field}")
    week = [at("2026-05-04T00:00") + timedelta(days=day) for day in range(7)]
    assert [f"{day:%a}" for day in week if next_due(schedule, day) - day < timedelta(days=1)] == days.split()


def test_of_a_day_of_the_month_and_a_weekday_either_suffices() -> None:
    schedule = parse_schedule(cron="0 0 13 * 5")
    assert instants(schedule, "2026-05-07T00:00", 3) == ["2026-05-08 00:00", "2026-05-13 00:00", "2026-05-15 00:00"]


@pytest.mark.parametrize(
    ("cron", "complaint"),
    [
        ("", "has 0 fields instead of five"),
        ("* * * *", "has 4 fields instead of five"),
        ("61 * * * *", "cannot be read"),
        ("*/0 * * * *", "cannot be read"),
        ("x * * * *", "cannot be read"),
        ("* * * * 8", "`8` is not a weekday"),
        ("* * * * mo", "`mo` is not a weekday"),
        ("* * * * 1,", "`` is not a weekday"),
        ("* * * * */0", "step of `\\*/0` is zero"),
        ("0 0 31 2 *", "never comes due"),
    ],
)
def test_a_bad_cron_is_refused_in_a_sentence(cron: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_schedule(cron=cron)


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "Europe", "/etc/localtime"])
def test_an_unknown_zone_is_refused_in_a_sentence(zone: str) -> None:
    with pytest.raises(ValueError, match=r"There is no time zone"):
        parse_schedule(cron="* * * * *", timezone=zone)


def test_a_schedule_is_one_thing_or_the_other() -> None:
    with pytest.raises(ValueError, match="either"):
        parse_schedule()
    with pytest.raises(ValueError, match="either"):
        parse_schedule(every="5m", cron="* * * * *")
    with pytest.raises(ValueError, match="belongs to a cron"):
        parse_schedule(every="5m", timezone=BERLIN)


@pytest.mark.parametrize(
    ("zone", "cron", "after", "expected"),
    [
        # Berlin skips 02:00-03:00 on 29 March 2026 (at 01:00 UTC) ...
        (BERLIN, "30 2 * * *", "2026-03-28T12:00", ["2026-03-29 01:30", "2026-03-30 00:30"]),
        (BERLIN, "0 0 * * *", "2026-03-28T23:00", ["2026-03-29 22:00", "2026-03-30 22:00"]),
        (BERLIN, "*/30 2 * * *", "2026-03-28T12:00", ["2026-03-29 01:00", "2026-03-29 01:30", "2026-03-30 00:00"]),
        (BERLIN, "0 2,3 * * *", "2026-03-28T12:00", ["2026-03-29 01:00", "2026-03-30 00:00"]),
        (BERLIN, "0 * * * *", "2026-03-28T23:30", ["2026-03-29 00:00", "2026-03-29 01:00", "2026-03-29 02:00"]),
        # ... and repeats 02:00-03:00 on 25 October 2026.
        (BERLIN, "30 2 * * *", "2026-10-24T12:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
        (BERLIN, "30 2 * * *", "2026-10-25T00:45", ["2026-10-26 01:30"]),
        (BERLIN, "30 2 * * sun", "2026-10-24T12:00", ["2026-10-25 00:30", "2026-11-01 01:30"]),
        (BERLIN, "0,30 2-3 * * *", "2026-10-25T00:15", ["2026-10-25 00:30", "2026-10-25 02:00", "2026-10-25 02:30"]),
        (BERLIN, "*/30 2 * * *", "2026-10-25T00:15", ["2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30"]),
        (BERLIN, "0 * * * *", "2026-10-24T23:30", ["2026-10-25 00:00", "2026-10-25 01:00", "2026-10-25 02:00"]),
        # Troll skips two hours, 01:00-03:00, and repeats them in autumn.
        (TROLL, "30 1 * * *", "2026-03-28T12:00", ["2026-03-29 01:30", "2026-03-29 23:30"]),
        (TROLL, "30 2 * * *", "2026-03-28T12:00", ["2026-03-29 02:30", "2026-03-30 00:30"]),
        (TROLL, "30 2 * * *", "2026-10-24T12:00", ["2026-10-25 00:30", "2026-10-26 02:30"]),
    ],
)
def test_a_clock_change_loses_no_day_and_moves_no_other(zone: str, cron: str, after: str, expected: list[str]) -> None:
    assert instants(parse_schedule(cron=cron, timezone=zone), after, len(expected)) == expected


@settings(deadline=None, max_examples=60)
@given(
    cron=st.sampled_from(["*/20 * * * *", "30 2 * * *", "0 0 * * *", "15,45 0-3 * * *", "50 1,3 * * *"]),
    change=st.sampled_from(CHANGES),
    hours=st.integers(-30, 30),
)
def test_around_a_clock_change_the_instants_are_those_a_wall_clock_shows(
    cron: str, change: tuple[str, str], hours: int
) -> None:
    zone, moment = change
    schedule = parse_schedule(cron=cron, timezone=zone)
    start = at(moment) + timedelta(hours=hours)
    end = start + timedelta(hours=30)
    found, due = set(), start
    while (due := next_due(schedule, due)) <= end:
        found.add(due)
    minutes = (start + timedelta(minutes=passed) for passed in range(1, 30 * 60 + 1))
    shown = {minute for minute in minutes if shows(minute.astimezone(ZoneInfo(zone)), cron)}
    if not cron.startswith("*"):  # times of a day: the first of two alike
        shown = {minute for minute in shown if not minute.astimezone(ZoneInfo(zone)).fold}
    assert shown <= found
    assert all(comes_late(instant, zone, cron) for instant in found - shown)


def test_an_interval_ignores_clock_changes() -> None:
    found = instants(parse_schedule(every="1h"), "2026-03-28T23:30", 3)
    assert found == ["2026-03-29 00:00", "2026-03-29 01:00", "2026-03-29 02:00"]


@settings(deadline=None, max_examples=200)
@given(cron=st.sampled_from(CRONS), zone=st.sampled_from(ZONES), moment=MOMENTS)
def test_instants_only_move_forward_and_match_the_wall_clock(cron: str, zone: str, moment: datetime) -> None:
    schedule = parse_schedule(cron=cron, timezone=zone)
    due = [moment]
    for _ in range(20):
        due.append(next_due(schedule, due[-1]))
    assert all(later > earlier for earlier, later in pairwise(due))
    assert {instant.second for instant in due[1:]} == {0}
    assert {instant.utcoffset() for instant in due[1:]} == {timedelta()}
    # From anywhere before an instant, the same instant comes next: no replica can compute another one.
    assert all(next_due(schedule, earlier + (later - earlier) / 3) == later for earlier, later in pairwise(due))


@settings(deadline=None, max_examples=100)
@given(
    schedule=st.one_of(
        st.builds(
            lambda cron, zone: Schedule(cron=cron, timezone=zone), st.sampled_from(CRONS), st.sampled_from(ZONES)
        ),
        st.builds(lambda seconds: Schedule(every_seconds=seconds), st.sampled_from([1800, 3600, 5400, 86_400])),
    ),
    now=MOMENTS,
    missed=st.timedeltas(timedelta(0), timedelta(hours=30)),
)
def test_the_last_due_instant_is_the_one_a_patient_walk_ends_on(
    schedule: Schedule, now: datetime, missed: timedelta
) -> None:
    walked, step = None, next_due(schedule, now - missed)
    while step <= now:
        walked, step = step, next_due(schedule, step)
    assert last_due(schedule, now, now - missed) == walked


def test_a_rare_cron_is_found_over_years() -> None:
    schedule = parse_schedule(cron="0 0 29 2 *")
    assert last_due(schedule, at("2027-06-01T00:00"), at("2020-01-01T00:00")) == at("2024-02-29T00:00")
    assert interval_seconds(schedule, at("2027-06-01T00:00")) == 1461 * 86_400


def test_the_interval_is_the_gap_around_now() -> None:
    assert interval_seconds(parse_schedule(every="5m"), at("2026-05-04T10:00")) == 300
    weekdays = parse_schedule(cron="0 9 * * 1-5")
    assert interval_seconds(weekdays, at("2026-05-06T12:00")) == 86_400
    assert interval_seconds(weekdays, at("2026-05-08T09:00")) == 3 * 86_400
    assert interval_seconds(weekdays, at("2026-05-10T12:00")) == 3 * 86_400


@settings(deadline=None)
@given(slug=st.from_regex(r"[a-z0-9-]{1,64}", fullmatch=True), every=st.integers(1, 200_000))
def test_the_spread_is_steady_and_short(slug: str, every: int) -> None:
    schedule = Schedule(every_seconds=every)
    offset = spread(slug, schedule)
    assert offset == spread(slug, schedule)
    assert timedelta(0) <= offset < timedelta(seconds=min(every, 60) / 2)


def test_the_spread_tells_checks_apart() -> None:
    schedule = parse_schedule(cron="* * * * *")
    offsets = [spread(f"check-{number}", schedule) for number in range(200)]
    assert len(set(offsets)) == 200
    assert min(offsets) < timedelta(seconds=3)
    assert timedelta(seconds=27) < max(offsets) < timedelta(seconds=30)


def test_the_spread_survives_releases() -> None:
    assert spread("dataforge-docs", Schedule(every_seconds=300)) == timedelta(microseconds=477_759)


@pytest.mark.parametrize(("interval", "patience"), [(60.0, 90.0), (300.0, 270.0), (86_400.0, 300.0)])
def test_a_run_is_patient_for_less_than_the_interval_of_its_check(interval: float, patience: float) -> None:
    assert run_patience(interval) == pytest.approx(patience)


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 2 * * *", "every day at 02:00"),
        ("0 8,20 * * 1-5", "Monday to Friday at 08:00 and 20:00"),
        ("0 8 * jan-mar,12 MON", "every Monday in January to March and December at 08:00"),
        ("0 2 * * fri-mon", "Friday to Monday at 02:00"),
        ("0 2 * * 0,3", "every Wednesday and Sunday at 02:00"),
        ("0 2 * * 0-7", "every day at 02:00"),
        ("0 2 1,last * *", "on day 1 and the last day of the month at 02:00"),
        # Of a date and a weekday either suffices ...
        ("0 2 1,15 * mon", "on day 1 and 15 of the month and every Monday at 02:00"),
        ("0 2 1 * 0-6", "every day at 02:00"),
        # ... unless one of them begins with a star.
        ("0 2 */10 * mon", "on day 1, 11, 21 and 31 of the month, only Monday, at 02:00"),
        ("* * * * *", "every minute"),
        ("*/5 8-18 * * mon-fri", "every 5 minutes from 08:00 to 18:55, Monday to Friday"),
        ("5,10-12 * * * *", "5 and 10 to 12 minutes past every hour"),
        ("1 * * * *", "1 minute past every hour"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
        ("0 */3 * * *", "every 3 hours"),
        ("0 */5 * * *", "every day at 00:00, 05:00, 10:00, 15:00 and 20:00"),
        ("*/30 1,3,5,9 * * *", "every 30 minutes within the hours 1, 3, 5 and 9"),
    ],
)
def test_a_cron_is_said_in_words(cron: str, words: str) -> None:
    assert cron_words(parse_schedule(cron=cron, timezone=BERLIN)) == f"{words} (Europe/Berlin)"


def test_the_words_of_a_cron_come_with_its_next_three_dates_on_the_clock_of_its_zone() -> None:
    now = at("2026-10-24T10:00")
    assert cron_preview("30 2 * * *", BERLIN, now) == (
        "every day at 02:30 (Europe/Berlin); next: Sun 25 Oct 02:30, Mon 26 Oct 02:30, Tue 27 Oct 02:30"
    )
    assert cron_preview("0 0 1 1,12 *", " ", now).endswith(
        "Tue 1 Dec 00:00, Fri 1 Jan 2027 00:00, Wed 1 Dec 2027 00:00"
    )
    with pytest.raises(ValueError, match=r"There is no time zone `Mars`"):
        cron_preview("* * * * *", "Mars", now)


@pytest.mark.parametrize("cron", ["0 0 29 2 */7", "59 23 31 12 */7", "0 0 last 2 */3", "*/59 */23 */30 */11 */6"])
def test_words_of_a_rare_cron_name_dates_that_come(cron: str) -> None:
    schedule, due = parse_schedule(cron=cron), at("2026-01-01")
    text = cron_preview(cron, "UTC", due)
    for _ in range(3):
        due = next_due(schedule, due)
        assert f"{due:%a} {due.day} {due:%b}" in text
