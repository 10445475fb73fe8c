"""Made-up histories of canaries: healthy in several ways, then broken. Shared by the tests of detection."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from app.detection.domain import Change, Fails, Floats, Members, Observation, Reading, Settings, grouped
from app.detection.domain.tracker import Follower, Runs, follow, learn_when_due, observe


def members_of(count: int, first: int = 0) -> Members:
    """Make canaries of which every tenth shares a tag, and runs of four a document."""
    names = [[f"tag:{one % 10}", f"document:{one // 4}"] for one in range(count)]
    return Members(keys=tuple(range(first, first + count)), groups=grouped(names))


def runs_of(lost: Sequence[Sequence[int]] | Fails, ndcg: Floats | None = None) -> Runs:
    """Make runs of who is lost; the NDCG of a lost one is 0, of others 1."""
    matrix = np.array(lost, np.int8)
    quality = np.where(matrix == 1, 0.0, 1.0) if ndcg is None else ndcg
    return Runs(lost=matrix, ndcg=np.where(matrix == -1, np.nan, quality))


def together(*parts: Runs) -> Runs:
    """Put runs after each other."""
    return Runs(lost=np.concatenate([one.lost for one in parts]), ndcg=np.concatenate([one.ndcg for one in parts]))


def calm(count: int, runs: int, failing: Iterable[int] = ()) -> Runs:
    """Make runs that all say the same: all is found but by those that always fail."""
    lost = np.zeros((runs, count), np.int8)
    lost[:, list(failing)] = 1
    return runs_of(lost)


def noisy(count: int, runs: int, seed: int, rate: float = 0.01, failing: Iterable[int] = ()) -> Runs:
    """Make runs in which every canary is missed at random."""
    lost = (np.random.default_rng(seed).random((runs, count)) < rate).astype(np.int8)
    lost[:, list(failing)] = 1
    return runs_of(lost)


def replicas(count: int, runs: int, seed: int, *, sticky: bool, misses: float = 0.02) -> Runs:
    """Make runs over three replicas with misses of their own: each query goes to any, or whole runs to one for long."""
    chance = np.random.default_rng(seed)
    misses_of = chance.random((3, count)) < misses
    if not sticky:
        return runs_of(misses_of[chance.integers(3, size=(runs, count)), np.arange(count)].astype(np.int8))
    return runs_of(misses_of[np.cumsum(chance.random(runs) < 0.05) % 3].astype(np.int8))


@dataclass(slots=True, kw_only=True)
class Live:
    """A check as a service follows it: what is kept between two runs, and which runs may be learned of."""

    members: Members
    settings: Settings
    follower: Follower
    eligible: list[tuple[Members, Observation]]
    learned: list[int]
    """After how many runs something was learned."""
    seen: int = 0
    in_alarm: bool = False

    @classmethod
    def of(cls, members: Members, settings: Settings | None = None) -> "Live":
        """Begin."""
        return cls(members=members, settings=settings or Settings(), follower=follow(members), eligible=[], learned=[])

    def takes(self, runs: Runs, *, alerted: bool = False) -> list[Reading]:
        """Take in runs; `alerted`: some other alert of the check fires meanwhile."""
        return list(self._readings(runs, alerted=alerted))

    def _readings(self, runs: Runs, *, alerted: bool) -> Iterator[Reading]:
        for lost, ndcg in zip(runs.lost, runs.ndcg, strict=True):
            seen = Observation(lost=lost, ndcg=ndcg)
            self.follower, reading = observe(self.follower, self.members, seen, self.settings)
            self.seen += 1
            if reading.is_of_alarm and not self.in_alarm and reading.since > 1:
                del self.eligible[-(reading.since - 1) :]
            self.in_alarm = self.follower.state.open
            if not reading.is_of_alarm and not alerted:
                self.eligible.append((self.members, seen))
            before = self.follower.baseline
            self.follower = learn_when_due(self.follower, self._past, self.settings, eligible=not alerted)
            if self.follower.baseline is not before:
                self.learned.append(self.seen)
            yield reading

    def _past(self, limit: int) -> tuple[Fails, Floats]:
        newest = [self._aligned(*one) for one in self.eligible[-limit:]]
        return np.stack([lost for lost, _ in newest]), np.stack([ndcg for _, ndcg in newest])

    def _aligned(self, members: Members, seen: Observation) -> tuple[Fails, Floats]:
        """Put what was seen in the order of the canaries of today."""
        if members.keys == self.members.keys:
            return seen.lost, seen.ndcg
        lost = dict(zip(members.keys, seen.lost, strict=True))
        ndcg = dict(zip(members.keys, seen.ndcg, strict=True))
        keys = self.members.keys
        return np.array([lost.get(key, -1) for key in keys], np.int8), np.array([ndcg.get(key, np.nan) for key in keys])


def opened(readings: Sequence[Reading]) -> list[int]:
    """List the runs, from 1, that opened an alarm."""
    return [number for number, one in enumerate(readings, 1) if one.change is Change.OPENED]


def closed(readings: Sequence[Reading]) -> list[int]:
    """List the runs, from 1, that closed one."""
    return [number for number, one in enumerate(readings, 1) if one.change is Change.CLOSED]
