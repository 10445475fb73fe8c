"""A check's detector between two runs: how it is read, advanced and reset, and what it learns from.

A baseline is learned from a pinned run or from runs since the reset. Beside it: latencies of runs, and how far top
scores have drifted from the baseline. `replay_check` runs a detector over the stored runs once more and writes nothing;
what only the moment knew, such as open alerts and people's choices, is read as stored. Live runs and replays use the
same functions, so both get the same numbers. The domain decides; `detector_step` writes the rows.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from typing import Final, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.alerts.domain.rules import alarm_close
from app.base.db.engine import Connection, Store
from app.base.values import Percentile, Value, Verdict, replace
from app.catalog.service.references import find_check
from app.catalog.service.versions import former_versions, load_inputs, load_suite
from app.detection import store as detector_rows
from app.detection.domain import Baseline, Habits, Members, Observation, Reading, Settings, answer_fingerprint
from app.detection.domain.decision import OVERLAP_DEPTH, score_drift, top_overlap
from app.detection.domain.evidence import realign
from app.detection.domain.learning import FULL_RUNS, IDENTICAL_RUNS, learn
from app.detection.domain.tracker import (
    Follower,
    follow,
    keys_of,
    learn_when_due,
    observe,
    pack_habits,
    pack_state,
    rename,
    unpack_habits,
    unpack_state,
)
from app.detection.domain.tracker import learned as with_baseline
from app.detection.domain.views import Action, DriftKind, StoredDrift
from app.detection.store import ChoiceRow, DetectionRow, Frozen, Head, RefusalRow, Span
from app.records.store import run_rows
from app.records.store.run_rows import RunRow
from app.records.store.state_rows import SpanQuery, StateSpans, read_state_spans
from app.retrievers.domain.probes import latency_summary
from app.scoring.evaluation import Tally
from app.scoring.measures import MEASURES_VERSION, Measure
from app.scoring.run_inputs import RunInputs, SuiteSnapshot, Yardstick
from app.scoring.run_outcomes import measured_latencies

Floats = NDArray[np.float64]
Fails = NDArray[np.int8]

_QUALITY_DEPTH: Final = 10


class DetectorMeasures(Value):
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

    def span_query(self, members: Members, former: Mapping[int, int] | None = None) -> SpanQuery:
        """Return the query for the past results that a baseline is learned from; `former` as there."""
        version_ids, names = [int(key) for key in members.keys], (self.hit, self.quality)
        return SpanQuery(version_ids=version_ids, k=self.k, names=names, former=former or {})


class _Packed(msgspec.Struct, array_like=True, frozen=True):
    measures: tuple[int, str, str]
    first_run: int
    choice_id: int | None
    state: bytes
    anew: str = ""
    habits: bytes = b""
    """A release that does not know them leaves them out, and forgets them when it writes."""


class Detector(Value):
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


class MeasuredRun(Value):
    """A measured run: the input of one detector step."""

    check_id: int
    run_id: int
    measures: DetectorMeasures
    suite: SuiteSnapshot
    observation: Observation
    close: int
    """Number of good runs in a row after which an alarm ends."""
    choice: ChoiceRow | None
    """The baseline chosen by a user (pinned or accepted) at that time; None = none."""

    refused_habits: frozenset[str] = frozenset()
    """Habits that people had called not normal by then."""

    @property
    def members(self) -> Members:
        """The canaries that are watched."""
        return self.suite.watched

    @property
    def settings(self) -> Settings:
        """Settings of the detector."""
        pinned = self.choice is not None and self.choice.action == Action.PINNED
        return Settings(close=self.close, relearn=not pinned, refused_habits=self.refused_habits)


class Learned(Value):
    """A new baseline and the runs it was learned from, oldest first."""

    baseline: Baseline
    run_ids: Sequence[int]


class EndingRun(Value):
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


class Step(Value):
    """Result of one run for a detector, before a baseline is learned."""

    detector: Detector
    reading: Reading
    pinned: Learned | None
    """What was learned up to a run that was pinned since the last one."""
    baseline: Baseline | None
    """The baseline in force as it was learned, also of canaries that are gone."""


def advance(connection: Connection, before: Detector | None, measured_run: MeasuredRun, learnable: Learnable) -> Step:
    """Return the detector after a measured run: reset where due, with the chosen baseline, then the run observed.

    It goes on knowing a canary of which another version asks and expects the same.
    """
    if before is not None:
        known = [key for key in keys_of(before.follower) if isinstance(key, int)]
        former = former_versions(connection, measured_run.suite, known)
        before = replace(before, follower=rename(before.follower, dict(former.items())))
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
        lost, quality = _read_past(connection, measured_run, run_ids)
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
    lost, quality = _read_past(connection, measured_run, run_ids)
    measured = np.flatnonzero((lost >= 0).any(axis=1))  # others have other measures, or of other canaries
    for count in (FULL_RUNS, IDENTICAL_RUNS):
        of = measured[-count:]
        if len(of) < IDENTICAL_RUNS:
            return None
        baseline = learn(measured_run.members.keys, lost[of], quality[of])
        if baseline.deterministic or len(of) == FULL_RUNS:
            return Learned(baseline=baseline, run_ids=[run_ids[place] for place in of.tolist()])
    return None


def _read_past(connection: Connection, measured_run: MeasuredRun, run_ids: Sequence[int]) -> tuple[Fails, Floats]:
    """Read what a detector sees of past runs, also by earlier versions of canaries that asked and expected the same."""
    former = versions_of_runs(connection, measured_run.suite, run_ids)
    asked = measured_run.measures.span_query(measured_run.members, former)
    return lost_and_quality(read_state_spans(connection, measured_run.check_id, run_ids, asked))


def versions_of_runs(connection: Connection, suite: SuiteSnapshot, run_ids: Sequence[int]) -> Mapping[int, int]:
    """Return the earlier versions of a suite's canaries in these runs that asked and expected the same, see there."""
    suites = {run.suite_version_id for run in run_rows.find_runs(connection, run_ids).values()}
    others = [load_suite(connection, one) for one in sorted(filter(None, suites - {suite.version_id}))]
    return former_versions(connection, suite, chain.from_iterable(one.version_ids for one in others))


