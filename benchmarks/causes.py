"""How long it takes to tell the cause of a run, by kind of change: made-up rankings of 1,000 canaries and 5,000 chunks.

`python -m benchmarks.bench --only cause`. `shapes` is the pure function over stored rankings (`find_answer_causes`),
`whole` what a run pays in all, texts of those that lost chunks by name compared, for 200 canaries at most.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np

from app.base.values import Canary, Judgment, Ranking
from app.diagnosis.domain.answer_causes import Answers, find_answer_causes
from app.diagnosis.domain.run_causes import RankingPair, find_run_cause
from app.retrievers.domain.retrievers import Scale

CHANGES: Final[Mapping[str, str]] = {
    "limited": "answers cut to 3",
    "same": "nothing changed",
    "model": "another model",
    "replicas": "a replica lacks a quarter",
    "missing": "5 % of the chunks missing",
}
CHUNKS: Final = 5_000
DEPTH: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Milliseconds of each round."""

    shapes: Sequence[float]
    whole: Sequence[float]
    told: str


def measure(canaries: int, rounds: int) -> dict[str, Times]:
    """Measure each kind of change."""
    chance = np.random.default_rng(1)
    scores = chance.random((canaries, CHUNKS))
    gone, stale = chance.random((2, CHUNKS)) < ((0.05,), (0.25,))
    of_stale = chance.random(canaries) < 0.5
    before, lacking = _answers(scores), _answers(np.where(stale, -1, scores))
    changed = {
        "limited": _answers(scores, 3),
        "same": _answers(scores),
        "model": _answers(scores + chance.normal(0, 0.001, scores.shape)),
        "replicas": [b if is_stale else a for a, b, is_stale in zip(before, lacking, of_stale, strict=True)],
        "missing": _answers(np.where(gone, -1, scores)),
    }
    watched = [
        Canary(key=f"q{place}", query="?", judgments=(Judgment(id=one.ids[0]),)) for place, one in enumerate(before)
    ]
    return {
        key: _times(watched, before, [a if a == b else b for a, b in zip(before, now, strict=True)], rounds)
        for key, now in changed.items()
    }


def _times(watched: Sequence[Canary], before: Sequence[Ranking], now: Sequence[Ranking], rounds: int) -> Times:
    answers = Answers(before=before, now=now, earlier=[None] * len(now))
    pairs = [RankingPair(canary=one, before=was, now=is_) for one, was, is_ in zip(watched, before, now, strict=True)]

    def whole() -> Any:
        return find_run_cause(pairs, k=5, scale=Scale.COSINE, since_run=2, before_run=1)

    found = whole()
    return Times(
        shapes=[_milliseconds(lambda: find_answer_causes(answers)) for _ in range(rounds)],
        whole=[_milliseconds(whole) for _ in range(rounds)],
        told=found.phrase if found is not None else "none",
    )


def _milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def _answers(scores: "np.ndarray[Any, np.dtype[np.float64]]", depth: int = DEPTH) -> list[Ranking]:
    """Answer each canary with strings of its own, as rows that are read have; an answer as before is one row."""
    best = np.argsort(-scores, axis=1)[:, :depth]
    return [
        Ranking(
            ids=tuple(f"doc-{one // 5}#{one}" for one in row),
            documents=tuple(f"doc-{one // 5}" for one in row),
            texts=tuple(" ".join(f"w{one}x{word}" for word in range(60)) for one in row),
            scores=tuple(mine[row].tolist()),
            returned=depth,
        )
        for row, mine in zip(best.tolist(), scores, strict=True)
    ]


if __name__ == "__main__":
    for key, times in measure(1_000, 15).items():
        print(f"{CHANGES[key]}: {median(times.shapes):.2f} ms, {median(times.whole):.1f} ms in all; {times.told}")
