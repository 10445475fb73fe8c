"""Segments: what the words of a query, its traffic and its first hit suggest."""

from datetime import UTC, datetime, timedelta

import pytest

from app.base.values import Segment
from app.traffic.domain import guess_segments, is_negative_candidate

NOW = datetime(2026, 11, 23, tzinfo=UTC)
ORDINARY = "how do I rotate an API key"


@pytest.mark.parametrize(
    ("query", "segment"),
    [
        ("pricing", Segment.EDGE),
        ("key rotation", Segment.EDGE),
        (" ".join(["word"] * 31), Segment.EDGE),
        ("difference between the free plan and the team plan", Segment.CHALLENGING),
        ("is parquet faster than csv for exports", Segment.CHALLENGING),
        ("how do I export data and what does it cost", Segment.CHALLENGING),
        ("Can I export? Does it cost anything?", Segment.CHALLENGING),
        ("what happens to my jobs if the worker restarts", Segment.CHALLENGING),
        ("what changed in the latest release notes", Segment.TEMPORAL),
        ("export limits since January 2026", Segment.TEMPORAL),
        ("how many jobs ran last month overall", Segment.TEMPORAL),
    ],
)
def test_words_of_a_query_suggest_its_segment(query: str, segment: Segment) -> None:
    assert segment in guess_segments(query)


def test_a_first_hit_of_low_relevance_is_an_edge_case() -> None:
    assert guess_segments(ORDINARY, top_score=0.49) == (Segment.EDGE,)
    assert guess_segments(ORDINARY, top_score=0.5) == ()
    assert is_negative_candidate(0.49)
    assert not is_negative_candidate(0.5)
    assert not is_negative_candidate(None)


def test_a_query_new_in_an_older_log_is_temporal() -> None:
    def guess(days: int) -> tuple[Segment, ...]:
        seen, start = NOW - timedelta(days=days), NOW - timedelta(days=60)
        return guess_segments(ORDINARY, first_seen=seen, log_start=start, log_end=NOW)

    assert guess(13) == (Segment.TEMPORAL,)
    assert guess(15) == ()


def test_in_a_log_of_few_days_nothing_is_new() -> None:
    days = NOW - timedelta(days=13)
    assert guess_segments(ORDINARY, first_seen=NOW, log_start=days, log_end=NOW) == ()
