"""Alerts as people see them: lists and single ones as views, with their deliveries; and the facts of a summary.

It only reads. The first half is what pages, commands and the API list; the second are the facts of a notice and of the
summaries in a list. Their words are made in `domain.summaries`; each hook kind writes its notice in `hooks.notices`.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final, cast

from app.alerts import store as alerts
from app.alerts.domain.advice import alert_advice
from app.alerts.domain.conditions import SlowerLimits
from app.alerts.domain.incidents import incident_title
from app.alerts.domain.rules import watches_answers
from app.alerts.domain.state import (
    NON_REPEATING,
    OPEN,
    RETIRED,
    TRIGGERS,
    Retirement,
    bad_runs_of,
    is_about_canaries,
    is_corrected,
    is_interrupted,
    lead_order,
)
from app.alerts.domain.summaries import AlertFacts, ChangedCanaries, alert_summary
from app.alerts.domain.views import (
    AlertFields,
    AlertState,
    AlertView,
    AnswerChange,
    ChangedCanary,
    Degradation,
    ExplainedTransition,
    RuleEvidence,
    SinceView,
    StoredEvidence,
    TransitionType,
    TransitionView,
    WorseAnswers,
    found_deeper,
)
from app.alerts.service.changes import edits_since
from app.alerts.service.evidence import (
    FleetEvidence,
    TransitionEvidence,
    load_fleet,
    load_fleets,
    worse_answers,
)
from app.alerts.store import AlertFilter, AlertRow, IncidentRow, TransitionRow
from app.base.db.engine import Connection, Store, cached_of_run, from_us
from app.base.errors import NotFoundError
from app.base.texts import counted, found_text
from app.base.values import (
    Cause,
    DeliveryState,
    Outcome,
    Percentile,
    Reason,
    RuleKind,
    Severity,
    Step,
    Value,
    Verdict,
    field,
    replace,
)
from app.base.views import id_text, time_text, view_of
from app.catalog import store as catalog
from app.catalog.domain import recall_label
from app.diagnosis.store import MarkRow, marks_before
from app.hooks import store as outbox
from app.hooks.domain import AttemptView, DeliveryView, NoticeLinks
from app.hooks.store import AttemptRow, DeliveryRow
from app.records.store import run_rows
from app.records.store.run_rows import RunRow
from app.retrievers.domain.probes import FailureSummary

_RUNS = {"run_id", "first_bad_run"}
_TIMES = {"at", "since", "deadline"}
_ENUMERATIONS: Mapping[str, type[StrEnum]] = {
    "change": AnswerChange,
    "outcome": Outcome,
    "percentile": Percentile,
    "reasons": Reason,
    "severity": Severity,
    "step": Step,
}
_EXPLAINED = 10
"""Number of the newest transitions of an alert that are explained, besides its first."""


def list_alerts(
    store: Store,
    *,
    check: str | None,
    state: str | None,
    before: int | None,
    limit: int,
    incident_id: int | None = None,
) -> list[AlertView]:
    """List alerts, newest first. Raises NotFoundError for an unknown check."""
    alert_filter = AlertFilter(states=(state,) if state else (), incident_id=incident_id)
    with store.read() as connection:
        rows = find_rows(connection, alert_filter, check=check, before=before, limit=limit)
    return [alert_shape(row, changes) for row, changes in rows]


def find_rows(
    connection: Connection, alert_filter: AlertFilter, *, check: str | None, before: int | None, limit: int
) -> list[tuple[AlertRow, Sequence[TransitionRow]]]:
    """Rows of alerts, newest first, each with its transitions, oldest first. Raises NotFoundError for no such check."""
    conditions = replace(alert_filter, check_id=_definition_id(connection, "check", check))
    rows = alerts.list_alerts(connection, conditions, before=before, limit=limit)
    changes = alerts.list_transitions(connection, [row.id for row in rows])
    return [(row, changes[row.id]) for row in rows]


def count_unresolved(store: Store, *, check: str | None = None) -> dict[str, int]:
    """Return the counts of unresolved alerts by state, and of open ones nobody acknowledged as `unacknowledged`.

    Raises NotFoundError for an unknown check.
    """
    with store.read() as connection:
        found = alerts.count_unresolved(connection, check_id=_definition_id(connection, "check", check))
    counts = Counter[str]()
    for state, acknowledged, count in found:
        counts[state] += count
        counts["unacknowledged"] += count if state in OPEN and not acknowledged else 0
    return counts


class AlertDetail(AlertFields):
    """An alert with its transitions explained, and the deliveries of its incident."""

    transitions: list[ExplainedTransition]
    since: SinceView | None
    deliveries: list[DeliveryView]


def alert(store: Store, alert_id: int) -> AlertDetail:
    """Read an alert with its transitions, and the deliveries of its incident."""
    with store.read() as connection:
        row = alerts.find_alert(connection, alert_id)
        if row is None:
            raise NotFoundError(f"there is no alert '{alert_id}'")
        changes = alerts.list_transitions(connection, [alert_id])[alert_id]
        deliveries = outbox.deliveries_of_incident(connection, row.incident_id) if row.incident_id is not None else []
        delivery_views = _delivery_views(connection, deliveries)
        fault_start = since(connection, row.first_run)
        # Of many reminders the newest are explained: each explanation reads all canaries of its run.
        bad = [one.run_id for one in changes if one.type in TRIGGERS and one.run_id is not None]
        run_ids = list(dict.fromkeys([*bad[:1], *bad[-_EXPLAINED:]]))
        explained = load_fleets(connection, [(run_id, row.first_run) for run_id in run_ids])
    explanations: dict[int | None, FleetEvidence | None] = dict(zip(run_ids, explained, strict=True))
    return {
        **_fields(row),
        "transitions": [
            _explained(one, explanations.get(one.run_id) if _is_explained(row, one) else None) for one in changes
        ],
        "since": fault_start,
        "deliveries": delivery_views,
    }


def _is_explained(row: AlertRow, change: TransitionRow) -> bool:
    """Whether what canaries have in common explains a change: not a leak, nor what answers alone brought about."""
    if row.kind == RuleKind.LEAK:
        return False
    measure, answers = change.evidence.get("measure"), change.evidence.get("answers")
    is_of_answers = watches_answers(row.kind, measure)
    return change.type in TRIGGERS and (not is_of_answers or is_about_canaries(row.kind, measure, answers))


def _explained(row: TransitionRow, why: FleetEvidence | None) -> ExplainedTransition:
    """Return a transition with what its canaries have in common, and the cause of each."""
    change: ExplainedTransition = {**_transition(row), "fleet": None if why is None else why.fleet_view}
    if why is not None and "canaries" in change["evidence"]:
        change["evidence"]["canaries"] = [explained(one, why) for one in change["evidence"]["canaries"]]
    return change


def list_deliveries(
    store: Store, *, hook: str | None, state: str | None, before: int | None, limit: int, alert_id: int | None = None
) -> list[DeliveryView]:
    """List deliveries, newest first. Raises NotFoundError for an unknown hook."""
    with store.read() as connection:
        hook_id = _definition_id(connection, "hook", hook)
        rows = outbox.list_deliveries(
            connection, hook_id=hook_id, state=state, alert_id=alert_id, before=before, limit=limit
        )
        return _delivery_views(connection, rows)


def delivery(store: Store, delivery_id: int) -> DeliveryView:
    """Read a delivery with its attempts."""
    with store.read() as connection:
        view = deliveries_by_id(connection, [delivery_id]).get(delivery_id)
    if view is None:
        raise NotFoundError(f"there is no delivery '{delivery_id}'")
    return view


def deliveries_by_id(connection: Connection, delivery_ids: Sequence[int]) -> dict[int | None, DeliveryView]:
    """Read deliveries with their attempts, by id."""
    rows = [row for one in delivery_ids if (row := outbox.find_delivery(connection, one)) is not None]
    return {int(view["id"]): view for view in _delivery_views(connection, rows)}


def _delivery_views(connection: Connection, rows: Sequence[DeliveryRow]) -> list[DeliveryView]:
    ids = [row.id for row in rows]
    attempts, behind = outbox.list_attempts(connection, ids), outbox.waiting_behind(connection, ids)
    return [_delivery(row, attempts[row.id], behind.get(row.id)) for row in rows]


def alert_shape(row: AlertRow, changes: Sequence[TransitionRow]) -> AlertView:
    """Shape an alert with its transitions."""
    return {**_fields(row), "transitions": [_transition(change) for change in changes]}


def _fields(row: AlertRow) -> AlertFields:
    return view_of(
        AlertFields,
        row,
        id=str(row.id),
        rule=row.rule_key,
        evidence=evidence(row.evidence),
        since_run=id_text(row.first_run),
        incident_id=id_text(row.incident_id),
    )


def _transition(change: TransitionRow) -> TransitionView:
    run_id = id_text(change.run_id)
    return view_of(TransitionView, change, run_id=run_id, evidence=evidence(change.evidence))


_UNMARKED: Final = dict.fromkeys(("self_judged", "edited_since", "few_queries"), False)
_EARLIER: Final[Mapping[str, Mapping[str, Any]]] = {
    "window": {"baseline": None, "corrected": None},
    "pooled_recall": {"assumes": "", "queries": None, "asked_queries": None, **_UNMARKED},
}
"""Defaults for what lies within evidence that was stored by an earlier release."""


def evidence(found: StoredEvidence) -> RuleEvidence:
    """Evidence with ids and times as on the wire; stored evidence has numbers, and times that end in +00:00."""
    return cast("RuleEvidence", _on_the_wire("", found))


def _on_the_wire(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        words = AnswerChange if name == "changes" else str
        return {words(inner): _on_the_wire(inner, one) for inner, one in value.items()}
    if isinstance(value, list):
        default = _EARLIER.get(name, {})
        return [_on_the_wire(name, {**default, **one} if isinstance(one, Mapping) else one) for one in value]
    if name in _ENUMERATIONS and value is not None:
        return _ENUMERATIONS[name](value)
    if name in _RUNS and value is not None:
        return str(value)
    return time_text(datetime.fromisoformat(value)) if name in _TIMES and value is not None else value


def _delivery(row: DeliveryRow, attempts: Sequence[AttemptRow], behind: int | None) -> DeliveryView:
    return view_of(
        DeliveryView,
        row,
        id=str(row.id),
        alert_id=id_text(row.alert_id),
        incident_id=id_text(row.incident_id),
        next_attempt_at=time_text(row.next_attempt_at) if row.state == DeliveryState.PENDING else None,
        waits_for=id_text(behind),
        attempts=[view_of(AttemptView, attempt, rounding=True) for attempt in attempts],
    )


def _definition_id(connection: Connection, kind: str, slug: str | None) -> int | None:
    if slug is None:
        return None
    definition = catalog.find_definition(connection, kind, slug)
    if definition is None:
        raise NotFoundError(f"there is no {kind} '{slug}'")
    return definition.id


class AlertLine(Value):
    """One alert of a list."""

    alert: AlertView
    summary: str
    """What happened, as it was last announced or, before that, as its rule sees it; without a full stop."""
    title: str = ""
    """The same in few words; empty where it is not shown."""
    advice: str = ""
    """What to do; empty where it is not shown, or nothing is known to help."""
    began_at: datetime | None = None
    """When its first bad run ended, which is before it opened; of what no run tells, when it opened."""
    deliveries: Mapping[str, int] = field(default_factory=dict)
    """Number of deliveries of its incident, by state; empty too where they are not shown."""

    @property
    def order(self) -> tuple[bool, bool, int, int]:
        """Order of the alerts of an incident; the first gives it its title."""
        alert = self.alert
        return alert["state"] not in OPEN, *lead_order(alert["severity"], alert["kind"], int(alert["id"]))

    @property
    def reason(self) -> str:
        """Reason of the last evaluation or, for a resolved alert, of its last opening or update."""
        news = [change["reason"] for change in self.alert["transitions"] if change["type"] in NON_REPEATING]
        return news[-1] if news and self.alert["state"] == AlertState.RESOLVED else self.alert["reason"]

    @property
    def suppressed(self) -> TransitionView | None:
        """Its newest trigger transition, where that was not sent."""
        newest = next((one for one in reversed(self.alert["transitions"]) if one["type"] in TRIGGERS), None)
        is_suppressed = newest is not None and newest["suppressed"] is not None
        return newest if is_suppressed and self.alert["state"] != AlertState.RESOLVED else None


def by_incident(store: Store, alert_lines: Sequence[AlertLine]) -> list[tuple[IncidentRow | None, list[AlertLine]]]:
    """Group the alerts of a list by their incidents, each at the place of its newest alert; others stand alone."""
    groups: dict[str, list[AlertLine]] = {}
    for line in alert_lines:
        groups.setdefault(line.alert["incident_id"] or f"alert {line.alert['id']}", []).append(line)
    with store.read() as connection:
        rows = alerts.find_incidents(connection, [int(number) for number in groups if number.isdigit()])
    return [(rows.get(int(number)) if number.isdigit() else None, one) for number, one in groups.items()]


def incident_of_run(store: Store, run: RunRow) -> IncidentRow | None:
    """Return the incident that a bad run belongs to: the gravest, then the oldest; None = there is none."""
    if run.verdict == Verdict.HEALTHY or run.finished_at is None:
        return None
    with store.read() as connection:
        found = alerts.incidents_at(connection, run.check_id, run.id, run.finished_at)
    return max(found, key=lambda one: (one.severity == Severity.CRITICAL, -one.id), default=None)


def lines(
    store: Store, alert_filter: AlertFilter, *, check: str | None, before: int | None, limit: int
) -> list[AlertLine]:
    """List alerts with summaries, newest first. Raises NotFoundError for an unknown check."""
    with store.read() as connection:
        rows = find_rows(connection, alert_filter, check=check, before=before, limit=limit)
        deliveries = outbox.count_by_incident(
            connection, [row.incident_id for row, _ in rows if row.incident_id is not None]
        )
        facts = standing_facts(connection, rows)
    return [
        AlertLine(
            alert=alert_shape(row, changes),
            summary=alert_summary(facts[row.id]),
            title=incident_title(facts[row.id]),
            deliveries=deliveries[row.incident_id] if row.incident_id is not None else {},
        )
        for row, changes in rows
    ]


# --- the facts of a notice and of a summary ------------------------------------------------------------------


class Links(Value):
    """Where the links of a notification lead; `{check}`, `{rule}` and `{kind}`, that of the rule, are replaced."""

    public_url: str
    dashboard_url: str | None = None
    runbook_url: str | None = None


def explained(canary: ChangedCanary, explanation: FleetEvidence | None) -> ChangedCanary:
    """Return a canary with its cause; all None where it is not diagnosed.

    Its rank may come from the diagnosis, which retrieves more hits than the run; not where it was healthy when asked
    again, as that is no rank of the run.
    """
    diagnosis = None if explanation is None else explanation.diagnoses.get(canary["key"])
    if diagnosis is None:
        return {**canary, "cause": None, "cause_reason": None, "persistent": None}
    persistent, deeper = diagnosis.evidence.get("persistent"), diagnosis.evidence.get("rank_now")
    rank = deeper if canary["rank_now"] is None and persistent is not False else canary["rank_now"]
    told: Degradation = {"cause": Cause(diagnosis.cause), "cause_reason": diagnosis.reason, "persistent": persistent}
    found = diagnosis.evidence.get("deeper") or {}
    if persistent is False or not found:
        return {**canary, **told, "rank_now": rank}
    return {**found_deeper(canary, found), **told, "rank_now": rank}


def filled_links(links: Links, alert: AlertRow, run_id: int | None) -> NoticeLinks:
    """Links of an alert and, where given, of a run."""
    names = {"{check}": alert.check, "{rule}": alert.rule_key, "{kind}": alert.kind}

    def filled(template: str | None) -> str | None:
        return re.sub("{(check|rule|kind)}", lambda match: names[match[0]], template) if template else None

    return {
        "incident": None if alert.incident_id is None else f"{links.public_url}/incidents/{alert.incident_id}",
        "alert": f"{links.public_url}/alerts/{alert.id}",
        "check": f"{links.public_url}/checks/{alert.check}",
        "run": f"{links.public_url}/runs/{run_id}" if run_id is not None else None,
        "dashboard": filled(links.dashboard_url),
        "runbook": filled(links.runbook_url),
    }


def facts_at(
    connection: Connection, alert: AlertRow, transition: TransitionRow
) -> tuple[AlertFacts, RunRow | None, FleetEvidence | None]:
    """Return the facts of an alert at a transition, the run of that, and what explains it where it is of canaries."""
    runs = run_rows.find_runs(connection, run_ids_of(alert, transition))
    evidence = transition.evidence
    about_canaries = is_about_canaries(alert.kind, evidence.get("measure"), evidence.get("answers"))
    has_fleet = about_canaries and alert.kind != RuleKind.LEAK
    explanation = load_fleet(connection, transition.run_id, first_run=alert.first_run) if has_fleet else None
    facts = facts_of(alert, runs, explanation, since(connection, alert.first_run), transition)
    run, is_end = runs.get(transition.run_id or 0), transition.type == TransitionType.RESOLVED
    changes = alerts.list_transitions(connection, [alert.id])[alert.id]
    told = _newest_trigger([one for one in changes if one.id < transition.id])
    told_run = told and told.run_id
    edits = None
    if is_end and told_run and run:
        of_answers = watches_answers(alert.kind, evidence.get("measure"))
        edits = edits_since(connection, told_run, alert.first_run, run, of_answers=of_answers)
    if edits is not None and not about_canaries:
        edits = replace(edits, taken_out=0, rejudged=0, rejudged_in_all=0)
    newly = facts.corrected is not None and told is not None and not is_corrected(told.evidence)
    is_up = transition.type == TransitionType.ESCALATED
    facts = replace(facts, escalated=is_up, edits=edits, newly_corrected=newly)
    return facts, run, explanation


AlertRows = Sequence[tuple[AlertRow, Sequence[TransitionRow]]]
"""Alerts, each with its transitions, oldest first."""
Explained = Mapping[tuple[int, int | None], FleetEvidence | None]  # by run id and first bad run, as in `load_fleets`


def standing_lines(connection: Connection, rows: AlertRows, explained: Explained | None = None) -> list[AlertLine]:
    """Return unresolved alerts as lines of the page of their check; `explained` as in `standing_facts`."""
    facts = standing_facts(connection, rows, explained)
    return [
        AlertLine(
            alert=alert_shape(row, changes),
            summary=alert_summary(facts[row.id]),
            title=incident_title(facts[row.id]),
            advice=alert_advice(facts[row.id]),
            began_at=facts[row.id].began_at or facts[row.id].opened_at,
        )
        for row, changes in rows
    ]


def standing_facts(
    connection: Connection, rows: AlertRows, explained: Explained | None = None
) -> dict[int, AlertFacts]:
    """Facts of each alert, by its id: its canaries and values by the newest bad run, else at its newest trigger.

    The unresolved alerts of an incident among them have one set of canaries: those of the newest run of them all, since
    before the first bad one.

    `explained` holds the explanations of `explained_by_alert`; None = they are read.
    """
    runs_by_alert = explained_by_alert(rows)
    if explained is None:
        requests = list(dict.fromkeys(runs_by_alert.values()))
        explained = dict(zip(requests, load_fleets(connection, requests), strict=True))
    newest = {row.id: _newest_trigger(changes) for row, changes in rows}
    answers_at = {row.id: _run_of_answers(row, newest[row.id]) for row, _ in rows}
    began = since_all(connection, {row.first_run for row, _ in rows if row.first_run is not None})
    numbers = {number for row, _ in rows for number in run_ids_of(row, newest[row.id])}
    numbers |= {number for number, _ in runs_by_alert.values()}
    numbers |= {one for one in answers_at.values() if one is not None}
    runs = run_rows.find_runs(connection, numbers)
    found = {}
    for row, changes in rows:
        run_id, first_run = runs_by_alert.get(row.id, (None, None))
        explanation = None if run_id is None else explained[run_id, first_run]
        facts = facts_of(row, runs, explanation, began.get(row.first_run or 0), newest[row.id], news=False)
        facts = replace(facts, escalated=any(change.type == TransitionType.ESCALATED for change in changes))
        if (answers_run := answers_at[row.id]) is not None:
            facts = replace(facts, answers=_answers_at(connection, row, answers_run, facts.measure or ""))
        if row.state != AlertState.RESOLVED:
            facts = _with_value_at(connection, facts, row, runs.get(answers_run or run_id or 0))
        found[row.id] = facts
    return found


def _run_of_answers(row: AlertRow, trigger: TransitionRow | None) -> int | None:
    """Newest bad run of an open alert about generated answers; None = of another, or its newest trigger tells of it."""
    measure, told = (trigger or row).evidence.get("measure"), run_of(row, trigger)
    newest = _newest_bad(row, told)
    return newest if watches_answers(row.kind, measure) and newest != told else None


def _answers_at(connection: Connection, row: AlertRow, run_id: int, measure: str) -> WorseAnswers | None:
    check = catalog.definition_by_id(connection, row.check_id)
    read = partial(worse_answers, connection, check, run_id, row.first_run, measure)
    key = "answers", row.check_id, run_id, row.first_run, measure
    return cached_of_run(connection, key, lambda: (read(), 10_000))


def _with_value_at(connection: Connection, facts: AlertFacts, row: AlertRow, run: RunRow | None) -> AlertFacts:
    """Return facts with value and labels of the run whose canaries they count, as far as the last evaluation has it."""
    if run is None or facts.run_id == run.id:
        return facts
    facts = replace(facts, found=_found(run), coverage=run.aggregates.get("coverage"))
    one = next((one for one in row.evidence.get("window") or () if int(one["run_id"]) == run.id), None)
    if one is None:
        return facts
    labels: StoredEvidence = {}
    if recall_label(facts.measure or "", self_judged=True):
        check = catalog.definition_by_id(connection, row.check_id)
        labels = TransitionEvidence(connection, check, run.id).labels(facts.measure or "")
    return replace(
        facts,
        self_judged=bool(labels.get("self_judged")),
        pooled_recall=labels.get("pooled_recall", ()),
        uncalibrated=one.get("uncalibrated", False),
        value=one["value"],
        threshold=one["threshold"],
        baseline=one.get("baseline"),
        corrected=one.get("corrected"),
        beside=one.get("beside"),
        rated=one.get("rated", ""),
    )


def since(connection: Connection, first_run: int | None) -> SinceView | None:
    """Beginning of an alert's fault, given its first bad run; None = it did not begin with a run."""
    return None if first_run is None else since_all(connection, [first_run])[first_run]


