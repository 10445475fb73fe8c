"""Snapshot of the state for /metrics: the newest ended run of each check, unresolved alerts, outbox, hooks."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

from app.alerts import store as alerts
from app.annotation.store import recall_rows
from app.annotation.store.recall_rows import RecallRow
from app.answers.domain.generated import unrated_shares
from app.answers.store.answer_rows import Confirmation, calibrated_judges, read_run_answers
from app.base import jobs
from app.base.db.engine import Connection, Store, to_us
from app.base.jobs.values import JobsWaiting
from app.base.schedules import interval_seconds, next_due
from app.base.values import OWN_MEASURES, CorrectedRateView, Value, Verdict, field, replace
from app.catalog import store as catalog
from app.catalog.service.judges import is_self_judged
from app.catalog.service.references import schedule_of
from app.detection.store import DetectionRow
from app.hooks import store as outbox
from app.index_facts.service import newest_values
from app.plants.service.shown import PlantNumbers, load_numbers
from app.records.domain import stored_shares
from app.records.store import open_runs, run_rows, state_rows
from app.reports import store as report_rows
from app.reports.store import CheckRows, NumbersVersion

_DECIDED = (Verdict.HEALTHY, Verdict.DEGRADED)


class CheckState(Value):
    """Numbers of a check's newest ended run; None = not measured."""

    labels: tuple[str, str, str]
    interval_seconds: float
    verdict: str | None = None
    health_score: float | None = None
    coverage: float | None = None
    degraded: float | None = None
    canaries: Mapping[str, float]
    measures: Mapping[str, float | None]
    categories: Mapping[str, Mapping[str, float | None]]
    self_judged: bool | None = None
    """Whether its recall is self-judged; None = no run has ended."""
    index_version: str | None = None
    latencies: Mapping[str, float | None] = field(default_factory=dict)
    """Latency of measured probes in seconds, by percentile."""
    last_run: float | None = None
    last_success: float | None = None
    embedding_canaries: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Cosines by key and whether the texts are similar (`true`, `false`)."""
    evidence: Mapping[str, float] = field(default_factory=dict)
    """The detector's evidence at its last run, by scope; `average` over all."""
    top_scores: Mapping[str, float | None] = field(default_factory=dict)
    """Relevance by key of the measured canaries with series of their own; None = not scored."""
    degraded_keys: frozenset[str] = frozenset()
    corrected: Mapping[str, CorrectedRateView] = field(default_factory=dict)
    """By measure of its judge, what people would say of the answers of its newest run."""
    unrated: Mapping[str, float] = field(default_factory=dict)
    """By measure of its judge, the share of the answers of its newest run that have no rating."""
    plants: PlantNumbers | None = None
    """Of its planted documents; None = it has none."""
    index_facts: Mapping[str, float] = field(default_factory=dict)
    """By name, those of the newest run that read any; unknown ones are left out."""
    canaries_omitted: int | None = None
    """Number of canaries without a series because of the cap; None = the check has no canary series."""


class HookDeliveries(Value):
    """Delivery state of a hook."""

    slug: str
    retrying: int
    """Pending deliveries that were attempted three times or more."""
    dead: int
    disabled: bool


class State(Value):
    """The values of all state series."""

    checks: tuple[CheckState, ...] = ()
    alerts: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """Number of unresolved alerts by (check, state, severity); zero is left out."""
    open_incidents: int = 0
    outbox_pending: int
    outbox_oldest_seconds: float
    runs_waiting: int
    """Number of due runs that no worker has started."""
    runs_waiting_oldest_seconds: float
    hooks: tuple[HookDeliveries, ...]
    jobs_waiting: JobsWaiting | None = None
    """None = one process does all of them."""
    pooled_recalls: tuple[RecallRow, ...] = ()
    plants: Mapping[int, PlantNumbers] = field(default_factory=dict)
    """By the id of a check that plants documents."""
    index_facts: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """By the id of a check whose retriever tells facts of its index."""
    judges: Mapping[tuple[str, str], Confirmation] = field(default_factory=dict)
    """By judge and measure: whether people confirmed it."""


