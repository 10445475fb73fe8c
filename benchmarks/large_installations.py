"""The goals of large installations: thousands of checks, a suite of 100,000, 43 million results, writers that wait.

    python -m benchmarks.scale --all [--quick]

Each part is a benchmark of its own, run as a process of its own one after another; every line they print has its goal
beside it. `--quick` takes a tenth of the sizes, which says whether the parts work and nothing about the goals.
"""

import subprocess
import sys
from typing import Final

PARTS: Final = (
    ("5,000 checks of 10 canaries each minute", "many_checks", ("--checks", 5000, "--minutes", 2, "--no-idle")),
    ("memory over one suite of 100,000 canaries", "large_suite", ("--canaries", 100_000)),
    ("reads over 43 million results", "reads", ("--days", 30)),
    ("how long writers wait, suite of 10,000", "writer_holds", ("--canaries", 10_000)),
    ("how long writers wait, a million rankings", "retention", ("--rankings", 1_000_000)),
)
_SIZES: Final = ("--checks", "--canaries", "--days", "--rankings")


def measure_all(*, quick: bool) -> None:
    """Run every part. Raises CalledProcessError where one ends with an error."""
    for title, module, arguments in PARTS:
        words = [str(word) for word in (_tenth(arguments) if quick else arguments)]
        print(f"\n{title}: python -m benchmarks.{module} {' '.join(words)}", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.{module}", *words], check=True)  # noqa: S603 - our own


def _tenth(arguments: tuple[str | int, ...]) -> list[str | int]:
    before = ("", *arguments)
    return [
        word // 10 if isinstance(word, int) and name in _SIZES else word
        for name, word in zip(before, arguments, strict=False)
    ]
