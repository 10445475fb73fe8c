"""What Prometheus sees: stored state from a snapshot, and what this process did from its own counters.

A scrape never touches the store. The snapshot is taken when this process changes state and every few seconds for
what other replicas changed; when the store cannot be read the state series vanish and `coalmine_store_up` is 0.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from app import __version__
from app.domain.errors import StoreUnavailableError
from app.domain.measures import RECALL_BY
from app.domain.model import Outcome, Verdict
from app.services import snapshots
from app.services.deliveries import SentDelivery
from app.services.runs import EndedRun
from app.services.snapshots import CheckState, State
from app.store.engine import Store

_CHECK_LABELS = ("check", "suite", "retriever")
_RUN_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_PROBE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_FRESH_SECONDS = 30  # several refreshes of the worker


class Snapshot:
    """The stored state as of a moment ago; None while the store cannot be read.

    `clock` counts seconds. A state nobody could renew for `_FRESH_SECONDS` counts as none: it may not hold any more.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._refreshing = threading.Lock()
        self._clock = clock
        self._state: State | None = None
        self._taken_at = 0.0

    @property
    def state(self) -> State | None:
        """What the store said last, if that is recent."""
        state, taken_at = self._state, self._taken_at
        return state if self._clock() - taken_at <= _FRESH_SECONDS else None

    def refresh(self, store: Store) -> None:
        """Take the snapshot anew. Threads that come while one is being taken wait for a fresh one."""
        with self._refreshing:
            began = self._clock()
            try:
                state = snapshots.take(store)
            except StoreUnavailableError:
                self._state = None
                raise
            self._taken_at = began
            self._state = state


class ProcessMetrics:
    """Counters and timers of this process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._runs = Counter("coalmine_runs", "Runs this process ended.", ["outcome"], registry=registry)
        self._run_seconds = Histogram(
            "coalmine_run_duration_seconds",
            "How long runs took from start to verdict.",
            buckets=_RUN_BUCKETS,
            registry=registry,
        )
        self._probes = Counter("coalmine_probes", "Probes of ended runs by outcome.", ["outcome"], registry=registry)
        self._embedders = Counter(
            "coalmine_embedding_canaries", "Times embedders were asked for known texts.", ["outcome"], registry=registry
        )
        self._probe_seconds = Histogram(
            "coalmine_probe_duration_seconds",
            "How long answered probes took.",
            buckets=_PROBE_BUCKETS,
            registry=registry,
        )
        self._deliveries = Counter("coalmine_deliveries", "Deliveries received by hooks.", ["hook"], registry=registry)
        self._failures = Counter(
            "coalmine_delivery_failures", "Failed delivery attempts.", ["hook", "reason"], registry=registry
        )
        self._lag = Gauge("coalmine_scheduler_lag_seconds", "How late the last tick queued its run.", registry=registry)
        self._reloaded = Gauge(
            "coalmine_config_last_reload_successful",
            "Whether the canary files were applied when last read (1) or the old ones stay in force (0).",
            registry=registry,
        )
        Gauge("coalmine_build_info", "The running version.", ["version"], registry=registry).labels(__version__).set(1)
        self._reloaded.set(1)
        for outcome in Outcome:  # a series that exists from the start can be rated from the start
            self._probes.labels(str(outcome))
            self._embedders.labels(str(outcome))
        for verdict in Verdict:
            self._runs.labels(str(verdict))

    def run_ended(self, run: EndedRun) -> None:
        """Count a run and its probes."""
        exemplar = {"run_id": str(run.id)}
        self._runs.labels(str(run.verdict)).inc()
        self._run_seconds.observe(run.duration_seconds, exemplar)
        for outcome, count in run.probes.items():
            self._probes.labels(outcome).inc(count)
        if run.embedder is not None:
            self._embedders.labels(run.embedder).inc()
        for seconds in run.latencies:
            self._probe_seconds.observe(seconds, exemplar)

    def delivered(self, sent: SentDelivery) -> None:
        """Count an attempt to deliver; what was told once more was counted when it was told."""
        if sent.error is None:
            self._deliveries.labels(sent.hook).inc(0 if sent.again else 1)
        else:
            self._failures.labels(sent.hook, sent.error).inc()

    def scheduler_lag(self, seconds: float) -> None:
        """Note how late a tick was."""
        self._lag.set(seconds)

    def config_reloaded(self, *, successful: bool) -> None:
        """Note whether the canary files could be applied."""
        self._reloaded.set(1 if successful else 0)


class StateCollector(Collector):
    """Turns the snapshot into series."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Yield the state series, or only that the store is down."""
        state = self._snapshot.state
        yield _gauge("coalmine_store_up", "Whether the store could be read.", (), [((), 1.0 if state else 0.0)])
        if state is None:
            return
        yield from _check_families(state.checks)
        yield from _shared_families(state)


