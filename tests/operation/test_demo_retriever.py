"""The demo's index: the healthy demo satisfies every shipped canary, and its score keeps what it promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.demo.corpus import Chunk, read_corpus
from app.demo.retriever import Retriever, relevance
from tests.support.demo_suite import canaries, found, satisfies

CORPUS = read_corpus()
RETRIEVER = Retriever(CORPUS)
WORDS = sorted({word for chunk in CORPUS for word in chunk.text.split()})


def test_healthy_demo_satisfies() -> None:
    for canary in [each for each in canaries() if not each.negative]:
        hits = RETRIEVER.search(canary.query, 10)
        chunks = [hit.chunk for hit in hits]
        assert any(found(chunks[:5], canary)), [chunk.id for chunk in chunks]
        assert hits[0].score >= canary.least, canary
        assert not any(satisfies(chunk, judgment) for chunk in chunks for judgment in canary.forbidden), canary


def test_healthy_demo_keeps_the_floors_of() -> None:
    for canary in [each for each in canaries() if each.floors]:
        ranks = found([hit.chunk for hit in RETRIEVER.search(canary.query, 5)], canary)
        values = {"R@5": sum(rank is not None for rank in ranks) / len(ranks), "RR": 1 / min(filter(None, ranks))}
        assert all(values[measure] >= floor for measure, floor in canary.floors.items()), canary


def test_healthy_demo_does_not_sound_sure_about() -> None:
    for canary in [each for each in canaries() if each.negative]:
        assert all(hit.score < canary.most for hit in RETRIEVER.search(canary.query, 10)), canary


def test_the_two_headline_canaries_have_room() -> None:
    room = {canary.query: canary.least for canary in canaries() if canary.key in {"data-retention", "oauth2-setup"}}
    assert len(room) == 2
    assert all(RETRIEVER.search(query, 1)[0].score >= least + 0.05 for query, least in room.items())


@settings(max_examples=100)
@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=8), max_size=30).map(" ".join), st.integers(1, 120))
def test_any_answer_is_ranked_bounded_and_without_repeats(query: str, top_k: int) -> None:
    hits = RETRIEVER.search(query, top_k)
    scores = [hit.score for hit in hits]
    assert len(hits) <= top_k
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert len({hit.chunk.id for hit in hits}) == len(hits)


def test_a_passage_asked_for_by_its_own_words_comes_first_and_scores_high() -> None:
    for chunk in CORPUS:
        first = RETRIEVER.search(chunk.text, 1)[0]
        assert first.chunk.id == chunk.id
        assert first.score > 0.7


def test_words_nobody_knows_count_against_the_score() -> None:
    known = RETRIEVER.search("cold tier", 1)[0]
    diluted = RETRIEVER.search("cold tier zeppelin marzipan", 1)[0]
    assert diluted.chunk == known.chunk
    assert diluted.score < known.score - 0.2


def test_saying_a_word_twice_changes_nothing() -> None:
    assert RETRIEVER.search("cold cold tier", 5) == RETRIEVER.search("cold tier", 5)


def test_nothing_known_finds_nothing() -> None:
    for query in ["", "   ", "how do I", "zeppelin", "???"]:
        assert RETRIEVER.search(query, 5) == [], query


def test_ties_stay_in_the_order_of_the_index() -> None:
    twins = [Chunk(id=name, document="d", title="", topic="", text="same words") for name in "cab"]
    assert [hit.chunk.id for hit in Retriever(twins).search("same words", 3)] == ["c", "a", "b"]


def test_an_empty_index_answers_with_nothing() -> None:
    assert Retriever([]).search("anything", 5) == []
    hollow = [Chunk(id="a", document="a", title="", topic="", text="the of and")]
    assert Retriever(hollow).search("the anything", 5) == []


def test_the_version_follows_the_content() -> None:
    assert Retriever(CORPUS).version == RETRIEVER.version
    assert Retriever(CORPUS[1:]).version != RETRIEVER.version
    assert Retriever(CORPUS[::-1]).version != RETRIEVER.version


def test_relevance_is_a_fixed_increasing_curve_from_zero_to_one() -> None:
    curve = relevance(np.array([0.0, 0.2, 0.42, 0.6, 0.9, 1.0, 1.0000001]))
    assert curve[[0, 2, 5, 6]] == pytest.approx([0.0, 0.5, 1.0, 1.0])
    assert np.all(np.diff(curve) >= 0)
