"""Pooling: what is graded, what of it is a sample, and how large the strata are."""

from collections.abc import Mapping

import numpy as np
import pytest

from app.annotation.domain.pools import (
    CanaryPool,
    Corpus,
    PoolItem,
    PoolPlan,
    Stratum,
    canary_random,
    draw_items,
    merge_rankings,
    text_key,
)
from app.base.values import Ranking

PLAN = PoolPlan(pool=10, strata=(Stratum(to=30, sample=5), Stratum(to=100, sample=7)))


def ranking(texts: list[str | None], *, prefix: str = "c") -> Ranking:
    ids = tuple(f"{prefix}{number}" for number in range(len(texts)))
    return Ranking(
        ids=ids,
        documents=tuple(f"doc of {one}" for one in ids),
        texts=tuple(texts),
        scores=(None,) * len(texts),
        returned=len(texts),
    )


def words(start: int, stop: int) -> list[str | None]:
    return [f"text number {number}" for number in range(start, stop)]


def pool(rankings: Mapping[str, Ranking], plan: PoolPlan = PLAN, *, canary: str = "q1") -> CanaryPool:
    return draw_items(merge_rankings(rankings, plan.bounds), plan, canary_random(0, canary))


def by_stratum(found: CanaryPool) -> dict[int, list[PoolItem]]:
    return {number: [item for item in found.items if item.stratum == number] for number in range(len(found.sizes))}


def test_the_pool_is_whole_and_the_strata_are_samples_of_known_size() -> None:
    found = pool({"bm25": ranking(words(0, 100)), "dense": ranking(words(5, 105))})
    strata = by_stratum(found)
    assert found.sizes == (15, 20, 70)
    assert [len(strata[number]) for number in range(3)] == [15, 5, 7]
    assert {item.text for item in strata[0]} == set(words(0, 15))


def test_the_best_rank_over_retrievers_decides_the_stratum() -> None:
    found = pool({"bm25": ranking(words(0, 40)), "dense": ranking(list(reversed(words(0, 40))))})
    for item in found.items:
        assert item.stratum == (0 if min(item.ranks["bm25"], item.ranks["dense"]) <= 10 else 1)
    assert found.sizes == (20, 20, 0)


def test_chunks_of_the_same_normalised_text_are_one_item() -> None:
    found = pool({"a": ranking(["The  Fee is 3 %.", "other", "the fee is 3%"]), "b": ranking(["THE FEE IS 3 %"])})
    assert [item.text for item in found.items] == ["The  Fee is 3 %.", "other"]
    assert found.items[0].chunks == (("a", "c0"), ("a", "c2"), ("b", "c0"))
    assert found.items[0].ranks == {"a": 1, "b": 1}
    assert found.sizes == (2, 0, 0)


def test_chunks_without_text_are_known_by_their_ids() -> None:
    found = pool({"a": ranking([None, "", "..."]), "b": ranking([None])})
    assert [item.chunks for item in found.items if item.ranks.get("a") == 1] == [(("a", "c0"), ("b", "c0"))]
    assert found.sizes == (3, 0, 0)


def test_rankings_are_cut_to_the_depth_of_the_plan() -> None:
    found = pool({"a": ranking(words(0, 300))})
    assert found.sizes == (10, 20, 70)
    assert PLAN.depth == 100
    assert PoolPlan().depth == 10


def test_a_stratum_smaller_than_its_sample_is_taken_whole() -> None:
    found = pool({"a": ranking(words(0, 13))})
    assert found.sizes == (10, 3, 0)
    assert len(found.items) == 13


def test_draws_are_the_same_again_and_differ_between_canaries() -> None:
    rankings = {"a": ranking(words(0, 100))}
    assert pool(rankings) == pool(rankings)
    assert pool(rankings) != pool(rankings, canary="q2")


def test_every_item_of_a_stratum_is_drawn_as_often() -> None:
    merged, drawn = merge_rankings({"a": ranking(words(0, 100))}, PLAN.bounds), np.zeros(100)
    for number in range(400):
        for item in draw_items(merged, PLAN, canary_random(0, str(number))).items:
            drawn[item.ranks["a"] - 1] += 1
    assert (drawn[:10] == 400).all()
    assert drawn[10:30] == pytest.approx(100, abs=4 * np.sqrt(100 * 0.75))
    assert drawn[30:] == pytest.approx(40, abs=4 * np.sqrt(40 * 0.9))


def test_random_negatives_are_texts_that_no_retriever_returned() -> None:
    texts = [f"text number {number}" for number in range(50)] * 2
    corpus = Corpus.of(text_key(text, chunk=str(place)) for place, text in enumerate(texts))
    assert len(corpus.keys) == 50
    known = {item.key for item in merge_rankings({"a": ranking(words(0, 30))}, [30])}
    drawn, size = corpus.draw(10, known=known, random=np.random.default_rng(0))
    assert size == 20
    assert len(set(drawn)) == 10
    assert all(30 <= place < 50 for place in drawn)
    assert corpus.draw(100, known=known, random=np.random.default_rng(0))[1] == 20
    assert corpus.draw(5, known=corpus.keys, random=np.random.default_rng(0)) == ((), 0)


@pytest.mark.parametrize(
    "plan",
    [
        {"pool": 0},
        {"pool": 10, "strata": (Stratum(to=10, sample=5),)},
        {"strata": (Stratum(to=30, sample=5), Stratum(to=20, sample=5))},
        {"strata": (Stratum(to=30, sample=0),)},
        {"rest": -1},
    ],
)
def test_plans_without_sense_are_refused(plan: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"stratum|sample"):
        PoolPlan(**plan)  # type: ignore[arg-type]  # some are tuples
