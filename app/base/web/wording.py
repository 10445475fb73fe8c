"""Formats numbers, times and names for pages; an absent measurement is a dash, never a zero."""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

from markupsafe import Markup, escape

from app.base.values import Category, marked_name

ABSENT = "\N{EN DASH}"
SPARK_WIDTH, SPARK_HEIGHT = 120, 28
_MILLISECONDS_BELOW = 1.0
_NAMES = ("health_score", "degraded_share", "answered_ratio", "duplicate_ratio", "top_score", *Category)
_OURS = re.compile(rf"\b(?:{'|'.join(_NAMES)})\b")
_LABELS = {"duplicate_ratio": "duplicate ids", "utilisation": "lexical grounding"}
"""Labels that differ from the name: near copies with other ids are no duplicates; what a model used nobody sees."""
_GROUPED = re.compile(r"\b(category|tag|document):(?=\S)")
_UTC_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d(?::\d\d)?) UTC")
_WHOLE_FROM, _POWERS_FROM = 100.0, 1e6


def score(value: float | None) -> str:
    """Format a share or a score with three digits: 0.974."""
    return ABSENT if value is None else f"{value:.3f}"


def evidence(value: float | None) -> str:
    """Format the evidence of a detector, which grows without bound: 0.34, 1,250, 3.2e+14."""
    if value is None:
        return ABSENT
    return f"{value:.2f}" if value < _WHOLE_FROM else f"{value:,.0f}" if value < _POWERS_FROM else f"{value:.1e}"


def seconds(value: float | None) -> str:
    """Format a duration: 12 ms, 1.50 s."""
    if value is None:
        return ABSENT
    return f"{value * 1000:.0f} ms" if value < _MILLISECONDS_BELOW else f"{value:.2f} s"


def spoken(word: str, confirmed: Collection[str] = ()) -> str:
    """Return one of our names as words: `simple_factual` as simple factual.

    What a judge says is marked as uncalibrated, unless it is among the measures that people `confirmed` of it.
    """
    return _LABELS.get(word) or marked_name(word, confirmed).replace("_", " ")


def plainly(sentence: str) -> str:
    """Return one of our sentences with names of measures, categories and groups as words: health_score, tag:legal.

    Names given by users stay unchanged.
    """
    return _OURS.sub(lambda found: spoken(found[0]), _GROUPED.sub(r"\1 ", sentence))


def brief(sentence: str) -> str:
    """Return the first clause of one of our sentences, up to the semicolon."""
    return sentence.partition("; ")[0]


def joined(sentences: Iterable[str]) -> str:
    """Return sentences without full stops joined by semicolons, each once; after a question mark by a space."""
    text = ""
    for sentence in dict.fromkeys(one.removesuffix(".") for one in sentences):
        text += f" {capitalize_first(sentence)}" if text.endswith("?") else f"; {sentence}" if text else sentence
    return text


def capitalize_first(text: str) -> str:
    """Return a text with its first letter in upper case, unless it begins with the name of a field."""
    return text if "_" in text.partition(" ")[0] else text[:1].upper() + text[1:]


def utc(moment: datetime | str | None) -> str:
    """Format a time for a page without scripts: 2026-01-31 12:00:05 UTC."""
    parsed = _moment(moment)
    return ABSENT if parsed is None else f"{parsed:%Y-%m-%d %H:%M:%S} UTC"


def iso(moment: datetime | str | None) -> str:
    """Format a time as RFC 3339."""
    parsed = _moment(moment)
    return "" if parsed is None else parsed.isoformat().replace("+00:00", "Z")


def timed(text: str) -> Markup:
    """Return a text in which each time in UTC with its date is an element that scripts show in the viewer's zone."""
    pieces: list[Markup] = []
    end = 0
    for found in _UTC_TIME.finditer(text):
        style = "minute" if found[2].count(":") == 1 else "clock"
        element = Markup('<time datetime="{}T{}Z" data-when="{}">{}</time>').format(*found.groups(), style, found[0])
        pieces += [escape(text[end : found.start()]), element]
        end = found.end()
    return Markup("").join([*pieces, escape(text[end:])])


def spark_points(values: Sequence[float | None]) -> list[str]:
    """Return the points of SVG polylines for values of 0 to 1, one per period without a gap.

    The scale runs from 0.5, or the lowest value below it, to 1.
    """
    present = [value for value in values if value is not None]
    least = min([0.5, *present])
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
