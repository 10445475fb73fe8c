"""Ended runs read again, as recorded or as re-scored: inputs, states of canaries, numbers.

Of the states also those that a run reports as degraded, the last in which a canary was healthy, and which diagnoses
still explain them. A measures version names a re-scoring. `plans` freezes what a run works with, `run_views` shows what
is read here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from app.base.db.engine import Connection
from app.base.errors import InvalidInputError, NotFoundError, Problem
from app.base.values import (
    DEGRADED_SHARE,
    Aggregates,
    Canary,
    Cause,
    EmbedderChange,
    Outcome,
    ProbeSummary,
    RunStatus,
    Slice,
    Value,
    Verdict,
    replace,
)
from app.base.views import id_or_none
from app.catalog.service.versions import load_check, load_corrected, load_inputs
from app.detection import store as detector_rows
from app.diagnosis.store import DiagnosisRow, diagnoses_at
from app.records.domain import probe_summary
from app.records.store import ranking_rows, rescorings, run_rows, state_rows
from app.records.store.open_runs import Failure
from app.records.store.rescorings import RescoredRun, Rescoring
from app.records.store.run_rows import RunRow
from app.records.store.state_rows import DegradedRow, StateRow
from app.retrievers.domain.probes import StoredFinding
from app.retrievers.domain.retrievers import Scorer, ScorerKind
from app.scoring.evaluation import MISSING, REGRESSED, RELEVANCE, TIMED, judged_relevance
from app.scoring.measures import MEASURES_VERSION
from app.scoring.rankings import Match
from app.scoring.run_inputs import RunInputs
from app.scoring.run_outcomes import measured_latencies


class RescoredVersion(Value):
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


def find_rescoring(
    connection: Connection, check_id: int, version: str | None, *, plain: str | None = MEASURES_VERSION
) -> Rescoring | None:
    """Return the re-scoring that a measures version of a check names; None for no version and for the plain one.

    Raises InvalidInputError where there is none.
    """
    if version is None or version == plain:
        return None
    number = id_or_none(version.rpartition(".r")[2])
    found = None if number is None else rescorings.find(connection, number)
    if found is None or found.check_id != check_id or found.name != version:
        names_there = [one.name for one in rescorings.list_all(connection, check_id, limit=5)]
        names = ", ".join([plain or MEASURES_VERSION, *reversed(names_there)])
        raise InvalidInputError(
            [Problem(path="measures_version", message=f"there is no version '{version[:40]}'; there are: {names}")]
        )
    return found


def _rescored_row(row: RunRow, found: Rescoring, run: RescoredRun, names: Sequence[str]) -> RunRow:
    aggregates = run_rows.named_aggregates(names, run.aggregates)
    same = {name: getattr(run, name) for name in _COUNTS}
    return replace(row, **same, reasons=list(run.reasons), aggregates=aggregates, measures_version=found.name)


_COUNTS = ("verdict", "total", "measured", "failed", "undefined", "degraded", "degraded_positions", "layout_id")
"""What a re-scored run has by the same names."""


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


def degraded_states(connection: Connection, run: RunRow, positions: Mapping[int, int]) -> list[StateRow]:
    """States of the canaries a run reports as degraded; `positions` are those of its canaries, by id.

    A canary whose probe failed is unknown; where relevance was not measured its reasons are left out.
    """
    _, failures = run_rows.probes_of(connection, run.id)
    unscored = set(run_rows.unscored_at(connection, run.id))
    states = [
        without_relevance(state) if positions[state.canary_id] in unscored else state
        for state in state_rows.states_at(connection, run.check_id, run.id, only_degraded=True).values()
        if state.canary_id in positions and positions[state.canary_id] not in failures
    ]
    return [state for state in states if state.reasons]


def severity_order(state: StateRow | DegradedRow, key: str) -> tuple[int, float, str]:
    """Sort key as in worst_first: most reasons first, then the lowest top score, unknown ones last."""
    return -state.reasons.bit_count(), 1.0 if state.top_score is None else state.top_score, key


def last_healthy_state(connection: Connection, now: StateRow | None, past: Sequence[StateRow]) -> StateRow | None:
    """Newest of these states, given newest first, in which a canary was healthy; None = there is none.

    A canary that lost its chunk counts as healthy as long as it found it, whatever else was wrong then. Where the
    detector names it now, the state is one from before the fault with another ranking: without a limit of its own a
    canary stays healthy until the detector has enough runs. If it never was healthy, the newest one before the fault.
    """
    relevant_reasons = MISSING if now is not None and now.reasons & MISSING else -1
    healthy = [state for state in past if not state.reasons & relevant_reasons]
    if now is None or not now.reasons & REGRESSED:
        return next(iter(healthy), None)
    detection = detector_rows.detections_of(connection, [now.first_run]).get(now.first_run)
    since = now.first_run if detection is None or detection.since_run is None else detection.since_run
    not_regressed = [state for state in past if not state.reasons & REGRESSED]
    return next(
        (one for one in (*healthy, *not_regressed) if one.first_run < since and one.ranking_id != now.ranking_id), None
    )


def _top_score(scorer: Scorer, state: StateRow, matched: bytes, canary: Canary) -> float | None:
    """Return the relevance of the first hit; only the scorer `judged` depends on judgments."""
    if scorer.kind is not ScorerKind.JUDGED:
        return state.top_score
    best = max((judgment.grade for judgment in canary.judgments), default=0)
    return judged_relevance(Match.from_bytes(matched).grade, best)


def _degraded(run: RescoredRun) -> dict[int, int]:
    places = np.frombuffer(run.degraded_positions or b"", dtype="<u4").tolist()
    return dict(zip(places, np.frombuffer(run.degraded_reasons or b"", dtype="<u2").tolist(), strict=True))


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


def valid_diagnoses(
    connection: Connection, degraded: Mapping[int, Mapping[int, StateRow | DegradedRow]]
) -> dict[int, dict[int, DiagnosisRow]]:
    """Diagnoses that still explain the degraded canaries of runs, both by run id and canary id.

    That is the newest of each up to then, where it was made since the canary degraded, and its ranking is the same or
    the reasons are: a canary that found its expected chunk then and has lost it since is another case. One that was
    healthy in between is one too, unless it comes and goes: the same answer may have another cause.
    """
    newest = diagnoses_at(connection, degraded)
    well = state_rows.healthy_until(connection, newest)
    canaries: dict[int, set[int]] = {}
    for diagnosis in (row for rows in newest.values() for row in rows.values()):
        canaries.setdefault(diagnosis.run_id, set()).add(diagnosis.canary_id)
    then = state_rows.degraded_at(connection, canaries)
    return {
        run_id: {
            canary: diagnosis
            for canary, diagnosis in newest[run_id].items()
            if diagnosis.canary_version_id == mine[canary].canary_version_id
            and (
                diagnosis.ranking_id == mine[canary].ranking_id
                or _is_same_case(then[diagnosis.run_id].get(canary), mine[canary])
            )
            and (
                diagnosis.run_id > well[run_id].get(canary, 0)
                or (diagnosis.cause == Cause.UNSTABLE and diagnosis.ranking_id == mine[canary].ranking_id)
            )
        }
        for run_id, mine in degraded.items()
    }


def _is_same_case(then: DegradedRow | None, now: StateRow | DegradedRow) -> bool:
    """Whether a canary is degraded for the reasons of its diagnosis; `then`: None = those are unknown.

    Further reasons of a canary that finds none of its expected chunks do not change the cause; nor does its latency, or
    that the detector names it now.
    """
    if then is None or then.reasons & now.reasons & MISSING:
        return True
    return not (then.reasons ^ now.reasons) & ~(TIMED | REGRESSED)


def asked_retriever(connection: Connection, run_id: int) -> str | None:
    """Slug of the retriever that a run asked; None = it is not known any more."""
    run = run_rows.find_run(connection, run_id)
    if run is None or run.check_version_id is None:
        return None
    return load_check(connection, run.check_version_id)[0].retriever
