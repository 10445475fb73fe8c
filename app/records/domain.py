"""What is stored beside the row of a run, where a series of its numbers has gaps, and the cells of a heat map.

What is shown of runs is in `views`; how a run is judged is in `app/scoring`; rows are written in `store`.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from statistics import median
from typing import Final, NotRequired, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from app.base.schedules import EPOCH, TICK, Schedule, next_due
from app.base.values import LatencyView, ProbeSummary, Reason, Step, Value
from app.base.views import view_of
from app.retrievers.domain.probes import FailedProbe, UnmeasuredView, latency_summary, unmeasured_canaries
from app.scoring.evaluation import unpack_reasons
from app.scoring.run_inputs import RunInputs
from app.scoring.run_outcomes import RunOutcome, RunResponses


class SliceView(TypedDict):
    """A category or tag of a run; counts are null where runs are listed."""

    canaries: int | None
    measured: int | None
    health_score: float | None
    coverage: float | None
    measures: dict[str, float | None]


class DegradedName(TypedDict):
    """A degraded canary of a stored run; where runs are listed only its query."""

    key: NotRequired[str]
    query: str
    reasons: NotRequired[list[Reason]]


class RunDetails(TypedDict, total=False):
    """What is stored beside the row of a run; absent where it measured nothing, or a release did not store it."""

    categories: dict[str, SliceView]
    tags: dict[str, SliceView]
    probes: dict[str, int]
    probes_by_step: dict[str, dict[str, int]]
    unmeasured: list[UnmeasuredView]
    latency_seconds: LatencyView
    degraded: list[DegradedName]
    judgment_shares: dict[str, float]
    """Which share of what is expected comes from which source, "" = from none."""
    judgment_sources: list[str]
    """What earlier releases stored in their place, where every judgment had a source."""


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
        "categories": {name: view_of(SliceView, part) for name, part in aggregates.categories.items()},
        "tags": {name: view_of(SliceView, part) for name, part in aggregates.tags.items()},
        "probes": summary["probes"],
        "probes_by_step": summary["probes_by_step"],
        "unmeasured": unmeasured_canaries(
            (inputs.canaries[place].key, failure) for place, failure in sorted(responses.failures.items())
        ),
        "latency_seconds": summary["latency_seconds"],
        "degraded": degraded,
    }
    body["judgment_shares"] = dict(inputs.suite.judgment_shares)
    return body


def stored_shares(body: RunDetails) -> Mapping[str, float]:
    """Return the shares of the sources of judgments; of what earlier releases stored all have the same."""
    sources = body.get("judgment_sources", [])
    return body.get("judgment_shares") or {source: 1 / len(sources) for source in sources}


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


_LONG_GAP_FACTOR: Final = 2.5
_NEIGHBOURS: Final = 5
"""Points to either side from which the usual distance is taken: schedules change."""


class GapReason(StrEnum):
    """Reason of a gap."""

    NOT_MEASURED = "not_measured"
    """Runs ended, but none measured it, or their verdict is unknown."""
    NO_RUNS = "no_runs"
    """No run ended, though some were due."""


class Span(Value):
    """The time that a point of a series covers; for a single run only the moment it ended."""

    start: int
    end: int


class Gap(Value):
    """A period without a measurement, between two points or the ends of the chart."""

    start: int
    end: int
    why: GapReason
    runs: tuple[int, ...] = ()
    """Ids of the runs that ended in it."""


def find_gaps(
    points: Sequence[Span], unmeasured: Sequence[tuple[int, int]], schedule: Schedule, *, start: int, end: int
) -> list[Gap]:
    """Return the gaps between points in order of time, and around them; `unmeasured` runs are (time, id) in order.

    Without an unmeasured run there is a gap if no point follows by the second instant that was due, as for the rule
    `no_data`, and the distance is well above that of the points nearby. Before the first point only unmeasured runs
    count.
    """
    moments = [at for at, _ in unmeasured]
    edges = [
        (before.end, after.start)
        for before, after in zip(
            [Span(start=start, end=start), *points], [*points, Span(start=end, end=end)], strict=True
        )
    ]
    result: list[Gap] = []
    for place, (left, right) in enumerate(edges):
        inside = unmeasured[bisect_left(moments, left) : bisect_right(moments, right)]
        if inside:
            runs = tuple(run for _, run in inside)
            result.append(Gap(start=left, end=right, why=GapReason.NOT_MEASURED, runs=runs))
        elif (
            place > 0
            and right - left > _LONG_GAP_FACTOR * _usual_distance(edges, place)
            and _overdue(schedule, left, right)
        ):
            result.append(Gap(start=left, end=right, why=GapReason.NO_RUNS))
    return result


def _usual_distance(edges: Sequence[tuple[int, int]], place: int) -> float:
    """Return the median distance of the points around an edge, without the ends of the period."""
    near = [
        *edges[max(1, place - _NEIGHBOURS) : place],
        *edges[place + 1 : min(place + 1 + _NEIGHBOURS, len(edges) - 1)],
    ]
    return median(right - left for left, right in near) if near else 0.0


def _overdue(schedule: Schedule, left: int, right: int) -> bool:
    after = EPOCH + timedelta(microseconds=left)
    return (next_due(schedule, next_due(schedule, after)) - EPOCH) // TICK < right


class Cell(StrEnum):
    """What a canary was in the runs of a column of a heat map."""

    HEALTHY = "."
    SOMETIMES = "~"
    """Degraded in fewer than half of the runs that measured it."""
    DEGRADED = "#"
    UNMEASURED = "?"
    """Half of the probes failed or more, and no other run called it degraded."""
    ABSENT = " "
    """It was in none of these runs."""


class RunCells(Value):
    """Which canaries a run called degraded and of which it measured nothing, as places in its suite version."""

    run_id: int
    at: int
    suite_version_id: int
    degraded: NDArray[np.uint32]
    failed: NDArray[np.uint32]


def heat_map_cells(
    columns: Sequence[Sequence[RunCells]], rows_of: Mapping[int, NDArray[np.intp]], *, rows: int
) -> list[str]:
    """Return the cells of each row as text, a `Cell` a column; `columns` are the runs of each.

    `rows_of`: by suite version the row of each of its places, -1 = it is not drawn.
    """
    asked, failed, degraded = np.zeros((3, rows, len(columns)), np.int32)
    for column, runs in enumerate(columns):
        for run in runs:
            row_of = rows_of[run.suite_version_id]
            for counts, some in ((asked, row_of), (failed, row_of[run.failed]), (degraded, row_of[run.degraded])):
                counts[some[some >= 0], column] += 1
    measured = asked - failed
    chosen = [
        (asked == 0, Cell.ABSENT),
        ((degraded > 0) & (2 * degraded >= measured), Cell.DEGRADED),
        (degraded > 0, Cell.SOMETIMES),
        (2 * failed >= asked, Cell.UNMEASURED),
    ]
    cells = np.select([where for where, _ in chosen], [ord(cell) for _, cell in chosen], ord(Cell.HEALTHY))
    return [row.tobytes().decode("ascii") for row in cells.astype(np.uint8)]


class RescoringSide(TypedDict):
    """Totals over the runs of a re-scoring, before or after."""

    runs: int
    coverage: float | None
    health_score: float | None
    degraded: int
    verdicts: dict[str, int]


class RescoringTotals(TypedDict):
    """The runs of a re-scoring as they were, and as they are by it."""

    before: RescoringSide
    after: RescoringSide
