"""Overlap of the rankings of a run with those of its baseline, computed on read and never stored."""

from collections.abc import Mapping, Sequence

from app.base.db.engine import Connection
from app.base.values import Ranking
from app.catalog.store import suites
from app.detection.store import detectors
from app.records.store import canary_states, results
from app.records.store.canary_states import StateRow
from app.records.store.results import RunRow
from app.scoring.rankings import rbo


def likeness(
    connection: Connection, row: RunRow, states: Sequence[StateRow], rankings: Mapping[int, Ranking]
) -> dict[int, float]:
    """Rank-biased overlap (p = 0.9) with the last run of the baseline, by canary id.

    `rankings` has those of the states, by id. Left out are canaries that had none then, or asked something else; of a
    run that was compared with no baseline, all.
    """
    detection = detectors.detections_of(connection, [row.id]).get(row.id)
    if detection is None or detection.baseline_id is None:
        return {}
    baseline = detectors.find_baseline(connection, detection.baseline_id)
    if baseline is None:
        return {}
    rankings_before = canary_states.rankings_at(
        connection, row.check_id, baseline.last_run, [state.canary_id for state in states]
    )
    there = [(state, *rankings_before[state.canary_id]) for state in states if state.canary_id in rankings_before]
    changed = {
        one
        for state, _, version in there
        if version != state.canary_version_id
        for one in (version, state.canary_version_id)
    }
    queries = suites.queries_of(connection, changed)
    pairs = [
        (state, ranking)
        for state, ranking, version in there
        if queries.get(version) == queries.get(state.canary_version_id)  # None of both where it is the same version
    ]
    then = results.read_rankings(connection, sorted({one for state, one in pairs if one != state.ranking_id}))
    return {
        state.canary_id: 1.0 if one == state.ranking_id else rbo(then[one].ids, rankings[state.ranking_id].ids)
        for state, one in pairs
    }
