"""Changed canaries: which degraded canaries of a run changed since before an alert began.

A canary changed if it was healthy in the run before the first bad one, or found its expected chunk there and does not
now, unless it fails in most of the baseline's runs; and if the detector names it. The others were failing before.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from heapq import nsmallest

from app.alerts.domain.evidence import ChangedCanary, Degradation, ListedCanaries, LowerChunk, lost_chunks
from app.base.db.engine import Connection, cached_of_run, find_cached_of_run
from app.base.values import Ranking
from app.catalog.service.snapshots import load_suites
from app.detection import store as detectors
from app.detection.domain.serialization import unpack_baseline
from app.detection.domain.values import SIGNALS, Signal
from app.detection.store import DetectionRow
from app.records.store import probe_outcomes, pruning, results
from app.records.store.probe_outcomes import Unmeasured
from app.records.store.pruning import DegradedRow
from app.records.store.results import RunRow, StateRow
from app.scoring.evaluation import MISSING, REGRESSED, RELEVANCE, unpack_reasons
from app.scoring.matching import Match
from app.scoring.suites import Member, SuiteSnapshot

_BYTES_PER_CANARY, _BYTES_PER_CHANCE = 300, 120
_AFTER_PASSING = 0
"""On the second axis of a baseline's rates; after a failure is 1."""
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
    states = pruning.degraded_at(connection, degraded_canaries)
    degraded = {run_id: _without_unmeasured(states[run_id], members[run_id], missing[run_id]) for run_id in measured}
    first_runs = {(run_id, first): first or run_id for run_id, first in requests if degraded.get(run_id)}
    earlier = pruning.previous_known_runs(connection, set(first_runs.values()))
    canaries_before: dict[int, set[int]] = {run_id: set() for run_id in earlier.values()}
    for (run_id, _), first in first_runs.items():
        if first in earlier:
            canaries_before[earlier[first]] |= degraded[run_id].keys()
    before = pruning.degraded_at(connection, canaries_before)
    detections = detectors.detections_of(connection, [run_id for run_id in measured if degraded[run_id]])
    chances, chronic = _failure_rates(connection, detections)
    changes: list[ChangedRun | None] = []
    for one in requests:
        if one not in first_runs:
            changes.append(None)
            continue
        run_id, then = one[0], before.get(earlier.get(first_runs[one], 0), {})
        now, detection = degraded[run_id], detections.get(run_id)
        alarm = detection.body.get("culprits", {}) if detection is not None and detection.open else {}
        changes.append(
            ChangedRun(
                run=measured[run_id],
                suite=suites[measured[run_id].suite_version_id or 0],
                missing=missing[run_id],
                degraded=now,
                changed_ids=_changed_ids(members[run_id], now, then, chronic.get(run_id, frozenset())),
                named=[str(named["key"]) for named in alarm.get("named", ())],
                chances=chances.get(run_id, {}),
                lost_before={canary for canary in now.keys() & then.keys() if then[canary].reasons & MISSING},
                compared=first_runs[one] in earlier,
            )
        )
    return changes


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
        # It was healthy before or, however low its relevance was, found the chunk that it lost.
        if row.reasons & REGRESSED
        or (
            versions[canary] not in chronic
            and ((was := before.get(canary)) is None or row.reasons & ~was.reasons & MISSING)
        )
    }


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
    chances: dict[int, dict[int, float]] = {}
    chronic: dict[int, frozenset[int]] = {}
    for number, body in bodies.items():
        baseline = unpack_baseline(body, None)
        rates = baseline.rates[SIGNALS.index(Signal.LOST)]
        versions = [int(key) for key in baseline.keys]
        passing = zip(versions, rates[_AFTER_PASSING].tolist(), baseline.known, strict=True)
        chances[number] = {version: rate for version, rate, is_known in passing if is_known}
        # Lost in most runs, by the stationary share of a Markov chain with these two rates.
        newly, again = rates.astype(float)
        mostly = (newly / (newly + 1 - again) > _CHRONIC) & baseline.known
        chronic[number] = frozenset(version for version, is_lost in zip(versions, mostly, strict=True) if is_lost)
    run_baselines = {run_id: number for run_id, number in baseline_ids.items() if number in bodies}
    return (
        {run_id: chances[number] for run_id, number in run_baselines.items()},
        {run_id: chronic[number] for run_id, number in run_baselines.items()},
    )


_LISTED = 10
_MAX_STATES = 20
_MOST_LOWER = 3


