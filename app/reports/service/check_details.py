"""The page view of one check with its evidence; `overview` lists all checks.

Reads a bounded number of rows per check. Nothing here writes.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from app.alerts import store as alerts
from app.alerts.domain.incidents import recovery_state
from app.alerts.domain.state import is_about_canaries
from app.alerts.domain.summaries import ChangedCanaries
from app.alerts.domain.views import AlertState, AlertView, FleetView
from app.alerts.service import evidence, shown_alerts
from app.alerts.service.evidence import FleetEvidence, list_changed
from app.alerts.service.explanations import nothing_watched
from app.alerts.service.shown_alerts import AlertLine, explained_by_alert
from app.alerts.service.transitions import bad_answers
from app.alerts.store import AlertFilter, IncidentRow
from app.answers.store.answer_rows import unjudged_of_run
from app.base.db.engine import Connection, Store, from_us, row_value, to_us
from app.base.schedules import cron_words, next_due, parse_schedule, spread
from app.base.texts import bad_answers_text
from app.base.values import EMPTY, RuleKind, Value, Verdict, field
from app.catalog import store as catalog
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.service import references
from app.catalog.service.references import schedule_of, unmeasured_answers, unmeasured_text
from app.catalog.store import Definition
from app.diagnosis.domain.cases import is_overcome
from app.diagnosis.store import DiagnosisRow
from app.records.service import past_runs, run_views
from app.records.store import open_runs, rescorings, run_rows
from app.records.store.rescorings import Rescoring
from app.records.store.run_rows import RunRow
from app.records.store.state_rows import degraded_since
from app.records.views import ResultView, RunView
from app.retrievers.domain.retrievers import measures_relevance
from app.runs.service.due_checks import find_overdue
from app.scoring.evaluation import is_relevance_judged

SPARK_RUNS = 30
SHOWN_CANARIES = 10
_LISTED_RUNS = 10
_UNFOLDED_RUNS = 5
_NEWEST_RUNS = 15
"""Runs that are read: those listed, those of the chart's table, and older ones that still run."""
_RECENT_ALERTS = 5
_SHOWN_VERSIONS = 5
_UNRESOLVED = ("firing", "recovering", "pending")


class RunLine(Value):
    """An ended run in one line; None = not measured."""

    id: str
    status: str
    verdict: str | None
    reasons: Sequence[str]
    health_score: float | None
    coverage: float | None
    degraded: int | None
    measured: int | None
    undefined: int | None
    failed: int | None
    total: int | None
    index_version: str | None
    finished_at: datetime | None


class CheckHead(Value):
    """What pages say of a check in one line."""

    slug: str
    suite: str
    retriever: str
    schedule: str
    enabled: bool
    newest: RunLine | None
    """The newest ended run; None before the first."""
    active: str | None
    """`running` while a run is, `queued` while one waits whose time has come."""
    next_run: datetime | None = None
    overdue: bool
    """Whether no run completed by the second-next scheduled instant."""
    alerts: Mapping[tuple[str, str], int]
    """Unresolved alerts by state and severity."""
    bad_answers: Sequence[str] = ()
    """What is bad of the answers of the newest run, which its verdict does not know; see `transitions.bad_answers`."""

    unjudged: str = ""
    """Which answers of the newest run were not judged, and what rules watch of answers although nothing measures it, as
    a clause; see `generated.unjudged_text` and `references.unmeasured_text`."""
    unmeasured: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """The latter: by measure of answers, why runs do not have it as things are defined now."""
    unwatched: str = ""
    """That its newest run measured nothing of what is retrieved, a clause; see `explanations.nothing_watched`."""
    planted: tuple[str, str] | None = None
    """Severity and sentence of the firing alert of its planted documents, of which no run tells; None = none fires."""

    @property
    def answers_text(self) -> str:
        """Clause on the answers of the newest run that are bad or not judged; empty where there are none."""
        healthy = bool(self.newest and self.newest.verdict == Verdict.HEALTHY)
        return bad_answers_text(self.bad_answers, healthy=healthy, unjudged=self.unjudged)

    @property
    def recovery(self) -> str | None:
        """State of the alerts that are open though the newest run is healthy, see `recovery_state`.

        That of planted documents is not among them: a healthy run is no sign of its end.
        """
        judged = dict(self.alerts)
        if self.planted is not None:
            firing = (str(AlertState.FIRING), self.planted[0])
            judged[firing] = judged.get(firing, 0) - 1
        return recovery_state(self.newest.verdict if self.newest else None, judged)


