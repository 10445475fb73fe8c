"""Prometheus metrics: stored state from a snapshot, and counters of this process.

A scrape never reads the store. The snapshot is refreshed at once after changes of this process and every few seconds
for those of other replicas; when the store cannot be read the state series vanish and `coalmine_store_up` is 0.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from app import __version__
from app.alerts.domain.views import AlertState
from app.base.db.engine import Store
from app.base.errors import StoreUnavailableError
from app.base.values import Outcome, Percentile, Severity, Verdict
from app.catalog.domain import TAKEN_AS_RIGHT
from app.hooks.service.deliveries import SentDelivery
from app.operation.service.self_monitor import Issue, SelfMonitor, report_deliveries, report_overload, report_store
from app.plants.domain import PlantProblem
from app.reports.service import metrics_snapshot
from app.reports.service.metrics_snapshot import CheckState, State
from app.runs.service.finalising import EndedRun
from app.scoring.measures import RECALL_BY

_FRESH_SECONDS = 30  # several refreshes of the worker


class Snapshot:
    """The recent stored state; None while the store cannot be read, or `_FRESH_SECONDS` after the last refresh.

    `clock` counts seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._refreshing = threading.Lock()
        self._reader = metrics_snapshot.StateReader()
        self._clock = clock
        self._state: State | None = None
        self._taken_at = 0.0

    @property
    def state(self) -> State | None:
        """The last state read, if it is recent."""
        state, taken_at = self._state, self._taken_at
        return state if self._clock() - taken_at <= _FRESH_SECONDS else None

    def refresh(self, store: Store) -> None:
        """Read the changes of all checks."""
        self._read(lambda: self._reader.read(store))

    def refresh_checks(self, store: Store, check_ids: Collection[int], *, deliveries: bool) -> None:
        """Read these checks, and the outbox if `deliveries` were attempted; the age of the whole state stays."""
        if self.state is None:  # all of it is old
            self.refresh(store)
        else:
            self._read(lambda: self._reader.read_changed(store, check_ids, deliveries=deliveries), is_complete=False)

    def _read(self, read: Callable[[], State], *, is_complete: bool = True) -> None:
        with self._refreshing:
            began = self._clock()
            try:
                state = read()
            except StoreUnavailableError:
                self._state = None
                self._reader.forget()
                raise
            if is_complete:
                self._taken_at = began
            self._state = state


COALESCE_SECONDS = 1.0
"""Least time between two batches."""


class SnapshotKeeper:
    """Refreshes the snapshot in one thread; any thread may report changes."""

    def __init__(self, snapshot: Snapshot, monitor: SelfMonitor, store: Store) -> None:
        """Start without changes."""
        self._snapshot = snapshot
        self._monitor = monitor
        self._store = store
        self._changed = threading.Condition()
        self._check_ids: set[int] = set()
        self._deliveries = False
        self._all = False
        self._closed = False

    def note_run(self, check_id: int) -> None:
        """Report that a run of a check ended."""
        with self._changed:
            self._check_ids.add(check_id)
            self._changed.notify_all()

    def note_delivery(self) -> None:
        """Report that a delivery was attempted."""
        with self._changed:
            self._deliveries = True
            self._changed.notify_all()

    def note_definitions(self) -> None:
        """Report that people changed something, which may be gone."""
        with self._changed:
            self._all = True
            self._changed.notify_all()

    def close(self) -> None:
        """End `keep`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def keep(self, seconds: float, guarded: Callable[[Callable[[], None]], None]) -> None:
        """Refresh the whole snapshot every `seconds`, and changes within one; `guarded` catches and logs errors."""
        refreshed_at = float("-inf")
        while not self._closed:
            left = refreshed_at + seconds - time.monotonic()
            if left <= 0:
                refreshed_at = time.monotonic()
                guarded(self.refresh)
            elif self._wait(left):
                guarded(self.refresh if self._all else self.refresh_changed)
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, min(COALESCE_SECONDS, seconds))

    def refresh(self) -> None:
        """Refresh the whole snapshot, and report issues of this process."""
        with self._changed:
            self._all = False
        report_store(self._monitor, self._store)
        self._take()
        self._snapshot.refresh(self._store)
        report_overload(self._monitor, self._snapshot.state)
        report_deliveries(self._monitor, self._snapshot.state)

    def refresh_changed(self) -> None:
        """Refresh the changes since the last time."""
        check_ids, deliveries = self._take()
        self._snapshot.refresh_checks(self._store, check_ids, deliveries=deliveries)
        if deliveries:
            report_deliveries(self._monitor, self._snapshot.state)

    def _take(self) -> tuple[frozenset[int], bool]:
        with self._changed:
            changes = frozenset(self._check_ids), self._deliveries
            self._check_ids, self._deliveries = set(), False
            return changes

    def _wait(self, seconds: float) -> bool:
        """Wait for a change; return False if there was none within `seconds`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._is_changed, seconds)
            return self._is_changed

    @property
    def _is_changed(self) -> bool:
        return bool(self._check_ids or self._deliveries or self._all)


