"""What a run works with: frozen when it starts, and read again once it has ended, as recorded or as re-scored.

A plan is frozen so that editing definitions never changes a run under way. Of ended runs stand here the numbers of a
measures version, the states of their canaries, the aggregates that rules use, and the views of re-scorings.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.alerts.domain.rules import DEGRADED_SHARE
from app.base.db.engine import Connection, Store, from_us
from app.base.db.keys import Vault
from app.base.errors import CoalmineError, InvalidInputError, NotFoundError, Problem
from app.base.values import (
    Aggregates,
    Canary,
    EmbedderChange,
    Outcome,
    ProbeSummary,
    Ranking,
    RunStatus,
    Slice,
    Trigger,
    Verdict,
)
from app.base.views import view_of
from app.catalog import store as catalog
from app.catalog.service.suites import UnusableDefinitionError, freeze_suite, load_corrected, load_inputs
from app.catalog.store import Definition
from app.records.domain import RescoringSide
from app.records.store import open_runs, ranking_rows, rescorings, run_rows, state_rows
from app.records.store.open_runs import ClaimedRun, Failure
from app.records.store.rescorings import RescoredRun, Rescoring
from app.records.store.run_rows import RunRow
from app.records.store.state_rows import OpenState, StateRow
from app.records.views import RescoringView, probe_summary
from app.retrievers.domain.probes import StoredFinding
from app.retrievers.domain.retrievers import Lane, ProbeContext, Scorer, ScorerKind
from app.scoring.evaluation import RELEVANCE, judged_relevance
from app.scoring.measures import MEASURES_VERSION
from app.scoring.rankings import Match
from app.scoring.run_inputs import RunInputs, RunVersions, UnusableSuiteError
from app.scoring.run_outcomes import measured_latencies
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
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


_COUNTS = ("verdict", "total", "measured", "failed", "undefined", "degraded", "degraded_positions", "layout_id")
"""What a re-scored run has by the same names."""
_RESCORED = re.compile(r".{1,20}\.r([0-9]{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoredVersion:
    """The numbers of a run in a re-scoring."""

    rescoring: Rescoring
    run: RescoredRun


def load_version(connection: Connection, row: RunRow, version: str | None) -> tuple[RunRow, RescoredVersion | None]:
    """Return a run with its numbers of a measures version, as recorded where `version` is None.

    Raises InvalidInputError where the check has no such version, NotFoundError where the run is not in it.
    """
    found = find_rescoring(connection, row.check_id, version, plain=row.measures_version)
    if found is None:
        return row, None
    run = rescorings.find_runs(connection, found.id, [row.id]).get(row.id)
    if run is None:
        goes_on = found.finished_at is None
        why = " yet: the re-scoring is running" if goes_on else ": start the re-scoring again to include it"
        raise NotFoundError(f"run '{row.id}' is not in measures version {found.name}{why}")
    names = ranking_rows.layout_names(connection, run.layout_id)
    return _rescored_row(row, found, run, names), RescoredVersion(rescoring=found, run=run)


def runs_in_version(connection: Connection, found: Rescoring, *, before: int | None, limit: int) -> list[RunRow]:
    """Return the runs of a re-scoring with its numbers, newest first, with ids below `before`."""
    rows = run_rows.list_runs(connection, found.check_id, before=before, limit=limit, rescoring_id=found.id)
    judged = rescorings.find_runs(connection, found.id, [row.id for row in rows])
    names = {
        layout: ranking_rows.layout_names(connection, layout) for layout in {run.layout_id for run in judged.values()}
    }
    versions = {row.suite_version_id for row in rows if row.suite_version_id is not None}
    hashes = {version: load_corrected(connection, version, found.suite_version_id).hash for version in versions}
    return [
        replace(_rescored_row(row, found, run, names[run.layout_id]), suite_hash=hashes.get(row.suite_version_id or 0))
        for row in rows
        if (run := judged.get(row.id)) is not None
    ]


def _rescored_row(row: RunRow, found: Rescoring, run: RescoredRun, names: Sequence[str]) -> RunRow:
    aggregates = run_rows.named_aggregates(names, run.aggregates)
    same = {name: getattr(run, name) for name in _COUNTS}
    return replace(row, **same, reasons=list(run.reasons), aggregates=aggregates, measures_version=found.name)


def find_rescoring(
    connection: Connection, check_id: int, version: str | None, *, plain: str | None = MEASURES_VERSION
) -> Rescoring | None:
    """Return the re-scoring that a measures version of a check names; None for no version and for the plain one.

    Raises InvalidInputError where there is none.
    """
    if version is None or version == plain:
        return None
    match = _RESCORED.fullmatch(version)
    found = rescorings.find(connection, int(match[1])) if match else None
    if found is None or found.check_id != check_id or found.name != version:
        names_there = [one.name for one in rescorings.list_all(connection, check_id, limit=5)]
        names = ", ".join([plain or MEASURES_VERSION, *reversed(names_there)])
        raise InvalidInputError(
            [Problem(path="measures_version", message=f"there is no version '{version[:40]}'; there are: {names}")]
        )
    return found


def inputs_of_run(connection: Connection, row: RunRow, rescored: RescoredVersion | None = None) -> RunInputs:
    """Return the inputs of a run, with the judgments of a re-scoring where one is given.

    Raises NotFoundError where it has not started.
    """
    if row.versions is None:
        raise NotFoundError(f"run '{row.id}' has not started")
    judged_by = None if rescored is None else rescored.rescoring.suite_version_id
    return load_inputs(connection, row.versions, judged_by=judged_by)


def states_of(
    connection: Connection, row: RunRow, inputs: RunInputs, rescored: RescoredVersion | None = None
) -> dict[int, StateRow]:
    """Return the state of each canary at a run, by canary id.

    In a re-scoring `first_run` is still the first run with this ranking. Where the run could not measure relevance the
    state has none, even if an earlier run of the same state measured it.
    """
    states = state_rows.states_at(connection, row.check_id, row.id)
    for position in run_rows.unscored_at(connection, row.id):
        canary_id = inputs.canary_ids[position] if position < len(inputs.canary_ids) else None
        if canary_id in states:
            states[canary_id] = without_relevance(states[canary_id])
    if rescored is None:
        return states
    layout = rescored.run.scores_layout_id
    versions = {member.canary_id: member.version_id for member in inputs.suite.members}
    rankings = {
        canary: (states[canary].ranking_id, version) for canary, version in versions.items() if canary in states
    }
    scores = ranking_rows.scores_of(connection, rankings.values(), layout)
    reasons = _degraded(rescored.run)
    found: dict[int, StateRow] = {}
    for position, member in enumerate(inputs.suite.members):
        score = scores.get(rankings.get(member.canary_id, (0, 0)))
        if score is None:
            continue
        state, (matched, vector) = states[member.canary_id], score
        found[member.canary_id] = replace(
            state,
            canary_version_id=member.version_id,
            layout_id=layout,
            matched=matched,
            vector=vector,
            reasons=reasons.get(position, 0),
            top_score=_top_score(inputs.yardstick.scorer, state, matched, inputs.canaries[position]),
        )
    return found


def without_relevance(state: StateRow) -> StateRow:
    """Return a state without its relevance and the reasons that depend on it."""
    return replace(state, top_score=None, reasons=state.reasons & ~RELEVANCE)


def rescoring_shape(found: Rescoring, done: int, total: int) -> RescoringView:
    """Return the view of a re-scoring; `before` and `after` are set once it has finished."""
    before, after = (found.summary["before"], found.summary["after"]) if found.summary else (None, None)
    return view_of(
        RescoringView,
        found,
        id=str(found.id),
        measures_version=found.name,
        status=_status(found),
        progress={"runs_done": done, "runs_total": total},
        before=_side(before),
        after=_side(after),
    )


def _status(found: Rescoring) -> Literal["queued", "running", "finished", "failed"]:
    if found.finished_at is not None:
        return "finished" if found.failure is None else "failed"
    return "queued" if found.claimed_by is None else "running"


def _side(stored: RescoringSide | None) -> RescoringSide | None:
    return None if stored is None else view_of(RescoringSide, stored, rounding=True)


def _degraded(run: RescoredRun) -> dict[int, int]:
    places = np.frombuffer(run.degraded_positions or b"", dtype="<u4").tolist()
    return dict(zip(places, np.frombuffer(run.degraded_reasons or b"", dtype="<u2").tolist(), strict=True))


def _top_score(scorer: Scorer, state: StateRow, matched: bytes, canary: Canary) -> float | None:
    """Return the relevance of the first hit; only the scorer `judged` depends on judgments."""
    if scorer.kind is not ScorerKind.JUDGED:
        return state.top_score
    best = max((judgment.grade for judgment in canary.judgments), default=0)
    return judged_relevance(Match.from_bytes(matched).grade, best)


def stored_aggregates(run: RunRow) -> Aggregates:
    """Return the aggregates that rules use, from the row of an ended run."""
    slices: dict[str, dict[str, float | None]] = {}
    means: dict[str, float | None] = {}
    for name, value in run.aggregates.items():
        category, _, measure = name.rpartition("/")
        (slices.setdefault(category, {}) if category else means)[measure] = value
    aggregates = Aggregates(
        total=run.total or 0,
        measured=run.measured or 0,
        failed=run.failed or 0,
        undefined=run.undefined or 0,
        degraded=run.degraded or 0,
        health_score=means.pop("health_score", None),
        coverage=means.pop("coverage", None),
        measures={name: value for name, value in means.items() if name != DEGRADED_SHARE},
        categories={
            category: Slice(
                canaries=0,
                measured=0,
                health_score=values.pop("health_score", None),
                coverage=values.pop("coverage", None),
                measures=values,
            )
            for category, values in slices.items()
        },
    )
    if run.verdict == Verdict.UNKNOWN and run.reasons:
        aggregates = replace(aggregates, unknown_reason=run.reasons[0])
    if run.status == RunStatus.FAILED:  # no request was sent, to an embedder neither
        return replace(aggregates, embedder_reason="the run could not be carried out")
    return with_embedder(aggregates, run.embedder)


def with_embedder(aggregates: Aggregates, finding: StoredFinding | None) -> Aggregates:
    """Return the aggregates with a stored finding on the embedder; None = there is no embedder."""
    kind, reason = embedder_finding(finding)
    return replace(aggregates, embedder=kind, embedder_reason=reason)


def embedder_finding(finding: StoredFinding | None) -> tuple[EmbedderChange | None, str | None]:
    """Return `kind` and `reason` of a stored finding on the embedder; None = there is no embedder."""
    if finding is None:
        return None, None
    return None if finding["kind"] is None else EmbedderChange(finding["kind"]), finding["reason"]


def stored_probes(run: RunRow, latencies: NDArray[np.float16], failures: Mapping[int, Failure]) -> ProbeSummary:
    """Return `probe_summary` of a run stored by a release that did not store it."""
    probes = Counter(str(failure.outcome) for failure in failures.values())
    if run.measured:
        probes[str(Outcome.OK)] = run.measured
    return probe_summary(probes, measured_latencies(latencies, failures), failures.values())
