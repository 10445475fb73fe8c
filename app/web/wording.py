"""Numbers, times and reasons as pages say them. An absent measurement is a dash, never a zero."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from app.domain.model import Reason

ABSENT = "\N{EN DASH}"
SPARK_WIDTH, SPARK_HEIGHT = 120, 28
_MILLISECONDS_BELOW = 1.0


def score(value: float | None) -> str:
    """Write a share or a score with three digits: 0.974."""
    return ABSENT if value is None else f"{value:.3f}"


def seconds(value: float | None) -> str:
    """Write a duration: 12 ms, 1.50 s."""
    if value is None:
        return ABSENT
    return f"{value * 1000:.0f} ms" if value < _MILLISECONDS_BELOW else f"{value:.2f} s"


def spoken(word: str) -> str:
    """Write one of our own words for people: `simple_factual` as simple factual."""
    return word.replace("_", " ")


def utc(moment: datetime | str | None) -> str:
    """Write a time for a page without scripts: 2026-01-31 12:00:05 UTC."""
    parsed = _moment(moment)
    return ABSENT if parsed is None else f"{parsed:%Y-%m-%d %H:%M:%S} UTC"


def iso(moment: datetime | str | None) -> str:
    """Write a time for a machine."""
    parsed = _moment(moment)
    return "" if parsed is None else parsed.isoformat().replace("+00:00", "Z")


def bound(sides: Mapping[str, float] | None) -> str:
    """Write the bound of a rule: below 0.9."""
    return " or ".join(f"{side} {value:g}" for side, value in (sides or {}).items()) or ABSENT


def spark_points(values: Sequence[float | None]) -> list[str]:
    """Draw values of 0 to 1 as lines, one per stretch without a gap: the points of SVG polylines.

    The scale runs from 0.5, or lower where a value is, to 1: what goes wrong first is seen first.
    """
    known = [value for value in values if value is not None]
    least = min([0.5, *known])
    step = (SPARK_WIDTH - 4) / max(len(values) - 1, 1)
    lines: list[list[str]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            lines.append([])
            continue
        height = (SPARK_HEIGHT - 6) * (1 - (value - least) / ((1 - least) or 1))
        lines[-1].append(f"{2 + place * step:.1f},{3 + height:.1f}")
    # A single point is drawn as a short stroke, a polyline of one point not at all.
    return [" ".join(line if len(line) > 1 else [*line, *line]) for line in lines if line]


def first_expected(result: Mapping[str, Any]) -> int | None:
    """Give the rank at which a result's first expected chunk stands."""
    return next((hit["rank"] for hit in result["ranking"] if hit["grade"] is not None and hit["grade"] >= 1), None)


def why_degraded(result: Mapping[str, Any], asked: Mapping[str, Any], k: int) -> list[str]:
    """Say why a result is degraded, each reason with the numbers it rests on."""
    return [_reason(Reason(reason), result, asked, k) for reason in result["reasons"]]


def _reason(reason: Reason, result: Mapping[str, Any], asked: Mapping[str, Any], k: int) -> str:
    top = score(result["top_score"])
    match reason:
        case Reason.LOW_RELEVANCE:
            return f"top score {top} is below its minimum {asked['min_relevance_score']:g}"
        case Reason.MISSING:
            rank = first_expected(result)
            return f"no expected chunk in the top {k}" + (f", the first is at rank {rank}" if rank else "")
        case Reason.BELOW_FLOOR:
            return _floors(result["measures"], asked.get("floors") or {})
        case Reason.FORBIDDEN:
            return "a chunk that must not be returned was returned"
        case Reason.ANSWERED:
            return f"answered with top score {top} though no good answer exists (at most {_most(asked)})"
        case Reason.REGRESSED:
            return "worse than in its baseline"


def _floors(measures: Mapping[str, float | None], floors: Mapping[str, float]) -> str:
    missed = [
        f"{name} {score(value)} is below its floor {floor:g}"
        for name, floor in floors.items()
        if (value := measures.get(name)) is not None and value < floor
    ]
    return ", ".join(missed) or "a measure is below its floor"


def _most(asked: Mapping[str, Any]) -> str:
    return f"{asked['max_relevance_score']:g}"


def _moment(moment: datetime | str | None) -> datetime | None:
    if moment is None:
        return None
    return (datetime.fromisoformat(moment) if isinstance(moment, str) else moment).astimezone(UTC)
