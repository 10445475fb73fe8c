"""How often the interval of a comparison of few canaries holds the truth: it is to be .93 of samples or more.

    python -m benchmarks.small_samples [SAMPLES]

SAMPLES (default 1,000) of each population and number of canaries, seeded. Samples in which all canaries differ by the
same have no interval and are left out. "The bootstrap alone" is the interval without the bound that Student's t sets
for few pairs.
"""

import sys
from typing import Final
from unittest.mock import patch

import numpy as np

from app.comparison.domain import estimates
from app.comparison.domain.estimates import estimate
from tests.support.paired_samples import SMALL_SAMPLES, Draw

LEAST: Final = 0.93
COUNTS = (11, 15, 20, 30)


def main(samples: int = 1_000) -> None:
    """Print how often intervals hold the truth, and how wide they are."""
    print("| canaries differ as | canaries | the bootstrap alone | width | covers | width |")
    lowest = 1.0
    for name, draw in SMALL_SAMPLES.items():
        for count in COUNTS:
            with patch.object(estimates, "FEW_PAIRS", 0):
                alone, narrow = measure(draw, count, samples)
            covers, width = measure(draw, count, samples)
            lowest = min(lowest, covers)
            print(f"| {name} | {count} | {alone:.3f} | {narrow:.2f} | {covers:.3f} | {width:.2f} |", flush=True)
    print(f"least: {lowest:.3f}")
    assert lowest >= LEAST


def measure(draw: Draw, count: int, samples: int) -> tuple[float, float]:
    """Return the share of intervals that hold 0, the truth, and their mean width."""
    random = np.random.default_rng(count)
    held, widths = 0, []
    for sample in range(samples):
        found = estimate("NDCG@10", np.zeros(count), draw(random, count), seed=sample)
        if found.low is not None and found.high is not None:
            held += found.low <= 0 <= found.high
            widths.append(found.high - found.low)
    return held / len(widths), float(np.mean(widths))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
