"""Which canaries changed since before an alert began: those that got worse, and those that were edited.

A degraded canary changed where the detector names it. Else it changed where it was healthy in the run before the first
bad one, or found the expected chunk then that it has lost; unless it fails in most of the baseline's runs. The other
degraded canaries were failing before. One that asks or expects something else since, or counts otherwise by another k,
lost nothing that is known; another retriever explains what fell as the check first asked it.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

from app.alerts.domain.views import EditsSince, may_move_all
from app.answers.store.answer_rows import rater_of_run
from app.base.db.engine import Connection, cached_of_run, find_cached_of_run
from app.base.texts import short_name
from app.base.values import Value, replace
from app.catalog.service.versions import answers_otherwise, former_versions, load_check, load_suites
from app.detection import store as detector_rows
from app.detection.domain import SIGNALS, Signal
from app.detection.domain.tracker import unpack_baseline
from app.detection.store import DetectionRow
from app.diagnosis.store import causes_of
from app.records.service.past_runs import asked_retriever
from app.records.store import ranking_rows, run_rows, state_rows
from app.records.store.run_rows import PreviousRun, RunRow, Unmeasured
from app.records.store.state_rows import DegradedRow
from app.scoring.evaluation import MISSING, REGRESSED, RELEVANCE
from app.scoring.rankings import Match, match, prepare
from app.scoring.run_inputs import SuiteMember, SuiteSnapshot

_BYTES_PER_CHANGE, _BYTES_PER_CHANCE = 300, 120


class _MeasuredRun(Value):
    """A run that measured something."""

    run: RunRow
    suite: SuiteSnapshot
    missing: Unmeasured
    degraded: Mapping[int, DegradedRow]
    """The measured ones, by canary id."""


class ChangedRun(_MeasuredRun):
    """The degraded canaries of a measured run, compared with the run before the first bad one of an alert."""

    changed_ids: AbstractSet[int]
    """The ids of the changed canaries."""
    lost_before: AbstractSet[int]
    """The ids of the changed canaries that had lost their expected chunk before: they only rank it lower now."""
    named: Sequence[str]
    """The keys of the canaries that an open alarm of the detector names, the strongest evidence first."""
    chances: Mapping[int, float]
    """By version id, the chance that a canary that passed fails in the next run, by the baseline."""
    before_run: int
    """The run before the first bad one; 0 = there was none."""
    redefined_ids: AbstractSet[int]
    """The ids of the changed canaries that asked or expected something else before, or were not there.

    They lost nothing that is known.
    """
    recounted_ids: AbstractSet[int]  # they only count otherwise, by another k
    edit: str
    """What was changed of the check and explains what changed: its k, of redefined canaries, or whom it asks."""
    beside: str
    """What was changed of the check beside, which may explain some of it: whom it asks, or that retriever."""
    beside_first: bool
    """Whether that came with the first bad run."""
    rejudged: int
    """Canaries of the suite that asked or expected something else in the run before, or were judged otherwise."""
    since_first: AbstractSet[int]
    """The ids of the changed canaries that the first bad run degraded as well."""

    @property
    def is_first(self) -> bool:
        """Whether no run ended before the first bad one."""
        return not self.before_run

    @property
    def is_redefined(self) -> bool:
        """Whether all of the changed canaries are redefined."""
        return bool(self.changed_ids) and self.changed_ids == self.redefined_ids

    @property
    def told_ids(self) -> AbstractSet[int]:
        """The ids of the changed canaries that are told as such: those that got worse, where any did."""
        return self.changed_ids if self.is_redefined else self.changed_ids - self.redefined_ids

    @property
    def members(self) -> Sequence[SuiteMember]:
        """All canaries of the run, by position."""
        return self.suite.members

    @property
    def counted(self) -> Sequence[int]:
        """Positions of those that counts are of: the measured ones that expect something, unless others changed too."""
        measured = [place for place in range(len(self.members)) if place not in self.missing.failures]
        expecting = {place for place in measured if self.members[place].canary.expects}
        changed = {self.suite.positions[canary] for canary in self.changed_ids}
        return measured if changed - expecting else sorted(expecting)


_AFTER_PASSING = 0
"""On the second axis of a baseline's rates; after a failure is 1."""
_CHRONIC = 0.5
"""A canary that fails in a larger share of the baseline's runs was failing before."""


