"""Reports of ended runs: means with intervals, worst canaries, and what changed since another run. It only reads."""

from functools import partial
from typing import Final

from app.domain.comparison.run_diff import Change
from app.domain.comparison.views import CanaryDifference
from app.domain.errors import InvalidInputError, Problem
from app.domain.history.mean_intervals import mean_intervals
from app.domain.history.report_views import ReportChange, ReportedCanary
from app.domain.history.run_views import FullReport, ResultView
from app.services.catalog.run_inputs import load_guide
from app.services.comparison import run_comparison
from app.services.history import result_views
from app.services.history.pooled_recall_views import load_recalls
from app.services.lookup import find_run
from app.store.engine import Store

_CHANGED: Final = 50
"""Number of degraded canaries, and of healed ones, that are listed."""


def load_report(store: Store, run_id: str, *, version: str | None = None, since: str | None = None) -> FullReport:
    """Return the report of an ended run with all results; `since`: with the change since another run of its check.

    Raises NotFoundError for a run that is not there, ConflictError for one that is active, InvalidInputError for a
    version that is not there and for a `since` of another check.
    """
    whole = result_views.report(store, run_id, version=version)
    found = whole["results"]
    with store.read() as connection:
        check_version = find_run(connection, run_id).check_version_id
        guide = None if check_version is None else load_guide(connection, check_version).body()
        pooled = load_recalls(connection, str(whole["run"]["suite"]), str(whole["run"]["retriever"]))
    by_category: dict[str, list[ResultView]] = {}
    for result in found:
        by_category.setdefault(result["category"], []).append(result)
    return {
        "run": whole["run"],
        "worst": whole["worst"],
        "guide": guide,
        "intervals": {
            "run": mean_intervals(found),
            "categories": {name: mean_intervals(members) for name, members in by_category.items()},
        },
        "since": None if since is None else _change(store, since, run_id, version=version),
        "pooled_recall": pooled,
        "results": found,
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
