"""Evidence of an alert beyond its rule: what the canaries that changed have in common, their causes, since when."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from heapq import nsmallest

from app.alerts import store as alerts
from app.alerts.domain.advice import EDITED_ADVICE, REDEFINED_ADVICE, REDEFINED_BRIEF
from app.alerts.domain.conditions import LEAKS_TOLD, Leak, Leaks
from app.alerts.domain.rules import watches_answers
from app.alerts.domain.state import NON_REPEATING, NOT_ABOUT_CANARIES, OPEN, is_about_canaries
from app.alerts.domain.summaries import ChangedCanaries, redefined_text
from app.alerts.domain.views import (
    ChangedCanary,
    Degradation,
    FleetView,
    ForbiddenHit,
    LeakView,
    ListedCanaries,
    LowerChunk,
    StoredEvidence,
    WorseAnswer,
    WorseAnswers,
    lost_chunks,
)
from app.alerts.service.changes import ChangedRun, changed_keys, edits_of_answers, edits_of_retriever, load_changes
from app.alerts.store import AlertRow
from app.answers.domain.generated import answer_change, is_other_rater, value_of
from app.base.db.engine import Connection, cached_of_run, find_cached_of_run
from app.base.texts import (
    counted,
    short_name,
)
from app.base.values import (
    ROUNDING,
    Canary,
    Cause,
    Percentile,
    Ranking,
    Reason,
    Rule,
    RuleKind,
    Value,
    judged_name,
    replace,
)
from app.base.views import view_of
from app.catalog import store as catalog
from app.catalog.domain import PooledNote, pooled_at, recall_label
from app.catalog.service.judges import is_self_judged, pooled_notes
from app.catalog.service.versions import load_check, load_suite
from app.catalog.store import Definition
from app.comparison.service.answers import answers_of
from app.detection import store as detector_rows
from app.detection.service.baselines import CULPRITS
from app.detection.service.detectors import usual_latency
from app.diagnosis.domain.fleets import Fleet, FleetMember, fleet
from app.diagnosis.domain.run_causes import RunCause
from app.diagnosis.store import DiagnosisRow, causes_of, newest_diagnosis
from app.index_facts.store import sentences_of
from app.records.service.past_runs import last_healthy_state, severity_order, valid_diagnoses
from app.records.store import ranking_rows, run_rows, state_rows
from app.records.store.run_rows import RunRow
from app.records.store.state_rows import StateRow
from app.retrievers.domain.probes import url_address
from app.scoring.evaluation import (
    FORBIDDEN,
    MISSING,
    REGRESSED,
    RELEVANCE,
    forbidden_ranks,
    known_reasons,
    unpack_reasons,
)
from app.scoring.rankings import Match, match, prepare
from app.scoring.run_inputs import SuiteMember, UnusableSuiteError
from app.scoring.verdicts import lacking_fields


class FleetEvidence(Value):
    """What the degraded canaries of a run have in common, and the cause of each."""

    fleet: Fleet
    """Of those that were healthy before the alert's first bad run."""
    cause: RunCause | None
    """The one cause that explains the whole run, where there is one."""
    diagnoses: Mapping[str, DiagnosisRow]
    """The diagnosis of each degraded canary by key, where one is still valid."""
    changed: ChangedCanaries
    """Which canaries changed since before the alert's first bad run, for its summary."""

    @property
    def fleet_view(self) -> FleetView:
        """What the canaries have in common, without the single canaries."""
        fleet, group = self.fleet, self.fleet.group
        return view_of(
            FleetView,
            fleet,
            shape=str(fleet.shape),
            group=None if group is None else {"kind": str(group.kind), "name": group.name},
            expected_by_chance=fleet.expected,
            causes={str(cause): count for cause, count in fleet.causes.items()},
            cause=None if self.cause is None else self.cause.as_json,
        )


def load_fleet(connection: Connection, run_id: int | None, *, first_run: int | None = None) -> FleetEvidence | None:
    """Return what the degraded canaries of a run share; None where there is none, or nothing was measured.

    `first_run`: the first bad run of the alert.
    """
    return load_fleets(connection, [(run_id, first_run)])[0] if run_id is not None else None


