"""The end of a run: its shards put together, its verdict, and what follows from it, written in one transaction, `_end`.

Scores are saved before that, in transactions of their own; the detector and the cause of the run are only read before
it. Beside it: which states a run changes, which chunks lost their text, and the end of a run that failed.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Final

import numpy as np

from app.alerts.domain.rules import NO_FACTS, RepeatedFailures
from app.alerts.service import transitions
from app.alerts.service.transitions import detector_facts, repeated_failures, with_recall_label
from app.answers.store import answer_rows as answers
from app.answers.store.answer_rows import StagedAnswer
from app.base.db.engine import Connection, Store, blocks, to_us
from app.base.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.values import Outcome, Percentile, Ranking, RunStatus, Value, Verdict, field, replace
from app.catalog import store as catalog
from app.detection.service import detector_step
from app.detection.service.detector_step import DetectorStep, OvertakenError
from app.detection.service.detectors import EndingRun
from app.diagnosis import store as diagnoses
from app.diagnosis.domain.run_causes import RENAMING, RunCause, with_index
from app.diagnosis.service.reanchoring import outdate_returned
from app.diagnosis.service.run_causes import find_cause
from app.index_facts import store as index_rows
from app.index_facts.domain import Fact, with_sentences
from app.index_facts.service import known_of_run
from app.records.domain import probe_summary, run_body
from app.records.service.past_runs import embedder_finding
from app.records.service.plans import Plan
from app.records.store import open_runs, ranking_rows, run_endings, series, state_rows
from app.records.store.encodings import pack_figures
from app.records.store.open_runs import ClaimedRun, Failure, ShardBody
from app.records.store.run_endings import NewState
from app.records.store.state_rows import OpenState
from app.records.views import RunCounts
from app.retrievers.domain.probes import ENDED_FIRST, latency_summary
from app.retrievers.service import embedders
from app.retrievers.service.embedders import EmbedderRecord
from app.scoring.evaluation import MISSING, named_by
from app.scoring.rankings import missing_fields
from app.scoring.run_inputs import RunInputs
from app.scoring.run_outcomes import (
    HistoryFacts,
    RunOutcome,
    RunResponses,
    RunScores,
    evaluate,
    finds_nothing,
    missing_relevance,
    score,
    slowing_remarks,
)
from app.scoring.text_changes import UNCHANGED, ChangedTexts, TextComparison
from app.scoring.verdicts import cache_remarks

logger = logging.getLogger("coalmine.runs")

_OVERTAKEN: Final = 3
"""How often somebody may choose another baseline while one run ends."""
_SAVED_AT_ONCE: Final = 1_000
"""Scores: others write in between, and no more rows are in memory."""
_READ_AT_ONCE: Final = 1_000
"""Rankings of a run that are read back together."""


class EndedRun(Value):
    """Summary of an ended run, for metrics, logs and whoever works next."""

    id: int
    check_id: int
    check: str
    suite: str = ""
    retriever: str = ""
    status: RunStatus
    verdict: Verdict
    probes: Mapping[str, int] = field(default_factory=dict)
    latencies: Sequence[float] = ()
    duration_seconds: float = 0.0
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
    embedder: EmbedderRecord | None,
    owner: str,
    clock: Callable[[], datetime],
    *,
    hold: timedelta | None,
    facts: Sequence[Fact] = (),
) -> EndedRun | None:
    """Find out what the run comes to and write it; anew where somebody chose another baseline in between.

    `facts`: those of the index, which were asked for beside its answers.
    """
    gathered = replace(gather(store, plan, answered), facts=facts)
    scores = score(plan.inputs, gathered.responses)
    if finds_nothing(scores, gathered.responses, len(plan.inputs.canaries)):
        gathered = with_names(store, plan, gathered)
    scores = replace(scores, texts=find_text_losses(store, plan, gathered, scores))
    _save_scores(store, plan, gathered, scores)
    end = partial(_end, store, plan, gathered, scores, embedder, owner, clock, hold=hold)
    for _ in range(_OVERTAKEN):
        with suppress(OvertakenError):
            return end()
    return end()


def ended_early(staged: Mapping[int, ShardBody]) -> str | None:
    """Reason why no more requests are to be sent though answers are missing; None = they may be sent."""
    return next((body.ended_early for body in staged.values() if body.ended_early is not None), None)


class Gathered(Value):
    """A run's answers put together, by position."""

    ranking_ids: Sequence[int | None]
    """The stored rankings; None = not measured."""
    responses: RunResponses
    index_version: str | None
    complete: bool
    """Whether every probe was attempted."""
    generated: Mapping[int, str]
    """Answers that came with the hits, by position."""
    facts: Sequence[Fact] = ()
    """Facts of the index."""