class StateReader:
    """Reads the state with a cache per check, which is read again when the check changes. Not thread-safe."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._checks: dict[int, _CachedCheck] = {}
        """By id, in the order of slugs."""
        self._shared: State | None = None
        """What belongs to no check."""

    def forget(self) -> None:
        """Clear the cache: after an outage the database may be another one."""
        self._checks = {}
        self._shared = None

    def read(self, store: Store) -> State:
        """Return the state; reads a short row per check, and in full the checks that changed since the last call."""
        now = datetime.now(UTC)
        with store.read() as connection:
            versions = report_rows.check_versions(connection)
            counts = _count_alerts(connection)
            changed = {
                number: version
                for number, version in versions.items()
                if (entry := self._checks.get(number)) is None or not entry.is_current(version, now)
            }
            fresh = self._read_checks(connection, changed, now)
            self._shared = _read_shared(connection, now)
        kept_or_fresh = self._checks | fresh
        self._checks = {number: replace(kept_or_fresh[number], alerts=counts.get(number, {})) for number in versions}
        return self._state()

    def read_changed(self, store: Store, check_ids: Collection[int], *, deliveries: bool) -> State:
        """Return the state after reading only these checks and the outbox, and hooks if `deliveries` were attempted."""
        if self._shared is None:
            return self.read(store)
        now = datetime.now(UTC)
        ids = sorted(check_ids)
        with store.read() as connection:
            for start in range(0, len(ids), report_rows.BLOCK):
                block = ids[start : start + report_rows.BLOCK]
                versions = report_rows.check_versions(connection, block)
                counts = _count_alerts(connection, block)
                for number, entry in self._read_checks(connection, versions, now).items():
                    if number in self._checks:  # a new one is added in slug order by the next `read`
                        self._checks[number] = replace(entry, alerts=counts.get(number, {}))
            if deliveries:
                self._shared = _read_shared(connection, now)
            else:  # the runs may have something to send
                pending, oldest = outbox.count_pending(connection)
                age = _age(now, oldest)
                self._shared = replace(self._shared, outbox_pending=pending, outbox_oldest_seconds=age)
        return self._state()

    def _read_checks(
        self, connection: Connection, versions: Mapping[int, NumbersVersion], now: datetime
    ) -> dict[int, "_CachedCheck"]:
        entries: dict[int, _CachedCheck] = {}
        for rows in report_rows.read_checks(connection, versions):
            schedule = schedule_of(rows.check.body)
            entries[rows.check.id] = _CachedCheck(
                slug=rows.check.slug,
                version=versions[rows.check.id],
                state=_check(connection, rows, interval_seconds(schedule, now)) if rows.check.body["enabled"] else None,
                until=next_due(schedule, now) if schedule.cron is not None else None,
            )
        return entries

    def _state(self) -> State:
        assert self._shared is not None  # noqa: S101 - it is read with the checks
        shown = [entry for entry in self._checks.values() if entry.state is not None]
        plants, index = self._shared.plants, self._shared.index_facts
        states = [(number, entry.state) for number, entry in self._checks.items() if entry.state is not None]
        return replace(
            self._shared,
            checks=tuple(
                [
                    replace(one, plants=plants.get(at), index_facts=index.get(at, {}))
                    if at in plants or at in index
                    else one
                    for at, one in states
                ]
            ),
            alerts={(entry.slug, *key): count for entry in shown for key, count in entry.alerts.items()},
        )


def read_state(store: Store) -> State:
    """Return the whole state, uncached; reads a few rows per check."""
    return StateReader().read(store)


class _CachedCheck(Value):
    """A cached check."""

    slug: str
    version: NumbersVersion
    state: CheckState | None
    """None = the check is disabled."""
    until: datetime | None
    """When the interval of its cron changes."""
    alerts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Number of unresolved alerts by state and severity."""

    def is_current(self, version: NumbersVersion, now: datetime) -> bool:
        """Whether the check is unchanged since it was read."""
        return self.version == version and (self.until is None or now < self.until)


