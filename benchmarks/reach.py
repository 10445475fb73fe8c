"""Reach of a suite, estimated from a sample of traffic, against the whole; and which withheld topics are suggested.

    python -m benchmarks.reach [TASKS [FOLDER]]

FOLDER (default ../shared/data/xquad_en): its questions are what users ask, with counts after Zipf in random order.
Canaries are 60 questions on all articles but 10, which are withheld; the group of a query is the article of its first
hit by BM25 over chunks of 400 characters, and a canary passes that finds its chunk in the first 10. Of TASKS (default
100) such tasks the first is printed whole, and of all how far estimates are off and how often intervals cover; also
where a tenth and three tenths of the queries, or of the articles with all of theirs, get no answer.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.traffic.domain import draw_sample, estimate_reach, suggest_queries
from benchmarks.text_indexes import Collection, rank_bm25, read_collection

XQUAD = "../shared/data/xquad_en"
CANARIES = 60
WITHHELD = 10
TRAFFIC = 100_000
MOST_ERROR = 0.03
UNANSWERED = (0.1, 0.3)
FEWEST_COVERED = 0.93


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One task: estimate, truth, and after how many suggestions each withheld article had come, in order."""

    value: float
    low: float
    high: float
    truth: float
    found_after: tuple[int, ...]
    withheld: int


def main(tasks: int = 100, *, folder: str) -> None:
    """Print the figures, and hold them against the promise."""
    collection = read_collection(Path(folder))
    ranked = rank_bm25(collection.texts, [query.text for query in collection.queries], 10)
    outcomes = [play(collection, ranked, seed) for seed in range(tasks)]
    first = outcomes[0]
    last = first.found_after[-1]
    print(f"reach {first.value:.3f} [{first.low:.3f}, {first.high:.3f}], true {first.truth:.3f}")
    print(f"withheld articles found: {len(first.found_after)} of {first.withheld} within {last} suggestions")
    misses = np.array([one.value - one.truth for one in outcomes])
    covers = np.mean([one.low <= one.truth <= one.high for one in outcomes])
    print(f"{tasks} tasks: mean error {misses.mean():+.4f}, largest {np.abs(misses).max():.3f}, covers {covers:.3f}")
    whole = [one.found_after[-1] for one in outcomes if len(one.found_after) == one.withheld]
    within = f"{np.median(whole):.0f} suggestions, {max(whole)} at most"
    print(f"all withheld articles found in {len(whole)} of {tasks}, within {within}")
    for by in ("queries", "articles"):
        for share in UNANSWERED:
            lossy = [play(collection, ranked, seed, unanswered=share, by=by) for seed in range(tasks)]
            covers = np.mean([one.low <= one.truth <= one.high for one in lossy])
            width = np.mean([one.high - one.low for one in lossy])
            off = np.abs([one.value - one.truth for one in lossy]).max()
            print(f"{share:.0%} of {by} unanswered: covers {covers:.3f}, width {width:.3f}, largest error {off:.3f}")
            assert covers >= FEWEST_COVERED
    assert abs(first.value - first.truth) <= MOST_ERROR
    assert len(first.found_after) == first.withheld


def play(
    collection: Collection, ranked: list[list[int]], seed: int, *, unanswered: float = 0, by: str = "queries"
) -> Outcome:
    """Make traffic and canaries, estimate reach and suggest queries; `unanswered` of `by` get no answer."""
    random = np.random.default_rng([15, seed])
    queries = collection.queries
    topics = sorted({query.topic for query in queries})
    withheld = {topics[place] for place in random.choice(len(topics), WITHHELD, replace=False)}
    allowed = [row for row, query in enumerate(queries) if query.topic not in withheld]
    canaries = random.choice(allowed, CANARIES, replace=False)
    topic_of = {query.document: query.topic for query in queries}
    covered = {queries[row].topic for row in canaries}
    for row in canaries:
        hit = next((place for place in ranked[row] if place in queries[row].relevant), None)
        if hit is not None:
            covered.add(topic_of[collection.documents[hit]])
    order = random.permutation(len(queries))
    weights = 1 / np.arange(1, len(queries) + 1)
    counts = [max(1, int(count)) for count in TRAFFIC * weights / weights.sum()]
    groups = {place: topic_of[collection.documents[ranked[row][0]]] for place, row in enumerate(order)}
    truth = sum(count for place, count in enumerate(counts) if groups[place] in covered) / sum(counts)
    sample = draw_sample(counts, random)
    lossy = np.random.default_rng([16, seed])
    without = {
        one for one in sorted(groups if by == "queries" else set(groups.values())) if lossy.random() < unanswered
    }
    asked = {
        place: groups[place] in covered
        for place in sample.places
        if (place if by == "queries" else groups[place]) not in without
    }
    texts = [queries[row].text for row in order]
    suggestions = suggest_queries(texts, counts, sample, groups, covered)
    found = estimate_reach(counts, sample, asked, seed=seed)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    return Outcome(
        value=found.value,
        low=found.low,
        high=found.high,
        truth=truth,
        found_after=tuple(number for number, one in enumerate(suggestions, 1) if one.group in withheld),
        withheld=len(set(groups.values()) & withheld),
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), folder=(*sys.argv[2:], XQUAD)[0])