def gather(store: Store, plan: Plan, answered: Mapping[int, ShardBody]) -> Gathered:
    """Put the staged shards together; a probe never sent is `skipped`, what has not changed is not judged again."""
    size = len(plan.inputs.canaries)
    ranking_ids: list[int | None] = [None] * size
    latencies = np.zeros(size, dtype=np.float16)
    why = ended_early(answered)
    skipped = Failure(outcome=str(Outcome.SKIPPED), detail=why or ENDED_FIRST)
    failures: dict[int, Failure] = {}
    index_version = plan.index_version
    for number in range(plan.shard_count):
        positions = plan.positions(number)
        body = answered.get(number)
        if body is None:
            failures.update((position, skipped) for position in positions)
            continue
        ranking_ids[positions.start : positions.stop] = body.rankings
        latencies[positions.start : positions.stop] = np.frombuffer(body.latencies, dtype=np.float16)
        failures.update(body.failures)
        index_version = body.index_version or index_version
    present_fields = {field for body in answered.values() for field in body.present}
    too_few, remarks = missing_relevance(
        size,
        scored=sum(body.scored for body in answered.values()),
        unscored=sum(body.unscored for body in answered.values()),
        why=next((body.unscored_detail for body in answered.values() if body.unscored_detail), None),
        lacking_fields=missing_fields(plan.inputs.retriever.response, present_fields),
    )
    remarks += cache_remarks(
        size - sum(failure.outcome == str(Outcome.SKIPPED) for failure in failures.values()),
        cached=sum(body.cached for body in answered.values()),
        sign=next((body.cache_sign for body in answered.values() if body.cache_sign), None),
    )
    changed, kept, aged = _sorted_out(plan, ranking_ids)
    responses = RunResponses(
        started_at=plan.started_at,
        rankings=StoredRankings(store, plan, changed),
        kept=kept,
        aged=StoredRankings(store, plan, aged),
        latencies=latencies,
        failures=dict(sorted(failures.items())),  # whatever came first: of two equally common ones the first is named
        unscored=sorted(position for body in answered.values() for position in body.unscored_at),
        too_few_scored=too_few,
        remarks=(*remarks, *slowing_remarks(body.slowing for body in answered.values())),
        ended_early=why,
    )
    return Gathered(
        ranking_ids=ranking_ids,
        responses=responses,
        index_version=index_version,
        complete=len(answered) == plan.shard_count and why is None,
        generated={position: text for body in answered.values() for position, text in body.generated.items()},
    )


def with_names(store: Store, plan: Plan, gathered: Gathered) -> Gathered:
    """Return the answers with what explains that nothing was found, also of those that are not judged again."""
    places, canaries = gathered.responses.kept.keys(), plan.inputs.canaries
    ranking_ids = {place: ranking_id for place in places if (ranking_id := gathered.ranking_ids[place]) is not None}
    names = {
        place: named_by(canaries[place], ranking) for place, ranking in StoredRankings(store, plan, ranking_ids).items()
    }
    return replace(gathered, responses=replace(gathered.responses, named_by=names))


def _sorted_out(
    plan: Plan, ranking_ids: Sequence[int | None]
) -> tuple[dict[int, int], dict[int, OpenState], dict[int, int]]:
    """Return the rankings that changed, the states that still hold and, where age matters, the rankings of those."""
    changed: dict[int, int] = {}
    kept: dict[int, OpenState] = {}
    canary_ids = plan.inputs.canary_ids
    for position, ranking_id in enumerate(ranking_ids):
        if ranking_id is None:
            continue
        state = plan.held.get(canary_ids[position])
        if state is not None and plan.still_holds(state, ranking_id, position):
            kept[position] = state
        else:
            changed[position] = ranking_id
    return changed, kept, {place: kept[place].ranking_id for place in plan.inputs.panel.aged if place in kept}


