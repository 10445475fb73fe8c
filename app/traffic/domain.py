"""Reach: the share of real traffic that canaries stand for, with its interval, and what they leave out.

A query's group is the document of its first hit. A group is covered where a canary expects it, or where a passing
canary finds it: then somebody would notice if retrieval of that document broke, once a check asks the retriever. Asking
every query would be a load test, so the most frequent are asked and the others sampled in proportion to their traffic.
First which queries are the same; guesses of segments, and views, stand at the end.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Final

import numpy as np
from typing_extensions import TypedDict

from app.base.statistics import CONFIDENCE
from app.base.texts import counted, percent_text
from app.base.values import Segment, TimeText, Value

HEAD_SHARE: Final = 0.8
"""Share of the traffic that the head holds."""
MOST_HEAD: Final = 300
"""Queries of the head that are asked, the most frequent ones."""
DRAWN: Final = 300
"""Queries drawn from the others; where there are fewer, all are asked."""
DRAWS: Final = 2_000
FINE_GROUPS: Final = 0.95
"""From this share of documents among first hits' chunks on, a document is as fine as a chunk."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def normalise_query(text: str) -> str:
    """Return a query with compatible characters, small letters and single spaces; "" for one of nothing else.

    Queries that are alike so are the same query of users.
    """
    plain = _CONTROL.sub(" ", unicodedata.normalize("NFKC", text))
    return " ".join(plain.casefold().split())


class TrafficSample(Value):
    """Queries to ask, by their places in the traffic: `head` once each, `rest` as often as drawn."""

    head: tuple[int, ...]
    rest: tuple[tuple[int, int], ...]
    """Places and how often each was drawn; where all are asked, their counts."""
    head_traffic: int
    rest_traffic: int
    whole: bool
    """Whether all of the rest is asked, so that nothing is estimated."""

    @property
    def places(self) -> tuple[int, ...]:
        """Places of all queries to ask, each once."""
        return (*self.head, *(place for place, _ in self.rest))


class Reach(Value):
    """Share of traffic whose group is covered, with its 95 % interval; None where no query was answered."""

    traffic: int
    """Queries asked by users, of which the answered ones stand for all."""
    value: float | None
    low: float | None = None
    high: float | None = None


class Suggestion(Value):
    """The most frequent query of a group that no canary stands for. It carries no expectation."""

    group: str
    query: str
    traffic: float
    """Estimated number of queries of the group."""


def head_size(counts: Sequence[int]) -> int:
    """Fewest distinct queries that hold `HEAD_SHARE` of the traffic; counts descend."""
    total = sum(counts)
    if not total:
        return 0
    return int(np.searchsorted(np.cumsum(counts), HEAD_SHARE * total - 1e-9)) + 1


def draw_sample(counts: Sequence[int], random: np.random.Generator) -> TrafficSample:
    """Draw the queries to ask from the traffic, whose counts descend. Raises ValueError where they do not."""
    if any(after > before for before, after in pairwise(counts)):
        raise ValueError("counts must descend")
    asked = min(head_size(counts), MOST_HEAD)
    rest = np.array(counts[asked:], dtype=np.int64)
    whole = len(rest) <= DRAWN
    if whole:
        drawn = [(asked + place, int(count)) for place, count in enumerate(rest)]
    else:
        times = random.multinomial(DRAWN, rest / rest.sum())
        drawn = [(asked + int(place), int(times[place])) for place in np.flatnonzero(times)]
    return TrafficSample(
        head=tuple(range(asked)),
        rest=tuple(drawn),
        head_traffic=int(sum(counts[:asked])),
        rest_traffic=int(rest.sum()),
        whole=whole,
    )


