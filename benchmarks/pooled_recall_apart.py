"""Pooled recall without the rest as it was first simulated: other terms, and an interval drawn apart. For comparison.

    python -m benchmarks.pooled_recall_apart [REPETITIONS [FOLDER]]

BM25 and LSI over plain words, neither stemmed nor left out, samples of 10 down to ranks 30 and 100 and nothing of the
rest. The interval of Coalmine resamples queries, and takes found and relevant items of the same ones; the other draws
queries for the found items and again for the relevant ones, as if the two had nothing to do with each other.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from app.annotation.domain.pooling import DRAWS, PooledRecall, PoolPlan, QueryGrades, Stratum, estimate_recall
from benchmarks.pooled_recall import DATA, Task
from benchmarks.text_indexes import read_collection

PLAN = PoolPlan(pool=10, strata=(Stratum(to=30, sample=10), Stratum(to=100, sample=10)))


def main(repetitions: int = 120, *, folder: str) -> None:
    """Print mean estimate, true value, width and coverage of both intervals."""
    task = Task(read_collection(Path(folder)), terms_of=plain_words)
    drawn = [task.draw(PLAN, np.random.default_rng([5, number])) for number in range(repetitions)]
    print("| interval | retriever | mean estimate | true | mean width | covers |")
    for name, estimate in (("of the same queries", estimate_recall), ("drawn apart", estimate_apart)):
        for retriever in task.retrievers:
            mean, truth, width, covers = task.measure(drawn, retriever, estimate=estimate)
            print(f"| {name} | {retriever} | {mean:.3f} | {truth:.3f} | {width:.3f} | {covers:.3f} |", flush=True)


def plain_words(text: str) -> list[str]:
    """Return the words of a text in small letters, all of them."""
    return re.findall(r"[a-z0-9]+", text.lower())


def estimate_apart(queries: Sequence[QueryGrades], *, seed: int = 0) -> PooledRecall:
    """Estimate recall with an interval that resamples queries once for what is found and once for what is relevant."""
    found = estimate_recall(queries, seed=seed)
    random = np.random.default_rng(seed)
    hits = np.array([one.found for one in queries], dtype=np.float64)
    pool = np.array([one.pool_relevant for one in queries], dtype=np.float64)
    strata = np.array([[(one.size, one.graded, one.relevant) for one in query.strata] for query in queries])
    graded, relevant = strata[:, :, 1].sum(axis=0), strata[:, :, 2].sum(axis=0)
    shares = random.beta(relevant + 0.5, graded - relevant + 0.5, size=(DRAWS, len(graded)))
    counts = [random.multinomial(len(queries), np.full(len(queries), 1 / len(queries)), size=DRAWS) for _ in range(2)]
    drawn = (counts[0] @ hits) / (counts[1] @ pool + ((counts[1] @ strata[:, :, 0]) * shares).sum(axis=1))
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    return replace(found, low=low, high=high)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), folder=(*sys.argv[2:], str(DATA / "cranfield"))[0])
