"""Replay: the detector over recorded runs, as in a live check."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from app.detection.domain.check_tracker import Follower, follow, learn_when_due, learned, observe
from app.detection.domain.learning import FULL_RUNS, IDENTICAL_RUNS, learn
from app.detection.domain.values import Fails, Floats, Members, Observation, Reading, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Runs, oldest first, as in Observation: (runs, n)."""

    lost: Fails
    ndcg: Floats

    def __len__(self) -> int:
        return len(self.lost)


def replay(
    members: Members, healthy: Runs, after: Runs, settings: Settings | None = None
) -> Iterator[tuple[Follower, Reading]]:
    """Yield the follower and reading after each run of `after`.

    A baseline is learned from the newest 300 `healthy` runs, or 20 or more identical ones, without alarms; fewer runs
    are the warm-up. From then on all is as in a live check without other firing alerts.
    """
    settings = settings or Settings()
    past = _Past(members=members, settings=settings)
    follower = past.begun(healthy)
    for lost, ndcg in zip(after.lost, after.ndcg, strict=True):
        follower, reading = past.go_on(follower, Observation(lost=lost, ndcg=ndcg))
        yield follower, reading


class _Past:
    """The runs that baselines may be learned from."""

    def __init__(self, *, members: Members, settings: Settings) -> None:
        self.members, self.settings = members, settings
        self.eligible: list[Observation] = []
        self.in_alarm = False

    def begun(self, healthy: Runs) -> Follower:
        follower = follow(self.members)
        newest = Runs(lost=healthy.lost[-FULL_RUNS:], ndcg=healthy.ndcg[-FULL_RUNS:])
        baseline = learn(self.members.keys, newest.lost, newest.ndcg) if len(newest) else None
        enough = baseline is not None and len(newest) >= (IDENTICAL_RUNS if baseline.deterministic else FULL_RUNS)
        if baseline is not None and enough:
            self.eligible = [Observation(lost=a, ndcg=b) for a, b in zip(newest.lost, newest.ndcg, strict=True)]
            return learned(follower, baseline)
        for lost, ndcg in zip(healthy.lost, healthy.ndcg, strict=True):
            follower, _ = self.go_on(follower, Observation(lost=lost, ndcg=ndcg))
        return follower

    def go_on(self, follower: Follower, observation: Observation) -> tuple[Follower, Reading]:
        follower, reading = observe(follower, self.members, observation, self.settings)
        if reading.is_of_alarm and not self.in_alarm:
            del self.eligible[len(self.eligible) - min(reading.since - 1, len(self.eligible)) :]
        if not reading.is_of_alarm:
            self.eligible = [*self.eligible[-FULL_RUNS + 1 :], observation]
        self.in_alarm = follower.state.open
        return learn_when_due(follower, self.newest, self.settings, eligible=True), reading

    def newest(self, limit: int) -> tuple[Fails, Floats]:
        runs = self.eligible[-limit:]
        return np.stack([one.lost for one in runs]), np.stack([one.ndcg for one in runs])
