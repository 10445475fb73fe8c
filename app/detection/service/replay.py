"""A check's detector, led over the check's stored runs once more: the same numbers as when the runs ended.

Nothing is written. What only the moment knew is taken from what was stored: which alerts stood, and what people chose.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.base.db.engine import Connection, Store
from app.catalog.service.references import find_check
from app.catalog.service.snapshots import load_inputs
from app.detection import store as rows
from app.detection.domain.sentences import OVERLAP_DEPTH, score_drift, top_overlap
from app.detection.domain.values import Observation, Reading
from app.detection.domain.views import Action, DriftKind, StoredDrift
from app.detection.service.detectors import (
    Detector,
    DetectorMeasures,
    MeasuredRun,
    advance,
    answer_fingerprints,
    close_of,
    learn_on,
    lost_and_quality,
)
from app.detection.store import ChoiceRow, DetectionRow, Frozen, Head, RefusalRow, Span
from app.records.store.recording import read_state_spans
from app.scoring.evaluation import Panel
from app.scoring.runs import RunInputs

_BLOCK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRun:
    """What the detector says of one run, and what it said when the run ended."""

    run_id: int
    reading: Reading
    culprits: tuple[str, ...]
    """Keys of the canaries named."""
    learned: bool
    """A baseline was learned after this run."""
    stored: DetectionRow | None
    """None = nothing is stored: the run is older than detectors are."""


def replay_check(
    store: Store, slug: str, *, moved: Callable[[int, int], None] = lambda _done, _total: None
) -> list[ReplayedRun]:
    """Run the detector of a check over its stored runs, oldest first; `moved` is called with (done, total).

    It begins with the first run that is still there and that a detector has seen, or where none has with the first
    that measured anything. Where older runs have been pruned it therefore warms up anew. Raises NotFoundError.
    """
    replayed: list[ReplayedRun] = []
    with store.read() as connection:
        check = find_check(connection, slug)
        stored = {row.run_id: row for row in rows.all_detections(connection, check.id)}
        runs = rows.frozen_runs(connection, check.id, since=min(stored, default=0))
        runs = [run for run in runs if run.run_id in stored or not stored]
        trail = _Trail(
            stored=stored,
            choices=rows.list_choices(connection, check.id)[::-1],
            refusals=rows.list_refusals(connection, check.id),
        )
        for block in _blocks(runs):
            for inputs, observed in _measured_runs(connection, check.id, block):
                replayed.append(trail.follow(connection, inputs, observed))
                moved(len(replayed), len(runs))
    return replayed


def _blocks(runs: Sequence[Frozen]) -> Iterator[list[Frozen]]:
    """Cut runs into pieces that worked with the same definitions, none of them long."""
    for _, alike in groupby(runs, key=lambda run: run.versions[:2]):
        piece = list(alike)
        for start in range(0, len(piece), _BLOCK):
            yield piece[start : start + _BLOCK]


def _measured_runs(
    connection: Connection, check_id: int, runs: Sequence[Frozen]
) -> Iterator[tuple[RunInputs, MeasuredRun]]:
    """Read what was observed in runs that worked with the same definitions, whatever people chose by then."""
    inputs = load_inputs(connection, runs[0].versions)
    measures = DetectorMeasures.of(inputs.yardstick)
    canary_ids = [inputs.canary_ids[place] for place in inputs.panel.watched.tolist()]
    marks = rows.marks_since(connection, check_id, runs[0].run_id)
    run_ids = [run.run_id for run in runs]
    lost, quality = lost_and_quality(
        read_state_spans(connection, check_id, run_ids, measures.span_query(inputs.watched))
    )
    for place, run_id in enumerate(run_ids):
        yield (
            inputs,
            MeasuredRun(
                check_id=check_id,
                run_id=run_id,
                measures=measures,
                members=inputs.watched,
                observation=Observation(
                    lost=lost[place],
                    ndcg=quality[place],
                    answers=partial(_fingerprints, connection, check_id, run_id, canary_ids, measures.depth),
                    index_version=next((version for run, version in reversed(marks) if run <= run_id), None),
                ),
                close=close_of(inputs.yardstick.rules),
                choice=None,
            ),
        )


def _fingerprints(
    connection: Connection,
    check_id: int,
    run_id: int,
    canary_ids: Sequence[int],
    depth: int,
    positions: Sequence[int],
) -> Sequence[int | None]:
    """Identities of what the watched canaries at these positions answered in a stored run."""
    wanted = [canary_ids[position] for position in positions]
    spans = rows.spans(connection, check_id, wanted, run_id, run_id)
    rankings = {span.canary_id: span.ranking_id for span in spans}
    return answer_fingerprints(connection, [rankings.get(canary) for canary in wanted], depth)


@dataclass(slots=True, kw_only=True)
class _Trail:
    """Where the detector stands, and which runs it has come by."""

    stored: dict[int, DetectionRow]
    choices: Sequence[ChoiceRow]
    refusals: Sequence[RefusalRow]
    detector: Detector | None = None
    passed: list[int] = field(default_factory=list)
    eligible: list[int] = field(default_factory=list)

    def follow(self, connection: Connection, inputs: RunInputs, observed: MeasuredRun) -> ReplayedRun:
        """Take in the next run."""
        run_id = observed.run_id
        refused = frozenset(one.habit for one in self.refusals if one.after_run < run_id)
        measured_run = replace(observed, choice=self._choice(run_id), refused_habits=refused)
        step = advance(connection, self.detector, measured_run, self._learnable)
        reading, row = step.reading, self.stored.get(run_id)
        self.passed.append(run_id)
        if reading.is_of_alarm:
            since = self.passed[-reading.since :][0]
            self.eligible = [run_id for run_id in self.eligible if run_id < since]
            well = False
        else:
            well = row is None or not row.body.get("alerted")
        self.detector, learned = learn_on(connection, step, measured_run, self._learnable, eligible=well)
        if well:
            self.eligible.append(run_id)
        keys = [inputs.canaries[position].key for position in _positions(inputs.panel, reading)]
        return ReplayedRun(
            run_id=run_id, reading=reading, culprits=tuple(keys), learned=learned is not None, stored=row
        )

    def _choice(self, run_id: int) -> ChoiceRow | None:
        """Give the choice in force for a run; where the present was accepted since the last one, begin anew."""
        made = [choice for choice in self.choices if choice.after_run < run_id]
        newest_id = None if self.detector is None else self.detector.choice_id
        if any(choice.action == Action.ACCEPTED for choice in made if newest_id is None or choice.id > newest_id):
            self.detector = None
        return made[-1] if made else None

    def _learnable(self, _: MeasuredRun, since: int, until: int | None, count: int) -> Sequence[int]:
        run_ids = [run_id for run_id in self.eligible if run_id >= since and (until is None or run_id <= until)]
        return run_ids[-count:] if count else []


def _positions(panel: Panel, reading: Reading) -> list[int]:
    watched: NDArray[np.intp] = panel.watched
    positions: list[int] = watched[[one.position for one in reading.culprits]].tolist()
    return positions


_SAMPLE: Final = 200
"""Canaries compared: a median of more would cost more and say the same."""
_RUNS: Final = 50
"""Of a baseline's runs, the newest ones that mean and deviation are taken of."""


