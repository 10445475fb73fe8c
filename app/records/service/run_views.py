"""Views of runs, built from rows. Nothing here writes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.base.db.engine import Connection, Store
from app.base.errors import NotFoundError
from app.base.values import Outcome, RunStatus
from app.catalog.service.judgment_sources import is_self_judged
from app.catalog.service.lookup import find_check, find_run
from app.catalog.service.suite_snapshots import load_suites
from app.catalog.store import definitions
from app.records import documents as shapes
from app.records.domain.run_views import RunDetails, RunDocument, RunProgress, RunView, SliceView
from app.records.service import score_details
from app.records.service.aggregates import stored_aggregates, stored_probes
from app.records.service.run_bodies import run_body, slice_view
from app.records.store import rescored_runs, shards
from app.records.store import results as history
from app.records.store.canary_states import StateRow
from app.records.store.results import RunRow
from app.records.store.shards import Failure
from app.runs.service.plans import asked_in
from app.scoring.evaluation import Yardstick
from app.scoring.run_inputs import RunInputs
from app.scoring.run_outcomes import evaluate
from app.scoring.run_responses import RunResponses

_NOT_MEASURED = Failure(outcome=str(Outcome.SKIPPED))


def health(store: Store, slug: str, *, version: str | None = None) -> RunView:
    """Return the newest ended run of a check; of a measures version, the newest re-scored run.

    Raises NotFoundError before the first.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        rescored = score_details.find_rescoring(connection, check.id, version)
        if rescored is not None:
            rescored_run = rescored_runs.newest_run(connection, rescored.id)
            if rescored_run is None:
                raise NotFoundError(f"no run of check '{slug}' is re-scored as measures version {rescored.name} yet")
            return full_run(connection, find_run(connection, str(rescored_run)), version)
        newest = history.latest_body(connection, check.id)
        if newest is None:
            raise NotFoundError(f"check '{slug}' has no ended run yet")
        run = history.find_run(connection, newest[0])
        if run is None:
            raise NotFoundError(f"check '{slug}' has no ended run any more")
        return {**_full(connection, run, newest[1]), "progress": None}


def run(store: Store, run_id: str, *, version: str | None = None) -> RunView:
    """Return a run in full, as recorded or of a measures version."""
    with store.read() as connection:
        return full_run(connection, find_run(connection, run_id), version)


def full_run(connection: Connection, row: RunRow, version: str | None = None) -> RunView:
    """Return a run in full; the details are stored for the newest run and computed for older ones."""
    row, rescored = score_details.load_version(connection, row, version)
    newest = history.latest_body(connection, row.check_id)
    if rescored is None and newest is not None and newest[0] == row.id:
        body = newest[1]
    elif row.aggregates:
        inputs = score_details.inputs_of_run(connection, row, rescored)
        body = _recompute_body(connection, row, inputs, score_details.states_of(connection, row, inputs, rescored))
        row = row if rescored is None else replace(row, suite_hash=inputs.suite.hash)
    else:
        body = {}
    return {**_full(connection, row, {**body, **(row.probes or {})}), "progress": _progress(connection, row)}


def _full(connection: Connection, row: RunRow, body: RunDetails) -> RunDocument:
    check = _check_bodies(connection, [row])[row.id]
    run = _run(row, check, body)
    if not body:
        return {**run, "self_judged": None}
    depth = int(check["fetch_k"])
    self_judged = is_self_judged(connection, body.get("judgment_sources"), run["retriever"], depth=depth)
    return {**run, "self_judged": self_judged}


