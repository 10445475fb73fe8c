"""What a detector said of a run, as the JSON that is kept beside the run; what rules look at of it is read by facts."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, cast

from app.alerts.domain.rules import FirstRun
from app.base.db.engine import Store, blocks
from app.base.values import RuleKind
from app.catalog.service.references import find_check
from app.comparison.domain.significance import Difference
from app.detection.domain.values import HabitReading, Key, Reading, Settings
from app.detection.domain.views import (
    EvidencePoint,
    EvidenceSeries,
    IndexChange,
    StoredDrift,
    StoredHabit,
    StoredReading,
)
from app.detection.store import AlertedRule
from app.records import documents as shapes
from app.records.store import series
from app.records.store.series import EvidenceRow
from app.scoring.drops import drop_as_json, p_values

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
        "first": None if first is None else {"run": str(first.run_id), "coverage": first.coverage},
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
    return shapes.view_of(StoredHabit, habit, canaries=named, total=len(habit.keys))


def first_run_of(body: StoredReading) -> FirstRun | None:
    """Run that a guard compared with, as kept beside a run; None where a baseline stood or nobody kept it."""
    first = body.get("first")
    return None if first is None else FirstRun(run_id=int(first["run"]), coverage=first["coverage"])


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
        rows = series.evidence_rows(connection, check.id, start, end, limit=most_runs)
    cut = len(rows) == most_runs
    return {
        "check": slug,
        "from": shapes.time_text(start),
        "to": shapes.time_text(end),
        "since": shapes.time_text(rows[0].at if cut else start),
        "threshold": 1 / Settings().alpha,
        "points": [_point(block) for block in blocks(rows, max(1, -(-len(rows) // points)))],
    }


def _point(block: Sequence[EvidenceRow]) -> EvidencePoint:
    """Shape the worst of some runs in a row: an alarm is not to be averaged away."""
    worst = max(block, key=lambda one: -1.0 if one.evidence is None else one.evidence)
    return EvidencePoint(
        at=shapes.time_text(worst.at),
        run=str(worst.run_id),
        runs=len(block),
        evidence=shapes.number(worst.evidence),
        lost=worst.lost,
        worse=worst.worse,
        open=any(one.open for one in block),
    )
