"""The state /metrics and the overview show: the newest ended run of each check, open alerts, the outbox."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from app.domain.alerts.rules import DEGRADED_SHARE
from app.domain.catalog.schedules import interval_seconds, next_due
from app.domain.model import Verdict
from app.services.lookup import schedule_of
from app.store.alerts import alerts
from app.store.catalog import definitions
from app.store.delivery import outbox
from app.store.detection.detectors import DetectionRow
from app.store.engine import Connection, Store, to_us
from app.store.history import current_state, metric_rows
from app.store.history.metric_rows import CheckRows, CheckVersion
from app.store.runs import results

_KNOWN = (Verdict.HEALTHY, Verdict.DEGRADED)
_OWN = {"health_score", "coverage", DEGRADED_SHARE}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckState:
    """The newest ended run of a check, as numbers; None = not measured."""

    labels: tuple[str, str, str]
    interval_seconds: float
    verdict: str | None = None
    health_score: float | None = None
    coverage: float | None = None
    degraded: float | None = None
    canaries: Mapping[str, float]
    measures: Mapping[str, float | None]
    categories: Mapping[str, Mapping[str, float | None]]
    index_version: str | None = None
    latencies: Mapping[str, float | None] = field(default_factory=dict)
    """Seconds by percentile, of the probes that measured."""
    last_run: float | None = None
    last_success: float | None = None
    embedding_canaries: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Cosines by key and whether the texts are similar, `true` or `false`."""
    evidence: Mapping[str, float] = field(default_factory=dict)
    """The accounts of the detector on the last run it saw: of each scope and, as `average`, of all."""
    top_scores: Mapping[str, float | None] = field(default_factory=dict)
    """Of the canaries the check shows one by one and the run could ask, by key; None = nothing scored."""
    degraded_keys: frozenset[str] = frozenset()
    canaries_omitted: int | None = None
    """How many canaries have no series of their own because of the cap; None = none has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookState:
    """How news gets through to a hook."""

    slug: str
    retrying: int
    """Deliveries to come that failed `standing.RETRYING_AFTER` times or more."""
    dead: int
    disabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything the state series are made of."""

    checks: tuple[CheckState, ...]
    alerts: Mapping[tuple[str, str, str], int]
    """(check, state, severity) to how many are not resolved; none is left out."""
    outbox_pending: int
    outbox_oldest_seconds: float
    runs_waiting: int
    """Runs that are due and that nobody has begun."""
    runs_waiting_oldest_seconds: float
    hooks: tuple[HookState, ...]
    """Those in force."""


class StateReader:
    """Reads the state and keeps what was read: of a check nothing is read again until it changes.

    Not for several threads at once.
    """

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._checks: dict[int, _KeptCheck] = {}
        """Those in force, by slug."""
        self._shared: _Shared | None = None

    def forget(self) -> None:
        """Let everything be read again: the database was away, and may be another one now."""
        self._checks = {}
        self._shared = None

    def read(self, store: Store) -> State:
        """Read what changed since the last time: a short row of every check, and all of those that changed."""
        now = datetime.now(UTC)
        with store.read() as connection:
            versions = metric_rows.check_versions(connection)
            counts = _count_alerts(connection)
            changed = {
                number: version
                for number, version in versions.items()
                if (entry := self._checks.get(number)) is None or not entry.holds(version, now)
            }
            fresh = self._read_checks(connection, changed, now)
            self._shared = _read_shared(connection, now)
        kept_or_fresh = self._checks | fresh
        self._checks = {number: replace(kept_or_fresh[number], alerts=counts.get(number, {})) for number in versions}
        return self._state()

    def read_changed(self, store: Store, check_ids: Collection[int], *, deliveries: bool) -> State:
        """Read these few checks and what is left to send, and where `deliveries` were attempted how hooks take them.

        The rest is as it was read last.
        """
        if self._shared is None:
            return self.read(store)
        now = datetime.now(UTC)
        ids = sorted(check_ids)
        with store.read() as connection:
            for start in range(0, len(ids), metric_rows.BLOCK):
                block = ids[start : start + metric_rows.BLOCK]
                versions = metric_rows.check_versions(connection, block)
                counts = _count_alerts(connection, block)
                for number, entry in self._read_checks(connection, versions, now).items():
                    if number in self._checks:  # a new one comes in its place by slug when all are read
                        self._checks[number] = replace(entry, alerts=counts.get(number, {}))
            if deliveries:
                self._shared = _read_shared(connection, now)
            else:  # the runs may have something to send
                pending, oldest = outbox.count_pending(connection)
                age = _age(now, oldest)
                self._shared = replace(self._shared, outbox_pending=pending, outbox_oldest_seconds=age)
        return self._state()

    def _read_checks(
        self, connection: Connection, versions: Mapping[int, CheckVersion], now: datetime
    ) -> dict[int, "_KeptCheck"]:
        entries: dict[int, _KeptCheck] = {}
        for rows in metric_rows.read_checks(connection, versions):
            schedule = schedule_of(rows.check.body)
            entries[rows.check.id] = _KeptCheck(
                slug=rows.check.slug,
                version=versions[rows.check.id],
                state=_check(connection, rows, interval_seconds(schedule, now)) if rows.check.body["enabled"] else None,
                until=next_due(schedule, now) if schedule.cron is not None else None,
            )
        return entries

    def _state(self) -> State:
        assert self._shared is not None  # noqa: S101 - it is read with the checks
        shown = [entry for entry in self._checks.values() if entry.state is not None]
        shared = self._shared
        return State(
            checks=tuple([entry.state for entry in shown if entry.state is not None]),
            alerts={(entry.slug, *key): count for entry in shown for key, count in entry.alerts.items()},
            outbox_pending=shared.outbox_pending,
            outbox_oldest_seconds=shared.outbox_oldest_seconds,
            runs_waiting=shared.runs_waiting,
            runs_waiting_oldest_seconds=shared.runs_waiting_oldest_seconds,
            hooks=shared.hooks,
        )


