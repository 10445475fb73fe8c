"""The baseline of a check: shown, pinned to a run, begun anew with the present, or following new runs again.

Each choice is a row that stays; the detector of the check takes it over with the next run, see `detectors`. Below: mean
measures of the baseline by canary, habits, the reading of a run as the JSON that is stored beside it, and the evidence
of a period.
"""

import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.alerts.domain.conditions import FirstRun
from app.base.db.engine import Connection, Store, blocks, to_us
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.base.values import RuleKind, Verdict
from app.base.views import id_or_none, id_text, rounded_or_none, time_text, view_of
from app.catalog import store as catalog
from app.catalog.service.references import find_check
from app.catalog.service.versions import load_yardstick
from app.catalog.store import Definition
from app.comparison.domain.estimates import Difference
from app.detection import store as rows
from app.detection.domain import Habit, HabitReading, Key, Reading, Settings
from app.detection.domain.decision import warming_note, warming_summary
from app.detection.domain.habits import bound_of, is_learned
from app.detection.domain.learning import FULL_RUNS, IDENTICAL_RUNS
from app.detection.domain.tracker import unpack_state
from app.detection.domain.views import (
    Action,
    BaselineChoice,
    BaselineView,
    DetectorView,
    EvidencePoint,
    EvidenceSeries,
    HabitRefusal,
    HabitView,
    IndexChange,
    LearnedBaseline,
    StoredDrift,
    StoredHabit,
    StoredReading,
    WarmUpView,
)
from app.detection.service.detectors import Detector, EndingRun, versions_of_runs
from app.detection.store import (
    AlertedRule,
    ChoiceRow,
    DetectionRow,
    DetectorRow,
    EvidenceRow,
    RefusalRow,
    evidence_rows,
)
from app.records.store import run_rows
from app.records.store.run_rows import RunRow
from app.records.store.state_rows import SpanQuery, read_state_spans
from app.scoring.measures import MEASURES_VERSION
from app.scoring.verdicts import Column, drop_as_json, p_values

_NEXT = "the next run begins to learn what is normal"


def show(store: Store, slug: str) -> BaselineView:
    """Say what a check is compared with, what was learned of it, and how its detector stands. Raises NotFoundError."""
    with store.read() as connection:
        check = find_check(connection, slug)
        choices = rows.list_choices(connection, check.id)
        row = rows.find_detector(connection, check.id)
        detection = None if row is None else rows.detections_of(connection, [row.run_id]).get(row.run_id)
        newest = choices[0] if choices else None
        detector = None if row is None else Detector.unpacked(row.body, lambda _open: None)
        baseline_id = None if row is None else row.baseline_id
        accepted = next((choice for choice in choices if choice.action == Action.ACCEPTED), None)
        pinned = newest is not None and newest.action == Action.PINNED
        waits = _waits(rows.alerted_rules(connection, check.id), detection)
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
            habits=[] if row is None else habit_views(connection, check.id, row),
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
        newest = rows.newest_choice(connection, check.id)
        if newest is None or (newest.action, newest.run_id) != (Action.PINNED, run.id):
            _choose(connection, check, Action.PINNED, run.id, by=by, note=note, now=now, means=means)


def begin_anew(connection: Connection, slug: str, *, by: str, note: str | None, now: datetime) -> Definition:
    """Call the present the new normal: accounts begin anew, and nothing up to the newest ended run is learned of.

    Returns the check. Raises NotFoundError, and ConflictError for one that is archived or of which nothing ended yet.
    """
    check = _held(connection, slug)
    newest = _newest_run(connection, check.id)
    if not newest:
        raise ConflictError(f"check '{slug}' has no ended run yet, so there is no present to accept")
    _choose(connection, check, Action.ACCEPTED, newest, by=by, note=note, now=now)
    rows.forget_detector(connection, check.id)
    return check


def follow(store: Store, slug: str, *, by: str, now: datetime) -> None:
    """Let the baseline move along with the runs again. Raises NotFoundError, ConflictError for an archived check."""
    with store.write() as connection:
        check = _held(connection, slug)
        newest = rows.newest_choice(connection, check.id)
        if newest is not None and newest.action == Action.PINNED:
            _choose(connection, check, Action.MOVING, None, by=by, note=None, now=now)