def load_fleets(connection: Connection, requests: Sequence[tuple[int, int | None]]) -> list[FleetEvidence | None]:
    """Do the same for several runs, each given with a first bad one.

    The number of queries depends on how many runs have more than 400 degraded canaries, not on the number of runs.
    """
    changes = load_changes(connection, requests)
    newest = newest_diagnosis(connection)
    keys = [
        ("fleet", one, newest, changed and changed.run.finished_at)
        for one, changed in zip(requests, changes, strict=True)
    ]
    fleets = {key: find_cached_of_run(connection, key) for key in keys}
    missing = {key: one for key, one in zip(keys, changes, strict=True) if one is not None and fleets[key] is None}
    by_run = {one.run.id: one for one in missing.values()}
    diagnoses = valid_diagnoses(connection, {run_id: one.degraded for run_id, one in by_run.items()}) if by_run else {}
    shared = causes_of(connection, by_run) if by_run else {}
    index = sentences_of(connection, by_run)
    for key, one in missing.items():
        run_id = one.run.id
        build = partial(_build_fleet, one, diagnoses[run_id], shared.get(run_id), index.get(run_id, ""))
        fleets[key] = cached_of_run(connection, key, build)
    return [fleets[key] for key in keys]


def _build_fleet(
    changed: ChangedRun, diagnoses: Mapping[int, DiagnosisRow], cause: RunCause | None, index: str
) -> tuple[FleetEvidence, int]:
    """Return the evidence of a run and its size in bytes; `index`: what is wrong with the index, as clauses."""
    by_edit = changed.changed_ids if changed.edit else changed.recounted_ids  # nothing else is looked for
    diagnoses = {canary: row for canary, row in diagnoses.items() if canary not in by_edit}
    told = [(Cause(row.cause), row.evidence.get("rank_now")) for row in diagnoses.values()]
    # What stands is no loss that a cause could explain.
    is_new = changed.is_redefined and not changed.is_first
    cause = None if changed.edit or is_new or (cause is not None and cause.is_refuted(told)) else cause
    if cause is not None:
        diagnoses = {canary: _overruled_by(row, cause) for canary, row in diagnoses.items()}
    everyone = [_member(changed, place, diagnoses) for place in changed.counted]
    first, redefined = changed.is_first, changed.is_redefined
    beside = "" if cause is not None and cause.index else index
    common = fleet(everyone, cause=cause, is_first=first, is_redefined=redefined, edit=changed.edit, index=beside)
    by_key = {changed.members[changed.suite.positions[canary]].key: row for canary, row in diagnoses.items()}
    summary = _changed_canaries(changed, by_key, common, cause, index)
    evidence = FleetEvidence(fleet=common, cause=cause, diagnoses=by_key, changed=summary)
    return evidence, _BYTES + len(by_key) * _BYTES_PER_DIAGNOSIS + len(summary.reasons) * _BYTES_PER_CANARY


def _overruled_by(row: DiagnosisRow, cause: RunCause) -> DiagnosisRow:
    """Diagnosis of a canary by the run's cause, where its own contradicts that."""
    if not cause.overrules(Cause(row.cause)):
        return row
    return replace(row, cause=cause.cause or Cause.SCORE_DRIFT, reason=f"Explained by the run's cause: {cause.phrase}")


def _member(changed: ChangedRun, place: int, diagnoses: Mapping[int, DiagnosisRow]) -> FleetMember:
    member = changed.members[place]
    diagnosis = diagnoses.get(member.canary_id)
    return FleetMember(
        key=member.key,
        groups=changed.suite.groups[place],
        fallen=member.canary_id in changed.told_ids and _is_worse(changed, member.canary_id),
        chronic=member.canary_id in changed.degraded and member.canary_id not in changed.changed_ids,
        persistent=None if diagnosis is None else diagnosis.evidence.get("persistent"),
        chance=changed.chances.get(member.version_id),
        cause=None if diagnosis is None else Cause(diagnosis.cause),
        rank_now=None if diagnosis is None else diagnosis.evidence.get("rank_now"),
    )


