"""What a run works with, frozen when it starts, so that editing definitions never changes a run under way.

Read again once it has ended, it is in `past_runs`; `runs.service.execution` asks and ends it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from app.base.db.engine import Connection, Store, from_us
from app.base.db.keys import Vault
from app.base.errors import CoalmineError
from app.base.values import Ranking, Trigger, Value, field
from app.catalog import store as catalog
from app.catalog.service.versions import UnusableDefinitionError, freeze_suite, load_inputs
from app.catalog.store import Definition
from app.records.store import open_runs, ranking_rows, run_rows, state_rows
from app.records.store.open_runs import ClaimedRun
from app.records.store.state_rows import OpenState
from app.retrievers.domain.retrievers import Lane, ProbeContext
from app.scoring.measures import MEASURES_VERSION
from app.scoring.run_inputs import RunInputs, RunVersions, UnusableSuiteError
from app.scoring.verdicts import NOT_CARRIED_OUT


class RunLayouts(NamedTuple):
    """The ids of the layouts of a run."""

    scores: int
    """Of the vector of a result: its measures by the yardstick of the run."""
    aggregates: int
    """Of the vector of the run."""


def find_layouts(connection: Connection, inputs: RunInputs) -> RunLayouts | None:
    """Layouts of a run; None where one is not stored yet."""
    ids = [ranking_rows.find_layout_id(connection, *layout) for layout in _layouts(inputs)]
    stored = [one for one in ids if one is not None]
    return RunLayouts(*stored) if len(stored) == len(ids) else None


def save_layouts(connection: Connection, inputs: RunInputs) -> RunLayouts:
    """Layouts of a run, stored where they are new."""
    return RunLayouts(*(ranking_rows.layout_id(connection, *layout) for layout in _layouts(inputs)))


def _layouts(inputs: RunInputs) -> Iterator[tuple[Sequence[str], str, str]]:
    """Give names, version of the measures and yardstick of each layout."""
    yield [str(measure) for measure in inputs.yardstick.measures], MEASURES_VERSION, str(inputs.yardstick)
    yield inputs.vector_names, MEASURES_VERSION, ""


SHARD = 100
"""Probes per shard. Only what is staged outlives a crash, and only full shards are; see `runs.service.execution`."""
MOST_RANKINGS = 5_000
"""Kept by a plan: about a kilobyte each, beside their texts."""
MOST_PLANS = 8
"""Kept at a time by a process that asks shards of many runs."""


class NotExecutableError(CoalmineError):
    """The run cannot be carried out as things are defined."""


def asked_in(shards: Iterable[int], total: int | None) -> int:
    """Count the canaries in these shards of a run that asks so many; the last shard may hold fewer than the others."""
    return sum(max(0, min(SHARD, (total or 0) - number * SHARD)) for number in shards)


class Plan(Value):
    """Everything a run needs. Positions count along the frozen canary list."""

    run: ClaimedRun
    started_at: datetime
    index_version: str | None
    """The caller's; a version the retriever reports takes its place."""
    inputs: RunInputs
    layout_id: int
    vector_layout_id: int
    held: dict[int, OpenState]
    """What holds now for each canary, by canary id."""
    rankings: dict[int, Ranking] = field(default_factory=dict)
    """Rankings this process stored during the run, `MOST_RANKINGS` at most."""

    def keep_rankings(self, new: Mapping[int, Ranking]) -> None:
        """Keep rankings that were just stored, by id; of a larger run the others are read back as it ends."""
        self.rankings.update(islice(new.items(), max(0, MOST_RANKINGS - len(self.rankings))))

    @property
    def shard_count(self) -> int:
        """How many shards the run has."""
        return -(-len(self.inputs.canaries) // SHARD)

    def positions(self, shard: int) -> range:
        """Give the positions of a shard."""
        return range(shard * SHARD, min((shard + 1) * SHARD, len(self.inputs.canaries)))

    def asking(self, lane: Lane | None = None) -> ProbeContext:
        """Return what its probes have in common, in a lane of its own where one is given."""
        return ProbeContext(
            retriever=self.inputs.retriever,
            k=self.inputs.yardstick.fetch_k,
            run_id=str(self.run.id),
            defined_at=self.started_at,
            patience_seconds=self.inputs.patience_seconds,
            lane=lane,
        )

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
        self._plans: dict[int, Plan] = {}
        """Of runs carried out in shards, by run."""

    def plan(self, claimed: ClaimedRun, now: datetime) -> Plan:
        """Freeze what the run works with, or read what was frozen when it first started.

        Raises NotExecutableError saying why it cannot be carried out.
        """
        try:
            with self.store.read() as connection:  # one snapshot: whatever is edited meanwhile is edited after it
                versions = claimed.versions or _versions_in_force(connection, claimed)
                inputs = self._load_inputs(connection, versions)
                layouts, held = find_layouts(connection, inputs), state_rows.open_states(connection, claimed.check_id)
        except _UnfrozenSuiteError as error:
            freeze_suite(self.store, error.suite_id, now)
            return self.plan(claimed, now)
        if not inputs.canaries:
            raise NotExecutableError(f"suite '{inputs.suite_slug}' has no canaries")
        with self.store.write() as connection:
            layouts = layouts or save_layouts(connection, inputs)
            if not open_runs.freeze(connection, claimed.id, versions, config_hash=inputs.config_hash):
                raise NotExecutableError("the run is gone")
        return Plan(
            run=claimed,
            started_at=from_us(claimed.started_at),
            index_version=claimed.index_version,
            inputs=inputs,
            layout_id=layouts.scores,
            vector_layout_id=layouts.aggregates,
            held=held,
        )

    def plan_once(self, claimed: ClaimedRun, now: datetime) -> Plan:
        """Plan a run of which many shards are asked; the plan is kept until `forget`, or others took its place."""
        plan = self._plans.get(claimed.id)
        if plan is None or plan.run.started_at != claimed.started_at:
            plan = self._plans[claimed.id] = self.plan(claimed, now)
            while len(self._plans) > MOST_PLANS:
                self._plans.pop(next(iter(self._plans)), None)
        return plan

    def forget(self, run_id: int) -> None:
        """Let go of the plan of a run that has ended."""
        self._plans.pop(run_id, None)

    def inputs(self, connection: Connection, run: run_rows.RunRow) -> RunInputs:
        """Return what an ended run worked with, ready to ask its retriever more.

        Raises NotExecutableError where that cannot be used any more.
        """
        if run.versions is None:
            raise NotExecutableError("the run has not started")
        return self._load_inputs(connection, run.versions)

    def _load_inputs(self, connection: Connection, versions: RunVersions) -> RunInputs:
        try:
            inputs = load_inputs(connection, versions, vault=self._vault)
            inputs.suite.prepare()
        except (UnusableDefinitionError, UnusableSuiteError) as error:
            raise NotExecutableError(str(error)) from None
        return inputs


def _versions_in_force(connection: Connection, run: ClaimedRun) -> RunVersions:
    """Versions a run that starts now works with. Raises NotExecutableError and _UnfrozenSuiteError."""
    check = catalog.definition_by_id(connection, run.check_id)
    if check.archived_at is not None:
        raise NotExecutableError(f"check '{check.slug}' is archived: {NOT_CARRIED_OUT}")
    if not check.body["enabled"] and (run.trigger == Trigger.SCHEDULE or run.created_at < check.updated_at):
        raise NotExecutableError(f"check '{check.slug}' was disabled while the run was queued: {NOT_CARRIED_OUT}")
    retriever = _in_force(connection, "retriever", check.body["retriever"])
    suite = _in_force(connection, "suite", check.body["suite"])
    suite_version_id = catalog.find_version_in_force(connection, suite.id)
    if suite_version_id is None:
        raise _UnfrozenSuiteError(suite.id)
    return RunVersions(suite=suite_version_id, check=check.version_id, retriever=retriever.version_id)


def _in_force(connection: Connection, kind: str, slug: str) -> Definition:
    definition = catalog.find_definition(connection, kind, slug)
    if definition is None or definition.archived_at is not None:
        raise NotExecutableError(f"{kind} '{slug}' does not exist or is archived")
    return definition


class _UnfrozenSuiteError(Exception):
    """No run has needed a suite as it is now."""

    def __init__(self, suite_id: int) -> None:
        super().__init__()
        self.suite_id = suite_id