def _held(connection: Connection, slug: str) -> Definition:
    """Find a check, and let nobody end a run of it meanwhile."""
    check = find_check(connection, slug)
    if check.archived_at is not None:
        raise ConflictError(f"check '{slug}' is archived, so nothing will be compared any more")
    catalog.lock_definition(connection, check.id)
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
    rows.append_choice(
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
    newest = run_rows.newest_ended(connection, check_id)
    return newest.id if newest is not None else 0


def _comparable(connection: Connection, check: Definition, run_id: str) -> RunRow:
    """Find a run that others can be compared with. Raises InvalidInputError."""
    number = id_or_none(run_id)
    run = None if number is None else run_rows.find_run(connection, number)
    if run is None:
        raise _refused(f"there is no run '{run_id[:40]}'")
    if run.check_id != check.id:
        raise _refused(f"run {run.id} is one of check '{run.check}'")
    if run.finished_at is None:
        raise _refused(f"run {run.id} has not ended yet")
    if run.verdict == Verdict.UNKNOWN or run.check_version_id is None:
        raise _refused(f"the verdict of run {run.id} is unknown, so nothing can be compared with it")
    k = catalog.version_body(connection, run.check_version_id).body["k"]
    if k != check.body["k"]:
        raise _refused(f"run {run.id} was judged with k {k}, and the check has k {check.body['k']} by now")
    if run.measures_version != MEASURES_VERSION:
        raise _refused(f"run {run.id} was judged by another version of the measures ({run.measures_version})")
    return run


def _refused(message: str) -> InvalidInputError:
    return InvalidInputError([Problem(path="run", message=message)])


def _choice(choice: ChoiceRow) -> BaselineChoice:
    return view_of(
        BaselineChoice,
        choice,
        action=Action(choice.action),
        run=id_text(choice.run_id),
        after_run=str(choice.after_run) if choice.after_run else None,
    )


def _learned(connection: Connection, baseline_id: int) -> LearnedBaseline | None:
    row = rows.find_baseline(connection, baseline_id)
    if row is None:
        return None
    first, last = str(row.first_run), str(row.last_run)
    return view_of(LearnedBaseline, row, first_run=first, last_run=last, at=time_text(row.learned_at))


def _waits(alerted: Sequence[AlertedRule], detection: DetectionRow | None) -> str | None:
    """Say what keeps baselines from being learned, or from being learned anew; None = nothing does."""
    withheld = withholding(alerted, {} if detection is None else detection.body)
    rules = sorted(one.key for one in withheld if not one.pending)
    if not rules:
        return None
    standing = f"alerts {', '.join(rules)} are open" if len(rules) > 1 else f"alert {rules[0]} is open"
    return f"the baseline is frozen while {standing}"


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
    return view_of(
        DetectorView,
        {} if detection is None else detection.body,
        _UNSEEN if detection is None else detection,
        _UNSAID,
        run=str(row.run_id),
        evidence=None if detection is None else rounded_or_none(detection.evidence),
        threshold=1 / Settings().alpha,
        since_run=id_text(None if detection is None else detection.since_run),
    )


_UNSEEN: Final[Mapping[str, Any]] = {"open": False, "lost": None, "worse": None}
_UNSAID: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("severity", "reason", "usual", "drift", "habit")),
    "scopes": {},
    "unknown": 0,
    "groups": (),
    "culprits": {"total": 0, "named": []},
}
"""What is empty is not stored."""


Floats = NDArray[np.float64]


class Means(msgspec.Struct, array_like=True, frozen=True):
    """Mean measures by canary version: the bytes are little-endian int64 and (N, M) float32."""

    versions: bytes
    names: list[str]
    means: bytes
    k: int
    measures_version: str

    @property
    def version_ids(self) -> list[int]:
        """The versions of the canaries."""
        known: list[int] = np.frombuffer(self.versions, dtype="<i8").tolist()
        return known

    def column_of(self, version_ids: Sequence[int], former: Mapping[int, int]) -> Column:
        """Give the means of these canaries by the name of a measure; NaN = it is not among them.

        `former` has earlier versions that asked and expected the same, each with the one among these.
        """
        table = np.frombuffer(self.means, dtype="<f4").reshape(-1, len(self.names))
        place_of = {former.get(version, version): place for place, version in enumerate(self.version_ids)}
        places = np.array([place_of.get(version, -1) for version in version_ids], dtype=np.intp)

        def column(name: str) -> Floats:
            values = np.full(len(places), np.nan)
            if name in self.names:
                values[places >= 0] = table[places[places >= 0], self.names.index(name)]
            return values

        return column


def unpack_means(body: bytes) -> Means | None:
    """Read what was packed; None = nothing was."""
    return msgspec.msgpack.decode(zlib.decompress(body), type=Means) if body else None


