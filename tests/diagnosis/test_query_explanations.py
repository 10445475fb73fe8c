"""What is said of each hit and each expected chunk of one query, whatever the canary expects or forbids."""

from typing import Any

import pytest

from app.base.values import Canary, Category, Judgment, Ranking, Reason
from app.diagnosis.domain.query_explanations import (
    NEAR_MISS,
    Earlier,
    Explained,
    explain_expected,
    explain_hits,
    needs_deeper,
    score_gaps,
    verdict_sentences,
)
from app.records.views import result_shape
from app.scoring.rankings import match, prepare
from tests.support.fakes import answered

LOGS = "Logs are kept for 30 days in the hot tier and then for a year in the archive."


def ranking(*hits: tuple[Any, ...]) -> Ranking:
    """Make a ranking of (id, document, text, score)."""
    ids, documents, texts, scores = zip(*hits, strict=True) if hits else ((), (), (), ())
    return Ranking(ids=ids, documents=documents, texts=texts, scores=scores, returned=len(hits))


def explained(
    canary: Canary, answer: Ranking, *, reasons: tuple[Reason, ...] = (), k: int = 2, **more: Any
) -> Explained:
    prepared = prepare(canary.judgments)
    result = result_shape(
        canary,
        answered(answer),
        ranking=answer,
        prepared=prepared,
        match=match(prepared, answer),
        reasons=reasons,
        top_score=0.9,
        k=k,
    )
    return Explained(canary=canary, k=k, result=result, ranking=answer, **more)


def why(one: Explained) -> list[str]:
    return [hit["why"] for hit in explain_hits(one)]


def canary(*judgments: Judgment, **more: Any) -> Canary:
    return Canary(key="c", query="?", judgments=judgments, **more)


def test_a_hit_says_by_which_of_its_names_it_was_recognised_and_where_it_came_already() -> None:
    expecting = canary(
        Judgment(id="a"), Judgment(document="d.md"), Judgment(text=LOGS, grade=3), Judgment(id="bad", grade=0)
    )
    answer = ranking(
        ("a", None, None, 0.9),
        ("b", "d.md", None, 0.8),
        ("c", "d.md", None, 0.7),
        ("d", None, LOGS, 0.6),
        ("e", None, f"First this. {LOGS} And that.", 0.5),
        ("bad", None, "x", 0.4),
        ("f", None, None, 0.3),
    )
    assert why(explained(expecting, answer)) == [
        "expected by its id",
        "expected by its document d.md",
        "expected by its document d.md, as rank 2 did already",
        "expected by its text, which is equal",
        "expected: holds the passage (100 % of its words in threes), as rank 4 did already",
        "known to be irrelevant: judged by its id",
        "not expected by name, and has no text to compare",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LOGS.replace("30", "14"), "near miss: 81 % of the expected text; lacks “30”"),
        ("Logs are kept for 30 days in the hot tier only.", "near miss: 50 % of the expected text; lacks"),
        ("Audit events are kept in the archive.", "not expected"),
    ],
)
def test_a_hit_that_holds_a_part_says_how_much_and_what_it_lacks(text: str, said: str) -> None:
    (hit,) = explain_hits(explained(canary(Judgment(text=LOGS)), ranking(("x", None, text, 0.9))))
    assert hit["why"].startswith(said)
    assert (hit["share"] or 0) >= NEAR_MISS or said == "not expected"


def test_of_a_query_that_may_find_nothing_every_hit_is_wrong_and_of_a_negative_one_its_relevance() -> None:
    answer = ranking(("a", None, None, 0.9))
    empty = explained(canary(expect_empty=True), answer, reasons=(Reason.FORBIDDEN,))
    assert why(empty) == ["must not be returned: nothing may be"]
    assert explain_hits(empty)[0]["forbidden"]
    negative = canary(category=Category.NEGATIVE, max_relevance_score=0.95)
    one = explained(negative, answer)
    assert verdict_sentences(negative, one.result) == [
        "no good answer exists, and none looks good: relevance 0.900 is below 0.95"
    ]
    assert explain_expected(one) == []
    assert not needs_deeper(negative, answer)


def test_a_name_in_the_wrong_field_is_told() -> None:
    one = explained(canary(Judgment(id="d.md")), ranking(("a", "d.md", None, 0.9)), reasons=(Reason.MISSING,))
    (chunk,) = explain_expected(one)
    assert chunk["why"] == (
        "not the one hit; what the canary expects as a chunk id is no id of a hit but the document of one"
    )


def test_texts_that_no_mapping_reads_cannot_be_recognised() -> None:
    one = explained(canary(Judgment(text=LOGS)), ranking(("a", None, None, 0.9)), has_texts=False)
    assert explain_expected(one)[0]["why"] == "cannot be recognised: the retriever's response maps no text"


def test_a_chunk_under_another_name_is_found_by_the_text_that_it_had() -> None:
    before = Earlier(ranking=ranking(("old", None, LOGS, 0.9)), source="report", at=None, verdict=None)
    answer = ranking(("a", None, "Something else entirely, of no use.", 0.9), ("new", None, LOGS, 0.8))
    (chunk,) = explain_expected(explained(canary(Judgment(id="old")), answer, before=before))
    assert chunk["nearest"] == {"rank": 2, "id": "new", "share": 1.0, "lacking": []}
    assert (chunk["rank"], chunk["rank_before"]) == (None, 1)


def test_gaps_are_those_of_scores_that_are_there_and_say_how_far_an_expected_chunk_is_from_counting() -> None:
    answer = ranking(
        ("a", None, None, 0.9),
        ("b", None, None, 0.5),
        ("c", None, None, None),
        ("d", None, None, 0.4),
        ("e", None, None, 0.3),
    )
    one = explained(canary(Judgment(id="e")), answer, reasons=(Reason.MISSING,))
    assert [hit["gap"] for hit in explain_hits(one)] == [0.4, None, None, 0.1, None]
    gaps = score_gaps(one, explain_expected(one))
    assert gaps == {
        "at_k": None,
        "largest": {"after_rank": 1, "size": 0.4, "scores": [0.9, 0.5]},
        "expected_below": 0.2,
    }
    nothing = explained(canary(Judgment(id="e")), ranking(), reasons=(Reason.MISSING,))
    assert score_gaps(nothing, explain_expected(nothing)) == {"at_k": None, "largest": None, "expected_below": None}
