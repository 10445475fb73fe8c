"""The end of a run: its verdict, and everything that follows from it, written in one transaction.

Beside it: which states a run changes, which chunks lost their text, and the one cause that explains a whole run.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Final

import numpy as np

from app.alerts.domain.rules import NO_FACTS, RepeatedFailures
from app.alerts.service import transitions
from app.alerts.service.transitions import detector_facts, repeated_failures
from app.answers import store as answers
from app.answers.store import StagedAnswer
from app.base.db.engine import Connection, Store, blocks, to_us
from app.base.db.packed import pack_figures
from app.base.jobs import defer
from app.base.jobs.values import JobKind, NewJob
from app.base.values import EmbedderChange, Outcome, Percentile, Ranking, RunStatus, Verdict
from app.catalog import store as catalog
from app.detection import store as detectors
from app.detection.domain import Change
from app.detection.service import detector_step
from app.detection.service.detector_step import DetectorStep, OvertakenError
from app.detection.service.detectors import EndingRun
from app.detection.store import DetectionRow
from app.diagnosis import store as diagnoses
from app.diagnosis.domain.run_causes import (
    HALF,
    RENAMING,
    SHARE,
    Pair,
    RunCause,
    find_run_cause,
    read_run_cause,
)
from app.diagnosis.domain.run_changes import FEWEST, RunCauseKind
from app.diagnosis.service.reanchoring import outdate_returned
from app.records.domain import RunCounts
from app.records.service.plans import Plan, embedder_finding
from app.records.store import queue, recording, results
from app.records.store.queue import ClaimedRun, ShardBody
from app.records.store.recording import NewState
from app.records.views import probe_summary, run_body
from app.retrievers.domain.probes import latency_summary
from app.retrievers.domain.retrievers import ScorerKind
from app.retrievers.service import findings
from app.retrievers.service.findings import EmbedderRecord
from app.runs.service.staging import Gathered, gather, with_names
from app.scoring.evaluation import MISSING
from app.scoring.measures import Measure
from app.scoring.rankings import ScoredRankings
from app.scoring.runs import (
    HistoryFacts,
    RunInputs,
    RunOutcome,
    RunScores,
    evaluate,
    finds_nothing,
    score,
)
from app.scoring.text_changes import UNCHANGED, ChangedTexts, TextComparison

logger = logging.getLogger("coalmine.runs")

_OVERTAKEN: Final = 3
"""How often somebody may choose another baseline while one run ends."""
_SAVED_AT_ONCE: Final = 1_000
"""Scores: others write in between, and no more rows are in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
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
) -> EndedRun | None:
    """Find out what the run comes to and write it; anew where somebody chose another baseline in between."""
    gathered = gather(store, plan, answered)
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
            recording.save_scores(connection, plan.layout_id, rows)


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
        repeated = repeated_failures(connection, check_id, run_id, inputs.canaries, responses.failures)
        facts = _facts(detection, embedder, repeated)
        cause = find_cause(connection, plan, gathered, scores, detection, facts)
    if cause is not None and cause.is_reportable(run_id):
        facts = replace(facts, cause=cause.reason, cause_detail=cause.detail)
    outcome = evaluate(inputs, responses, facts, scores)
    status = RunStatus.FINISHED if gathered.complete else RunStatus.PARTIAL
    now = clock()
    aggregates = outcome.aggregates
    closed, opened = changed_states(plan, gathered, outcome)
    body = run_body(inputs, responses, outcome)
    summary = probe_summary(aggregates.probes, outcome.latencies, responses.failures.values())
    figures, probes = pack_figures(outcome.vector.tobytes(), summary, aggregates.measured)
    with store.write() as connection:
        catalog.lock_definition(connection, check_id)
        if not recording.finish_run(
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
        recording.change_states(connection, check_id, run_id, closed=closed, opened=opened)
        if responses.rankings:
            changed, places = responses.rankings, inputs.suite.positions
            outdate_returned(connection, check_id, lambda one: changed.get(places.get(one, -1)), at=to_us(now))
        unscored = list(responses.unscored)
        # A re-scoring must judge a maximum of latency as the run did.
        is_limited = any(inputs.canaries[place].max_latency_seconds is not None for place in inputs.panel.timed)
        recording.save_probes(connection, run_id, responses.latencies, responses.failures, unscored, exact=is_limited)
        recording.add_to_rollups(connection, check_id, plan.vector_layout_id, to_us(now), outcome.vector)
        if gathered.index_version is not None:
            recording.mark_index_version(connection, check_id, run_id, to_us(now), gathered.index_version)
        recording.save_latest(connection, check_id, run_id, body)
        findings.save_record(connection, run_id, embedder)
        if cause is not None:
            diagnoses.save_run_cause(connection, run_id, cause.as_json)
        baseline_id = detector_step.save_detection(connection, detection, now=now)
        is_news = aggregates.degraded and outcome.verdict is not Verdict.UNKNOWN
        hold_until = now + hold if hold is not None and is_news else None
        notifies = transitions.after_run(connection, check_id, run_id, now=now, hold_until=hold_until)
        detector_step.save_detector(connection, detection, baseline_id=baseline_id, now=now)
        queue.drop_shards(connection, run_id)
        queue.defer_following(connection, check_id)
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
        if not recording.finish_run(
            connection,
            claimed.id,
            owner,
            status=RunStatus.FAILED,
            verdict=Verdict.UNKNOWN,
            reasons=json.dumps([reason]),
            finished_at=to_us(now),
        ):
            return None
        recording.save_latest(connection, claimed.check_id, claimed.id, {})
        notifies = False
        try:
            with connection.begin_nested():
                notifies = transitions.after_run(connection, claimed.check_id, claimed.id, now=now)
        except Exception:
            if not last_resort:
                raise
            logger.exception("bug", extra={"run": claimed.id, "check": claimed.check})  # no_data reports it in time
        queue.drop_shards(connection, claimed.id)
        queue.defer_following(connection, claimed.check_id)
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

_READ_AT_ONCE = 1_000


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
            stored = results.load_rankings(connection, unread) if unread else {}
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
            whole = recording.whole_rankings(connection, plan.run.check_id, list(missing), without=MISSING)
        references |= {
            missing[canary_id]: ranking_id
            for canary_id, (ranking_id, version_id) in whole.items()
            if version_id == plan.inputs.version_ids[missing[canary_id]]
        }
    return references


MOST_COMPARED: Final = 1_000
"""Canaries; of larger suites that many are compared, spread evenly."""
QUIET_RUNS: Final = 20
"""After so many runs a cause that did no harm is how things are."""
_EMBEDDER = frozenset({EmbedderChange.SWAPPED, EmbedderChange.COLLAPSED, EmbedderChange.TRUNCATED})


def find_cause(
    connection: Connection,
    plan: Plan,
    gathered: Gathered,
    scores: RunScores,
    detection: DetectorStep | None,
    facts: HistoryFacts,
) -> RunCause | None:
    """Recognise the cause of a run that is about to end; None where nothing explains all of it, or it is unknown.

    A run is compared with the last healthy one, before the alarm that is open, else with the one before and, once a
    cause stands, with the run before that cause: it stands until things are as they were, people accept them, or
    nothing fell for `QUIET_RUNS` runs. What is known of the embedder explains more than other vectors do; an index cut
    anew more than its chunks' texts, and texts that were all cut more than anything.
    """
    changed = scores.results
    if detection is None:
        return None
    newest = results.newest_known_id(connection, plan.run.check_id)
    if newest is None:
        return None
    standing = _standing(connection, plan, newest)
    compare = partial(_compared, connection, plan, gathered, newest)
    compared = None
    if standing is not None and standing.kind not in {RunCauseKind.EMBEDDER_CHANGED, RunCauseKind.TEXTS_CHANGED}:
        compared = compare(standing.before_run, since_run=standing.since_run) if changed else standing
        compared = compared and replace(compared, quiet_runs=standing.quiet_runs)
    elif detection.row.open and (changed or detection.row.body.get("change") == Change.OPENED):
        since_run = detection.row.since_run or plan.run.id  # answers may have changed some runs ago
        before_run = results.newest_known_id(connection, plan.run.check_id, before=since_run)
        compared = None if before_run is None else compare(before_run, since_run=since_run)
    elif changed and ((fell := _fell(plan, changed)) or _mostly_changed(plan, changed)):
        compared = compare(newest, since_run=plan.run.id)
        if compared is not None and compared.shape is not None and not fell:
            compared = None  # answers of another shape that lose nothing are no news
    of_embedder = _embedder_cause(facts, standing, plan.run.id, newest)
    cause = of_embedder if compared is None or compared.kind in _OF_MODELS else compared
    cause = cause or compared
    of_texts = _texts_cause(plan, scores, standing, newest)
    if of_texts is not None and (cause is None or _explains_more(of_texts, scores.texts, cause)):
        cause = of_texts
    return None if cause is None else _counted_on(cause, detection.row)


_NEARLY_ALL: Final = 0.8
_OF_MODELS: Final = {RunCauseKind.OTHER_VECTORS, RunCauseKind.RANKING_CHANGED, RunCauseKind.SCORES_CHANGED}


def _standing(connection: Connection, plan: Plan, before_run: int) -> RunCause | None:
    """Read the cause that stood at the run before, unless people have accepted things as they are since."""
    body = diagnoses.run_causes_of(connection, [before_run]).get(before_run)
    if body is None:
        return None
    cause = read_run_cause(body)
    choice = detectors.newest_choice(connection, plan.run.check_id)
    return None if choice is not None and choice.after_run >= cause.since_run else cause


def _counted_on(cause: RunCause, detection: DetectionRow) -> RunCause | None:
    """Count a run in which nothing fell; None where it was one too many."""
    harmful = cause.is_harmful or detection.open
    quiet = 0 if harmful else cause.quiet_runs + 1
    return None if quiet > QUIET_RUNS else replace(cause, quiet_runs=quiet)


def _mostly_changed(plan: Plan, changed: ScoredRankings) -> bool:
    """Whether half of the canaries find something else than they did."""
    return len(_expecting(plan, changed)) >= max(FEWEST, HALF * int(plan.inputs.panel.expects.sum()))


def _fell(plan: Plan, changed: ScoredRankings) -> bool:
    """Whether a tenth of the canaries find less than they did."""
    expecting = _expecting(plan, changed)
    return _fallen(plan, changed, expecting) >= max(FEWEST, SHARE * int(plan.inputs.panel.expects.sum()))


def _expecting(plan: Plan, changed: ScoredRankings) -> list[int]:
    """Return the places of the changed canaries that expect something and had an answer before."""
    return [
        place for place in changed if plan.inputs.panel.expects[place] and plan.inputs.canary_ids[place] in plan.held
    ]


def _fallen(plan: Plan, changed: ScoredRankings, places: Sequence[int]) -> int:
    """Count the canaries whose recall, or recall by id, is lower than it was."""
    deepest = max(
        measure.k or 0
        for measure in plan.inputs.yardstick.measures
        if (measure.k or 0) <= plan.inputs.yardstick.fetch_k
    )
    columns = [
        place
        for place, measure in enumerate(plan.inputs.yardstick.measures)
        if measure in {Measure("R", deepest), Measure("R_id", deepest)}
    ]
    fell = 0
    for place in places:
        held = plan.held[plan.inputs.canary_ids[place]]
        if held.layout_id != plan.layout_id:
            continue
        before, now = np.frombuffer(held.vector)[columns], changed.vector(place)[columns]
        fell += bool((now < before).any())
    return fell


def _compared(
    connection: Connection, plan: Plan, gathered: Gathered, newest: int, before_run: int, *, since_run: int
) -> RunCause | None:
    """Compare what canaries retrieve with what they retrieved in a run, and in the newest one where that is later."""
    places = [
        place
        for place, ranking_id in enumerate(gathered.ranking_ids)
        if ranking_id is not None and plan.inputs.panel.expects[place]
    ]
    places = places[:: -(-len(places) // MOST_COMPARED) or 1]
    then = results.rankings_at(
        connection, plan.run.check_id, before_run, [plan.inputs.canary_ids[place] for place in places]
    )
    both = {place: then[plan.inputs.canary_ids[place]][0] for place in places if plan.inputs.canary_ids[place] in then}
    now = {place: one for place in both if (one := gathered.ranking_ids[place]) is not None}
    earlier: Mapping[int, int] = {}
    if newest > before_run:
        held = results.rankings_at(
            connection, plan.run.check_id, newest, [plan.inputs.canary_ids[place] for place in now]
        )
        earlier = {place: held[one][0] for place in now if (one := plan.inputs.canary_ids[place]) in held}
    rankings = _rankings(connection, plan, {*both.values(), *now.values(), *earlier.values()})
    pairs = [
        Pair(
            canary=plan.inputs.canaries[place],
            before=rankings[both[place]],
            now=rankings[now[place]],
            earlier=rankings[earlier[place]] if place in earlier else None,
        )
        for place in now
    ]
    scorer = plan.inputs.retriever.scorer
    scale = scorer.scale if scorer.kind is ScorerKind.SCORE else None
    return find_run_cause(pairs, k=plan.inputs.yardstick.k, scale=scale, since_run=since_run, before_run=before_run)


def _rankings(connection: Connection, plan: Plan, ranking_ids: Iterable[int]) -> Mapping[int, Ranking]:
    ids = set(ranking_ids)
    in_memory = {ranking_id: plan.rankings[ranking_id] for ranking_id in ids if ranking_id in plan.rankings}
    return in_memory | results.load_rankings(connection, list(ids - in_memory.keys()))


def _texts_cause(plan: Plan, scores: RunScores, standing: RunCause | None, before_run: int) -> RunCause | None:
    """Return that texts changed, in this run or since an earlier one whose loss still stands; else None."""
    texts = scores.texts
    lost = int(scores.tally.lost_texts.sum())
    found = RunCause(
        kind=RunCauseKind.TEXTS_CHANGED,
        since_run=plan.run.id,
        before_run=before_run,
        canaries=len(plan.inputs.panel.watched),
        affected=lost,
        detail=str(texts),
    )
    if lost and standing is not None and standing.kind is RunCauseKind.TEXTS_CHANGED and standing.affected:
        return replace(standing, affected=lost, detail=str(texts) if texts.lost else standing.detail)
    return found if texts.lost or str(texts) else None


def _explains_more(of_texts: RunCause, texts: ChangedTexts, cause: RunCause) -> bool:
    """Whether lost texts explain a run better: not an index cut anew, in which texts are under ids never seen.

    Such an index has other pieces under the same ids, too; where nearly all are but parts of what they were, texts were
    cut.
    """
    if not of_texts.affected or cause.kind is RunCauseKind.EMBEDDER_CHANGED:
        return False
    if texts.damaged >= _NEARLY_ALL:
        return True
    is_recut = cause.kind in RENAMING and (cause.unseen_ids or 0.0) >= SHARE
    return not is_recut and (not texts.compared or texts.damaged >= HALF)


def _embedder_cause(facts: HistoryFacts, standing: RunCause | None, run_id: int, before_run: int) -> RunCause | None:
    if facts.embedder not in _EMBEDDER:
        return None
    same = standing is not None and standing.kind is RunCauseKind.EMBEDDER_CHANGED
    return RunCause(
        kind=RunCauseKind.EMBEDDER_CHANGED,
        since_run=standing.since_run if same and standing is not None else run_id,
        before_run=standing.before_run if same and standing is not None else before_run,
        detail=facts.embedder_reason,
    )
