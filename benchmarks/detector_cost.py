"""What the detector's step costs a run: its state read, the run observed, state and detection written.

    python -m benchmarks.detector_cost [canaries] [runs]

Runs of a scripted retriever: the first 40 alike, so that a baseline is learned, which do not count; then 0.5 % of the
answers change from run to run. Milliseconds by the clock within the three functions of the step.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from statistics import median
from typing import Any

from app.base.db.engine import Store
from app.detection.service import detector_step
from benchmarks.storage import CHANGE, SwappingProbe, play

WARM_UP = 40


class SettledProbe(SwappingProbe):
    """One that begins to change once a baseline of it has been learned."""

    def __init__(self, canaries: int) -> None:
        super().__init__(canaries)
        self._left = WARM_UP

    def change(self, share: float = CHANGE) -> None:
        """Change so many answers, but for the first runs."""
        self._left -= 1
        if self._left < 0:
            super().change(share)


def main(canaries: int = 200, runs: int = 60) -> None:
    """Print the medians and the extremes."""
    for name, taken in zip(("clock", "processor"), measure(canaries, runs), strict=True):
        print(
            f"{canaries} canaries, {name}: {median(taken):.2f} ms ({min(taken):.2f} to {max(taken):.2f}, {runs} runs)"
        )


def measure(canaries: int, runs: int) -> tuple[list[float], list[float]]:
    """Milliseconds of the detector's step in each of so many runs, by the clock and of the processor."""
    elapsed, processor = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder, _timed_step() as spent:
        store = Store(f"sqlite:///{folder}/bench.db")
        for number, _ in enumerate(play(store, WARM_UP + runs, SettledProbe(canaries), datetime.now(UTC))):
            if number >= WARM_UP:
                elapsed.append(sum(one for one, _ in spent) * 1e3)
                processor.append(sum(one for _, one in spent) * 1e3)
            spent.clear()
        store.close()
    return elapsed, processor


@contextmanager
def _timed_step() -> Iterator[list[tuple[float, float]]]:
    """Give the seconds within the functions of the step, by the clock and of the processor, as they are called."""
    spent: list[tuple[float, float]] = []

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: object, **named: object) -> Any:
            began = time.perf_counter(), time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                spent.append((time.perf_counter() - began[0], time.thread_time() - began[1]))

        return call

    names = ("run_detector", "save_detection", "save_detector")
    before = {name: getattr(detector_step, name) for name in names}
    for name, function in before.items():
        setattr(detector_step, name, timed(function))
    try:
        yield spent
    finally:
        for name, function in before.items():
            setattr(detector_step, name, function)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