class CheckLine(CheckHead):
    """A check in one line of its own page."""

    archived: bool
    recent: tuple[RunLine, ...]
    """Up to `SPARK_RUNS` ended runs, oldest first."""


class Version(Value):
    """A re-scoring, by which history can be shown."""

    id: str
    name: str
    """The measures version."""
    goes_on: bool
    """Whether it is still running."""
    failed: bool


class DegradedResult(ResultView):
    """A degraded canary of a run, with its ranks when last healthy and now."""

    rank_before: int | None
    rank_now: int | None
    degraded_since: str | None
    """The first run of the period."""
    diagnosis: DiagnosisRow | None


class CheckDetail(Value):
    """A check with the evidence of its newest ended run, in the API's shapes."""

    line: CheckLine
    definition: CheckDocument
    managed_by: str
    source: str | None
    run: RunView | None
    k: int
    """The k of the newest ended run, else of the definition."""
    degraded: Sequence[DegradedResult]
    """The worst degraded canaries, at most `SHOWN_CANARIES`."""
    fleet: FleetView | None
    """What the canaries degraded since the oldest unresolved alert have in common; None = there are none."""
    changed: ChangedCanaries | None
    """How many of the degraded changed since the oldest unresolved alert, and how many failed before; None = no such
    alert, or nothing to compare with."""
    failed: Sequence[ResultView]
    """Canaries whose probe failed, at most `SHOWN_CANARIES`."""
    unresolved: Sequence[AlertLine]
    incidents: Sequence[tuple[IncidentRow | None, list[AlertLine]]]
    """The unresolved alerts by their incidents; None: those that have none, one by one."""
    resolved: Sequence[AlertView]
    runs: Sequence[RunView]
    """The newest runs; of a measures version, those in the re-scoring with its numbers."""
    versions: Sequence[Version]
    """The re-scorings of the check, newest first."""

    @property
    def listed_runs(self) -> tuple[Sequence[RunView], Sequence[RunView]]:
        """The newest runs, as many as the list shows: those that are shown at once, and those in a fold."""
        return self.runs[:_UNFOLDED_RUNS], self.runs[_UNFOLDED_RUNS:_LISTED_RUNS]


def load_line(store: Store, slug: str, now: datetime) -> CheckLine:
    """Return a check in one line, also an archived one. Raises NotFoundError."""
    with store.read() as connection:
        check = references.find_check(connection, slug)
        return _line(connection, check, open_alerts(connection).get(check.id, {}), now)