def since_all(connection: Connection, first_runs: Collection[int]) -> dict[int, SinceView]:
    """Beginnings of the faults of several alerts, by their first bad runs, in one query."""
    marks = marks_before(connection, first_runs)
    return {run_id: _since(run_id, marks.get(run_id)) for run_id in first_runs}


def _since(run_id: int, mark: MarkRow | None) -> SinceView:
    now, before, after = None, None, None
    text = f"since run {run_id}"
    # The first version there ever was is no change.
    if mark is not None and mark.index_version_before is not None and mark.runs_after <= _NEAR_RUNS:
        now, before, after = mark.index_version, mark.index_version_before, mark.runs_after
        text += f", {counted(after, 'run')} after" if after else ", when"
        text += f" index version {before} -> {now}"
    return {
        "run_id": str(run_id),
        "index_version": now,
        "index_version_before": before,
        "runs_after": after,
        "text": text,
    }


_NEAR_RUNS = 3
"""Number of runs after a change of the index version in which a fault is attributed to it."""


def recovery_summary(connection: Connection, row: AlertRow, changes: Sequence[TransitionRow]) -> str | None:
    """Return how an alert ended, as its resolve says it; None = it is not resolved or never opened."""
    last = changes[-1] if changes else None
    if last is None or last.type != TransitionType.RESOLVED or row.opened_at is None:
        return None
    return alert_summary(replace(facts_at(connection, row, last)[0], dated=True))