_RUN_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_PROBE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


SPAN_OUTCOMES: Final = ("counted", "rejected", "passed_over")


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
        self._spans = Counter("coalmine_trace_spans", "Spans that exporters sent.", ["outcome"], registry=registry)
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
        for span in SPAN_OUTCOMES:
            self._spans.labels(span)

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

    def spans_received(self, *, counted: int, rejected: int, passed_over: int) -> None:
        """Count spans of an exporter: queries that count, retrievals that do not, and all others."""
        for outcome, count in zip(SPAN_OUTCOMES, (counted, rejected, passed_over), strict=True):
            self._spans.labels(outcome).inc(count)

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


_CHECK_LABELS = ("check", "suite", "retriever")
_RETRYING = "Deliveries not yet made that were attempted three times or more."
_LAST_SUCCESS = "When the newest run whose verdict is known ended."
_DISABLED = "Whether a hook gets nothing any more because its receiver said that it is gone."
_UNRESOLVED = (AlertState.PENDING, AlertState.FIRING, AlertState.RECOVERING)
_Samples = Iterable[tuple[tuple[str, ...], float | None]]


def state_families(state: State) -> Iterator[Metric]:
    """Yield every family of the state; one without values is left out or empty."""
    yield from _check_families(state.checks)
    yield from _plant_families(state.checks)
    yield from _index_families(state.checks)
    yield from _canary_families(state.checks)
    yield from _shared_families(state)