def estimate_reach(
    counts: Sequence[int], sample: TrafficSample, covered: Mapping[int, bool], *, seed: int = 0
) -> Reach:
    """Estimate reach from the queries that were answered: their places, and whether their group is covered.

    Queries without an answer are no random choice, so only the value takes the answered ones of head and draws for
    them: at the low end of the interval none of them is covered, at the high end all are (Manski's bounds). Else the
    interval is the bootstrap over draws; where all of them agree, which a bootstrap takes for certainty, its far end is
    the exact bound of a share of which none was seen. The same for the same answers and seed.
    """
    total = sample.head_traffic + sample.rest_traffic
    head = [(counts[place], covered.get(place)) for place in sample.head]
    rest = [(times, covered.get(place)) for place, times in sample.rest]
    head_weight = sample.head_traffic if any(is_covered is not None for _, is_covered in head) else 0
    rest_weight = sample.rest_traffic if any(is_covered is not None for _, is_covered in rest) else 0
    if not head_weight + rest_weight:
        return Reach(traffic=total, value=None)
    head_low, head_mean, head_high = _bounded_share(head)
    low, mean, high = _bounded_share(rest)
    if rest and not sample.whole:
        draws = sum(times for times, _ in rest)
        low, high = _sampled_interval(low, draws, seed)[0], _sampled_interval(high, draws, seed)[1]
    return Reach(
        traffic=total,
        value=(head_weight * head_mean + rest_weight * mean) / (head_weight + rest_weight),
        low=(sample.head_traffic * head_low + sample.rest_traffic * low) / total,
        high=(sample.head_traffic * head_high + sample.rest_traffic * high) / total,
    )


def _bounded_share(weighted: Sequence[tuple[int, bool | None]]) -> tuple[float, float, float]:
    """Return the covered share with none of the unanswered (None) covered, of the answered alone, and with all."""
    weight = sum(count for count, _ in weighted)
    covered = sum(count for count, is_covered in weighted if is_covered)
    unanswered = sum(count for count, is_covered in weighted if is_covered is None)
    answered = weight - unanswered
    if not weight:
        return 0.0, 0.0, 0.0
    return covered / weight, covered / answered if answered else 0.0, (covered + unanswered) / weight


def _sampled_interval(share: float, draws: int, seed: int) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    resampled = np.random.default_rng(seed).binomial(draws, share, size=DRAWS) / draws
    low, high = np.quantile(resampled, [tail, 1 - tail]).tolist()
    unseen = 1 - tail ** (1 / draws)
    return (low - unseen if share == 1 else low), (high + unseen if share == 0 else high)


class Lacking(Value):
    """What reach lacks beside answers."""

    unasked: str = ""
    """That no check asks the retriever, in words."""
    unseen: int = 0
    """Canaries that expect passages alone, which name no document, and pass in none of the runs that reach reads."""
    has_run: bool = False
    """Whether there is such a run."""
    unplaced: int = 0
    """Expected chunks that name no document either, and stand in no answer."""
    taken_up: int = 0
    """Queries that became canaries for what the sample had, by the draws of which reach is estimated."""


def reach_reason(
    failures: Sequence[str],
    *,
    answered: int,
    empty: int = 0,
    unanswered: float = 0.0,
    lacking: Lacking | None = None,
) -> str | None:
    """Say why there is no reach, what it does not stand for, or what it does not rest on; None = nothing lacks.

    `failures` are why queries got no answer, one each, with `unanswered` of the traffic; `empty` of those answered got
    one without a hit.
    """
    parts = [] if lacking is None or not answered else _lacking(lacking, has_groups=answered > empty)
    if answered and answered == empty:
        found = f"the retriever found nothing for any of {counted(answered, 'query')}"
        parts.append(f"{found}: look at it before you add canaries")
    elif failures:
        parts.append(_failed(failures, answered=answered, unanswered=unanswered))
    elif not answered:
        parts.append("no query of the sample was asked yet")
    return "; ".join(parts) or None


