"""The stored state as Prometheus series: per check, and for alerts, outbox and hooks.

Their number is bounded, see `docs/metrics.md`: no label has a query, a text or an address.
"""

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from app.alerts.domain.state import AlertState
from app.base.values import Percentile, Severity, Verdict
from app.reports.service.metrics_snapshot import CheckState, State
from app.scoring.measures import RECALL_BY

_CHECK_LABELS = ("check", "suite", "retriever")
_LAST_SUCCESS = "When the newest run whose verdict is known ended."
_RETRYING = "Deliveries not yet made that were attempted three times or more."
_DISABLED = "Whether a hook gets nothing any more because its receiver said that it is gone."
_UNRESOLVED = (AlertState.PENDING, AlertState.FIRING, AlertState.RECOVERING)
_Samples = Iterable[tuple[tuple[str, ...], float | None]]


def state_families(state: State) -> Iterator[Metric]:
    """Yield every family of the state; one without values is left out or empty."""
    yield from _check_families(state.checks)
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
        "Mean of a measure over the canaries that expect something.",
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
        "1 = all judgments are of the retriever's own first hits, so that its recall is near 1 whatever it misses.",
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
    yield gauge("coalmine_outbox_pending", "Deliveries not yet made.", (), [((), float(state.outbox_pending))])
    yield gauge(
        "coalmine_outbox_oldest_seconds",
        "Age of the oldest delivery not yet made.",
        (),
        [((), state.outbox_oldest_seconds)],
    )
    yield gauge("coalmine_runs_waiting", "Runs that are due and could begin.", (), [((), float(state.runs_waiting))])
    yield gauge(
        "coalmine_runs_waiting_oldest_seconds",
        "How long the oldest run that could begin has been due.",
        (),
        [((), state.runs_waiting_oldest_seconds)],
    )
    if state.jobs_waiting is not None:  # on PostgreSQL, where workers can be added
        yield gauge(
            "coalmine_jobs_waiting",
            "Jobs that only wait for a worker.",
            (),
            [((), float(state.jobs_waiting.number))],
        )
        yield gauge(
            "coalmine_jobs_waiting_oldest_seconds",
            "How long the oldest job that only waits for a worker has been due.",
            (),
            [((), state.jobs_waiting.oldest_seconds)],
        )
    if state.pooled_recalls:  # most suites have no annotation task
        yield gauge(
            "coalmine_pooled_recall_ratio",
            "Estimated share of what is relevant that a retriever finds, with its 95 % interval as low and high.",
            ("suite", "retriever", "k", "bound"),
            [
                ((one.suite, one.retriever, str(one.k), bound), value)
                for one in state.pooled_recalls
                for bound, value in (("estimate", one.value), ("low", one.low), ("high", one.high))
            ],
        )
    if state.judges:  # most installations have none
        yield gauge(
            "coalmine_judge_calibrated",
            "1 = people confirmed this measure of the judge; 0 = it is a hint only, and rules on it are warnings.",
            ("judge", "measure"),
            [(names, float(is_confirmed)) for names, is_confirmed in state.judges.items()],
        )
    for name, text, field in (
        (
            "coalmine_deliveries_retrying",
            "Deliveries not yet made that were attempted three times or more.",
            "retrying",
        ),
        ("coalmine_deliveries_dead", "Deliveries given up; each can be replayed.", "dead"),
        ("coalmine_hook_disabled", _DISABLED, "disabled"),
    ):
        yield gauge(name, text, ("hook",), [((hook.slug,), float(getattr(hook, field))) for hook in state.hooks])


def _cut(name: str) -> tuple[str, str]:
    measure, _, k = name.partition("@")
    return measure, k
