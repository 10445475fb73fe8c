"""Results of a run as views, with their evidence, and reports of all of them. Nothing here writes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import nan

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from app.base.db.engine import Connection, Store, blocks, from_us
from app.base.errors import ConflictError
from app.base.values import Answer, Canary, Outcome, Ranking, Reason, Step, TimeText, Verdict
from app.catalog import store as catalog
from app.catalog.service.references import find_run
from app.detection import store as detectors
from app.detection.service import baselines
from app.records import documents as shapes
from app.records.domain import ResultView, RunResults, RunView
from app.records.service import figures
from app.records.service.runs import run
from app.records.store import results as result_rows
from app.records.store.queue import Failure
from app.records.store.results import RunRow, StateRow
from app.scoring.evaluation import RELEVANCE, pack_reasons, unpack_reasons
from app.scoring.matching import Match
from app.scoring.rankings import rbo
from app.scoring.runs import RunInputs

_MEASURED = Failure(outcome=str(Outcome.OK))
_BLOCK = 500
_WORST_FIRST = {Verdict.DEGRADED: 0, Verdict.UNKNOWN: 1, Verdict.HEALTHY: 2}


def results(  # noqa: PLR0913 - whatever results are filtered by
    store: Store,
    run_id: str,
    *,
    verdict: Verdict | None = None,
    category: str | None = None,
    tag: str | None = None,
    reason: Reason | None = None,
    outcome: Outcome | None = None,
    keys: Collection[str] | None = None,
    after: int = -1,
    limit: int = 100,
    version: str | None = None,
    worst_first: bool = False,
) -> tuple[list[ResultView], int | None]:
    """Return results of an ended run in suite order with their evidence, and the position to continue after.

    `worst_first` puts degraded results before failed ones and those before healthy ones, each in suite order.
    """
    with store.read() as connection:
        row = find_run(connection, run_id)
        if row.suite_version_id is None or not row.aggregates:
            return [], None
        judged = _load_results(
            connection,
            row,
            version,
            with_verdicts=bool(verdict or reason or worst_first),
            only_degraded=verdict is Verdict.DEGRADED,
        )
        matching: list[tuple[Verdict, int]] = []
        for position, canary in enumerate(judged.inputs.canaries):
            if (position <= after and not worst_first) or not _matches(canary, category, tag, keys):
                continue
            own = judged.verdict(position) if judged.reasons_by_canary is not None else Verdict.UNKNOWN
            if verdict and verdict is not own:
                continue
            if outcome and outcome != judged.failures.get(position, _MEASURED).outcome:
                continue
            if reason and (own is Verdict.UNKNOWN or not judged.reasons(position) & pack_reasons([reason])):
                continue
            matching.append((own, position))
            if len(matching) > limit and not worst_first:
                break
        ordered, following = _page_of(matching, after, limit, worst_first=worst_first)
        return _views_at(connection, judged, ordered), following


def report(store: Store, run_id: str, *, version: str | None = None) -> RunResults:
    """Return an ended run with its worst and all results. Raises ConflictError while it is active."""
    summary, result_blocks = load_blocks(store, run_id, version=version)
    found = [result for block in result_blocks for result in block]
    return {"run": summary, "worst": shapes.worst_first(found)[: shapes.WORST], "results": found}


def load_blocks(
    store: Store, run_id: str, *, version: str | None = None
) -> tuple[RunView, Iterator[Sequence[ResultView]]]:
    """Return an ended run and its results in suite order, read block by block as they are taken.

    Those of a very large suite are gigabytes. Raises ConflictError while the run is active.
    """
    summary = run(store, run_id, version=version)
    if summary["finished_at"] is None:
        raise ConflictError(f"run '{run_id}' has not ended yet")
    return summary, _blocks(store, run_id, version)


def _blocks(store: Store, run_id: str, version: str | None) -> Iterator[Sequence[ResultView]]:
    with store.read() as connection:
        row = find_run(connection, run_id)
        if row.suite_version_id is None or not row.aggregates:
            return
        judged = _load_results(connection, row, version, with_verdicts=False)
        for block in blocks(range(len(judged.inputs.canaries)), _BLOCK):
            yield _views_at(connection, judged, block)


def _page_of(
    matching: Sequence[tuple[Verdict, int]], after: int, limit: int, *, worst_first: bool
) -> tuple[list[int], int | None]:
    """Return the positions of one page, and the position to continue after; None = it is the last page."""
    ranked = sorted(matching, key=lambda one: (_WORST_FIRST[one[0]], one[1])) if worst_first else matching
    ordered = [position for _, position in ranked]
    if worst_first and after in ordered:
        ordered = ordered[ordered.index(after) + 1 :]
    return ordered[:limit], ordered[limit - 1] if len(ordered) > limit else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadedRun:
    """An ended run with the reasons or states of its canaries."""

    row: RunRow
    inputs: RunInputs
    latencies: NDArray[np.float16]
    failures: Mapping[int, Failure]
    unscored: AbstractSet[int]
    reasons_by_canary: Mapping[int, int] | None
    """Reasons as bits by canary id; 0 = healthy. None = not loaded."""
    states: Mapping[int, StateRow] | None
    """States of a re-scoring by canary id; None = as recorded, loaded where needed."""

    def reasons(self, position: int) -> int:
        """Return why a measured canary is degraded, as bits."""
        reasons_by_canary = (self.reasons_by_canary or {}).get(self.inputs.suite.members[position].canary_id, 0)
        return (
            reasons_by_canary & ~RELEVANCE if self.states is None and position in self.unscored else reasons_by_canary
        )

    def verdict(self, position: int) -> Verdict:
        """Return the verdict of a canary in the run."""
        if position in self.failures or self.inputs.suite.members[position].canary_id not in (
            self.reasons_by_canary or {}
        ):
            return Verdict.UNKNOWN
        return Verdict.DEGRADED if self.reasons(position) else Verdict.HEALTHY


def _load_results(
    connection: Connection, row: RunRow, version: str | None, *, with_verdicts: bool, only_degraded: bool = False
) -> _LoadedRun:
    """Load a run; with verdicts of all canaries, or with `only_degraded` of those alone: others are unknown."""
    row, rescored = figures.load_version(connection, row, version)
    inputs = figures.inputs_of_run(connection, row, rescored)
    latencies, failures = result_rows.probes_of(connection, row.id)
    states, reasons_by_canary = None, None
    if rescored is not None:
        states = figures.states_of(connection, row, inputs, rescored)
        reasons_by_canary = {canary_id: state.reasons for canary_id, state in states.items()}
    elif with_verdicts:
        reasons_by_canary = result_rows.all_reasons_at(connection, row.check_id, row.id, only_degraded=only_degraded)
    return _LoadedRun(
        row=row,
        inputs=inputs,
        latencies=latencies,
        failures=failures,
        unscored=frozenset(result_rows.unscored_at(connection, row.id)),
        reasons_by_canary=reasons_by_canary,
        states=states,
    )


def _states(connection: Connection, judged: _LoadedRun, positions: Sequence[int]) -> list[StateRow | None]:
    """Return the states at these positions; None = there was none."""
    members = [judged.inputs.suite.members[position] for position in positions]
    if judged.states is not None:
        return [judged.states.get(member.canary_id) for member in members]
    row = judged.row
    states = result_rows.states_of(connection, row.check_id, row.id, [member.canary_id for member in members])
    found = [states.get(member.canary_id) for member in members]
    return [
        figures.without_relevance(state) if state is not None and position in judged.unscored else state
        for position, state in zip(positions, found, strict=True)
    ]


def _views_at(connection: Connection, judged: _LoadedRun, positions: Sequence[int]) -> list[ResultView]:
    """Return the views of the results at these positions, with their evidence."""
    row, inputs = judged.row, judged.inputs
    found = _states(connection, judged, positions)
    rankings = result_rows.load_rankings(connection, [state.ranking_id for state in found if state])
    names = {layout: result_rows.layout_names(connection, layout) for layout in {s.layout_id for s in found if s}}
    alike = likeness(connection, row, [state for state in found if state], rankings)
    views: list[ResultView] = []
    for position, state in zip(positions, found, strict=True):
        canary = inputs.canaries[position]
        failure = judged.failures.get(position, _MEASURED)
        known = failure.outcome != Outcome.SKIPPED and len(judged.latencies)
        probe = Answer(
            outcome=Outcome(failure.outcome),
            latency_seconds=float(judged.latencies[position]) if known else nan,
            http_status=failure.http_status,
            detail=failure.detail,
            step=Step(failure.step),
        )
        if state is None or failure.outcome != Outcome.OK:
            views.append(shapes.result_shape(canary, probe, k=inputs.yardstick.k))
            continue
        ranking = rankings[state.ranking_id]
        views.append(
            shapes.result_shape(
                canary,
                probe,
                ranking=replace(ranking, relevance=None) if position in judged.unscored else ranking,
                prepared=inputs.panel.prepared(position),
                match=Match.from_bytes(state.matched),
                measures=result_rows.named_aggregates(names[state.layout_id], state.vector),
                top_score=state.top_score,
                reasons=unpack_reasons(state.reasons),
                scorer=inputs.yardstick.scorer,
                since_run=str(state.first_run),
                rbo=alike.get(state.canary_id),
                k=inputs.yardstick.k,
                asked_at=from_us(row.started_at) if row.started_at is not None else None,
            )
        )
    return views


def _matches(canary: Canary, category: str | None, tag: str | None, keys: Collection[str] | None) -> bool:
    return (
        (not category or canary.category == category)
        and (not tag or tag in canary.tags)
        and (keys is None or canary.key in keys)
    )


_RECENT = 30
_LOOK_BACK = 100
"""Number of runs that are searched for a healthy one."""


class Candidate(TypedDict):
    """A run in one line."""

    id: str
    check: str
    verdict: str | None
    finished_at: TimeText | None
    index_version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonCandidates:
    """Runs to compare a run with; None = there is none."""

    previous: str | None
    """The run before it."""
    baseline: str | None
    """The pinned run, else the last run of the learned baseline; None where that is the run itself."""
    healthy: str | None
    """The newest healthy run before it."""
    recent: Sequence[Candidate]
    """The newest executed runs, newest first."""


def find_candidates(store: Store, run_id: str) -> ComparisonCandidates:
    """Return the runs to compare a run with. Raises NotFoundError."""
    with store.read() as connection:
        run = find_run(connection, run_id)
        recent = [row for row in result_rows.ended_runs(connection, run.check_id, limit=_RECENT) if row.aggregates]
        earlier = result_rows.ended_runs(connection, run.check_id, before=run.id, limit=_LOOK_BACK)
        before = [row for row in reversed(earlier) if row.aggregates]
    baseline = _baseline(store, run)
    return ComparisonCandidates(
        previous=next((str(row.id) for row in before), None),
        baseline=baseline,
        healthy=next((str(row.id) for row in before if row.verdict == Verdict.HEALTHY), None),
        recent=[shapes.view_of(Candidate, row, id=str(row.id)) for row in reversed(recent)],
    )


def _baseline(store: Store, run: RunRow) -> str | None:
    """Return the run of the baseline if it is still stored: runs are deleted before the baselines learned from them."""
    shown = baselines.show(store, run.check)
    learned = shown.learned
    found = shown.run or (learned.last_run if learned else None)
    if found is None or found == str(run.id):
        return None
    with store.read() as connection:
        row = result_rows.find_run(connection, int(found))
    return found if row is not None and row.aggregates else None


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
    rankings_before = result_rows.rankings_at(
        connection, row.check_id, baseline.last_run, [state.canary_id for state in states]
    )
    there = [(state, *rankings_before[state.canary_id]) for state in states if state.canary_id in rankings_before]
    changed = {
        one
        for state, _, version in there
        if version != state.canary_version_id
        for one in (version, state.canary_version_id)
    }
    queries = catalog.queries_of(connection, changed)
    pairs = [
        (state, ranking)
        for state, ranking, version in there
        if queries.get(version) == queries.get(state.canary_version_id)  # None of both where it is the same version
    ]
    then = result_rows.load_rankings(connection, sorted({one for state, one in pairs if one != state.ranking_id}))
    return {
        state.canary_id: 1.0 if one == state.ranking_id else rbo(then[one].ids, rankings[state.ranking_id].ids)
        for state, one in pairs
    }