def lost_and_quality(past: StateSpans) -> tuple[Fails, Floats]:
    """Give what a detector sees of past runs, read as `DetectorMeasures.span_query` says."""
    return lost_of(past.matrix(0)), past.matrix(1)


def lost_of(hits: Floats) -> Fails:
    """Turn Hit@k into who is lost: 1 = no expected chunk in the top k, -1 = not measured."""
    return np.where(np.isnan(hits), -1, hits <= 0).astype(np.int8)


def answer_fingerprints(connection: Connection, ranking_ids: Sequence[int | None], depth: int) -> list[int | None]:
    """Return identities of stored answers, of their first `depth` chunks; None = there is none."""
    heads = detector_rows.heads(connection, [one for one in ranking_ids if one is not None], depth)
    return [None if one is None else answer_fingerprint(heads[one].ids) for one in ranking_ids]


def stored_learnable(connection: Connection) -> Learnable:
    """Return a function that lists the runs marked in the store as fit for a baseline."""

    def learnable(measured_run: MeasuredRun, since: int, until: int | None, count: int) -> Sequence[int]:
        before = measured_run.run_id - 1 if until is None else until
        return detector_rows.learnable(connection, measured_run.check_id, since=since, until=before, limit=count)

    return learnable


def run_latencies(connection: Connection, rows: Sequence[RunRow]) -> dict[int, Mapping[str, float | None]]:
    """Percentiles of latency by run id, as the runs had them: single latencies are stored less exactly."""
    kept = {row.id: cast("Mapping[str, float | None]", row.probes["latency_seconds"]) for row in rows if row.probes}
    older = run_rows.probes_of_runs(connection, [row.id for row in rows if row.id not in kept])
    return kept | {run_id: latency_summary(measured_latencies(*one)) for run_id, one in older.items()}


_USUAL_RUNS = 20


def usual_latency(connection: Connection, check_id: int, percentile: Percentile, run_id: int) -> float | None:
    """Median of a percentile of latency, in seconds, over the 20 ended runs before one; None = none was measured."""
    rows = run_rows.ended_runs(connection, check_id, before=run_id, limit=_USUAL_RUNS)
    latencies = run_latencies(connection, [row for row in rows if row.verdict != Verdict.UNKNOWN])
    values = [value for one in latencies.values() if (value := one[percentile]) is not None]
    return float(np.median(values)) if values else None


_BLOCK = 500


class ReplayedRun(Value):
    """What the detector says of one run, and what it said when the run ended."""

    run_id: int
    reading: Reading
    culprits: tuple[str, ...]
    """Keys of the canaries named."""
    learned: bool
    """A baseline was learned after this run."""
    stored: DetectionRow | None
    """None = nothing is stored: the run is older than detectors are."""


