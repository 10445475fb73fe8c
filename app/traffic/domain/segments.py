"""Segments of canaries: how often and how hard users ask such a question, guessed from the words of a query."""

import re
from datetime import datetime, timedelta
from typing import Final

from app.base.values import Segment

_FEWEST_WORDS: Final = 3
_MOST_WORDS: Final = 30
_LOW_RELEVANCE: Final = 0.5
_NEW: Final = timedelta(days=14)
_MONTHS = "january|february|march|april|june|july|august|september|october|november|december"
_DATE_WORDS = re.compile(
    rf"\b(?:(?:19|20)\d\d|\d{{4}}-\d\d(?:-\d\d)?|q[1-4]|{_MONTHS}|today|yesterday|tomorrow|tonight|now|currently|current"
    r"|latest|newest|recent|recently|deadline|(?:this|last|next) (?:day|week|weekend|month|quarter|year|season))\b"
)
_COMPARISON_WORDS = re.compile(
    r"\b(?:vs|versus|compare|compared|comparison|differ|differs|difference|differences|different from|better|worse"
    r"|rather than|instead of|pros and cons|advantages|disadvantages|(?:more|less|faster|slower|cheaper|larger|smaller"
    r"|higher|lower|fewer) than)\b"
)
_TWO_CLAUSES = re.compile(
    r"\?.+\?|\b(?:and|but|or) (?:what|how|why|when|where|who|which|whether|can|does|do|is|are|should)\b"
    r"|\w (?:if|when|while|because|although|unless|after|before|without) \w+ \w+"
)


def is_negative_candidate(top_score: float | None) -> bool:
    """Whether the first hit is of so low relevance that there may be no answer; False where none was measured."""
    return top_score is not None and top_score < _LOW_RELEVANCE


def guess_segments(
    query: str,
    *,
    in_head: bool = False,
    first_seen: datetime | None = None,
    log_start: datetime | None = None,
    log_end: datetime | None = None,
    top_score: float | None = None,
) -> tuple[Segment, ...]:
    """Segments that a query may belong to; guesses, for a person to confirm.

    Frequent: in the head of the traffic. Edge: at most two or over 30 words, or relevance of the first hit below 0.5,
    which makes it a candidate for a negative canary. Challenging: words of comparison, or two clauses. Temporal: words
    of dates, or first seen within the last 14 days of a log that began before them.
    """
    words, text = len(query.split()), query.casefold()
    new = (
        first_seen is not None
        and log_start is not None
        and log_end is not None
        and log_start < log_end - _NEW <= first_seen
    )
    found = {
        Segment.FREQUENT: in_head,
        Segment.EDGE: words < _FEWEST_WORDS or words > _MOST_WORDS or is_negative_candidate(top_score),
        Segment.CHALLENGING: bool(_COMPARISON_WORDS.search(text) or _TWO_CLAUSES.search(text)),
        Segment.TEMPORAL: new or bool(_DATE_WORDS.search(text)),
    }
    return tuple(segment for segment, guessed in found.items() if guessed)
