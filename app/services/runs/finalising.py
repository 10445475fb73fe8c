"""The end of a run: its verdict, and everything that follows from it, written in one transaction."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from app.domain.model import Canary, Ranking, RunStatus, Verdict
from app.domain.runs.aggregate_vectors import aggregate_vector
from app.domain.runs.document_ids import document_ids_remark
from app.domain.runs.verdicts import remarks, run_verdict, too_few_scored
from app.services.aggregates import failure_summary, probe_summary, run_body, with_embedder
from app.services.alerts import rule_facts, transitions
from app.services.detection import detector_step
from app.services.detection.detector_step import OvertakenError
from app.services.diagnosis.returned_chunks import outdate_returned
from app.services.probing import embedding_canaries
from app.services.probing.embedding_canaries import Watched
from app.services.runs import run_causes
from app.services.runs.findings import find_out
from app.services.runs.plans import Plan
from app.services.runs.staging import Gathered, gather
from app.store.catalog import definitions
from app.store.diagnosis import run_causes as stored_causes
from app.store.engine import Store, to_us
from app.store.runs import queue, recording
from app.store.runs.queue import ClaimedRun, ShardBody

logger = logging.getLogger("coalmine.runs")

_OVERTAKEN: Final = 3
"""How often somebody may choose another baseline while one run ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """What a worker hears of a run it ended."""

    id: int
    check: str
    suite: str
    retriever: str
    status: RunStatus
    verdict: Verdict
    probes: Mapping[str, int]
    latencies: Sequence[float]
    duration_seconds: float
    degraded: int = 0
    """Canaries."""
    notifies: bool = False
    """Whether something may be to deliver."""
    embedder: str | None = None
    """How asking the retriever's embedder for its known texts ended; None = it has none."""


def finalise(
    store: Store,
    plan: Plan,
    answered: Mapping[int, ShardBody],
    watched: Watched | None,
    owner: str,
    clock: Callable[[], datetime],
    *,
    hold: timedelta | None,
) -> EndedRun | None:
    """Find out what the run amounted to and write it; anew where somebody chose another baseline in between."""
    gathered = gather(plan, answered)
    for _ in range(_OVERTAKEN):
        with suppress(OvertakenError):
            return _end(store, plan, gathered, watched, owner, clock, hold=hold)
    return _end(store, plan, gathered, watched, owner, clock, hold=hold)