class StoredRankings(Mapping[int, Ranking]):
    """Rankings of a run by position: those the plan keeps, the others read from the store in blocks when iterated."""

    def __init__(self, store: Store, plan: Plan, ranking_ids: Mapping[int, int]) -> None:
        """Read nothing yet."""
        self._store = store
        self._plan = plan
        self._ranking_ids = ranking_ids
        self._block: Mapping[int, Ranking] = {}
        """Of those last read, by id."""

    def __getitem__(self, position: int) -> Ranking:
        """Return a ranking, read alone unless it is in memory."""
        ranking_id = self._ranking_ids[position]
        kept = self._plan.rankings.get(ranking_id, self._block.get(ranking_id))
        return self._read([ranking_id])[ranking_id] if kept is None else kept

    def __iter__(self) -> Iterator[int]:
        """Iterate over the positions; the rankings of those that follow are read beforehand."""
        for block in blocks(list(self._ranking_ids), _READ_AT_ONCE):
            unread = [one for place in block if (one := self._ranking_ids[place]) not in self._plan.rankings]
            self._block = self._read(unread) if unread else {}
            yield from block
        self._block = {}

    def __len__(self) -> int:
        """Count the rankings."""
        return len(self._ranking_ids)

    def _read(self, ranking_ids: Sequence[int]) -> dict[int, Ranking]:
        with self._store.read() as connection:
            return ranking_rows.load_rankings(connection, ranking_ids)


def _save_scores(store: Store, plan: Plan, gathered: Gathered, scores: RunScores) -> None:
    """Write what changed rankings scored, which is true whatever becomes of the run.

    Before the transaction that ends the run, which is the shorter for it. Rankings that shards refer to are not pruned.
    """
    versions, results = plan.inputs.version_ids, scores.results
    for block in blocks(list(results), _SAVED_AT_ONCE):
        rows = [
            (ranking_id, versions[position], results.match_bytes(position), results.vector(position).tobytes())
            for position in block
            if (ranking_id := gathered.ranking_ids[position]) is not None
        ]
        with store.write() as connection:
            ranking_rows.save_scores(connection, plan.layout_id, rows)