def _is_worse(changed: ChangedRun, canary_id: int) -> bool:
    """Whether a canary is degraded by more than a chunk that it forbids: what was found there is not lost."""
    return bool(changed.degraded[canary_id].reasons & ~FORBIDDEN)


def _changed_canaries(
    changed: ChangedRun, diagnoses: Mapping[str, DiagnosisRow], common: Fleet, cause: RunCause | None, index: str
) -> ChangedCanaries:
    """Return the changed canaries, without those that were healthy on every retry; `index`: see `_build_fleet`."""
    keys = {canary: changed.members[changed.suite.positions[canary]].key for canary in changed.told_ids}
    retried = {key for key, row in diagnoses.items() if row.evidence.get("persistent") is False}
    changed_ids = [canary for canary in changed.told_ids if keys[canary] not in retried]
    causes = Counter(Cause(diagnoses[keys[canary]].cause) for canary in changed_ids if keys[canary] in diagnoses)
    group = "" if common.group is None else common.group.name
    is_new = changed.is_redefined and not changed.is_first and not changed.edit
    told = (changed.edit, EDITED_ADVICE) if changed.edit else ("", "")
    if is_new:
        told = redefined_text(changed.before_run), REDEFINED_ADVICE
    shared_cause, shared_advice = told if cause is None else (cause.phrase, cause.advice)
    return ChangedCanaries(
        count=len(changed_ids),
        of=len(changed.counted),
        failing_before=len(changed.degraded) - len(changed.changed_ids),
        reasons=[
            unpack_reasons(changed.degraded[canary].reasons & ~(MISSING if canary in changed.lost_before else 0))
            for canary in changed_ids
        ],
        name=keys[changed_ids[0]] if len(changed_ids) == 1 else group,
        causes=causes,
        shared_cause=shared_cause,
        shared_brief=cause.brief if cause is not None else REDEFINED_BRIEF if is_new else "the check was changed",
        shared_advice=shared_advice,
        compared=not changed.is_first and not changed.is_redefined,
        edited=bool(changed.edit) or is_new,
        since_run=None if cause is None else cause.since_run,
        losing=0 if cause is None else cause.losing,
        losing_of=0 if cause is None else cause.canaries,
        since_first=(is_old := 2 * len(changed.since_first & set(changed_ids)) >= len(changed_ids)),
        rejudged=changed.rejudged,
        suite=len(changed.members),
        beside="; ".join(one for one in ("" if is_old and not changed.beside_first else changed.beside, index) if one),
        recovered_on_retry=len(changed.told_ids) - len(changed_ids),
        redefined=len(changed.changed_ids) - len(changed.told_ids),
    )


_LISTED = 10
_MAX_STATES = 20
_MOST_LOWER = 3


