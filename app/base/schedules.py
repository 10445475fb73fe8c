"""Schedules: the instants at which a check is due, equal on every replica and after every restart.

Date arithmetic, for how long a run waits within the interval of its check, and a cron in words; the queue decides what
is due and has not run yet.
"""

import calendar
import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from app.base.texts import listed
from app.base.values import Value

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TICK: Final = timedelta(microseconds=1)
CRON_GRAIN: Final = timedelta(minutes=1)
CLOCK_CHANGE: Final = timedelta(hours=3)
"""More than any zone's clock jumps by, except for a whole day skipped at the date line."""
CLOCK_SKEW: Final = timedelta(minutes=2)
"""More than the clocks of replicas differ by."""
LONGEST_EVERY: Final = timedelta(days=366)
SPREAD_SHARE: Final = 0.5
SPREAD_WITHIN: Final = timedelta(seconds=60)
LEAST_PATIENCE_SECONDS: Final = 90.0
LONGEST_PATIENCE_SECONDS: Final = 300.0

UNIT_SECONDS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
DURATION: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
WEEKDAY_ITEM: Final = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?", re.ASCII)


class Schedule(Value):
    """Either an interval in whole seconds, anchored at the epoch, or a crontab expression in a time zone."""

    every_seconds: int | None = None
    cron: str | None = None
    timezone: str = "UTC"


