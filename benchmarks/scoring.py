"""How fast answers become numbers: matching, stacking and computing against pytrec_eval and the plain way.

Run from the top folder: `python -m benchmarks.scoring [queries] [rounds]`. In every round each contender gets its
own fresh strings, as answers bring them, and full top tens of which nine in ten hold what is expected, at ranks drawn
evenly. Matches of equal patterns are shared; here each round begins without any, so that about four in ten are, and
"again" is a round in which all patterns came before. Medians of CPU time over rounds that run all contenders in turn,
so that a busy machine slows them alike: read the ratios.
"""

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytrec_eval

from app.base.values import Judgment, Ranking
from app.scoring.measures import Batch, Floats, compute, measures_for
from app.scoring.rankings import Match, match, pattern_match, prepare
from tests.support.plain_measures import plain_measure
from tests.support.random_rankings import ranking_of

MEASURES = measures_for([1, 3, 5, 10])
FETCH_K = 10
THEIRS = {"map", "recip_rank", "P.1,3,5,10", "recall.1,3,5,10", "success.1,3,5,10", "ndcg_cut.1,3,5,10"}
PLAIN_QUERIES = 100
"""The plain way is slow: it gets this many of the queries."""


OURS, PEER = "match, stack and compute", "pytrec_eval with its dict"
AGAIN = "again"


def main(queries: int = 1000, rounds: int = 9) -> None:
    """Print microseconds per query for each contender, after checking that they agree."""
    times, values = measure(queries, rounds)
    medians = {name: statistics.median(of) for name, of in times.items()}
    print(f"{queries} queries x top 10, medians of {rounds} rounds")
    for name, size in values.items():
        print(f"{name:26} {size:3} values  {medians[name]:8.2f} us per query  x{medians[name] / medians[OURS]:.2f}")


def measure(queries: int, rounds: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Microseconds per query of each contender in each round, and how many values it computes."""
    chance = random.Random(1)  # noqa: S311 - a workload, not a secret
    judgments = [_judgments(chance) for _ in range(queries)]
    prepared = [prepare(some) for some in judgments]
    qrels = {str(number): {str(one.id): one.grade for one in some} for number, some in enumerate(judgments)}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, THEIRS)

    def match_all(rankings: Sequence[Ranking]) -> list[Match]:
        return [match(one, ranking) for one, ranking in zip(prepared, rankings, strict=True)]

    def everything(rankings: Sequence[Ranking]) -> Floats:
        returned = [ranking.returned for ranking in rankings]
        return compute(Batch.of(match_all(rankings), prepared, returned), MEASURES, FETCH_K)

    def trec(rankings: Sequence[Ranking]) -> dict[str, dict[str, float]]:
        run = {
            str(number): {chunk: float(-place) for place, chunk in enumerate(ranking.ids)}
            for number, ranking in enumerate(rankings)
        }
        results: dict[str, dict[str, float]] = evaluator.evaluate(run)
        return results

    def plain(rankings: Sequence[Ranking]) -> list[list[float]]:
        return [
            [plain_measure(measure.name, measure.k, some, ranking) for measure in MEASURES]
            for some, ranking in zip(judgments[:PLAIN_QUERIES], rankings, strict=False)
        ]

    rankings = _rankings(chance, judgments)
    theirs = trec(rankings)
    values = len(next(iter(theirs.values())))
    assert len(theirs) == queries
    assert np.allclose(everything(rankings)[:PLAIN_QUERIES], plain(rankings), rtol=0, atol=1e-9, equal_nan=True)
    contenders: list[tuple[str, Callable[[Sequence[Ranking]], object], int, int]] = [
        ("match", match_all, queries, 0),
        (OURS, everything, queries, len(MEASURES)),
        (AGAIN, everything, queries, len(MEASURES)),
        (PEER, trec, queries, values),
        ("plain", plain, min(queries, PLAIN_QUERIES), len(MEASURES)),
    ]
    times: dict[str, list[float]] = {name: [] for name, *_ in contenders}
    for _ in range(rounds):
        for name, run, size, _ in contenders:
            fresh = _rankings(chance, judgments)
            pattern_match.cache_clear()
            if name == AGAIN:
                match_all(_copies(fresh))
            gc.collect()
            start = time.process_time()
            run(fresh)
            times[name].append((time.process_time() - start) / size * 1e6)
    return times, {name: size for name, _, _, size in contenders}


def _judgments(chance: random.Random) -> list[Judgment]:
    """Expect one to three chunks."""
    numbers = chance.sample(range(10_000), chance.randint(1, 3))
    return [Judgment(id=f"document-{number}#chunk", grade=chance.randint(1, 3)) for number in numbers]


def _rankings(chance: random.Random, judgments: Sequence[Sequence[Judgment]]) -> list[Ranking]:
    """Answer every query by ten hits in newly made strings."""
    rankings = []
    for some in judgments:
        ids = [f"document-{number}#chunk" for number in chance.sample(range(10_000, 20_000), 10)]
        if chance.random() < 0.9:
            for place, one in zip(chance.sample(range(10), len(some)), some, strict=True):
                ids[place] = "".join(list(str(one.id)))
        rankings.append(ranking_of(ids))
    return rankings


def _copies(rankings: Sequence[Ranking]) -> list[Ranking]:
    """Return the rankings in newly made strings."""
    return [ranking_of(["".join(list(chunk)) for chunk in ranking.ids]) for ranking in rankings]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