def replay_check(
    store: Store, slug: str, *, moved: Callable[[int, int], None] = lambda _done, _total: None
) -> list[ReplayedRun]:
    """Run the detector of a check over its stored runs, oldest first; `moved` is called with (done, total).

    It begins with the first run that is still there and that a detector has seen, or where none has with the first
    that measured anything. Where older runs have been pruned it therefore warms up anew. Raises NotFoundError.
    """
    replayed: list[ReplayedRun] = []
    with store.read() as connection:
        check = find_check(connection, slug)
        stored = {row.run_id: row for row in detector_rows.all_detections(connection, check.id)}
        runs = detector_rows.frozen_runs(connection, check.id, since=min(stored, default=0))
        runs = [run for run in runs if run.run_id in stored or not stored]
        trail = _Trail(
            stored=stored,
            choices=detector_rows.list_choices(connection, check.id)[::-1],
            refusals=detector_rows.list_refusals(connection, check.id),
        )
        for block in _blocks(runs):
            for inputs, observed in _measured_runs(connection, check.id, block):
                replayed.append(trail.follow(connection, inputs, observed))
                moved(len(replayed), len(runs))
    return replayed


def _blocks(runs: Sequence[Frozen]) -> Iterator[list[Frozen]]:
    """Cut runs into pieces that worked with the same definitions, none of them long."""
    for _, alike in groupby(runs, key=lambda run: run.versions[:2]):
        piece = list(alike)
        for start in range(0, len(piece), _BLOCK):
            yield piece[start : start + _BLOCK]


def _measured_runs(
    connection: Connection, check_id: int, runs: Sequence[Frozen]
) -> Iterator[tuple[RunInputs, MeasuredRun]]:
    """Read what was observed in runs that worked with the same definitions, whatever people chose by then."""
    inputs = load_inputs(connection, runs[0].versions)
    measures = DetectorMeasures.of(inputs.yardstick)
    canary_ids = [inputs.canary_ids[place] for place in inputs.panel.watched.tolist()]
    marks = detector_rows.marks_since(connection, check_id, runs[0].run_id)
    run_ids = [run.run_id for run in runs]
    lost, quality = lost_and_quality(
        read_state_spans(connection, check_id, run_ids, measures.span_query(inputs.watched))
    )
    for place, run_id in enumerate(run_ids):
        yield (
            inputs,
            MeasuredRun(
                check_id=check_id,
                run_id=run_id,
                measures=measures,
                suite=inputs.suite,
                observation=Observation(
                    lost=lost[place],
                    ndcg=quality[place],
                    answers=partial(_fingerprints, connection, check_id, run_id, canary_ids, measures.depth),
                    index_version=next((version for run, version in reversed(marks) if run <= run_id), None),
                ),
                close=alarm_close(inputs.yardstick.rules),
                choice=None,
            ),
        )


def _fingerprints(
    connection: Connection, check_id: int, run_id: int, canary_ids: Sequence[int], depth: int, positions: Sequence[int]
) -> Sequence[int | None]:
    """Identities of what the watched canaries at these positions answered in a stored run."""
    wanted = [canary_ids[position] for position in positions]
    spans = detector_rows.spans(connection, check_id, wanted, run_id, run_id)
    rankings = {span.canary_id: span.ranking_id for span in spans}
    return answer_fingerprints(connection, [rankings.get(canary) for canary in wanted], depth)


@dataclass(slots=True, kw_only=True)
class _Trail:
    """Where the detector stands, and which runs it has come by."""

    stored: dict[int, DetectionRow]
    choices: Sequence[ChoiceRow]
    refusals: Sequence[RefusalRow]
    detector: Detector | None = None
    passed: list[int] = field(default_factory=list)
    eligible: list[int] = field(default_factory=list)

    def follow(self, connection: Connection, inputs: RunInputs, observed: MeasuredRun) -> ReplayedRun:
        """Take in the next run."""
        run_id = observed.run_id
        refused = frozenset(one.habit for one in self.refusals if one.after_run < run_id)
        measured_run = replace(observed, choice=self._choice(run_id), refused_habits=refused)
        step = advance(connection, self.detector, measured_run, self._learnable)
        reading, row = step.reading, self.stored.get(run_id)
        self.passed.append(run_id)
        if reading.is_of_alarm:
            since = self.passed[-reading.since :][0]
            self.eligible = [run_id for run_id in self.eligible if run_id < since]
            well = False
        else:
            well = row is None or not row.body.get("alerted")
        self.detector, learned = learn_on(connection, step, measured_run, self._learnable, eligible=well)
        if well:
            self.eligible.append(run_id)
        named = inputs.panel.watched[[one.position for one in reading.culprits]].tolist()
        keys = [inputs.canaries[position].key for position in named]
        return ReplayedRun(
            run_id=run_id, reading=reading, culprits=tuple(keys), learned=learned is not None, stored=row
        )

    def _choice(self, run_id: int) -> ChoiceRow | None:
        """Give the choice in force for a run; where the present was accepted since the last one, begin anew."""
        made = [choice for choice in self.choices if choice.after_run < run_id]
        newest_id = None if self.detector is None else self.detector.choice_id
        if any(choice.action == Action.ACCEPTED for choice in made if newest_id is None or choice.id > newest_id):
            self.detector = None
        return made[-1] if made else None

    def _learnable(self, _: MeasuredRun, since: int, until: int | None, count: int) -> Sequence[int]:
        run_ids = [run_id for run_id in self.eligible if run_id >= since and (until is None or run_id <= until)]
        return run_ids[-count:] if count else []


