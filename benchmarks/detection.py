"""How soon faults are seen, how often none is seen, and what a run costs: the detector on recorded histories.

    python -m benchmarks.detection [TRACES.npz]

TRACES.npz (default ../shared/traces/xquad_dense.npz) is what `coalmine replay` reads, `meta` also saying regime, kind,
size and harmful. For each fault and regime: the share of histories with an alarm within 20 runs, and the median of the
runs until then, held against what was measured when the detector was chosen. Then healthy runs are appended to the
faulty ones: an alarm is to open once, close and stay closed. Other collections and regimes: detection_elsewhere.
"""

import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from app.detection.documents import Trace, TraceFile
from app.detection.domain import Change, Members, Observation, Settings, grouped
from app.detection.domain.learning import learn
from app.detection.domain.tracker import (
    Follower,
    Runs,
    follow,
    learn_when_due,
    learned,
    observe,
    pack_state,
    replay,
    unpack_state,
)

SOON = 20
RECOVERED = 30
ROUNDS, IN_A_ROUND = 40, 5
MOST_MS: Final = {200: 1.0, 10_000: 10.0}

REFERENCE: Final[Mapping[tuple[str, float | None], tuple[str, str]]] = {
    ("loss", 0.05): ("1 2 1 1", "3 4 1 2"),
    ("loss", 0.02): ("2 4 2 4", "4 4 4 4"),
    ("loss", 0.01): ("2 - 4 -", "4 - 4 -"),
    ("topic", None): ("1 1 1 1", "1 1 1 1"),
    ("dup", 0.02): ("1 2 2 2", "2 4 4 4"),
    ("k", 3): ("1 1 3 1", "2 2 4 2"),
    ("ann", 0.05): ("1 1 1 1", "3 4 3 2"),
    ("drift", 0.002): ("4 5 7 3", "4 5 7 4"),
    ("swap", None): ("1 1 1 1", "1 1 1 1"),
    ("cls", None): ("1 1 1 1", "1 1 1 1"),
    ("binary", None): ("1 1 1 1", "1 1 1 1"),
}
"""Runs until the alarm, seed by seed, deterministic and with independent misses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of one history."""

    opened: Sequence[int]
    highest: float
    recovered: int | None
    """Runs from the recovery until the alarm closed; None = it did not, or there was none."""
    reopened: int


def main() -> None:
    """Print the tables, after checking them."""
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/traces/xquad_dense.npz")
    cells: dict[tuple[str, float | None], dict[str, list[Found]]] = {}
    null: list[tuple[str, int, Found]] = []
    with file.open("rb") as stream:
        traces = TraceFile(str(file), stream)
        for entry, trace in zip(traces.traces, traces.read(), strict=True):
            found = judged(trace, recovers=entry["harmful"])
            if entry["harmful"]:
                cells.setdefault((entry["kind"], entry["size"]), {}).setdefault(entry["regime"], []).append(found)
            else:
                null.append((f"{entry['kind']} {entry['regime']}", entry["after"], found))
    print("Power within 20 runs / median delay / delays; deterministic, independent misses, sticky replicas")
    for fault, regimes in cells.items():
        told = " | ".join(f"{name} {_told(found)}" for name, found in regimes.items())
        print(f"  {fault[0]:>6} {fault[1] or '':<5} {told}")
        for number, regime in enumerate(("det", "iid")):
            if fault in REFERENCE and regime in regimes:
                _hold(fault, regimes[regime], REFERENCE[fault][number])
    quiet(null)
    recovery([found for regimes in cells.values() for some in regimes.values() for found in some])
    for count in MOST_MS:
        speed(count)


def judged(trace: Trace, *, recovers: bool) -> Found:
    """Lead the detector over a history, then over healthy runs of its beginning if it is to recover."""
    count = trace.base_lost.shape[1]
    members = Members(keys=tuple(range(count)), groups=grouped([[f"topic:{topic}"] for topic in trace.topics]))
    lost, ndcg = trace.after_lost, trace.after_ndcg
    faulty = len(lost)
    if recovers:
        lost = np.concatenate([lost, trace.base_lost[-RECOVERED:]])
        ndcg = np.concatenate([ndcg, trace.base_ndcg[-RECOVERED:]])
    opened, closed, highest = [], [], 0.0
    healthy = Runs(lost=trace.base_lost, ndcg=trace.base_ndcg)
    for number, (_, reading) in enumerate(replay(members, healthy, Runs(lost=lost, ndcg=ndcg)), 1):
        if reading.change is Change.OPENED:
            opened.append(number)
        if reading.change is Change.CLOSED:
            closed.append(number)
        if not reading.open:
            highest = max(highest, reading.evidence or 0)
    return Found(
        opened=opened,
        highest=highest,
        recovered=closed[-1] - faulty if closed and closed[-1] > faulty else None,
        reopened=max(len(opened) - 1, 0),
    )