def list_changed(
    connection: Connection,
    run_id: int,
    first_run: int | None,
    *,
    category: str | None = None,
    canary: str | None = None,
    leaking: bool = False,
    unchanged: bool = False,
    limit: int = _LISTED,
) -> ListedCanaries:
    """List the canaries of a run that changed since before a first bad run, those of a category or a single one only.

    Or those only that got what they forbid (`leaking`).

    Those that the detector names come first, then the most degraded; with `unchanged` those that were failing before
    follow. `rank_before` is the rank of the first expected chunk when the canary was last healthy or, if it lost its
    chunk, last found it; None = not in the ranking, or not within the last states. `lower` lists the expected chunks
    that rank lower than then, or are not retrieved any more.
    """
    (change,) = load_changes(connection, [(run_id, first_run)])
    if change is None:
        return {"canaries": [], "changed": 0, "failing_before": 0}
    members = {canary_id: change.suite.members[change.suite.positions[canary_id]] for canary_id in change.degraded}
    concerned = {
        canary_id
        for canary_id, member in members.items()
        if (category is None or member.canary.category == category)
        and (canary is None or member.key == canary)
        and (not leaking or change.degraded[canary_id].reasons & FORBIDDEN)
    }
    changed_ids = concerned if canary is not None else concerned & change.changed_ids
    order = {key: place for place, key in enumerate(change.named)}
    unscored = {change.members[place].canary_id for place in change.missing.unscored}
    rows = {one: change.degraded[one] for one in (concerned if unchanged else changed_ids)}
    for one in unscored & rows.keys():
        rows[one] = rows[one]._replace(top_score=None, reasons=rows[one].reasons & ~RELEVANCE)
    worst = nsmallest(
        limit,
        rows.values(),
        key=lambda row: (
            row.canary_id not in changed_ids,
            order.get(members[row.canary_id].key, len(order)),
            not row.reasons & REGRESSED,
            severity_order(row, members[row.canary_id].key),
        ),
    )
    states = state_rows.states_of(connection, change.run.check_id, run_id, [row.canary_id for row in worst])
    now = [replace(states[row.canary_id], reasons=row.reasons) for row in worst if row.canary_id in states]
    before = [
        last_healthy_state(connection, state, [one for one in past if one.first_run < state.first_run])
        for state in now
        for past in [state_rows.timeline(connection, change.run.check_id, state.canary_id, limit=_MAX_STATES)]
    ]
    rankings = ranking_rows.load_rankings(connection, [one.ranking_id for one in before if one is not None])
    new = change.changed_ids if change.is_first else change.redefined_ids
    leaks = _leaks_of(connection, change, [one for one in now if one.reasons & FORBIDDEN])
    return {
        "canaries": [
            _listed(
                members[state.canary_id],
                state,
                past,
                rankings.get(past.ranking_id) if past else None,
                is_new=state.canary_id in new,
                recounted=bool(change.edit),
                leak=leaks.get(state.canary_id, {}),
            )
            for state, past in zip(now, before, strict=True)
        ],
        "changed": len(changed_ids),
        "failing_before": len(concerned) - len(changed_ids),
    }


def _leaks_of(connection: Connection, change: ChangedRun, states: Sequence[StateRow]) -> dict[int, LeakView]:
    """Return who got which forbidden chunks, by canary id."""
    rankings = ranking_rows.load_rankings(connection, [one.ranking_id for one in states])
    found: dict[int, LeakView] = {}
    for state in states:
        canary, ranking = change.members[change.suite.positions[state.canary_id]].canary, rankings[state.ranking_id]
        hits = [
            ForbiddenHit(id=ranking.ids[rank - 1], document=ranking.documents[rank - 1], rank=rank)
            for rank in forbidden_ranks(canary, ranking)[:_LISTED]
        ]
        found[state.canary_id] = {"asked_as": _asked_as(connection, change.run, canary), "forbidden": hits}
    return found


def _listed(
    member: SuiteMember,
    state: StateRow,
    before: StateRow | None,
    ranking: Ranking | None,
    *,
    is_new: bool,
    recounted: bool,
    leak: LeakView,
) -> ChangedCanary:
    """Describe a canary; `ranking` is that of `before`. Neither `is_new` nor `recounted` ones lost what is known."""
    return {
        "key": member.key,
        "query": member.canary.query,
        "reasons": list(unpack_reasons(state.reasons)),
        "rank_before": None
        if before is None or (is_new and not recounted)
        else Match.from_bytes(before.matched).first_relevant,
        "rank_now": Match.from_bytes(state.matched).first_relevant,
        "lower": [] if before is None else _lower(member, before, state, ranking),
        **(Degradation(lost=[], lost_total=0) if is_new else _lost(member, before, state, ranking)),
        **leak,
    }


