"""What pooling promises: retrievers rank by pooled judgments as by full ones, and the interval of recall covers it.

    python -m benchmarks.pooling [FOLDER ...]
    python -m benchmarks.pooling --recall [REPETITIONS [FOLDER ...]]
    python -m benchmarks.pooling --alone [REPETITIONS [FOLDER ...]]
    python -m benchmarks.pooling --errors [REPETITIONS [FOLDER ...]]

Both on collections whose relevant texts are all known: each FOLDER, cranfield and chunkeval of ../shared/data unless
said. Six retrievers search it. Judged is what three of them have in their first 10, as a task without strata does.
Their order by the means of AP@100, NDCG@10 and R@10 is compared with that by all judgments: Kendall's tau-b, and how
far retrievers of another order are apart. Levels are off by up to the largest difference of a mean. Last, what one
retriever's own first 10 as the only judgments make of its R@10, and how many texts a query a task over the three has to
grade. Nothing is drawn at random.

With `--recall`, REPETITIONS (default 1,000) tasks of each design are drawn, pooled to depth 10 over BM25 and LSI,
strata to 30, to 100 and the rest of the corpus: how often the interval of pooled recall covers the truth. Grades are
the collection's own, so that only the sampling is measured. Each repetition resamples nothing else: the queries stay.

`--alone` measures the same of tasks that pool one retriever, REPETITIONS (default 300) of each: with the rest of the
corpus its recall is covered, without it is self-judged.

With `--errors` simulated people grade the tasks of samples of 10, REPETITIONS (default 200) of each kind: two of them,
a share of the items by both (`overlap`), and a third who decides where they disagree. Each grade, decisions included,
is wrong (relevant or not, either way) with the same probability on every item, or mostly on a fifth of the items, which
are difficult. Beside them 20 planted items may be graded (`checks`), half of them relevant, and difficult as often.
Printed is what pooled recall says with every grade taken as right, and corrected.
"""

import re
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from app.annotation.domain.pools import (
    CanaryPool,
    Corpus,
    PoolItem,
    PoolPlan,
    Stratum,
    draw_items,
    merge_rankings,
    text_key,
)
from app.annotation.domain.recall import (
    GradedTask,
    PooledRecall,
    QueryGrades,
    Said,
    SaidOfPlanted,
    SaidOfQuery,
    SampledStratum,
    estimate_recall,
)
from app.base.values import Judgment
from app.demo.corpus import terms
from app.scoring.measures import scores_at_depth
from app.scoring.rankings import match, prepare
from benchmarks.text_indexes import Collection, rank_bm25, rank_lsi, read_collection

DATA = Path("../shared/data")
DEPTH: Final = 100
POOL: Final = 10
POOLED: Final = ("BM25", "LSI", "BM25 of 4-grams")
MEASURES: Final = (f"AP@{DEPTH}", "NDCG@10", "R@10")
LEAST_TAU: Final = 0.7
MOST_SWAPPED: Final = 0.02
"""Two retrievers whose order is another differ by at most so much; these are held of all measures."""
K = 10
DEPTHS = (1, 3, 5, K)
"""Depths at which a task estimates recall, all at once."""
LEAST_COVERAGE = 0.93
DIFFICULT = 0.2
"""Share of items that are difficult."""
CHECKS = 20
"""Planted items of a task that has some."""
DESIGNS = {"5, 5, 5": (5, 5), "10, 10, 10": (10, 10), "20, 20, 20": (20, 20), "10, 10, no rest": (10, 0)}
Ranker = Callable[[Sequence[str], Sequence[str], int], list[list[int]]]
RANKERS: Final[Mapping[str, Ranker]] = {"bm25": rank_bm25, "lsi": rank_lsi}
Rankings = Mapping[str, Sequence[Sequence[int]]]
Relevant = Sequence[frozenset[int]]


