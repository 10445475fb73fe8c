"""The goals of the detector beside its figures, on histories made anew: faults, healthy runs, habits, and the limit.

    python -m benchmarks.detection_habits [FOLDER] [--seed 200] [--runs 1000000] [--unseen]

FOLDER (default ../shared/data) holds cranfield, chunkeval and xquad_en; BM25 serves their chunks. Seed 100 was used
while habits were made, seed 200 only to measure them. One process, five minutes of CPU.

*Healthy*: 300 runs of a baseline, then 2,500 runs, in nine ways to be healthy; beside them a replica that the baseline
had not seen, whose habit takes two alarms to learn, and which in the end stays alone (`--unseen`: these histories and
no others). *Faults*: 300 healthy runs, then 40 of a fault, in three regimes.
*Limit*: an oracle that is told in each run which canaries the fault fails, and how often, and bets on those alone with
the rates the detector learned, into one Shiryaev-Roberts account with a false alarm in 100,000 runs. Histories in which
the fault broke no canary are left out: there is nothing to find.

Healthy histories are screened many at a time, by the same bets and the same learning; those whose evidence comes to a
tenth of the line are led through the detector itself, as are all of the replica not seen.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.base.values import replace
from app.detection.domain import UNMEASURED, Baseline, Change, Members, Settings, grouped
from app.detection.domain.evidence import (
    CANARY_BETS,
    FLEET_SHIFTS,
    GROUP_SHIFTS,
    at_rest,
    bet,
    joint_balance,
    nothing_recent,
    paid,
    remembered,
)
from app.detection.domain.habits import LONGEST_QUIET
from app.detection.domain.learning import learn, worse_than
from app.detection.domain.tracker import RELEARN_RUNS, Runs, replay
from benchmarks.detection_elsewhere import erring, flickering, lasting, measured, pieces, ranked, relevant
from benchmarks.text_indexes import read_lines
from tests.support.synthetic_runs import noisy, replicas

BASE, AFTER, FAULTY, SOON = 300, 2_500, 40, 20
COLLECTIONS: Final = ("cranfield", "chunkeval", "xquad_en")
MOST_CANARIES, FAULT_SEEDS, BLOCKS = 200, 6, 20
MOST_ALARMS, MOST_FALSE, LEAST_FOUND, LARGEST_DELAY = 2, 1.0, 0.98, 1.9
"""The goals: alarms of a healthy history, alarms per 100,000 healthy runs, share found, mean runs until then."""
ORACLE_LINE: Final = 100_000.0
SURE: Final = 0.9
"""The oracle's highest bet that a canary fails."""
SCREENED: Final = 0.1
"""Share of the line from which on a screened history is led through the detector."""

