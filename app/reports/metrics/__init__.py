"""Prometheus metrics: stored state from a snapshot, and counters of this process.

A scrape never reads the store. The snapshot is refreshed at once after changes of this process and every few seconds
for those of other replicas; when the store cannot be read the state series vanish and `coalmine_store_up` is 0.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from app import __version__
from app.base.values import Outcome, Verdict
from app.hooks.service.deliveries import SentDelivery
from app.operation.service.self_monitor import Issue, SelfMonitor
from app.reports.metrics.snapshot import Snapshot as Snapshot
from app.reports.metrics.state import gauge, state_families
from app.runs.service.finalising import EndedRun

_RUN_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_PROBE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


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
            "coalmine_embedding_canaries", "Requests of embedding canaries.", ["outcome"], registry=registry
        )
        self._probe_seconds = Histogram(
            "coalmine_probe_duration_seconds",
            "How long answered probes took.",
            buckets=_PROBE_BUCKETS,
            registry=registry,
        )
        self._deliveries = Counter("coalmine_deliveries", "Deliveries received by hooks.", ["hook"], registry=None)
        self._failures = Counter(
            "coalmine_delivery_failures", "Failed delivery attempts.", ["hook", "reason"], registry=None
        )
        self.of_hooks: Final = (self._deliveries, self._failures)
        """Counters by hook; `HookCollector` exports them."""
        gauge_of = partial(Gauge, registry=registry)
        self._lag = gauge_of(
            "coalmine_scheduler_lag_seconds",
            "How late the last tick queued its run, or, where it is longer, how long the next is overdue.",
        )
        self._reloaded = gauge_of(
            "coalmine_config_last_reload_successful",
            "Whether the canary files were applied when last read (1) or the old ones stay in force (0).",
        )
        self._reloaded_at = gauge_of(
            "coalmine_config_last_reload_success_timestamp_seconds",
            "When the canary files were applied last, or the process began where it applies none.",
        )
        self._config = gauge_of(
            "coalmine_config_info",
            "What replicas must agree on: the canary files in force here and the settings all should share, as a hash.",
            ["hash"],
        )
        self._worker = gauge_of(
            "coalmine_worker_up",
            "Whether this process works (1), or only serves or has lost a thread of its worker (0).",
        )
        issues = gauge_of(
            "coalmine_self_issue", "Whether something is wrong with this process itself (1), by issue.", ["issue"]
        )
        self.monitor = SelfMonitor()
        for issue in Issue:
            issues.labels(str(issue)).set_function(partial(self.monitor.has, issue))
        Gauge("coalmine_build_info", "The running version.", ["version"], registry=registry).labels(__version__).set(1)
        self._reloaded.set(1)
        self._is_reloaded = True
        self._reloaded_at.set_to_current_time()
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
        """Count a delivery attempt; a repeated success is counted once."""
        if sent.error is None:
            self._deliveries.labels(sent.hook).inc(0 if sent.is_resend else 1)
        else:
            self._failures.labels(sent.hook, sent.error).inc()

    def watch_lag(self, lag: Callable[[], float]) -> None:
        """Export from now on how late the ticks of this process are."""
        self._lag.set_function(lag)

    def config_reloaded(self, *, successful: bool) -> None:
        """Record whether the canary files could be applied."""
        self._reloaded.set(1 if successful else 0)
        self._is_reloaded = successful
        if successful:
            self._reloaded_at.set_to_current_time()

    @property
    def is_config_applied(self) -> bool:
        """Whether the canary files could be applied when they were last read."""
        return self._is_reloaded

    def config_in_force(self, config: str) -> None:
        """Record the hash of the applied configuration."""
        self._config.clear()
        self._config.labels(config).set(1)

    def config_left_to_others(self) -> None:
        """Export no configuration: this process applies no canary files, so that it can disagree with nobody."""
        self._config.clear()

    def watch_worker(self, alive: Callable[[], bool]) -> None:
        """Export from now on whether the worker of this process is alive."""
        self._worker.set_function(alive)


class StateCollector(Collector):
    """Turns the snapshot into series."""

    def __init__(self, snapshot: Snapshot, monitor: SelfMonitor) -> None:
        self._snapshot = snapshot
        self._monitor = monitor

    def collect(self) -> Iterator[Metric]:
        """Yield the state series, or only that the store is down."""
        state = self._snapshot.state
        up = state is not None and not self._monitor.issues.keys() & {Issue.STORE_READ, Issue.STORE_WRITE}
        yield gauge("coalmine_store_up", "Whether the store could be read and takes writes.", (), [((), float(up))])
        if state is not None:
            yield from state_families(state)


class HookCollector(Collector):
    """Exports the counters of hooks in force; of those that are gone they are kept, in case a hook comes back."""

    def __init__(self, snapshot: Snapshot, counters: Sequence[Counter]) -> None:
        self._snapshot = snapshot
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """Yield the counters; while the state is unknown those of all hooks that were sent to."""
        state = self._snapshot.state
        slugs = None if state is None else {hook.slug for hook in state.hooks}
        for counter in self._counters:
            for family in counter.collect():
                family.samples = [one for one in family.samples if slugs is None or one.labels["hook"] in slugs]
                yield family


@dataclass(frozen=True, slots=True)
class Exposition:
    """The registry of this process with everything in it."""

    registry: CollectorRegistry
    process: ProcessMetrics
    snapshot: Snapshot

    @classmethod
    def create(cls) -> "Exposition":
        """Return an exposition with a registry of its own, so that several apps in one process do not mix."""
        disable_created_metrics()  # type: ignore[no-untyped-call] # they double the series
        registry = CollectorRegistry()
        snapshot = Snapshot()
        process = ProcessMetrics(registry)
        registry.register(HookCollector(snapshot, process.of_hooks))
        registry.register(StateCollector(snapshot, process.monitor))
        return cls(registry, process, snapshot)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the exposition in the format the client prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type
