"""What a detector is given, keeps and says. How it decides stands in detecting; what it learns, in learning."""

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
"""Who a canary is: whatever changes with its version, so that a changed canary is a new one."""

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
    """What may be set for a check."""

    alpha: float = 1e-4
    """An alarm is raised when the average account reaches 1 / alpha."""
    close: int = 2
    """It closes on this many good runs in a row."""
    relearn: bool = True
    """Whether a baseline is learned anew as runs come in; a pinned one is not."""


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
    """The same flat: who is in a group, and the number of that group."""

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
    """What the canaries do while all is well. Arrays of two axes are (signal, canary), as SIGNALS says."""

    keys: tuple[Key, ...]
    runs: int
    """How many runs it was learned of."""
    deterministic: bool
    """All of them said the same."""
    known: NDArray[np.bool_]
    """(n,): whether the canary was measured often enough to be known; an unknown one is no evidence."""
    rates: NDArray[np.float32]
    """(signal, last, n): P(fail) right after passing (last = 0) and right after failing (last = 1), rounded up."""
    floors: NDArray[np.float32]
    """(n,): the 10 % quantile of NDCG@10; `worse` is more than 0.1 below. NaN = unknown."""
    last: Fails
    """(signal, n): what was last measured in the baseline."""
    usual: tuple[int, int]
    """The 99 % quantiles of how many canaries are lost, and worse, in a run."""
    failures: NDArray[np.bool_] | None = None
    """(signal, runs, n): who failed when, a probe that failed counting as what was measured before it.

    Needed only while an alarm is open, and None where it was not read.
    """
    usual_lost: int = 0
    """After realigning: how many were usually lost of the canaries it was learned of, of which some are gone."""


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
    """All a detector remembers from run to run; a value, never changed in place."""

    keys: tuple[Key, ...]
    groups: tuple[str, ...]
    observed: int
    """Runs since it began."""
    canaries: Level
    grouped: Level
    fleet: Level
    last: Fails
    """(signal, n): what was last measured; -1 = nothing yet."""
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
    """`failing` of each run of the warm-up that was well; else empty."""
    newly_failed: int
    """The sum of `newly` over those runs."""
    identical: int
    """Runs in a row that said the same, up to now, of the warm-up."""
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
    """Whether it is lost or worse in this run: an account stays high for some runs after its canary is well again."""


class Change(StrEnum):
    """What a run did to the alarm."""

    OPENED = "opened"
    ESCALATED = "escalated"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a detector says of one run."""

    evidence: float | None
    """The average account; an alarm is raised at 1 / alpha. None while warming up."""
    scopes: Mapping[str, float]
    """What it is the average of: `canaries`, `groups` (if there are any) and `check`. Empty while warming up."""
    open: bool
    """An alarm stands after this run."""
    change: Change | None
    """What this run did to it; each opening is said once."""
    severity: Severity | None
    """While open, and when it closes: the alarm's. It never falls."""
    since: int
    """While open, and when it closes: how many observed runs ago the fault began, by the accounts; 1 = with this run.

    When it closes, all runs of the alarm, this one included, are no learning matter.
    """
    culprits: tuple[Culprit, ...]
    """Who is to blame as of this run, the strongest first; none while nothing is open."""
    groups: tuple[str, ...]
    """Groups whose own accounts stand out while it is open."""
    lost: int
    worse: int
    """Watched canaries that failed in this run, one that is both in both; `worse` is unknown and 0 while warming up."""
    worse_alone: int
    """Those of `worse` that are not lost."""
    usual: tuple[int, int] | None
    """What is usual: the 99 % quantiles of both. None while warming up."""
    good: int
    """Good runs in a row, while open."""
    warming: str | None
    """While warming up: what is waited for, and what watches until then."""
    unknown: int
    """Watched canaries that are no evidence until the next learning."""
    reason: str
    """A sentence for people. It holds names of groups, which are texts of others, and no keys."""