def load_changes(connection: Connection, requests: Sequence[tuple[int, int | None]]) -> list[ChangedRun | None]:
    """Return the changed canaries of runs, each given with the first bad run of an alert (None = the run itself).

    None for a run that does not exist, measured nothing, or degraded no canary of a suite that is as it was while no
    cause explains the whole run. The number
    of queries does not depend on the number of runs, but for those since whose beginning the suite or the check was
    edited; the result of a run never changes, and is cached.
    """
    runs = run_rows.find_runs(connection, {run_id for run_id, _ in requests})
    keys = {one: ("changed", one, runs[one[0]].finished_at) for one in requests if one[0] in runs}
    changes: dict[tuple[int, int | None], ChangedRun | None] = {}
    for one, key in keys.items():
        changes[one] = find_cached_of_run(connection, key)
    missing = [one for one in dict.fromkeys(requests) if changes.get(one) is None and one in keys]
    for one, change in zip(missing, _read_changes(connection, missing, runs) if missing else (), strict=True):
        changes[one] = change if change is None else cached_of_run(connection, keys[one], partial(_with_size, change))
    return [changes.get(one) for one in requests]


def _with_size(change: ChangedRun) -> tuple[ChangedRun, int]:
    return change, len(change.degraded) * _BYTES_PER_CHANGE + len(change.chances) * _BYTES_PER_CHANCE


def _read_changes(
    connection: Connection, requests: Sequence[tuple[int, int | None]], runs: Mapping[int, RunRow]
) -> list[ChangedRun | None]:
    measured = _measured_runs(connection, runs)
    first_runs = {one: one[1] or one[0] for one in requests if one[0] in measured}
    earlier = run_rows.previous_known_runs(connection, set(first_runs.values()))
    versions = {first: one.suite_version_id for first, one in earlier.items()}
    # Canaries may find fewer of the chunks they expect, and none be degraded: a cause tells of that.
    whole = [run_id for run_id, _ in first_runs if not measured[run_id].degraded]
    explained = causes_of(connection, whole) if whole else {}
    first_runs = {
        one: first
        for one, first in first_runs.items()
        if measured[one[0]].degraded
        or one[0] in explained
        or versions.get(first) not in {None, measured[one[0]].run.suite_version_id}
    }
    since = [first for (run_id, _), first in first_runs.items() if first != run_id]
    canaries_then: dict[int, set[int]] = {one: set() for one in (*(e.id for e in earlier.values()), *since)}
    edited: dict[int, Collection[int]] = {}
    found_then: dict[int, AbstractSet[int]] = {}
    for (run_id, _), first in first_runs.items():
        if first != run_id:
            canaries_then[first] |= measured[run_id].degraded.keys()
        if first in earlier:
            canaries_then[earlier[first].id] |= measured[run_id].degraded.keys()
            if measured[run_id].degraded and measured[run_id].run.suite_version_id != earlier[first].suite_version_id:
                edited[run_id] = measured[run_id].degraded.keys()
                found_then[run_id] = _found_then(connection, measured[run_id], earlier[first].id)
    then = state_rows.degraded_at(connection, canaries_then)
    found_well = state_rows.versions_found_well(connection, edited) if edited else {}
    suites = load_suites(connection, {one.suite_version_id or 0 for one in earlier.values()} - {0})
    told = {run_id for run_id, _ in first_runs}
    detections = detector_rows.detections_of(connection, sorted(told))
    rates = _failure_rates(connection, detections, {run_id: measured[run_id].suite for run_id in told})
    return [
        None
        if (first_run := first_runs.get(one)) is None
        else _changed_run(
            measured[one[0]],
            then[earlier[first_run].id] if first_run in earlier else {},
            detections.get(one[0]),
            rates.get(one[0], _NO_RATES),
            suite_before=suites.get(earlier[first_run].suite_version_id or 0) if first_run in earlier else None,
            found_well=found_well.get(one[0], {}),
            found_then=found_then.get(one[0], frozenset()),
            edit=_edit(
                connection,
                earlier.get(first_run),
                measured[one[0]],
                first_run,
                frozenset(then.get(first_run, ()) if first_run != one[0] else measured[one[0]].degraded),
            ),
        )
        for one in requests
    ]