def _lost(member: SuiteMember, before: StateRow | None, now: StateRow, ranking: Ranking | None) -> Degradation:
    chunks = member.canary.judgments
    today = Match.from_bytes(now.matched).first
    then = None
    if before is not None and before.canary_version_id == now.canary_version_id:
        then = Match.from_bytes(before.matched).first
    elif ranking is not None:  # it was judged otherwise, over the same answer
        then = match(prepare(chunks), ranking).first
    if len(today) != len(chunks) or (then is not None and len(then) != len(chunks)):
        then, today = None, (None,) * len(chunks)
    documents = () if ranking is None else ranking.documents
    return lost_chunks(chunks, today, then, missing=bool(now.reasons & MISSING), documents=documents)


def _lower(member: SuiteMember, before: StateRow, now: StateRow, ranking: Ranking | None) -> list[LowerChunk]:
    """List expected chunks that a canary ranks lower than before, those it does not retrieve any more first.

    A chunk without an expected document has that of the hit that matched it before.
    """
    documents = () if ranking is None else ranking.documents
    chunks = member.canary.judgments
    then, today = (Match.from_bytes(state.matched).first for state in (before, now))
    if before.canary_version_id != now.canary_version_id or not len(chunks) == len(then) == len(today):
        return []
    lower: list[LowerChunk] = [
        {
            "id": chunk.id,
            "document": chunk.document or (documents[was - 1] if was <= len(documents) else None),
            "rank_before": was,
            "rank_now": rank,
        }
        for chunk, was, rank in zip(chunks, then, today, strict=True)
        if chunk.grade >= 1 and was is not None and (rank is None or rank > was)
    ]
    lower.sort(key=lambda one: (one["rank_now"] is not None, one["rank_before"]))
    return lower[:_MOST_LOWER]


def worse_answers(
    connection: Connection, check: Definition, run_id: int, first_run: int | None, measure: str
) -> WorseAnswers | None:
    """Return the generated answers of a run that are worth less than before the first bad run of an alert.

    By the measure that its rule watches, or the one that this is corrected of. None where no run came before, or the
    suite of one of both cannot be read in this release.
    """
    earlier = run_rows.previous_known_runs(connection, {first_run or run_id}).get(first_run or run_id)
    if earlier is None:
        return None
    question = judged_name(measure) or measure
    run, previous = (run_rows.find_run(connection, one) for one in (run_id, earlier.id))
    try:
        then, now = ({} if one is None else answers_of(connection, one) for one in (previous, run))
    except UnusableSuiteError:
        return None
    values = {
        canary: (before, after)
        for canary in then.keys() & now.keys()
        if (before := value_of(then[canary].body, question)) is not None
        and (after := value_of(now[canary].body, question)) is not None
    }
    worse = sorted(
        (canary for canary, (before, after) in values.items() if after < before - ROUNDING),
        key=lambda canary: (values[canary][1] - values[canary][0], canary),
    )
    (change,) = load_changes(connection, [(run_id, first_run)])
    degraded = frozenset[int]() if change is None else change.changed_ids
    moved = [canary for canary in worse if then[canary].ranking_id != now[canary].ranking_id][:_MOST_COMPARED]
    ids = {row.ranking_id for canary in moved for row in (then[canary], now[canary])}
    rankings = ranking_rows.load_rankings(connection, sorted(ids)).items()
    texts = {number: ranking.texts[: check.body["k"]] for number, ranking in rankings}
    versions = [one.check_version_id for one in (earlier, run) if one is not None and one.check_version_id is not None]
    same_k = len({load_check(connection, one)[0].k for one in versions}) <= 1
    changes = {
        one: answer_change(
            retrieval=one in degraded,
            same_judge=before.judge_id == after.judge_id
            and not is_other_rater(before.body["ratings"].get(question), after.body["ratings"].get(question)),
            same_chunks=same_k
            and (
                before.ranking_id == after.ranking_id or texts.get(before.ranking_id, ()) == texts.get(after.ranking_id)
            ),
            same_text=before.text == after.text,
        )
        for one in worse
        for before, after in [(then[one], now[one])]
    }
    versions = [now[one].canary_version_id for one in worse[:_LISTED]]
    keys, queries = catalog.keys_of(connection, versions), catalog.queries_of(connection, versions)
    listed = [
        WorseAnswer(
            key=keys[version],
            query=queries[version],
            value_before=values[one][0],
            value=values[one][1],
            change=changes[one],
        )
        for one, version in zip(worse, versions, strict=False)
    ]
    counts = dict(Counter(changes.values()))
    came = sum(value_of(one.body, question) is not None for one in now.values())
    found: WorseAnswers = {"worse": len(worse), "of": len(values), "came": came, "changes": counts, "listed": listed}
    if run is None or previous is None or not (edited := edits_of_answers(connection, previous, run)):
        return found
    if not edits_of_retriever(connection, previous, run):
        found["edited_judge_alone"] = True
    return {**found, "edited": edited}


