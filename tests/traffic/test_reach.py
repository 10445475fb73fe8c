"""Reach: which queries are asked, the estimate by hand, its interval, and suggestions."""

import numpy as np
import pytest

from app.traffic.domain import (
    DRAWN,
    MOST_HEAD,
    Lacking,
    TrafficSample,
    are_groups_fine,
    draw_sample,
    empty_share,
    estimate_reach,
    group_traffic,
    head_size,
    reach_reason,
    suggest_queries,
    unanswered_share,
)


def zipf(queries: int, traffic: int = 1_000_000) -> list[int]:
    """Return descending counts that fall with the rank."""
    weights = 1 / np.arange(1, queries + 1)
    return [max(1, int(count)) for count in traffic * weights / weights.sum()]


def sample_of(counts: list[int], seed: int = 0) -> TrafficSample:
    return draw_sample(counts, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("counts", "size"),
    [([], 0), ([1], 1), ([8, 1, 1], 1), ([7, 1, 1, 1], 2), ([1] * 10, 8), ([50, 30, 10, 10], 2), ([4, 4, 1, 1], 2)],
)
def test_the_head_is_the_fewest_queries_that_hold_80_percent(counts: list[int], size: int) -> None:
    assert head_size(counts) == size


def test_a_long_head_is_asked_in_part_and_the_others_are_drawn_from() -> None:
    counts = zipf(5_000)
    sample = sample_of(counts)
    assert sample.head == tuple(range(MOST_HEAD))
    assert sum(times for _, times in sample.rest) == DRAWN
    assert all(place >= MOST_HEAD for place, _ in sample.rest)
    assert sample.head_traffic + sample.rest_traffic == sum(counts)
    assert not sample.whole


def test_a_small_rest_is_asked_whole() -> None:
    sample = sample_of([100, 3, 2, 1])
    assert (sample.head, sample.rest, sample.whole) == ((0,), ((1, 3), (2, 2), (3, 1)), True)
    found = estimate_reach([100, 3, 2, 1], sample, {0: True, 1: False, 2: True, 3: False})
    assert found.value == pytest.approx(102 / 106)
    assert (found.low, found.high) == (found.value, found.value)


def test_reach_is_the_head_counted_and_the_rest_estimated() -> None:
    sample = TrafficSample(head=(0, 1), rest=((5, 30), (9, 70)), head_traffic=800, rest_traffic=200, whole=False)
    found = estimate_reach([500, 300, *[10] * 20], sample, {0: True, 1: False, 5: True, 9: False})
    assert found.value == pytest.approx(0.5 + 0.2 * 0.3)
    assert found.low is not None
    assert found.high is not None
    assert 0.5 < found.low < 0.56 < found.high < 0.6


@pytest.mark.parametrize("covered", [True, False])
def test_draws_that_all_agree_are_no_certainty(*, covered: bool) -> None:
    counts = zipf(5_000)
    sample = sample_of(counts)
    found = estimate_reach(counts, sample, dict.fromkeys(sample.places, covered))
    assert found.value == pytest.approx(float(covered))
    assert found.low is not None
    assert found.high is not None
    assert 0.002 < found.high - found.low < 0.02
    assert 0 <= found.low <= found.high <= 1


def test_answered_queries_stand_for_the_others() -> None:
    sample = TrafficSample(head=(0, 1), rest=((2, 50), (3, 50)), head_traffic=80, rest_traffic=20, whole=False)
    assert estimate_reach([40, 40, 1, 1], sample, {0: True, 3: False}).value == pytest.approx(0.8)
    assert estimate_reach([40, 40, 1, 1], sample, {3: True}).value == 1
    assert estimate_reach([40, 40, 1, 1], sample, {}).value is None
    assert estimate_reach([], sample_of([]), {}).value is None


def test_intervals_cover_the_true_reach() -> None:
    counts, random, covered = zipf(3_000), np.random.default_rng(3), 0
    known = {place: bool(random.random() < 0.7) for place in range(3_000)}
    truth = sum(count for place, count in enumerate(counts) if known[place]) / sum(counts)
    for seed in range(300):
        sample = sample_of(counts, seed)
        found = estimate_reach(counts, sample, {place: known[place] for place in sample.places}, seed=seed)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    assert covered >= 275  # 95 % of 300 less two and a half standard errors


def test_the_interval_allows_for_any_cover_of_queries_without_an_answer() -> None:
    whole = sample_of([60, 20, 10, 10])
    found = estimate_reach([60, 20, 10, 10], whole, {0: True, 2: False, 3: True})
    assert (found.low, found.high) == pytest.approx((0.7, 0.9)), "the second query, a fifth of the traffic, is unknown"
    headless = estimate_reach([60, 20, 10, 10], whole, {2: False, 3: True})
    assert (headless.low, headless.high) == pytest.approx((0.1, 0.9))


@pytest.mark.parametrize("failing", [0.1, 0.3])
def test_intervals_cover_the_true_reach_where_queries_have_no_answer(failing: float) -> None:
    counts, random, covered = zipf(3_000), np.random.default_rng(4), 0
    known = {place: bool(random.random() < 0.3) for place in range(3_000)}
    truth = sum(count for place, count in enumerate(counts) if known[place]) / sum(counts)
    for seed in range(100):
        sample, lost = sample_of(counts, seed), np.random.default_rng([5, seed]).random(3_000) < failing
        answered = {place: known[place] for place in sample.places if not lost[place]}
        found = estimate_reach(counts, sample, answered, seed=seed)
        assert found.value is not None
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.value <= found.high
        covered += found.low <= truth <= found.high
    assert covered >= 93


