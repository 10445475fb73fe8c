"""Converts aggregates of runs to stored JSON and back."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from app.alerts.domain.rules import DEGRADED_SHARE
from app.base.values import (
    Aggregates,
    EmbedderChange,
    LatencyView,
    Outcome,
    ProbeSummary,
    RunStatus,
    Slice,
    Step,
    Verdict,
)
from app.records.domain import DegradedName, RunDetails, SliceView
from app.records.store.queue import Failure
from app.records.store.results import RunRow
from app.retrievers.domain.probes import FailedProbe, StoredFinding, latency_summary, unmeasured_canaries
from app.scoring.evaluation import unpack_reasons
from app.scoring.runs import RunInputs, RunOutcome, RunResponses, measured_latencies


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


def run_body(inputs: RunInputs, responses: RunResponses, outcome: RunOutcome) -> RunDetails:
    """Return the JSON stored beside a run's row: categories, tags, probes, latency and the degraded canaries."""
    aggregates = outcome.aggregates
    degraded: list[DegradedName] = [
        {
            "key": inputs.canaries[position].key,
            "query": inputs.canaries[position].query,
            "reasons": list(unpack_reasons(int(outcome.canary_reasons[position]))),
        }
        for position in outcome.degraded.tolist()
    ]
    summary = probe_summary(aggregates.probes, outcome.latencies, responses.failures.values())
    body: RunDetails = {
        "categories": {name: slice_view(part) for name, part in aggregates.categories.items()},
        "tags": {name: slice_view(part) for name, part in aggregates.tags.items()},
        "probes": summary["probes"],
        "probes_by_step": summary["probes_by_step"],
        "unmeasured": unmeasured_canaries(
            (inputs.canaries[place].key, failure) for place, failure in sorted(responses.failures.items())
        ),
        "latency_seconds": summary["latency_seconds"],
        "degraded": degraded,
    }
    sources = inputs.suite.judgment_sources
    if sources is not None:
        body["judgment_sources"] = sources
    return body


def probe_summary(
    probes: Mapping[str, int], latencies: Sequence[float], failures: Iterable[FailedProbe]
) -> ProbeSummary:
    """Return probes by outcome, the failures before the retriever by step, and the latency."""
    steps: dict[str, Counter[str]] = {}
    for failure in failures:
        if failure.step != Step.RETRIEVER:
            steps.setdefault(str(failure.step), Counter())[str(failure.outcome)] += 1
    return {
        "probes": dict(probes),
        "probes_by_step": {step: dict(outcomes) for step, outcomes in steps.items()},
        "latency_seconds": cast("LatencyView", latency_summary(latencies)),
    }


def slice_view(part: Slice) -> SliceView:
    """Return the view of a category or tag, its numbers in full."""
    return {
        "canaries": part.canaries,
        "measured": part.measured,
        "health_score": part.health_score,
        "coverage": part.coverage,
        "measures": dict(part.measures),
    }