def list_runs(
    store: Store, slug: str, *, before: int | None, limit: int, version: str | None = None, with_queries: bool = True
) -> list[RunView]:
    """Return the runs of a check, newest first; of a measures version, the re-scored ones.

    Lists lack tags and the canary counts of categories; without `with_queries` also the degraded queries.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        rescored = score_details.find_rescoring(connection, check.id, version)
        if rescored is not None:
            rows = score_details.runs_in_version(connection, rescored, before=before, limit=limit)
        else:
            rows = history.list_runs(connection, check.id, before=before, limit=limit)
        degraded = [row.suite_version_id or 0 for row in rows if row.degraded_positions] if with_queries else []
        suites_by_version = load_suites(connection, degraded)
        checks = _check_bodies(connection, rows)
        views: list[RunView] = []
        unsummarised = [row for row in rows if row.probes is None and row.aggregates]
        by_run = history.probes_of_runs(connection, [row.id for row in unsummarised])
        older = {row.id: stored_probes(row, *by_run[row.id]) for row in unsummarised if row.id in by_run}
        for row in rows:
            suite = suites_by_version.get(row.suite_version_id or 0)
            body: RunDetails = {
                "degraded": [{"query": suite.canaries[place].query} for place in row.degraded_places] if suite else [],
                "categories": _categories(row),
            }
            if probes := row.probes or older.get(row.id):
                body = {**body, **probes}
            views.append({**_run(row, checks[row.id], body), "progress": _progress(connection, row)})
        return views


def _run(row: RunRow, check: Mapping[str, Any], body: RunDetails) -> RunDocument:
    return shapes.run_shape(
        id=str(row.id),
        check=row.check,
        suite=check["suite"],
        retriever=check["retriever"],
        trigger=row.trigger,
        index_version=row.index_version,
        status=row.status,
        scheduled_for=row.scheduled_for,
        started_at=row.started_at,
        finished_at=row.finished_at,
        verdict=row.verdict,
        reasons=row.reasons,
        counts={name: getattr(row, name) for name in ("total", "measured", "failed", "undefined", "degraded")},
        means=row.aggregates,
        body=body,
        embedder=row.embedder,
        suite_hash=row.suite_hash,
        config_hash=row.config_hash,
        measures_version=row.measures_version,
    )


def _progress(connection: Connection, row: RunRow) -> RunProgress | None:
    """Return the number of recorded probes of an active run; None once it ended."""
    if row.status not in {RunStatus.QUEUED, RunStatus.RUNNING}:
        return None
    total, staged = shards.progress(connection, row.id)
    return {"done": asked_in(staged, total), "total": total}


def _categories(row: RunRow) -> dict[str, SliceView]:
    """Return the categories of a run from its row, which has no counts."""
    return {
        name: {**slice_view(part), "canaries": None, "measured": None}
        for name, part in stored_aggregates(row).categories.items()
    }


def _check_bodies(connection: Connection, rows: Sequence[RunRow]) -> dict[int, Mapping[str, Any]]:
    """Return what the check of each run said, by run: when it began, or now where it has not."""
    versions = {row.check_version_id for row in rows if row.check_version_id is not None}
    then = definitions.version_bodies(connection, sorted(versions)) if versions else {}
    waiting = {row.check_id for row in rows if row.check_version_id is None}
    now = {check_id: definitions.definition_by_id(connection, check_id).body for check_id in waiting}
    return {row.id: now[row.check_id] if row.check_version_id is None else then[row.check_version_id] for row in rows}


def _recompute_body(
    connection: Connection, row: RunRow, inputs: RunInputs, states: Mapping[int, StateRow]
) -> RunDetails:
    """Return the details of an older run from its states: categories, tags, probes and latency."""
    latencies, failures = history.probes_of(connection, row.id)
    views = [states.get(canary_id) for canary_id in inputs.canary_ids]
    ended = {**{place: _NOT_MEASURED for place, state in enumerate(views) if state is None}, **failures}
    arranged = _reorder_vectors(connection, inputs.yardstick, views)
    responses = RunResponses(
        started_at=None,
        kept={place: state for place, state in enumerate(arranged) if state is not None and place not in ended},
        latencies=latencies,
        failures=ended,
    )
    return run_body(inputs, responses, evaluate(inputs, responses))


def _reorder_vectors(
    connection: Connection, yardstick: Yardstick, views: Sequence[StateRow | None]
) -> list[StateRow | None]:
    """Return states with vectors in the present order of measures: an older release may have had fewer."""
    names = {
        layout: history.layout_names(connection, layout) for layout in {state.layout_id for state in views if state}
    }
    today = [str(measure) for measure in yardstick.measures]
    return [
        state
        if state is None or names[state.layout_id] == today
        else replace(state, vector=yardstick.reorder_vector(names[state.layout_id], state.vector))
        for state in views
    ]