Chance = np.random.Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Canaries over the chunks of a collection, and how BM25 ranks them."""

    name: str
    deep: Sequence[Sequence[int]]
    halved: Sequence[Sequence[int]]
    """The same for queries that lost every other word."""
    truth: Sequence[frozenset[int]]
    topics: Sequence[int]
    """By canary, the block of the collection that its first expected chunk is in."""
    chunks: int

    def members(self) -> Members:
        """Return the canaries in groups by their blocks."""
        return Members(keys=tuple(range(len(self.truth))), groups=grouped([[f"tag:{one}"] for one in self.topics]))

    def answers(self, gone: frozenset[int] = frozenset()) -> Any:
        """Return who is lost and NDCG@10 where some chunks are gone."""
        return measured(self.deep, self.truth, gone)


@dataclass(slots=True)
class Healthy:
    """What came of the healthy histories of one kind."""

    histories: int = 0
    runs: int = 0
    alarms: list[int] = field(default_factory=list)
    without: list[int] = field(default_factory=list)
    """Alarms that there would have been if habits notified people, too."""
    peak: float = 0.0
    """The highest evidence of the screened ones."""
    led: int = 0
    """Histories led through the detector itself."""
    bounds: dict[int, list[int]] = field(default_factory=dict)
    """Of the quiet episodes, by their number: runs after which each would have been an alarm, had its state stayed."""
    alone: list[int | None] = field(default_factory=list)
    """Runs until the alarm where the last state stays for good and is a habit; None = nobody heard."""
    normal: int = 0
    """Histories with a habit whose state had become part of the baseline when it stayed."""


@dataclass(slots=True)
class Cell:
    """What came of the histories of one fault."""

    delays: list[int | None] = field(default_factory=list)
    limits: list[int | None] = field(default_factory=list)
    quiet: list[int] = field(default_factory=list)
    """Runs of the fault before it broke the first canary."""
    broken: list[int] = field(default_factory=list)

    def since_damage(self) -> Iterator[tuple[int | None, int | None]]:
        """Yield the delays of the detector and of the oracle from the first run that broke a canary."""
        for delay, limit, quiet in zip(self.delays, self.limits, self.quiet, strict=True):
            yield None if delay is None else delay - quiet, None if limit is None else limit - quiet


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default="../shared/data", type=Path)
    parser.add_argument("--seed", default=200, type=int)
    parser.add_argument("--runs", default=1_000_000, type=int)
    parser.add_argument("--unseen", action="store_true")
    given = parser.parse_args()
    worlds = [load(given.folder / name, given.seed) for name in COLLECTIONS]
    if given.unseen:
        not_seen(worlds, given.seed, given.runs)
        return
    cells = faults(worlds, given.seed)
    healthy, unseen = quiet(worlds, given.seed, given.runs)
    goals(cells, healthy, unseen)


def load(folder: Path, seed: int) -> World:
    """Read a collection; at most 200 canaries, drawn by the seed."""
    texts = [piece for one in read_lines(folder / "docs.jsonl.gz") for piece in pieces(one)]
    queries = read_lines(folder / "queries.jsonl.gz")
    asked = [(query["text"], wanted) for query in queries if (wanted := relevant(query, texts))]
    drawn = np.random.default_rng(seed).permutation(len(asked))[:MOST_CANARIES].tolist()
    words = [asked[place][0] for place in drawn]
    truth = [asked[place][1] for place in drawn]
    contents = [text for _, _, text in texts]
    block = -(-len(texts) // BLOCKS)
    return World(
        name=folder.name,
        deep=ranked(contents, words),
        halved=ranked(contents, [" ".join(one.split()[::2]) for one in words]),
        truth=truth,
        topics=[min(one) // block for one in truth],
        chunks=len(texts),
    )


# --- faults


def faults(worlds: Sequence[World], seed: int) -> Mapping[tuple[str, str], Cell]:
    """Lead the detector over every fault in every regime."""
    cells: dict[tuple[str, str], Cell] = {}
    print(f"Faults: found within {SOON} runs, mean delay; the same of the oracle; canaries broken in the median")
    for kind, make in KINDS.items():
        for regime in REGIMES:
            cell = cells.setdefault((kind, regime), Cell())
            for world in worlds:
                for number in range(FAULT_SEEDS):
                    add_history(cell, world, regime, make, np.random.default_rng([seed, number, len(world.truth)]))
        told = " | ".join(f"{regime} {_told(cells[kind, regime])}" for regime in REGIMES)
        print(f"  {kind:<18} {told}", flush=True)
    return cells


def add_history(cell: Cell, world: World, regime: str, make: "Fault", chance: Chance) -> None:
    """Add one history to a cell, unless the fault broke nothing."""
    before = REGIMES[regime](world, BASE, chance)
    states = make(world, chance)
    whole = world.answers()
    healthy = Runs(lost=np.stack([one[0] for one in before]), ndcg=np.stack([one[1] for one in before]))
    fails = np.stack([lost for lost, _ in states])
    chances = np.tile(fails.mean(axis=0), (FAULTY, 1)) if (fails != fails[0]).any() and make is not _drifting else fails
    chances = np.where(whole[0] == 1, 0.0, chances)
    if not fails[:SOON].max(axis=0)[whole[0] == 0].any():
        return
    noise = REGIMES[regime](world, FAULTY, chance)
    lost = np.maximum(fails, np.stack([one[0] for one in noise]))
    ndcg = np.minimum(np.stack([one for _, one in states]), np.stack([one[1] for one in noise]))
    after = Runs(lost=lost.astype(np.int8), ndcg=ndcg)
    readings = (reading for _, reading in replay(world.members(), healthy, after))
    opened = next((number for number, one in enumerate(readings, 1) if one.change is Change.OPENED), None)
    cell.delays.append(opened if opened is not None and opened <= SOON else None)
    cell.limits.append(oracle(learn(world.members().keys, healthy.lost, healthy.ndcg), chances, healthy, after))
    cell.quiet.append(int((chances.max(axis=1) > 0).argmax()))
    cell.broken.append(int((chances[SOON - 1] > 0).sum()))


def oracle(baseline: Baseline, chances: NDArray[np.float64], healthy: Runs, after: Runs) -> int | None:
    """Return after how many runs somebody who knows what the fault does to each canary could be sure.

    `chances`: (runs, n), how often the fault fails a canary that else would pass; 0 = it does not touch it.
    """
    account, last = 0.0, healthy.lost[-1]
    for number, (lost, chance) in enumerate(zip(after.lost[:SOON], chances, strict=False), 1):
        rates = np.where(last == 1, baseline.rates[0, 1], baseline.rates[0, 0])
        higher = np.minimum(np.where(chance > 0, rates + chance * (1 - rates), rates), np.maximum(rates, SURE))
        pays = np.where(lost == 1, higher / rates, (1 - higher) / (1 - rates))
        account = (1 + account) * float(np.exp(np.clip(np.log(pays).sum(), -60, 60)))
        if account >= ORACLE_LINE:
            return number
        last = lost
    return None


def _lost_chunks(share: float) -> "Fault":
    def make(world: World, chance: Chance) -> list[Any]:
        gone = chance.permutation(world.chunks)[: round(share * world.chunks)]
        return [world.answers(frozenset(gone.tolist()))] * FAULTY

    return make


def _drifting(world: World, chance: Chance) -> list[Any]:
    order = chance.permutation(world.chunks).tolist()
    return [world.answers(frozenset(order[: round(0.002 * (run + 1) * world.chunks)])) for run in range(FAULTY)]


def _lost_block(world: World, chance: Chance) -> list[Any]:
    block = -(-world.chunks // BLOCKS)
    start = int(chance.integers(BLOCKS)) * block
    return [world.answers(frozenset(range(start, start + block)))] * FAULTY


def _duplicated(world: World, chance: Chance) -> list[Any]:
    twice = set(chance.permutation(world.chunks)[: round(0.02 * world.chunks)].tolist())
    copies = [
        [one for chunk in deep for one in ([chunk] + [-1] * 7 if chunk in twice else [chunk])] for deep in world.deep
    ]
    return [measured(copies, world.truth, frozenset())] * FAULTY


def _cut(world: World, _chance: Chance) -> list[Any]:
    return [measured([deep[:3] for deep in world.deep], world.truth, frozenset())] * FAULTY


def _shortened(world: World, _chance: Chance) -> list[Any]:
    return [measured(world.halved, world.truth, frozenset())] * FAULTY


def _missing(rate: float) -> "Fault":
    def make(world: World, chance: Chance) -> list[Any]:
        lost, ndcg = world.answers()
        missed = chance.random((FAULTY, len(lost))) < rate
        return [(np.where(row, 1, lost).astype(np.int8), np.where(row, 0.0, ndcg)) for row in missed]

    return make


Fault = Callable[[World, Chance], list[Any]]
"""Makes who is lost, and NDCG@10, of each of the 40 runs."""
KINDS: Final[Mapping[str, Fault]] = {
    "1 % of chunks lost": _lost_chunks(0.01),
    "2 % lost": _lost_chunks(0.02),
    "5 % lost": _lost_chunks(0.05),
    "10 % lost": _lost_chunks(0.1),
    "a block lost": _lost_block,
    "2 % duplicated": _duplicated,
    "cut to 3": _cut,
    "half of the query": _shortened,
    "5 % more missed": _missing(0.05),
    "10 % more missed": _missing(0.1),
    "0.2 % more per run": _drifting,
}


def _same(world: World, runs: int, _chance: Chance) -> list[Any]:
    return [world.answers()] * runs


def _noisy(world: World, runs: int, chance: Chance) -> list[Any]:
    lost, ndcg = world.answers()
    missed = chance.random((runs, len(lost))) < 0.01
    return [(np.where(row, 1, lost).astype(np.int8), np.where(row, 0.0, ndcg)) for row in missed]


def _sticky(world: World, runs: int, chance: Chance) -> list[Any]:
    """Give runs of three replicas, each without 1 % of the chunks; the same three for healthy and faulty runs."""
    copies = _copies(world.name, len(world.truth), world)
    return [copies[place] for place in (np.cumsum(chance.random(runs) < 0.05) % len(copies)).tolist()]


_COPIES: dict[tuple[str, int], list[Any]] = {}


def _copies(name: str, count: int, world: World) -> list[Any]:
    if (name, count) not in _COPIES:
        chance = np.random.default_rng(count)
        _COPIES[name, count] = [
            world.answers(frozenset(chance.permutation(world.chunks)[: world.chunks // 100].tolist())) for _ in range(3)
        ]
    return _COPIES[name, count]


REGIMES: Final[Mapping[str, Callable[[World, int, Chance], list[Any]]]] = {
    "same": _same,
    "1 % missed": _noisy,
    "sticky": _sticky,
}


# --- healthy runs


def quiet(worlds: Sequence[World], seed: int, runs: int) -> tuple[Mapping[str, Healthy], Healthy]:
    """Lead the detector over so many healthy runs, and over those of a replica that the baseline had not seen."""
    found: dict[str, Healthy] = {}
    each = _histories(runs)
    print(f"Healthy: {AFTER:,} runs a history; alarms, of which in one history at most; without habits")
    for number, (kind, make) in enumerate(HEALTHY.items()):
        found[kind] = _judged(worlds, make, each, seed * 1_000 + number * 100_000)
        print(f"  {kind:<22} {_told_quiet(found[kind])}", flush=True)
    return found, not_seen(worlds, seed, runs)


def not_seen(worlds: Sequence[World], seed: int, runs: int) -> Healthy:
    """Lead the detector over histories of a replica that the baseline had not seen, half as many as of the others."""
    unseen = _judged(worlds, _unseen, max(_histories(runs) // 2, 1), seed * 1_000 + 900_000)
    print(f"  {'a replica not seen':<22} {_told_quiet(unseen)}")
    print(f"  {'':<22} alarms of each: {' '.join(map(str, sorted(unseen.alarms)))}")
    print(f"  {'':<22} at the end it stays alone, runs until the alarm: {_told_alone(unseen)}", end="; ")
    print(f"in {unseen.normal} others it had become normal")
    print(f"  {'':<22} median bounds by episode: {_told_bounds(unseen)}", flush=True)
    return unseen


def _histories(runs: int) -> int:
    return -(-runs // (AFTER * len(HEALTHY)))


def _judged(worlds: Sequence[World], make: "Way", histories: int, seed: int) -> Healthy:
    found = Healthy()
    for place, world in enumerate(worlds):
        made = [make(world, seed + number) for number in range(place, histories, len(worlds))]
        peaks = [np.inf] * len(made) if make is _unseen else screened(world.members(), made)
        for runs, peak in zip(made, peaks, strict=True):
            alarms, episodes = _led(world, runs, found) if peak >= SCREENED / Settings().alpha else (0, 0)
            found.histories += 1
            found.runs += AFTER
            found.peak = max(found.peak, 0.0 if make is _unseen else peak)
            found.led += make is _unseen or peak >= SCREENED / Settings().alpha
            found.alarms.append(alarms)
            found.without.append(alarms + episodes)
    return found


def _led(world: World, runs: Runs, found: Healthy) -> tuple[int, int]:
    """Return the alarms of a history, and the episodes of habits that alarmed nobody; add what came after them."""
    alarms = episodes = since = stays = 0
    in_habit = is_open = False
    for number, (_, reading) in enumerate(replay(world.members(), _part(runs, 0, BASE), _part(runs, BASE, len(runs)))):
        habit, opens = reading.habit, reading.change is Change.OPENED
        if number >= AFTER:
            stays += habit is not None
            since = reading.since if opens else 0
            if opens:
                break
            continue
        alarms += opens
        if habit is not None and not in_habit:
            episodes += 1
            found.bounds.setdefault(habit.times, []).append(habit.bound)
        in_habit, is_open = habit is not None, reading.open
    if stays and not is_open:
        found.alone.append(since or None)
    found.normal += bool(episodes and not stays and len(runs) > BASE + AFTER)
    return alarms, episodes


def screened(members: Members, histories: Sequence[Runs]) -> list[float]:
    """Return the highest evidence of each history, as if none of them came near an alarm; all stand side by side."""
    count, many = len(members.keys), len(histories)
    if not histories:
        return []
    lost = np.concatenate([one.lost for one in histories], axis=1)
    ndcg = np.concatenate([one.ndcg for one in histories], axis=1)
    groups = {
        f"{number}/{name}": positions + number * count
        for number in range(many)
        for name, positions in members.groups.items()
    }
    everybody = Members(keys=tuple(range(many * count)), groups=groups)
    canaries, grouped_level = at_rest(len(CANARY_BETS), many * count), at_rest(len(GROUP_SHIFTS), len(groups))
    fleet, recent = at_rest(len(FLEET_SHIFTS), many), nothing_recent(2, many * count)
    parts = [slice(number * count, (number + 1) * count) for number in range(many)]
    baseline, last = _learned_apart(lost[:BASE], ndcg[:BASE], count, many), None
    highest = np.zeros(many)
    for run in range(BASE, len(lost)):
        if last is None:
            last = baseline.last
        worse = worse_than(baseline.floors, ndcg[run])
        now = np.stack([lost[run], np.where(lost[run] == UNMEASURED, UNMEASURED, worse).astype(np.int8)])
        bets = bet(baseline.rates, baseline.known, last, now, everybody)
        canaries, grouped_level = paid(canaries, bets.canaries), paid(grouped_level, bets.groups)
        fleet = paid(fleet, _fleets(baseline, last, now, count, many))
        recent = remembered(recent, baseline.known, last, now)
        last = np.where(now == UNMEASURED, last, now)
        scopes = [canaries.accounts.reshape(2, -1, many, count).mean(axis=(0, 1, 3), dtype=np.float64)]
        if groups:
            scopes.append(grouped_level.accounts.reshape(2, len(GROUP_SHIFTS), many, -1).mean(axis=(0, 1, 3)))
        scopes.append(fleet.accounts.mean(axis=(0, 1), dtype=np.float64))
        each = [joint_balance(recent[:, one], baseline.rates[:, :, one], baseline.known[one]) for one in parts]
        scopes.append(np.array(each))
        highest = np.maximum(highest, np.mean(scopes, axis=0))
        if (run - BASE + 1) % RELEARN_RUNS == 0:
            baseline = _learned_apart(lost[run + 1 - BASE : run + 1], ndcg[run + 1 - BASE : run + 1], count, many)
            recent = nothing_recent(2, many * count)
    peaks: list[float] = highest.tolist()
    return peaks


def _learned_apart(lost: Any, ndcg: Any, count: int, many: int) -> Baseline:
    """Learn of each history by itself, and put what was learned side by side."""
    parts = [slice(number * count, (number + 1) * count) for number in range(many)]
    learned = [learn(range(count), lost[:, part], ndcg[:, part]) for part in parts]
    return replace(
        learned[0],
        keys=tuple(range(many * count)),
        known=np.concatenate([one.known for one in learned]),
        rates=np.concatenate([one.rates for one in learned], axis=2),
        floors=np.concatenate([one.floors for one in learned]),
        last=np.concatenate([one.last for one in learned], axis=1),
        failures=None,
    )


def _fleets(baseline: Baseline, last: Any, now: Any, count: int, many: int) -> Any:
    """Return the bets on all canaries of each history together: (signal, shift, history)."""
    active = baseline.known & (last != UNMEASURED) & (now != UNMEASURED)
    rate = np.where(last == 1, baseline.rates[:, 1], baseline.rates[:, 0])
    failed, passed = active & (now == 1), active & (now == 0)
    passes = passed.reshape(2, many, count).sum(axis=2)
    odds = np.where(failed, (1 - rate) / rate, 0)
    bets = [
        np.log1p(shift * odds).reshape(2, many, count).sum(axis=2) + passes * np.log1p(-shift) for shift in FLEET_SHIFTS
    ]
    return np.stack(bets, axis=1).astype(np.float32)


def _part(runs: Runs, start: int, end: int) -> Runs:
    return Runs(lost=runs.lost[start:end], ndcg=runs.ndcg[start:end])


Way = Callable[[World, int], Runs]
"""Makes 300 and 2,500 healthy runs of the canaries of a world."""


def _of(make: Callable[[int, int, int], Runs]) -> Way:
    """Take a way that knows the number of canaries alone, with those that never find anything in this world."""

    def way(world: World, seed: int) -> Runs:
        lost, ndcg = world.answers()
        runs = make(len(lost), BASE + AFTER, seed)
        return Runs(
            lost=np.where(runs.lost == -1, -1, np.maximum(runs.lost, lost)).astype(np.int8),
            ndcg=np.where(runs.lost == 1, 0.0, np.where(runs.lost == -1, np.nan, ndcg)),
        )

    return way


def _switching(world: World, seed: int, *, seen: int, copies: int, rate: float, alone: int = 0) -> Runs:
    """Let whole runs go to one of some replicas without 1 % of the chunks each; the first runs to `seen` of them.

    After them come as many as `alone` of the last replica.
    """
    chance = np.random.default_rng(seed)
    answers = [
        world.answers(frozenset(chance.permutation(world.chunks)[: world.chunks // 100].tolist()))
        for _ in range(copies)
    ]
    turns = np.cumsum(chance.random(BASE + AFTER) < rate)
    places = np.where(np.arange(BASE + AFTER) < BASE, turns % seen, turns % copies).tolist()
    places += [copies - 1] * alone
    return Runs(
        lost=np.stack([answers[place][0] for place in places]), ndcg=np.stack([answers[place][1] for place in places])
    )


def _unseen(world: World, seed: int) -> Runs:
    return _switching(world, seed, seen=2, copies=3, rate=0.05, alone=LONGEST_QUIET + SOON)


HEALTHY: Final[Mapping[str, Way]] = {
    "the same every time": _of(lambda count, runs, seed: noisy(count, runs, seed, 0.0)),
    "0.1 % missed": _of(lambda count, runs, seed: noisy(count, runs, seed, 0.001)),
    "1 % missed": _of(lambda count, runs, seed: noisy(count, runs, seed, 0.01)),
    "5 % missed": _of(lambda count, runs, seed: noisy(count, runs, seed, 0.05)),
    "some flicker much": _of(flickering),
    "0.3 % of probes fail": _of(lambda count, runs, seed: erring(noisy(count, runs, seed, 0.01), seed)),
    "random replicas": _of(lambda count, runs, seed: replicas(count, runs, seed, sticky=False)),
    "sticky replicas": lambda world, seed: _switching(world, seed, seen=3, copies=3, rate=0.05),
    "failures last 5 runs": _of(lasting),
}


# --- tables


def goals(cells: Mapping[tuple[str, str], Cell], healthy: Mapping[str, Healthy], unseen: Healthy) -> None:
    """Print the goals beside the figures, and those of the oracle."""
    delays = [delay for cell in cells.values() for delay in cell.delays]
    limits = [limit for cell in cells.values() for limit in cell.limits]
    pairs = [pair for cell in cells.values() for pair in cell.since_damage()]
    runs = sum(one.runs for one in healthy.values())
    alarms = sum(sum(one.alarms) for one in healthy.values())
    most = max(max(one.alarms) for one in healthy.values())
    histories = sum(one.histories for one in healthy.values())
    twice = sum(alarm > MOST_ALARMS for alarm in unseen.alarms)
    rows = (
        ("healthy histories", "alarms in one", f"<= {MOST_ALARMS}", f"{most} of {histories} histories", "-"),
        (
            "healthy runs",
            "false alarms per 100,000",
            f"<= {MOST_FALSE:g}",
            f"{alarms * 1e5 / runs:.2f} of {runs:,}",
            "-",
        ),
        ("faults", f"found within {SOON} runs", f">= {LEAST_FOUND:g}", _share(delays), _share(limits)),
        ("faults", "mean delay, runs", f"<= {LARGEST_DELAY:g}", _mean(delays), _mean(limits)),
        (
            "faults",
            "the same, from the first run that broke a canary",
            f"<= {LARGEST_DELAY:g}",
            _mean([delay for delay, _ in pairs]),
            _mean([limit for _, limit in pairs]),
        ),
        (
            "a replica not seen",
            "more than 2 alarms",
            "0",
            f"{twice} of {unseen.histories}; {max(unseen.alarms)} at most",
            f"without habits {sum(one > MOST_ALARMS for one in unseen.without)}, {max(unseen.without)} at most",
        ),
        ("a replica not seen", "stays alone, runs until the alarm", f"<= {LONGEST_QUIET}", _told_alone(unseen), "-"),
    )
    print("| over | figure | goal | measured | limit |\n|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def _share(delays: Sequence[int | None]) -> str:
    return f"{sum(one is not None for one in delays) / len(delays):.4f} of {len(delays)}"


def _mean(delays: Sequence[int | None]) -> str:
    found = [one for one in delays if one is not None]
    return f"{statistics.mean(found):.2f}" if found else "-"


def _told(cell: Cell) -> str:
    if not cell.delays:
        return "broke nothing"
    found, sure = (sum(one is not None for one in some) for some in (cell.delays, cell.limits))
    count = len(cell.delays)
    return (
        f"{found}/{count} {_mean(cell.delays)}; {sure}/{count} {_mean(cell.limits)}; {statistics.median(cell.broken):g}"
    )


def _told_quiet(found: Healthy) -> str:
    alarms = f"{sum(found.alarms)} alarms in {found.histories} histories of {found.runs:,} runs"
    most = f"at most {max(found.alarms)} in one; without habits {sum(found.without)}, at most {max(found.without)}"
    return f"{alarms}, {most}; highest evidence {found.peak:,.0f}, {found.led} led"


def _told_alone(found: Healthy) -> str:
    heard = [one for one in found.alone if one is not None]
    late = f"median {statistics.median(heard):g}, at most {max(heard)}" if heard else "-"
    return f"{late}, {len(heard)} of {len(found.alone)} heard"


def _told_bounds(found: Healthy) -> str:
    """Write when people would have heard, had a state stayed in its third, fifth ... episode."""
    medians = [(number, found.bounds[number]) for number in (3, 5, 10, 20, 40) if number in found.bounds]
    return ", ".join(f"episode {number}: {statistics.median(some):g} of {len(some)}" for number, some in medians)


if __name__ == "__main__":
    main()