@dataclass(frozen=True, slots=True)
class Exposition:
    """The registry of this process with everything in it."""

    registry: CollectorRegistry
    process: ProcessMetrics
    snapshot: Snapshot

    @classmethod
    def create(cls) -> "Exposition":
        """Make a registry of its own, so that several apps in one process never mix."""
        disable_created_metrics()  # type: ignore[no-untyped-call] # twice the series, and nobody reads them
        registry = CollectorRegistry()
        snapshot = Snapshot()
        registry.register(StateCollector(snapshot))
        return cls(registry, ProcessMetrics(registry), snapshot)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Write the exposition in the format the client accepts best; gives it and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


_Samples = Iterable[tuple[tuple[str, ...], float | None]]


def _gauge(name: str, text: str, labels: tuple[str, ...], samples: _Samples) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        if value is not None:  # nothing measured is no series, never a zero
            family.add_metric(values, value)
    return family


def _check_families(checks: tuple[CheckState, ...]) -> Iterator[Metric]:
    labels = _CHECK_LABELS
    single: Mapping[str, tuple[str, Any]] = {
        "coalmine_health_score_ratio": ("Mean relevance of the first hit.", lambda c: c.health_score),
        "coalmine_coverage_ratio": ("Share of canaries with an expected chunk in the top k.", lambda c: c.coverage),
        "coalmine_degraded_queries": ("Degraded canaries of the newest ended run.", lambda c: c.degraded),
        "coalmine_last_run_timestamp_seconds": ("When the newest run ended.", lambda c: c.last_run),
        "coalmine_last_success_timestamp_seconds": (
            "When the newest run whose verdict is known ended.",
            lambda c: c.last_success,
        ),
        "coalmine_check_interval_seconds": ("Seconds between scheduled runs.", lambda c: c.interval_seconds),
    }
    for name, (text, read) in single.items():
        yield _gauge(name, text, labels, [(check.labels, read(check)) for check in checks])
    yield _gauge(
        "coalmine_canaries",
        "Canaries of the newest ended run by state.",
        (*labels, "state"),
        [((*check.labels, name), count) for check in checks for name, count in check.canaries.items()],
    )
    yield _gauge(
        "coalmine_verdict",
        "Verdict of the newest ended run, 1 for the one that holds.",
        (*labels, "verdict"),
        [
            ((*check.labels, verdict), 1.0 if check.verdict == verdict else 0.0)
            for check in checks
            if check.verdict is not None
            for verdict in Verdict
        ],
    )
    yield _gauge(
        "coalmine_measure_ratio",
        "Mean of a measure over the canaries that expect something.",
        (*labels, "measure", "k"),
        [
            ((*check.labels, *_cut(name)), value)
            for check in checks
            for name, value in check.measures.items()
            if _cut(name)[0] not in RECALL_BY
        ],
    )
    yield _gauge(
        "coalmine_recall_ratio",
        "Share of the expected chunks known by id and by text that were found: by id, or by passage as well.",
        (*labels, "k", "level"),
        [
            ((*check.labels, k, RECALL_BY[measure]), value)
            for check in checks
            for name, value in check.measures.items()
            for measure, k in [_cut(name)]
            if measure in RECALL_BY
        ],
    )
    accounts = [((*check.labels, scope), account) for check in checks for scope, account in check.evidence.items()]
    if accounts:  # a detector that warms up has none
        yield _gauge(
            "coalmine_detector_evidence",
            "Accounts of the detector on the last run it saw, by scope; an alarm is raised at an average of 10,000.",
            (*labels, "scope"),
            accounts,
        )
    cosines = [
        ((*check.labels, *pair), cosine) for check in checks for pair, cosine in check.embedding_canaries.items()
    ]
    if cosines:  # most retrievers embed by themselves
        yield _gauge(
            "coalmine_embedding_canary_cosine",
            "Cosine of two known texts as the retriever's embedder answered in the newest run.",
            (*labels, "pair", "similar"),
            cosines,
        )
    yield _gauge(
        "coalmine_category_measure_ratio",
        "Mean of a measure over the canaries of a category.",
        (*labels, "category", "measure", "k"),
        [
            ((*check.labels, category, *_cut(name)), value)
            for check in checks
            for category, measures in check.categories.items()
            for name, value in measures.items()
        ],
    )
    yield _gauge(
        "coalmine_index_info",
        "The index version the newest run saw.",
        (*labels, "index_version"),
        [((*check.labels, check.index_version), 1.0) for check in checks if check.index_version is not None],
    )


def _shared_families(state: State) -> Iterator[Metric]:
    yield _gauge(
        "coalmine_alerts",
        "Alerts that are not resolved.",
        ("check", "state", "severity"),
        [(labels, float(count)) for labels, count in state.alerts.items()],
    )
    yield _gauge("coalmine_outbox_pending", "Deliveries not yet made.", (), [((), float(state.outbox_pending))])
    yield _gauge(
        "coalmine_outbox_oldest_seconds",
        "Age of the oldest delivery not yet made.",
        (),
        [((), state.outbox_oldest_seconds)],
    )


def _cut(name: str) -> tuple[str, str]:
    measure, _, k = name.partition("@")
    return measure, k
