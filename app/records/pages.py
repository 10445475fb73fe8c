"""Layout of a canary's state history as a band: position, width and state of each segment."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from app.base.texts import outcome_word
from app.base.values import Verdict
from app.records.domain import CanaryState
from app.reports.service.canary_views import FailedRuns

_LEAST = 1.2
_FOR_ALL = 50.0
"""Percent of the width: the minimum of a segment, and the most that all minimums may take."""
_WIDE = 11.0
"""Percent from which a segment has room for its label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandSegment:
    """A period in which the state of a canary did not change."""

    verdict: str
    reasons: Sequence[str]
    start: datetime
    end: datetime
    open: bool
    """Whether it lasts until now."""
    run: str
    """The run it began with."""
    x: str
    width: str
    """Percent, as SVG takes it."""
    middle: str
    wide: bool


def layout_band(states: Sequence[CanaryState], gaps: Sequence[FailedRuns], now: datetime) -> list[BandSegment]:
    """Return the segments, oldest first, of states (newest first) and of the failed runs between them.

    Longer segments are wider, though not in proportion, so that the shortest can be pressed. States whose runs were
    deleted by retention are left out.
    """
    periods = _cut(_spans(states, now), _unknown(gaps, now))
    if not periods:
        return []
    whole = sum((period.end - period.start).total_seconds() for period in periods) or 1.0
    least = min(_LEAST, _FOR_ALL / len(periods))
    rest = 100.0 - least * len(periods)
    stretches, x = list[BandSegment](), 0.0
    for period in periods:
        width = least + rest * (period.end - period.start).total_seconds() / whole
        stretches.append(
            BandSegment(
                verdict=period.verdict,
                reasons=period.reasons,
                start=period.start,
                end=period.end,
                open=period.end == now,
                run=period.run,
                x=f"{x:.2f}%",
                width=f"{max(width - _SEAM, 0.1):.2f}%",
                middle=f"{x + width / 2:.2f}%",
                wide=width >= _WIDE,
            )
        )
        x += width
    return stretches


_SEAM = 0.15
"""Percent left free between two segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Period:
    verdict: str
    reasons: Sequence[str]
    start: datetime
    end: datetime
    run: str


def _spans(states: Sequence[CanaryState], now: datetime) -> list[_Period]:
    """Return the periods of states, each until the next begins."""
    periods: list[_Period] = []
    end = now
    for state in states:
        if state["from"] is None:
            break
        start = min(datetime.fromisoformat(state["from"]), end)
        verdict, reasons, run = state["verdict"], state["reasons"], state["first_run"]
        periods.append(_Period(verdict=verdict, reasons=reasons, start=start, end=end, run=run))
        end = start
    return periods[::-1]


def _unknown(gaps: Sequence[FailedRuns], now: datetime) -> list[_Period]:
    return [
        _Period(
            verdict=str(Verdict.UNKNOWN),
            reasons=[outcome_word(gap.outcome)],
            start=datetime.fromisoformat(gap.since),
            end=now if gap.until is None else datetime.fromisoformat(gap.until),
            run=gap.first_run,
        )
        for gap in gaps
    ]


def _cut(periods: Sequence[_Period], gaps: Sequence[_Period]) -> list[_Period]:
    """Return the periods with gaps cut out, and the gaps in their places."""
    periods_left = list(periods)
    for gap in gaps:
        periods_left = [
            part
            for period in periods_left
            for part in (
                _between(period, period.start, min(period.end, gap.start)),
                _between(period, max(period.start, gap.end), period.end),
            )
            if part is not None
        ]
    return sorted([*periods_left, *gaps], key=lambda period: period.start)


def _between(period: _Period, start: datetime, end: datetime) -> _Period | None:
    """Return the part of a period between two times; None where there is none."""
    return replace(period, start=start, end=end) if start < end else None
