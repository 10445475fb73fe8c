"""Runs and results as people read them, put together from rows. Nothing here writes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from app.domain.errors import ConflictError, NotFoundError
from app.domain.judging import Panel, Tally, Yardstick, pack_reasons, unpack_reasons
from app.domain.matching import Match, prepare
from app.domain.model import Canary, Outcome, Reason, RunStatus, Verdict
from app.formats import shapes
from app.services import scoring
from app.services.likeness import likeness
from app.services.plans import asked_in
from app.services.scoring import Setting
from app.services.summaries import run_body, stored_aggregates, stored_probes
from app.store import catalog, history, queue, rescored, suites
from app.store.catalog import Definition
from app.store.engine import Connection, Store, from_us
from app.store.history import RunRow, StateRow
from app.store.queue import Failure

_MEASURED = Failure(outcome=str(Outcome.OK))
_WORST_FIRST = {Verdict.DEGRADED: 0, Verdict.UNKNOWN: 1, Verdict.HEALTHY: 2}


def find_check(connection: Connection, slug: str) -> Definition:
    """Find a check, archived ones included: their history stays readable. Raises NotFoundError."""
    check = catalog.find_definition(connection, "check", slug)
    if check is None:
        raise NotFoundError(f"there is no check '{slug}'")
    return check


def find_run(connection: Connection, run_id: str) -> RunRow:
    """Find a run by its opaque id. Raises NotFoundError."""
    run = history.find_run(connection, shapes.id_number(run_id, "run"))
    if run is None:
        raise NotFoundError(f"there is no run '{run_id[:40]}'")
    return run


def health(store: Store, slug: str, *, version: str | None = None) -> dict[str, Any]:
    """Read the newest ended run of a check or, of another measures version, the newest run that is in it.

    Raises NotFoundError before the first.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        anew = scoring.find_rescoring(connection, check.id, version)
        if anew is not None:
            rescored_run = rescored.newest_run(connection, anew.id)
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


def run(store: Store, run_id: str, *, version: str | None = None) -> dict[str, Any]:
    """Read a run in full, by another measures version where one is named."""
    with store.read() as connection:
        return full_run(connection, find_run(connection, run_id), version)


def full_run(connection: Connection, row: RunRow, version: str | None = None) -> dict[str, Any]:
    """Read a run in full; what its row leaves out is kept for the newest and computed for older ones."""
    row, anew = scoring.in_version(connection, row, version)
    newest = history.latest_body(connection, row.check_id)
    if anew is None and newest is not None and newest[0] == row.id:
        body = newest[1]
    elif row.aggregates:
        setting = scoring.setting_of(connection, row, anew)
        body = _recomputed(connection, row, setting, scoring.states_of(connection, row, setting, anew))
        row = row if anew is None else replace(row, suite_hash=setting.suite_hash)
    else:
        body = {}
    return {**_run(connection, row, {**body, **(row.probes or {})}), "progress": _progress(connection, row)}


def list_runs(
    store: Store, slug: str, *, before: int | None, limit: int, version: str | None = None
) -> list[dict[str, Any]]:
    """List the runs of a check, newest first; of another measures version those that are in it.

    What only a single run spells out is left out: tags and how many canaries a category has.
    """
    with store.read() as connection:
        check = find_check(connection, slug)
        anew = scoring.find_rescoring(connection, check.id, version)
        if anew is not None:
            rows = scoring.runs_in_version(connection, anew, before=before, limit=limit)
        else:
            rows = history.list_runs(connection, check.id, before=before, limit=limit)
        queries: dict[int, list[str]] = {}
        for suite in {row.suite_version_id for row in rows if row.degraded_positions}:
            if suite is not None:
                queries[suite] = [member.body["query"] for member in suites.suite_version(connection, suite)[1]]
        found = []
        unsummarised = [row for row in rows if row.probes is None and row.aggregates]
        probes = history.probes_of_runs(connection, [row.id for row in unsummarised])
        older = {row.id: stored_probes(row, *probes[row.id]) for row in unsummarised if row.id in probes}
        for row in rows:
            asked = queries.get(row.suite_version_id or 0, [])
            body = {
                **(row.probes or older.get(row.id, {})),
                "degraded": [{"query": asked[place]} for place in row.degraded_places] if asked else [],
                "categories": _categories(row),
            }
            found.append({**_run(connection, row, body), "progress": _progress(connection, row)})
        return found


