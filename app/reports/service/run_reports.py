"""Reports of ended runs: means with intervals, worst canaries, and what changed since another run. It only reads."""

from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Final, TypedDict

from app.answers.store.calibrations import confirmed_for_check
from app.base.db.engine import Store
from app.base.errors import InvalidInputError, Problem
from app.base.values import Verdict
from app.catalog.service.composition import compose_suite
from app.catalog.service.lookup import find_run
from app.catalog.service.run_inputs import load_guide
from app.catalog.service.suite_snapshots import load_suite
from app.comparison.domain.run_diff import Change
from app.comparison.domain.views import CanaryDifference
from app.comparison.service import run_comparison
from app.records import documents as shapes
from app.records.domain.mean_intervals import ScoreColumns
from app.records.domain.run_views import FullReport, ReportedOutcome, ResultView, RunView
from app.records.service import result_views
from app.records.service.pooled_recall_views import load_recalls
from app.reports.domain import ReportChange, ReportedCanary

_CHANGED: Final = 50
"""Number of degraded canaries, and of healed ones, that are listed."""


class ReportedResults(TypedDict):
    """A run of a check with all results, which can be gone through once."""

    run: RunView
    results: Iterable[ResultView]


def load_report(store: Store, run_id: str, *, version: str | None = None, since: str | None = None) -> FullReport:
    """Return the report of an ended run; `since`: with the change since another run of its check.

    Raises NotFoundError for a run that is not there, ConflictError for one that is active, InvalidInputError for a
    version that is not there and for a `since` of another check.
    """
    summary, result_blocks = result_views.load_blocks(store, run_id, version=version)
    worst: list[ResultView] = []
    unhealthy: list[ReportedOutcome] = []
    columns = ScoreColumns()
    for results in result_blocks:
        worst = shapes.worst_first([*worst, *results])[: shapes.WORST]
        unhealthy += [_outcome(result) for result in results if result["verdict"] != Verdict.HEALTHY]
        columns.add(results)
    with store.read() as connection:
        row = find_run(connection, run_id)
        check_version = row.check_version_id
        confirmed = confirmed_for_check(connection, row.check_id)
        guide = None if check_version is None else load_guide(connection, check_version).body()
        suite = None if row.suite_version_id is None else load_suite(connection, row.suite_version_id)
        pooled = load_recalls(connection, str(summary["suite"]), str(summary["retriever"]))
    return {
        "run": summary,
        "worst": worst,
        "guide": guide,
        "intervals": {
            "run": columns.intervals(),
            "categories": {name: columns.intervals(name) for name in columns.categories},
        },
        "since": None if since is None else _change(store, since, run_id, version=version),
        "pooled_recall": pooled,
        "composition": None if suite is None else compose_suite(suite),
        "confirmed": sorted(confirmed),
        "results": unhealthy,
    }


def load_results(store: Store, run_id: str, *, version: str | None = None, since: str | None = None) -> ReportedResults:
    """Return an ended run with all its results, which are read while they are taken. Raises as `load_report` does."""
    summary, result_blocks = result_views.load_blocks(store, run_id, version=version)
    if since is not None:
        _change(store, since, run_id, version=version)
    return {"run": summary, "results": chain.from_iterable(result_blocks)}


def _outcome(result: ResultView) -> ReportedOutcome:
    return {
        "key": result["key"],
        "outcome": result["outcome"],
        "detail": result["detail"],
        "verdict": result["verdict"],
        "reasons": result["reasons"],
        "top_score": result["top_score"],
        "min_relevance_score": result["min_relevance_score"],
    }


def _change(store: Store, before: str, now: str, *, version: str | None) -> ReportChange:
    compare = partial(run_comparison.diff, store, before, now, limit=_CHANGED, version=version)
    diff, _ = compare(changes=(Change.DEGRADED,))
    if diff["before"]["check"] != diff["now"]["check"]:
        message = f"must be a run of check '{diff['now']['check']}'; runs of two checks are compared by /v1/compare"
        raise InvalidInputError([Problem(path="since", message=message)])
    healed = compare(changes=(Change.HEALED,))[0]["items"] if diff["changes"][Change.HEALED] else []
    return {
        "before": diff["before"],
        "comparable": diff["comparable"],
        "differences": diff["differences"],
        "changes": diff["changes"],
        "decision": diff["decision"],
        "degraded": [_changed(one) for one in diff["items"]],
        "healed": [_changed(one) for one in healed],
    }


def _changed(one: CanaryDifference) -> ReportedCanary:
    before, now = one["before"], one["now"]
    return {
        "key": one["key"],
        "query": one["query"],
        "reasons": [] if now is None else now["reasons"],
        "rank_before": None if before is None else before["rank"],
        "rank_now": None if now is None else now["rank"],
    }
