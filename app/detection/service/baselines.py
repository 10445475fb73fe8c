"""What a check is compared with: shown, pinned to a run, moved along again, or begun anew with the present.

Each choice is a row that stays. A detector takes it over with the next run, see detectors.
"""

from collections.abc import Sequence
from datetime import datetime

from app.alerts.service import transitions
from app.base.db.engine import Connection, Store, to_us
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.base.values import Severity, Verdict
from app.catalog.service.lookup import find_check
from app.catalog.store import definitions
from app.catalog.store.definitions import Definition
from app.detection.domain import Settings, unpack_state, warming_note, warming_summary
from app.detection.domain.learning import FULL_RUNS, IDENTICAL_RUNS
from app.detection.domain.views import (
    Action,
    BaselineChoice,
    BaselineView,
    DetectorView,
    DriftKind,
    LearnedBaseline,
    StoredReading,
    WarmUpView,
)
from app.detection.service import detector_reports, habits
from app.detection.service.baseline_means import means_of_run
from app.detection.service.detectors import Detector
from app.detection.store import detectors
from app.detection.store.detectors import AlertedRule, ChoiceRow, DetectionRow, DetectorRow
from app.records import documents as shapes
from app.records.store import results
from app.records.store.results import RunRow
from app.scoring.measures import MEASURES_VERSION

_NEXT = "the next run begins to learn what is normal"


def show(store: Store, slug: str) -> BaselineView:
    """Say what a check is compared with, what was learned of it, and how its detector stands. Raises NotFoundError."""
    with store.read() as connection:
        check = find_check(connection, slug)
        choices = detectors.list_choices(connection, check.id)
        row = detectors.find_detector(connection, check.id)
        detection = None if row is None else detectors.detections_of(connection, [row.run_id]).get(row.run_id)
        newest = choices[0] if choices else None
        detector = None if row is None else Detector.unpacked(row.body, lambda _open: None)
        baseline_id = None if row is None else row.baseline_id
        accepted = next((choice for choice in choices if choice.action == Action.ACCEPTED), None)
        pinned = newest is not None and newest.action == Action.PINNED
        waits = _waits(detectors.alerted_rules(connection, check.id), detection)
        return BaselineView(
            check=slug,
            mode="pinned" if pinned else "moving",
            run=str(newest.run_id) if newest is not None and pinned else None,
            since=None if accepted is None else _choice(accepted),
            pending=newest is not None and detector is not None and detector.choice_id != newest.id,
            learned=None if baseline_id is None else _learned(connection, baseline_id),
            warm_up=_warm_up(row, detection, waits) if baseline_id is None else None,
            waits=waits,
            detector=None if row is None else _detector(row, detection),
            habits=[] if row is None else habits.habit_views(connection, check.id, row),
            choices=[_choice(choice) for choice in choices],
        )


def pin(store: Store, slug: str, run_id: str, *, by: str, note: str | None, now: datetime) -> None:
    """Compare a check with one of its runs from the next run on: the detector with what was learned up to it.

    Raises NotFoundError, ConflictError for a check that is archived, and InvalidInputError for a run it cannot be.
    """
    with store.read() as connection:  # an ended run stays as it is: nobody waits for a lock while its scores are read
        means = means_of_run(connection, _comparable(connection, find_check(connection, slug), run_id))
    with store.write() as connection:
        check = _held(connection, slug)
        run = _comparable(connection, check, run_id)
        newest = detectors.newest_choice(connection, check.id)
        if newest is None or (newest.action, newest.run_id) != (Action.PINNED, run.id):
            _choose(connection, check, Action.PINNED, run.id, by=by, note=note, now=now, means=means)


def accept(store: Store, slug: str, *, by: str, note: str | None, now: datetime) -> None:
    """Call the present the new normal: accounts begin anew, alerts that compare with a baseline resolve at once.

    Nothing up to the newest ended run is learned of any more. Raises NotFoundError, and ConflictError for a check that
    is archived or of which nothing ended yet.
    """
    with store.write() as connection:
        check = _held(connection, slug)
        newest = _newest_run(connection, check.id)
        if not newest:
            raise ConflictError(f"check '{slug}' has no ended run yet, so there is no present to accept")
        _choose(connection, check, Action.ACCEPTED, newest, by=by, note=note, now=now)
        detectors.forget_detector(connection, check.id)
        transitions.accept_baseline(connection, check, now=now)


def follow(store: Store, slug: str, *, by: str, now: datetime) -> None:
    """Let the baseline move along with the runs again. Raises NotFoundError, ConflictError for an archived check."""
    with store.write() as connection:
        check = _held(connection, slug)
        newest = detectors.newest_choice(connection, check.id)
        if newest is not None and newest.action == Action.PINNED:
            _choose(connection, check, Action.MOVING, None, by=by, note=None, now=now)


def _held(connection: Connection, slug: str) -> Definition:
    """Find a check, and let nobody end a run of it meanwhile."""
    check = find_check(connection, slug)
    if check.archived_at is not None:
        raise ConflictError(f"check '{slug}' is archived, so nothing will be compared any more")
    definitions.lock_definition(connection, check.id)
    return check


