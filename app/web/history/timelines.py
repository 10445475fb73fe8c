"""The states of a canary as a band over time: where each stretch begins, how wide it is drawn, and what it says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.domain.model import Verdict
from app.domain.probing.probe_failures import outcome_word
from app.services.history.canary_views import FailedRuns

_LEAST = 1.2
_FOR_ALL = 50.0
"""Percent of the width: what the shortest stretch gets, unless there are so many that half of it would go on that."""
_WIDE = 11.0
"""Percent from which on a stretch has room for its word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time in which a canary stayed as it was."""

    verdict: str
    reasons: Sequence[str]
    start: datetime
    end: datetime
    open: bool
    """It lasts until now."""
    run: str
    """The run it began with."""
    x: str
    width: str
    """Percent, as SVG takes it."""
    middle: str
    wide: bool


def band(states: Sequence[Mapping[str, Any]], gaps: Sequence[FailedRuns], now: datetime) -> list[Stretch]:
    """Lay out states, newest first, with the runs that measured nothing cut out of them; oldest first.

    Longer stretches are wider, though not in proportion: the shortest can still be seen and pressed. States whose runs
    are forgotten, so that nobody knows when they were, are left out.
    """
    pieces = _cut(_spans(states, now), _unknown(gaps, now))
    if not pieces:
        return []
    whole = sum((piece.end - piece.start).total_seconds() for piece in pieces) or 1.0
    least = min(_LEAST, _FOR_ALL / len(pieces))
    rest = 100.0 - least * len(pieces)
    stretches, x = list[Stretch](), 0.0
    for piece in pieces:
        width = least + rest * (piece.end - piece.start).total_seconds() / whole
        stretches.append(
            Stretch(
                verdict=piece.verdict,
                reasons=piece.reasons,
                start=piece.start,
                end=piece.end,
                open=piece.end == now,
                run=piece.run,
                x=f"{x:.2f}%",
                width=f"{max(width - _SEAM, 0.1):.2f}%",
                middle=f"{x + width / 2:.2f}%",
                wide=width >= _WIDE,
            )
        )
        x += width
    return stretches


_SEAM = 0.15
"""Percent left free between two stretches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    verdict: str
    reasons: Sequence[str]
    start: datetime
    end: datetime
    run: str


def _spans(states: Sequence[Mapping[str, Any]], now: datetime) -> list[_Piece]:
    """Let each state last until the next begins: between two runs nobody looked."""
    pieces: list[_Piece] = []
    end = now
    for state in states:
        if state["from"] is None:
            break
        start = min(datetime.fromisoformat(state["from"]), end)
        verdict, reasons, run = state["verdict"], state["reasons"], state["first_run"]
        pieces.append(_Piece(verdict=verdict, reasons=reasons, start=start, end=end, run=run))
        end = start
    return pieces[::-1]


def _unknown(gaps: Sequence[FailedRuns], now: datetime) -> list[_Piece]:
    return [
        _Piece(
            verdict=str(Verdict.UNKNOWN),
            reasons=[outcome_word(gap.outcome)],
            start=datetime.fromisoformat(gap.since),
            end=now if gap.until is None else datetime.fromisoformat(gap.until),
            run=gap.first_run,
        )
        for gap in gaps
    ]


def _cut(pieces: Sequence[_Piece], gaps: Sequence[_Piece]) -> list[_Piece]:
    """Cut the gaps out of what was known, and put them in their places."""
    kept = list(pieces)
    for gap in gaps:
        kept = [
            part
            for piece in kept
            for part in (
                _between(piece, piece.start, min(piece.end, gap.start)),
                _between(piece, max(piece.start, gap.end), piece.end),
            )
            if part is not None
        ]
    return sorted([*kept, *gaps], key=lambda piece: piece.start)


def _between(piece: _Piece, start: datetime, end: datetime) -> _Piece | None:
    """Give the part of a piece between two moments; None where there is none."""
    if start >= end:
        return None
    return _Piece(verdict=piece.verdict, reasons=piece.reasons, start=start, end=end, run=piece.run)