def load_check(store: Store, slug: str, now: datetime, *, version: str | None = None) -> CheckDetail:
    """Return a check with the evidence of its newest ended run, also an archived one.

    A measures `version` applies to the listed runs only. Raises NotFoundError, and InvalidInputError where there is no
    such version.
    """
    with store.read() as connection:
        check = references.find_check(connection, slug)
        versions = [_version(one) for one in rescorings.list_all(connection, check.id, limit=_SHOWN_VERSIONS)]
        line = _line(connection, check, open_alerts(connection).get(check.id, {}), now)
        k = _k_of(connection, check)
    run = run_views.run(store, line.newest.id) if line.newest else None
    unresolved, explanation = _unresolved(store, slug, run["id"] if run else None)
    degraded, fleet = _degraded(store, run["id"], unresolved, explanation) if run else ([], None)
    return CheckDetail(
        line=line,
        definition=check.read(CheckDocument),
        managed_by=check.managed_by,
        source=check.source,
        run=run,
        k=k,
        degraded=degraded,
        fleet=fleet,
        changed=_changed(unresolved, explanation),
        failed=run_views.results(store, run["id"], verdict=Verdict.UNKNOWN, limit=SHOWN_CANARIES)[0]
        if run and run["canaries"]["failed"]
        else (),
        unresolved=unresolved,
        incidents=shown_alerts.by_incident(store, unresolved),
        resolved=shown_alerts.list_alerts(store, check=slug, state="resolved", before=None, limit=_RECENT_ALERTS),
        runs=run_views.list_runs(store, slug, before=None, limit=_NEWEST_RUNS, version=version, with_queries=False),
        versions=versions,
    )


def _changed(unresolved: Sequence[AlertLine], explanation: FleetEvidence | None) -> ChangedCanaries | None:
    known = [(one.alert["kind"], one.alert["evidence"]) for one in unresolved]
    about_canaries = any(is_about_canaries(kind, one.get("measure"), one.get("answers")) for kind, one in known)
    changed = None if explanation is None else explanation.changed
    return changed if changed is not None and about_canaries and changed.compared else None


def list_versions(store: Store, run_id: str) -> list[Version]:
    """Return the re-scorings that include a run, newest first."""
    with store.read() as connection:
        row = references.find_run(connection, run_id)
        mine = rescorings.rescorings_of(connection, row.id)
        there = rescorings.list_all(connection, row.check_id) if mine else []
        return [_version(one) for one in there if one.id in mine]


def keys_judged_by_relevance(
    store: Store, run_id: str, keys: Collection[str], *, version: str | None = None
) -> frozenset[str]:
    """Return those of these canaries of a run that the relevance of their first hit can degrade."""
    with store.read() as connection:
        row, rescored = past_runs.load_version(connection, references.find_run(connection, run_id), version)
        if row.versions is None:
            return frozenset()
        inputs = past_runs.inputs_of_run(connection, row, rescored)
    measured = measures_relevance(inputs.yardstick.scorer)
    by_key = inputs.suite.by_key
    return frozenset(key for key in keys if is_relevance_judged(by_key[key], scorer_measures_relevance=measured))


def k_of_run(store: Store, run_id: str) -> int | None:
    """Return how many hits of each answer count in a run; None = it has not started."""
    with store.read() as connection:
        version = references.find_run(connection, run_id).check_version_id
        return None if version is None else int(catalog.version_body(connection, version).body["k"])


def _k_of(connection: Connection, check: Definition) -> int:
    newest = run_rows.newest_ended(connection, check.id)
    version = newest.check_version_id if newest is not None else None
    body = check.body if version is None else catalog.version_body(connection, version).body
    return int(body["k"])


def _version(found: Rescoring) -> Version:
    return Version(
        id=str(found.id), name=found.name, goes_on=found.finished_at is None, failed=found.failure is not None
    )


def unjudged_clause(of_run: str, unmeasured: Mapping[str, str]) -> str:
    """Return what is not known of the answers of a check: `of_run`, and what is not measured any more."""
    return "; ".join(filter(None, (of_run, unmeasured_text(unmeasured))))


