"""What a run found out: results of what changed, what still holds of the rest, and the sum of both."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.domain.model import Aggregates, Ranking
from app.domain.runs.evaluation import Result, Tally, Timing, judge, judge_timings
from app.domain.runs.verdicts import is_unknown
from app.services.detection.detector_step import DetectorStep, run_detector
from app.services.detection.ending_runs import EndingRun
from app.services.runs.plans import Plan
from app.services.runs.staging import Gathered
from app.store.engine import Store
from app.store.runs import recording
from app.store.runs.recording import NewState, OpenState


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a run found out: new results, changed states, and what all of it amounts to."""

    results: dict[int, Result]
    closed: list[int]
    opened: list[NewState]
    reasons: NDArray[np.int64]
    undated: int
    """Measured canaries with a maximum age whose hits do not say how old they are."""
    aggregates: Aggregates
    watched: DetectorStep | None
    """What the detector made of it; None = it does not look at runs that are unknown."""

    def degraded_positions(self, gathered: Gathered) -> bytes:
        """Pack the places of degraded canaries; one whose probe failed is unknown, not degraded."""
        places = np.flatnonzero(self.reasons)
        return places[~np.isin(places, list(gathered.failures))].astype("<u4").tobytes()


def find_out(store: Store, plan: Plan, gathered: Gathered, *, unknown: bool) -> Findings:
    """Judge what changed, take over what did not, and summarise; reads, but writes nothing.

    `unknown`: whatever was measured, the verdict is.
    """
    changed: dict[int, int] = {}
    kept: dict[int, OpenState] = {}
    for position, ranking_id in enumerate(gathered.rankings):
        if ranking_id is None:
            continue
        state = plan.held.get(plan.inputs.canary_ids[position])
        if state is not None and plan.still_holds(state, ranking_id, position):
            kept[position] = state
        else:
            changed[position] = ranking_id
    results = judge(plan.inputs.yardstick, plan.inputs.panel, _rankings(store, plan, changed))
    timings = _timings(store, plan, gathered)
    tally = Tally(plan.inputs.yardstick, plan.inputs.panel)
    tally.add(results)
    tally.take_over(kept)
    before = tally.reasons.copy()
    tally.time(timings)
    watched = None if unknown or _is_unknown(plan, gathered) else _run_detector(store, plan, tally, gathered)
    if watched is not None:
        tally.regress(watched.regressed)
    moved = [position for position in np.flatnonzero(tally.reasons != before).tolist() if position in kept]
    closed, opened = _changes(plan, gathered, results, {place: kept[place] for place in moved}, tally.reasons)
    tally = tally.without_relevance(gathered.unscored_at)  # of what is kept it is that of an earlier run
    return Findings(
        results=results,
        closed=closed,
        opened=opened,
        reasons=tally.reasons,
        undated=sum(timing.undated for timing in timings.values()),
        aggregates=tally.aggregates(gathered.outcomes),
        watched=watched,
    )


def _run_detector(store: Store, plan: Plan, tally: Tally, gathered: Gathered) -> DetectorStep | None:
    run = EndingRun(
        id=plan.run.id,
        check_id=plan.run.check_id,
        inputs=plan.inputs,
        tally=tally,
        ranking_ids=gathered.rankings,
        index_version=gathered.index_version,
    )
    return run_detector(store, run)


def _is_unknown(plan: Plan, gathered: Gathered) -> bool:
    """Whether too little was measured to say anything, as far as counting tells."""
    total, failed = len(plan.inputs.panel), len(gathered.failures)
    expecting = int(plan.inputs.panel.expects.sum())
    measured_expecting = expecting - int(plan.inputs.panel.expects[list(gathered.failures)].sum())
    return is_unknown(
        Aggregates(
            total=total,
            measured=total - failed,
            failed=failed,
            undefined=total - failed - measured_expecting,
            degraded=0,
            expecting=expecting,
            health_score=None,
            coverage=None,
        )
    )


def _timings(store: Store, plan: Plan, gathered: Gathered) -> dict[int, Timing]:
    """Judge the moment of every answer it matters for: that of an unchanged ranking too, which has grown older."""
    inputs = plan.inputs
    timed = {position: gathered.rankings[position] for position in inputs.panel.timed}
    measured = {position: ranking_id for position, ranking_id in timed.items() if ranking_id is not None}
    aged = {place: known for place, known in measured.items() if inputs.canaries[place].max_age_seconds is not None}
    latencies = {position: float(gathered.latencies[position]) for position in measured}
    return judge_timings(
        plan.inputs.yardstick, plan.inputs.panel, latencies, _rankings(store, plan, aged), plan.started_at
    )


def _rankings(store: Store, plan: Plan, wanted: Mapping[int, int]) -> dict[int, Ranking]:
    unseen = [ranking_id for ranking_id in wanted.values() if ranking_id not in plan.seen]
    if unseen:
        with store.read() as connection:
            plan.seen.update(recording.load_rankings(connection, unseen))
    return {position: plan.seen[ranking_id] for position, ranking_id in wanted.items()}


def _changes(
    plan: Plan,
    gathered: Gathered,
    results: Mapping[int, Result],
    moved: Mapping[int, OpenState],
    reasons: NDArray[np.int64],
) -> tuple[list[int], list[NewState]]:
    """Say which states end and which begin: those of changed results, and of canaries no longer asked.

    `moved`: what was kept though its reasons are others now, of which the ranking is not all that decides.
    """
    asked = set(plan.inputs.canary_ids)
    closed = [state.id for canary_id, state in plan.held.items() if canary_id not in asked]
    opened: list[NewState] = []
    top_scores = {position: result.top_score for position, result in results.items()}
    top_scores |= {position: state.top_score for position, state in moved.items()}
    for position, top_score in top_scores.items():
        ranking_id = gathered.rankings[position]
        assert ranking_id is not None  # noqa: S101 - only what was measured has a result or is kept
        state = NewState(
            canary_id=plan.inputs.canary_ids[position],
            canary_version_id=plan.inputs.version_ids[position],
            ranking_id=ranking_id,
            layout_id=plan.layout_id,
            reasons=int(reasons[position]),
            top_score=top_score,
        )
        before = plan.held.get(state.canary_id)
        if before is not None and _same(before, state):
            continue
        opened.append(state)
        if before is not None:
            closed.append(before.id)
    return closed, opened


def _same(before: OpenState, now: NewState) -> bool:
    return (before.canary_version_id, before.ranking_id, before.layout_id, before.reasons, before.top_score) == (
        now.canary_version_id,
        now.ranking_id,
        now.layout_id,
        now.reasons,
        now.top_score,
    )
