"""Values of a detector: settings, members, observations, baseline, state and readings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.domain.model import Severity

Floats = NDArray[np.float64]
Fails = NDArray[np.int8]
"""1 = failed, 0 = passed, -1 = not measured."""
Key = int | str
"""Identity of a canary, which changes with its version: a changed canary is a new one."""

UNMEASURED: Final = -1


class Signal(StrEnum):
    """How a canary can fail; in the order of the first axis of all arrays that have one of signals."""

    LOST = "lost"
    """No expected chunk in the top k."""
    WORSE = "worse"
    """NDCG@10 more than 0.1 below the canary's own 10 % quantile of the baseline."""


SIGNALS: Final = (Signal.LOST, Signal.WORSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the detector of a check."""

    alpha: float = 1e-4
    """An alarm is raised when the average account reaches 1 / alpha."""
    close: int = 2
    """It closes on this many good runs in a row."""
    relearn: bool = True
    """Whether a baseline is learned again as runs come in; a pinned one is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The canaries watched, by position, and the groups they are in: by category, tag and document.

    Only canaries that expect something are watched. Groups are named `category:billing`, `tag:eu`,
    `document:handbook.pdf`; a group of fewer than two is left out by `grouped`.
    """

    keys: tuple[Key, ...]
    groups: Mapping[str, NDArray[np.intp]] = field(default_factory=dict)
    """Positions of each group's canaries, none twice."""
    positions: NDArray[np.intp] = field(init=False, repr=False, compare=False)
    owners: NDArray[np.intp] = field(init=False, repr=False, compare=False)
    """The same flat: positions of canaries, and the number of their group."""

    def __post_init__(self) -> None:
        sizes = [len(positions) for positions in self.groups.values()]
        flat = np.concatenate([*map(np.asarray, self.groups.values()), np.empty(0, np.intp)]).astype(np.intp)
        object.__setattr__(self, "positions", flat)
        object.__setattr__(self, "owners", np.repeat(np.arange(len(sizes)), sizes))


def grouped(names: Sequence[Iterable[str]]) -> dict[str, NDArray[np.intp]]:
    """Gather groups from the names that each canary, by position, belongs to; those of fewer than two are left out."""
    positions: dict[str, list[int]] = {}
    for position, some in enumerate(names):
        for name in dict.fromkeys(some):
            positions.setdefault(name, []).append(position)
    return {name: np.array(positions[name], np.intp) for name in sorted(positions) if len(positions[name]) > 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One measured run, by position of the members. A run whose verdict is unknown is no observation."""

    lost: Fails
    """(n,): 1 = no expected chunk in the top k, 0 = at least one, -1 = the probe failed."""
    ndcg: Floats
    """(n,): NDCG@10, or NDCG@k where that is not computed; NaN = not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Normal behaviour of the canaries. Arrays of two axes are (signal, canary), in the order of SIGNALS."""

    keys: tuple[Key, ...]
    runs: int
    """Number of runs it was learned from."""
    deterministic: bool
    """Whether all of them were identical."""
    known: NDArray[np.bool_]
    """(n,): whether the canary was measured often enough; an unknown one is no evidence."""
    rates: NDArray[np.float32]
    """(signal, last, n): P(fail) right after passing (last = 0) and right after failing (last = 1), rounded up."""
    floors: NDArray[np.float32]
    """(n,): the 10 % quantile of NDCG@10; `worse` is more than 0.1 below. NaN = unknown."""
    last: Fails
    """(signal, n): the last measurements of the baseline."""
    usual: tuple[int, int]
    """The 99 % quantiles of how many canaries are lost, and worse, in a run."""
    failures: NDArray[np.bool_] | None = None
    """(signal, runs, n): failures by run, a failed probe counting as the measurement before it.

    Needed only while an alarm is open; None where it was not read.
    """
    usual_lost: int = 0
    """After realignment: `usual` lost of the canaries it was learned from, of which some are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The accounts of all canaries, of all groups, or of the whole check; arrays are (signal, bet, account)."""

    accounts: NDArray[np.float32]
    """M of the Shiryaev-Roberts recursion: the evidence."""
    rises: NDArray[np.float32]
    """The logarithmic CUSUM of the same bets: its last zero dates a change."""
    ages: NDArray[np.int32]
    """Runs since that zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State of a detector from run to run; a value, never changed in place."""

    keys: tuple[Key, ...]
    groups: tuple[str, ...]
    observed: int
    """Runs since it began."""
    canaries: Level
    grouped: Level
    fleet: Level
    last: Fails
    """(signal, n): the last measurements; -1 = none yet."""
    passes: NDArray[np.int32]
    """(n,): runs that found what the canary expects, up to now: three strikes count only where one was calm."""
    misses: NDArray[np.int32]
    """(n,): runs that found none, the current streak not counted."""
    streak: NDArray[np.int32]
    """(n,): measured runs in a row in which it is lost, up to now."""
    lately: NDArray[np.float32]
    """(n,): the last NDCG measured while warming up, to see whether runs are identical; else empty."""
    failing: int
    """How many are lost, a probe that failed counting as what was measured before it."""
    newly: int
    """How many of them found what they expect the last time."""
    counts: NDArray[np.int32]
    """`failing` of each healthy run of the warm-up; else empty."""
    newly_failed: int
    """The sum of `newly` over those runs."""
    identical: int
    """Identical runs in a row, up to now, of the warm-up."""
    eligible: int
    """Runs baselines may be learned of, since one was last learned."""
    fresh: int
    """The same since the list of canaries last changed."""
    open: bool
    since: int
    """While open: how many observed runs are part of the alarm, this one included; else 0."""
    culprits: NDArray[np.int8]
    """(n,): named since the opening: 0 = no, 1 = worse, 2 = lost."""
    struck: NDArray[np.bool_]
    """(n,): of those, named by the rules of the warm-up."""
    closings: int
    """Alarms that closed again while little was known: warming up, or the baseline younger than 300 runs."""
    named: NDArray[np.int8]
    """(n,): how many of those alarms named it, RESTLESS at most; see there."""
    longest: int
    """The longest streak of any canary that ended by itself."""
    severity: Severity | None
    good: int
    """Good runs in a row, while open and on the run that closes it; else 0."""
    evidence: float
    """The average account of this run; 0 while warming up."""


class Culprit(NamedTuple):
    """A canary named: its position among the members, and how it fails. A tuple, for there can be thousands a run."""

    position: int
    signal: Signal
    evidence: float | None = None
    """Its own account; None where it was named by the rules of the warm-up."""
    fails: bool = True
    """Whether it is lost or worse in this run: an account stays high for some runs after its canary recovered."""


class Change(StrEnum):
    """What a run did to the alarm."""

    OPENED = "opened"
    ESCALATED = "escalated"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Result of a detector for one run."""

    evidence: float | None
    """The average account; an alarm is raised at 1 / alpha. None while warming up."""
    scopes: Mapping[str, float]
    """Averages by level: `canaries`, `groups` (if there are any) and `check`. Empty while warming up."""
    open: bool
    """An alarm is open after this run."""
    change: Change | None
    """Change of the alarm by this run."""
    severity: Severity | None
    """While open, and when it closes: the alarm's. It never falls."""
    since: int
    """While open, and when it closes: how many observed runs ago the fault began, by the accounts; 1 = with this run.

    When it closes, no run of the alarm, this one included, is used for learning.
    """
    culprits: tuple[Culprit, ...]
    """Culprits as of this run, the strongest first; none while no alarm is open."""
    groups: tuple[str, ...]
    """Groups whose accounts stand out while it is open."""
    lost: int
    worse: int
    """Watched canaries that failed in this run, one that is both in both; `worse` is unknown and 0 while warming up."""
    worse_alone: int
    """Those of `worse` that are not lost."""
    usual: tuple[int, int] | None
    """The 99 % quantiles of both in the baseline. None while warming up."""
    good: int
    """Good runs in a row, while open."""
    warming: str | None
    """While warming up: the missing runs, and the rules until then."""
    unknown: int
    """Watched canaries that are no evidence until the next learning."""
    reason: str
    """A sentence for people. It has names of groups, which are untrusted texts, and no keys."""
