"""Converts aggregates of runs to stored JSON and back."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from app.alerts.domain.rules import DEGRADED_SHARE
from app.base.aggregates import Aggregates, Slice
from app.base.values import EmbedderChange, Outcome, RunStatus, Verdict
from app.records.service.run_bodies import probe_summary
from app.records.store.results import RunRow
from app.records.store.shards import Failure
from app.retrievers.domain.views import ProbeSummary, StoredFinding
from app.scoring.run_responses import measured_latencies


def stored_aggregates(run: RunRow) -> Aggregates:
    """Return the aggregates that rules use, from the row of an ended run."""
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
    if run.status == RunStatus.FAILED:  # no request was sent, to an embedder neither
        return replace(aggregates, embedder_reason="the run could not be carried out")
    return with_embedder(aggregates, run.embedder)


def with_embedder(aggregates: Aggregates, finding: StoredFinding | None) -> Aggregates:
    """Return the aggregates with a stored finding on the embedder; None = there is no embedder."""
    kind, reason = embedder_finding(finding)
    return replace(aggregates, embedder=kind, embedder_reason=reason)


def embedder_finding(finding: StoredFinding | None) -> tuple[EmbedderChange | None, str | None]:
    """Return `kind` and `reason` of a stored finding on the embedder; None = there is no embedder."""
    if finding is None:
        return None, None
    return None if finding["kind"] is None else EmbedderChange(finding["kind"]), finding["reason"]


def stored_probes(run: RunRow, latencies: NDArray[np.float16], failures: Mapping[int, Failure]) -> ProbeSummary:
    """Return `probe_summary` of a run stored by a release that did not store it."""
    probes = Counter(str(failure.outcome) for failure in failures.values())
    if run.measured:
        probes[str(Outcome.OK)] = run.measured
    return probe_summary(probes, measured_latencies(latencies, failures), failures.values())
