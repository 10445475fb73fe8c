"""What a check's detector makes of a run that is about to end, and how that is written with it.

`run_detector` reads and decides, outside of the transaction that ends the run; `save_detection` writes inside it.
`save_detector` follows when the alerts are written: no baseline is learned from a run with an open alert.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.alerts.domain.conditions import (
    SLOWER_QUANTILE,
    FirstRun,
    first_run,
)
from app.alerts.domain.rules import (
    alarm_close,
    is_outage,
    outage_share,
)
from app.base.db.engine import Connection, cached, to_us
from app.base.values import Percentile, RuleKind, Value, replace
from app.catalog.service.versions import former_versions, load_check, load_suites
from app.detection import store as rows
from app.detection.domain import Baseline, Observation, Reading
from app.detection.domain.tracker import pack_baseline, unpack_baseline
from app.detection.domain.views import Action, IndexChange, StoredDrift
from app.detection.service import baselines, detectors
from app.detection.service.baselines import Means, means_of_runs, unpack_means
from app.detection.service.detectors import (
    Detector,
    DetectorMeasures,
    EndingRun,
    Learned,
    MeasuredRun,
    Step,
    advance,
    answer_fingerprints,
    learn_on,
    lost_of,
    run_latencies,
    stored_learnable,
)
from app.detection.store import ChoiceRow, DetectionRow, DetectorRow
from app.records.store import run_rows
from app.scoring.measures import MEASURES_VERSION
from app.scoring.run_inputs import RunInputs
from app.scoring.verdicts import NO_BASELINE, Column, drops

_BASELINE_BYTES: Final = 100
"""Of a canary, beside its failures."""
_ROW_BYTES: Final = 300


class OvertakenError(Exception):
    """Somebody changed what the detector is compared with, or it took in another run, since it was read."""


class DetectorStep(Value):
    """What the detector made of a run, and all that is to be written with it."""

    stored: DetectorRow | None
    """The detector as it was read."""
    choice: ChoiceRow | None
    refusals: frozenset[str] | None
    """Habits that people called not normal; None = it has no habits, so they were not read."""
    row: DetectionRow
    regressed: NDArray[np.intp]
    """Positions of the canaries that an open alarm names and that fail in this run."""
    pinned: Learned | None
    eligible: tuple[Detector, Learned | None] | None
    """The detector after this run if it may be learned of, with what was learned; None = it may not, whatever else."""
    ineligible: Detector
    """The detector after this run if it may not be learned of."""
    means: bytes
    """Of the runs of the baseline that was learned, packed; empty where none was."""
    learned_latency: float | None
    """Of the runs of the baseline that was learned, in seconds; see `_latency_of_baseline`."""


def run_detector(connection: Connection, run: EndingRun) -> DetectorStep | None:
    """Return what the detector makes of a measured run; None where no canary of it is watched."""
    if not run.inputs.watched.keys:
        return None
    stored = rows.find_detector(connection, run.check_id)
    choice = rows.newest_choice(connection, run.check_id)
    previous = None if stored is None else _unpacked(connection, stored)
    refusals = _refused(connection, run.check_id) if previous is not None and previous.follower.habits.known else None
    measured_run = _measured_run(connection, run, choice, refusals)
    learnable = stored_learnable(connection)
    observed = advance(connection, previous, measured_run, learnable)
    reading = observed.reading
    eligible = None if reading.is_of_alarm else learn_on(connection, observed, measured_run, learnable, eligible=True)
    learned = observed.pinned or (eligible[1] if eligible is not None else None)
    learned_latency = None if learned is None else _latency_of_baseline(connection, run, learned.run_ids)
    return DetectorStep(
        stored=stored,
        choice=choice,
        refusals=refusals,
        row=_detection_row(
            connection,
            run,
            observed,
            stored=stored,
            choice=choice,
            first=_first_run(connection, run, measured_run, stored, previous) if _is_blind(observed) else None,
            learned_latency=learned_latency,
        ),
        regressed=run.inputs.panel.watched[[one.position for one in reading.culprits if reading.open and one.fails]],
        pinned=observed.pinned,
        eligible=eligible,
        ineligible=learn_on(connection, observed, measured_run, learnable, eligible=False)[0],
        means=b"" if learned is None else means_of_runs(connection, run, learned.run_ids),
        learned_latency=learned_latency,
    )


def _latency_of_baseline(connection: Connection, run: EndingRun, run_ids: Sequence[int]) -> float | None:
    """99 % quantile of the median latencies of these runs, in seconds; the one that is about to end maybe among them.

    At least so many runs were no slower: of fewer than a hundred, the slowest. Left out are those whose latency is not
    judged either, see `is_outage`. None = none of them measured any.
    """
    stored = run_rows.find_runs(connection, [run_id for run_id in run_ids if run_id != run.id])
    share = outage_share(run.inputs.yardstick.rules)
    whole = [row for row in stored.values() if not is_outage(row.failed or 0, row.total or 0, share)]
    medians = [one[Percentile.P50] for one in run_latencies(connection, whole).values()]
    if len(stored) < len(run_ids) and not is_outage(run.ranking_ids.count(None), len(run.ranking_ids), share):
        medians.append(run.median_latency)
    known = [median for median in medians if median is not None]
    return float(np.quantile(known, SLOWER_QUANTILE, method="inverted_cdf")) if known else None


def save_detection(connection: Connection, step: DetectorStep | None, *, now: datetime) -> int | None:
    """Write what the detector made of the run that is being ended; gives the baseline it was compared with.

    Raises OvertakenError.
    """
    if step is None:
        return None
    check_id, row = step.row.check_id, step.row
    if not rows.is_at(connection, check_id, step.stored, step.choice):
        raise OvertakenError
    if step.refusals is not None and step.refusals != _refused(connection, check_id):
        raise OvertakenError
    if step.pinned is not None:
        row = replace(row, baseline_id=_save(connection, check_id, step.pinned, step, now))
    rows.save_detection(connection, row)
    if row.since_run is not None:
        rows.unlearn(connection, check_id, row.since_run)
    return row.baseline_id


def save_detector(connection: Connection, step: DetectorStep | None, *, baseline_id: int | None, now: datetime) -> None:
    """Keep the detector as it is after the run, and what it learned, now that the alerts of the check are known."""
    if step is None:
        return
    check_id, run_id = step.row.check_id, step.row.run_id
    detector = step.ineligible
    if step.eligible is not None:
        if baselines.withholding(rows.alerted_rules(connection, check_id), step.row.body):
            # For replays, which have no alerts: other runs were learned of until an alarm reached back.
            rows.withhold_detection(connection, run_id, body={**step.row.body, "alerted": True})
        else:
            detector, learned = step.eligible
            if learned is not None:
                baseline_id = _save(connection, check_id, learned, step, now)
    rows.save_detector(connection, check_id, run_id=run_id, baseline_id=baseline_id, body=detector.packed())


def _detection_row(
    connection: Connection,
    run: EndingRun,
    observed: Step,
    *,
    stored: DetectorRow | None,
    choice: ChoiceRow | None,
    first: FirstRun | None,
    learned_latency: float | None,
) -> DetectionRow:
    """Return the row of what the detector says of a run: its reading, with drops and drift since the baseline."""
    inputs, panel, reading = run.inputs, run.inputs.panel, observed.reading
    baseline_id = baseline_latency = None
    if stored is not None:
        baseline_id = stored.baseline_id if observed.baseline is not None and observed.pinned is None else None
        baseline_latency = stored.baseline_latency
    since_run = _since(connection, run.check_id, run.id, reading)
    compared, why_none = _before(connection, inputs, choice, baseline_id)
    body = baselines.body_of(
        reading,
        [inputs.canaries[position].key for position in panel.watched] if reading.culprits else (),
        since_run=since_run,
        index_change=_index_change(connection, run, since_run),
        drops=drops(
            inputs.yardstick.rules,
            k=inputs.yardstick.k,
            categories=panel.categories,
            before=compared,
            no_baseline_reason=why_none,
            now=lambda name: run.tally.scores([name])[:, 0],
        ),
        drift=_drift(connection, run, baseline_id),
        anew=observed.detector.anew,
        first=first,
    )
    if reading.habit is not None:
        names = dict(zip(inputs.watched.keys, (inputs.canaries[place].key for place in panel.watched), strict=True))
        body = {**body, "habit": baselines.habit_body(reading.habit, names)}
    return DetectionRow(
        run_id=run.id,
        check_id=run.check_id,
        baseline_id=baseline_id,
        evidence=reading.evidence,
        lost=reading.lost,
        worse=reading.worse,
        open=reading.open,
        since_run=since_run,
        learns=not reading.is_of_alarm,
        body=body,
        baseline_latency=baseline_latency if observed.pinned is None else learned_latency,
    )


def _is_blind(observed: Step) -> bool:
    """Whether there is no baseline, or half of the canaries or more are unknown to it."""
    return observed.baseline is None or 2 * observed.reading.unknown >= len(observed.detector.follower.state.keys)


def _first_run(
    connection: Connection,
    run: EndingRun,
    measured_run: MeasuredRun,
    stored: DetectorRow | None,
    previous: Detector | None,
) -> FirstRun:
    """Run that a guard compares this one with, which may be itself; most canaries have no baseline."""
    measured = measured_run.observation.lost[measured_run.observation.lost >= 0]
    now = FirstRun(run_id=measured_run.run_id, coverage=float(1 - measured.mean()) if measured.size else None)
    if stored is None:
        return _accepted_run(connection, run, measured_run, now)
    if previous is None or previous.measures != measured_run.measures:
        return now
    last = rows.detections_of(connection, [stored.run_id]).get(stored.run_id)
    first = None if last is None else baselines.first_run_of(last.body)
    keys = [int(key) for key in previous.follower.state.keys]
    former = former_versions(connection, measured_run.suite, keys)
    known = [former.get(key, key) for key in keys]
    return first_run(first, now, keys_before=known, keys_now=measured_run.members.keys)


def _accepted_run(connection: Connection, run: EndingRun, measured_run: MeasuredRun, now: FirstRun) -> FirstRun:
    """Run that a guard begins with where no run was measured since: the one that people accepted, or this one.

    A loss between the acceptance and this run must not become normal; where this one is better, it is the measure.
    """
    choice = measured_run.choice
    if choice is None or choice.action != Action.ACCEPTED:
        return now
    earlier = run_rows.previous_known_runs(connection, {run.id}).get(run.id)
    row = None if earlier is None else run_rows.find_run(connection, earlier.id)
    if row is None or row.suite_version_id is None or row.check_version_id is None:
        return now
    if load_check(connection, row.check_version_id)[0].k != measured_run.measures.k:
        return now
    accepted = FirstRun(run_id=row.id, coverage=row.aggregates.get("coverage"), is_accepted=True)
    (then,) = load_suites(connection, [row.suite_version_id]).values()
    keys = [member.version_id for member in then.members]
    former = former_versions(connection, measured_run.suite, keys)
    known = [former.get(key, key) for key in keys]
    first = first_run(accepted, now, keys_before=known, keys_now=measured_run.members.keys)
    return now if (now.coverage or 0) >= (first.coverage or 0) else first


def _refused(connection: Connection, check_id: int) -> frozenset[str]:
    return frozenset(row.habit for row in rows.list_refusals(connection, check_id))


def _measured_run(
    connection: Connection, run: EndingRun, choice: ChoiceRow | None, refusals: frozenset[str] | None
) -> MeasuredRun:
    measures = DetectorMeasures.of(run.inputs.yardstick)
    watched = run.inputs.panel.watched
    hits, quality = run.tally.scores([measures.hit, measures.quality])[watched].T
    hits = np.where(run.tally.lost_texts[watched], 0.0, hits)
    return MeasuredRun(
        check_id=run.check_id,
        run_id=run.id,
        measures=measures,
        suite=run.inputs.suite,
        observation=Observation(
            lost=lost_of(hits),
            ndcg=quality,
            answers=partial(_fingerprints, connection, run, measures.depth),
            index_version=run.index_version,
        ),
        close=alarm_close(run.inputs.yardstick.rules),
        choice=choice,
        refused_habits=refusals or frozenset(),
    )


def _fingerprints(connection: Connection, run: EndingRun, depth: int, positions: Sequence[int]) -> Sequence[int | None]:
    """Identities of what the watched canaries at these positions answered; read only while an alarm is open."""
    ranking_ids = [run.ranking_ids[place] for place in run.inputs.panel.watched[list(positions)].tolist()]
    return answer_fingerprints(connection, ranking_ids, depth)


def _unpacked(connection: Connection, row: DetectorRow) -> Detector:
    def baseline(open_: bool) -> Baseline | None:  # noqa: FBT001 - as unpacked calls it
        if row.baseline_id is None:
            return None
        read = partial(_baseline, connection, row.baseline_id, failures=open_)
        return cached(connection, ("baseline", row.baseline_id, open_), read)

    return Detector.unpacked(row.body, baseline)


def _baseline(connection: Connection, baseline_id: int, *, failures: bool) -> tuple[Baseline, int]:
    """Return a baseline and its size in bytes."""
    baseline = unpack_baseline(*rows.body_of_baseline(connection, baseline_id, failures=failures))
    size = len(baseline.keys) * _BASELINE_BYTES + (0 if baseline.failures is None else baseline.failures.nbytes)
    return baseline, size


def _means(body: bytes) -> tuple[Means | None, int]:
    """Return means and their size in bytes."""
    means = unpack_means(body)
    return means, 0 if means is None else len(means.versions) + len(means.means)


def _since(connection: Connection, check_id: int, run_id: int, reading: Reading) -> int | None:
    """Give the run with which the fault of an alarm or a habit that stands, or that just closed, began."""
    if not reading.is_of_alarm:
        return None
    if reading.since <= 1:
        return run_id
    return rows.nth_newest_run(connection, check_id, reading.since - 1) or run_id


def _index_change(connection: Connection, run: EndingRun, since_run: int | None) -> IndexChange | None:
    if since_run is None:
        return None
    marks = rows.marks_since(connection, run.check_id, since_run)
    return baselines.index_change_of(marks, since_run, run.id, run.index_version)


def _drift(connection: Connection, run: EndingRun, baseline_id: int | None) -> StoredDrift | None:
    if baseline_id is None:
        return None
    key = ("baseline row", baseline_id)
    baseline = cached(connection, key, lambda: (rows.find_baseline(connection, baseline_id), _ROW_BYTES))
    if baseline is None:
        return None
    return detectors.drift_of(
        connection,
        run.check_id,
        run.inputs,
        run.ranking_ids,
        run.held_since,
        first_run=baseline.first_run,
        last_run=baseline.last_run,
    )


def _before(
    connection: Connection, inputs: RunInputs, choice: ChoiceRow | None, baseline_id: int | None
) -> tuple[Column | None, str]:
    """Give what each canary of the panel had before, by measure: in the run pinned, or on average in the baseline.

    Where that is unknown, the second says why.
    """
    if not any(rule.kind is RuleKind.DROP for rule in inputs.yardstick.rules):
        return None, NO_BASELINE
    if choice is not None and choice.action == Action.PINNED:
        kept = cached(connection, ("pinned", choice.id), lambda: _means(rows.means_of_choice(connection, choice.id)))
        if kept is None:
            return None, "the pinned run has been forgotten"
        if (kept.k, kept.measures_version) != (inputs.yardstick.k, MEASURES_VERSION):
            return None, f"the pinned run was judged otherwise (k {kept.k}, measures {kept.measures_version})"
    elif baseline_id is not None:
        kept = cached(connection, ("means", baseline_id), lambda: _means(rows.means_of(connection, baseline_id)))
    else:
        kept = None
    if kept is None:
        return None, NO_BASELINE
    former = former_versions(connection, inputs.suite, kept.version_ids)
    return kept.column_of([*inputs.version_ids], former), ""


def _save(connection: Connection, check_id: int, learned: Learned, step: DetectorStep, now: datetime) -> int:
    body, failures = pack_baseline(learned.baseline)
    return rows.save_baseline(
        connection,
        check_id=check_id,
        first_run=learned.run_ids[0],
        last_run=learned.run_ids[-1],
        runs=learned.baseline.runs,
        deterministic=learned.baseline.deterministic,
        learned_at=to_us(now),
        body=body,
        failures=failures,
        means=step.means,
        median_latency=step.learned_latency,
    )