def _line(
    connection: Connection, check: Definition, unresolved: Mapping[tuple[str, str], int], now: datetime
) -> CheckLine:
    ended = run_rows.ended_runs(connection, check.id, limit=SPARK_RUNS)
    recent = tuple(map(run_line, ended))
    live = check.archived_at is None and bool(check.body["enabled"])
    unmeasured = unmeasured_answers(connection, check) if live else {}
    return CheckLine(
        slug=check.slug,
        suite=check.body["suite"],
        retriever=check.body["retriever"],
        schedule=schedule_text(check.body["schedule"]),
        enabled=bool(check.body["enabled"]),
        archived=check.archived_at is not None,
        newest=recent[-1] if recent else None,
        recent=recent,
        active=open_runs.under_way(connection, to_us(now)).get(check.id),
        next_run=next_run(check, now) if live else None,
        overdue=live and find_overdue(connection, check, now) is not None,
        alerts=unresolved,
        planted=planted_alerts(connection).get(check.id),
        bad_answers=bad_answers(connection, check, ended[-1]) if ended else (),
        unjudged=unjudged_clause(unjudged_of_run(connection, ended[-1].id), unmeasured) if ended else "",
        unmeasured=unmeasured,
        unwatched=nothing_watched(connection, ended[-1]) if ended else "",
    )


def unwatched_of_run(store: Store, run_id: str) -> str:
    """Return that a run measured nothing of what is retrieved, as a clause; else it is empty. Raises NotFoundError."""
    with store.read() as connection:
        return nothing_watched(connection, references.find_run(connection, run_id))


def answers_of_run(store: Store, run_id: str) -> str:
    """Return a clause on the answers of a run that are bad or not judged; else it is empty. Raises NotFoundError."""
    with store.read() as connection:
        run = references.find_run(connection, run_id)
        bad = bad_answers(connection, catalog.definition_by_id(connection, run.check_id), run)
        unjudged = unjudged_of_run(connection, run.id)
    return bad_answers_text(bad, healthy=run.verdict == Verdict.HEALTHY, unjudged=unjudged)


class RunIncident(Value):
    """The incident that a run belongs to, from when to when it lasted, and what to do while it does."""

    id: int
    began_at: datetime
    """End of its first bad run, which is before it opened."""
    resolved_at: datetime | None
    advice: str


def incident_of_run(store: Store, run_id: str) -> RunIncident | None:
    """Return the incident of a bad run; None where there is none. Raises NotFoundError."""
    with store.read() as connection:
        run = references.find_run(connection, run_id)
    found = shown_alerts.incident_of_run(store, run)
    if found is None:
        return None
    with store.read() as connection:
        of_it = alerts.alerts_of_incident(connection, found.id)
        ends = run_rows.run_times(connection, [one.first_run for one in of_it if one.first_run is not None])
    began = min(ends.values(), default=found.opened_at)
    resolved, advice = None if found.resolved_at is None else from_us(found.resolved_at), ""
    if resolved is None:
        with store.read() as connection:
            of_incident = AlertFilter(incident_id=found.id, states=("pending", "firing", "recovering"))
            rows = shown_alerts.find_rows(connection, of_incident, check=None, before=None, limit=50)
            standing = shown_alerts.standing_lines(connection, rows)
        advice = min(standing, key=lambda one: one.order).advice if standing else ""
    return RunIncident(id=found.id, began_at=from_us(began), resolved_at=resolved, advice=advice)


def next_run(check: Definition, now: datetime) -> datetime:
    """Return when the next run starts: the first instant whose delayed start is in the future."""
    schedule = schedule_of(check.body)
    delay = spread(check.slug, schedule)
    return next_due(schedule, now - delay) + delay


def open_alerts(connection: Connection) -> dict[int, dict[tuple[str, str], int]]:
    """Return the number of unresolved alerts by check, and by state and severity."""
    by_check: dict[int, dict[tuple[str, str], int]] = {}
    for check_id, state, severity, count in alerts.count_alerts(connection):
        by_check.setdefault(check_id, {})[state, severity] = count
    return by_check


def planted_alerts(connection: Connection) -> dict[int, tuple[str, str]]:
    """Return the severity and sentence of the firing alert of planted documents, by check."""
    return alerts.firing_of_kind(connection, RuleKind.PLANT)


