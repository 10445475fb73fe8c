"""The detector away from its traces: other collections, other numbers of canaries, other ways to be healthy.

    python -m benchmarks.detection_elsewhere [FOLDER]

FOLDER (default ../shared/data) holds cranfield, chunkeval and xquad_en (docs.jsonl.gz, queries.jsonl.gz); BM25
serves their documents as they are. False alarms per 10,000 runs: with a baseline of 300 healthy runs, and of checks
that begin with nothing. Then documents are lost, all at once and little by little, and found again.
"""

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import bm25s
import numpy as np

from app.detection.domain import Change, Members, grouped
from app.detection.domain.tracker import Runs, replay
from benchmarks.text_indexes import read_lines
from tests.support.synthetic_runs import noisy, replicas, runs_of

BASE, AFTER, FAULTY, RECOVERED = 300, 1500, 40, 20
K, DEEP = 5, 10
SEEDS: Final = {50: 4, 200: 4, 1000: 1}
LOSSES: Final = (0.01, 0.02, 0.05, 0.1)

Regime = Callable[[int, int, int], Runs]
"""Makes so many runs of so many canaries, by a seed."""


def main() -> None:
    """Print the tables; the first column of the first one is to be zero."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data")
    print(f"False alarms per 10,000 healthy runs ({AFTER:,} runs each): baseline of {BASE} runs | from nothing, all of")
    print("them in the warm-up or soon after | after the first 600 runs")
    for count, seeds in SEEDS.items():
        for name, regime in regimes().items():
            alarms, cold, late = 0, 0, 0
            for seed in range(seeds):
                runs = regime(count, BASE + AFTER, seed)
                alarms += len(opened(cut(runs, 0, BASE), cut(runs, BASE, BASE + AFTER)))
                begun = opened(cut(runs, 0, 0), runs)
                cold += len(begun)
                late += sum(number > 600 for number in begun)
            each = 10_000 / (seeds * AFTER)
            print(f"  {count:>5} {name:<22} {alarms * each:5.1f} | {cold * each:5.1f} | {late * each:5.1f}", flush=True)
            assert alarms == 0, (count, name)
    for name in ("cranfield", "chunkeval", "xquad_en"):
        collection(folder / name)


def regimes() -> Mapping[str, Regime]:
    """Give the ways to be healthy."""
    return {
        "the same every time": lambda count, runs, seed: noisy(count, runs, seed, 0.0, range(count // 20)),
        "0.1 % missed": lambda count, runs, seed: noisy(count, runs, seed, 0.001),
        "1 % missed": lambda count, runs, seed: noisy(count, runs, seed, 0.01, range(count // 20)),
        "5 % missed": lambda count, runs, seed: noisy(count, runs, seed, 0.05),
        "some flicker much": flickering,
        "0.3 % of probes fail": lambda count, runs, seed: erring(noisy(count, runs, seed, 0.01), seed),
        "random replicas": lambda count, runs, seed: replicas(count, runs, seed, sticky=False),
        "sticky replicas": lambda count, runs, seed: replicas(count, runs, seed, sticky=True),
        "failures last 5 runs": lasting,
    }


def collection(folder: Path) -> None:
    """Lose documents of a collection, and find them again."""
    documents = read_lines(folder / "docs.jsonl.gz")
    queries = read_lines(folder / "queries.jsonl.gz")
    texts = [piece for one in documents for piece in pieces(one)]
    wanted = [relevant(query, texts) for query in queries]
    asked = [place for place, some in enumerate(wanted) if some]
    deep = ranked([text for _, _, text in texts], [queries[place]["text"] for place in asked])
    truth = [wanted[place] for place in asked]
    whole = measured(deep, truth, frozenset())
    print(f"{folder.name}: {len(asked)} canaries over {len(texts):,} chunks, Hit@5 {1 - whole[0].mean():.3f}")
    for misses in (0.0, 0.01):
        regime = "1 % missed" if misses else "the same every time"
        for loss in LOSSES:
            print(f"  {regime}, {loss:.0%} lost: {_cell(deep, truth, len(texts), misses, loss)}")
        print(f"  {regime}, 0.2 % more lost each run: {_cell(deep, truth, len(texts), misses, None)}", flush=True)


def opened(healthy: Runs, after: Runs) -> list[int]:
    """List the runs that opened an alarm."""
    readings = (reading for _, reading in replay(members(after.lost.shape[1]), healthy, after))
    return [number for number, reading in enumerate(readings, 1) if reading.change is Change.OPENED]


def _cell(deep: Sequence[Any], truth: Sequence[frozenset[int]], chunks: int, misses: float, loss: float | None) -> str:
    delays, moved, closings, again = [], [], [], 0
    for seed in range(4):
        chance = np.random.default_rng(seed)
        order = chance.permutation(chunks)
        shares = [loss if loss is not None else 0.002 * (run + 1) for run in range(FAULTY)]
        if loss is not None:
            faulty = [measured(deep, truth, frozenset(order[: round(loss * chunks)].tolist()))] * FAULTY
        else:
            faulty = [measured(deep, truth, frozenset(order[: round(share * chunks)].tolist())) for share in shares]
        whole = measured(deep, truth, frozenset())
        healthy = _noise([whole] * BASE, chance, misses)
        after = _noise([*faulty, *[whole] * RECOVERED], chance, misses)
        readings = [reading for _, reading in replay(members(len(truth)), healthy, after)]
        found = [number for number, one in enumerate(readings, 1) if one.change is Change.OPENED]
        ends = [number for number, one in enumerate(readings, 1) if one.change is Change.CLOSED]
        delays.append(found[0] if found and found[0] <= FAULTY // 2 else None)
        moved.append(int((faulty[-1][0] > whole[0]).sum()))
        closings += [number - FAULTY for number in ends[-1:] if number > FAULTY]
        again += max(len(found) - 1, 0)
    soon = [delay for delay in delays if delay is not None]
    told = " ".join("-" if delay is None else str(delay) for delay in delays)
    closed = f"closed {statistics.median(closings):g} runs after" if closings else "nothing to close"
    return f"alarm after {told} (newly lost {' '.join(map(str, moved))}), {len(soon)}/4, {closed}, opened again {again}"


def ranked(texts: Sequence[str], queries: Sequence[str]) -> list[list[int]]:
    """Rank chunks deeper than is looked, so that others move up where some are lost."""
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(texts), show_progress=False), show_progress=False)
    tokens = bm25s.tokenize(list(queries), show_progress=False)
    found, _ = index.retrieve(tokens, k=min(60, len(texts)), show_progress=False)
    return [row.tolist() for row in found]


def measured(deep: Sequence[Sequence[int]], truth: Sequence[frozenset[int]], gone: frozenset[int]) -> Any:
    """Say who is lost, and NDCG@10, where some chunks are gone."""
    gains = 1 / np.log2(np.arange(2, DEEP + 2))
    lost, ndcg = np.zeros(len(deep), np.int8), np.zeros(len(deep))
    for place, (ranking, wanted) in enumerate(zip(deep, truth, strict=True)):
        hits = [one in wanted for one in [chunk for chunk in ranking if chunk not in gone][:DEEP]]
        lost[place] = not any(hits[:K])
        ndcg[place] = gains[: len(hits)][hits].sum() / gains[: min(len(wanted), DEEP)].sum()
    return lost, ndcg


def _noise(runs: Sequence[Any], chance: np.random.Generator, misses: float) -> Runs:
    lost = np.stack([one for one, _ in runs])
    ndcg = np.stack([one for _, one in runs])
    missed = chance.random(lost.shape) < misses
    return Runs(lost=np.where(missed, 1, lost).astype(np.int8), ndcg=np.where(missed, 0.0, ndcg))


def pieces(document: Mapping[str, Any]) -> list[tuple[str, int, str]]:
    """Cut long documents every 700 characters: (document, start, text)."""
    text, size = document["text"], 700
    return [(str(document["doc_id"]), start, text[start : start + size]) for start in range(0, max(len(text), 1), size)]


def relevant(query: Mapping[str, Any], texts: Sequence[tuple[str, int, str]]) -> frozenset[int]:
    """Find the chunks that answer: those named by document, or those a span lies in."""
    if "refs" in query:
        spans = [(start, end) for start, end, _ in query["refs"]]
        mine = [(place, start, len(text)) for place, (name, start, text) in enumerate(texts) if name == query["doc_id"]]
        return frozenset(
            place for place, at, size in mine if any(start < at + size and end > at for start, end in spans)
        )
    named = {str(name) for name in query["qrels"]}
    return frozenset(place for place, (name, _, _) in enumerate(texts) if name in named)


def members(count: int) -> Members:
    """Make canaries of six categories and of tags of ten."""
    names = [[f"category:{one % 6}", f"tag:{one % max(count // 10, 2)}"] for one in range(count)]
    return Members(keys=tuple(range(count)), groups=grouped(names))


def cut(runs: Runs, start: int, end: int) -> Runs:
    """Return the runs from one place to another."""
    return Runs(lost=runs.lost[start:end], ndcg=runs.ndcg[start:end])


def flickering(count: int, runs: int, seed: int) -> Runs:
    """Make runs in which a tenth of the canaries fails often."""
    chance = np.random.default_rng(seed)
    rates = np.where(chance.random(count) < 0.1, chance.choice([0.05, 0.2, 0.5, 0.8, 1.0], count), 0.002)
    return runs_of((chance.random((runs, count)) < rates).astype(np.int8))


def erring(runs: Runs, seed: int) -> Runs:
    """Let some probes fail."""
    failed = np.random.default_rng(seed + 1).random(runs.lost.shape) < 0.003
    return runs_of(np.where(failed, -1, runs.lost).astype(np.int8))


def lasting(count: int, runs: int, seed: int) -> Runs:
    """Make runs in which a failure tends to last five runs."""
    chance = np.random.default_rng(seed)
    lost = np.zeros((runs, count), np.int8)
    for run in range(1, runs):
        lost[run] = np.where(lost[run - 1] == 1, chance.random(count) < 0.8, chance.random(count) < 0.002)
    return runs_of(lost)


if __name__ == "__main__":
    main()