def _measured_runs(connection: Connection, runs: Mapping[int, RunRow]) -> dict[int, _MeasuredRun]:
    measured = {run.id: run for run in runs.values() if run.suite_version_id is not None and run.aggregates}
    suites = load_suites(connection, [run.suite_version_id or 0 for run in measured.values()])
    of_run = {run.id: suites[run.suite_version_id or 0] for run in measured.values()}
    missing = run_rows.unmeasured(connection, measured)
    canaries = {
        run.id: [of_run[run.id].members[place].canary_id for place in run.degraded_places] for run in measured.values()
    }
    states = state_rows.degraded_at(connection, canaries)
    return {
        run_id: _MeasuredRun(
            run=run,
            suite=of_run[run_id],
            missing=missing[run_id],
            degraded=_without_unmeasured(states[run_id], of_run[run_id].members, missing[run_id]),
        )
        for run_id, run in measured.items()
    }


def _changed_run(
    one: _MeasuredRun,
    before: Mapping[int, DegradedRow],
    detection: DetectionRow | None,
    rates: "_FailureRates",
    *,
    suite_before: SuiteSnapshot | None,
    found_well: Mapping[int, int],
    found_then: AbstractSet[int],
    edit: "_Edit",
) -> ChangedRun:
    """Return the changed canaries of a run; `before`: those that the run before the first bad one degraded.

    `found_well`: the version in which each canary was last healthy, where the suite changed since that run, and
    `found_then`: those whose chunks of now it found.
    """
    changed = _changed_ids(one.suite.members, one.degraded, before, rates.chronic)
    alarm = detection.body.get("culprits", {}) if detection is not None and detection.open else {}
    redefined = set[int]() if suite_before is None else _redefined(changed, one, suite_before, found_well, found_then)
    by_k = edit.found & changed
    redefined |= by_k
    # Those that only rank lower are degraded once the detector names them.
    later = {canary for canary in changed - edit.since_then if one.degraded[canary].reasons & ~REGRESSED}
    edited = edit.retriever if changed and edit.is_of_first and not later else ""
    edited = recounted_text(*edit.k) if by_k and edit.k is not None and redefined == changed else edited
    return ChangedRun(
        run=one.run,
        suite=one.suite,
        missing=one.missing,
        degraded=one.degraded,
        changed_ids=changed,
        named=[str(named["key"]) for named in alarm.get("named", ())],
        chances=rates.chances,
        lost_before={canary for canary in one.degraded.keys() & before.keys() if before[canary].reasons & MISSING},
        before_run=edit.before_run,
        redefined_ids=redefined,
        recounted_ids=by_k,
        edit=edited,
        beside="" if edited else edit.beside,
        beside_first=edit.is_of_first,
        rejudged=0 if suite_before is None else _rejudged(suite_before, one.suite),
        since_first=changed & edit.since_then,
    )


def _rejudged(before: SuiteSnapshot, now: SuiteSnapshot, *, expecting: bool = False) -> int:
    """Count the canaries of a suite that were others before; `expecting`: of those that expect anything now."""
    if before is now:
        return 0
    then = {member.canary_id: member for member in before.members}
    left = [one for one in now.members if one.canary_id in then and (not expecting or _expects(one))]
    return sum(_is_other(then[one.canary_id], one) for one in left)


def _expects(member: SuiteMember) -> bool:
    return bool(member.canary.expects) or member.canary.negative


def _is_other(was: SuiteMember, now: SuiteMember) -> bool:
    """Whether a canary asks or expects something else than it did."""
    return was.version_id != now.version_id and not was.canary.is_judged_as(now.canary)