def quiet(null: Sequence[tuple[str, int, Found]]) -> None:
    """Tell of the histories without harm: no alarm at all."""
    runs = sum(after for _, after, _ in null)
    alarms = sum(len(found.opened) for _, _, found in null)
    print(f"No harm: {alarms} alarms in {len(null)} histories of {runs:,} runs")
    for kind in sorted({kind for kind, _, _ in null}):
        print(f"  {kind:<16} highest evidence {max(found.highest for name, _, found in null if name == kind):,.0f}")
    assert alarms == 0


def recovery(found: Sequence[Found]) -> None:
    """Tell how alarms end once all is well again."""
    alarmed = [one for one in found if one.opened]
    took = sorted(one.recovered for one in alarmed if one.recovered is not None)
    reopened = sum(one.reopened for one in alarmed)
    print(
        f"Recovery: {len(alarmed)} alarms, {sum(len(one.opened) == 1 for one in alarmed)} opened once, "
        f"{len(took)} closed, median {statistics.median(took):g} and p95 {took[int(0.95 * len(took))]} runs after, "
        f"at most {took[-1]}; opened again {reopened}"
    )
    assert reopened == 0
    assert len(took) == len(alarmed)
    assert statistics.median(took) == Settings().close


def speed(count: int) -> None:
    """Time a run of the detector, calm and failing, with its state read and written.

    Medians of CPU time over rounds, of the quietest round: the machine may be busy with other things.
    """
    chance = np.random.default_rng(1)
    names = [[f"category:{one % 6}", f"tag:{one % 40}", f"document:{one // 5}"] for one in range(count)]
    members = Members(keys=tuple(range(count)), groups=grouped(names))
    lost = (chance.random((300, count)) < 0.01).astype(np.int8)
    ndcg = np.where(lost == 1, 0.0, 1.0)
    begun = learned(follow(members), learn(members.keys, lost, ndcg))
    settings = Settings()
    for name, rate in (("calm", 0.01), ("alarm", 0.1)):
        follower, steps, whole = begun, [], []
        for _ in range(ROUNDS * IN_A_ROUND):
            now = (chance.random(count) < rate).astype(np.int8)
            seen = Observation(lost=now, ndcg=np.where(now == 1, 0.0, 1.0))
            packed = pack_state(follower.state)
            started = time.process_time()
            state = unpack_state(packed)
            held = Follower(state=state, baseline=follower.baseline)
            stepped = time.process_time()
            follower, reading = observe(held, members, seen, settings)
            after = time.process_time()
            pack_state(follower.state)
            steps.append(after - stepped)
            whole.append(time.process_time() - started)
            follower = learn_when_due(follower, lambda _: (lost, ndcg), Settings(relearn=False), eligible=True)
        assert reading.open is (name == "alarm")
        step, all_of_it = _quietest(steps), _quietest(whole)
        print(f"{count:>6} canaries, {name}: {step:.2f} ms a run, {all_of_it:.2f} ms with its state read and written")
        assert step < MOST_MS[count]


def _quietest(seconds: Sequence[float]) -> float:
    """Return the lowest of the rounds' medians, in milliseconds."""
    rounds = [seconds[start : start + IN_A_ROUND] for start in range(0, len(seconds), IN_A_ROUND)]
    return min(map(statistics.median, rounds)) * 1e3


def _told(found: Sequence[Found]) -> str:
    delays = list(_delays(found))
    soon = [delay for delay in delays if delay is not None]
    median = f"{statistics.median(soon):g}" if soon else "-"
    listed = " ".join("-" if delay is None else str(delay) for delay in delays)
    return f"{len(soon) / len(delays):4.0%} / {median} / {listed}"


def _delays(found: Sequence[Found]) -> Iterator[int | None]:
    for one in found:
        first = one.opened[0] if one.opened else None
        yield first if first is not None and first <= SOON else None


def _hold(fault: Any, found: Sequence[Found], reference: str) -> None:
    """Assert power and median delay to be no worse than the reference."""
    delays = [delay for delay in _delays(found) if delay is not None]
    wanted = [int(delay) for delay in reference.split() if delay != "-"]
    assert len(delays) / len(found) >= len(wanted) / len(reference.split()), fault
    assert statistics.median(delays) <= statistics.median(wanted), fault


if __name__ == "__main__":
    main()
