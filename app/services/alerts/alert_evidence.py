"""What an alert can say beyond its rule: what its canaries have in common, why each fell, and since when."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from app.domain.alerts.canary_changes import ChangedCanaries
from app.domain.alerts.views import FleetView, SinceView
from app.domain.catalog.canary_groups import Group
from app.domain.counts import counted
from app.domain.diagnosis.common_causes import Fleet, Member, fleet
from app.domain.diagnosis.run_causes import RunCause
from app.domain.model import Cause
from app.domain.runs.suite_snapshot import Member as SuiteMember
from app.domain.runs.tally import MISSING, REGRESSED, TIMED, unpack_reasons
from app.services.alerts.changed_canaries import ChangedRun, changed_all
from app.services.runs.run_causes import causes_of
from app.services.score_details import without_relevance
from app.store.diagnosis import diagnoses
from app.store.diagnosis.diagnoses import DiagnosisRow, MarkRow
from app.store.engine import Connection, cached, find_cached
from app.store.history import degraded_at_run
from app.store.history.degraded_at_run import FallenRow
from app.store.runs import results
from app.store.runs.results import RunRow, StateRow

_BYTES, _BYTES_PER_DIAGNOSIS, _BYTES_PER_CANARY = 2_000, 4_000, 100
_NEAR_RUNS = 10
"""So many runs after a change of the index version, what begins may still come of it."""


def reported(connection: Connection, run: RunRow, positions: Mapping[int, int]) -> list[StateRow]:
    """Read what held for the canaries a run calls degraded; `positions` are those of its canaries, by id.

    One whose probe failed is unknown, and where relevance could not be measured nothing is said of it.
    """
    _, failures = results.probes_of(connection, run.id)
    unscored = set(results.unscored_at(connection, run.id))
    found = [
        without_relevance(state) if positions[state.canary_id] in unscored else state
        for state in results.states_at(connection, run.check_id, run.id, only_degraded=True).values()
        if state.canary_id in positions and positions[state.canary_id] not in failures
    ]
    return [state for state in found if state.reasons]


# --- why -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What the degraded canaries of a run have in common, and why each fell."""

    fleet: Fleet
    """Of those that were well before the alert's first bad run."""
    cause: RunCause | None
    """The one cause that explains the whole run, where there is one."""
    known: Mapping[str, DiagnosisRow]
    """The diagnosis of each degraded canary by key, where there is one that still stands."""
    changed: ChangedCanaries
    """Which canaries changed since before the alert's first bad run, for its summary."""

    def of(self, key: str) -> dict[str, Any]:
        """Say why a canary fell, as part of a notice: `cause, cause_reason, persistent`; None where nobody asked."""
        found = self.known.get(key)
        return {
            "cause": None if found is None else found.cause,
            "cause_reason": None if found is None else found.reason,
            "persistent": None if found is None else found.evidence.get("persistent"),
        }

    @property
    def told(self) -> FleetView:
        """Say it as JSON, without the single canaries."""
        fleet, group = self.fleet, self.fleet.group
        return {
            "shape": str(fleet.shape),
            "headline": fleet.headline,
            "sentence": fleet.sentence,
            "group": None if group is None else {"kind": str(group.kind), "name": group.name},
            "fallen": fleet.fallen,
            "of": fleet.of,
            "expected_by_chance": fleet.expected,
            "causes": {str(cause): count for cause, count in fleet.causes.items()},
            "cause": None if self.cause is None else self.cause.as_json,
        }


def explain(connection: Connection, run_id: int | None, *, first_run: int | None = None) -> Explanation | None:
    """Explain the degraded canaries of a run; `first_run` is the first bad one of the alert it is told for.

    None where there is none, or nothing was measured.
    """
    return explain_all(connection, [(run_id, first_run)])[0] if run_id is not None else None