def explained_by_alert(rows: AlertRows) -> dict[int, tuple[int, int | None]]:
    """Return by alert the run that explains it and the first bad one; one pair for what is open of an incident."""
    alone: dict[int, tuple[int, int | None]] = {}
    for row, changes in rows:
        trigger = _newest_trigger(changes)
        run_id = _newest_bad(row, run_of(row, trigger))
        evidence = (trigger or row).evidence
        about_canaries = is_about_canaries(row.kind, evidence.get("measure"), evidence.get("answers"))
        if run_id is not None and about_canaries:
            alone[row.id] = (run_id, row.first_run)
    together: dict[int, list[tuple[int, int | None]]] = {}
    for row, _ in rows:
        if row.id in alone and row.incident_id is not None and row.state != AlertState.RESOLVED:
            together.setdefault(row.incident_id, []).append(alone[row.id])
    shared = {
        incident_id: (
            max(run for run, _ in pairs),
            min((first for _, first in pairs if first is not None), default=None),
        )
        for incident_id, pairs in together.items()
    }
    return {
        row.id: alone[row.id]
        if row.state == AlertState.RESOLVED or row.incident_id not in shared
        else shared[row.incident_id]
        for row, _ in rows
        if row.id in alone
    }


def _newest_bad(row: AlertRow, run_id: int | None) -> int | None:
    """Return the newest bad run of a standing alert about a whole check; else, also for a part of it, `run_id`."""
    if row.state == AlertState.RESOLVED or row.kind == RuleKind.CANARY or row.evidence.get("category") is not None:
        return run_id
    return max([*bad_runs_of(row.evidence), *([] if run_id is None else [run_id])], default=None)