class _Edit(Value):
    """What was changed of a check since a run."""

    before_run: int
    """That run; 0 = there was none before the first bad one."""
    since_then: AbstractSet[int]
    """Canaries that the first bad run degraded."""
    k: tuple[int, int] | None = None
    """Before and now, where fewer first hits count."""
    found: AbstractSet[int] = frozenset()
    """Canaries whose expected chunk is among the hits that counted before, and no more."""
    retriever: str = ""
    """In words, where it asks another one."""
    beside: str = ""
    """The same, or that the one it asks was edited."""
    is_of_first: bool = False
    """Whether that is so since the first bad run."""


def _edit(
    connection: Connection,
    before: PreviousRun | None,
    now: _MeasuredRun,
    first_run: int,
    since_then: AbstractSet[int],
) -> _Edit:
    edit = _Edit(before_run=0 if before is None else before.id, since_then=since_then)
    if before is None or before.check_version_id is None or now.run.check_version_id is None:
        return edit
    then, this = (load_check(connection, one)[0] for one in (before.check_version_id, now.run.check_version_id))
    asked = before.retriever_version_id, now.run.retriever_version_id
    if then.retriever != this.retriever:
        is_of_first = asked_retriever(connection, first_run) == this.retriever
        told = reasked_text(then.retriever, this.retriever)
        edit = replace(edit, retriever=told, beside=told, is_of_first=is_of_first)
    elif None not in asked and asked[0] != asked[1]:
        first = run_rows.find_run(connection, first_run)
        is_of_first = first is not None and first.retriever_version_id == asked[1]
        edit = replace(edit, beside=edited_text(this.retriever, before.id), is_of_first=is_of_first)
    if then.k <= this.k:
        return edit
    states = state_rows.states_of(connection, now.run.check_id, now.run.id, list(now.degraded))
    ranks = {canary: Match.from_bytes(state.matched).first_relevant for canary, state in states.items()}
    found = frozenset(canary for canary, rank in ranks.items() if rank is not None and this.k < rank <= then.k)
    return replace(edit, k=(then.k, this.k), found=found)


def edits_since(
    connection: Connection, run_id: int, first_run: int | None, now: RunRow, *, of_answers: bool = False
) -> EditsSince:
    """Return what was edited between a run whose changed canaries people were told of and a later one.

    `first_run`: the first bad run of their alert. `of_answers`: whether that is about generated answers.
    """
    then = run_rows.find_run(connection, run_id)
    find = edits_of_answers if of_answers else _asked_otherwise
    asked = "" if then is None else find(connection, then, now)
    change = load_changes(connection, [(run_id, first_run)])[0]
    if change is None or now.suite_version_id is None or change.run.suite_version_id == now.suite_version_id:
        return EditsSince(asked=asked)
    (suite,) = load_suites(connection, [now.suite_version_id]).values()
    there = {member.canary_id: member for member in suite.members}
    pairs = [(change.members[change.suite.positions[one]], there.get(one)) for one in change.changed_ids]
    left = [(was, one) for was, one in pairs if one is not None and _expects(one)]
    rejudged = sum(_is_other(was, one) for was, one in left)
    in_all, count = _rejudged(change.suite, suite, expecting=True), len(suite.members)
    return EditsSince(
        taken_out=len(pairs) - len(left),
        rejudged=rejudged,
        rejudged_in_all=in_all if may_move_all(in_all, count) else 0,
        suite=count,
        asked=asked,
    )


def _asked_otherwise(connection: Connection, then: RunRow | PreviousRun, now: RunRow) -> str:
    """Say that a run asked another retriever than an earlier one, or an edited one; empty = the same, or unknown."""
    if then.check_version_id is None or now.check_version_id is None:
        return ""
    was, this = (load_check(connection, one)[0].retriever for one in (then.check_version_id, now.check_version_id))
    if was != this:
        return reasked_text(was, this)
    versions = then.retriever_version_id, now.retriever_version_id
    return edited_text(this, then.id) if None not in versions and versions[0] != versions[1] else ""