_SAMPLE: Final = 200
"""Canaries compared: a median of more would cost more and say the same."""
_RUNS: Final = 50
"""Of a baseline's runs, the newest ones that mean and deviation are taken of."""


def drift_of(
    connection: Connection,
    check_id: int,
    inputs: RunInputs,
    rankings: Sequence[int | None],
    held_since: Callable[[int], int | None],
    *,
    first_run: int,
    last_run: int,
) -> StoredDrift | None:
    """Say how far a run's top scores are from those of the baseline of runs `first_run` to `last_run`.

    `rankings` are the run's ranking ids by position, None = not measured; `held_since` gives the run with which that
    of a position came, None = with this one. None = there is nothing to say: scores are where they were, or are not
    known. Where half of the canaries still have the very rankings with which the baseline ended their median distance
    is none: for rankings that have held since, that needs no query. Of many canaries 200 are compared, evenly spaced
    over the suite; canaries that have changed since are left out.
    """
    places = _sampled_places(rankings)
    steady = sum((since := held_since(place)) is not None and since <= last_run for place in places)
    if 2 * steady > len(places):
        return None
    now = {
        inputs.canary_ids[place]: (inputs.version_ids[place], ranking_id)
        for place in places
        if (ranking_id := rankings[place]) is not None
    }
    ended = detector_rows.spans(connection, check_id, sorted(now), last_run, last_run)
    ended = [span for span in ended if span.canary_version_id == now[span.canary_id][0]]
    last = {span.canary_id: span.ranking_id for span in ended}
    same = sum(now[canary][1] == ranking_id for canary, ranking_id in last.items())
    if not last or 2 * same > len(last):
        return None
    runs = detector_rows.measured_runs(connection, check_id, first_run, last_run, limit=_RUNS)
    if not runs:
        return None
    held = detector_rows.spans(connection, check_id, sorted(last), runs[0], runs[-1])
    held = [span for span in held if span.canary_version_id == now[span.canary_id][0]]
    ranking_ids = {*last.values(), *(span.ranking_id for span in held), *(now[canary][1] for canary in last)}
    heads = detector_rows.heads(connection, sorted(ranking_ids), OVERLAP_DEPTH)
    before = _before(held, runs, heads)
    canaries_in_both = [canary for canary in last if canary in before]
    drift = score_drift(
        [before[canary][0] for canary in canaries_in_both],
        [before[canary][1] for canary in canaries_in_both],
        [np.nan if (top := heads[now[canary][1]].score) is None else top for canary in canaries_in_both],
        [top_overlap(heads[last[canary]].ids, heads[now[canary][1]].ids) for canary in canaries_in_both],
    )
    return drift if drift["kind"] in {DriftKind.SCORES, DriftKind.RANKINGS} else None


def _sampled_places(rankings: Sequence[int | None]) -> Sequence[int]:
    """Give the positions of measured canaries, evenly spaced over the suite."""
    measured = [position for position, ranking_id in enumerate(rankings) if ranking_id is not None]
    return measured[:: max(1, -(-len(measured) // _SAMPLE))]


def _before(held: Sequence[Span], runs: Sequence[int], heads: Mapping[int, Head]) -> dict[int, tuple[float, float]]:
    """Give mean and standard deviation of the top score by canary id, each run counting once."""
    scores: dict[int, list[tuple[float, int]]] = {}
    for span in held:
        end = len(runs) if span.last_run is None else bisect_right(runs, span.last_run)
        count = end - bisect_left(runs, span.first_run)
        score = heads[span.ranking_id].score
        if count > 0 and score is not None:
            scores.setdefault(span.canary_id, []).append((score, count))
    spreads: dict[int, tuple[float, float]] = {}
    for canary, weighted in scores.items():
        values, counts = np.array(weighted).T
        mean = float(np.average(values, weights=counts))
        spreads[canary] = mean, float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))
    return spreads