def main(*folders: str) -> None:
    """Print order and levels by pooled against full judgments, and hold the order against the promise."""
    print("| collection | measure | tau | swapped pairs, largest difference of one | largest difference of a level |")
    own = []
    for folder in folders or (str(DATA / "cranfield"), str(DATA / "chunkeval")):
        collection = read_collection(Path(folder))
        ranked = retrievers(collection)
        full = [query.relevant for query in collection.queries]
        pooled = pool(full, {name: ranked[name] for name in POOLED})
        true, seen = (means(collection, ranked, judged) for judged in (full, pooled))
        for measure in MEASURES:
            tau = float(kendalltau(*([side[name][measure] for name in ranked] for side in (true, seen))).statistic)
            gaps = swapped(true, seen, measure)
            left = max(abs(true[name][measure] - seen[name][measure]) for name in ranked)
            numbers = f"{tau:.2f} | {len(gaps)}{f', {max(gaps):.3f}' if gaps else ''} | {left:.3f}"
            print(f"| {collection.name} | {measure} | {numbers} |", flush=True)
            assert tau >= LEAST_TAU, (collection.name, measure)
            assert max(gaps, default=0) <= MOST_SWAPPED, (collection.name, measure)
        print(file=sys.stderr)
        for name in ranked:
            row = " | ".join(f"{true[name][one]:.3f} / {seen[name][one]:.3f}" for one in MEASURES)
            print(f"| {collection.name} | {name}{' (pooled)' if name in POOLED else ''} | {row} |", file=sys.stderr)
        alone = means(collection, ranked, pool(full, {"BM25": ranked["BM25"]}))["BM25"]["R@10"]
        by_all = true["BM25"]["R@10"]
        own.append(f"{collection.name}: R@10 of BM25 judged by its own first 10 {alone:.3f}, by all {by_all:.3f}")
        sizes = " and ".join(f"{pool_size(ranked, to):.1f} within {to}" for to in (5, POOL))
        own.append(f"{collection.name}: the first hits of {', '.join(POOLED)} are {sizes} different texts a query")
    print("\n".join(own))


def retrievers(collection: Collection) -> dict[str, list[list[int]]]:
    """Return the rankings of six retrievers by name."""
    texts, queries = collection.texts, [query.text for query in collection.queries]
    analyses: dict[str, tuple[Callable[..., list[list[int]]], Callable[[str], list[str]]]] = {
        "BM25": (rank_bm25, terms),
        "BM25 of words": (rank_bm25, words),
        "BM25 of 4-grams": (rank_bm25, grams),
        "BM25 of pairs": (rank_bm25, pairs),
        "LSI": (rank_lsi, terms),
        "LSI of words": (rank_lsi, words),
    }
    return {name: rank(texts, queries, DEPTH, terms_of=of) for name, (rank, of) in analyses.items()}


def words(text: str) -> list[str]:
    """Return the words of a text, neither stemmed nor left out."""
    return re.findall(r"\w+", text.casefold())


def grams(text: str) -> list[str]:
    """Return the character 4-grams of a text."""
    plain = " ".join(words(text))
    return [plain[place : place + 4] for place in range(max(1, len(plain) - 3))]


def pairs(text: str) -> list[str]:
    """Return the pairs of neighbouring terms of a text, a poor retriever."""
    found = terms(text)
    return [f"{one} {other}" for one, other in pairwise(found)] or found


def pool(full: Relevant, ranked: Rankings) -> list[frozenset[int]]:
    """Return the relevant texts among the first hits of these retrievers."""
    return [
        relevant & {place for places in ranked.values() for place in places[row][:POOL]}
        for row, relevant in enumerate(full)
    ]


def pool_size(ranked: Rankings, to: int) -> float:
    """Return the mean number of different texts among the first hits of the pooled retrievers."""
    rows = zip(*(ranked[name] for name in POOLED), strict=True)
    return float(np.mean([len({place for places in row for place in places[:to]}) for row in rows]))


def means(collection: Collection, ranked: Rankings, judged: Relevant) -> dict[str, dict[str, float]]:
    """Return the means of each retriever over the queries that have a relevant text, as a run computes them."""
    rows = [row for row, relevant in enumerate(judged) if relevant]
    prepared = [prepare([Judgment(id=collection.ids[place]) for place in sorted(judged[row])]) for row in rows]
    found: dict[str, dict[str, float]] = {}
    for name, places in ranked.items():
        matches = [match(one, collection.ranking(places[row])) for one, row in zip(prepared, rows, strict=True)]
        scores: Mapping[str, NDArray[np.float64]] = scores_at_depth(matches, prepared, cutoffs=(10,), depth=DEPTH)
        found[name] = {measure: float(np.nanmean(scores[measure])) for measure in MEASURES}
    return found