def edits_of_answers(connection: Connection, before: RunRow, now: RunRow) -> str:
    """Say what a check asks otherwise than in an earlier run, by which answers and their ratings may differ."""
    if before.check_version_id is None or now.check_version_id is None:
        return ""
    edits = edits_of_retriever(connection, before, now)
    then, this = (load_check(connection, one.check_version_id or 0)[0] for one in (before, now))
    if then.judge and this.judge and then.judge != this.judge:
        edits.append(reasked_text(then.judge, this.judge, "judge"))
    elif this.judge:
        edits += _edits_of_judge(connection, this.judge, before, now)
    return ", ".join(edits)


def edits_of_retriever(connection: Connection, before: RunRow, now: RunRow) -> list[str]:
    """Say that a check asks another retriever than in an earlier run, or one that answers otherwise; none = neither."""
    if before.check_version_id is None or now.check_version_id is None:
        return []
    then, this = (load_check(connection, one)[0] for one in (before.check_version_id, now.check_version_id))
    if then.retriever != this.retriever:
        return [reasked_text(then.retriever, this.retriever)]
    is_other = answers_otherwise(connection, before.retriever_version_id, now.retriever_version_id)
    return [edited_text(this.retriever, before.id)] if is_other else []


def _edits_of_judge(connection: Connection, slug: str, before: RunRow, now: RunRow) -> list[str]:
    """Say that a judge rates with another model, address or wording than in an earlier run; none = as it did."""
    then, this = (rater_of_run(connection, one.id) for one in (before, now))
    if then is None or this is None:
        return []
    if then["model"] != this["model"]:
        models = f"rates with {short_name(this['model'])}, it rated with {short_name(then['model'])}"
        return [f"judge {short_name(slug)} {models}"]
    if then.get("endpoint") != this.get("endpoint"):
        return [edited_text(slug, before.id, "judge")]
    both = then["wordings"].keys() & this["wordings"].keys()
    is_reworded = any(then["wordings"][one] != this["wordings"][one] for one in both)
    return [f"judge {short_name(slug)} is asked in other words"] if is_reworded else []


def _redefined(
    canaries: Collection[int],
    now: _MeasuredRun,
    before: SuiteSnapshot,
    found_well: Mapping[int, int],
    found_then: AbstractSet[int],
) -> set[int]:
    """Return those of these canaries that asked or expected something else before, or were not there.

    Without those that any run found well as they are now; and those that find nothing of what they expect, though the
    run before the fault found some of it: that is lost.
    """
    members = {one: now.suite.members[now.suite.positions[one]] for one in canaries}
    then = {member.canary_id: member for member in before.members if member.canary_id in members}
    asked = {one for one in then if then[one].canary.asked == members[one].canary.asked}
    return {
        one
        for one, member in members.items()
        if member.version_id != found_well.get(one)
        and not (one in then and then[one].canary.is_judged_as(member.canary))
        and not (one in asked & found_then and now.degraded[one].reasons & MISSING)
    }


def _found_then(connection: Connection, now: _MeasuredRun, run_id: int) -> frozenset[int]:
    """Return the degraded canaries of a run whose expected chunks of now an earlier run had among its first k hits."""
    k = 0 if now.run.check_version_id is None else load_check(connection, now.run.check_version_id)[0].k
    had = state_rows.rankings_at(connection, now.run.check_id, run_id, list(now.degraded))
    rankings = ranking_rows.load_rankings(connection, sorted({ranking_id for ranking_id, _ in had.values()}))
    found = set()
    for canary_id, (ranking_id, _) in had.items():
        canary = now.suite.members[now.suite.positions[canary_id]].canary
        rank = match(prepare(canary.judgments), rankings[ranking_id]).first_relevant
        if rank is not None and rank <= k:
            found.add(canary_id)
    return frozenset(found)


def changed_keys(connection: Connection, requests: Sequence[tuple[int, int | None]]) -> frozenset[str]:
    """Keys of all canaries that changed in these runs, each given with the first bad run of an alert."""
    return frozenset(
        member.key
        for change in load_changes(connection, requests)
        if change is not None
        for member in change.members
        if member.canary_id in change.changed_ids
    )


