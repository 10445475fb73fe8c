"""Changed canaries: which degraded canaries of a run changed since before an alert began.

A canary changed if it was healthy in the run before the first bad one, or found its expected chunk there and does not
now, unless it fails in most of the baseline's runs; and if the detector names it. The others were failing before.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from app.base.db.engine import Connection, cached_of_run, find_cached_of_run
from app.catalog.domain.suite_snapshot import Member, SuiteSnapshot
from app.catalog.service.suite_snapshots import load_suites
from app.detection.domain import SIGNALS, Baseline, Signal, unpack_baseline
from app.detection.store import detectors
from app.detection.store.detectors import DetectionRow
from app.records.store import degraded_at_run, probe_outcomes, results
from app.records.store.degraded_at_run import DegradedRow
from app.records.store.probe_outcomes import Unmeasured
from app.records.store.results import RunRow
from app.scoring.tally import MISSING, REGRESSED, RELEVANCE

_BYTES_PER_CANARY, _BYTES_PER_CHANCE = 300, 120
_AFTER_PASSING, _AFTER_FAILING = 0, 1
"""On the second axis of a baseline's rates."""
_CHRONIC = 0.5
"""A canary that fails in a larger share of the baseline's runs was failing before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRun:
    """The degraded canaries of a measured run, compared with the run before the first bad one of an alert."""

    run: RunRow
    suite: SuiteSnapshot
    missing: Unmeasured
    degraded: Mapping[int, DegradedRow]
    """The measured ones, by canary id."""
    changed_ids: AbstractSet[int]
    """The ids of the changed canaries."""
    lost_before: AbstractSet[int]
    """The ids of the changed canaries that had lost their expected chunk before: they only rank it lower now."""
    named: Sequence[str]
    """The keys of the canaries that an open alarm of the detector names, the strongest evidence first."""
    chances: Mapping[int, float]
    """By version id, the chance that a canary that passed fails in the next run, by the baseline."""
    compared: bool
    """Whether a run ended before the first bad one."""

    @property
    def members(self) -> Sequence[Member]:
        """All canaries of the run, by position."""
        return self.suite.members


def load_changes(connection: Connection, requests: Sequence[tuple[int, int | None]]) -> list[ChangedRun | None]:
    """Return the changed canaries of runs, each given with the first bad run of an alert (None = the run itself).

    None for a run that does not exist, measured nothing, or degraded no canary. The number of queries does not depend
    on the number of runs; the result of a run never changes, and is cached.
    """
    runs = results.find_runs(connection, {run_id for run_id, _ in requests})
    keys = {one: ("changed", one, runs[one[0]].finished_at) for one in requests if one[0] in runs}
    changes: dict[tuple[int, int | None], ChangedRun | None] = {}
    for one, key in keys.items():
        changes[one] = find_cached_of_run(connection, key)
    missing = [one for one in dict.fromkeys(requests) if changes.get(one) is None and one in keys]
    for one, change in zip(missing, _read_changes(connection, missing, runs) if missing else (), strict=True):
        changes[one] = change if change is None else cached_of_run(connection, keys[one], partial(_with_size, change))
    return [changes.get(one) for one in requests]


def _with_size(change: ChangedRun) -> tuple[ChangedRun, int]:
    return change, len(change.degraded) * _BYTES_PER_CANARY + len(change.chances) * _BYTES_PER_CHANCE


def _read_changes(
    connection: Connection, requests: Sequence[tuple[int, int | None]], runs: Mapping[int, RunRow]
) -> list[ChangedRun | None]:
    measured = {run.id: run for run in runs.values() if run.suite_version_id is not None and run.aggregates}
    suites = load_suites(connection, [run.suite_version_id or 0 for run in measured.values()])
    members = {run.id: suites[run.suite_version_id or 0].members for run in measured.values()}
    missing = probe_outcomes.unmeasured(connection, measured)
    degraded_canaries = {
        run.id: [members[run.id][place].canary_id for place in run.degraded_places] for run in measured.values()
    }
    states = degraded_at_run.degraded_at(connection, degraded_canaries)
    degraded = {run_id: _without_unmeasured(states[run_id], members[run_id], missing[run_id]) for run_id in measured}
    first_runs = {(run_id, first): first or run_id for run_id, first in requests if degraded.get(run_id)}
    earlier = degraded_at_run.previous_known_runs(connection, set(first_runs.values()))
    canaries_before: dict[int, set[int]] = {run_id: set() for run_id in earlier.values()}
    for (run_id, _), first in first_runs.items():
        if first in earlier:
            canaries_before[earlier[first]] |= degraded[run_id].keys()
    before = degraded_at_run.degraded_at(connection, canaries_before)
    detections = detectors.detections_of(connection, [run_id for run_id in measured if degraded[run_id]])
    chances, chronic = _failure_rates(connection, detections)
    return [
        ChangedRun(
            run=measured[one[0]],
            suite=suites[measured[one[0]].suite_version_id or 0],
            missing=missing[one[0]],
            degraded=degraded[one[0]],
            changed_ids=_changed_ids(
                members[one[0]],
                degraded[one[0]],
                before.get(earlier.get(first_runs[one], 0), {}),
                chronic.get(one[0], frozenset()),
            ),
            named=_named_keys(detections.get(one[0])),
            chances=chances.get(one[0], {}),
            lost_before=_lost_before(degraded[one[0]], before.get(earlier.get(first_runs[one], 0), {})),
            compared=first_runs[one] in earlier,
        )
        if one in first_runs
        else None
        for one in requests
    ]


def changed_keys(connection: Connection, requests: Sequence[tuple[int, int | None]]) -> frozenset[str]:
    """Keys of all canaries that changed in these runs, each given with the first bad run of an alert."""
    return frozenset(
        member.key
        for change in load_changes(connection, requests)
        if change is not None
        for member in change.members
        if member.canary_id in change.changed_ids
    )


def _changed_ids(
    members: Sequence[Member],
    degraded: Mapping[int, DegradedRow],
    before: Mapping[int, DegradedRow],
    chronic: AbstractSet[int],
) -> set[int]:
    versions = {member.canary_id: member.version_id for member in members}
    return {
        canary
        for canary, row in degraded.items()
        if row.reasons & REGRESSED or (versions[canary] not in chronic and _is_worse(row, before.get(canary)))
    }


def _lost_before(degraded: Mapping[int, DegradedRow], before: Mapping[int, DegradedRow]) -> set[int]:
    return {canary for canary in degraded.keys() & before.keys() if before[canary].reasons & MISSING}


def _is_worse(now: DegradedRow, before: DegradedRow | None) -> bool:
    """Whether a degraded canary was healthy before or, however low its relevance was, found the chunk that it lost."""
    return before is None or bool(now.reasons & ~before.reasons & MISSING)


def _named_keys(detection: DetectionRow | None) -> list[str]:
    if detection is None or not detection.open:
        return []
    return [str(one["key"]) for one in detection.body.get("culprits", {}).get("named", ())]


def _without_unmeasured(
    states: Mapping[int, DegradedRow], members: Sequence[Member], missing: Unmeasured
) -> dict[int, DegradedRow]:
    """Degraded states of a run without those it did not measure, as in `degraded_states`."""
    measured = {}
    for position, member in enumerate(members):
        row = states.get(member.canary_id)
        if row is None or position in missing.failures:
            continue
        if row.reasons & ~RELEVANCE or position not in missing.unscored:
            measured[row.canary_id] = row
    return measured


def _failure_rates(
    connection: Connection, detections: Mapping[int, DetectionRow]
) -> tuple[dict[int, dict[int, float]], dict[int, frozenset[int]]]:
    """Failure rates by run id: the chance to fail after a pass by version id, and the versions that mostly fail.

    By the baseline the run was compared with; empty where there was no baseline yet.
    """
    baseline_ids = {run_id: one.baseline_id for run_id, one in detections.items() if one.baseline_id is not None}
    bodies = detectors.bodies_of_baselines(connection, set(baseline_ids.values()))
    baselines = {baseline_id: unpack_baseline(body, None) for baseline_id, body in bodies.items()}
    chances = {number: _chances(baseline) for number, baseline in baselines.items()}
    chronic = {number: _chronic(baseline) for number, baseline in baselines.items()}
    run_baselines = {run_id: number for run_id, number in baseline_ids.items() if number in baselines}
    return (
        {run_id: chances[number] for run_id, number in run_baselines.items()},
        {run_id: chronic[number] for run_id, number in run_baselines.items()},
    )


def _chances(baseline: Baseline) -> dict[int, float]:
    rates = baseline.rates[SIGNALS.index(Signal.LOST), _AFTER_PASSING].tolist()
    return {
        int(key): rate for key, rate, is_known in zip(baseline.keys, rates, baseline.known, strict=True) if is_known
    }


def _chronic(baseline: Baseline) -> frozenset[int]:
    """Versions that are lost in most runs, by the stationary share of a Markov chain with these two rates."""
    newly, again = baseline.rates[SIGNALS.index(Signal.LOST)].astype(float)
    lost = newly / (newly + 1 - again) > _CHRONIC
    return frozenset(int(key) for key, mostly in zip(baseline.keys, lost & baseline.known, strict=True) if mostly)