_MOST_COMPARED = 500
"""Answers that got worse whose chunks are compared by their texts where their rankings differ."""
_BYTES, _BYTES_PER_DIAGNOSIS, _BYTES_PER_CANARY = 2_000, 4_000, 100


class TransitionEvidence:
    """Evidence of the transitions of one check at one run; each list of canaries is read once."""

    def __init__(self, connection: Connection, check: Definition, run_id: int | None) -> None:
        self._connection = connection
        self._check = check
        self._run_id = run_id
        self._lists: dict[tuple[int | None, str | None, str | None, bool], ListedCanaries] = {}

    def build(self, kind: RuleKind, scope: str, first_run: int | None, evaluated: StoredEvidence) -> StoredEvidence:
        """Evidence of a transition: what the rule evaluated, the changed canaries, and the retriever at fault."""
        measure = evaluated.get("measure") or ""
        evidence: StoredEvidence = {**evaluated}
        if watches_answers(kind, measure) and self._run_id is not None:
            answers = worse_answers(self._connection, self._check, self._run_id, first_run, measure)
            evidence |= {} if answers is None else {"answers": answers}
        if is_about_canaries(kind, measure, evidence.get("answers")):
            evidence = {**evidence, **self._canaries(kind, scope, first_run, evaluated)}
        evidence = {**evidence, **self.labels(measure)}
        if kind is RuleKind.LATENCY:
            percentile = Percentile(evaluated.get("percentile") or Percentile.P95)
            evidence["usual"] = (
                None if first_run is None else usual_latency(self._connection, self._check.id, percentile, first_run)
            )
            evidence["retriever"] = self._slow_retriever()
        elif kind is RuleKind.SLOWER:
            evidence["retriever"] = self._slow_retriever()
        elif kind is RuleKind.PROBE_ERRORS:
            evidence["retriever"] = self._check.body["retriever"]
        return evidence

    def awaited(self, rule: Rule, opening_run: int | None, run: RunRow | None) -> list[str]:
        """Keys of the canaries that a run has to measure before the alert of a rule may resolve; () = it has.

        They are those of its category that the opening run degraded, `run` did not measure, and the suite still has.
        """
        watches = rule.kind in {RuleKind.THRESHOLD, RuleKind.DROP, RuleKind.GUARD, RuleKind.REGRESSION}
        if run is None or not watches or not run.failed or watches_answers(rule.kind, rule.measure):
            return []
        opened = run_rows.find_run(self._connection, opening_run) if opening_run is not None else None
        if opened is None or opened.suite_version_id is None or run.suite_version_id is None:
            return []
        then, now = (
            load_suite(self._connection, version) for version in (opened.suite_version_id, run.suite_version_id)
        )
        degraded = {then.canaries[place].key for place in opened.degraded_places}
        failed, _ = run_rows.unmeasured_at(self._connection, [run.id]).get(run.id, ((), ()))
        unmeasured = [now.canaries[place] for place in sorted(failed)]
        return [one.key for one in unmeasured if one.key in degraded and rule.category in {None, one.category}]

    def culprits(self) -> list[str]:
        """Keys of the canaries the detector names on this run."""
        return detector_rows.culprits_of(self._connection, self._run_id) if self._run_id is not None else []

    def named_so_far(self, alert: AlertRow | None) -> set[str]:
        """Keys of all canaries that the transitions of an open alert name as culprits; empty where none does."""
        if alert is None or alert.state not in OPEN:
            return set()
        rows = alerts.list_transitions(self._connection, [alert.id])[alert.id]
        return {key for row in rows for key in row.evidence.get("culprits", ())}

    def new_culprits(self, alert: AlertRow | None, culprits: Sequence[str]) -> list[str]:
        """Culprits that no transition of an open alert named or counted as changed.

        None where the last of them named as many as are stored: beyond that the strongest differ from run to run.
        """
        if alert is None or alert.state not in OPEN or not culprits:
            return []
        before = [
            row
            for row in alerts.list_transitions(self._connection, [alert.id])[alert.id]
            if row.type in NON_REPEATING and "culprits" in row.evidence
        ]
        if not before or len(before[-1].evidence["culprits"]) >= CULPRITS:
            return []
        named = {key for row in before for key in row.evidence["culprits"]}
        if named.issuperset(culprits):
            return []
        runs = [(row.run_id, alert.first_run) for row in before if row.run_id is not None]
        named |= changed_keys(self._connection, runs)
        return [key for key in culprits if key not in named]

    def _canaries(self, kind: RuleKind, scope: str, first_run: int | None, evaluated: StoredEvidence) -> ListedCanaries:
        if self._run_id is None or kind in NOT_ABOUT_CANARIES:
            return {"canaries": []}
        key = (first_run, evaluated.get("category"), scope if kind is RuleKind.CANARY else None, kind is RuleKind.LEAK)
        if key not in self._lists:
            _, category, canary, leaking = key
            self._lists[key] = list_changed(
                self._connection, self._run_id, first_run, category=category, canary=canary, leaking=leaking
            )
        return self._lists[key]

    def labels(self, measure: str) -> StoredEvidence:
        """Labels of recall in the run: that it is self-judged, and pooled recall at its k; none of other measures."""
        if not recall_label(measure, self_judged=True):
            return {}
        found: StoredEvidence = {"self_judged": True} if self._is_self_judged() else {}
        pooled = self._pooled(measure)
        return {**found, "pooled_recall": pooled} if pooled else found

    def _is_self_judged(self) -> bool:
        """Whether the recall of the run is over judgments of the retriever's own first hits alone."""
        run = run_rows.find_runs(self._connection, {self._run_id}).get(self._run_id) if self._run_id else None
        if run is None or run.suite_version_id is None:
            return False
        shares = load_suite(self._connection, run.suite_version_id).judgment_shares
        check = self._check.body
        return is_self_judged(self._connection, shares, check["retriever"], suite=check["suite"])

    def _pooled(self, measure: str) -> list[PooledNote]:
        """Return the pooled recall at the k of a measure."""
        check = self._check.body
        return pooled_at(measure, pooled_notes(self._connection, check["suite"], check["retriever"]))

    def _slow_retriever(self) -> str:
        """Name of the retriever, with its address where it is known."""
        slug = self._check.body["retriever"]
        retriever = catalog.find_definition(self._connection, "retriever", slug)
        address = None if retriever is None else url_address(retriever.body["url"], retriever.body.get("options") or {})
        return f"{slug} at {address}" if address else slug