def _newest_trigger(changes: Sequence[TransitionRow]) -> TransitionRow | None:
    return next((change for change in reversed(changes) if change.type in TRIGGERS), None)


def facts_of(
    alert: AlertRow,
    runs: Mapping[int, RunRow],
    explanation: FleetEvidence | None,
    began: SinceView | None,
    transition: TransitionRow | None,
    *,
    news: bool = True,
) -> AlertFacts:
    """Facts at a transition, or of an alert without one.

    `runs` holds the rows of `run_ids_of`. Without `news` the facts tell pages of the state then, not of the change.
    """
    kind = RuleKind(alert.kind)
    number = run_of(alert, transition)
    run = None if number is None else runs.get(number)
    first = None if alert.first_run is None else runs.get(alert.first_run)
    row = alert if transition is None else transition
    evidence, reason = row.evidence, row.reason
    if kind is RuleKind.PROBE_ERRORS and run is not None and run.reasons:
        reason = run.reasons[0]  # that of a run that could not be executed is the run's own
    newest_run = window[-1] if (window := evidence.get("window")) else None
    failure = evidence.get("failure")
    since = evidence.get("since")
    return AlertFacts(
        check=alert.check,
        kind=kind,
        change=TransitionType(transition.type) if transition is not None and news else None,
        reason=reason,
        measure=evidence.get("measure"),
        self_judged=bool(evidence.get("self_judged")),
        pooled_recall=evidence.get("pooled_recall", ()),
        uncalibrated=bool(evidence.get("uncalibrated")),
        corrected=newest_run and newest_run.get("corrected"),
        beside=newest_run and newest_run.get("beside"),
        rated=newest_run.get("rated", "") if newest_run else "",
        answers=evidence.get("answers"),
        interrupted=is_interrupted(alert.first_run, evidence if news else alert.evidence),
        category=evidence.get("category"),
        canary=alert.scope if kind is RuleKind.CANARY else None,
        percentile=Percentile(evidence.get("percentile") or Percentile.P95),
        value=newest_run and newest_run["value"],
        threshold=newest_run and newest_run["threshold"],
        baseline=evidence.get("usual") if kind is RuleKind.LATENCY else newest_run and newest_run.get("baseline"),
        slower=SlowerLimits.of(evidence.get("factor"), evidence.get("rise")) if kind is RuleKind.SLOWER else None,
        bad=evidence.get("bad"),
        of=evidence.get("of"),
        run_id=None if run is None else run.id,
        retriever=evidence.get("retriever") or "",
        since=began,
        began_at=datetime.fromisoformat(since)
        if since is not None
        else from_us(first.finished_at)
        if first is not None and first.finished_at is not None
        else None,
        opened_at=None if alert.opened_at is None else from_us(alert.opened_at),
        at=None if transition is None else from_us(transition.at),
        due_at=datetime.fromisoformat(evidence["deadline"]) if evidence.get("deadline") is not None else None,
        unknown=run is not None and run.verdict == Verdict.UNKNOWN,
        unknown_since_first=first is not None and first.verdict == Verdict.UNKNOWN,
        failure=None if failure is None else FailureSummary.from_json(failure),
        measured=None if run is None else run.measured,
        total=None if run is None else run.total,
        coverage=None if run is None else run.aggregates.get("coverage"),
        found=None if run is None else _found(run),
        changed=_changed(explanation, evidence, kind),
        retired=RETIRED[Retirement(evidence["cause"])] if "cause" in evidence else "",
        dated=not news,
    )


