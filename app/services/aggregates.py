"""Aggregates to rows and back: the vector a run keeps for ever, and the body of the newest run."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.domain.alerts.rules import DEGRADED_SHARE
from app.domain.model import Aggregates, EmbedderChange, Outcome, RunStatus, Slice, Step, Verdict
from app.domain.probing.probe_failures import FailureSummary, ProbeFailure, summarize_failures
from app.domain.runs.evaluation import Panel, unpack_reasons
from app.store.runs.queue import Failure
from app.store.runs.results import RunRow


def stored_aggregates(run: RunRow) -> Aggregates:
    """Give an ended run's aggregates as far as it keeps them: what rules look at."""
    slices: dict[str, dict[str, float | None]] = {}
    means: dict[str, float | None] = {}
    for name, value in run.aggregates.items():
        category, _, measure = name.rpartition("/")
        (slices.setdefault(category, {}) if category else means)[measure] = value
    aggregates = Aggregates(
        total=run.total or 0,
        measured=run.measured or 0,
        failed=run.failed or 0,
        undefined=run.undefined or 0,
        degraded=run.degraded or 0,
        health_score=means.pop("health_score", None),
        coverage=means.pop("coverage", None),
        measures={name: value for name, value in means.items() if name != DEGRADED_SHARE},
        categories={
            category: Slice(
                canaries=0,
                measured=0,
                health_score=values.pop("health_score", None),
                coverage=values.pop("coverage", None),
                measures=values,
            )
            for category, values in slices.items()
        },
    )
    if run.verdict == Verdict.UNKNOWN and run.reasons:
        aggregates = replace(aggregates, unknown_reason=run.reasons[0])
    if run.status == RunStatus.FAILED:  # nobody was asked, whatever embedder there is
        return replace(aggregates, embedder_reason="the run could not be carried out")
    return with_embedder(aggregates, run.embedder)


def with_embedder(aggregates: Aggregates, found: Mapping[str, Any] | None) -> Aggregates:
    """Add to the aggregates of a run that was carried out what it found of its embedder, `kind` and `reason`.

    None = it has none.
    """
    if found is None:
        return aggregates
    kind = None if found["kind"] is None else EmbedderChange(found["kind"])
    return replace(aggregates, embedder=kind, embedder_reason=found["reason"])


def run_body(
    panel: Panel,
    aggregates: Aggregates,
    reasons: NDArray[np.int64],
    outcomes: Sequence[Outcome],
    latencies: Sequence[float],
    *,
    failed_at: Iterable[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Spell out what a run's row leaves out: categories, tags, probes, latency and the degraded canaries.

    `reasons` holds bits by position; positions whose probe failed are not degraded, they are unknown. `failed_at` says
    of failed probes at which step they did, and how; those at the retriever need no telling apart.
    """
    degraded = [
        {
            "key": panel.canaries[position].key,
            "query": panel.canaries[position].query,
            "reasons": [str(reason) for reason in unpack_reasons(int(reasons[position]))],
        }
        for position in np.flatnonzero(reasons).tolist()
        if outcomes[position] is Outcome.OK
    ]
    return {
        "categories": {name: _slice(part) for name, part in aggregates.categories.items()},
        "tags": {name: _slice(part) for name, part in aggregates.tags.items()},
        **probe_summary(aggregates.probes, latencies, failed_at),
        "degraded": degraded,
    }


def probe_summary(
    probes: Mapping[str, int], latencies: Sequence[float], failed_at: Iterable[tuple[str, str]]
) -> dict[str, Any]:
    """Spell out how probes ended, where those failed that did elsewhere than at the retriever, and how long they took.

    `failed_at` holds (step, outcome) of failed probes.
    """
    steps: dict[str, Counter[str]] = {}
    for step, outcome in failed_at:
        if step != Step.RETRIEVER:
            steps.setdefault(step, Counter())[outcome] += 1
    return {
        "probes": dict(probes),
        "probes_by_step": {step: dict(outcomes) for step, outcomes in steps.items()},
        "latency_seconds": latency_summary(latencies),
    }


def stored_probes(run: RunRow, latencies: NDArray[np.float16], failures: Mapping[int, Failure]) -> dict[str, Any]:
    """Summarise the stored probes of a run: what a release before did not keep with it."""
    probes = Counter(str(failure.outcome) for failure in failures.values())
    kept = np.ones(len(latencies), dtype=np.bool_)
    kept[list(failures)] = False
    if run.measured:
        probes[str(Outcome.OK)] = run.measured
    failed_at = [(failure.step, failure.outcome) for failure in failures.values()]
    return probe_summary(probes, latencies[kept].astype(np.float64).tolist(), failed_at)


def failure_summary(failures: Iterable[Failure], total: int) -> FailureSummary | None:
    """Give the failure most of a run's failed probes share, as stored; None where none was sent and failed."""
    probes = (
        ProbeFailure(
            outcome=Outcome(one.outcome),
            step=Step(one.step),
            address=one.address,
            http_status=one.http_status,
            detail=one.detail,
        )
        for one in failures
    )
    return summarize_failures(probes, total)


def latency_summary(latencies: Sequence[float]) -> dict[str, float | None]:
    """Summarise measured latencies: median, 95th percentile and maximum, None where nothing was measured."""
    if not latencies:
        return {"p50": None, "p95": None, "max": None}
    p50, p95, most = np.percentile(np.asarray(latencies), [50, 95, 100]).tolist()
    return {"p50": round(p50, 6), "p95": round(p95, 6), "max": round(most, 6)}


def _slice(part: Slice) -> Mapping[str, Any]:
    return {
        "canaries": part.canaries,
        "measured": part.measured,
        "health_score": part.health_score,
        "coverage": part.coverage,
        "measures": dict(part.measures),
    }