def swapped(
    true: Mapping[str, Mapping[str, float]], seen: Mapping[str, Mapping[str, float]], measure: str
) -> list[float]:
    """Return by how much all judgments tell the retrievers of each pair apart whose order the pool turns round."""
    gaps = []
    for one, other in combinations(true, 2):
        by_all, by_pool = (side[one][measure] - side[other][measure] for side in (true, seen))
        if by_all * by_pool < 0:
            gaps.append(abs(by_all))
    return gaps


def print_recall(repetitions: int = 1_000, *, folders: list[str]) -> None:
    """Print how often intervals cover the true recall, and hold samples of 10 with rest against the promise."""
    print_coverage(repetitions, [RANKERS], folders=folders)


def print_alone(repetitions: int = 300, *, folders: list[str]) -> None:
    """Print the same of tasks that pool one retriever."""
    print_coverage(repetitions, [{name: rank} for name, rank in RANKERS.items()], folders=folders)


def print_coverage(repetitions: int, pooled: Sequence[Mapping[str, Ranker]], *, folders: list[str]) -> None:
    """Print how often intervals cover the true recall, by collection, retrievers that are pooled, and samples."""
    print("| collection | retriever | samples | mean estimate | true | mean width | covers |")
    for folder, rankers in product(folders or (str(DATA / "cranfield"), str(DATA / "chunkeval")), pooled):
        task = Task(read_collection(Path(folder)), rankers)
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


def print_errors(repetitions: int = 200, *, folders: list[str]) -> None:
    """Print what wrong grades do to pooled recall, and hold the corrected intervals against the promise."""
    plan = PoolPlan(pool=10, strata=(Stratum(to=30, sample=10), Stratum(to=100, sample=10)), rest=10)
    names = ("collection", "overlap", "checks", "wrong grades", "on", "true", "taken as right", "covers")
    print(f"| {' | '.join(names)} | corrected | mean width | covers |")
    missed, tasks = [], []
    for folder in folders or (str(DATA / "cranfield"), str(DATA / "chunkeval")):
        task = Task(read_collection(Path(folder)))
        tasks.append((task, [task.draw(plan, np.random.default_rng([11, number])) for number in range(repetitions)]))
    kinds = product(((0.2, 0), (0.0, CHECKS), (0.2, CHECKS)), tasks, (False, True), (0, 0.02, 0.05, 0.1))
    for (overlap, checks), (task, drawn), difficult, share in kinds:
        people = People(share=share, difficult=difficult, overlap=overlap)
        started, truth = time.perf_counter(), task.truth(task.retrievers[0])
        estimates = [task.estimate(one, people, checks, number) for number, one in enumerate(drawn)]
        a, b = (
            np.array([(one.value, one.low, one.high) for one in column], dtype=np.float64)
            for column in zip(*estimates, strict=True)
        )
        share_a, share_b = (float(((one[:, 1] <= truth) & (truth <= one[:, 2])).mean()) for one in (a, b))
        where = "a fifth of the items" if difficult else "any item"
        cells = (task.name, overlap, checks, f"{share:.0%}", where, f"{truth:.3f}", f"{a[:, 0].mean():.3f}")
        numbers = f"{b[:, 0].mean():.3f} | {(b[:, 2] - b[:, 1]).mean():.2f} | {share_b:.3f}"
        print(f"| {' | '.join(map(str, cells))} | {share_a:.3f} | {numbers} |", flush=True)
        missed += [] if share_b >= LEAST_COVERAGE else [(task.name, people, checks, share_b)]
        print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
    assert not missed, missed


@dataclass(frozen=True, kw_only=True)
class People:
    """Two people who grade, and a third who decides: how often a grade is wrong, and whether mostly on some items."""

    share: float
    difficult: bool
    overlap: float = 0.2

    def grade(self, random: np.random.Generator, relevant: Sequence[bool]) -> list[Said]:
        """Return what people say of each item: one of them, or both, and a decision where they disagree."""
        count = len(relevant)
        wrong = np.full(count, self.share)
        if self.difficult:
            wrong = np.where(random.random(count) < DIFFICULT, min(4 * self.share, 0.5), self.share / 4)
        yes = np.where(relevant, 1 - wrong, wrong)
        grades = random.random((3, count)) < yes
        several = random.random(count) < self.overlap
        people = np.where(several, np.where(grades[0] == grades[1], 2, 3), 1)
        said = [int(grades[:number, place].sum()) for place, number in enumerate(people)]
        return list(zip(people.tolist(), said, strict=True))