def next_due(schedule: Schedule, after: datetime) -> datetime:
    """Return the first instant strictly after `after`, in UTC.

    A cron follows the wall clock of its zone: an instant inside the hour that spring skips comes that much later, one
    inside the hour that autumn repeats comes the first time only, and no other moves. A cron whose minute or hour
    begins with a star counts time and not times of a day: it goes on through the repeated hour.
    """
    if schedule.every_seconds is not None:
        every = timedelta(seconds=schedule.every_seconds)
        return EPOCH + ((after - EPOCH) // every + 1) * every
    zone = load_zone(schedule.timezone)
    minute, hour = (schedule.cron or "").split()[:2]
    repeats = "*" in (minute[0], hour[0])
    instants = (_next_instant(cron, zone, after, repeats=repeats) for cron in _crons(schedule))
    return min(instant for instant in instants if instant is not None)


def first_interval(schedule: Schedule) -> timedelta:
    """Return the time between the first two instants after the epoch: the interval, where it is always the same."""
    first = next_due(schedule, EPOCH)
    return next_due(schedule, first) - first


def run_patience(interval_seconds: float) -> float:
    """Return for how many seconds a run is patient with a retriever that accepts nothing.

    Shorter than the interval of its check, so that the run ends and says so before the check counts as overdue.
    """
    return min(max(0.9 * interval_seconds, LEAST_PATIENCE_SECONDS), LONGEST_PATIENCE_SECONDS)


def last_due(schedule: Schedule, now: datetime, not_before: datetime) -> datetime | None:
    """Return the newest instant in (`not_before`, `now`], None if there is none; older missed ones coalesce into it."""
    if schedule.every_seconds is not None:
        every = timedelta(seconds=schedule.every_seconds)
        latest = EPOCH + (now - EPOCH) // every * every
        return latest if latest > not_before else None
    reach = CRON_GRAIN
    while (newest := next_due(schedule, max(now - reach, not_before))) > now:
        if now - reach <= not_before:
            return None
        reach *= 2
    # `newest` is due; narrow down to the last one, always keeping (`quiet`, `now`] free of instants.
    quiet = now
    while (later := next_due(schedule, newest)) <= now:
        middle = newest + (quiet - newest) / 2
        instant = next_due(schedule, middle)
        if instant <= now:
            newest = instant
        else:
            newest, quiet = later, middle
    return newest


def spread(slug: str, schedule: Schedule) -> timedelta:
    """Return the delay of the check's start after an instant, so that not all checks start at once.

    The same on every replica and after every restart; less than half the interval and less than 30 s.
    It delays the start only: `scheduled_for` stays the instant itself.
    """
    within = SPREAD_WITHIN
    if schedule.every_seconds is not None:
        within = min(within, timedelta(seconds=schedule.every_seconds))
    drawn = int.from_bytes(hashlib.sha256(slug.encode()).digest()[:4]) / 2**32
    return timedelta(microseconds=int(drawn * SPREAD_SHARE * within / TICK))


def interval_seconds(schedule: Schedule, now: datetime) -> float:
    """Return the seconds between the two instants around `now`: for a weekday cron, three days on a Saturday."""
    if schedule.every_seconds is not None:
        return float(schedule.every_seconds)
    following = next_due(schedule, now)
    previous = last_due(schedule, now, now - 9 * LONGEST_EVERY) or now
    return (following - previous).total_seconds()


def credible_until(schedule: Schedule, now: datetime) -> datetime:
    """Return the latest plausible instant in a stored row: the next one due, at least two minutes from now.

    A later one was written before the clock was set back.
    """
    return max(now + CLOCK_SKEW, next_due(schedule, now))


def parse_schedule(*, every: str | int | None = None, cron: str | None = None, timezone: str | None = None) -> Schedule:
    """Return a schedule from `every` (`30s`, `5m`, `1h30m`, `1d`, whole seconds) or `cron` (five fields) and time zone.

    As in crontab, weekday 0 and 7 are Sunday, and of a day of the month and a weekday either suffices. Raises
    ValueError with a sentence for users.
    """
    if every is not None and cron is None:
        if timezone is not None:
            raise ValueError("A time zone belongs to a cron; `every` counts the same seconds everywhere.")
        return Schedule(every_seconds=_seconds(every))
    if cron is None or every is not None:
        raise ValueError("A schedule has either `every` or `cron`.")
    schedule = Schedule(cron=" ".join(cron.split()), timezone=load_zone("UTC" if timezone is None else timezone).key)
    if any(_next_wall(part, EPOCH) is None for part in _crons(schedule)):
        raise ValueError(f"The cron `{cron}` never comes due: there is no such date.")
    return schedule


def cron_preview(cron: str, timezone: str, now: datetime) -> str:
    """Return a cron in words with its next three instants: `every day at 02:00 (UTC); next: Mon 30 Nov 02:00, ...`.

    Raises ValueError with a sentence for users.
    """
    schedule = parse_schedule(cron=cron, timezone=timezone.strip() or "UTC")
    zone, instants = load_zone(schedule.timezone), [now]
    for _ in range(3):
        instants.append(next_due(schedule, instants[-1]))
    today, *walls = [instant.astimezone(zone) for instant in instants]
    dates = [
        f"{wall:%a} {wall.day} {wall:%b}{f' {wall.year}' if wall.year != today.year else ''} {wall:%H:%M}"
        for wall in walls
    ]
    return f"{cron_words(schedule)}; next: {', '.join(dates)}"


@lru_cache(maxsize=1024)
def cron_words(schedule: Schedule) -> str:
    """Return a cron in words, `every Monday at 08:00 (Europe/Berlin)`, by the values that its triggers let through."""
    triggers = _crons(schedule)
    minutes, hours, months = (_values(triggers[0], name) for name in ("minute", "hour", "month"))
    times, days = _times_words(minutes, hours), _days_words(triggers)
    if len(months) < len(calendar.month_name) - 1:
        days += f" in {_numbers(months, lambda place: calendar.month_name[place])}"
    if times.startswith("at "):
        return f"{days} {times} ({schedule.timezone})"
    return f"{times}{'' if days == _EVERY_DAY else f', {days}'} ({schedule.timezone})"


_EVERY_DAY: Final = "every day"
_MOST_TIMES: Final = 6


def _values(trigger: Any, name: str) -> set[int]:
    """Return the numbers that a field of a trigger lets through; the last day of the month is none of them."""
    field = next(one for one in trigger.fields if one.name == name)
    ranges = [one for one in field.expressions if not _is_last_day(one)]
    least, most = field.get_min(EPOCH), field.get_max(EPOCH)
    return {
        value
        for one in ranges
        for value in range(
            least if getattr(one, "first", None) is None else one.first,
            (most if getattr(one, "last", None) is None else one.last) + 1,
            one.step or 1,
        )
    }


def _times_words(minutes: Collection[int], hours: Collection[int]) -> str:
    """Return the times of a day: `at 08:00 and 20:00`, `every 5 minutes from 08:00 to 18:59`, `every 6 hours`."""
    if len(minutes) * len(hours) <= _MOST_TIMES:
        return f"at {listed([f'{hour:02}:{minute:02}' for hour in sorted(hours) for minute in sorted(minutes)])}"
    every_minutes, every_hours = _step(minutes, 60), _step(hours, 24)
    if minutes == {0}:
        often = "every hour"
    elif every_minutes:
        often = "every minute" if every_minutes == 1 else f"every {every_minutes} minutes"
    else:
        often = f"{_numbers(minutes)} {'minute' if minutes == {1} else 'minutes'} past every hour"
    if every_hours == 1:
        return often
    if every_hours and minutes == {0}:
        return f"every {every_hours} hours"
    first, last = min(hours), max(hours)
    if last - first == len(hours) - 1:
        return f"{often} from {first:02}:00 to {last:02}:{max(minutes):02}"
    return f"{often} within the hours {_numbers(hours)}"


def _is_last_day(expression: Any) -> bool:
    """Whether a part of a cron is the last day of a month."""
    return type(expression).__name__ == "LastDayOfMonthExpression"


def _step(values: Collection[int], whole: int) -> int:
    """Return the step of values that divide the whole evenly from 0 on; 0 for any others."""
    step = whole // len(values)
    return step if set(values) == set(range(0, whole, step)) else 0


def _days_words(triggers: Sequence[Any]) -> str:
    """Return the days on which any of the triggers comes due: the second, where there is one, is of weekdays."""
    days, week = _values(triggers[0], "day"), _values(triggers[-1], "day_of_week")
    of_month = [f"day {_numbers(days)}"] if days else []
    if any(_is_last_day(one) for field in triggers[0].fields for one in field.expressions):
        of_month.append("the last day")
    dates = f"on {listed(of_month)} of the month"
    all_dates, all_week = len(days) == 31, len(week) == len(WEEKDAYS)  # noqa: PLR2004 - days of a month
    if len(triggers) > 1:
        return _EVERY_DAY if all_dates or all_week else f"{dates} and {_week_words(week)}"
    if all_dates:
        return _EVERY_DAY if all_week else _week_words(week)
    return dates if all_week else f"{dates}, only {_week_words(week).removeprefix('every ')},"


def _week_words(week: Collection[int]) -> str:
    """Return some days of a week, of which Monday is 0: `every Monday and Friday`, `Friday to Monday`."""
    starts = [place for place in week if (place - 1) % 7 not in week]
    if len(starts) == 1 and len(week) > 2:  # noqa: PLR2004 - two are a pair and no range
        return f"{calendar.day_name[starts[0]]} to {calendar.day_name[(starts[0] + len(week) - 1) % 7]}"
    return f"every {listed([calendar.day_name[place] for place in sorted(week)])}"


def _numbers(values: Collection[int], name: Callable[[int], str] = str) -> str:
    """Return numbers as a list in which three or more in a row are a range: `1, 8 to 12 and 31`."""
    parts: list[str] = []
    for first in sorted(one for one in values if one - 1 not in values):
        last = next(one for one in range(first, max(values) + 1) if one + 1 not in values)
        inside = [name(one) for one in range(first, last + 1)]
        parts += [f"{inside[0]} to {inside[-1]}"] if len(inside) > 2 else inside  # noqa: PLR2004 - two are no range
    return listed(parts)


def _seconds(every: str | int) -> int:
    """Return a duration in whole seconds. Raises ValueError if it is invalid, zero or longer than a year."""
    if isinstance(every, int) and not isinstance(every, bool):
        seconds = every
    else:
        match = DURATION.fullmatch(every.strip()) if isinstance(every, str) else None
        if match is None or not any(match.groups()):
            raise ValueError(f"`{every}` is not a duration; write for example 30s, 5m, 1h, 1h30m or 1d.")
        seconds = sum(int(count or 0) * size for count, size in zip(match.groups(), UNIT_SECONDS.values(), strict=True))
    if not 1 <= seconds <= LONGEST_EVERY.total_seconds():
        raise ValueError(f"`{every}` is not possible as an interval: it must be between 1 second and 366 days.")
    return seconds


@lru_cache(maxsize=1024)
def _crons(schedule: Schedule) -> tuple[Any, ...]:
    """Return the triggers of a cron expression, any of which makes it due. Raises ValueError with a sentence."""
    fields = (schedule.cron or "").split()
    if len(fields) != len(("minute", "hour", "day", "month", "weekday")):
        raise ValueError(
            f"The cron `{schedule.cron}` has {len(fields)} fields instead of five: minute hour day month weekday."
        )
    minute, hour, day, month, weekday = fields
    from apscheduler.triggers.cron import CronTrigger  # noqa: PLC0415 - intervals do without, and a gate starts sooner

    try:
        names = _weekdays(weekday)
        # Crontab's oddity: of two day fields either suffices, unless one of them starts with a star.
        days = [(day, names)] if "*" in (day[0], weekday[0]) else [(day, "*"), ("*", names)]
        return tuple(
            CronTrigger.from_crontab(f"{minute} {hour} {one} {month} {other}", timezone=UTC) for one, other in days
        )
    except ValueError as error:
        raise ValueError(f"The cron `{schedule.cron}` cannot be read: {error}.") from error


def _weekdays(field: str) -> str:
    """Return crontab weekdays (0 and 7 are Sunday) as names: APScheduler 3 counts from Monday (its issue 286)."""
    if field == "*":
        return field
    days: set[int] = set()
    for item in field.lower().split(","):
        match = WEEKDAY_ITEM.fullmatch(item)
        if match is None:
            raise ValueError(f"`{item}` is not a weekday")
        first, last = (None if match[part] is None else _weekday(match[part]) for part in ("first", "last"))
        step = int(match["step"] or 1)
        if step == 0:
            raise ValueError(f"the step of `{item}` is zero")
        if first is None:
            first, last = 0, 6
        elif last is None:
            last = first if match["step"] is None else 6
        elif last < first:
            last += 7  # fri-mon, sun as the end of a week
        days.update(day % 7 for day in range(first, last + 1, step))
    return ",".join(WEEKDAYS[day] for day in sorted(days))


def _weekday(text: str) -> int:
    """Return one crontab weekday as 0 (Sunday) to 7 (Sunday again)."""
    if text in WEEKDAYS:
        return WEEKDAYS.index(text)
    if text.isdigit() and int(text) <= len(WEEKDAYS):
        return int(text)
    raise ValueError(f"`{text}` is not a weekday: write 0-7 (0 and 7 are Sunday) or sun-sat")


def load_zone(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name. Raises ValueError with a sentence for users."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"There is no time zone `{name}`; write for example Europe/Berlin.") from error


def _next_instant(cron: Any, zone: ZoneInfo, after: datetime, *, repeats: bool) -> datetime | None:
    """Return the first instant of a trigger in a zone strictly after `after`, in UTC; None = there is none.

    It comes twice in an hour that autumn repeats where it `repeats`.

    The trigger computes in wall clock times written as if in UTC ("walls"), because APScheduler 3 loses a midnight
    after spring's clock change when it computes in the zone itself (its issue 606).
    """
    wall = after.astimezone(zone).replace(tzinfo=UTC, fold=0)
    ahead = _next_wall(cron, wall)
    if ahead is None:
        return None
    wall_time = _instants(ahead, zone)[0]
    if _is_steady(after, zone) and _is_steady(wall_time, zone):
        return wall_time
    # Near a clock change the order of walls is not that of instants: compare every wall within its range.
    near: list[datetime] = []
    last, step = ahead + CLOCK_CHANGE, _next_wall(cron, wall - CLOCK_CHANGE)
    while step is not None and (step <= last or not near):
        near += [instant for instant in _instants(step, zone)[: 2 if repeats else 1] if instant > after]
        step = _next_wall(cron, step)
    return min(near, default=None)


def _next_wall(cron: Any, wall: datetime) -> datetime | None:
    """Return the trigger's first wall strictly after `wall`."""
    wall_time: datetime | None = cron.get_next_fire_time(None, wall + TICK)
    return wall_time


def _instants(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Return the instants of a wall: two if autumn repeats it; if spring skips it, the one that much later."""
    first = wall.replace(tzinfo=zone).astimezone(UTC)
    second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return (first, second) if second > first else (first,)


def _is_steady(moment: datetime, zone: ZoneInfo) -> bool:
    """Whether the clock of the zone changes neither shortly before nor shortly after a moment."""
    offsets = {(moment + near).astimezone(zone).utcoffset() for near in (-CLOCK_CHANGE, timedelta(0), CLOCK_CHANGE)}
    return len(offsets) == 1