def _end(
    store: Store,
    plan: Plan,
    gathered: Gathered,
    watched: Watched | None,
    owner: str,
    clock: Callable[[], datetime],
    *,
    hold: timedelta | None,
) -> EndedRun | None:
    """Write what the run amounted to, with everything that follows from it, in one transaction.

    Raises OvertakenError, having written nothing.
    """
    too_few = too_few_scored(scored=gathered.scored, unscored=gathered.unscored, why_unscored=gathered.unscored_detail)
    found = find_out(store, plan, gathered, unknown=bool(too_few or gathered.ended_early))
    found = replace(found, aggregates=with_embedder(found.aggregates, watched.body if watched else None))
    seen = rule_facts.facts_of(
        plan.inputs.yardstick.rules,
        plan.inputs.panel,
        reasons=found.reasons,
        failed=gathered.failures,
        unscored=gathered.unscored_at,
        latencies=gathered.measured_latencies,
        seen=found.watched.row if found.watched else None,
        failure=failure_summary(gathered.failures.values(), found.aggregates.total),
    )
    verdict, reasons = run_verdict(
        found.aggregates,
        plan.inputs.yardstick.rules,
        ended_early=gathered.ended_early,
        too_few_scored=too_few,
        facts=seen,
    )
    reasons += remarks(
        found.aggregates,
        unscored=0 if too_few else gathered.unscored,
        why_unscored=gathered.unscored_detail,
        undated=found.undated,
        lacking=gathered.lacking,
    )
    hint = document_ids_remark(found.aggregates.coverage, _expecting(plan, gathered))
    reasons += [] if hint is None else [hint]
    cause = run_causes.find_cause(store, plan, gathered, found)
    by_a_rule = cause is not None and any(cause.detail and one.startswith(cause.detail) for one in reasons)
    if cause is not None and cause.is_told(plan.run.id) and not by_a_rule:
        reasons.append(cause.reason)
    status = RunStatus.FINISHED if gathered.complete else RunStatus.PARTIAL
    now = clock()
    vector = aggregate_vector(plan.inputs.vector_names, found.aggregates)
    run_id, check_id = plan.run.id, plan.run.check_id
    latencies = gathered.measured_latencies
    failed_at = [(failure.step, failure.outcome) for failure in gathered.failures.values()]
    aggregates = found.aggregates
    body = run_body(plan.inputs.panel, aggregates, found.reasons, gathered.outcomes, latencies, failed_at=failed_at)
    rows = [
        (ranking_id, plan.inputs.version_ids[position], result.match.to_bytes(), result.vector.tobytes())
        for position, result in found.results.items()
        if (ranking_id := gathered.rankings[position]) is not None
    ]
    with store.write() as connection:
        definitions.lock_definition(connection, check_id)
        if not recording.finish_run(
            connection,
            run_id,
            owner,
            status=status,
            verdict=verdict,
            reasons=json.dumps(reasons),
            finished_at=to_us(now),
            index_version=gathered.index_version,
            total=aggregates.total,
            measured=aggregates.measured,
            failed=aggregates.failed,
            undefined=aggregates.undefined,
            degraded=aggregates.degraded,
            degraded_positions=found.degraded_positions(gathered) or None,
            aggregates=vector.tobytes(),
            probes=json.dumps(probe_summary(aggregates.probes, latencies, failed_at)),
            layout_id=plan.vector_layout_id,
        ):
            return None
        recording.save_scores(connection, plan.layout_id, rows)
        recording.change_states(connection, check_id, run_id, closed=found.closed, opened=found.opened)
        outdate_returned(connection, plan, gathered, found.results.keys(), at=to_us(now))
        recording.save_probes(connection, run_id, gathered.latencies.tobytes(), gathered.failures, gathered.unscored_at)
        recording.add_to_rollups(connection, check_id, plan.vector_layout_id, to_us(now), vector)
        if gathered.index_version is not None:
            recording.mark_index_version(connection, check_id, run_id, to_us(now), gathered.index_version)
        recording.save_latest(connection, check_id, run_id, body)
        embedding_canaries.record(connection, run_id, watched)
        if cause is not None:
            stored_causes.save_run_cause(connection, run_id, cause.as_json)
        baseline_id = detector_step.save_detection(connection, found.watched, now=now)
        hold_until = now + hold if hold is not None and aggregates.degraded and verdict is not Verdict.UNKNOWN else None
        notifies = transitions.after_run(connection, check_id, run_id, now=now, hold_until=hold_until)
        detector_step.save_detector(connection, found.watched, baseline_id=baseline_id, now=now)
        queue.drop_shards(connection, run_id)
    return EndedRun(
        id=run_id,
        check=plan.run.check,
        suite=plan.inputs.suite_slug,
        retriever=plan.inputs.retriever.slug,
        status=status,
        verdict=verdict,
        probes=found.aggregates.probes,
        latencies=latencies,
        duration_seconds=max(0.0, (now - plan.started_at).total_seconds()),  # the clock may have been set back
        degraded=aggregates.degraded,
        notifies=notifies,
        embedder=None if watched is None else str(watched.outcome),
    )


def fail(
    store: Store,
    claimed: ClaimedRun,
    owner: str,
    reason: str,
    clock: Callable[[], datetime],
    *,
    last_resort: bool = False,
) -> EndedRun | None:
    """End a run that could not be executed: its verdict is unknown, never healthy.

    As a `last_resort` it ends even where its alerting fails, which may be why it could not be ended before.
    """
    now = clock()
    values: dict[str, Any] = {"status": RunStatus.FAILED, "verdict": Verdict.UNKNOWN, "reasons": json.dumps([reason])}
    with store.write() as connection:
        definitions.lock_definition(connection, claimed.check_id)
        if not recording.finish_run(connection, claimed.id, owner, finished_at=to_us(now), **values):
            return None
        recording.save_latest(connection, claimed.check_id, claimed.id, {})
        notifies = False
        try:
            with connection.begin_nested():
                notifies = transitions.after_run(connection, claimed.check_id, claimed.id, now=now)
        except Exception:
            if not last_resort:
                raise
            logger.exception("bug", extra={"run": claimed.id, "check": claimed.check})  # no_data tells of it in time
        queue.drop_shards(connection, claimed.id)
    return EndedRun(
        id=claimed.id,
        check=claimed.check,
        suite="",
        retriever="",
        status=RunStatus.FAILED,
        verdict=Verdict.UNKNOWN,
        probes={},
        latencies=(),
        duration_seconds=0.0,
        notifies=notifies,
    )


def _expecting(plan: Plan, gathered: Gathered) -> Iterator[tuple[Canary, Ranking]]:
    """Yield the canaries that expect something, each with what was retrieved for it."""
    for place, ranking_id in enumerate(gathered.rankings):
        if (
            ranking_id is not None
            and plan.inputs.panel.expects[place]
            and (ranking := plan.seen.get(ranking_id)) is not None
        ):
            yield plan.inputs.canaries[place], ranking
