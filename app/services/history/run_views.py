"""Runs and results as people read them, put together from rows. Nothing here writes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.domain.errors import NotFoundError
from app.domain.history.run_views import RunDocument, RunProgress, RunView
from app.domain.model import Outcome, RunStatus
from app.domain.runs.evaluation import Yardstick
from app.domain.runs.run_inputs import RunInputs
from app.domain.runs.run_outcomes import evaluate
from app.domain.runs.run_responses import RunResponses
from app.formats.history import shapes
from app.services import score_details
from app.services.aggregates import run_body, stored_aggregates, stored_probes
from app.services.catalog.suite_snapshots import load_suites
from app.services.lookup import find_check, find_run
from app.services.runs.plans import asked_in
from app.store.catalog import definitions
from app.store.engine import Connection, Store
from app.store.runs import queue, rescored_runs
from app.store.runs import results as history
from app.store.runs.queue import Failure
from app.store.runs.results import RunRow, StateRow

_NOT_MEASURED = Failure(outcome=str(Outcome.SKIPPED))


def health(store: Store, slug: str, *, version: str | None = None) -> RunView:
    """Read the newest ended run of a check or, of another measures version, the newest run that is in it.

    Raises NotFoundError before the first.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        anew = score_details.find_rescoring(connection, check.id, version)
        if anew is not None:
            rescored_run = rescored_runs.newest_run(connection, anew.id)
            if rescored_run is None:
                raise NotFoundError(f"no run of check '{slug}' is re-scored as measures version {anew.name} yet")
            return full_run(connection, find_run(connection, str(rescored_run)), version)
        newest = history.latest_body(connection, check.id)
        if newest is None:
            raise NotFoundError(f"check '{slug}' has no ended run yet")
        run = history.find_run(connection, newest[0])
        if run is None:
            raise NotFoundError(f"check '{slug}' has no ended run any more")
        return {**_run(connection, run, newest[1]), "progress": None}


def run(store: Store, run_id: str, *, version: str | None = None) -> RunView:
    """Read a run in full, by another measures version where one is named."""
    with store.read() as connection:
        return full_run(connection, find_run(connection, run_id), version)


def full_run(connection: Connection, row: RunRow, version: str | None = None) -> RunView:
    """Read a run in full; what its row leaves out is kept for the newest and computed for older ones."""
    row, anew = score_details.in_version(connection, row, version)
    newest = history.latest_body(connection, row.check_id)
    if anew is None and newest is not None and newest[0] == row.id:
        body = newest[1]
    elif row.aggregates:
        inputs = score_details.inputs_of_run(connection, row, anew)
        body = _recomputed(connection, row, inputs, score_details.states_of(connection, row, inputs, anew))
        row = row if anew is None else replace(row, suite_hash=inputs.suite.hash)
    else:
        body = {}
    return {**_run(connection, row, {**body, **(row.probes or {})}), "progress": _progress(connection, row)}


def list_runs(
    store: Store, slug: str, *, before: int | None, limit: int, version: str | None = None, with_queries: bool = True
) -> list[RunView]:
    """List the runs of a check, newest first; of another measures version those that are in it.

    What only a single run spells out is left out: tags and how many canaries a category has; without `with_queries`
    also what the degraded canaries ask.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        anew = score_details.find_rescoring(connection, check.id, version)
        if anew is not None:
            rows = score_details.runs_in_version(connection, anew, before=before, limit=limit)
        else:
            rows = history.list_runs(connection, check.id, before=before, limit=limit)
        degraded = [row.suite_version_id or 0 for row in rows if row.degraded_positions] if with_queries else []
        asked_of = load_suites(connection, degraded)
        found: list[RunView] = []
        unsummarised = [row for row in rows if row.probes is None and row.aggregates]
        probes = history.probes_of_runs(connection, [row.id for row in unsummarised])
        older = {row.id: stored_probes(row, *probes[row.id]) for row in unsummarised if row.id in probes}
        for row in rows:
            asked = asked_of.get(row.suite_version_id or 0)
            body = {
                **(row.probes or older.get(row.id, {})),
                "degraded": [{"query": asked.canaries[place].query} for place in row.degraded_places] if asked else [],
                "categories": _categories(row),
            }
            found.append({**_run(connection, row, body), "progress": _progress(connection, row)})
        return found


def _run(connection: Connection, row: RunRow, body: Mapping[str, Any]) -> RunDocument:
    check = _document(connection, row)
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
        body={**body, "embedder": row.embedder},
        suite_hash=row.suite_hash,
        config_hash=row.config_hash,
        measures_version=row.measures_version,
    )


def _progress(connection: Connection, row: RunRow) -> RunProgress | None:
    """Say how many probes of a run that goes on are on record; None once it ended, or before anything is known."""
    if row.status not in {RunStatus.QUEUED, RunStatus.RUNNING}:
        return None
    total, shards = queue.progress(connection, row.id)
    return {"done": asked_in(shards, total), "total": total}


def _categories(row: RunRow) -> dict[str, dict[str, Any]]:
    """Give the categories of a run as far as its row keeps them."""
    return {
        name: {
            "canaries": None,
            "measured": None,
            "health_score": part.health_score,
            "coverage": part.coverage,
            "measures": part.measures,
        }
        for name, part in stored_aggregates(row).categories.items()
    }


def _document(connection: Connection, row: RunRow) -> Mapping[str, Any]:
    if row.check_version_id is not None:
        return definitions.version_body(connection, row.check_version_id).body
    return definitions.definition_by_id(connection, row.check_id).body


def _recomputed(
    connection: Connection, row: RunRow, inputs: RunInputs, states: Mapping[int, StateRow]
) -> dict[str, Any]:
    """Spell an older run out again from its states: categories, tags, probes and latency."""
    latencies, failures = history.probes_of(connection, row.id)
    found = [states.get(canary_id) for canary_id in inputs.canary_ids]
    ended = {**{place: _NOT_MEASURED for place, state in enumerate(found) if state is None}, **failures}
    arranged = _arranged(connection, inputs.yardstick, found)
    responses = RunResponses(
        started_at=None,
        kept={place: state for place, state in enumerate(arranged) if state is not None and place not in ended},
        latencies=latencies,
        failures=ended,
    )
    return run_body(inputs, responses, evaluate(inputs, responses))


def _arranged(connection: Connection, yardstick: Yardstick, found: Sequence[StateRow | None]) -> list[StateRow | None]:
    """Give states the measures of today: a release before may have had fewer."""
    names = {
        layout: history.layout_names(connection, layout) for layout in {state.layout_id for state in found if state}
    }
    today = [str(measure) for measure in yardstick.measures]
    return [
        state
        if state is None or names[state.layout_id] == today
        else replace(state, vector=yardstick.reorder_vector(names[state.layout_id], state.vector))
        for state in found
    ]
