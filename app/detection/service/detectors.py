"""The state of a check's detector between two runs: how it is stored, when it is reset, and what it learns from.

A baseline is learned from a pinned run or from runs since the reset.

Live runs and replays use the same functions, so both get the same numbers. The decisions are made in
`domain.detection`; `detector_step` writes the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.alerts.domain.rules import SLOWER_QUANTILE
from app.base.db.engine import Connection
from app.base.values import Percentile, Rule, RuleKind
from app.detection import store as detectors
from app.detection.domain.evidence import realign
from app.detection.domain.habits import answer_fingerprint
from app.detection.domain.learning import FULL_RUNS, IDENTICAL_RUNS, learn
from app.detection.domain.serialization import pack_habits, pack_state, unpack_habits, unpack_state
from app.detection.domain.tracker import Follower, follow, learn_when_due, observe
from app.detection.domain.tracker import learned as with_baseline
from app.detection.domain.values import Baseline, Habits, Members, Observation, Reading, Settings
from app.detection.domain.views import Action
from app.detection.store import ChoiceRow
from app.records.store import results
from app.records.store.recording import SpanQuery, StateSpans, read_state_spans
from app.records.store.results import RunRow
from app.retrievers.domain.probe_failures import latency_summary
from app.scoring.evaluation import Tally, Yardstick
from app.scoring.measures import MEASURES_VERSION, Measure
from app.scoring.runs import RunInputs, measured_latencies

Floats = NDArray[np.float64]
Fails = NDArray[np.int8]

_QUALITY_DEPTH: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorMeasures:
    """The measures by which the canaries of a check are watched; the detector is reset where they change."""

    k: int
    quality: str
    """The measure of `worse`: NDCG@10 where it is computed, else that at k."""
    measures_version: str

    @classmethod
    def of(cls, yardstick: Yardstick) -> "DetectorMeasures":
        """Return the measures of a check."""
        deep = Measure("NDCG", _QUALITY_DEPTH)
        is_computed = deep in yardstick.measures and yardstick.fetch_k >= _QUALITY_DEPTH
        quality = deep if is_computed else Measure("NDCG", yardstick.k)
        return cls(k=yardstick.k, quality=str(quality), measures_version=MEASURES_VERSION)

    @property
    def depth(self) -> int:
        """How deep into a ranking they look."""
        return max(self.k, int(self.quality.rpartition("@")[2]))

    @property
    def hit(self) -> str:
        """The measure of `lost`."""
        return str(Measure("Hit", self.k))

    def changed_from(self, before: "DetectorMeasures") -> str:
        """Return the differences from other measures as text."""
        fields = {"k": (before.k, self.k), "quality": (before.quality, self.quality)}
        fields["measures"] = (before.measures_version, self.measures_version)
        return ", ".join(f"{name} {old} -> {new}" for name, (old, new) in fields.items() if old != new)

    def span_query(self, members: Members) -> SpanQuery:
        """Return the query for the past results that a baseline is learned from."""
        return SpanQuery(version_ids=[int(key) for key in members.keys], k=self.k, names=(self.hit, self.quality))


class _Packed(msgspec.Struct, array_like=True, frozen=True):
    measures: tuple[int, str, str]
    first_run: int
    choice_id: int | None
    state: bytes
    anew: str = ""
    habits: bytes = b""
    """A release that does not know them leaves them out, and forgets them when it writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """State of a check's detector between two runs."""

    follower: Follower
    measures: DetectorMeasures
    first_run: int
    """The first run since the reset: no earlier run is learned from, except a pinned one."""
    choice_id: int | None
    """The newest choice of a baseline (pinned or accepted) that this state takes into account."""
    anew: str = ""
    """Why it was reset, if the measures of the check changed; a sentence without its full stop."""

    def packed(self) -> bytes:
        """Return the state as bytes, without the baseline, which has a row of its own."""
        measures = (self.measures.k, self.measures.quality, self.measures.measures_version)
        return msgspec.msgpack.encode(
            _Packed(
                measures=measures,
                first_run=self.first_run,
                choice_id=self.choice_id,
                state=pack_state(self.follower.state),
                anew=self.anew,
                habits=pack_habits(self.follower.habits),
            )
        )

    @staticmethod
    def state_of(body: bytes) -> bytes:
        """Give the packed state of what `packed` wrote."""
        return msgspec.msgpack.decode(body, type=_Packed).state

    @staticmethod
    def habits_of(body: bytes) -> Habits:
        """Read the habits of what `packed` wrote."""
        return unpack_habits(msgspec.msgpack.decode(body, type=_Packed).habits)

    @classmethod
    def unpacked(cls, body: bytes, baseline: Callable[[bool], Baseline | None]) -> "Detector":
        """Read it; `baseline` is given whether an alarm is open, when its failures are needed too."""
        packed = msgspec.msgpack.decode(body, type=_Packed)
        state = unpack_state(packed.state)
        k, quality, version = packed.measures
        return cls(
            follower=Follower(state=state, baseline=baseline(state.open), habits=unpack_habits(packed.habits)),
            measures=DetectorMeasures(k=k, quality=quality, measures_version=version),
            first_run=packed.first_run,
            choice_id=packed.choice_id,
            anew=packed.anew,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A measured run: the input of one detector step."""

    check_id: int
    run_id: int
    measures: DetectorMeasures
    members: Members
    observation: Observation
    close: int
    """Number of good runs in a row after which an alarm ends."""
    choice: ChoiceRow | None
    """The baseline chosen by a user (pinned or accepted) at that time; None = none."""

    refused_habits: frozenset[str] = frozenset()
    """Habits that people had called not normal by then."""

    @property
    def settings(self) -> Settings:
        """Settings of the detector."""
        pinned = self.choice is not None and self.choice.action == Action.PINNED
        return Settings(close=self.close, relearn=not pinned, refused_habits=self.refused_habits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A new baseline and the runs it was learned from, oldest first."""

    baseline: Baseline
    run_ids: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingRun:
    """A run that is about to end. Positions count along its canaries."""

    id: int
    check_id: int
    inputs: RunInputs
    tally: Tally
    """The scores of its canaries."""
    ranking_ids: Sequence[int | None]
    """The stored rankings by position; None = not measured."""
    held_since: Callable[[int], int | None]
    """Gives the run with which the ranking of a position came; None = with this one."""
    index_version: str | None
    median_latency: float | None = None
    """Seconds; None = no probe measured."""


Learnable = Callable[[MeasuredRun, int, int | None, int], Sequence[int]]
"""Lists the newest runs before a measured run that may be learned from, given (measured run, since, until, at most)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Result of one run for a detector, before a baseline is learned."""

    detector: Detector
    reading: Reading
    pinned: Learned | None
    """What was learned up to a run that was pinned since the last one."""
    baseline: Baseline | None
    """The baseline in force as it was learned, also of canaries that are gone."""


def advance(connection: Connection, before: Detector | None, measured_run: MeasuredRun, learnable: Learnable) -> Step:
    """Return the detector after a measured run: reset where due, with the chosen baseline, then the run observed."""
    ready, pinned = _prepared(connection, before, measured_run, learnable)
    follower, reading = observe(ready.follower, measured_run.members, measured_run.observation, measured_run.settings)
    return Step(
        detector=replace(ready, follower=follower), reading=reading, pinned=pinned, baseline=ready.follower.baseline
    )


def learn_on(
    connection: Connection, step: Step, measured_run: MeasuredRun, learnable: Learnable, *, eligible: bool
) -> tuple[Detector, Learned | None]:
    """Learn a baseline if it is time to, after `advance`; gives what was learned, if anything."""
    now = step.detector
    learnable_runs: list[Sequence[int]] = []

    def past(count: int) -> tuple[Fails, Floats]:
        run_ids = learnable(measured_run, now.first_run, None, count - 1)
        learnable_runs.append([*run_ids, measured_run.run_id])
        lost, quality = lost_and_quality(
            read_state_spans(
                connection, measured_run.check_id, run_ids, measured_run.measures.span_query(measured_run.members)
            )
        )
        current = measured_run.observation
        return np.vstack([lost, current.lost[None]]), np.vstack([quality, current.ndcg[None]])

    follower = learn_when_due(now.follower, past, measured_run.settings, eligible=eligible)
    baseline = None if follower.baseline is now.follower.baseline else follower.baseline
    if baseline is None:
        return replace(now, follower=replace(follower, baseline=step.baseline)), None
    return replace(now, follower=follower), Learned(baseline=baseline, run_ids=learnable_runs[-1][-baseline.runs :])


def _prepared(
    connection: Connection, before: Detector | None, measured_run: MeasuredRun, learnable: Learnable
) -> tuple[Detector, Learned | None]:
    choice = measured_run.choice
    choice_id = None if choice is None else choice.id
    if before is not None and before.measures == measured_run.measures and before.choice_id == choice_id:
        return before, None
    begun = Detector(
        follower=follow(measured_run.members),
        measures=measured_run.measures,
        first_run=measured_run.run_id,
        choice_id=choice_id,
    )
    if before is not None and before.measures != measured_run.measures:
        changed = measured_run.measures.changed_from(before.measures)
        begun = replace(begun, anew=f"measured otherwise since run {measured_run.run_id} ({changed})")
    current = (
        begun if before is None or before.measures != measured_run.measures else replace(before, choice_id=choice_id)
    )
    if choice is None or choice.action != Action.PINNED or choice.run_id is None:
        return current, None
    pinned = _learn_pinned(connection, measured_run, choice.run_id, learnable)
    if pinned is None:  # too few to learn of: what it knows, or learns first, stays
        return current, None
    state = realign(current.follower.state, measured_run.members)
    follower = replace(current.follower, state=state)
    return replace(current, follower=with_baseline(follower, pinned.baseline)), pinned


def _learn_pinned(
    connection: Connection, measured_run: MeasuredRun, pinned: int, learnable: Learnable
) -> Learned | None:
    """Learn of the runs up to the pinned one; None where they are too few."""
    run_ids = learnable(measured_run, 0, pinned, FULL_RUNS)
    lost, quality = lost_and_quality(
        read_state_spans(
            connection, measured_run.check_id, run_ids, measured_run.measures.span_query(measured_run.members)
        )
    )
    measured = np.flatnonzero((lost >= 0).any(axis=1))  # others have other measures, or of other canaries
    for count in (FULL_RUNS, IDENTICAL_RUNS):
        of = measured[-count:]
        if len(of) < IDENTICAL_RUNS:
            return None
        baseline = learn(measured_run.members.keys, lost[of], quality[of])
        if baseline.deterministic or len(of) == FULL_RUNS:
            return Learned(baseline=baseline, run_ids=[run_ids[place] for place in of.tolist()])
    return None


def lost_and_quality(past: StateSpans) -> tuple[Fails, Floats]:
    """Give what a detector sees of past runs, read as `DetectorMeasures.span_query` says."""
    return lost_of(past.matrix(0)), past.matrix(1)


def lost_of(hits: Floats) -> Fails:
    """Turn Hit@k into who is lost: 1 = no expected chunk in the top k, -1 = not measured."""
    return np.where(np.isnan(hits), -1, hits <= 0).astype(np.int8)


def answer_fingerprints(connection: Connection, ranking_ids: Sequence[int | None], depth: int) -> list[int | None]:
    """Return identities of stored answers, of their first `depth` chunks; None = there is none."""
    heads = detectors.heads(connection, [one for one in ranking_ids if one is not None], depth)
    return [None if one is None else answer_fingerprint(heads[one].ids) for one in ranking_ids]


def close_of(rules: Sequence[Rule]) -> int:
    """Return after how many good runs in a row an alarm ends, by the rules of a check."""
    closes = [rule.detector_close for rule in rules if rule.kind is RuleKind.REGRESSION]
    return closes[0] if closes else Settings().close


def stored_learnable(connection: Connection) -> Learnable:
    """Return a function that lists the runs marked in the store as fit for a baseline."""

    def learnable(measured_run: MeasuredRun, since: int, until: int | None, count: int) -> Sequence[int]:
        before = measured_run.run_id - 1 if until is None else until
        return detectors.learnable(connection, measured_run.check_id, since=since, until=before, limit=count)

    return learnable


def run_latencies(connection: Connection, rows: Sequence[RunRow]) -> dict[int, Mapping[str, float | None]]:
    """Percentiles of latency by run id, as the runs had them: single latencies are stored less exactly."""
    kept = {row.id: cast("Mapping[str, float | None]", row.probes["latency_seconds"]) for row in rows if row.probes}
    older = results.probes_of_runs(connection, [row.id for row in rows if row.id not in kept])
    return kept | {run_id: latency_summary(measured_latencies(*one)) for run_id, one in older.items()}


def latency_of_baseline(connection: Connection, run: EndingRun, run_ids: Sequence[int]) -> float | None:
    """99 % quantile of the median latencies of these runs, in seconds; the one that is about to end maybe among them.

    At least so many runs were no slower: of fewer than a hundred, the slowest. None = none of them measured any.
    """
    stored = results.find_runs(connection, [run_id for run_id in run_ids if run_id != run.id])
    medians = [one[Percentile.P50] for one in run_latencies(connection, [*stored.values()]).values()]
    if len(stored) < len(run_ids):
        medians.append(run.median_latency)
    known = [median for median in medians if median is not None]
    return float(np.quantile(known, SLOWER_QUANTILE, method="inverted_cdf")) if known else None