def list_changed(
    connection: Connection,
    run_id: int,
    first_run: int | None,
    *,
    category: str | None = None,
    canary: str | None = None,
    unchanged: bool = False,
    limit: int = _LISTED,
) -> ListedCanaries:
    """List the canaries of a run that changed since before a first bad run, those of a category or a single one only.

    Those that the detector names come first, then the most degraded; with `unchanged` those that were failing before
    follow. `rank_before` is the rank of the first expected chunk when the canary was last healthy or, if it lost its
    chunk, last found it; None = not in the ranking, or not within the last states. `lower` lists the expected chunks
    that rank lower than then, or are not retrieved any more.
    """
    (change,) = load_changes(connection, [(run_id, first_run)])
    if change is None:
        return {"canaries": [], "changed": 0, "failing_before": 0}
    members = {canary_id: change.suite.members[change.suite.positions[canary_id]] for canary_id in change.degraded}
    concerned = {
        canary_id
        for canary_id, member in members.items()
        if (category is None or member.canary.category == category) and (canary is None or member.key == canary)
    }
    changed_ids = concerned if canary is not None else concerned & change.changed_ids
    order = {key: place for place, key in enumerate(change.named)}
    unscored = {change.members[place].canary_id for place in change.missing.unscored}
    rows = {one: change.degraded[one] for one in (concerned if unchanged else changed_ids)}
    for one in unscored & rows.keys():
        rows[one] = rows[one]._replace(top_score=None, reasons=rows[one].reasons & ~RELEVANCE)
    worst = nsmallest(
        limit,
        rows.values(),
        key=lambda row: (
            row.canary_id not in changed_ids,
            order.get(members[row.canary_id].key, len(order)),
            not row.reasons & REGRESSED,
            severity_order(row, members[row.canary_id].key),
        ),
    )
    states = results.states_of(connection, change.run.check_id, run_id, [row.canary_id for row in worst])
    now = [replace(states[row.canary_id], reasons=row.reasons) for row in worst if row.canary_id in states]
    before = [_read_last_healthy(connection, change.run.check_id, state) for state in now]
    rankings = results.load_rankings(connection, [one.ranking_id for one in before if one is not None])
    return {
        "canaries": [
            _listed(members[state.canary_id], state, past, rankings.get(past.ranking_id) if past is not None else None)
            for state, past in zip(now, before, strict=True)
        ],
        "changed": len(changed_ids),
        "failing_before": len(concerned) - len(changed_ids),
    }


def _listed(member: Member, state: StateRow, before: StateRow | None, ranking: Ranking | None) -> ChangedCanary:
    """Describe a canary; `ranking` is that of `before`."""
    return {
        "key": member.key,
        "query": member.canary.query,
        "reasons": list(unpack_reasons(state.reasons)),
        "rank_before": None if before is None else Match.from_bytes(before.matched).first_relevant,
        "rank_now": Match.from_bytes(state.matched).first_relevant,
        "lower": [] if before is None else _lower(member, before, state, ranking),
        **_lost(member, before, state, ranking),
    }


def _lost(member: Member, before: StateRow | None, now: StateRow, ranking: Ranking | None) -> Degradation:
    chunks = member.canary.judgments
    today = Match.from_bytes(now.matched).first
    then = None
    if before is not None and before.canary_version_id == now.canary_version_id:
        then = Match.from_bytes(before.matched).first
    if len(today) != len(chunks) or (then is not None and len(then) != len(chunks)):
        then, today = None, (None,) * len(chunks)
    documents = () if ranking is None else ranking.documents
    return lost_chunks(chunks, today, then, missing=bool(now.reasons & MISSING), documents=documents)


def _lower(member: Member, before: StateRow, now: StateRow, ranking: Ranking | None) -> list[LowerChunk]:
    """List expected chunks that a canary ranks lower than before, those it does not retrieve any more first.

    A chunk without an expected document has that of the hit that matched it before.
    """
    documents = () if ranking is None else ranking.documents
    chunks = member.canary.judgments
    then, today = (Match.from_bytes(state.matched).first for state in (before, now))
    if before.canary_version_id != now.canary_version_id or not len(chunks) == len(then) == len(today):
        return []
    lower: list[LowerChunk] = [
        {
            "id": chunk.id,
            "document": chunk.document or (documents[was - 1] if was <= len(documents) else None),
            "rank_before": was,
            "rank_now": rank,
        }
        for chunk, was, rank in zip(chunks, then, today, strict=True)
        if chunk.grade >= 1 and was is not None and (rank is None or rank > was)
    ]
    lower.sort(key=lambda one: (one["rank_now"] is not None, one["rank_before"]))
    return lower[:_MOST_LOWER]


def severity_order(state: StateRow | DegradedRow, key: str) -> tuple[int, float, str]:
    """Sort key as in shapes.worst_first: most reasons first, then the lowest top score, unknown ones last."""
    return -state.reasons.bit_count(), 1.0 if state.top_score is None else state.top_score, key


def last_healthy_state(connection: Connection, now: StateRow | None, past: Sequence[StateRow]) -> StateRow | None:
    """Newest of these states, given newest first, in which a canary was healthy; None = there is none.

    A canary that lost its chunk counts as healthy as long as it found it, whatever else was wrong then. Where the
    detector names it now, the state is one from before the fault with another ranking: without a limit of its own a
    canary stays healthy until the detector has enough runs. If it never was healthy, the newest one before the fault.
    """
    relevant_reasons = MISSING if now is not None and now.reasons & MISSING else -1
    healthy = [state for state in past if not state.reasons & relevant_reasons]
    if now is None or not now.reasons & REGRESSED:
        return next(iter(healthy), None)
    detection = detectors.detections_of(connection, [now.first_run]).get(now.first_run)
    since = now.first_run if detection is None or detection.since_run is None else detection.since_run
    not_regressed = [state for state in past if not state.reasons & REGRESSED]
    return next(
        (one for one in (*healthy, *not_regressed) if one.first_run < since and one.ranking_id != now.ranking_id), None
    )


def _read_last_healthy(connection: Connection, check_id: int, now: StateRow) -> StateRow | None:
    past = results.timeline(connection, check_id, now.canary_id, limit=_MAX_STATES)
    return last_healthy_state(connection, now, [state for state in past if state.first_run < now.first_run])
