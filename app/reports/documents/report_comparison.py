"""Compares a report with a saved one: changed measures, newly degraded and recovered canaries."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.base.documents.plain_text import Table, number, plain, shorten
from app.base.errors import InvalidInputError, Problem
from app.base.values import Verdict
from app.comparison.domain.views import ComparisonDecision, Sides
from app.records.domain.run_views import ReportComparison
from app.runs.documents import why_degraded

_SCORES = ("health_score", "coverage", "degraded_share")
_STEADY = 5e-7  # half of what reports round to
_SHOWN = 50


def compare_reports(
    before: Mapping[str, Any], now: Mapping[str, Any], decision: ComparisonDecision | None = None
) -> ReportComparison:
    """Compare two reports of one check: `baseline`, `differences`, `measures`, `newly_degraded`, `recovered`.

    `decision` is what is decided between them, see `services.comparison.report_decisions`.

    `differences` are sentences why the two are not strictly comparable; empty = they are. A measure that one side lacks
    has no difference. A canary is newly degraded when it is degraded now and was not, or was absent, before; `why` has
    a sentence for each of `reasons`. It has recovered when it is healthy now and was degraded before. Unknown is
    neither.
    """
    old, new = before["run"], now["run"]
    old_verdicts = {result["key"]: result["verdict"] for result in before["results"]}
    return {
        "baseline": {
            "id": old.get("id"),
            "check": old.get("check"),
            "finished_at": old.get("finished_at"),
            "index_version": old.get("index_version"),
            "verdict": old.get("verdict"),
        },
        "differences": _differences(old, new),
        "decision": decision,
        "measures": {name: _change(old_value, value) for name, old_value, value in _paired(old, new)},
        "newly_degraded": [
            {
                "key": result["key"],
                "query": result["query"],
                "reasons": result["reasons"],
                "why": list(why_degraded(result)),
            }
            for result in now["results"]
            if result["verdict"] == Verdict.DEGRADED and old_verdicts.get(result["key"]) != Verdict.DEGRADED
        ],
        "recovered": [
            {"key": result["key"], "query": result["query"]}
            for result in now["results"]
            if result["verdict"] == Verdict.HEALTHY and old_verdicts.get(result["key"]) == Verdict.DEGRADED
        ],
    }


def read_reports(name: str, text: str | bytes) -> dict[str, Mapping[str, Any]]:
    """Return a saved report, or a list of them, by check. Raises InvalidInputError where it is not a report."""
    try:
        data = json.loads(text, parse_constant=_not_json)
        reports = data if isinstance(data, list) else [data]
        for report in reports:
            _expect_report(report)
        return {str(report["run"]["check"]): report for report in reports}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = "is not a report saved with `coalmine check --save`"
        raise InvalidInputError([Problem(file=name, message=message)]) from error


def comparison_lines(comparison: Mapping[str, Any]) -> list[str]:
    """Return lines on the baseline of a comparison, and on what makes the two not comparable."""
    baseline = comparison["baseline"]
    when = f" of {plain(str(baseline['finished_at']))}" if baseline["finished_at"] else ""
    changed = f"{len(comparison['newly_degraded'])} newly degraded, {len(comparison['recovered'])} recovered"
    lines = [f"Against the baseline{when}: {changed}"]
    decision = comparison.get("decision")
    if decision is not None:
        told = [decision["sentence"], *(one["sentence"] for one in (*decision["cautions"], *decision["excluded"]))]
        lines += [f"{sentence[:1].upper()}{sentence[1:]}" for sentence in map(plain, told)]
    return lines + [f"Not strictly comparable: {difference}" for difference in comparison["differences"]]


def comparison_tables(comparison: Mapping[str, Any]) -> tuple[Table, ...]:
    """Return tables of changed measures, newly degraded canaries and recovered ones; tables may be empty."""
    moved = tuple(
        (plain(name), number(one["before"]), number(one["now"]), _signed(one["difference"]))
        for name, one in comparison["measures"].items()
        if one["before"] != one["now"] and (one["difference"] is None or abs(one["difference"]) > _STEADY)
    )
    newly = tuple(
        (plain(one["key"]), shorten(one["query"], 100), plain("; ".join(one["why"])))
        for one in comparison["newly_degraded"][:_SHOWN]
    )
    back = tuple((plain(one["key"]), shorten(one["query"], 100)) for one in comparison["recovered"][:_SHOWN])
    quoted = frozenset({0, 1})
    return (
        Table(title="Moved since the baseline", columns=("measure", "baseline", "now", "difference"), rows=moved),
        Table(title="Newly degraded", columns=("canary", "query", "reasons"), rows=newly, quoted=quoted),
        Table(title="Recovered", columns=("canary", "query"), rows=back, quoted=quoted),
    )


def _not_json(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")


def _expect_report(report: Any) -> None:
    """Raise unless the report has every field that a comparison needs."""
    run = report["run"]
    for value in [*run["measures"].values(), *(run[name] for name in _SCORES[:2])]:
        if not isinstance(value, int | float | None):
            raise TypeError("a measure is a number or null")
    run["check"].strip()
    for result in report["results"]:
        result["key"].strip()
        Verdict(result["verdict"])


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    reasons = {
        "suite_hash": "the suite has changed since",
        "measures_version": "the numbers are of different measures versions",
        "config_hash": "the check or the retriever is configured differently since",
    }
    return [sentence for name, sentence in reasons.items() if old.get(name) != new.get(name)]


def _paired(old: Mapping[str, Any], new: Mapping[str, Any]) -> Sequence[tuple[str, float | None, float | None]]:
    before = {**{name: old.get(name) for name in _SCORES}, **old["measures"]}
    now = {**{name: new.get(name) for name in _SCORES}, **new["measures"]}
    return [(name, before.get(name), now.get(name)) for name in dict.fromkeys([*now, *before])]


def _change(before: float | None, now: float | None) -> Sides:
    difference = None if before is None or now is None else round(now - before, 6)
    return {"before": before, "now": now, "difference": difference}


def _signed(difference: float | None) -> str:
    return number(None) if difference is None else f"{difference:+.3f}"
