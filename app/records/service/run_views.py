"""Runs and their results as views, with their evidence, the runs that a run may be compared with, and re-scorings.

Nothing here writes but the note of a run. Suites with the newest states of their canaries are in `suite_views`, what
the numbers of an ended run are in `past_runs`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from math import nan
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.base.db.engine import Connection, Store, blocks, cached_of_run, from_us, to_us
from app.base.errors import ConflictError, NotFoundError
from app.base.values import Answer, Canary, Outcome, Ranking, Reason, RunStatus, Step, Value, Verdict, replace
from app.base.views import id_or_none, view_of
from app.catalog import store as catalog
from app.catalog.service.judges import find_judges, pooled_notes
from app.catalog.service.references import find_check, find_run
from app.catalog.service.versions import load_suites
from app.detection import store as detector_rows
from app.detection.service import baselines
from app.records.domain import RescoringSide, RunDetails, SliceView, run_body, stored_shares
from app.records.service import past_runs
from app.records.service.past_runs import stored_aggregates, stored_probes
from app.records.service.plans import asked_in
from app.records.store import open_runs, ranking_rows, rescorings, run_rows, state_rows
from app.records.store.open_runs import Failure
from app.records.store.rescorings import Rescoring
from app.records.store.run_rows import NoteRow, RunRow
from app.records.store.state_rows import StateRow
from app.records.views import (
    WORST,
    RescoringView,
    ResultView,
    RunDocument,
    RunNote,
    RunProgress,
    RunResults,
    RunView,
    result_shape,
    run_shape,
    worst_first,
)
from app.scoring.evaluation import RELEVANCE, pack_reasons, unpack_reasons
from app.scoring.rankings import Match, rbo
from app.scoring.run_inputs import RunInputs, Yardstick
from app.scoring.run_outcomes import RunResponses, evaluate

_NOT_MEASURED = Failure(outcome=str(Outcome.SKIPPED))


def health(store: Store, slug: str, *, version: str | None = None) -> RunView:
    """Return the newest ended run of a check; of a measures version, the newest re-scored run.

    Raises NotFoundError before the first.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        rescored = past_runs.find_rescoring(connection, check.id, version)
        if rescored is not None:
            rescored_run = rescorings.newest_run(connection, rescored.id)
            if rescored_run is None:
                raise NotFoundError(f"no run of check '{slug}' is re-scored as measures version {rescored.name} yet")
            return full_run(connection, find_run(connection, str(rescored_run)), version)
        newest = run_rows.latest_bodies(connection, [check.id]).get(check.id)
        if newest is None:
            raise NotFoundError(f"check '{slug}' has no ended run yet")
        run = run_rows.find_run(connection, newest[0])
        if run is None:
            raise NotFoundError(f"check '{slug}' has no ended run any more")
        return {**_full(connection, run, newest[1]), "progress": None}


def run(store: Store, run_id: str, *, version: str | None = None) -> RunView:
    """Return a run in full, as recorded or of a measures version."""
    with store.read() as connection:
        return full_run(connection, find_run(connection, run_id), version)


def full_run(connection: Connection, row: RunRow, version: str | None = None) -> RunView:
    """Return a run in full; the details are stored for the newest run and computed for older ones."""
    row, rescored = past_runs.load_version(connection, row, version)
    newest = run_rows.latest_bodies(connection, [row.check_id]).get(row.check_id)
    if rescored is None and newest is not None and newest[0] == row.id:
        body = newest[1]
    elif row.aggregates:
        inputs = past_runs.inputs_of_run(connection, row, rescored)

        def recompute() -> tuple[RunDetails, int]:
            states = past_runs.states_of(connection, row, inputs, rescored)
            made = _recompute_body(connection, row, inputs, states)
            return made, len(msgspec.json.encode(made))

        body = cached_of_run(connection, ("details of a run", row.id, row.measures_version), recompute)
        row = row if rescored is None else replace(row, suite_hash=inputs.suite.hash)
    else:
        body = {}
    return {**_full(connection, row, {**body, **(row.probes or {})}), "progress": _progress(connection, row)}


def _full(connection: Connection, row: RunRow, body: RunDetails) -> RunDocument:
    check = _check_bodies(connection, [row])[row.id]
    run: RunDocument = {**_run(row, check, body), "note": notes_of(connection, [row.id]).get(row.id)}
    if not body:
        return run
    retriever = run["retriever"]
    of_run = {retriever: row.retriever_version_id}
    judges = find_judges(connection, stored_shares(body), of_run, suite=run["suite"])
    own = [one for one in judges if one.retriever == retriever]
    return {
        **run,
        "self_judged": bool(own),
        "judged_before_edit": any(one.edited_since for one in own),
        "judged_by": [one.retriever for one in judges if one not in own],
        "pooled_recall": pooled_notes(connection, run["suite"], retriever, version_id=row.retriever_version_id),
    }


