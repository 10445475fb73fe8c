"""The worst canaries of a run with their ranks before and now: what an alert names."""

from typing import Any

from app.domain.judging import unpack_reasons
from app.domain.matching import Match
from app.services.scoring import without_relevance
from app.store import catalog, history
from app.store.engine import Connection
from app.store.history import StateRow

WORST = 10
_LOOK_BACK = 20


def worst_canaries(connection: Connection, check_id: int, run_id: int, *, limit: int = WORST) -> list[dict[str, Any]]:
    """Name the most degraded canaries of a run: `key, query, reasons, rank_before, rank_now`.

    `rank_before` is the rank of the first expected chunk when the canary was last healthy; None = not in the ranking,
    or never healthy as far as is remembered.
    """
    run = history.find_run(connection, run_id)
    if run is None or run.suite_version_id is None:
        return []
    members = {member.canary_id: member for member in catalog.suite_version(connection, run.suite_version_id)[1]}
    _, failures = history.probes_of(connection, run_id)
    unknown = {canary_id for position, canary_id in enumerate(members) if position in failures}
    unscored = set(history.unscored_at(connection, run_id))
    unscored_ids = {canary_id for position, canary_id in enumerate(members) if position in unscored}
    found = [
        without_relevance(state) if state.canary_id in unscored_ids else state
        for state in history.states_at(connection, check_id, run_id, only_degraded=True).values()
        if state.canary_id in members and state.canary_id not in unknown
    ]
    degraded = [state for state in found if state.reasons]
    degraded.sort(key=lambda state: _badness(state, members[state.canary_id].key))
    return [
        {
            "key": members[state.canary_id].key,
            "query": members[state.canary_id].body["query"],
            "reasons": [str(reason) for reason in unpack_reasons(state.reasons)],
            "rank_before": _rank(_last_healthy(connection, check_id, state)),
            "rank_now": _rank(state),
        }
        for state in degraded[:limit]
    ]


def _badness(state: StateRow, key: str) -> tuple[int, float, str]:
    """Order as reports do, see shapes.worst_first: most reasons first, then the lowest top score, unknown ones last."""
    return -len(unpack_reasons(state.reasons)), 1.0 if state.top_score is None else state.top_score, key


def _last_healthy(connection: Connection, check_id: int, now: StateRow) -> StateRow | None:
    before = history.timeline(connection, check_id, now.canary_id, limit=_LOOK_BACK)
    return next((state for state in before if not state.reasons and state.first_run < now.first_run), None)


def _rank(state: StateRow | None) -> int | None:
    return Match.from_bytes(state.matched).first_relevant if state is not None else None