def read_leaks(connection: Connection, runs: Sequence[RunRow]) -> dict[int, Leaks]:
    """Return what runs found of the chunks that their canaries forbid, by run id.

    Runs that never began are left out, and those of a suite that this release cannot read. Where no canary forbids
    anything, no statement is sent.
    """
    found: dict[int, Leaks] = {}
    places: dict[int, Sequence[int]] = {}
    for run in runs:
        if run.suite_version_id is None or run.check_version_id is None:
            continue
        with suppress(UnusableSuiteError):
            places[run.id] = load_suite(connection, run.suite_version_id).forbidding
            lacking = lacking_fields(run.reasons)
            blind = len(load_suite(connection, run.suite_version_id).blind_to_leaks(lacking))
            found[run.id] = Leaks(forbidding=len(places[run.id]), unmeasured=0, blind=blind, lacking=lacking)
    asking = [run for run in runs if places.get(run.id)]
    unmeasured = run_rows.unmeasured_at(connection, [run.id for run in asking]) if asking else {}
    for run in asking:
        failed = set(unmeasured.get(run.id, ((), ()))[0]).intersection(places[run.id])
        degraded = sorted(set(run.degraded_places).intersection(places[run.id]) - failed)
        leaked = _leaked(connection, run, degraded) if degraded else ()
        found[run.id] = replace(found[run.id], unmeasured=len(failed), found=leaked)
    return found