def _lacking(found: Lacking, *, has_groups: bool) -> list[str]:
    parts = list[str]()
    if found.unasked:
        watched = "reach is what a check of the suite would watch"
        parts.append(f"{found.unasked}, so nobody would notice if it broke: {watched}")
    if found.unplaced and has_groups:
        are, what = ("is", "its document is") if found.unplaced == 1 else ("are", "their documents are")
        chunks = counted(found.unplaced, "expected chunk")
        parts.append(f"{chunks} {are} in no answer, so {what} not known and not covered")
    if found.unseen and has_groups:
        parts.append(_unseen(found.unseen, has_run=found.has_run))
    if found.taken_up and has_groups:
        canaries = "a canary" if found.taken_up == 1 else "canaries"
        became = f"{counted(found.taken_up, 'query')} of the sample became {canaries} since it was drawn"
        parts.append(f"{became}, so that by this sample reach is too high: measure again")
    return parts


def _unseen(canaries: int, *, has_run: bool) -> str:
    """Say that canaries name no document, and that no run tells which they watch."""
    expect, them = ("canary expects", "it") if canaries == 1 else ("canaries expect", "them")
    alone = f"{canaries:,} {expect} passages alone"
    if has_run:
        passes, what = ("passes", "its document is") if canaries == 1 else ("pass", "their documents are")
        return f"{alone} and {passes} in no run, so {what} not known and not covered"
    only = "whose documents only a run tells, and no check has run yet"
    return f"{alone}, {only}: until then reach counts {them} for nothing"


def _failed(failures: Sequence[str], *, answered: int, unanswered: float) -> str:
    """Say how many queries have no answer, the commonest reason, and what reach assumes of them."""
    why, times = Counter(failures).most_common(1)[0]
    commonest = why if times == len(failures) else f"{times} of them: {why}"
    number = counted(len(failures), "query")
    if not answered:
        return f"unknown: none of {number} of the sample was answered ({commonest})"
    if len(failures) == 1:
        has, assumes, allows = "has", "it is", "it being covered or not"
    else:
        has, assumes, allows = "have", "they are", "all or none of them being covered"
    return (
        f"{number} of the sample, with {percent_text(unanswered)} of the traffic, {has} no answer ({commonest}); "
        f"reach assumes that {assumes} like the others, its interval allows for {allows}"
    )


def unanswered_share(counts: Sequence[int], sample: TrafficSample, answered: Collection[int]) -> float:
    """Estimated share of the traffic whose queries of the sample have no answer."""
    marked = {place: "." if place in answered else "" for place in sample.places}
    traffic = group_traffic(counts, sample, marked)
    return traffic.get("", 0.0) / total if (total := sum(traffic.values())) else 0.0


def group_traffic(counts: Sequence[int], sample: TrafficSample, groups: Mapping[int, str | None]) -> dict[str, float]:
    """Estimated traffic of each group, the greatest first; queries without a first hit have none."""
    draws = sum(times for _, times in sample.rest)
    each = sample.rest_traffic / draws if draws else 0.0
    traffic: dict[str, float] = {}
    weights = [(place, float(counts[place])) for place in sample.head]
    weights += [(place, times * each) for place, times in sample.rest]
    for place, weight in weights:
        group = groups.get(place)
        if group is not None:
            traffic[group] = traffic.get(group, 0.0) + weight
    return dict(sorted(traffic.items(), key=lambda item: (-item[1], item[0])))


def empty_share(counts: Sequence[int], sample: TrafficSample, groups: Mapping[int, str | None]) -> float:
    """Estimated share of the answered traffic for which the retriever found nothing; 0 where nothing was answered."""
    marked = {place: "" if group is None else "." for place, group in groups.items()}
    traffic = group_traffic(counts, sample, marked)
    return traffic.get("", 0.0) / total if (total := sum(traffic.values())) else 0.0


