"""Which degraded canaries of a run changed since before an alert began, and which of them lists name first.

A canary has changed that was well in the run before the first bad one, or found its expected chunk there and does not
now, and does not fail most of the time while all is well; and every canary that the detector names. The others were
failing before, and are counted only.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from heapq import nsmallest
from typing import Any

from app.domain.alerts.lost_chunks import lost_chunks
from app.domain.detection import SIGNALS, Baseline, Signal, unpack_baseline
from app.domain.model import Ranking
from app.domain.runs.matching import Match
from app.domain.runs.suite_snapshot import Member, SuiteSnapshot
from app.domain.runs.tally import MISSING, REGRESSED, RELEVANCE, unpack_reasons
from app.services.catalog.suite_snapshots import load_suites
from app.store.detection import detectors
from app.store.detection.detectors import DetectionRow
from app.store.engine import Connection, cached, find_cached
from app.store.history import degraded_at_run, probe_outcomes
from app.store.history.degraded_at_run import FallenRow
from app.store.history.probe_outcomes import Unmeasured
from app.store.runs import recording, results
from app.store.runs.results import RunRow, StateRow

WORST = 10
_BYTES_PER_CANARY, _BYTES_PER_CHANCE = 300, 120
_LOOK_BACK = 20
_MOST_LOWER = 3
_AFTER_PASSING, _AFTER_FAILING = 0, 1
"""On the second axis of a baseline's rates."""
_CHRONIC = 0.5
"""A canary that fails in more of the baseline's runs was failing before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRun:
    """The degraded canaries of a run with something measured, seen from the first bad run of an alert."""

    run: RunRow
    suite: SuiteSnapshot
    missing: Unmeasured
    degraded: Mapping[int, FallenRow]
    """Of all that were measured, by canary id."""
    fell: AbstractSet[int]
    """The ids of those that changed."""
    lost_before: AbstractSet[int]
    """The ids of those that changed and had lost their expected chunk before: they only rank it lower now."""
    named: Sequence[str]
    """The keys of the canaries that an open alarm of the detector names, the strongest evidence first."""
    chances: Mapping[int, float]
    """By version id, how likely a canary that passed was to fail in the next run while all was well."""
    compared: bool
    """Whether a run ended before the first bad one."""

    @property
    def members(self) -> Sequence[Member]:
        """All canaries of the run, by position."""
        return self.suite.members


def changed_all(connection: Connection, asked: Sequence[tuple[int, int | None]]) -> list[ChangedRun | None]:
    """Read what changed in several runs, each given with the first bad run of an alert; None = there it is the first.

    None for a run that is not there, measured nothing, or degraded nobody. However many runs they are, the database is
    asked as often; what changed in a run stays so, and is read once.
    """
    runs = results.find_runs(connection, {run_id for run_id, _ in asked})
    keys = {one: ("changed", one, runs[one[0]].finished_at) for one in asked if one[0] in runs}
    known: dict[tuple[int, int | None], ChangedRun | None] = {}
    for one, key in keys.items():
        known[one] = find_cached(connection, key)
    unknown = [one for one in dict.fromkeys(asked) if known.get(one) is None and one in keys]
    for one, found in zip(unknown, _read_changed(connection, unknown, runs) if unknown else (), strict=True):
        known[one] = found if found is None else cached(connection, keys[one], partial(_sized, found))
    return [known.get(one) for one in asked]


def _sized(found: ChangedRun) -> tuple[ChangedRun, int]:
    return found, len(found.degraded) * _BYTES_PER_CANARY + len(found.chances) * _BYTES_PER_CHANCE


def _read_changed(
    connection: Connection, asked: Sequence[tuple[int, int | None]], runs: Mapping[int, RunRow]
) -> list[ChangedRun | None]:
    told = {run.id: run for run in runs.values() if run.suite_version_id is not None and run.aggregates}
    lists = load_suites(connection, [run.suite_version_id or 0 for run in told.values()])
    members = {run.id: lists[run.suite_version_id or 0].members for run in told.values()}
    missing = probe_outcomes.unmeasured(connection, told)
    called = {run.id: [members[run.id][place].canary_id for place in run.degraded_places] for run in told.values()}
    held = degraded_at_run.degraded_at(connection, called)
    degraded = {run_id: _measured(held[run_id], members[run_id], missing[run_id]) for run_id in told}
    begun = {(run_id, first): first or run_id for run_id, first in asked if degraded.get(run_id)}
    earlier = degraded_at_run.ended_before(connection, set(begun.values()))
    asked_before: dict[int, set[int]] = {run_id: set() for run_id in earlier.values()}
    for (run_id, _), first in begun.items():
        if first in earlier:
            asked_before[earlier[first]] |= degraded[run_id].keys()
    before = degraded_at_run.degraded_at(connection, asked_before)
    seen = detectors.detections_of(connection, [run_id for run_id in told if degraded[run_id]])
    chances, chronic = _rates_of(connection, seen)
    return [
        ChangedRun(
            run=told[one[0]],
            suite=lists[told[one[0]].suite_version_id or 0],
            missing=missing[one[0]],
            degraded=degraded[one[0]],
            fell=_fell(
                members[one[0]],
                degraded[one[0]],
                before.get(earlier.get(begun[one], 0), {}),
                chronic.get(one[0], frozenset()),
            ),
            named=_named(seen.get(one[0])),
            chances=chances.get(one[0], {}),
            lost_before=_lost_before(degraded[one[0]], before.get(earlier.get(begun[one], 0), {})),
            compared=begun[one] in earlier,
        )
        if one in begun
        else None
        for one in asked
    ]


def changed_keys(connection: Connection, asked: Sequence[tuple[int, int | None]]) -> frozenset[str]:
    """Keys of all canaries that changed in these runs, each given with the first bad run of an alert."""
    return frozenset(
        member.key
        for found in changed_all(connection, asked)
        if found is not None
        for member in found.members
        if member.canary_id in found.fell
    )


def _fell(
    members: Sequence[Member],
    degraded: Mapping[int, FallenRow],
    before: Mapping[int, FallenRow],
    chronic: AbstractSet[int],
) -> set[int]:
    versions = {member.canary_id: member.version_id for member in members}
    return {
        canary
        for canary, row in degraded.items()
        if row.reasons & REGRESSED or (versions[canary] not in chronic and _is_worse(row, before.get(canary)))
    }


def _lost_before(degraded: Mapping[int, FallenRow], before: Mapping[int, FallenRow]) -> set[int]:
    return {canary for canary in degraded.keys() & before.keys() if before[canary].reasons & MISSING}


def _is_worse(now: FallenRow, before: FallenRow | None) -> bool:
    """Whether a degraded canary was well before or, however low its relevance was, found the chunk that it lost."""
    return before is None or bool(now.reasons & ~before.reasons & MISSING)


def _named(seen: DetectionRow | None) -> list[str]:
    if seen is None or not seen.open:
        return []
    return [str(one["key"]) for one in seen.body.get("culprits", {}).get("named", ())]


def _measured(held: Mapping[int, FallenRow], members: Sequence[Member], missing: Unmeasured) -> dict[int, FallenRow]:
    """Leave out of what held at a run, as `reported` does, what it did not measure."""
    found = {}
    for position, member in enumerate(members):
        row = held.get(member.canary_id)
        if row is None or position in missing.failures:
            continue
        if row.reasons & ~RELEVANCE or position not in missing.unscored:
            found[row.canary_id] = row
    return found


def _rates_of(
    connection: Connection, seen: Mapping[int, DetectionRow]
) -> tuple[dict[int, dict[int, float]], dict[int, frozenset[int]]]:
    """Read how often canaries fail while all is well, by run id: chances by version id, and who fails mostly.

    As learned by the baseline that a run was compared with, of those it knows; none where there was no baseline yet.
    """
    compared = {run_id: one.baseline_id for run_id, one in seen.items() if one.baseline_id is not None}
    bodies = detectors.bodies_of_baselines(connection, set(compared.values()))
    known = {baseline_id: unpack_baseline(body, None) for baseline_id, body in bodies.items()}
    chances = {number: _chances(baseline) for number, baseline in known.items()}
    chronic = {number: _chronic(baseline) for number, baseline in known.items()}
    of = {run_id: number for run_id, number in compared.items() if number in known}
    return (
        {run_id: chances[number] for run_id, number in of.items()},
        {run_id: chronic[number] for run_id, number in of.items()},
    )


def _chances(baseline: Baseline) -> dict[int, float]:
    rates = baseline.rates[SIGNALS.index(Signal.LOST), _AFTER_PASSING].tolist()
    return {int(key): rate for key, rate, known in zip(baseline.keys, rates, baseline.known, strict=True) if known}


def _chronic(baseline: Baseline) -> frozenset[int]:
    """Give the versions that are lost in most runs: the stationary share of a chain with these two rates."""
    newly, again = baseline.rates[SIGNALS.index(Signal.LOST)].astype(float)
    lost = newly / (newly + 1 - again) > _CHRONIC
    return frozenset(int(key) for key, mostly in zip(baseline.keys, lost & baseline.known, strict=True) if mostly)


# --- lists ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedList:
    """The canaries that a list about an alert names, and how many it does not."""

    canaries: Sequence[dict[str, Any]] = ()
    """`key, query, reasons, rank_before, rank_now, lower, lost, lost_total` each."""
    changed: int = 0
    """How many changed, those beyond the list included."""
    failing_before: int = 0
    """How many others are degraded too."""


def list_changed(
    connection: Connection,
    run_id: int,
    first_run: int | None,
    *,
    category: str | None = None,
    canary: str | None = None,
    unchanged: bool = False,
    limit: int = WORST,
) -> ChangedList:
    """Name the canaries of a run that changed since before a first bad run, of a category or a single one only.

    Those that the detector names come first, then the most degraded; with `unchanged` those that were failing before
    follow. `rank_before` is the rank of the first expected chunk when the canary was last healthy or, of one that lost
    its chunk, last found it; None = not in the ranking, or never so as far as is remembered. `lower` lists the expected
    chunks that rank lower than then, or are not retrieved any more.
    """
    (found,) = changed_all(connection, [(run_id, first_run)])
    if found is None:
        return ChangedList()
    members = {canary_id: found.suite.members[found.suite.positions[canary_id]] for canary_id in found.degraded}
    concerned = {
        canary_id
        for canary_id, member in members.items()
        if (category is None or member.canary.category == category) and (canary is None or member.key == canary)
    }
    fell = concerned if canary is not None else concerned & found.fell
    order = {key: place for place, key in enumerate(found.named)}
    unscored = {found.members[place].canary_id for place in found.missing.unscored}
    rows = {one: found.degraded[one] for one in (concerned if unchanged else fell)}
    rows |= {one: _without_relevance(rows[one]) for one in unscored & rows.keys()}
    worst = nsmallest(
        limit,
        rows.values(),
        key=lambda row: (
            row.canary_id not in fell,
            order.get(members[row.canary_id].key, len(order)),
            not row.reasons & REGRESSED,
            badness(row, members[row.canary_id].key),
        ),
    )
    states = results.states_of(connection, found.run.check_id, run_id, [row.canary_id for row in worst])
    now = [replace(states[row.canary_id], reasons=row.reasons) for row in worst if row.canary_id in states]
    before = [_last_well(connection, found.run.check_id, state) for state in now]
    then = recording.load_rankings(connection, [one.ranking_id for one in before if one is not None])
    return ChangedList(
        canaries=[
            _listed(members[state.canary_id], state, past, then.get(past.ranking_id) if past is not None else None)
            for state, past in zip(now, before, strict=True)
        ],
        changed=len(fell),
        failing_before=len(concerned) - len(fell),
    )


def _without_relevance(row: FallenRow) -> FallenRow:
    return replace(row, top_score=None, reasons=row.reasons & ~RELEVANCE)


def _listed(member: Member, state: StateRow, before: StateRow | None, ranking: Ranking | None) -> dict[str, Any]:
    """Describe a canary; `ranking` is that of `before`."""
    return {
        "key": member.key,
        "query": member.canary.query,
        "reasons": [str(reason) for reason in unpack_reasons(state.reasons)],
        "rank_before": _rank(before),
        "rank_now": _rank(state),
        "lower": [] if before is None else _lower(member, before, state, ranking),
        **_lost(member, before, state),
    }


def _lost(member: Member, before: StateRow | None, now: StateRow) -> dict[str, Any]:
    chunks = member.canary.judgments
    today = Match.from_bytes(now.matched).first
    then = None
    if before is not None and before.canary_version_id == now.canary_version_id:
        then = Match.from_bytes(before.matched).first
    if len(today) != len(chunks) or (then is not None and len(then) != len(chunks)):
        then, today = None, (None,) * len(chunks)
    return lost_chunks(chunks, today, then, missing=bool(now.reasons & MISSING))


def _lower(member: Member, before: StateRow, now: StateRow, ranking: Ranking | None) -> list[dict[str, Any]]:
    """List what a canary expects and ranks lower than before, those it does not retrieve any more first.

    Where it is not expected by its document, that is the document of the hit that was found for it before.
    """
    documents = () if ranking is None else ranking.documents
    chunks = member.canary.judgments
    then, today = (Match.from_bytes(state.matched).first for state in (before, now))
    if before.canary_version_id != now.canary_version_id or not len(chunks) == len(then) == len(today):
        return []
    fell = [
        {
            "id": chunk.id,
            "document": chunk.document or (documents[was - 1] if was <= len(documents) else None),
            "rank_before": was,
            "rank_now": rank,
        }
        for chunk, was, rank in zip(chunks, then, today, strict=True)
        if chunk.grade >= 1 and was is not None and (rank is None or rank > was)
    ]
    fell.sort(key=lambda one: (one["rank_now"] is not None, one["rank_before"]))
    return fell[:_MOST_LOWER]


def badness(state: StateRow | FallenRow, key: str) -> tuple[int, float, str]:
    """Order as reports do, see shapes.worst_first: most reasons first, then the lowest top score, unknown ones last."""
    return -state.reasons.bit_count(), 1.0 if state.top_score is None else state.top_score, key


def last_well(connection: Connection, now: StateRow | None, past: Sequence[StateRow]) -> StateRow | None:
    """Give the newest of these states, newest first, in which a canary was well; None = there is none.

    One that lost its chunk was well as long as it found it, whatever else was wrong then.
    Where it is the detector that names it now, that is one of before the fault, with another answer: a fault that no
    limit catches is told healthy until enough runs have shown it. Of one that never was well, the newest before the
    fault: it is worse than it was.
    """
    counted = MISSING if now is not None and now.reasons & MISSING else -1
    healthy = [state for state in past if not state.reasons & counted]
    if now is None or not now.reasons & REGRESSED:
        return next(iter(healthy), None)
    named = detectors.detections_of(connection, [now.first_run]).get(now.first_run)
    since = now.first_run if named is None or named.since_run is None else named.since_run
    usual = [state for state in past if not state.reasons & REGRESSED]
    return next((one for one in (*healthy, *usual) if one.first_run < since and one.ranking_id != now.ranking_id), None)


def _last_well(connection: Connection, check_id: int, now: StateRow) -> StateRow | None:
    past = results.timeline(connection, check_id, now.canary_id, limit=_LOOK_BACK)
    return last_well(connection, now, [state for state in past if state.first_run < now.first_run])


def _rank(state: StateRow | None) -> int | None:
    return Match.from_bytes(state.matched).first_relevant if state is not None else None