def test_the_share_of_unanswered_traffic_counts_head_and_draws() -> None:
    sample = TrafficSample(head=(0, 1), rest=((2, 50), (3, 50)), head_traffic=80, rest_traffic=20, whole=False)
    assert unanswered_share([60, 20, 1, 1], sample, {0, 3}) == pytest.approx(0.3)
    assert unanswered_share([60, 20, 1, 1], sample, sample.places) == 0


def test_one_suggestion_per_uncovered_group_the_most_traffic_first() -> None:
    counts = [50, 40, 5, 3, 2]
    queries = ["fees", "<script>", "=cmd()", "refunds", "nothing found"]
    sample = TrafficSample(head=(0, 1), rest=((2, 5), (3, 3), (4, 2)), head_traffic=90, rest_traffic=10, whole=True)
    groups = {0: "billing", 1: "html", 2: "html", 3: "returns", 4: None}
    found = suggest_queries(queries, counts, sample, groups, {"billing"})
    assert [(one.group, one.query, one.traffic) for one in found] == [
        ("html", "<script>", 45),
        ("returns", "refunds", 3),
    ]


def test_a_query_that_was_taken_up_is_not_suggested_nor_its_group_while_nobody_judged_it() -> None:
    counts = [50, 40, 5, 3]
    queries = ["fees", "html", "more html", "refunds"]
    sample = TrafficSample(head=(0, 1, 2, 3), rest=(), head_traffic=98, rest_traffic=0, whole=True)
    groups = {0: "billing", 1: "html", 2: "html", 3: "returns"}

    def suggested(**taken: set[int]) -> list[str]:
        return [one.query for one in suggest_queries(queries, counts, sample, groups, {"billing"}, **taken)]

    assert suggested() == ["html", "refunds"]
    assert suggested(taken_up={1, 3}) == ["more html"]
    assert suggested(taken_up={1}, pending={1}) == ["refunds"]


def test_traffic_of_groups_adds_up_to_that_of_answered_queries() -> None:
    counts = zipf(5_000)
    sample = sample_of(counts)
    found = group_traffic(counts, sample, {place: str(place % 7) for place in sample.places})
    assert sum(found.values()) == pytest.approx(sum(counts))
    assert list(found.values()) == sorted(found.values(), reverse=True)
    some = {place: None if place % 7 == 3 else str(place % 7) for place in sample.places}
    with_hits = sum(group_traffic(counts, sample, some).values())
    assert with_hits + empty_share(counts, sample, some) * sum(counts) == pytest.approx(sum(counts))
    assert empty_share(counts, sample, {}) == 0


def test_documents_as_fine_as_chunks_are_noticed() -> None:
    assert are_groups_fine([(f"c{number}", f"d{number}") for number in range(20)])
    assert are_groups_fine([("c1", None), ("c2", None)])
    assert not are_groups_fine([(f"c{number}", f"d{number // 4}") for number in range(20)])
    assert not are_groups_fine([])


def test_groups_that_several_queries_share_are_not_fine() -> None:
    hits = [(f"c{number}", f"d{number}") for number in range(20)]
    assert not are_groups_fine([("banner", "banner")], ["banner"] * 50), "one page for everything is the opposite"
    assert not are_groups_fine(hits, [f"d{number // 3}" for number in range(60)])
    assert are_groups_fine(hits, [f"d{number}" for number in range(20)])
    deeper = [(f"c{number}", f"d{number}") for number in range(20, 40)]
    assert are_groups_fine([*hits, *deeper], [f"d{number // 30}" for number in range(600)]), "however many are asked"
    parts = [(f"c{number}-{part}", f"d{number}") for number in range(20) for part in range(2)]
    assert not are_groups_fine([*hits, *parts], [f"d{number // 30}" for number in range(600)])


def test_a_retriever_that_finds_nothing_is_named_as_the_reason() -> None:
    found = reach_reason([], answered=120, empty=120)
    assert found == "the retriever found nothing for any of 120 queries: look at it before you add canaries"
    assert reach_reason([], answered=120, empty=119) is None


def test_canaries_that_no_run_tells_of_are_named_as_the_reason_of_a_low_reach() -> None:
    told = (
        "80 canaries expect passages alone, whose documents only a run tells, and no check has run yet: until then "
        "reach counts them for nothing"
    )
    unseen = Lacking(unseen=80)
    assert reach_reason([], answered=120, lacking=unseen) == told
    failing = reach_reason(["timeout"], answered=119, unanswered=0.01)
    assert reach_reason(["timeout"], answered=119, unanswered=0.01, lacking=unseen) == f"{told}; {failing}"
    assert reach_reason([], answered=120, empty=120, lacking=unseen) == reach_reason([], answered=120, empty=120)


def test_expected_chunks_that_no_answer_holds_are_named_as_a_reason_of_a_low_reach() -> None:
    told = "3 expected chunks are in no answer, so their documents are not known and not covered"
    assert reach_reason([], answered=120, lacking=Lacking(unplaced=3)) == told
    failing = reach_reason(["timeout"], answered=119, unanswered=0.01)
    failed = reach_reason(["timeout"], answered=119, unanswered=0.01, lacking=Lacking(unplaced=3))
    assert failed == f"{told}; {failing}"


def test_counts_must_descend() -> None:
    with pytest.raises(ValueError, match="descend"):
        sample_of([1, 2])