def _choose(
    connection: Connection,
    check: Definition,
    action: Action,
    run_id: int | None,
    *,
    by: str,
    note: str | None,
    now: datetime,
    means: bytes | None = None,
) -> None:
    detectors.append_choice(
        connection,
        check_id=check.id,
        action=action,
        run_id=run_id,
        after_run=_newest_run(connection, check.id),
        at=to_us(now),
        by=by,
        note=note,
        means=means,
    )


def _newest_run(connection: Connection, check_id: int) -> int:
    """Give the newest ended run, 0 where there is none."""
    newest = results.newest_ended(connection, check_id)
    return newest.id if newest is not None else 0


def _comparable(connection: Connection, check: Definition, run_id: str) -> RunRow:
    """Find a run that others can be compared with. Raises InvalidInputError."""
    known = run_id.isascii() and run_id.isdecimal() and len(run_id) <= 18  # noqa: PLR2004 - what fits into 64 bits
    run = results.find_run(connection, int(run_id)) if known else None
    if run is None:
        raise _refused(f"there is no run '{run_id[:40]}'")
    if run.check_id != check.id:
        raise _refused(f"run {run.id} is one of check '{run.check}'")
    if run.finished_at is None:
        raise _refused(f"run {run.id} has not ended yet")
    if run.verdict == Verdict.UNKNOWN or run.check_version_id is None:
        raise _refused(f"the verdict of run {run.id} is unknown, so nothing can be compared with it")
    k = definitions.version_body(connection, run.check_version_id).body["k"]
    if k != check.body["k"]:
        raise _refused(f"run {run.id} was judged with k {k}, and the check has k {check.body['k']} by now")
    if run.measures_version != MEASURES_VERSION:
        raise _refused(f"run {run.id} was judged by another version of the measures ({run.measures_version})")
    return run


def _refused(message: str) -> InvalidInputError:
    return InvalidInputError([Problem(path="run", message=message)])


def _choice(choice: ChoiceRow) -> BaselineChoice:
    return BaselineChoice(
        action=Action(choice.action),
        run=None if choice.run_id is None else str(choice.run_id),
        after_run=str(choice.after_run) if choice.after_run else None,
        at=shapes.time_text(choice.at),
        by=choice.by,
        note=choice.note,
    )


def _learned(connection: Connection, baseline_id: int) -> LearnedBaseline | None:
    row = detectors.find_baseline(connection, baseline_id)
    if row is None:
        return None
    return LearnedBaseline(
        runs=row.runs,
        deterministic=row.deterministic,
        first_run=str(row.first_run),
        last_run=str(row.last_run),
        at=shapes.time_text(row.learned_at),
    )


def _waits(alerted: Sequence[AlertedRule], detection: DetectionRow | None) -> str | None:
    """Say what keeps baselines from being learned, or from being learned anew; None = nothing does."""
    withholding = detector_reports.withholding(alerted, {} if detection is None else detection.body)
    rules = sorted(one.key for one in withholding if not one.pending)
    if not rules:
        return None
    standing = f"alerts {', '.join(rules)} stand" if len(rules) > 1 else f"alert {rules[0]} stands"
    return f"learning waits while {standing}"


def _warm_up(row: DetectorRow | None, detection: DetectionRow | None, waits: str | None) -> WarmUpView:
    """Say how far the warm-up is: so many identical runs, or so many runs of any kind."""
    state = None if row is None else unpack_state(Detector.state_of(row.body))
    identical = 0 if state is None else min(state.identical, IDENTICAL_RUNS)
    eligible = 0 if state is None else min(state.eligible, FULL_RUNS)
    # Not the note of the run: that was written before it was known whether the run may be learned of.
    notes = [_NEXT] if detection is None else [detection.body.get("anew"), warming_note(identical, eligible)]
    return WarmUpView(
        summary=warming_summary(identical, eligible),
        identical_runs=identical,
        identical_runs_needed=IDENTICAL_RUNS,
        runs=eligible,
        runs_needed=FULL_RUNS,
        note="; ".join(part for part in (waits, *notes) if part) or None,
    )


def _detector(row: DetectorRow, detection: DetectionRow | None) -> DetectorView:
    body: StoredReading = {} if detection is None else detection.body
    drift, severity = body.get("drift"), body.get("severity")
    return DetectorView(
        run=str(row.run_id),
        evidence=None if detection is None else shapes.number(detection.evidence),
        scopes=body.get("scopes", {}),
        threshold=1 / Settings().alpha,
        open=detection is not None and detection.open,
        since_run=None if detection is None or detection.since_run is None else str(detection.since_run),
        severity=None if severity is None else Severity(severity),
        reason=body.get("reason"),
        lost=None if detection is None else detection.lost,
        worse=None if detection is None else detection.worse,
        usual=body.get("usual"),
        unknown=body.get("unknown", 0),
        groups=body.get("groups", []),
        culprits=body.get("culprits") or {"total": 0, "named": []},
        drift=None if drift is None else {**drift, "kind": DriftKind(drift["kind"])},
        habit=body.get("habit"),
    )
