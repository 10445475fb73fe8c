"""Numbers as people read them in sentences: `0.874`, `61 ms`, `42 min`; never in scientific notation."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from app.domain.model import Percentile

_DECIMALS = 3
_MOST_DECIMALS = 9


def ratio_text(value: float, other: float | None = None) -> str:
    """Write a share or a score: `0.874`, `0.9`; with as many digits as it takes to differ from `other`."""
    for decimals in range(_DECIMALS, _MOST_DECIMALS):
        text = _trimmed(value, decimals)
        if other is None or value == other or text != _trimmed(other, decimals):
            return text
    return _trimmed(value, _MOST_DECIMALS)


def seconds_text(value: float, other: float | None = None) -> str:
    """Write a latency: `61 ms`, `1.31 s`; with as many digits as it takes to differ from `other`."""
    for decimals in range(_MOST_DECIMALS):
        text = _seconds(value, decimals)
        if other is None or value == other or text != _seconds(other, decimals):
            return text
    return _seconds(value, _MOST_DECIMALS)


def change_text(value: float) -> str:
    """Write a difference with its sign: `+0.03`, `-0.14`, `0`."""
    text = ratio_text(value)
    return f"+{text}" if value > 0 and text != "0" else text


def duration_text(span: timedelta) -> str:
    """Write how long something took: `40 s`, `42 min`, `3 h 5 min`, `2 d 4 h`; nothing is shorter than a second."""
    seconds = max(int(span.total_seconds()), 1)
    if seconds < _MINUTE:
        return f"{seconds} s"
    minutes = seconds // _MINUTE
    days, hours = divmod(minutes // 60, 24)
    parts = [(days, "d"), (hours, "h"), (minutes % 60, "min")]
    return " ".join([f"{count} {unit}" for count, unit in parts if count][:2])


def _trimmed(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    if decimals:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _seconds(value: float, decimals: int) -> str:
    if value < 1:
        return f"{_trimmed(value * 1000, decimals)} ms"
    return f"{_trimmed(value, decimals + 2)} s"


LATENCY_NAMES: Final[Mapping[Percentile, str]] = {
    Percentile.P50: "median latency",
    Percentile.P95: "p95 latency",
    Percentile.MAX: "longest latency",
}
_MINUTE = 60
