"""Views of history: charts of a measure, and the states of a canary over time."""

from dataclasses import dataclass

from typing_extensions import TypedDict

from app.base.values import Reason, Severity, Verdict
from app.base.views import TimeText
from app.detection.domain.views import BoundLine, NormalRange
from app.records.domain.gaps import GapReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """A single run, or the mean of several with the least and the greatest value."""

    at: TimeText
    mean: float | None
    min: float | None
    max: float | None
    runs: int
    first_run: str | None
    last_run: str | None
    unknown: bool
    """Whether the verdict of the run is unknown: its value is shown, and it closes no gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMark:
    """A moment at which the index version changed."""

    at: TimeText
    index_version: str


SeriesGap = TypedDict(
    "SeriesGap",
    {
        "from": TimeText,
        "to": TimeText,
        "why": GapReason | None,
        "runs": int | None,
        "first_run": str | None,
        "last_run": str | None,
    },
)
"""A period without a measurement, with the reason where it is still known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesAlert:
    """An alert that was open within the period of a chart."""

    id: str
    rule: str
    severity: Severity
    opened_at: TimeText
    resolved_at: TimeText | None


MeasureSeries = TypedDict(
    "MeasureSeries",
    {
        "check": str,
        "measure": str,
        "category": str | None,
        "measures_version": str | None,
        "self_judged": bool | None,
        "from": TimeText,
        "to": TimeText,
        "seconds": int | None,
        "points": list[SeriesPoint],
        "marks": list[IndexMark],
        "gaps": list[SeriesGap],
        "usual": NormalRange | None,
        "lines": list[BoundLine],
        "alerts": list[SeriesAlert],
    },
)
"""A measure of a check over time; `seconds` is what a point covers, None where it is a single run.

`self_judged`: whether it is recall that is self-judged by the newest run; None = that was not carried out.
"""

CanaryState = TypedDict(
    "CanaryState",
    {
        "verdict": Verdict,
        "reasons": list[Reason],
        "first_run": str,
        "from": TimeText | None,
        "last_run": str | None,
        "until": TimeText | None,
        "top_score": float | None,
        "measures": dict[str, float | None],
        "ranking": list[str],
    },
)
"""State of a canary from one run to another; `last_run` is None while it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryHistory:
    """The states a canary of a check went through, newest first."""

    check: str
    key: str
    items: list[CanaryState]
