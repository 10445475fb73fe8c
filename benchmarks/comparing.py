"""How often a comparison claims a difference: between runs of one noisy retriever never rightly, of two it may.

    python -m benchmarks.comparing [PAIRS]

PAIRS (default 2,000) pairs of runs for each row, each over canaries of its own, seeded. "A claim" is what Coalmine
claims: an interval without zero and a p value of at most .05 corrected by Holm over the primary measures. "Any
interval" is what would be claimed without the correction: some primary measure's interval leaves out zero. In the row
of two depths the same rankings are read to 5 and to 20 hits, once uncut, as MAP and MRR of whole rankings would be,
and once to the depth both have.
"""

import sys

import numpy as np

from app.base.values import replace
from app.comparison.domain.estimates import estimate
from app.comparison.domain.outcomes import ComparisonVerdict, common_depth
from app.scoring.measures import Measure, compute, cut_batch
from tests.support.exchangeable_runs import EQUALS, MOST_CLAIMS, NoisyRetriever, compare_batches, outcomes


def main(pairs: int = 2_000) -> None:
    """Print the shares, and hold those of equals against what is promised."""
    print("| runs of one retriever | a claim | any interval |")
    for seed, (name, one) in enumerate(EQUALS.items()):
        claimed, excluded = shares(one, one, pairs, seed)
        print(f"| {name} | {claimed:.4f} | {excluded:.3f} |", flush=True)
        assert claimed <= MOST_CLAIMS, name
    print("| two retrievers, the second one worse | said to be worse | any interval |")
    for canaries in (100, 400):
        for loss in (0.05, 0.1):
            one = NoisyRetriever(canaries=canaries)
            found = [found.verdict for found in outcomes(one, replace(one, loss=loss), pairs=pairs, seed=canaries)]
            share = found.count(ComparisonVerdict.WORSE) / pairs
            _, excluded = shares(one, replace(one, loss=loss), pairs, canaries)
            print(f"| {canaries} canaries, {loss:.0%} of the chunks lost | {share:.3f} | {excluded:.3f} |", flush=True)
    uncut, cut = two_depths(pairs)
    print(f"fetch_k 5 against 20: MAP or MRR of whole rankings {uncut:.3f}, to the depth of both {cut:.4f}")
    assert cut == 0


def shares(a: NoisyRetriever, b: NoisyRetriever, pairs: int, seed: int) -> tuple[float, float]:
    """Return the shares of comparisons with a claim, and with any interval of a primary measure without zero."""
    claimed = excluded = 0
    for found in outcomes(a, b, pairs=pairs, seed=seed):
        claimed += bool(found.claimed)
        excluded += any(one.estimate.excludes_zero for one in found.decisions)
    return claimed / pairs, excluded / pairs


def two_depths(pairs: int, canaries: int = 100) -> tuple[float, float]:
    """Return the shares of claims between the same rankings of 5 and of 20 hits: uncut, and cut."""
    one, uncut, cut = NoisyRetriever(canaries=canaries), 0, 0
    depth = common_depth(k=(5, 5), fetch_k=(5, 20))
    whole = [Measure("RR"), Measure("AP")]
    for number in range(pairs):
        random = np.random.default_rng([5, 20, number])
        deep = one.ask(random, *one.prepare(random), 20)
        shallow = cut_batch(deep, 5)
        columns = zip(compute(shallow, whole, 5).T, compute(deep, whole, 20).T, strict=True)
        uncut += any(estimate("", *both).excludes_zero for both in columns)
        cut += bool(compare_batches(shallow, deep, depth).claimed)
    return uncut / pairs, cut / pairs


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
