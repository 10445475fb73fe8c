"""Detection: whether canaries fail more than in the baseline, since when, and which. Values in, values out.

An e-detector in the Shiryaev-Roberts form (Shin, Ramdas and Rinaldo, "E-detectors", 2022). Here are the values of a
detector: settings, members, observations, baseline, state and readings. `evidence` weighs one run, `decision` opens and
closes the alarm, `habits` finds alarms that come back alike, `learning` learns the baseline, and `tracker` leads a
detector from run to run.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.base.values import DETECTOR_CLOSE, Severity, Value, field

Floats = NDArray[np.float64]
Fails = NDArray[np.int8]
"""1 = failed, 0 = passed, -1 = not measured."""
Key = int | str
"""Identity of a canary, which changes with its version: a changed canary is a new one."""

Fingerprints = Callable[[Sequence[int]], Sequence[int | None]]
"""Returns what identifies the answers of the canaries at some positions, up to 64 bits each; None = not known."""

UNMEASURED: Final = -1


class Signal(StrEnum):
    """How a canary can fail; in the order of the first axis of all arrays that have one of signals."""

    LOST = "lost"
    """No expected chunk in the top k."""
    WORSE = "worse"
    """NDCG@10 more than 0.1 below the canary's own 10 % quantile of the baseline."""


SIGNALS: Final = (Signal.LOST, Signal.WORSE)


class Settings(Value):
    """Settings of the detector of a check."""

    alpha: float = 1e-4
    """An alarm is raised when the average account reaches 1 / alpha."""
    close: int = DETECTOR_CLOSE
    """It closes on this many good runs in a row."""
    relearn: bool = True
    """Whether a baseline is learned again as runs come in; a pinned one is not."""
    refused_habits: frozenset[str] = frozenset()
    """Habits that people called not normal: their episodes are alarms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The canaries watched, by position, and the groups they are in: by category, tag and document.

    Only canaries that expect something are watched. Groups are named `category:billing`, `tag:eu`,
    `document:handbook.pdf`; a group of fewer than two is left out by `grouped`.
    """

    keys: tuple[Key, ...]
    groups: Mapping[str, NDArray[np.intp]] = dataclasses.field(default_factory=dict)
    """Positions of each group's canaries, none twice."""
    positions: NDArray[np.intp] = dataclasses.field(init=False, repr=False, compare=False)
    owners: NDArray[np.intp] = dataclasses.field(init=False, repr=False, compare=False)
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


class Observation(Value):
    """One measured run, by position of the members. A run whose verdict is unknown is no observation."""

    lost: Fails
    """(n,): 1 = no expected chunk in the top k, 0 = at least one, -1 = the probe failed."""
    ndcg: Floats
    """(n,): NDCG@10, or NDCG@k where that is not computed; NaN = not measured."""
    answers: Fingerprints | None = None
    """None = all that is known of an answer is what became of it: `lost` and `ndcg` stand for it."""
    index_version: str | None = None
    """Of the retriever in this run; None = not known."""

    def fingerprints(self, positions: Sequence[int]) -> Sequence[int | None]:
        """Identities of what the canaries at these positions answered; None = not known."""
        if self.answers is not None:
            return self.answers(positions)
        outcomes = zip(self.lost[list(positions)].tolist(), self.ndcg[list(positions)].tolist(), strict=True)
        return [None if lost == UNMEASURED else 1000 * lost + round(100 * ndcg) for lost, ndcg in outcomes]


class Baseline(Value):
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


class Level(Value):
    """The accounts of all canaries, of all groups, or of the whole check; arrays are (signal, bet, account)."""

    accounts: NDArray[np.float32]
    """M of the Shiryaev-Roberts recursion: the evidence."""
    rises: NDArray[np.float32]
    """The logarithmic CUSUM of the same bets: its last zero dates a change."""
    ages: NDArray[np.int32]
    """Runs since that zero."""


class State(Value):
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
    recent: NDArray[np.int32]
    """(signal, n): the bets of the last runs, for the account of several canaries."""


class Habit(Value):
    """Alarms that closed by themselves and were alike."""

    id: str
    answers: Mapping[Key, tuple[int, ...]]
    """What each of its canaries answered while it failed, as fingerprints."""
    times: int
    """Number of episodes."""
    longest: int
    """Runs of the longest one, from the first bad run to the last."""
    total: int
    """Runs of all of them together."""
    beside: tuple[int, int]
    """Most other canaries that were lost, and worse, in a run of them: some fail as often as ever, and all at once."""


class Episode(Value):
    """An open alarm, as habits see it."""

    answers: Mapping[Key, tuple[int, ...]] = field(default_factory=dict)
    """What the canaries it is about answered while they failed, as in Habit."""
    runs: int = 0
    """From its first bad run to the last one."""
    wide: bool = False
    """It is about more canaries than a habit can have."""
    raised: bool = False
    """People heard of it; else it is quiet."""
    habit: str | None = None
    """While quiet: the habit it is an episode of."""
    why: str = ""
    """Why it was raised although it resembles a habit: a clause; empty where it resembles none."""
    beside: tuple[int, int] = (0, 0)
    """As in Habit, since the last canary was added to those it is about."""


class Habits(Value):
    """What a detector remembers of alarms that closed; a value, never changed in place."""

    known: tuple[Habit, ...] = ()
    """The one with the newest episode last."""
    episode: Episode | None = None
    """While an alarm is open."""
    version: str | None = None
    """The index version that they are about: the last one that was known."""


NO_HABITS: Final = Habits()


class HabitReading(Value):
    """A habit during one more episode of it."""

    id: str
    keys: tuple[Key, ...]
    """Its canaries."""
    answers: int
    """Between so many answers they switch, the usual one included."""
    times: int
    """Number of episodes, this one included."""
    runs: int
    """From the first bad run of this one to the last."""
    bound: int
    """It may last so many; then it is an alarm."""


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


class Reading(Value):
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
    measured: int
    """Watched canaries that were measured in this run."""
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
    habit: HabitReading | None = None
    """The habit that a run is an episode of; then it opens no alarm, and `since` is as in an alarm."""

    @property
    def is_of_alarm(self) -> bool:
        """Whether this run is part of an alarm or of a habit: neither it nor those since are learned of."""
        return self.open or self.change is Change.CLOSED or self.habit is not None


def answer_fingerprint(ids: Sequence[str]) -> int:
    """Return what identifies an answer: its chunks in their order, without their scores, in 63 bits."""
    text = "\x1f".join(ids)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


NO_HITS: Final = answer_fingerprint(())
"""Of an answer without a hit, which is the same whatever broke."""