def gauge(name: str, text: str, labels: tuple[str, ...], samples: _Samples) -> GaugeMetricFamily:
    """Return a gauge of these samples; None makes no series."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        if value is not None:  # nothing measured is no series, never a zero
            family.add_metric(values, value)
    return family


def _check_families(checks: tuple[CheckState, ...]) -> Iterator[Metric]:
    labels = _CHECK_LABELS
    single = (
        ("coalmine_health_score_ratio", "Mean relevance of the first hit.", "health_score"),
        ("coalmine_coverage_ratio", "Share of canaries with an expected chunk in the top k.", "coverage"),
        ("coalmine_degraded_queries", "Degraded canaries of the newest ended run.", "degraded"),
        ("coalmine_last_run_timestamp_seconds", "When the newest run ended.", "last_run"),
        ("coalmine_last_success_timestamp_seconds", _LAST_SUCCESS, "last_success"),
        ("coalmine_check_interval_seconds", "Seconds between scheduled runs.", "interval_seconds"),
    )
    for name, text, field in single:
        yield gauge(name, text, labels, [(check.labels, getattr(check, field)) for check in checks])
    yield gauge(
        "coalmine_canaries",
        "Canaries of the newest ended run by state.",
        (*labels, "state"),
        [((*check.labels, name), count) for check in checks for name, count in check.canaries.items()],
    )
    yield gauge(
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
    yield gauge(
        "coalmine_measure_ratio",
        "Mean of a measure over the canaries that expect something, or over the generated answers that it is of.",
        (*labels, "measure", "k"),
        [
            ((*check.labels, *_cut(name)), value)
            for check in checks
            for name, value in check.measures.items()
            if _cut(name)[0] not in RECALL_BY
        ],
    )
    yield gauge(
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
    yield gauge(
        "coalmine_recall_self_judged",
        "1 = more than a fifth of what is expected was brought up by the retriever itself, so its recall is too high, "
        "or wrong in either direction once it was edited.",
        labels,
        [(check.labels, float(check.self_judged)) for check in checks if check.self_judged is not None],
    )
    yield gauge(
        "coalmine_probe_latency_seconds",
        "Latency of the probes of the newest ended run that measured, by percentile.",
        (*labels, "percentile"),
        [
            ((*check.labels, str(percentile)), check.latencies.get(percentile))
            for check in checks
            for percentile in Percentile
        ],
    )
    accounts = [((*check.labels, scope), account) for check in checks for scope, account in check.evidence.items()]
    if accounts:  # a detector that warms up has none
        yield gauge(
            "coalmine_detector_evidence",
            "Accounts of the detector on the last run it saw, by scope; an alarm is raised at an average of 10,000.",
            (*labels, "scope"),
            accounts,
        )
    cosines = [
        ((*check.labels, *pair), cosine) for check in checks for pair, cosine in check.embedding_canaries.items()
    ]
    if cosines:  # most retrievers embed by themselves
        yield gauge(
            "coalmine_embedding_canary_cosine",
            "Cosine of two known texts as the retriever's embedder answered in the newest run.",
            (*labels, "pair", "similar"),
            cosines,
        )
    yield gauge(
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
    yield gauge(
        "coalmine_index_info",
        "The index version the newest run saw.",
        (*labels, "index_version"),
        [((*check.labels, check.index_version), 1.0) for check in checks if check.index_version is not None],
    )


def _plant_families(checks: tuple[CheckState, ...]) -> Iterator[Metric]:
    """Yield the series of planted documents, for the checks that plant any."""
    planted = [(check.labels, check.plants) for check in checks if check.plants is not None]
    if not planted:
        return
    yield gauge(
        "coalmine_plant_found_seconds",
        "Time until the newest planted document was found; none where it was not.",
        _CHECK_LABELS,
        [(labels, plants.found_seconds) for labels, plants in planted],
    )
    yield gauge(
        "coalmine_plant_gone_seconds",
        "Time until the newest planted document that is gone was gone, after its removal.",
        _CHECK_LABELS,
        [(labels, plants.gone_seconds) for labels, plants in planted],
    )
    yield gauge(
        "coalmine_plant_problem",
        "Whether something is wrong with the newest planted document (1), by what.",
        (*_CHECK_LABELS, "problem"),
        [
            ((*labels, str(problem)), float(plants.problem is problem))
            for labels, plants in planted
            for problem in PlantProblem
        ],
    )


def _index_families(checks: tuple[CheckState, ...]) -> Iterator[Metric]:
    """Yield the facts of indexes, for the checks whose retrievers tell any."""
    told = [((*check.labels, name), value) for check in checks for name, value in check.index_facts.items()]
    if told:
        what = "Fact of the index in the newest run that read it, such as how many documents it holds."
        yield gauge("coalmine_index_fact", what, (*_CHECK_LABELS, "fact"), told)


def _canary_families(checks: tuple[CheckState, ...]) -> Iterator[Metric]:
    """Yield the series of single canaries, for the checks that opted in."""
    shown = [check for check in checks if check.canaries_omitted is not None]
    if not shown:
        return
    labels = (*_CHECK_LABELS, "canary")
    yield gauge(
        "coalmine_canary_top_score_ratio",
        "Relevance of the first hit of a canary in the newest ended run.",
        labels,
        [((*check.labels, key), score) for check in shown for key, score in check.top_scores.items()],
    )
    yield gauge(
        "coalmine_canary_degraded",
        "Whether a canary was degraded in the newest ended run; none where it could not be asked.",
        labels,
        [((*check.labels, key), float(key in check.degraded_keys)) for check in shown for key in check.top_scores],
    )
    yield gauge(
        "coalmine_canaries_omitted",
        "Canaries without series of their own, beyond the number the check shows.",
        _CHECK_LABELS,
        [(check.labels, float(check.canaries_omitted or 0)) for check in shown],
    )


def _shared_families(state: State) -> Iterator[Metric]:
    yield gauge(
        "coalmine_alerts",
        "Alerts that are not resolved.",
        ("check", "state", "severity"),
        [
            ((slug, str(unresolved), str(level)), float(state.alerts.get((slug, str(unresolved), str(level)), 0)))
            for slug, _, _ in (check.labels for check in state.checks)
            for unresolved in _UNRESOLVED
            for level in Severity
        ],
    )
    jobs = state.jobs_waiting  # on PostgreSQL, where workers can be added
    single = (
        ("outbox_pending", "Deliveries not yet made.", state.outbox_pending),
        ("outbox_oldest_seconds", "Age of the oldest delivery not yet made.", state.outbox_oldest_seconds),
        ("runs_waiting", "Runs that are due and could begin.", state.runs_waiting),
        (
            "runs_waiting_oldest_seconds",
            "How long the oldest run that could begin has been due.",
            state.runs_waiting_oldest_seconds,
        ),
        ("jobs_waiting", "Jobs that only wait for a worker.", jobs and jobs.number),
        (
            "jobs_waiting_oldest_seconds",
            "How long the oldest job that only waits for a worker has been due.",
            jobs and jobs.oldest_seconds,
        ),
    )
    for name, text, value in single:
        if value is not None:
            yield gauge(f"coalmine_{name}", text, (), [((), float(value))])
    if state.pooled_recalls:  # most suites have no annotation task
        yield gauge(
            "coalmine_pooled_recall_ratio",
            "Estimated share of what is relevant that a retriever finds, with its 95 % interval as low and high; both "
            "hold only if every grade is right, unless coalmine_pooled_recall_corrected is 1. It is of the queries of "
            "an annotation task, which may be few of the suite.",
            ("suite", "retriever", "k", "bound"),
            [
                ((one.suite, one.retriever, str(one.k), bound), value)
                for one in state.pooled_recalls
                for bound, value in (("estimate", one.value), ("low", one.low), ("high", one.high))
            ],
        )
        yield gauge(
            "coalmine_pooled_recall_corrected",
            "1 = pooled recall is corrected for wrong grades; 0 = it holds, with its interval, only if every grade is "
            "right.",
            ("suite", "retriever"),
            [
                (labels, float(is_corrected))
                for labels, is_corrected in {
                    (one.suite, one.retriever): not one.assumes.startswith(TAKEN_AS_RIGHT)
                    for one in state.pooled_recalls
                }.items()
            ],
        )
        yield gauge(
            "coalmine_pooled_recall_self_judged",
            "1 = it alone brought up what its task judged, without random texts of a corpus: the estimate is too high.",
            ("suite", "retriever"),
            [
                (key, float(own))
                for key, own in {(one.suite, one.retriever): one.self_judged for one in state.pooled_recalls}.items()
            ],
        )
        yield gauge(
            "coalmine_pooled_recall_edited",
            "1 = the retriever was edited after the task asked it, so the estimate is of what it was before.",
            ("suite", "retriever"),
            [
                (key, float(edited))
                for key, edited in {
                    (one.suite, one.retriever): one.edited_since for one in state.pooled_recalls
                }.items()
            ],
        )
    corrected = [
        ((*check.labels, measure, bound), value)
        for check in state.checks
        for measure, one in check.corrected.items()
        for bound, value in (("estimate", one["value"]), ("low", one["low"]), ("high", one["high"]))
    ]
    if corrected:
        yield gauge(
            "coalmine_corrected_ratio",
            "Share of answers that people would say yes of, by their labels, with its 95 % interval as low and high.",
            (*_CHECK_LABELS, "measure", "bound"),
            corrected,
        )
    unrated = [((*check.labels, name), share) for check in state.checks for name, share in check.unrated.items()]
    if unrated:
        yield gauge(
            "coalmine_answers_unrated_ratio",
            "Share of the answers of the newest run that did not come or that the judge did not rate: its measures are "
            "of the others. Above 0.1 the interval of coalmine_corrected_ratio is widened for these.",
            (*_CHECK_LABELS, "measure"),
            unrated,
        )
    if state.judges:  # most installations have none
        yield gauge(
            "coalmine_judge_calibrated",
            "1 = people confirmed this measure of the judge; 0 = it is a hint only, and rules on it are warnings.",
            ("judge", "measure"),
            [(names, float(one.calibrated)) for names, one in state.judges.items()],
        )
        yield gauge(
            "coalmine_judge_edited",
            "1 = the judge asks another endpoint than when the answers that people labelled were drawn, so that what "
            "these say of it, coalmine_judge_calibrated and coalmine_corrected_ratio, is of what it was before.",
            ("judge", "measure"),
            [(names, float(one.edited_since)) for names, one in state.judges.items()],
        )
    for name, text, field in (
        ("coalmine_deliveries_retrying", _RETRYING, "retrying"),
        ("coalmine_deliveries_dead", "Deliveries given up; each can be replayed.", "dead"),
        ("coalmine_hook_disabled", _DISABLED, "disabled"),
    ):
        yield gauge(name, text, ("hook",), [((hook.slug,), float(getattr(hook, field))) for hook in state.hooks])


def _cut(name: str) -> tuple[str, str]:
    measure, _, k = name.partition("@")
    return measure, k
