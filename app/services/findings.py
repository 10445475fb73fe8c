"""What a run found out: results of what changed, what still holds of the rest, and the sum of both."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.domain.judging import Result, Tally, judge, pack_reasons
from app.domain.model import Aggregates, Ranking
from app.services.plans import Plan
from app.services.staging import Gathered
from app.store import recording
from app.store.engine import Store
from app.store.recording import NewState, OpenState


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a run found out: new results, changed states, and what all of it amounts to."""

    results: dict[int, Result]
    closed: list[int]
    opened: list[NewState]
    reasons: NDArray[np.int64]
    aggregates: Aggregates

    def degraded_positions(self, gathered: Gathered) -> bytes:
        """Pack the places of degraded canaries; one whose probe failed is unknown, not degraded."""
        places = np.flatnonzero(self.reasons)
        return places[~np.isin(places, list(gathered.failures))].astype("<u4").tobytes()


def find_out(store: Store, plan: Plan, gathered: Gathered) -> Findings:
    """Judge what changed, take over what did not, and summarise; reads, but writes nothing."""
    changed: dict[int, int] = {}
    kept: dict[int, OpenState] = {}
    for position, ranking_id in enumerate(gathered.rankings):
        if ranking_id is None:
            continue
        state = plan.held.get(plan.canary_ids[position])
        if state is not None and plan.still_holds(state, ranking_id, position):
            kept[position] = state
        else:
            changed[position] = ranking_id
    results = judge(plan.yardstick, plan.panel, _rankings(store, plan, changed))
    tally = Tally(plan.yardstick, plan.panel)
    tally.add(results)
    tally.take_over(kept)
    closed, opened = _changes(plan, changed, results)
    aggregates = tally.aggregates(gathered.outcomes)
    return Findings(results=results, closed=closed, opened=opened, reasons=tally.reasons, aggregates=aggregates)


def _rankings(store: Store, plan: Plan, wanted: Mapping[int, int]) -> dict[int, Ranking]:
    unseen = [ranking_id for ranking_id in wanted.values() if ranking_id not in plan.seen]
    if unseen:
        with store.read() as connection:
            plan.seen.update(recording.load_rankings(connection, unseen))
    return {position: plan.seen[ranking_id] for position, ranking_id in wanted.items()}


def _changes(plan: Plan, changed: Mapping[int, int], results: Mapping[int, Result]) -> tuple[list[int], list[NewState]]:
    """Say which states end and which begin: those of changed results, and of canaries no longer asked."""
    asked = set(plan.canary_ids)
    closed = [state.id for canary_id, state in plan.held.items() if canary_id not in asked]
    opened: list[NewState] = []
    for position, ranking_id in changed.items():
        result = results[position]
        state = NewState(
            canary_id=plan.canary_ids[position],
            canary_version_id=plan.version_ids[position],
            ranking_id=ranking_id,
            layout_id=plan.layout_id,
            reasons=pack_reasons(result.reasons),
            top_score=result.top_score,
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