def suggest_queries(
    queries: Sequence[str],
    counts: Sequence[int],
    sample: TrafficSample,
    groups: Mapping[int, str | None],
    covered: AbstractSet[str],
    *,
    taken_up: AbstractSet[int] = frozenset(),
    pending: AbstractSet[int] = frozenset(),
) -> tuple[Suggestion, ...]:
    """One suggestion for each group that is not covered: its most frequent query; the most traffic first.

    A query that is `taken_up`, by place, is never suggested; while it is `pending`, since nobody has judged it yet,
    nothing of its group is.
    """
    representative: dict[str, int] = {}
    waiting = {groups.get(place) for place in pending}
    for place in sorted(sample.places, key=lambda place: (-counts[place], place)):
        group = groups.get(place)
        if group is not None and group not in waiting and place not in taken_up:
            representative.setdefault(group, place)
    return tuple(
        Suggestion(group=group, query=queries[representative[group]], traffic=traffic)
        for group, traffic in group_traffic(counts, sample, groups).items()
        if group not in covered and group in representative
    )


def are_groups_fine(hits: Iterable[tuple[str, str | None]], groups: Collection[str | None] = ()) -> bool:
    """Whether documents are as fine as chunks, so that a canary covers little more than its own chunk.

    `hits` are chunk and document of what answers hold. First hits alone cannot tell: a document may always come by the
    same chunk. `groups` are those of the asked queries, one each: where several share one and nothing but first hits is
    known, a canary may cover more.
    """
    known = list(hits)
    chunks = {chunk for chunk, _ in known}
    documents = {document or chunk for chunk, document in known}
    if 2 * len(set(groups)) < len(groups) and len(chunks) <= len(set(groups)):
        return False
    return bool(chunks) and len(documents) >= FINE_GROUPS * len(chunks)


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


class TrafficView(TypedDict):
    """Traffic of a suite with a retriever: number of distinct queries, of all, and when. Never the queries."""

    retriever: str
    distinct: int
    traffic: int
    first_seen: TimeText
    last_seen: TimeText


class ReceivedTraffic(TypedDict):
    """What became of sent traffic: distinct queries stored, how many are new, and what was left out."""

    queries: int
    new: int
    notes: list[str]


class ForgottenTraffic(TypedDict):
    """Number of distinct queries that were deleted."""

    forgotten: int


class ReachState(StrEnum):
    """State of a sample of traffic."""

    ASKING = "asking"
    ASKED = "asked"


class GroupView(TypedDict):
    """A group of queries by the document of their first hit, with its estimated traffic."""

    group: str
    traffic: float
    covered: bool


class TrafficReachView(TypedDict):
    """Share of the traffic that canaries stand for, with its 95 % interval, and the groups with most of it.

    `value` and its ends are null until queries of the sample are answered.
    """

    retriever: str
    checks: list[str]
    """Enabled checks of the suite that ask it; without one nobody would notice, and `value` is what one would watch."""
    state: ReachState
    requested_at: TimeText
    traffic: int
    distinct: int
    head: int
    """Fewest distinct queries that hold 80 % of the traffic."""
    sample: int
    asked: int
    answered: int
    value: float | None
    low: float | None
    high: float | None
    reason: str | None
    """Why there is no value, that no check asks the retriever, which queries had no answer, which canaries no run tells
    of, or how many queries became canaries since the sample was drawn; null = nothing lacks."""
    covered_groups: int
    all_groups: int
    groups: list[GroupView]
    empty: float
    """Share of the answered traffic for which the retriever found nothing: in no group, and not covered."""
    unanswered: float
    """Share of the traffic whose queries have no answer: the interval allows for all or none of it being covered."""
    taken_up: int
    """Queries of the sample that became canaries since it was drawn, for what its draws had: by them `value` is too
    high, until reach is measured again."""
    too_fine: bool
    """Whether documents are as fine as chunks: where they are parts of larger ones, a grouping should be given."""
    edited_since: bool
    """Whether the retriever was edited after the sample was drawn: what it finds by now is not known."""
    grouped_by: str | None
    """Which part of their names groups documents, in words; null = each is a group."""


class SuggestionView(TypedDict):
    """A query of users that no canary stands for. It carries no expectation; segments are guesses."""

    query: str
    group: str
    traffic: float
    segments: list[str]
    negative_candidate: bool
    """Whether its first hit is of low relevance: perhaps no answer exists, and it should be a negative canary."""