def _found(run: RunRow) -> str | None:
    return found_text(run.aggregates.get("coverage"), run.measured, run.undefined)


def _changed(explanation: FleetEvidence | None, evidence: StoredEvidence, kind: RuleKind) -> ChangedCanaries | None:
    """Return the changed canaries; for a rule about a part of the check only those of that part."""
    if explanation is None:
        return None
    if kind is not RuleKind.CANARY and evidence.get("category") is None:
        return explanation.changed
    listed = evidence.get("canaries", ())
    causes = Counter(Cause(row.cause) for one in listed if (row := explanation.diagnoses.get(one["key"])) is not None)
    return replace(
        explanation.changed,
        count=evidence.get("changed") or 0,
        reasons=[[Reason(reason) for reason in one["reasons"]] for one in listed],
        name=listed[0]["key"] if len(listed) == 1 else "",
        causes=causes,
    )


def run_of(alert: AlertRow, transition: TransitionRow | None) -> int | None:
    """Run of the facts: that of the transition, or else the last one the rule evaluated."""
    if transition is not None:
        return transition.run_id
    window = alert.evidence.get("window")
    return int(window[-1]["run_id"]) if window else None


def run_ids_of(alert: AlertRow, transition: TransitionRow | None) -> set[int]:
    """Return the runs whose rows the facts need."""
    return {number for number in (run_of(alert, transition), alert.first_run) if number is not None}