def _end(
    store: Store,
    plan: Plan,
    gathered: Gathered,
    scores: RunScores,
    embedder: EmbedderRecord | None,
    owner: str,
    clock: Callable[[], datetime],
    *,
    hold: timedelta | None,
) -> EndedRun | None:
    """Write what the run comes to, with everything that follows from it, in one transaction.

    Raises OvertakenError, having written nothing.
    """
    inputs, responses = plan.inputs, gathered.responses
    run_id, check_id = plan.run.id, plan.run.check_id
    with store.read() as connection:
        detection = _run_detector(connection, plan, gathered, scores)
        repeated = repeated_failures(connection, check_id, run_id, inputs.suite.keys, responses.failures)
        facts = _facts(detection, embedder, repeated)
        index = known_of_run(connection, check_id, run_id, gathered.facts)
        facts = replace(facts, rule_facts=replace(with_recall_label(connection, facts.rule_facts, inputs), index=index))
        outcome = evaluate(inputs, responses, facts, scores)
        cause = find_cause(connection, plan, gathered.ranking_ids, scores, detection, facts, is_bad=outcome.is_worse)
    cause = with_index(cause, index or ())
    if cause is not None and cause.is_reportable(run_id):
        outcome = outcome.with_cause(cause.reason, cause.detail)
    status = RunStatus.FINISHED if gathered.complete else RunStatus.PARTIAL
    now = clock()
    aggregates = outcome.aggregates
    closed, opened = changed_states(plan, gathered, outcome)
    body = run_body(inputs, responses, outcome)
    summary = probe_summary(aggregates.probes, outcome.latencies, responses.failures.values())
    figures, probes = pack_figures(outcome.vector.tobytes(), summary, aggregates.measured)
    with store.write() as connection:
        catalog.lock_definition(connection, check_id)
        if not run_endings.finish_run(
            connection,
            run_id,
            owner,
            status=status,
            verdict=outcome.verdict,
            reasons=json.dumps(outcome.reasons),
            finished_at=to_us(now),
            index_version=gathered.index_version,
            **{name: getattr(aggregates, name) for name in RunCounts.__annotations__},
            degraded_positions=outcome.degraded.astype("<u4").tobytes() or None,
            figures=figures,
            probes=json.dumps(probes) if probes else None,
            layout_id=plan.vector_layout_id,
        ):
            return None
        run_endings.change_states(connection, check_id, run_id, closed=closed, opened=opened)
        if responses.rankings:
            changed, places = responses.rankings, inputs.suite.positions
            outdate_returned(connection, check_id, lambda one: changed.get(places.get(one, -1)), at=to_us(now))
        unscored = list(responses.unscored)
        # A re-scoring must judge a maximum of latency as the run did.
        is_limited = bool(inputs.panel.limited)
        run_endings.save_probes(connection, run_id, responses.latencies, responses.failures, unscored, exact=is_limited)
        series.add_to_rollups(connection, check_id, plan.vector_layout_id, to_us(now), outcome.vector)
        if gathered.index_version is not None:
            run_endings.mark_index_version(connection, check_id, run_id, to_us(now), gathered.index_version)
        run_endings.save_latest(connection, check_id, run_id, body)
        embedders.save_record(connection, run_id, embedder)
        index_rows.save_facts(connection, check_id, run_id, with_sentences(index or ()))
        if cause is not None:
            diagnoses.save_run_cause(connection, run_id, cause.as_json)
        baseline_id = detector_step.save_detection(connection, detection, now=now)
        is_news = aggregates.degraded and outcome.verdict is not Verdict.UNKNOWN
        hold_until = now + hold if hold is not None and is_news else None
        notifies = transitions.after_run(
            connection, check_id, run_id, now=now, hold_until=hold_until, has_facts=bool(index)
        )
        detector_step.save_detector(connection, detection, baseline_id=baseline_id, now=now)
        open_runs.drop_shards(connection, run_id)
        open_runs.defer_following(connection, check_id)
        if hold is not None and _needs_diagnosis(run_id, outcome, cause):
            defer(connection, [NewJob(JobKind.DIAGNOSIS, run_id, lock=f"diagnosis:{inputs.retriever.slug}")])
        if inputs.answer_measures and outcome.verdict is not Verdict.UNKNOWN:
            _defer_answers(connection, run_id, inputs, gathered)
    return EndedRun(
        id=run_id,
        check_id=check_id,
        check=plan.run.check,
        suite=inputs.suite_slug,
        retriever=inputs.retriever.slug,
        status=status,
        verdict=outcome.verdict,
        probes=aggregates.probes,
        latencies=outcome.latencies,
        duration_seconds=max(0.0, (now - plan.started_at).total_seconds()),  # the clock may have been set back
        degraded=aggregates.degraded,
        notifies=notifies,
        embedder=None if embedder is None else str(embedder.outcome),
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
    with store.write() as connection:
        catalog.lock_definition(connection, claimed.check_id)
        if not run_endings.finish_run(
            connection,
            claimed.id,
            owner,
            status=RunStatus.FAILED,
            verdict=Verdict.UNKNOWN,
            reasons=json.dumps([reason]),
            finished_at=to_us(now),
        ):
            return None
        run_endings.save_latest(connection, claimed.check_id, claimed.id, {})
        notifies = False
        try:
            with connection.begin_nested():
                notifies = transitions.after_run(connection, claimed.check_id, claimed.id, now=now)
        except Exception:
            if not last_resort:
                raise
            logger.exception("bug", extra={"run": claimed.id, "check": claimed.check})  # no_data reports it in time
        open_runs.drop_shards(connection, claimed.id)
        open_runs.defer_following(connection, claimed.check_id)
    return EndedRun(
        id=claimed.id,
        check_id=claimed.check_id,
        check=claimed.check,
        status=RunStatus.FAILED,
        verdict=Verdict.UNKNOWN,
        notifies=notifies,
    )


def _defer_answers(connection: Connection, run_id: int, inputs: RunInputs, gathered: Gathered) -> None:
    """Have the generated answers of a run judged. A judge has one job at a time, by which its budget is counted."""
    came = {place: StagedAnswer(text=text, outcome=Outcome.OK) for place, text in gathered.generated.items()}
    answers.expect_answers(connection, run_id)
    answers.stage_answers(connection, run_id, came)
    lock = f"retriever-answers:{inputs.retriever.slug}" if inputs.judge is None else f"judge:{inputs.judge}"
    defer(connection, [NewJob(JobKind.ANSWERS, run_id, lock=lock)])


def _needs_diagnosis(run_id: int, outcome: RunOutcome, cause: RunCause | None) -> bool:
    """Whether a run has degraded canaries or renamed chunks to diagnose, and its retriever answered."""
    renamed = cause is not None and cause.is_reportable(run_id) and cause.kind in RENAMING
    return outcome.verdict is not Verdict.UNKNOWN and (bool(outcome.aggregates.degraded) or renamed)


def _run_detector(connection: Connection, plan: Plan, gathered: Gathered, scores: RunScores) -> DetectorStep | None:
    """Return what the detector makes of a run that measured enough; None of one that is unknown."""
    if scores.unknown:
        return None
    run = EndingRun(
        id=plan.run.id,
        check_id=plan.run.check_id,
        inputs=plan.inputs,
        tally=scores.tally,
        ranking_ids=gathered.ranking_ids,
        held_since=partial(_held_since, plan, gathered),
        index_version=gathered.index_version,
        median_latency=latency_summary(gathered.responses.measured_latencies)[Percentile.P50],
    )
    return detector_step.run_detector(connection, run)


def _held_since(plan: Plan, gathered: Gathered, position: int) -> int | None:
    """Return the run with which the ranking of a position came; None = with this one."""
    state = plan.held[plan.inputs.canary_ids[position]] if position in gathered.responses.kept else None
    return None if state is None else state.first_run


def _facts(
    detection: DetectorStep | None, embedder: EmbedderRecord | None, repeated: RepeatedFailures | None
) -> HistoryFacts:
    change, reason = embedder_finding(embedder.body if embedder is not None else None)
    facts = NO_FACTS if detection is None else detector_facts(detection.row)
    return HistoryFacts(
        rule_facts=replace(facts, repeated=repeated),
        regressed=detection.regressed if detection is not None else None,
        embedder=change,
        embedder_reason=reason,
    )


def changed_states(plan: Plan, gathered: Gathered, outcome: RunOutcome) -> tuple[list[int], list[NewState]]:
    """Return the ids of the states that end, and the states that begin.

    Those of changed results, of results that were kept but mean something else by now, and of canaries that left the
    suite.
    """
    canary_ids = set(plan.inputs.canary_ids)
    closed = [state.id for canary_id, state in plan.held.items() if canary_id not in canary_ids]
    opened: list[NewState] = []
    reasons = outcome.lasting_reasons.tolist()
    top_scores = {position: outcome.results.top_score(position) for position in outcome.results}
    kept = gathered.responses.kept.items()
    top_scores |= {position: state.top_score for position, state in kept if state.reasons != reasons[position]}
    for position, top_score in top_scores.items():
        ranking_id = gathered.ranking_ids[position]
        assert ranking_id is not None  # noqa: S101 - only what was measured has a result or is kept
        state = NewState(
            canary_id=plan.inputs.canary_ids[position],
            canary_version_id=plan.inputs.version_ids[position],
            ranking_id=ranking_id,
            layout_id=plan.layout_id,
            reasons=reasons[position],
            top_score=top_score,
        )
        before = plan.held.get(state.canary_id)
        if before is not None and _SAID(before) == _SAID(state):
            continue
        opened.append(state)
        if before is not None:
            closed.append(before.id)
    return closed, opened


_SAID = attrgetter("canary_version_id", "ranking_id", "layout_id", "reasons", "top_score")
"""What a state says of a canary."""


def find_text_losses(store: Store, plan: Plan, gathered: Gathered, scores: RunScores) -> ChangedTexts:
    """Return how the texts of the same chunks changed; canaries that lose by it become `missing`.

    Each is compared with the newest ranking that was not missing, of the same version of the canary: an edited canary
    is judged anew. Nothing is known of a retriever without texts.
    """
    if plan.inputs.retriever.response.text is None or not gathered.responses.rankings:
        return UNCHANGED
    comparison, k = TextComparison(), plan.inputs.yardstick.k
    places = iter([place for place in gathered.responses.rankings if plan.inputs.panel.expects[place]])
    while block := list(islice(places, _READ_AT_ONCE)):
        references = _references(store, plan, block)
        unread = sorted(set(references.values()) - plan.rankings.keys())
        with store.read() as connection:
            stored = ranking_rows.load_rankings(connection, unread) if unread else {}
        for place, ranking_id in references.items():
            before = stored.get(ranking_id) or plan.rankings.get(ranking_id)
            if before is not None:
                now, match = gathered.responses.rankings[place], scores.results[place].match
                comparison.add(place, plan.inputs.panel.prepared(place), match, before, now, k=k)
    texts = comparison.finish()
    scores.tally.add_lost_texts(texts.lost)
    return texts


def _references(store: Store, plan: Plan, places: Sequence[int]) -> dict[int, int]:
    """Return the rankings to compare with, by position."""
    references: dict[int, int] = {}
    missing: dict[int, int] = {}
    for place in places:
        canary_id, version_id = plan.inputs.canary_ids[place], plan.inputs.version_ids[place]
        held = plan.held.get(canary_id)
        if held is None or held.canary_version_id != version_id:
            continue
        if held.reasons & MISSING:
            missing[canary_id] = place
        else:
            references[place] = held.ranking_id
    if missing:
        with store.read() as connection:
            whole = state_rows.whole_rankings(connection, plan.run.check_id, list(missing))
        references |= {
            missing[canary_id]: ranking_id
            for canary_id, (ranking_id, version_id) in whole.items()
            if version_id == plan.inputs.version_ids[missing[canary_id]]
        }
    return references
