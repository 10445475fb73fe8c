"""Pooled recall against the truth of collections whose relevant texts are all known: how often its interval covers it.

    python -m benchmarks.pooled_recall [REPETITIONS [FOLDER ...]]

REPETITIONS (default 1,000) tasks of each design are drawn for each FOLDER (default cranfield and chunkeval of
../shared/data), pooled to depth 10 over BM25 and LSI, strata to 30, to 100 and the rest of the corpus. Grades are the
collection's own, so that only the sampling is measured. Each repetition resamples nothing else: the queries stay.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from app.annotation.domain.pooling import (
    CanaryPool,
    Corpus,
    PooledRecall,
    PoolItem,
    PoolPlan,
    QueryGrades,
    SampledStratum,
    Stratum,
    draw_items,
    estimate_recall,
    merge_rankings,
    text_key,
)
from app.demo.analysis import terms
from benchmarks.text_indexes import Collection, rank_bm25, rank_lsi, read_collection

DATA = Path("../shared/data")
K = 10
LEAST_COVERAGE = 0.93
DESIGNS = {
    "5, 5, 5": (5, 5),
    "10, 10, 10": (10, 10),
    "20, 20, 20": (20, 20),
    "10, 10, no rest": (10, 0),
}


def main(repetitions: int = 1_000, *, folders: list[str]) -> None:
    """Print how often intervals cover the true recall, and hold samples of 10 with rest against the promise."""
    print("| collection | retriever | samples | mean estimate | true | mean width | covers |")
    for folder in folders or (str(DATA / "cranfield"), str(DATA / "chunkeval")):
        task = Task(read_collection(Path(folder)))
        for design, (sample, rest) in DESIGNS.items():
            plan = PoolPlan(pool=10, strata=(Stratum(to=30, sample=sample), Stratum(to=100, sample=sample)), rest=rest)
            started = time.perf_counter()
            drawn = [task.draw(plan, np.random.default_rng([5, number])) for number in range(repetitions)]
            for retriever in task.retrievers:
                mean, truth, width, covers = task.measure(drawn, retriever)
                numbers = f"{mean:.3f} | {truth:.3f} | {width:.2f} | {covers:.3f}"
                print(f"| {task.name} | {retriever} | {design} | {numbers} |", flush=True)
                assert sample < 10 or not rest or covers >= LEAST_COVERAGE, (task.name, design)
            print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)


class Task:
    """A collection as a task: what both retrievers return, merged once, and the relevant texts."""

    def __init__(self, collection: Collection, *, terms_of: Callable[[str], list[str]] = terms) -> None:
        self.name = collection.name
        texts, queries = collection.texts, [query.text for query in collection.queries]
        keys = [text_key(text, chunk=name) for text, name in zip(texts, collection.ids, strict=True)]
        ranked = {
            "bm25": rank_bm25(texts, queries, 100, terms_of=terms_of),
            "lsi": rank_lsi(texts, queries, 100, terms_of=terms_of),
        }
        self.retrievers = tuple(ranked)
        self.corpus = Corpus.of(keys)
        self.first = {key: place for place, key in zip(self.corpus.places, self.corpus.keys, strict=True)}
        self.keys = keys
        self.relevant = [{keys[place] for place in query.relevant} for query in collection.queries]
        self.items = [
            merge_rankings({name: collection.ranking(places[row]) for name, places in ranked.items()}, (10, 30, 100))
            for row in range(len(queries))
        ]

    def draw(self, plan: PoolPlan, random: np.random.Generator) -> list[tuple[CanaryPool, list[int]]]:
        """Draw the items of every query, and of the rest its relevant ones and its size."""
        drawn = []
        for items in self.items:
            pool, rest = draw_items(items, plan, random), []
            if plan.rest:
                places, size = self.corpus.draw(plan.rest, known={item.key for item in items}, random=random)
                rest = [size, *places]
            drawn.append((pool, rest))
        return drawn

    def measure(
        self,
        drawn: list[list[tuple[CanaryPool, list[int]]]],
        retriever: str,
        *,
        estimate: Callable[..., PooledRecall] = estimate_recall,
    ) -> tuple[float, float, float, float]:
        """Return mean estimate, true recall, mean width and the share of intervals that cover it."""
        found = sum(
            self.found(items, relevant, retriever) for items, relevant in zip(self.items, self.relevant, strict=True)
        )
        truth = found / sum(map(len, self.relevant))
        estimates = [
            estimate([self.grade(row, *one, retriever) for row, one in enumerate(task)], seed=number)
            for number, task in enumerate(drawn)
        ]
        ends = np.array([(one.value, one.low, one.high) for one in estimates], dtype=np.float64)
        covers = (ends[:, 1] <= truth) & (truth <= ends[:, 2])
        return float(ends[:, 0].mean()), truth, float((ends[:, 2] - ends[:, 1]).mean()), float(covers.mean())

    def grade(self, row: int, pool: CanaryPool, rest: list[int], retriever: str) -> QueryGrades:
        """Grade the items of one query by the collection's own judgments."""
        relevant = self.relevant[row]
        strata = [
            [item.key in relevant for item in pool.items if item.stratum == number] for number in range(len(pool.sizes))
        ]
        sampled = [
            SampledStratum(size=size, graded=len(one), relevant=sum(one))
            for size, one in zip(pool.sizes, strata, strict=True)
        ][1:]
        if rest:
            hits = sum(self.keys[place] in relevant for place in rest[1:])
            sampled.append(SampledStratum(size=rest[0], graded=len(rest) - 1, relevant=hits))
        found = self.found(pool.items, relevant, retriever)
        return QueryGrades(pool_relevant=sum(strata[0]), found=found, strata=tuple(sampled))

    @staticmethod
    def found(items: tuple[PoolItem, ...], relevant: set[str], retriever: str) -> int:
        """Count the relevant items in the first K of a retriever."""
        return sum(item.key in relevant and item.ranks.get(retriever, K + 1) <= K for item in items)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), folders=sys.argv[2:])
