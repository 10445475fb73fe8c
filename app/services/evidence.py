"""What an alert can say beyond its rule: the worst canaries of a run, why they fell, and since when all is not well."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from app.domain.counting import counted
from app.domain.detection import SIGNALS, Baseline, Signal, unpack_baseline
from app.domain.diagnosis.fleet import Fleet, Group, GroupKind, Member, fleet
from app.domain.diagnosis.run_causes import RunCause
from app.domain.diagnosis.values import Cause
from app.domain.judging import REGRESSED, RELEVANCE, unpack_reasons
from app.domain.matching import Match
from app.services.run_causes import causes_of
from app.services.scoring import without_relevance
from app.store import detection, diagnosis, fallen, history, probed, suites
from app.store.diagnosis import DiagnosisRow
from app.store.engine import Connection
from app.store.fallen import FallenRow
from app.store.history import RunRow, StateRow
from app.store.probed import Unmeasured

WORST = 10
_LOOK_BACK = 20
_NEAR_RUNS = 10
"""So many runs after a change of the index version, what begins may still come of it."""
_AFTER_PASSING = 0
"""On the second axis of a baseline's rates."""


def worst_canaries(connection: Connection, check_id: int, run_id: int, *, limit: int = WORST) -> list[dict[str, Any]]:
    """Name the most degraded canaries of a run: `key, query, reasons, rank_before, rank_now`.

    `rank_before` is the rank of the first expected chunk when the canary was last healthy; None = not in the ranking,
    or never healthy as far as is remembered.
    """
    run = history.find_run(connection, run_id)
    if run is None or run.suite_version_id is None or not run.aggregates:  # one that could not ask tells nothing
        return []
    members = {member.canary_id: member for member in suites.suite_version(connection, run.suite_version_id)[1]}
    degraded = reported(connection, run, {canary_id: position for position, canary_id in enumerate(members)})
    degraded.sort(key=lambda state: badness(state, members[state.canary_id].key))
    return [
        {
            "key": members[state.canary_id].key,
            "query": members[state.canary_id].body["query"],
            "reasons": [str(reason) for reason in unpack_reasons(state.reasons)],
            "rank_before": _rank(_last_well(connection, check_id, state)),
            "rank_now": _rank(state),
        }
        for state in degraded[:limit]
    ]


def reported(connection: Connection, run: RunRow, positions: Mapping[int, int]) -> list[StateRow]:
    """Read what held for the canaries a run calls degraded; `positions` are those of its canaries, by id.

    One whose probe failed is unknown, and where relevance could not be measured nothing is said of it.
    """
    _, failures = history.probes_of(connection, run.id)
    unscored = set(history.unscored_at(connection, run.id))
    found = [
        without_relevance(state) if positions[state.canary_id] in unscored else state
        for state in history.states_at(connection, run.check_id, run.id, only_degraded=True).values()
        if state.canary_id in positions and positions[state.canary_id] not in failures
    ]
    return [state for state in found if state.reasons]


def badness(state: StateRow, key: str) -> tuple[int, float, str]:
    """Order as reports do, see shapes.worst_first: most reasons first, then the lowest top score, unknown ones last."""
    return -len(unpack_reasons(state.reasons)), 1.0 if state.top_score is None else state.top_score, key


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

    def of(self, key: str) -> dict[str, Any]:
        """Say why a canary fell, as part of a notice: `cause, cause_reason, persistent`; None where nobody asked."""
        found = self.known.get(key)
        return {
            "cause": None if found is None else found.cause,
            "cause_reason": None if found is None else found.reason,
            "persistent": None if found is None else found.evidence.get("persistent"),
        }

    @property
    def told(self) -> dict[str, Any]:
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
    found = history.find_runs(connection, {run_id for run_id, _ in asked})
    told = {run.id: run for run in found.values() if run.suite_version_id is not None and run.aggregates}
    lists = suites.suite_versions_of(connection, [run.suite_version_id or 0 for run in told.values()])
    members = {run.id: lists[run.suite_version_id or 0][1] for run in told.values()}
    missing = probed.unmeasured(connection, told)
    called = {run.id: [members[run.id][place].canary_id for place in run.degraded_places] for run in told.values()}
    held = fallen.degraded_at(connection, called)
    degraded = {run_id: _measured(held[run_id], members[run_id], missing[run_id]) for run_id in told}
    begun = {(run_id, first): first or run_id for run_id, first in asked if degraded.get(run_id)}
    earlier = fallen.ended_before(connection, set(begun.values()))
    fell_since: dict[int, set[int]] = {run_id: set() for run_id in earlier.values()}
    for (run_id, _), first in begun.items():
        if first in earlier:
            fell_since[earlier[first]] |= degraded[run_id].keys()
    before = fallen.degraded_at(connection, fell_since)
    known = _standing(connection, degraded)
    chances = _chances(connection, [run_id for run_id in told if degraded[run_id]])
    shared = causes_of(connection, told)
    return [
        _explanation(
            members[one[0]],
            missing[one[0]],
            degraded[one[0]].keys(),
            before[earlier[begun[one]]].keys() if begun[one] in earlier else None,
            known[one[0]],
            chances.get(one[0], {}),
            shared.get(one[0]),
        )
        if one in begun
        else None
        for one in asked
    ]