def explain_all(connection: Connection, asked: Sequence[tuple[int, int | None]]) -> list[Explanation | None]:
    """Explain the degraded canaries of several runs, each given with a first bad one, as `explain` does of one.

    However many runs they are, the database is asked as often.
    """
    changes = changed_all(connection, asked)
    newest = degraded_at_run.newest_diagnosis(connection)
    keys = [
        ("explanation", one, newest, changed and changed.run.finished_at)
        for one, changed in zip(asked, changes, strict=True)
    ]
    told = {key: find_cached(connection, key) for key in keys}
    unknown = {key: one for key, one in zip(keys, changes, strict=True) if one is not None and told[key] is None}
    by_run = {one.run.id: one for one in unknown.values()}
    known = _standing(connection, {run_id: one.degraded for run_id, one in by_run.items()}) if by_run else {}
    shared = causes_of(connection, by_run) if by_run else {}
    for key, one in unknown.items():
        told[key] = cached(connection, key, partial(_explanation, one, known[one.run.id], shared.get(one.run.id)))
    return [told[key] for key in keys]


def _explanation(
    changed: ChangedRun, known: Mapping[int, DiagnosisRow], cause: RunCause | None
) -> tuple[Explanation, int]:
    """Return the explanation of a run and its size in bytes."""
    chronic = changed.degraded.keys() - changed.fell
    if cause is not None:
        known = {canary: _explained(row, cause) for canary, row in known.items()}
    everyone = [
        _member(changed, member, groups, known.get(member.canary_id), is_chronic=member.canary_id in chronic)
        for position, (member, groups) in enumerate(zip(changed.members, changed.suite.groups, strict=True))
        if position not in changed.missing.failures
    ]
    found = fleet(everyone, cause=cause, first=not changed.compared)
    by_key = {changed.members[changed.suite.positions[canary]].key: row for canary, row in known.items()}
    summary = _summarized(changed, by_key, found, cause)
    explanation = Explanation(fleet=found, cause=cause, known=by_key, changed=summary)
    return explanation, _BYTES + len(by_key) * _BYTES_PER_DIAGNOSIS + len(summary.reasons) * _BYTES_PER_CANARY


def _explained(row: DiagnosisRow, cause: RunCause) -> DiagnosisRow:
    """Tell a canary by the run's cause, where its own contradicts that."""
    if not cause.overrules(Cause(row.cause)):
        return row
    return replace(row, cause=Cause.SCORE_DRIFT, reason=f"Explained by the run's cause: {cause.phrase}")


def _member(
    changed: ChangedRun,
    member: SuiteMember,
    groups: tuple[Group, ...],
    diagnosis: DiagnosisRow | None,
    *,
    is_chronic: bool,
) -> Member:
    return Member(
        key=member.key,
        groups=groups,
        fallen=member.canary_id in changed.fell,
        chronic=is_chronic,
        persistent=None if diagnosis is None else diagnosis.evidence.get("persistent"),
        chance=changed.chances.get(member.version_id),
        cause=None if diagnosis is None else Cause(diagnosis.cause),
        rank_now=None if diagnosis is None else diagnosis.evidence.get("rank_now"),
    )


def _summarized(
    changed: ChangedRun, known: Mapping[str, DiagnosisRow], found: Fleet, cause: RunCause | None
) -> ChangedCanaries:
    """Say which canaries changed, less those that were well whenever they were asked again."""
    keys = {canary: changed.members[changed.suite.positions[canary]].key for canary in changed.fell}
    fell = [canary for canary in changed.fell if not _is_restless(known.get(keys[canary]))]
    causes = Counter(Cause(known[keys[canary]].cause) for canary in fell if keys[canary] in known)
    group = "" if found.group is None else found.group.name
    return ChangedCanaries(
        count=len(fell),
        of=len(changed.members) - len(changed.missing.failures),
        failing_before=len(changed.degraded) - len(changed.fell),
        reasons=[
            unpack_reasons(changed.degraded[canary].reasons & ~(MISSING if canary in changed.lost_before else 0))
            for canary in fell
        ],
        name=keys[fell[0]] if len(fell) == 1 else group,
        causes=causes,
        shared_cause="" if cause is None else cause.phrase,
        shared_advice="" if cause is None else cause.advice,
        compared=changed.compared,
        restless=len(changed.fell) - len(fell),
    )