class Task:
    """A collection as a task: what its retrievers return, merged once, and the relevant texts."""

    def __init__(self, collection: Collection, rankers: Mapping[str, Ranker] = RANKERS) -> None:
        self.name = collection.name
        texts, queries = collection.texts, [query.text for query in collection.queries]
        keys = [text_key(text, chunk=name) for text, name in zip(texts, collection.ids, strict=True)]
        ranked = {name: rank(texts, queries, 100) for name, rank in rankers.items()}
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
        self, drawn: list[list[tuple[CanaryPool, list[int]]]], retriever: str
    ) -> tuple[float, float, float, float]:
        """Return mean estimate, true recall, mean width and the share of intervals that cover it."""
        truth = self.truth(retriever)
        estimates = [
            estimate_recall([self.grade(row, *one, retriever) for row, one in enumerate(task)], seed=number)
            for number, task in enumerate(drawn)
        ]
        ends = np.array([(one.value, one.low, one.high) for one in estimates], dtype=np.float64)
        covers = (ends[:, 1] <= truth) & (truth <= ends[:, 2])
        return float(ends[:, 0].mean()), truth, float((ends[:, 2] - ends[:, 1]).mean()), float(covers.mean())

    def truth(self, retriever: str) -> float:
        """Return the recall of a retriever by all judgments, a ratio over queries."""
        pairs = zip(self.items, self.relevant, strict=True)
        return sum(self.found(items, relevant, retriever) for items, relevant in pairs) / sum(map(len, self.relevant))

    def estimate(
        self, drawn: list[tuple[CanaryPool, list[int]]], people: People, checks: int, seed: int
    ) -> tuple[PooledRecall, PooledRecall]:
        """Let people grade a task and so many planted items; recall with each grade taken as right, and corrected."""
        random = np.random.default_rng([13, seed])
        graded = [self.say(row, *one, self.retrievers[0], people, random) for row, one in enumerate(drawn)]
        said, bands, grades = (list(one) for one in zip(*graded, strict=True))
        known = people.grade(random, [place < checks // 2 for place in range(checks)])
        planted = SaidOfPlanted(relevant=tuple(known[: checks // 2]), irrelevant=tuple(known[checks // 2 :]))
        model = GradedTask(said, has_rest=True, seed=seed, planted=planted)
        return estimate_recall(grades, has_rest=True, seed=seed), model.recalls(bands, len(DEPTHS))[-1]

    def say(
        self,
        row: int,
        pool: CanaryPool,
        rest: list[int],
        retriever: str,
        people: People,
        random: np.random.Generator,
    ) -> tuple[SaidOfQuery, list[int], QueryGrades]:
        """Let people grade the items of one query: what they say, at which depth items are found, what is agreed."""
        relevant = self.relevant[row]
        said = people.grade(random, [item.key in relevant for item in pool.items])
        strata = [
            [one for one, item in zip(said, pool.items, strict=True) if item.stratum == number]
            for number in range(len(pool.sizes))
        ]
        strata.append(people.grade(random, [self.keys[place] in relevant for place in rest[1:]]))
        sizes = (*pool.sizes, rest[0])
        sampled = [
            SampledStratum(size=size, graded=len(one), relevant=sum(map(_is_yes, one)))
            for size, one in zip(sizes[1:], strata[1:], strict=True)
        ]
        bands = [bisect_left(DEPTHS, item.ranks.get(retriever, K + 1)) for item in pool.items if item.stratum == 0]
        found = sum(_is_yes(one) for one, band in zip(strata[0], bands, strict=True) if band < len(DEPTHS))
        grades = QueryGrades(pool_relevant=sum(map(_is_yes, strata[0])), found=found, strata=tuple(sampled))
        below = tuple((size, tuple(one)) for size, one in zip(sizes[1:], strata[1:], strict=True))
        return SaidOfQuery(pool=tuple(strata[0]), strata=below), bands, grades

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


def _is_yes(said: Said) -> bool:
    people, yes = said
    return 2 * yes > people


if __name__ == "__main__":
    tables = {"--recall": print_recall, "--alone": print_alone, "--errors": print_errors}
    if sys.argv[1:2] and sys.argv[1] in tables:
        tables[sys.argv[1]](*map(int, sys.argv[2:3]), folders=sys.argv[3:])
    else:
        main(*sys.argv[1:])