def _explanation(
    members: Sequence[suites.Member],
    missing: Unmeasured,
    degraded: AbstractSet[int],
    before: AbstractSet[int] | None,
    known: Mapping[int, DiagnosisRow],
    chances: Mapping[int, float],
    cause: RunCause | None,
) -> Explanation:
    """Explain a run by who is degraded and who was so `before`; None = no run before measured anything."""
    chronic = before or frozenset()
    everyone = [
        Member(
            key=member.key,
            groups=_groups(member.body),
            fallen=member.canary_id in degraded - chronic,
            chronic=member.canary_id in chronic,
            persistent=known[member.canary_id].evidence.get("persistent") if member.canary_id in known else None,
            chance=chances.get(member.version_id),
            cause=Cause(known[member.canary_id].cause) if member.canary_id in known else None,
            rank_now=known[member.canary_id].evidence.get("rank_now") if member.canary_id in known else None,
        )
        for position, member in enumerate(members)
        if position not in missing.failures
    ]
    keys = {member.canary_id: member.key for member in members}
    return Explanation(
        fleet=fleet(everyone, cause=cause, first=before is None),
        cause=cause,
        known={keys[canary]: row for canary, row in known.items()},
    )


def _measured(
    held: Mapping[int, FallenRow], members: Sequence[suites.Member], missing: Unmeasured
) -> dict[int, FallenRow]:
    """Leave out of what held at a run, as `reported` does, what it did not measure."""
    found = {}
    for position, member in enumerate(members):
        row = held.get(member.canary_id)
        if row is None or position in missing.failures:
            continue
        if row.reasons & ~RELEVANCE or position not in missing.unscored:
            found[row.canary_id] = row
    return found


def _chances(connection: Connection, run_ids: Sequence[int]) -> dict[int, dict[int, float]]:
    """Read how often canaries lose what they expect right after having found it, by run id and version id.

    As learned by the baseline that a run was compared with, of those it knows; none where there was no baseline yet.
    """
    seen = detection.detections_of(connection, run_ids)
    compared = {run_id: one.baseline_id for run_id, one in seen.items() if one.baseline_id is not None}
    bodies = detection.bodies_of_baselines(connection, set(compared.values()))
    rates = {baseline_id: _rates(unpack_baseline(body, None)) for baseline_id, body in bodies.items()}
    return {run_id: rates[baseline_id] for run_id, baseline_id in compared.items() if baseline_id in rates}


def _rates(baseline: Baseline) -> dict[int, float]:
    rates = baseline.rates[SIGNALS.index(Signal.LOST), _AFTER_PASSING].tolist()
    return {int(key): rate for key, rate, known in zip(baseline.keys, rates, baseline.known, strict=True) if known}


def _groups(body: Mapping[str, Any]) -> tuple[Group, ...]:
    documents = dict.fromkeys(chunk["document"] for chunk in body["expected_chunks"] if chunk["document"] is not None)
    return (
        Group(kind=GroupKind.CATEGORY, name=body["category"]),
        *(Group(kind=GroupKind.TAG, name=tag) for tag in body["tags"]),
        *(Group(kind=GroupKind.DOCUMENT, name=name) for name in documents),
    )


def standing(connection: Connection, run: RunRow, degraded: Mapping[int, StateRow]) -> dict[int, DiagnosisRow]:
    """Read the diagnoses that still tell why canaries are degraded at a run, both by canary id.

    That is the newest of each up to then, where it is of the same answer or of one since the canary degraded.
    """
    return _standing(connection, {run.id: degraded})[run.id]


def _standing(
    connection: Connection, degraded: Mapping[int, Mapping[int, StateRow | FallenRow]]
) -> dict[int, dict[int, DiagnosisRow]]:
    newest = fallen.diagnoses_at(connection, degraded)
    well = fallen.healthy_until(connection, newest)
    return {
        run_id: {
            canary: found
            for canary, found in newest[run_id].items()
            if found.canary_version_id == mine[canary].canary_version_id
            and (found.ranking_id == mine[canary].ranking_id or found.run_id > well[run_id].get(canary, 0))
        }
        for run_id, mine in degraded.items()
    }


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
    def told(self) -> dict[str, Any]:
        """Say it as JSON."""
        return {
            "run_id": str(self.run_id),
            "index_version": self.index_version,
            "index_version_before": self.index_version_before,
            "runs_after": self.runs_after if self.index_version is not None else None,
            "text": str(self),
        }


def since(connection: Connection, check_id: int, first_run: int | None) -> Since | None:
    """Say since when an alert's check is not well, given its first bad run; None = no run began it."""
    if first_run is None:
        return None
    mark = diagnosis.mark_before(connection, check_id, first_run)
    if mark is None or mark[2] is None:  # the first version there ever was is no change
        return Since(run_id=first_run)
    after = diagnosis.count_runs(connection, check_id, mark[0], first_run)
    if after > _NEAR_RUNS:
        return Since(run_id=first_run)
    return Since(run_id=first_run, index_version=mark[1], index_version_before=mark[2], runs_after=after)


def last_well(connection: Connection, now: StateRow | None, past: Sequence[StateRow]) -> StateRow | None:
    """Give the newest of these states, newest first, in which a canary was well; None = there is none.

    Where it is the detector that names it now, that is one of before the fault, with another answer: a fault that no
    limit catches is told healthy until enough runs have shown it.
    """
    healthy = (state for state in past if not state.reasons)
    if now is None or not now.reasons & REGRESSED:
        return next(healthy, None)
    named = detection.detections_of(connection, [now.first_run]).get(now.first_run)
    since = now.first_run if named is None or named.since_run is None else named.since_run
    return next((one for one in healthy if one.first_run < since and one.ranking_id != now.ranking_id), None)


def _last_well(connection: Connection, check_id: int, now: StateRow) -> StateRow | None:
    past = history.timeline(connection, check_id, now.canary_id, limit=_LOOK_BACK)
    return last_well(connection, now, [state for state in past if state.first_run < now.first_run])


def _rank(state: StateRow | None) -> int | None:
    return Match.from_bytes(state.matched).first_relevant if state is not None else None