def _read_shared(connection: Connection, now: datetime) -> State:
    """Return the state that belongs to no check."""
    pending, oldest = outbox.count_pending(connection)
    waiting, since = open_runs.waiting_runs(connection, to_us(now))
    retrying, dead = outbox.retrying_deliveries(connection), outbox.dead_deliveries(connection)
    return State(
        open_incidents=alerts.count_open_incidents(connection),
        outbox_pending=pending,
        outbox_oldest_seconds=_age(now, oldest),
        runs_waiting=waiting,
        runs_waiting_oldest_seconds=_age(now, since),
        hooks=tuple(
            HookDeliveries(
                slug=hook.slug,
                retrying=retrying.get(hook.id, 0),
                dead=dead.get(hook.id, 0),
                disabled=hook.disabled_reason is not None,
            )
            for hook in catalog.list_definitions(connection, "hook")
        ),
        jobs_waiting=jobs.waiting(connection),
        pooled_recalls=tuple(recall_rows.list_recalls(connection, in_force=True)),
        plants=load_numbers(connection),
        index_facts=newest_values(connection),
        judges=calibrated_judges(connection),
    )


def _age(now: datetime, since: int | None) -> float:
    return (to_us(now) - since) / 1e6 if since is not None else 0.0


def _count_alerts(
    connection: Connection, check_ids: Sequence[int] | None = None
) -> dict[int, dict[tuple[str, str], int]]:
    """Return the number of unresolved alerts by check, and by state and severity."""
    counts: dict[int, dict[tuple[str, str], int]] = {}
    for check_id, state, severity, count in alerts.count_alerts(connection, check_ids):
        counts.setdefault(check_id, {})[state, severity] = count
    return counts


def _check(connection: Connection, rows: CheckRows, seconds: float) -> CheckState:
    check, run, body = rows.check, rows.run, rows.body
    labels = (check.slug, check.body["suite"], check.body["retriever"])
    if run is None:
        return CheckState(labels=labels, interval_seconds=seconds, canaries={}, measures={}, categories={})
    newest_decided = run if run.verdict in _DECIDED else run_rows.newest_known(connection, check.id)
    shown = check.body.get("canary_metrics", 0)
    scores, omitted = state_rows.top_scores(connection, run, shown)
    answers = read_run_answers(connection, [run.id]).get(run.id) if check.body.get("judge") else None
    counts = {"measured": run.measured, "failed": run.failed, "undefined": run.undefined}
    return CheckState(
        labels=labels,
        interval_seconds=seconds,
        verdict=run.verdict,
        health_score=run.aggregates.get("health_score"),
        coverage=run.aggregates.get("coverage"),
        degraded=run.degraded,
        canaries={name: count for name, count in counts.items() if count is not None},
        measures={
            name: value for name, value in run.aggregates.items() if "/" not in name and name not in OWN_MEASURES
        },
        categories={
            name: {"coverage": part["coverage"], "health_score": part["health_score"], **part["measures"]}
            for name, part in body.get("categories", {}).items()
        },
        self_judged=is_self_judged(connection, stored_shares(body), check.body["retriever"], suite=check.body["suite"]),
        index_version=run.index_version,
        latencies=cast("Mapping[str, float | None]", body.get("latency_seconds", {})),
        last_run=run.finished_at / 1e6 if run.finished_at else None,
        last_success=newest_decided.finished_at / 1e6
        if newest_decided is not None and newest_decided.finished_at is not None
        else None,
        embedding_canaries={
            (pair["key"], str(pair["similar"]).lower()): pair["cosine"]
            for pair in (run.embedder["pairs"] if run.embedder else ())
        },
        evidence=_evidence(rows.detection),
        top_scores=scores,
        degraded_keys=frozenset(one["key"] for one in body.get("degraded", ())),
        canaries_omitted=omitted if shown else None,
        corrected={} if answers is None else answers.get("corrected", {}),
        unrated={} if answers is None else unrated_shares(answers),
    )


def _evidence(detection: DetectionRow | None) -> dict[str, float]:
    """Return the detector's evidence by scope; empty during warm-up."""
    if detection is None or detection.evidence is None:
        return {}
    return {**detection.body.get("scopes", {}), "average": detection.evidence}
