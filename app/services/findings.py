"""What a run found out: results of what changed, what still holds of the rest, and the sum of both."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.domain.judging import ANSWERED_BIT, Result, judge, pack_reasons, summarise
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
    size = len(plan.panel)
    changed: dict[int, int] = {}
    vectors = np.full((size, len(plan.yardstick.measures)), np.nan)
    tops = np.full(size, np.nan)
    reasons = np.zeros(size, dtype=np.int64)
    kept: list[int] = []
    buffers: list[bytes] = []
    for position, ranking_id in enumerate(gathered.rankings):
        if ranking_id is None:
            continue
        state = plan.held.get(plan.canary_ids[position])
        if state is None or not plan.still_holds(state, ranking_id, position):
            changed[position] = ranking_id
            continue
        kept.append(position)
        buffers.append(state.vector)
        reasons[position] = state.reasons
        tops[position] = np.nan if state.top_score is None else state.top_score
    if kept:
        vectors[kept] = np.frombuffer(b"".join(buffers)).reshape(len(kept), -1)
    results = judge(plan.yardstick, plan.panel, _rankings(store, plan, changed))
    for position, result in results.items():
        vectors[position] = result.vector
        tops[position] = np.nan if result.top_score is None else result.top_score
        reasons[position] = pack_reasons(result.reasons)
    closed, opened = _changes(plan, changed, results)
    aggregates = summarise(
        plan.yardstick,
        plan.panel,
        outcomes=gathered.outcomes,
        vectors=vectors,
        top_scores=tops,
        degraded=reasons != 0,
        answered=(reasons & ANSWERED_BIT) != 0,
    )
    return Findings(results=results, closed=closed, opened=opened, reasons=reasons, aggregates=aggregates)


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
