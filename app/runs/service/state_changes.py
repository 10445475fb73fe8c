"""Which states a run ends and begins: only what changed is written."""

from app.records.store.recording import NewState, OpenState
from app.runs.service.plans import Plan
from app.runs.service.staging import Gathered
from app.scoring.run_outcomes import RunOutcome


def changed_states(plan: Plan, gathered: Gathered, outcome: RunOutcome) -> tuple[list[int], list[NewState]]:
    """Return the ids of the states that end, and the states that begin.

    Those of changed results, of results that were kept but mean something else by now, and of canaries that left the
    suite.
    """
    canary_ids = set(plan.inputs.canary_ids)
    closed = [state.id for canary_id, state in plan.held.items() if canary_id not in canary_ids]
    opened: list[NewState] = []
    reasons = outcome.lasting_reasons.tolist()
    top_scores = {position: outcome.results.top_score(position) for position in outcome.results}
    kept = gathered.responses.kept.items()
    top_scores |= {position: state.top_score for position, state in kept if state.reasons != reasons[position]}
    for position, top_score in top_scores.items():
        ranking_id = gathered.ranking_ids[position]
        assert ranking_id is not None  # noqa: S101 - only what was measured has a result or is kept
        state = NewState(
            canary_id=plan.inputs.canary_ids[position],
            canary_version_id=plan.inputs.version_ids[position],
            ranking_id=ranking_id,
            layout_id=plan.layout_id,
            reasons=reasons[position],
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