def _unresolved(store: Store, slug: str, run_id: str | None) -> tuple[list[AlertLine], FleetEvidence | None]:
    """Return the unresolved alerts of a check, and the explanation of a run.

    The explanation covers the canaries degraded since the first of these alerts began.
    """
    with store.read() as connection:
        rows = shown_alerts.find_rows(connection, AlertFilter(states=_UNRESOLVED), check=slug, before=None, limit=50)
        first_run = min([row.first_run for row, _ in rows if row.first_run is not None], default=None)
        mine = [] if run_id is None else [(int(run_id), first_run)]
        run_ids = list(dict.fromkeys([*mine, *explained_by_alert(rows).values()]))
        explained = dict(zip(run_ids, evidence.load_fleets(connection, run_ids), strict=True))
        found = shown_alerts.standing_lines(connection, rows, explained)
    return sorted(found, key=lambda one: _UNRESOLVED.index(one.alert["state"])), explained[mine[0]] if mine else None


def _degraded(
    store: Store, run_id: str, unresolved: Sequence[AlertLine], why: FleetEvidence | None
) -> tuple[list[DegradedResult], FleetView | None]:
    """Return the worst degraded canaries of a run, and what those that fell since these alerts began have in common."""
    begun = [int(first) for one in unresolved if (first := one.alert["since_run"]) is not None]
    with store.read() as connection:
        first_run = min(begun, default=None)
        worst = list_changed(connection, int(run_id), first_run, unchanged=True, limit=SHOWN_CANARIES)["canaries"]
        keys = [canary["key"] for canary in worst]
        since = _degraded_since(connection, int(run_id), keys)
    by_key = {result["key"]: result for result in run_views.results(store, run_id, keys=keys)[0]} if keys else {}
    degraded: list[DegradedResult] = [
        {
            **by_key[canary["key"]],
            "rank_before": canary["rank_before"],
            "rank_now": canary["rank_now"],
            "degraded_since": since.get(canary["key"]),
            "diagnosis": _standing(
                why, canary["key"], canary["rank_now"] if by_key[canary["key"]]["any_match"] else None
            ),
        }
        for canary in worst
        if canary["key"] in by_key
    ]
    return degraded, why.fleet_view if why is not None and begun and why.fleet.fallen else None


def _standing(why: FleetEvidence | None, key: str, rank_now: int | None) -> DiagnosisRow | None:
    """Return the diagnosis of a canary unless it is overcome; None = there is none."""
    diagnosis = None if why is None else why.diagnoses.get(key)
    return None if diagnosis is None or is_overcome(diagnosis.evidence.get("rank_now"), rank_now) else diagnosis


def _degraded_since(connection: Connection, run_id: int, keys: Sequence[str]) -> dict[str, str]:
    """Return the first run of the degraded period that each canary is in at a run, by key."""
    run = run_rows.find_run(connection, run_id)
    if run is None or run.suite_version_id is None:
        return {}
    ids = {
        key: place[1] for key, place in catalog.places_of(connection, [run.suite_version_id], keys).popitem()[1].items()
    }
    since = degraded_since(connection, {run_id: ids.values()})[run_id]
    return {key: str(since[canary_id]) for key, canary_id in ids.items() if canary_id in since}


def run_line(row: RunRow) -> RunLine:
    """Return an ended run in one line."""
    return row_value(
        RunLine,
        row,
        id=str(row.id),
        health_score=row.aggregates.get("health_score"),
        coverage=row.aggregates.get("coverage"),
        finished_at=from_us(row.finished_at) if row.finished_at is not None else None,
    )


def schedule_text(schedule: Mapping[str, Any]) -> str:
    """Return a schedule as text: every 5m, every day at 06:00 (UTC)."""
    if schedule.get("every") is not None:
        every = schedule["every"]
        return f"every {every} s" if isinstance(every, int) else f"every {every}"
    return cron_words(parse_schedule(cron=schedule["cron"], timezone=schedule["timezone"]))
