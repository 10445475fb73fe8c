"""Numbers, durations, counts and names in sentences: `0.874`, `61 ms`, `42 min`, `3 canaries`; never scientific.

Two numbers that differ are written with as many digits as it takes to see it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from app.base.values import Outcome, Percentile

_DECIMALS = 3
_MOST_DECIMALS = 9
_TYPED_DECIMALS = 6
_MOST_DIGITS = 12
_LONGEST_NAME = 60
_LEAST_P = 0.001
_UNITS = (("days", 86_400, 2), ("hours", 3_600, 2), ("min", 60, 2), ("s", 1, 1), ("ms", 0.001, 0))
"""(unit, its seconds, the least amount it is used for)."""


def ratio_text(value: float, other: float | None = None) -> str:
    """Format a share or a score: `0.874`, `1.000`; with as many more digits as it takes to differ from `other`."""
    return _distinct_text(_fixed_text, value, other, _DECIMALS)


def bound_text(value: float) -> str:
    """Format a bound as it was typed: `0.9`, `1`, `0.375`; a computed one, of many digits, as a ratio."""
    return _trimmed_text(value, _TYPED_DECIMALS) if round(value, _TYPED_DECIMALS) == value else ratio_text(value)


def seconds_text(value: float, other: float | None = None) -> str:
    """Format a latency: `61 ms`, `1.31 s`; with as many digits as it takes to differ from `other`."""
    return _distinct_text(_seconds_text, value, other, 0)


def age_text(seconds: float, other: float | None = None) -> str:
    """Format an age: `800 ms`, `36 hours`, `3.2 days`; with as many digits as it takes to differ from `other`."""
    return _distinct_text(_age_text, seconds, other, 2, _MOST_DIGITS)


def percent_text(share: float) -> str:
    """Format a share: `87 %`; one above 0 is never written as 0 %."""
    text = f"{100 * share:.0f} %"
    return "under 1 %" if text == "0 %" and share > 0 else text


def p_text(p: float) -> str:
    """Format a p value: `0.031`, `under 0.001`."""
    return ratio_text(p) if p >= _LEAST_P else f"under {_LEAST_P}"


def change_text(value: float) -> str:
    """Format a difference with its sign: `+0.030`, `-0.140`, `0.000`."""
    text = ratio_text(value)
    return f"+{text}" if value > 0 and float(text) else text


def duration_text(span: timedelta) -> str:
    """Format a duration: `40 s`, `42 min`, `3 h 5 min`, `2 d 4 h`; at least one second."""
    seconds = max(int(span.total_seconds()), 1)
    if seconds < _MINUTE:
        return f"{seconds} s"
    minutes = (seconds + _MINUTE // 2) // _MINUTE
    days, hours = divmod(minutes // 60, 24)
    parts = [(days, "d"), (hours, "h"), (minutes % 60, "min")]
    return " ".join([f"{count} {unit}" for count, unit in parts if count][:2])


def short_name(name: str, longest: int = _LONGEST_NAME) -> str:
    """Return a name on one line, cut to `longest` characters."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in name).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}\u2026"


def _distinct_text(
    write: Callable[[float, int], str], value: float, other: float | None, least: int, most: int = _MOST_DECIMALS
) -> str:
    """Format a number with at least `least` digits, and with as many more as it takes to differ from another."""
    for digits in range(least, most):
        text = write(value, digits)
        if other is None or value == other or text != write(other, digits):
            return text
    return write(value, most)


def _fixed_text(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if not text.strip("-0.") else text


def _trimmed_text(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    if decimals:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _age_text(seconds: float, digits: int) -> str:
    unit, amount = next((unit, seconds / size) for unit, size, least in _UNITS if seconds >= least * size)
    return f"{amount:.{max(digits, len(str(int(amount))))}g} {unit}"


def _seconds_text(value: float, decimals: int) -> str:
    if value < 1:
        return f"{_trimmed_text(value * 1000, decimals)} ms"
    return f"{_trimmed_text(value, decimals + 2)} s"


LATENCY_NAMES: Final[Mapping[Percentile, str]] = {
    Percentile.P50: "median latency",
    Percentile.P95: "p95 latency",
    Percentile.MAX: "longest latency",
}
_MINUTE = 60


def named_text(names: Sequence[str], most: int = 5) -> str:
    """First of many names, and how many there are beside: `a, b and 1,203 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 canary`, `2 canaries`, `1,200 runs`; the noun is given in the singular."""
    return f"{count:,} {plural(count, noun)}"


def plural(count: int, noun: str) -> str:
    """Return the form of a noun after a count: `run` after 1, else `runs`."""
    if count == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"


def outcome_word(outcome: str) -> str:
    """Name of an outcome on pages: `error response`, `timeout`."""
    return "error response" if outcome == Outcome.REFUSED else outcome.replace("_", " ")
