"""The one cause that explains a whole run, recognised as the run ends from what it and earlier runs retrieve.

Which cause a comparison shows is decided in `domain.run_causes`.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.base.db.engine import Connection
from app.base.values import EmbedderChange, Ranking, RunCauseKind, Verdict, replace
from app.catalog.service.versions import load_suite
from app.detection import store as detector_rows
from app.detection.domain import Change
from app.detection.service.detector_step import DetectorStep
from app.diagnosis import store as diagnoses
from app.diagnosis.domain.cases import FEWEST, MAJORITY
from app.diagnosis.domain.run_causes import (
    SHARE,
    Basis,
    RankingPair,
    RunCause,
    comparison_basis,
    find_run_cause,
    prevailing_cause,
    read_run_cause,
)
from app.records.service.past_runs import asked_retriever
from app.records.service.plans import Plan
from app.records.store import ranking_rows, run_rows, state_rows
from app.retrievers.domain.retrievers import ScorerKind
from app.scoring.measures import Measure
from app.scoring.run_outcomes import HistoryFacts, RunScores, ScoredRankings

MOST_COMPARED: Final = 1_000
"""Canaries; of larger suites that many are compared, spread evenly."""
_EMBEDDER = frozenset({EmbedderChange.SWAPPED, EmbedderChange.COLLAPSED, EmbedderChange.TRUNCATED})


def find_cause(
    connection: Connection,
    plan: Plan,
    ranking_ids: Sequence[int | None],
    scores: RunScores,
    detection: DetectorStep | None,
    facts: HistoryFacts,
    *,
    is_bad: bool,
) -> RunCause | None:
    """Recognise the cause of a run that is about to end; None where nothing explains all of it, or it is unknown.

    `ranking_ids`: of what its canaries found, by position; None = not measured. `is_bad`: whether a rule about what
    canaries find is broken.
    A run is compared with the last healthy one, before the alarm that is open, else with the one before and, once a
    cause stands, with the run before that cause: it stands until things are as they were, people accept them, or
    neither the detector nor a rule minded it for `QUIET_RUNS` runs. What is known of the embedder explains more than
    other vectors do; an index cut anew more than its chunks' texts, and texts that were all cut more than anything.
    """
    if detection is None:
        return None
    newest = run_rows.newest_known_id(connection, plan.run.check_id)
    if newest is None:
        return None
    standing = _standing(connection, plan, newest)
    broke = is_bad and _was_healthy(connection, newest)
    compared = _compared_cause(connection, plan, ranking_ids, scores.results, detection, standing, newest, broke=broke)
    cause = prevailing_cause(
        compared,
        of_embedder=_embedder_cause(facts, standing, plan.run.id, newest),
        of_texts=_texts_cause(plan, scores, standing, newest),
        texts=scores.texts,
        named=detection.row.body.get("culprits", {}).get("total", 0),
        is_alarm=detection.row.open,
    )
    if cause is None:
        return None
    losing = _losing(connection, plan, ranking_ids, scores.results, cause.before_run)
    return cause.counted_on(losing, is_alarm=detection.row.open, is_bad=is_bad)


def _compared_cause(
    connection: Connection,
    plan: Plan,
    ranking_ids: Sequence[int | None],
    changed: ScoredRankings,
    detection: DetectorStep,
    standing: RunCause | None,
    newest: int,
    *,
    broke: bool,
) -> RunCause | None:
    """Return the cause that shows where answers are compared with earlier ones; None = none, or not compared.

    `broke`: whether a rule about what canaries find is broken that was not in the run before.
    """
    fell = bool(changed) and (broke or _fell(plan, changed))
    has_opened = detection.row.body.get("change") == Change.OPENED
    basis = comparison_basis(
        standing,
        is_changed=bool(changed),
        is_alarm=detection.row.open,
        has_opened=has_opened,
        is_widespread=fell or (bool(changed) and _mostly_changed(plan, changed)),
    )
    compare = partial(_compared, connection, plan, ranking_ids, newest)

    def since_alarm() -> RunCause | None:
        since_run = detection.row.since_run or plan.run.id  # answers may have changed some runs ago
        before_run = run_rows.newest_known_id(connection, plan.run.check_id, before=since_run)
        return None if before_run is None else compare(before_run, since_run=since_run)

    if basis is Basis.STANDING and standing is not None:
        is_calm = not changed and standing.kind is RunCauseKind.REPLICAS_DIFFER  # of which some came in turn
        compared = compare(standing.before_run, since_run=standing.since_run) if changed or is_calm else standing
        is_other = compared is not None and compared.kind is not standing.kind
        follows = is_other and (fell or _mostly_changed(plan, changed))  # another fault joins it, or comes after it
        later = None
        if standing.did_no_harm and (follows or has_opened):  # that is how things were when this came
            later = since_alarm() if has_opened else compare(newest, since_run=plan.run.id)
        if compared is None or later is not None:
            return later
        if follows or (is_calm and is_other):
            return replace(compared, since_run=plan.run.id if follows else newest)
        return replace(compared, quiet_runs=standing.quiet_runs)
    if basis is Basis.ALARM:
        return since_alarm()
    if basis is Basis.NEWEST:
        compared = compare(newest, since_run=plan.run.id)
        # Answers of another shape that lose nothing are no news.
        return None if compared is not None and compared.shape is not None and not fell else compared
    return None


def _was_healthy(connection: Connection, run_id: int) -> bool:
    run = run_rows.find_run(connection, run_id)
    return run is not None and run.verdict == Verdict.HEALTHY


def _standing(connection: Connection, plan: Plan, before_run: int) -> RunCause | None:
    """Read the cause that stood at the run before, unless people have accepted things as they are since."""
    body = diagnoses.run_causes_of(connection, [before_run]).get(before_run)
    if body is None:
        return None
    cause = read_run_cause(body)
    choice = detector_rows.newest_choice(connection, plan.run.check_id)
    return None if choice is not None and choice.after_run >= cause.since_run else cause


def _mostly_changed(plan: Plan, changed: ScoredRankings) -> bool:
    """Whether half of the canaries find something else than they did."""
    return len(_expecting(plan, changed)) >= max(FEWEST, MAJORITY * int(plan.inputs.panel.expects.sum()))


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
    columns = _recall_columns(plan)
    fell = 0
    for place in places:
        held = plan.held[plan.inputs.canary_ids[place]]
        if held.layout_id == plan.layout_id:
            fell += _finds_less(changed.vector(place), held.vector, columns)
    return fell


def _recall_columns(plan: Plan) -> Sequence[int]:
    """Return the places of recall, and of recall by id, at the deepest rank among the measures."""
    yardstick = plan.inputs.yardstick
    deepest = max(measure.k or 0 for measure in yardstick.measures if (measure.k or 0) <= yardstick.fetch_k)
    recalls = {Measure("R", deepest), Measure("R_id", deepest)}
    return [place for place, measure in enumerate(yardstick.measures) if measure in recalls]


def _finds_less(now: NDArray[np.float64], before: bytes, columns: Sequence[int]) -> bool:
    return bool((now[columns] < np.frombuffer(before)[columns]).any())


def _losing(
    connection: Connection,
    plan: Plan,
    ranking_ids: Sequence[int | None],
    changed: ScoredRankings,
    before_run: int,
) -> int:
    """Count the canaries, a sample of large suites, whose recall is lower than in a run, as they were judged then."""
    ids = plan.inputs.canary_ids
    places: Sequence[int] = [
        place
        for place, ranking_id in enumerate(ranking_ids)
        if ranking_id is not None and plan.inputs.panel.expects[place] and (place in changed or ids[place] in plan.held)
    ]
    places = _sample(places)
    then = state_rows.vectors_at(connection, plan.run.check_id, before_run, [ids[place] for place in places])
    columns = _recall_columns(plan)
    fell = 0
    for place in places:
        version, layout, before = then.get(ids[place], (0, 0, b""))
        if (version, layout) != (plan.inputs.version_ids[place], plan.layout_id):
            continue
        now = changed.vector(place) if place in changed else np.frombuffer(plan.held[ids[place]].vector)
        fell += _finds_less(now, before, columns)
    return fell


def _sample(places: Sequence[int]) -> Sequence[int]:
    return places[:: -(-len(places) // MOST_COMPARED) or 1]


def _compared(
    connection: Connection,
    plan: Plan,
    ranking_ids: Sequence[int | None],
    newest: int,
    before_run: int,
    *,
    since_run: int,
) -> RunCause | None:
    """Compare what canaries retrieve with what they retrieved in a run, and in the newest one where that is later.

    None where the check asked another retriever then: that explains all. Canaries that asked something else then, or in
    the newest run, are left out: their answers were of another question.
    """
    if asked_retriever(connection, before_run) != plan.inputs.retriever.slug:
        return None
    asked = [_queries(connection, plan, one) for one in dict.fromkeys((before_run, newest))]
    places: Sequence[int] = [
        place
        for place, ranking_id in enumerate(ranking_ids)
        if ranking_id is not None
        and plan.inputs.panel.expects[place]
        and all(
            of.get(plan.inputs.canary_ids[place]) == plan.inputs.canaries[place].query for of in asked if of is not None
        )
    ]
    places = _sample(places)
    then = state_rows.rankings_at(
        connection, plan.run.check_id, before_run, [plan.inputs.canary_ids[place] for place in places]
    )
    both = {place: then[plan.inputs.canary_ids[place]][0] for place in places if plan.inputs.canary_ids[place] in then}
    now = {place: one for place in both if (one := ranking_ids[place]) is not None}
    earlier: Mapping[int, int] = {}
    if newest > before_run:
        held = state_rows.rankings_at(
            connection, plan.run.check_id, newest, [plan.inputs.canary_ids[place] for place in now]
        )
        earlier = {place: held[one][0] for place in now if (one := plan.inputs.canary_ids[place]) in held}
    rankings = _rankings(connection, plan, {*both.values(), *now.values(), *earlier.values()})
    pairs = [
        RankingPair(
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


def _queries(connection: Connection, plan: Plan, run_id: int) -> Mapping[int, str] | None:
    """Return what each canary asked in an earlier run; None where all asked as now."""
    run = run_rows.find_run(connection, run_id)
    if run is None or run.suite_version_id is None:
        return None
    suite = load_suite(connection, run.suite_version_id)
    if suite.version_ids == plan.inputs.version_ids:
        return None
    return {one.canary_id: one.canary.query for one in suite.members}


def _rankings(connection: Connection, plan: Plan, ranking_ids: Iterable[int]) -> Mapping[int, Ranking]:
    ids = set(ranking_ids)
    in_memory = {ranking_id: plan.rankings[ranking_id] for ranking_id in ids if ranking_id in plan.rankings}
    return in_memory | ranking_rows.load_rankings(connection, list(ids - in_memory.keys()))


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
