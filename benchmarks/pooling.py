"""What pooling promises: retrievers rank by pooled judgments as by full ones, though their levels differ.

    python -m benchmarks.pooling [FOLDER ...]

Six retrievers search each FOLDER (default cranfield and chunkeval of ../shared/data), whose relevant texts are all
known. Judged is what three of them have in their first 10, as a task without strata does. Their order by the means of
AP@100, NDCG@10 and R@10 is compared with that by all judgments: Kendall's tau-b, and how far
retrievers of another order are apart. Levels are off by up to the largest difference of a mean.
Last, what one retriever's own first 10 as the only judgments make of its R@10, and how many texts a query a task over
the three has to grade. Nothing is drawn at random.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from app.base.values import Judgment
from app.demo.analysis import terms
from app.scoring.matching import match, prepare
from app.scoring.measures import scores_at_depth
from benchmarks.pooled_recall import DATA
from benchmarks.text_indexes import Collection, rank_bm25, rank_lsi, read_collection

DEPTH: Final = 100
POOL: Final = 10
POOLED: Final = ("BM25", "LSI", "BM25 of 4-grams")
MEASURES: Final = (f"AP@{DEPTH}", "NDCG@10", "R@10")
LEAST_TAU: Final = 0.7
MOST_SWAPPED: Final = 0.02
"""Two retrievers whose order is another differ by at most so much; these are held of all measures."""
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


if __name__ == "__main__":
    main(*sys.argv[1:])
