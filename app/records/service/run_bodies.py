"""The JSON stored beside a run's row, which reports show too; needs no store."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from app.base.aggregates import Slice
from app.base.values import Step
from app.records.domain.run_views import DegradedName, RunDetails, SliceView
from app.retrievers.domain.latency_summary import latency_summary
from app.retrievers.domain.probe_failures import FailedProbe, unmeasured_canaries
from app.retrievers.domain.views import LatencyView, ProbeSummary
from app.scoring.run_inputs import RunInputs
from app.scoring.run_outcomes import RunOutcome
from app.scoring.run_responses import RunResponses
from app.scoring.tally import unpack_reasons


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