def _leaked(connection: Connection, run: RunRow, degraded: Sequence[int]) -> list[Leak]:
    suite = load_suite(connection, run.suite_version_id or 0)
    members = [suite.members[place] for place in degraded]
    bits = state_rows.reasons_at(connection, {run.id: [member.canary_id for member in members]})[run.id]
    return [
        Leak(key=member.key, asked_as=_asked_as(connection, run, member.canary))
        for member in members
        if bits.get(member.canary_id, 0) & FORBIDDEN
    ]


def _asked_as(connection: Connection, run: RunRow, canary: Canary) -> dict[str, str]:
    """Return the variables that a canary was asked with: those of its check, and its own before."""
    return {**(load_check(connection, run.check_version_id or 0)[0].vars or {}), **canary.vars}


def with_what_leaked(connection: Connection, run: RunRow, leaks: Leaks) -> Leaks:
    """Return leaks of a run with what the first of the canaries got, as far as a reason tells."""
    suite = load_suite(connection, run.suite_version_id or 0)
    keys = {leak.key for leak in leaks.found[:LEAKS_TOLD]}
    told = [suite.members[place] for place in suite.forbidding if suite.keys[place] in keys]
    states = state_rows.states_of(connection, run.check_id, run.id, [member.canary_id for member in told])
    rankings = ranking_rows.load_rankings(connection, [state.ranking_id for state in states.values()])
    got = {
        member.key: _got(member, rankings[states[member.canary_id].ranking_id])
        for member in told
        if member.canary_id in states
    }
    return replace(leaks, found=[replace(leak, got=got.get(leak.key, "")) for leak in leaks.found])


def _got(member: SuiteMember, ranking: Ranking) -> str:
    """Name the first forbidden chunk of a ranking, by its document where the canary forbids documents."""
    ranks = forbidden_ranks(member.canary, ranking)
    if not ranks:
        return ""
    place = ranks[0] - 1
    by_document = any(one.document is not None for one in member.canary.forbidden)
    name = (ranking.documents[place] if by_document else None) or ranking.ids[place]
    more = f" and {counted(len(ranks) - 1, 'other hit')}" if len(ranks) > 1 else ""
    return f"{short_name(name)} at rank {ranks[0]}{more}"


def read_canaries(
    connection: Connection, keys: Collection[str], runs: Sequence[RunRow]
) -> dict[int, dict[str, Sequence[Reason] | None]]:
    """Reasons of the named canaries by run id; those a run did not probe are left out.

    The number of queries does not depend on the number of runs: it is read in the transaction that ends a run.
    """
    of_suites = [(run, run.suite_version_id) for run in runs if run.suite_version_id is not None] if keys else []
    if not of_suites:
        return {}
    places = catalog.places_of(connection, {version for _, version in of_suites}, keys)
    unmeasured = run_rows.unmeasured_at(connection, [run.id for run, _ in of_suites])
    canary_ids = {run.id: [canary_id for _, canary_id in places[version].values()] for run, version in of_suites}
    bits = state_rows.reasons_at(connection, canary_ids)
    return {
        run.id: {
            key: None
            if place in failed or canary_id not in bits[run.id]
            else known_reasons(bits[run.id][canary_id], unscored=place in unscored)
            for key, (place, canary_id) in places[version].items()
        }
        for run, version in of_suites
        for failed, unscored in [unmeasured.get(run.id, ((), ()))]
    }
