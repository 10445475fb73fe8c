"""Simulated pairs of runs of one noisy retriever: whatever is claimed of them is claimed wrongly."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.comparison.domain.outcomes import ComparisonOutcome, Depth, compare, primary_measures
from app.scoring.measures import Batch, Measure, compute, cut_batch, mean_name, parse_measure

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyRetriever:
    """Scores of chunks are their grade times how easy the canary is, and noise of both the canary and the moment."""

    canaries: int
    grades: Sequence[int] = (3, 2, 1, 1)
    """A canary expects a first part of these, at random."""
    candidates: int = 40
    """Chunks that could be returned."""
    noise: float = 0.7
    """Standard deviation from run to run; that from canary to canary is 1."""
    loss: float = 0.0
    """Share of the relevant chunks that it does not have."""

    def prepare(self, random: np.random.Generator) -> tuple[NDArray[np.uint8], Floats]:
        """Return grades (Q, C) of the candidates and how well each fits its query, whatever the moment."""
        grades = np.zeros((self.canaries, self.candidates), dtype=np.uint8)
        counts = random.integers(1, len(self.grades) + 1, self.canaries)
        for row, count in zip(grades, counts, strict=True):
            row[:count] = self.grades[:count]
        ease = random.uniform(0.3, 2.0, (self.canaries, 1))
        return grades, grades * ease + random.normal(0, 1, grades.shape)

    def ask(self, random: np.random.Generator, grades: NDArray[np.uint8], fit: Floats, fetch_k: int) -> Batch:
        """Return the matches of one run."""
        scores = fit + random.normal(0, self.noise, fit.shape)
        scores[(grades > 0) & (random.random(fit.shape) < self.loss)] = -np.inf
        top = np.argsort(-scores, axis=1)[:, :fetch_k]
        found = np.take_along_axis(grades, top, axis=1)
        found[np.isneginf(np.take_along_axis(scores, top, axis=1))] = 0
        lengths = np.full(self.canaries, fetch_k, dtype=np.int64)
        relevant = (found > 0).astype(np.uint8)
        none = np.zeros(0, dtype=np.int64)
        return Batch(
            gains=found, relevant=relevant, found=relevant, judged=relevant, returned=lengths, distinct=lengths,
            ideal=-np.sort(-grades.astype(np.int8), axis=1).astype(np.int8).view(np.uint8),
            n_relevant=np.count_nonzero(grades, axis=1).astype(np.int64),
            twofold=none, ranks_by_id=none, ranks_by_any=none,
        )  # fmt: skip


EQUALS: Mapping[str, NoisyRetriever] = {
    f"{canaries} canaries, {name}": NoisyRetriever(canaries=canaries, grades=grades, noise=noise)
    for canaries in (20, 100, 400)
    for name, grades, noise in (
        ("1 to 4 chunks expected, noisy", (3, 2, 1, 1), 0.7),
        ("1 to 4 chunks expected, nearly steady", (3, 2, 1, 1), 0.05),
        ("one chunk expected, noisy", (1,), 0.7),
    )
}
"""By name, as `benchmarks/comparing.py` prints and docs/measures.md shows them."""
MOST_CLAIMS = 0.06
"""Share of pairs of equals of which a difference may be claimed."""


def outcomes(
    a: NoisyRetriever, b: NoisyRetriever, *, pairs: int, seed: int, k: int = 5, fetch_k: int = 10
) -> Iterator[ComparisonOutcome]:
    """Yield the outcomes of comparing two retrievers, each time over other canaries."""
    for number in range(pairs):
        random = np.random.default_rng([seed, number])
        grades, fit = a.prepare(random)
        first, second = (one.ask(random, grades, fit, fetch_k) for one in (a, b))
        yield compare_batches(first, second, Depth(k=k, m=fetch_k, equal=True))


def compare_batches(a: Batch, b: Batch, depth: Depth) -> ComparisonOutcome:
    """Compare the matches of two runs by the primary measures of a depth."""
    primaries = primary_measures(depth)
    return compare(columns(a, depth), columns(b, depth), primaries=primaries, categories=())


def columns(batch: Batch, depth: Depth) -> Mapping[str, Floats]:
    """Return the primary measures of a run's matches, by the names of their means."""
    names = primary_measures(depth)
    measures = [Measure("Hit", depth.k) if name == "coverage" else parse_measure(name) for name in names]
    assert all(mean_name(measure) in {*names, f"Hit@{depth.k}"} for measure in measures)
    return dict(zip(names, compute(cut_batch(batch, depth.m), [*map(_uncut, measures)], depth.m).T, strict=True))


def _uncut(measure: Measure) -> Measure:
    """Return a measure as it is computed of rankings that are already cut: RR@m is RR."""
    return Measure("RR") if measure.name == "RR" else measure
