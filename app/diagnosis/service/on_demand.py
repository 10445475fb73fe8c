"""Diagnoses on request: a canary is diagnosed now by more probes, outside any transaction."""

from collections.abc import Callable
from datetime import datetime
from threading import Lock

from app.base.db.engine import Connection, to_us
from app.base.errors import ConflictError, NotFoundError
from app.catalog.service.lookup import find_check
from app.catalog.store import definitions, suites
from app.diagnosis.domain.views import DiagnosisView
from app.diagnosis.service.cases import subject
from app.diagnosis.service.diagnoses import ask_about, diagnosis_view, end_decided_proposals, save_diagnosis
from app.diagnosis.store import diagnoses as stored
from app.records.store import results
from app.records.store.results import RunRow
from app.retrievers.domain.retrievers import Probe
from app.retrievers.service.diagnosis_queries import ReportProgress, TimeBudget
from app.runs.service.plans import NotExecutableError, Planner
from app.scoring.run_inputs import RunInputs

_SECONDS = 60.0


class OnDemand:
    """Diagnoses on request: one at a time for each canary."""

    def __init__(self) -> None:
        self._under_way: set[tuple[str, str]] = set()
        self._lock = Lock()

    def ask(
        self,
        planner: Planner,
        probe: Probe,
        slug: str,
        key: str,
        *,
        by: str,
        clock: Callable[[], datetime],
        progress: ReportProgress = lambda _answered, _of: None,
    ) -> DiagnosisView:
        """Diagnose a canary as of the newest run, by probes now; stores and returns the diagnosis.

        `progress` is called with each answer. Raises NotFoundError, and ConflictError where there is no such run, where
        the canary or retriever changed since, and while the same diagnosis is in progress.
        """
        with self._lock:
            if (slug, key) in self._under_way:
                raise ConflictError(f"canary '{key}' of check '{slug}' is being diagnosed already; wait for it")
            self._under_way.add((slug, key))
        try:
            return _on_demand(planner, probe, slug, key, by=by, clock=clock, progress=progress)
        finally:
            with self._lock:
                self._under_way.discard((slug, key))


def _on_demand(
    planner: Planner,
    probe: Probe,
    slug: str,
    key: str,
    *,
    by: str,
    clock: Callable[[], datetime],
    progress: ReportProgress,
) -> DiagnosisView:
    store = planner.store
    with store.read() as connection:
        run, inputs, position = _newest_inputs(planner, connection, slug, key)
        one = subject(connection, run, inputs, position)
    budget = TimeBudget.of(_SECONDS, clock)
    [(_, diagnosis)] = ask_about(
        probe, inputs, [one], budget, run_id=f"{run.id}-diagnosis", anyway=True, progress=progress
    )
    with store.write() as connection:
        at = to_us(clock())
        saved = save_diagnosis(connection, run, one, diagnosis, at=at, by=by)
        end_decided_proposals(connection, run.check_id, at=at)
        row = stored.last_diagnosis(connection, run.check_id, one.canary_id)
        assert row is not None and row.id >= saved  # noqa: S101, PT018 - just written
        return diagnosis_view(connection, slug, key, row)


def _newest_inputs(planner: Planner, connection: Connection, slug: str, key: str) -> tuple[RunRow, RunInputs, int]:
    """Newest run with a canary in force, its inputs, and the canary's position."""
    check = find_check(connection, slug)
    if check.archived_at is not None:
        raise ConflictError(f"check '{slug}' is archived: its retriever is not probed any more")
    suite = definitions.find_definition(connection, "suite", check.body["suite"])
    canaries = {row.key: row for row in suites.list_canaries(connection, suite.id, keys=[key])} if suite else {}
    if key not in canaries:
        raise NotFoundError(f"check '{slug}' has no canary '{key}'")
    newest = stored.newest_run(connection, check.id)
    run = results.find_run(connection, newest) if newest is not None else None
    if run is None:
        raise ConflictError(f"check '{slug}' has no ended run yet; run it first")
    try:
        inputs = planner.inputs(connection, run)
    except NotExecutableError as error:
        raise ConflictError(f"run '{run.id}' cannot be diagnosed: {error}") from None
    retriever = definitions.find_definition(connection, "retriever", check.body["retriever"])
    changed = f"since run '{run.id}'; run the check, then ask again"
    if retriever is None or retriever.version_id != run.retriever_version_id:
        raise ConflictError(f"retriever '{check.body['retriever']}' was changed {changed}")
    if canaries[key].id not in inputs.canary_ids:
        raise ConflictError(f"canary '{key}' was added {changed}")
    position = inputs.canary_ids.index(canaries[key].id)
    if inputs.version_ids[position] != canaries[key].version_id:
        raise ConflictError(f"canary '{key}' was changed {changed}")
    if not inputs.panel.expects[position]:
        raise ConflictError(f"canary '{key}' expects no chunk, so it cannot be diagnosed")
    return run, inputs, position
