"""Why a canary is degraded, in sentences with their numbers."""

from typing import Any

import pytest

from app.records.views import first_expected, not_returned, why_degraded


@pytest.mark.parametrize(
    ("reason", "more", "said"),
    [
        ("low_relevance", {}, "relevance 0.300 is below its minimum 0.5"),
        (
            "missing",
            {"ranking": [{"rank": 7, "grade": 2}], "missing": []},
            "no expected chunk in the top 5, the first is at rank 7",
        ),
        (
            "missing",
            {"ranking": [{"rank": 2, "grade": 2}], "missing": []},
            "the expected chunk is at rank 2, and the expected text is not in it any more",
        ),
        ("below_floor", {"measures": {"R@5": 0.5, "RR": 1.0}}, "R@5 0.500 is below its floor 0.8"),
        ("forbidden", {}, "a chunk that must not be returned was returned"),
        ("forbidden", {"forbidden_ranks": [2]}, "a chunk that must not be returned was returned at rank 2"),
        (
            "forbidden",
            {"forbidden_ranks": [1, 3, 4]},
            "a chunk that must not be returned was returned at rank 1, 3 and 4",
        ),
        ("forbidden", {"expect_empty": True, "ranking": [{}]}, "returned 1 hit where nothing may be returned"),
        ("stale", {"age_seconds": 273_600.0}, "the newest of its top 5 hits is 3.2 days old, more than 2 days"),
        ("stale", {"age_seconds": 172_801.0}, "the newest of its top 5 hits is 2.00001 days old, more than 2 days"),
        ("slow", {"latency_seconds": 1.25}, "answered in 1.2 s, more than 800 ms"),
        ("slow", {"latency_seconds": 0.8003}, "answered in 800.3 ms, more than 800 ms"),
        ("slow", {"latency_seconds": 0.0125, "max_latency_seconds": 0.001}, "answered in 12 ms, more than 1 ms"),
        ("answered", {}, "answered with relevance 0.300 though no good answer exists (at most 0.2)"),
        ("regressed", {}, "worse than in its baseline"),
    ],
)
def test_every_reason_is_said_in_words_with_its_numbers(reason: str, more: dict[str, Any], said: str) -> None:
    limits: dict[str, Any] = {
        "k": 5,
        "min_relevance_score": 0.5,
        "max_relevance_score": 0.2,
        "floors": {"R@5": 0.8, "RR": 0.5},
    }
    limits |= {"max_age_seconds": 172_800.0, "max_latency_seconds": 0.8}
    told = {"reasons": [reason], "top_score": 0.3, "ranking": [], "missing": [], "measures": {}, **limits, **more}
    assert why_degraded(told) == [said]


def test_a_missing_document_that_is_the_id_of_a_hit_is_said_to_be_one() -> None:
    hit = {"rank": 1, "id": "acct-001", "document": "Reset", "grade": None, "judgment": None}
    told = {"reasons": ["missing"], "k": 5, "ranking": [hit], "missing": [{"document": "acct-001"}]}
    wrong = "what the canary expects as a document is no document of a hit but the id of one"
    assert why_degraded(told) == [f"{wrong}, so there is no expected chunk in the top 5"]
    assert why_degraded({**told, "missing": [{"document": "acct-002"}]}) == ["no expected chunk in the top 5"]


def test_what_stands_below_the_top_k_is_not_said_to_be_missing_altogether() -> None:
    late, gone = {"id": "late", "grade": 1}, {"id": "gone", "grade": 2}
    told = {"ranking": [{"rank": 7, "grade": 1, "judgment": late}], "missing": [late, gone]}
    assert not_returned(told) == [gone]
    assert first_expected(told) == 7