def _is_restless(row: DiagnosisRow | None) -> bool:
    return row is not None and row.evidence.get("persistent") is False


def standing(connection: Connection, run: RunRow, degraded: Mapping[int, StateRow]) -> dict[int, DiagnosisRow]:
    """Read the diagnoses that still tell why canaries are degraded at a run, both by canary id.

    That is the newest of each up to then, where it is of the same answer, or of one since the canary degraded that was
    degraded by the same: one that found its expected chunk then and has lost it since is another case.
    """
    return _standing(connection, {run.id: degraded})[run.id]


def _standing(
    connection: Connection, degraded: Mapping[int, Mapping[int, StateRow | FallenRow]]
) -> dict[int, dict[int, DiagnosisRow]]:
    newest = degraded_at_run.diagnoses_at(connection, degraded)
    well = degraded_at_run.healthy_until(connection, newest)
    asked: dict[int, set[int]] = {}
    for found in (row for rows in newest.values() for row in rows.values()):
        asked.setdefault(found.run_id, set()).add(found.canary_id)
    then = degraded_at_run.degraded_at(connection, asked)
    return {
        run_id: {
            canary: found
            for canary, found in newest[run_id].items()
            if found.canary_version_id == mine[canary].canary_version_id
            and (
                found.ranking_id == mine[canary].ranking_id
                or (
                    found.run_id > well[run_id].get(canary, 0)
                    and _is_same_case(then[found.run_id].get(canary), mine[canary])
                )
            )
        }
        for run_id, mine in degraded.items()
    }


def _is_same_case(then: FallenRow | None, now: StateRow | FallenRow) -> bool:
    """Whether a canary is degraded as it was when it was diagnosed; `then`: None = nobody knows any more.

    What else is wrong with a canary that finds none of its expected chunks does not change why; nor does how long an
    answer took, or that the detector names it by now.
    """
    if then is None or then.reasons & now.reasons & MISSING:
        return True
    return not (then.reasons ^ now.reasons) & ~(TIMED | REGRESSED)


# --- since when ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """The first run that was not well, and the change of the index version it may have come with."""

    run_id: int
    index_version: str | None = None
    index_version_before: str | None = None
    runs_after: int = 0
    """How many runs after that change."""

    def __str__(self) -> str:
        """Write it as part of a sentence."""
        text = f"since run {self.run_id}"
        if self.index_version is None:
            return text
        when = f"{counted(self.runs_after, 'run')} after" if self.runs_after else "when"
        return f"{text}, {when} index version {self.index_version_before} -> {self.index_version}"

    @property
    def told(self) -> SinceView:
        """Say it as JSON."""
        return {
            "run_id": str(self.run_id),
            "index_version": self.index_version,
            "index_version_before": self.index_version_before,
            "runs_after": self.runs_after if self.index_version is not None else None,
            "text": str(self),
        }


def since(connection: Connection, first_run: int | None) -> Since | None:
    """Say since when an alert's check is not well, given its first bad run; None = no run began it."""
    return None if first_run is None else since_all(connection, [first_run])[first_run]


def since_all(connection: Connection, first_runs: Collection[int]) -> dict[int, Since]:
    """Say since when checks are not well, by the first bad run of each alert, in one look."""
    marks = diagnoses.marks_before(connection, first_runs)
    return {run_id: _since(run_id, marks.get(run_id)) for run_id in first_runs}


def _since(run_id: int, mark: MarkRow | None) -> Since:
    # The first version there ever was is no change.
    if mark is None or mark.index_version_before is None or mark.runs_after > _NEAR_RUNS:
        return Since(run_id=run_id)
    return Since(
        run_id=run_id,
        index_version=mark.index_version,
        index_version_before=mark.index_version_before,
        runs_after=mark.runs_after,
    )