def list_runs(
    store: Store, slug: str, *, before: int | None, limit: int, version: str | None = None, with_queries: bool = True
) -> list[RunView]:
    """Return the runs of a check, newest first; of a measures version, the re-scored ones.

    Lists lack tags and the canary counts of categories; without `with_queries` also the degraded queries.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        rescored = past_runs.find_rescoring(connection, check.id, version)
        if rescored is not None:
            rows = past_runs.runs_in_version(connection, rescored, before=before, limit=limit)
        else:
            rows = run_rows.list_runs(connection, check.id, before=before, limit=limit)
        degraded = [row.suite_version_id or 0 for row in rows if row.degraded_positions] if with_queries else []
        suites_by_version = load_suites(connection, degraded)
        checks = _check_bodies(connection, rows)
        notes = notes_of(connection, [row.id for row in rows])
        views: list[RunView] = []
        unsummarised = [row for row in rows if row.probes is None and row.aggregates]
        by_run = run_rows.probes_of_runs(connection, [row.id for row in unsummarised])
        older = {row.id: stored_probes(row, *by_run[row.id]) for row in unsummarised if row.id in by_run}
        for row in rows:
            suite = suites_by_version.get(row.suite_version_id or 0)
            body: RunDetails = {
                "degraded": [{"query": suite.canaries[place].query} for place in row.degraded_places] if suite else [],
                "categories": _categories(row),
            }
            if probes := row.probes or older.get(row.id):
                body = {**body, **probes}
            progress = _progress(connection, row)
            views.append({**_run(row, checks[row.id], body), "note": notes.get(row.id), "progress": progress})
        return views


def notes_of(connection: Connection, run_ids: Collection[int]) -> dict[int, RunNote]:
    """Return the notes of runs, by run id; those without one are left out."""
    return {run_id: view_of(RunNote, note) for run_id, note in run_rows.notes_of(connection, run_ids).items()}


def read_notes(store: Store, run_ids: Collection[str]) -> dict[str, RunNote]:
    """Return the notes of runs, by their opaque ids; those without one are left out."""
    ids = [number for one in run_ids if (number := id_or_none(one)) is not None]
    with store.read() as connection:
        return {str(run_id): note for run_id, note in notes_of(connection, ids).items()}


def write_note(store: Store, run_id: str, text: str, *, by: str, now: datetime) -> RunNote:
    """Write the note of a run in place of the one it has. Raises NotFoundError."""
    with store.write() as connection:
        run = find_run(connection, run_id)
        run_rows.save_note(connection, run.id, NoteRow(text=text, by=by, at=to_us(now)))
        return notes_of(connection, [run.id])[run.id]


def delete_note(store: Store, run_id: str) -> None:
    """Delete the note of a run, if it has one. Raises NotFoundError."""
    with store.write() as connection:
        run_rows.delete_note(connection, find_run(connection, run_id).id)


def _run(row: RunRow, check: Mapping[str, Any], body: RunDetails) -> RunDocument:
    return run_shape(
        row,
        id=str(row.id),
        check=row.check,
        suite=check["suite"],
        retriever=check["retriever"],
        means=row.aggregates,
        body=body,
        embedder=row.embedder,
    )


def _progress(connection: Connection, row: RunRow) -> RunProgress | None:
    """Return the number of recorded probes of an active run; None once it ended."""
    if row.status not in {RunStatus.QUEUED, RunStatus.RUNNING}:
        return None
    total, staged = open_runs.progress(connection, row.id)
    return {"done": asked_in(staged, total), "total": total}


def _categories(row: RunRow) -> dict[str, SliceView]:
    """Return the categories of a run from its row, which has no counts."""
    return {
        name: {**view_of(SliceView, part), "canaries": None, "measured": None}
        for name, part in stored_aggregates(row).categories.items()
    }


def _check_bodies(connection: Connection, rows: Sequence[RunRow]) -> dict[int, Mapping[str, Any]]:
    """Return what the check of each run said, by run: when it began, or now where it has not."""
    versions = {row.check_version_id for row in rows if row.check_version_id is not None}
    then = catalog.version_bodies(connection, sorted(versions)) if versions else {}
    waiting = {row.check_id for row in rows if row.check_version_id is None}
    now = {check_id: catalog.definition_by_id(connection, check_id).body for check_id in waiting}
    return {row.id: now[row.check_id] if row.check_version_id is None else then[row.check_version_id] for row in rows}


def _recompute_body(
    connection: Connection, row: RunRow, inputs: RunInputs, states: Mapping[int, StateRow]
) -> RunDetails:
    """Return the details of an older run from its states: categories, tags, probes and latency."""
    latencies, failures = run_rows.probes_of(connection, row.id)
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
        layout: ranking_rows.layout_names(connection, layout)
        for layout in {state.layout_id for state in views if state}
    }
    today = [str(measure) for measure in yardstick.measures]
    return [
        state
        if state is None or names[state.layout_id] == today
        else replace(state, vector=yardstick.reorder_vector(names[state.layout_id], state.vector))
        for state in views
    ]


_MEASURED = Failure(outcome=str(Outcome.OK))
_BLOCK = 500
_WORST_FIRST = {Verdict.DEGRADED: 0, Verdict.UNKNOWN: 1, Verdict.HEALTHY: 2}
_GRAVE = pack_reasons([Reason.MISSING, Reason.FORBIDDEN, Reason.ANSWERED])


def _gravity(reasons: int) -> tuple[bool, int]:
    """Return what orders degraded results, the gravest first, by their reasons as bits."""
    return not reasons & _GRAVE, -reasons.bit_count()


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

    `worst_first` puts degraded results before failed ones and those before healthy ones, each in suite order; of the
    degraded ones those first that lost an expected chunk or gave a wrong answer, and those with more reasons.
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
        if worst_first:
            matching.sort(key=lambda one: (_WORST_FIRST[one[0]], *_gravity(judged.reasons(one[1])), one[1]))
        ordered, following = _page_of(matching, after, limit, worst_first=worst_first)
        return _views_at(connection, judged, ordered), following


def report(store: Store, run_id: str, *, version: str | None = None) -> RunResults:
    """Return an ended run with its worst and all results. Raises ConflictError while it is active."""
    summary, result_blocks = load_blocks(store, run_id, version=version)
    found = [result for block in result_blocks for result in block]
    return {"run": summary, "worst": worst_first(found)[:WORST], "results": found}


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
    ordered = [position for _, position in matching]
    if worst_first and after in ordered:
        ordered = ordered[ordered.index(after) + 1 :]
    return ordered[:limit], ordered[limit - 1] if len(ordered) > limit else None


class _LoadedRun(Value):
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
    row, rescored = past_runs.load_version(connection, row, version)
    inputs = past_runs.inputs_of_run(connection, row, rescored)
    latencies, failures = run_rows.probes_of(connection, row.id)
    states, reasons_by_canary = None, None
    if rescored is not None:
        states = past_runs.states_of(connection, row, inputs, rescored)
        reasons_by_canary = {canary_id: state.reasons for canary_id, state in states.items()}
    elif with_verdicts:
        reasons_by_canary = state_rows.all_reasons_at(connection, row.check_id, row.id, only_degraded=only_degraded)
    return _LoadedRun(
        row=row,
        inputs=inputs,
        latencies=latencies,
        failures=failures,
        unscored=frozenset(run_rows.unscored_at(connection, row.id)),
        reasons_by_canary=reasons_by_canary,
        states=states,
    )


def _states(connection: Connection, judged: _LoadedRun, positions: Sequence[int]) -> list[StateRow | None]:
    """Return the states at these positions; None = there was none."""
    members = [judged.inputs.suite.members[position] for position in positions]
    if judged.states is not None:
        return [judged.states.get(member.canary_id) for member in members]
    row = judged.row
    states = state_rows.states_of(connection, row.check_id, row.id, [member.canary_id for member in members])
    found = [states.get(member.canary_id) for member in members]
    return [
        past_runs.without_relevance(state) if state is not None and position in judged.unscored else state
        for position, state in zip(positions, found, strict=True)
    ]


def _views_at(connection: Connection, judged: _LoadedRun, positions: Sequence[int]) -> list[ResultView]:
    """Return the views of the results at these positions, with their evidence."""
    row, inputs = judged.row, judged.inputs
    found = _states(connection, judged, positions)
    rankings = ranking_rows.load_rankings(connection, [state.ranking_id for state in found if state])
    names = {layout: ranking_rows.layout_names(connection, layout) for layout in {s.layout_id for s in found if s}}
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
            views.append(result_shape(canary, probe, k=inputs.yardstick.k))
            continue
        ranking = rankings[state.ranking_id]
        views.append(
            result_shape(
                canary,
                probe,
                ranking=replace(ranking, relevance=None) if position in judged.unscored else ranking,
                prepared=inputs.panel.prepared(position),
                match=Match.from_bytes(state.matched),
                measures=run_rows.named_aggregates(names[state.layout_id], state.vector),
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
        and (not tag or tag in canary.labels)
        and (keys is None or canary.key in keys)
    )


_LOOK_BACK = 100
"""Number of runs that are searched for a healthy one."""


class ComparisonCandidates(Value):
    """Runs to compare a run with; None = there is none."""

    previous: str | None
    """The run before it."""
    baseline: str | None
    """The pinned run, else the last run of the learned baseline; None where that is the run itself."""
    healthy: str | None
    """The newest healthy run before it."""


def find_candidates(store: Store, run_id: str) -> ComparisonCandidates:
    """Return the runs to compare a run with. Raises NotFoundError."""
    with store.read() as connection:
        run = find_run(connection, run_id)
        earlier = run_rows.ended_runs(connection, run.check_id, before=run.id, limit=_LOOK_BACK)
        before = [row for row in reversed(earlier) if row.aggregates]
    baseline = _baseline(store, run)
    return ComparisonCandidates(
        previous=next((str(row.id) for row in before), None),
        baseline=baseline,
        healthy=next((str(row.id) for row in before if row.verdict == Verdict.HEALTHY), None),
    )


def _baseline(store: Store, run: RunRow) -> str | None:
    """Return the run of the baseline if it is still stored: runs are deleted before the baselines learned from them."""
    shown = baselines.show(store, run.check)
    learned = shown.learned
    found = shown.run or (learned.last_run if learned else None)
    if found is None or found == str(run.id):
        return None
    with store.read() as connection:
        row = run_rows.find_run(connection, int(found))
    return found if row is not None and row.aggregates else None


class Choice(Value):
    """A run, check or retriever to compare."""

    name: str
    text: str
    """What it is, beside its name."""


def list_choices(store: Store, kind: str, near: Collection[str] = ()) -> list[Choice]:
    """Return what of a kind, run, check or retriever, may be compared: those of active checks with an ended run.

    Of runs the newest ones; where there are more, first those of the checks of the runs `near`.
    """
    with store.read() as connection:
        checks = {check.id: check for check in catalog.list_definitions(connection, "check")}
        newest = [row for row in run_rows.newest_ended_of_all(connection) if row.check_id in checks and row.aggregates]
        newest.sort(key=lambda row: row.check)
        if kind == "run":
            return [_run_choice(row) for row in _newest_runs(connection, newest, near)]
    if kind == "check":
        bodies = [(row, checks[row.check_id].body) for row in newest]
        return [
            Choice(name=row.check, text=f"{row.verdict or 'no verdict'}, {_suite_text(body)}") for row, body in bodies
        ]
    asked: dict[str, set[str]] = {}
    for row in newest:
        body = checks[row.check_id].body
        asked.setdefault(body["retriever"], set()).add(_suite_text(body))
    return [Choice(name=slug, text=", ".join(sorted(suites))) for slug, suites in sorted(asked.items())]


def _newest_runs(connection: Connection, newest: Sequence[RunRow], near: Collection[str]) -> list[RunRow]:
    """Return the newest runs of checks, newest first."""
    ids = [number for one in near if (number := id_or_none(one)) is not None]
    chosen = {row.check_id for row in run_rows.find_runs(connection, ids).values()}
    ordered = sorted(newest, key=lambda row: (row.check_id not in chosen, -row.id))[:_CHECKS]
    each = max(_FEWEST_RUNS, _RUNS // max(len(ordered), 1))
    limits = [(row.check_id, _RUNS if row.check_id in chosen else each) for row in ordered]
    found = [row for check, limit in limits for row in run_rows.ended_runs(connection, check, limit=limit)]
    return sorted((row for row in found if row.aggregates), key=lambda row: (row.check_id not in chosen, -row.id))


def _run_choice(row: RunRow) -> Choice:
    ended = f"{from_us(row.finished_at or row.created_at):%Y-%m-%d %H:%M} UTC"
    index = f", index {row.index_version}" if row.index_version else ""
    return Choice(name=str(row.id), text=f"{row.check}, {row.verdict or 'no verdict'}, {ended}{index}")


def _suite_text(body: Mapping[str, Any]) -> str:
    return f"suite {body['suite']}"


_RUNS = 300
_FEWEST_RUNS = 10
"""Of each check where there are many."""
_CHECKS = 60
"""Number of checks whose runs are listed."""


def likeness(
    connection: Connection, row: RunRow, states: Sequence[StateRow], rankings: Mapping[int, Ranking]
) -> dict[int, float]:
    """Rank-biased overlap (p = 0.9) with the last run of the baseline, by canary id.

    `rankings` has those of the states, by id. Left out are canaries that had none then, or asked something else; of a
    run that was compared with no baseline, all.
    """
    detection = detector_rows.detections_of(connection, [row.id]).get(row.id)
    if detection is None or detection.baseline_id is None:
        return {}
    baseline = detector_rows.find_baseline(connection, detection.baseline_id)
    if baseline is None:
        return {}
    rankings_before = state_rows.rankings_at(
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
    then = ranking_rows.load_rankings(connection, sorted({one for state, one in pairs if one != state.ranking_id}))
    return {
        state.canary_id: 1.0 if one == state.ranking_id else rbo(then[one].ids, rankings[state.ranking_id].ids)
        for state, one in pairs
    }


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