def _page_of(
    wanted: Sequence[tuple[Verdict, int]], after: int, limit: int, *, worst_first: bool
) -> tuple[list[int], int | None]:
    """Give the positions of one page, and the position to go on after; None = it is the last page."""
    ranked = sorted(wanted, key=lambda one: (_WORST_FIRST[one[0]], one[1])) if worst_first else wanted
    ordered = [position for _, position in ranked]
    if worst_first and after in ordered:
        ordered = ordered[ordered.index(after) + 1 :]
    return ordered[:limit], ordered[limit - 1] if len(ordered) > limit else None


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
) -> tuple[list[dict[str, Any]], int | None]:
    """Read results of an ended run in suite order with their evidence, and the position to go on after.

    `worst_first` puts degraded results before failed ones and those before healthy ones, each in suite order.
    """
    with store.read() as connection:
        row = find_run(connection, run_id)
        if row.suite_version_id is None or not row.aggregates:
            return [], None
        row, anew = scoring.in_version(connection, row, version)
        setting = scoring.setting_of(connection, row, anew)
        states = scoring.states_of(connection, row, setting, anew)
        latencies, failures = history.probes_of(connection, row.id)
        unscored = set(history.unscored_at(connection, row.id))
        wanted: list[tuple[Verdict, int]] = []
        for position, canary in enumerate(setting.canaries):
            if (position <= after and not worst_first) or not _is_of(canary, category, tag, keys):
                continue
            state = states.get(setting.members[position].canary_id)
            own = _verdict(position, state, failures)
            if verdict and verdict is not own:
                continue
            if outcome and outcome != failures.get(position, _MEASURED).outcome:
                continue
            if reason and (position in failures or state is None or not state.reasons & pack_reasons([reason])):
                continue
            wanted.append((own, position))
            if len(wanted) > limit and not worst_first:
                break
        ordered, following = _page_of(wanted, after, limit, worst_first=worst_first)
        found = [states.get(setting.members[position].canary_id) for position in ordered]
        rankings = history.read_rankings(connection, [state.ranking_id for state in found if state])
        names = {layout: history.layout_names(connection, layout) for layout in {s.layout_id for s in found if s}}
        alike = likeness(connection, row, [state for state in found if state], rankings)
    shaped: list[dict[str, Any]] = []
    for position, state in zip(ordered, found, strict=True):
        canary = setting.canaries[position]
        failure = failures.get(position, _MEASURED)
        known = failure.outcome != Outcome.SKIPPED and len(latencies)
        common: dict[str, Any] = {
            "outcome": Outcome(failure.outcome),
            "http_status": failure.http_status,
            "detail": failure.detail,
            "step": failure.step,
            "latency_seconds": float(latencies[position]) if known else None,
            "k": setting.yardstick.k,
            "asked_at": from_us(row.started_at) if row.started_at is not None else None,
        }
        if state is None or failure.outcome != Outcome.OK:
            shaped.append(shapes.result_shape(canary, **common))
            continue
        shaped.append(
            shapes.result_shape(
                canary,
                ranking=replace(rankings[state.ranking_id], relevance=None)
                if position in unscored
                else rankings[state.ranking_id],
                prepared=prepare(canary.judgments),
                match=Match.from_bytes(state.matched),
                measures=named_numbers(names[state.layout_id], state.vector),
                top_score=state.top_score,
                reasons=unpack_reasons(state.reasons),
                scorer=setting.yardstick.scorer,
                since_run=str(state.first_run),
                rbo=alike.get(state.canary_id),
                **common,
            )
        )
    return shaped, following


def report(store: Store, run_id: str, *, version: str | None = None) -> dict[str, Any]:
    """Read an ended run with all its results, the worst first among them. Raises ConflictError while it goes on."""
    summary = run(store, run_id, version=version)
    if summary["finished_at"] is None:
        raise ConflictError(f"run '{run_id}' has not ended yet")
    found: list[dict[str, Any]] = []
    after: int | None = -1
    while after is not None:
        part, after = results(store, run_id, after=after, limit=1_000, version=version)
        found += part
    return shapes.report_shape(summary, found, everything=True)


def _run(connection: Connection, row: RunRow, body: Mapping[str, Any]) -> dict[str, Any]:
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


def _progress(connection: Connection, row: RunRow) -> dict[str, int | None] | None:
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
        return catalog.version_body(connection, row.check_version_id).body
    return catalog.definition_by_id(connection, row.check_id).body


def _recomputed(
    connection: Connection, row: RunRow, setting: Setting, states: Mapping[int, StateRow]
) -> dict[str, Any]:
    """Spell an older run out again from its states: categories, tags, probes and latency."""
    panel = Panel(setting.canaries)
    latencies, failures = history.probes_of(connection, row.id)
    found = [states.get(member.canary_id) for member in setting.members]
    outcomes = [Outcome.OK if state else Outcome.SKIPPED for state in found]
    for position, failure in failures.items():
        outcomes[position] = Outcome(failure.outcome)
    tally = Tally(setting.yardstick, panel)
    arranged = _arranged(connection, setting.yardstick, found)
    tally.take_over({place: state for place, state in enumerate(arranged) if state and outcomes[place] is Outcome.OK})
    aggregates = tally.aggregates(outcomes)
    measured = [float(latencies[place]) for place, outcome in enumerate(outcomes) if outcome is Outcome.OK]
    failed_at = [(failure.step, failure.outcome) for failure in failures.values()]
    return run_body(panel, aggregates, tally.reasons, outcomes, measured, failed_at=failed_at)


def _arranged(connection: Connection, yardstick: Yardstick, found: Sequence[StateRow | None]) -> list[StateRow | None]:
    """Give states the measures of today: a release before may have had fewer."""
    names = {
        layout: history.layout_names(connection, layout) for layout in {state.layout_id for state in found if state}
    }
    today = [str(measure) for measure in yardstick.measures]
    return [
        state
        if state is None or names[state.layout_id] == today
        else replace(state, vector=yardstick.arranged(names[state.layout_id], state.vector))
        for state in found
    ]


def _is_of(canary: Canary, category: str | None, tag: str | None, keys: Collection[str] | None) -> bool:
    return (
        (not category or canary.category == category)
        and (not tag or tag in canary.tags)
        and (keys is None or canary.key in keys)
    )


def _verdict(position: int, state: StateRow | None, failures: Mapping[int, Failure]) -> Verdict:
    if position in failures or state is None:
        return Verdict.UNKNOWN
    return Verdict.DEGRADED if state.reasons else Verdict.HEALTHY


def named_numbers(names: Sequence[str], vector: bytes) -> dict[str, float | None]:
    """Give the numbers of a stored vector their names."""
    return dict(zip(names, np.frombuffer(vector).tolist(), strict=True))
