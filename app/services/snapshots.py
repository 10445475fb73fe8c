"""The state /metrics and the overview show: the newest ended run of each check, open alerts, the outbox."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from app.domain.alerting import AlertState
from app.domain.model import Severity
from app.domain.rules import DEGRADED_SHARE
from app.domain.schedules import interval_seconds
from app.services.scheduling import schedule_of
from app.store import alerts, catalog, detection, history, outbox, standing
from app.store.detection import DetectionRow
from app.store.engine import Connection, Store, to_us

_UNRESOLVED = (AlertState.PENDING, AlertState.FIRING, AlertState.RECOVERING)
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
    """(check, state, severity) to how many are not resolved."""
    outbox_pending: int
    outbox_oldest_seconds: float
    runs_waiting: int
    """Runs that are due and that nobody has begun."""
    runs_waiting_oldest_seconds: float
    hooks: tuple[HookState, ...]
    """Those in force."""


def take(store: Store) -> State:
    """Read the state; a few rows per check, never history."""
    now = datetime.now(UTC)
    with store.read() as connection:
        checks = [row for row in catalog.list_definitions(connection, "check") if row.body["enabled"]]
        bodies = history.latest_bodies(connection)
        seen = detection.newest_detections(connection)
        pending, oldest = outbox.outbox(connection)
        waiting, since = standing.waiting_runs(connection, to_us(now))
        return State(
            checks=tuple(
                [_check(connection, check, bodies.get(check.id), seen.get(check.id), now) for check in checks]
            ),
            alerts=_alerts(connection, checks),
            outbox_pending=pending,
            outbox_oldest_seconds=_age(now, oldest),
            runs_waiting=waiting,
            runs_waiting_oldest_seconds=_age(now, since),
            hooks=_hooks(connection),
        )


def _hooks(connection: Connection) -> tuple[HookState, ...]:
    retrying, dead = standing.retrying_deliveries(connection), standing.dead_deliveries(connection)
    return tuple(
        HookState(
            slug=hook.slug,
            retrying=retrying.get(hook.id, 0),
            dead=dead.get(hook.id, 0),
            disabled=hook.disabled_reason is not None,
        )
        for hook in catalog.list_definitions(connection, "hook")
    )


def _age(now: datetime, since: int | None) -> float:
    return (to_us(now) - since) / 1e6 if since is not None else 0.0


def _alerts(connection: Connection, checks: Sequence[catalog.Definition]) -> dict[tuple[str, str, str], int]:
    """Count the unresolved alerts of checks; none is a count too."""
    slugs = {check.id: check.slug for check in checks}
    counts = {
        (slug, str(state), str(level)): 0 for slug in slugs.values() for state in _UNRESOLVED for level in Severity
    }
    for check_id, state, severity, count in alerts.count_alerts(connection):
        if check_id in slugs:
            counts[slugs[check_id], state, severity] = count
    return counts


def _check(
    connection: Connection,
    check: catalog.Definition,
    newest: tuple[int, Mapping[str, Any]] | None,
    seen: DetectionRow | None,
    now: datetime,
) -> CheckState:
    labels = (check.slug, check.body["suite"], check.body["retriever"])
    seconds = interval_seconds(schedule_of(check.body), now)
    run = history.find_run(connection, newest[0]) if newest else None
    if run is None or newest is None:
        return CheckState(labels=labels, interval_seconds=seconds, canaries={}, measures={}, categories={})
    known = history.newest_known(connection, check.id)
    shown = check.body.get("canary_metrics", 0)
    scores, omitted = standing.top_scores(connection, run, shown)
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
            for name, part in newest[1].get("categories", {}).items()
        },
        index_version=run.index_version,
        latencies=newest[1].get("latency_seconds", {}),
        last_run=run.finished_at / 1e6 if run.finished_at else None,
        last_success=known.finished_at / 1e6 if known is not None and known.finished_at is not None else None,
        embedding_canaries={
            (pair["key"], str(pair["similar"]).lower()): pair["cosine"]
            for pair in (run.embedder or {}).get("pairs", ())
        },
        evidence=_evidence(seen),
        top_scores=scores,
        degraded_keys=frozenset(one["key"] for one in newest[1].get("degraded", ())),
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
        outbox.outbox(connection)
