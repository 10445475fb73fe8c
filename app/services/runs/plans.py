"""What a run works with, frozen when it starts, so that editing definitions never changes a run under way."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from app.domain.errors import CoalmineError
from app.domain.model import Ranking, Trigger
from app.domain.runs.measures import MEASURES_VERSION
from app.domain.runs.run_inputs import RunInputs, RunVersions
from app.domain.runs.suite_snapshot import UnusableSuiteError
from app.domain.runs.verdicts import NOT_CARRIED_OUT
from app.services.catalog.run_inputs import UnusableDefinitionError, load_inputs
from app.services.catalog.suite_snapshots import freeze_suite, load_suite
from app.services.catalog.vault import Vault
from app.store.catalog import definitions, suites
from app.store.catalog.definitions import Definition
from app.store.engine import Connection, Store, from_us, to_us
from app.store.runs import queue, recording, results
from app.store.runs.queue import ClaimedRun
from app.store.runs.recording import OpenState

SHARD = 100
"""Probes per shard: what is staged at once, and asked again at most after a crash."""


class NotExecutableError(CoalmineError):
    """The run cannot be carried out as things are defined."""


def asked_in(shards: Iterable[int], total: int | None) -> int:
    """Count the canaries in these shards of a run that asks so many; the last shard may hold fewer than the others."""
    return sum(max(0, min(SHARD, (total or 0) - number * SHARD)) for number in shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything a run needs. Positions count along the frozen canary list."""

    run: ClaimedRun
    started_at: datetime
    index_version: str | None
    """What the caller said; a version the retriever reports takes its place."""
    inputs: RunInputs
    layout_id: int
    vector_layout_id: int
    held: dict[int, OpenState]
    """What holds now for each canary, by canary id."""
    seen: dict[int, Ranking] = field(default_factory=dict)
    """Rankings this process stored or read during the run."""

    @property
    def shard_count(self) -> int:
        """How many shards the run has."""
        return -(-len(self.inputs.canaries) // SHARD)

    def positions(self, shard: int) -> range:
        """Give the positions of a shard."""
        return range(shard * SHARD, min((shard + 1) * SHARD, len(self.inputs.canaries)))

    def still_holds(self, state: OpenState, ranking_id: int, position: int) -> bool:
        """Whether a stored state says all there is to say about this answer."""
        return (
            state.ranking_id == ranking_id
            and state.canary_version_id == self.inputs.version_ids[position]
            and state.layout_id == self.layout_id
        )


class Planner:
    """Makes plans; suites, checks and retrievers, which never change under their version, are read once."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self.store = store
        self._vault = vault

    def plan(self, claimed: ClaimedRun, now: datetime) -> Plan:
        """Freeze what the run works with, or read what was frozen when it first started.

        Raises NotExecutableError saying why it cannot be carried out.
        """
        self._load_suite(claimed, now)
        with self.store.write() as connection:
            run = results.find_run(connection, claimed.id)
            if run is None:
                raise NotExecutableError("the run is gone")
            inputs = self._load_inputs(connection, run.versions or _freeze(connection, run, now))
            if not inputs.canaries:
                raise NotExecutableError(f"suite '{inputs.suite_slug}' has no canaries")
            measures = [str(measure) for measure in inputs.yardstick.measures]
            layout_id = recording.layout_id(connection, measures, MEASURES_VERSION, str(inputs.yardstick))
            vector_layout_id = recording.layout_id(connection, inputs.vector_names, MEASURES_VERSION, "")
            queue.freeze(connection, claimed.id, config_hash=inputs.config_hash)
        with self.store.read() as connection:
            held = recording.open_states(connection, claimed.check_id)
        return Plan(
            run=claimed,
            started_at=from_us(claimed.started_at),
            index_version=run.index_version,
            inputs=inputs,
            layout_id=layout_id,
            vector_layout_id=vector_layout_id,
            held=held,
        )

    def inputs(self, connection: Connection, run: results.RunRow) -> RunInputs:
        """Return what an ended run worked with, ready to ask its retriever more.

        Raises NotExecutableError where that cannot be used any more.
        """
        if run.versions is None:
            raise NotExecutableError("the run has not started")
        return self._load_inputs(connection, run.versions)

    def _load_suite(self, claimed: ClaimedRun, now: datetime) -> None:
        """Have the suite of a run frozen and prepared, so that the write transaction need not; see `plan` for why not.

        What is missing or refused is told there. Should the suite be edited in between, it is frozen there.
        """
        with self.store.read() as connection:
            run = results.find_run(connection, claimed.id)
            if run is None:
                return
            version_id = run.suite_version_id
            suite = _suite_in_force(connection, definitions.definition_by_id(connection, run.check_id))
        if version_id is None:
            if suite is None:
                return
            version_id = freeze_suite(self.store, suite.id, now)
        with self.store.read() as connection, suppress(UnusableSuiteError):
            load_suite(connection, version_id).prepare()

    def _load_inputs(self, connection: Connection, versions: RunVersions) -> RunInputs:
        try:
            inputs = load_inputs(connection, versions, vault=self._vault)
            inputs.suite.prepare()
        except (UnusableDefinitionError, UnusableSuiteError) as error:
            raise NotExecutableError(str(error)) from None
        return inputs


def _suite_in_force(connection: Connection, check: Definition) -> Definition | None:
    suite = definitions.find_definition(connection, "suite", check.body["suite"])
    return None if suite is None or suite.archived_at is not None else suite


def _freeze(connection: Connection, run: results.RunRow, now: datetime) -> RunVersions:
    check = definitions.definition_by_id(connection, run.check_id)
    found: RunVersions | NotExecutableError
    try:
        found = _freeze_versions(connection, run, check, now)
    except NotExecutableError as error:
        found = error
    # On PostgreSQL each statement sees what was committed before it, so the suite may be one the check has just left.
    if definitions.definition_by_id(connection, run.check_id).version_id != check.version_id:
        return _freeze(connection, run, now)
    if isinstance(found, NotExecutableError):
        raise found
    return found


def _freeze_versions(connection: Connection, run: results.RunRow, check: Definition, now: datetime) -> RunVersions:
    if check.archived_at is not None:
        raise NotExecutableError(f"check '{check.slug}' is archived: {NOT_CARRIED_OUT}")
    if not check.body["enabled"] and (run.trigger == Trigger.SCHEDULE or run.created_at < check.updated_at):
        raise NotExecutableError(f"check '{check.slug}' was disabled while the run was queued: {NOT_CARRIED_OUT}")
    retriever = definitions.find_definition(connection, "retriever", check.body["retriever"])
    if retriever is None or retriever.archived_at is not None:
        raise NotExecutableError(f"retriever '{check.body['retriever']}' does not exist or is archived")
    suite = _suite_in_force(connection, check)
    if suite is None:
        raise NotExecutableError(f"suite '{check.body['suite']}' does not exist or is archived")
    suite_version_id = suites.freeze_suite(connection, suite.id, to_us(now))
    queue.freeze(
        connection,
        run.id,
        check_version_id=check.version_id,
        retriever_version_id=retriever.version_id,
        suite_version_id=suite_version_id,
    )
    return RunVersions(suite=suite_version_id, check=check.version_id, retriever=retriever.version_id)