def means_of_runs(connection: Connection, run: EndingRun, run_ids: Sequence[int]) -> bytes:
    """Average every measure of the watched canaries over these runs, the one that is about to end maybe among them."""
    inputs = run.inputs
    names = [str(measure) for measure in inputs.yardstick.measures]
    stored = [run_id for run_id in run_ids if run_id != run.id]
    selection = SpanQuery(
        version_ids=[int(key) for key in inputs.watched.keys],
        k=inputs.yardstick.k,
        names=names,
        former=versions_of_runs(connection, inputs.suite, stored),
    )
    sums, counts = read_state_spans(connection, run.check_id, stored, selection).sums()
    if len(stored) < len(run_ids):
        current = run.tally.scores(names)[inputs.panel.watched]
        sums += np.nan_to_num(current)
        counts += ~np.isnan(current)
    return _packed(selection, sums, counts)


def means_of_run(connection: Connection, run: RunRow) -> bytes:
    """Give what every canary of an ended run had, whose definitions are known, so that it outlives the run."""
    if run.versions is None:
        raise ValueError(f"Run {run.id} says not by which definitions it was judged.")
    yardstick = load_yardstick(connection, run.versions.check, run.versions.retriever)
    version_ids = [version_id for _, version_id in catalog.frozen_version(connection, run.versions.suite).members]
    names = [str(measure) for measure in yardstick.measures]
    selection = SpanQuery(version_ids=version_ids, k=yardstick.k, names=names)
    return _packed(selection, *read_state_spans(connection, run.check_id, [run.id], selection).sums())


def _packed(selection: SpanQuery, sums: Floats, counts: Floats) -> bytes:
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    packed = Means(
        versions=np.array(selection.version_ids, dtype="<i8").tobytes(),
        names=list(selection.names),
        means=means.astype("<f4").tobytes(),
        k=selection.k,
        measures_version=MEASURES_VERSION,
    )
    return zlib.compress(msgspec.msgpack.encode(packed), 1)


def habit_views(connection: Connection, check_id: int, row: DetectorRow) -> list[HabitView]:
    """Return the habits that a detector remembers, the one seen last first."""
    known = Detector.habits_of(row.body).known
    if not known:
        return []
    versions = {int(key) for habit in known for key in habit.answers}
    names = catalog.keys_of(connection, versions)
    refusals = {one.habit: one for one in rows.list_refusals(connection, check_id)}
    return [_view(habit, names, refusals.get(habit.id)) for habit in reversed(known)]


def refuse(store: Store, slug: str, habit_id: str, *, by: str, note: str | None, now: datetime) -> None:
    """Call a habit not normal: its episodes are alarms from the next run on. No change where it was refused before.

    Raises NotFoundError, and ConflictError for a check that is archived.
    """
    with store.write() as connection:
        check = find_check(connection, slug)
        if check.archived_at is not None:
            raise ConflictError(f"check '{slug}' is archived, so nothing of it is a habit any more")
        catalog.lock_definition(connection, check.id)
        row = rows.find_detector(connection, check.id)
        known = () if row is None else Detector.habits_of(row.body).known
        if row is None or habit_id not in {habit.id for habit in known}:
            raise NotFoundError(f"check '{slug}' has no habit '{habit_id[:40]}'")
        after_run = _newest_run(connection, check.id) or row.run_id
        refusal = RefusalRow(habit=habit_id, after_run=after_run, at=to_us(now), by=by, note=note)
        rows.refuse(connection, check.id, refusal)


def _view(habit: Habit, names: dict[int, str], refusal: RefusalRow | None) -> HabitView:
    return view_of(
        HabitView,
        habit,
        canaries=[names[int(key)] for key in habit.answers if int(key) in names],
        answers=1 + max(map(len, habit.answers.values())),
        bound=bound_of(habit),
        learned=is_learned(habit),
        refused=None if refusal is None else view_of(HabitRefusal, refusal),
    )


CULPRITS: Final = 50
"""At most so many are named; how many there are is said."""
_LONGEST_VERSION: Final = 80