def take(store: Store) -> State:
    """Read the whole state; a few rows per check, never history."""
    return StateReader().read(store)


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptCheck:
    """A check as it was read."""

    slug: str
    version: CheckVersion
    state: CheckState | None
    """None: it is disabled."""
    until: datetime | None
    """When its interval is another one: of a cron it differs from one instant to the next."""
    alerts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How many are not resolved by state and severity."""

    def holds(self, version: CheckVersion, now: datetime) -> bool:
        """Whether nothing it was made of has changed."""
        return self.version == version and (self.until is None or now < self.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What is of no check."""

    outbox_pending: int
    outbox_oldest_seconds: float
    runs_waiting: int
    runs_waiting_oldest_seconds: float
    hooks: tuple[HookState, ...]


def _read_shared(connection: Connection, now: datetime) -> _Shared:
    pending, oldest = outbox.count_pending(connection)
    waiting, since = current_state.waiting_runs(connection, to_us(now))
    return _Shared(
        outbox_pending=pending,
        outbox_oldest_seconds=_age(now, oldest),
        runs_waiting=waiting,
        runs_waiting_oldest_seconds=_age(now, since),
        hooks=_hooks(connection),
    )


def _hooks(connection: Connection) -> tuple[HookState, ...]:
    retrying, dead = current_state.retrying_deliveries(connection), current_state.dead_deliveries(connection)
    return tuple(
        HookState(
            slug=hook.slug,
            retrying=retrying.get(hook.id, 0),
            dead=dead.get(hook.id, 0),
            disabled=hook.disabled_reason is not None,
        )
        for hook in definitions.list_definitions(connection, "hook")
    )


def _age(now: datetime, since: int | None) -> float:
    return (to_us(now) - since) / 1e6 if since is not None else 0.0


def _count_alerts(
    connection: Connection, check_ids: Sequence[int] | None = None
) -> dict[int, dict[tuple[str, str], int]]:
    """Count the unresolved alerts of checks by state and severity."""
    counts: dict[int, dict[tuple[str, str], int]] = {}
    for check_id, state, severity, count in alerts.count_alerts(connection, check_ids):
        counts.setdefault(check_id, {})[state, severity] = count
    return counts


def _check(connection: Connection, rows: CheckRows, seconds: float) -> CheckState:
    check, run, body = rows.check, rows.run, rows.body
    labels = (check.slug, check.body["suite"], check.body["retriever"])
    if run is None:
        return CheckState(labels=labels, interval_seconds=seconds, canaries={}, measures={}, categories={})
    newest_known = run if run.verdict in _KNOWN else results.newest_known(connection, check.id)
    shown = check.body.get("canary_metrics", 0)
    scores, omitted = current_state.top_scores(connection, run, shown)
    counts = {"measured": run.measured, "failed": run.failed, "undefined": run.undefined}
    return CheckState(
        labels=labels,
        interval_seconds=seconds,
        verdict=run.verdict,
        health_score=run.aggregates.get("health_score"),
        coverage=run.aggregates.get("coverage"),
        degraded=run.degraded,
        canaries={name: count for name, count in counts.items() if count is not None},
        measures={name: value for name, value in run.aggregates.items() if "/" not in name and name not in _OWN},
        categories={
            name: {"coverage": part["coverage"], "health_score": part["health_score"], **part["measures"]}
            for name, part in body.get("categories", {}).items()
        },
        index_version=run.index_version,
        latencies=body.get("latency_seconds", {}),
        last_run=run.finished_at / 1e6 if run.finished_at else None,
        last_success=newest_known.finished_at / 1e6
        if newest_known is not None and newest_known.finished_at is not None
        else None,
        embedding_canaries={
            (pair["key"], str(pair["similar"]).lower()): pair["cosine"]
            for pair in (run.embedder or {}).get("pairs", ())
        },
        evidence=_evidence(rows.detection),
        top_scores=scores,
        degraded_keys=frozenset(one["key"] for one in body.get("degraded", ())),
        canaries_omitted=omitted if shown else None,
    )


def _evidence(seen: DetectionRow | None) -> dict[str, float]:
    """Give the accounts a detector keeps; none while it warms up."""
    if seen is None or seen.evidence is None:
        return {}
    return {**seen.body.get("scopes", {}), "average": seen.evidence}


def ping(store: Store) -> None:
    """Ask the store for anything. Raises StoreUnavailableError."""
    with store.read() as connection:
        outbox.count_pending(connection)
