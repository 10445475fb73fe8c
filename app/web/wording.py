"""Numbers and times as pages say them; an absent measurement is a dash, never a zero. Why is for `explanations`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from app.domain.model import Category

ABSENT = "\N{EN DASH}"
SPARK_WIDTH, SPARK_HEIGHT = 120, 28
_MILLISECONDS_BELOW = 1.0
_NAMES = ("health_score", "degraded_share", "answered_ratio", "duplicate_ratio", "top_score", *Category)
_OURS = re.compile(rf"\b(?:{'|'.join(_NAMES)})\b")
_LABELS = {"duplicate_ratio": "duplicate ids"}
"""What is not said by its own words: near copies under ids of their own are no duplicates of this measure."""
_GROUPED = re.compile(r"\b(category|tag|document):(?=\S)")
_WHOLE_FROM, _POWERS_FROM = 100.0, 1e6


def score(value: float | None) -> str:
    """Write a share or a score with three digits: 0.974."""
    return ABSENT if value is None else f"{value:.3f}"


def evidence(value: float | None) -> str:
    """Write the evidence of a detector, which grows without bound: 0.34, 1,250, 3.2e+14."""
    if value is None:
        return ABSENT
    return f"{value:.2f}" if value < _WHOLE_FROM else f"{value:,.0f}" if value < _POWERS_FROM else f"{value:.1e}"


def seconds(value: float | None) -> str:
    """Write a duration: 12 ms, 1.50 s."""
    if value is None:
        return ABSENT
    return f"{value * 1000:.0f} ms" if value < _MILLISECONDS_BELOW else f"{value:.2f} s"


def spoken(word: str) -> str:
    """Write one of our own words for people: `simple_factual` as simple factual."""
    return _LABELS.get(word) or word.replace("_", " ")


def plainly(sentence: str) -> str:
    """Write the names of measures, categories and groups inside a sentence of ours for people: health_score, tag:legal.

    Only names of ours are touched; what people named themselves stays as they wrote it.
    """
    return _OURS.sub(lambda found: spoken(found[0]), _GROUPED.sub(r"\1 ", sentence))


def brief(sentence: str) -> str:
    """Give the first clause of a sentence of ours; what follows a semicolon is said where there is room for it."""
    return sentence.partition("; ")[0]


def joined(sentences: Iterable[str]) -> str:
    """Put sentences without full stops behind one another, each once; after a question one begins anew."""
    told = ""
    for sentence in dict.fromkeys(one.removesuffix(".") for one in sentences):
        told += f" {capitalize_first(sentence)}" if told.endswith("?") else f"; {sentence}" if told else sentence
    return told


def capitalize_first(text: str) -> str:
    """Write the first letter large and leave the others, which may be names, as they are."""
    return text[:1].upper() + text[1:]


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


def _moment(moment: datetime | str | None) -> datetime | None:
    if moment is None:
        return None
    return (datetime.fromisoformat(moment) if isinstance(moment, str) else moment).astimezone(UTC)