def body_of(
    reading: Reading,
    keys: Sequence[str],
    *,
    since_run: int | None,
    index_change: IndexChange | None,
    drops: Mapping[str, Difference | str],
    drift: StoredDrift | None,
    anew: str = "",
    first: FirstRun | None = None,
) -> StoredReading:
    """Write down what there is to say of a run besides the columns; `keys` are those of the watched canaries.

    `anew`: why the detector began anew with what it measures, said while it warms up; `first`: what a guard compares
    with until then.
    """
    fields: StoredReading = {
        "scopes": {name: float(f"{value:.6g}") for name, value in reading.scopes.items()},
        "severity": reading.severity,
        "change": reading.change,
        "good": reading.good,
        "groups": list(reading.groups),
        "warming": reading.warming or "",
        "anew": anew if reading.warming else "",
        "unknown": reading.unknown,
        "usual": list(reading.usual or ()),
        "index_change": index_change,
        "drops": {key: drop_as_json(drop) for key, drop in drops.items()},
        "drop_p": p_values(drops),
        "drift": drift,
        "first": None
        if first is None
        else {"run": str(first.run_id), "coverage": first.coverage, "accepted": first.is_accepted},
    }
    if reading.culprits:
        fields["culprits"] = {
            "total": len(reading.culprits),
            "named": [
                {"key": keys[one.position], "signal": one.signal.value, "evidence": one.evidence}
                for one in reading.culprits[:CULPRITS]
            ],
        }
    stated = {name: value for name, value in fields.items() if value}
    return cast("StoredReading", {"reason": reason_of(reading, since_run, index_change), **stated})


def habit_body(habit: HabitReading, names: Mapping[Key, str]) -> StoredHabit:
    """Write down a habit; `names` are the keys of the watched canaries, by their identity in the detector."""
    named = [names[key] for key in habit.keys if key in names][:CULPRITS]
    return view_of(StoredHabit, habit, canaries=named, total=len(habit.keys))


def first_run_of(body: StoredReading) -> FirstRun | None:
    """Run that a guard compared with, as kept beside a run; None where a baseline stood or nobody kept it."""
    first = body.get("first")
    if first is None:
        return None
    accepted = first.get("accepted", False)
    return FirstRun(run_id=int(first["run"]), coverage=first["coverage"], is_accepted=accepted)


def withholding(alerted: Sequence[AlertedRule], body: StoredReading) -> list[AlertedRule]:
    """Say which of the rules with an alert keep baselines from being learned of a run.

    What cannot be told for want of a baseline must not keep one from being learned. A slow run that may open an alert
    with the next ones must not become normal in between.
    """
    unknown = {key for key, drop in body.get("drops", {}).items() if "unknown" in drop}
    is_warming = bool(body.get("warming"))
    return [one for one in alerted if one.key not in unknown and not (is_warming and one.kind == RuleKind.SLOWER)]


def reason_of(reading: Reading, since_run: int | None, index_change: IndexChange | None) -> str:
    """Give the sentence of a reading without its full stop, with since when that holds."""
    sentence = reading.reason.removesuffix(".")
    if not reading.open or since_run is None:
        return sentence
    sentence += f"; since run {since_run}"
    if index_change is None:
        return sentence
    changed = f"index version {index_change['before']} -> {index_change['now']}"
    same = index_change["run"] == str(since_run)
    return f"{sentence}, when {changed}" if same else f"{sentence}; {changed} came with run {index_change['run']}"


def index_change_of(
    marks: Sequence[tuple[int, str]], since_run: int, run_id: int, now: str | None
) -> IndexChange | None:
    """Find the first change of the index version from `since_run` on; None = there was none.

    `marks` are the runs with which versions came, oldest first; `now` is what the run itself says, which has no mark.
    """
    marks_before = [*marks]
    if now is not None and (not marks_before or marks_before[-1][1] != now):
        marks_before.append((run_id, now))
    for (_, before), (run, version) in pairwise(marks_before):
        if run >= since_run:
            return {"run": str(run), "before": before[:_LONGEST_VERSION], "now": version[:_LONGEST_VERSION]}
    return None


MOST_RUNS: Final = 10_000
"""So many are read at most, the newest ones of a period."""


def evidence(
    store: Store, slug: str, *, start: int, end: int, points: int, most_runs: int = MOST_RUNS
) -> EvidenceSeries:
    """Read the evidence of a period in at most `points` points, each the run of its stretch with most of it."""
    with store.read() as connection:
        check = find_check(connection, slug)
        rows = evidence_rows(connection, check.id, start, end, limit=most_runs)
    cut = len(rows) == most_runs
    return {
        "check": slug,
        "from": time_text(start),
        "to": time_text(end),
        "since": time_text(rows[0].at if cut else start),
        "threshold": 1 / Settings().alpha,
        "points": [_point(block) for block in blocks(rows, max(1, -(-len(rows) // points)))],
    }


def _point(block: Sequence[EvidenceRow]) -> EvidencePoint:
    """Shape the worst of some runs in a row: an alarm is not to be averaged away."""
    worst = max(block, key=lambda one: -1.0 if one.evidence is None else one.evidence)
    return EvidencePoint(
        at=time_text(worst.at),
        run=str(worst.run_id),
        runs=len(block),
        evidence=rounded_or_none(worst.evidence),
        lost=worst.lost,
        worse=worst.worse,
        open=any(one.open for one in block),
    )