def drift_of(
    connection: Connection,
    check_id: int,
    inputs: RunInputs,
    rankings: Sequence[int | None],
    held_since: Callable[[int], int | None],
    *,
    first_run: int,
    last_run: int,
) -> StoredDrift | None:
    """Say how far a run's top scores are from those of the baseline of runs `first_run` to `last_run`.

    `rankings` are the run's ranking ids by position, None = not measured; `held_since` gives the run with which that
    of a position came, None = with this one. None = there is nothing to say: scores are where they were, or are not
    known. Where half of the canaries still have the very rankings with which the baseline ended their median distance
    is none: for rankings that have held since, that needs no query. Of many canaries 200 are compared, evenly spaced
    over the suite; canaries that have changed since are left out.
    """
    places = _sampled_places(rankings)
    steady = sum((since := held_since(place)) is not None and since <= last_run for place in places)
    if 2 * steady > len(places):
        return None
    now = {
        inputs.canary_ids[place]: (inputs.version_ids[place], ranking_id)
        for place in places
        if (ranking_id := rankings[place]) is not None
    }
    ended = rows.spans(connection, check_id, sorted(now), last_run, last_run)
    ended = [span for span in ended if span.canary_version_id == now[span.canary_id][0]]
    last = {span.canary_id: span.ranking_id for span in ended}
    same = sum(now[canary][1] == ranking_id for canary, ranking_id in last.items())
    if not last or 2 * same > len(last):
        return None
    runs = rows.measured_runs(connection, check_id, first_run, last_run, limit=_RUNS)
    if not runs:
        return None
    held = rows.spans(connection, check_id, sorted(last), runs[0], runs[-1])
    held = [span for span in held if span.canary_version_id == now[span.canary_id][0]]
    ranking_ids = {*last.values(), *(span.ranking_id for span in held), *(now[canary][1] for canary in last)}
    heads = rows.heads(connection, sorted(ranking_ids), OVERLAP_DEPTH)
    before = _before(held, runs, heads)
    canaries_in_both = [canary for canary in last if canary in before]
    drift = score_drift(
        [before[canary][0] for canary in canaries_in_both],
        [before[canary][1] for canary in canaries_in_both],
        [_score(heads[now[canary][1]]) for canary in canaries_in_both],
        [top_overlap(heads[last[canary]].ids, heads[now[canary][1]].ids) for canary in canaries_in_both],
    )
    return drift.body() if drift.kind in {DriftKind.SCORES, DriftKind.RANKINGS} else None


def _sampled_places(rankings: Sequence[int | None]) -> Sequence[int]:
    """Give the positions of measured canaries, evenly spaced over the suite."""
    measured = [position for position, ranking_id in enumerate(rankings) if ranking_id is not None]
    return measured[:: max(1, -(-len(measured) // _SAMPLE))]


def _before(held: Sequence[Span], runs: Sequence[int], heads: Mapping[int, Head]) -> dict[int, tuple[float, float]]:
    """Give mean and standard deviation of the top score by canary id, each run counting once."""
    scores: dict[int, list[tuple[float, int]]] = {}
    for span in held:
        end = len(runs) if span.last_run is None else bisect_right(runs, span.last_run)
        count = end - bisect_left(runs, span.first_run)
        score = heads[span.ranking_id].score
        if count > 0 and score is not None:
            scores.setdefault(span.canary_id, []).append((score, count))
    spreads: dict[int, tuple[float, float]] = {}
    for canary, weighted in scores.items():
        values, counts = np.array(weighted).T
        mean = float(np.average(values, weights=counts))
        spreads[canary] = mean, float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))
    return spreads


def _score(head: Head) -> float:
    return np.nan if head.score is None else head.score