def _changed_ids(
    members: Sequence[SuiteMember],
    degraded: Mapping[int, DegradedRow],
    before: Mapping[int, DegradedRow],
    chronic: AbstractSet[int],
) -> set[int]:
    versions = {member.canary_id: member.version_id for member in members}
    return {
        canary
        for canary, row in degraded.items()
        # It was healthy before or, however low its relevance was, found the chunk that it lost.
        if row.reasons & REGRESSED
        or (
            versions[canary] not in chronic
            and ((was := before.get(canary)) is None or row.reasons & ~was.reasons & MISSING)
        )
    }


def _without_unmeasured(
    states: Mapping[int, DegradedRow], members: Sequence[SuiteMember], missing: Unmeasured
) -> dict[int, DegradedRow]:
    """Degraded states of a run without those it did not measure, as in `degraded_states` of `past_runs`."""
    measured = {}
    for position, member in enumerate(members):
        row = states.get(member.canary_id)
        if row is None or position in missing.failures:
            continue
        if row.reasons & ~RELEVANCE or position not in missing.unscored:
            measured[row.canary_id] = row
    return measured


class _FailureRates(Value):
    """How often canaries fail by a baseline."""

    chances: Mapping[int, float]
    """By version id, the chance to fail after a pass."""
    chronic: frozenset[int]
    """The ids of versions that mostly fail."""


_NO_RATES = _FailureRates(chances={}, chronic=frozenset())


def _failure_rates(
    connection: Connection, detections: Mapping[int, DetectionRow], suites: Mapping[int, SuiteSnapshot]
) -> dict[int, _FailureRates]:
    """Failure rates by run id, of the baseline the run was compared with; without those that had no baseline yet."""
    baseline_ids = {run_id: one.baseline_id for run_id, one in detections.items() if one.baseline_id is not None}
    bodies = detector_rows.bodies_of_baselines(connection, set(baseline_ids.values()))
    found: dict[int, _FailureRates] = {}
    for number, body in bodies.items():
        baseline = unpack_baseline(body, None)
        rates = baseline.rates[SIGNALS.index(Signal.LOST)]
        versions = [int(key) for key in baseline.keys]
        passing = zip(versions, rates[_AFTER_PASSING].tolist(), baseline.known, strict=True)
        # Lost in most runs, by the stationary share of a Markov chain with these two rates.
        newly, again = rates.astype(float)
        mostly = (newly / (newly + 1 - again) > _CHRONIC) & baseline.known
        found[number] = _FailureRates(
            chances={version: rate for version, rate, is_known in passing if is_known},
            chronic=frozenset(version for version, is_lost in zip(versions, mostly, strict=True) if is_lost),
        )
    return {
        run_id: _of_suite(connection, suites[run_id], found[number])
        for run_id, number in baseline_ids.items()
        if number in found
    }


def _of_suite(connection: Connection, suite: SuiteSnapshot, rates: _FailureRates) -> _FailureRates:
    """Return rates by the versions of a suite, where these ask and expect what those of the baseline did."""
    former = former_versions(connection, suite, rates.chances)
    if not former:
        return rates
    return _FailureRates(
        chances={former.get(version, version): rate for version, rate in rates.chances.items()},
        chronic=frozenset(former.get(version, version) for version in rates.chronic),
    )


def recounted_text(before: int, now: int) -> str:
    """Say that the check counts another number of first hits, as the cause of what changed by that."""
    return f"the check's k is {now:,}, it was {before:,}"


def reasked_text(before: str, now: str, kind: str = "retriever") -> str:
    """Say that the check asks another retriever, or another judge, as the cause of what changed by that."""
    return f"the check asks {kind} {short_name(now)}, it asked {short_name(before)}"


def edited_text(slug: str, run_id: int, kind: str = "retriever") -> str:
    """Say that a retriever, or a judge, was edited, beside what changed."""
    return f"{kind} {short_name(slug)} was edited after run {run_id}"
